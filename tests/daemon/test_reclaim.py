# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who still holds an extent: every row of the reclaim table, and every way to keep memory without saying so."""

import os
import pathlib

import pytest
from harness import holder, wait_until
from harness.child import ChildError
from harness.pages import MIB, hugetlb_files, need_pages

QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"
SIZE = 16 * MIB


@pytest.fixture
def daemon(start_daemon):
    """One extent for one holder, and as much again to replace it."""
    need_pages(32)
    daemon = start_daemon(pools=["2M:16M:32M"], config=QUICK)
    daemon.wait_full()
    return daemon


@pytest.fixture
def child(daemon, start_child):
    """A client of root's that holds one extent, filled with a pattern."""
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, SIZE)
    child.call(holder.fill)
    return child


def inode_of(child, name=""):
    return child.call(holder.inode, name)


def wait_back(daemon):
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the extent came back")


def assert_kept(daemon, inode):
    """A whole sweep later it is still granted, and the daemon still knows it."""
    daemon.sweep()
    assert daemon.pool()["granted_bytes"] == SIZE
    assert inode in hugetlb_files(daemon.pid)


def assert_dropped(daemon, inode):
    """It was given up, not recycled; the pool is full again without it."""
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the extent was dropped")
    wait_back(daemon)
    daemon.wait_full()
    assert inode not in hugetlb_files(daemon.pid)


def assert_recycled(daemon, child, inode):
    """It was kept for its service, zeroed."""
    wait_back(daemon)
    daemon.wait_full()
    assert inode in hugetlb_files(daemon.pid)
    names = ["a", "b"]
    inodes = [child.call(holder.acquire, daemon.socket_path, SIZE, name)[0].inode for name in names]
    assert inode in inodes
    assert all(child.call(holder.is_zero, name) for name in names)


# Row: close event, not held, no foreign open


@pytest.mark.parametrize("way", ["close", "exit", "kill"])
def test_an_extent_that_nobody_holds_is_recycled(daemon, child, start_child, way):
    inode = inode_of(child)
    if way == "close":
        child.call(holder.drop)
    elif way == "exit":
        child.end()
    else:
        child.kill()
    assert_recycled(daemon, start_child(), inode)


def test_closing_the_connection_releases_nothing(daemon, child):
    inode = inode_of(child)
    child.call(holder.disconnect)
    wait_until(lambda: daemon.status()["n_clients"] <= 1, "the connection is gone")
    assert_kept(daemon, inode)
    assert child.call(holder.is_filled_with)


def test_a_mapping_alone_holds_the_extent(daemon, child, start_child):
    inode = inode_of(child)
    child.call(holder.close_fds)
    assert_kept(daemon, inode)
    assert child.call(holder.is_filled_with)
    child.call(holder.unmap)
    assert_recycled(daemon, start_child(), inode)


def test_a_descriptor_alone_holds_the_extent(daemon, child, start_child):
    inode = inode_of(child)
    child.call(holder.unmap)
    assert_kept(daemon, inode)
    child.call(holder.close_fds)
    assert_recycled(daemon, start_child(), inode)


def test_a_forked_relative_holds_the_extent(daemon, child, start_child):
    inode = inode_of(child)
    relative = child.call(holder.fork_holder)
    child.kill()
    assert_kept(daemon, inode)
    os.kill(relative, 9)
    assert_recycled(daemon, start_child(), inode)


def test_a_process_that_was_passed_the_descriptor_holds_the_extent(daemon, child, start_child, tmp_path):
    inode, other = inode_of(child), start_child()
    other.call(holder.listen, str(tmp_path / "pass"))
    child.call(holder.send_first_fd, str(tmp_path / "pass"))
    other.call(holder.receive_fd, child.call(holder.extents)[0])
    child.kill()
    assert_kept(daemon, inode)
    assert other.call(holder.is_filled_with)
    other.call(holder.drop)
    assert_recycled(daemon, start_child(), inode)


def test_a_descriptor_in_flight_holds_the_extent(daemon, child, start_child, tmp_path):
    """Sent, and received by nobody yet."""
    inode, other = inode_of(child), start_child()
    other.call(holder.listen, str(tmp_path / "pass"))
    child.call(holder.send_first_fd, str(tmp_path / "pass"))
    child.kill()
    assert_kept(daemon, inode)
    other.kill()
    assert_recycled(daemon, start_child(), inode)


def test_a_cycle_of_descriptors_in_flight_is_found_by_the_sweep(daemon, child, start_child):
    """Nothing but the kernel's collector frees it, and that runs only when somebody closes a socket."""
    inode = inode_of(child)
    child.call(holder.cross_in_flight)
    child.kill()
    assert_recycled(daemon, start_child(), inode)


# Row: close event, still held


def test_a_close_event_while_the_grant_is_held_changes_nothing(daemon, child):
    """Somebody opened and closed a description of his own: a close event, and the grant is alive."""
    inode = inode_of(child)
    child.call(holder.reopen)
    child.call(holder.reopen, flags=os.O_RDONLY)
    assert_kept(daemon, inode)
    wait_until(lambda: [row["state"] for row in daemon.grants()] == ["held"], "its state is that of memory that somebody has")
    assert child.call(holder.is_filled_with)
    child.call(holder.drop)
    assert_dropped(daemon, inode)


