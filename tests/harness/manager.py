# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A service manager for one hugezerod, as far as a daemon can see one: readiness, a store of descriptors that outlives the
daemon and is passed to the next one, barriers. What systemd does with them is tested in suite vm.
"""

import array
import ctypes
import fcntl
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import threading

from hugezero_client import Client

from . import DEADLINE_S, pages, standing_still, wait_until
from .daemon import daemon_command, sanitizer_environment

FIRST_FD = 3
LIMIT = 2048


class ServiceManager:
    def __init__(self, build, pools=(), config="", wrapper=(), fdstore=None):
        self.build, self.pools, self.wrapper = build, pools, wrapper
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="hugezero-test-"))
        self.folder.chmod(0o711)
        self.socket_path = str(self.folder / "socket")
        (self.folder / "hugezerod.conf").write_text(f"[Daemon]\nSocketMode=0666\n{config}")
        self.lock = threading.Lock()
        self.store = []  # (name, fd), in the order in which they came
        self.fdstore = str(LIMIT) if fdstore is None else fdstore  # as it says how many it keeps
        self.limit = LIMIT  # and so many it does keep
        self.keeps = True  # False: forgets what it is told to keep, as a manager without a store does
        self.status_lines = [""]  # what "systemctl status" would have shown, one after the other
        self.status_when_ready = None  # and when the daemon was ready last: after its start, or a reload
        self.process, self.n_ready, self.n_starts, self.n_marks = None, 0, 0, 0
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self.notify.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.notify.bind(str(self.folder / "notify"))
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    @property
    def status_line(self):
        return self.status_lines[-1]

    # What the daemon tells

    def _listen(self):
        while True:
            try:
                # Close-on-exec: a daemon gets what start() passes, and no second descriptor of it that it knows nothing of
                data, ancillary, _, _ = self.notify.recvmsg(4096, socket.CMSG_SPACE(4 * 64), socket.MSG_CMSG_CLOEXEC)
            except OSError:
                return
            fds = array.array("i")
            for level, kind, content in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    fds.frombytes(content[: len(content) - len(content) % 4])
            if data == b"":
                return
            with self.lock:
                self._handle(dict(line.split("=", 1) for line in data.decode().splitlines() if "=" in line), list(fds))

    def _handle(self, words, fds):
        if "STATUS" in words:
            self.status_lines.append(words["STATUS"])
        if words.get("READY") == "1":
            self.status_when_ready = self.status_line
            self.n_ready += 1
        if "X_MARK" in words:
            self.n_marks += 1
        if words.get("FDSTORE") == "1" and self.keeps:
            for fd in fds:
                self._keep(words["FDNAME"], fd)
            return
        if words.get("FDSTOREREMOVE") == "1":
            gone = [entry for entry in self.store if entry[0] == words["FDNAME"]]
            self.store = [entry for entry in self.store if entry not in gone]
            for _, fd in gone:
                os.close(fd)
        for fd in fds:  # of a barrier: closing it is the answer
            os.close(fd)

    def _keep(self, name, fd):
        same = [kept for _, kept in self.store if os.path.sameopenfile(kept, fd)]
        if same or len(self.store) >= self.limit:
            os.close(fd)
        else:
            self.store.append((name, fd))

    def _hear_all(self):
        """What a dead daemon has sent is dealt with before its successor starts."""
        wanted = self.n_marks + 1
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mark:
            mark.sendto(b"X_MARK=1", str(self.folder / "notify"))
        wait_until(lambda: self.n_marks == wanted, "the manager has read what it was told")

    # The daemon

    def start(self):
        self.n_starts += 1
        with self.lock:
            names = [name for name, _ in self.store]
            fds = [fd for _, fd in self.store]
        env = dict(os.environ, NOTIFY_SOCKET=str(self.folder / "notify"), FDSTORE=self.fdstore, **sanitizer_environment(None))
        if fds:
            env |= {"LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)}
        command = [*self.wrapper, *daemon_command(self.build), "--config", str(self.folder / "hugezerod.conf"), "--socket", self.socket_path]
        command += [word for spec in self.pools for word in ("--pool", spec)]

        def pass_fds():
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 5000) for fd in fds]
            for position, fd in enumerate(high):
                os.dup2(fd, FIRST_FD + position, inheritable=True)

        with open(self.folder / "stderr", "ab") as stderr:
            self.process = subprocess.Popen(
                # The shell's pid is the daemon's: exec keeps it
                ["sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh", *command],
                stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr, env=env, close_fds=False, preexec_fn=pass_fds,
            )  # fmt: skip
        wait_until(lambda: self.n_ready == self.n_starts or self.process.poll() is not None, "the daemon is ready")
        assert self.process.poll() is None, f"the daemon ended; it said:\n{self.stderr()}"

    def kill(self):
        self.process.kill()
        self.process.wait(DEADLINE_S)
        self._hear_all()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(DEADLINE_S)
        assert code == 0, f"the daemon ended with {code}; it said:\n{self.stderr()}"
        self._hear_all()

    def restart(self, kill=False):
        (self.kill if kill else self.stop)()
        self.start()

    def stopped(self):
        return standing_still(self.process)

    def stderr(self):
        return (self.folder / "stderr").read_text(errors="replace")

    def stored_fds(self):
        with self.lock:
            return [fd for name, fd in self.store if name not in ("ledg", "inot")]

    def stored_extents(self):
        """Inodes of the extents in the store, as pages.inode() gives them."""
        with self.lock:
            return {pages.inode(fd) for name, fd in self.store if name not in ("ledg", "inot")}

    def drop(self, name):
        with self.lock:
            for entry in [entry for entry in self.store if entry[0] == name]:
                self.store.remove(entry)
                os.close(entry[1])

    def pool(self):
        with Client(self.socket_path) as client:
            (row,) = client.pools()
            return row

    def status(self):
        with Client(self.socket_path) as client:
            return client.status()

    def grants(self):
        with Client(self.socket_path) as client:
            return client.grants()

    def wait_pool(self, condition, what):
        return wait_until(lambda: (lambda row: row if condition(row) else None)(self.pool()), what)

    def wait_full(self):
        """And what is ready is stored, where no limit is in the way: a thread tells the manager, and what it does not have yet cannot survive."""
        row = self.wait_pool(lambda row: row["ready_bytes"] + row["granted_bytes"] == row["target_bytes"], "the pool is full")
        if not self.keeps or self.wrapper or self.fdstore != str(LIMIT) or "WarmExtents" in (self.folder / "hugezerod.conf").read_text():
            return row

        def stored():
            row, granted = self.pool(), {(grant["dev"], grant["ino"]) for grant in self.grants()}
            return row if len(self.stored_extents() - granted) >= row["n_extents_ready"] else None

        return wait_until(stored, "all that is ready is stored")

    def close(self):
        if self.process and self.process.poll() is None:
            self.kill()
        self.notify.shutdown(socket.SHUT_RD)  # that ends the thread: it must not be about to read from whatever gets the number next
        self.thread.join()
        self.notify.close()
        with self.lock:
            for _, fd in self.store:
                os.close(fd)
            self.store = []
        shutil.rmtree(self.folder, ignore_errors=True)
