# SPDX-License-Identifier: LGPL-2.1-or-later
"""What can be asked for, and what one gets: sizes, pools, nodes, several items, waiting, and all of it or nothing."""

import errno
import struct

import pytest
from harness import holder, wait_until
from harness.child import ChildError
from harness.pages import MIB, PAGE_2M, free, need_pages
from hugezero_client import C_STATUS, Client, Item, Refused

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
TWO_POOLS = QUICK + "[Pool a]\nExtentSize=2M\nTarget=16M\n[Pool b]\nExtentSize=2M\nTarget=16M\n"


def assert_refused(code, child, function, *args, **kwargs):
    with pytest.raises(ChildError) as failure:
        child.call(function, *args, **kwargs)
    assert failure.value.error == "Refused", failure.value
    assert failure.value.errno == code, failure.value


def start_full(start_daemon, pool, n_pages, config=QUICK):
    need_pages(n_pages)
    daemon = start_daemon(pools=[pool] if pool else [], config=config)
    daemon.wait_full()
    return daemon


# Any size with one descriptor


def counters(daemon):
    status = daemon.status()
    return {name: status[f"n_{name}"] for name in ("exact", "cut", "grown", "built")}


def gained(daemon, before):
    return {name: n - before[name] for name, n in counters(daemon).items() if n != before[name]}


