# SPDX-License-Identifier: LGPL-2.1-or-later
"""A grant is one description. Making another one of the same memory would outlive every question that the daemon asks."""

import errno
import os

import pytest
from harness import hostile, holder, wait_until
from harness.child import ChildError
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, hugetlb_files, need_pages
from harness.weakened import Change

SIZE, GROUP = 8 * MIB, 3100
DENIED = (errno.EACCES, errno.EPERM)
OPEN = Change("extent.c", "fchmod(first_fd, 0600)", "fchmod(first_fd, 0666)")
DEAF = Change("returns.c", "extent->foreign_open = true;", "extent->foreign_open = false;")


@pytest.fixture(params=["weakened", "real"])
def works(request):
    """Whether the attack does."""
    return request.param == "weakened"


@pytest.fixture
def daemon(start_daemon):
    return start(start_daemon)


def start(start_daemon, program=None):
    need_pages(16)
    config = f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\nRecycle=trusted\n"
    daemon = start_daemon(pools=["2M:8M:16M"], config=config, program=program)
    daemon.wait_full()
    return daemon


def is_recycled(daemon, inode):
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    daemon.wait_full()
    return inode in hugetlb_files(daemon.pid)


@pytest.mark.parametrize("is_root", [False, True], ids=["user", "root of a container"])
def test_a_client_cannot_open_its_grant_again(start_daemon, weaken, attacker, works, is_root):
    daemon = start(start_daemon, weaken(OPEN) if works else None)
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE)
    if is_root:
        attacker.call(hostile.become_root_of_a_namespace)
    for flags in os.O_RDWR, os.O_RDONLY, os.O_WRONLY:
        assert (attacker.call(hostile.reopen_error, flags) == 0) == works
    assert (attacker.call(hostile.o_path_reopen_error) == 0) == works
    assert attacker.call(hostile.map_files_error) in DENIED  # to the kernel's own root only, whatever the daemon does
    assert all(error in DENIED for error in attacker.call(hostile.chmod_errors))
    attacker.call(holder.drop)
    assert is_recycled(daemon, extent.inode) != works  # the daemon has heard of it
    assert (daemon.status()["n_doubts"] > 0) == works


def test_who_opened_his_grant_again_would_read_what_the_next_holder_writes(start_daemon, weaken, attacker, victim, works):
    """The daemon's two defences: nobody may open it, and what was opened is not used again."""
    daemon = start(start_daemon, weaken(OPEN, DEAF) if works else None)
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    try:
        attacker.call(holder.reopen, keep_as="own")
    except ChildError:
        assert not works
    attacker.call(holder.drop)
    for name in "ab":
        victim.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)
        assert victim.call(holder.is_zero, name)
        victim.call(holder.fill, name)
    assert not works or attacker.call(holder.is_filled_with, "own")


def test_a_process_of_the_same_user_cannot_open_it_either(daemon, attacker, start_child):
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    path = f"/proc/{attacker.pid}/fd/{attacker.call(holder.fd_number)}"
    assert start_child(uid=ATTACKER).call(hostile.open_error, path) in DENIED


def test_another_user_can_neither_open_nor_take_a_victims_descriptor(daemon, attacker, victim):
    victim.call(holder.acquire, daemon.socket_path, SIZE)
    fd = victim.call(holder.fd_number)
    for flags in os.O_RDWR, os.O_PATH:
        assert attacker.call(hostile.open_error, f"/proc/{victim.pid}/fd/{fd}", flags) in DENIED
    assert attacker.call(hostile.steal_fd_error, victim.pid, fd) in DENIED


def test_nobody_can_take_the_daemons_own_descriptors(daemon, attacker):
    for name in os.listdir(f"/proc/{daemon.pid}/fd"):
        assert attacker.call(hostile.open_error, f"/proc/{daemon.pid}/fd/{name}") in DENIED
        assert attacker.call(hostile.steal_fd_error, daemon.pid, int(name)) in DENIED


def test_a_reopenable_grant_is_opened_by_members_only_and_never_recycled(daemon, start_child):
    """The weaker setting, asked for by the client: the attack works, and the daemon knows."""
    member, stranger = start_child(uid=ATTACKER, groups=[GROUP]), start_child(uid=VICTIM)
    (extent,) = member.call(holder.acquire, daemon.socket_path, SIZE, reopenable=True)
    stranger.call(holder.acquire, daemon.socket_path, SIZE, reopenable=True)
    assert stranger.call(hostile.reopen_error) in DENIED
    assert stranger.call(hostile.chmod_errors) == [errno.EPERM] * 3
    stranger.call(holder.drop)
    member.call(holder.fill)
    member.call(holder.reopen, keep_as="own")
    member.call(holder.drop)
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid), "the memory was given up")
    assert member.call(holder.is_filled_with, "own")
    assert not is_recycled(daemon, extent.inode)
