# SPDX-License-Identifier: LGPL-2.1-or-later
"""Fixtures inside the machine, for root: the daemon as it is installed, under systemd."""

import pathlib
import shutil

import pytest
from harness import pages, wait_until
from inside import Service, WarmService, is_container, run


@pytest.fixture(scope="session", autouse=True)
def install():
    """As a package would do it; only once, and not again by another run in the same machine."""
    root = pathlib.Path("root")
    if root.exists():
        run("cp", "-a", f"{root}/.", "/")
        shutil.rmtree(root)
        run("ldconfig")
        run("systemd-sysusers")
        run("systemd-tmpfiles", "--create", "hugezero.conf")
        run("systemctl", "daemon-reload")


@pytest.fixture
def service(install):
    """Neither daemon nor socket runs. In the end no page is in use, whatever happened."""
    yield Service()
    run("systemctl", "stop", "hugezerod.socket", "hugezerod.service", check=False)
    run("systemctl", "reset-failed", check=False)
    if not is_container():
        for size in pages.PAGE_2M, pages.PAGE_1G:
            wait_until(lambda: pages.count("nr", size) == pages.count("free", size), "all pages are free")


@pytest.fixture
def warm(install):
    """The service with all of its pools in systemd's store."""
    service = WarmService()
    service.start()
    yield service
    service.end()
