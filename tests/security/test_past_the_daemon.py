# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Pages that the kernel has free belong to whoever maps first, and the daemon hears of no mapping. What it cannot charge the
hugetlb controller can forbid: granted pages are on the bill of the daemon's control group, all others on the taker's.
"""

import contextlib
import os

import pytest
from harness import holder, pages, wait_until
from harness.hostile import ATTACKER
from harness.pages import MIB, hugetlb_files, need_pages
from hugezero_client import Client

SIZE, GROUP = 8 * MIB, 3100


@pytest.fixture(params=["max", "0"], ids=["weakened", "real"])
def limit(request):
    return request.param


@pytest.fixture
def attacker(limit, start_child, make_cgroup):
    """In a control group that may have so many bytes in pages of 2 MiB."""
    group = make_cgroup("attacker").path
    control = group.parent / "cgroup.subtree_control"
    with contextlib.ExitStack() as at_end:
        if "hugetlb" not in control.read_text().split():
            try:
                control.write_text("+hugetlb")
            except OSError as error:
                pytest.skip(f"cannot: no hugetlb controller ({error})")
            at_end.callback(control.write_text, "-hugetlb")
        for name in "max", "rsvd.max":
            (group / f"hugetlb.2MB.{name}").write_text(limit)
        yield start_child(uid=ATTACKER, groups=[GROUP], cgroup=group)


@pytest.fixture
def daemon(start_daemon):
    need_pages(32)
    daemon = start_daemon(pools=["2M:8M:16M"], config=f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\n")
    daemon.wait_full()
    return daemon


def open_again(me):
    me.own = os.open(f"/proc/self/fd/{me.grants[''].fds[0]}", os.O_RDWR)


def take(me, fd, n_bytes):
    """Maps and populates; whether that worked."""
    flags = pages.MAP_SHARED if fd >= 0 else pages.MAP_PRIVATE | pages.MAP_ANONYMOUS | pages.MAP_HUGETLB | 21 << 26
    try:
        me.taken = pages.Mapping(fd, n_bytes, flags=flags)
        me.taken.populate()
    except OSError:
        return False
    return True


def grow(me, n_bytes):
    return take(me, me.own, n_bytes)


def take_punched(me, n_bytes):
    pages.punch(me.own, 0, n_bytes)
    return take(me, me.own, n_bytes)


def test_a_grant_that_was_opened_again_and_given_up_grows_uncharged(daemon, attacker, limit):
    """The daemon has no description of it any more, so it cannot look at its length."""
    (extent,) = attacker.call(holder.acquire, daemon.socket_path, SIZE, reopenable=True)
    attacker.call(holder.fill)
    attacker.call(open_again)
    attacker.call(holder.drop)
    wait_until(lambda: extent.inode not in hugetlb_files(daemon.pid), "the memory was given up")
    works = attacker.call(grow, 2 * SIZE)
    if limit == "max" and not works:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    assert works == (limit == "max")
    daemon.sweep()
    with Client(daemon.socket_path) as client:
        assert client.limits()[ATTACKER, "bytes"][0] == SIZE


@pytest.mark.parametrize("how", ["mapped", "punched"])
def test_pages_are_taken_from_the_kernel(daemon, attacker, limit, how):
    attacker.call(holder.acquire, daemon.socket_path, SIZE, reopenable=True)
    attacker.call(open_again)
    works = attacker.call(take, -1, SIZE) if how == "mapped" else attacker.call(take_punched, SIZE // 2)
    assert works == (limit == "max")
