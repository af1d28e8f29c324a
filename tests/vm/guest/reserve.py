# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezero-reserve.service against the kernel: two nodes, pages of 2 MiB and 1 GiB."""

import pathlib
import re

import pytest
from inside import journal, run
from harness import pages
from harness.pages import PAGE_1G, PAGE_2M

UNIT = "hugezero-reserve.service"
CONFIG = pathlib.Path("/etc/hugezero/reserve.conf")
ENOUGH = "2M 0 128M\n2M 1 192MiB\n"
N_ENOUGH = {0: 64, 1: 96}


def reserve(text):
    """Runs the service with this configuration; returns its result, and what it said."""
    CONFIG.write_text(text)
    before = journal(UNIT)
    run("systemctl", "reset-failed", UNIT, check=False)  # or it would soon have been started too often
    run("systemctl", "restart", UNIT, check=False)
    return run("systemctl", "show", "--property=Result", "--value", UNIT).strip(), journal(UNIT).removeprefix(before)


def counts(page_size=PAGE_2M):
    return {node: pages.count("nr", page_size, node) for node in (0, 1)}


@pytest.fixture(scope="module", autouse=True)
def none_before(install):
    """Without the pages that the kernel was given at boot."""
    for node in 0, 1:
        set_count(node, 0)
        set_count(node, 0, PAGE_1G)


def set_count(node, n, page_size=PAGE_2M):
    (pages.sysfs(page_size, node) / "nr_hugepages").write_text(str(n))


def test_each_node_gets_the_pages_that_are_configured_and_the_time_is_told():
    assert counts() == {0: 0, 1: 0}
    result, said = reserve(ENOUGH)
    assert (result, counts()) == ("success", N_ENOUGH), said
    for node, n in N_ENOUGH.items():
        assert re.search(rf"^node {node}: {n} pages of 2 MiB, {n} of them new, in \d+\.\d{{3}} s$", said, re.MULTILINE), said


def test_a_pool_is_never_shrunk_and_what_is_there_already_is_left_alone():
    result, said = reserve("2M 0 4M\n2M 1 192M\n")
    assert (result, counts()) == ("success", N_ENOUGH)
    for node, n in N_ENOUGH.items():
        assert f"node {node}: {n} pages of 2 MiB, 0 of them new" in said


def test_a_drop_in_replaces_what_the_file_says():
    drop_in = CONFIG.with_name("reserve.conf.d") / "10-test.conf"
    drop_in.parent.mkdir(exist_ok=True)
    drop_in.write_text("# one page more\n2048kB 1 194M\n")
    try:
        result, _ = reserve(ENOUGH)
        assert (result, counts()) == ("success", {0: 64, 1: 97})
    finally:
        drop_in.unlink()
    set_count(1, 96)


@pytest.mark.parametrize(
    "line, complaint",
    [
        ("2M 1 200MB of memory", "three words are expected"),
        ("4K 1 200M", 'the kernel has no pages of size "4K"; it has 2 MiB, 1 GiB'),
        ("2M 0-7 200M", "there is no node 2; nodes with memory are 0, 1"),
    ],
)
def test_one_wrong_line_and_no_page_is_reserved(line, complaint):
    result, said = reserve(f"2M 0 200M\n{line}\n")
    assert (result, counts()) == ("exit-code", N_ENOUGH)
    assert f"{CONFIG}:2: {complaint}" in said


def test_what_is_missing_is_said_and_the_other_goals_are_reached():
    # More than the node has at all; nothing that was there before is lost
    result, said = reserve("1G 0 1G\n2M 0,1 128M\n2M 1 194M\n")
    assert result == "exit-code"
    assert counts() == {0: 64, 1: 97} and counts(PAGE_1G) == {0: 0, 1: 0}
    assert "node 0: 0 pages of 1 GiB, 0 of them new" in said and "after compaction" in said
    assert "node 0: 1 of 1 pages of 1 GiB are missing" in said
    assert "hugepagesz=1048576K hugepages=0:1" in said
    # Below the unit's sandbox its messages have fields
    assert "are missing" in run("journalctl", "--quiet", "--output=cat", f"--unit={UNIT}", "NODE=0", f"PAGE_SIZE_BYTES={PAGE_1G}", "MISSING_PAGES=1")
    set_count(1, 96)


def test_part_of_a_goal_is_kept_and_said():
    n_wanted = 10000
    result, said = reserve(f"2M 0 {2 * n_wanted}M\n")
    n = counts()[0]
    assert result == "exit-code" and 64 < n < 768 // 2
    assert f"node 0: {n} pages of 2 MiB, {n - 64} of them new" in said
    assert f"node 0: {n_wanted - n} of {n_wanted} pages of 2 MiB are missing" in said
    set_count(0, 64)


def test_pages_of_a_gib_can_be_reserved_at_run_time():
    result, said = reserve("1GiB 1 1GiB\n")
    assert (result, counts(PAGE_1G)) == ("success", {0: 0, 1: 1}), said


def test_it_comes_before_those_who_want_the_pages():
    before = run("systemctl", "show", "--property=Before", "--value", UNIT).split()
    assert {"hugezerod.service", "kubelet.service", "libvirtd.service"} <= set(before)


def test_systemd_finds_no_fault_in_the_units():
    assert run("systemd-analyze", "verify", "--man=no", "hugezerod.service", "hugezerod.socket", UNIT) == ""
