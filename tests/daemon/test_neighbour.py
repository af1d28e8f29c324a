# SPDX-License-Identifier: LGPL-2.1-or-later
"""A good neighbour: the host's pages and the memory of live holders are left as they are."""

import pathlib

import pytest
from harness import holder, wait_until
from harness.pages import MIB, PAGE_2M, free, n_surplus_made, need_pages

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


def settings():
    return {str(path): path.read_text() for path in pathlib.Path("/sys/kernel/mm/hugepages").glob("*/nr_*hugepages")}


def test_the_number_of_hugepages_is_never_changed(start_daemon, start_child):
    need_pages(64)
    before = settings()
    assert before
    daemon = start_daemon(pools=["2M:auto:128M"], config=QUICK)
    child = start_child()
    for n_bytes in 128 * MIB, 2 * MIB, 70 * MIB:
        child.call(holder.acquire, daemon.socket_path, n_bytes, on_miss="wait", timeout_ms=20000)
        child.call(holder.drop)
    daemon.wait_full()
    assert settings() == before
    daemon.stop()
    assert settings() == before


def test_the_memory_of_a_live_holder_is_untouched_whatever_happens_around_it(start_daemon, start_child):
    need_pages(96)
    daemon = start_daemon(pools=["2M:auto:128M"], config=QUICK)
    daemon.wait_full()
    quiet, busy = start_child(), start_child()
    quiet.call(holder.acquire, daemon.socket_path, 32 * MIB)
    quiet.call(holder.fill)
    for n_bytes in 6 * MIB, 90 * MIB, 96 * MIB, 2 * MIB:
        busy.call(holder.acquire, daemon.socket_path, n_bytes, on_miss="wait", timeout_ms=20000)
        busy.call(holder.fill, byte=0x11)
        busy.call(holder.drop)
    daemon.sweep()
    assert quiet.call(holder.is_filled_with)
    daemon.stop()
    assert quiet.call(holder.is_filled_with)


def use_reserved(me, n_pages):
    for page in range(n_pages):
        me.reserved.write(page * PAGE_2M, b"x")


def test_pages_that_others_have_reserved_are_not_taken(start_daemon, start_child):
    need_pages(64)
    other = start_child()
    other.call(holder.reserve, free() - 8)
    daemon = start_daemon(pools=["2M:2M:64M"], config=QUICK)
    row = daemon.wait_pool(lambda row: row["shortfall_bytes"], "the shortfall is known")
    assert row["ready_bytes"] + row["filling_bytes"] <= 64 * MIB - row["shortfall_bytes"]
    other.call(use_reserved, 16)
    other.kill()
    daemon.wait_full()


def test_no_surplus_page_is_ever_made(start_daemon, start_child):
    """Where the host allows overcommitting a fill beyond the free pages would silently take ordinary memory."""
    path = pathlib.Path(f"/sys/kernel/mm/hugepages/hugepages-{PAGE_2M // 1024}kB/nr_overcommit_hugepages")
    need_pages(16)
    before = path.read_text()
    try:
        path.write_text("64")
    except OSError:
        pytest.skip("only root can allow overcommitting")
    try:
        start_child().call(holder.reserve, free() - 8)
        for _ in range(5):  # each time eight workers and more fills than pages
            n_made = n_surplus_made()
            daemon = start_daemon(pools=["2M:2M:64M"], config=QUICK + "WorkersPerNode=8\n")
            # Not eight pages: somebody's may have come back meanwhile
            daemon.wait_pool(lambda row: free() == 0 and row["ready_bytes"] and not row["filling_bytes"], "all that can be filled is filled")
            assert n_surplus_made() == n_made
            daemon.stop()
    finally:
        path.write_text(before)


def test_a_pool_that_was_short_is_filled_when_pages_appear(start_daemon, start_child):
    need_pages(64)
    other = start_child()
    other.call(holder.reserve, free() - 8)
    daemon = start_daemon(pools=["2M:2M:64M"], config=QUICK)
    daemon.wait_pool(lambda row: row["shortfall_bytes"] > 0, "the shortfall is known")
    assert daemon.stderr().count("short") == 1
    other.kill()
    daemon.wait_full()
    wait_until(lambda: daemon.pool()["shortfall_bytes"] == 0, "there is no shortfall any more")
