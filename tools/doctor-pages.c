/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Are there pages, where are they, and who may have them? */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "doctor.h"
#include "parse.h"

#define SYSFS_PAGES "/sys/kernel/mm/hugepages/hugepages-%" PRIu64 "kB"
#define SYSFS_NODE "/sys/devices/system/node"
#define GIB (UINT64_C(1) << 30)

/* How to get more pages of a size. Gigantic ones need contiguous memory, which is to be had at boot only. */
static void advise_reserve(struct doctor *doctor, uint64_t page_size_bytes) {
        if (page_size_bytes >= GIB)
                doctor_advise(doctor,
                              "add to the kernel command line: hugepagesz=%" PRIu64
                              "G hugepages=N (or hugepages=0:N,1:M for nodes 0 and 1), "
                              "then boot; a running kernel seldom finds that much contiguous memory",
                              page_size_bytes / GIB);
        else
                doctor_advise(doctor,
                              "echo N > /sys/devices/system/node/node0/hugepages/hugepages-%" PRIu64
                              "kB/nr_hugepages (each node), or on the "
                              "kernel command line: hugepagesz=%" PRIu64 "k hugepages=N",
                              page_size_bytes / 1024, page_size_bytes / 1024);
}

static void check_size(struct doctor *doctor, uint64_t page_size_bytes, uint64_t n_pages) {
        uint64_t kib = page_size_bytes / 1024, n_free = 0, n_reserved = 0, n_surplus = 0, n_overcommit = 0;
        char size[FORMAT_SIZE_BYTES];
        (void) format_size(page_size_bytes, size);
        (void) doctor_read_u64(doctor, &n_free, SYSFS_PAGES "/free_hugepages", kib);
        (void) doctor_read_u64(doctor, &n_reserved, SYSFS_PAGES "/resv_hugepages", kib);
        (void) doctor_read_u64(doctor, &n_surplus, SYSFS_PAGES "/surplus_hugepages", kib);
        (void) doctor_read_u64(doctor, &n_overcommit, SYSFS_PAGES "/nr_overcommit_hugepages", kib);
        if (n_pages && n_free <= n_reserved) {
                doctor_add(doctor, DOCTOR_NOTE, "pages", "%s: %" PRIu64 " page%s, none free that is not reserved", size,
                           n_pages, plural_s(n_pages));
                doctor_advise(doctor, "fine when they are in the daemon's pools: see hugezeroctl status; else somebody else "
                                      "has them: grep -l "
                                      "-i hugepages /proc/*/smaps shows who");
        } else if (n_pages)
                doctor_add(doctor, DOCTOR_OK, "pages", "%s: %" PRIu64 " page%s, %" PRIu64 " free, %" PRIu64 " of these reserved",
                           size, n_pages, plural_s(n_pages), n_free, n_reserved);
        else {
                doctor_add(doctor, DOCTOR_NOTE, "pages", "%s: no pages", size);
                advise_reserve(doctor, page_size_bytes);
        }
        if (n_reserved && n_free > n_reserved) {
                doctor_add(doctor, DOCTOR_NOTE, "reserved",
                           "%s: %" PRIu64 " free page%s %s promised to mappings that did not touch all of theirs yet", size, n_reserved,
                           plural_s(n_reserved), plural_are(n_reserved));
                doctor_advise(doctor,
                              "pools are filled from the other %" PRIu64 "; reserve more pages if this is too few",
                              n_free - n_reserved);
        }
        if (n_surplus) {
                doctor_add(doctor, DOCTOR_NOTE, "surplus", "%s: %" PRIu64 " surplus page%s, taken from ordinary memory", size,
                           n_surplus, plural_s(n_surplus));
                doctor_advise(
                        doctor,
                        "they are never used for pools; whoever needs them should get reserved pages: raise nr_hugepages");
        }
        if (n_overcommit) {
                doctor_add(doctor, DOCTOR_NOTE, "overcommit", "%s: up to %" PRIu64 " page%s may be taken from ordinary memory",
                           size, n_overcommit, plural_s(n_overcommit));
                doctor_advise(doctor,
                              "a program that finds no page then gets ordinary memory, cleared slowly, or is killed: echo 0 "
                              "> " SYSFS_PAGES "/nr_overcommit_hugepages",
                              kib);
        }
}

