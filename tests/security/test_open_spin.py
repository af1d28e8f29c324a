# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each open of a reopenable grant is an event for the daemon: somebody who does nothing else must not keep it busy."""

import pytest
from harness import hostile, holder, wait_until
from harness.hostile import ATTACKER
from harness.pages import MIB, hugetlb_files, need_pages
from harness.weakened import Change

GROUP, N_SPINNERS, N_ACQUIRES = 3100, 2, 20
N_TURNS, N_OPENS = 100, 20
EVENT_BYTES, MAX_OPENS = 16, 64  # inotify(7); of returns.c, each with the event of its close
WEAK = Change("returns.c", "if (++extent->n_opens != MAX_OPENS ||", "if (++extent->n_opens != 0 ||")


def read_bytes(pid):
    """What the daemon has read: events, and a few figures of the kernel; no messages of clients, which it receives."""
    with open(f"/proc/{pid}/io", encoding="ascii") as io:
        return int(io.readline().removeprefix("rchar: "))


def read_while_serving(daemon, victim):
    before = read_bytes(daemon.pid)
    victim.call(take_and_give, daemon.socket_path, N_ACQUIRES)
    return read_bytes(daemon.pid) - before


def take_and_give(me, path, n):
    for _ in range(n):
        holder.acquire(me, path, 2 * MIB, on_miss="wait", timeout_ms=20000)
        holder.drop(me)


def spin_open(me, path):
    """In turns: else it is luck how many events are queued when the daemon has had enough."""
    client = holder.client(me, path)
    for _ in range(N_TURNS):
        hostile.spin_open(me, N_OPENS)
        for _ in range(2):  # the second is asked after the events were there
            client.status()


@pytest.mark.parametrize("weak, works", [((WEAK,), True), ((), False)], ids=["weakened", "real"])
def test_spinning_opens_are_heard_of_a_few_times_only(start_daemon, start_child, victim, weaken, weak, works):
    need_pages(32)
    config = f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\n"
    daemon = start_daemon(pools=["2M:2M:16M"], config=config, program=weaken(*weak) if works else None)
    daemon.wait_full()
    spinners = [start_child(uid=ATTACKER, groups=[GROUP]) for _ in range(N_SPINNERS)]
    inodes = [spinner.call(holder.acquire, daemon.socket_path, 2 * MIB, reopenable=True)[0].inode for spinner in spinners]
    quiet_bytes = read_while_serving(daemon, victim)
    for spinner in spinners:
        spinner.start(spin_open, daemon.socket_path)
    busy_bytes = read_while_serving(daemon, victim)
    before = read_bytes(daemon.pid)
    for spinner in spinners:
        spinner.result()
    spin_bytes = busy_bytes - quiet_bytes + read_bytes(daemon.pid) - before
    most_bytes = 2 * N_SPINNERS * MAX_OPENS * 2 * EVENT_BYTES  # twice what is read until they are not listened to any more
    print(f"the daemon read {quiet_bytes} bytes before and {spin_bytes} more then; at most {most_bytes} are to be")
    assert (spin_bytes > most_bytes) == works
    # And what the daemon heard was enough: the memory is not used again
    for spinner in spinners:
        spinner.kill()
    wait_until(lambda: not set(inodes) & set(hugetlb_files(daemon.pid)), "the memory was given up")
    daemon.wait_full()
