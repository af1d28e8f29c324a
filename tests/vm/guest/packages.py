# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Debian packages, from installation to removal. The tests are in the order in which an administrator would do it all."""

import json
import mmap
import pathlib
import socket
import urllib.error
import urllib.request

import pytest
from harness import wait_until
from harness.pages import MIB
from harness.scraper import samples
from hugezero_client import Client, Item
from inside import Service, run

UNITS = "hugezerod.service", "hugezerod.socket", "hugezero-metrics.socket", "hugezero-reserve.service"
POOL = "[Pool vm]\nTarget=32M\n"
LABELS = '{pool="vm",node="0",page_size="2M"}'


def dpkg(*words):
    return run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *words)


def states(*units):
    return [Service.show("ActiveState", unit) for unit in units]


def scrape():
    with urllib.request.urlopen("http://127.0.0.1:9857/metrics", timeout=20) as answer:
        return samples(answer.read().decode())


@pytest.fixture(scope="module")
def service():
    return Service()


def test_an_installation_enables_and_starts_nothing(service):
    dpkg("--install", *map(str, pathlib.Path("packages").glob("*.deb")))
    for unit in UNITS:
        assert Service.show("UnitFileState", unit) == "disabled" and Service.show("ActiveState", unit) == "inactive", unit
    # What is the package's own is as it should be: user, folder, catalogue
    run("getent", "passwd", "hugezero")
    assert pathlib.Path("/run/hugezero").is_dir()
    assert "hugezero: Pool @POOL@ is short of pages on node @NODE@" in run("journalctl", "--list-catalog")


def test_metrics_are_served_once_their_socket_is_enabled(service):
    service.configure(POOL)
    run("systemctl", "enable", "--now", "hugezerod.service")
    service.wait_full()
    with pytest.raises(urllib.error.URLError):
        scrape()
    run("systemctl", "enable", "hugezero-metrics.socket")
    run("systemctl", "restart", "hugezerod.service")
    figures = scrape()
    assert figures["hugezero_pool_ready_bytes" + LABELS] == 32 * MIB
    assert figures["hugezero_pool_zeroed_bytes_total" + LABELS] == 0, "the restart was warm"


def test_an_upgrade_keeps_what_is_ready_and_what_is_granted(service):
    with Client(service.socket_path) as client:
        extent = client.acquire([Item(bytes=4 * MIB)], on_miss="wait", timeout_ms=20000).extents[0]
    with mmap.mmap(extent.fd, extent.bytes) as memory:
        memory[:] = b"\x5a" * extent.bytes
        service.wait_full()
        wait_until(lambda: int(service.show("NFileDescriptorStore")) >= len(service.grants()) + 2, "memory is stored")
        before, pid = service.pool(), service.pid
        dpkg("--install", *map(str, pathlib.Path("newer").glob("*.deb")))
        assert service.pid != pid, "it was restarted"
        assert states("hugezerod.service", "hugezerod.socket", "hugezero-metrics.socket") == ["active"] * 3
        after = service.pool()
        assert [after[key] for key in ("ready_bytes", "granted_bytes")] == [before[key] for key in ("ready_bytes", "granted_bytes")]
        assert after["zeroed_bytes_total"] == 0
        assert memory[:].count(0x5A) == extent.bytes
    extent.close()
    assert scrape()["hugezero_pool_target_bytes" + LABELS] == 32 * MIB


def test_a_message_is_explained_by_journalctl(service):
    run("journalctl", "--sync")
    rows = run("journalctl", "--unit=hugezerod", "POOL=vm", "NODE=0", "--output=json").splitlines()
    row = json.loads(rows[-1])
    assert row["TARGET_BYTES"] == str(32 * MIB) and row["_UID"] == run("id", "-u", "hugezero").strip()
    text = run("journalctl", "--catalog", "--unit=hugezerod", f"MESSAGE_ID={row['MESSAGE_ID']}")
    assert "Subject: Pool vm keeps memory on node 0" in text and "hugezeroctl resize" in text


def test_a_scraper_does_not_start_a_daemon_that_was_stopped(service):
    run("systemctl", "stop", "hugezerod.service", "hugezerod.socket")
    assert states("hugezerod.service", "hugezero-metrics.socket") == ["inactive"] * 2
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", 9857), timeout=5):
        pass
    assert states("hugezerod.service") == ["inactive"]
    run("systemctl", "start", "hugezerod.service")
    assert scrape()["hugezero_pool_target_bytes" + LABELS] == 32 * MIB


def test_a_removal_leaves_nothing_running_and_a_purge_no_file(service):
    dpkg("--remove", "hugezero")
    assert set(states(*UNITS)) == {"inactive"}
    assert pathlib.Path("/etc/hugezero/hugezerod.conf").exists()
    dpkg("--purge", "hugezero", "hugezero-tools", "libhugezero-dev", "libhugezero0")
    assert not pathlib.Path("/etc/hugezero").exists()
    assert not list(pathlib.Path("/etc/systemd/system").rglob("hugezerod*"))
