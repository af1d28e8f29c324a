# SPDX-License-Identifier: LGPL-2.1-or-later
"""
One message has the daemon ask who holds each extent of a grant, one close() of the last descriptor has it do more than that: who has
many extents must not keep others waiting.
"""

import fcntl

import pytest
from harness import holder, wait_until
from harness.pages import MIB, need_pages, node_with_most_pages
from harness.weakened import Change
from hugezero_client import ALL_EXTENTS, C_POOLS, C_RELEASE, C_STATUS, D_POOLS, D_STATUS, POOL, STATUS, Client, _rows

N_EXTENTS, N_CONNECTIONS, N_MESSAGES = 80, 8, 4
PER_TURN = 64  # of due.c
NO_SWEEP = "SweepInterval=1h\n"  # it asks about everything as well
ALL_IN_A_TURN = Change("due.c", "broker->n_done_in_turn < PER_TURN && ", "")
AT_ONCE = Change("due.c", "        extent->is_due = true;\n", "        returns_do_due(broker, extent);\n        return;\n")


def unlock_all(me):
    """Nothing tells the daemon, so each is counted as a doubt when it is asked about for the first time."""
    for fd in me.grants[""].fds:
        fcntl.flock(fd, fcntl.LOCK_UN)


def connect(me, path):
    me.connections = [Client(path) for _ in range(N_CONNECTIONS)]


def send_releases(me):
    for connection in me.connections:
        for _ in range(N_MESSAGES):
            connection.send_message(C_RELEASE, "QII", me.grants[""].id, ALL_EXTENTS, 0)


def read_answers(me):
    return sum(connection.receive()[0] != 0 for connection in me.connections for _ in range(N_MESSAGES))


def send_question(me, path, op, *arguments):
    me.question = holder.client(me, path).send_message(op, *arguments)


def n_doubts_in_answer(me):
    return next(_rows(*STATUS, me.client.wait(me.question, D_STATUS)))["n_doubts"]


def n_granted_in_answer(me):
    return next(_rows(*POOL, me.client.wait(me.question, D_POOLS)[16:]))["granted_bytes"] // (2 * MIB)


def variants(*changes):
    return pytest.mark.parametrize("weak", [changes, ()], ids=["weakened", "real"])


def start(start_daemon, program):
    need_pages(N_EXTENTS + 8)
    pool = f"2M:2M:{2 * (N_EXTENTS + 8)}M@{node_with_most_pages()}"
    daemon = start_daemon(pools=[pool], config=NO_SWEEP, program=program)
    daemon.wait_full()
    return daemon


@variants(ALL_IN_A_TURN)
def test_others_are_answered_before_all_of_a_grant_is_asked_about(start_daemon, attacker, victim, weaken, weak):
    daemon = start(start_daemon, weaken(*weak) if weak else None)
    attacker.call(holder.acquire, daemon.socket_path, N_EXTENTS * 2 * MIB, several=True)
    attacker.call(unlock_all)
    attacker.call(connect, daemon.socket_path)
    victim.call(holder.connect, daemon.socket_path)
    before = daemon.status()["n_doubts"]
    with daemon.stopped():
        attacker.call(send_releases)
        victim.call(send_question, daemon.socket_path, C_STATUS)
    n_asked = victim.call(n_doubts_in_answer) - before
    print(f"{n_asked} of {N_EXTENTS} extents were asked about before the victim was answered; at most {PER_TURN} are to be")
    assert (n_asked > PER_TURN) == bool(weak)
    # The others' turn comes, and each message is answered
    assert attacker.call(read_answers) == N_CONNECTIONS * N_MESSAGES
    wait_until(lambda: daemon.status()["n_doubts"] == before + N_EXTENTS, "all were asked about")
    attacker.kill()
    daemon.wait_full()


@variants(AT_ONCE)
def test_others_are_answered_before_all_that_was_closed_is_looked_at(start_daemon, attacker, victim, weaken, weak):
    daemon = start(start_daemon, weaken(*weak) if weak else None)
    attacker.call(holder.acquire, daemon.socket_path, N_EXTENTS * 2 * MIB, several=True)
    victim.call(holder.connect, daemon.socket_path)
    with daemon.stopped():
        attacker.call(holder.close_fds)
        victim.call(send_question, daemon.socket_path, C_POOLS, "II", 0, 0)
    n_returned = N_EXTENTS - victim.call(n_granted_in_answer)
    print(f"{n_returned} of {N_EXTENTS} extents were looked at before the victim was answered; at most {PER_TURN} are to be")
    assert (n_returned > PER_TURN) == bool(weak)
    daemon.wait_full()
