# SPDX-License-Identifier: LGPL-2.1-or-later
"""Clearing what came back: by which method, at what pace, for whom at once; and the audit of what is ready."""

import ctypes
import json
import os
import pathlib
import re
import time

import pytest
from harness import holder, hostile, wait_until
from harness.daemon import DaemonFailed, need_measuring
from harness.pages import GIB, MIB, hugetlb_files, need_pages, punch
from hugezero_client import Client, Item, Refused

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
SLOW_FILL = "BackgroundRate=1M\nBatch=2M\n"  # 32 MiB take longer than any test waits


def pool(extent="8M", target="64M", low="0%"):
    """Half of it is taken in each test: with less ready than was asked for last a pool is below its low mark."""
    return f"[Pool p]\nPageSize=2M\nExtentSize={extent}\nTarget={target}\nLow={low}\n"


def is_all_back(row):
    return row["granted_bytes"] + row["returned_bytes"] == 0 and row["ready_bytes"] >= row["target_bytes"]


def wait_returned(daemon):
    daemon.wait_pool(is_all_back, "everything came back and is ready again")


def soil(child, daemon, n_bytes):
    """Takes, fills and lets go of memory; returns its inodes."""
    extents = child.call(holder.acquire, daemon.socket_path, n_bytes, several=True)
    child.call(holder.fill)
    child.call(holder.drop)
    return {extent.inode for extent in extents}


def methods(start_daemon):
    """Those that this machine has, as the daemon lists them when it is given another."""
    with pytest.raises(DaemonFailed) as failure:
        start_daemon(config="ClearMethod=magic\n")
    assert failure.value.code == 1
    match = re.search(r"ClearMethod=: value \"magic\": no such method; .*machine has: ([\w, -]+)$", failure.value.stderr, re.MULTILINE)
    assert match, failure.value.stderr
    return match[1].split(", ")


# The method


def test_an_unknown_method_is_refused_with_a_list_of_the_known_ones(start_daemon):
    known = methods(start_daemon)
    assert known[:2] == ["memset", "generic"]
    assert len(set(known)) == len(known) > 2


def wait_line(daemon):
    """What the daemon says of a node when it has learnt what it can."""
    (line,) = wait_until(lambda: [line for line in daemon.stderr().splitlines() if "; clears, as " in line], "it says how it clears")
    return line


def test_what_small_memory_could_not_tell_is_measured_on_larger_memory(start_daemon, start_child):
    """Whichever pool is filled first: its slices may be too short to say what the others' are cleared with best."""
    need_pages(160)
    # What was filled while another thread was measuring has its turn when it is idle
    daemon = start_daemon(pools=["2M:2M:64M", "2M:128M:256M"], config=f"AuditRate=1G\n{QUICK}")
    need_measuring(daemon.build)
    measured = r"; clears, as measured in (\d+) ms, 2 MiB: (\S+) [\d.]+ GB/s.*; 32 MiB: \S+ [\d.]+ GB/s.*; 128 MiB: "
    line = wait_line(daemon)
    assert re.search(measured, line), "pages and batches were measured"
    assert int(re.search(measured, line)[1]) <= 310, "the budget is that of the node"


def test_memory_is_zero_after_each_method_and_it_is_the_same_memory(start_daemon, start_child):
    need_pages(64)
    for method in methods(start_daemon):
        daemon = start_daemon(pools=["2M:16M:16M"], config=f"ClearMethod={method}\nBatch=6M\n{QUICK}")
        daemon.wait_full()
        assert {row["clear_method"] for row in daemon.pools()} == {method}
        child = start_child()
        soiled = soil(child, daemon, 16 * MIB)
        wait_returned(daemon)
        (extent,) = child.call(holder.acquire, daemon.socket_path, 16 * MIB)
        assert {extent.inode} == soiled, "it was not cleared but exchanged"
        assert child.call(holder.is_zero), method
        assert daemon.status()["scrubbed_bytes_total"] == 16 * MIB
        child.kill()
        daemon.stop()


def wait_measured(daemon):
    return wait_until(lambda: all(row["clear_method"] for row in daemon.pools()) and daemon.pools(), "the methods were measured")


