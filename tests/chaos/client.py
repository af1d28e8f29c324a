# SPDX-License-Identifier: LGPL-2.1-or-later
"""
One client of the chaos run, a process of its own: client.py SOCKET UID SEED INBOX.

Takes memory, checks that all of it is zero, writes a pattern of its own over all of it, holds it, checks that the pattern is
still there, and lets go in one of many ways, until it is killed. A sign of broken memory ends it with code 3 and a line on
stderr; everything that a refusal or a vanished peer may cause is part of the game.
"""

import array
import contextlib
import ctypes
import mmap
import os
import random
import select
import signal
import socket
import sys
import time

from hugezero_client import Client, Item, Refused

MIB = 1 << 20
ZEROES = bytes(MIB)


def broken(text):
    print(f"{os.getpid()}: {text}", file=sys.stderr, flush=True)
    os._exit(3)


def check(memory, wanted, what):
    """Compares MiB by MiB: @wanted is one MiB of what must be everywhere."""
    view = memoryview(memory)
    for offset in range(0, len(view), MIB):
        if view[offset : offset + MIB] != wanted:
            at = next(i for i in range(MIB) if view[offset + i] != wanted[i])
            broken(f"{what}: byte {offset + at} of {len(view)} is {view[offset + at]:#x}")
    view.release()


class Holding:
    """Memory of ours: a mapping, and the fd while it is kept."""

    def __init__(self, fd, n_bytes, pattern):
        self.fd, self.n_bytes, self.pattern = fd, n_bytes, pattern
        self.memory = mmap.mmap(fd, n_bytes)

    def take(self):
        check(self.memory, ZEROES, "granted memory is not zero")
        for offset in range(0, self.n_bytes, MIB):
            self.memory[offset : offset + MIB] = self.pattern

    def verify(self):
        check(self.memory, self.pattern, "memory that we hold was changed")

    def close_fd(self):
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = -1

    def let_go(self):
        self.close_fd()
        self.memory.close()


class Chaos:
    def __init__(self, path, inbox, rng):
        self.rng, self.path, self.inbox = rng, path, inbox
        self.client = Client(path)
        self.holdings = []

    def make_pattern(self):
        return self.rng.randbytes(4096) * (MIB // 4096)

    def acquire(self):
        sizes = [2, 2, 4, 6, 16, 32, 34, 64]
        items = [
            Item(bytes=self.rng.choice(sizes) * MIB, several=self.rng.random() < 0.5, pool=self.rng.choice(["", "", "", "small"]))
            for _ in range(self.rng.randint(1, 3))
        ]
        on_miss = self.rng.choice(["fail", "wait", "fill"])
        try:
            grant = self.client.acquire(items, on_miss=on_miss, timeout_ms=self.rng.randint(0, 300) if on_miss == "wait" else 0)
        except Refused:
            return
        if self.rng.random() < 0.5:
            self.client.mapped(grant.id)
        pattern = self.make_pattern()
        for extent in grant.extents:
            holding = Holding(extent.fd, extent.bytes, pattern)
            holding.take()
            self.holdings.append(holding)
        report(1, sum(extent.bytes for extent in grant.extents))
        if self.rng.random() < 0.3:  # a lie: we still hold it
            with contextlib.suppress(Refused):
                self.client.release(grant.id)

    def hold(self):
        time.sleep(self.rng.random() * 0.02)
        for holding in self.holdings:
            holding.verify()

    def drop_some(self):
        self.rng.shuffle(self.holdings)
        for _ in range(self.rng.randint(0, len(self.holdings))):
            self.holdings.pop().let_go()

    def keep_mapping_only(self):
        for holding in self.holdings:
            holding.close_fd()

    def pass_on(self):
        """To whoever reads our inbox's siblings; it is theirs then, pattern and all."""
        kept = [holding for holding in self.holdings if holding.fd >= 0]
        if not kept:
            return
        holding = self.rng.choice(kept)
        peers = [name for name in os.listdir(os.path.dirname(self.inbox)) if not name.startswith(".")]
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            target = os.path.join(os.path.dirname(self.inbox), self.rng.choice(peers))
            data = holding.n_bytes.to_bytes(8, "little") + holding.pattern[:4096]
            sender.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [holding.fd]))], 0, target)
            self.holdings.remove(holding)
            holding.let_go()

    def receive(self, inbox):
        while select.select([inbox], [], [], 0)[0]:
            data, fds, _, _ = socket.recv_fds(inbox, 8192, 4)
            for fd in fds:
                holding = Holding(fd, int.from_bytes(data[:8], "little"), data[8:] * (MIB // 4096))
                holding.verify()
                self.holdings.append(holding)

    def fork_and_leave(self):
        """A forked child keeps the memory a little longer than we do."""
        pid = os.fork()
        if pid == 0:
            self.hold()
            os._exit(0)
        for holding in self.holdings:
            holding.let_go()
        self.holdings.clear()
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3:
            os._exit(3)

    def reconnect(self):
        self.client.close()
        self.client = Client(self.path)

    def hang_up_while_waiting(self):
        with Client(self.path) as other:
            other.send_acquire([Item(bytes=self.rng.choice([2, 64, 512]) * MIB, several=True)], on_miss="wait", timeout_ms=-1)


def report(n_grants, n_bytes):
    os.write(1, n_grants.to_bytes(8, "little") + n_bytes.to_bytes(8, "little"))


def main():
    path, uid, seed, inbox_path = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    inbox = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    inbox.bind(inbox_path)
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    chaos = Chaos(path, inbox_path, random.Random(seed))
    moves = [
        chaos.acquire, chaos.acquire, chaos.acquire, chaos.hold, chaos.drop_some, chaos.drop_some, chaos.keep_mapping_only, chaos.pass_on,
        chaos.fork_and_leave, chaos.reconnect, chaos.hang_up_while_waiting,
    ]  # fmt: skip
    while True:
        chaos.rng.choice(moves)()
        chaos.receive(inbox)
        if len(chaos.holdings) > 6:
            chaos.drop_some()


if __name__ == "__main__":
    try:
        main()
    except (ConnectionError, BrokenPipeError):
        sys.exit(0)
