# SPDX-License-Identifier: LGPL-2.1-or-later
"""What hostile clients do, as functions for Child.call(), beside those of holder: they go around the daemon."""

import ctypes
import errno
import mmap
import os
import pathlib
import select
import socket
import struct
import threading
import time

from hugezero_client import Client, Refused

from . import DEADLINE_S, holder, pages

ATTACKER, VICTIM = 3001, 3002  # chosen: users that no machine has

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_IO_URING_SETUP, _SYS_IO_URING_ENTER, _SYS_IO_URING_REGISTER = 425, 426, 427  # asm-generic, x86-64 too
_SYS_PIDFD_GETFD = 438
_PR_SET_DUMPABLE, _CLONE_NEWUSER = 4, 0x10000000


def _call(number, *args):
    result = _libc.syscall(ctypes.c_long(number), *(ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"system call {number}: {os.strerror(code)}")
    return result


# Opening what was only lent


def become_root_of_a_namespace(_me):
    """As the root of an unprivileged container is: with all capabilities there, and for files of the users it has."""
    uid, gid = os.getuid(), os.getgid()
    if _libc.prctl(_PR_SET_DUMPABLE, 1) < 0 or _libc.unshare(_CLONE_NEWUSER) < 0:
        raise OSError(ctypes.get_errno(), "unshare")
    for name, text in ("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1"):
        pathlib.Path("/proc/self", name).write_text(text)
    assert os.getuid() == 0


def open_error(_me, path, flags=os.O_RDWR):
    """0 when the path could be opened, else the errno."""
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError as error:
        return error.errno
    return 0


def reopen_error(me, flags=os.O_RDWR, name=""):
    return open_error(me, f"/proc/self/fd/{me.grants[name].fds[0]}", flags)


def o_path_reopen_error(me, name=""):
    """An O_PATH descriptor is for anyone who holds one; opening the file through it is another matter."""
    fd = os.open(f"/proc/self/fd/{me.grants[name].fds[0]}", os.O_PATH | os.O_CLOEXEC)
    try:
        return open_error(me, f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)


def map_files_error(me, name=""):
    mapping = (me.grants[name].mappings or holder.map_all(me, name))[0]
    return open_error(me, f"/proc/self/map_files/{mapping.addr:x}-{mapping.addr + mapping.length:x}")


def chmod_errors(me, name=""):
    """What changing the file's mode, owner and group came to."""
    fd = me.grants[name].fds[0]
    results = []
    for change in (lambda: os.fchmod(fd, 0o666), lambda: os.fchown(fd, os.getuid(), -1), lambda: os.fchown(fd, -1, os.getgid())):
        try:
            change()
            results.append(0)
        except OSError as error:
            results.append(error.errno)
    return results


def steal_fd_error(_me, pid, fd):
    """Takes another process's descriptor by pidfd_getfd(2)."""
    try:
        pidfd = os.pidfd_open(pid)
        os.close(_call(_SYS_PIDFD_GETFD, pidfd, fd, 0))
    except OSError as error:
        return error.errno
    return 0


def spin_open(me, n, name=""):
    """Opens and closes the first extent by path again and again."""
    path = f"/proc/self/fd/{me.grants[name].fds[0]}"
    for _ in range(n):
        os.close(os.open(path, os.O_RDWR))


# Pages that live on without descriptor and mapping


def pin_pages(me, name=""):
    """Puts a part of every page of the first extent into a pipe."""
    if not hasattr(me, "pipes"):
        me.pipes = []
    mapping = (me.grants[name].mappings or holder.map_all(me, name))[0]
    page_size = me.grants[name].extents[0].page_size
    pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    me.pipes.append(pipe)
    for offset in range(0, mapping.length, page_size):
        pages.vmsplice(pipe[1], mapping.addr + offset, 4096)


def read_pins(me):
    return b"".join(os.read(pipe[0], 1 << 20) for pipe in me.pipes)


def unpin_pages(me):
    for pipe in me.pipes:
        os.close(pipe[0])
        os.close(pipe[1])
    me.pipes = []


class Ring:
    """The least of io_uring(7) that writes to memory through a registered buffer."""

    def __init__(self, addr, length):
        params = ctypes.create_string_buffer(120)
        self.fd = _call(_SYS_IO_URING_SETUP, 4, params)
        field = lambda offset: struct.unpack_from("I", params, offset)[0]  # noqa: E731
        self.sq_tail, self.sq_mask, self.sq_array = field(44), field(48), field(64)
        n_bytes = max(self.sq_array + 4 * field(0), field(80 + 20) + 16 * field(4))
        self.cqes = field(80 + 20)
        self.ring = mmap.mmap(self.fd, n_bytes, offset=0)
        self.sqes = mmap.mmap(self.fd, 64 * field(0), offset=0x10000000)
        vector = struct.pack("QQ", addr, length)
        _call(_SYS_IO_URING_REGISTER, self.fd, 0, vector, 1)

    def read_fixed(self, fd, addr, length):
        self.sqes[0:64] = struct.pack("<BBHiQQIIQHHIQQ", 4, 0, 0, fd, 2**64 - 1, addr, length, 0, 1, 0, 0, 0, 0, 0)
        self.ring[self.sq_array : self.sq_array + 4] = struct.pack("I", 0)
        tail = struct.unpack_from("I", self.ring, self.sq_tail)[0]
        struct.pack_into("I", self.ring, self.sq_tail, tail + 1)
        _call(_SYS_IO_URING_ENTER, self.fd, 1, 1, 1, 0, 0)
        return struct.unpack_from("i", self.ring, self.cqes + 8)[0]


def register_buffer(me, name=""):
    """A fixed buffer in the first page; 0, or the errno where io_uring is switched off."""
    mapping = (me.grants[name].mappings or holder.map_all(me, name))[0]
    try:
        me.ring, me.ring_addr = Ring(mapping.addr, 4096), mapping.addr
    except OSError as error:
        return error.errno
    return 0


def write_through_ring(me, byte):
    """Has the kernel write 4 KiB into what was the first page."""
    source = os.pipe()
    os.write(source[1], bytes([byte]) * 4096)
    assert me.ring.read_fixed(source[0], me.ring_addr, 4096) == 4096


# Changing the file


def change_error(me, change, name=""):
    """change: "shrink", "grow", "allocate", "seal"; 0 or the errno."""
    held = me.grants[name]
    fd, n_bytes = held.fds[0], held.extents[0].bytes
    try:
        if change == "shrink":
            os.ftruncate(fd, n_bytes // 2)
        elif change == "grow":
            os.ftruncate(fd, 2 * n_bytes)
        elif change == "allocate":
            os.posix_fallocate(fd, n_bytes, n_bytes)
        else:
            holder.add_seal(me, name)
    except OSError as error:
        return error.errno
    return 0


def map_behind(me, offset, n_bytes, name=""):
    """Maps n_bytes of the first extent from offset on and populates them; returns the bytes that the file has then."""
    fd = me.grants[name].fds[0]
    try:
        mapping = pages.Mapping(fd, n_bytes, offset=offset)
        mapping.populate()
        mapping.close()
    except OSError:
        pass  # the kernel may populate a part, or refuse: what there is counts
    return os.fstat(fd).st_blocks * 512


def reserve_pages(me):
    """Reserves all that is free in the kernel's pool, past the daemon; others take and give at the same time."""
    me.reserved = []
    flags = pages.MAP_PRIVATE | pages.MAP_ANONYMOUS | pages.MAP_HUGETLB | 21 << 26
    while (n := pages.free()) > 0:
        try:
            me.reserved.append(pages.Mapping(-1, n * pages.PAGE_2M, flags=flags))
        except OSError as error:
            assert error.errno == errno.ENOMEM


# Sockets


def send_lingering_socket(me, path, linger_s):
    """
    Sends a TCP socket that has unsent data and SO_LINGER, and lets go of it: whoever closes the last descriptor waits. It waits
    behind questions whose answers are not read, so that the daemon comes to it when we have let go. Returns None when it was
    accepted, else the errno.
    """
    client, fd = holder.client(me, path), make_lingering_socket(me, linger_s)
    client.socket.setblocking(False)
    ask_until_stuck([client])
    try:
        while not try_send(client, b"\6\0\0\0\1\0\0\0", [fd]):
            select.select([client.socket], [], [], DEADLINE_S)
            client.socket.recv(4096)
    except OSError as error:
        me.lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return error.errno
    finally:
        me.lingering.close()
    threading.Thread(target=read_all, args=(client.socket,), daemon=True).start()
    return None


def try_send(client, data, fds):
    """False when there is no room."""
    try:
        client.send(data, fds)
    except BlockingIOError:
        return False
    return True


def read_all(connection):
    connection.setblocking(True)
    try:
        while connection.recv(4096):
            pass
    except OSError:
        pass


def make_lingering_socket(me, linger_s):
    me.listener = socket.create_server(("127.0.0.1", 0))
    me.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    me.lingering = socket.create_connection(me.listener.getsockname())
    me.lingering.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, linger_s))
    me.lingering.setblocking(False)
    try:
        while True:
            me.lingering.send(bytes(65536))
    except BlockingIOError:
        pass
    me.lingering.setblocking(True)
    return me.lingering.fileno()


