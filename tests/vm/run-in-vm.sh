#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# One command in a virtual machine with NUMA nodes, hugepages and systemd. Plain emulation: no virtualisation of the host is
# needed, and memory that the guest does not touch costs nothing.
set -euo pipefail
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

usage() {
        cat << END
Usage: tests/vm/run-in-vm.sh [OPTION...] COMMAND [ARG...]

Boots what tests/vm/build-image.sh has made, runs the command in it as a systemd
service, shows its output and ends with its exit code: 124 when the time limit
was reached, 125 when the machine did not get that far. Nothing that the guest
writes to its disk outlives the run.

  --kernel SUITE     the kernel of this Debian suite (default: bookworm)
  --nodes LIST       NUMA nodes as SIZE[:CPU[,CPU...]], a node without CPUs has
                     only memory, one of size 0 only CPUs (default: "1G:0 1G:1");
                     memory of the size +SIZE is offline at first
  --distances LIST   "0-2:14 1-2:30" for the pairs of nodes (default: 21 each)
  --append ARGS      for the kernel, as "hugepagesz=2M hugepages=0:64,1:32"
  --work DIR         copied into the command's working directory
  --results DIR      where what the command leaves in /srv/results is put, with
                     the journal and the console
  --limit SECONDS    for the whole run (default: 300)
  --help             show this text
END
}

kernel=bookworm nodes="1G:0 1G:1" distances="" append="" work="" results="" limit=300
parse_options "kernel nodes distances append work results limit" "$@"
[[ -f $cache/root.img && -f $cache/kernel-$kernel/vmlinux ]] || die "there is no $cache/kernel-$kernel; tests/vm/build-image.sh makes it"
run=$(mktemp -d)

# machine_arguments - memory, CPUs and distances from $nodes and $distances, into $machine. One socket for each CPU: Linux doubts
# a table that puts the CPUs of one socket on several nodes.
machine=()
machine_arguments() {
        local word size node=0 cpu n_cpus=0 total=0 n_offline=0 offline=0 numa other distance pair
        for word in $nodes; do
                numa=node,nodeid=$node size=${word%%:*}
                [[ $size == 0 ]] || machine+=(-object "memory-backend-ram,reserve=off,id=memory$node,size=${size#+}")
                if [[ $size == +* ]]; then
                        machine+=(-device "pc-dimm,memdev=memory$node,node=$node")
                        n_offline=$((n_offline + 1))
                        offline=$((offline + $(numfmt --from=iec "${size#+}")))
                elif [[ $size != 0 ]]; then
                        numa+=,memdev=memory$node
                        total=$((total + $(numfmt --from=iec "$size")))
                fi
                if [[ $word == *:* ]]; then
                        for cpu in $(tr , ' ' <<< "${word#*:}"); do
                                numa+=,cpus=$cpu
                                n_cpus=$((n_cpus + 1))
                        done
                fi
                machine+=(-numa "$numa")
                node=$((node + 1))
        done
        while ((node-- > 0)); do
                for ((other = 0; other < node; other++)); do
                        distance=21
                        for pair in $distances; do
                                [[ $pair != "$other-$node":* && $pair != "$node-$other":* ]] || distance=${pair#*:}
                        done
                        machine+=(-numa "dist,src=$other,dst=$node,val=$distance" -numa "dist,src=$node,dst=$other,val=$distance")
                done
        done
        machine+=(-m "$((total >> 20))M,slots=$n_offline,maxmem=$((total + offline >> 20))M" -smp "$n_cpus,sockets=$n_cpus,cores=1,threads=1")
}

start_machine() {
        local arguments="console=ttyS0 root=/dev/vda quiet panic=-1 nokaslr mitigations=off audit=0 no_timer_check nowatchdog"
        arguments+=" apparmor=0 selinux=0 cryptomgr.notests memhp_default_state=offline"
        # Debian's kernels clear what they allocate; that would take the memory of reserved pages from the host
        arguments+=" init_on_alloc=0 systemd.show_status=no systemd.unified_cgroup_hierarchy=1 $append"
        # 5-level page tables would only make emulation slower
        timeout --kill-after=5 "$limit" qemu-system-x86_64 -nodefaults -no-user-config -no-reboot -display none \
                -machine q35 -accel tcg,thread=multi -cpu max,la57=off "${machine[@]}" \
                -kernel "$cache/kernel-$kernel/vmlinux" -initrd "$cache/kernel-$kernel/initrd" -append "$arguments" \
                -drive "if=virtio,format=raw,snapshot=on,file=$cache/root.img" \
                -drive "if=virtio,format=raw,readonly=on,file=$run/input" \
                -chardev "file,id=console,path=$run/console,append=on" -serial chardev:console -device virtio-serial-pci \
                -chardev "file,id=output,path=$run/output" -device virtserialport,chardev=output,name=output \
                -chardev "file,id=results,path=$run/results" -device virtserialport,chardev=results,name=results \
                < /dev/null >> "$run/console" 2>&1 &
        child=$!
}

# shellcheck disable=SC2317 # a trap calls it
finish() {
        # timeout passes it on
        [[ -z $child ]] || kill "$child" 2> /dev/null || true
        rm -rf "$run"
}

trap finish EXIT
trap 'exit 143' TERM
trap 'exit 130' INT
touch "$run"/{console,output,results}
pack_input "$work" "$run/input" "${command[@]}"
machine_arguments
start_machine
finish_run
