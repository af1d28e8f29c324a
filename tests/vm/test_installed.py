# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Debian packages under systemd, in a container: guest/packages.py. Each of its tests is one here."""

import re
import shutil
import subprocess

import pytest
from harness import packages
from machines import HERE, Run

ROOT = HERE.parents[1]
CASES = re.findall(r"^def (test_\w+)", (HERE / "guest" / "packages.py").read_text(), re.MULTILINE)


def make_newer(path, folder):
    """The same package under a higher version."""
    subprocess.run(["dpkg-deb", "--raw-extract", path, folder / "tree"], check=True)
    control = folder / "tree" / "DEBIAN" / "control"
    # What another package needs of it, to the digit, is that version too
    control.write_text(re.sub(r"^(Version: .*|Depends: libhugezero0 \(= [^)]*)", r"\1.1", control.read_text(), flags=re.MULTILINE))
    subprocess.run(["dpkg-deb", "--build", folder / "tree", folder], check=True, stdout=subprocess.DEVNULL)
    shutil.rmtree(folder / "tree")


@pytest.fixture(scope="module")
def outcome(images, tmp_path_factory):
    if not shutil.which("dh"):
        pytest.skip("debhelper is not installed")
    work, results = tmp_path_factory.mktemp("work"), tmp_path_factory.mktemp("results")
    (work / "newer").mkdir()
    (work / "packages").mkdir()
    for path in packages.build(tmp_path_factory.mktemp("packages")).glob("*.deb"):
        shutil.copy(path, work / "packages")
        make_newer(path, work / "newer")
    shutil.copytree(ROOT / "tests", work / "tests", ignore=shutil.ignore_patterns("__pycache__", "unit", "fuzz"))
    command = [HERE / "run-in-nspawn.sh", "--work", work, "--results", results, "--limit", "300"]
    command += ["env", "HUGEZERO_TEST_DEADLINE_S=60", "/usr/bin/python3", "-m", "pytest", "-p", "no:cacheprovider", "--timeout=120"]
    command += ["--junitxml=/srv/results/junit.xml", "tests/vm/guest/packages.py"]
    process = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    return Run(process, results)


@pytest.mark.timeout(900)  # the first one waits for packages and machine
@pytest.mark.parametrize("case", CASES)
def test(outcome, case):
    outcome.check("packages", case)
