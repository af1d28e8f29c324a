# SPDX-License-Identifier: LGPL-2.1-or-later
"""
What a client process does, as functions for Child.call(): child.call(holder.acquire, daemon.socket_path, 4 * MIB).

`me` keeps named grants, each with its descriptors and mappings; acquire() returns what the daemon said about each extent.
"""

import ctypes
import dataclasses
import fcntl
import os
import resource
import socket
import struct

from hugezero_client import Client, Item, Refused

from . import DEADLINE_S, pages

F_ADD_SEALS, F_OFD_SETLK = 1033, 37
F_SEAL_FUTURE_WRITE = 0x10


@dataclasses.dataclass(frozen=True)
class Extent:
    """One extent as the holder sees it; picklable."""

    bytes: int
    page_size: int
    node: int
    item: int
    inode: tuple


class Held:
    """A grant in the hands of a client."""

    def __init__(self, grant_id, fds, extents):
        self.id, self.fds, self.extents, self.mappings = grant_id, fds, extents, []


def client(me, path):
    """The process's connection, made on first use."""
    if not hasattr(me, "grants"):
        me.grants = {}
    if not hasattr(me, "client"):
        me.client = Client(path, timeout_s=2 * DEADLINE_S)
    return me.client


def connect(me, path):
    client(me, path)


def acquire_items(me, path, items, name="", **kwargs):
    grant = client(me, path).acquire(items, **kwargs)
    extents = [Extent(e.bytes, e.page_size, e.node, e.item, pages.inode(e.fd)) for e in grant.extents]
    # Our own descriptors: what becomes of the client's object then does not matter
    me.grants[name] = Held(grant.id, [os.dup(e.fd) for e in grant.extents], extents)
    grant.close()
    return extents


def acquire(me, path, n_bytes, name="", on_miss="fail", timeout_ms=0, **item):
    return acquire_items(me, path, [Item(bytes=n_bytes, **item)], name, on_miss=on_miss, timeout_ms=timeout_ms)


def grant_id(me, name=""):
    return me.grants[name].id


def inode(me, name=""):
    return me.grants[name].extents[0].inode


def extents(me, name=""):
    return me.grants[name].extents


def fd_number(me, name=""):
    return me.grants[name].fds[0]


def open_connections(me, path, n):
    """n connections more, which say hello and nothing else."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    me.connections = [Client(path, timeout_s=2 * DEADLINE_S) for _ in range(n)]


def close_connections(me):
    for connection in me.connections:
        connection.close()


def disconnect(me):
    me.client.close()
    del me.client


def map_all(me, name="", align=None):
    held = me.grants[name]
    held.mappings = [pages.Mapping(fd, extent.bytes, align=align) for fd, extent in zip(held.fds, held.extents, strict=True)]
    return held.mappings


def _mappings(me, name):
    return me.grants[name].mappings or map_all(me, name)


def is_zero(me, name=""):
    """Reads every byte of the grant."""
    return all(mapping.is_zero() for mapping in _mappings(me, name))


def fill(me, name="", byte=0xA5):
    for mapping in _mappings(me, name):
        mapping.fill(byte)


def is_filled_with(me, name="", byte=0xA5):
    return all(mapping.is_filled_with(byte) for mapping in _mappings(me, name))


def nodes(me, name=""):
    """The nodes on which the pages of each extent are; only touched pages have one in this process."""
    nodes_of = []
    for mapping, extent in zip(_mappings(me, name), me.grants[name].extents, strict=True):
        mapping.touch(extent.page_size)
        nodes_of.append(set(mapping.nodes(extent.page_size)))
    return nodes_of


def count_faults(me, name=""):
    """Page faults of touching every page of the grant for the first time, at addresses where page tables can be shared."""
    rehearsal = pages.Mapping(-1, pages.PAGE_2M, flags=pages.MAP_PRIVATE | pages.MAP_ANONYMOUS)
    total = 0
    for mapping, extent in zip(map_all(me, name, align=pages.GIB), me.grants[name].extents, strict=True):
        rehearsal.touch(rehearsal.length // (extent.bytes // extent.page_size))  # the interpreter's own faults
        before = pages.n_faults()
        mapping.touch(extent.page_size)
        total += pages.n_faults() - before
    return total


def bytes_present(me, name=""):
    return sum(os.fstat(fd).st_blocks * 512 for fd in me.grants[name].fds)


def punch(me, offset, n_bytes, name=""):
    """Gives a part of the first extent back to the kernel."""
    pages.punch(me.grants[name].fds[0], offset, n_bytes)


def truncate(me, n_bytes, name=""):
    os.ftruncate(me.grants[name].fds[0], n_bytes)


def close_fds(me, name=""):
    held = me.grants[name]
    for fd in held.fds:
        os.close(fd)
    held.fds = []


def unmap(me, name=""):
    for mapping in me.grants[name].mappings:
        mapping.close()


def drop(me, name=""):
    """Lets go of the whole grant without a word to the daemon."""
    unmap(me, name)
    close_fds(me, name)
    del me.grants[name]


def mapped(me, path, name=""):
    """Tells the daemon that its own mapping is not needed any more."""
    client(me, path).mapped(me.grants[name].id)


def release(me, path, name=""):
    """Asks the daemon to look now."""
    client(me, path).release(me.grants[name].id)


def release_id(me, path, number):
    client(me, path).release(number)


def reopen(me, name="", flags=os.O_RDWR, keep_as=None):
    """Opens the first extent by path, as root can; kept as a grant of that name, or closed at once."""
    held = me.grants[name]
    fd = os.open(f"/proc/self/fd/{held.fds[0]}", flags | os.O_CLOEXEC)
    if keep_as is None:
        os.close(fd)
    else:
        me.grants[keep_as] = Held(None, [fd], held.extents[:1])


def reopen_mapping(me, name=""):
    """The same through the first mapping; the description is closed at once."""
    mapping = me.grants[name].mappings[0]
    os.close(os.open(f"/proc/self/map_files/{mapping.addr:x}-{mapping.addr + mapping.length:x}", os.O_RDWR))


def adopt(me, pid, fd, extent, name=""):
    """Opens another process's descriptor by path."""
    if not hasattr(me, "grants"):
        me.grants = {}
    me.grants[name] = Held(None, [os.open(f"/proc/{pid}/fd/{fd}", os.O_RDWR)], [extent])


