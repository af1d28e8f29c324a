# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezerod.service and hugezerod.socket under systemd: privileges, start by socket, crash, stop. One node is enough."""

import grp
import json
import os
import pathlib
import pwd
import re
import signal
import stat
import subprocess
import time
import urllib.request

import pytest
from inside import Service, is_container, journal, run
from harness import holder, pages, wait_until
from harness.child import ChildError
from harness.pages import MIB
from hugezero_client import Client

POOL = "[Pool p]\nTarget=node0:16M\n"
BYTES, SIZE = 16 * MIB, 8 * MIB
MEMBER, STRANGER = 64999, 65534


@pytest.fixture(scope="module")
def running(install):
    """Started by its socket, for tests that leave it as it was."""
    service = Service()
    service.configure(f"{POOL}[Pool fixed]\nExtentSize=8M\nTarget=node0:8M\n")
    run("systemctl", "start", "hugezerod.socket")
    assert service.show("ActiveState") == "inactive"
    with Client(service.socket_path) as client:
        assert [row["name"] for row in client.pools()] == ["p", "fixed"]
    service.wait_full()
    yield service
    run("systemctl", "stop", "hugezerod.socket", "hugezerod.service")


def process_status(pid):
    return dict(re.findall(r"^(\w+):\s*(.*)$", pathlib.Path(f"/proc/{pid}/status").read_text(), re.MULTILINE))


@pytest.fixture
def start_member(start_child):
    """Clients that are members of the socket's group and nothing else."""
    return lambda **kwargs: start_child(uid=MEMBER, groups=[grp.getgrnam("hugezero").gr_gid], **kwargs)


def test_the_first_client_starts_the_daemon_and_it_fills_its_pools(running):
    assert running.show("ActiveState") == "active"
    assert running.show("Type") == "notify" and running.show("SubState") == "running"
    assert [(row["ready_bytes"], row["shortfall_bytes"]) for row in running.pools()] == [(BYTES, 0), (SIZE, 0)]
    wait_until(lambda: running.show("StatusText") == "Serving 24 MiB", "systemctl shows it")


def test_it_has_its_own_user_no_capability_and_a_filter(running):
    status = process_status(running.pid)
    user = pwd.getpwnam("hugezero")
    assert status["Uid"].split() == [str(user.pw_uid)] * 4 and status["Gid"].split() == [str(user.pw_gid)] * 4
    assert not status["Groups"] or status["Groups"].split() == [str(user.pw_gid)]
    for name in "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb":
        assert int(status[name], 16) == 0, name
    assert status["NoNewPrivs"] == "1" and status["Seccomp"] == "2"
    limits = pathlib.Path(f"/proc/{running.pid}/limits").read_text()
    assert re.search(r"^Max core file size +0 +0 ", limits, re.MULTILINE)
    soft, hard = re.search(r"^Max open files +(\d+) +(\d+) ", limits, re.MULTILINE).groups()
    # A container's systemd cannot give more than it has
    assert soft == hard and (hard == "1048576" or is_container())


def test_the_figure_of_systemd_analyze_security_is_at_most_0_8(running):
    said = run("systemd-analyze", "security", "--no-pager", "hugezerod.service")
    assert float(re.search(r"Overall exposure level for hugezerod.service: ([\d.]+)", said)[1]) <= 0.8, said


def test_members_of_the_group_may_connect_and_others_not(running, start_child, start_member):
    status = os.stat(running.socket_path)
    assert (status.st_uid, grp.getgrgid(status.st_gid).gr_name, stat.S_IMODE(status.st_mode)) == (0, "hugezero", 0o660)
    folder = os.stat(os.path.dirname(running.socket_path))
    assert (folder.st_uid, folder.st_gid, stat.S_IMODE(folder.st_mode)) == (0, 0, 0o755)
    start_member().call(holder.connect, running.socket_path)
    with pytest.raises(ChildError) as problem:
        start_child(uid=STRANGER).call(holder.connect, running.socket_path)
    assert problem.value.error == "PermissionError"


