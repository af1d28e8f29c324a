# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each open of a reopenable grant is an event for the daemon: somebody who does nothing else must not keep it busy."""

import statistics

from conftest import ATTACKER
from harness import hostile, holder, wait_until
from harness.pages import MIB, hugetlb_files, need_pages

GROUP, SPIN_S = 3100, 3


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def test_spinning_opens_cost_the_daemon_next_to_nothing(start_daemon, start_child, victim):
    need_pages(32)
    daemon = start_daemon(pools=["2M:2M:16M"], config=f"SocketGroup={GROUP}\nReleaseGrace=50ms\n")
    daemon.wait_full()
    spinners = [start_child(uid=ATTACKER, groups=[GROUP]) for _ in range(2)]
    inodes = [spinner.call(holder.acquire, daemon.socket_path, 2 * MIB, reopenable=True)[0].inode for spinner in spinners]
    before = cpu_s(daemon.pid)
    for spinner in spinners:
        spinner.start(hostile.spin_open, SPIN_S)
    times = victim.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, SPIN_S - 1)
    n_opens = sum(spinner.result() for spinner in spinners)
    assert n_opens > 1000
    assert cpu_s(daemon.pid) - before < SPIN_S / 4, f"the daemon was busy with {n_opens} opens"
    assert statistics.median(times) < 0.1
    # And what the daemon heard was enough: the memory is not used again
    for spinner in spinners:
        spinner.kill()
    wait_until(lambda: not set(inodes) & set(hugetlb_files(daemon.pid)), "the memory was given up")
    daemon.wait_full()
