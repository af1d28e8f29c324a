# SPDX-License-Identifier: LGPL-2.1-or-later
"""hugezerod.conf(5) and the sample file say the same. The sample is the table of keys in words: a unit test compares those."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "daemon" / "hugezerod.conf.5.scd"
SAMPLE = ROOT / "config" / "hugezerod.conf"
CORPUS = ROOT / "tests" / "fuzz" / "corpus" / "config" / "every-key"
# As the sections are headed in the page, and begun in the sample
SECTIONS = {
    "[Daemon] SECTION": "[Daemon]",
    "[Pool NAME] SECTION": "[Pool default]",
    "[Quota default], [Quota user:NAME] AND [Quota group:NAME] SECTIONS": "[Quota default]",
}


def plain(text):
    """Text of the page without marks of emphasis and line breaks."""
    return re.sub(r"\s+", " ", re.sub(r"\\(.)", r"\1", text.replace("*", ""))).strip()


def keys_of_sample():
    """(section, key) -> (help, value, default)"""
    keys, section, remarks = {}, None, []
    for line in SAMPLE.read_text().splitlines():
        header = re.fullmatch(r"#?(\[.*\])", line)
        setting = re.fullmatch(r"#(\w+)=(.*)", line)
        if header:
            section = header[1]
        elif setting:
            value = remarks[-1].removeprefix("Value: ")
            assert (section, setting[1]) not in keys
            keys[section, setting[1]] = (" ".join(remarks[:-1]), value, setting[2])
        remarks = remarks + [line[2:]] if line.startswith("# ") else []
    return keys


def keys_of_page():
    """(section, key) -> (text, value, default)"""
    keys = {}
    for chapter in re.split(r"^# ", PAGE.read_text(), flags=re.MULTILINE)[1:]:
        title, body = chapter.split("\n", 1)
        for key, text in re.findall(r"^\*(\w+)=\*\n((?:\t.*\n|\n)+)", body, flags=re.MULTILINE):
            assert title in SECTIONS, f"{key}= is described under {title}"
            assert (SECTIONS[title], key) not in keys, f"{key}= is described twice under {title}"
            value = re.search(r"^\tValue: (.*)\. Default: \*(.*)\*$", text, flags=re.MULTILINE)
            assert value, f"{key}= of {title} has no line of the form 'Value: ... Default: *...*'"
            keys[SECTIONS[title], key] = (plain(text), value[1], value[2])
    return keys


def test_the_page_has_the_keys_of_the_table_in_the_same_order():
    sample = keys_of_sample()
    assert len(sample) >= 23
    assert list(keys_of_page()) == list(sample)


@pytest.mark.parametrize("section, key", keys_of_sample())
def test_a_key_has_the_same_unit_range_and_default_everywhere(section, key):
    _, value, default = keys_of_sample()[section, key]
    _, page_value, page_default = keys_of_page()[section, key]
    assert page_value == value
    assert page_default == default


@pytest.mark.parametrize("section, key", keys_of_sample())
def test_the_page_repeats_the_first_sentence_of_the_help(section, key):
    first = keys_of_sample()[section, key][0].split(". ")[0].split(":")[0].rstrip(".")
    assert first in keys_of_page()[section, key][0]


def test_words_of_a_range_that_need_explaining_are_explained():
    page = keys_of_page()
    for word in ("same-service", "same-user", "trusted", "never"):
        assert page["[Daemon]", "Recycle"][0].count(word) >= 2


def test_keys_in_running_text_exist():
    known = {key for _, key in keys_of_sample()}
    for key in re.findall(r"\*(\w+)=\*", PAGE.read_text()):
        assert key in known, f"the page speaks of {key}="


def test_who_is_trusted_is_told_of_each_key_that_gives_power():
    section = (ROOT / "SECURITY.md").read_text().partition("## Who is trusted\n")[2].partition("\n## ")[0]
    for key in "AdminUsers", "SocketGroup":
        assert f"`{key}=`" in section


def test_the_fuzzer_begins_with_every_key():
    """What is commented out in the sample, and nothing else."""
    lines = [re.sub(r"^#(?=\w+=|\[)", "", line) for line in SAMPLE.read_text().splitlines() if line and not line.startswith("# ")]
    text = CORPUS.read_text()
    assert text.splitlines() == lines, f"{CORPUS} is to be:\n" + "\n".join(lines)
    for section, key in keys_of_sample():
        assert f"\n{key}=" in text.partition(section)[2].partition("\n[")[0]


@pytest.mark.skipif(not shutil.which("scdoc"), reason="scdoc is not installed")
def test_the_page_can_be_formatted():
    done = subprocess.run(["scdoc"], stdin=PAGE.open(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert b"MaxFdsInFlight=" in done.stdout
