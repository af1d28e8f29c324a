#!/bin/busybox sh
# shellcheck shell=dash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Init of the initrd: loads its modules, mounts the first disk, hands over to systemd.

give_up() {
        echo "initrd: $1"
        /bin/busybox poweroff -f
}

for name in dev:devtmpfs proc:proc sys:sysfs; do
        /bin/busybox mount -t "${name#*:}" none "/${name%:*}"
done
for file in /modules/*.ko; do
        /bin/busybox insmod "$file" || echo "initrd: $file was not loaded"
done
n_tries=0
until [ -b /dev/vda ]; do
        n_tries=$((n_tries + 1))
        [ $n_tries -lt 100 ] || give_up "there is no /dev/vda"
        /bin/busybox usleep 100000
done
/bin/busybox mount -t ext4 -o noatime /dev/vda /root || give_up "/dev/vda cannot be mounted"
for name in dev proc sys; do
        /bin/busybox mount -o move "/$name" "/root/$name"
done
exec /bin/busybox switch_root /root /sbin/init
