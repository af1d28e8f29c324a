# SPDX-License-Identifier: LGPL-2.1-or-later
"""Adds up what the stages of tests/run left behind: NAME.status (exit code) and, where the stage ran tests, NAME.xml (JUnit)."""

import os
import pathlib
import re
import sys
import xml.etree.ElementTree

# A skip with such a reason is excused: this kind of machine can never run the test.
EXCUSE = "cannot:"
# One of several tests in a program of suite unit
CMOCKA = re.compile(r"\[ +(OK|SKIPPED) \] (\w+)$")


class Tally:
    def __init__(self, skip_fails):
        self.skip_fails = skip_fails
        self.passed = self.failed = self.skipped = 0

    def fail(self, name, reason):
        self.failed += 1
        print(f"FAILED  {name}: {reason}")

    def skip(self, name, reason):
        if self.skip_fails and not reason.startswith(EXCUSE):
            self.fail(name, f"was skipped although this machine can run it: {reason}")
            return
        self.skipped += 1
        print(f"SKIPPED {name}: {reason}")

    def add_stage(self, status_path):
        stage, code = status_path.stem, int(status_path.read_text())
        xml_path = status_path.with_suffix(".xml")
        n_failed = self.failed
        if xml_path.exists():
            for suite in xml.etree.ElementTree.parse(xml_path).iter("testsuite"):
                for case in suite.iter("testcase"):
                    self.add_case(stage, suite, case)
        if code and self.failed == n_failed:
            self.fail(stage, f"ended with code {code}; see {status_path.with_suffix('.log')}")

    def add_case(self, stage, suite, case):
        name = f"{stage} {case.get('classname') or suite.get('name')}.{case.get('name')}"
        for tag in "error", "failure":
            problem = case.find(tag)
            if problem is not None:
                return self.fail(name, first_line(problem.get("message") or problem.text))
        if case.find("skipped") is not None:
            return self.skip(name, skip_reason(suite, case))
        parts = cmocka_tests(words(suite, case))
        for test, (result, reason) in parts.items():
            if result == "SKIPPED":
                self.skip(f"{name}.{test}", reason)
        self.passed += sum(result == "OK" for result, _ in parts.values()) if parts else 1
        return None


def first_line(text):
    lines = (text or "").strip().splitlines()
    return lines[0] if lines else "no reason was given"


def cmocka_tests(lines):
    """{test: (result, what it said last)} of one program; its summary names skipped tests once more."""
    tests = {}
    for before, line in zip(["", *lines], lines):
        match = CMOCKA.match(line)
        if match:
            tests.setdefault(match[2], (match[1], before))
    return tests


def words(suite, case):
    """What a program said, by lines; Meson keeps it with the case or with the suite."""
    nodes = [node for parent in (case, suite) for tag in ("system-out", "system-err") for node in parent.findall(tag)]
    return "\n".join(node.text or "" for node in nodes).strip().splitlines()


def skip_reason(suite, case):
    message = case.find("skipped").get("message")
    if message:
        return first_line(message)
    lines = [line.removeprefix("skipped: ") for line in words(suite, case)]
    return next((line for line in lines if line.startswith(EXCUSE)), first_line("\n".join(lines[-1:])))


def main():
    tally = Tally(skip_fails=os.environ.get("CI") == "true")
    for status_path in sorted(pathlib.Path(sys.argv[1]).glob("*.status"), key=lambda path: path.stat().st_mtime_ns):
        tally.add_stage(status_path)
    if tally.passed + tally.failed == 0:
        tally.fail("tests/run", "no test was run")
    print(f"{tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped")
    return 1 if tally.failed else 0


sys.exit(main())
