# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the daemon writes to the journal, and that it has nothing to say on a healthy day."""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile

import pytest
from harness import holder, journal, wait_until
from harness.daemon import WRAPPER, become
from harness.pages import MIB, PAGE_2M, free, hugetlb_files, need_pages
from hugezero_client import Client, Item, Refused

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


@pytest.fixture
def the_journal():
    if not journal.available():
        pytest.skip("only root can put a journal of its own in the place of the host's")
    made = journal.Journal()
    yield made
    made.close()


def test_entries_have_ids_and_fields(start_daemon, start_child, the_journal):
    need_pages(16)
    daemon = start_daemon(pools=["small=2M:2M:16M"], config=QUICK, wrapper=the_journal.wrapper)
    daemon.wait_full()
    (started,) = the_journal.find("STARTED")
    assert started["SOCKET"] == daemon.socket_path and started["SYSLOG_IDENTIFIER"] == "hugezerod" and started["PRIORITY"] == "6"
    pool = the_journal.find("POOL")[0]
    assert (pool["POOL"], pool["NODE"], pool["TARGET_BYTES"], pool["PAGE_SIZE_BYTES"]) == ("small", "0", str(16 * MIB), str(PAGE_2M))

    # A client that breaks the protocol
    with Client(daemon.socket_path) as client:
        client.socket.send(b"x" * 64)
        (cut,) = wait_until(lambda: the_journal.find("CLIENT_CUT_OFF"), "the client is cut off")
    assert (cut["UID"], cut["PID"], cut["PRIORITY"]) == (str(os.getuid()), str(os.getpid()), "5")

    # Somebody who opens his memory by himself
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, PAGE_2M)
    child.call(holder.reopen)
    (grant,) = daemon.grants()
    child.kill()
    (doubt,) = wait_until(lambda: the_journal.find("DOUBT"), "the memory is given up")
    assert (doubt["GRANT"], doubt["UID"], doubt["POOL"], doubt["NODE"]) == (str(grant["grant_id"]), "0", "small", str(grant["node"]))

    (daemon.folder / "hugezerod.conf").write_text("[Daemon]\nReleaseGrace=never\n")
    daemon.process.send_signal(signal.SIGHUP)
    (wrong,) = wait_until(lambda: the_journal.find("RELOAD_FAILED"), "the configuration is refused")
    assert wrong["PRIORITY"] == "3" and int(wrong["ERRNO"]) > 0 and "ReleaseGrace" in wrong["MESSAGE"]

    said = daemon.stderr()
    daemon.stop()
    assert the_journal.find("STOPPED")[0]["GRANTS"] == "1"
    assert said == "", "what the journal gets is not on stderr too"
    assert all(len(entry["MESSAGE_ID"]) == 32 for entry in the_journal.entries())


def test_orders_of_administrators_leave_a_trace(start_daemon, start_child, the_journal):
    need_pages(4)
    daemon = start_daemon(pools=["small=2M:2M:8M"], config=f"AdminUsers=3001\n{QUICK}", wrapper=the_journal.wrapper)
    child = start_child(uid=3001)
    child.call(holder.try_admin, daemon.socket_path, "resize")
    child.call(holder.try_admin, daemon.socket_path, "reload")
    (resized,) = the_journal.find("RESIZED")
    assert (resized["UID"], resized["PID"], resized["POOL"], resized["NODE"], resized["PRIORITY"]) == ("3001", str(child.pid), "", "-1", "5")
    assert int(resized["TARGET_BYTES"]) >= 0 and "all pools on all nodes" in resized["MESSAGE"]
    (asked,) = the_journal.find("RELOAD_ASKED")
    assert (asked["UID"], asked["PID"], asked["PRIORITY"]) == ("3001", str(child.pid), "5")
    with Client(daemon.socket_path) as client:
        client.resize(4 * MIB, "small", 0)
    assert "pool small on node 0 to 4 MiB" in the_journal.find("RESIZED")[-1]["MESSAGE"]


def give_orders(me, path, n, failing):
    """n reloads, half of them of a file that is wrong, and resizes to more than there is and to less."""
    client = holder.client(me, path)
    for order in range(n):
        client.resize(64 * MIB if order % 2 else 2 * MIB, "small", 0)
        with contextlib.suppress(Refused):
            client.reload()
        pathlib.Path(failing).write_text("Nonsense" if order % 2 else "[Daemon]\nAdminUsers=3001\nWarmExtents=7\n")


@pytest.mark.once
def test_orders_and_what_comes_of_them_are_limited_in_the_log(start_daemon, start_child):
    need_pages(64)
    start_child().call(holder.reserve, free() - 4)
    daemon = start_daemon(pools=["small=2M:2M:2M"], config=QUICK + "LogLevel=info\n[Quota default]\nMaxRequestRate=infinity\n")
    daemon.wait_full()
    start_child(uid=0).call(give_orders, daemon.socket_path, 200, daemon.folder / "hugezerod.conf")

    def n_said(words):
        return daemon.stderr().count(words)

    n_orders, n_reloads = 60, 20  # limits for one minute; a slow machine may take two
    for words, limit in {
        "set the target": n_orders, "has the configuration read": n_orders, "is short of": n_orders, "all its pages again": n_orders,
        "was read again": n_reloads, "is started again: ": n_reloads, "reloading failed": n_reloads,
    }.items():  # fmt: skip
        assert 0 < n_said(words) <= 2 * limit, (words, n_said(words))
    # Another administrator's orders are not hidden by those
    (daemon.folder / "hugezerod.conf").write_text("[Daemon]\nAdminUsers=3001\n")
    start_child(uid=0).call(holder.try_admin, daemon.socket_path, "reload")
    assert start_child(uid=3001).call(holder.try_admin, daemon.socket_path, "reload") is None
    assert n_said("uid 3001, process") == 1


