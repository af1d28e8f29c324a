# SPDX-License-Identifier: LGPL-2.1-or-later
"""What unit tests find out about the kernel, on this one: page-table sharing, flock, inotify, seals, pins, topology."""

import subprocess

import pytest


@pytest.mark.parametrize("name", ["extent", "reclaim", "topology"])
def test_unit(name):
    program = f"build/tests/unit/test-{name}"
    process = subprocess.run(program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert process.returncode == 0, process.stdout