def threads(text):
    """What is said of a node's threads, as a set."""
    return set(re.findall(r"(fills|scrubs) by (1 thread|(?:up to )?\d+(?: of \d+)? threads)\b", text))



@pytest.mark.parametrize("spec", ["2M:auto:256M", "2M:16M:256M", "2M:2M:64M"])
def test_methods_are_measured_once_on_each_node_and_the_choice_is_shown(start_daemon, start_child, spec):
    need_pages(256)
    known = methods(start_daemon)
    daemon = start_daemon(pools=[spec], config=QUICK)
    need_measuring(daemon.build)
    rows = wait_measured(daemon)
    assert {row["clear_method"] for row in rows} <= set(known)
    daemon.wait_full()
    # Whatever was filled for measuring only is gone
    for row in daemon.pools():
        assert row["extent_bytes"] == 0 or row["n_extents_ready"] * row["extent_bytes"] == row["ready_bytes"] == row["target_bytes"]
    child = start_child()
    soil(child, daemon, 16 * MIB)
    wait_returned(daemon)
    child.call(holder.acquire, daemon.socket_path, 16 * MIB, several=True)
    assert child.call(holder.is_zero)
    line = wait_line(daemon)
    (number, method), = re.findall(r"node (\d+): fills by [^;]*; clears, as measured in \d+ ms, 2 MiB: (\S+) ", line)
    assert {int(number)} == {row["node"] for row in rows} and method in known
    # What is learnt later still is not told again, but shown
    told = {text for text in threads(line) if "up to" not in text[1]}
    wait_until(lambda: told <= threads(daemon.control("status").stdout) == threads(daemon.control("doctor").stdout), "log and tools agree")
    wait_line(daemon)
    answer = daemon.control("status")
    for row in rows:
        assert row["n_workers"] >= row["n_scrub_threads"] >= 0
        assert re.search(rf"node {row['node']}: clears by {row['clear_method']} \([\d.]+ GB/s(, leaves \d+ % of a warm cache)?\), fills by ", answer.stdout)
    answer = daemon.control("doctor")
    for row in rows:
        assert re.search(rf"clearing: node {row['node']}: by {row['clear_method']} \([\d.]+ GB/s.*\); fills by ", answer.stdout)
    (shown,) = json.loads(daemon.control("status", "--json").stdout)["pools"]
    assert shown["clear_gb_per_s"] == row["clear_speed"] / 10 > 0
    assert shown["clear_survival_percent"] == (None if row["clear_survival"] == 65535 else row["clear_survival"])


def test_threads_are_measured_with_a_configured_method_too(start_daemon):
    need_pages(32)
    # On a machine that is busy just now further attempts follow while memory is idle
    daemon = start_daemon(pools=["2M:2M:64M"], config=f"ClearMethod=generic\nAuditRate=1G\n{QUICK}")
    need_measuring(daemon.build)
    if daemon.pools()[0]["n_workers"] == 1:
        pytest.skip("cannot: one worker has no choice")
    daemon.wait_full()
    daemon.wait_pool(lambda row: row["n_scrub_threads"] in (1, 2), "they were measured")
    assert re.search(r"scrubs by (\d of \d+ threads \([\d.]+ GB/s, .*|up to \d+ threads, not measured yet); clears, as configured, by generic$", wait_line(daemon))


def test_each_pool_of_a_node_is_told_its_own_method(start_daemon):
    """A small and a large one may well have the same: then it is told once."""
    need_pages(96)
    daemon = start_daemon(pools=["2M:2M:64M", "2M:64M:128M"])
    need_measuring(daemon.build)
    wait_measured(daemon)

    def is_told():
        rows = sorted(daemon.pools(), key=lambda row: row["name"])
        if len({(row["clear_method"], row["clear_speed"]) for row in rows}) == 1:
            expected = rf"{rows[0]['clear_method']} \([^)]*\)"
        else:
            expected = ", ".join(rf"{row['clear_method']} \([\d.]+ GB/s, [^)]*{row['name']}\)" for row in rows)
        texts = rf": clears by {expected}, fills by ", rf": by {expected}; fills by "
        return all(re.search(text, daemon.control(verb).stdout) for text, verb in zip(texts, ("status", "doctor")))

    wait_until(is_told, "status and doctor tell what was measured last")


