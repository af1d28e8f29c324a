# SPDX-License-Identifier: LGPL-2.1-or-later
"""The tests of guest/ inside virtual machines and a container, each of them as a test of its own here."""

import re

import pytest
from machines import HERE, NEWEST_KERNEL, OLDEST_KERNEL, Machine

TWO_NODES = {
    # The second has memory only, and room for one page of 1 GiB
    "nodes": "768M:0,1 1536M",
    "append": "hugepagesz=2M hugepages=0:64,1:96 hugepagesz=1G hugepages=1:1",
}
FOUR_NODES = {
    # Two with memory only, the smaller without hugepages; between them one that has only a CPU, near node 1; and one whose
    # memory comes and goes
    "nodes": "640M:0 512M:1 0:2 384M 256M +256M",
    "distances": "0-1:21 0-2:31 0-3:31 0-4:41 1-2:12 1-3:14 1-4:31 2-3:21 2-4:41 3-4:21",
    "append": "hugepagesz=2M hugepages=0:24,1:48,3:32",
}
# All attacks; they need pages on every node
SECURITY = tuple(sorted(f"security/{path.stem}" for path in (HERE.parent / "security").glob("test_*.py")))
MACHINES = {
    # What depends on the kernel runs on both, and the rest where it is quickest; poison is the last
    "oldest": Machine(OLDEST_KERNEL, **TWO_NODES, files=("service", "placement", "gib", "units", "storm", *SECURITY, "reserve", "poison")),
    "newest": Machine(NEWEST_KERNEL, **FOUR_NODES, files=("placement", "nodes", "hotplug", "units", "storm", "poison")),
    "newest-attacked": Machine(NEWEST_KERNEL, **TWO_NODES, files=SECURITY),
    "container": Machine(kernel=None, files=("service", "storm", "warm")),
}


def cases():
    for name, machine in MACHINES.items():
        for file, path in machine.paths().items():
            for case in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE):
                yield pytest.param(machine, file, case, id=f"{name}-{case.removeprefix('test_')}")


@pytest.mark.timeout(1200)  # the first one waits for the whole machine
@pytest.mark.parametrize("machine, file, case", cases())
def test(run_tests, machine, file, case):
    run_tests(machine).check(file, case)
