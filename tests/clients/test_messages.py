# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each message is one write, so that those of processes that share a terminal, a pipe or a log never mix."""

import os
import select
import socket
import subprocess

import pytest
from harness.daemon import sanitizer_environment

CTL, DAEMON, RESERVE = "tools/hugezeroctl", "daemon/hugezerod", "systemd/hugezero-reserve"


def messages(build, program, *args):
    """What a program that fails writes to stderr: a datagram each, as nothing else keeps writes apart."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        env = dict(os.environ, HUGEZERO_SOCKET="/nowhere/socket", **sanitizer_environment(None))
        env.pop("JOURNAL_STREAM", None)
        code = subprocess.run([build / program, *args], env=env, stdin=subprocess.DEVNULL, stderr=theirs, timeout=60, check=False).returncode
        assert code != 0
        ours.setblocking(False)
        written = []
        while True:
            try:
                written.append(ours.recv(1 << 16).decode())
            except BlockingIOError:
                return written


@pytest.mark.parametrize(
    "program, args",
    [
        (CTL, ["status"]),
        (CTL, ["frobnicate"]),
        (CTL, ["status", "--frobnicate"]),
        (CTL, ["resize", "vm", "much"]),
        (CTL, ["frobnicate" * 2000]),
        (DAEMON, ["--frobnicate"]),
        (DAEMON, ["stray"]),
        (DAEMON, ["--config", "/nowhere/file", "--check-config"]),
        (RESERVE, ["--frobnicate"]),
        (RESERVE, ["stray"]),
        (RESERVE, ["--config", "/nowhere/file"]),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else value,
)
def test_a_message_is_one_write(build, program, args):
    written = messages(build, program, *args)
    assert len(written) == 1, written
    assert written[0].startswith(f"{os.path.basename(program)}: ") and written[0].endswith("\n")
    assert len(written[0]) <= select.PIPE_BUF
