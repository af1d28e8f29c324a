# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whatever a client can make grow has a limit, and the client who reaches it is the only one to notice."""

import concurrent.futures
import contextlib
import errno
import json
import os
import re
import socket
import statistics

import pytest
from harness import DEADLINE_S, holder, hostile, wait_until
from harness.child import ChildError
from harness.daemon import WRAPPER, has_thread_sanitizer
from harness.pages import GIB, KIB, MIB, PAGE_1G, PAGE_2M, free, need_pages
from hugezero_client import Client, Item, Refused

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
NOBODY, OTHER, THIRD = 65534, 1, 2
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


@pytest.mark.parametrize("quota", ["MaxBytes=8M\n", "MaxBytes=8M\nMaxGrants=1\n", "MaxGrants=1\n"])
def test_a_user_may_wait_for_what_he_has_given_back(start_daemon, start_child, quota):
    need_pages(16)
    daemon = start_daemon(pools=["2M:auto:32M"], config=f"ReleaseGrace=200ms\n[Quota default]\n{quota}")
    daemon.wait_full()
    child, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    for _ in range(4):
        child.call(holder.acquire, daemon.socket_path, 8 * MIB, on_miss="wait", timeout_ms=20000)
        assert_refused(errno.EDQUOT, child.call, holder.acquire, daemon.socket_path, 2 * MIB, "more")
        child.call(holder.drop)
        child.start(holder.acquire, daemon.socket_path, 8 * MIB, on_miss="wait", timeout_ms=20000)
        # That one is in nobody else's way
        other.call(holder.acquire, daemon.socket_path, 8 * MIB, on_miss="fill")
        other.call(holder.drop)
        child.result()
        child.call(holder.drop)
    with Client(daemon.socket_path) as client:
        wait_until(lambda: client.limits()[None, "bytes"][0] == 0, "nobody is charged for anything any more")


def reason(call, *args, **kwargs):
    with pytest.raises(ChildError) as failure:
        call(*args, **kwargs)
    assert failure.value.errno == errno.EDQUOT, failure.value
    return str(failure.value)


def shown_pages(daemon):
    """What status says of the page sizes of NOBODY, as a table and as JSON."""
    table = re.findall(rf"^ *{NOBODY} (\d+ .iB) pages +(\d+ \w+) +(none|\d+ \w+)$", daemon.control("status").stdout, re.MULTILINE)
    rows = json.loads(daemon.control("status", "--json").stdout)["limits"]
    return table, {row["page_size_bytes"]: (row["used"], row["limit"]) for row in rows if (row["uid"], row["kind"]) == (NOBODY, "page_bytes")}


@pytest.mark.large
def test_pages_of_1_gib_and_of_2_mib_have_limits_of_their_own(start_daemon, start_child):
    need_pages(8)
    need_pages(2, PAGE_1G)
    daemon = start_daemon(pools=["1G:1G:2G", "2M:auto:16M"], config=f"{QUICK}[Quota default]\nMaxBytes=1G:1G 2M:8M\n")
    daemon.wait_full()
    child, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    child.call(holder.connect, daemon.socket_path)
    assert shown_pages(daemon) == ([("2 MiB", "0 B", "8 MiB"), ("1 GiB", "0 B", "1 GiB")], {PAGE_2M: (0, 8 * MIB), PAGE_1G: (0, GIB)})
    child.call(holder.acquire, daemon.socket_path, GIB, "large", page_size=PAGE_1G)
    for terms in {}, {"on_miss": "wait", "timeout_ms": 20000}:
        told = reason(child.call, holder.acquire, daemon.socket_path, GIB, "more", page_size=PAGE_1G, **terms)
        assert f"1 GiB of 1 GiB pages asked, but uid {NOBODY} holds 1 GiB of the 1 GiB that MaxBytes=1G: allows it; release some, or raise MaxBytes=1G:" in told
    # Neither takes of the other
    child.call(holder.acquire, daemon.socket_path, 8 * MIB, "small", page_size=PAGE_2M)
    told = reason(child.call, holder.acquire, daemon.socket_path, 2 * MIB, "more", page_size=PAGE_2M)
    assert f"2 MiB of 2 MiB pages asked, but uid {NOBODY} holds 8 MiB of the 8 MiB that MaxBytes=2M: allows it" in told
    assert shown_pages(daemon) == (
        [("2 MiB", "8 MiB", "8 MiB"), ("1 GiB", "1 GiB", "1 GiB")], {PAGE_2M: (8 * MIB, 8 * MIB), PAGE_1G: (GIB, GIB)})
    other.call(holder.acquire, daemon.socket_path, GIB, page_size=PAGE_1G)
    other.call(holder.drop)
    # What is on its way back may be waited for
    child.call(holder.drop, "large")
    child.call(holder.acquire, daemon.socket_path, GIB, "large", page_size=PAGE_1G, on_miss="wait", timeout_ms=20000)
    child.call(holder.drop, "large")
    child.call(holder.drop, "small")
    with Client(daemon.socket_path) as client:
        wait_until(lambda: client.limits()[None, "bytes"][0] == 0, "nobody is charged for anything any more")
        assert not {PAGE_2M, PAGE_1G} & {kind for uid, kind in client.limits() if uid is None}


