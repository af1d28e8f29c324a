# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pinned page stays readable and writable after every descriptor and mapping is gone: it must never be another's memory."""

import os
import pathlib
import socket

import pytest
from harness import hostile, holder, wait_until
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, PAGE_2M, hugetlb_files, need_pages
from harness.weakened import Change
from hugezero_client import Client

SIZE = 8 * MIB
WEAK, REAL = "Recycle=trusted\n", ""
CASES = pytest.mark.parametrize("setting, works", [(WEAK, True), (REAL, False)], ids=["weakened", "real"])


@pytest.fixture
def start(start_daemon):
    def start_with(setting):
        need_pages(16)
        daemon = start_daemon(pools=["2M:8M:8M"], config=f"ReleaseGrace=50ms\nSweepInterval=100ms\n{setting}")
        daemon.wait_full()
        return daemon

    return start_with


def give_to(daemon, victim, attacker):
    """The victim gets all the memory that there is, after the attacker has let go of it."""
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    victim.call(holder.acquire, daemon.socket_path, SIZE, on_miss="wait", timeout_ms=20000)
    assert victim.call(holder.is_zero)
    victim.call(holder.fill, byte=0x5A)


@CASES
def test_pages_in_a_pipe_do_not_show_the_next_holders_secrets(start, attacker, victim, setting, works):
    daemon = start(setting)
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.fill, byte=0x11)
    attacker.call(hostile.pin_pages)
    give_to(daemon, victim, attacker)
    assert (b"\x5a" in attacker.call(hostile.read_pins)) == works


@CASES
def test_a_fixed_buffer_of_io_uring_does_not_write_to_the_next_holder(start, attacker, victim, setting, works):
    daemon = start(setting)
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    error = attacker.call(hostile.register_buffer)
    if error:
        pytest.skip(f"cannot: this kernel offers no io_uring with fixed buffers in hugepages (errno {error})")
    give_to(daemon, victim, attacker)
    attacker.call(hostile.write_through_ring, 0xEE)
    assert victim.call(holder.is_filled_with, byte=0x5A) != works


def charged_bytes(daemon, uid):
    with Client(daemon.socket_path) as client:
        limits = client.limits()
    of_all, of_pages = (limits.get((uid, kind), (0, None))[0] for kind in ("bytes", PAGE_2M))
    assert of_all == of_pages
    return of_all


def test_what_another_user_takes_from_the_kept_memory_stays_charged_while_it_is_pinned(start_daemon, attacker, victim):
    """Kept for the attacker, and charged to nobody, until a stranger's request has it given up."""
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M@0"], config="ReleaseGrace=50ms\nSweepInterval=100ms\n")
    daemon.wait_full()
    for name in "abc":
        attacker.call(holder.acquire, daemon.socket_path, 2 * MIB, name)
        attacker.call(hostile.pin_pages, name)
    for name in "abc":
        attacker.call(holder.drop, name)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is kept")
    assert charged_bytes(daemon, ATTACKER) == 0
    # No kept memory would serve, nor be left
    victim.start(holder.acquire, daemon.socket_path, 16 * MIB, on_miss="wait", timeout_ms=20000, several=True)
    wait_until(lambda: charged_bytes(daemon, ATTACKER) == 6 * MIB, "the pins are found")
    assert daemon.pool()["pinned_bytes"] == 6 * MIB
    attacker.call(hostile.unpin_pages)
    victim.result()
    wait_until(lambda: charged_bytes(daemon, ATTACKER) == 0, "the charge has ended")
    assert victim.call(holder.is_zero)


