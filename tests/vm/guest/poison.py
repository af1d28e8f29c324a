# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pages whose memory fails (MADV_HWPOISON: the machine is lost to other tests afterwards, these are the last)."""

import ctypes
import os
import pathlib
import re

import pytest
from harness import holder, pages, wait_until
from harness.pages import MIB, PAGE_2M
from inside import Service, journal, run

POOL = "[Pool p]\nExtentSize=4M\nTarget=node0:32M\n"
FULL = 32 * MIB
MADV_HWPOISON, PIDFD_GETFD = 100, 438


def poison(mapping, offset):
    """The kernel may end this process for it."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.madvise(ctypes.c_void_p(mapping.addr + offset), ctypes.c_size_t(4096), MADV_HWPOISON)


def poison_own(me):
    poison(holder.map_all(me)[0], PAGE_2M)


def poison_fd(_me, pid, number):
    """A page of another process's file; opening that by path would be noticed."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(PIDFD_GETFD, os.pidfd_open(pid), number, 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    mapping = pages.Mapping(fd, 2 * PAGE_2M)
    mapping.read(PAGE_2M, 1)
    poison(mapping, PAGE_2M)


def n_poisoned():
    return int(re.search(r"^HardwareCorrupted:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE)[1])


@pytest.fixture
def running(install):
    service = Service()
    yield service
    run("systemctl", "stop", "hugezerod.socket", "hugezerod.service")


def number_of(pid, inode):
    """Under which number a process has that file open."""
    return next(int(link.name) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir() if (link.stat().st_dev, link.stat().st_ino) == inode)


def test_a_ready_page_that_fails_is_found_and_replaced(running, start_child):
    running.start(f"AuditRate=256M\n{POOL}")
    running.wait_full()
    pid, n_before = running.pid, n_poisoned()
    inode = next(iter(pages.hugetlb_files(pid)))
    child = start_child()
    child.start(poison_fd, pid, number_of(pid, inode))
    wait_until(lambda: n_poisoned() > n_before, "the kernel knows of it")
    wait_until(lambda: inode not in pages.hugetlb_files(pid), "the audit has found it")
    assert "its memory has failed" in journal("hugezerod.service")
    running.wait_back()
    assert running.pid == pid
    assert sum(pages.hugetlb_files(pid).values()) == FULL


@pytest.mark.parametrize("recycle", ["same-service", "never"])
def test_a_page_that_fails_while_a_client_has_it_is_replaced(running, start_child, recycle):
    """Also when nobody clears it, which would find out."""
    running.start(f"Recycle={recycle}\n{POOL}")
    running.wait_full()
    pid, n_before = running.pid, n_poisoned()
    child = start_child()
    (extent,) = child.call(holder.acquire, running.socket_path, 4 * MIB)
    child.start(poison_own)
    wait_until(lambda: n_poisoned() > n_before, "the kernel knows of it")
    child.kill()
    wait_until(lambda: extent.inode not in pages.hugetlb_files(pid), "it is not kept")
    running.wait_back()
    assert running.pid == pid
    child = start_child()
    child.call(holder.acquire, running.socket_path, FULL, several=True)
    assert child.call(holder.is_zero)
