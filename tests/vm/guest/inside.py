# SPDX-License-Identifier: LGPL-2.1-or-later
"""The machine from inside: commands, journal, nodes, and the installed daemon under systemd."""

import contextlib
import os
import pathlib
import signal
import subprocess

from harness import pages, wait_until
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


# Of a WarmService. The first node of a virtual machine has too few pages.
WARM_NODE = 0 if is_container() else 1
POOLS = f"[Pool p]\nTarget=node{WARM_NODE}:48M\n[Pool small]\nExtentSize=2M\nTarget=node{WARM_NODE}:16M\n"
FULL = 64 << 20


class WarmService(Service):
    """One whose extents are all kept by systemd, and that is started again at once."""

    def start(self, text=POOLS, service=""):
        """With more lines for the unit; full."""
        drop_in("service").parent.mkdir(parents=True, exist_ok=True)
        drop_in("service").write_text(f"[Service]\nRestartSec=10ms\n{service}")
        run("systemctl", "daemon-reload")
        # Not a restart: that would inherit what the test before has left
        run("systemctl", "stop", "hugezerod.socket", "hugezerod.service")
        self.configure(text)
        run("systemctl", "start", "hugezerod.service")
        self.wait_full()

    def stored(self):
        """What systemd keeps, and how many fds that is."""
        return pages.hugetlb_files(1), int(self.show("NFileDescriptorStore"))

    def wait_stored(self):
        """Until what is in the pools is what systemd keeps; returns these files."""
        wait_until(lambda: self.stored()[0] == pages.hugetlb_files(self.pid), "systemd keeps what the daemon has")
        return self.stored()[0]

    def wait_running(self, pid):
        """Until another process than `pid` is ready."""
        wait_until(lambda: self.pid not in (0, pid) and self.show("SubState") == "running", "it runs again")

    def kill(self, number=signal.SIGKILL):
        pid = self.pid
        os.kill(pid, number)
        self.wait_running(pid)

    def ready(self):
        return {(row["name"], row["node"]): row["ready_bytes"] for row in self.pools() if row["target_bytes"] or row["ready_bytes"]}

    def n_zeroed(self):
        return sum(row["zeroed_bytes_total"] for row in self.pools())

    def end(self):
        """Stops it, and it is as it is installed again. Nobody has a page then."""
        run("systemctl", "stop", "hugezerod.socket", "hugezerod.service")
        drop_in("service").unlink()
        run("systemctl", "daemon-reload")
        if is_container():  # its pages are shared with all of this machine
            wait_until(lambda: not pages.users(), "nobody has pages")
        else:
            wait_until(lambda: pages.count("nr") == pages.count("free"), "all pages are free")

    def assert_no_page_is_lost(self):
        """All memory is back; nobody has another page."""
        self.wait_back()
        assert sum(self.wait_stored().values()) == FULL
        wait_until(lambda: set(pages.users()) == {1, self.pid}, "only the daemon and systemd have pages")
        if not is_container():
            wait_until(lambda: pages.count("nr") - pages.count("free") == FULL // pages.PAGE_2M, "no page is lost")


def drop_in(unit):
    return pathlib.Path(f"/run/systemd/system/hugezerod.{unit}.d/test.conf")


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
