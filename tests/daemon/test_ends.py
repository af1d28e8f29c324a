# SPDX-License-Identifier: LGPL-2.1-or-later
"""Ends of every kind: a client that dies at any step, a daemon that is stopped or killed while it is needed."""

import errno
import random
import signal
import time

import pytest
from harness import holder, wait_until
from harness.child import ChildError
from harness.pages import MIB, count, need_pages
from hugezero_client import Client, Item

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


def wait_all_back(daemon):
    daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"] and not row["granted_bytes"], "everything came back")
    wait_until(lambda: daemon.status()["n_clients"] == 1, "the client is forgotten")
    status = daemon.status()
    assert (status["n_grants"], status["n_extents_granted"], status["n_waiting"], status["n_fds_in_flight"]) == (0, 0, 0, 0)


def connect_silently(me, path):
    me.client = Client(path, hello=False)


def ask(me, path):
    holder.client(me, path).send_acquire([Item(bytes=8 * MIB, several=True)])


def ask_for_too_much(me, path):
    holder.client(me, path).send_acquire([Item(bytes=64 * MIB, several=True)], "wait", -1)


def take(me, path):
    holder.acquire(me, path, 8 * MIB, several=True)


def take_and_map(me, path):
    take(me, path)
    holder.fill(me)


def take_map_and_tell(me, path):
    take_and_map(me, path)
    holder.mapped(me, path)


def take_and_release(me, path):
    take_and_map(me, path)
    holder.release(me, path)


STEPS = [connect_silently, holder.connect, ask, ask_for_too_much, take, take_and_map, take_map_and_tell, take_and_release]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__name__)
def test_a_client_that_is_killed_at_this_step_leaves_nothing_behind(start_daemon, start_child, step):
    need_pages(8)
    daemon = start_daemon(pools=["2M:2M:16M"], config=QUICK)
    daemon.wait_full()
    for _ in range(3):
        child = start_child()
        child.call(step, daemon.socket_path)
        child.kill()
        wait_all_back(daemon)
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 16 * MIB, several=True)
    assert child.call(holder.is_zero)


def take_for_ever(me, path):
    while True:
        holder.acquire(me, path, 8 * MIB, several=True, on_miss="wait", timeout_ms=-1)
        holder.fill(me)
        holder.drop(me)


def test_clients_that_are_killed_at_any_instant_leave_nothing_behind(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config=QUICK)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    instants = random.Random(seed)
    for _ in range(20):
        children = [start_child() for _ in range(3)]
        for child in children:
            child.start(take_for_ever, daemon.socket_path)
        for child in children:
            time.sleep(instants.uniform(0, 0.03))  # the instant is what is tested
            child.kill()
    wait_all_back(daemon)
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 16 * MIB, several=True)
    assert child.call(holder.is_zero)


def test_clients_that_wait_are_told_when_the_daemon_stops(start_daemon, start_child):
    need_pages(4)
    daemon = start_daemon(pools=["2M:2M:8M"], config=QUICK)
    daemon.wait_full()
    rich = start_child()
    rich.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    rich.call(holder.fill)
    poor = [start_child() for _ in range(3)]
    for child in poor:
        child.start(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 3, "three requests wait")
    daemon.process.send_signal(signal.SIGTERM)
    for child in poor:
        with pytest.raises(ChildError) as failure:
            child.result()
        assert (failure.value.error, failure.value.errno) == ("Refused", errno.ESHUTDOWN)
    assert daemon.process.wait(20) == 0
    assert rich.call(holder.is_filled_with)


def test_a_daemon_stops_while_memory_is_being_made_for_a_client(start_daemon):
    """At any instant of that, without a complaint: start_daemon checks it."""
    need_pages(128)
    for delay_ms in 0, 1, 2, 4, 8, 16, 32:
        daemon = start_daemon(pools=["2M:auto:256M"])
        with Client(daemon.socket_path) as client:
            client.send_acquire([Item(bytes=250 * MIB), Item(bytes=2 * MIB)], on_miss="fill")
            time.sleep(delay_ms / 1000)
            daemon.process.send_signal(signal.SIGTERM)
            assert daemon.process.wait(20) == 0
        daemon.stop()  # what was granted nevertheless is gone with the client


def test_a_daemon_stops_while_a_client_does_not_read(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:32M"], config=QUICK)
    daemon.wait_full()
    start_child().call(ask, daemon.socket_path)
    wait_until(lambda: daemon.status()["n_fds_in_flight"] == 4, "the grant is in flight")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.process.wait(20) == 0


def test_a_killed_daemon_takes_nothing_from_its_clients_and_leaves_no_page(start_daemon, start_child):
    need_pages(16)
    used = count("nr") - count("free")
    daemon = start_daemon(pools=["2M:2M:16M"], config=QUICK)
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    child.call(holder.fill)
    daemon.kill()
    assert child.call(holder.is_filled_with)
    again = start_daemon(pools=["2M:2M:16M"], config=QUICK)
    again.wait_full()
    other = start_child()
    other.call(holder.acquire, again.socket_path, 16 * MIB, several=True)
    assert other.call(holder.is_zero)
    assert child.call(holder.is_filled_with)
    for process in child, other:
        process.kill()
    again.stop()
    wait_until(lambda: count("nr") - count("free") <= used, "all pages are free again")
    daemon.clean()
