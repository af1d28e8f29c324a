# SPDX-License-Identifier: LGPL-2.1-or-later
"""A client of hugezerod, written from hugezero-protocol(7) alone. Nothing but the standard library; every field is looked at."""

import array
import contextlib
import dataclasses
import errno
import mmap
import os
import re
import socket
import struct

MAX_MESSAGE_BYTES, MAX_FDS, MAX_ITEMS, ALL_EXTENTS = 4096, 253, 16, 0xFFFFFFFF
C_HELLO, C_ACQUIRE, C_CANCEL, C_MAPPED, C_RELEASE, C_STATUS, C_POOLS, C_GRANTS, C_RELOAD, C_RESIZE, C_LIMITS = range(1, 12)
D_HELLO, D_GRANT, D_REFUSED, D_DONE, D_STATUS, D_POOLS, D_GRANTS, D_LIMITS, D_RELOADED = 65, 66, 67, 68, 70, 71, 72, 73, 74
MAGIC = int.from_bytes(b"HZEZ", "little")
ON_MISS, NODE_MODES = {"fail": 0, "wait": 1, "fill": 2}, {"any": 0, "strict": 1, "prefer": 2}
STATES = {1: "held", 2: "returning", 3: "pinned"}
LIMITS = {1: "bytes", 2: "grants", 3: "connections", 4: "waiting", 5: "requests", 6: "fds_in_flight"}
LIMIT_PAGES = 256  # + N: of pages of 2^N bytes
ALL_USERS, NO_LIMIT = 2**32 - 1, 2**64 - 1
EXTENT = ("<QBBhI", "bytes item page_shift node reserved")
STATUS = ("<32s18Q", "daemon_version uptime_ms n_clients n_waiting n_pool_rows n_grants n_extents_granted n_granted_total"
          " n_refused_total n_exact n_cut n_grown n_built zeroed_bytes_total granted_bytes_total scrubbed_bytes_total"
          " n_fds_in_flight n_doubts capped_at_extents")  # fmt: skip
POOL = ("<32siI16Q16sII3QIHH", "name node n_extents_ready page_size_bytes extent_bytes target_bytes ready_bytes granted_bytes returned_bytes"
        " filling_bytes shortfall_bytes pinned_bytes kernel_free_bytes largest_ready_bytes n_exact n_cut n_grown n_built"
        " zeroed_bytes_total clear_method n_workers n_fill_threads paced_wait_ms audited_bytes_total n_audit_errors"
        " n_scrub_threads clear_speed clear_survival")  # fmt: skip
LIMIT = ("<IHHQQ", "uid kind reserved used limit")
GRANT = ("<QIIIhBBQQQQ32sQ", "grant_id extent uid pid node page_shift state bytes age_ms dev ino pool reserved")


class ProtocolError(Exception):
    """The daemon sent what the page does not allow."""


class Refused(OSError):
    """D_REFUSED: .errno, and .text, the daemon's reason."""

    text = property(lambda self: self.strerror)


def _check(condition, what):
    if not condition:
        raise ProtocolError(what)


def _name(field):
    match = re.fullmatch(rb"([ -~]*)\0+", field)
    _check(match, f"{field} is no name")
    return match[1].decode()


def _rows(layout, names, body):
    """Rows of a fixed layout as dictionaries; 'reserved' is checked and left out."""
    _check(len(body) % struct.calcsize(layout) == 0, "a row is not complete")
    for values in struct.iter_unpack(layout, body):
        row = {name: _name(value) if isinstance(value, bytes) else value for name, value in zip(names.split(), values, strict=True)}
        _check(row.pop("reserved", 0) == 0, f"a reserved field is not 0 behind {row}")
        if "page_shift" in row:
            row["page_size"] = 1 << row.pop("page_shift")
            _check(row["bytes"] > 0 and row["bytes"] % row["page_size"] == 0 and row["node"] >= 0, f"{row} makes no sense")
        yield row


def _refusal(body):
    error, n_text_bytes, reserved = struct.unpack_from("<iHH", body)
    text = body[8:].decode()
    _check(error > 0 and reserved == 0 and n_text_bytes <= 200 and len(body) == 8 + n_text_bytes, f"D_REFUSED {body}")
    _check(not re.search(r"[\0-\x1f\x7f-\x9f]", text), f"control characters in {text!r}")
    return Refused(error, text)


def _close_all(fds):
    for fd in fds:
        os.close(fd)


@dataclasses.dataclass
class Item:
    bytes: int
    page_size: int = 0
    node: int = -1
    mode: str = "any"
    several: bool = False
    reopenable: bool = False
    pool: str = ""

    def encode(self):
        flags = self.several | self.reopenable << 1
        return struct.pack("<QQiBBHQ32s", self.bytes, self.page_size, self.node, NODE_MODES[self.mode], flags, 0, 0, self.pool.encode())