def test_a_client_that_comes_while_methods_are_measured_gets_its_memory(start_daemon, start_child):
    need_pages(256)
    for _ in range(5):
        daemon = start_daemon(pools=["2M:auto:256M"])
        child = start_child()
        child.call(holder.acquire, daemon.socket_path, 64 * MIB, on_miss="fill")
        assert child.call(holder.is_zero)
        child.kill()
        daemon.stop()


def worker_faults(pid):
    """How many pages each worker thread has populated, and some for its own stack."""
    tasks = [path for path in pathlib.Path(f"/proc/{pid}/task").iterdir() if re.fullmatch(r"hz-\d+/\d+\n", (path / "comm").read_text())]
    return [int((path / "stat").read_text().rpartition(")")[2].split()[7]) for path in tasks]


def test_a_fill_that_a_client_waits_for_is_split_over_the_workers(start_daemon, start_child):
    need_pages(256)
    thief, child = start_child(), start_child()
    thief.call(hostile.reserve_pages)
    daemon = start_daemon(pools=["2M:auto:512M"], config=f"WorkersPerNode=2\nBatch=2M\nClearMethod=memset\nAuditRate=0\n{QUICK}")
    thief.kill()
    (extent,) = child.call(holder.acquire, daemon.socket_path, 512 * MIB, on_miss="fill")
    assert extent.bytes == 512 * MIB
    *_, fewer, more = sorted(worker_faults(daemon.pid))
    assert 10 < fewer <= more and fewer + more >= 256, (fewer, more)


# The pace


def test_a_pool_becomes_full_for_the_first_time_without_a_pace(start_daemon):
    need_pages(64)
    daemon = start_daemon(config=SLOW_FILL + pool())
    daemon.wait_full()  # in a minute, at that pace


def test_clearing_in_the_background_keeps_its_pace(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(config=f"BackgroundRate=32M\nBatch=2M\n{QUICK}{pool()}")
    daemon.wait_full()
    child = start_child()
    start_s = time.monotonic()
    soiled = soil(child, daemon, 32 * MIB)
    wait_returned(daemon)
    # 16 slices of a sixteenth of a second, of which the last one is not waited for; that it takes longer proves nothing
    assert time.monotonic() - start_s >= 0.9, "the pace was not kept"
    assert daemon.pool()["paced_wait_ms"] == 0, "nobody waited"
    extents = child.call(holder.acquire, daemon.socket_path, 32 * MIB, several=True)
    assert {extent.inode for extent in extents} == soiled
    assert child.call(holder.is_zero)


@pytest.mark.parametrize("recycle", ["same-service", "never"])
def test_a_client_that_waits_is_not_kept_waiting_by_the_pace(start_daemon, start_child, recycle):
    need_pages(64)
    daemon = start_daemon(config=f"{SLOW_FILL}Recycle={recycle}\n{QUICK}{pool()}")
    daemon.wait_full()
    child = start_child()
    soil(child, daemon, 32 * MIB)
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0 and row["ready_bytes"] < 64 * MIB, "the memory came back")
    child.call(holder.acquire, daemon.socket_path, 64 * MIB, on_miss="wait", timeout_ms=20000, several=True)
    assert child.call(holder.is_zero)


def test_the_time_that_a_client_waits_for_paced_work_is_counted(start_daemon, start_child):
    need_pages(64)
    # All of it takes 8 s at that pace; and 10 ms without, by a slow method
    daemon = start_daemon(config=f"BackgroundRate=8M\nBatch=2M\nClearMethod=generic\n{QUICK}{pool(target='128M')}")
    daemon.wait_full()
    child = start_child()
    soil(child, daemon, 64 * MIB)
    daemon.wait_pool(lambda row: row["ready_bytes"] == (64 + 8) * MIB, "the first extent was cleared, and the others wait for their turn")
    assert daemon.pool()["paced_wait_ms"] == 0
    child.call(holder.acquire, daemon.socket_path, 128 * MIB, on_miss="wait", timeout_ms=20000, several=True)
    assert child.call(holder.is_zero)
    (row,) = [row for row in daemon.pools() if row["granted_bytes"]]
    assert 0 < row["paced_wait_ms"] < 8000
    assert json.loads(daemon.control("status", "--json").stdout)["pools"][0]["paced_wait_ms"] >= 0


