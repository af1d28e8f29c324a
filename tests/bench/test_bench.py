# SPDX-License-Identifier: LGPL-2.1-or-later
"""The benchmarks behind README's figures, one after the other. Each fails when it cannot measure, never for what it measured."""

import subprocess

import pytest
from conftest import ROOT
from harness import pages
from harness.pages import GIB, PAGE_1G, PAGE_2M

# Name: pool, arguments of `hugezeroctl bench`, GiB in all: a benchmark of the kernel needs as much beside the pool, or borrows it (--lend)
POOLS = {
    "8_gib": ("2M:auto:8G", "--bytes 8G --runs 5 --lend", 8),
    "4_gib": ("2M:auto:4G", "--bytes 4G --runs 5", 8),
    "16_gib": ("2M:auto:16G", "--bytes 16G --runs 3 --lend", 16),
    "extents_of_32_mib": ("2M:32M:3G", "--bytes 3G --several --runs 5", 6),
    "a_1_gib_page": ("1G:1G:1G", "--bytes 1G --page-size 1G --runs 5", 2),
    "latency": ("2M:2M:1G", "--latency", 2),
    "clear": ("2M:auto:2G", "clear", 4),
    "procs": ("2M:auto:2G", "procs", 4),
    "churn": ("2M:auto:2G", "churn", 2),
}
PROGRAMS = {
    "waiting_client": ("waiting-client", 7),
    "qemu_start": ("qemu-start", 16),
    "ready": ("ready", 4),
    "connections": ("connections", 1),
}


def need(gib, page_size=PAGE_2M):
    n, n_free = gib * GIB // page_size, pages.free(page_size=page_size)
    if n_free < n:
        pytest.skip(f"{n} free pages of {page_size >> 20} MiB are needed, {n_free} are free")


def measure(command):
    print("\n$", *command, flush=True)
    assert subprocess.run(command, cwd=ROOT, timeout=300, check=False).returncode == 0


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", POOLS)
def test_pool(start_daemon, build, name):
    pool, arguments, gib = POOLS[name]
    page_size = PAGE_1G if pool.startswith("1G") else PAGE_2M
    need(gib, page_size)
    daemon = start_daemon(pools=[pool])
    daemon.wait_full()
    measure([str(build / "tools" / "hugezeroctl"), "bench", *arguments.split(), "--socket", daemon.socket_path])


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(build, name):
    program, gib = PROGRAMS[name]
    need(gib)
    measure([f"tests/bench/{program}", "--build", str(build)])
