# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whatever a client can make grow has a limit, and the client who reaches it is the only one to notice."""

import errno
import json
import os
import re
import statistics

import pytest
from harness import holder, hostile, wait_until
from harness.child import ChildError
from harness.daemon import WRAPPER
from harness.pages import KIB, MIB, need_pages
from hugezero_client import Client, Item, Refused

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
NOBODY, OTHER = 65534, 1
N_MANY = 1000


def start(start_daemon, quota="", config="", pool="2M:2M:32M"):
    need_pages(16)
    daemon = start_daemon(pools=[pool], config=f"{QUICK}{config}[Quota default]\n{quota}")
    daemon.wait_full()
    return daemon


def assert_refused(code, call, *args, **kwargs):
    with pytest.raises(ChildError) as failure:
        call(*args, **kwargs)
    assert (failure.value.error, failure.value.errno) == ("Refused", code), failure.value


def test_bytes_of_a_user_are_limited_and_come_free_with_the_memory(start_daemon, start_child):
    daemon = start(start_daemon, "MaxBytes=8M\n")
    child, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    child.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    assert_refused(errno.EDQUOT, child.call, holder.acquire, daemon.socket_path, 2 * MIB, "more")
    # Another process of the same user is the same user
    assert_refused(errno.EDQUOT, start_child(uid=NOBODY).call, holder.acquire, daemon.socket_path, 2 * MIB)
    other.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    child.call(holder.drop)
    daemon.wait_pool(lambda row: row["returned_bytes"] == 0 and row["granted_bytes"] == 8 * MIB, "the memory is back")
    child.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)


def test_one_request_beyond_the_limit_of_bytes_is_refused_also_when_it_would_wait(start_daemon, start_child):
    daemon = start(start_daemon, "MaxBytes=8M\n")
    child = start_child(uid=NOBODY)
    for miss in "fail", "wait", "fill":
        assert_refused(errno.EDQUOT, child.call, holder.acquire, daemon.socket_path, 10 * MIB, several=True, on_miss=miss)
    assert daemon.status()["n_waiting"] == 0


def test_grants_of_a_user_are_limited(start_daemon, start_child):
    daemon = start(start_daemon, "MaxGrants=2\n")
    child = start_child(uid=NOBODY)
    for name in "ab":
        child.call(holder.acquire, daemon.socket_path, 2 * MIB, name)
    assert_refused(errno.EDQUOT, child.call, holder.acquire, daemon.socket_path, 2 * MIB, "c")
    start_child(uid=OTHER).call(holder.acquire, daemon.socket_path, 2 * MIB)
    child.call(holder.drop, "a")
    wait_until(lambda: daemon.status()["n_grants"] == 2, "the grant has ended")
    child.call(holder.acquire, daemon.socket_path, 2 * MIB, "c")


def test_connections_of_a_user_are_limited(start_daemon, start_child):
    daemon = start(start_daemon, "MaxConnections=3\n")
    child = start_child(uid=NOBODY)
    child.call(holder.open_connections, daemon.socket_path, 3)
    assert_refused(errno.EDQUOT, child.call, holder.connect, daemon.socket_path)
    start_child(uid=OTHER).call(holder.connect, daemon.socket_path)
    child.call(holder.close_connections)
    wait_until(lambda: daemon.status()["n_clients"] == 2, "the connections are gone")
    child.call(holder.connect, daemon.socket_path)


def test_connections_of_all_users_are_limited(start_daemon, start_child):
    daemon = start(start_daemon, config="MaxConnections=4\n")
    children = [start_child(uid=uid) for uid in (NOBODY, OTHER)]
    for child in children:
        child.call(holder.open_connections, daemon.socket_path, 2)
    with pytest.raises(Refused) as failure:
        Client(daemon.socket_path)
    assert failure.value.errno == errno.EUSERS
    children[0].call(holder.close_connections)

    def served():
        try:
            return daemon.status()
        except Refused:
            return None

    wait_until(served, "there is room again")


def test_a_thousand_connections_delay_nobody_and_leave_nothing_behind(start_daemon, start_child):
    daemon = start(start_daemon, f"MaxConnections={N_MANY}\n", config=f"MaxConnections={N_MANY + 16}\n")
    many, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    other.call(holder.connect, daemon.socket_path)
    fds_before, rss_bytes = daemon.n_fds(), [daemon.rss_bytes()]
    for _ in range(3):
        many.call(holder.open_connections, daemon.socket_path, N_MANY)
        assert daemon.status()["n_clients"] == N_MANY + 2
        rss_bytes.append(daemon.rss_bytes())
        assert statistics.median(other.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, 0.5)) < 0.1
        many.call(holder.close_connections)
        wait_until(lambda: daemon.n_fds() <= fds_before + 1, "the descriptors are closed")
    assert rss_bytes[1] - rss_bytes[0] < N_MANY * 16 * KIB  # chosen: 2 KiB were measured; AddressSanitizer's are larger
    if daemon.build.name == "release" and not WRAPPER:  # checkers keep freed memory back for a while
        assert rss_bytes[3] - rss_bytes[1] < N_MANY * KIB // 2, "memory was not used again"


