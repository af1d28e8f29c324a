/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Grows the kernel's pool of one page size on one node. Never shrinks it. */
#pragma once

#include <stdbool.h>

#include "reserve-config.h"

struct reserve_result {
        uint64_t n_before, n_after; /* pages that stay: without surplus ones */
        unsigned n_writes;
        bool compacted;
        uint64_t duration_us;
};

/*
 * reserve_grow - until the goal is reached or the kernel gives no more
 * @sysfs_fd: an open /sys
 *
 * Returns 0 also when pages are missing: compare n_after with the goal. -ENOENT: no such node or page size; other negative
 * errno: reading or writing the number of pages failed.
 */
int reserve_grow(int sysfs_fd, const struct reserve_goal *goal, struct reserve_result *ret_result);
