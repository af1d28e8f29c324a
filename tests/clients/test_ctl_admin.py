# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezeroctl reload, resize and drain against the real daemon."""

import json
import os
import re

import pytest
from harness import holder, wait_until
from harness.pages import MIB, PAGE_1G, PAGE_2M, hugetlb_files, need_pages, sysfs
from test_ctl import NOBODY, QUICK, assert_complains

POOLS = "[Pool a]\nPageSize=2M\nTarget=32M\n[Pool b]\nPageSize=2M\nExtentSize=4M\nTarget=16M\n"


def start_full(start_daemon):
    need_pages(96)
    daemon = start_daemon(config=QUICK + POOLS)
    daemon.wait_full()
    return daemon


def administer(daemon, *words):
    """Success is silent."""
    answer = daemon.control(*words)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", ""), answer


def targets(daemon):
    """{pool: target} of node 0"""
    return {row["name"]: row["target_bytes"] for row in daemon.pools() if row["node"] == 0}


def wait_ready(daemon, **n_bytes):
    """Until each of these pools has that much ready on node 0 and no more on its way."""

    def is_ready(row):
        return row["name"] not in n_bytes or (row["ready_bytes"] == n_bytes[row["name"]] and row["filling_bytes"] == 0)

    wait_until(lambda: all(is_ready(row) for row in daemon.pools() if row["node"] == 0), f"{n_bytes} are ready")


def test_resize_changes_one_pool_until_the_next_reload(start_daemon):
    daemon = start_full(start_daemon)
    administer(daemon, "resize", "a", "48M")
    wait_ready(daemon, a=48 * MIB, b=16 * MIB)
    administer(daemon, "resize", "--node", "0", "a", "6M")
    administer(daemon, "resize", "b", "--node=0", "8M")
    wait_ready(daemon, a=6 * MIB, b=8 * MIB)
    administer(daemon, "reload")
    wait_ready(daemon, a=32 * MIB, b=16 * MIB)


def test_a_target_beyond_what_the_node_has_is_said(start_daemon):
    if not sysfs(PAGE_1G).is_dir():
        pytest.skip("cannot: this kernel has no pages of 1 GiB, of which there are few")
    daemon = start_daemon(pools=["large=1G:auto:0"])
    answer = daemon.control("resize", "large", "4T", "--node", "0")
    assert answer.returncode == 0 and answer.stderr == ""
    assert re.fullmatch(r"node 0 has \S+ (\S+ )?for pool large now, not 4 TiB; the rest is taken as pages appear\n", answer.stdout), answer.stdout
    administer(daemon, "resize", "large", "0")


def test_what_the_daemon_refuses_to_resize_stays_as_it_was(start_daemon):
    daemon = start_full(start_daemon)
    before = targets(daemon)
    nodes = f"there is memory on node {', '.join(sorted({str(row['node']) for row in daemon.pools()}, key=int))}\n"
    for words in ["resize", "nosuch", "2M"], ["resize", "nosuch", "2M", "--node", "1000"], ["drain", "--pool", "nosuch"]:
        answer = daemon.control(*words)
        assert_complains(answer, 1)
        assert answer.stderr.endswith(': there is no pool "nosuch"; the pools are: a, b\n')
    for words in ["resize", "a", "2M"], ["drain", "--pool", "a"]:
        answer = daemon.control(*words, "--node", "1000")
        assert_complains(answer, 1)
        assert answer.stderr.endswith(f': pool "a" has no memory on node 1000; {nodes}')
    answer = daemon.control("drain", "--node", "1000")
    assert_complains(answer, 1)
    assert answer.stderr.endswith(f": no pool has memory on node 1000; {nodes}")
    assert_complains(daemon.control("resize", "a", "3M"), 1, "2 MiB")
    assert_complains(daemon.control("resize", "b", "2M"), 1, "4 MiB")
    assert_complains(daemon.control("resize", "a" * 40, "2M"), 1, "31")
    assert_complains(daemon.control("drain", "--pool", "nosuch", "--wait"), 1, "nosuch")
    assert_complains(daemon.control("resize", "a", "16E"), 2, "too large")
    assert targets(daemon) == before == {"a": 32 * MIB, "b": 16 * MIB}


def test_drain_gives_back_what_is_ready_and_later_what_was_held(start_daemon, start_child):
    daemon, child = start_full(start_daemon), start_child()
    (extent,) = child.call(holder.acquire, daemon.socket_path, 8 * MIB, pool="a")
    child.call(holder.fill)
    administer(daemon, "drain", "--wait=20s")
    assert hugetlb_files(daemon.pid).keys() <= {extent.inode}
    rows = {row["name"]: row for row in json.loads(daemon.control("status", "--json").stdout)["pools"] if row["node"] == 0}
    assert rows["a"]["granted_bytes"] == 8 * MIB
    assert child.call(holder.is_filled_with)
    child.kill()
    wait_until(lambda: not hugetlb_files(daemon.pid), "the daemon has no pages any more")
    assert targets(daemon) == {"a": 0, "b": 0}


def test_drain_of_one_pool_leaves_the_others(start_daemon):
    daemon = start_full(start_daemon)
    administer(daemon, "drain", "--pool", "a", "--node", "0", "--wait")
    wait_ready(daemon, a=0, b=16 * MIB)
    assert targets(daemon) == {"a": 0, "b": 16 * MIB}
    answer = daemon.control("run", "--grant", "name=x,bytes=2M,pool=a", "--", "true")
    assert_complains(answer, 1)
    assert daemon.control("run", "--grant", "name=x,bytes=2M,pool=b", "--", "true").returncode == 0


def test_drain_without_waiting_returns_at_once_and_a_wait_has_an_end(start_daemon, start_child):
    need_pages(96)
    # What comes back is kept for its service for a long time: that is not drained so soon
    daemon, child = start_daemon(config="ReleaseGrace=30s\n" + POOLS), start_child()
    daemon.wait_full()
    child.call(holder.acquire, daemon.socket_path, PAGE_2M, pool="a")
    child.call(holder.drop)
    wait_until(lambda: any(row["returned_bytes"] for row in daemon.pools()), "the page came back")
    administer(daemon, "drain")
    assert_complains(daemon.control("drain", "--wait=100ms"), 1, "2 MiB are left after 100ms", "hugezeroctl status")


def test_a_reload_of_a_wrong_file_names_the_place_and_changes_nothing(start_daemon):
    daemon = start_full(start_daemon)
    path = daemon.folder / "hugezerod.conf"
    path.write_text(path.read_text() + "Frobnicate=yes\n")
    assert_complains(daemon.control("reload"), 1, "hugezerod.conf:", "Frobnicate")
    assert targets(daemon) == {"a": 32 * MIB, "b": 16 * MIB}
    path.unlink()
    assert_complains(daemon.control("reload"), 1, str(path))
    assert targets(daemon) == {"a": 32 * MIB, "b": 16 * MIB}


@pytest.mark.parametrize("words", [["reload"], ["resize", "a", "2M"], ["drain"]], ids=" ".join)
def test_others_than_administrators_are_told_so(start_daemon, words):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    daemon = start_full(start_daemon)
    answer = daemon.control(*words, user=NOBODY, group=NOBODY, extra_groups=[])
    assert_complains(answer, 1, f"uid {NOBODY}", "administrator")
    assert targets(daemon) == {"a": 32 * MIB, "b": 16 * MIB}
