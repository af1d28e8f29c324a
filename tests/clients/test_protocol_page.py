# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezero-protocol(7) against the client that was written from it: layouts, the example, and grants in several messages."""

import array
import concurrent.futures
import contextlib
import errno
import os
import pathlib
import re
import resource
import socket
import struct

import hugezero_client as hz
import pytest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "lib" / "common" / "hugezero-protocol.7.scd"
TYPES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i16": "h", "i32": "i", "char[16]": "16s", "char[32]": "32s"}


def tables():
    """Every table of the page as (first line before it, [(offset, type, field)])."""
    parts = PAGE.read_text().split("```")
    for before, block in zip(parts[0::2], parts[1::2]):
        rows = re.findall(r"^ *\+?(\d+)  (u8|u16|u32|u64|i16|i32|char\[\d+\]) +(\w+)", block, re.MULTILINE)
        if rows:
            yield before.strip().splitlines()[-1], [(int(offset), kind, field) for offset, kind, field in rows]


def test_fields_follow_each_other_without_holes_at_their_natural_alignment():
    found = list(tables())
    assert len(found) == 23
    for title, rows in found:
        for (offset, kind, _), (next_offset, _, field) in zip(rows, rows[1:]):
            assert offset + struct.calcsize("<" + TYPES[kind]) == next_offset, f"{title}: {field}"
        for offset, kind, field in rows:
            assert kind.startswith("char") or offset % struct.calcsize("<" + TYPES[kind]) == 0, f"{title}: {field}"


def test_lengths_in_the_titles_are_those_of_the_tables():
    n_checked = 0
    for title, rows in tables():
        match = re.match(r"\w+ \(op \d+\), (\d+)( bytes| \+ )", title)
        if match:
            offset, kind, _ = rows[-1]
            assert offset + struct.calcsize("<" + TYPES[kind]) == int(match[1]), title
            n_checked += 1
    assert n_checked == 17


@pytest.mark.parametrize("layout, names", [hz.STATUS, hz.POOL, hz.GRANT, hz.LIMIT, hz.EXTENT], ids="STATUS POOL GRANT LIMIT EXTENT".split())
def test_the_client_has_the_layouts_of_the_page(layout, names):
    rows = next(rows for _, rows in tables() if [field for _, _, field in rows] == names.split())
    kinds = [TYPES[kind] for _, kind, _ in rows]
    # Negative numbers tell signed fields from others, and each one its place
    values = [b"n" if "s" in kind else -idx if kind in "hi" else 100 + idx for idx, kind in enumerate(kinds, 1)]
    packed = struct.pack("<" + "".join(kinds), *values)
    assert struct.unpack(layout, packed) == struct.unpack("<" + "".join(kinds), packed)
    with pytest.raises(struct.error):
        struct.pack(layout, *[1 << 64 if kind == "Q" else value for kind, value in zip(kinds, values)])


@pytest.fixture
def peers(tmp_path):
    """A client that has said nothing yet, and the other end of its connection. Replies may be sent before they are asked for."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "socket"))
        listener.listen()
        client = hz.Client(str(tmp_path / "socket"), hello=False)
        peer, _ = listener.accept()
    n_before = len(os.listdir("/proc/self/fd"))
    with client, peer:
        yield client, peer
        assert len(os.listdir("/proc/self/fd")) == n_before - (peer.fileno() < 0)


def example():
    """The packets of the page's example by name."""
    text = PAGE.read_text().split("# EXAMPLE")[1].split("```")[1]
    packets = {}
    for line in text.strip("\n").splitlines():
        name = line[:11].strip() or name  # noqa: F821 # the first line has one
        packets[name] = packets.get(name, b"") + bytes.fromhex(line[11:])
    return packets


def make_file(n_bytes):
    fd = os.memfd_create("client-test")
    os.truncate(fd, n_bytes)
    return fd


def send(peer, data, fds=()):
    peer.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])


def grant_message(request_id, n_total, first, sizes, **changes):
    fields = dict(grant_id=9, n=len(sizes), reserved=0, item=0, page_shift=12, node=1) | changes
    head = struct.pack("<HHIQIIHHI", hz.D_GRANT, 0, request_id, fields["grant_id"], n_total, first, fields["n"], fields["reserved"], 0)
    return head + b"".join(struct.pack("<QBBhI", size, fields["item"], fields["page_shift"], fields["node"], 0) for size in sizes)


