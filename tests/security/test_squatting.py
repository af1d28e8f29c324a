# SPDX-License-Identifier: LGPL-2.1-or-later
"""Somebody is at the socket's path already, or can get there while the daemon starts."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest
from harness import wait_until
from harness.daemon import DaemonFailed, sanitizer_environment
from harness.hostile import ATTACKER
from harness.weakened import Change

# Listens wherever it can
CARELESS = (
    Change("socket-folder.c", "if (st->st_uid != 0 && st->st_uid != geteuid()) {", "if (false) {"),
    Change("socket-folder.c", "if (!is_symlink && (st->st_mode & 022) && !(st->st_mode & S_ISVTX)) {", "if (false) {"),
    Change("server.c", "if (!S_ISSOCK(st.st_mode))", "if (false)"),
    Change("server.c", "if (r == -ECONNREFUSED)", "if (true)"),
)

@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="hugezero-test-") as name:
        path = pathlib.Path(name)
        path.chmod(0o1777)
        yield path


@pytest.fixture(params=["weakened", "real"])
def works(request):
    """Whether the attack does."""
    return request.param == "weakened"


def start_at(start_daemon, path, program=None):
    return start_daemon(config="[Pool a]\nTarget=0\n", args=["--socket", str(path)], program=program)


def assert_not_started(start_daemon, path):
    with pytest.raises(DaemonFailed) as failure:
        start_at(start_daemon, path)
    assert failure.value.code == 1
    assert str(path) in failure.value.stderr
    return failure.value.stderr


def test_a_symlink_is_not_followed(start_daemon, folder):
    """Not even by a careless daemon: bind(2) follows none."""
    (folder / "secret").write_text("content")
    (folder / "secret").chmod(0o600)
    for target in "secret", "nothing":
        (folder / "socket").symlink_to(folder / target)
        assert_not_started(start_daemon, folder / "socket")
        assert (folder / "socket").is_symlink()
        (folder / "socket").unlink()
    assert (folder / "secret").read_text() == "content"
    assert (folder / "secret").stat().st_mode & 0o777 == 0o600
    assert not (folder / "nothing").exists()


def test_a_file_that_is_no_socket_is_left_alone(start_daemon, folder, weaken, works):
    (folder / "socket").write_text("content")
    if works:
        start_at(start_daemon, folder / "socket", weaken(*CARELESS))
        assert (folder / "socket").is_socket()
        return
    assert_not_started(start_daemon, folder / "socket")
    assert (folder / "socket").read_text() == "content"


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_somebody_serves_is_left_alone(start_daemon, folder, weaken, works, kind):
    with socket.socket(socket.AF_UNIX, kind) as squatter:
        squatter.bind(str(folder / "socket"))
        if kind != socket.SOCK_DGRAM:
            squatter.listen()
        os.chown(folder / "socket", ATTACKER, ATTACKER)
        inode = (folder / "socket").stat().st_ino
        if works:
            start_at(start_daemon, folder / "socket", weaken(*CARELESS))
        else:
            who = f"whose file is uid {ATTACKER}'s" if kind == socket.SOCK_DGRAM else f"process {os.getpid()} of uid 0"
            assert f"Another daemon listens there, {who}; stop it" in assert_not_started(start_daemon, folder / "socket")
        assert ((folder / "socket").stat().st_ino != inode) == works


AS_SYSTEMD = """
import os, socket, subprocess, sys
assert os.getpid() == 1
subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
os.makedirs("/run/systemd/system")  # sd_booted(3)
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
    listener.bind(sys.argv[1])
    listener.listen()
    sys.exit(subprocess.run(sys.argv[2:]).returncode)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a namespace of processes")
def test_a_socket_of_the_service_manager_is_named_as_that(build, folder):
    path = str(folder / "socket")
    (folder / "hugezerod.conf").write_text("[Pool a]\nTarget=0\n")
    daemon = [str(build / "daemon" / "hugezerod"), "--config", str(folder / "hugezerod.conf"), "--socket", path]
    command = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, "-c", AS_SYSTEMD, path, *daemon]
    answer = subprocess.run(command, env=dict(os.environ, **sanitizer_environment(None)), capture_output=True, text=True, timeout=30, check=False)
    assert answer.returncode == 1 and path in answer.stderr, answer
    assert "systemd listens there" in answer.stderr and "systemctl stop hugezerod.socket" in answer.stderr, answer


def test_a_socket_that_nobody_serves_is_replaced(start_daemon, folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(folder / "socket"))
    os.chown(folder / "socket", ATTACKER, ATTACKER)
    start_at(start_daemon, folder / "socket")
    wait_until(lambda: (folder / "socket").stat().st_uid == os.geteuid(), "the socket is the daemon's own")


