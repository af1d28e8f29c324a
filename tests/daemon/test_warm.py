# SPDX-License-Identifier: LGPL-2.1-or-later
"""Warm restart: what the daemon leaves in the service manager's store, and what its successor makes of it."""

import mmap
import os
import random
import signal
import time

import pytest
from harness import pages, wait_until
from harness.daemon import need_measuring
from harness.manager import ServiceManager
from hugezero_client import Client, Item

MIB = 1 << 20
POOL = "2M:auto:64M"
SMALL = "2M:2M:32M"
QUICK = "ReleaseGrace=50ms\nSweepInterval=1s\n"


@pytest.fixture
def manage(build):
    managers = []

    def make(pools=(POOL,), config=QUICK, **kwargs):
        pages.need_pages(sum(int(spec.split(":")[2].rstrip("M")) // 2 for spec in pools))
        manager = ServiceManager(build, pools=pools, config=config, **kwargs)
        managers.append(manager)
        manager.start()
        manager.wait_full()
        if "WarmExtents" not in config:  # the manager is told by a thread of its own: what it does not have yet cannot survive
            wait_until(lambda: len(manager.stored_extents()) == manager.pool()["n_extents_ready"], "all extents are stored")
        return manager

    yield make
    for manager in managers:
        text = manager.stderr()
        manager.close()
        assert "Sanitizer" not in text and "runtime error" not in text, text


def take(manager, n_bytes=2 * MIB, **kwargs):
    with Client(manager.socket_path) as client:
        grant = client.acquire([Item(bytes=n_bytes)], on_miss="wait", timeout_ms=10000, **kwargs)
    return grant.extents[0]


def is_zero(extent):
    with mmap.mmap(extent.fd, extent.bytes) as memory:
        return memory[:].count(0) == extent.bytes


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
@pytest.mark.parametrize("pool", [POOL, SMALL], ids=["auto", "fixed"])
def test_ready_memory_is_ready_again_without_a_fill(manage, kill, pool):
    manager = manage([pool])
    before = manager.wait_pool(lambda row: len(manager.stored_extents()) == row["n_extents_ready"], "all extents are stored")
    inodes = manager.stored_extents()
    manager.restart(kill)
    after = manager.pool()
    assert after["ready_bytes"] == before["ready_bytes"] and after["n_extents_ready"] == before["n_extents_ready"]
    assert after["zeroed_bytes_total"] == 0
    assert manager.stored_extents() == inodes
    extent = take(manager, 2 * MIB)
    assert pages.inode(extent.fd) in inodes and is_zero(extent)


def test_methods_are_measured_on_memory_that_is_idle(manage):
    """Nothing is filled after such a start, and nothing comes back."""
    manager = manage(config=f"AuditRate=1G\n{QUICK}")
    need_measuring(manager.build)
    manager.restart()
    row = manager.wait_pool(lambda row: row["clear_method"], "the methods were measured")
    assert row["ready_bytes"] == 64 * MIB and row["zeroed_bytes_total"] == 0
    assert is_zero(take(manager, 32 * MIB))


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_holder_keeps_its_memory_and_the_daemon_knows_it(manage, kill):
    manager = manage()
    extent = take(manager, 10 * MIB)
    memory = mmap.mmap(extent.fd, extent.bytes)
    memory[:] = b"\x5a" * extent.bytes
    (row,) = manager.grants()
    manager.restart(kill)
    (again,) = manager.grants()
    for key in "grant_id", "uid", "pid", "bytes", "ino", "state":
        assert again[key] == row[key], key
    assert manager.pool()["granted_bytes"] == 10 * MIB
    assert memory[:].count(0x5A) == extent.bytes
    # It comes back as always
    memory.close()
    extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "the memory is back")
    assert is_zero(take(manager, 10 * MIB))


def test_memory_returned_while_the_daemon_was_dead_is_cleared_for_its_service(manage):
    manager = manage()
    extent = take(manager, 10 * MIB)
    inode = pages.inode(extent.fd)
    with mmap.mmap(extent.fd, extent.bytes) as memory:
        memory[:] = b"\xa5" * extent.bytes
    manager.kill()
    extent.close()
    manager.start()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "the memory is back")
    assert manager.status()["scrubbed_bytes_total"] == 10 * MIB
    again = take(manager, 10 * MIB)
    assert pages.inode(again.fd) == inode and is_zero(again)


