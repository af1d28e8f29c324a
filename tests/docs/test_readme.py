# SPDX-License-Identifier: LGPL-2.1-or-later
"""README.md: what it names exists, what it says to type works, and its example is the one that is tested."""

import json
import os
import pathlib
import re
import shlex
import subprocess

import pytest
from harness import wait_until
from harness.daemon import sanitizer_environment
from harness.pages import MIB, PAGE_2M, need_pages
from hugezero_client import Client

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text()
PROSE = re.sub(r"^```c\n.*?^```\n", "", README, flags=re.MULTILINE | re.DOTALL)
SCALE = 16  # the commands run with this part of the sizes that the page names


def test_pages_that_are_read_as_text_are_no_wider_than_the_code():
    for name in "README.md", "CONTRIBUTING.md", "SECURITY.md", "NEWS.md", "tests/README.md":
        lines = (ROOT / name).read_text().splitlines()
        assert [line for line in lines if len(line) > 128 and not line.startswith("|")] == [], name  # a row cannot be wrapped
    assert len(README.splitlines()) <= 150


def test_the_page_on_security_is_installed_where_the_daemons_says(build):
    files = json.loads(subprocess.run(["meson", "introspect", "--installed", build], check=True, capture_output=True, text=True).stdout)
    (place,) = (path for path in files.values() if path.endswith("/SECURITY.md"))
    page = (ROOT / "daemon" / "hugezerod.8.scd").read_text()
    (named,) = re.findall(r"_/usr(\S*/SECURITY\.md)_", page)
    assert place.endswith(named)


def test_tables_and_examples_of_the_man_pages_fit_80_columns():
    """scdoc indents them by 11 columns; other lines are filled by man."""
    for path in (path for folder in ("lib", "daemon", "tools", "systemd") for path in (ROOT / folder).rglob("*.scd")):
        for block in re.findall(r"^```\n(.*?)^```$", path.read_text(), flags=re.MULTILINE | re.DOTALL):
            lines = [line.expandtabs().replace("\\\\", "\\") for line in block.splitlines()]
            assert [line for line in lines if len(line) > 80 - 11] == [], path


def blocks():
    """The indented blocks of commands; lines that end with a backslash are joined."""
    found = re.findall(r"(?:^    .*\n)+", PROSE, flags=re.MULTILINE)
    return [[line.strip() for line in block.replace("\\\n", " ").splitlines()] for block in found]


def by_hand():
    return next(block for block in blocks() if any("/proc/sys/vm/nr_hugepages" in line for line in block))


def size_of(text):
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


def scaled(line):
    return re.sub(r"\b\d+[MG]\b", lambda match: f"{size_of(match[0]) // SCALE // MIB}M" if match[0] != "2M" else "2M", line)


def help_of(build, program, *verb):
    path = ROOT / program if program.startswith("t") else build / {"hugezerod": "daemon", "hugezeroctl": "tools"}[program] / program
    return subprocess.run([path, *verb, "--help"], capture_output=True, text=True, check=True, timeout=60).stdout


def test_it_is_short():
    assert README.count("\n") <= 150


def test_the_example_is_the_one_that_is_tested():
    (shown,) = re.findall(r"^```c\n(.*?)^```\n", README, flags=re.MULTILINE | re.DOTALL)
    licence, _, code = (ROOT / "tests" / "abi" / "example.c").read_text().partition("\n")
    assert "SPDX" in licence and shown == code


def test_the_name_for_pkg_config_is_that_of_the_file():
    (name,) = re.findall(r"pkg-config --cflags --libs (\w+)", README)
    assert f"filebase: '{name}'" in (ROOT / "lib" / "meson.build").read_text()


def test_files_that_it_names_exist(build):
    linked = re.findall(r"\]\(([^)#:]+)\)", README)
    # A few lines say build/PROGRAM, which is below the folder under test
    named = re.findall(r"(?<![\w/.])((?:build|tests|tools|config|lib|include|daemon|systemd)/[\w./-]*\w)", PROSE)
    assert linked and len(named) >= 8
    for path in {*linked, *named}:
        assert (build / path[6:] if path.startswith("build/") else ROOT / path).exists(), path


