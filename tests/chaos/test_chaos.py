# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clients of several users do everything at once and are killed and stopped at random; memory stays zero, private and complete."""

import os
import pathlib
import random
import select
import signal
import subprocess
import sys
import time

import pytest
from harness import pages, wait_until

SECONDS = float(os.environ.get("HUGEZERO_CHAOS_SECONDS", "60"))
SEED = int(os.environ.get("HUGEZERO_CHAOS_SEED", str(time.time_ns() % 1_000_000)))
UIDS = [3001, 3002, 3003]
N_CLIENTS = 6
HERE = pathlib.Path(__file__).resolve().parent

CONFIG = """
ReleaseGrace=50ms
AffinityTimeout=2s
SweepInterval=1s
MaxFdsInFlight=512
[Pool main]
PageSize=2M
Target=512M
[Pool small]
PageSize=2M
ExtentSize=2M
Target=64M
[Quota default]
MaxBytes=320M
"""


class ChaosClient:
    n_started = 0

    def __init__(self, daemon, folder, rng):
        ChaosClient.n_started += 1
        self.inbox = folder / f"inbox{ChaosClient.n_started}"
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "client.py"), daemon.socket_path, str(rng.choice(UIDS)), str(rng.getrandbits(32)), str(self.inbox)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(os.environ, PYTHONPATH=f"{HERE.parent}/clients"),
        )

    def figures(self):
        """Grants and bytes it has reported since the last call."""
        data = b""
        while select.select([self.process.stdout], [], [], 0)[0]:
            chunk = os.read(self.process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            data += chunk
        words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data) - 7, 8)]
        return len(words) // 2, sum(words[1::2])

    def end(self):
        """Kills it; returns what it complained about."""
        self.process.kill()
        code = self.process.wait()
        stderr = self.process.stderr.read().decode(errors="replace")
        self.process.stdout.close()
        self.process.stderr.close()
        self.inbox.unlink(missing_ok=True)
        return stderr if code not in (0, -signal.SIGKILL) or "Traceback" in stderr else ""


def wait_at_rest(daemon):
    """Everything is back, nothing is kept for anybody, and the pools are full again."""
    wait_until(
        lambda: all(row["ready_bytes"] == row["target_bytes"] for row in daemon.pools()) and daemon.status()["n_grants"] == 0,
        "all memory is back in the pools",
    )


@pytest.mark.timeout(SECONDS + 120)
def test_chaos_breaks_nothing_and_loses_nothing(start_daemon, public_path):
    print(f"seed {SEED}")
    pages.need_pages(320)
    rng = random.Random(SEED)
    daemon = start_daemon(config=CONFIG)
    wait_at_rest(daemon)
    fds_before, rss_before = daemon.n_fds(), daemon.rss_bytes()
    clients, stopped, problems = [], [], []
    n_kills = n_stops = n_grants = n_bytes = 0
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and not problems:
        clients += [ChaosClient(daemon, public_path, rng) for _ in range(N_CLIENTS - len(clients))]
        time.sleep(rng.random() * 0.3)  # how long the clients go on undisturbed: not an order, a mixture
        for client in clients:
            figures = client.figures()
            n_grants, n_bytes = n_grants + figures[0], n_bytes + figures[1]
        for client in list(clients):
            if client.process.poll() is not None or rng.random() < 0.04:
                n_kills += 1
                problems += filter(None, [client.end()])
                clients.remove(client)
        for client in stopped:
            client.process.send_signal(signal.SIGCONT)
        stopped = [client for client in clients if rng.random() < 0.1]
        for client in stopped:
            n_stops += 1
            client.process.send_signal(signal.SIGSTOP)
        assert daemon.process.poll() is None, f"the daemon ended; it said:\n{daemon.stderr()}"
    problems += filter(None, [client.end() for client in clients])
    print(f"{n_grants} grants, {n_bytes >> 20} MiB, {n_kills} kills, {n_stops} stops in {SECONDS:.0f} s")
    assert not problems, "\n".join(problems)
    assert n_grants > 0
    wait_at_rest(daemon)
    fds_after, rss_after = daemon.n_fds(), daemon.rss_bytes()
    print(f"memory {rss_before >> 20} MiB before, {rss_after >> 20} MiB after")
    # Auto pools end with other numbers of extents than they began with: two descriptors each
    assert abs(fds_after - fds_before) <= 2 * 64, f"{fds_before} descriptors before, {fds_after} after"
    assert rss_after - rss_before <= 64 << 20, f"{rss_before} bytes of memory before, {rss_after} after"
