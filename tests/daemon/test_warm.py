# SPDX-License-Identifier: LGPL-2.1-or-later
"""Warm restart: what the daemon leaves in the service manager's store, and what its successor makes of it."""

import mmap
import os
import random
import struct
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

    def make(pools=(POOL,), config=QUICK, full=True, **kwargs):
        pages.need_pages(sum(int(spec.split(":")[2].rstrip("M")) // 2 for spec in pools))
        manager = ServiceManager(build, pools=pools, config=config, **kwargs)
        managers.append(manager)
        manager.start()
        if full:
            manager.wait_full()
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


def test_what_is_stored_and_unknown_is_taken_out(manage):
    """Of a daemon that knew more: it may be memory, and would be kept for ever."""
    manager = manage()
    manager.store.append(("future", os.memfd_create("future")))
    manager.restart()
    wait_until(lambda: "future" not in [name for name, _ in manager.store], "the manager has forgotten it")
    assert 'the service manager passed "future", which means nothing here' in manager.stderr()


def test_methods_are_measured_on_memory_that_is_idle(manage):
    """Nothing is filled after such a start, and nothing comes back."""
    manager = manage(config=f"AuditRate=1G\n{QUICK}")
    need_measuring(manager.build)
    manager.restart()
    row = manager.wait_pool(lambda row: row["clear_method"], "the methods were measured")
    assert row["ready_bytes"] == 64 * MIB and row["zeroed_bytes_total"] == 0
    assert is_zero(take(manager, 32 * MIB))


class Ledger:
    """The daemon's records, in the memfd that the manager keeps: 512 bytes each, behind a header of 512."""

    READY, MEASURED = 2, 7

    def __init__(self, manager):
        fd = next(fd for name, fd in manager.store if name == "ledg")
        self.memory = mmap.mmap(fd, 0)

    def slots(self, state):
        return [at for at in range(512, len(self.memory), 512) if struct.unpack_from("I", self.memory, at)[0] == state]

    def set(self, at, state):
        struct.pack_into("I", self.memory, at, state)


def assert_all_is_as_before(manager, before, inodes):
    after = manager.pool()
    assert after["ready_bytes"] == before["ready_bytes"] and after["n_extents_ready"] == before["n_extents_ready"]
    assert after["zeroed_bytes_total"] == 0
    assert manager.stored_extents() == inodes
    with Client(manager.socket_path) as client:
        grant = client.acquire([Item(bytes=before["ready_bytes"], several=True)])
    assert all(is_zero(extent) for extent in grant.extents)


def test_what_measuring_left_behind_when_the_daemon_was_killed_is_cleared(manage):
    manager = manage(config=f"AuditRate=0\n{QUICK}")
    before, inodes, ledger = manager.pool(), manager.stored_extents(), Ledger(manager)
    manager.kill()
    for slot in ledger.slots(Ledger.READY):
        ledger.set(slot, Ledger.MEASURED)
    for fd in manager.stored_fds():
        with mmap.mmap(fd, 0) as memory:
            memory[0] = memory[len(memory) - 1] = 1
    manager.start()
    assert not ledger.slots(Ledger.MEASURED)
    assert_all_is_as_before(manager, before, inodes)


def test_memory_is_ready_again_when_the_daemon_is_killed_while_it_measures_there(manage):
    manager = manage(config=f"AuditRate=1G\n{QUICK}")
    need_measuring(manager.build)
    before, inodes, ledger = manager.pool(), manager.stored_extents(), Ledger(manager)
    for _ in range(8):
        manager.restart()
        deadline = time.monotonic() + 2
        while not (measured := ledger.slots(Ledger.MEASURED)) and time.monotonic() < deadline:
            pass
        manager.kill()
        if measured and ledger.slots(Ledger.MEASURED):
            break
    else:
        pytest.fail("it was not once killed in time")
    manager.start()
    assert_all_is_as_before(manager, before, inodes)


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


def grant_rows(manager):
    """All that stays as it is."""
    return [{key: row[key] for key in row if key != "age_ms"} for row in manager.grants()]


def charged_bytes(manager):
    with Client(manager.socket_path) as client:
        limits = client.limits()
    of_all, of_pages = (limits.get((os.getuid(), kind), (0, None))[0] for kind in ("bytes", pages.PAGE_2M))
    assert of_all == of_pages
    return of_all


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
    before = grant_rows(manager)
    assert [(row["bytes"], (row["dev"], row["ino"]), row["state"]) for row in before] == [(10 * MIB, inode, "held")]
    if end == "afterwards":
        for _ in range(2):
            manager.restart(kill)
            manager.wait_full()
            assert charged_bytes(manager) == 10 * MIB and grant_rows(manager) == before
        os.close(own)
    else:
        (manager.kill if kill else manager.stop)()
        os.close(own)
        manager.start()
    wait_until(lambda: charged_bytes(manager) == 0, "the charge has ended")
    assert not manager.grants()


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


def test_a_full_store_that_has_lost_the_ledger_has_one_again(manage):
    """As when the service manager's limit was lowered: it closes what came first."""
    manager = manage()
    extent = take(manager, 2 * MIB)
    manager.kill()
    manager.drop("ledg")
    manager.limit = len(manager.store)
    n = len(manager.stored_extents())
    manager.start()
    assert f"the service manager kept {n} extents, but not the ledger" in manager.stderr()
    assert manager.grants() == []
    manager.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full")
    wait_until(lambda: {"ledg", "inot"} < {name for name, _ in manager.store} and len(manager.store) == manager.limit, "the store is full again")
    manager.restart(kill=True)
    assert f"extents taken over from the daemon before: {manager.limit - 2}" in manager.stderr()
    extent.close()


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
    assert "extents taken over from the daemon before: 5" in manager.stderr()
    manager.wait_full()
    assert len(manager.stored_extents()) == 5


def configure(manager, text):
    """From the next start on."""
    (manager.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}{text}")


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_what_may_no_longer_be_stored_leaves_the_store_and_is_known_as_long_as_the_daemon_lives(manage, kill):
    manager = manage([SMALL])
    extent = take(manager)
    manager.wait_full()
    configure(manager, "WarmExtents=0\n")
    manager.restart(kill)
    wait_until(lambda: not manager.store, "nothing is stored, neither ledger nor queue")
    assert "will not survive another restart" in manager.stderr()
    pool = manager.pool()
    assert pool["granted_bytes"] == 2 * MIB and pool["ready_bytes"] == 30 * MIB and pool["zeroed_bytes_total"] == 0
    (row,) = manager.grants()
    assert row["ino"] == os.fstat(extent.fd).st_ino and charged_bytes(manager) == 2 * MIB
    extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == 32 * MIB, "it came back")
    assert charged_bytes(manager) == 0
    n_free = pages.count("free")
    manager.stop()
    wait_until(lambda: pages.count("free") >= n_free + 16 or pages.users(), "no page is lost")


def test_where_fewer_may_be_stored_the_largest_stay_and_what_is_granted_before_all(manage):
    manager = manage()
    extents = [take(manager, n_bytes * MIB) for n_bytes in (2, 4, 6)]
    granted = [pages.inode(extent.fd) for extent in extents]
    manager.wait_full()
    wait_until(lambda: len(manager.stored_extents()) == manager.pool()["n_extents_ready"] + 3, "all extents are stored")
    configure(manager, "WarmExtents=4\n")
    manager.restart()
    wait_until(lambda: len(manager.stored_extents()) == 4, "as many are stored as may be")
    assert set(granted) < manager.stored_extents()
    assert manager.pool()["largest_ready_bytes"] in {os.fstat(fd).st_size for name, fd in manager.store if name not in ("ledg", "inot")}
    configure(manager, "WarmExtents=2\n")
    manager.restart()
    wait_until(lambda: manager.stored_extents() == set(granted[1:]), "the largest are stored")
    assert {(row["dev"], row["ino"]) for row in manager.grants()} == set(granted)


def take_several(manager, n):
    with Client(manager.socket_path) as client:
        return client.acquire([Item(bytes=2 * n * MIB, several=True)]).extents


def wait_stored(manager, extents):
    inodes = {pages.inode(extent.fd) for extent in extents}
    wait_until(lambda: inodes <= manager.stored_extents(), "all of them are stored")
    return inodes


FEW = QUICK + "WarmExtents=4\n"


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_what_is_granted_takes_the_place_of_what_is_ready(manage, kill):
    manager = manage([SMALL], config=FEW)
    wait_until(lambda: len(manager.stored_extents()) == 4, "the store is full")
    extents = [*take_several(manager, 3), take(manager)]
    inodes = wait_stored(manager, extents)
    before = grant_rows(manager)
    for _ in range(2):
        manager.restart(kill)
        assert grant_rows(manager) == before and charged_bytes(manager) == 8 * MIB
        assert manager.wait_full()["granted_bytes"] == 8 * MIB
        assert manager.stored_extents() == inodes
    assert "clients hold more" not in manager.stderr()
    for extent in extents:
        extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == 32 * MIB, "it came back")
    assert manager.stored_extents() == inodes, "what came back keeps its place"


