# SPDX-License-Identifier: LGPL-2.1-or-later
"""Sizes that are not whole, cuts large enough for a worker, and what becomes of the books after them."""

import errno
import fcntl
import os
import subprocess

import pytest
from harness import pages, wait_until
from harness.daemon import daemon_command, sanitizer_environment
from hugezero_client import Client, Item, Refused

MIB = 1 << 20


def test_sizes_that_are_no_whole_pages_are_rounded_up_and_do_not_spoil_later_fills(start_daemon):
    pages.need_pages(64)
    daemon = start_daemon(pools=["2M:auto:128M"], config="ReleaseGrace=50ms\nAffinityTimeout=0\n")
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        for n_bytes in 1, 5 * MIB + 3, 33 * MIB - 1:
            with client.acquire([Item(bytes=n_bytes)], on_miss="wait", timeout_ms=10000) as grant:
                assert grant.extents[0].bytes == -(-n_bytes // (2 * MIB)) * 2 * MIB
        daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again, filled by what was asked for")
    assert "failed" not in daemon.stderr()


def test_many_small_requests_do_not_cost_a_full_pool_its_memory(start_daemon):
    """Nobody has asked for such a size before. Nearly all that is ready stays so."""
    pages.need_pages(128)
    daemon = start_daemon(pools=["2M:auto:256M"])
    daemon.wait_full()
    before = daemon.pool()["zeroed_bytes_total"]
    with Client(daemon.socket_path) as client:
        grants = [client.acquire([Item(bytes=2 * MIB)]) for _ in range(40)]
        row = daemon.wait_pool(lambda row: row["ready_bytes"] == 176 * MIB, "the pool is full again")
        assert row["zeroed_bytes_total"] - before <= 2 * 80 * MIB
        for grant in grants:
            grant.close()


def test_a_tail_of_more_than_a_gib_is_cut_off_and_counted(start_daemon):
    pages.need_pages(1024)
    daemon = start_daemon(pools=["2M:auto:2G"], config="ReleaseGrace=50ms\nAffinityTimeout=0\n")
    with Client(daemon.socket_path) as client:
        # Asked for once, the size is in stock the next time: one extent of 2 GiB
        client.acquire([Item(bytes=2048 * MIB)], on_miss="wait", timeout_ms=60000).close()
        daemon.wait_pool(lambda row: row["largest_ready_bytes"] == 2048 * MIB, "one extent of 2 GiB is ready")
        grant = client.acquire([Item(bytes=6 * MIB)])
        row = daemon.pool()
        assert row["granted_bytes"] == 6 * MIB and row["n_cut"] == 1
        assert grant.extents[0].bytes == 6 * MIB
        daemon.wait_pool(lambda row: row["ready_bytes"] + row["granted_bytes"] == row["target_bytes"], "the tail is filled again")
        grant.close()


def test_a_reopenable_extent_is_renewed_even_when_nobody_reopened_it(start_daemon):
    pages.need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config="ReleaseGrace=50ms\nSocketGroup=root\n")
    daemon.wait_full()
    with Client(daemon.socket_path) as client:
        inodes = set()
        for _ in range(3):
            with client.acquire([Item(bytes=2 * MIB, reopenable=True)], on_miss="wait", timeout_ms=10000) as grant:
                inodes.add(pages.inode(grant.extents[0].fd))
            daemon.wait_pool(lambda row: row["ready_bytes"] == row["target_bytes"], "the pool is full again")
        assert len(inodes) == 3
        assert daemon.status()["scrubbed_bytes_total"] == 0


