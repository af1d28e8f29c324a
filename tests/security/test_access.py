# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who is served at all, who may look after others' grants, whose quota counts, and where the daemon refuses to run."""

import errno
import subprocess
import time

from harness import holder, wait_until
from harness.child import ChildError
from harness.daemon import sanitizer_environment
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, need_pages

SIZE, GROUP = 2 * MIB, 3100
QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


def start(start_daemon, config, more=""):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config=f"{QUICK}{config}{more}")
    daemon.wait_full()
    return daemon


def refusal(child, function, *args, **kwargs):
    """The errno, or None when it was granted."""
    try:
        child.call(function, *args, **kwargs)
    except ChildError as error:
        assert error.error == "Refused", error
        return error.errno
    return None


def test_only_the_named_are_served(start_daemon, start_child):
    daemon = start(start_daemon, f"AllowUsers={ATTACKER}\nAllowGroups={GROUP}\n")
    assert refusal(start_child(uid=ATTACKER), holder.connect, daemon.socket_path) is None
    assert refusal(start_child(uid=VICTIM, groups=[GROUP]), holder.connect, daemon.socket_path) is None
    assert refusal(start_child(uid=VICTIM, gid=GROUP), holder.connect, daemon.socket_path) is None
    assert refusal(start_child(uid=VICTIM, groups=[GROUP + 1]), holder.connect, daemon.socket_path) == errno.EACCES
    assert refusal(start_child(), holder.connect, daemon.socket_path) is None
    assert "AllowUsers=" in daemon.stderr()


def rows(me, path):
    return holder.client(me, path).grants()


def test_administrators_see_and_release_the_grants_of_all(start_daemon, start_child, victim):
    daemon = start(start_daemon, f"AdminUsers={ATTACKER}\n")
    victim.call(holder.acquire, daemon.socket_path, SIZE)
    number = victim.call(holder.grant_id)
    administrator, other = start_child(uid=ATTACKER), start_child(uid=3003)
    assert [row["uid"] for row in administrator.call(rows, daemon.socket_path)] == [VICTIM]
    assert refusal(administrator, holder.release_id, daemon.socket_path, number) is None
    assert other.call(rows, daemon.socket_path) == []
    assert refusal(other, holder.release_id, daemon.socket_path, number) == errno.ENOENT
    victim.call(holder.fill)
    assert victim.call(holder.is_filled_with)


def test_memory_passes_among_trusted_users_only(start_daemon, start_child):
    need_pages(16)
    daemon = start_daemon(pools=["2M:8M:8M"], config=f"{QUICK}Recycle=trusted\nTrustedUsers={ATTACKER} {VICTIM}\n")
    daemon.wait_full()
    child = start_child(uid=ATTACKER)
    inode = child.call(holder.acquire, daemon.socket_path, 8 * MIB)[0].inode
    for uid, same in (VICTIM, True), (3003, False):
        child.call(holder.drop)
        daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
        child = start_child(uid=uid)
        assert (child.call(holder.acquire, daemon.socket_path, 8 * MIB, on_miss="wait", timeout_ms=20000)[0].inode == inode) == same


def test_members_of_a_group_have_its_quota_each(start_daemon, start_child):
    quota = f"[Quota default]\nMaxBytes=0\n[Quota group:{GROUP}]\nMaxBytes=4M\n[Quota user:root]\nMaxBytes=infinity\n"
    daemon = start(start_daemon, "", quota)
    for uid in ATTACKER, VICTIM:
        member = start_child(uid=uid, groups=[1, GROUP])
        assert refusal(member, holder.acquire, daemon.socket_path, 4 * MIB, several=True) is None
        assert refusal(member, holder.acquire, daemon.socket_path, SIZE, "more") == errno.EDQUOT
    assert refusal(start_child(uid=3003, groups=[GROUP + 1]), holder.acquire, daemon.socket_path, SIZE) == errno.EDQUOT


def test_requests_per_second_are_limited_whatever_their_outcome_and_connection(start_daemon, start_child):
    rate = 5
    daemon = start(start_daemon, "", f"[Quota default]\nMaxRequestRate={rate}\n")
    child = start_child(uid=ATTACKER)
    errors, seconds = child.call(ask_often, daemon.socket_path, 60)
    assert set(errors) <= {errno.EBUSY, errno.ENODEV, errno.EINVAL}
    assert errno.EBUSY in errors and len(errors) - errors.count(errno.EBUSY) <= rate * (seconds + 2), (errors, seconds)
    assert refusal(start_child(uid=VICTIM), holder.acquire, daemon.socket_path, SIZE) is None
    wait_until(lambda: refusal(child, holder.acquire, daemon.socket_path, SIZE) is None, "the next second has begun")


def ask_often(me, path, n):
    """Hopeless requests, each over a connection of its own; returns what they came to, and how long it took."""
    start_s, errors = time.monotonic(), []
    for _ in range(n):
        try:
            holder.acquire(me, path, 1 << 62)
        except OSError as error:
            errors.append(error.errno)
        holder.disconnect(me)
    return errors, time.monotonic() - start_s


def test_the_daemon_does_not_run_where_users_look_alike(build, tmp_path):
    command = ["unshare", "--user", "--map-root-user", str(build / "daemon" / "hugezerod"), "--socket", str(tmp_path / "socket"), "--pool", "2M:auto:0"]
    result = subprocess.run(command, env=sanitizer_environment(1), capture_output=True, text=True, timeout=30, check=False)
    assert result.returncode == 1
    assert "user namespace" in result.stderr


def test_each_limit_is_shown_with_its_use_to_whom_it_concerns(start_daemon, start_child, victim):
    daemon = start(start_daemon, "MaxConnections=50\n", f"[Quota default]\nMaxBytes=8M\n[Quota user:{VICTIM}]\nMaxGrants=7\n")
    victim.call(holder.acquire, daemon.socket_path, 4 * MIB, several=True)
    own = victim.call(limits, daemon.socket_path)
    assert {uid for uid, _ in own} == {VICTIM}
    assert own[VICTIM, "bytes"] == (4 * MIB, 8 * MIB)
    assert own[VICTIM, "grants"] == (1, 7)
    assert own[VICTIM, "connections"] == (1, 64)
    assert own[VICTIM, "waiting"] == (0, 64)
    assert own[VICTIM, "fds_in_flight"][1] == 1024
    assert own[VICTIM, "requests"] in [(0, 20000), (1, 20000)]
    others = [start_child(uid=3100 + i) for i in range(4)]
    for other in others:
        other.call(holder.connect, daemon.socket_path)
    seen = start_child().call(limits, daemon.socket_path)
    assert {uid for uid, _ in seen} == {0, VICTIM, None, *range(3100, 3104)}
    assert seen[VICTIM, "bytes"] == own[VICTIM, "bytes"]
    assert seen[None, "bytes"] == (4 * MIB, None)
    assert seen[None, "connections"] == (6, 50)
    assert len(seen) == 7 * 6


def limits(me, path):
    return holder.client(me, path).limits()