def test_what_is_granted_when_all_that_is_stored_is_held_is_stored_when_something_comes_back(manage):
    manager = manage([SMALL], config=FEW)
    extents = take_several(manager, 4)
    wait_stored(manager, extents)
    late = [take(manager), take(manager)]
    wait_until(lambda: "clients hold more extents than the 4 that survive the daemon" in manager.stderr(), "the log says so")
    assert "let it keep more: WarmExtents=" in manager.stderr()
    extents.pop().close()
    extents.pop().close()
    wait_stored(manager, [*late, *extents])
    assert manager.stderr().count("clients hold more") == 1
    manager.restart(kill=True)
    assert charged_bytes(manager) == 8 * MIB and len(manager.grants()) == 4


def test_of_a_grant_that_is_larger_than_the_store_as_much_is_charged_as_the_store_takes(manage):
    manager = manage([SMALL], config=FEW)
    extents = take_several(manager, 6)
    wait_until(lambda: len(manager.stored_extents() & {pages.inode(extent.fd) for extent in extents}) == 4, "four are stored")
    manager.restart(kill=True)
    assert charged_bytes(manager) == 8 * MIB and [row["bytes"] for row in manager.grants()] == [2 * MIB] * 4
    for extent in extents:
        extent.close()
    wait_until(lambda: charged_bytes(manager) == 0 and not manager.grants(), "the charge has ended")


