# SPDX-License-Identifier: LGPL-2.1-or-later
"""A user's quota counts the memory that the user keeps from others, by whatever means, until the kernel has it back."""

import errno
import os

import pytest
from harness import hostile, holder, pages, wait_until
from harness.child import ChildError
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, PAGE_2M, hugetlb_files, need_pages
from harness.weakened import Change
from hugezero_client import Client

SIZE, GROUP = 8 * MIB, 3100
MAP_NORESERVE = 0x4000
# Charges what was asked for and comes back, and nothing besides
FORGETFUL = (
    Change("charges.c", "charges_set_extra(broker, extent, extent->grant->uid, bytes > extent->bytes ? at_most(bytes - extent->bytes, machine_bytes()) : 0);", ""),
    Change("charges.c", "if (!grant && !service)", "if (true)"),
    Change("stock-work.c", "if (work->test_pins && extent_file_test_pins(work->file) == -EBUSY && !has_failed(work))", "if (false)"),
)
# Takes a lock that is free for a holder who is gone
CREDULOUS = (Change("reclaim.c", "return facts->close_event ? RECLAIM_FREE : RECLAIM_KEEP;", "return RECLAIM_FREE;"),)


@pytest.fixture(params=["weakened", "real"])
def works(request):
    """Whether the attack does."""
    return request.param == "weakened"


@pytest.fixture
def changes():
    """What makes the weakened daemon."""
    return FORGETFUL


def start(start_daemon, limit, program=None):
    """A user may have one extent. What is given back is renewed at once, so that pins keep pages that no extent has."""
    need_pages(32)
    config = f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\nAffinityTimeout=300ms\n[Quota default]\nMaxBytes={limit}\n"
    config += f"[Quota user:root]\nMaxBytes=infinity\n[Quota user:{VICTIM}]\nMaxBytes=20M\n"
    daemon = start_daemon(pools=["2M:8M:32M"], config=config, program=program)
    daemon.wait_full()
    return daemon


@pytest.fixture
def daemon(start_daemon, weaken, works, changes):
    return start(start_daemon, "8M", weaken(*changes) if works else None)


@pytest.fixture
def limiting_daemon(start_daemon, works):
    """Weakened by its setting: whom the memory is charged to does not matter then. It is the limit that refuses, no lack of memory."""
    return start(start_daemon, "infinity" if works else "8M")


def is_refused(daemon, child, name="more"):
    """The attacker gets nothing more. A grant that should not have been is kept."""
    try:
        child.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)
    except ChildError as error:
        assert error.errno == errno.EDQUOT, error
        return True
    return False


def assert_still_charged(daemon, child, works=False):
    """When the attack works, it is not."""
    daemon.sweep()
    daemon.wait_pool(lambda row: row["returned_bytes"] == 0, "nothing is on its way back")
    daemon.sweep()
    assert is_refused(daemon, child) != works


def wait_uncharged(daemon, child):
    wait_until(lambda: not is_refused(daemon, child), "the charge has ended")


def test_many_connections_are_one_user(limiting_daemon, start_child, works):
    children = [start_child(uid=ATTACKER) for _ in range(4)]
    children[0].call(holder.acquire, limiting_daemon.socket_path, SIZE)
    assert [is_refused(limiting_daemon, child) for child in children[1:]] == [not works] * 3


def test_a_forked_relative_keeps_the_charge_when_the_asker_is_gone(limiting_daemon, attacker, start_child, works):
    attacker.call(holder.acquire, limiting_daemon.socket_path, SIZE)
    relative = attacker.call(holder.fork_holder)
    attacker.kill()
    other = start_child(uid=ATTACKER)
    assert_still_charged(limiting_daemon, other, works)
    os.kill(relative, 9)
    if not works:
        wait_uncharged(limiting_daemon, other)


def test_what_was_passed_to_another_user_is_charged_to_the_asker(limiting_daemon, attacker, victim, works, public_path):
    victim.call(holder.listen, str(public_path / "pass"))
    os.chmod(public_path / "pass", 0o666)
    extents = attacker.call(holder.acquire, limiting_daemon.socket_path, SIZE)
    attacker.call(holder.send_first_fd, str(public_path / "pass"))
    victim.call(holder.receive_fd, extents[0], "gift")
    attacker.call(holder.drop)
    assert_still_charged(limiting_daemon, attacker, works)
    if works:
        return
    victim.call(holder.acquire, limiting_daemon.socket_path, SIZE)
    victim.call(holder.drop, "gift")
    wait_uncharged(limiting_daemon, attacker)


