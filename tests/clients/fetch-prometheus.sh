#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Takes prometheus and promtool out of Debian's package, without installing it: that would start a service which listens on
# all addresses. 19 MB to download, 98 MB to keep.
#
# Usage: fetch-prometheus.sh FOLDER
set -euo pipefail

folder=$1
[[ ! -x $folder/promtool ]] || exit 0
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work" # apt downloads as a user of its own
cd "$work"
apt-get -qq -o APT::Sandbox::User=root download prometheus
dpkg-deb -x prometheus_*.deb root
cd - > /dev/null
mv "$work/root/usr/bin/prometheus" "$work/root/usr/bin/promtool" "$folder/"
"$folder/promtool" --version | head -n 1
