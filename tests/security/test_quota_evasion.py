# SPDX-License-Identifier: LGPL-2.1-or-later
"""A user's quota counts the memory that the user keeps from others, by whatever means, until the kernel has it back."""

import errno
import os

import pytest
from harness import hostile, holder, wait_until
from harness.child import ChildError
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, hugetlb_files, need_pages

SIZE, GROUP = 8 * MIB, 3100


@pytest.fixture
def daemon(start_daemon):
    """A user may have one extent. What is given back is renewed at once, so that pins keep pages that no extent has."""
    need_pages(32)
    config = f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\nAffinityTimeout=300ms\n[Quota default]\nMaxBytes=8M\n"
    daemon = start_daemon(pools=["2M:8M:32M"], config=config + f"[Quota user:root]\nMaxBytes=infinity\n[Quota user:{VICTIM}]\nMaxBytes=20M\n")
    daemon.wait_full()
    return daemon


def is_refused(daemon, child, name="more"):
    """The attacker gets nothing more. A grant that should not have been is kept."""
    try:
        child.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)
    except ChildError as error:
        assert error.errno == errno.EDQUOT, error
        return True
    return False


def assert_still_charged(daemon, child):
    daemon.sweep()
    daemon.wait_pool(lambda row: row["returned_bytes"] == 0, "nothing is on its way back")
    daemon.sweep()
    assert is_refused(daemon, child)


def wait_uncharged(daemon, child):
    wait_until(lambda: not is_refused(daemon, child), "the charge has ended")


def test_many_connections_are_one_user(daemon, start_child):
    children = [start_child(uid=ATTACKER) for _ in range(4)]
    children[0].call(holder.acquire, daemon.socket_path, SIZE)
    assert all(is_refused(daemon, child) for child in children[1:])


def test_a_forked_relative_keeps_the_charge_when_the_asker_is_gone(daemon, attacker, start_child):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    relative = attacker.call(holder.fork_holder)
    attacker.kill()
    other = start_child(uid=ATTACKER)
    assert_still_charged(daemon, other)
    os.kill(relative, 9)
    wait_uncharged(daemon, other)


def test_what_was_passed_to_another_user_is_charged_to_the_asker(daemon, attacker, victim, tmp_path):
    for path in [tmp_path, *tmp_path.parents[:2]]:
        os.chmod(path, path.stat().st_mode | 0o055)
    os.chmod(tmp_path, 0o777)
    victim.call(holder.listen, str(tmp_path / "pass"))
    os.chmod(tmp_path / "pass", 0o666)
    extents = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.send_first_fd, str(tmp_path / "pass"))
    victim.call(holder.receive_fd, extents[0], "gift")
    attacker.call(holder.drop)
    assert_still_charged(daemon, attacker)
    victim.call(holder.acquire, daemon.socket_path, SIZE)
    victim.call(holder.drop, "gift")
    wait_uncharged(daemon, attacker)


def test_unlocking_a_grant_does_not_end_its_charge(daemon, attacker):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.unlock)
    attacker.call(holder.release, daemon.socket_path)
    assert_still_charged(daemon, attacker)
    attacker.call(holder.drop)
    wait_uncharged(daemon, attacker)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_PATH], ids=["opened", "O_PATH"])
def test_a_description_of_ones_own_is_charged_as_long_as_it_is_there(daemon, start_child, flags):
    """Whoever asked is gone; a relative has the memory through a description that no lock tells of."""
    member = start_child(uid=ATTACKER, groups=[GROUP])
    (extent,) = member.call(holder.acquire, daemon.socket_path, SIZE, reopenable=True)
    member.call(holder.reopen)
    member.call(holder.reopen, flags=flags, keep_as="own")
    member.call(holder.unlock)
    member.call(holder.drop)
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid), "the memory was given up")
    relative = member.call(holder.fork_holder)
    member.kill()
    other = start_child(uid=ATTACKER)
    assert_still_charged(daemon, other)
    os.kill(relative, 9)
    wait_uncharged(daemon, other)


def test_a_pipe_full_of_pins_is_charged(daemon, attacker):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["pinned_bytes"] == SIZE, "the pins are found when the memory is renewed")
    assert_still_charged(daemon, attacker)
    attacker.call(hostile.unpin_pages)
    wait_uncharged(daemon, attacker)


@pytest.mark.parametrize("seal", [0x01, 0x10], ids=["F_SEAL_SEAL", "F_SEAL_FUTURE_WRITE"])
def test_a_seal_does_not_hide_pins(daemon, attacker, seal):
    """The pin test adds a seal, so F_SEAL_SEAL makes it say nothing: then the charge stays as long as the service."""
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.add_seal, seal=seal)
    attacker.call(holder.drop)
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid) or daemon.pool()["pinned_bytes"], "the extent was looked at")
    assert_still_charged(daemon, attacker)


def test_unlocking_does_not_hide_pins(daemon, attacker):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.unlock)
    attacker.call(holder.release, daemon.socket_path)
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["pinned_bytes"] == SIZE, "the pins are found when the memory is renewed")
    assert_still_charged(daemon, attacker)


@pytest.mark.parametrize("offset", [0, SIZE], ids=["from the start", "behind the end"])
def test_what_was_grown_by_a_mapping_is_charged(daemon, start_child, offset):
    child = start_child(uid=VICTIM)
    child.call(holder.acquire, daemon.socket_path, SIZE)
    if child.call(hostile.map_behind, offset, 2 * SIZE + 4 * MIB - offset) == SIZE:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    assert_still_charged(daemon, child)
