# SPDX-License-Identifier: LGPL-2.1-or-later
"""Machines for suite vm: each is booted once, runs the tests of guest/ that it is for, and every one of them is a test here."""

import compileall
import os
import shutil
import subprocess

import pytest
from machines import HERE, NEWEST_KERNEL, OLDEST_KERNEL, Run

ROOT = HERE.parents[1]
# The programs of the build that run inside as they are; what is installed comes from "meson install"
PROGRAMS = ["daemon/hugezerod", "tools/hugezeroctl", "meson-info/intro-buildoptions.json", "lib/libhugezero.so*", "tests/unit/test-*"]

# Settings of the tests inside
KNOBS = [f"{name}={os.environ[name]}" for name in ("HUGEZERO_KILLS", "HUGEZERO_IDLE_SECONDS") if name in os.environ]


@pytest.fixture(scope="session")
def images():
    """Root file system and kernels are there."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a root file system")
    command = [HERE / "build-image.sh", OLDEST_KERNEL, NEWEST_KERNEL]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if process.returncode:
        last = "".join(process.stdout.splitlines(keepends=True)[-20:])
        pytest.fail(f"the machines' images could not be made, build-image.sh ended with {process.returncode}:\n{last}", pytrace=False)


@pytest.fixture(scope="session")
def work(build, tmp_path_factory):
    """What is copied into a machine: root/ as installed, build/ and tests/ as far as they run there."""
    folder = tmp_path_factory.mktemp("work")
    subprocess.run(
        ["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder / "root"], stdin=subprocess.DEVNULL, check=True
    )
    for pattern in PROGRAMS:
        for path in build.glob(pattern):
            if path.is_file():
                (folder / "build" / path.relative_to(build)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, folder / "build" / path.relative_to(build), follow_symlinks=False)
    shutil.copytree(ROOT / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__", "unit", "fuzz"))
    compileall.compile_dir(folder / "tests", quiet=1)
    return folder


@pytest.fixture(scope="session")
def run_machine(images, work, tmp_path_factory):
    """run_machine(machine, command...) boots it, and returns process and folder of results."""

    def run(machine, *command):
        results = tmp_path_factory.mktemp("results")
        process = subprocess.run(
            [*machine.command(), "--work", work, "--results", results, "--limit", "900", *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        return process, results

    return run


@pytest.fixture(scope="session")
def run_tests(run_machine):
    """run_tests(machine) boots it when that was not done yet, runs the tests in its files, and returns a Run."""
    runs = {}

    def run(machine):
        if machine not in runs:
            knobs = ["HUGEZERO_TEST_EMULATED=1", *KNOBS] if machine.kernel else KNOBS
            # --maxfail: a daemon that is broken makes each test wait for as long as it may, and the machine has a limit
            runs[machine] = Run(
                *run_machine(machine, "env", "HUGEZERO_TEST_DEADLINE_S=60", *knobs, "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider",
                             "--timeout=300", "--maxfail=4", "--build=build", "--junitxml=/srv/results/junit.xml",
                             *(path.relative_to(ROOT) for path in machine.paths().values()))
            )  # fmt: skip
        return runs[machine]

    return run