def test_pages_beyond_their_limit_leave_the_books_as_they_were(start_daemon, start_child):
    daemon = start(start_daemon, "MaxBytes=32M 2M:8M\nMaxGrants=2\n")
    child = start_child(uid=NOBODY)
    child.call(holder.acquire, daemon.socket_path, 4 * MIB, several=True)
    items = [Item(bytes=2 * MIB), Item(bytes=4 * MIB, several=True)]
    assert "6 MiB of 2 MiB pages asked" in reason(child.call, holder.acquire_items, daemon.socket_path, items, "more")
    with Client(daemon.socket_path) as client:
        limits = client.limits()
    assert [limits[NOBODY, kind] for kind in ("bytes", "grants", PAGE_2M)] == [(4 * MIB, 32 * MIB), (1, 2), (4 * MIB, 8 * MIB)]
    child.call(holder.acquire, daemon.socket_path, 4 * MIB, "more", several=True)


def reload_limits(daemon, value):
    (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}[Quota user:{NOBODY}]\nMaxBytes={value}\n")
    assert daemon.control("reload").returncode == 0, daemon.stderr()


def test_a_limit_of_a_page_size_that_falls_while_a_request_waits_is_named(start_daemon, start_child):
    daemon = start(start_daemon, pool="2M:2M:8M")
    other, child = start_child(uid=OTHER), start_child(uid=NOBODY)
    other.call(holder.acquire, daemon.socket_path, 8 * MIB, several=True)
    child.start(holder.acquire, daemon.socket_path, 4 * MIB, several=True, on_miss="wait", timeout_ms=20000)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "it waits")
    reload_limits(daemon, "1G 2M:2M")
    other.call(holder.drop)
    told = reason(child.result)
    assert f"4 MiB of 2 MiB pages asked, but uid {NOBODY} holds 0 B of the 2 MiB that MaxBytes=2M: allows it; ask for less, or" in told
    reload_limits(daemon, "2M:0")
    told = reason(child.call, holder.acquire, daemon.socket_path, 2 * MIB)
    assert f"uid {NOBODY} may have no memory of 2 MiB pages at all (MaxBytes=2M: of its quota)" in told


def test_who_waits_for_what_he_has_given_back_waits_no_longer_when_it_does_not_come_back(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:auto:32M"], config="ReleaseGrace=1h\n[Quota default]\nMaxBytes=8M\n")
    daemon.wait_full()
    child, second = start_child(uid=NOBODY), start_child(uid=NOBODY)
    child.call(holder.acquire, daemon.socket_path, 6 * MIB)
    second.call(holder.acquire, daemon.socket_path, 2 * MIB)
    second.call(holder.drop)
    # Not enough, then enough: for that it waits, and has the time that it was given
    assert_refused(errno.EDQUOT, second.call, holder.acquire, daemon.socket_path, 4 * MIB, on_miss="wait", timeout_ms=20000)
    assert_refused(errno.ETIMEDOUT, second.call, holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=100)
    second.start(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=20000)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "it waits")
    second.kill()
    wait_until(lambda: daemon.status()["n_waiting"] == 0, "its request has gone with it")


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


