#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Inside the machine, as hugezero-test.service: unpacks the input, runs the command, sends back output, results and exit code.
# A virtual machine has a raw disk and two virtio ports for that, a container files below /mnt. The unit's end is the machine's.

place() { # input, output or results
        local name
        if [[ -e /mnt/input ]]; then
                echo "/mnt/$1"
        elif [[ $1 == input ]]; then
                echo /dev/vdb
        else
                # There is no udev to make links by name
                name=$(grep -lx "$1" /sys/class/virtio-ports/*/name)
                name=${name%/name}
                echo "/dev/${name##*/}"
        fi
}

exec > "$(place output)" 2>&1
mkdir -p /srv/work /srv/results
tar -xf "$(place input)" -C /srv/work
cd /srv/work || exit
bash .command
echo $? > /srv/results/exit-code
journalctl --no-pager --output=short-monotonic > /srv/results/journal
tar -c -C /srv/results . > "$(place results)"
