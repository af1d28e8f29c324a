# SPDX-License-Identifier: LGPL-2.1-or-later
"""Warm restart, reload and watchdog under systemd: nothing of the pool is lost, nothing dirty is granted, holders notice nothing."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time

import pytest
from harness import holder, pages, wait_until
from harness.pages import MIB, PAGE_2M
from inside import CONFIG, FULL, POOLS, WARM_NODE, drop_in, is_container, journal, run

IDLE_S = float(os.environ.get("HUGEZERO_IDLE_SECONDS", "4"))


@pytest.mark.parametrize("how", ["restart", "restart of the socket", "SIGKILL", "SIGTERM", "systemd"])
def test_what_was_ready_is_ready_again_and_the_first_grant_takes_no_fill(warm, start_child, how):
    files, ready, pid = warm.wait_stored(), warm.ready(), warm.pid
    if how == "restart":
        run("systemctl", "restart", "hugezerod.service")
    elif how == "restart of the socket":  # as the pages advise after its unit has changed
        run("systemctl", "restart", "hugezerod.socket")
        warm.wait_running(pid)
    elif how == "systemd":  # as when a package of it is installed
        run("systemctl", "daemon-reexec")
        warm.kill()
    else:
        warm.kill(getattr(signal, how))
    assert warm.pid != pid
    assert warm.ready() == ready and warm.n_zeroed() == 0
    child = start_child()
    (extent,) = child.call(holder.acquire, warm.socket_path, 2 * MIB, pool="small")
    assert extent.inode in files and child.call(holder.is_zero)
    assert warm.n_zeroed() == 0 and warm.status()["n_built"] == 0
    child.kill()
    warm.assert_no_page_is_lost()


def test_a_holder_keeps_its_memory_and_the_daemon_knows_it_again(warm, start_child):
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="p")
    child.call(holder.fill)
    keys = "grant_id", "uid", "pid", "bytes", "ino", "state"
    before = [[row[key] for key in keys] for row in warm.grants()]
    assert len(before) >= 1
    warm.kill()
    assert [[row[key] for key in keys] for row in warm.grants()] == before
    assert child.call(holder.is_filled_with)
    child.kill()
    warm.assert_no_page_is_lost()


def fail_often(service, n_failures=25):
    """A client waits at the socket all the time. With RestartSec=10ms that is more than any limit of systemd's own allows."""
    before = int(service.show("NRestarts"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.connect(service.socket_path)
        wait_until(lambda: int(service.show("NRestarts")) >= before + n_failures, f"it has failed {n_failures} times")
        assert service.show("ActiveState", "hugezerod.socket") == "active"


@pytest.mark.parametrize("why", ["configuration", "option", "SIGKILL"])
def test_however_often_it_fails_what_is_stored_waits(warm, start_child, why):
    """A unit that is failed has no store any more, with systemd before 254."""
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="p")
    child.call(holder.fill)
    warm.wait_full()
    files, ready = warm.wait_stored(), warm.ready()
    text, unit = CONFIG.read_text(), drop_in("service").read_text()
    if why == "SIGKILL":
        for _ in range(12):
            warm.kill()
    else:
        if why == "configuration":
            CONFIG.write_text(f"{text}Target=63K\n")
        else:
            drop_in("service").write_text(f"{unit}ExecStart=\nExecStart=/usr/sbin/hugezerod --nonsense\n")
            run("systemctl", "daemon-reload")
        run("systemctl", "restart", "hugezerod.service", check=False)
        fail_often(warm)
        assert warm.stored()[0] == files
        CONFIG.write_text(text)
        drop_in("service").write_text(unit)
        run("systemctl", "daemon-reload")
        warm.wait_running(0)  # by itself
    assert warm.ready() == ready and warm.n_zeroed() == 0
    assert [row["bytes"] for row in warm.grants()] == [8 * MIB] and child.call(holder.is_filled_with)
    child.kill()
    warm.assert_no_page_is_lost()


def test_a_daemon_that_hangs_is_started_again_by_the_watchdog(warm, start_child):
    warm.start(service="WatchdogSec=1s\n")
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="p")
    child.call(holder.fill)
    warm.wait_full()
    warm.wait_stored()
    ready, pid = warm.ready(), warm.pid
    os.kill(pid, signal.SIGSTOP)
    warm.wait_running(pid)
    assert "Watchdog timeout" in journal("hugezerod.service")
    assert warm.ready() == ready and warm.n_zeroed() == 0
    assert child.call(holder.is_filled_with)
    child.kill()
    warm.assert_no_page_is_lost()


def test_the_watchdog_is_fed_while_nothing_happens(warm):
    warm.start(service="WatchdogSec=500ms\n")
    pid = warm.pid
    time.sleep(2)  # four times as long as it would take
    assert warm.pid == pid


def test_reload_grows_and_shrinks_and_a_wrong_file_changes_nothing(warm):
    pid = warm.pid
    for mib in 96, 8, 48:
        warm.configure(f"[Pool p]\nTarget=node{WARM_NODE}:{mib}M\n")
        run("systemctl", "reload", "hugezerod.service")
        wait_until(lambda: warm.ready() == {("p", WARM_NODE): mib * MIB}, f"{mib} MiB are ready")  # pylint: disable=cell-var-from-loop
        wait_until(lambda: sum(warm.wait_stored().values()) == mib * MIB, "systemd keeps that")  # pylint: disable=cell-var-from-loop
        if not is_container():
            assert pages.count("nr") - pages.count("free") == mib * MIB // PAGE_2M
    warm.configure(f"[Pool p]\nTarget=node{WARM_NODE}:64M\nTarget=lots\n")
    assert subprocess.run(["systemctl", "reload", "hugezerod.service"], check=False).returncode == 1
    wait_until(lambda: re.search(r"nothing was changed: .*hugezerod\.conf:6: .*lots", journal("hugezerod.service")), "it is said")
    assert warm.ready() == {("p", WARM_NODE): 48 * MIB} and warm.pid == pid
    assert warm.show("ActiveState") == "active"
    wait_until(lambda: "Reloading failed" in warm.show("StatusText"), "it is shown")


