# SPDX-License-Identifier: LGPL-2.1-or-later
"""Warm restart, reload and watchdog under systemd: nothing of the pool is lost, nothing dirty is granted, holders notice nothing."""

import os
import pathlib
import re
import signal
import time

import pytest
from harness import holder, pages, wait_until
from harness.pages import MIB, PAGE_2M
from inside import CONFIG, FULL, POOLS, WARM_NODE, is_container, journal, run

IDLE_S = float(os.environ.get("HUGEZERO_IDLE_SECONDS", "4"))


@pytest.mark.parametrize("how", ["restart", "SIGKILL", "SIGTERM", "systemd"])
def test_what_was_ready_is_ready_again_and_the_first_grant_takes_no_fill(warm, start_child, how):
    files, ready, pid = warm.wait_stored(), warm.ready(), warm.pid
    if how == "restart":
        run("systemctl", "restart", "hugezerod.service")
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
    run("systemctl", "reload", "hugezerod.service")
    wait_until(lambda: re.search(r"nothing was changed: .*hugezerod\.conf:6: .*lots", journal("hugezerod.service")), "it is said")
    assert warm.ready() == {("p", WARM_NODE): 48 * MIB} and warm.pid == pid


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


def test_an_idle_daemon_sleeps(warm):
    """Its targets are met and it does not read memory again: what wakes it is the sweep and the watchdog."""
    CONFIG.write_text(f"[Daemon]\nAuditRate=0\n{POOLS}")
    run("systemctl", "restart", "hugezerod.service")
    warm.wait_full()
    warm.wait_stored()
    wait_until(lambda: n_switches(warm.pid) == (time.sleep(1), n_switches(warm.pid))[1], "it has come to rest")
    before = n_switches(warm.pid)
    time.sleep(IDLE_S)
    print(f"{n_switches(warm.pid) - before} wake-ups in {IDLE_S} s")
    # Every 15 s the watchdog, every 30 s the sweep, which may take a few
    assert n_switches(warm.pid) - before <= 1 + IDLE_S / 15 + 3 * IDLE_S / 30


def n_switches(pid):
    """How often its threads have been given a CPU."""
    return sum(
        int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", (task / "status").read_text(), re.MULTILINE)[1])
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
    )
