# SPDX-License-Identifier: LGPL-2.1-or-later
"""The daemon is killed again and again, at any moment, also with other pools, while clients acquire, hold and release."""

import contextlib
import os
import random
import signal
import time

import pytest
from harness import pages, wait_until
from harness.pages import MIB
from inside import POOLS, WARM_NODE, is_container, journal, run
from hugezero_client import Client, Item, Refused

# Emulated, one takes two seconds or more: most of it is systemd's sandbox
N_KILLS = int(os.environ.get("HUGEZERO_KILLS", "30")) if is_container() else 20
N_CLIENTS = 2
# Which the daemon meets when it is started again, or is told to read
OTHER_POOLS = [
    f"[Pool p]\nTarget=node{WARM_NODE}:24M\n[Pool small]\nExtentSize=2M\nTarget=node{WARM_NODE}:4M\n",
    f"[Pool p]\nTarget=node{WARM_NODE}:64M\n",
    POOLS.replace("[Pool p]", "[Pool p]\nExtentSize=4M"),
    f"WarmExtents=4\n{POOLS}",
]


class Holding:
    def __init__(self, extent, byte):
        self.byte = byte
        self.mapping = pages.Mapping(extent.fd, extent.bytes)
        assert self.mapping.is_zero(), f"{extent} was granted and is not zero"
        self.mapping.fill(byte)

    def let_go(self):
        assert self.mapping.is_filled_with(self.byte), "memory that we hold was changed"
        self.mapping.close()


def go_on_until(_me, path, seed, sign):
    """Acquires, holds and lets go until the file `sign` is there. Returns how many grants it had and how often it was cut off."""
    rng = random.Random(seed)
    held, n_grants, n_cuts = [], 0, 0
    while not os.path.exists(sign):
        try:
            with Client(path) as client:
                while not os.path.exists(sign):
                    n_grants += work(client, rng, held)
        except (ConnectionError, TimeoutError):
            n_cuts += 1
    for holding in held:
        holding.let_go()
    return n_grants, n_cuts


def work(client, rng, held):
    items = [Item(rng.randint(1, 5) * 2 * MIB) for _ in range(rng.randint(1, 2))]
    on_miss = rng.choice(["fail", "wait", "fill"])
    try:
        with client.acquire(items, on_miss=on_miss, timeout_ms=rng.randint(0, 100) if on_miss == "wait" else 0) as grant:
            held += [Holding(extent, rng.randint(1, 255)) for extent in grant.extents]
    except Refused:
        grant = None
    rng.shuffle(held)
    while len(held) > rng.randint(0, 3):
        held.pop().let_go()
    return grant is not None


@pytest.mark.timeout(900)
def test_a_storm_of_kills_loses_no_page_shows_no_dirty_byte_and_leaves_holders_alone(warm, start_child, tmp_path):
    seed = time.time_ns() % 1000000
    print(f"seed {seed}, {N_KILLS} kills")
    rng, sign = random.Random(seed), tmp_path / "enough"
    warm.start(f"AffinityTimeout=1s\n{POOLS}")
    clients = [start_child() for _ in range(N_CLIENTS)]
    for client in clients:
        client.start(go_on_until, warm.socket_path, rng.getrandbits(32), str(sign))
    pid = warm.pid
    for _ in range(N_KILLS):
        if rng.random() < 0.7:  # else it is killed while it starts
            wait_until(lambda: warm.show("SubState") == "running", "it runs again")
        if rng.random() < 0.3:
            warm.configure(rng.choice(OTHER_POOLS))
            run("systemctl", "reload", "hugezerod.service", check=False)  # it may not be there
        else:
            warm.configure(f"AffinityTimeout=1s\n{POOLS}")
        time.sleep(rng.random() * (0.3 if is_container() else 1))  # the moment is to be any
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        pid = wait_until(lambda: {warm.pid} - {0, pid}, "it is started again").pop()  # pylint: disable=cell-var-from-loop
    sign.touch()
    results = [client.result() for client in clients]
    print(f"grants and times cut off: {results}, started again {warm.show('NRestarts')} times")
    assert all(n_grants > 0 for n_grants, _ in results) and sum(n_cuts for _, n_cuts in results) > 0
    warm.configure(POOLS)
    run("systemctl", "restart", "hugezerod.service")  # not all can be reloaded
    assert "Assertion" not in journal("hugezerod.service")
    warm.assert_no_page_is_lost()