@pytest.mark.parametrize(
    "quota, n_bytes, text",
    [
        ("MaxGrants=1\nMaxBytes=8M\n", 2, "1 grant asked, but {} has 1 of the 1 that MaxGrants= allows it; release some, or raise MaxGrants="),
        ("MaxGrants=9\nMaxBytes=4M\n", 4, "4 MiB asked, but {} holds 2 MiB of the 4 MiB that MaxBytes= allows it; release some, or raise MaxBytes="),
        ("MaxBytes=4M\n", 6, "6 MiB asked, but {} holds 2 MiB of the 4 MiB that MaxBytes= allows it; ask for less, or raise MaxBytes="),
        ("MaxBytes=0\n", 2, "{} may have no memory at all (MaxBytes= of its quota)"),
        ("MaxGrants=0\n", 2, "{} may have no grants at all (MaxGrants= of its quota)"),
        ("MaxConnections=0\n", 2, "{} may have no connections at all (MaxConnections= of its quota)"),
        ("MaxWaiting=0\n", 2, "{} may have no requests at all (MaxWaiting= of its quota)"),
        ("MaxRequestRate=0\n", 2, "{} may not ask for memory at all (MaxRequestRate= of its quota)"),
    ],
)
def test_each_limit_says_what_is_asked_and_in_use_and_what_helps(start_daemon, start_child, quota, n_bytes, text):
    daemon = start(start_daemon, quota)
    child = start_child(uid=NOBODY)
    if not quota.endswith("=0\n"):
        child.call(holder.acquire, daemon.socket_path, 2 * MIB, "a")
    with pytest.raises(ChildError) as failure:
        child.call(holder.acquire, daemon.socket_path, n_bytes * MIB, "b", several=True)
    assert str(failure.value).endswith(f"] {text}\n".format(f"uid {NOBODY}")), failure.value


@pytest.mark.once
@pytest.mark.parametrize(
    "key, kind, largest, refused",
    [
        ("MaxBytes", "bytes", 1 << 60, {0: errno.EDQUOT, 1: errno.EDQUOT}),
        ("MaxGrants", "grants", 1 << 20, {0: errno.EDQUOT, 1: errno.EDQUOT}),
        ("MaxConnections", "connections", 1 << 16, {0: errno.EDQUOT, 1: errno.EDQUOT}),
        ("MaxWaiting", "waiting", 1 << 16, {0: errno.EDQUOT}),
        ("MaxRequestRate", "requests", 1 << 20, {0: errno.EBUSY}),
    ],
)
def test_the_extremes_of_a_limit_are_shown_as_they_are_and_kept(start_daemon, start_child, key, kind, largest, refused):
    """Reloaded one after the other, for a user who has something already."""
    daemon = start(start_daemon)
    first, second = start_child(uid=NOBODY), start_child(uid=NOBODY)
    first.call(holder.acquire, daemon.socket_path, 2 * MIB)
    for limit in None, largest, 1, 0, None:
        value = "infinity" if limit is None else limit
        (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}[Quota user:{NOBODY}]\n{key}={value}\n")
        assert daemon.control("reload").returncode == 0, daemon.stderr()
        told = [daemon.control("status"), daemon.control("status", "--json"), daemon.control("metrics")]
        assert all(answer.returncode == 0 for answer in told)
        assert not re.search(r"\b(18446744\d+|4294967295|1\.8e|-1|nan|inf)\b", "".join(answer.stdout for answer in told), re.IGNORECASE)
        (shown,) = re.findall(rf"^ *{NOBODY} {kind} .* (none|\d+(?: \w*B)?)$", told[0].stdout, re.MULTILINE)
        assert shown == ("none" if limit is None else {0: "0 B", 1: "1 B", largest: "1 EiB"}[limit] if kind == "bytes" else str(limit))
        (row,) = (row for row in json.loads(told[1].stdout)["limits"] if (row["uid"], row["kind"]) == (NOBODY, kind))
        assert row["limit"] == limit
        for terms in {"on_miss": "fail"}, {"on_miss": "wait", "timeout_ms": 20000}:
            with Client(daemon.socket_path) as client:
                wait_until(lambda: client.limits()[NOBODY, "connections"][0] == 1, "only the first has a connection")
                if (kind, limit) == ("requests", 1):
                    wait_until(lambda: client.limits()[NOBODY, "requests"][0] == 0, "the second is over")
            if limit in refused:
                with pytest.raises(ChildError) as failure:
                    second.call(holder.acquire, daemon.socket_path, 2 * MIB, **terms)
                assert failure.value.errno == refused[limit] and f"{key}=" in str(failure.value) and f"uid {NOBODY}" in str(failure.value)
                assert not re.search(r"\d{6}", str(failure.value).replace(str(NOBODY), "")), failure.value
            else:
                second.call(holder.acquire, daemon.socket_path, 2 * MIB, **terms)
            second.kill()
            second = start_child(uid=NOBODY)
            wait_until(lambda: daemon.status()["n_grants"] == 1, "only the first has a grant")


