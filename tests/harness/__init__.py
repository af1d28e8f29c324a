# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the suites that drive the real daemon have in common: the daemon, processes of other users and services, real pages."""

import contextlib
import os
import pathlib
import signal
import time

# Chosen: far above what anything takes here, also under sanitizers; nobody waits for it when all is well. An emulated machine
# gives its tests more.
DEADLINE_S = int(os.environ.get("HUGEZERO_TEST_DEADLINE_S", "20"))
EMULATED = "HUGEZERO_TEST_EMULATED" in os.environ  # said by suite vm: one processor does the work of a twentieth
POLL_S = 0.02 if EMULATED else 0.005


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Asks again and again until condition() is true, and returns what it said; a time-out is a failure that names `what`."""
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {deadline_s} s in vain until {what}")
        time.sleep(POLL_S)


@contextlib.contextmanager
def standing_still(process):
    """The process sees nothing of what happens meanwhile until it is over."""
    process.send_signal(signal.SIGSTOP)
    stat = pathlib.Path(f"/proc/{process.pid}/stat")
    wait_until(lambda: stat.read_text().rsplit(")", 1)[1].split()[0] == "T", "the process stands still")
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