def test_a_size_that_is_ready_is_handed_out_as_it_is(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:256M", 128)
    before = counters(daemon)
    size = daemon.pool()["largest_ready_bytes"]
    (extent,) = start_child().call(holder.acquire, daemon.socket_path, size)
    assert extent.bytes == size
    assert gained(daemon, before) == {"exact": 1}


def test_a_smaller_size_is_cut_from_a_larger_extent_and_no_page_is_lost(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:256M", 128)
    before, child = counters(daemon), start_child()
    size = daemon.pool()["largest_ready_bytes"] - 2 * PAGE_2M
    (extent,) = child.call(holder.acquire, daemon.socket_path, size)
    assert extent.bytes == size == child.call(holder.bytes_present)
    assert gained(daemon, before) == {"cut": 1}
    assert child.call(holder.is_zero)
    # What was cut off is free in the kernel and is filled again
    daemon.wait_pool(lambda row: row["ready_bytes"] + row["granted_bytes"] == 256 * MIB, "the pool is full again")


def test_a_larger_size_than_any_is_grown(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:256M", 128)
    before, child = counters(daemon), start_child()
    size = daemon.pool()["largest_ready_bytes"] + PAGE_2M
    (extent,) = child.call(holder.acquire, daemon.socket_path, size, on_miss="fill")
    assert extent.bytes == size == child.call(holder.bytes_present)
    assert gained(daemon, before) == {"grown": 1}
    assert child.call(holder.is_zero)


def test_a_request_for_all_of_the_pool_is_granted_whatever_its_shape(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:128M", 64)
    child = start_child()
    (extent,) = child.call(holder.acquire, daemon.socket_path, 128 * MIB, on_miss="fill")
    assert extent.bytes == 128 * MIB
    assert child.call(holder.is_zero)


def test_sizes_that_were_asked_before_are_ready_the_next_time(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:256M", 128)
    child = start_child()
    for _ in range(2):
        child.call(holder.acquire, daemon.socket_path, 100 * MIB, on_miss="fill")
        child.call(holder.drop)
        daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB, "all is back")
    before = counters(daemon)
    child.call(holder.acquire, daemon.socket_path, 100 * MIB)
    assert gained(daemon, before) == {"exact": 1}


@pytest.mark.large
def test_3_gib_and_2_mib_come_as_one_descriptor_from_one_extent_of_4_gib(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:4G", 2048, f"Recycle=never\n{QUICK}")
    child, size = start_child(), 3072 * MIB + PAGE_2M
    # Whoever has been asked for 4 GiB has that much ready the next time
    child.call(holder.acquire, daemon.socket_path, 4096 * MIB, on_miss="fill")
    child.call(holder.drop)
    daemon.wait_pool(lambda row: row["largest_ready_bytes"] == 4096 * MIB, "one extent of 4 GiB is ready")
    before = counters(daemon)
    (extent,) = child.call(holder.acquire, daemon.socket_path, size)
    assert extent.bytes == size == child.call(holder.bytes_present)
    assert gained(daemon, before) == {"cut": 1}
    daemon.wait_pool(lambda row: row["ready_bytes"] + row["granted_bytes"] == 4096 * MIB, "no page was lost")


def test_sizes_are_rounded_up_to_whole_pages(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:64M", 32)
    child = start_child()
    (extent,) = child.call(holder.acquire, daemon.socket_path, 3 * MIB + 1)
    assert extent.bytes == 4 * MIB
    # The size that the pool remembers and fills again is a whole one as well
    daemon.wait_pool(lambda row: row["ready_bytes"] == 60 * MIB, "what was cut off is filled again")
    child.kill()
    daemon.wait_pool(lambda row: row["ready_bytes"] == 64 * MIB, "everything came back")


# Classes of equal extents


def test_a_class_gives_whole_extents(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:8M:32M", 16)
    (extent,) = start_child().call(holder.acquire, daemon.socket_path, 2 * MIB)
    assert extent.bytes == 8 * MIB


def test_several_extents_of_a_class_come_if_the_client_allows_them(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:8M:32M", 16)
    child = start_child()
    extents = child.call(holder.acquire, daemon.socket_path, 24 * MIB, several=True)
    assert [extent.bytes for extent in extents] == 3 * [8 * MIB]
    assert len({extent.inode for extent in extents}) == 3
    assert child.call(holder.is_zero)


def test_more_than_an_extent_of_a_class_is_refused_as_one_descriptor(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:8M:32M", 16)
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire, daemon.socket_path, 24 * MIB)
    assert failure.value.error == "Refused"
    assert daemon.pool()["ready_bytes"] == 32 * MIB


def test_more_descriptors_than_a_message_carries_arrive_in_order(start_daemon, start_child):
    """More than 253."""
    daemon = start_full(start_daemon, "2M:2M:600M", 300)
    child = start_child()
    extents = child.call(holder.acquire, daemon.socket_path, 600 * MIB, several=True)
    assert len({extent.inode for extent in extents}) == 300
    assert child.call(holder.is_zero)


# Several items, all or nothing


def test_items_of_one_request_come_together_and_in_order(start_daemon, start_child):
    daemon = start_full(start_daemon, None, 16, TWO_POOLS)
    items = [Item(bytes=2 * MIB, pool="b"), Item(bytes=4 * MIB, pool="a", several=True), Item(bytes=2 * MIB)]
    extents = start_child().call(holder.acquire_items, daemon.socket_path, items)
    assert [extent.item for extent in extents] == [0, 1, 1, 2]
    assert len({extent.inode for extent in extents}) == 4


def test_16_items_are_granted_and_17_cannot_be_asked_for(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:64M", 32)
    child = start_child()
    extents = child.call(holder.acquire_items, daemon.socket_path, [Item(bytes=2 * MIB)] * 16)
    assert [extent.item for extent in extents] == list(range(16))
    with pytest.raises(ChildError):
        child.call(holder.acquire_items, daemon.socket_path, [Item(bytes=2 * MIB)] * 17, "more")
    daemon.status()


@pytest.mark.parametrize("miss", ["fail", "fill", "wait"])
def test_a_request_that_cannot_be_granted_whole_takes_nothing(start_daemon, start_child, miss):
    """The second item can never be had."""
    daemon = start_full(start_daemon, None, 16, TWO_POOLS)
    items = [Item(bytes=8 * MIB, pool="a", several=True), Item(bytes=1 << 44, pool="b", several=True)]
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire_items, daemon.socket_path, items, on_miss=miss, timeout_ms=300 if miss == "wait" else 0)
    assert failure.value.error == "Refused"
    rows = {row["name"]: row for row in daemon.pools()}
    assert [rows[name]["granted_bytes"] for name in "ab"] == [0, 0]
    daemon.wait_full()
    start_child().call(holder.acquire, daemon.socket_path, 16 * MIB, pool="a", several=True)
    start_child().call(holder.acquire, daemon.socket_path, 16 * MIB, pool="b", several=True)


def test_a_pool_that_is_not_there_is_refused_by_name(start_daemon, start_child):
    daemon = start_full(start_daemon, None, 16, TWO_POOLS)
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire, daemon.socket_path, 2 * MIB, pool="nowhere")
    assert failure.value.error == "Refused"
    assert "nowhere" in str(failure.value)


@pytest.mark.parametrize("item", [{"page_size": 1 << 20}, {"node": 63, "mode": "strict"}, {"page_size": 1 << 34}])
def test_what_the_machine_does_not_have_is_refused(start_daemon, start_child, item):
    daemon = start_full(start_daemon, "2M:2M:4M", 2)
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire, daemon.socket_path, 2 * MIB, **item)
    assert failure.value.error == "Refused"


# On a miss


def hold_all(daemon, start_child, n_bytes):
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, n_bytes, several=True)
    return child


def test_fail_is_answered_at_once(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:4M", 2)
    hold_all(daemon, start_child, 4 * MIB)
    assert_refused(errno.EAGAIN, start_child(), holder.acquire, daemon.socket_path, 2 * MIB)


def test_wait_ends_at_its_time(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:4M", 2)
    hold_all(daemon, start_child, 4 * MIB)
    assert_refused(errno.ETIMEDOUT, start_child(), holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=50)
    assert daemon.status()["n_waiting"] == 0


def test_wait_is_served_when_memory_comes_back(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:4M", 2)
    first, second = hold_all(daemon, start_child, 4 * MIB), start_child()
    second.start(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the request waits")
    assert second.is_busy()
    first.kill()
    second.result()
    assert second.call(holder.is_zero)


def test_fill_does_not_wait_until_the_pool_is_full(start_daemon, start_child):
    need_pages(128)
    daemon = start_daemon(pools=["2M:auto:256M"])
    child = start_child()
    (extent,) = child.call(holder.acquire, daemon.socket_path, 256 * MIB, on_miss="fill")
    assert extent.bytes == 256 * MIB
    assert child.call(holder.is_zero)


def test_more_than_a_pool_may_have_is_refused_at_once(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:4M", 32)
    for miss in "fail", "wait", "fill":
        assert_refused(errno.ENOSPC, start_child(), holder.acquire, daemon.socket_path, 32 * MIB, on_miss=miss, timeout_ms=-(miss == "wait"))


@pytest.mark.parametrize("n_pools, sizes", [(3, (6,) * 10), (3, (6, 7, 8) * 5), (4, (11, 12) * 4)])
def test_what_would_take_long_to_find_out_does_not_wait_for_ever(start_daemon, start_child, n_pools, sizes):
    """Into a pool of 20 MiB fit three of 6 MiB, and one of 11 MiB."""
    need_pages(10 * n_pools)
    daemon = start_daemon(config=QUICK + "".join(f"[Pool p{idx}]\nTarget=20M\n" for idx in range(n_pools)))
    daemon.wait_full()
    items = [Item(size * MIB) for size in sizes]
    assert_refused(errno.ENOSPC, start_child(), holder.acquire_items, daemon.socket_path, items, on_miss="wait", timeout_ms=-1)


@pytest.mark.once
@pytest.mark.parametrize("miss", ["fail", "wait", "fill"])
@pytest.mark.parametrize("sizes", [(2, 2), (32, 32), (2,) * 13, (30, 2, 32)])
@pytest.mark.parametrize("was_held", [False, True], ids=["fresh", "sealed"])
def test_several_items_are_served_from_one_extent(start_daemon, start_child, was_held, sizes, miss):
    daemon = start_full(start_daemon, "2M:auto:64M", 32)
    child = start_child()
    if was_held:  # or there are several extents
        child.call(holder.acquire, daemon.socket_path, 64 * MIB, on_miss="fill")
        child.call(holder.drop)
        daemon.wait_pool(lambda row: row["largest_ready_bytes"] == 64 * MIB, "it is back in one piece")
    items = [Item(size * MIB) for size in sizes]
    child.call(holder.acquire_items, daemon.socket_path, items, on_miss=miss, timeout_ms=20000 * (miss == "wait"))
    assert [extent.bytes for extent in child.call(holder.extents)] == [size * MIB for size in sizes]
    assert child.call(holder.is_zero)
    daemon.wait_full()
    assert daemon.pool()["granted_bytes"] == sum(sizes) * MIB


@pytest.mark.parametrize("sizes", [(6, 4), (5, 5), (2,) * 5])
@pytest.mark.parametrize("miss", ["fail", "wait", "fill"])
def test_items_that_never_fit_together_are_refused_at_once(start_daemon, start_child, sizes, miss):
    """Each of them would fit; waiting for all would be for ever, and for those behind it too."""
    daemon = start_full(start_daemon, "2M:auto:8M", 4)
    items = [Item(size * MIB) for size in sizes]
    assert_refused(errno.ENOSPC, start_child(), holder.acquire_items, daemon.socket_path, items, on_miss=miss, timeout_ms=-(miss == "wait"))
    start_child().call(holder.acquire_items, daemon.socket_path, [Item(4 * MIB), Item(4 * MIB)], on_miss="wait", timeout_ms=20000)


def test_fill_is_refused_when_the_kernel_has_too_few_pages(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:auto:4M", 2)
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire, daemon.socket_path, 1 << 43, on_miss="fill")
    assert failure.value.error == "Refused"
    daemon.wait_full()


def test_first_come_is_first_served(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:16M", 8)
    first = hold_all(daemon, start_child, 14 * MIB)
    large, small = start_child(), start_child()
    large.start(holder.acquire, daemon.socket_path, 16 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the large request waits")
    # There is one extent, and the large request came first
    assert_refused(errno.EAGAIN, small, holder.acquire, daemon.socket_path, 2 * MIB)
    small.start(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 2, "the small request waits behind it")
    first.kill()
    large.result()
    assert small.is_busy()
    large.kill()
    small.result()


def test_a_large_request_is_served_among_many_small_ones(start_daemon, start_child):
    """Of other users, who take each page that comes back. In its turn it gets them all."""
    daemon = start_full(start_daemon, "2M:2M:8M", 4, f"{QUICK}HoldBack=2s\n")
    small = [start_child(uid=4000 + idx) for idx in range(10)]
    for child in small:
        child.start(take_and_drop, daemon.socket_path, [Item(bytes=2 * MIB)], 1000)
    wait_until(lambda: daemon.status()["n_waiting"] >= 4, "there is not enough for all")
    large = start_child()
    assert len(large.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True, on_miss="wait", timeout_ms=20000)) == 4
    for child in small:
        child.kill()


def test_a_large_request_that_keeps_nobody_waiting_waits_for_ever(start_daemon, start_child):
    """The weakened setting: there is always somebody who holds a page when the one before him lets go."""
    daemon = start_full(start_daemon, "2M:2M:8M", 4, f"{QUICK}HoldBack=0s\n")
    first, second = start_child(uid=4000), start_child(uid=4001)
    first.call(holder.acquire, daemon.socket_path, 2 * MIB)
    large = start_child()
    large.start(holder.acquire, daemon.socket_path, 8 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the large request waits")
    for _ in range(20):
        second.call(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=20000)
        first.call(holder.drop)
        first, second = second, first
    assert large.is_busy()
    first.kill()
    assert len(large.result()) == 4


def test_requests_of_one_user_are_served_in_order_when_others_pass(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:16M", 8, f"{QUICK}HoldBack=0s\n")
    first = hold_all(daemon, start_child, 14 * MIB)
    large, small = start_child(), start_child()
    large.start(holder.acquire, daemon.socket_path, 16 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the large request waits")
    assert_refused(errno.EAGAIN, small, holder.acquire, daemon.socket_path, 2 * MIB)
    stranger = start_child(uid=65534)
    stranger.call(holder.acquire, daemon.socket_path, 2 * MIB)
    stranger.kill()
    first.kill()
    assert len(large.result()) == 8


def test_a_later_request_passes_where_it_takes_nothing_an_earlier_one_waits_for(start_daemon, start_child):
    daemon = start_full(start_daemon, None, 16, TWO_POOLS)
    holder_of_a = start_child()
    holder_of_a.call(holder.acquire, daemon.socket_path, 16 * MIB, pool="a", several=True)
    waiter = start_child()
    waiter.start(holder.acquire, daemon.socket_path, 2 * MIB, pool="a", on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "a request waits for pool a")
    start_child().call(holder.acquire, daemon.socket_path, 16 * MIB, pool="b", several=True)
    assert waiter.is_busy()


def test_a_waiting_client_that_hangs_up_loses_its_place_and_nothing_else(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:8M", 4)
    first = hold_all(daemon, start_child, 8 * MIB)
    gone, stays = start_child(), start_child()
    gone.start(holder.acquire, daemon.socket_path, 8 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the first request waits")
    stays.start(holder.acquire, daemon.socket_path, 8 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 2, "the second request waits")
    gone.kill()
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the first request is forgotten")
    first.kill()
    assert len(stays.result()) == 4


def test_what_is_filled_for_a_client_that_goes_is_ready_for_others_and_charged_to_nobody(start_daemon, start_child):
    """The pool itself fills one page a second, so that all the rest is filled for the client."""
    daemon = start_full(start_daemon, "", 200, QUICK + "Batch=2M\nBackgroundRate=2M\n[Pool p]\nTarget=2M\nLow=0%\n")
    child = start_child(uid=65534)
    with Client(daemon.socket_path) as client:
        client.resize(400 * MIB)
        n_free = free()
        child.start(holder.acquire, daemon.socket_path, 400 * MIB, on_miss="fill")
        wait_until(lambda: free() < n_free - 100, "it is filled for the client")
        with daemon.stopped():
            child.kill()
        daemon.wait_pool(lambda row: row["ready_bytes"] == 400 * MIB, "all of it is ready")
        limits = client.limits()
        assert [limits.get((65534, kind), (0,))[0] for kind in ("bytes", "grants", "waiting")] == [0, 0, 0]
    start_child().call(holder.acquire, daemon.socket_path, 400 * MIB)


def test_two_clients_that_each_want_both_of_two_pools_do_not_deadlock(start_daemon, start_child):
    daemon = start_full(start_daemon, None, 16, TWO_POOLS)
    children = [start_child(), start_child()]
    orders = "ab", "ba"
    for _ in range(10):
        for child, order in zip(children, orders, strict=True):
            items = [Item(bytes=16 * MIB, pool=pool, several=True) for pool in order]
            child.start(take_and_drop, daemon.socket_path, items, 3)
        for child in children:
            child.result()
    assert daemon.status()["n_waiting"] == 0


def take_and_drop(me, path, items, n):
    for _ in range(n):
        holder.acquire_items(me, path, items, on_miss="wait", timeout_ms=20000)
        holder.drop(me)


def test_200_clients_at_once_are_all_served(start_daemon, start_child):
    need_pages(200)
    daemon = start_daemon(pools=["2M:2M:400M"], config=QUICK + "[Quota default]\nMaxConnections=infinity\nMaxWaiting=infinity\n")
    children = [start_child() for _ in range(200)]
    for child in children:
        child.start(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=-1)
    inodes = {child.result()[0].inode for child in children}
    assert len(inodes) == 200
    for child in children:
        child.start(holder.is_zero)
    assert all(child.result() for child in children)
    for child in children:
        child.kill()
    daemon.wait_pool(lambda row: row["ready_bytes"] == 400 * MIB, "everything came back")


def test_a_reopenable_extent_belongs_to_the_group_of_the_socket(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:8M", 4, f"SocketGroup=daemon\n{QUICK}")
    member = start_child(uid=65534, groups=[1])
    member.call(holder.acquire, daemon.socket_path, 2 * MIB, "open", reopenable=True)
    member.call(holder.reopen, "open", keep_as="again")
    stranger = start_child(uid=65534)
    stranger.call(holder.acquire, daemon.socket_path, 2 * MIB, "open", reopenable=True)
    with pytest.raises(ChildError) as failure:
        stranger.call(holder.reopen, "open")
    assert failure.value.errno == errno.EACCES


def test_an_ordinary_extent_cannot_be_opened_again_by_an_ordinary_user(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:8M", 4, f"SocketGroup=daemon\n{QUICK}")
    member = start_child(uid=65534, groups=[1])
    member.call(holder.acquire, daemon.socket_path, 2 * MIB)
    with pytest.raises(ChildError) as failure:
        member.call(holder.reopen)
    assert failure.value.errno == errno.EACCES


def test_descriptors_and_empty_packets_for_the_daemon_are_what_the_protocol_page_says(start_daemon):
    daemon = start_daemon(pools=["2M:auto:0"], config=QUICK)
    with Client(daemon.socket_path) as client:
        try:
            client.send(struct.pack("<HHI", C_STATUS, 0, 7), [0])
        except PermissionError:  # the kernel has SO_PASSRIGHTS
            client.status()
        else:
            with pytest.raises(Refused, match="descriptors are not accepted") as failure:
                client.status()
            assert failure.value.errno == errno.EPROTO
    with Client(daemon.socket_path) as client:
        client.send(b"")
        assert client.socket.recv(100) == b""
    daemon.status()


def test_a_reopenable_extent_without_a_group_is_refused(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:8M", 4)
    with pytest.raises(ChildError) as failure:
        start_child().call(holder.acquire, daemon.socket_path, 2 * MIB, reopenable=True)
    assert failure.value.error == "Refused"
    assert "SocketGroup" in str(failure.value)


def test_the_client_cannot_cut_or_grow_what_it_was_given(start_daemon, start_child):
    daemon = start_full(start_daemon, "2M:2M:8M", 4)
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 2 * MIB)
    for n_bytes in 0, 4 * MIB:
        with pytest.raises(ChildError) as failure:
            child.call(holder.truncate, n_bytes)
        assert failure.value.errno == errno.EPERM
