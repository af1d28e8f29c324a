# SPDX-License-Identifier: LGPL-2.1-or-later
"""One message has the daemon ask who holds each extent of a grant: who sends it again and again must not keep others waiting."""

import fcntl

import pytest
from harness import holder, wait_until
from harness.pages import MIB, need_pages, node_with_most_pages
from harness.weakened import Change
from hugezero_client import ALL_EXTENTS, C_RELEASE, C_STATUS, D_STATUS, STATUS, Client, _rows

N_EXTENTS, N_CONNECTIONS, N_MESSAGES = 80, 8, 4
ASKS_PER_TURN = 64  # of returns.c
NO_SWEEP = "SweepInterval=1h\n"  # it asks about everything as well
WEAK = Change("returns.c", "broker->n_asks < ASKS_PER_TURN && ", "")


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


def send_question(me, path):
    me.question = holder.client(me, path).send_message(C_STATUS)


def n_doubts_in_answer(me):
    return next(_rows(*STATUS, me.client.wait(me.question, D_STATUS)))["n_doubts"]


@pytest.mark.parametrize("weak, works", [((WEAK,), True), ((), False)], ids=["weakened", "real"])
def test_others_are_answered_before_all_of_a_grant_is_asked_about(start_daemon, attacker, victim, weaken, weak, works):
    need_pages(N_EXTENTS + 8)
    pool = f"2M:2M:{2 * (N_EXTENTS + 8)}M@{node_with_most_pages()}"
    daemon = start_daemon(pools=[pool], config=NO_SWEEP, program=weaken(*weak) if works else None)
    daemon.wait_full()
    attacker.call(holder.acquire, daemon.socket_path, N_EXTENTS * 2 * MIB, several=True)
    attacker.call(unlock_all)
    attacker.call(connect, daemon.socket_path)
    victim.call(holder.connect, daemon.socket_path)
    before = daemon.status()["n_doubts"]
    with daemon.stopped():
        attacker.call(send_releases)
        victim.call(send_question, daemon.socket_path)
    n_asked = victim.call(n_doubts_in_answer) - before
    print(f"{n_asked} of {N_EXTENTS} extents were asked about before the victim was answered; at most {ASKS_PER_TURN} are to be")
    assert (n_asked > ASKS_PER_TURN) == works
    # The others' turn comes, and each message is answered
    assert attacker.call(read_answers) == N_CONNECTIONS * N_MESSAGES
    wait_until(lambda: daemon.status()["n_doubts"] == before + N_EXTENTS, "all were asked about")
    attacker.kill()
    daemon.wait_full()