def make_events(me, n, name=""):
    """At least n events of the first extent that do not merge in the queue."""
    for _ in range((n + 1) // 2):
        reopen(me, name)


def pin(me, name=""):
    """Puts the first extent's first page into a pipe, which keeps the page and nothing else."""
    me.pipe = os.pipe()
    mapping = _mappings(me, name)[0]
    pages.vmsplice(me.pipe[1], mapping.addr, 4096)


def unpin(me):
    for fd in me.pipe:
        os.close(fd)


def unlock(me, name=""):
    fcntl.flock(me.grants[name].fds[0], fcntl.LOCK_UN)


def add_seal(me, name="", seal=F_SEAL_FUTURE_WRITE):
    fcntl.fcntl(me.grants[name].fds[0], F_ADD_SEALS, seal)


def take_ofd_locks(me, n, name=""):
    """n locks that cannot merge; the kernel frees them one by one when the description is closed."""
    for position in reversed(range(n)):  # this way the kernel takes half the time
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 2 * position, 1, 0)
        fcntl.fcntl(me.grants[name].fds[0], F_OFD_SETLK, lock)


def map_longer(me, n_bytes, name="", populate=False):
    """A mapping longer than the extent: the kernel grows a hugetlb file for it, whatever its seals say."""
    mapping = pages.Mapping(me.grants[name].fds[0], n_bytes)
    if populate:
        mapping.populate()
    mapping.close()
    return os.fstat(me.grants[name].fds[0]).st_size


def fork_holder(me):
    """Leaves a forked relative behind that holds all that this process holds, until it is killed."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).pause()
        os._exit(0)
    return pid


def send_first_fd(me, path, name=""):
    """Passes the first descriptor of the grant to whoever listens on the socket at path."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.connect(path)
        socket.send_fds(peer, [b"."], me.grants[name].fds[:1])


def receive_fd(me, extent, name=""):
    """Waits for one descriptor on the socket of listen(); it becomes a grant of that name."""
    if not hasattr(me, "grants"):
        me.grants = {}
    _, fds, _, _ = socket.recv_fds(me.listener.accept()[0], 1, 1)
    me.grants[name] = Held(None, fds, [extent])


def listen(me, path):
    me.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    me.listener.bind(path)
    me.listener.listen()


def cross_in_flight(me, name=""):
    """Sends the first descriptor through a socket pair whose ends are in flight too: only the kernel's collector frees it."""
    left, right = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    socket.send_fds(left, [b"."], [me.grants[name].fds[0], left.fileno(), right.fileno()])
    left.close()
    right.close()


def try_admin(me, path, what):
    """The error of what only administrators may do; None when it was done."""
    with Client(path) as client:
        try:
            client.reload() if what == "reload" else client.resize(0)
        except Refused as refused:
            return refused.errno
    return None


def reserve(me, n_pages):
    """Address space with a promise of pages that are not taken yet."""
    me.reserved = pages.Mapping(-1, n_pages * pages.PAGE_2M, flags=pages.MAP_PRIVATE | pages.MAP_ANONYMOUS | pages.MAP_HUGETLB)
