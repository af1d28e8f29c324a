# SPDX-License-Identifier: LGPL-2.1-or-later
"""Somebody is at the socket's path already, or can get there while the daemon starts."""

import os
import pathlib
import socket
import tempfile

import pytest
from harness import wait_until
from harness.daemon import DaemonFailed
from harness.hostile import ATTACKER


@pytest.fixture
def folder():
    with tempfile.TemporaryDirectory(prefix="hugezero-test-") as name:
        path = pathlib.Path(name)
        path.chmod(0o1777)
        yield path


def start_at(start_daemon, path):
    return start_daemon(config="[Pool a]\nTarget=0\n", args=["--socket", str(path)])


def assert_not_started(start_daemon, path):
    with pytest.raises(DaemonFailed) as failure:
        start_at(start_daemon, path)
    assert failure.value.code == 1
    assert str(path) in failure.value.stderr
    return failure.value.stderr


def test_a_symlink_is_not_followed(start_daemon, folder):
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


def test_a_file_that_is_no_socket_is_left_alone(start_daemon, folder):
    (folder / "socket").write_text("content")
    assert_not_started(start_daemon, folder / "socket")
    assert (folder / "socket").read_text() == "content"


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_somebody_serves_is_left_alone(start_daemon, folder, kind):
    with socket.socket(socket.AF_UNIX, kind) as squatter:
        squatter.bind(str(folder / "socket"))
        if kind != socket.SOCK_DGRAM:
            squatter.listen()
        os.chown(folder / "socket", ATTACKER, ATTACKER)
        inode = (folder / "socket").stat().st_ino
        assert "Another daemon listens there" in assert_not_started(start_daemon, folder / "socket")
        assert (folder / "socket").stat().st_ino == inode


def test_a_socket_that_nobody_serves_is_replaced(start_daemon, folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(folder / "socket"))
    os.chown(folder / "socket", ATTACKER, ATTACKER)
    start_at(start_daemon, folder / "socket")
    wait_until(lambda: (folder / "socket").stat().st_uid == os.geteuid(), "the socket is the daemon's own")


@pytest.mark.parametrize("owner, mode", [(ATTACKER, 0o755), (0, 0o777), (0, 0o775)])
def test_a_folder_where_others_may_replace_the_socket_is_refused(start_daemon, folder, owner, mode):
    """Whoever may rename files there can put a symlink in place of the socket just when its mode is changed."""
    os.chown(folder, owner, ATTACKER)
    folder.chmod(mode)
    assert "replace" in assert_not_started(start_daemon, folder / "socket")
    assert list(folder.iterdir()) == []


def test_the_daemon_leaves_alone_what_took_its_sockets_place(start_daemon, folder):
    daemon = start_at(start_daemon, folder / "socket")
    (folder / "socket").unlink()
    (folder / "socket").write_text("content")
    daemon.stop()
    assert (folder / "socket").read_text() == "content"
