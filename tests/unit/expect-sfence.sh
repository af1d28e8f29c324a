#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# No test can see a missing fence: what stores without one do wrong depends on the moment. So the built code is looked at.
#
# Usage: expect-sfence.sh PROGRAM
set -euo pipefail

command -v objdump > /dev/null || exit 77 # skipped
objdump -d --disassemble=publish_sfence "$1" | grep -qw sfence || {
        echo "expect-sfence.sh: publish_sfence() in $1 has no sfence"
        exit 1
}
