# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a holder can do to the file that the daemon goes on using: cut, grow, seal, punch, move."""

import ctypes
import errno
import pathlib

import pytest
from harness import hostile, holder, wait_until
from harness.pages import MIB, PAGE_2M, hugetlb_files, need_pages

SIZE = 8 * MIB


@pytest.fixture
def daemon(start_daemon):
    need_pages(32)
    # Anybody gets what the daemon thinks is in order: the most that a manipulated file could do
    config = "ReleaseGrace=50ms\nSweepInterval=100ms\nRecycle=trusted\n[Quota default]\nMaxBytes=16M\n"
    daemon = start_daemon(pools=["2M:8M:16M"], config=config)
    daemon.wait_full()
    return daemon


@pytest.fixture
def inode(daemon, attacker):
    return attacker.call(holder.acquire, daemon.socket_path, SIZE)[0].inode


def next_holder_is_well(daemon, victim):
    """Each byte of what the pool has is there, and zero, and can be written."""
    for name in "a", "b":
        victim.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)
        assert victim.call(holder.is_zero, name)
        victim.call(holder.fill, name)
        assert victim.call(holder.bytes_present, name) == SIZE


def assert_dropped(daemon, inode):
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the file was given up")


@pytest.mark.parametrize("change", ["shrink", "grow", "allocate"])
def test_its_size_is_sealed(daemon, attacker, victim, inode, change):
    assert attacker.call(hostile.change_error, change) == errno.EPERM
    attacker.call(holder.drop)
    next_holder_is_well(daemon, victim)


def test_a_seal_of_the_holders_own_makes_it_useless_for_others(daemon, attacker, victim, inode):
    assert attacker.call(hostile.change_error, "seal") == 0
    attacker.call(holder.drop)
    assert_dropped(daemon, inode)
    next_holder_is_well(daemon, victim)


def test_punched_pages_that_others_have_are_no_trap_for_the_next_holder(daemon, attacker, victim, inode, start_child):
    attacker.call(holder.fill)
    attacker.call(holder.punch, 2 * MIB, 4 * MIB)
    thief = start_child(uid=3003)
    thief.call(hostile.reserve_pages)
    attacker.call(holder.drop)
    assert_dropped(daemon, inode)
    thief.kill()
    next_holder_is_well(daemon, victim)


def test_punched_pages_that_nobody_took_are_filled_again(daemon, attacker, victim, inode):
    attacker.call(holder.fill)
    attacker.call(holder.punch, 2 * MIB, 4 * MIB)
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    next_holder_is_well(daemon, victim)


def test_pages_that_were_moved_to_another_node_are_not_kept(daemon, attacker, victim, inode):
    nodes = attacker.call(move_away)
    if not nodes:
        pytest.skip("cannot: this machine has one node with memory")
    assert len(nodes) == 1
    attacker.call(holder.drop)
    assert_dropped(daemon, inode)
    next_holder_is_well(daemon, victim)


def move_away(me):
    """Moves the first extent to another node; returns where it is, None where there is no other."""
    mapping, extent = holder.map_all(me)[0], me.grants[""].extents[0]
    mapping.touch(PAGE_2M)
    others = [int(path.name[4:]) for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")]
    others = [node for node in others if node != extent.node and " 0 kB" not in memory_of(node)]
    if not others:
        return None
    n = mapping.length // PAGE_2M
    addresses = (ctypes.c_void_p * n)(*range(mapping.addr, mapping.addr + mapping.length, PAGE_2M))
    wanted, status = (ctypes.c_int * n)(*[others[0]] * n), (ctypes.c_int * n)()
    ctypes.CDLL("libnuma.so.1").move_pages(0, ctypes.c_ulong(n), addresses, wanted, status, 2)
    return set(mapping.nodes(PAGE_2M)) & set(others)


def memory_of(node):
    with open(f"/sys/devices/system/node/node{node}/meminfo", encoding="ascii") as meminfo:
        return meminfo.readline().replace("MemTotal:       ", "")