COLD = "will not survive a restart of the daemon: no more than {} extents may be kept, which is what {}"


@pytest.mark.once
@pytest.mark.parametrize("config, wrapper, fdstore, n, reason", [
    (FEW, (), None, 4, "WarmExtents="),
    (QUICK, ("prlimit", "--nofile=205"), None, 5, "LimitNOFILE="),
    (QUICK, ("prlimit", "--nofile=180"), None, 0, "LimitNOFILE="),
    (QUICK, (), "9", 7, "FileDescriptorStoreMax="),
])  # fmt: skip
def test_how_much_is_not_stored_and_why_is_said_once_when_the_pool_is_full(manage, config, wrapper, fdstore, n, reason):
    manager = manage([SMALL], config=config, full=False, wrapper=wrapper, fdstore=fdstore)
    for n_starts in 1, 2:
        manager.wait_full()
        wait_until(lambda: manager.stderr().count(COLD.format(n, reason)) == n_starts, "the log says so")
        assert manager.stderr().count(f"of 32 MiB that are ready {32 - 2 * n} MiB") == n_starts
        take(manager).close()
        manager.wait_pool(lambda row: row["ready_bytes"] == 32 * MIB, "it came back")
        assert manager.stderr().count("survive") == n_starts
        manager.restart()


@pytest.mark.once
def test_where_all_is_stored_or_nothing_shall_be_nothing_is_said(manage):
    manager = manage([SMALL])
    configure(manager, "WarmExtents=0\n")
    manager.stop()
    for name in {name for name, _ in manager.store}:
        manager.drop(name)
    manager.start()
    manager.wait_full()
    manager.fdstore = "0"
    configure(manager, "")
    manager.restart()
    manager.wait_full()
    take(manager).close()
    assert "survive" not in manager.stderr()