def test_pages_units_keys_and_headers_that_it_names_exist():
    for name, section in re.findall(r"\*([\w.-]+)\*\((\d)\)", README):
        assert len(list(ROOT.glob(f"*/**/{name}.{section}.scd"))) == 1, f"{name}({section})"
    for unit in re.findall(r"`([\w-]+\.(?:service|socket))`", README):
        assert list((ROOT / "systemd").glob(f"{unit}*")), unit
    for header in re.findall(r"`(\w+\.h)`", README):
        assert (ROOT / "include" / header).exists(), header
    keys = re.findall(r"`([A-Z]\w+=)`", README)
    sample = (ROOT / "config" / "hugezerod.conf").read_text()
    assert keys and all(re.search(rf"^#?\s*{key}", sample, re.MULTILINE) for key in keys), keys
    (path,) = re.findall(r"`(/etc/[\w./]+)`", README)
    assert f"value: '{path}'" in (ROOT / "meson_options.txt").read_text()


def test_options_and_verbs_that_it_names_are_in_the_help(build):
    lines = [line.partition("#")[0].partition(" -- ")[0] for block in blocks() for line in block] + re.findall(r"`([^`\n]+)`", PROSE)
    n_options = 0
    for line in lines:
        match = re.match(r"(?:build/\w+/)?(hugezerod|hugezeroctl|tools/demo|tests/run)(?:\s+([a-z]+))?(?=\s|$)", line)
        if not match:
            continue
        program, verb = match[1], [match[2]] if match[1] == "hugezeroctl" and match[2] else []
        text = help_of(build, program, *verb)
        assert text.startswith(f"Usage: {' '.join([program, *verb])}"), line
        for option in re.findall(r"--[a-z-]+", line):
            assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), f"{option} in: {line}"
            n_options += 1
    assert n_options >= 6


def test_the_pages_that_it_reserves_are_enough_for_what_it_does():
    text = "\n".join(by_hand())
    reserved = int(re.search(r"echo (\d+) > /proc/sys/vm/nr_hugepages", text)[1]) * PAGE_2M
    pool = size_of(re.search(r"--pool 2M:auto:(\w+)", text)[1])
    measured = size_of(re.search(r"bench --bytes (\w+)", text)[1])
    assert reserved >= pool + measured, "the kernel zeroes the same amount for comparison, beside the pool"


def test_the_commands_by_hand_work(build, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("the commands are root's")
    lines = [scaled(line).replace("/run/hugezero.sock", f"{tmp_path}/socket") for line in by_hand()]
    lines = [re.sub(r"(^|[ =])build/", rf"\g<1>{build}/", line) for line in lines]
    setup, reserve, daemon, *rest = lines
    assert setup.startswith("meson setup build && meson compile") and reserve.startswith("echo") and daemon.endswith("&")
    pool_bytes = size_of(re.search(r"2M:auto:(\w+)", daemon)[1])
    need_pages(pool_bytes // PAGE_2M + 64)
    environment = {**os.environ, **sanitizer_environment(None)}
    environment.pop("HUGEZERO_SOCKET", None)
    process = subprocess.Popen(shlex.split(daemon.rstrip("&")), env=environment, stderr=subprocess.PIPE, text=True)
    try:

        def is_full():
            assert process.poll() is None, process.stderr.read()
            if not (tmp_path / "socket").exists():
                return False
            try:
                with Client(str(tmp_path / "socket")) as client:
                    return sum(row["ready_bytes"] for row in client.pools()) >= pool_bytes
            except ConnectionRefusedError:
                return False  # the socket is there, and nobody listens yet

        wait_until(is_full, "the pool is full")
        done = subprocess.run(["bash", "-ec", "\n".join(rest)], env=environment, capture_output=True, text=True, check=False, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), done
        for word in "POOL", "memfd:", "times as long as the pool":
            assert word in done.stdout, done.stdout
    finally:
        process.terminate()
        assert process.wait(20) == 0
