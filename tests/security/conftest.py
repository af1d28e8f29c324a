# SPDX-License-Identifier: LGPL-2.1-or-later
"""Who takes part in an attack: an attacker and a victim, unprivileged users in services of their own."""

import pytest
from harness.hostile import ATTACKER, VICTIM


@pytest.fixture
def attacker(start_child, make_cgroup):
    return start_child(uid=ATTACKER, cgroup=make_cgroup("attacker"))


@pytest.fixture
def victim(start_child, make_cgroup):
    return start_child(uid=VICTIM, cgroup=make_cgroup("victim"))
