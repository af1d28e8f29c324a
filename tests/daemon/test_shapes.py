# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sizes that are not whole, cuts large enough for a worker, and what becomes of the books after them."""

from harness import pages
from hugezero_client import Client, Item

MIB = 1 << 20


def test_sizes_that_are_no_whole_pages_are_rounded_up_and_do_not_spoil_later_fills(start_daemon):
    pages.need_pages(64)
    daemon = start_daemon(pools=["2M:auto:128M"], config="ReleaseGrace=50ms\nAffinityTimeout=0\n")
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        for n_bytes in 1, 5 * MIB + 3, 33 * MIB - 1:
            with client.acquire([Item(bytes=n_bytes)], on_miss="wait", timeout_ms=10000) as grant:
                assert grant.extents[0].bytes == -(-n_bytes // (2 * MIB)) * 2 * MIB
        daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again, filled by what was asked for")
    assert "failed" not in daemon.stderr()


def test_a_tail_of_more_than_a_gib_is_cut_off_and_counted(start_daemon):
    pages.need_pages(1024)
    daemon = start_daemon(pools=["2M:auto:2G"], config="ReleaseGrace=50ms\nAffinityTimeout=0\n")
    with Client(daemon.socket_path) as client:
        # Asked for once, the size is in stock the next time: one extent of 2 GiB
        client.acquire([Item(bytes=2048 * MIB)], on_miss="wait", timeout_ms=60000).close()
        daemon.wait_pool(lambda row: row["largest_ready_bytes"] == 2048 * MIB, "one extent of 2 GiB is ready")
        grant = client.acquire([Item(bytes=6 * MIB)])
        row = daemon.pool()
        assert row["granted_bytes"] == 6 * MIB and row["n_cut"] == 1
        assert grant.extents[0].bytes == 6 * MIB
        daemon.wait_pool(lambda row: row["ready_bytes"] + row["granted_bytes"] == row["target_bytes"], "the tail is filled again")
        grant.close()


def test_a_reopenable_extent_is_renewed_even_when_nobody_reopened_it(start_daemon):
    pages.need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config="ReleaseGrace=50ms\nSocketGroup=root\n")
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        inodes = set()
        for _ in range(3):
            with client.acquire([Item(bytes=2 * MIB, reopenable=True)], on_miss="wait", timeout_ms=10000) as grant:
                inodes.add(pages.inode(grant.extents[0].fd))
            daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again")
        assert len(inodes) == 3
        assert daemon.status()["scrubbed_bytes_total"] == 0