@pytest.mark.once
def test_an_extent_with_20000_locks_at_close_comes_back(daemon, child):
    """The kernel frees them between the event and what the daemon asks about."""
    inode = inode_of(child)
    child.call(holder.take_ofd_locks, 20000)
    child.call(holder.drop)
    wait_back(daemon)
    daemon.wait_full()
    assert child.call(holder.acquire, daemon.socket_path, SIZE)[0].inode is not None
    assert child.call(holder.is_zero)
    assert inode


# Row: foreign open


def test_what_root_reopened_by_path_is_never_recycled(daemon, child, start_child):
    inode = inode_of(child)
    child.call(holder.reopen, keep_as="own")
    child.call(holder.drop)
    assert_dropped(daemon, inode)
    # Whoever holds it keeps it: with its content, and with the right to map it for writing
    assert child.call(holder.is_filled_with, "own")
    child.call(holder.fill, "own", 0x5A)
    other = start_child()
    for name in "a", "b":
        assert other.call(holder.acquire, daemon.socket_path, SIZE, name)[0].inode != inode
        assert other.call(holder.is_zero, name)
    child.call(holder.fill, "own", 0xFF)
    assert other.call(holder.is_zero, "a")
    assert other.call(holder.is_zero, "b")


def test_what_was_reopened_is_a_grant_as_long_as_somebody_has_it(daemon, child):
    """The pool has given it up, and is full without it; who asks for grants hears of it all the same."""
    (before,) = daemon.grants()
    child.call(holder.reopen, keep_as="own")
    child.call(holder.drop)
    assert_dropped(daemon, (before["dev"], before["ino"]))
    (row,) = daemon.grants()
    same = "grant_id", "extent", "uid", "pid", "node", "bytes", "ino", "dev", "pool"
    assert {key: row[key] for key in same} == {key: before[key] for key in same}
    assert row["state"] == "held" and row["age_ms"] >= before["age_ms"]
    child.call(holder.acquire, daemon.socket_path, 2 * MIB, "other", on_miss="wait", timeout_ms=10000)
    child.call(holder.release_id, daemon.socket_path, row["grant_id"])
    assert [other["grant_id"] for other in daemon.grants()] == [row["grant_id"], row["grant_id"] + 1]
    child.call(holder.drop, "other")
    child.call(holder.drop, "own")
    wait_until(lambda: not daemon.grants(), "the grant is over")


def test_what_was_reopened_through_map_files_is_never_recycled(daemon, child):
    inode = inode_of(child)
    child.call(holder.reopen_mapping)
    child.call(holder.drop)
    assert_dropped(daemon, inode)


def test_what_was_reopened_by_another_root_process_is_never_recycled(daemon, child, start_child):
    inode, other = inode_of(child), start_child()
    other.call(holder.adopt, child.pid, child.call(holder.fd_number), child.call(holder.extents)[0])
    child.kill()
    assert_dropped(daemon, inode)
    assert other.call(holder.is_filled_with)


def test_an_o_path_descriptor_gives_nobody_else_away(daemon, child, start_child):
    """CAP_DAC_OVERRIDE opens it again at any time: then nobody gets the extent any more."""
    inode = inode_of(child)
    child.call(holder.reopen, flags=os.O_PATH, keep_as="path")
    child.call(holder.drop)
    wait_back(daemon)
    child.call(holder.reopen, "path", keep_as="own")
    other = start_child(uid=65534)
    for name in "a", "b":
        assert other.call(holder.acquire, daemon.socket_path, SIZE, name, on_miss="wait", timeout_ms=20000)[0].inode != inode
    child.call(holder.fill, "own", 0xFF)
    assert other.call(holder.is_zero, "a")
    assert other.call(holder.is_zero, "b")


def test_an_o_path_descriptor_that_is_opened_while_the_extent_is_ready_spoils_it(daemon, child):
    inode = inode_of(child)
    child.call(holder.reopen, flags=os.O_PATH, keep_as="path")
    child.call(holder.drop)
    wait_back(daemon)
    child.call(holder.reopen, "path", keep_as="own")
    assert_dropped(daemon, inode)


# Row: not held, and no event


def test_an_extent_whose_holder_unlocked_it_is_his_until_he_lets_go(daemon, child, start_child):
    inode = inode_of(child)
    child.call(holder.unlock)
    child.call(holder.release, daemon.socket_path)
    assert_kept(daemon, inode)
    assert child.call(holder.is_filled_with)
    child.call(holder.drop)
    assert_recycled(daemon, start_child(), inode)


