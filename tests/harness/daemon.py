# SPDX-License-Identifier: LGPL-2.1-or-later
"""One hugezerod under test, with a socket of its own."""

import ctypes
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

import pytest
from hugezero_client import Client

from . import DEADLINE_S, EMULATED, holder, pages, standing_still, wait_until
from .child import Child

WRAPPER = []  # what the daemon runs under, from --wrapper
# To measure which method is the fastest, and to read ready memory again, keeps an emulated processor busier than all tests
CALM = "ClearMethod=memset\nAuditRate=0\n" if EMULATED else ""
_PR_SET_PDEATHSIG = 1
# As the service manager passes several sockets of one unit
_PASS_SOCKETS = """
import os, sys
fds = [int(fd) for fd in sys.argv[1].split(",")]
for position, fd in enumerate(fds):
    os.dup2(fd, 3 + position)
    os.close(fd)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(["metrics"] * len(fds))}
os.execvp(sys.argv[2], sys.argv[2:])
"""
_SANITIZER = re.compile(
    r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|SUMMARY: \w+Sanitizer"
    r"|^==\d+== (?!Warning)",  # valgrind
    re.MULTILINE,
)


class DaemonFailed(AssertionError):
    """The daemon did not start; .code is its exit code, .stderr what it said."""

    def __init__(self, code, stderr):
        super().__init__(f"hugezerod ended with {code} instead of being ready; it said:\n{stderr}")
        self.code, self.stderr = code, stderr


