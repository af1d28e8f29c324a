# SPDX-License-Identifier: LGPL-2.1-or-later
"""A machine of suite vm, and what the tests inside it came to."""

import dataclasses
import pathlib
import xml.etree.ElementTree

import pytest

HERE = pathlib.Path(__file__).resolve().parent
# Suites of Debian, as build-image.sh takes them
OLDEST_KERNEL, NEWEST_KERNEL = "bookworm", "trixie-backports"


@dataclasses.dataclass(frozen=True)
class Machine:
    """
    kernel: a Debian suite, or None for a container on this machine's kernel; files: NAME of guest/NAME.py, or SUITE/NAME of
    another suite; the rest as for run-in-vm.sh.
    """

    kernel: str
    nodes: str = ""
    distances: str = ""
    append: str = ""
    files: tuple = ()

    def paths(self):
        """The files, for each name."""
        return {name: HERE.parent / f"{name}.py" if "/" in name else HERE / "guest" / f"{name}.py" for name in self.files}

    def command(self):
        if self.kernel is None:
            return [HERE / "run-in-nspawn.sh"]
        options = {"kernel": self.kernel, "nodes": self.nodes, "distances": self.distances, "append": self.append}
        return [HERE / "run-in-vm.sh", *(word for name, value in options.items() if value for word in (f"--{name}", value))]


class Run:
    """What a machine said about each test."""

    def __init__(self, process, results):
        self.results, self.output = results, f"said:\n{process.stdout}"
        self.outcomes = {}
        if (results / "junit.xml").exists():
            for case in xml.etree.ElementTree.parse(results / "junit.xml").iter("testcase"):
                problem = next((case.find(tag) for tag in ("error", "failure", "skipped") if case.find(tag) is not None), None)
                name = case.get("name").partition("[")[0]
                self.outcomes.setdefault((case.get("classname").rpartition(".")[2], name), []).append(problem)

    def check(self, file, name):
        """Passes, fails or skips the calling test as the one inside did."""
        module = file.rpartition("/")[2]
        if (module, name) not in self.outcomes:
            output, self.output = self.output, "said what the first such failure shows"
            pytest.fail(f"{name} was not run; the machine ({self.results}) {output}", pytrace=False)
        problems = [problem for problem in self.outcomes[module, name] if problem is not None]
        for problem in problems:
            if problem.tag != "skipped":
                pytest.fail(f"{problem.text}\nThe machine's journal and console are in {self.results}", pytrace=False)
        if problems:
            pytest.skip(problems[0].get("message"))