def test_memory_opened_by_somebody_while_the_daemon_was_dead_is_dropped(manage):
    manager = manage()
    extent = take(manager, 10 * MIB)
    inode = pages.inode(extent.fd)
    manager.kill()
    other = os.open(f"/proc/self/fd/{extent.fd}", os.O_RDWR)
    manager.start()
    extent.close()
    wait_until(lambda: inode not in manager.stored_extents(), "the memory is dropped")
    os.close(other)
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "the pool is full again")
    assert pages.inode(take(manager, 10 * MIB).fd) != inode


def test_without_the_events_what_was_granted_is_doubtful_and_dropped_when_it_comes_back(manage):
    manager = manage()
    extent = take(manager, 10 * MIB)
    inode = pages.inode(extent.fd)
    manager.kill()
    manager.drop("inot")
    manager.start()
    assert manager.pool()["granted_bytes"] == 10 * MIB
    extent.close()
    wait_until(lambda: inode not in manager.stored_extents(), "the memory is dropped")


def charged_bytes(manager):
    with Client(manager.socket_path) as client:
        return client.limits().get((os.getuid(), "bytes"), (0, None))[0]


@pytest.mark.parametrize("end", ["while it is dead", "afterwards"])
@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_what_its_holder_opened_is_charged_until_it_is_gone_whatever_the_daemon_does(manage, kill, end):
    manager = manage()
    extent = take(manager, 10 * MIB)
    inode = pages.inode(extent.fd)
    own = os.open(f"/proc/self/fd/{extent.fd}", os.O_RDWR)
    extent.close()
    wait_until(lambda: inode not in manager.stored_extents(), "the memory is given up")
    assert charged_bytes(manager) == 10 * MIB
    if end == "afterwards":
        for _ in range(2):
            manager.restart(kill)
            manager.wait_full()
            assert charged_bytes(manager) == 10 * MIB
        os.close(own)
    else:
        (manager.kill if kill else manager.stop)()
        os.close(own)
        manager.start()
    wait_until(lambda: charged_bytes(manager) == 0, "the charge has ended")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_pinned_pages_stay_charged_over_a_restart(manage, kill):
    manager = manage(config=QUICK + "Recycle=never\n")
    extent = take(manager, 2 * MIB)
    mapping, pipe = pages.Mapping(extent.fd, 2 * MIB), os.pipe()
    pages.vmsplice(pipe[1], mapping.addr, 4096)
    mapping.close()
    extent.close()
    manager.wait_pool(lambda row: row["pinned_bytes"] == 2 * MIB, "the pins are found")
    manager.restart(kill)
    manager.wait_pool(lambda row: row["pinned_bytes"] == 2 * MIB, "the pins are found again")
    assert charged_bytes(manager) == 2 * MIB
    for fd in pipe:
        os.close(fd)
    manager.wait_pool(lambda row: row["pinned_bytes"] == 0, "the pages are free")
    wait_until(lambda: charged_bytes(manager) == 0, "the charge has ended")


def test_a_ledger_of_another_version_begins_cold_and_takes_nothing_from_holders(manage):
    manager = manage()
    extent = take(manager, 10 * MIB)
    memory = mmap.mmap(extent.fd, extent.bytes)
    memory[:] = b"\x5a" * extent.bytes
    manager.kill()
    with manager.lock:
        ledger = next(fd for name, fd in manager.store if name == "ledg")
        os.pwrite(ledger, (99).to_bytes(4, "little"), 8)
    manager.start()
    assert "another version" in manager.stderr()
    manager.wait_full()
    assert manager.pool()["granted_bytes"] == 0 and manager.grants() == []
    assert memory[:].count(0x5A) == extent.bytes
    inodes = manager.wait_pool(lambda row: len(manager.stored_extents()) == row["n_extents_ready"], "only new extents are stored")
    assert inodes


def test_a_ledger_full_of_nonsense_harms_nobody(manage):
    manager = manage()
    rng = random.Random(4711)
    for _ in range(5):
        manager.kill()
        with manager.lock:
            ledger = next(fd for name, fd in manager.store if name == "ledg")
            for record in range(64):
                os.pwrite(ledger, rng.randbytes(512), 512 + 512 * record)
        manager.start()
        manager.wait_full()
        assert is_zero(take(manager, 4 * MIB))


def test_dropped_memory_is_free_although_it_was_stored(manage):
    manager = manage(config=QUICK + "Recycle=never\n")
    extent = take(manager, 10 * MIB)
    inode = pages.inode(extent.fd)
    assert wait_until(lambda: inode in manager.stored_extents(), "the granted extent is stored")
    extent.close()
    wait_until(lambda: inode not in manager.stored_extents(), "the store has let go of it")
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "the pool is full again")


