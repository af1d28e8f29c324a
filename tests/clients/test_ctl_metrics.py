# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezeroctl metrics: a file for node_exporter's textfile collector."""

import os
import subprocess
import threading

from harness.pages import need_pages
from harness.scraper import samples

POOL = "small=2M:2M:16M"


def test_the_file_is_readable_for_all_and_nothing_else_is_left(start_daemon, tmp_path):
    need_pages(8)
    daemon = start_daemon(pools=[POOL])
    path = tmp_path / "hugezero.prom"
    answer = daemon.control("metrics", "--output", str(path), umask=0o077)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["hugezero.prom"]
    found, printed = samples(path.read_text()), samples(daemon.control("metrics").stdout)
    assert found.keys() == printed.keys()
    assert found['hugezero_pool_target_bytes{pool="small",node="0",page_size="2M"}'] == 16 << 20


def test_a_reader_never_sees_a_part(start_daemon, tmp_path):
    daemon = start_daemon(pools=["2M:2M:0"])
    path = tmp_path / "hugezero.prom"
    daemon.control("metrics", "--output", str(path))
    size = path.stat().st_size
    stop, sizes = threading.Event(), set()

    def read():
        while not stop.is_set():
            sizes.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(30):
        assert daemon.control("metrics", "--output", str(path)).returncode == 0
    stop.set()
    reader.join()
    assert min(sizes) > size - 100  # the figures have more or fewer digits


def test_when_nobody_answers_the_file_stays_as_it_was(build, tmp_path):
    path = tmp_path / "hugezero.prom"
    path.write_text("old\n")
    answer = subprocess.run([build / "tools" / "hugezeroctl", "--socket", "/nowhere/socket", "metrics", "--output", path], capture_output=True, text=True, check=False)
    assert answer.returncode == 3 and answer.stderr.startswith("hugezeroctl: ")
    assert path.read_text() == "old\n" and os.listdir(tmp_path) == ["hugezero.prom"]


def test_only_files_are_replaced(start_daemon, tmp_path):
    daemon = start_daemon(pools=["2M:2M:0"])
    (tmp_path / "link").symlink_to("/dev/null")
    for name, words in {"link": "regular file", "no/such": "No such file", ".": "regular file"}.items():
        answer = daemon.control("metrics", "--output", str(tmp_path / name))
        assert answer.returncode == 1 and words in answer.stderr, answer
    assert os.listdir(tmp_path) == ["link"] and (tmp_path / "link").is_symlink()
