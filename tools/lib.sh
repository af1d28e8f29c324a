# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
#
# What tests/run and tools/demo share: packages, and hugepages that are borrowed from the host and given back.
# The caller calls end_child and return_pages on exit.

: "${me:=${0##*/}}"
say() { printf '%s: %s\n' "$me" "$*" >&2; }

# make_folder DIR - below the current one, for our builds; a complaint when it cannot be had
make_folder() {
        mkdir -p "$1" 2> /dev/null && [[ -w $1 ]] && return 0
        say "cannot write to $PWD/$1 as user $EUID, which the build needs: run this as the user whom the clone belongs to"
        return 1
}

# install_packages LIST KIND... - installs what is missing of the packages of these kinds
install_packages() {
        local list=$1 names=() missing=() kinds
        shift
        kinds=$(printf '%s|' "$@")
        mapfile -t names < <(awk -v kinds="^(${kinds%|})\$" '!/^#/ && $2 ~ kinds { print $1 }' "$list")
        if ! command -v dpkg-query apt-get > /dev/null; then
                say "this is no Debian: install the counterparts of the packages in $list yourself; going on"
                return 0
        fi
        mapfile -t missing < <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' -- "${names[@]}" 2> /dev/null |
                awk '$2 == "installed" { print $1 }' | sort -u | comm -13 - <(printf '%s\n' "${names[@]}" | sort -u))
        ((${#missing[@]})) || return 0
        if ((EUID != 0)); then
                say "packages are missing and only root can install them: apt-get install ${missing[*]}"
                return 1
        fi
        say "installing ${missing[*]}"
        export DEBIAN_FRONTEND=noninteractive
        local apt=(apt-get -qq -o DPkg::Lock::Timeout=300 -o Acquire::Retries=2)
        if ! "${apt[@]}" update > /dev/null; then
                say "cannot read the package lists of the mirror in /etc/apt (offline?), and these are missing: ${missing[*]}"
                return 1
        fi
        if ! "${apt[@]}" install -y --no-install-recommends "${missing[@]}" < /dev/null > /dev/null; then
                say "apt-get could not install ${missing[*]}; its message is above"
                return 1
        fi
}

meminfo_kib() { awk -v key="$1:" '$1 == key { print $2 }' /proc/meminfo; }

# borrowed[DIRECTORY] is how many pages were added to this node and page size
declare -A borrowed=()

# Others may change the same numbers at the same moment: only differences are written, one at a time
with_pages_lock() {
        (
                flock -w 60 9 || say "somebody has locked /sys/kernel/mm/hugepages for a minute, going on without it"
                "$@"
        ) 9< /sys/kernel/mm/hugepages
}

# Surplus pages are in nr_hugepages when it is read, but not when it is written
persistent_pages() { echo $(($(< "$1/nr_hugepages") - $(< "$1/surplus_hugepages"))); }

add_pages() { # DIRECTORY OF ALL NODES, N; prints "NODE DIRECTORY, N" for each node that grew
        local all=$1 n=$2 dir
        local -A before=()
        for dir in /sys/devices/system/node/node*/hugepages/"${all##*/}"; do before[$dir]=$(persistent_pages "$dir"); done
        echo $(($(persistent_pages "$all") + n)) 2> /dev/null > "$all/nr_hugepages" || true
        for dir in "${!before[@]}"; do
                n=$(($(persistent_pages "$dir") - before[$dir]))
                ((n <= 0)) || echo "$dir $n"
        done
}

take_pages() { # NODE DIRECTORY, N
        echo $(($(persistent_pages "$1") - $2)) 2> /dev/null > "$1/nr_hugepages" ||
                say "cannot take $2 pages off $1/nr_hugepages, which is $(< "$1/nr_hugepages"); do it by hand"
}

free_pages() { # PAGE_SIZE_KIB; free, and reserved by nobody
        local dir=/sys/kernel/mm/hugepages/hugepages-$1kB
        echo $(($(< "$dir/free_hugepages") - $(< "$dir/resv_hugepages")))
}

# borrowable_pages PAGE_SIZE_KIB - how many borrow_pages could add at most
borrowable_pages() {
        # chosen: compilers and tests get along with 2 GiB of ordinary memory
        local room_kib=$(($(meminfo_kib MemAvailable) - 2 * 1024 * 1024))
        ((room_kib > 0)) && [[ -w /sys/kernel/mm/hugepages/hugepages-$1kB/nr_hugepages ]] || room_kib=0
        echo $((room_kib / $1))
}

# borrow_pages PAGE_SIZE_KIB N - sees to it that N pages are free and unreserved, as far as the memory goes. Never fails: what
# cannot be had is the caller's to find out.
borrow_pages() {
        local size_kib=$1 n=$2 dir=/sys/kernel/mm/hugepages/hugepages-$1kB n_most node_dir added
        [[ -d $dir ]] || return 0
        n=$((n - $(free_pages "$size_kib")))
        ((n > 0)) || return 0
        if [[ ! -w $dir/nr_hugepages ]]; then
                say "$n more free pages of $size_kib KiB are wanted, but $dir/nr_hugepages cannot be written (not root?)"
                return 0
        fi
        n_most=$(borrowable_pages "$size_kib")
        ((n <= n_most)) || n=$n_most
        ((n > 0)) || return 0
        while read -r node_dir added; do
                borrowed[$node_dir]=$((${borrowed[$node_dir]:-0} + added))
        done < <(with_pages_lock add_pages "$dir" "$n")
}

# return_pages - takes off exactly what borrow_pages added; a page that somebody uses by then stays until it is free
return_pages() {
        local dir
        for dir in "${!borrowed[@]}"; do
                with_pages_lock take_pages "$dir" "${borrowed[$dir]}"
                unset "borrowed[$dir]"
        done
}

# run_child COMMAND... - runs it in a session of its own with no standard input, so that a signal to us can end all of it
child=
run_child() {
        local r=0
        setsid "$@" < /dev/null 8>&- & # without the lock of tests/run: what outlives us must not keep it
        child=$!
        wait "$child" || r=$?
        end_child
        return "$r"
}

# end_child - ends what is left of run_child's session, by its id
end_child() {
        local i pgid=$child
        child=
        [[ -n $pgid ]] || return 0
        kill -TERM -- "-$pgid" 2> /dev/null || return 0
        for ((i = 0; i < 100; i++)); do
                kill -0 -- "-$pgid" 2> /dev/null || return 0
                sleep 0.1
        done
        kill -KILL -- "-$pgid" 2> /dev/null || true
}
