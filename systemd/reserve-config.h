/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What hugezero-reserve is asked for: lines "PAGE-SIZE NODES AMOUNT", one goal for each page size and node. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "topology.h"

#define RESERVE_ERROR_BYTES 512 /* chosen: a long path and a line's reason */

struct reserve_goal {
        uint64_t page_size_bytes;
        int node;
        uint64_t n_pages;
};

struct reserve_config {
        const struct topology *topology; /* whose pages and nodes they are; borrowed */
        struct reserve_goal *goals;
        size_t n_goals;
};

/*
 * Adds what the stream says; a later line for the same page size and node replaces an earlier one. @file: its name in messages.
 * Returns 0; -EINVAL for a wrong line, -ENOMEM or -EIO, with a reason in @ret_error.
 */
int reserve_config_read(struct reserve_config *config, FILE *stream, const char *file, char ret_error[RESERVE_ERROR_BYTES]);
/* Largest pages first: they need the longest whole stretches of memory. */
void reserve_config_sort(struct reserve_config *config);
void reserve_config_done(struct reserve_config *config);
