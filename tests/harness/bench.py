# SPDX-License-Identifier: LGPL-2.1-or-later
"""What the programs of tests/bench check before they measure: a sentence then, not a traceback later."""

import argparse
import os
import pathlib
import sys


def at_least(least):
    """A type for argparse."""

    def parse(text):
        try:
            n = int(text)
        except ValueError:
            n = least - 1
        if n < least:
            raise argparse.ArgumentTypeError(f'"{text}" is not a number from {least} on')
        return n

    return parse


def check(build=None):
    """Ends the program where it cannot measure."""
    program = pathlib.Path(sys.argv[0]).name
    if os.geteuid() != 0:
        sys.exit(f"{program}: run it as root: it sets the machine's pages, limits or control groups")
    if build is not None and not (pathlib.Path(build) / "daemon" / "hugezerod").is_file():
        sys.exit(f"{program}: --build {build}: there is no daemon/hugezerod in it; build it first (ninja -C {build})")
