#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# reserve-time.sh AMOUNT - has hugezero-reserve.service grow node 0 and shows what it says, and how many pages there are then.
set -e
cp -a root/. /
systemctl daemon-reload
echo "2M 0 $1" > /etc/hugezero/reserve.conf
systemctl start hugezero-reserve.service || true
journalctl --sync
journalctl --quiet --output=cat --unit=hugezero-reserve.service
cat /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages
