# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pools and limits that change while the daemon runs."""

import errno
import mmap
import signal

import pytest
from harness import holder, pages, wait_until
from hugezero_client import Client, Item, Refused

MIB = 1 << 20
QUICK = "ReleaseGrace=50ms\nAffinityTimeout=1s\nSweepInterval=1s\n"


def configure(daemon, text):
    (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}{text}")


def pool_text(target, name="vm", extent="auto"):
    return f"[Pool {name}]\nPageSize=2M\nExtentSize={extent}\nTarget={target}\n"


def reload(daemon):
    with Client(daemon.socket_path) as client:
        return client.reload()


def row_of(daemon, name):
    return next((row for row in daemon.pools() if row["name"] == name), None)


def wait_ready(daemon, n_bytes, name="vm"):
    wait_until(lambda: (lambda row: row and row["ready_bytes"] == n_bytes and row["filling_bytes"] == 0)(row_of(daemon, name)), f"{n_bytes} bytes are ready")


@pytest.mark.parametrize("extent", ["auto", "2M"])
def test_a_target_grows_and_shrinks_and_the_kernel_has_its_pages_back(start_daemon, extent):
    pages.need_pages(64)
    daemon = start_daemon(config=QUICK + pool_text("32M", extent=extent))
    wait_ready(daemon, 32 * MIB)
    for target in 128, 10, 64, 2:
        configure(daemon, pool_text(f"{target}M", extent=extent))
        reload(daemon)
        wait_ready(daemon, target * MIB)
        wait_until(lambda want=target: sum(pages.hugetlb_files(daemon.pid).values()) == want * MIB, "the daemon holds no more than that")


def test_shrinking_leaves_holders_alone_and_takes_what_comes_back(start_daemon):
    pages.need_pages(64)
    daemon = start_daemon(config=QUICK + pool_text("64M"))
    wait_ready(daemon, 64 * MIB)
    with Client(daemon.socket_path) as client:
        grant = client.acquire([Item(bytes=40 * MIB)], on_miss="fill")
    with mmap.mmap(grant.extents[0].fd, 40 * MIB) as memory:
        memory[:] = b"\x5a" * (40 * MIB)
        configure(daemon, pool_text("16M"))
        reload(daemon)
        wait_ready(daemon, 0)
        assert row_of(daemon, "vm")["granted_bytes"] == 40 * MIB
        assert memory[:].count(0x5A) == 40 * MIB
    grant.close()
    wait_ready(daemon, 16 * MIB)


def test_a_pool_that_is_gone_serves_nobody_and_one_that_is_new_does(start_daemon):
    pages.need_pages(64)
    daemon = start_daemon(config=QUICK + pool_text("32M", "old"))
    wait_ready(daemon, 32 * MIB, "old")
    with Client(daemon.socket_path) as client:
        grant = client.acquire([Item(bytes=2 * MIB, pool="old")])
        configure(daemon, pool_text("16M", "new"))
        daemon.process.send_signal(signal.SIGHUP)
        wait_ready(daemon, 16 * MIB, "new")
        with pytest.raises(Refused) as refused:
            client.acquire([Item(bytes=2 * MIB, pool="old")])
        assert refused.value.errno == errno.ENOENT
        client.acquire([Item(bytes=2 * MIB, pool="new")]).close()
        assert row_of(daemon, "old")["granted_bytes"] == 2 * MIB
        grant.close()
        wait_until(lambda: row_of(daemon, "old") is None, "the old pool is shown as long as there is something in it")


@pytest.mark.parametrize("change, error", [("resize", errno.ENOSPC), ("smaller", errno.ENOSPC), ("gone", errno.ENOENT)])
def test_who_waits_for_what_can_no_longer_be_is_refused(start_daemon, change, error):
    """Or he would wait for ever, and everyone behind him."""
    pages.need_pages(64)
    daemon = start_daemon(config=QUICK + pool_text("32M") + pool_text("8M", "other"))
    wait_ready(daemon, 32 * MIB)
    with Client(daemon.socket_path) as holding, Client(daemon.socket_path) as client:
        grant = holding.acquire([Item(bytes=4 * MIB, pool="vm")])
        waiting = client.send_acquire([Item(bytes=32 * MIB, pool="vm")], on_miss="wait", timeout_ms=-1)
        wait_until(lambda: daemon.status()["n_waiting"] == 1, "it waits")
        if change == "resize":
            holding.resize(16 * MIB, pool="vm")
        else:
            configure(daemon, (pool_text("16M") if change == "smaller" else "") + pool_text("8M", "other"))
            holding.reload()
        with pytest.raises(Refused) as refused:
            client.wait(waiting)
        assert refused.value.errno == error
        grant.close()