def test_who_may_have_no_grants_does_not_wait_for_memory(start_daemon, start_child):
    daemon = start(start_daemon, f"[Quota user:{NOBODY}]\nMaxGrants=0\n")
    start_child().call(holder.acquire, daemon.socket_path, 32 * MIB, several=True)
    with pytest.raises(ChildError) as failure:
        start_child(uid=NOBODY).call(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=-1)
    assert f"uid {NOBODY} may have no grants at all (MaxGrants= of its quota)" in str(failure.value)


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
    third = start_child(uid=THIRD)
    assert_refused(errno.EUSERS, third.call, holder.connect, daemon.socket_path)
    # Who is to end such a crowd gets in
    assert daemon.status()["n_clients"] == 5
    children[0].call(holder.close_connections)

    def served():
        try:
            third.call(holder.connect, daemon.socket_path)
        except ChildError:
            return False
        return True

    wait_until(served, "there is room again")


def wait_for(me, path, n, n_bytes):
    for _ in range(n):
        holder.client(me, path).send_acquire([Item(bytes=n_bytes, several=True)], "wait", -1)


@pytest.mark.parametrize("kind", ["connections", "waiting"])
def test_users_with_much_leave_places_to_those_with_little(start_daemon, start_child, kind):
    """Few users, each with what one may have, fill no limit of all users: 2 of 16 places are for who has fewer than three."""
    daemon = start(start_daemon, config=f"Max{kind.capitalize()}=16\nHoldBack=0s\n", pool="2M:2M:16M")
    crowd, third = [start_child(uid=uid) for uid in (NOBODY, OTHER)], start_child(uid=THIRD)
    start_child().call(holder.acquire, daemon.socket_path, 14 * MIB, several=True)  # one connection
    for child, n in zip(crowd, (8, 5) if kind == "connections" else (8, 6)):
        if kind == "connections":
            child.call(holder.open_connections, daemon.socket_path, n)
        else:
            child.call(wait_for, daemon.socket_path, n, 4 * MIB)
    if kind == "waiting":
        wait_until(lambda: daemon.status()["n_waiting"] == 14, "the requests wait")
    if kind == "connections":
        assert_refused(errno.EUSERS, crowd[0].call, holder.connect, daemon.socket_path)
    else:
        assert_refused(errno.EUSERS, crowd[0].call, holder.acquire, daemon.socket_path, 2 * MIB)
    third.call(holder.acquire, daemon.socket_path, 2 * MIB)


def test_a_thousand_connections_delay_nobody_and_leave_nothing_behind(start_daemon, start_child):
    daemon = start(start_daemon, f"MaxConnections={N_MANY}\n", config=f"MaxConnections={N_MANY + 80}\n")
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
    # Chosen: 2 KiB were measured; with AddressSanitizer 8, with ThreadSanitizer, which keeps books of each descriptor, up to 18
    assert rss_bytes[1] - rss_bytes[0] < N_MANY * KIB * (64 if has_thread_sanitizer(daemon.build) else 16)
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


