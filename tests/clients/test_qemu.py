# SPDX-License-Identifier: LGPL-2.1-or-later
"""An unmodified QEMU has its RAM from the pool, started by an unprivileged member of SocketGroup= through hugezeroctl run."""

import os
import pathlib
import signal

import pytest
from harness import holder, qemu, wait_until
from harness.pages import GIB, MIB, PAGE_2M, Mapping, hugetlb_files, need_pages

NOBODY = 65534
GROUP = 61235  # nobody's group: only the virtual machine is a member
# What may be recycled would be kept for its service for longer than a test waits
CONFIG = f"ReleaseGrace=50ms\nAffinityTimeout=1h\nSweepInterval=100ms\nSocketGroup={GROUP}\nSocketMode=0660\n"
SIZE = 512 * MIB

pytestmark = [
    pytest.mark.skipif(not qemu.is_installed(), reason="no qemu-system-x86_64 (Debian: qemu-system-x86)"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


def in_cgroup(cgroup, command):
    """What systemd does with User= and SupplementaryGroups=: it is root until it is in its group."""
    become = f'echo 0 > "$0/cgroup.procs" && exec setpriv --reuid={NOBODY} --regid={NOBODY} --groups={GROUP} -- "$@"'
    return ["sh", "-c", become, str(cgroup.path), *command]


@pytest.fixture
def start_machine(start_daemon, make_cgroup):  # pylint: disable=unused-argument # machines end before groups are removed
    """start_machine(size) returns the daemon, which has that much and no more, and a virtual machine that has all of it."""
    machines = []

    def start(size=SIZE, daemon=None, cgroup=None):
        if daemon is None:
            need_pages(size // PAGE_2M + 16)
            daemon = start_daemon(pools=[f"2M:auto:{size // MIB}M"], config=CONFIG)
            wait_ready(daemon, size)
        command = qemu.pool_command(daemon.build, size // MIB)
        if cgroup:
            machine = qemu.Qemu(in_cgroup(cgroup, command), daemon.socket_path)
        else:
            machine = qemu.Qemu(command, daemon.socket_path, user=NOBODY, group=NOBODY, extra_groups=[GROUP])
        machines.append(machine)
        return daemon, machine

    yield start
    for machine in machines:
        machine.close()


def wait_ready(daemon, size):
    """All of it is in the pool, zero, and nobody's."""
    wait_until(lambda: (row := daemon.pool())["ready_bytes"] == size and row["filling_bytes"] == 0, f"{size} bytes are ready", deadline_s=60)


def inode_of(daemon):
    (grant,) = daemon.grants()
    return grant["dev"], grant["ino"]


def check_machine(daemon, machine, size):
    """It answers, it has that much memory, and what it maps is the granted file and not a copy."""
    (memdev,) = machine.ask("query-memdev")
    assert (memdev["id"], memdev["size"], memdev["share"]) == ("m", size, True)
    assert machine.ask("query-memory-size-summary") == {"base-memory": size, "plugged-memory": 0}
    assert machine.ask("query-status")["running"]
    device, inode = inode_of(daemon)
    mapped = f"{os.major(device):02x}:{os.minor(device):02x} {inode} "
    lines = [line for line in pathlib.Path(f"/proc/{machine.pid}/maps").read_text().splitlines() if mapped in line]
    lengths = [int(end, 16) - int(begin, 16) for begin, end in (line.split()[0].split("-") for line in lines)]
    assert sum(lengths) == size and all(line.split()[1] == "rw-s" for line in lines), lines
    uids = pathlib.Path(f"/proc/{machine.pid}/status").read_text().partition("Uid:")[2].split("\n")[0].split()
    assert set(uids) == {str(NOBODY)}


def test_qemu_answers_and_has_the_granted_memory_as_its_ram(start_machine):
    daemon, machine = start_machine()
    check_machine(daemon, machine, SIZE)
    assert daemon.pool()["granted_bytes"] == SIZE


def test_the_firmware_writes_to_the_granted_memory(start_machine):
    daemon, machine = start_machine()
    inode = inode_of(daemon)
    folder = pathlib.Path(f"/proc/{machine.pid}/fd")
    # The descriptor that run passed on; the one that QEMU opened by path is the same file
    path = next(path for path in folder.iterdir() if (status := path.stat()) and (status.st_dev, status.st_ino) == inode)
    fd = os.open(path, os.O_RDWR)
    memory = Mapping(fd, SIZE)
    os.close(fd)
    # 0x413: the BIOS data area says how many KiB there are below 640 KiB
    wait_until(lambda: 512 <= int.from_bytes(memory.read(0x413, 2), "little") <= 640, "the firmware has set up its data area")
    memory.close()


@pytest.mark.parametrize("how", ["quit", signal.SIGTERM, signal.SIGKILL], ids=str)
def test_memory_comes_back_renewed_however_qemu_ends(start_machine, start_child, make_cgroup, how):
    service = make_cgroup("qemu")  # outside of one nothing is ever recycled
    daemon, machine = start_machine(cgroup=service)
    before, said = inode_of(daemon), daemon.stderr()
    machine.end(how)
    wait_until(lambda: not daemon.grants(), "nobody has a grant")
    wait_ready(daemon, SIZE)
    # QEMU opened it by path: who else has may keep it unnoticed, so that it goes back to the kernel, pages and all
    assert before not in hugetlb_files(daemon.pid)
    assert daemon.status()["scrubbed_bytes_total"] == 0
    # What was measured is told whenever there was time for it
    told = [line for line in daemon.stderr()[len(said) :].splitlines() if "; clears, as measured" not in line]
    assert told == [], "the daemon did not even try to keep it"
    child = start_child(uid=NOBODY, groups=[GROUP], cgroup=service)
    (extent,) = child.call(holder.acquire, daemon.socket_path, SIZE)
    assert extent.inode != before
    assert child.call(holder.is_zero)
    child.kill()


def test_a_machine_that_starts_again_has_the_pool_again(start_machine):
    daemon, machine = start_machine()
    seen = [inode_of(daemon)]
    for _ in range(2):
        machine.end(signal.SIGKILL)
        wait_ready(daemon, SIZE)
        _, machine = start_machine(daemon=daemon)
        check_machine(daemon, machine, SIZE)
        seen.append(inode_of(daemon))
    assert len(set(seen)) == 3


def test_qemu_keeps_running_when_the_daemon_is_gone(start_machine):
    daemon, machine = start_machine()
    daemon.stop()
    assert machine.ask("query-status")["running"]
    assert machine.end("quit") == 0


@pytest.mark.large
def test_qemu_with_4_gib(start_machine):
    daemon, machine = start_machine(4 * GIB)
    check_machine(daemon, machine, 4 * GIB)
    machine.end(signal.SIGKILL)
    wait_ready(daemon, 4 * GIB)