@pytest.mark.once
@pytest.mark.parametrize("value", ["abc", "-1", "", "1", "2048x"])
def test_what_is_wrong_with_FDSTORE_is_said_at_the_start(manage, value):  # pylint: disable=invalid-name
    manager = manage([SMALL], full=False, fdstore=value)
    assert manager.stderr().count(f'nothing will survive a restart: FDSTORE="{value}"') == 1
    manager.wait_full()
    assert not manager.store and manager.stderr().count("survive") == 1


def test_pinned_memory_takes_the_place_of_what_is_ready(manage):
    manager = manage([SMALL], config=f"{FEW}Recycle=never\n")
    extents = take_several(manager, 5)
    inodes = {pages.inode(extent.fd) for extent in extents}
    (left_out,) = inodes - wait_until(lambda: (lambda found: found if len(found) == 4 else None)(manager.stored_extents() & inodes), "four are stored")
    extent = next(extent for extent in extents if pages.inode(extent.fd) == left_out)
    mapping, pipe = pages.Mapping(extent.fd, 2 * MIB), os.pipe()
    pages.vmsplice(pipe[1], mapping.addr, 4096)
    mapping.close()
    extent.close()
    manager.wait_pool(lambda row: row["pinned_bytes"] == 2 * MIB, "the pins are found")
    assert manager.stored_extents() == inodes - {left_out}, "all that is stored is held"
    for extent in extents:
        extent.close()
    wait_until(lambda: left_out in manager.stored_extents(), "it is stored")
    manager.restart(kill=True)
    manager.wait_pool(lambda row: row["pinned_bytes"] == 2 * MIB, "the pins are found again")
    assert charged_bytes(manager) == 2 * MIB
    for fd in pipe:
        os.close(fd)
    wait_until(lambda: charged_bytes(manager) == 0, "the charge has ended")


def test_ready_memory_is_stored_when_there_is_room_again(manage):
    manager = manage((), f"{FEW}[Pool p]\nTarget=16M\nExtentSize=2M\n[Pool q]\nTarget=8M\nExtentSize=2M\n", full=False)
    wait_until(lambda: all(row["ready_bytes"] == row["target_bytes"] for row in rows(manager).values()), "the pools are full")
    with Client(manager.socket_path) as client:
        extents = client.acquire([Item(bytes=8 * MIB, several=True, pool="q")]).extents
        inodes = wait_stored(manager, extents)
        client.resize(0, pool="q")
    for extent in extents:
        extent.close()
    wait_until(lambda: len(manager.stored_extents() - inodes) == 4, "what is ready has their place")
    manager.restart(kill=True)
    assert "extents taken over from the daemon before: 4" in manager.stderr()


def rows(manager):
    with Client(manager.socket_path) as client:
        return {row["name"]: row for row in client.pools()}


@pytest.mark.parametrize("kill", [False, True], ids=["stopped", "killed"])
def test_a_pool_that_has_another_name_has_what_the_one_before_had(manage, kill):
    manager = manage((), f"{QUICK}[Pool old]\nTarget=64M\n")
    extent, other = take(manager, 10 * MIB), take(manager, 2 * MIB)
    (row, _) = manager.grants()
    manager.wait_full()
    (manager.kill if kill else manager.stop)()
    inodes = manager.stored_extents()
    configure(manager, "[Pool new]\nTarget=64M\n")
    manager.start()
    assert manager.stored_extents() == inodes
    again = next(again for again in manager.grants() if again["ino"] == row["ino"])
    assert [again[key] for key in ("grant_id", "uid", "pid", "bytes")] == [row[key] for key in ("grant_id", "uid", "pid", "bytes")]
    assert again["pool"] == "new" and again["age_ms"] >= row["age_ms"]
    pool = rows(manager)["new"]
    assert (pool["granted_bytes"], pool["ready_bytes"], pool["zeroed_bytes_total"]) == (12 * MIB, 52 * MIB, 0)
    assert charged_bytes(manager) == 12 * MIB
    assert "of use to none and back with the kernel: 0" in manager.stderr()
    manager.restart(kill)
    assert manager.stored_extents() == inodes and manager.stderr().count("in other pools now") == 1
    inode = pages.inode(extent.fd)
    extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == 62 * MIB, "the memory is back")
    assert inode in manager.stored_extents(), "it was cleared in place"
    other.close()