void doctor_check_pages(struct doctor *doctor) {
        uint64_t sizes[DOCTOR_MAX_SIZES], n_pages[DOCTOR_MAX_SIZES] = {}, n_all = 0;
        if (!doctor_has(doctor, "/sys"))
                return;
        size_t n_sizes = doctor_page_sizes(doctor, sizes);
        if (!n_sizes) {
                doctor_add(doctor, DOCTOR_PROBLEM, "pages",
                           "this kernel has no hugepages: /sys/kernel/mm/hugepages is missing or empty");
                doctor_advise(doctor,
                              "use a kernel built with CONFIG_HUGETLBFS=y, on a CPU (or a virtual one) with large pages");
                return;
        }
        for (size_t idx = 0; idx < n_sizes; idx++) {
                (void) doctor_read_u64(doctor, &n_pages[idx], SYSFS_PAGES "/nr_hugepages", sizes[idx] / 1024);
                n_all += n_pages[idx];
        }
        if (!n_all) {
                doctor_add(doctor, DOCTOR_PROBLEM, "pages",
                           "no hugepages of any size are reserved: there is nothing to fill pools with");
                doctor_advise(doctor,
                              "sysctl vm.nr_hugepages=N reserves N of the default size now; in /etc/sysctl.d at every boot");
        }
        for (size_t idx = 0; idx < n_sizes; idx++)
                check_size(doctor, sizes[idx], n_pages[idx]);
}

static bool is_in(const uint64_t *bits, int node) {
        return bits[node / 64] >> node % 64 & 1;
}

/* One page size: which nodes have pages, and which have memory and CPUs but no page. */
static void check_nodes_of_size(struct doctor *doctor, uint64_t page_size_bytes, const uint64_t *with_memory,
                                const uint64_t *with_cpus) {
        uint64_t n_pages, n_all = 0, kib = page_size_bytes / 1024;
        char size[FORMAT_SIZE_BYTES], list[160] = "", missing[64] = "";
        int n_nodes = 0, first_missing = -1;
        (void) format_size(page_size_bytes, size);
        for (int node = 0; node < PARSE_MAX_NODES; node++) {
                if (!is_in(with_memory, node) ||
                    !doctor_read_u64(doctor, &n_pages, SYSFS_NODE "/node%d/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
                                     node, kib))
                        continue;
                size_t n = strlen(list), n_missing = strlen(missing);
                (void) snprintf(list + n, sizeof(list) - n, "%snode %d: %" PRIu64, n ? ", " : "", node, n_pages);
                if (!n_pages && is_in(with_cpus, node)) {
                        (void) snprintf(missing + n_missing, sizeof(missing) - n_missing, "%s%d", n_missing ? "," : "", node);
                        first_missing = first_missing < 0 ? node : first_missing;
                }
                n_all += n_pages;
                n_nodes++;
        }
        if (!n_all || !n_nodes)
                return; /* check_pages has said so */
        if (first_missing < 0) {
                doctor_add(doctor, DOCTOR_OK, "nodes", "%s: %s", size, list);
                return;
        }
        doctor_add(doctor, DOCTOR_PROBLEM, "nodes", "%s: no pages on node %s (%s): its programs get memory of another node",
                   size, missing, list);
        if (page_size_bytes >= GIB)
                doctor_advise(doctor, "name the nodes on the kernel command line: hugepagesz=%" PRIu64 "G hugepages=0:N,1:N",
                              page_size_bytes / GIB);
        else
                doctor_advise(doctor, "echo N > " SYSFS_NODE "/node%d/hugepages/hugepages-%" PRIu64 "kB/nr_hugepages",
                              first_missing, kib);
}

