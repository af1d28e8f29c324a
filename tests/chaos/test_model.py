# SPDX-License-Identifier: LGPL-2.1-or-later
"""
Reclaim against an oracle: clients of several services do whatever can be done to memory, in random order, while the daemon
loses events, is stopped and dies. After each move the oracle says what may be handed out, what must still be there, what must
be charged.

A failure prints the seed and the last moves. HUGEZERO_CHAOS_SEED replays them as far as the timing of the daemon allows,
HUGEZERO_CHAOS_SECONDS goes on for longer.
"""

import contextlib
import ctypes
import errno
import os
import pathlib
import random
import signal
import time

import pytest
from harness import holder, hostile, pages, wait_until
from harness.child import ChildError
from harness.manager import ServiceManager
from harness.pages import MIB
from hugezero_client import Client, Item
from oracle import Broken, Oracle

SECONDS = float(os.environ.get("HUGEZERO_CHAOS_SECONDS", "10"))
SEED = int(os.environ.get("HUGEZERO_CHAOS_SEED", str(time.time_ns() % 1_000_000)))
GROUP = 3100
SERVICES = {"red": 3001, "blue": 3001, "green": 3002, "root": 0}
POOL_BYTES, MAX_EXTENT_BYTES, MAX_HELD_BYTES = 96 * MIB, 8 * MIB, 64 * MIB
N_MOVES_SHOWN = int(os.environ.get("HUGEZERO_CHAOS_MOVES", "60"))
SETTLE_S = 60  # pins are asked about every 10 s, and on a busy machine what the daemon does in the background takes its time
F_SEAL_SEAL = 1
REFUSALS = errno.EAGAIN, errno.ENOMEM, errno.ENOSPC, errno.ETIMEDOUT
CONFIG = f"SocketGroup={GROUP}\nReleaseGrace=50ms\nAffinityTimeout=500ms\nSweepInterval=200ms\n"


# In the child


def begin(me, inbox):
    holder.listen(me, inbox)
    os.chmod(inbox, 0o666)
    me.pipes = []
    me.grants = {}


def acquire(me, path, names, sizes, reopenable, on_miss):
    """Each extent becomes a grant of its own name; an empty list: refused."""
    items = [Item(bytes=size, reopenable=reopenable) for size in sizes]
    try:
        extents = holder.acquire_items(me, path, items, "new", on_miss=on_miss, timeout_ms=200 if on_miss == "wait" else 0)
    except OSError as error:
        if not isinstance(error, ConnectionError) and error.errno not in REFUSALS:
            raise
        return []
    held = me.grants.pop("new")
    for name, fd, extent in zip(names, held.fds, extents, strict=True):
        me.grants[name] = holder.Held(held.id, [fd], [extent])
    return extents


def find_fault(me, name):
    """What is wrong with memory that was just granted; "" when nothing is."""
    held = me.grants[name]
    present_bytes = os.fstat(held.fds[0]).st_blocks * 512
    if present_bytes != held.extents[0].bytes:
        return f"{present_bytes} bytes are present of {held.extents[0]}"
    return "" if holder.is_zero(me, name) else f"{held.extents[0]} is not zero"


def release(me, path, name):
    with contextlib.suppress(OSError):
        holder.release(me, path, name)


def unmap(me, name):
    holder.unmap(me, name)
    me.grants[name].mappings = []


def forget_connection(me):
    if hasattr(me, "client"):
        holder.disconnect(me)


def fork_holder(me):
    """A relative that holds the memory and the pins, but takes no messages."""
    pid = os.fork()
    if pid == 0:
        me.listener.close()
        signal.alarm(int(SECONDS) + 120)  # outlives its parent, but not a test that was killed itself
        ctypes.CDLL(None).pause()
        os._exit(0)
    return pid


