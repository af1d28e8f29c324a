# SPDX-License-Identifier: LGPL-2.1-or-later
"""QEMU as Debian has it, driven by QMP over its standard input and output."""

import json
import os
import shutil
import subprocess

PROGRAM = "qemu-system-x86_64"
DEADLINE_S = 60


def is_installed():
    return shutil.which(PROGRAM) is not None


def command(memory_mib, backend):
    """A virtual machine whose RAM is `backend`; without a guest system: its firmware runs, finds nothing to boot, and waits."""
    return [
        PROGRAM, "-accel", "tcg", "-m", f"{memory_mib}M", "-object", f"{backend},id=m,size={memory_mib}M",
        "-machine", "q35,memory-backend=m", "-nodefaults", "-display", "none", "-qmp", "stdio",
    ]  # fmt: skip


def pool_command(build, memory_mib):
    """The same with RAM from the pool: what an administrator would write, nothing of QEMU changed."""
    run = [str(build / "tools" / "hugezeroctl"), "run", "--grant", f"name=ram0,bytes={memory_mib}M", "--"]
    return run + command(memory_mib, "memory-backend-file,mem-path={ram0.path},share=on")


class Qemu:
    """Started; start() returned when it has answered QMP."""

    def __init__(self, words, socket_path=None, **user):
        env = dict(os.environ, **({"HUGEZERO_SOCKET": socket_path} if socket_path else {}))
        self.process = subprocess.Popen(
            words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/", **user
        )
        self.pid = self.process.pid
        self.version = json.loads(self._line())["QMP"]["version"]
        self.ask("qmp_capabilities")

    def _line(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.kill()
            raise AssertionError(f"QEMU ended with {self.process.wait()}; it said:\n{self.process.stderr.read()}")
        return line

    def ask(self, what, **arguments):
        self.process.stdin.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self.process.stdin.flush()
        while True:  # events come in between
            answer = json.loads(self._line())
            if "error" in answer:
                raise AssertionError(f"QMP {what}: {answer['error']}")
            if "return" in answer:
                return answer["return"]

    def is_alive(self):
        return self.process.poll() is None

    def end(self, how):
        """how: "quit" by QMP, or a signal."""
        if how == "quit":
            self.ask("quit")
        else:
            self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)

    def close(self):
        if self.is_alive():
            self.process.kill()
        self.process.communicate()
