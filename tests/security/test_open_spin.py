# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each open of a reopenable grant is an event for the daemon: somebody who does nothing else must not keep it busy."""

import statistics

from harness import hostile, holder, wait_until
from harness.hostile import ATTACKER
from harness.pages import MIB, hugetlb_files, need_pages

GROUP, SPIN_S = 3100, 1.5


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def cost_of_acquires(daemon, victim):
    """What the daemon took of the processor while the victim was served, in seconds; and how long the victim waited."""
    before = cpu_s(daemon.pid)
    times = victim.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, SPIN_S)
    return cpu_s(daemon.pid) - before, statistics.median(times)


def test_spinning_opens_cost_the_daemon_next_to_nothing(start_daemon, start_child, victim):
    need_pages(32)
    daemon = start_daemon(pools=["2M:2M:16M"], config=f"SocketGroup={GROUP}\nReleaseGrace=50ms\nSweepInterval=100ms\n")
    daemon.wait_full()
    spinners = [start_child(uid=ATTACKER, groups=[GROUP]) for _ in range(2)]
    inodes = [spinner.call(holder.acquire, daemon.socket_path, 2 * MIB, reopenable=True)[0].inode for spinner in spinners]
    quiet_cpu_s, quiet_wait_s = cost_of_acquires(daemon, victim)
    for spinner in spinners:
        spinner.start(hostile.spin_open, SPIN_S + 0.5)
    busy_cpu_s, busy_wait_s = cost_of_acquires(daemon, victim)
    n_opens = sum(spinner.result() for spinner in spinners)
    print(f"{n_opens} opens; the daemon took {quiet_cpu_s:.2f} s before and {busy_cpu_s:.2f} s then")
    print(f"an acquire took {1000 * quiet_wait_s:.2f} ms before and {1000 * busy_wait_s:.2f} ms then")
    assert n_opens > 1000
    assert busy_cpu_s < 2 * quiet_cpu_s + SPIN_S / 10
    assert busy_wait_s < 10 * quiet_wait_s + 0.02  # three who want two processors
    # And what the daemon heard was enough: the memory is not used again
    for spinner in spinners:
        spinner.kill()
    wait_until(lambda: not set(inodes) & set(hugetlb_files(daemon.pid)), "the memory was given up")
    daemon.wait_full()
