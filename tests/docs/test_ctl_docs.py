# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezeroctl(1), --help and the program say the same."""

import pathlib
import re
import subprocess

import pytest

PAGE = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "hugezeroctl.1.scd"
VERBS = "status", "grants", "run", "hold", "resize", "drain", "reload", "metrics", "bench", "doctor"
PARTS = "bench clear", "bench procs", "bench churn"  # verbs below a verb, each with a section of its own
EVERYWHERE = {"--help", "--socket"}  # described once, for all verbs
FOR_TESTS = {"doctor": {"--root"}}  # in the page only


def help_of(build, *words):
    return subprocess.run([build / "tools" / "hugezeroctl", *words, "--help"], capture_output=True, text=True, check=True).stdout


def options_of_help(text):
    """{option: its value, "" without} from the lines that begin with one."""
    return dict(re.findall(r"^  (--[a-z-]+)(?:[ =]|\[=)?([A-Z]*)", text, re.MULTILINE))


def sections():
    """{heading: text}"""
    parts = re.split(r"^# (.*)\n", PAGE.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2]))


def options_of_page(section):
    """{option: its value} from the lines that head a description: no indent, in bold."""
    found = {}
    for line in section.splitlines():
        if re.match(r"\*--", line):
            found.update(re.findall(r"\*(--[a-z-]+)\*(?: _|\[=_)?([A-Z]*)", line))
    return found


def test_the_verbs_are_those_of_the_page(build):
    listed = help_of(build).partition("Verbs:\n")[2].partition("\n\n")[0]
    assert tuple(line.split()[0] for line in listed.splitlines()) == VERBS
    assert {verb.upper() for verb in VERBS} <= sections().keys()
    synopsis = sections()["SYNOPSIS"]
    assert tuple(re.findall(r"^\*hugezeroctl ([a-z]+)\*", synopsis, re.MULTILINE)) == VERBS
    assert tuple(re.findall(r"^\*hugezeroctl ([a-z]+ [a-z]+)\*", synopsis, re.MULTILINE)) == PARTS


def test_the_global_options_are_those_of_the_page(build):
    assert options_of_help(help_of(build)) == options_of_page(sections()["OPTIONS"])


@pytest.mark.parametrize("verb", VERBS + PARTS)
def test_the_options_of_a_verb_are_those_of_the_page(build, verb):
    listed = options_of_help(help_of(build, *verb.split()))
    assert EVERYWHERE <= listed.keys()
    described = options_of_page(sections()[verb.upper()])
    hidden = FOR_TESTS.get(verb, set())
    assert hidden <= described.keys() and not hidden & listed.keys()
    assert {option: value for option, value in listed.items() if option not in EVERYWHERE} == {
        option: value for option, value in described.items() if option not in hidden
    }


@pytest.mark.parametrize("verb", VERBS + PARTS)
def test_every_option_of_the_page_is_understood(build, verb):
    """A value is missing or surplus then; what must not come is the complaint about an unknown option, or a measurement."""
    known = set(options_of_page(sections()[verb.upper()])) | EVERYWHERE
    for option in known:
        command = [build / "tools" / "hugezeroctl", *verb.split(), option, "--frobnicate", "--frobnicate"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        assert f"option {option}: there is no such option" not in answer.stderr, answer
    answer = subprocess.run([build / "tools" / "hugezeroctl", *verb.split(), "--frobnicate"], capture_output=True, text=True, check=False)
    assert "option --frobnicate: there is no such option" in answer.stderr


def test_the_page_names_every_key_of_a_grant_specification():
    source = (PAGE.parent / "ctl-grant-spec.c").read_text()
    keys = re.findall(r'"([a-z-]+)"', re.search(r"keys\[\] = \{(.*?)\}", source)[1])
    described = re.findall(r"^\*([a-z-]+)=?\*", sections()["GRANT SPECIFICATIONS"], re.MULTILINE)
    assert sorted(keys) == sorted(described)


def test_the_page_names_every_exit_code(build):
    codes = re.findall(r"^\*(\d)\*$", sections()["EXIT STATUS"], re.MULTILINE)
    header = (PAGE.parent / "ctl.h").read_text()
    assert codes == re.findall(r"CTL_EXIT_\w+ = (\d)", header)
    for code in codes:
        assert re.search(rf"\b{code} ", help_of(build).partition("Exit codes:")[2])