def send_requests(me, path, n):
    """n requests that wait, without a look at the answers; returns how many are refused, and why."""
    connection = holder.client(me, path)
    numbers = [connection.send_acquire([Item(bytes=32 * MIB, several=True)], "wait", -1) for _ in range(n + 1)]
    try:
        connection.wait(numbers[-1])
    except Refused as refusal:
        return refusal.errno
    raise AssertionError("the last request was granted")


@pytest.mark.parametrize("section, code", [("[Quota default]", errno.EDQUOT), ("", errno.EUSERS)])
def test_waiting_requests_are_limited_per_user_and_for_all(start_daemon, start_child, section, code):
    limit = "MaxWaiting=5\n"
    daemon = start(start_daemon, quota=limit if section else "", config="" if section else limit)
    start_child(uid=OTHER).call(holder.acquire, daemon.socket_path, 2 * MIB)
    child = start_child(uid=NOBODY)
    assert child.call(send_requests, daemon.socket_path, 5) == code
    assert daemon.status()["n_waiting"] == 5
    child.kill()
    wait_until(lambda: daemon.status()["n_waiting"] == 0, "the requests are forgotten")


def test_a_user_may_have_limits_of_his_own(start_daemon, start_child):
    daemon = start(start_daemon, "MaxBytes=2M\n[Quota user:nobody]\nMaxBytes=8M\n")
    start_child(uid=NOBODY).call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    assert_refused(errno.EDQUOT, start_child(uid=OTHER).call, holder.acquire, daemon.socket_path, 4 * MIB, several=True)


def test_a_grown_extent_is_charged_to_its_holder(start_daemon, start_child):
    """A longer mapping grows the file behind the daemon's back; its pages count."""
    daemon = start(start_daemon, "MaxBytes=8M\n")
    child = start_child(uid=NOBODY)
    child.call(holder.acquire, daemon.socket_path, 2 * MIB)
    if child.call(holder.map_longer, 8 * MIB, populate=True) == 2 * MIB:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")

    def refused():
        try:
            child.call(holder.acquire, daemon.socket_path, 2 * MIB, "more")
        except ChildError as error:
            return error.errno == errno.EDQUOT
        child.call(holder.drop, "more")
        return False

    wait_until(refused, "the pages beyond the grant are charged")


def hold_unread(me, path, n_connections, n_bytes):
    """Asks on many connections and reads nothing."""
    me.connections = [Client(path) for _ in range(n_connections)]
    me.requests = [connection.send_acquire([Item(bytes=n_bytes, several=True)]) for connection in me.connections]


def read_all(me):
    for connection, request in zip(me.connections, me.requests, strict=True):
        connection.wait(request).close()


def test_descriptors_in_flight_are_limited_and_nobody_loses_any(start_daemon, start_child):
    need_pages(400)
    daemon = start(start_daemon, config="MaxFdsInFlight=253\n", pool="2M:2M:800M")
    lazy = start_child(uid=NOBODY)
    lazy.call(hold_unread, daemon.socket_path, 3, 200 * MIB)
    wait_until(lambda: daemon.pool()["granted_bytes"] == 600 * MIB, "all are granted")
    assert daemon.status()["n_fds_in_flight"] == 200
    # Who reads is served as soon as there is room
    lazy.call(read_all)
    start_child(uid=OTHER).call(holder.acquire, daemon.socket_path, 200 * MIB, several=True, on_miss="wait", timeout_ms=20000)


@pytest.mark.parametrize("data", [b"x", b"\2\0\0\0\1\0\0\0", b"\2\0\1\0\1\0\0\0" + b"\0" * 72, b"\x02\0\0\0\1\0\0\0" + b"\0" * 9000])
def test_a_message_out_of_the_rules_ends_that_connection_only(start_daemon, start_child, data):
    daemon = start(start_daemon)
    with Client(daemon.socket_path) as good, Client(daemon.socket_path) as bad:
        bad.send(data)
        with pytest.raises(ConnectionError):
            while True:
                bad.receive()
        assert good.status()["n_clients"] >= 1
    start_child().call(holder.acquire, daemon.socket_path, 2 * MIB)


def test_an_unknown_question_is_refused_and_the_connection_goes_on(start_daemon):
    daemon = start(start_daemon)
    with Client(daemon.socket_path) as client:
        with pytest.raises(Refused) as failure:
            client.wait(client.send_message(60))
        assert failure.value.errno == errno.EOPNOTSUPP
        assert client.status()["n_clients"] == 1


