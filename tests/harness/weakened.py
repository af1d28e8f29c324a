# SPDX-License-Identifier: LGPL-2.1-or-later
"""
A daemon that lacks a defence: of the same sources and with the same options as the one under test, but for lines that are replaced.
An attack that fails against the real daemon is one only if it succeeds against this one.
"""

import collections
import pathlib
import shlex
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Once in the file of folder daemon: else the defence is elsewhere now, and the test must follow
Change = collections.namedtuple("Change", "file old new")


def can_be_made():
    return (ROOT / "daemon" / "main.c").exists()


def _run(command, build):
    result = subprocess.run(command, cwd=build, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{shlex.join(command)}:\n{result.stdout}{result.stderr}"
    return result.stdout


def _changed_source(name, changes, folder):
    text = (ROOT / "daemon" / name).read_text()
    for change in changes:
        assert text.count(change.old) == 1, f"daemon/{name} has {text.count(change.old)} times: {change.old}"
        text = text.replace(change.old, change.new)
    (folder / name).write_text(text)
    return folder / name


def _compile(command, source, build):
    """With what `command` compiles the original with, but quicker; returns the object."""
    words = shlex.split(command)
    for option in "-MD", "-Winvalid-pch":
        if option in words:
            words.remove(option)
    for option in "-MQ", "-MF", "-o", "-c":
        at = words.index(option)
        del words[at : at + 2]
    target = source.with_suffix(".o")
    _run([*words, "-w", "-g0", "-O0", "-o", str(target), "-c", str(source)], build)
    return target


def make(build, changes, folder):
    """Returns the program."""
    *_, link = commands = _run(["ninja", "-t", "commands", "daemon/hugezerod"], build).splitlines()
    words = shlex.split(link)
    words[words.index("-o") + 1] = str(folder / "hugezerod")
    for name in sorted({change.file for change in changes}):
        (command,) = [line for line in commands if line.endswith(f"/daemon/{name}")]
        source = _changed_source(name, [change for change in changes if change.file == name], folder)
        # Before the library, which has the original: what is defined already is not looked for there
        words.insert(words.index("-o"), str(_compile(command, source, build)))
    _run(words, build)
    return folder / "hugezerod"
