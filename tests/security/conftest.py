# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who takes part in an attack: an attacker and a victim, unprivileged users in services of their own, and a daemon without defence."""

import pytest
from harness import weakened
from harness.hostile import ATTACKER, VICTIM


def pytest_collection_modifyitems(config, items):
    """
    That an attack works at all is shown once. A machine of suite vm has programs only; what is built to be attacked was attacked
    where the sources are.
    """
    left_out = [item for item in items if "weaken" in item.fixturenames and "weakened" in item.name]
    for item in left_out:
        item.add_marker(pytest.mark.once)
    if weakened.can_be_made():
        return
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


@pytest.fixture
def attacker(start_child, make_cgroup):
    return start_child(uid=ATTACKER, cgroup=make_cgroup("attacker"))


@pytest.fixture
def victim(start_child, make_cgroup):
    return start_child(uid=VICTIM, cgroup=make_cgroup("victim"))


@pytest.fixture(scope="session")
def weaken(build, tmp_path_factory):
    """weaken(Change(file, old, new), ...) returns a daemon without that defence, for start_daemon(program=...)."""
    programs = {}

    def weaken_it(*changes):
        if changes not in programs:
            programs[changes] = weakened.make(build, changes, tmp_path_factory.mktemp("weakened"))
        return programs[changes]

    return weaken_it
