# SPDX-License-Identifier: LGPL-2.1-or-later
"""Pages of 1 GiB: one, on the second of two nodes."""

import errno

import pytest
from harness import holder, pages
from harness.child import ChildError
from harness.pages import GIB, PAGE_1G


def test_a_page_of_a_gib_is_granted_on_the_node_that_has_it(service, start_child):
    assert {node: pages.count("nr", PAGE_1G, node) for node in (0, 1)} == {0: 0, 1: 1}
    service.start("[Pool large]\nPageSize=1G\nTarget=node1:1G\n")
    service.wait_full()
    child = start_child()
    with pytest.raises(ChildError) as problem:
        child.call(holder.acquire, service.socket_path, GIB, page_size=PAGE_1G, node=0, mode="strict")
    assert (problem.value.error, problem.value.errno) == ("Refused", errno.ENODEV)
    (extent,) = child.call(holder.acquire, service.socket_path, GIB, page_size=PAGE_1G)
    assert (extent.node, extent.bytes, extent.page_size) == (1, GIB, PAGE_1G)
    assert child.call(holder.nodes) == [{1}]
    assert pages.count("free", PAGE_1G, 1) == 0