def crowd_and_wait(me, path, n):
    """n connections, each with as many waiting requests as it may have."""
    holder.open_connections(me, path, n)
    for connection in me.connections:
        for _ in range(16):
            connection.send_acquire([Item(bytes=32 * MIB, several=True)], "wait", -1)


@pytest.mark.once
def test_the_memory_of_a_crowd_goes_back_when_it_has_gone(start_daemon, start_child):
    if WRAPPER:
        pytest.skip("cannot: what checks memory keeps what was freed")
    crowd = f"MaxConnections={N_MANY}\nMaxWaiting=infinity\n"
    daemon = start(start_daemon, crowd, config=f"MaxConnections={N_MANY + 80}\nMaxWaiting=65536\n")
    many, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    other.call(holder.acquire, daemon.socket_path, 2 * MIB)  # so that the others wait
    rss_bytes = daemon.rss_bytes()
    many.call(crowd_and_wait, daemon.socket_path, N_MANY)
    wait_until(lambda: daemon.status()["n_waiting"] == 16 * N_MANY, "the requests wait")
    grown_bytes = daemon.rss_bytes() - rss_bytes
    assert grown_bytes > 16 * N_MANY * KIB
    with Client(daemon.socket_path) as last:  # at the end of the heap
        many.call(holder.close_connections)
        wait_until(lambda: daemon.rss_bytes() - rss_bytes < grown_bytes // 8, "memory goes back to the kernel")
        assert last.status()["n_waiting"] == 0


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


def count_refusals(me, path, n):
    refused = 0
    for _ in range(n):
        try:
            holder.client(me, path).acquire([Item(bytes=2 * MIB)]).close()
        except Refused:
            refused += 1
    return refused


def test_every_refused_request_is_counted_whatever_refused_it(start_daemon, start_child):
    daemon = start(start_daemon, f"[Quota user:{NOBODY}]\nMaxRequestRate=10\n[Quota user:{OTHER}]\nMaxBytes=0\n[Quota user:{THIRD}]\nMaxWaiting=0\n")

    def n_refused():
        return daemon.status()["n_refused_total"]

    for uid in NOBODY, OTHER, THIRD:
        before = n_refused()
        refused = start_child(uid=uid).call(count_refusals, daemon.socket_path, 60)
        assert refused > 0 and n_refused() - before == refused, uid
    # The seventeenth of a connection
    child, before = start_child(uid=4), n_refused()
    start_child().call(holder.acquire, daemon.socket_path, 2 * MIB)
    assert child.call(send_requests, daemon.socket_path, 16) == errno.EDQUOT and n_refused() == before + 1


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
    """All at once, as each gets a part when the one before it has read its own."""

    def read(connection, request):
        grant = connection.wait(request)
        n_extents = len(grant.extents)
        grant.close()
        return n_extents

    with concurrent.futures.ThreadPoolExecutor() as threads:
        assert set(threads.map(read, me.connections, me.requests)) == {100}


def test_who_does_not_read_leaves_descriptors_for_others_and_nobody_loses_any(start_daemon, start_child):
    """However small the limit, and who came first. A share of less than a full message comes in smaller ones."""
    need_pages(400)
    daemon = start(start_daemon, config="MaxFdsInFlight=253\n", pool="2M:2M:800M")
    lazy, other = start_child(uid=NOBODY), start_child(uid=OTHER)
    lazy.call(hold_unread, daemon.socket_path, 3, 200 * MIB)
    wait_until(lambda: daemon.pool()["granted_bytes"] == 600 * MIB, "all are granted")
    assert daemon.status()["n_fds_in_flight"] == 253 // 4
    for _ in range(3):
        assert len(other.call(holder.acquire, daemon.socket_path, 200 * MIB, several=True, on_miss="wait", timeout_ms=20000)) == 100
        other.call(holder.drop)
    assert daemon.status()["n_fds_in_flight"] == 253 // 4
    lazy.call(read_all)


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


@pytest.mark.once
def test_a_thousand_rounds_leave_no_descriptor_and_no_watch_behind(start_daemon, start_child):
    daemon = start(start_daemon)
    child = start_child()
    child.call(rounds, daemon.socket_path, 20)
    daemon.wait_full()
    before = resources(daemon)
    child.call(rounds, daemon.socket_path, 1000)
    daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again")
    wait_until(lambda: resources(daemon) <= before, f"descriptors and watches are {before} again")


def start_with_few_files(start_daemon):
    """A pool of 256 MiB and about 30 extents at most; how many in all."""
    need_pages(150)
    limit = 100 + os.cpu_count()
    wrapper = ["prlimit", f"--nofile={limit}:{limit}", "--"]
    daemon = start_daemon(pools=["2M:auto:256M"], config=f"{QUICK}AffinityTimeout=100ms\n", wrapper=wrapper)
    daemon.wait_full()
    return daemon


def take_small_pieces(child, daemon):
    """As many as it gets; the last refusal and their number."""
    with pytest.raises(ChildError) as refused:
        for n in range(1000):
            child.call(holder.acquire, daemon.socket_path, 2 * MIB, str(n), on_miss="fill")
    return str(refused.value), n


def test_small_pieces_become_whole_again_under_a_low_limit_of_files(start_daemon, start_child):
    """With a descriptor for each of them the pool could have no more of them, and nothing else."""
    daemon = start_with_few_files(start_daemon)
    child = start_child()
    text, _ = take_small_pieces(child, daemon)
    assert "LimitNOFILE=" in text
    child.kill()
    row = daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB, "the pool is full again")
    assert row["largest_ready_bytes"] >= 64 * MIB
    assert daemon.status()["capped_at_extents"] == 0
    start_child().call(holder.acquire, daemon.socket_path, 200 * MIB, on_miss="wait", timeout_ms=20000)


