# SPDX-License-Identifier: LGPL-2.1-or-later
"""Hugetlb pages seen from outside: how many are free, who has them, what is in them, on which node they are."""

import ctypes
import os
import pathlib
import re
import resource

import pytest

from . import wait_until

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
PAGE_2M, PAGE_1G = 2 * MIB, GIB

PROT_READ, PROT_WRITE = 1, 2
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_HUGETLB = 0x01, 0x02, 0x10, 0x20, 0x40000
MADV_POPULATE_WRITE = 23

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


def _check(result, what):
    if result in (-1, ctypes.c_void_p(-1).value):
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def sysfs(page_size=PAGE_2M, node=None):
    root = "/sys/kernel/mm/hugepages" if node is None else f"/sys/devices/system/node/node{node}/hugepages"
    return pathlib.Path(root, f"hugepages-{page_size // KIB}kB")


def count(name, page_size=PAGE_2M, node=None):
    return int((sysfs(page_size, node) / f"{name}_hugepages").read_text())


def free(page_size=PAGE_2M):
    """Pages that may be taken: free, and not reserved by somebody."""
    return count("free", page_size) - count("resv", page_size)


def node_with_most_pages(page_size=PAGE_2M):
    nodes = [int(path.name.removeprefix("node")) for path in pathlib.Path("/sys/devices/system/node").glob("node[0-9]*")]
    return max(nodes, key=lambda node: count("free", page_size, node))


def n_surplus_made():
    """Hugepages that the kernel has made of ordinary memory since it runs; also those that it has given up again."""
    (line,) = [line for line in pathlib.Path("/proc/vmstat").read_text().splitlines() if line.startswith("htlb_buddy_alloc_success ")]
    return int(line.split()[1])


def need_pages(n, page_size=PAGE_2M):
    """Skips the test when the host has too few pages; others who test here may have taken them all for a moment."""
    size = f"{page_size // KIB} KiB"
    if not sysfs(page_size).is_dir():
        pytest.skip(f"cannot: this kernel has no hugepages of {size}")
    total_kib = int(re.search(r"^MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE)[1])
    if n * page_size > total_kib * KIB // 2:
        pytest.skip(f"cannot: {n} pages of {size} are more than half of this machine's memory")
    try:
        wait_until(lambda: free(page_size) >= n, f"{n} pages of {size} are free")
    except AssertionError:
        pytest.skip(f"{n} free hugepages of {size} are needed and {free(page_size)} are free; tests/run reserves them")


class Mapping:
    """A raw mapping: it keeps no descriptor (Python's mmap keeps a duplicate) and may be longer than its file."""

    def __init__(self, fd, length, *, prot=PROT_READ | PROT_WRITE, flags=MAP_SHARED, align=None, offset=0):
        self.length = length
        place = self._place(length, align) if align else None
        self.addr = _check(_libc.mmap(place, length, prot, flags | (MAP_FIXED if place else 0), fd, offset), f"mmap of {length} bytes")

    @staticmethod
    def _place(length, align):
        """Reserves addresses; those around the aligned part stay reserved as long as the process lives."""
        reserved = _check(_libc.mmap(None, length + align, 0, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "mmap of addresses")
        return -(-reserved // align) * align

    def close(self):
        if self.addr is not None:
            _check(_libc.munmap(self.addr, self.length), "munmap")
            self.addr = None

    def populate(self):
        _check(_libc.madvise(self.addr, self.length, MADV_POPULATE_WRITE), "MADV_POPULATE_WRITE")

    def read(self, offset, n):
        assert offset + n <= self.length
        return ctypes.string_at(self.addr + offset, n)

    def write(self, offset, data):
        assert offset + len(data) <= self.length
        ctypes.memmove(self.addr + offset, data, len(data))

    def fill(self, byte=0xA5):
        ctypes.memset(self.addr, byte, self.length)

    def touch(self, step):
        """Writes one byte of each page, and leaves it as it was."""
        for offset in range(0, self.length, step):
            self.write(offset, self.read(offset, 1))

    def is_zero(self):
        """Reads every byte: the first is 0, and each is the same as the one before it."""
        return self.read(0, 1) == b"\0" and _libc.memcmp(self.addr, self.addr + 1, self.length - 1) == 0

    def is_filled_with(self, byte):
        return self.read(0, 1) == bytes([byte]) and _libc.memcmp(self.addr, self.addr + 1, self.length - 1) == 0

    def nodes(self, page_size):
        """The node of every page, from move_pages(2); a negative errno for a page that is not there."""
        numa = ctypes.CDLL("libnuma.so.1", use_errno=True)
        n = self.length // page_size
        addresses = (ctypes.c_void_p * n)(*range(self.addr, self.addr + self.length, page_size))
        status = (ctypes.c_int * n)()
        _check(numa.move_pages(0, ctypes.c_ulong(n), addresses, None, status, 0), "move_pages")
        return list(status)


def map_anonymous(n_pages, page_size=PAGE_2M):
    """Pages straight from the kernel's pool, present on return."""
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (page_size.bit_length() - 1) << 26
    mapping = Mapping(-1, n_pages * page_size, flags=flags)
    mapping.populate()
    return mapping


def punch(fd, offset, n_bytes):
    punch_hole, keep_size = 2, 1
    _check(_libc.fallocate(fd, punch_hole | keep_size, ctypes.c_long(offset), ctypes.c_long(n_bytes)), "punching a hole")


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def vmsplice(pipe, addr, n_bytes):
    _check(_libc.vmsplice(pipe, ctypes.byref(_Vector(addr, n_bytes)), ctypes.c_ulong(1), 0), "vmsplice")


def inode(fd):
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def n_faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def hugetlb_files(pid):
    """The hugetlb files that a process has open: {(dev, ino): bytes present}."""
    files = {}
    for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            status = link.stat()
            if status.st_blksize >= PAGE_2M and os.readlink(link).startswith("/memfd:"):
                files[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue  # closed meanwhile
    return files


def users():
    """Processes that map hugetlb pages or have hugetlb files open, as {pid: command}."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            mapped = re.search(r"^HugetlbPages:\s+([1-9])", (process / "status").read_text(), re.MULTILINE)
            if mapped or hugetlb_files(process.name):
                found[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # gone meanwhile, or not ours to ask
    return found
