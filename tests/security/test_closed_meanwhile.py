# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who closes memory while the daemon asks about it is not accused of having unlocked it, and has it off his books at once."""

import signal

import pytest
from harness import holder, wait_until
from harness.pages import MIB, need_pages
from harness.weakened import Change
from hugezero_client import ALL_EXTENTS, C_RELEASE

N_EXTENTS = 8
ASK = "static void ask(struct broker *broker, struct extent *extent) {\n"
# Not a defence that is taken away: it stands still between reading the events and asking, once
STOPS = Change("returns.c", ASK, f"#include <signal.h>\n{ASK}static int n; if (!n++) raise(SIGSTOP);\n")
WEAK = Change("returns.c", "        reclaim_drain(broker->reclaim);\n        grant = grant_find(broker, grant_id); /*", "        grant = grant_find(broker, grant_id); /*")


def is_stopped(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"


def start_release(me, path):
    me.request = holder.client(me, path).send_message(C_RELEASE, "QII", me.grants[""].id, ALL_EXTENTS, 0)


@pytest.mark.parametrize("changes, works", [((STOPS, WEAK), True), ((STOPS,), False), ((), False)], ids=["weakened", "weakened-to-stop-only", "real"])
@pytest.mark.parametrize("interval", ["1h", "100ms"], ids=["release", "sweep"])
def test_what_is_closed_while_it_is_asked_about_is_no_doubt(start_daemon, victim, weaken, interval, changes, works):
    need_pages(N_EXTENTS + 8)
    config = f"SweepInterval={interval}\nReleaseGrace=50ms\n"
    daemon = start_daemon(pools=[f"2M:2M:{2 * N_EXTENTS}M"], config=config, program=weaken(*changes) if changes else None)
    daemon.wait_full()
    victim.call(holder.acquire, daemon.socket_path, N_EXTENTS * 2 * MIB, several=True)
    if interval == "1h":
        victim.call(start_release, daemon.socket_path)
    if changes:
        wait_until(lambda: is_stopped(daemon.pid), "the daemon has read the events and is about to ask")
    victim.call(holder.close_fds)
    daemon.process.send_signal(signal.SIGCONT)
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0, "all has come back")
    assert (daemon.status()["n_doubts"] > 0) == works
    assert ("was unlocked by its holder" in daemon.stderr()) == works
    daemon.wait_full()
