/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The kernel takes a wished number of pages, allocates what it finds, and says nothing when that is less: so each write is read
 * back. What it has freed or moved on the way can let the next attempt go further.
 *
 * A surplus page is in nr_hugepages when that is read, but not when it is written.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "parse.h"
#include "reserve-pages.h"

#define MAX_WRITES 10 /* chosen: with progress each time; without it the second is the last */

static uint64_t now_us(void) {
        struct timespec now;

        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
}

static int open_counter(int sysfs_fd, const struct reserve_goal *goal, const char *name, int flags) {
        char path[128];
        int fd;

        (void) snprintf(path, sizeof(path), "devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB/%s", goal->node,
                        goal->page_size_bytes / 1024, name);
        fd = openat(sysfs_fd, path, flags | O_CLOEXEC);
        return fd < 0 ? negative_errno() : fd;
}

static int read_counter(int sysfs_fd, const struct reserve_goal *goal, const char *name, uint64_t *ret_n) {
        _cleanup_close_ int fd = open_counter(sysfs_fd, goal, name, O_RDONLY);
        char text[32];
        ssize_t n;

        if (fd < 0)
                return fd;
        n = read(fd, text, sizeof(text) - 1);
        if (n < 0)
                return negative_errno();
        text[n] = 0;
        text[strcspn(text, "\n")] = 0;
        return parse_u64(text, ret_n);
}

static int read_pages(int sysfs_fd, const struct reserve_goal *goal, uint64_t *ret_n) {
        uint64_t n, n_surplus;
        int r;

        r = read_counter(sysfs_fd, goal, "nr_hugepages", &n);
        if (r < 0)
                return r;
        r = read_counter(sysfs_fd, goal, "surplus_hugepages", &n_surplus);
        if (r < 0)
                return r;
        *ret_n = n - (n_surplus < n ? n_surplus : n);
        return 0;
}

static int write_pages(int sysfs_fd, const struct reserve_goal *goal) {
        _cleanup_close_ int fd = open_counter(sysfs_fd, goal, "nr_hugepages", O_WRONLY);

        if (fd < 0)
                return fd;
        return dprintf(fd, "%" PRIu64, goal->n_pages) < 0 ? negative_errno() : 0;
}

/* Moves what can be moved so that free memory becomes whole. A kernel without it (CONFIG_COMPACTION) just has no such file. */
static void compact(int sysfs_fd, int node) {
        char path[64];

        (void) snprintf(path, sizeof(path), "devices/system/node/node%d/compact", node);
        _cleanup_close_ int fd = openat(sysfs_fd, path, O_WRONLY | O_CLOEXEC);
        if (fd >= 0)
                (void) !write(fd, "1", 1);
}

static int grow(int sysfs_fd, const struct reserve_goal *goal, struct reserve_result *result) {
        int r;

        while (result->n_writes < MAX_WRITES) {
                uint64_t n_before;

                /* Others may have set more meanwhile, compaction takes its time: what is written is the whole number. */
                r = read_pages(sysfs_fd, goal, &n_before);
                if (r < 0)
                        return r;
                result->n_after = n_before;
                if (n_before >= goal->n_pages)
                        return 0;
                r = write_pages(sysfs_fd, goal);
                if (r < 0)
                        return r;
                result->n_writes++;
                r = read_pages(sysfs_fd, goal, &result->n_after);
                if (r < 0)
                        return r;
                if (result->n_after > n_before)
                        continue;
                if (result->compacted)
                        return 0;
                compact(sysfs_fd, goal->node);
                result->compacted = true;
        }
        return 0;
}

int reserve_grow(int sysfs_fd, const struct reserve_goal *goal, struct reserve_result *ret_result) {
        struct reserve_result result = {};
        uint64_t start_us = now_us();
        int r;

        r = read_pages(sysfs_fd, goal, &result.n_before);
        if (r < 0)
                return r;
        result.n_after = result.n_before;
        r = grow(sysfs_fd, goal, &result);
        if (r < 0)
                return r;
        result.duration_us = now_us() - start_us;
        *ret_result = result;
        return 0;
}
