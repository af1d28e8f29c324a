#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Makes what the machines of suite vm boot. No mounts, no loop devices; the host's apt is asked for its mirror and left alone.
#
# The kernel is kept as the ELF file that is inside bzImage: emulated, unpacking it would take half of the boot. Its modules are
# in the initrd only, so that one root file system serves every kernel.
set -euo pipefail
# shellcheck source=tests/vm/lib.sh
. "$(dirname "$(readlink -f "$0")")/lib.sh"

readonly root_packages=(systemd-sysv kmod procps tar
        libevent-core-2.1-7 libevent-extra-2.1-7 libinih1 libjansson4 libnuma1 libsmartcols1 # hugezerod and hugezeroctl
        libcmocka0 python3 python3-pytest python3-pytest-timeout)       # the tests
readonly initrd_modules=(virtio_pci virtio_blk virtio_console ext4)
readonly keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# What emulation makes slow and no test needs
readonly masked=(apt-daily-upgrade.timer apt-daily.timer dev-hugepages.mount dev-mqueue.mount dpkg-db-backup.timer
        e2scrub_all.timer e2scrub_reap.service fstrim.timer getty-static.service getty@.service
        kmod-static-nodes.service modprobe@.service proc-sys-fs-binfmt_misc.automount serial-getty@.service
        sys-fs-fuse-connections.mount sys-kernel-config.mount sys-kernel-debug.mount sys-kernel-tracing.mount
        systemd-ask-password-console.path systemd-ask-password-wall.path systemd-binfmt.service systemd-initctl.socket
        systemd-journal-flush.service systemd-logind.service systemd-machine-id-commit.service
        systemd-modules-load.service systemd-pstore.service systemd-random-seed.service systemd-remount-fs.service
        systemd-sysctl.service systemd-sysusers.service systemd-tmpfiles-clean.timer
        systemd-update-utmp-runlevel.service systemd-update-utmp.service systemd-user-sessions.service)

usage() {
        cat << END
Usage: tests/vm/build-image.sh [--help] [SUITE...]

Makes in $cache
what is not there yet or was made by another version of these scripts:

  root, root.img  Debian 12 with systemd, as a folder and as ext4
  kernel-SUITE    the kernel of each Debian suite named (bookworm: Linux 6.1,
                  trixie-backports: 7.3)

Needs root, and the packages of tests/packages. HUGEZERO_VM_CACHE names another
folder.
END
}

# up_to_date DIR TEXT... - whether DIR was made from the same
up_to_date() {
        local file=$1/key
        shift
        [[ -f $file && $(< "$file") == "$(key "$@")" ]]
}
key() { printf '%s\n' "$@" | sha256sum | cut -d ' ' -f 1; }

mirror() {
        local url
        # shellcheck disable=SC2016 # apt's own variable
        url=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Release: bookworm' | awk 'NR == 1')
        echo "${url:-http://deb.debian.org/debian}" # what is fetched is signed
}

# -- the root file system

build_root() {
        local root=$work/root recipe file
        recipe=$(declare -f build_root make_image mirror; declare -p root_packages masked; cat "$here"/guest.sh "$here"/*.service)
        ! up_to_date "$cache/root" "$recipe" || return 0
        say "making the root file system"
        rm -rf "$cache/root"
        mmdebstrap --quiet --mode=root --variant=minbase --include="${root_packages[*]}" \
                --aptopt='Acquire::Check-Valid-Until "false"' --aptopt='Acquire::Retries "3"' --dpkgopt='path-exclude=/usr/share/doc/*' \
                --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
                bookworm "$root" "$(mirror)" < /dev/null
        install -D -t "$root/usr/local/lib/hugezero-test" "$here/guest.sh"
        install -D -m 644 -t "$root/etc/systemd/system" "$here/hugezero-test.service"
        systemctl --quiet --root="$root" enable hugezero-test.service
        systemctl --quiet --root="$root" set-default multi-user.target
        systemctl --quiet --root="$root" mask "${masked[@]}"
        mkdir -p "$root/etc/systemd/system-generators"
        for file in "$root"/lib/systemd/system-generators/*; do # none has anything to generate here
                ln -s /dev/null "$root/etc/systemd/system-generators/${file##*/}"
        done
        install -D -m 644 /dev/stdin "$root/etc/systemd/journald.conf.d/test.conf" <<< $'[Journal]\nStorage=volatile'
        echo hugezero-test > "$root/etc/hostname"
        tr -d - < /proc/sys/kernel/random/uuid > "$root/etc/machine-id" # without one everything would be set up as on a first boot
        rm -rf "$root"/var/cache/apt "$root"/var/lib/apt/lists "$root/etc/fstab"
        make_image "$root" "$cache/root.img"
        key "$recipe" > "$root/key"
        mv "$root" "$cache/root"
}

make_image() { # FOLDER IMAGE
        rm -f "$2"
        truncate --size="$(($(du -sm "$1" | cut -f 1) + 256))M" "$2"
        mke2fs -q -t ext4 -O ^has_journal -E lazy_itable_init=1 -m 0 -d "$1" "$2"
}

# -- kernels