def time_of_close(me, linger_s):
    """Seconds that closing such a socket takes whoever has the last descriptor."""
    fd = make_lingering_socket(me, linger_s)
    me.lingering.detach()
    start = time.monotonic()
    os.close(fd)
    return time.monotonic() - start


def flood(me, path, n_connections, most):
    """
    Asks on many connections until nothing more is taken or so many questions are sent, and reads no answer; returns how many
    were sent.
    """
    me.connections = [Client(path) for _ in range(n_connections)]
    for connection in me.connections:
        connection.socket.setblocking(False)
    return ask_until_stuck(me.connections, most)


def ask_until_stuck(connections, most=float("inf")):
    n_sent, last = 0, time.monotonic()
    while time.monotonic() - last < 0.2 and n_sent < most:
        n = sum(ask_until_full(connection) for connection in connections)
        if n:
            n_sent, last = n_sent + n, time.monotonic()
    return n_sent


def read_answers(me):
    """Reads what there is on the connections of flood(); returns how many messages that were."""
    n = 0
    for connection in me.connections:
        try:
            while connection.socket.recv(4096):
                n += 1
        except BlockingIOError:
            continue
    return n


def ask_until_full(connection):
    n = 0
    try:
        while True:
            connection.send_message(6)
            n += 1
    except OSError as error:
        assert error.errno in (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET), error
    return n


def wait_again_and_again(me, path, n_bytes, timeout_ms, n):
    """Asks n times for what does not come; each time until it is refused."""
    for _ in range(n):
        try:
            holder.acquire(me, path, n_bytes, several=True, on_miss="wait", timeout_ms=timeout_ms)
        except Refused as refusal:
            assert refusal.errno == errno.ETIMEDOUT, refusal


# The clock of an innocent client


def time_acquires(me, path, n_bytes, seconds):
    """Takes and gives back for so long; returns how long each acquire took, in seconds."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        holder.acquire(me, path, n_bytes, on_miss="wait", timeout_ms=20000)
        times.append(time.monotonic() - start)
        holder.drop(me)
        time.sleep(0.01)
    return times
