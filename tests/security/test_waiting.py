# SPDX-License-Identifier: LGPL-2.1-or-later
"""A request that waits for what does not come back must not stop a pool for everybody else."""

import errno

import pytest
from harness import hostile, holder, wait_until
from harness.child import ChildError
from harness.hostile import ATTACKER
from harness.pages import MIB, need_pages
from hugezero_client import Item

SIZE = 16 * MIB
WEAK, REAL = "HoldBack=infinity\n", "HoldBack=200ms\n"


def start(start_daemon, setting):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M@0"], config=f"ReleaseGrace=50ms\nSweepInterval=100ms\n{setting}")
    daemon.wait_full()
    return daemon


def wait_for(daemon, child, n_bytes, n=1):
    """The child waits without limit, n times."""
    n_before = daemon.status()["n_waiting"]
    child.call(send_requests, daemon.socket_path, n_bytes, n)
    wait_until(lambda: daemon.status()["n_waiting"] == n_before + n, "the requests wait")


def send_requests(me, path, n_bytes, n):
    for _ in range(n):
        holder.client(me, path).send_acquire([Item(bytes=n_bytes, several=True)], "wait", -1)


def is_served(daemon, child, timeout_ms=0):
    try:
        child.call(holder.acquire, daemon.socket_path, 2 * MIB, "more", on_miss="wait" if timeout_ms else "fail", timeout_ms=timeout_ms)
    except ChildError as error:
        assert error.errno in (errno.EAGAIN, errno.ETIMEDOUT), error
        return False
    child.call(holder.drop, "more")
    return True


@pytest.mark.parametrize("setting, works", [(WEAK, True), (REAL, False)], ids=["weakened", "real"])
def test_who_waits_for_all_memory_does_not_stop_the_pool(start_daemon, attacker, victim, start_child, setting, works):
    daemon = start(start_daemon, setting)
    victim.call(holder.acquire, daemon.socket_path, 2 * MIB)
    wait_for(daemon, attacker, SIZE, 8)
    wait_for(daemon, start_child(uid=ATTACKER + 10), SIZE, 8)
    assert is_served(daemon, victim, 2000 if works else 20000) != works
    assert daemon.status()["n_waiting"] == 16


def test_turns_are_not_longer_for_those_who_ask_again_and_again(start_daemon, attacker, victim):
    """Each time a new request, and it leaves before its turn is over."""
    daemon = start(start_daemon, "HoldBack=1s\n")
    victim.call(holder.acquire, daemon.socket_path, 2 * MIB)
    attacker.start(hostile.wait_again_and_again, daemon.socket_path, SIZE, 500, 10)
    n_served = sum(is_served(daemon, victim, 20000) for _ in range(5))
    assert n_served == 5
    attacker.kill()


def test_who_asks_for_more_than_others_hold_keeps_nobody_waiting(start_daemon, attacker, victim):
    """Strictly in order, this would be for ever."""
    daemon = start(start_daemon, WEAK)
    attacker.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    wait_for(daemon, attacker, 10 * MIB)
    assert is_served(daemon, victim)
    # But its own next request comes after it
    assert not is_served(daemon, attacker)