@contextlib.contextmanager
def acting_as_the_attacker():
    os.setegid(ATTACKER)
    os.seteuid(ATTACKER)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def take_over(path, make_room):
    """Clients who connect to the path get to the attacker, who has made room there for a socket of his own."""
    with acting_as_the_attacker(), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as squatter:
        make_room()
        squatter.bind(str(path))
        squatter.listen()
        os.seteuid(0)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
            client.connect(str(path))
            squatter.settimeout(5)
            squatter.accept()[0].close()


@pytest.mark.parametrize("owner, mode", [(ATTACKER, 0o755), (0, 0o777), (0, 0o775)])
def test_a_folder_where_others_may_replace_the_socket_is_refused(start_daemon, folder, weaken, works, owner, mode):
    """Whoever may rename files there can put a symlink in place of the socket just when its mode is changed."""
    os.chown(folder, owner, ATTACKER)
    folder.chmod(mode)
    if works:
        start_at(start_daemon, folder / "socket", weaken(*CARELESS))
        take_over(folder / "socket", (folder / "socket").unlink)
        return
    assert "replace" in assert_not_started(start_daemon, folder / "socket")
    assert list(folder.iterdir()) == []


def replace_parent(path):
    """What the owner of a folder above the socket does to it: moves the socket away with its folder."""
    path.parent.rename(path.parent.parent / "elsewhere")
    path.parent.mkdir()


def test_the_owner_of_a_folder_above_does_not_get_the_clients(start_daemon, folder, weaken, works):
    path = folder / "a" / "b" / "socket"
    path.parent.mkdir(parents=True)
    os.chown(folder / "a", ATTACKER, ATTACKER)
    if works:
        start_at(start_daemon, path, weaken(*CARELESS))
        take_over(path, lambda: replace_parent(path))
        return
    assert f'"{folder}/a" belongs to uid {ATTACKER}' in assert_not_started(start_daemon, path)
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_no_folder_is_made_in_a_folder_of_others(start_daemon, folder, weaken, works, mode):
    path = folder / "a" / "new" / "socket"
    (folder / "a").mkdir()
    os.chown(folder / "a", ATTACKER, ATTACKER)
    (folder / "a").chmod(mode)
    if works:
        start_at(start_daemon, path, weaken(*CARELESS))
        take_over(path, lambda: replace_parent(path))
        return
    assert f'"{folder}/a" belongs to uid {ATTACKER}' in assert_not_started(start_daemon, path)
    assert list((folder / "a").iterdir()) == []


def point_elsewhere(symlink, target):
    (target / "sub").mkdir(parents=True)
    symlink.unlink()
    symlink.symlink_to(target)


@pytest.mark.parametrize("place", ["b", "b/..", "b/sub", "chain"])
def test_a_symlink_of_somebody_else_in_the_path_is_refused(start_daemon, folder, weaken, works, place):
    """Its owner may point it elsewhere at any time. "chain": a symlink of root's that leads through it."""
    path = f"{folder}/{place}/socket"
    (folder / "target" / "sub").mkdir(parents=True)
    (folder / "b").symlink_to(folder / "target")
    os.chown(folder / "b", ATTACKER, ATTACKER, follow_symlinks=False)
    (folder / "chain").symlink_to("b/sub")
    if works:
        if pathlib.Path("/proc/sys/fs/protected_symlinks").read_text() != "0\n":
            pytest.skip("cannot: this kernel follows no such symlink (fs.protected_symlinks)")
        start_at(start_daemon, path, weaken(*CARELESS))
        take_over(path, lambda: point_elsewhere(folder / "b", folder / "theirs" / "b"))
        return
    assert f'the symlink "{folder}/b" belongs to uid {ATTACKER}' in assert_not_started(start_daemon, path)


def test_a_symlink_of_the_daemons_user_is_followed_where_all_is_safe(start_daemon, folder):
    (folder / "target").mkdir()
    (folder / "a").symlink_to("target")
    start_at(start_daemon, folder / "a" / ".." / "a" / "socket")
    wait_until((folder / "target" / "socket").is_socket, "the socket is there")
    (folder / "theirs").mkdir()
    (folder / "theirs" / "sub").mkdir()
    os.chown(folder / "theirs", ATTACKER, ATTACKER)
    (folder / "leads").symlink_to("theirs/sub")
    assert f'the folder "{folder}/theirs"' in assert_not_started(start_daemon, folder / "leads" / "socket")


def test_the_daemon_leaves_alone_what_took_its_sockets_place(start_daemon, folder):
    daemon = start_at(start_daemon, folder / "socket")
    (folder / "socket").unlink()
    (folder / "socket").write_text("content")
    daemon.stop()
    assert (folder / "socket").read_text() == "content"