def test_a_reload_checks_the_file_that_the_daemon_reads(warm):
    other = CONFIG.with_name("other.conf")
    other.write_text(CONFIG.read_text())
    warm.start(service=f'Environment=HUGEZEROD_OPTIONS="--config {other}"\n')
    run("systemctl", "reload", "hugezerod.service")
    other.write_text(f"[Pool p]\nTarget=node{WARM_NODE}:48M\nTarget=lots\n")
    assert subprocess.run(["systemctl", "reload", "hugezerod.service"], check=False).returncode == 1
    wait_until(lambda: re.search(r"nothing was changed: .*other\.conf:3: .*lots", journal("hugezerod.service")), "it is said")


def test_a_ledger_of_another_version_begins_cold_and_takes_nothing_from_holders(warm, start_child):
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="p")
    child.call(holder.fill)
    warm.wait_full()
    before = warm.wait_stored()
    (ledger,) = (link for link in pathlib.Path(f"/proc/{warm.pid}/fd").iterdir() if os.readlink(link).startswith("/memfd:hugezero-ledger"))
    with open(ledger, "r+b", buffering=0) as file:
        assert os.pwrite(file.fileno(), (99).to_bytes(4, "little"), 8) == 4
    warm.kill()
    assert "another version" in journal("hugezerod.service")
    wait_until(lambda: sum(warm.ready().values()) == FULL, "it is full again")
    assert not before.keys() & warm.wait_stored().keys()
    assert warm.grants() == [] and child.call(holder.is_filled_with)
    child.kill()
    warm.assert_no_page_is_lost()


@pytest.mark.parametrize("told", ["the daemon knows", "the daemon does not know"])
def test_a_store_that_is_too_small_keeps_what_it_can(warm, start_child, told):
    n_max, n_others = 6, 2  # ledger and inotify instance
    told = f"Environment=FDSTORE={n_max}\n" if told == "the daemon knows" else ""
    warm.start(service=f"FileDescriptorStoreMax={n_max}\n{told}")
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="small", several=True)
    child.call(holder.fill)
    for _ in range(3):
        wait_until(lambda: warm.stored()[1] == n_max, "the store is full")
        assert len(warm.stored()[0]) == n_max - n_others
        warm.kill()
        warm.wait_full()
        assert child.call(holder.is_filled_with)
    child.kill()
    wait_until(lambda: sum(warm.ready().values()) == FULL, "all is ready again")
    if not is_container():
        wait_until(lambda: pages.count("nr") - pages.count("free") == FULL // PAGE_2M, "no page is lost")


def test_what_may_no_longer_be_stored_is_taken_out_of_the_store_and_known_all_the_same(warm, start_child):
    """Of a pool with another name, too."""
    child = start_child()
    child.call(holder.acquire, warm.socket_path, 8 * MIB, pool="p")
    child.call(holder.fill)
    warm.wait_full()
    inodes = {row["ino"] for row in warm.grants()}
    for text, n_stored in (POOLS.replace("[Pool p]", "[Pool q]"), None), ("WarmExtents=0\n" + POOLS, 0):
        warm.configure(text)
        run("systemctl", "restart", "hugezerod.service")
        assert {row["ino"] for row in warm.grants()} == inodes and child.call(holder.is_filled_with)
        assert sum(warm.ready().values()) == FULL - 8 * MIB and warm.n_zeroed() == 0
        wait_until(lambda: n_stored is None or warm.stored()[1] == n_stored, "nothing is stored")  # pylint: disable=cell-var-from-loop
    child.kill()
    wait_until(lambda: sum(warm.ready().values()) == FULL, "all is ready again")
    warm.stop()
    if is_container():
        wait_until(lambda: not pages.users(), "nobody has pages")
    else:
        wait_until(lambda: pages.count("nr") == pages.count("free"), "no page is lost")


def test_an_idle_daemon_sleeps(warm):
    """Its targets are met: what wakes it is the watchdog and the sweep, with which it reads memory again."""
    CONFIG.write_text(POOLS)
    run("systemctl", "restart", "hugezerod.service")
    warm.wait_full()
    warm.wait_stored()
    wait_until(lambda: n_switches(warm.pid) == (time.sleep(1), n_switches(warm.pid))[1], "it has come to rest")
    n_wakeups, last, quiet, end = 0, n_switches(warm.pid), True, time.monotonic() + IDLE_S
    while time.monotonic() < end:
        time.sleep(0.2)
        now = n_switches(warm.pid)
        n_wakeups += quiet and now != last
        last, quiet = now, now == last
    print(f"woken {n_wakeups} times in {IDLE_S} s")
    # Every 15 s the watchdog, every 60 s the sweep; each of them may come once more than that
    assert n_wakeups <= 2 + IDLE_S // 15 + IDLE_S // 60


def n_switches(pid):
    """How often its threads have been given a CPU."""
    return sum(
        int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)[1])
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
    )