# fetch_kernel SUITE FOLDER - unpacks the kernel's packages, found and checked by an apt that knows nothing but this suite
fetch_kernel() {
        local suite=$1 to=$2 state=$work/apt deb names
        mkdir -p "$state"/{etc/apt.conf.d,etc/preferences.d,state/lists/partial,cache/archives/partial,debs} "$to"
        : > "$state/status"
        # A backport may need packages of the suite that it is for
        printf "deb [signed-by=$keyring] $(mirror) %s main\n" "$suite" "${suite%-backports}" | sort -u > "$state/etc/sources.list"
        printf '%s\n' "Dir \"$state\";" 'Dir::State "state";' "Dir::State::status \"$state/status\";" 'Dir::Cache "cache";' \
                'Dir::Etc "etc";' 'Acquire::Check-Valid-Until "false";' 'Acquire::Retries "3";' 'APT::Sandbox::User "root";' > "$state/conf"
        (
                export APT_CONFIG=$state/conf
                apt-get -qq update
                names=$(apt-get --simulate --no-install-recommends --target-release="$suite" install linux-image-amd64 |
                        awk '$1 == "Inst" && $2 ~ /^linux-.*[0-9]-amd64$/ { print $2 }')
                cd "$state/debs"
                # shellcheck disable=SC2086 # one word a package
                apt-get -qq --target-release="$suite" download $names
        )
        for deb in "$state"/debs/*.deb; do dpkg-deb -x "$deb" "$to"; done
        rm -r "$state"
}

byte_at() { od -An -tu"$3" -j "$2" -N "$3" "$1" | tr -d ' '; } # FILE OFFSET WIDTH

# unpack_kernel BZIMAGE VMLINUX - as Documentation/arch/x86/boot.rst of Linux says: the payload's place is in the setup header
unpack_kernel() {
        local start length
        start=$((($(byte_at "$1" $((0x1f1)) 1) + 1) * 512 + $(byte_at "$1" $((0x248)) 4)))
        # Its last four bytes are the size unpacked, which is no part of the compressed stream
        length=$(($(byte_at "$1" $((0x24c)) 4) - 4))
        dd status=none iflag=skip_bytes,count_bytes skip="$start" count="$length" if="$1" of="$work/payload"
        case $(od -An -tx1 -N 4 "$work/payload" | tr -d ' ') in
        fd377a58) xz -dc "$work/payload" ;;
        28b52ffd) zstd -qdc "$work/payload" ;;
        *) die "$1 is compressed in a way that is not known here" ;;
        esac > "$2"
        rm "$work/payload"
}

# pack_initrd MODULES_ROOT RELEASE INITRD
pack_initrd() {
        local dir=$work/initrd file idx=100
        mkdir -p "$dir"/{bin,dev,modules,proc,root,sys}
        cp "$(command -v busybox)" "$dir/bin/busybox"
        install "$here/initrd-init.sh" "$dir/init"
        depmod -b "$1" "$2"
        # "insmod PATH", once each, in an order that works; "builtin NAME" needs nothing
        for file in $(modprobe -d "$1" -S "$2" -D -a "${initrd_modules[@]}" | awk '$1 == "insmod" && !seen[$2]++ { print $2 }'); do
                idx=$((idx + 1))
                case $file in
                *.xz) xz -dc "$file" ;;
                *.zst) zstd -qdc "$file" ;;
                *) cat "$file" ;;
                esac > "$dir/modules/$idx-$(basename "${file%%.ko*}").ko"
        done
        (cd "$dir" && find . | cpio --quiet --create --format=newc --owner=0:0) > "$3"
        rm -r "$dir"
}

build_kernel() { # SUITE
        local to=$work/kernel-$1 from=$work/packages release recipe
        recipe=$(declare -f build_kernel fetch_kernel unpack_kernel pack_initrd; declare -p initrd_modules; cat "$here/initrd-init.sh")
        ! up_to_date "$cache/kernel-$1" "$recipe" || return 0
        say "fetching the kernel of $1"
        fetch_kernel "$1" "$from"
        mkdir -p "$to" "$work/modules/lib"
        mv "$(find "$from" -type d -path '*lib/modules')" "$work/modules/lib/modules"
        release=$(basename "$work"/modules/lib/modules/*)
        # Debian's place for it is /boot, or from 7.x on the modules' folder
        unpack_kernel "$(find "$from" "$work/modules" -type f -name 'vmlinuz*')" "$to/vmlinux"
        pack_initrd "$work/modules" "$release" "$to/initrd"
        echo "$release" > "$to/release"
        key "$recipe" > "$to/key"
        rm -rf "$cache/kernel-$1" "$from" "$work/modules"
        mv "$to" "$cache/kernel-$1"
}

if [[ ${1-} == --help ]]; then
        usage
        exit 0
fi
((EUID == 0)) || die "only root can make a root file system"
mkdir -p "$cache"
cd "$cache" # mmdebstrap wants to know where it is, and the tree may go away
exec 9> "$cache/lock"
flock 9 # another run makes the same
work=$(mktemp -d "$cache/work.XXXXXX")
trap 'wait; rm -rf "$work"' EXIT
build_root & # mostly unpacking, while kernels are mostly fetched
for suite in "$@"; do build_kernel "$suite"; done
wait $!
