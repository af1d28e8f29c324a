# SPDX-License-Identifier: LGPL-2.1-or-later
"""Client processes: of any user, in any control group, killed at any moment. They inherit nothing from the test."""

import contextlib
import ctypes
import functools
import importlib
import multiprocessing
import os
import pathlib
import signal
import sys
import traceback
import types

from . import DEADLINE_S, wait_until

# A server process that was started afresh forks the children: no fd and no mapping of the test leaks into them.
_context = multiprocessing.get_context("forkserver")
_PR_SET_DUMPABLE = 4


class ChildError(AssertionError):
    """What a function in a child raised, with its stack trace there; .error is its type's name, .errno its code or None."""

    def __init__(self, error, code, text):
        super().__init__(text)
        self.error, self.errno = error, code


class Child:
    """
    A process that runs functions of the test on demand.

    call(function, ...) runs function(me, ...) there, where `me` is a namespace that lives as long as the process. Functions
    must stand at the top level of a module; arguments and results are pickled.
    """

    def __init__(self, uid=None, gid=None, groups=(), cgroup=None):
        _prepare_server()
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=_serve, args=(theirs, _test_modules(), uid, gid, groups, cgroup), daemon=True)
        self._process.start()
        theirs.close()
        self.pid = self._process.pid
        self.result()

    def call(self, function, *args, **kwargs):
        self.start(function, *args, **kwargs)
        return self.result()

    def start(self, function, *args, **kwargs):
        """Like call(), but does not wait; result() does."""
        self._pipe.send((function, args, kwargs))

    def is_busy(self):
        return not self._pipe.poll(0)

    def result(self, deadline_s=3 * DEADLINE_S):
        if not self._pipe.poll(deadline_s):
            raise AssertionError(f"the child {self.pid} said nothing for {deadline_s} s")
        try:
            ok, value = self._pipe.recv()
        except EOFError:
            raise AssertionError(f"the child {self.pid} died with {self._process.exitcode}") from None
        if not ok:
            raise ChildError(*value)
        return value

    def is_alive(self):
        return self._process is not None and self._process.is_alive()

    def kill(self):
        """SIGKILL; returns when the process is gone, and so what it alone held."""
        self._process.kill()
        self._join()

    def signal(self, number):
        os.kill(self.pid, number)

    def end(self):
        """Exits by itself; what it has forked lives on."""
        with contextlib.suppress(OSError):
            self._pipe.send(None)
        self._join()

    def _join(self):
        self._process.join(DEADLINE_S)
        assert not self._process.is_alive(), f"the child {self.pid} does not end"
        self._pipe.close()
        self._process.close()
        self._process = None


@functools.cache
def _prepare_server():
    """The server is started for the first child, when all tests are known, and imports once what each child would have to."""
    _context.set_forkserver_preload(["pytest", "harness.holder", __name__, *_test_modules()])
    # It has no other way to learn where they are
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)


def _test_modules():
    """Modules of the tests in which a child may find its functions."""
    folder = str(pathlib.Path(__file__).resolve().parents[1])
    files = ((name, getattr(module, "__file__", None) or "") for name, module in list(sys.modules.items()))
    return [name for name, file in files if file.startswith(folder) and name != "conftest"]


def _serve(pipe, modules, uid, gid, groups, cgroup):
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in modules:  # now: another user may not be able to read the folder
        importlib.import_module(name)
    me = types.SimpleNamespace()
    function = _become
    args, kwargs = (uid, gid, groups, cgroup), {}
    while True:
        try:
            pipe.send((True, function(me, *args, **kwargs)))
        except Exception as error:  # pylint: disable=broad-except # all of them go to the test
            pipe.send((False, (type(error).__name__, getattr(error, "errno", None), traceback.format_exc())))
        order = pipe.recv()
        if order is None:
            os._exit(0)  # without the handlers of the forkserver
        function, args, kwargs = order


def _become(_me, uid, gid, groups, cgroup):
    if cgroup is not None:
        (pathlib.Path(cgroup) / "cgroup.procs").write_text("0")
    if uid is not None:
        os.setgroups(list(groups))
        os.setgid(gid if gid is not None else uid)
        os.setuid(uid)
        # As after an exec: what changed its user may not look into its own /proc otherwise
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def cgroup_root():
    """Where control groups of version 2 are mounted, or None."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.startswith("cgroup2 "):
            return pathlib.Path(fields.split()[4])
    return None


class Cgroup:
    """A control group of our own, so a service of its own as far as the daemon can tell."""

    def __init__(self, name):
        self.path = cgroup_root() / f"hugezero-test-{os.getpid()}-{name}"
        self.path.mkdir()

    def __fspath__(self):
        return str(self.path)

    def remove(self):
        def gone():
            with contextlib.suppress(OSError):
                self.path.rmdir()
            return not self.path.exists()

        wait_until(gone, f"{self.path} is empty and can be removed")
