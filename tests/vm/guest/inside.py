# SPDX-License-Identifier: LGPL-2.1-or-later
"""The machine from inside: commands, journal, nodes, and the installed daemon under systemd."""

import contextlib
import os
import pathlib
import subprocess

from harness import wait_until
from harness.daemon import Daemon

CONFIG = pathlib.Path("/etc/hugezero/hugezerod.conf")
# Short times, so that nothing is waited for
QUICK = "[Daemon]\nReleaseGrace=50ms\nSweepInterval=100ms\n"


def run(*command, check=True):
    """The standard output of a command."""
    process = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert not check or process.returncode == 0, f"{command} ended with {process.returncode}: {process.stderr or process.stdout}"
    return process.stdout


def is_container():
    return subprocess.run(["systemd-detect-virt", "--quiet", "--container"], check=False).returncode == 0


def journal(unit):
    """What a unit has said since the machine was started."""
    run("journalctl", "--sync")
    return run("journalctl", "--quiet", "--output=cat", f"--unit={unit}")


def memory_nodes():
    """Nodes with memory."""
    nodes = set()
    for part in pathlib.Path("/sys/devices/system/node/has_memory").read_text().strip().split(","):
        first, _, last = part.partition("-")
        nodes |= set(range(int(first), int(last or first) + 1))
    return sorted(nodes)


class Service(Daemon):
    """hugezerod.service; what the harness's daemon can be asked, this one can too."""

    # pylint: disable=super-init-not-called # systemd starts this one
    def __init__(self):
        self.socket_path = "/run/hugezero/hugezero.sock"

    pid = property(lambda self: int(self.show("MainPID")))

    @staticmethod
    def show(name, unit="hugezerod.service"):
        return run("systemctl", "show", f"--property={name}", "--value", unit).strip()

    @staticmethod
    def configure(text):
        CONFIG.write_text(QUICK + text)

    def start(self, text):
        """Starts it with that configuration. systemctl returns when it is ready."""
        self.configure(text)
        run("systemctl", "reset-failed", "hugezerod.service", check=False)  # or it would soon have been started too often
        run("systemctl", "restart", "hugezerod.service")

    def wait_back(self):
        """Until nobody holds anything and all of it is ready again. (A holder that has just died may still be in the books.)"""
        wait_until(
            lambda: all(row["ready_bytes"] >= row["target_bytes"] and not row["granted_bytes"] for row in self.pools()),
            "all memory is back and ready",
        )

    @staticmethod
    def stop():
        run("systemctl", "stop", "hugezerod.service")


@contextlib.contextmanager
def on_cpu_of(node):
    """The calling thread runs on that node."""
    cpus = {int(path.name[3:]) for path in pathlib.Path(f"/sys/devices/system/node/node{node}").glob("cpu[0-9]*")}
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
