#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Takes qemu-aarch64 out of a later Debian suite, for FEAT_MOPS (QEMU 8.2), which Debian 12's 7.2 lacks. It goes into a folder of
# its own, with apt lists of its own: what is installed here stays as it is. 63 MB to download, 14 MB to keep.
#
# Usage: fetch-qemu.sh FOLDER [SUITE]
set -euo pipefail

[[ $# -ge 1 ]] || {
        echo "usage: fetch-qemu.sh FOLDER [SUITE]" >&2
        exit 2
}
folder=$1 suite=${2:-bookworm-backports}
[[ ! -x $folder/qemu-aarch64 ]] || exit 0
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
# shellcheck disable=SC2016 # for apt
# The mirror that this machine is set up with
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Release: bookworm' | sort -u | head -n 1)
[[ -n $mirror ]] || {
        echo "fetch-qemu.sh: apt knows no mirror of Debian 12; run \"apt-get update\" first" >&2
        exit 1
}
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{empty,state/lists/partial,cache/archives/partial}
touch "$work/status"
echo "deb [signed-by=$keyring] $mirror $suite main" > "$work/sources.list"
cat > "$work/apt.conf" << EOF
Dir::Etc "$work"; Dir::Etc::sourcelist "sources.list"; Dir::Etc::sourceparts "empty";
Dir::Etc::parts "empty"; Dir::Etc::preferencesparts "empty";
Dir::State "$work/state"; Dir::State::status "$work/status"; Dir::Cache "$work/cache";
Acquire::Languages "none"; APT::Sandbox::User ""; APT::Architecture "amd64";
EOF
export APT_CONFIG=$work/apt.conf
apt-get -qq update
(cd "$work" && apt-get -qq -t "$suite" download qemu-user && dpkg-deb -x qemu-user_*.deb root)
mv "$work/root/usr/bin/qemu-aarch64" "$folder/"
"$folder/qemu-aarch64" --version | head -n 1
