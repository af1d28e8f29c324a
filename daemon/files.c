/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the limit of open files is shared out to. Pools that took all of it could not even be served from. */
#include "files.h"

#include <errno.h>
#include <sys/resource.h>

#include "cleanup.h"

#define OWN_FILES 22       /* 11 were measured, two for each node beside them; chosen: room for the log, the ledger, metrics, /sys */
#define MIN_CLIENT_FILES 16 /* chosen: connections, and descriptions on their way to clients */
#define MIN_POOL_FILES 24   /* chosen: 12 extents; less would serve nobody */

static uint64_t own_files(size_t n_nodes) {
        return OWN_FILES + 2 * n_nodes;
}

uint64_t files_least(size_t n_nodes) {
        return own_files(n_nodes) + MIN_CLIENT_FILES + MIN_POOL_FILES;
}

int files_share_out(size_t n_nodes, struct files *ret_files) {
        struct rlimit limit;
        uint64_t n_left, n_clients, n_pool;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return negative_errno();
        if (limit.rlim_cur < files_least(n_nodes))
                return -EMFILE;
        n_left = limit.rlim_cur - own_files(n_nodes);
        n_clients = n_left / 4; /* chosen */
        if (n_clients < MIN_CLIENT_FILES)
                n_clients = MIN_CLIENT_FILES;
        n_pool = n_left - n_clients;
        ret_files->max_connections = n_clients - n_clients / 4; /* chosen */
        ret_files->n_kept = n_clients / 8; /* chosen; as many again are for whoever is refused, and for haste */
        ret_files->max_extents = n_pool / 2; /* whatever they are doing: one grant may have them all */
        return 0;
}

uint64_t files_raise_limit(void) {
        struct rlimit limit = {};

        if (getrlimit(RLIMIT_NOFILE, &limit) >= 0 && limit.rlim_cur < limit.rlim_max) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
                (void) getrlimit(RLIMIT_NOFILE, &limit);
        }
        return limit.rlim_cur;
}
