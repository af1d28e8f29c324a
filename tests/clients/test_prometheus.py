# SPDX-License-Identifier: LGPL-2.1-or-later
"""Prometheus itself: its tool likes the names, and it scrapes the daemon."""

import json
import pathlib
import signal
import socket
import subprocess
import urllib.parse
import urllib.request

import pytest
from harness import scraper, wait_until
from harness.pages import MIB, need_pages

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "prometheus"  # see fetch-prometheus.sh
POOL = "small=2M:2M:16M"
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: hugezero
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""

pytestmark = pytest.mark.skipif(not (FOLDER / "promtool").exists(), reason="cannot: no prometheus (offline, when tests/run would fetch it)")


def free_port():
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


@pytest.fixture
def prometheus(tmp_path):
    """prometheus(port) scrapes that port, and returns ask(query) -> [(labels, value)]."""
    processes = []

    def start(target_port):
        port = free_port()
        (tmp_path / "prometheus.yml").write_text(CONFIG.format(port=target_port))
        with open(tmp_path / "log", "wb") as log:
            command = [FOLDER / "prometheus", f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data", f"--web.listen-address=127.0.0.1:{port}"]
            processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

        def ask(query):
            assert processes[0].poll() is None, (tmp_path / "log").read_text()
            try:
                url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
                with urllib.request.urlopen(url, timeout=10) as answer:
                    return [(row["metric"], float(row["value"][1])) for row in json.load(answer)["data"]["result"]]
            except OSError:
                return []

        return ask

    yield start
    for process in processes:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


def test_promtool_has_nothing_to_say_against_the_names(start_daemon):
    need_pages(8)
    daemon = start_daemon(pools=[POOL])
    text = daemon.control("metrics").stdout
    checked = subprocess.run([FOLDER / "promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    spoilt = text.replace("hugezero_granted_bytes_total", "hugezero_granted_bytes")
    checked = subprocess.run([FOLDER / "promtool", "check", "metrics"], input=spoilt, capture_output=True, text=True, check=False)
    assert checked.returncode != 0 and "_total" in checked.stderr, "promtool looks"


def test_prometheus_scrapes_the_daemon(start_daemon, prometheus):
    need_pages(8)
    with scraper.listen() as listener:
        daemon = start_daemon(pools=[POOL], metrics=listener)
        daemon.wait_full()
        ask = prometheus(listener.getsockname()[1])
        wait_until(lambda: [value for _, value in ask("up")] == [1], "the daemon is up in the eyes of Prometheus", 40)
        ((labels, value),) = wait_until(lambda: ask("hugezero_pool_ready_bytes"), "it knows how much is ready")
        assert value == 16 * MIB and (labels["pool"], labels["node"], labels["page_size"]) == ("small", "0", "2M")
        scraped = {labels["__name__"] for labels, _ in ask('{job="hugezero",__name__=~"hugezero_.*"}')}
        assert scraped == scraper.names(scraper.scrape(listener)[2])
        assert ask("hugezero_build_info")[0][0]["version"]
        wait_until(lambda: [value for _, value in ask("count_over_time(up[1m]) >= 3")], "it comes back")
        assert all(value == 1 for _, value in ask("min_over_time(up[1m])"))