def test_only_as_many_extents_are_stored_as_configured(manage):
    manager = manage([SMALL], config=QUICK + "WarmExtents=5\n")
    assert manager.pool()["n_extents_ready"] == 16
    manager.restart()
    assert "5 extents were taken over" in manager.stderr()
    manager.wait_full()
    assert len(manager.stored_extents()) == 5


def test_a_manager_that_keeps_nothing_is_no_problem(manage):
    manager = manage()
    manager.keeps = False
    manager.kill()
    for name in {name for name, _ in manager.store}:
        manager.drop(name)
    manager.start()
    manager.wait_full()


def test_the_status_line_tells_how_the_pools_are(manage):
    pages.need_pages(0, pages.PAGE_1G)
    pool = "[Pool p]\nTarget={}\n"
    manager = manage((), QUICK + pool.format("64M"))
    file = manager.folder / "hugezerod.conf"

    def reload(text):
        file.write_text(f"[Daemon]\n{QUICK}{text}")
        manager.process.send_signal(signal.SIGHUP)

    wait_until(lambda: manager.status_line == "Serving 64 MiB", "it is shown as full")
    reload(pool.format("lots"))
    wait_until(lambda: "Reloading failed" in manager.status_line and 'value "lots"' in manager.status_line, "it is shown what is wrong")
    reload(pool.format("64M"))
    wait_until(lambda: manager.status_line == "Serving 64 MiB", "it is shown that it is right again")
    reload(pool.format("0"))
    wait_until(lambda: manager.status_line == "Serving no memory: all targets are 0", "it is shown that there is nothing")
    reload(pool.format("4T") + "PageSize=1G\n")  # few, so that others are not left without
    wait_until(lambda: manager.status_line == "Short of pages on node 0; the pools are to have 4 TiB", "it is shown as short")
    manager.stop()
    wait_until(lambda: manager.status_line == "Giving memory back to the kernel", "it is shown that it stops")


@pytest.mark.large
def test_a_target_of_half_of_what_is_free_stays_when_half_is_taken(manage):
    pages.need_pages(2, pages.PAGE_1G)
    n_bytes = pages.free(pages.PAGE_1G) // 2 * pages.GIB
    manager = manage((), f"{QUICK}[Pool p]\nPageSize=1G\nTarget=auto\nLow=1G\n")
    inodes = manager.stored_extents()
    assert manager.pool()["target_bytes"] == n_bytes
    for kill in False, True:
        manager.restart(kill)
        assert (manager.wait_full()["target_bytes"], manager.stored_extents()) == (n_bytes, inodes)
    with Client(manager.socket_path) as client:
        client.reload()
    assert manager.pool()["target_bytes"] == n_bytes


def test_a_storm_of_kills_loses_no_page_and_shows_no_dirty_byte(manage):
    """The daemon is killed at random moments while clients acquire, hold and release."""
    manager = manage([POOL, ], config=QUICK + "AffinityTimeout=1s\n")
    free_before = pages.count("free") + 32
    rng = random.Random(time.time_ns())
    held = []
    for _ in range(int(os.environ.get("HUGEZERO_KILLS", "25"))):
        deadline = time.monotonic() + rng.random() * 0.3
        while time.monotonic() < deadline:
            try:
                with Client(manager.socket_path) as client:
                    grant = client.acquire([Item(bytes=rng.randint(1, 8) * 2 * MIB)], on_miss=rng.choice(["fail", "wait", "fill"]), timeout_ms=0)
            except OSError:
                continue
            extent = grant.extents[0]
            memory = mmap.mmap(extent.fd, extent.bytes)
            assert memory[:].count(0) == extent.bytes, "a granted byte is not zero"
            pattern = rng.randint(1, 255)
            memory[:] = bytes([pattern]) * extent.bytes
            held.append((extent, memory, pattern))
            while len(held) > rng.randint(0, 4):
                extent, memory, pattern = held.pop(rng.randrange(len(held)))
                assert memory[:].count(pattern) == extent.bytes, "a holder's byte was changed"
                memory.close()
                extent.close()
        manager.process.send_signal(signal.SIGKILL)
        manager.process.wait()
        manager.start()
    for extent, memory, pattern in held:
        assert memory[:].count(pattern) == extent.bytes, "a holder's byte was changed"
        memory.close()
        extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "all memory is back")
    wait_until(lambda: len(manager.stored_extents()) == manager.pool()["n_extents_ready"], "the store has what is ready, and no more")
    wait_until(lambda: pages.count("free") + 32 >= free_before or pages.users(), "no page is lost")
