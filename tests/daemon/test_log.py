# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the daemon writes to the journal, and that it has nothing to say on a healthy day."""

import os
import signal

import pytest
from harness import holder, journal, wait_until
from harness.daemon import WRAPPER
from harness.pages import MIB, PAGE_2M, free, need_pages
from hugezero_client import Client, Item

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


def test_a_healthy_day_is_a_silent_day(start_daemon, start_child):
    need_pages(64)
    config = QUICK + "AffinityTimeout=100ms\nLogLevel=info\n" + ("ClearMethod=memset\n" if WRAPPER else "")  # valgrind is too slow to measure it
    daemon = start_daemon(pools=["2M:auto:64M", "fixed=2M:2M:16M"], config=config)
    daemon.wait_full()
    wait_until(lambda: "clears" in daemon.stderr(), "how it clears was measured")
    said = daemon.stderr()
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
    assert daemon.stderr() == said
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0
    (last,) = daemon.stderr().removeprefix(said).splitlines()
    assert "stopping after 5 grants" in last
