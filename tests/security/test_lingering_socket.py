# SPDX-License-Identifier: LGPL-2.1-or-later
"""Whoever closes the last descriptor of a TCP socket with unsent data waits as long as its sender has chosen."""

import errno
import statistics

from harness import hostile
from harness.pages import MIB, need_pages

LINGER_S = 4


def test_closing_such_a_socket_takes_as_long_as_its_sender_chose(start_child):
    """The attack, on somebody without protection."""
    assert start_child(uid=3001).call(hostile.time_of_close, 1) >= 0.9


def test_a_lingering_socket_sent_to_the_daemon_delays_nobody(start_daemon, attacker, victim):
    need_pages(16)
    daemon = start_daemon(pools=["2M:2M:16M"], config="ReleaseGrace=50ms\n")
    daemon.wait_full()
    quiet = victim.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, 1)
    error = attacker.call(hostile.send_lingering_socket, daemon.socket_path, LINGER_S)
    assert error in (None, errno.EPERM)  # newer kernels do not even let it pass
    times = victim.call(hostile.time_acquires, daemon.socket_path, 2 * MIB, 2)
    print(f"acquires took {1000 * statistics.median(times):.2f} ms in the middle, {1000 * max(times):.2f} ms at most")
    print(f"and before the attack {1000 * statistics.median(quiet):.2f} ms and {1000 * max(quiet):.2f} ms")
    assert len(times) > 10
    assert statistics.median(times) < max(0.005, 2 * statistics.median(quiet))  # an emulated machine has no 5 ms
    assert max(times) < LINGER_S / 4  # one may meet a busy machine, none the socket
