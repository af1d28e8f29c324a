# SPDX-License-Identifier: LGPL-2.1-or-later
"""A pinned page stays readable and writable after every descriptor and mapping is gone: it must never be another's memory."""

import pytest
from harness import hostile, holder
from harness.pages import MIB, need_pages

SIZE = 8 * MIB
WEAK, REAL = "Recycle=trusted\n", ""
CASES = pytest.mark.parametrize("setting, works", [(WEAK, True), (REAL, False)], ids=["weakened", "real"])


@pytest.fixture
def start(start_daemon):
    def start_with(setting):
        need_pages(16)
        daemon = start_daemon(pools=["2M:8M:8M"], config=f"ReleaseGrace=50ms\nSweepInterval=100ms\n{setting}")
        daemon.wait_full()
        return daemon

    return start_with


def give_to(daemon, victim, attacker):
    """The victim gets all the memory that there is, after the attacker has let go of it."""
    attacker.call(holder.drop)
    daemon.wait_pool(lambda row: row["granted_bytes"] + row["returned_bytes"] == 0, "the memory is back")
    victim.call(holder.acquire, daemon.socket_path, SIZE, on_miss="wait", timeout_ms=20000)
    assert victim.call(holder.is_zero)
    victim.call(holder.fill, byte=0x5A)


@CASES
def test_pages_in_a_pipe_do_not_show_the_next_holders_secrets(start, attacker, victim, setting, works):
    daemon = start(setting)
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    attacker.call(holder.fill, byte=0x11)
    attacker.call(hostile.pin_pages)
    give_to(daemon, victim, attacker)
    assert (b"\x5a" in attacker.call(hostile.read_pins)) == works


@CASES
def test_a_fixed_buffer_of_io_uring_does_not_write_to_the_next_holder(start, attacker, victim, setting, works):
    daemon = start(setting)
    attacker.call(holder.acquire, daemon.socket_path, SIZE)
    error = attacker.call(hostile.register_buffer)
    if error:
        pytest.skip(f"cannot: this kernel offers no io_uring with fixed buffers in hugepages (errno {error})")
    give_to(daemon, victim, attacker)
    attacker.call(hostile.write_through_ring, 0xEE)
    assert victim.call(holder.is_filled_with, byte=0x5A) != works
