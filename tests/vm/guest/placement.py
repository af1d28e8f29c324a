# SPDX-License-Identifier: LGPL-2.1-or-later
"""Where granted pages are, each page asked with move_pages(2). Any machine with at least two nodes that have hugepages."""

import ctypes
import errno
import os
import pathlib

import pytest
from inside import Service, memory_nodes, on_cpu_of, run
from harness import holder, pages
from harness.child import ChildError
from harness.pages import MIB, PAGE_2M
from hugezero_client import Item

# All that each node has: uneven, as the machine is
TARGETS = {node: pages.count("nr", PAGE_2M, node) * PAGE_2M for node in memory_nodes() if pages.count("nr", PAGE_2M, node)}
POOL = "[Pool p]\nTarget=" + " ".join(f"node{node}:{n // MIB}M" for node, n in TARGETS.items()) + "\n"
SMALL = 4 * MIB


@pytest.fixture(scope="module")
def running(install):
    assert len(TARGETS) >= 2 and len(set(TARGETS.values())) == len(TARGETS)
    service = Service()
    # What comes back serves anyone again, in any size
    service.start(f"AffinityTimeout=0s\n{POOL}")
    yield service
    run("systemctl", "stop", "hugezerod.socket", "hugezerod.service")


@pytest.fixture
def service(running):
    """Full before and after each test: no page is lost."""
    running.wait_back()
    yield running
    running.wait_back()


@pytest.fixture
def child(service, start_child):
    child = start_child()
    yield child
    child.kill()


def ready(service):
    return {row["node"]: row["ready_bytes"] for row in service.pools()}


def distance(one, other):
    return int(pathlib.Path(f"/sys/devices/system/node/node{one}/distance").read_text().split()[other])


def nearest(node, nodes):
    return min(nodes, key=lambda other: (distance(node, other), other))


def take_all_of(child, service, node):
    child.call(holder.acquire, service.socket_path, TARGETS[node], node=node, mode="strict", name="all")


def assert_refused(child, code, function, *args, **kwargs):
    with pytest.raises(ChildError) as problem:
        child.call(function, *args, **kwargs)
    assert (problem.value.error, problem.value.errno) == ("Refused", code), str(problem.value)


def test_every_node_has_its_own_target_ready(service):
    assert ready(service) == TARGETS


@pytest.mark.parametrize("node", TARGETS)
def test_a_strict_item_has_every_page_on_its_node(service, child, node):
    (extent,) = child.call(holder.acquire, service.socket_path, TARGETS[node], node=node, mode="strict")
    assert extent.node == node and extent.bytes == TARGETS[node]
    assert child.call(holder.nodes) == [{node}]
    assert child.call(holder.is_zero)


def test_a_strict_item_is_refused_when_its_node_has_no_page_left(service, child):
    node = min(TARGETS)
    take_all_of(child, service, node)
    others = {other: n for other, n in ready(service).items() if other != node}
    for on_miss, code in ("fail", errno.EAGAIN), ("fill", errno.ENOMEM):
        assert_refused(child, code, holder.acquire, service.socket_path, SMALL, node=node, mode="strict", on_miss=on_miss)
    assert {other: n for other, n in ready(service).items() if other != node} == others


@pytest.mark.parametrize("node", TARGETS)
def test_a_preferred_item_goes_to_the_nearest_node_that_has_pages(service, child, node):
    (extent,) = child.call(holder.acquire, service.socket_path, SMALL, node=node, mode="prefer", name="there")
    assert extent.node == node
    child.call(holder.drop, "there")
    service.wait_back()
    take_all_of(child, service, node)
    (extent,) = child.call(holder.acquire, service.socket_path, SMALL, node=node, mode="prefer", name="else")
    assert extent.node == nearest(node, TARGETS.keys() - {node})
    assert child.call(holder.nodes, "else") == [{extent.node}]


def test_any_node_is_the_one_with_most(service, child):
    (extent,) = child.call(holder.acquire, service.socket_path, SMALL)
    assert extent.node == max(TARGETS, key=TARGETS.get)
    assert child.call(holder.nodes) == [{extent.node}]


def test_one_request_over_all_nodes_is_granted_together(service, child):
    items = [Item(TARGETS[node], node=node, mode="strict") for node in TARGETS]
    extents = child.call(holder.acquire_items, service.socket_path, items)
    assert [extent.node for extent in extents] == list(TARGETS)
    assert child.call(holder.nodes) == [{node} for node in TARGETS]


def test_one_request_over_two_nodes_is_refused_whole(service, child, start_child):
    """The first item could be served, and is not."""
    first, last = list(TARGETS)[:2]
    other = start_child()
    take_all_of(other, service, last)
    before = ready(service)
    items = [Item(SMALL, node=first, mode="strict"), Item(SMALL, node=last, mode="strict")]
    n_granted = sum(row["granted_bytes"] for row in service.pools())
    for on_miss, code in ("fail", errno.EAGAIN), ("fill", errno.ENOMEM):
        assert_refused(child, code, holder.acquire_items, service.socket_path, items, on_miss=on_miss)
    assert ready(service) == before
    assert sum(row["granted_bytes"] for row in service.pools()) == n_granted
    other.kill()