def test_a_pool_that_needs_more_descriptors_than_there_are_stops_says_so_once_and_serves(build, tmp_path):
    pages.need_pages(128)
    path, log = str(tmp_path / "socket"), tmp_path / "log"
    command = ["prlimit", "--nofile=100:100", *daemon_command(build), "--socket", path, "--pool", "2M:2M:256M"]
    with open(log, "w") as stderr, subprocess.Popen(command, stderr=stderr, env=dict(os.environ, **sanitizer_environment(None))) as daemon:
        try:
            wait_until(lambda: "limit of open files" in log.read_text(), "the daemon says why it stops")
            with Client(path) as client:
                for _ in range(5):  # what comes back changes nothing
                    client.acquire([Item(bytes=2 * MIB)], on_miss="wait", timeout_ms=10000).close()
                (row,) = client.pools()
                assert 10 <= row["n_extents_ready"] < 75  # some of them may be on their way back
        finally:
            daemon.terminate()
    lines = log.read_text().splitlines()
    assert daemon.returncode == 0 and len(lines) <= 5, lines
    assert sum("limit of open files" in line for line in lines) == 1


def test_a_target_beyond_any_machine_is_refused(start_daemon):
    pages.need_pages(1)
    daemon = start_daemon(pools=["2M:auto:2M"])
    with Client(daemon.socket_path) as client, pytest.raises(Refused) as refused:
        client.resize((1 << 64) - 2 * MIB)
    assert refused.value.errno == errno.EINVAL
    assert daemon.pool()["target_bytes"] == 2 * MIB


@pytest.mark.parametrize("program", ["daemon/hugezerod", "systemd/hugezero-reserve"])
def test_a_configuration_that_never_ends_is_refused(build, tmp_path, program):
    os.mkfifo(tmp_path / "fifo")
    for path in tmp_path / "fifo", tmp_path, "/dev/zero":
        result = subprocess.run([build / program, "--check-config", "--config", path], capture_output=True, text=True, timeout=20, check=False)
        assert result.returncode == 1 and "no regular file" in result.stderr, result


@pytest.mark.parametrize("program", ["daemon/hugezerod", "systemd/hugezero-reserve"])
def test_drop_ins_are_found_whatever_their_folder_is_called(build, tmp_path, program):
    (tmp_path / "x[1].conf.d").mkdir()
    (tmp_path / "x[1].conf").write_text("")
    (tmp_path / "x[1].conf.d" / "wrong.conf").write_text("nonsense\n")
    command = [build / program, "--check-config", "--config", tmp_path / "x[1].conf"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert result.returncode == 1 and "wrong.conf:1" in result.stderr, result


def test_who_locks_the_kernels_folder_keeps_pages_from_nobody(build, tmp_path):
    (tmp_path / "empty.conf").write_text("")
    folder = os.open("/sys/kernel/mm/hugepages", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(folder, fcntl.LOCK_EX)
    command = [build / "systemd" / "hugezero-reserve", "--config", tmp_path / "empty.conf"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    os.close(folder)
    assert result.returncode == 0 and "has locked /sys/kernel/mm/hugepages for 10 s; going on without it" in result.stderr, result


@pytest.mark.parametrize("output", [">&-", ">/dev/full"])
@pytest.mark.parametrize("program", ["daemon/hugezerod", "systemd/hugezero-reserve"])
def test_output_that_cannot_be_written_is_no_success(build, program, output):
    for option in "--help", "--version", "--check-config --config /dev/null":
        answer = subprocess.run(["sh", "-c", f"exec {build / program} {option} {output}"], stderr=subprocess.PIPE, text=True, timeout=20, check=False)
        assert answer.returncode == 1 and "standard output cannot be written" in answer.stderr, answer


def test_closed_standard_descriptors_are_not_handed_to_anything_else(start_daemon, build):
    pages.need_pages(2)
    daemon = start_daemon(pools=["2M:2M:4M"])
    daemon.wait_full()
    command = f"exec {build}/tools/hugezeroctl run --no-reopen --grant name=a,bytes=2M -- sh -c 'echo {{a.fd}} > {daemon.folder}/fd' <&- >&- 2>&-"
    subprocess.run(["sh", "-c", command], env=dict(os.environ, HUGEZERO_SOCKET=daemon.socket_path), check=True)
    assert int((daemon.folder / "fd").read_text()) > 2