def punch(me, name, refill):
    """Gives the middle back to the kernel; with @refill has it zeroed again, and writes what was there."""
    held = me.grants[name]
    n_bytes = held.extents[0].bytes
    mapping = (held.mappings or holder.map_all(me, name))[0]
    pattern = mapping.read(0, 1)[0]
    pages.punch(held.fds[0], n_bytes // 2 // pages.PAGE_2M * pages.PAGE_2M, pages.PAGE_2M)
    if refill:
        mapping.populate()
        mapping.fill(pattern)


def seal(me, name):
    with contextlib.suppress(PermissionError):  # it is there already
        holder.add_seal(me, name, F_SEAL_SEAL)


def map_longer(me, name):
    try:
        return holder.map_longer(me, me.grants[name].extents[0].bytes + 2 * MIB, name, populate=True)
    except OSError:
        return os.fstat(me.grants[name].fds[0]).st_size


def look_through_pins(me):
    """All byte values that can be seen in pinned pages, which are let go of with that."""
    seen = set()
    for pipe in me.pipes:
        with contextlib.suppress(BlockingIOError):
            seen |= set(os.read(pipe[0], 1 << 20))
    hostile.unpin_pages(me)
    return seen


# The test


def n_pages_used():
    return pages.count("nr") - pages.count("free")


def is_gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


class World:
    """The daemon, its clients, and what the oracle knows of them. Every public method is a move."""

    def __init__(self, manager, start_child, groups, folder, rng):
        self.manager, self.start_child, self.groups, self.folder, self.rng = manager, start_child, groups, folder, rng
        self.oracle, self.moves = Oracle(), []
        self.children, self.services, self.relatives, self.flights, self.rings = {}, {}, [], [], {}
        self.next = dict.fromkeys(["child", "grant", "flight"], 0)
        self.patterns = {service: position * 60 for position, service in enumerate(SERVICES)}
        self.counts = dict.fromkeys(["grants", "refused", "reused", "restarts"], 0)
        for service in SERVICES:
            self.add_child(service)
            self.add_child(service)

    def number(self, what):
        self.next[what] += 1
        return self.next[what]

    def note(self, *words):
        self.moves.append(" ".join(map(str, words)))

    def inbox(self, who):
        return str(self.folder / who)

    def add_child(self, service):
        who = f"{service}{self.number('child')}"
        child = self.start_child(uid=SERVICES[service] or None, groups=[GROUP], cgroup=self.groups[service])
        child.call(begin, self.inbox(who))
        self.children[who], self.services[who] = child, service

    def pick_child(self):
        return self.rng.choice(list(self.children))

    def pick(self, fd=None, mapping=None):
        """(who, name, reference) of something that a child holds, or None."""
        found = [
            (who, name, held)
            for who in self.children
            for name, held in self.oracle.named(who).items()
            if fd in (None, held.has_fd) and mapping in (None, held.has_mapping)
        ]
        return self.rng.choice(found) if found else None

    def new_pattern(self, service):
        """No two services write the same bytes, and none writes 0."""
        self.patterns[service] += 1
        first = list(SERVICES).index(service) * 60
        return 1 + first + (self.patterns[service] - first) % 60

    # Taking

    def acquire(self):
        who = self.pick_child()
        while self.oracle.held_bytes() > MAX_HELD_BYTES:
            self.rng.choice([self.drop, self.kill_relative, self.receive])()
        self.begin_acquire(who)
        self.end_acquire(who)

    def begin_acquire(self, who):
        sizes = [self.rng.randrange(2 * MIB, MAX_EXTENT_BYTES + 1, 2 * MIB) for _ in range(self.rng.choice([1, 1, 1, 2]))]
        names = [f"g{self.number('grant')}" for _ in sizes]
        how = self.rng.random() < 0.2, self.rng.choice(["fail", "wait", "wait", "fill"])
        self.note(who, "acquires", *names, *(f"{size // MIB}M" for size in sizes), *how)
        self.asked = names, sizes
        self.children[who].start(acquire, self.manager.socket_path, names, sizes, *how)

    def end_acquire(self, who):
        names, sizes = self.asked
        child, service = self.children[who], self.services[who]
        extents = child.result()
        if not extents:
            self.note("  refused")
            self.counts["refused"] += 1
            return
        self.counts["grants"] += 1
        self.counts["reused"] += sum(extent.inode in self.oracle.extents for extent in extents)
        self.note("  gets", *(extent.inode[1] for extent in extents))
        self.oracle.granted(who, service, SERVICES[service], names, extents, sizes)
        for name in names:
            self.check_new(who, name)

    def check_new(self, who, name):
        held = self.oracle.named(who)[name]
        fault = self.children[who].call(find_fault, name)
        if fault and not held.extent.is_stained:
            raise Broken(f"{who} was granted {name}: {fault}")
        held.has_mapping, held.extent.is_stained = True, False
        held.extent.pattern = self.new_pattern(self.services[who])
        self.children[who].call(holder.fill, name, held.extent.pattern)

    # Holding

    def verify(self, who, name):
        held = self.oracle.named(who)[name]
        if not held.extent.is_legible():
            return
        intact = self.children[who].call(holder.is_filled_with, name, held.extent.pattern)
        held.has_mapping = True
        if not intact:
            raise Broken(f"{who} has lost what was in {name}: {held.extent}")

    def look(self):
        for who in self.children:
            for name in list(self.oracle.named(who)):
                self.verify(who, name)

    def fork(self):
        who = self.pick_child()
        if len(self.relatives) < 4 and self.oracle.named(who):
            pid = self.children[who].call(fork_holder)
            self.note(who, "forks", pid)
            self.relatives.append(pid)
            self.oracle.forked(who, pid)

    def kill_relative(self):
        if self.relatives:
            pid = self.relatives.pop(self.rng.randrange(len(self.relatives)))
            self.note("kills the relative", pid)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: is_gone(pid), "the relative is dead")
            self.oracle.ended(pid)

    def pass_on(self):
        """Sent; the other may take it later, or never."""
        picked, other = self.pick(fd=True), self.pick_child()
        if picked and sum(flight[1] == other for flight in self.flights) < 4:
            who, name, _ = picked
            flight = f"flight{self.number('flight')}"
            self.note(who, "sends", name, "to", other, "in", flight)
            self.children[who].call(holder.send_first_fd, self.inbox(other), name)
            self.oracle.copied(who, name, flight, name)
            self.flights.append((flight, other, name))

    def receive(self):
        if not self.flights:
            return
        other = self.rng.choice(self.flights)[1]
        flight, _, name = entry = next(entry for entry in self.flights if entry[1] == other)
        self.flights.remove(entry)
        mine = f"p{self.number('grant')}"
        self.note(other, "receives", flight, "as", mine)
        extent = self.oracle.named(flight)[name].extent
        self.children[other].call(holder.receive_fd, holder.Extent(extent.bytes, pages.PAGE_2M, 0, 0, extent.inode), mine)
        self.oracle.received(flight, name, other, mine)

    # Letting go

    def drop_of(self, who, name):
        self.note(who, "drops", name)
        self.children[who].call(holder.drop, name)
        self.oracle.dropped(who, name)

    def drop(self):
        picked = self.pick()
        if picked:
            self.drop_of(*picked[:2])

    def close(self):
        """The mapping alone stays."""
        picked = self.pick(fd=True, mapping=True)
        if picked:
            who, name, _ = picked
            self.note(who, "closes", name)
            self.children[who].call(holder.close_fds, name)
            self.oracle.closed(who, name)

    def unmap(self):
        picked = self.pick(fd=True, mapping=True)
        if picked:
            who, name, _ = picked
            self.note(who, "unmaps", name)
            self.children[who].call(unmap, name)
            self.oracle.unmapped(who, name)

    def say_released(self):
        """True or not."""
        picked = self.pick()
        if picked and picked[1].startswith("g"):
            self.note(picked[0], "claims to have released", picked[1])
            self.children[picked[0]].call(release, self.manager.socket_path, picked[1])

    def end_child(self):
        who = self.pick_child()
        child, service = self.children.pop(who), self.services.pop(who)
        self.note(who, "ends")
        child.kill() if self.rng.random() < 0.5 else child.end()
        for entry in [entry for entry in self.flights if entry[1] == who]:
            self.flights.remove(entry)
            self.oracle.ended(entry[0])
        self.oracle.ended(who)
        self.rings.pop(who, None)
        self.add_child(service)

    # Meddling

    def reopen(self):
        picked = self.pick(fd=True)
        if not picked:
            return
        who, name, held = picked
        mine = f"o{self.number('grant')}"
        self.note(who, "opens", name, "by path as", mine)
        try:
            self.children[who].call(holder.reopen, name, keep_as=mine)
        except ChildError as error:
            if error.errno != errno.EACCES:
                raise
            return
        self.oracle.copied(who, name, who, mine, is_grant=False)
        self.oracle.spoil(held.extent, f"{who} opened it")

    def seal(self):
        picked = self.pick(fd=True)
        if picked:
            who, name, held = picked
            self.note(who, "seals", name)
            self.children[who].call(seal, name)
            self.oracle.spoil(held.extent, f"{who} sealed it")

    def grow(self):
        picked = self.pick(fd=True)
        if picked:
            who, name, held = picked
            if self.children[who].call(map_longer, name) > held.extent.bytes:
                self.note(who, "grows", name)
                self.oracle.spoil(held.extent, f"{who} made it grow")

    def punch(self):
        picked = self.pick(fd=True, mapping=True)
        if picked and picked[2].extent.is_legible():
            who, name, held = picked
            refill = self.rng.random() < 0.5
            self.note(who, "punches", name, "and refills it" if refill else "")
            held.extent.has_holes = not refill
            self.children[who].call(punch, name, refill)

    def unlock(self):
        picked = self.pick(fd=True)
        if picked and picked[2].is_grant:
            who, name, held = picked
            self.note(who, "unlocks", name)
            self.children[who].call(holder.unlock, name)
            if held.extent.unlocked_in < 0:
                held.extent.unlocked_in = self.oracle.life

    def pin(self):
        picked = self.pick(fd=True, mapping=True)
        if picked and picked[2].extent.is_legible():
            who, name, _ = picked
            self.note(who, "pins", name)
            self.children[who].call(hostile.pin_pages, name)
            self.oracle.pinned(who, name)

    def unpin(self):
        """What is in the pipes was written by those who had the memory, and by nobody of another service since."""
        who = self.pick_child()
        if self.oracle.pins.get(who):
            self.note(who, "looks through its pins")
            allowed = {0} | {byte for extent in self.oracle.pins[who] for byte in self.bytes_of(extent.service)}
            seen = self.children[who].call(look_through_pins)
            if not seen <= allowed:
                raise Broken(f"{who} sees {seen - allowed} in pages that it pinned, which are another service's")
            ring = self.rings.get(who)
            self.oracle.pins[who] = [ring] if ring else []

    def bytes_of(self, service):
        first = list(SERVICES).index(service) * 60
        return range(1 + first, 61 + first)

    def register(self):
        picked = self.pick(fd=True, mapping=True)
        if picked and picked[2].extent.is_legible() and picked[0] not in self.rings:
            who, name, held = picked
            error = self.children[who].call(hostile.register_buffer, name)
            self.note(who, "registers a fixed buffer in", name, error)
            if not error:
                self.oracle.pinned(who, name)
                self.rings[who] = held.extent

    def write_through_ring(self):
        if self.rings:
            who = self.rng.choice(list(self.rings))
            extent = self.rings[who]
            self.note(who, "writes through its ring")
            self.children[who].call(hostile.write_through_ring, self.bytes_of(extent.service)[0])
            extent.is_stained = True

    # The daemon

    def forget_connections(self):
        for child in self.children.values():
            child.call(forget_connection)

    def between(self):
        """What happens while the daemon sees nothing."""
        moves = [World.drop, World.drop, World.reopen, World.pass_on, World.receive, World.fork, World.end_child, World.punch,
                 World.grow, World.pin]  # fmt: skip
        for _ in range(self.rng.randrange(4)):
            self.rng.choice(moves)(self)

    def restart(self):
        self.note("the daemon is stopped")
        self.manager.stop()
        forgotten = self.oracle.on_the_books() - self.manager.stored_extents()
        if forgotten:
            raise Broken(f"{self.describe(forgotten)} was not left to the successor")
        self.start_again()

    def kill(self):
        who = self.pick_child() if self.rng.random() < 0.5 else None
        if who:
            self.begin_acquire(who)
        self.note("the daemon is killed")
        self.manager.kill()
        if who:
            self.end_acquire(who)
        self.start_again()

    def start_again(self):
        self.between()
        self.oracle.restarted(self.manager.stored_extents())
        self.manager.start()
        self.note("the daemon is started")
        self.forget_connections()
        self.counts["restarts"] += 1

    def lose_events(self):
        """The queue overflows while the daemon stands still; sometimes it never wakes up."""
        picked = self.pick(fd=True)
        # By one whose events the daemon still listens to
        if not picked or self.services[picked[0]] != "root" or not picked[2].extent.is_watched():
            return
        who, name, held = picked
        self.note("events are lost, by", who, name)
        limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
        with self.manager.stopped():
            self.children[who].call(holder.make_events, limit + 16, name)
            self.oracle.spoil(held.extent, f"{who} opened it")
            self.oracle.spoil_all_granted("events were lost")
            self.between()
            if self.rng.random() < 0.3:
                self.manager.kill()
        if self.manager.process.poll() is not None:
            self.note("the daemon is killed")
            self.start_again()

    def wait(self):
        time.sleep(self.rng.random() * 0.1)  # lets timers run out: a mixture, not an order

    # Checking

    def describe(self, inodes):
        return [self.oracle.extents.get(inode, inode) for inode in inodes]

    def check(self):
        """Returns what is on the books and held by nobody, not noticed yet. At no time may anything be missing there."""
        with Client(self.manager.socket_path) as client:
            must, granted = self.oracle.on_the_books(), client.grants()
            limits = client.limits()
        shown = {(row["dev"], row["ino"]) for row in granted}
        if not must <= shown:
            raise Broken(f"{self.describe(must - shown)} is held and not on the books")
        for uid in set(SERVICES.values()):
            used, _ = limits.get((uid, "bytes"), (0, None))
            if used != limits.get((uid, 2 * MIB), (0, None))[0]:
                raise Broken(f"of the {used} bytes of user {uid} only {limits.get((uid, 2 * MIB))} are in pages")
            if used < self.oracle.charged_bytes(uid):
                raise Broken(f"user {uid} has {self.oracle.charged_bytes(uid)} bytes and is charged for {used}")
        return shown - self.oracle.may_be_on_the_books()

    def settle(self):
        """All that nobody holds is off the books after a while."""
        end = time.monotonic() + SETTLE_S
        while extra := self.check():
            if time.monotonic() > end:
                states = [row for row in self.manager.grants() if (row["dev"], row["ino"]) in extra]
                raise Broken(f"nobody has {self.describe(extra)}, and yet {states}; {self.manager.pool()}")
            time.sleep(0.01)

    def leave(self):
        """Everybody goes, their services too; then all of it must be back, and paid for by nobody."""
        self.kill_relatives()
        for child in self.children.values():
            child.kill()
        for group in self.groups.values():
            group.remove()
        for who in list(self.oracle.holders):
            self.oracle.ended(who)
        self.oracle.pins.clear()
        self.settle()
        end = time.monotonic() + SETTLE_S
        while missing := self.find_missing():
            if time.monotonic() > end:
                raise Broken(f"everybody has gone, and still: {missing}")
            time.sleep(0.01)

    def kill_relatives(self):
        for pid in self.relatives:
            os.kill(pid, signal.SIGKILL)
        self.relatives.clear()

    def find_missing(self):
        with Client(self.manager.socket_path) as client:
            (pool,) = client.pools()
            charges = {key: used for key, (used, _) in client.limits().items() if key[1] in ("bytes", "grants", 2 * MIB) and used}
        is_full = pool["ready_bytes"] == POOL_BYTES and pool["pinned_bytes"] == 0
        return "" if is_full and not charges else f"{pool}, charges {charges}"