def test_a_node_without_pages_is_no_node_of_a_pool(service, child):
    assert_refused(child, errno.ENODEV, holder.acquire, service.socket_path, SMALL, node=63, mode="strict")


def test_workers_run_on_the_cpus_of_their_node_or_the_nearest_that_has_some(service):
    n_workers = 0
    with_cpu = [node for node in memory_nodes() if cpus_of(node)]
    for task in pathlib.Path(f"/proc/{service.pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        if name.startswith("hz-") and not name.startswith("hz-any"):
            node = int(name[3:].partition("/")[0])
            home = node if node in with_cpu else nearest_with_cpus(node)
            assert os.sched_getaffinity(int(task.name)) == cpus_of(home), name
            n_workers += 1
    assert n_workers >= len(TARGETS)


def cpus_of(node):
    return {int(path.name[3:]) for path in pathlib.Path(f"/sys/devices/system/node/node{node}").glob("cpu[0-9]*")}


def nearest_with_cpus(node):
    nodes = [int(path.name[4:]) for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")]
    return nearest(node, [other for other in nodes if cpus_of(other)])


@pytest.mark.parametrize("node", [node for node in TARGETS if cpus_of(node)])
def test_the_library_gives_a_thread_memory_of_its_own_node(service, node):
    node_local = -2
    library = ctypes.CDLL("libhugezero.so.0")
    library.hugezero_alloc.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p]
    library.hugezero_free.argtypes = [ctypes.c_void_p]
    address = ctypes.c_void_p()
    with on_cpu_of(node):
        assert library.hugezero_alloc(SMALL, 0, node_local, 0, ctypes.byref(address)) == 0
    ctypes.memset(address, 1, SMALL)
    numa = ctypes.CDLL("libnuma.so.1")
    n = SMALL // PAGE_2M
    where = (ctypes.c_int * n)()
    addresses = (ctypes.c_void_p * n)(*range(address.value, address.value + SMALL, PAGE_2M))
    assert numa.move_pages(0, ctypes.c_ulong(n), addresses, None, where, 0) == 0
    assert list(where) == [node] * n
    assert library.hugezero_free(address) == 0


def start_scattered(running, scattered, whole):
    """On one node 16 MiB in pieces of 4 MiB; on the other a piece of 12 MiB. Begins cold, or what was there before would stay."""
    running.stop()
    running.start(f"AffinityTimeout=0s\n[Pool p]\nTarget=node{scattered}:16M node{whole}:{min(64, TARGETS[whole] // MIB)}M\n")
    running.wait_full()
    largest = {row["node"]: row["largest_ready_bytes"] for row in running.pools()}
    assert largest[scattered] == 4 * MIB and largest[whole] >= 12 * MIB, largest


@pytest.mark.parametrize("on_miss", ["fail", "fill", "wait"])
def test_the_nearer_node_serves_although_another_would_be_quicker(running, start_child, on_miss):
    """By growing what it has; and of the others the nearest one, in the same way."""
    node = 1 if 1 in TARGETS else min(TARGETS)
    *nearer, farthest = sorted(TARGETS.keys() - {node}, key=lambda other: (distance(node, other), other))
    for scattered in node, *nearer[:1]:
        start_scattered(running, scattered, farthest)
        child = start_child()
        (extent,) = child.call(holder.acquire, running.socket_path, 12 * MIB, node=node, mode="prefer", on_miss=on_miss, timeout_ms=10000 * (on_miss == "wait"))
        assert extent.node == scattered and child.call(holder.nodes) == [{scattered}]
        child.kill()
        running.wait_back()


def test_where_any_node_will_do_it_is_one_that_serves_at_once(running, start_child):
    scattered, whole = sorted(TARGETS)[:2]
    start_scattered(running, scattered, whole)
    child = start_child()
    (extent,) = child.call(holder.acquire, running.socket_path, 12 * MIB)
    assert extent.node == whole
    child.kill()
    running.wait_back()


def test_memory_that_is_scrubbed_is_still_on_its_node(running, start_child):
    """The last test here: it starts the daemon again so that memory is kept for its service, and never away to be audited."""
    running.start(f"AuditRate=0\n{POOL}")
    running.wait_full()
    for node in TARGETS:
        inodes = []
        for _ in range(2):
            child = start_child()
            (extent,) = child.call(holder.acquire, running.socket_path, SMALL, node=node, mode="strict")
            assert child.call(holder.nodes) == [{node}] and child.call(holder.is_zero)
            inodes.append(extent.inode)
            child.call(holder.fill)
            child.kill()
            running.wait_back()
        assert inodes[0] == inodes[1]
