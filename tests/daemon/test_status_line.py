# SPDX-License-Identifier: LGPL-2.1-or-later
"""What "systemctl status" shows of the daemon."""

import re
import signal
import subprocess

import pytest
from harness import pages, wait_until
from harness.manager import ServiceManager
from hugezero_client import Client, Item, Refused

MIB = 1 << 20
QUICK = "ReleaseGrace=50ms\nSweepInterval=1s\n"


@pytest.fixture
def manage(build):
    managers = []

    def make(config, **kwargs):
        manager = ServiceManager(build, config=config, **kwargs)
        managers.append(manager)
        manager.start()
        return manager

    yield make
    for manager in managers:
        text = manager.stderr()
        manager.close()
        assert "Sanitizer" not in text and "runtime error" not in text, text


@pytest.mark.once
def test_the_status_line_tells_how_the_pools_are(manage):
    pages.need_pages(0, pages.PAGE_1G)
    pool = "[Pool p]\nTarget={}\n"
    manager = manage(QUICK + pool.format("64M"))
    file = manager.folder / "hugezerod.conf"

    def reload(text):
        file.write_text(f"[Daemon]\n{QUICK}{text}")
        manager.process.send_signal(signal.SIGHUP)

    wait_until(lambda: manager.status_line == "Serving 64 MiB", "it is shown as full")
    reload(pool.format("lots"))
    wait_until(lambda: "Reloading failed" in manager.status_line and 'value "lots"' in manager.status_line, "it is shown what is wrong")
    reload(pool.format("64M"))
    wait_until(lambda: manager.status_line == "Serving 64 MiB", "it is shown that it is right again")
    reload(pool.format("0"))
    wait_until(lambda: manager.status_line == "Serving no memory: all targets are 0", "it is shown that there is nothing")
    reload(pool.format("4T") + "PageSize=1G\n")  # few, so that others are not left without
    wait_until(lambda: manager.status_line == "Short of pages on node 0; the pools are to have 4 TiB", "it is shown as short")
    reload(pool.format("4T") + "Target=lots\n")
    wait_until(lambda: manager.status_line.startswith("Short of pages on node 0") and ". Reloading failed" in manager.status_line, "both are shown")
    with Client(manager.socket_path) as client:
        client.resize(0)
    wait_until(lambda: manager.status_line.startswith("Serving no memory: all targets are 0. Reloading failed"), "the file is wrong still")
    manager.stop()
    assert "Giving memory back to the kernel" in manager.status_lines
    assert manager.status_line == "", "nothing is shown of one that has stopped"


def test_the_status_line_is_that_of_the_reload_which_has_ended(manage):
    """However many there are in a second."""
    manager = manage(f"{QUICK}[Pool p]\nTarget=0\n")
    good = "Serving no memory: all targets are 0"
    for target, expected in [("lots", f"{good}. Reloading failed"), ("0", good)] * 3:
        n_ready = manager.n_ready
        (manager.folder / "hugezerod.conf").write_text(f"[Daemon]\n{QUICK}[Pool p]\nTarget={target}\n")
        manager.process.send_signal(signal.SIGHUP)
        wait_until(lambda: manager.n_ready > n_ready, "the reload has ended")
        assert manager.status_when_ready.partition(", nothing was changed")[0] == expected
        with Client(manager.socket_path) as client:
            client.pools()  # whatever was put off has been done


@pytest.mark.once
def test_the_status_line_tells_what_is_ready_and_not_what_is_wished(manage):
    pages.need_pages(64)
    manager = manage(f"BackgroundRate=16M\n{QUICK}[Pool p]\nTarget=48M\n")
    wait_until(lambda: manager.status_line == "Serving 48 MiB", "it is shown as full")
    wait_until(lambda: len(manager.stored_extents()) == manager.pool()["n_extents_ready"], "all extents are stored")
    n_before = len(manager.status_lines)
    manager.restart()
    wait_until(lambda: manager.status_line == "Serving 48 MiB", "it is shown as full")
    assert not any("filled" in line for line in manager.status_lines[n_before:]), "nothing was to be filled"
    with Client(manager.socket_path) as client:
        client.resize(80 * MIB)
        wait_until(lambda: manager.status_line == "Serving 80 MiB", "it is shown as full")
        first = next(line for line in manager.status_lines if "80 MiB" in line)
        assert first == "Serving, while 80 MiB are filled"
        # Memory that comes and goes is no news
        n_before = len(manager.status_lines)
        grant = client.acquire([Item(bytes=4 * MIB)], on_miss="fill")
        grant.close()
    manager.wait_full()
    assert len(manager.status_lines) == n_before


def test_the_status_line_tells_that_open_files_limit_the_pools(manage):
    pages.need_pages(64)
    manager = manage(f"{QUICK}[Pool p]\nExtentSize=2M\nTarget=128M\n", wrapper=["prlimit", "--nofile=100:100", "--"])
    wait_until(lambda: re.fullmatch(r"Stopped at \d+ extents by the limit of open files; the pools are to have 128 MiB", manager.status_line), "it is shown why")


def test_it_is_told_everywhere_that_a_restart_would_find_the_pages(build, manage):
    """Half of what is free is less than one extent."""
    manager = manage(f"{QUICK}[Pool p]\nPageSize=2M\nExtentSize=1T\nTarget=auto\n")
    wait_until(lambda: "restart hugezerod when there are more" in manager.status_line, "it is shown what to do")
    assert "notice: pool p gets no memory" in manager.stderr()
    doctor = subprocess.run(
        [build / "tools" / "hugezeroctl", "--socket", manager.socket_path, "doctor"], capture_output=True, text=True, check=False, timeout=60
    )
    assert "the daemon serves no memory" in doctor.stdout and "restart hugezerod" in doctor.stdout, doctor
    with Client(manager.socket_path) as client, pytest.raises(Refused) as refused:
        client.acquire([Item(bytes=2 * MIB)])
    assert "no page was free when the daemon was started" in str(refused.value)