def test_the_example_is_what_the_client_says_and_understands(peers):
    client, peer = peers
    packets = example()
    assert {name: len(packet) for name, packet in packets.items()} == {"C_HELLO": 24, "D_HELLO": 32, "C_ACQUIRE": 80, "D_GRANT": 48}
    peer.send(packets["D_HELLO"])
    client.hello()
    assert peer.recv(4096) == packets["C_HELLO"]

    fd = make_file(1 << 30)
    send(peer, packets["D_GRANT"], [fd])
    with client.acquire([hz.Item(1 << 30)]) as grant:
        assert peer.recv(4096) == packets["C_ACQUIRE"]
        (extent,) = grant.extents
        assert (grant.id, extent.bytes, extent.page_size, extent.node, extent.item) == (7, 1 << 30, 2 << 20, 0, 0)
        assert os.path.sameopenfile(extent.fd, fd) and not os.get_inheritable(extent.fd)
    os.close(fd)


def test_every_field_of_a_request_is_where_the_page_says(peers):
    client, peer = peers
    item = hz.Item(0x0807060504030201, 0x1817161514131211, 0x04030201, "prefer", several=True, reopenable=True, pool="ram0")
    assert client.send_acquire([item, hz.Item(1, node=0, mode="strict", several=True)], "wait", -1) == 1
    data = peer.recv(4096)
    assert len(data) == 16 + 2 * 64
    assert data[:16] == bytes.fromhex("0200 0000 01000000 01 02 0000 ffffffff")
    assert data[16:80] == bytes.fromhex("0102030405060708 1112131415161718 01020304 02 03 0000 0000000000000000") + b"ram0" + bytes(28)
    assert data[80:112] == bytes.fromhex("0100000000000000 0000000000000000 00000000 01 01 0000 0000000000000000")
    client.cancel(0x04030201)
    assert peer.recv(4096) == bytes.fromhex("0300 0000 02000000 01020304 00000000")
    client.mapped(0x0807060504030201)
    assert peer.recv(4096) == bytes.fromhex("0400 0000 03000000 0102030405060708")
    peer.send(bytes.fromhex("4400 0000 04000000"))
    client.release(0x0807060504030201, 0x14131211)
    assert peer.recv(4096) == bytes.fromhex("0500 0000 04000000 0102030405060708 11121314 00000000")


def test_a_grant_in_several_messages_with_other_answers_between_them(peers):
    client, peer = peers
    files = [make_file(4096 * (idx + 1)) for idx in range(300)]
    sizes = [4096 * (idx + 1) for idx in range(300)]
    many, refused = client.send_acquire([hz.Item(1, several=True)]), client.send_acquire([hz.Item(2)])
    send(peer, grant_message(many, 300, 0, sizes[:253]), files[:253])
    peer.send(struct.pack("<HHIiHH", hz.D_REFUSED, 0, refused, errno.ENOMEM, 3, 0) + b"why")
    send(peer, grant_message(many, 300, 253, sizes[253:]), files[253:])
    with client.wait(many) as grant:
        assert [extent.bytes for extent in grant.extents] == sizes
        assert all(os.path.sameopenfile(extent.fd, fd) for extent, fd in zip(grant.extents, files))
    with pytest.raises(hz.Refused) as refusal:
        client.wait(refused)
    assert (refusal.value.errno, refusal.value.text) == (errno.ENOMEM, "why")
    for fd in files:
        os.close(fd)


@pytest.mark.parametrize(
    "changes",
    [{"n": 2}, {"n": 0}, {"grant_id": 0}, {"reserved": 1}, {"item": 16}, {"page_shift": 13}, {"node": -1}, {"sizes": [8192]},
     {"sizes": [0]}, {"first": 1}, {"n_total": 0}, {"n_fds": 0}, {"n_fds": 2}],
    ids=str,
)  # fmt: skip
def test_a_wrong_grant_is_noticed_and_nothing_stays_open(peers, changes):
    client, peer = peers
    arguments = {"n_total": 1, "first": 0, "sizes": [4096]} | changes
    n_fds = arguments.pop("n_fds", 1)
    fd = make_file(4096)
    send(peer, grant_message(1, **arguments), [fd] * n_fds)
    os.close(fd)
    with pytest.raises(hz.ProtocolError):
        client.acquire([hz.Item(1)])