void doctor_check_nodes(struct doctor *doctor) {
        uint64_t with_memory[PARSE_MAX_NODES / 64], with_cpus[PARSE_MAX_NODES / 64] = {}, sizes[DOCTOR_MAX_SIZES];
        char line[4096];
        if (!doctor_has(doctor, "/sys"))
                return;
        if (!doctor_read_line(doctor, line, sizeof(line), SYSFS_NODE "/has_memory") || parse_node_list(line, with_memory) < 0) {
                doctor_add(doctor, DOCTOR_OK, "nodes", "this kernel knows no NUMA nodes: all memory is equally near");
                return;
        }
        if (doctor_read_line(doctor, line, sizeof(line), SYSFS_NODE "/has_cpu"))
                (void) parse_node_list(line, with_cpus);
        size_t n_sizes = doctor_page_sizes(doctor, sizes);
        for (size_t idx = 0; idx < n_sizes; idx++)
                check_nodes_of_size(doctor, sizes[idx], with_memory, with_cpus);
}

/* The kernel's names: hugetlb.2MB.max, hugetlb.1GB.max, hugetlb.64KB.max. */
static void cgroup_size_name(uint64_t page_size_bytes, char name[24]) {
        uint64_t kib = page_size_bytes / 1024;
        if (kib >= 1024 * 1024)
                (void) snprintf(name, 24, "%" PRIu64 "GB", kib / 1024 / 1024);
        else if (kib >= 1024)
                (void) snprintf(name, 24, "%" PRIu64 "MB", kib / 1024);
        else
                (void) snprintf(name, 24, "%" PRIu64 "KB", kib);
}

/* One group, one page size, one kind of limit. Returns how many findings it made. */
static unsigned check_limit(struct doctor *doctor, const char *group, const char *size, const char *kind) {
        char line[64], text[FORMAT_SIZE_BYTES];
        uint64_t limit_bytes, current_bytes = 0;
        bool is_rsvd = strcmp(kind, "rsvd.max") == 0;
        if (!doctor_read_line(doctor, line, sizeof(line), "/sys/fs/cgroup%s/hugetlb.%s.%s", group, size, kind) ||
            parse_u64(line, &limit_bytes) < 0)
                return 0; /* no such file, or "max" */
        (void) doctor_read_u64(doctor, &current_bytes, "/sys/fs/cgroup%s/hugetlb.%s.%scurrent", group, size,
                               is_rsvd ? "rsvd." : "");
        doctor_add(doctor, current_bytes >= limit_bytes ? DOCTOR_PROBLEM : DOCTOR_NOTE, "cgroup",
                   "%s: hugetlb.%s.%s is %s, used up to %" PRIu64 " %%", group, size, kind, format_size(limit_bytes, text),
                   limit_bytes ? current_bytes * 100 / limit_bytes : 100);
        doctor_advise(doctor, "pools cannot grow beyond it: echo max > /sys/fs/cgroup%s/hugetlb.%s.%s", group, size, kind);
        return 1;
}

void doctor_check_cgroup(struct doctor *doctor) {
        char path[64], group[2048];
        uint64_t sizes[DOCTOR_MAX_SIZES];
        size_t n_sizes = doctor_page_sizes(doctor, sizes);
        unsigned n_found = 0;
        if (!doctor_has(doctor, "/proc") || !doctor_has(doctor, "/sys"))
                return;
        if (doctor->daemon_pid)
                (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) doctor->daemon_pid);
        else
                (void) snprintf(path, sizeof(path), "/proc/self/cgroup");
        if (!doctor_find_line(doctor, path, "0::", group, sizeof(group))) {
                doctor_add(doctor, DOCTOR_OK, "cgroup",
                           "no control group of version 2: no limits of the hugetlb controller are looked at");
                return;
        }
        if (strcmp(group, "/") == 0)
                *group = '\0';
        /* The limits of all groups above count as well. */
        for (;;) {
                for (size_t idx = 0; idx < n_sizes; idx++) {
                        char size[24];
                        cgroup_size_name(sizes[idx], size);
                        n_found += check_limit(doctor, group, size, "max");
                        n_found += check_limit(doctor, group, size, "rsvd.max");
                }
                char *slash = strrchr(group, '/');
                if (!slash)
                        break;
                *slash = '\0';
        }
        if (!n_found)
                doctor_add(doctor, DOCTOR_OK, "cgroup", "no limits of the hugetlb controller in the way of %s",
                           doctor->daemon_pid ? "the daemon" : "this process");
}
