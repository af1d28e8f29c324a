# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who is served at all, who may look after others' grants, whose quota counts, and where the daemon refuses to run."""

import errno
import time

import pytest
from harness import holder, wait_until
from harness.child import ChildError
from harness.daemon import DaemonFailed
from harness.hostile import ATTACKER, VICTIM
from harness.pages import MIB, need_pages
from harness.weakened import Change

SIZE, GROUP = 2 * MIB, 3100
QUICK = "ReleaseGrace=50ms\nSweepInterval=100ms\n"


LENIENT = Change("manager.c", "server_admit_again(manager->server);", "")
BLIND = Change("access.c", "return n_total >= UINT32_MAX;", "return n_total > 0;")


@pytest.fixture(params=["weakened", "real"])
def works(request):
    """Whether the attack does."""
    return request.param == "weakened"


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


def test_only_the_named_are_served(start_daemon, start_child, works):
    daemon = start(start_daemon, "" if works else f"AllowUsers={ATTACKER}\nAllowGroups={GROUP}\n")
    assert refusal(start_child(uid=ATTACKER), holder.connect, daemon.socket_path) is None
    assert refusal(start_child(uid=VICTIM, groups=[GROUP]), holder.connect, daemon.socket_path) is None
    assert refusal(start_child(uid=VICTIM, gid=GROUP), holder.connect, daemon.socket_path) is None
    stranger = start_child(uid=VICTIM, groups=[GROUP + 1])
    assert refusal(stranger, holder.connect, daemon.socket_path) == (None if works else errno.EACCES)
    assert refusal(start_child(), holder.connect, daemon.socket_path) is None
    assert ("AllowUsers=" in daemon.stderr()) != works


def test_a_reload_cuts_off_who_is_served_no_longer(start_daemon, start_child, weaken, works):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config=f"{QUICK}AllowUsers={ATTACKER} {VICTIM}\n", program=weaken(LENIENT) if works else None)
    daemon.wait_full()
    former, waiting, member = start_child(uid=ATTACKER), start_child(uid=ATTACKER), start_child(uid=VICTIM, groups=[GROUP])
    for child in former, member:
        child.call(holder.acquire, daemon.socket_path, SIZE)
    waiting.start(holder.acquire, daemon.socket_path, 16 * MIB, several=True, on_miss="wait", timeout_ms=-1)
    wait_until(lambda: daemon.status()["n_waiting"] == 1, "it waits")
    (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}AllowUsers={VICTIM + 1}\nAllowGroups={GROUP}\n")
    assert daemon.control("reload").returncode == 0
    if works:
        assert waiting.is_busy()
        waiting.kill()
    else:
        with pytest.raises(ChildError) as failure:
            waiting.result()
        assert (failure.value.error, failure.value.errno) == ("Refused", errno.EACCES) and "AllowUsers=" in str(failure.value)
    wait_until(lambda: daemon.status()["n_waiting"] == 0, "nothing waits")
    member.call(holder.acquire, daemon.socket_path, SIZE, "more")
    if works:
        former.call(holder.acquire, daemon.socket_path, SIZE, "more")
    else:
        assert refusal(former, hear_last_words) == errno.EACCES
        former.call(holder.disconnect)
        assert refusal(former, holder.connect, daemon.socket_path) == errno.EACCES
    # What he holds is his
    former.call(holder.fill)
    assert former.call(holder.is_filled_with)
    assert daemon.status()["n_grants"] == (4 if works else 3)
    assert daemon.stderr().count(f"uid {ATTACKER} is not named by AllowUsers=") == (0 if works else 3)


def hear_last_words(me):
    me.client.wait(0)


