# SPDX-License-Identifier: LGPL-2.1-or-later
"""What a holder can do to the file that the daemon goes on using: cut, grow, seal, punch, move."""

import ctypes
import errno
import os
import pathlib

import pytest
from harness import hostile, holder, pages, wait_until
from harness.child import ChildError
from harness.pages import MIB, PAGE_2M, hugetlb_files, need_pages
from harness.weakened import Change

SIZE = 8 * MIB
# Lets a file keep what is behind its end
KEEPS_RESERVED = Change("stock-work.c", "r = extent_file_resize(work->file, work->file->bytes);\n        if (r >= 0)\n                r = extent_file_check", "r = extent_file_check")
# Hands out without seals, and believes that what comes back is as it was
TRUSTING = (
    Change("extent.c", "(F_SEAL_GROW | F_SEAL_SHRINK)", "0"),
    Change("returns.c", "return check.foreign_seal || check.size_bytes > extent->bytes || check.present_bytes > extent->bytes;", "return false;"),
    Change("returns.c", "if (r < 0 || extent->foreign_open) {", "if (extent->foreign_open) {"),
    KEEPS_RESERVED,
)


@pytest.fixture(params=["weakened", "real"])
def works(request):
    """Whether the attack does."""
    return request.param == "weakened"


@pytest.fixture
def daemon(start_daemon, weaken, works):
    need_pages(32)
    # Anybody gets what the daemon thinks is in order: the most that a manipulated file could do
    config = "ReleaseGrace=50ms\nSweepInterval=100ms\nRecycle=trusted\n[Quota default]\nMaxBytes=16M\n"
    daemon = start_daemon(pools=["2M:8M:16M"], config=config, program=weaken(*TRUSTING) if works else None)
    daemon.wait_full()
    return daemon


@pytest.fixture
def inode(daemon, attacker):
    return attacker.call(holder.acquire, daemon.socket_path, SIZE)[0].inode


def acquire_all(daemon, victim):
    """What the pool has: all of it, so that it passes through the victim's hands."""
    return [victim.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)[0].inode for name in "ab"]


def next_holder_is_well(daemon, victim):
    """Each byte of what the pool has is there, and zero, and can be written."""
    acquire_all(daemon, victim)
    for name in "ab":
        assert victim.call(holder.is_zero, name)
        victim.call(holder.fill, name)
        assert victim.call(holder.bytes_present, name) == SIZE


def check_what_comes_back(daemon, attacker, victim, inode, works):
    """The attack has worked when another user gets the manipulated file."""
    attacker.call(holder.drop)
    if works:
        assert inode in acquire_all(daemon, victim)
        return
    assert_dropped(daemon, inode)
    next_holder_is_well(daemon, victim)


def assert_dropped(daemon, inode):
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the file was given up")


@pytest.mark.parametrize("change", ["shrink", "grow", "allocate"])
def test_its_size_is_sealed(daemon, attacker, victim, inode, works, change):
    error = attacker.call(hostile.change_error, change)
    if works:
        assert error == 0
        assert attacker.call(length) == {"shrink": SIZE // 2, "grow": 2 * SIZE, "allocate": 2 * SIZE}[change]
        return
    assert error == errno.EPERM
    attacker.call(holder.drop)
    next_holder_is_well(daemon, victim)


def length(me):
    return os.fstat(me.grants[""].fds[0]).st_size


@pytest.mark.parametrize("offset", [0, SIZE], ids=["from the start", "behind the end"])
def test_a_file_that_grew_for_a_longer_mapping_is_of_no_use_to_others(daemon, attacker, victim, inode, works, offset):
    """The kernel grows it whatever its seals say."""
    if attacker.call(hostile.map_behind, offset, SIZE + 4 * MIB - offset) == SIZE:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    if works:
        attacker.call(holder.drop)
        with pytest.raises(ChildError, match="a file of another size"):
            acquire_all(daemon, victim)
        return
    check_what_comes_back(daemon, attacker, victim, inode, works)


@pytest.mark.parametrize("seal", [0x01, 0x10], ids=["F_SEAL_SEAL", "F_SEAL_FUTURE_WRITE"])
def test_a_seal_of_the_holders_own_makes_it_useless_for_others(daemon, attacker, victim, inode, works, seal):
    attacker.call(holder.add_seal, seal=seal)
    check_what_comes_back(daemon, attacker, victim, inode, works)


def test_punched_pages_that_others_have_are_no_trap_for_the_next_holder(daemon, attacker, victim, inode, works, start_child):
    attacker.call(holder.fill)
    attacker.call(holder.punch, 2 * MIB, 4 * MIB)
    thief = start_child(uid=3003)
    thief.call(hostile.reserve_pages)
    attacker.call(holder.drop)
    if works:
        assert inode in acquire_all(daemon, victim)
        assert sum(victim.call(holder.bytes_present, name) for name in "ab") == 2 * SIZE - 4 * MIB
        return
    assert_dropped(daemon, inode)
    thief.kill()
    next_holder_is_well(daemon, victim)


@pytest.mark.parametrize("works", [False], ids=["real"])
def test_punched_pages_that_nobody_took_are_filled_again(daemon, attacker, victim, inode):
    attacker.call(holder.fill)
    attacker.call(holder.punch, 2 * MIB, 4 * MIB)
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    next_holder_is_well(daemon, victim)


def reserve_behind(me):
    """Reading alone does not grow the file, and it is the file that keeps the reservation."""
    pages.Mapping(me.grants[""].fds[0], 8 * MIB, prot=pages.PROT_READ, offset=64 * MIB).close()


@pytest.mark.parametrize("weak", [(KEEPS_RESERVED,), ()], ids=["weakened", "real"])
def test_pages_that_were_reserved_behind_the_end_are_free_again(start_daemon, attacker, weaken, weak):
    need_pages(32)
    daemon = start_daemon(pools=["2M:8M:16M"], config="ReleaseGrace=50ms\nSweepInterval=100ms\n", program=weaken(*weak) if weak else None)
    daemon.wait_full()
    before = pages.count("resv")
    attacker.call(holder.acquire, daemon.socket_path, 8 * MIB)
    attacker.call(reserve_behind)
    if pages.count("resv") < before + 4:
        pytest.skip("cannot: this kernel reserves nothing behind the end of a file")
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the memory is kept")
    if weak:
        assert pages.count("resv") >= before + 4
    else:
        wait_until(lambda: pages.count("resv") <= before, "the reservation is gone")


def test_pages_that_were_moved_to_another_node_are_not_kept(daemon, attacker, victim, inode, works):
    nodes = attacker.call(move_away)
    if not nodes:
        pytest.skip("cannot: this machine has one node with memory")
    assert len(nodes) == 1
    check_what_comes_back(daemon, attacker, victim, inode, works)


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
