# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154 # variables of the scripts and of this file
#
# What the scripts of this folder share. The caller defines usage(), and to run something: finish(), and sets $run, the folder
# that is shared with the machine, and $child, the machine's process.

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

usage_error() {
        say "$1; see --help"
        exit 2
}

# parse_options "NAME..." ARG... - sets the variable NAME for --NAME VALUE, and the array command to what follows
parse_options() {
        local known=" $1 "
        shift
        while [[ ${1-} == -* ]]; do
                if [[ $1 == --help ]]; then
                        usage
                        exit 0
                fi
                [[ $known == *" ${1#--} "* ]] || usage_error "unknown option \"$1\""
                (($# > 1)) || usage_error "$1: a value is missing"
                printf -v "${1#--}" %s "$2"
                shift 2
        done
        (($#)) || usage_error "a command is missing"
        command=("$@")
}

# pack_input DIR FILE COMMAND... - the archive that guest.sh unpacks: the folder (or none) and the command
pack_input() {
        local dir=$1 file=$2 extra=$run/extra
        shift 2
        mkdir "$extra"
        printf '%q ' "$@" > "$extra/.command"
        tar -cf "$file" -C "$extra" .command ${dir:+-C "$dir" .}
        rm -r "$extra"
}

# finish_run - waits for the machine, shows the output, keeps the results, and exits as the command did
finish_run() {
        local status=0
        wait "$child" || status=$?
        child=
        cat "$run/output"
        mkdir "$run/unpacked"
        # Nothing is in it when the machine was cut off
        tar -xf "$run/results" -C "$run/unpacked" 2> /dev/null || true
        if [[ -n $results ]]; then
                mkdir -p "$results"
                cp -a "$run/unpacked/." "$run/console" "$results/"
        fi
        [[ ! -s $run/unpacked/exit-code ]] || exit "$(< "$run/unpacked/exit-code")"
        if ((status == 124 || status == 137)); then
                say "the time limit of $limit s is reached"
                exit 124
        fi
        say "the machine ended without finishing the command (status $status); the end of its console:"
        tail -n 20 "$run/console" >&2
        exit 125
}
