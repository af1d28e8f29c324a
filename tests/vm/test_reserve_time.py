# SPDX-License-Identifier: LGPL-2.1-or-later
"""How long the kernel takes to grow its pool, as hugezero-reserve says it: in an emulated machine a figure for comparison only."""

import re

import pytest
from machines import NEWEST_KERNEL, Machine


@pytest.mark.timeout(900)
@pytest.mark.parametrize("init_on_alloc, n_pages", [(0, 8192), (1, 512)])  # cleared pages take this machine's memory, others not
def test_growing_the_pool_is_timed(run_machine, record_property, init_on_alloc, n_pages):
    machine = Machine(NEWEST_KERNEL, nodes=f"{2 + n_pages * 2 // 1024}G:0,1", append=f"init_on_alloc={init_on_alloc}")
    process, _ = run_machine(machine, "bash", "tests/vm/guest/reserve-time.sh", f"{n_pages * 2}M")
    said = re.search(rf"^node 0: {n_pages} pages of 2 MiB, {n_pages} of them new, in (\d+\.\d+) s$", process.stdout, re.MULTILINE)
    assert said and process.stdout.endswith(f"\n{n_pages}\n"), process.stdout
    record_property("seconds", said[1])
    print(f"init_on_alloc={init_on_alloc}: {n_pages} pages of 2 MiB in {said[1]} s")