@pytest.mark.once
def test_the_time_that_a_refused_client_lacks_paced_memory_is_counted(start_daemon, start_child):
    need_pages(64)
    # A second for each extent
    daemon = start_daemon(config=f"BackgroundRate=8M\nBatch=2M\nClearMethod=generic\n{QUICK}{pool(target='128M')}")
    daemon.wait_full()
    child = start_child()
    soil(child, daemon, 64 * MIB)
    daemon.wait_pool(lambda row: row["ready_bytes"] == (64 + 8) * MIB, "the first extent was cleared, and the others wait for their turn")
    assert daemon.pool()["paced_wait_ms"] == 0
    start_s = time.monotonic()
    with Client(daemon.socket_path) as client:
        with pytest.raises(Refused):
            client.acquire([Item(80 * MIB, several=True)], on_miss="fail")
        daemon.wait_pool(lambda row: row["ready_bytes"] >= 80 * MIB, "what was asked for is ready")
    # The clock stands, though others are cleared still
    passed_ms = (time.monotonic() - start_s) * 1000
    row = daemon.wait_pool(lambda row: row["ready_bytes"] >= 88 * MIB, "and more")
    assert passed_ms / 2 < row["paced_wait_ms"] <= passed_ms + 1


def test_memory_below_the_low_mark_is_cleared_without_a_pace(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(config=f"{SLOW_FILL}{QUICK}{pool(low='100%')}")
    daemon.wait_full()
    soil(start_child(), daemon, 32 * MIB)
    wait_returned(daemon)


def test_what_comes_back_at_once_is_cleared_without_a_pace_up_to_the_low_mark_only(start_daemon, start_child):
    need_pages(64)
    # One extent takes 8 s at that pace
    daemon = start_daemon(config=f"BackgroundRate=1M\nBatch=2M\nWorkersPerNode=1\nClearMethod=memset\n{QUICK}{pool(extent='8M', low='25%')}")
    daemon.wait_full()
    child = start_child()
    for name in range(8):
        child.call(holder.acquire, daemon.socket_path, 8 * MIB, name)
    child.kill()
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0 and row["ready_bytes"] >= 16 * MIB, "a quarter is ready")
    # In a hurry again when less than the mark is ready
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 16 * MIB, several=True)
    daemon.wait_pool(lambda row: row["ready_bytes"] >= 16 * MIB, "a quarter is ready again")
    assert child.call(holder.is_zero)
    assert daemon.pool()["ready_bytes"] <= 24 * MIB, "memory above the mark was cleared without a pace"


def test_what_was_filled_for_measuring_is_replaced_without_a_pace(start_daemon):
    need_pages(64)
    # 16 s at that pace; the first extents are too small to be measured on, so a larger one is filled for that, and dropped
    daemon = start_daemon(config=f"BackgroundRate=1M\nBatch=2M\nWorkersPerNode=1\n{QUICK}{pool(extent='16M', target='128M')}")
    daemon.wait_pool(lambda row: row["ready_bytes"] == 128 * MIB, "all is ready")


def test_above_the_low_mark_a_fill_goes_on_at_its_pace(start_daemon, start_child):
    need_pages(128)
    daemon = start_daemon(config=f"{SLOW_FILL}Recycle=never\n{QUICK}{pool(extent='auto', low='51%')}")
    daemon.wait_full()
    child = start_child()
    for name in "ab":
        child.call(holder.acquire, daemon.socket_path, 32 * MIB, name, on_miss="fill")
    for name in "ab":
        child.call(holder.drop, name)
    # The first half is below the mark, the last MiB of the mark is in the second one
    row = daemon.wait_pool(lambda row: row["granted_bytes"] == 0 and row["ready_bytes"] == 32 * MIB, "half of it is ready")
    assert row["filling_bytes"] + row["returned_bytes"] >= 32 * MIB, "the rest was filled without a pace"
    child.call(holder.acquire, daemon.socket_path, 64 * MIB, on_miss="wait", timeout_ms=20000, several=True)
    assert child.call(holder.is_zero)