@pytest.mark.once
def test_lost_events_are_told_of_once_a_minute(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config=QUICK)
    daemon.wait_full()
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for _ in range(2):
        child, bystander = start_child(), start_child()
        child.call(holder.acquire, daemon.socket_path, PAGE_2M, on_miss="fill")
        (extent,) = bystander.call(holder.acquire, daemon.socket_path, PAGE_2M, on_miss="fill")
        with daemon.stopped():
            child.call(holder.make_events, limit + 16)
            bystander.call(holder.drop)
        # Its close event was among those that were lost
        wait_until(lambda inode=extent.inode: inode not in hugetlb_files(daemon.pid), "it is dropped")
        child.kill()
        wait_until(lambda: not daemon.grants(), "everything came back")
    assert daemon.stderr().count("events about granted memory were lost") == 1


def test_a_shortage_names_pool_and_node(start_daemon, start_child, the_journal):
    need_pages(64)
    other = start_child()
    other.call(holder.reserve, free() - 8)
    daemon = start_daemon(pools=["2M:2M:64M"], config=QUICK, wrapper=the_journal.wrapper)
    (short,) = wait_until(lambda: the_journal.find("SHORT"), "the shortage is reported")
    name = daemon.pools()[0]["name"]
    assert (short["POOL"], short["NODE"], short["PRIORITY"]) == (name, "0", "5") and 0 < int(short["MISSING_BYTES"]) <= 64 * MIB
    other.kill()
    (recovered,) = wait_until(lambda: the_journal.find("RECOVERED"), "its end is reported")
    assert (recovered["POOL"], recovered["NODE"]) == (name, "0")


def lines_of_a_day(daemon):
    """All but what the daemon has learnt of methods and threads."""
    lines = daemon.stderr().splitlines()
    assert sum("; clears, as " in line for line in lines) == 1, lines
    return [line for line in lines if "; clears, as " not in line]


def test_a_healthy_day_is_a_silent_day(start_daemon, start_child):
    need_pages(64)
    config = QUICK + "AffinityTimeout=100ms\nLogLevel=info\n" + ("ClearMethod=memset\n" if WRAPPER else "")  # valgrind is too slow to measure it
    daemon = start_daemon(pools=["2M:auto:64M", "fixed=2M:2M:16M"], config=config)
    daemon.wait_full()
    wait_until(lambda: "; clears, as " in daemon.stderr(), "how it clears was measured")
    said = lines_of_a_day(daemon)
    for turn in range(5):
        child = start_child()
        child.call(holder.acquire, daemon.socket_path, 6 * MIB, on_miss="fill")
        child.call(holder.fill)
        child.call(holder.mapped, daemon.socket_path)
        if turn % 2:
            child.call(holder.release, daemon.socket_path)
        with Client(daemon.socket_path) as client:
            with pytest.raises(OSError):
                client.acquire([Item(bytes=1 << 40)])
            client.pools()
        child.kill()
        daemon.wait_full()
    wait_until(lambda: not daemon.grants(), "everything came back")
    assert lines_of_a_day(daemon) == said
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    (last,) = lines_of_a_day(daemon)[len(said) :]
    assert "stopping; grants since the start: 5" in last


def reserve(build, text, wrapper=(), **env):
    """What hugezero-reserve does and says with that configuration."""
    with tempfile.NamedTemporaryFile("w", prefix="hugezero-test-") as config:
        os.chmod(config.name, 0o644)
        config.write(text)
        config.flush()
        command = [*wrapper, build / "systemd" / "hugezero-reserve", "--config", config.name]
        return subprocess.run(command, env=dict(os.environ, **env), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, check=False)


def test_reserve_writes_plain_lines_where_stderr_is_not_the_journal(build):
    """The variable is that of the unit below which it was called."""
    answer = reserve(build, "", JOURNAL_STREAM="8:1")
    assert answer.returncode == 0 and answer.stderr.startswith("hugezero-reserve: info: nothing is to be reserved")


def test_reserve_says_what_an_unprivileged_user_can_do(build):
    need_pages(2)
    answer = reserve(build, "2M 0 64T\n", wrapper=become(65534))
    assert answer.returncode == 1 and "only root may" in answer.stderr and "hugezero-reserve.service" in answer.stderr


def test_entries_of_reserve_have_ids_and_fields(build, the_journal):
    answer = reserve(build, "2M 0 0\n", wrapper=the_journal.wrapper)
    assert (answer.returncode, answer.stderr) == (0, "")
    (entry,) = the_journal.find("RESERVED")
    assert (entry["NODE"], entry["PAGE_SIZE_BYTES"], entry["NEW_PAGES"]) == ("0", str(PAGE_2M), "0") and int(entry["PAGES"]) > 0
    assert entry["SYSLOG_IDENTIFIER"] == "hugezero-reserve"
