# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Nodes that lack something: node 2 has only a CPU, node 3 only memory, node 4 no hugepages either, node 5 nothing yet. Node 1 is
nearest to 2.
"""

import ctypes
import json
import os
import pathlib
import signal

from inside import journal, memory_nodes, on_cpu_of, run
from harness import holder, pages, wait_until
from harness.pages import MIB, PAGE_2M

SYSFS = pathlib.Path("/sys/devices/system/node")
POOL = "[Pool p]\nTarget=node0:16M node1:16M node3:16M node4:16M\n"


def row_of(service, node):
    return next(row for row in service.pools() if row["node"] == node)


def test_the_machine_is_as_described():
    assert (SYSFS / "online").read_text() == "0-5\n"
    assert memory_nodes() == [0, 1, 3, 4]
    assert (SYSFS / "has_cpu").read_text() == "0-2\n"
    assert pages.count("nr", PAGE_2M, 4) == 0


def test_a_node_without_pages_is_short_and_the_others_serve(service, start_child):
    service.start(POOL)
    wait_until(lambda: all(row_of(service, node)["ready_bytes"] == 16 * MIB for node in (0, 1, 3)), "the other nodes are full")
    row = row_of(service, 4)
    assert (row["ready_bytes"], row["shortfall_bytes"]) == (0, 16 * MIB)
    said = [line for line in journal("hugezerod.service").splitlines() if "node 4" in line and "short" in line]
    assert len(said) == 1, said
    (extent,) = start_child().call(holder.acquire, service.socket_path, 4 * MIB, node=4, mode="prefer")
    assert extent.node == 3
    status = json.loads(run("hugezeroctl", "status", "--json"))
    assert [row["shortfall_bytes"] for row in status["pools"] if row["node"] == 4] == [16 * MIB]


def test_a_node_is_filled_when_it_gets_pages(service, start_child):
    service.start(POOL)
    wait_until(lambda: row_of(service, 4)["shortfall_bytes"] == 16 * MIB, "node 4 is known to be short")
    (pages.sysfs(PAGE_2M, 4) / "nr_hugepages").write_text("10")
    try:
        wait_until(lambda: row_of(service, 4)["ready_bytes"] == 16 * MIB, "node 4 is full")
        child = start_child()
        child.call(holder.acquire, service.socket_path, 16 * MIB, node=4, mode="strict")
        assert child.call(holder.nodes) == [{4}]
        child.kill()
        service.stop()
    finally:
        (pages.sysfs(PAGE_2M, 4) / "nr_hugepages").write_text("0")
    assert pages.count("nr", PAGE_2M, 4) == 0


def take_all_of_node(me, node):
    numa = ctypes.CDLL("libnuma.so.1")
    numa.numa_set_bind_policy(0)  # preferred, so that it makes no surplus page itself
    numa.numa_tonode_memory.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    numa.numa_tonode_memory(me.reserved.addr, me.reserved.length, node)
    me.reserved.touch(PAGE_2M)


def test_no_surplus_page_is_kept_when_others_empty_the_node_meanwhile(service, start_child):
    """A mapping is promised pages of any node. Where those of its own are gone the kernel makes one of ordinary memory."""
    overcommit = pages.sysfs(PAGE_2M) / "nr_overcommit_hugepages"
    n_pages = pages.count("nr", PAGE_2M, 3)
    config = "Batch=2M\nBackgroundRate=2M\n[Pool p]\nTarget=node3:{}\nLow=0%\n"  # one page a second, once it was full
    other = start_child()

    def stopped_with_a_part_filled():
        os.kill(service.pid, signal.SIGSTOP)
        if pages.count("resv") > n_pages and pages.count("free", PAGE_2M, 3) < n_pages - 1:
            return True
        os.kill(service.pid, signal.SIGCONT)
        return False

    try:
        overcommit.write_text("64")
        n_made = pages.n_surplus_made()
        service.start(config.format("2M"))
        wait_until(lambda: row_of(service, 3)["ready_bytes"] == PAGE_2M, "node 3 was full once")
        other.call(holder.reserve, n_pages)
        service.configure(config.format(f"{n_pages * 2}M"))
        run("systemctl", "reload", "hugezerod.service")
        wait_until(stopped_with_a_part_filled, "an extent on node 3 is being filled")
        other.call(take_all_of_node, 3)
        os.kill(service.pid, signal.SIGCONT)
        wait_until(lambda: not row_of(service, 3)["filling_bytes"], "the fill has ended")
        assert pages.n_surplus_made() > n_made  # or this has shown nothing
        assert pages.count("surplus", PAGE_2M, 3) == 0
        row = row_of(service, 3)
        assert 0 < row["ready_bytes"] == row["target_bytes"] - row["shortfall_bytes"]
        other.kill()
        service.stop()
    finally:
        overcommit.write_text("0")


def test_without_configuration_every_node_that_has_pages_has_a_pool(service):
    service.start("")
    service.wait_full()
    assert {row["node"]: row["target_bytes"] for row in service.pools() if row["target_bytes"]} == {0: 24 * MIB, 1: 48 * MIB, 3: 32 * MIB}


def test_a_thread_on_a_node_without_memory_gets_that_of_the_nearest(service):
    service.start(POOL)
    wait_until(lambda: row_of(service, 1)["ready_bytes"] == 16 * MIB, "node 1 is full")
    node_local = -2
    library = ctypes.CDLL("libhugezero.so.0")
    library.hugezero_alloc.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int32, ctypes.c_uint32, ctypes.c_void_p]
    library.hugezero_free.argtypes = [ctypes.c_void_p]
    address = ctypes.c_void_p()
    with on_cpu_of(2):
        assert library.hugezero_alloc(4 * MIB, 0, node_local, 0, ctypes.byref(address)) == 0
    assert row_of(service, 1)["granted_bytes"] == 4 * MIB
    assert library.hugezero_free(address) == 0


def test_a_pool_on_a_node_without_memory_is_refused_with_a_reason(service):
    service.configure("[Pool p]\nTarget=node2:16M\n")
    run("systemctl", "start", "hugezerod.service", check=False)
    said = journal("hugezerod.service")
    assert "hugezerod.conf:5: [Pool p] Target=" in said and "node 2" in said, said
