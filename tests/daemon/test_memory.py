# SPDX-License-Identifier: LGPL-2.1-or-later
"""What is in the memory that a client gets: zeroes, present, on the right node, and nobody else's."""

import pytest
from harness import holder, wait_until
from harness.pages import GIB, MIB, PAGE_1G, PAGE_2M, count, free, hugetlb_files, map_anonymous, need_pages

NOBODY, DAEMON_USER = 65534, 1
QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


def wait_returned(daemon):
    """Until nothing is granted or on its way back, and the pool is full again."""
    daemon.wait_pool(
        lambda row: row["granted_bytes"] + row["returned_bytes"] == 0 and row["ready_bytes"] >= row["target_bytes"],
        "everything came back and is ready again",
    )


def soil(child, daemon, n_bytes):
    """Takes, fills and lets go of memory; returns its inodes."""
    extents = child.call(holder.acquire, daemon.socket_path, n_bytes)
    child.call(holder.fill)
    child.call(holder.drop)
    wait_returned(daemon)
    return {extent.inode for extent in extents}


# I1: every byte of a granted extent is zero


@pytest.mark.parametrize("pool, n_bytes", [("2M:auto:64M", 64 * MIB), ("2M:2M:16M", 2 * MIB), ("2M:auto:64M", 10 * MIB)])
def test_every_byte_of_a_fresh_extent_is_zero(start_daemon, start_child, pool, n_bytes):
    need_pages(64)
    daemon = start_daemon(pools=[pool])
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, n_bytes)
    assert child.call(holder.is_zero)


def test_every_byte_of_a_recycled_extent_is_zero_and_it_is_the_same_memory(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    child = start_child()
    for _ in range(5):
        soiled = soil(child, daemon, 16 * MIB)
        (extent,) = child.call(holder.acquire, daemon.socket_path, 16 * MIB)
        assert {extent.inode} == soiled, "the extent was not kept for its service"
        assert child.call(holder.is_zero)
        child.call(holder.drop)
        wait_returned(daemon)
    assert daemon.status()["scrubbed_bytes_total"] >= 5 * 16 * MIB


def test_an_extent_with_a_hole_is_whole_and_zero_when_it_is_recycled(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 16 * MIB)
    child.call(holder.fill)
    child.call(holder.punch, 4 * MIB, 6 * MIB)
    child.call(holder.drop)
    wait_returned(daemon)
    child.call(holder.acquire, daemon.socket_path, 16 * MIB)
    assert child.call(holder.bytes_present) == 16 * MIB
    assert child.call(holder.is_zero)


@pytest.mark.large
def test_every_byte_of_a_1_gib_page_is_zero_fresh_and_recycled(start_daemon, start_child):
    need_pages(1, PAGE_1G)
    daemon = start_daemon(pools=["1G:auto:1G"], config=QUICK)
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, GIB, page_size=PAGE_1G)
    assert child.call(holder.is_zero)
    child.call(holder.drop)
    wait_returned(daemon)
    soil(child, daemon, GIB)
    child.call(holder.acquire, daemon.socket_path, GIB, page_size=PAGE_1G)
    assert child.call(holder.is_zero)


# I2: what one service held reaches another only as new memory


def assert_new_memory(daemon, first, second, n_bytes):
    soiled = soil(first, daemon, n_bytes)
    extents = second.call(holder.acquire, daemon.socket_path, n_bytes)
    assert not soiled & {extent.inode for extent in extents}, "memory of one service was given to another"
    assert second.call(holder.is_zero)


def test_another_user_gets_a_new_inode(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    assert_new_memory(daemon, start_child(uid=NOBODY), start_child(uid=DAEMON_USER), 16 * MIB)


def test_another_control_group_of_the_same_user_gets_a_new_inode(start_daemon, start_child, make_cgroup):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    first, second = (start_child(uid=NOBODY, cgroup=make_cgroup(name)) for name in ("one", "two"))
    assert_new_memory(daemon, first, second, 16 * MIB)


def test_another_process_of_the_same_service_may_get_the_same_inode(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    soiled = soil(start_child(uid=NOBODY), daemon, 16 * MIB)
    second = start_child(uid=NOBODY)
    (extent,) = second.call(holder.acquire, daemon.socket_path, 16 * MIB)
    assert {extent.inode} == soiled
    assert second.call(holder.is_zero)


@pytest.mark.parametrize(
    "recycle, uids, same",
    [
        ("never", (NOBODY, NOBODY), False),
        ("same-service", (NOBODY, DAEMON_USER), False),
        ("same-user", (NOBODY, NOBODY), True),
        ("same-user", (NOBODY, DAEMON_USER), False),
        ("trusted", (NOBODY, DAEMON_USER), True),
    ],
)
def test_the_recycle_setting_says_who_may_get_the_same_memory(start_daemon, start_child, recycle, uids, same):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=f"Recycle={recycle}\n{QUICK}")
    daemon.wait_full()
    first, second = (start_child(uid=uid) for uid in uids)
    soiled = soil(first, daemon, 16 * MIB)
    (extent,) = second.call(holder.acquire, daemon.socket_path, 16 * MIB)
    assert ({extent.inode} == soiled) is same
    assert second.call(holder.is_zero)


def test_the_same_user_in_another_control_group_may_get_the_same_memory_if_so_configured(start_daemon, start_child, make_cgroup):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=f"Recycle=same-user\n{QUICK}")
    daemon.wait_full()
    first, second = (start_child(uid=NOBODY, cgroup=make_cgroup(name)) for name in ("one", "two"))
    soiled = soil(first, daemon, 16 * MIB)
    (extent,) = second.call(holder.acquire, daemon.socket_path, 16 * MIB)
    assert {extent.inode} == soiled