def test_a_holder_of_all_extents_but_few_does_not_keep_the_pool_small(start_daemon, start_child):
    """What is cut off for another one is filled again, though there is a descriptor only for what gives way."""
    daemon = start_with_few_files(start_daemon)
    child, other = start_child(), start_child()
    _, n = take_small_pieces(child, daemon)
    for idx in range(6):
        child.call(holder.drop, str(idx))
    held = (n - 6) * 2 * MIB
    daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB - held, "the pool is full")
    for size in 20 * MIB, 40 * MIB, 20 * MIB, 100 * MIB:
        other.call(holder.acquire, daemon.socket_path, size, on_miss="wait", timeout_ms=20000)
        daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB - held - size, "the pool is full")  # pylint: disable=cell-var-from-loop
        other.call(holder.drop)
        daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB - held, "all of it came back")


def test_the_last_extents_are_kept_for_users_with_little(start_daemon, start_child):
    daemon = start_with_few_files(start_daemon)
    greedy, other, administrator = start_child(uid=4000), start_child(uid=4001), start_child()
    text, n = take_small_pieces(greedy, daemon)
    assert "kept for users with little" in text and "LimitNOFILE=" in text and n > 20
    for miss in "fail", "fill":
        daemon.wait_pool(lambda row: row["filling_bytes"] == row["returned_bytes"] == 0, "nothing is under way")
        assert_refused(errno.ENOMEM, greedy.call, holder.acquire, daemon.socket_path, 2 * MIB, "more", on_miss=miss)
    for size in 2 * MIB, 20 * MIB, 100 * MIB:
        other.call(holder.acquire, daemon.socket_path, size, on_miss="fill")
        other.call(holder.drop)
        daemon.wait_pool(lambda row: row["returned_bytes"] == 0, "it came back")
    administrator.call(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="fill")