class Daemon:
    """
    Starts the daemon and returns when it says READY.

    pools:  --pool options, "2M:auto:64M" and the like; none: as the configuration says
    config: text of the configuration file; lines before the first section belong to [Daemon]
    uid:    runs as this user instead of the test's
    env:    more environment
    wrapper: a command that ends by executing what follows it
    metrics: a listening socket, or several, passed as those for metrics
    program: another daemon than the build's
    """

    def __init__(self, build, *, pools=(), config="", args=(), uid=None, env=None, wrapper=(), metrics=None, program=None, ready=True):
        self.build = pathlib.Path(build)
        self.program = program
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hugezero-test-"))
        self.socket_path = str(self.folder / "socket")
        self.process = None
        metrics = [metrics] if isinstance(metrics, socket.socket) else metrics or []
        # Above those that they are passed as
        self._fds = [fcntl.fcntl(listener.fileno(), fcntl.F_DUPFD_CLOEXEC, 100) for listener in metrics]
        if metrics:
            wrapper = [sys.executable, "-c", _PASS_SOCKETS, ",".join(map(str, self._fds)), *wrapper]
        self._used_before = pages.count("nr") - pages.count("free")
        try:
            self._start(pools, config, args, uid, env, wrapper)
            if ready:
                self.wait_ready()
        except BaseException:
            self.kill()
            self.clean()
            raise

    def _start(self, pools, config, args, uid, env, wrapper):
        # Any user of the test may connect, and come here; a SocketMode= of the test's own comes later in the file and wins
        self.folder.chmod(0o711)
        mode = "" if "SocketMode=" in config else "SocketMode=0666\n"
        config_path = self.folder / "hugezerod.conf"
        config_path.write_text(f"[Daemon]\n{CALM}{mode}{config}")
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._notify.bind(str(self.folder / "notify"))
        if uid is not None:
            for path in self.folder, config_path, self.folder / "notify":
                os.chown(path, uid, uid)
        command = [*wrapper, *become(uid), *daemon_command(self.build, self.program), "--config", str(config_path)]
        command += ["--socket", self.socket_path]
        command += [word for spec in pools for word in ("--pool", spec)]
        with open(self.folder / "stderr", "wb") as stderr:
            self.process = subprocess.Popen(
                [*command, *args],
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                pass_fds=self._fds,
                env=dict(os.environ, NOTIFY_SOCKET=str(self.folder / "notify"), **sanitizer_environment(uid), **(env or {})),
                preexec_fn=lambda: ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )
        for fd in self._fds:
            os.close(fd)
        self.pid = self.process.pid

    def wait_ready(self):
        pidfd = os.pidfd_open(self.pid)
        try:
            while True:
                readable, _, _ = select.select([self._notify, pidfd], [], [], DEADLINE_S)
                if self._notify in readable and "READY=1" in self._notify.recv(4096).decode().splitlines():
                    self._notify.close()  # nobody will read any more: a full queue would make the daemon wait
                    return
                if pidfd in readable:
                    raise DaemonFailed(self.process.wait(), self.stderr())
                if not readable:
                    raise AssertionError(f"the daemon is not ready after {DEADLINE_S} s; it said:\n{self.stderr()}")
        finally:
            os.close(pidfd)

    def stderr(self):
        return (self.folder / "stderr").read_text(errors="replace")

    # Figures

    def control(self, *args, **kwargs):
        """Runs hugezeroctl against this daemon."""
        env = dict(os.environ, HUGEZERO_SOCKET=self.socket_path, **sanitizer_environment(None))
        command = [*thread_sanitizer_wrapper(self.build), str(self.build / "tools" / "hugezeroctl"), *args]
        return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False, **kwargs)

    def status(self):
        """Counters, named as in hugezero-protocol(7). This client is one of n_clients."""
        with Client(self.socket_path) as client:
            return client.status()

    def pools(self):
        """One row per pool and node."""
        with Client(self.socket_path) as client:
            return client.pools()

    def rss_bytes(self):
        """Memory that is the daemon's own; hugetlb pages are not counted in it."""
        return int(pathlib.Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def n_fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def grants(self):
        with Client(self.socket_path) as client:
            return client.grants()

    def pool(self):
        """The row of the only pool, on a machine with one node; the sums over the nodes on others."""
        rows = self.pools()
        assert len({row["name"] for row in rows}) == 1, f"not one pool: {rows}"
        same = "name", "page_size_bytes", "extent_bytes", "clear_method"
        return {key: max(row[key] for row in rows) if key in same else sum(row[key] for row in rows) for key in rows[0]}

    def wait_full(self):
        """Until every pool has its target ready or granted."""
        return wait_until(
            lambda: all(row["ready_bytes"] + row["granted_bytes"] >= row["target_bytes"] for row in self.pools()),
            "the pools are full",
        )

    def wait_pool(self, condition, what):
        """Until condition(row) is true of the only pool; returns the row."""

        def ask():
            row = self.pool()
            return row if condition(row) else None

        return wait_until(ask, what)

    def sweep(self):
        """
        Until a sweep has asked about every granted extent. The sign: that a holder has unlocked an extent, of which no event
        tells, is found by nothing else. Opened by path it is given up, so that nothing of this is left in the pool.
        """
        sign, n_doubts = Child(), self.status()["n_doubts"]
        (extent,) = sign.call(holder.acquire, self.socket_path, pages.PAGE_2M, on_miss="wait", timeout_ms=1000 * DEADLINE_S)
        sign.call(holder.unlock)
        wait_until(lambda: self.status()["n_doubts"] > n_doubts, "a sweep has passed")
        sign.call(holder.reopen)
        wait_until(lambda: extent.inode not in pages.hugetlb_files(self.pid), "the sign is given up")
        sign.kill()

    def stopped(self):
        """The daemon sees nothing of what happens meanwhile until it is over."""
        return standing_still(self.process)

    # The end

    def stop(self):
        """SIGTERM: it must end by itself, with success, say nothing to a sanitizer and leave no page behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            stderr = self.stderr()
            self.kill()
            raise AssertionError(f"the daemon did not end within {DEADLINE_S} s of SIGTERM; it said:\n{stderr}") from None
        self._check_sanitizers()
        assert code == 0, f"the daemon ended with {code}; it said:\n{self.stderr()}"
        self._check_pages()
        self.clean()

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(DEADLINE_S)

    def clean(self):
        self._notify.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _check_sanitizers(self):
        stderr = self.stderr()
        assert not _SANITIZER.search(stderr), f"a sanitizer complains:\n{stderr}"

    def _check_pages(self):
        """No more pages are in use than before; others who use the host's pages now are not our business."""

        def given_back():
            return pages.count("nr") - pages.count("free") <= self._used_before or set(pages.users()) - {os.getpid()}

        wait_until(given_back, f"all but {self._used_before} pages are free again after the daemon's end")


def sanitizer_environment(uid):
    # Looking for leaks means tracing oneself, which a daemon that is not dumpable forbids to all but root
    leaks = int(uid is None and os.geteuid() == 0)
    return {
        # Else up to 256 MiB of what was freed stay with the process, which in a long test look like growth
        "ASAN_OPTIONS": f"detect_leaks={leaks}:exitcode=99:quarantine_size_mb=16",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
        "TSAN_OPTIONS": "exitcode=99:second_deadlock_stack=1",
    }


def become(uid):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--pdeathsig=KILL", "--"] if uid is not None else []


def daemon_command(build, program=None):
    """Ends with the daemon's path; what comes before runs it as the build and --wrapper want it."""
    return [*thread_sanitizer_wrapper(build), *WRAPPER, str(program or build / "daemon" / "hugezerod")]


def has_thread_sanitizer(build):
    options = json.loads((build / "meson-info" / "intro-buildoptions.json").read_text())
    return any(option["name"] == "b_sanitize" and option["value"] == "thread" for option in options)


def need_measuring(build):
    if has_thread_sanitizer(build):
        pytest.skip("cannot: under ThreadSanitizer the methods are too slow to be measured within 300 ms")


def thread_sanitizer_wrapper(build):
    """ThreadSanitizer of gcc 12 does not start where the kernel randomises more than 28 bits of an address."""
    bits = int(pathlib.Path("/proc/sys/vm/mmap_rnd_bits").read_text())
    return ["setarch", "--addr-no-randomize"] if bits > 28 and has_thread_sanitizer(build) else []