def test_missing_descriptors_are_noticed(peers):
    client, peer = peers
    fds = [make_file(4096) for _ in range(8)]
    send(peer, grant_message(1, 8, 0, [4096] * 8), fds)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(fds) + 3, limits[1]))
    try:
        with pytest.raises(OSError) as problem:
            client.acquire([hz.Item(1, several=True)])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert problem.value.errno == errno.EMFILE and not isinstance(problem.value, hz.Refused)
    for fd in fds:
        os.close(fd)


def test_a_refused_connection_says_why(peers):
    client, peer = peers
    peer.send(struct.pack("<HHIiHH", hz.D_REFUSED, 0, 0, errno.EUSERS, 4, 0) + b"full")
    with pytest.raises(hz.Refused, match="full"):
        client.hello()


def test_last_words_are_read_though_the_daemon_left_ours_unread(peers):
    client, peer = peers
    request_id = client.send_message(hz.C_STATUS)
    peer.send(struct.pack("<HHIiHH", hz.D_REFUSED, 0, request_id, errno.ESHUTDOWN, 4, 0) + b"stop")
    peer.close()
    with pytest.raises(hz.Refused, match="stop"):
        client.wait(request_id, hz.D_STATUS)


def test_the_end_of_the_connection_is_told(peers):
    client, peer = peers
    peer.shutdown(socket.SHUT_RDWR)
    with pytest.raises(ConnectionError):
        client.status()


def pool_row(idx):
    return struct.pack(hz.POOL[0], b"pool%d" % idx, idx, *range(17), b"method", *range(6), 7, 8)


def test_tables_in_several_messages(peers):
    client, peer = peers
    peer.send(struct.pack("<HHIIIII", hz.D_POOLS, 0, 1, 30, 0, 18, 0) + b"".join(map(pool_row, range(18))))
    peer.send(struct.pack("<HHIIIII", hz.D_POOLS, 0, 2, 30, 18, 12, 0) + b"".join(map(pool_row, range(18, 30))))
    rows = client.pools()
    assert [row["name"] for row in rows] == [f"pool{idx}" for idx in range(30)]
    assert list(rows[29].values())[1:] == [29, *range(17), "method", *range(6), 7, 8]
    assert [peer.recv(4096)[8:] for _ in range(2)] == [struct.pack("<II", 0, 0), struct.pack("<II", 18, 0)]

    def grant_row(idx):
        return struct.pack("<QIIIhBBQQQQ32sQ", 100 + idx // 2, idx % 2, 1000, 77, 1, 21, 1 + idx % 3, 2 << 20, 5, 6, 7, b"p", 0)

    peer.send(struct.pack("<HHIII", hz.D_GRANTS, 0, 3, 42, 1) + b"".join(map(grant_row, range(42))))
    peer.send(struct.pack("<HHIII", hz.D_GRANTS, 0, 4, 1, 0) + grant_row(42))
    rows = client.grants()
    assert [(row["grant_id"], row["extent"]) for row in rows] == [(100 + idx // 2, idx % 2) for idx in range(43)]
    assert [row["state"] for row in rows[:3]] == ["held", "returning", "pinned"]
    assert [peer.recv(4096)[8:] for _ in range(2)] == [struct.pack("<QII", 0, 0, 0), struct.pack("<QII", 120, 1, 0)]


def test_a_crowd_at_the_door_is_waited_for(tmp_path):
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener, contextlib.ExitStack() as crowd:
        listener.bind(path)
        listener.listen(1)
        with pytest.raises(TimeoutError, match="did not accept"):
            while True:
                crowd.enter_context(hz.Client(path, hello=False, timeout_s=0.1))
        with concurrent.futures.ThreadPoolExecutor() as threads:
            last = threads.submit(hz.Client, path, hello=False)
            listener.accept()[0].close()
            last.result().close()


def test_reasons_for_no_memory_are_told_for_each_way_to_miss():
    entry = re.search(r"^ +12  ENOMEM .*?(?=^ +13  )", PAGE.read_text(), re.MULTILINE | re.DOTALL)[0]
    assert "on_miss is 2" in entry and "on_miss is 0 or" in entry
