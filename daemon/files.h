/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the limit of open files is shared out to: the daemon itself, its clients, and extents. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct files {
        uint64_t max_extents;     /* two descriptors each: its own, and one that is opened for its next grant */
        uint64_t max_connections; /* of clients; whatever MaxConnections= allows */
        uint64_t n_kept;          /* more connections, for administrators */
};

/*
 * files_share_out - by the present limit, on a machine of @n_nodes
 * Returns 0, or -EMFILE: it is too small to serve anybody.
 */
int files_share_out(size_t n_nodes, struct files *ret_files);
/* The smallest limit that files_share_out() accepts. */
uint64_t files_least(size_t n_nodes);
/* The soft limit becomes the hard one. Returns it. */
uint64_t files_raise_limit(void);