def test_only_members_of_the_sockets_group_reach_it(start_daemon, start_child, works):
    daemon = start(start_daemon, f"SocketGroup={GROUP}\nSocketMode={'0666' if works else '0660'}\n")
    for member in start_child(uid=ATTACKER, groups=[GROUP]), start_child(uid=ATTACKER, gid=GROUP):
        assert member.call(connect_error, daemon.socket_path) == 0
    assert start_child(uid=ATTACKER, groups=[GROUP + 1]).call(connect_error, daemon.socket_path) == (0 if works else errno.EACCES)


def connect_error(me, path):
    """The kernel's, which refuses before the daemon hears of it."""
    try:
        holder.connect(me, path)
    except OSError as error:
        return error.errno
    return 0


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


def test_members_of_a_group_have_its_quota_each(start_daemon, start_child, works):
    group, others = ("infinity", "infinity") if works else ("4M", "0")
    quota = f"[Quota default]\nMaxBytes={others}\n[Quota group:{GROUP}]\nMaxBytes={group}\n[Quota user:root]\nMaxBytes=infinity\n"
    daemon = start(start_daemon, "", quota)
    error = None if works else errno.EDQUOT
    for uid in ATTACKER, VICTIM:
        member = start_child(uid=uid, groups=[1, GROUP])
        assert refusal(member, holder.acquire, daemon.socket_path, 4 * MIB, several=True) is None
        assert refusal(member, holder.acquire, daemon.socket_path, SIZE, "more") == error
    assert refusal(start_child(uid=3003, groups=[GROUP + 1]), holder.acquire, daemon.socket_path, SIZE) == error


def test_the_groups_of_the_last_connection_count(start_daemon, start_child):
    """Also for those who were connected when a reload gave their group its limits. A process without the group lifts them."""
    daemon = start(start_daemon, "")
    member = start_child(uid=ATTACKER, groups=[GROUP])
    member.call(holder.acquire, daemon.socket_path, SIZE)
    (daemon.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{QUICK}[Quota group:{GROUP}]\nMaxBytes=2M\n")
    assert daemon.control("reload").returncode == 0
    assert refusal(member, holder.acquire, daemon.socket_path, SIZE, "more") == errno.EDQUOT
    start_child(uid=ATTACKER).call(holder.connect, daemon.socket_path)
    assert refusal(member, holder.acquire, daemon.socket_path, SIZE, "more") is None


def test_requests_per_second_are_limited_whatever_their_outcome_and_connection(start_daemon, start_child, works):
    rate = 5
    daemon = start(start_daemon, "", f"[Quota default]\nMaxRequestRate={'infinity' if works else rate}\n")
    child = start_child(uid=ATTACKER)
    errors, seconds = child.call(ask_often, daemon.socket_path, 60)
    assert set(errors) <= {errno.EBUSY, errno.ENODEV, errno.EINVAL}
    if works:
        assert errno.EBUSY not in errors
        return
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


def test_the_daemon_does_not_run_where_users_look_alike(start_daemon, attacker, victim, weaken, works):
    """There each sees the grants of all, and has a quota with them."""
    need_pages(16)
    where = {"pools": ["2M:2M:4M"], "wrapper": ["unshare", "--user", "--map-root-user"]}
    if not works:
        with pytest.raises(DaemonFailed) as failure:
            start_daemon(**where)
        assert failure.value.code == 1
        assert "user namespace" in failure.value.stderr
        with pytest.raises(DaemonFailed) as failure:
            start_daemon(**where, args=["--check-config"])
        assert (failure.value.code, "user namespace" in failure.value.stderr) == (1, True)
        return
    daemon = start_daemon(**where, program=weaken(BLIND))
    victim.call(holder.acquire, daemon.socket_path, SIZE, on_miss="wait", timeout_ms=20000)
    assert [row["grant_id"] for row in attacker.call(rows, daemon.socket_path)] == [victim.call(holder.grant_id)]


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
    assert seen[VICTIM, 2 * MIB] == seen[None, 2 * MIB] == (4 * MIB, None)
    assert len(seen) == 7 * 6 + 2


def limits(me, path):
    return holder.client(me, path).limits()
