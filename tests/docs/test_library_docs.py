# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezero.h documents each call in one form, libhugezero(3) names them all, and its example is the one that is tested."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
HEADER = (ROOT / "include" / "hugezero.h").read_text()
PAGE = (ROOT / "lib" / "libhugezero.3.scd").read_text()
EXAMPLE = (ROOT / "tests" / "abi" / "example.c").read_text()
FIELDS = ["Guarantee", "Threads", "Blocks", "Returns", "Errors", "Since"]


def calls():
    """name -> (remark above it, names of its parameters)"""
    found = {}
    pattern = r"/\*\*\n((?: \*.*\n)+?) \*/\nHUGEZERO_EXPORT [^;(]*?\b(hugezero_\w+)\(([^;]*)\);"
    for remark, name, parameters in re.findall(pattern, HEADER):
        words = [re.search(r"(\w+)$", parameter.strip())[1] for parameter in parameters.split(",")]
        found[name] = (remark, [word for word in words if word != "void"])
    return found


def test_each_call_is_described():
    assert set(calls()) == set(re.findall(r"^HUGEZERO_EXPORT [^(]*?(hugezero_\w+)\(", HEADER, flags=re.MULTILINE))
    assert len(calls()) >= 35


def test_each_description_has_the_same_form():
    for name, (remark, parameters) in calls().items():
        assert remark.startswith(f" * {name} - "), f"{name} is not what the remark above it describes"
        assert re.findall(r"^ \* @(\w+):", remark, flags=re.MULTILINE) == parameters, f"parameters of {name}"
        assert re.findall(r"^ \* ([A-Z]\w+): ", remark, flags=re.MULTILINE) == FIELDS, f"fields of {name}"
        assert re.search(r"^ \* Since:      \d+\.\d+$", remark, flags=re.MULTILINE), f"version of {name}"


def test_each_error_is_explained():
    for name, (remark, _) in calls().items():
        errors = re.search(r" \* Errors: (.*?) \* Since:", remark, flags=re.DOTALL)[1]
        for line in errors.splitlines():
            error = re.search(r"(-E\w+)(.*)$", line)
            assert not error or len(error[2].split()) >= 2, f"{name}: {error[1]} is not explained"


def test_the_header_is_prose_mostly():
    code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.DOTALL)
    n_code, n_all = (sum(bool(line.strip()) for line in text.splitlines()) for text in (code, HEADER))
    assert n_code < 0.3 * n_all


def test_the_page_names_every_call():
    assert set(re.findall(r"\*(hugezero_\w+)\*", PAGE)) == set(calls())


def test_the_example_of_the_page_is_the_one_that_is_tested():
    shown = re.search(r"# EXAMPLE\n\n```\n(.*?)```", PAGE, flags=re.DOTALL)[1].replace("\\\\", "\\")
    assert EXAMPLE.endswith(shown) and EXAMPLE.count("\n") == shown.count("\n") + 1
