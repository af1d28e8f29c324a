# SPDX-License-Identifier: LGPL-2.1-or-later
"""libhugezero on a real daemon and real pages. What it says in detail, and to wrong daemons, is tested in suite unit."""

import errno
import os
import pathlib
import subprocess

import pytest

from harness import pages, wait_until

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
MIB, GIB = pages.MIB, pages.GIB
MAP_UNSHARED, WAIT, FILL = 0x1000, 0x200, 0x400  # of hugezero.h
ENOUGH_FAULTS = 8  # what a GiB may cost: one for its page table, some for the program itself


class Program:
    """library_program.c; each call writes a command and returns the answer."""

    def __init__(self, path, daemon):
        env = {**os.environ, "HUGEZERO_SOCKET": daemon.socket_path}
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)

    def start(self, *words):
        print(*words, file=self.process.stdin, flush=True)

    def result(self):
        line = self.process.stdout.readline()
        assert line, f"the program ended with {self.process.wait(10)}"
        return int(line)

    def __call__(self, *words):
        self.start(*words)
        return self.result()


@pytest.fixture(scope="module", name="program_path")
def fixture_program_path(build, tmp_path_factory):
    path = tmp_path_factory.mktemp("library") / "program"
    lib = build / "lib"
    command = ["gcc", "-O2", "-Wall", "-Wextra", "-Werror", f"-I{ROOT}/include", f"{ROOT}/tests/clients/library_program.c",
               f"-L{lib}", "-lhugezero", f"-Wl,-rpath,{lib}", "-o", str(path)]  # fmt: skip
    subprocess.run(command, check=True)
    return path


@pytest.fixture(name="start_program")
def fixture_start_program(program_path):
    programs = []

    def start(daemon):
        programs.append(Program(program_path, daemon))
        return programs[-1]

    yield start
    for program in programs:
        program.process.kill()
        program.process.communicate()


def maps_hugetlb(pid):
    return "/memfd:" in pathlib.Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.large
def test_a_gib_costs_a_handful_of_page_faults_and_leaves_the_daemons_address_space(start_daemon, start_program):
    pages.need_pages(512)
    daemon = start_daemon(pools=["2M:1G:1G"], config="UnmapAfter=1h")
    daemon.wait_full()
    assert maps_hugetlb(daemon.pid)
    program = start_program(daemon)
    assert 0 <= program("acquire", GIB, 0) <= ENOUGH_FAULTS
    assert maps_hugetlb(daemon.pid)
    assert program("notify") == 0
    wait_until(lambda: not maps_hugetlb(daemon.pid), "the daemon has unmapped what was reported as mapped")
    # The page tables stay the program's
    assert program("touch") <= ENOUGH_FAULTS
    assert program("check") == 1


@pytest.mark.large
def test_page_tables_are_not_shared_where_the_program_does_not_want_it(start_daemon, start_program):
    pages.need_pages(512)
    daemon = start_daemon(pools=["2M:1G:1G"])
    daemon.wait_full()
    assert start_program(daemon)("acquire", GIB, MAP_UNSHARED) >= 512


@pytest.mark.large
def test_one_call_is_as_cheap(start_daemon, start_program):
    pages.need_pages(512)
    daemon = start_daemon(pools=["2M:1G:1G"], config="UnmapAfter=1h\nReleaseGrace=50ms")
    daemon.wait_full()
    program = start_program(daemon)
    # The library's own code and stack are touched for the first time as well
    assert 0 <= program("alloc", GIB, 0) <= 4 * ENOUGH_FAULTS
    wait_until(lambda: not maps_hugetlb(daemon.pid), "the daemon has unmapped what was reported as mapped")
    assert program("check") == 1
    assert program("free") == 0
    daemon.wait_pool(lambda row: row["ready_bytes"] == GIB, "the memory came back")


def test_several_extents_are_one_range_and_all_of_it_comes_back(start_daemon, start_program):
    pages.need_pages(16)
    daemon = start_daemon(pools=["2M:4M:32M"], config="ReleaseGrace=50ms")
    daemon.wait_full()
    program = start_program(daemon)
    for _ in range(3):
        assert program("alloc", 13 * MIB, WAIT) >= 0
        assert daemon.status()["n_extents_granted"] == 4
        assert program("check") == 1
        assert program("free") == 0
        daemon.wait_pool(lambda row: row["ready_bytes"] == 32 * MIB, "the memory came back")


def test_an_allocation_waits_for_what_another_program_holds(start_daemon, start_program):
    pages.need_pages(8)
    daemon = start_daemon(pools=["2M:auto:16M"], config="ReleaseGrace=50ms")
    daemon.wait_full()
    first, second = start_program(daemon), start_program(daemon)
    assert first("alloc", 16 * MIB, 0) >= 0
    assert second("alloc", 16 * MIB, 0) == -errno.EAGAIN
    assert second("alloc", 16 * MIB, FILL) == -errno.ENOMEM
    second.start("alloc", 16 * MIB, WAIT)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "the second program waits")
    first.process.kill()
    assert second.result() >= 0
    assert second("check") == 1


def test_more_than_the_pool_is_to_hold_is_refused_at_once(start_daemon, start_program):
    pages.need_pages(8)
    daemon = start_daemon(pools=["2M:auto:16M"])
    assert start_program(daemon)("alloc", 18 * MIB, WAIT) == -errno.ENOSPC