def test_pins_of_one_user_do_not_delay_what_others_get(start_daemon, attacker, victim):
    """Finding each takes a sixth of a second. Before the last, others' memory is given back, and there is new one."""
    need_pages(102)
    n_pinned = 30
    config = "ReleaseGrace=50ms\nSweepInterval=100ms\nWorkersPerNode=1\nRecycle=never\n[Pool p]\nExtentSize=2M\nNodes=0\nTarget=102M\nLow=0%\n"
    daemon = start_daemon(config=config)
    daemon.wait_full()
    names = [str(idx) for idx in range(n_pinned)]
    for name in names:
        attacker.call(holder.acquire, daemon.socket_path, 2 * MIB, name)
        attacker.call(hostile.pin_pages, name)
    (last,) = attacker.call(holder.acquire, daemon.socket_path, 2 * MIB, "last")
    extents = victim.call(holder.acquire, daemon.socket_path, 40 * MIB, several=True)
    for name in names:
        attacker.call(holder.drop, name)
    daemon.wait_pool(lambda row: row["pinned_bytes"] == n_pinned * 2 * MIB, "the first pins are found, and the others are to be expected")
    attacker.call(holder.drop, "last")
    daemon.wait_pool(lambda row: row["pinned_bytes"] == (n_pinned + 1) * 2 * MIB, "they are expected in the last one too")
    victim.call(holder.drop)
    inodes = {extent.inode for extent in extents}

    def left():
        files = hugetlb_files(daemon.pid)
        return [files] if inodes.isdisjoint(files) else None

    (files,) = wait_until(left, "the victim's memory is given back")
    assert last.inode in files, "the attacker's come first"
    daemon.wait_pool(lambda row: row["ready_bytes"] >= 40 * MIB, "there is new memory")
    assert charged_bytes(daemon, VICTIM) == 0
    wait_until(lambda: last.inode not in hugetlb_files(daemon.pid), "the attacker's are looked at too")


def test_what_is_taken_from_another_users_kept_memory_is_asked_about_first(start_daemon, attacker, victim):
    """The kernel sleeps for a sixth of a second over each; several are asked about at a time."""
    need_pages(40)
    daemon = start_daemon(pools=["2M:2M:40M@0"], config="ReleaseGrace=50ms\nSweepInterval=100ms\n")
    daemon.wait_full()
    names = [str(idx) for idx in range(20)]
    for name in names:
        attacker.call(holder.acquire, daemon.socket_path, 2 * MIB, name)
        attacker.call(hostile.pin_pages, name)
    for name in names:
        attacker.call(holder.drop, name)
    daemon.wait_pool(lambda row: row["ready_bytes"] == 40 * MIB, "the memory is kept")
    victim.call(holder.acquire, daemon.socket_path, 40 * MIB, on_miss="wait", timeout_ms=50000, several=True)
    assert charged_bytes(daemon, ATTACKER) == 40 * MIB