@pytest.mark.parametrize("changes", [CREDULOUS], ids=[""])
def test_unlocking_a_grant_does_not_end_its_charge(daemon, attacker, works):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.unlock)
    attacker.call(holder.release, daemon.socket_path)
    if works:
        wait_uncharged(daemon, attacker)
        return
    assert_still_charged(daemon, attacker)
    attacker.call(holder.drop)
    wait_uncharged(daemon, attacker)


@pytest.mark.parametrize("flags", [os.O_RDWR, os.O_PATH], ids=["opened", "O_PATH"])
def test_a_description_of_ones_own_is_charged_as_long_as_it_is_there(daemon, start_child, works, flags):
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
    assert_still_charged(daemon, other, works)
    os.kill(relative, 9)
    if not works:
        wait_uncharged(daemon, other)


def wait_looked_at(daemon, extent):
    """It was tested for pins, or given up without."""
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid) or daemon.pool()["pinned_bytes"], "the extent was looked at")


def test_a_pipe_full_of_pins_is_charged(daemon, attacker, works):
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.drop)
    wait_looked_at(daemon, extent)  # when the memory is renewed
    assert daemon.pool()["pinned_bytes"] == (0 if works else SIZE)
    assert_still_charged(daemon, attacker, works)
    attacker.call(hostile.unpin_pages)
    if not works:
        wait_uncharged(daemon, attacker)


@pytest.mark.parametrize("seal", [0x01, 0x10], ids=["F_SEAL_SEAL", "F_SEAL_FUTURE_WRITE"])
def test_a_seal_does_not_hide_pins(daemon, attacker, works, seal):
    """The pin test adds a seal, so F_SEAL_SEAL makes it say nothing: then the charge stays as long as the service."""
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.add_seal, seal=seal)
    attacker.call(holder.drop)
    wait_looked_at(daemon, extent)
    assert_still_charged(daemon, attacker, works)


def test_unlocking_does_not_hide_pins(daemon, attacker, works):
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(hostile.pin_pages)
    attacker.call(holder.unlock)
    attacker.call(holder.release, daemon.socket_path)
    attacker.call(holder.drop)
    wait_looked_at(daemon, extent)
    assert daemon.pool()["pinned_bytes"] == (0 if works else SIZE)
    assert_still_charged(daemon, attacker, works)


@pytest.mark.parametrize("offset", [0, SIZE], ids=["from the start", "behind the end"])
def test_what_was_grown_by_a_mapping_is_charged(daemon, start_child, works, offset):
    child = start_child(uid=VICTIM)
    child.call(holder.acquire, daemon.socket_path, SIZE)
    if child.call(hostile.map_behind, offset, 2 * SIZE + 4 * MIB - offset) == SIZE:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    assert_still_charged(daemon, child, works)


def grow(me, offset, name):
    """A mapping that reserves nothing gives the file any size, whatever its seals say."""
    fd = me.grants[name].fds[0]
    pages.Mapping(fd, PAGE_2M, flags=pages.MAP_SHARED | MAP_NORESERVE, offset=offset).close()
    return os.fstat(fd).st_size


@pytest.mark.parametrize("exponent, n", [(62, 5), (63, 3)])
def test_a_file_of_any_size_costs_no_more_than_the_machine_has(start_daemon, start_child, exponent, n):
    need_pages(32)
    daemon = start_daemon(pools=["2M:2M:32M"], config="ReleaseGrace=50ms\nSweepInterval=100ms\nAffinityTimeout=300ms\n")
    daemon.wait_full()
    child = start_child(uid=ATTACKER)
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for name in map(str, range(n)):
        child.call(holder.acquire, daemon.socket_path, PAGE_2M, name)
        if child.call(grow, (1 << exponent) - 2 * PAGE_2M, name) == PAGE_2M:
            pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    for _ in range(2):
        for name in map(str, range(n)):
            child.call(holder.release, daemon.socket_path, name)
        daemon.sweep()
        with Client(daemon.socket_path) as client:
            assert client.limits()[ATTACKER, "bytes"][0] == n * (memory_bytes + PAGE_2M)
    child.kill()
    wait_until(lambda: not daemon.grants() and charged(daemon, ATTACKER) == 0, "the charge has ended")


def charged(daemon, uid):
    with Client(daemon.socket_path) as client:
        return client.limits().get((uid, "bytes"), (0, 0))[0]
