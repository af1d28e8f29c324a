#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# The quick sibling of run-in-vm.sh: the same root file system and systemd, in a container on this machine's kernel, nodes and
# hugepages. Its /sys is read-only.
set -euo pipefail
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

usage() {
        cat << END
Usage: tests/vm/run-in-nspawn.sh [OPTION...] COMMAND [ARG...]

Boots what tests/vm/build-image.sh has made as a container, runs the command in
it as a systemd service, shows its output and ends with its exit code: 124 when
the time limit was reached, 125 when the container did not get that far.

  --work DIR      copied into the command's working directory
  --results DIR   where what the command leaves in /srv/results is put, with the
                  journal and the console
  --limit SECONDS for the whole run (default: 120)
  --help          show this text
END
}

work="" results="" limit=120
parse_options "work results limit" "$@"
[[ -d $cache/root ]] || die "there is no $cache/root; tests/vm/build-image.sh makes it"

# A host that has the old hierarchies as well keeps the new one in a folder of its own
unified=/sys/fs/cgroup/unified
[[ -d $unified ]] || unified=/sys/fs/cgroup
run=$(mktemp -d)
name=hugezero-${run##*.}

# shellcheck disable=SC2317 # a trap calls it
finish() {
        [[ -z $child ]] || kill "$child" 2> /dev/null || true
        find "$unified/$name" "/sys/fs/cgroup/systemd/$name" -depth -type d -exec rmdir {} + 2> /dev/null || true
        rm -rf "$run"
}

start_container() {
        # Into a control group of its own before it starts: systemd-nspawn hands over the one that it is in
        echo "$BASHPID" > "$unified/$name/cgroup.procs"
        # The older and the newer name of the same
        export UNIFIED_CGROUP_HIERARCHY=1 SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
        exec timeout --kill-after=5 "$limit" systemd-nspawn --quiet --directory="$cache/root" --boot --volatile=overlay \
                --machine="$name" --register=no --keep-unit --private-network --bind="$run:/mnt" --console=pipe
}

trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
touch "$run"/{console,output,results}
pack_input "$work" "$run/input" "${command[@]}"
mkdir "$unified/$name"
start_container < /dev/null > "$run/console" 2>&1 &
child=$!
finish_run