def test_small_pieces_are_kept_while_the_kernel_has_nothing_to_spare(start_daemon, start_child):
    """Their pages would be anybody's. They are memory of somebody who is still there."""
    need_pages(150)
    limit = 100 + os.cpu_count()
    daemon = start_daemon(pools=["2M:auto:256M"], config=QUICK, wrapper=["prlimit", f"--nofile={limit}:{limit}", "--"])
    daemon.wait_full()
    child, thief = start_child(), start_child()
    n = 0
    while not daemon.status()["capped_at_extents"]:
        with contextlib.suppress(ChildError):  # the last but one may still get the place of one that is just going
            child.call(holder.acquire, daemon.socket_path, 2 * MIB, str(n), on_miss="fill")
            n += 1
        rest = daemon.wait_pool(lambda row: row["filling_bytes"] == row["returned_bytes"] == 0, "nothing is under way")
    thief.call(holder.reserve, free())
    n_pieces, n_bytes = rest["n_extents_ready"] + n, rest["ready_bytes"] + 2 * MIB * n
    for name in range(n):
        child.call(holder.drop, str(name))
    daemon.wait_pool(lambda row: row["ready_bytes"] == n_bytes, "all pieces are ready")
    n_granted = daemon.status()["n_granted_total"]
    for _ in range(3):  # each time the daemon looks whether there is something to fill
        child.call(holder.acquire, daemon.socket_path, 2 * MIB)
        child.call(holder.drop)
        row = daemon.wait_pool(lambda row: row["ready_bytes"] == n_bytes, "the piece is back")
        assert row["n_extents_ready"] == n_pieces
    assert daemon.status()["n_granted_total"] == n_granted + 3
    thief.kill()
    row = daemon.wait_pool(lambda row: row["ready_bytes"] == 256 * MIB, "the pool is full again")
    assert row["largest_ready_bytes"] >= 64 * MIB


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


def test_a_crowd_keeps_no_administrator_out_where_few_files_may_be_open(start_daemon, start_child):
    need_pages(16)
    limit = 100 + os.cpu_count()
    config = f"{QUICK}[Pool vm]\nPageSize=2M\nExtentSize=2M\nTarget=32M\n[Quota default]\nMaxConnections=infinity\n"
    daemon = start_daemon(config=config, wrapper=["prlimit", f"--nofile={limit}:{limit}", "--"])
    daemon.wait_full()
    for uid in NOBODY, OTHER, THIRD:
        assert start_child(uid=uid).call(connect_until_refused, daemon.socket_path, limit)[0] == errno.EUSERS
    for command in ["status"], ["resize", daemon.pool()["name"], "0"], ["reload"]:
        answer = daemon.control(*command)
        assert answer.returncode == 0, answer.stderr
    # Those that are left are the administrators' to use up, not the daemon's
    code, text = start_child().call(connect_until_refused, daemon.socket_path, limit)
    assert code == errno.EUSERS and "LimitNOFILE=" in text
    said = daemon.stderr()
    assert "Too many open files" not in said and "Cannot accept" not in said, said


def test_a_limit_of_no_connections_leaves_administrators_theirs(start_daemon, start_child):
    daemon = start(start_daemon)
    (daemon.folder / "hugezerod.conf").write_text("[Daemon]\nSocketMode=0666\n[Quota default]\nMaxConnections=0\n")
    for command in ["reload"], ["status"], ["resize", daemon.pool()["name"], "0"], ["reload"]:
        answer = daemon.control(*command)
        assert answer.returncode == 0, answer.stderr
    assert_refused(errno.EDQUOT, start_child(uid=NOBODY).call, holder.connect, daemon.socket_path)
    administrator = start_child()
    administrator.call(holder.open_connections, daemon.socket_path, 3)
    assert_refused(errno.EDQUOT, administrator.call, holder.connect, daemon.socket_path)


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


def talk_nonsense(_me, path, n):
    for _ in range(n):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(path)
            client.send(b"?")
            while client.recv(4096):
                pass  # until it is cut off


def test_no_user_hides_in_the_log_what_another_one_does(start_daemon, start_child):
    daemon = start_daemon(pools=["2M:2M:2M"])
    for uid, n in (4000, 40), (4001, 1):
        start_child(uid=uid).call(talk_nonsense, daemon.socket_path, n)
    wait_until(lambda: "uid 4001" in daemon.stderr(), "it is told of the other one")
    daemon.process.terminate()
    daemon.process.wait(DEADLINE_S)
    assert daemon.stderr().count("Cutting off the client") == 6
    assert "left out: 35 more about clients that were cut off, of uid 4000" in daemon.stderr()
