# SPDX-License-Identifier: LGPL-2.1-or-later
"""What an attacker keeps, or passes on, while the daemon is told that it was given back."""

import errno
import os

import pytest
from harness import holder, wait_until
from harness.child import ChildError
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, hugetlb_files, need_pages

SIZE = 8 * MIB


@pytest.fixture
def daemon(start_daemon):
    need_pages(16)
    daemon = start_daemon(pools=["2M:8M:16M"], config="ReleaseGrace=50ms\nSweepInterval=100ms\nRecycle=trusted\n")
    daemon.wait_full()
    return daemon


@pytest.fixture
def inode(daemon, attacker):
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.fill, byte=0x11)
    return extent.inode


def assert_nobody_gets_it(daemon, victim, inode):
    """Twice the pool passes through the victim's hands, and this memory is not among it."""
    daemon.sweep()
    for name in "a", "b":
        (extent,) = victim.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)
        assert extent.inode != inode
        victim.call(holder.fill, name, byte=0x5A)
        victim.call(holder.drop, name)


def test_given_back_memory_does_get_to_the_next(daemon, attacker, victim, inode):
    """The setting is the weakest, so that the tests below would fail if the daemon believed the attacker."""
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    daemon.wait_full()
    inodes = [victim.call(holder.acquire, daemon.socket_path, SIZE, name)[0].inode for name in "ab"]
    assert inode in inodes


def test_a_mapping_that_is_kept_after_closing_and_releasing_is_still_the_attackers_alone(daemon, attacker, victim, inode):
    attacker.call(holder.close_fds)
    attacker.call(holder.release, daemon.socket_path)
    assert_nobody_gets_it(daemon, victim, inode)
    assert attacker.call(holder.is_filled_with, byte=0x11)


def test_a_mapping_whose_lock_was_given_up_is_still_the_attackers_alone(daemon, attacker, victim, inode):
    """The lock is the daemon's question, and the holder's to open."""
    attacker.call(holder.unlock)
    attacker.call(holder.close_fds)
    attacker.call(holder.release, daemon.socket_path)
    assert_nobody_gets_it(daemon, victim, inode)
    assert attacker.call(holder.is_filled_with, byte=0x11)


def test_a_descriptor_that_was_passed_on_holds_after_its_first_owner_released_it(daemon, attacker, victim, inode, start_child, public_path):
    friend = start_child(uid=VICTIM)
    friend.call(holder.listen, str(public_path / "pass"))
    os.chmod(public_path / "pass", 0o666)
    attacker.call(holder.send_first_fd, str(public_path / "pass"))
    friend.call(holder.receive_fd, attacker.call(holder.extents)[0])
    attacker.call(holder.unmap)
    attacker.call(holder.close_fds)
    attacker.call(holder.release, daemon.socket_path)
    assert_nobody_gets_it(daemon, victim, inode)
    assert friend.call(holder.is_filled_with, byte=0x11)


def test_somebody_elses_grant_is_neither_seen_nor_released(daemon, attacker, victim, inode):
    number = attacker.call(holder.grant_id)
    with pytest.raises(ChildError) as failure:
        victim.call(holder.release_id, daemon.socket_path, number)
    assert failure.value.errno == errno.ENOENT
    victim.call(mapped_id, daemon.socket_path, number)
    assert victim.call(rows, daemon.socket_path) == []
    assert [row["grant_id"] for row in attacker.call(rows, daemon.socket_path)] == [number]
    # Root may ask about any; the answer is still the kernel's
    assert [row["grant_id"] for row in daemon.grants()] == [number]
    assert_nobody_gets_it(daemon, victim, inode)
    assert attacker.call(holder.is_filled_with, byte=0x11)
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0, "the real release is noticed")
    wait_until(lambda: inode in hugetlb_files(daemon.pid), "the memory is the daemon's again")


def test_a_control_group_that_was_made_anew_is_another_service(start_daemon, start_child, make_cgroup):
    need_pages(16)
    daemon = start_daemon(pools=["2M:8M:8M"], config="ReleaseGrace=50ms\nSweepInterval=1h\n")
    daemon.wait_full()
    group = make_cgroup("again")
    first = start_child(uid=ATTACKER, cgroup=group)
    (extent,) = first.call(holder.acquire, daemon.socket_path, SIZE)
    first.call(holder.fill)
    first.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is kept")
    first.kill()
    group.remove()
    second = start_child(uid=ATTACKER, cgroup=make_cgroup("again"))
    (other,) = second.call(holder.acquire, daemon.socket_path, SIZE, on_miss="wait", timeout_ms=20000)
    assert other.inode != extent.inode
    assert second.call(holder.is_zero)


def mapped_id(me, path, number):
    client = holder.client(me, path)
    client.mapped(number)
    client.status()  # answered behind it


def rows(me, path):
    return holder.client(me, path).grants()