def test_a_wrong_file_changes_nothing_and_says_where(start_daemon):
    pages.need_pages(16)
    daemon = start_daemon(config=QUICK + pool_text("32M"))
    wait_ready(daemon, 32 * MIB)
    configure(daemon, pool_text("16M") + "Target=3M\nNonsense=1\n")
    with Client(daemon.socket_path) as client, pytest.raises(Refused) as refused:
        client.reload()
    assert refused.value.errno == errno.EINVAL
    assert "hugezerod.conf:" in str(refused.value)
    wait_ready(daemon, 32 * MIB)
    assert "nothing was changed" in daemon.stderr()


@pytest.mark.parametrize(
    "line", [b"Low=\xff\xfe", b"[\xff]", b"[Quota group:\xe9]", b"Low=\xc2\x9b31m", "Low=x".encode() + 80 * "é".encode(), "Low=".encode() + 60 * "€".encode()]
)  # fmt: skip
def test_a_wrong_file_is_quoted_as_text_whatever_is_in_it(start_daemon, line):
    pages.need_pages(4)
    daemon = start_daemon(config=QUICK + pool_text("8M"))
    configure(daemon, pool_text("8M"))
    path = daemon.folder / "hugezerod.conf"
    path.write_bytes(path.read_bytes() + line + b"\n")
    with Client(daemon.socket_path) as client:
        with pytest.raises(Refused) as refused:
            client.reload()
        assert refused.value.errno == errno.EINVAL and "hugezerod.conf:" in str(refused.value)
        assert client.pools()[0]["target_bytes"] == 8 * MIB


START_KEYS = {
    "SocketGroup": "daemon", "SocketMode": "0600", "WorkersPerNode": "3", "ClearMethod": "memset", "Batch": "4M", "WarmExtents": "7", "SharePageTables": "no",
}  # fmt: skip


@pytest.mark.parametrize("key", START_KEYS)
def test_a_key_that_needs_a_restart_is_named(start_daemon, key):
    pages.need_pages(2)
    daemon = start_daemon(config=QUICK + pool_text("2M"))
    assert reload(daemon) == ""
    lines = "".join(f"{k}={v}\n" for k, v in {"SocketMode": "0666", key: START_KEYS[key]}.items())
    (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\n{QUICK}{lines}" + pool_text("2M"))
    assert reload(daemon) == f"{key}="
    assert daemon.stderr().count(f"in effect only when the daemon is started again: {key}=\n") == 1
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: daemon.stderr().count(f"started again: {key}=\n") == 2, "SIGHUP says so too")
    answer = daemon.control("reload")
    assert (answer.returncode, answer.stdout) == (0, f"in effect only when hugezerod is started again: {key}=\n")


def test_keys_that_need_no_restart_are_not_named(start_daemon):
    pages.need_pages(4)
    daemon = start_daemon(config=QUICK + pool_text("2M"))
    configure(daemon, """AllowUsers=all\nAdminUsers=3001\nTrustedUsers=root\nMaxConnections=99\nMaxWaiting=98\nMaxFdsInFlight=300
BackgroundRate=1G\nAuditRate=1M\nUnmapAfter=1s\nRecycle=never\nLogLevel=debug\n""" + pool_text("4M") + "[Quota default]\nMaxBytes=2M\n")
    assert reload(daemon) == ""
    assert "started again" not in daemon.stderr()
    assert row_of(daemon, "vm")["target_bytes"] == 4 * MIB


def test_limits_change_with_a_reload(start_daemon):
    pages.need_pages(16)
    daemon = start_daemon(config=QUICK + pool_text("32M"))
    wait_ready(daemon, 32 * MIB)
    for limit, named in ("4M", "MaxBytes= "), ("2M:4M", "MaxBytes=2M: "):
        configure(daemon, pool_text("32M") + f"[Quota default]\nMaxBytes={limit}\n")
        reload(daemon)
        with Client(daemon.socket_path) as client, pytest.raises(Refused) as refused:
            client.acquire([Item(bytes=6 * MIB)])
        assert refused.value.errno == errno.EDQUOT and named in str(refused.value)
    configure(daemon, pool_text("32M"))
    reload(daemon)
    with Client(daemon.socket_path) as client:
        client.acquire([Item(bytes=6 * MIB)]).close()


def test_an_administrator_resizes_and_others_do_not(start_daemon, start_child):
    pages.need_pages(32)
    daemon = start_daemon(config=QUICK + pool_text("32M"))
    wait_ready(daemon, 32 * MIB)
    with Client(daemon.socket_path) as client:
        client.resize(64 * MIB, "vm")
        wait_ready(daemon, 64 * MIB)
        client.resize(0)
        wait_ready(daemon, 0)
        for target, pool, node, error in ((3 * MIB, "vm", -1, errno.EINVAL), (2 * MIB, "none", -1, errno.ENOENT), (2 * MIB, "vm", 99, errno.ENOENT)):
            with pytest.raises(Refused) as refused:
                client.resize(target, pool, node)
            assert refused.value.errno == error
    child = start_child(uid=3001)
    for call in "reload", "resize":
        assert child.call(holder.try_admin, daemon.socket_path, call) == errno.EPERM