def test_events_that_were_lost_are_made_up_for(start_daemon, start_child):
    need_pages(48)
    daemon = start_daemon(pools=["2M:16M:48M"], config="ReleaseGrace=50ms\n")
    daemon.wait_full()
    child = start_child()
    inodes = {}
    for name in "noisy", "closed", "held":
        inodes[name] = child.call(holder.acquire, daemon.socket_path, SIZE, name)[0].inode
        child.call(holder.fill, name)
    limit = int(pathlib.Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    with daemon.stopped():
        child.call(holder.make_events, limit + 16, "noisy")
        child.call(holder.drop, "closed")
    daemon.wait_pool(lambda row: row["granted_bytes"] == 2 * SIZE, "the extent that was closed is known to be free")
    wait_until(lambda: inodes["closed"] not in hugetlb_files(daemon.pid), "it was dropped: its close event was lost")
    assert child.call(holder.is_filled_with, "held")
    child.call(holder.drop, "held")
    child.call(holder.drop, "noisy")
    daemon.wait_pool(lambda row: row["granted_bytes"] == 0, "the others are free")
    wait_until(lambda: not set(inodes.values()) & set(hugetlb_files(daemon.pid)), "they were dropped: they are in doubt")


# Row: held, and no event


def test_a_release_of_what_is_still_held_proves_nothing(daemon, child):
    inode = inode_of(child)
    child.call(holder.release, daemon.socket_path)
    assert_kept(daemon, inode)
    assert child.call(holder.is_filled_with)


def test_a_release_of_somebody_elses_grant_is_refused(daemon, child, start_child):
    other = start_child(uid=65534)
    with pytest.raises(ChildError) as failure:
        other.call(holder.release_id, daemon.socket_path, child.call(holder.grant_id))
    assert failure.value.error == "Refused"
    assert "ENOENT" in str(failure.value) or failure.value.errno == 2


# Row: doubt


def test_an_extent_with_a_foreign_seal_is_dropped(daemon, child):
    inode = inode_of(child)
    n_doubts = daemon.status()["n_doubts"]
    child.call(holder.add_seal)
    child.call(holder.drop)
    assert_dropped(daemon, inode)
    assert daemon.status()["n_doubts"] == n_doubts + 1


def test_an_extent_that_was_grown_by_a_longer_mapping_is_dropped(daemon, child):
    inode = inode_of(child)
    if child.call(holder.map_longer, SIZE + 4 * MIB) == SIZE:
        pytest.skip("cannot: this kernel does not grow a sealed file for a longer mapping")
    child.call(holder.drop)
    assert_dropped(daemon, inode)


def test_a_grant_is_shown_with_its_file_until_the_end(start_daemon, start_child):
    """Its memory goes back to the kernel on another thread, meanwhile."""
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config=f"Recycle=never\n{QUICK}")
    daemon.wait_full()
    child = start_child()
    for _ in range(20):
        inode = child.call(holder.acquire, daemon.socket_path, 2 * MIB, on_miss="wait", timeout_ms=20000)[0].inode
        child.call(holder.drop)
        while rows := daemon.grants():
            assert [(row["dev"], row["ino"]) for row in rows] == [inode]


def test_the_grace_period_is_waited_for(start_daemon, start_child):
    """A device may still write for a moment after its process is gone."""
    need_pages(16)
    daemon = start_daemon(pools=["2M:16M:32M"], config="ReleaseGrace=1h\nSweepInterval=100ms\n")
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, SIZE)
    child.call(holder.drop)
    daemon.wait_pool(lambda row: row["returned_bytes"] == SIZE, "the extent is on its way back")
    daemon.sweep()
    assert daemon.pool()["returned_bytes"] == SIZE


def test_pinned_pages_stay_accounted_for_until_they_are_let_go(start_daemon, start_child):
    """Pages in a pipe live on without any descriptor or mapping; the extent is not recycled with them."""
    need_pages(16)
    daemon = start_daemon(pools=["2M:16M:16M"], config=f"Recycle=never\n{QUICK}")
    daemon.wait_full()
    child = start_child()
    inode = child.call(holder.acquire, daemon.socket_path, SIZE)[0].inode
    child.call(holder.pin)
    child.call(holder.drop)
    daemon.wait_pool(lambda row: row["pinned_bytes"] == SIZE, "the pinned extent is shown")
    assert daemon.pool()["granted_bytes"] == 0
    child.call(holder.unpin)
    # It does not count as pinned while it is being asked about again
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the pages are free")
    assert daemon.pool()["pinned_bytes"] == 0


def test_memory_that_came_back_while_pins_were_looked_for_goes_too(start_daemon, start_child):
    """It waited for the other to be gone, which turns out to be pinned."""
    need_pages(32)
    daemon = start_daemon(pools=["2M:4M:8M"], config=f"Recycle=never\n{QUICK}")
    daemon.wait_full()
    child = start_child()
    child.call(holder.acquire, daemon.socket_path, 4 * MIB, "pinned")
    inode = child.call(holder.acquire, daemon.socket_path, 4 * MIB, "other")[0].inode
    child.call(holder.pin, "pinned")
    child.call(holder.drop, "pinned")
    daemon.wait_pool(lambda row: row["ready_bytes"] == 4 * MIB, "it is replaced, and looked at")
    child.call(holder.drop, "other")
    wait_until(lambda: inode not in hugetlb_files(daemon.pid), "the other is given up")
    child.call(holder.unpin)
