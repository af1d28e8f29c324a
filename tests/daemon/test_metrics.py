# SPDX-License-Identifier: LGPL-2.1-or-later
"""Metrics by HTTP: what is served to whom, and that whoever asks cannot do harm."""

import array
import os
import pathlib
import re
import socket
import time

import pytest
from harness import scraper, wait_until
from harness.pages import MIB, need_pages
from harness.scraper import OPENMETRICS, connect, names, samples, scrape
from hugezero_client import Client, Item

ROOT = pathlib.Path(__file__).resolve().parents[2]
POOL = "small=2M:2M:16M"
QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


@pytest.fixture
def listener():
    with scraper.listen() as made:
        yield made


def names_of_the_page():
    section = (ROOT / "daemon" / "hugezerod.8.scd").read_text().partition("\n# METRICS\n")[2].partition("\n# ")[0]
    return set(re.findall(r"^\*(hugezero_\w+)\*$", section, re.MULTILINE))


def n_fds(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def rss_bytes(pid):
    return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def serves_clients(daemon):
    """How long a client waits for 2 MiB, in seconds."""
    begin = time.monotonic()
    with Client(daemon.socket_path) as client:
        client.acquire([Item(bytes=2 * MIB)], on_miss="wait", timeout_ms=10000).close()
    return time.monotonic() - begin


def test_names_are_those_of_the_page_however_they_are_asked_for(start_daemon, listener):
    need_pages(8)
    daemon = start_daemon(pools=[POOL], metrics=listener)
    assert names_of_the_page() == names(scrape(listener)[2]) == names(scrape(listener, accept=OPENMETRICS)[2])
    assert names_of_the_page() == names(daemon.control("metrics").stdout)


def test_figures_are_those_of_the_status(start_daemon, listener):
    need_pages(8)
    daemon = start_daemon(pools=[POOL], config=QUICK, metrics=listener)
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        grant = client.acquire([Item(bytes=2 * MIB)])
        status, headers, text = scrape(listener)
        found = samples(text)
        grant.close()
    labels = '{pool="small",node="0",page_size="2M"}'
    assert status == 200 and headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert found["hugezero_pool_target_bytes" + labels] == 16 * MIB
    assert found["hugezero_pool_granted_bytes" + labels] == 2 * MIB
    assert found["hugezero_clients"] == 1 and found["hugezero_grants"] == 1
    assert found["hugezero_requests_granted_total"] == 1 and found["hugezero_granted_bytes_total"] == 2 * MIB
    assert found['hugezero_pool_extents_served_total{pool="small",node="0",page_size="2M",how="exact"}'] == 1


def test_the_format_is_the_one_that_was_asked_for(start_daemon, listener):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    _, headers, text = scrape(listener, accept=OPENMETRICS)
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0") and text.endswith("\n# EOF\n")
    for accept in "text/plain", "application/openmetrics-text;q=0", "application/openmetrics-text;q=0.1,text/plain;version=0.0.4;q=0.9":
        _, headers, text = scrape(listener, accept=accept)
        assert headers["content-type"].startswith("text/plain") and "# EOF" not in text


BODIES = {
    "none": "\r\n",
    "some": "Content-Length: 3\r\n\r\na=b",
    "chunked": "Transfer-Encoding: chunked\r\n\r\n3\r\na=b\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_only_get_and_head_are_answered_whatever_comes_with_them(start_daemon, listener, body):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    for method in "POST", "PUT", "DELETE", "OPTIONS", "FROBNICATE":
        status, headers, text = scrape(listener, method=method, body=body)
        assert (status, headers["allow"], headers["connection"]) == (405, "get, head", "close"), method  # scrape() writes them small
        assert text == "Only GET and HEAD are answered\n"
    assert scrape(listener, body=body)[0] == 200


def test_a_large_body_is_refused_before_it_comes(start_daemon, listener):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    assert scrape(listener, method="POST", body="Content-Length: 4097\r\nExpect: 100-continue\r\n\r\n")[0] == 413


def test_head_is_answered_as_get_without_the_text(start_daemon, listener):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    for accept in "text/plain", OPENMETRICS:
        status, headers, text = scrape(listener, method="HEAD", accept=accept)
        _, of_get, figures = scrape(listener, accept=accept)
        assert (status, text, headers["content-type"]) == (200, "", of_get["content-type"])
        assert abs(int(headers["content-length"]) - len(figures)) < 100  # figures change meanwhile
    assert scrape(listener, path="/", method="HEAD")[::2] == (404, "")


@pytest.mark.parametrize("method, path", [("GET", "/"), ("GET", "/metrics/x"), ("POST", "/x")])
def test_nothing_else_is_there(start_daemon, listener, method, path):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    status, headers, text = scrape(listener, path, method=method)
    assert (status, headers["connection"], text) == (404, "close", "Only /metrics is here\n")


def test_what_is_too_long_is_refused_and_not_kept(start_daemon, listener):
    need_pages(8)
    daemon = start_daemon(pools=[POOL], metrics=listener)
    daemon.wait_full()
    scrape(listener)
    before = rss_bytes(daemon.pid)
    for begin in b"GET /metrics HTTP/1.1\r\n", b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\n", b"":
        with connect(listener) as peer:
            with pytest.raises(OSError):
                peer.sendall(begin)
                for _ in range(512):
                    peer.sendall(b"x" * 65536)
        assert serves_clients(daemon) < 5
    assert rss_bytes(daemon.pid) < before + 16 * MIB
    wait_until(lambda: scrape(listener)[0] == 200, "metrics are served")


@pytest.mark.once
def test_who_sends_instead_of_reading_is_not_listened_to(start_daemon, listener):
    """The answer does not fit into the socket's buffers, so it stays to be read what comes behind the request."""
    need_pages(8)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # the kernel's least; accepted sockets inherit it
    daemon = start_daemon(pools=[POOL, "b=2M:2M:0", "c=2M:2M:0", "d=2M:2M:0"], metrics=listener)
    daemon.wait_full()
    scrape(listener)
    before = rss_bytes(daemon.pid)
    n_sent = 0
    with socket.socket(listener.family) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        peer.settimeout(20)
        peer.connect(listener.getsockname())
        peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        begin = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() - begin < 15:
                n_sent += peer.send(b"x" * 65536)
        assert time.monotonic() - begin < 15, "it was cut off"
    assert n_sent < 16 * MIB and rss_bytes(daemon.pid) < before + 8 * MIB
    assert serves_clients(daemon) < 5
    wait_until(lambda: scrape(listener)[0] == 200, "metrics are served")


@pytest.mark.once
def test_slow_scrapers_hold_a_few_descriptors_for_a_few_seconds(start_daemon, listener):
    need_pages(8)
    daemon = start_daemon(pools=[POOL], config=QUICK, metrics=listener)
    daemon.wait_full()
    wait_until(lambda: scrape(listener)[0] == 200, "metrics are served")
    before = n_fds(daemon.pid)
    begin = time.monotonic()
    dripping = [connect(listener) for _ in range(6)]
    silent = [connect(listener) for _ in range(6)]
    slowest, open_peers = 0, list(dripping)
    while open_peers:
        assert time.monotonic() - begin < 20, "a scraper that never ends is not dropped"
        for peer in list(open_peers):
            try:
                peer.send(b"G")
                peer.setblocking(False)
                try:
                    ended = peer.recv(100) == b""
                except BlockingIOError:
                    ended = False
                peer.setblocking(True)
            except OSError:
                ended = True
            if ended:
                open_peers.remove(peer)
        assert n_fds(daemon.pid) <= before + 8 + 4  # a grant on its way has some, too
        slowest = max(slowest, serves_clients(daemon))
        time.sleep(0.2)
    assert time.monotonic() - begin > 4, "nobody was slow"
    assert slowest < 5
    assert wait_until(lambda: scrape(listener)[0] == 200, "metrics are served")
    for peer in dripping + silent:
        peer.close()


def test_a_hasty_scraper_is_held_back(start_daemon, listener):
    start_daemon(pools=["2M:2M:0"], metrics=listener)
    begin = time.monotonic()
    for _ in range(40):
        assert scrape(listener)[0] == 200
    assert time.monotonic() - begin > 0.75  # after the first 8, another 8 each 250 ms


def test_a_scraper_that_does_not_wait_for_the_answer_is_no_matter(start_daemon, listener):
    need_pages(8)
    daemon = start_daemon(pools=[POOL], metrics=listener)
    for _ in range(20):
        with connect(listener) as peer:
            peer.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 3)
    assert serves_clients(daemon) < 5
    wait_until(lambda: scrape(listener)[0] == 200, "metrics are served")


def test_a_daemon_that_stops_lets_go_of_scrapers(start_daemon, listener):
    daemon = start_daemon(pools=["2M:2M:0"], metrics=listener)
    with connect(listener) as silent, connect(listener) as half:
        half.sendall(b"GET /metrics HTTP/1.1\r\n")
        wait_until(lambda: scrape(listener)[0] == 200, "both are connected")
        daemon.stop()
        assert silent.recv(100) == half.recv(100) == b""


def test_a_unix_socket_takes_no_descriptors(start_daemon, tmp_path):
    need_pages(8)
    with scraper.listen(str(tmp_path / "metrics")) as unix:
        daemon = start_daemon(pools=[POOL], metrics=unix)
        if "Linux 6.16" in daemon.stderr():
            pytest.skip("cannot: this kernel takes descriptors for everybody who reads from a Unix socket")
        assert scrape(unix)[0] == 200
        with connect(unix) as peer, pytest.raises(PermissionError):
            peer.sendmsg([b"GET /metrics HTTP/1.1\r\n\r\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [peer.fileno()]))])


def test_several_sockets_are_served_and_have_the_same_limits(start_daemon):
    """Up to eight; more are no reason not to start."""
    need_pages(8)
    listeners = [scraper.listen() for _ in range(9)]
    daemon = start_daemon(pools=[POOL], metrics=listeners)
    assert daemon.stderr().count("ignoring another one") == 1
    assert [scrape(each)[0] for each in listeners[:8]] == [200] * 8
    daemon.wait_full()
    wait_until(lambda: scrape(listeners[0])[0] == 200, "nobody is connected any more")
    time.sleep(0.5)
    before = n_fds(daemon.pid)
    silent = [connect(each) for each in listeners[:8] for _ in range(2)]
    time.sleep(0.5)
    assert before + 8 <= n_fds(daemon.pid) <= before + 8 + 1  # the watch of the pool's files may have one, too
    assert serves_clients(daemon) < 5
    for peer in [*silent, listeners[8]]:
        peer.close()
    wait_until(lambda: [scrape(each)[0] for each in listeners[:8]] == [200] * 8, "all are served again")


def test_one_of_several_sockets_that_cannot_be_served_stops_no_other(start_daemon, listener, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as wrong:
        wrong.bind(str(tmp_path / "wrong"))
        wrong.listen()
        daemon = start_daemon(pools=["2M:2M:0"], metrics=[wrong, listener])
        assert "metrics are not served on a socket" in daemon.stderr()
        assert scrape(listener)[0] == 200


def test_a_socket_that_cannot_be_served_does_not_stop_the_daemon(start_daemon, tmp_path):
    need_pages(8)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as wrong:
        wrong.bind(str(tmp_path / "wrong"))
        wrong.listen()
        daemon = start_daemon(pools=[POOL], metrics=wrong)
        assert "metrics are not served" in daemon.stderr() and "ListenStream=" in daemon.stderr()
        assert serves_clients(daemon) < 5


def test_the_service_manager_is_asked_for_nothing_more(start_daemon):
    """Without a socket for metrics nothing is listened on but the clients' socket."""
    daemon = start_daemon(pools=["2M:2M:0"])
    inodes = {os.readlink(f"/proc/{daemon.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{daemon.pid}/fd")}
    for table in "tcp", "tcp6":
        rows = pathlib.Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        assert not {f"socket:[{row.split()[9]}]" for row in rows} & inodes