def test_another_pace_counts_from_the_reload_on(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(config=f"BackgroundRate=1M\nBatch=32M\n{QUICK}{pool(extent='32M', target='128M')}")
    daemon.wait_full()
    soil(start_child(), daemon, 64 * MIB)
    daemon.wait_pool(lambda row: row["ready_bytes"] == 96 * MIB, "one extent was cleared, and the other waits for half a minute")
    path = daemon.folder / "hugezerod.conf"
    path.write_text(path.read_text().replace("BackgroundRate=1M", "BackgroundRate=infinity"))
    assert daemon.control("reload").returncode == 0
    wait_returned(daemon)


# The audit


def mapping_of(pid, inode):
    """Where a process has a hugetlb file mapped, as (start, end)."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        addresses, _, _, _, number = line.split()[:5]
        if int(number) == inode[1] and "memfd:" in line:
            return tuple(int(addr, 16) for addr in addresses.split("-"))
    raise AssertionError(f"{inode} is not mapped in {pid}")


def write_memory(pid, addr, data):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(addr)
        memory.write(data)


@pytest.mark.large
def test_the_audit_finds_a_byte_that_somebody_wrote(start_daemon, start_child):
    if os.geteuid() != 0:
        pytest.skip("only root can write into the daemon's memory")
    need_pages(512 + 64)
    daemon = start_daemon(pools=["2M:1G:1G"], config=f"AuditRate=1G\n{QUICK}")
    daemon.wait_full()
    ((inode, _),) = hugetlb_files(daemon.pid).items()
    start, end = mapping_of(daemon.pid, inode)
    assert end - start == GIB
    offset = 700 * MIB + 12345
    write_memory(daemon.pid, start + offset, b"\x01")
    wait_until(lambda: any(row["n_audit_errors"] for row in daemon.pools()), "the audit found it")
    assert re.search(rf"error: pool pool0, node \d+: byte {offset} of a ready extent of 1 GiB \(inode {inode[1]}\) is not zero", daemon.stderr())
    daemon.wait_full()
    child = start_child()
    (extent,) = child.call(holder.acquire, daemon.socket_path, GIB)
    assert extent.inode != inode
    assert child.call(holder.is_zero)
    row = daemon.pool()
    assert row["n_audit_errors"] == 1
    assert row["audited_bytes_total"] >= 0
    answer = daemon.control("doctor")
    assert answer.returncode == 1
    assert "PROBLEM  audit: pool pool0" in answer.stdout


def test_the_audit_reads_all_that_is_ready_and_breaks_no_grant(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:4M:32M", "2M:auto:32M"], config=f"AuditRate=1G\n{QUICK}")
    daemon.wait_full()
    wait_until(lambda: all(row["audited_bytes_total"] > row["ready_bytes"] for row in daemon.pools()), "all was read more than once")
    child = start_child()
    for _ in range(8):
        # All there is, at once, the extent that is being read included
        child.call(holder.acquire, daemon.socket_path, 32 * MIB, "fixed", pool="pool0", several=True)
        child.call(holder.acquire, daemon.socket_path, 32 * MIB, "auto", pool="pool1", several=True)
        assert child.call(holder.is_zero, "fixed") and child.call(holder.is_zero, "auto")
        child.call(holder.drop, "fixed")
        child.call(holder.drop, "auto")
        wait_until(lambda: all(map(is_all_back, daemon.pools())), "everything came back")
    assert all(row["n_audit_errors"] == 0 for row in daemon.pools())


def take_description(daemon, inode):
    """The daemon's own description of a file, so that no event tells of it."""
    pidfd = os.pidfd_open(daemon.pid)
    number = next(int(path.name) for path in pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir() if path.stat().st_ino == inode[1])
    own = ctypes.CDLL(None, use_errno=True).syscall(438, pidfd, number, 0)  # pidfd_getfd
    os.close(pidfd)
    assert own >= 0, os.strerror(ctypes.get_errno())
    return own


def test_memory_that_vanishes_while_it_is_cleared_is_given_up_and_nothing_else(start_daemon, start_child):
    if os.geteuid() != 0:
        pytest.skip("only root gets at the daemon's descriptors")
    need_pages(64)
    # Two seconds for each page of the extent, of which the last one is punched meanwhile: touching it is SIGBUS
    daemon = start_daemon(config=f"{SLOW_FILL}ClearMethod=generic\nAuditRate=0\n{QUICK}{pool()}")
    daemon.wait_full()
    child, thief = start_child(), start_child()
    child.call(holder.acquire, daemon.socket_path, 8 * MIB, "kept")
    child.call(holder.fill, "kept")
    (inode,) = soil(child, daemon, 8 * MIB)
    own = take_description(daemon, inode)
    wait_until(lambda: os.pread(own, 1, MIB) == b"\0", "the first page was cleared, and all of them had been there")
    assert os.pread(own, 1, 7 * MIB) != b"\0"
    punch(own, 6 * MIB, 2 * MIB)
    os.close(own)
    thief.call(hostile.reserve_pages)
    path = daemon.folder / "hugezerod.conf"
    path.write_text(path.read_text().replace("BackgroundRate=1M", "BackgroundRate=infinity"))
    assert daemon.control("reload").returncode == 0
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the extent was given up")
    assert "pages of it were missing and could not be had back" in daemon.stderr()
    thief.kill()
    assert child.call(holder.is_filled_with, "kept")
    daemon.wait_full()
    child.call(holder.acquire, daemon.socket_path, 56 * MIB, "rest", several=True)
    assert child.call(holder.is_zero, "rest")


def test_a_hole_in_what_is_ready_is_a_loss(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root gets at the daemon's descriptors")
    need_pages(64)
    daemon = start_daemon(pools=["2M:auto:16M"], config=f"AuditRate=1G\n{QUICK}")
    daemon.wait_full()
    own = take_description(daemon, next(iter(hugetlb_files(daemon.pid))))
    punch(own, 0, 2 * MIB)
    os.close(own)
    wait_until(lambda: re.search(r"a ready extent of \S+ MiB goes back to the kernel: pages of it are missing", daemon.stderr()), "it is said")
    assert daemon.status()["n_doubts"] == 1
    daemon.wait_full()


def test_a_ready_extent_that_root_opened_is_given_up_with_a_word(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root gets at the daemon's descriptors")
    need_pages(64)
    daemon = start_daemon(pools=["2M:auto:16M"], config=f"AuditRate=0\n{QUICK}")
    daemon.wait_full()
    inode = next(iter(hugetlb_files(daemon.pid)))
    path = next(path for path in pathlib.Path(f"/proc/{daemon.pid}/fd").iterdir() if path.stat().st_ino == inode[1])
    os.close(os.open(path, os.O_RDONLY))
    wait_until(lambda: "that nobody had goes back to the kernel, not into the pool: somebody opened it by himself" in daemon.stderr(), "it is said")
    daemon.wait_full()


def is_in_idle_class(pid):
    for path in pathlib.Path(f"/proc/{pid}/task").iterdir():
        if os.sched_getscheduler(int(path.name)) == os.SCHED_IDLE:
            return True
    return False


def test_the_audit_reads_in_the_idle_class(start_daemon):
    if os.geteuid() != 0 or os.sched_getscheduler(0) != os.SCHED_OTHER:
        pytest.skip("a thread of the daemon's could not leave the idle class again, so it is not used")
    need_pages(64)
    daemon = start_daemon(pools=["2M:auto:128M"], config="AuditRate=1G\n")
    daemon.wait_full()
    assert "idle scheduling class" not in daemon.stderr()
    # Nothing else is to be done: reading is a tenth of its time
    wait_until(lambda: any(is_in_idle_class(daemon.pid) for _ in range(100)), "a thread is in the idle class")


def test_a_daemon_that_may_not_leave_the_idle_class_says_so(start_daemon):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_daemon(pools=["2M:auto:8M"], uid=65534, wrapper=["prlimit", "--nice=0"])
    assert len(re.findall("do not use the idle scheduling class", daemon.stderr())) == 1


def test_a_round_of_the_audit_reads_nothing_twice(start_daemon):
    need_pages(16)
    daemon = start_daemon(config=f"AuditRate=0\n{pool(extent='4M', target='32M')}")
    daemon.wait_full()
    path = daemon.folder / "hugezerod.conf"
    path.write_text(path.read_text().replace("AuditRate=0", "AuditRate=16M"))
    assert daemon.control("reload").returncode == 0
    assert daemon.wait_pool(lambda row: row["audited_bytes_total"] >= 32 * MIB, "all was read")["audited_bytes_total"] == 32 * MIB
    assert daemon.pool()["audited_bytes_total"] == 32 * MIB


def test_a_round_of_the_audit_reads_what_its_rate_allows(start_daemon):
    need_pages(16)
    # A round a minute: 3.75 MiB, in slices of 2 MiB
    daemon = start_daemon(config=f"AuditRate=64k\n{pool(extent='4M', target='32M')}")
    daemon.wait_full()
    daemon.wait_pool(lambda row: row["audited_bytes_total"] >= 4 * MIB, "the first round has ended")
    time.sleep(0.5)  # more would follow at once
    assert daemon.pool()["audited_bytes_total"] == 4 * MIB


@pytest.mark.once
def test_what_is_audited_is_in_the_books_as_ready(start_daemon):
    need_pages(64)
    daemon = start_daemon(pools=["2M:32M:32M"], config="AuditRate=1G\n")
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        while sum(row["audited_bytes_total"] for row in client.pools()) < 40 * MIB:  # more than once
            for row in client.pools():
                assert row["ready_bytes"] == row["largest_ready_bytes"] == 32 * MIB
                assert row["n_extents_ready"] == 1


@pytest.mark.once
def test_who_comes_while_the_best_place_is_audited_waits_for_it(start_daemon):
    """A node that is preferred would be left in the same way."""
    need_pages(32)
    daemon = start_daemon(pools=["2M:8M:8M", "2M:auto:32M"], config=f"AuditRate=1G\nAffinityTimeout=0s\n{QUICK}")
    places = set()
    with Client(daemon.socket_path) as client:
        for _ in range(60):
            wait_until(lambda: all(map(is_all_back, client.pools())), "everything came back")
            with client.acquire([Item(8 * MIB)]):
                places |= {row["pool"] for row in client.grants()}
    assert places == {"pool0"}


def switches(pid):
    """How often its threads went to sleep; to ask the daemon itself would wake it."""
    status = (path.read_text() for path in pathlib.Path(f"/proc/{pid}/task").glob("*/status"))
    return sum(int(n) for text in status for n in re.findall(r"^voluntary_ctxt_switches:\s*(\d+)", text, re.MULTILINE))


@pytest.mark.once
def test_an_idle_daemon_sleeps_though_it_audits(start_daemon):
    need_pages(32)
    daemon = start_daemon(pools=["2M:auto:64M"])
    daemon.wait_full()
    wait_until(lambda: daemon.pool()["audited_bytes_total"] > 0, "the first round has begun")

    def sleeps():
        before = switches(daemon.pid)
        time.sleep(2)  # what is looked at is a time
        return switches(daemon.pid) == before

    wait_until(sleeps, "nothing wakes it for two seconds")


@pytest.mark.once
def test_an_idle_daemon_wakes_up_for_sweep_and_audit_together(start_daemon):
    need_pages(32)
    daemon = start_daemon(pools=["2M:auto:64M"], config="SweepInterval=1s\nAuditRate=512M\n")  # 1 GiB is due every two seconds
    daemon.wait_full()
    wait_until(lambda: daemon.pool()["audited_bytes_total"] > 0, "the first round has begun")
    time.sleep(1)
    n_read, n_wakeups, last, quiet, end = daemon.pool()["audited_bytes_total"], 0, switches(daemon.pid), True, time.monotonic() + 6
    while time.monotonic() < end:  # what is looked at are times
        time.sleep(0.05)
        now = switches(daemon.pid)
        n_wakeups += quiet and now != last
        last, quiet = now, now == last
    assert daemon.pool()["audited_bytes_total"] - n_read >= 2 * 64 * MIB
    assert n_wakeups <= 7


def test_no_audit_reads_anything_when_it_is_turned_off(start_daemon, start_child):
    need_pages(64)
    daemon = start_daemon(pools=["2M:16M:16M"], config=f"AuditRate=0\n{QUICK}")
    daemon.wait_full()
    child = start_child()
    for _ in range(5):
        soil(child, daemon, 16 * MIB)
        wait_returned(daemon)
    assert daemon.pool()["audited_bytes_total"] == 0