def test_a_thousand_rounds_leave_no_descriptor_and_no_watch_behind(start_daemon, start_child):
    daemon = start(start_daemon)
    child = start_child()
    child.call(rounds, daemon.socket_path, 20)
    daemon.wait_full()
    before = resources(daemon)
    child.call(rounds, daemon.socket_path, 1000)
    daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again")
    wait_until(lambda: resources(daemon) <= before, f"descriptors and watches are {before} again")


def test_a_low_limit_of_files_stops_the_pools_and_leaves_room_for_clients(start_daemon, start_child):
    """And is named for what it is, not as a lack of pages."""
    need_pages(150)
    limit = 100 + os.cpu_count()  # a sanitizer and more nodes have descriptors of their own
    config = f"{QUICK}AffinityTimeout=100ms\n[Pool vm]\nPageSize=2M\nExtentSize=2M\nTarget=256M\n"
    daemon = start_daemon(config=config, wrapper=["prlimit", f"--nofile={limit}:{limit}", "--"])
    n_max = wait_until(lambda: daemon.status()["capped_at_extents"], "the pools stop")

    def is_full():
        row = daemon.pool()
        return row["granted_bytes"] + row["ready_bytes"] == n_max * 2 * MIB and row["returned_bytes"] == 0

    def clients_are_served(n):
        children = [start_child(uid=NOBODY) for _ in range(n)]
        for child in children:
            child.call(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=20000)
        return children

    for _ in range(2):
        wait_until(is_full, "the pool is as full as it can be")
        for child in clients_are_served(8):
            child.kill()
        other = start_child()
        other.call(holder.acquire, daemon.socket_path, n_max * 2 * MIB, several=True, on_miss="wait", timeout_ms=20000)
        assert daemon.n_fds() < limit - 4
        with pytest.raises(ChildError) as refused:
            other.call(holder.acquire, daemon.socket_path, 2 * MIB, "more", on_miss="fill")
        assert refused.value.errno == errno.ENOMEM and "LimitNOFILE=" in str(refused.value)
        other.kill()
    said = daemon.stderr()
    assert f"the pools stop at {n_max} extents" in said and "LimitNOFILE=" in said and "ulimit -n" in said
    assert "is short of" not in said and "Too many open files" not in said, said
    assert f"stop at {n_max} extents" in daemon.control("status").stdout
    findings = json.loads(daemon.control("doctor", "--json").stdout)["findings"]
    assert [f for f in findings if f["check"] == "nofile" and f"stop at {n_max}" in f["text"] and "LimitNOFILE=" in f["advice"]], findings


def test_connections_leave_the_pools_their_descriptors(start_daemon, start_child):
    """Or one who only connects would keep memory that comes back from being made ready."""
    need_pages(64)
    limit = 100 + os.cpu_count()
    config = f"{QUICK}[Pool vm]\nPageSize=2M\nExtentSize=2M\nTarget=128M\n[Quota default]\nMaxConnections=infinity\n"
    daemon = start_daemon(config=config, wrapper=["prlimit", f"--nofile={limit}:{limit}", "--"])
    many, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    other.call(holder.connect, daemon.socket_path)
    code, text = many.call(connect_until_refused, daemon.socket_path, limit)
    assert code == errno.EUSERS and "LimitNOFILE=" in text
    n_max = wait_until(lambda: other.call(ask_status, daemon.socket_path)["capped_at_extents"], "the pools stop")
    for _ in range(3):
        other.call(holder.acquire, daemon.socket_path, 2 * MIB * (n_max // 2), several=True, on_miss="wait", timeout_ms=20000)
        other.call(holder.drop)
    said = daemon.stderr()
    assert "Too many open files" not in said and "Cannot accept" not in said, said


def connect_until_refused(me, path, n):
    me.connections = []
    try:
        for _ in range(n):
            me.connections.append(Client(path))
    except Refused as refusal:
        return refusal.errno, str(refusal)
    raise AssertionError(f"{n} connections were accepted")


def ask_status(me, path):
    return holder.client(me, path).status()


def rounds(me, path, n):
    for _ in range(n):
        holder.acquire(me, path, 2 * MIB, on_miss="wait", timeout_ms=20000)
        holder.drop(me)


def resources(daemon):
    """Open descriptors and inotify watches."""
    root = f"/proc/{daemon.pid}"
    watches = 0
    names = os.listdir(f"{root}/fd")
    for name in names:
        try:
            with open(f"{root}/fdinfo/{name}") as info:
                watches += len(re.findall(r"^inotify ", info.read(), re.MULTILINE))
        except OSError:
            continue  # closed meanwhile
    return len(names), watches
