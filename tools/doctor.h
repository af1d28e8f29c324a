/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What on this host stands in the way. A check looks at one thing and adds findings; it never fails and changes nothing.
 * Those that read files find them under a root of their own, so that they can be tested with made-up hosts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum doctor_level {
        DOCTOR_OK,      /* as it should be */
        DOCTOR_NOTE,    /* costs something, or will in some uses */
        DOCTOR_PROBLEM, /* stands in the way */
};

struct doctor_finding {
        enum doctor_level level;
        const char *check; /* static: "pages", "cgroup", ... */
        char text[256];
        char advice[384]; /* what to do; empty when all is well */
};

struct doctor {
        const char *root; /* "" for the real host */
        pid_t daemon_pid; /* 0: unknown; then this process stands for it */
        uint64_t capped_at_extents; /* as the daemon says */
        struct doctor_finding *findings;
        size_t n_findings;
        bool is_out_of_memory; /* a finding is missing */
};

void doctor_add(struct doctor *doctor, enum doctor_level level, const char *check, const char *format, ...)
        __attribute__((format(printf, 4, 5)));
/* Of the finding that was added last. */
void doctor_advise(struct doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Frees the findings. */
void doctor_done(struct doctor *doctor);

/* The first line of a file under the root, without its newline; false when it cannot be read. */
bool doctor_read_line(const struct doctor *doctor, char *line, size_t n_bytes, const char *path_format, ...)
        __attribute__((format(printf, 4, 5)));
bool doctor_read_u64(const struct doctor *doctor, uint64_t *ret_value, const char *path_format, ...)
        __attribute__((format(printf, 3, 4)));
/* The rest of the first line that begins with @prefix; false when there is none. */
bool doctor_find_line(const struct doctor *doctor, const char *path, const char *prefix, char *rest, size_t n_bytes);

#define DOCTOR_MAX_SIZES 16 /* kernel: HUGE_MAX_HSTATE is at most 6 on any architecture */
/* The page sizes of the kernel, smallest first. Returns how many. */
size_t doctor_page_sizes(const struct doctor *doctor, uint64_t ret_bytes[DOCTOR_MAX_SIZES]);

/* Is @mount ("/proc" or "/sys") there? What is missing in it is an answer only then. */
bool doctor_has(const struct doctor *doctor, const char *mount);

void doctor_check_mounts(struct doctor *doctor); /* doctor.c: the file systems that the others look at */
void doctor_check_pages(struct doctor *doctor);  /* doctor-pages.c: reserved, free, surplus, overcommit */
void doctor_check_nodes(struct doctor *doctor);  /* doctor-pages.c: pages on the wrong nodes */
void doctor_check_cgroup(struct doctor *doctor); /* doctor-pages.c: hugetlb controller */
void doctor_check_limits(struct doctor *doctor); /* doctor-limits.c: NOFILE, memlock, inotify, map count */
void doctor_check_kernel(struct doctor *doctor); /* doctor-limits.c: version, init_on_alloc */
void doctor_probe_kernel(struct doctor *doctor); /* doctor-probe.c: tries the features; the real host only */
