# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client that asks and never reads: its questions wait with it, not in the daemon's memory."""

import re

from harness import hostile, holder, wait_until
from harness.pages import MIB, need_pages


def resident_kib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        return int(re.search(r"^RssAnon:\s+(\d+)", status.read(), re.MULTILINE)[1])


def test_answers_that_nobody_reads_cost_neither_memory_nor_time(start_daemon, attacker, victim):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config="ReleaseGrace=50ms\n")
    daemon.wait_full()
    victim.call(holder.connect, daemon.socket_path)
    before = resident_kib(daemon.pid)
    assert attacker.call(hostile.flood, daemon.socket_path, 32) > 1000
    assert resident_kib(daemon.pid) - before < 16 * 1024
    times = victim.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, 1)
    assert max(times) < 1
    attacker.kill()
    wait_until(lambda: daemon.status()["n_clients"] <= 2, "the attacker's connections are gone")
