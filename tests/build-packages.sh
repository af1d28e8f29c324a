#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Builds the Debian packages of what is in this clone, changes that are not committed included, without running the tests.
#
# Usage: build-packages.sh FOLDER [VERSION]
#
# FOLDER gets the .deb files and the others that dpkg-buildpackage makes. With a VERSION they claim to be that one, for tests of
# upgrades.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
(($# == 1 || $# == 2)) || {
        echo "usage: ${0##*/} FOLDER [VERSION]" >&2
        exit 2
}

mkdir -p "$1"
folder=$(readlink -f "$1") version=${2-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/hugezero"
tar --create --exclude='./build*' --exclude=./.git --exclude=__pycache__ . | tar --extract --directory="$work/hugezero"
cd "$work/hugezero"
[[ -z $version ]] || sed -i "1s/(.*)/($version)/" debian/changelog
DEB_BUILD_OPTIONS="nocheck noautodbgsym parallel=$(nproc)" dpkg-buildpackage --build=binary --no-sign --jobs-try
mv "$work"/hugezero?*.* "$work"/lib*.* "$folder/"