def test_pages_that_were_punched_out_stay_charged_as_long_as_the_service_lives(start_daemon, start_child, make_cgroup):
    """They may be pinned, which nothing that is left can tell."""
    need_pages(16)
    daemon = start_daemon(pools=["2M:8M:8M"], config="ReleaseGrace=50ms\nSweepInterval=100ms\n")
    daemon.wait_full()
    group = make_cgroup("puncher")
    attacker = start_child(uid=ATTACKER, cgroup=group)
    for round_ in 1, 2:
        attacker.call(holder.acquire, daemon.socket_path, SIZE, on_miss="wait", timeout_ms=20000)
        attacker.call(hostile.pin_pages)
        attacker.call(holder.punch, 0, SIZE // 2)
        attacker.call(holder.drop)
        daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the rest is back")
        assert charged_bytes(daemon, ATTACKER) == round_ * SIZE // 2
    attacker.kill()
    group.remove()
    wait_until(lambda: charged_bytes(daemon, ATTACKER) == 0, "the charge has ended with the service")


def pin_and_punch(me, path, name):
    """All that is left of the grant are pins of pages that no file has."""
    holder.acquire(me, path, SIZE, name, on_miss="wait", timeout_ms=20000)
    hostile.pin_pages(me, name)
    holder.punch(me, 0, SIZE, name)
    holder.drop(me, name)


def start_with_punched(start_daemon, program):
    need_pages(16)
    daemon = start_daemon(pools=["2M:8M:8M"], config="ReleaseGrace=50ms\nSweepInterval=100ms\n", program=program)
    daemon.wait_full()
    return daemon


def connect_by_one_who_dies(me, path):
    """The daemon is not told a process that lives, so it learns of no control group."""
    me.grants, me.client = {}, Client.__new__(Client)
    me.client._last_id, me.client._answers, me.client._partial = 0, {}, {}  # pylint: disable=protected-access
    me.client.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        me.client.socket.connect(path)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    me.client.socket.settimeout(20)


FORGIVING = Change("charges.c", "service && service_has_end(service) ? service : NULL,\n", "service,\n")
UNSEEN = Change("charges.c", "if (extent_file_check(&extent->file, &check) >= 0 && check.present", "if (service && extent_file_check(&extent->file, &check) >= 0 && check.present")


@pytest.mark.parametrize("weak", [(UNSEEN, FORGIVING), ()], ids=["weakened", "real"])
def test_punched_pages_of_a_service_that_is_not_known_stay_charged(start_daemon, start_child, weaken, weak):
    daemon = start_with_punched(start_daemon, weaken(*weak) if weak else None)
    attacker = start_child(uid=ATTACKER)
    with daemon.stopped():
        attacker.call(connect_by_one_who_dies, daemon.socket_path)
    attacker.call(say_hello)
    for round_ in 1, 2:
        attacker.call(pin_and_punch, daemon.socket_path, str(round_))
        daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
        assert charged_bytes(daemon, ATTACKER) == (0 if weak else round_ * SIZE)
    attacker.kill()
    daemon.sweep()
    assert charged_bytes(daemon, ATTACKER) == (0 if weak else 2 * SIZE), "nothing tells that they are not pinned any more"


def say_hello(me):
    me.client.hello()


def move_into(me, parent, name):
    """Makes a control group and enters it."""
    path = pathlib.Path(parent) / name
    path.mkdir(exist_ok=True)
    (path / "cgroup.procs").write_text("0")


def leave(me, parent, name):
    move_into(me, parent, "other")
    (pathlib.Path(parent) / name).rmdir()


ENDS = Change("charges.c", "if (service_get_above(charge->service, charge->uid, &above) < 0) {", "above = NULL; other = NULL; bytes = 0; (void) other; if (true) {")


@pytest.mark.parametrize("weak", [(ENDS,), ()], ids=["weakened", "real"])
def test_who_removes_a_group_of_his_own_keeps_the_charge(start_daemon, start_child, make_cgroup, weaken, weak):
    """As users can whom control groups are delegated to: every login and many containers."""
    daemon = start_with_punched(start_daemon, weaken(*weak) if weak else None)
    group = make_cgroup("delegated")
    for path in group.path, *(group.path / name for name in ("cgroup.procs", "cgroup.threads", "cgroup.subtree_control")):
        os.chown(path, ATTACKER, ATTACKER)
    attacker = start_child(uid=ATTACKER, cgroup=group)
    try:
        for round_ in 1, 2, 3:
            attacker.call(move_into, str(group.path), str(round_))
            attacker.call(reconnect, daemon.socket_path)
            attacker.call(pin_and_punch, daemon.socket_path, str(round_))
            daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
            attacker.call(leave, str(group.path), str(round_))
            daemon.sweep()
            assert charged_bytes(daemon, ATTACKER) == (0 if weak else round_ * SIZE)
    finally:
        attacker.kill()
        wait_until(lambda: all(remove(path) for path in group.path.iterdir() if path.is_dir()), "its groups are empty")
    group.remove()
    wait_until(lambda: charged_bytes(daemon, ATTACKER) == 0, "the charge has ended with what root has removed")


def reconnect(me, path):
    """It is the group at that time that counts."""
    me.grants, me.client = {}, Client(path)


def remove(path):
    try:
        path.rmdir()
    except OSError:
        return False
    return True
