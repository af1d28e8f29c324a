# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
#
# What the scripts of this folder share. They are told apart from tests by their names, and can be used by hand.

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
me=tests/vm/${0##*/}
# shellcheck source=tools/lib.sh
. "$here/../../tools/lib.sh"

# Outside the tree: it is root's, large, and the same for all work trees
readonly cache=${HUGEZERO_VM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/hugezero-vm}

die() { # TEXT; exit code 125: nothing was run
        say "$1"
        exit 125
}

# pack_input DIR FILE COMMAND... - the archive that guest.sh unpacks: the folder (or none) and the command
pack_input() {
        local dir=$1 file=$2 extra
        shift 2
        extra=$(mktemp -d)
        printf '%q ' "$@" > "$extra/.command"
        tar -cf "$file" -C "$extra" .command ${dir:+-C "$dir" .}
        rm -r "$extra"
}

# finish_run RUN_DIR RESULTS_DIR STATUS - what came out: shows the output, keeps the results, returns the command's exit code
finish_run() {
        local run=$1 results=$2 status=$3
        cat "$run/output"
        mkdir -p "$run/results.d"
        tar -xf "$run/results" -C "$run/results.d" 2> /dev/null || true
        if [[ -n $results ]]; then
                mkdir -p "$results"
                cp -a "$run/results.d/." "$run/console" "$results/"
        fi
        [[ ! -s $run/results.d/exit-code ]] || return "$(< "$run/results.d/exit-code")"
        if ((status == 124 || status == 137)); then
                say "the time limit is reached"
                return 124
        fi
        say "the machine ended without finishing the command (status $status); the end of its console:"
        tail -n 20 "$run/console" >&2
        return 125
}
