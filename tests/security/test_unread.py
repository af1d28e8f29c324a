# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that asks and never reads: its questions wait with it, not in the daemon's memory."""

import re
import socket

import pytest
from harness import hostile, holder, wait_until
from harness.pages import MIB, need_pages
from harness.weakened import Change

N_CONNECTIONS, MOST_QUESTIONS, N_ACQUIRES = 32, 60000, 20
MOST_PENDING = 16  # answers for a connection; MAX_PENDING of session.c and one are expected
MOST_KIB = 1024    # seen: 116, and 448 with sanitizers
WEAK = Change("session.c", "session->outbox.n_entries <= MAX_PENDING && ", "")


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"^RssAnon:\s+(\d+)", status.read(), re.MULTILINE)[1])


def n_questions_in_a_socket(_me):
    """What the kernel takes on a connection that nobody reads."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    n = 0
    with ours, theirs:
        try:
            while ours.send(b"\6\0\0\0\1\0\0\0"):
                n += 1
        except BlockingIOError:
            return n


def n_pending(daemon, attacker, n_sent):
    """Of the questions that neither wait in the kernel nor were answered there: that many answers the daemon has in its memory."""
    n_waiting = N_CONNECTIONS * attacker.call(n_questions_in_a_socket)
    with daemon.stopped():
        return n_sent - n_waiting - attacker.call(hostile.read_answers)


def take_and_give(me, path):
    for _ in range(N_ACQUIRES):
        holder.acquire(me, path, 2 * MIB, on_miss="wait", timeout_ms=20000)
        holder.drop(me)


@pytest.mark.parametrize("weak, works", [((WEAK,), True), ((), False)], ids=["weakened", "real"])
def test_answers_that_nobody_reads_cost_no_memory(start_daemon, attacker, victim, weaken, weak, works):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config="ReleaseGrace=50ms\n", program=weaken(*weak) if works else None)
    daemon.wait_full()
    victim.call(holder.connect, daemon.socket_path)
    before_kib = resident_kib(daemon.pid)
    n_sent = attacker.call(hostile.flood, daemon.socket_path, N_CONNECTIONS, MOST_QUESTIONS)
    more_kib = resident_kib(daemon.pid) - before_kib
    victim.call(take_and_give, daemon.socket_path)
    n = n_pending(daemon, attacker, n_sent)
    print(f"{n_sent} questions; {n} answers and {more_kib} KiB more in the daemon's memory")
    assert (n > N_CONNECTIONS * MOST_PENDING) == works
    assert (more_kib > MOST_KIB) == works
    attacker.kill()
    wait_until(lambda: daemon.status()["n_clients"] <= 2, "the attacker's connections are gone")