@dataclasses.dataclass
class Extent:
    """One descriptor; close() it, or take_fd() it and close that."""

    fd: int
    bytes: int
    page_size: int
    node: int
    item: int

    def take_fd(self):
        fd, self.fd = self.fd, -1
        return fd

    def close(self):
        _close_all([self.take_fd()] if self.fd >= 0 else [])

    def map(self):
        return mmap.mmap(self.fd, self.bytes)  # shared, read and write; it has a duplicate of the descriptor


class Grant(contextlib.AbstractContextManager):
    """The extents of one request. They are open until close(), or the end of a `with` block."""

    def __init__(self, grant_id, extents):
        self.id, self.extents = grant_id, extents

    def close(self):
        for extent in self.extents:
            extent.close()

    def __exit__(self, *_):
        self.close()


class Client(contextlib.AbstractContextManager):
    """One connection. A call waits for the daemon at most timeout_s; send_acquire() and wait() are the two halves of acquire()."""

    def __init__(self, path=None, *, hello=True, timeout_s=20):
        self._last_id, self._answers, self._partial = 0, {}, {}  # by request_id: grants and refusals; grants still coming in
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._connect(path or os.environ.get("HUGEZERO_SOCKET") or "/run/hugezero/hugezero.sock", timeout_s)
            self.socket.settimeout(timeout_s)
            if hello:
                self.hello()
        except BaseException:
            self.close()
            raise

    def _connect(self, path, timeout_s):
        """Blocking: without, which settimeout() means, a daemon with many who want to connect is EAGAIN at once."""
        if timeout_s is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(timeout_s), int(timeout_s % 1 * 1e6)))
        try:
            self.socket.connect(path)
        except BlockingIOError as error:
            raise TimeoutError(f"the daemon did not accept a connection within {timeout_s} s") from error

    def close(self):
        """Closes the connection; of the grants only those that nobody has waited for."""
        self.socket.close()
        for answer in [*self._answers.values(), *self._partial.values()]:
            if isinstance(answer, Grant):
                answer.close()

    def __exit__(self, *_):
        self.close()

    def send(self, data, fds=()):
        """Any bytes and descriptors, right or wrong."""
        self.socket.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def send_message(self, op, layout="", *fields, tail=b""):
        """Returns the number of the request."""
        self._last_id += 1
        self.send(struct.pack("<HHI" + layout, op, 0, self._last_id, *fields) + tail)
        return self._last_id

    def receive(self):
        """The next message, whatever it is: op, request_id, body, fds. The fds are the caller's."""
        arguments = MAX_MESSAGE_BYTES, socket.CMSG_SPACE(MAX_FDS * 4), socket.MSG_CMSG_CLOEXEC
        try:
            data, control, flags, _ = self.socket.recvmsg(*arguments)
        except ConnectionResetError:  # comes once, ahead of the last words of a daemon that has left ours unread
            data, control, flags, _ = self.socket.recvmsg(*arguments)
        fds = array.array("i")
        for level, kind, payload in control:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(_close_all, fds)
            if not data:
                raise ConnectionResetError("the daemon has closed the connection")
            _check(not flags & socket.MSG_TRUNC and len(data) >= 8, f"a message of {len(data)} bytes, flags {flags}")
            op, reserved, request_id = struct.unpack_from("<HHI", data)
            if flags & socket.MSG_CTRUNC:
                raise OSError(errno.EMFILE, f"only {len(fds)} descriptors came with message {op} of request {request_id}")
            _check(reserved == 0 and (op == D_GRANT or not fds), f"message {op} with {len(fds)} descriptors, reserved {reserved}")
            on_failure.pop_all()
        return op, request_id, data[8:], list(fds)

    def _take_grant(self, request_id, body, fds):
        with contextlib.ExitStack() as on_failure:
            on_failure.callback(_close_all, fds)
            grant_id, n_total, first, n, reserved, reserved2 = struct.unpack_from("<QIIHHI", body)
            rows = list(_rows(*EXTENT, body[24:]))
            _check(grant_id > 0 and reserved == reserved2 == 0 and n >= 1, f"D_GRANT {body[:24]}")
            _check(n == len(rows) == len(fds), f"{n} extents, {len(rows)} rows, {len(fds)} descriptors")
            grant = self._partial.pop(request_id, None) or Grant(grant_id, [])
            _check(grant.id == grant_id and first == len(grant.extents) and first + n <= n_total, "extents out of order")
            for row, fd in zip(rows, fds):
                _check(row["item"] < MAX_ITEMS and os.fstat(fd).st_size == row["bytes"], f"a file of another size than {row}")
            on_failure.pop_all()
        grant.extents += [Extent(fd=fd, **row) for row, fd in zip(rows, fds)]
        (self._partial if first + n < n_total else self._answers)[request_id] = grant

    def wait(self, request_id, op=D_GRANT):
        """The Grant of a request, or the body of a reply of the given op. A refusal is raised. Answers to others are kept."""
        while request_id not in self._answers:
            came, answered, body, fds = self.receive()
            if came == D_GRANT:
                self._take_grant(answered, body, fds)
            elif came == D_REFUSED:
                self._answers[answered or request_id] = _refusal(body)  # 0: the daemon did not even read C_HELLO
            else:
                _check((came, answered) == (op, request_id), f"message {came} of {answered} instead of {op} of {request_id}")
                return body
        answer = self._answers.pop(request_id)
        if isinstance(answer, Refused):
            raise answer
        return answer

    def hello(self, version_min=1, version_max=1, features=0, magic=MAGIC):
        with contextlib.suppress(BrokenPipeError):  # a daemon that is full has said so and hung up already
            self.send_message(C_HELLO, "IHHQ", magic, version_min, version_max, features)
        body = self.wait(self._last_id, D_HELLO)
        fields = struct.unpack("<IHHQHHI", body)
        _check(fields == (MAGIC, 1, MAX_ITEMS, 0, MAX_FDS, 0, MAX_MESSAGE_BYTES), f"D_HELLO {fields}")

    def send_acquire(self, items, on_miss="fail", timeout_ms=0):
        """Returns the number of the request, for wait() and cancel()."""
        rows = b"".join(map(Item.encode, items))
        return self.send_message(C_ACQUIRE, "BBHi", ON_MISS[on_miss], len(items), 0, timeout_ms, tail=rows)

    def acquire(self, items, on_miss="fail", timeout_ms=0):
        return self.wait(self.send_acquire(items, on_miss, timeout_ms))

    def cancel(self, request_id):
        """wait() then raises Refused (ECANCELED), or has the answer that was quicker."""
        self.send_message(C_CANCEL, "II", request_id, 0)

    def mapped(self, grant):
        self.send_message(C_MAPPED, "Q", grant if isinstance(grant, int) else grant.id)

    def release(self, grant, extent=ALL_EXTENTS):
        """A grant or its number. This closes nothing: do so first."""
        request_id = self.send_message(C_RELEASE, "QII", grant if isinstance(grant, int) else grant.id, extent, 0)
        _check(self.wait(request_id, D_DONE) == b"", "D_DONE is more than a header")

    def reload(self):
        """Returns the names of keys that have changed and take effect at the next start only."""
        body = self.wait(self.send_message(C_RELOAD), D_RELOADED)
        n_bytes, *reserved = struct.unpack_from("<HHI", body)
        _check(reserved == [0, 0] and len(body) == 8 + n_bytes, "D_RELOADED is wrong")
        return body[8:].decode()

    def resize(self, target_bytes, pool="", node=-1):
        self.wait(self.send_message(C_RESIZE, "QiI32s", target_bytes, node, 0, pool.encode()), D_DONE)

    def status(self):
        return next(_rows(*STATUS, self.wait(self.send_message(C_STATUS), D_STATUS)))

    def pools(self):
        rows, n_total = [], 1
        while len(rows) < n_total:
            body = self.wait(self.send_message(C_POOLS, "II", len(rows), 0), D_POOLS)
            n_total, first, n, reserved = struct.unpack_from("<IIII", body)
            page = list(_rows(*POOL, body[16:]))
            _check(reserved == 0 and first == len(rows) and n == len(page) and (n > 0 or n_total == first), f"D_POOLS {body[:16]}")
            rows += page
        return rows

    def grants(self):
        rows, last, more = [], (0, 0), 1
        while more:
            body = self.wait(self.send_message(C_GRANTS, "QII", *last, 0), D_GRANTS)
            n, more = struct.unpack_from("<II", body)
            page = list(_rows(*GRANT, body[8:]))
            _check(n == len(page) and more in (0, 1) and n >= more, f"D_GRANTS {body[:8]}")
            for row in page:
                _check((row["grant_id"], row["extent"]) > last and row["state"] in STATES, f"{row} behind {last}")
                last = (row["grant_id"], row["extent"])
            rows += [dict(row, state=STATES[row["state"]]) for row in page]
        return rows

    def limits(self):
        """{(uid, kind): (used, limit)}; a uid of None is all users together, a limit of None is none. Pages of one size: the kind is the size."""
        found, last, more = {}, (0, 0), 1
        while more:
            body = self.wait(self.send_message(C_LIMITS, "IHH", *last, 0), D_LIMITS)
            n, more = struct.unpack_from("<II", body)
            page = list(_rows(*LIMIT, body[8:]))
            _check(n == len(page) and more in (0, 1) and n >= more, f"D_LIMITS {body[:8]}")
            for row in page:
                _check((row["uid"], row["kind"]) > last, f"{row} behind {last}")
                last = (row["uid"], row["kind"])
                uid = None if row["uid"] == ALL_USERS else row["uid"]
                kind = 1 << row["kind"] - LIMIT_PAGES if LIMIT_PAGES <= row["kind"] < LIMIT_PAGES + 64 else LIMITS.get(row["kind"])
                if kind:
                    found[uid, kind] = row["used"], None if row["limit"] == NO_LIMIT else row["limit"]
        return found