@pytest.mark.parametrize("before, after", [(2, 4), (4, 2), (2, None), (None, 4)])
def test_what_clients_hold_of_a_pool_that_has_other_extents_now_is_known_and_goes_when_it_comes_back(manage, before, after):
    def pool(size):
        return f"[Pool p]\nTarget=32M\nExtentSize={'auto' if size is None else f'{size}M'}\n"

    manager = manage((), QUICK + pool(before))
    extent = take(manager, (before or 6) * MIB)
    inode = pages.inode(extent.fd)
    (row,) = manager.grants()
    manager.wait_full()
    manager.stop()
    configure(manager, pool(after))
    manager.start()
    (again,) = manager.grants()
    assert (again["grant_id"], again["ino"]) == (row["grant_id"], row["ino"]) and charged_bytes(manager) == extent.bytes
    assert ("pools have changed since the daemon before" in manager.stderr()) == (after is not None)
    manager.wait_pool(lambda pool: 32 * MIB - pool["ready_bytes"] - pool["granted_bytes"] < (after or 2) * MIB, "the pool is full")
    manager.restart(kill=True)  # as it was
    assert [row["ino"] for row in manager.grants()] == [again["ino"]] and manager.stderr().count("pools have changed") == (after is not None)
    extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == 32 * MIB, "the pool is full again")
    wait_until(lambda: charged_bytes(manager) == 0, "the charge has ended")
    assert (inode in manager.stored_extents()) == (after is None), "what does not fit is dropped"


def test_what_clients_hold_is_known_although_no_pool_has_such_pages_any_more(manage):
    pages.need_pages(0, pages.PAGE_1G)
    manager = manage((), f"{QUICK}[Pool old]\nTarget=32M\n")
    n_free = pages.count("free")
    extent = take(manager, 4 * MIB)
    manager.wait_full()
    configure(manager, "[Pool huge]\nPageSize=1G\nTarget=0\n")
    for kill in False, True:
        manager.restart(kill)
        (row,) = manager.grants()
        assert row["pool"] == "old" and row["bytes"] == 4 * MIB and charged_bytes(manager) == 4 * MIB
        assert rows(manager)["old"]["granted_bytes"] == 4 * MIB and rows(manager)["old"]["target_bytes"] == 0
        with Client(manager.socket_path) as client, pytest.raises(OSError):
            client.acquire([Item(bytes=2 * MIB, page_size=pages.PAGE_2M)])
    wait_until(lambda: len(manager.stored_extents()) == 1, "what was ready is with the kernel")
    extent.close()
    wait_until(lambda: rows(manager).keys() == {"huge"} and charged_bytes(manager) == 0, "nothing is left of it")
    wait_until(lambda: not manager.stored_extents(), "nothing is stored")
    wait_until(lambda: pages.count("free") >= n_free + 16 or pages.users(), "no page is lost")


def test_a_manager_that_keeps_nothing_is_no_problem(manage):
    manager = manage()
    manager.keeps = False
    manager.kill()
    for name in {name for name, _ in manager.store}:
        manager.drop(name)
    manager.start()
    manager.wait_full()


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
    manager = manage([POOL, ], config=QUICK + "AffinityTimeout=1s\nAuditRate=1G\n")
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
        manager.restart(kill=True)
    for extent, memory, pattern in held:
        assert memory[:].count(pattern) == extent.bytes, "a holder's byte was changed"
        memory.close()
        extent.close()
    manager.wait_pool(lambda pool: pool["ready_bytes"] == pool["target_bytes"], "all memory is back")
    wait_until(lambda: len(manager.stored_extents()) == manager.pool()["n_extents_ready"], "the store has what is ready, and no more")
    wait_until(lambda: pages.count("free") + 32 >= free_before or pages.users(), "no page is lost")