def test_a_member_opens_a_grant_by_path_when_it_asked_for_that(running, start_member):
    child = start_member()
    child.call(holder.acquire, running.socket_path, 4 * MIB, pool="p", name="path", reopenable=True)
    child.call(holder.reopen, "path", keep_as="again")
    child.call(holder.fill, "again")
    assert child.call(holder.is_filled_with, "path")
    child.call(holder.acquire, running.socket_path, 4 * MIB, pool="p", name="plain")
    with pytest.raises(ChildError) as problem:
        child.call(holder.reopen, "plain")
    assert problem.value.error == "PermissionError"
    child.kill()
    running.wait_back()


def test_clients_are_told_apart_by_their_service(running, start_member, make_cgroup):
    """Without /proc/PID/cgroup of other users' processes nothing would be used again in place."""
    one, other = make_cgroup("one"), make_cgroup("other")
    inodes = []
    for cgroup in one, one, other:
        child = start_member(cgroup=cgroup)
        (extent,) = child.call(holder.acquire, running.socket_path, SIZE, pool="fixed", on_miss="fill")
        assert child.call(holder.is_zero)
        inodes.append(extent.inode)
        child.call(holder.fill)
        child.kill()
        running.wait_back()
    assert inodes[0] == inodes[1] != inodes[2]


def test_control_works_as_installed(running):
    def ready():
        return [(row["name"], row["ready_bytes"]) for row in json.loads(run("hugezeroctl", "status", "--json"))["pools"]]

    # What was kept for a service that is gone now is exchanged first
    wait_until(lambda: ready() == [("p", BYTES), ("fixed", SIZE)], "both pools are shown as full")
    said = run("hugezeroctl", "run", "--grant", "name=ram0,bytes=4M", "--", "stat", "--dereference", "--format=%s", "{ram0.path}")
    assert said.strip() == str(4 * MIB)
    running.wait_back()


def test_stop_frees_every_page_and_leaves_holders_and_the_socket_alone(running, start_child):
    child = start_child()
    child.call(holder.acquire, running.socket_path, SIZE, pool="p")
    child.call(holder.fill)
    running.wait_full()
    running.stop()
    assert running.show("Result") == "success"
    n_held = SIZE // pages.PAGE_2M
    if not is_container():  # there the pages are shared with all of this machine
        wait_until(lambda: pages.count("nr") - pages.count("free") == n_held, "all pages but the holder's are free")
    assert child.call(holder.is_filled_with)
    child.kill()
    if not is_container():
        wait_until(lambda: pages.count("nr") == pages.count("free"), "the holder's pages are free")
    # The next client starts it again
    assert running.show("ActiveState", "hugezerod.socket") == "active"
    running.wait_full()


def test_it_is_started_again_after_a_crash_and_holders_keep_their_memory(running, start_child):
    child = start_child()
    child.call(holder.acquire, running.socket_path, SIZE, pool="p")
    child.call(holder.fill)
    pid = running.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: running.pid not in (0, pid) and running.show("SubState") == "running", "it runs again")
    assert child.call(holder.is_filled_with)
    assert int(running.show("NRestarts")) == 1
    child.kill()
    running.wait_back()


def scheduling_policies(stat_fds):
    """Field 41 of proc(5)'s stat of each thread."""
    return {int(os.pread(fd, 4096, 0).decode().rpartition(")")[2].split()[38]) for fd in stat_fds}


