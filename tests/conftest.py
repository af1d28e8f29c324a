# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fixtures of all suites that drive the real daemon. The build is --build, HUGEZERO_BUILD, or build/release."""

import os
import pathlib
import shlex
import shutil
import stat
import sys
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "clients")]
os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])

pytest.register_assert_rewrite("harness.daemon", "harness.child", "harness.pages")
# pylint: disable=wrong-import-position
from harness.child import Cgroup, Child, cgroup_root  # noqa: E402
from harness.daemon import WRAPPER, Daemon  # noqa: E402


def pytest_addoption(parser):
    default = os.environ.get("HUGEZERO_BUILD", "build/release")
    parser.addoption("--build", default=default, help=f"build folder whose programs are tested ({default})")
    parser.addoption("--wrapper", default="", help="what the daemon runs under: 'valgrind --quiet --error-exitcode=99'")


def pytest_configure(config):
    WRAPPER.extend(shlex.split(config.getoption("--wrapper")))


@pytest.fixture(scope="session")
def build(request):
    """The build folder."""
    path = ROOT / request.config.getoption("--build")
    if not (path / "daemon" / "hugezerod").exists():
        pytest.exit(f"{path}/daemon/hugezerod is not built; build it, or name another folder with --build", returncode=4)
    return path


@pytest.fixture(scope="session")
def programs(build):
    """The build folder, or where other users cannot come (a clone in /root) a copy of its programs where they can."""
    if all(folder.stat().st_mode & stat.S_IXOTH for folder in (build, *build.parents)):
        yield build
        return
    folder = tempfile.mkdtemp(prefix="hugezero-test-")
    os.chmod(folder, 0o711)
    ignore = shutil.ignore_patterns("*.p", "tests", "meson-private", "meson-logs")
    yield pathlib.Path(shutil.copytree(build, f"{folder}/build", symlinks=True, ignore=ignore))
    shutil.rmtree(folder)


@pytest.fixture
def public_path():
    """For all users to come to and write in: the way to tmp_path is closed again by each pytest that is started meanwhile."""
    folder = tempfile.mkdtemp(prefix="hugezero-test-")
    os.chmod(folder, 0o1777)
    yield pathlib.Path(folder)
    shutil.rmtree(folder)


@pytest.fixture
def start_daemon(programs):
    """start_daemon(pools=[...], config=...) starts one; at the end of the test it is stopped, and checked, and cleaned up."""
    daemons = []

    def start(**kwargs):
        daemons.append(Daemon(programs, **kwargs))
        return daemons[-1]

    yield start
    problems = []
    for daemon in daemons:
        try:
            if daemon.folder.exists():
                daemon.stop()
        except AssertionError as problem:
            problems.append(problem)
        finally:
            daemon.kill()
            daemon.clean()
    if problems:
        raise problems[0]


@pytest.fixture
def start_child(start_daemon, make_cgroup):
    """start_child(uid=..., cgroup=...) starts a client process; it is killed before daemons are stopped and groups removed."""
    children = []

    def start(**kwargs):
        children.append(Child(**kwargs))
        return children[-1]

    yield start
    for child in children:
        if child.is_alive():
            child.kill()


@pytest.fixture
def make_cgroup():
    """make_cgroup("name") makes a control group; it is removed at the end."""
    groups = []

    def make(name):
        if os.geteuid() != 0:
            pytest.skip("only root can make a control group")
        if cgroup_root() is None:
            pytest.skip("cannot: no control groups of version 2 are mounted")
        groups.append(Cgroup(name))
        return groups[-1]

    yield make
    for group in groups:
        group.remove()