WEIGHTS = {
    World.acquire: 30, World.look: 4, World.drop: 10, World.close: 4, World.unmap: 4, World.fork: 3, World.kill_relative: 4,
    World.pass_on: 6, World.receive: 5, World.say_released: 4, World.end_child: 2, World.reopen: 4, World.seal: 1,
    World.grow: 2, World.punch: 3, World.unlock: 2, World.pin: 4, World.unpin: 3, World.register: 1, World.write_through_ring: 1,
    World.restart: 0.5, World.kill: 1, World.lose_events: 0.5, World.wait: 4, World.settle: 2,
}  # fmt: skip


@pytest.fixture
def manager(build):
    pages.need_pages(144)
    manager = ServiceManager(build, pools=[f"2M:auto:{POOL_BYTES // MIB}M"], config=CONFIG)
    n_used = n_pages_used()
    manager.start()
    manager.wait_full()
    yield manager
    text = manager.stderr()
    manager.close()
    assert "Sanitizer" not in text and "runtime error" not in text, text
    # Others who use the host's pages now are not our business
    wait_until(lambda: n_pages_used() <= n_used or set(pages.users()) - {os.getpid()}, "no page is lost")


@pytest.mark.timeout(SECONDS + 2 * SETTLE_S + 60)
def test_whatever_holders_do_the_daemon_keeps_to_the_model(manager, start_child, make_cgroup):
    inboxes = manager.folder / "inboxes"
    inboxes.mkdir()
    inboxes.chmod(0o777)
    world = World(manager, start_child, {service: make_cgroup(service) for service in SERVICES}, inboxes, random.Random(SEED))
    end = time.monotonic() + SECONDS
    try:
        while time.monotonic() < end:
            world.rng.choices(list(WEIGHTS), WEIGHTS.values())[0](world)
        world.look()
        world.leave()
        manager.stop()
    except BaseException:
        print(f"HUGEZERO_CHAOS_SEED={SEED}; the last of {len(world.moves)} moves:", *world.moves[-60:], sep="\n")
        print(f"the daemon said:\n{manager.stderr()}")
        world.kill_relatives()
        raise
    print(f"seed {SEED}: {len(world.moves)} moves, {world.counts}")
    assert world.counts["grants"] > 0 and world.counts["reused"] > 0
