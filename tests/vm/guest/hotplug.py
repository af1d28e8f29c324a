# SPDX-License-Identifier: LGPL-2.1-or-later
"""Node 5, whose memory comes and goes while the daemon runs: as a module does that is plugged in, or a part of a guest's memory."""

import contextlib
import pathlib
import re
import subprocess

import pytest
from inside import journal, memory_nodes, run
from harness import holder, pages, wait_until
from harness.child import ChildError
from harness.pages import MIB, PAGE_2M

NODE, BYTES = 5, 16 * MIB
# Emulated, measuring takes half a minute on every node
DAEMON = "ClearMethod=memset\n"
N_PAGES = BYTES // PAGE_2M
BLOCKS = sorted(pathlib.Path(f"/sys/devices/system/node/node{NODE}").glob("memory[0-9]*"))


def set_online(online):
    """Its memory, and hugepages for the pool. Pages that are in use the kernel moves to other nodes."""
    for block in BLOCKS:
        if (block / "state").read_text() != ("online\n" if online else "offline\n"):
            (block / "state").write_text("online_movable" if online else "offline")
    assert (NODE in memory_nodes()) == online
    if online:
        (pages.sysfs(PAGE_2M, NODE) / "nr_hugepages").write_text(str(N_PAGES))
        assert pages.count("free", PAGE_2M, NODE) == N_PAGES


@contextlib.contextmanager
def online():
    try:
        set_online(True)
        yield
    finally:
        set_online(False)


def row(service):
    return next((row for row in service.pools() if row["node"] == NODE), None)


def ready(service):
    return {row["node"]: row["ready_bytes"] for row in service.pools()}


def reload():
    run("hugezeroctl", "reload")


def test_a_node_is_taken_in_and_left_out_by_a_reload(service, start_child):
    service.start(f"{DAEMON}[Pool p]\nTarget=16M\n")
    full = {0: BYTES, 1: BYTES, 3: BYTES, 4: 0}
    wait_until(lambda: ready(service) == full, "the pool is full where there are pages")
    pid = service.pid
    for _ in range(2):
        with online():
            assert not row(service) or row(service)["target_bytes"] == 0
            reload()
            wait_until(lambda: ready(service) == full | {NODE: BYTES}, "the node is full")
            child = start_child()
            child.call(holder.acquire, service.socket_path, BYTES, node=NODE, mode="strict")
            assert child.call(holder.nodes) == [{NODE}]
            child.kill()
            wait_until(lambda: ready(service) == full | {NODE: BYTES}, "its memory is back")
            # As hugezeroctl(1) says
            run("hugezeroctl", "drain", "--node", str(NODE), "--wait=30s")
        reload()
        wait_until(lambda: ready(service) == full | {NODE: 0}, "it is empty, the others are as they were")
        assert (row(service)["target_bytes"], row(service)["shortfall_bytes"]) == (0, 0)
        with pytest.raises(ChildError) as problem:
            start_child().call(holder.acquire, service.socket_path, BYTES, node=NODE, mode="strict")
        assert problem.value.error == "Refused"
    assert service.pid == pid


def test_memory_that_the_kernel_moved_to_another_node_is_given_up(service):
    """Nobody has drained the node before."""
    with online():
        service.start(f"{DAEMON}AuditRate=1G\n[Pool p]\nTarget=node{NODE}:16M\n")
        service.wait_full()
        inodes = set(pages.hugetlb_files(service.pid))
        set_online(False)
        assert pages.count("nr", PAGE_2M, NODE) == 0
        wait_until(lambda: (row(service)["ready_bytes"], row(service)["shortfall_bytes"]) == (0, BYTES), "nothing is ready there")
        assert "moved to another node" in journal("hugezerod.service")
        set_online(True)
        wait_until(lambda: row(service)["ready_bytes"] == BYTES, "the node is full again")
        assert not inodes & set(pages.hugetlb_files(service.pid))
        service.stop()


def test_a_configuration_that_names_a_node_without_memory_changes_nothing(service):
    with online():
        service.start(f"{DAEMON}[Pool p]\nTarget=node{NODE}:16M node1:16M\n")
        service.wait_full()
        run("hugezeroctl", "drain", "--node", str(NODE), "--wait=30s")
    before, pid = ready(service), service.pid
    assert subprocess.run(["systemctl", "reload", "hugezerod.service"], check=False).returncode == 1
    said = r"nothing was changed: .*hugezerod\.conf:6: .*node 5 has no memory; nodes with memory are 0, 1, 3, 4"
    wait_until(lambda: re.search(said, journal("hugezerod.service")), "it is said")
    assert (ready(service), service.pid) == (before, pid)
