# SPDX-License-Identifier: LGPL-2.1-or-later
"""The Debian packages of this tree. A run of several suites builds them once."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def build(folder):
    """Returns where they are: in HUGEZERO_PACKAGES, which tests/run sets, else in @folder."""
    folder = pathlib.Path(os.environ.get("HUGEZERO_PACKAGES", folder))
    if not any(folder.glob("*.deb")):
        command = [ROOT / "tests" / "build-packages.sh", folder]
        built = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        assert built.returncode == 0, f"{command} ended with {built.returncode}:\n{built.stdout[-6000:]}"
    return folder