def test_memory_of_a_service_that_is_gone_is_renewed_at_once(start_daemon, start_child, make_cgroup):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=QUICK)
    daemon.wait_full()
    group = make_cgroup("brief")
    child = start_child(uid=NOBODY, cgroup=group)
    (extent,) = child.call(holder.acquire, daemon.socket_path, 16 * MIB)
    child.call(holder.fill)
    with daemon.stopped():
        child.kill()
        group.remove()
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid), "the memory of the service was given back to the kernel")
    wait_returned(daemon)


def test_memory_that_was_kept_for_a_service_is_renewed_after_the_affinity_timeout(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=f"AffinityTimeout=1s\n{QUICK}")
    daemon.wait_full()
    child = start_child(uid=NOBODY)
    (inode,) = soil(child, daemon, 16 * MIB)
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the extent was renewed")
    wait_returned(daemon)
    start_child(uid=DAEMON_USER).call(holder.acquire, daemon.socket_path, 16 * MIB)


# I3: every page is there


def test_a_granted_extent_can_be_touched_after_somebody_emptied_the_kernels_pool(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:auto:64M"])
    daemon.wait_full()
    child, thief = start_child(), start_child()
    child.call(holder.acquire, daemon.socket_path, 64 * MIB)
    thief.call(take_all_free_pages)
    assert free() == 0
    assert child.call(holder.bytes_present) == 64 * MIB
    child.call(holder.fill)
    assert child.call(holder.is_filled_with)
    thief.kill()


def take_all_free_pages(me):
    me.stolen = []
    while n := free():
        try:
            me.stolen.append(map_anonymous(n))
        except OSError:
            continue  # somebody else was quicker


def test_the_daemon_lives_without_any_free_page_and_refills_when_there_are_some(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:64M"], config=f"Recycle=never\n{QUICK}")
    daemon.wait_full()
    child, thief = start_child(), start_child()
    child.call(holder.acquire, daemon.socket_path, 16 * MIB)
    thief.call(take_all_free_pages)
    child.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0, "the extent came back")
    child.call(holder.acquire, daemon.socket_path, 16 * MIB)
    assert child.call(holder.is_zero)
    child.call(holder.drop)
    thief.kill()
    wait_returned(daemon)


def test_the_whole_extent_is_present_when_it_was_cut_grown_or_built(start_daemon, start_child):
    need_pages(96)
    daemon = start_daemon(pools=["2M:auto:128M"], config=QUICK)
    child = start_child()
    for n_bytes in 6 * MIB, 62 * MIB, 100 * MIB, 128 * MIB:
        child.call(holder.acquire, daemon.socket_path, n_bytes, on_miss="wait", timeout_ms=20000)
        assert child.call(holder.bytes_present) == n_bytes
        child.call(holder.drop)


# I4: every page is on the node that the grant names


@pytest.mark.parametrize("pool", ["2M:auto:64M", "2M:2M:16M"])
def test_every_page_is_on_the_node_of_the_grant(start_daemon, start_child, pool):
    need_pages(64)
    daemon = start_daemon(pools=[pool], config=QUICK)
    daemon.wait_full()
    child = start_child()
    for n_bytes in 2 * MIB, 2 * MIB, 16 * MIB:
        (*extents,) = child.call(holder.acquire, daemon.socket_path, n_bytes, several=True)
        assert child.call(holder.nodes) == [{extent.node} for extent in extents]
        child.call(holder.drop)
        wait_returned(daemon)


def test_each_row_of_a_pool_has_its_pages_on_its_node(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:8M"])
    daemon.wait_full()
    for row in daemon.pools():
        child = start_child()
        (extent,) = child.call(holder.acquire, daemon.socket_path, 2 * MIB, node=row["node"], mode="strict")
        assert extent.node == row["node"]
        assert child.call(holder.nodes) == [{row["node"]}]
        assert row["ready_bytes"] <= count("nr", PAGE_2M, row["node"]) * PAGE_2M


# The price


@pytest.mark.large
def test_a_mapping_of_1_gib_costs_the_client_at_most_8_page_faults(start_daemon, start_child):
    need_pages(1024)
    daemon = start_daemon(pools=["2M:1G:1G"])
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, GIB)
    assert child.call(holder.count_faults) <= 8