def test_it_clears_in_the_idle_class_and_can_leave_it(running, start_child):
    if is_container():
        pytest.skip("cannot: without CAP_SYS_RESOURCE a container's systemd raises no limit, and LimitNICE= is one")
    child = start_child()
    # Open already: a slice of clearing is over in a millisecond or two
    stat_fds = [os.open(task / "stat", os.O_RDONLY) for task in pathlib.Path(f"/proc/{running.pid}/task").iterdir()]

    def clears_when_idle():
        child.call(holder.acquire, running.socket_path, BYTES // 4, pool="p")  # or the rest is below its low mark
        child.call(holder.drop)
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            if os.SCHED_IDLE in scheduling_policies(stat_fds):
                return True
        return False

    wait_until(clears_when_idle, "a thread clears in the idle class")
    running.wait_back()
    wait_until(lambda: scheduling_policies(stat_fds) == {os.SCHED_OTHER}, "it has left it again")
    for fd in stat_fds:
        os.close(fd)


def test_when_the_socket_stops_nothing_is_left(running):
    run("systemctl", "stop", "hugezerod.socket")
    assert running.show("ActiveState") == "inactive"
    assert os.listdir("/run/hugezero") == []
    if not is_container():
        wait_until(lambda: pages.count("nr") == pages.count("free"), "all pages are free")


def test_another_group_is_served_after_what_the_page_says(service, start_child):
    """hugezerod.conf(5), EXAMPLES, with a group that nobody has."""
    run("groupadd", "--force", "hugezero-test")
    gid, drop_in = grp.getgrnam("hugezero-test").gr_gid, pathlib.Path("/run/systemd/system/hugezerod.socket.d/group.conf")
    service.configure(f"SocketGroup=hugezero-test\n{POOL}")
    assert subprocess.run(["runuser", "-u", "hugezero", "--", "hugezerod", "--check-config"], check=False).returncode == 1
    run("usermod", "-aG", "hugezero-test", "hugezero")
    run("runuser", "-u", "hugezero", "--", "hugezerod", "--check-config")
    run("systemctl", "start", "hugezerod.service")
    assert re.search(r"group hugezero and mode 0660: .*SocketGroup=hugezero-test below \[Socket\]", journal("hugezerod.service"))
    drop_in.parent.mkdir(parents=True, exist_ok=True)
    drop_in.write_text("[Socket]\nSocketGroup=hugezero-test\n")
    run("systemctl", "daemon-reload")
    run("systemctl", "restart", "hugezerod.socket")
    service.wait_full()
    child = start_child(uid=MEMBER, groups=[gid])
    child.call(holder.acquire, service.socket_path, 4 * MIB, pool="p", reopenable=True)
    child.call(holder.reopen)
    child.kill()
    drop_in.unlink()
    run("gpasswd", "-d", "hugezero", "hugezero-test")
    run("systemctl", "daemon-reload")


def test_metrics_are_served_on_several_sockets_and_a_unix_socket_is_gone_with_the_unit(service):
    path, unit = pathlib.Path("/run/hugezero/metrics"), pathlib.Path("/run/systemd/system/hugezero-metrics.socket.d/test.conf")
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(f"[Socket]\nListenStream=127.0.0.1:9858\nListenStream={path}\n")
    run("systemctl", "daemon-reload")
    service.configure("[Pool p]\nTarget=0\n")
    run("systemctl", "start", "hugezero-metrics.socket")
    run("systemctl", "start", "hugezerod.service")
    for port in 9857, 9858:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
            assert b"hugezero_pool_target_bytes" in answer.read()
    assert path.is_socket()
    run("systemctl", "restart", "hugezerod.service")
    assert path.is_socket()
    run("systemctl", "stop", "hugezerod.service")
    wait_until(lambda: not path.exists(), "the socket is gone")
    unit.unlink()
    run("systemctl", "daemon-reload")


def test_a_wrong_configuration_is_told_in_the_journal_and_can_be_mended(service):
    service.configure("[Pool p]\nTarget=lots\n")
    run("systemctl", "start", "hugezerod.service", check=False)
    assert re.search(r'hugezerod\.conf:5: \[Pool p\] Target=: value "lots"', journal("hugezerod.service"))
    service.configure(POOL)
    wait_until(lambda: service.show("SubState") == "running", "it runs")
    service.wait_full()
