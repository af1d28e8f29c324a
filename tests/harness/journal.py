# SPDX-License-Identifier: LGPL-2.1-or-later
"""A journal for one daemon: a socket at the place of journald's, in a mount namespace of the daemon's own."""

import os
import pathlib
import re
import socket
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# As systemd does: the variable says which file stderr was
_SCRIPT = """
mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && : > /run/systemd/journal/socket &&
mount --bind "$0" /run/systemd/journal/socket && JOURNAL_STREAM=$(stat -Lc %d:%i /proc/self/fd/2) exec "$@"
"""


class Journal:
    """start_daemon(wrapper=journal.wrapper) makes a daemon write here."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="hugezero-test-")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        path = f"{self._folder.name}/socket"
        self.socket.bind(path)
        self.wrapper = ["unshare", "--mount", "sh", "-c", _SCRIPT, path]
        self._entries = []

    def entries(self):
        """All that came, each as {field: value}, in order."""
        while True:
            try:
                record = self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return self._entries
            self._entries.append(dict(line.split("=", 1) for line in record.decode().splitlines()))

    def find(self, name):
        """Those of this message, as daemon/log-ids.h names it."""
        message_id = re.search(rf'LOG_ID_{name} +"(\w+)"', (ROOT / "daemon" / "log-ids.h").read_text())[1]
        return [entry for entry in self.entries() if entry["MESSAGE_ID"] == message_id]

    def close(self):
        self.socket.close()
        self._folder.cleanup()


def available():
    return os.geteuid() == 0
