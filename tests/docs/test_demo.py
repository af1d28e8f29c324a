# SPDX-License-Identifier: LGPL-2.1-or-later
"""tools/demo: what it promises in --help, and a small run of all of it."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from harness.pages import count, need_pages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def demo(*words):
    # Elsewhere than in the clone: it finds its files by itself
    return subprocess.run([ROOT / "tools" / "demo", *words], cwd="/", capture_output=True, text=True, check=False, timeout=240)


def test_help_fits_80_columns_and_goes_to_stdout():
    answer = demo("--help")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.startswith("Usage: tools/demo ")
    assert max(map(len, answer.stdout.splitlines())) <= 80


@pytest.mark.parametrize("words", [["--frobnicate"], ["now"], ["--bytes"], ["--bytes", "much"], ["--bytes", "0"], ["--bytes", "-1G"], ["--bytes", "100E"], ["--build"], ["--build", "/nosuch"]], ids=" ".join)
def test_a_wrong_argument_is_a_complaint_with_exit_2(words):
    answer = demo(*words)
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("tools/demo: ") and words[0] in answer.stderr


def test_an_amount_that_cannot_be_is_refused_before_pages_are_reserved(build):
    before = count("nr")
    answer = demo("--bytes", "100T", "--build", str(build))
    assert (answer.returncode, answer.stdout) == (1, "")
    assert answer.stderr.startswith("tools/demo: too few pages for --bytes 100T") and "is the most here" in answer.stderr
    assert count("nr") == before


@pytest.mark.parametrize("amount", ["1M", "3M"])
def test_an_amount_that_is_no_whole_pages_is_refused_at_once(build, amount):
    answer = demo("--bytes", amount, "--build", str(build))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr == f"tools/demo: --bytes {amount} is no multiple of the page size, which is 2048 KiB\n"


@pytest.mark.parametrize("program", ["tools/demo", "tests/run"])
def test_a_clone_of_somebody_else_is_a_complaint(program):
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    with tempfile.TemporaryDirectory() as name:
        clone = pathlib.Path(name)
        clone.chmod(0o755)
        for part in "tools/demo", "tools/lib.sh", "tests/run":
            (clone / part).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / part, clone / part)
        (clone / "tests/unit").mkdir()
        (clone / "tests/unit/test-x.c").touch()
        for folder in "build/demo", "build/report":  # with one and without
            answer = subprocess.run([clone / program], user=12345, group=12345, extra_groups=[], capture_output=True, text=True, check=False, timeout=60)
            assert (answer.returncode, answer.stdout) == (1, ""), answer
            assert answer.stderr.startswith(f"{program}: cannot write to {clone}/build") and len(answer.stderr.splitlines()) == 1, answer.stderr
            (clone / folder).mkdir(parents=True)


def test_it_serves_clients_and_measures(build):
    if os.geteuid() != 0:
        pytest.skip("only root can be sure to find pages")
    need_pages(512)
    answer = demo("--bytes", "64M", "--build", str(build))
    assert (answer.returncode, answer.stderr) == (0, ""), answer
    for word in "a program that was given the path", "a client in Python", "times as long as the pool", "times the raw exchange":
        assert word in answer.stdout, answer.stdout
