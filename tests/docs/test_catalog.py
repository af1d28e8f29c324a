# SPDX-License-Identifier: LGPL-2.1-or-later
"""Each message of the daemon has an id, an entry in the catalogue that says what to do, and a line in hugezerod(8)."""

import pathlib
import re
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CATALOG = ROOT / "systemd" / "hugezero.catalog"
CALL = re.compile(r"\blog_(?:error|warning|notice|info)\(\s*(\w+),\s*(LOG_FIELDS\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)|LOG_NO_FIELDS),")


def ids():
    """name -> id"""
    return dict(re.findall(r'^#define LOG_ID_(\w+) +"([0-9a-f]{32})"$', (ROOT / "daemon" / "log-ids.h").read_text(), re.MULTILINE))


def entries():
    """id -> (header, text)"""
    parts = re.split(r"^-- (\S+)\n", CATALOG.read_text(), flags=re.MULTILINE)
    assert len(parts[1::2]) == len(set(parts[1::2])), "an id has two entries"
    return {message_id: tuple(body.split("\n\n", 1)) for message_id, body in zip(parts[1::2], parts[2::2])}


def page():
    """id -> fields"""
    section = (ROOT / "daemon" / "hugezerod.8.scd").read_text().partition("\n# MESSAGES\n")[2].partition("\n# ")[0]
    found = re.findall(r"^_([0-9a-f]{32})_\n\t(.*)\n", section, re.MULTILINE)
    assert len(found) == len(dict(found)), "an id is described twice"
    return {message_id: set(re.findall(r"\*([A-Z_]+)\*", text.partition("Fields:")[2])) for message_id, text in found}


def sources():
    """All that may write a message."""
    return [*(ROOT / "daemon").glob("*.c"), *(ROOT / "systemd").glob("*.c")]


def calls():
    """name of the id -> names of fields, from all places that write a message"""
    macros = {"LOG_NODE_POOL": {"POOL", "NODE"}, "LOG_PEER": {"PID", "UID"}, "LOG_GOAL": {"NODE", "PAGE_SIZE_BYTES"}}
    found = {}
    for path in sources():
        text = path.read_text()
        if path.name != "log.c":
            assert "log_message(" not in text, f"{path.name}: log_error() and its relatives are for this"
            assert len(re.findall(r"\blog_(?:error|warning|notice|info)\(", text)) == len(CALL.findall(text)), f"{path.name}: not understood"
        for name, fields in CALL.findall(text):
            names = set(re.findall(r'LOG_(?:TEXT|NUMBER)\("([A-Z_]+)"', fields))
            for macro, meant in macros.items():
                names |= meant if macro in fields else set()
            if name != "id":  # a parameter: the id is at the call of that function
                found.setdefault(name.removeprefix("LOG_ID_"), []).append(names)
    return found


def test_every_id_is_used_and_every_message_has_one():
    used = set()
    for path in sources():
        used |= set(re.findall(r"\bLOG_ID_(\w+)", path.read_text()))
    assert len(ids()) >= 26 and len(set(ids().values())) == len(ids())
    assert used == ids().keys()


def test_the_catalogue_has_an_entry_for_each_id_and_no_other():
    assert entries().keys() == set(ids().values())


def test_an_entry_says_what_happened_and_what_to_do():
    for message_id, (header, text) in entries().items():
        lines = dict(line.split(": ", 1) for line in header.splitlines())
        assert lines["Defined-By"] == "hugezero" and lines["Documentation"] == "man:hugezerod(8)", message_id
        assert 10 < len(lines["Subject"]) < 90, message_id
        paragraphs = text.strip().split("\n\n")
        assert len(paragraphs) >= 2, f"{message_id}: one paragraph says what it means, another one what to do"
        assert max(map(len, text.splitlines())) <= 80


def test_fields_that_an_entry_speaks_of_are_in_the_message():
    described = page()
    for message_id, (header, text) in entries().items():
        assert set(re.findall(r"@(\w+)@", header + text)) <= described[message_id], message_id


def test_the_page_describes_each_id_with_its_fields():
    described = page()
    assert described.keys() == set(ids().values())
    for name, places in calls().items():
        union = set().union(*places)
        assert described[ids()[name]] | {"SOCKET"} >= union, name
        assert described[ids()[name]] <= set.intersection(*places), f"{name}: a field of the page is not in every message"


@pytest.mark.skipif(not shutil.which("journalctl"), reason="journalctl is not installed")
def test_journalctl_reads_the_catalogue(tmp_path):
    folder = tmp_path / "usr" / "lib" / "systemd" / "catalog"
    folder.mkdir(parents=True)
    shutil.copy(CATALOG, folder)
    (tmp_path / "var" / "lib" / "systemd" / "catalog").mkdir(parents=True)
    done = subprocess.run(["journalctl", f"--root={tmp_path}", "--update-catalog"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    listed = subprocess.run(["journalctl", f"--root={tmp_path}", "--list-catalog"], capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in listed.splitlines()} == set(ids().values())
    assert "hugezero: Pool @POOL@ is short of pages on node @NODE@" in listed


def test_the_catalogue_is_installed(build, tmp_path):
    subprocess.run(["meson", "install", "-C", build, "--destdir", tmp_path, "--no-rebuild", "--quiet"], check=True)
    (installed,) = tmp_path.rglob("hugezero.catalog")
    assert installed.parent.name == "catalog" and installed.read_text() == CATALOG.read_text()
