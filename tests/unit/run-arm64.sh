#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Builds the tests of lib/clear for arm64 and runs them under user-mode emulation, on processors that differ in what they clear with.
#
# The two MOPS methods need a later QEMU than Debian 12's: "tests/unit/fetch-qemu.sh build/qemu", as tests/run does.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."

compiler=${HUGEZERO_ARM64_CC:-aarch64-linux-gnu-gcc}
newer=build/qemu/qemu-aarch64
sources=(lib/clear/{arm64,calibrate,choose,clear,flush,generic,ring,sigbus,verify}.c lib/common/parse.c)
flags=(-O2 -std=gnu17 -D_GNU_SOURCE -DRUNNING_ON_EMULATOR=1 -Wall -Wextra -Werror -Wno-unused-parameter
        -Wno-missing-field-initializers -fno-strict-aliasing "-I$PWD/tests/unit/plain" "-I$PWD/tests/unit" "-I$PWD/lib/clear"
        "-I$PWD/lib/common")

skip() {
        echo "skipped: $1"
        exit 77
}

# run "QEMU OPTION..." CPU METHOD... - all tests; each METHOD must be among the available ones, or nothing was tried
run() {
        local qemu cpu=$2 test method
        read -ra qemu <<< "$1"
        shift 2
        for test in clear calibrate; do
                echo "# $test on $cpu, $("${qemu[@]}" --version | head -n 1)"
                "${qemu[@]}" -cpu "$cpu" "$work/test-$test" | tee "$work/output"
        done
        for method; do
                grep -q "^$method " "$work/output" || {
                        echo "run-arm64.sh: $method was not measured on $cpu, so it is not available there"
                        exit 1
                }
        done
}

command -v "$compiler" > /dev/null || skip "no $compiler: install gcc-aarch64-linux-gnu and libc6-dev-arm64-cross"
command -v qemu-aarch64-static > /dev/null || [[ -x $newer ]] || skip "no qemu-aarch64-static: install qemu-user-static"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$PWD
(cd "$work" && "$compiler" "${flags[@]}" -c "${sources[@]/#/$root/}")

# expect_code FUNCTION INSTRUCTION... - no emulator shows a difference between stores that pass by the caches and others
expect_code() {
        local function=$1 expected found
        shift
        printf '.arch armv8.8-a+mops\n%s\n' "$(printf '%s [x0]!, x1!, xzr\n' "$@")" | "$compiler" -c -x assembler -o "$work/expected.obj" -
        expected=$(words "$work/expected.obj")
        found=$(words "$work/arm64.o" --disassemble="$function" | grep -Fxf <(echo "$expected"))
        [[ $(wc -w <<< "$expected") -eq $# && $found == "$expected" ]] || {
                echo "run-arm64.sh: $function is not made of $*"
                exit 1
        }
}

words() {
        "${compiler%gcc}objdump" -d "${@:2}" "$1" | awk '$1 ~ /^[0-9a-f]+:$/ { print $2 }'
}

expect_code clear_mops setp setm sete
expect_code clear_mops_nt setpn setmn seten
for test in clear calibrate; do
        wrap=()
        [[ $test != calibrate ]] || wrap=(-Wl,--wrap=clear_flush,--wrap=clear_ring_walk)
        "$compiler" "${flags[@]}" -static "${wrap[@]}" -o "$work/test-$test" "tests/unit/test-$test.c" "$work"/*.o
done

# "dc zva" clears 64 bytes on one, 256 on the other; base pages of 4 and 16 KiB
if command -v qemu-aarch64-static > /dev/null; then
        run qemu-aarch64-static cortex-a53 memset generic dc-zva stnp
        run qemu-aarch64-static a64fx memset generic dc-zva stnp
        run "qemu-aarch64-static -p 16384" cortex-a53 memset generic dc-zva stnp
fi
if [[ -x $newer ]]; then
        run "$newer" max memset generic mops mops-nt dc-zva stnp
else
        echo "[  SKIPPED ] mops" # counted by tests/tally.py
fi
