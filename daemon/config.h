/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The configuration: ONE table of keys (section, key, type, unit, range, default, help) that yields the defaults, the range
 * checks, the sample file and the text of the man page. Sources, later ones win: built-in defaults, the file, its
 * FILE.d drop-ins (hugezerod.conf.d/NAME.conf in lexical order), the command line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

struct clear_method;
struct topology;

#define CONFIG_MAX_POOLS 16            /* chosen */
#define CONFIG_MAX_NODES 64            /* chosen: larger than any machine of the field; a pool on more nodes is refused */
#define CONFIG_MAX_PAGE_SIZES 16       /* chosen, as topology.c */
#define CONFIG_POOL_NAME_BYTES 32      /* WIRE_POOL_NAME_BYTES */
#define CONFIG_TEXT_BYTES 512          /* an error: one line with a path, a section, a key, a value and a reason */

struct config_pool_node {
        int node;
        uint64_t target_bytes; /* a multiple of the page size; per cents are resolved against the node's pages at start */
        bool is_auto;          /* of what is free now; reload_settle_auto() knows what the daemon itself has */
};

struct config_pool {
        char name[CONFIG_POOL_NAME_BYTES]; /* [Pool NAME]: letters, digits, '-', '_', '.' */
        uint64_t page_size_bytes;
        uint64_t extent_bytes; /* 0: auto; else a multiple of the page size */
        uint32_t low_millipercent; /* Low=, of the target (25000); or UINT32_MAX and low_bytes */
        uint64_t low_bytes;
        size_t n_nodes;
        struct config_pool_node nodes[CONFIG_MAX_NODES];
};

enum config_recycle { CONFIG_RECYCLE_SAME_SERVICE, CONFIG_RECYCLE_SAME_USER, CONFIG_RECYCLE_TRUSTED, CONFIG_RECYCLE_NEVER };

struct config_page_limit {
        uint64_t page_size_bytes; /* one that the kernel has */
        uint64_t max_bytes;
};

struct config_quota { /* per uid; UINT64_MAX / UINT32_MAX is "infinity" */
        uint64_t max_bytes;        /* MaxBytes=, held and in flight, all page sizes */
        size_t n_page_limits;      /* those of single page sizes, which MaxBytes= has too */
        struct config_page_limit page_limits[CONFIG_MAX_PAGE_SIZES];
        uint32_t max_grants;       /* MaxGrants= */
        uint32_t max_connections;  /* MaxConnections= */
        uint32_t max_waiting;      /* MaxWaiting=, requests that are not answered yet */
        uint32_t max_request_rate; /* MaxRequestRate=, requests in one second */
};

struct config_user_quota {
        uid_t uid;
        struct config_quota quota;
};
#define CONFIG_MAX_USER_QUOTAS 64 /* chosen */

struct config_group_quota { /* for each member, by himself */
        gid_t gid;
        struct config_quota quota;
};
#define CONFIG_MAX_GROUP_QUOTAS 64 /* chosen */

#define CONFIG_MAX_IDS 64 /* chosen; a group says more in one word */
struct config_ids { /* users or groups */
        bool all; /* then n is 0 */
        uint32_t n, ids[CONFIG_MAX_IDS];
};

struct config {
        /* [Daemon] */
        char socket_path[109];     /* Socket=, or where a passed socket listens */
        bool socket_is_passed;     /* by the service manager: Socket= and SocketMode= mean nothing then */
        bool socket_is_written, socket_mode_is_written; /* not their defaults */
        char socket_group[64];     /* SocketGroup=, empty: none */
        gid_t socket_gid;          /* resolved, or that of a passed socket; (gid_t) -1: none */
        mode_t socket_mode;        /* SocketMode= 0660 */
        struct config_ids allow_users, allow_groups; /* AllowUsers=, AllowGroups= */
        struct config_ids admin_users; /* AdminUsers= */
        struct config_ids trusted_users; /* TrustedUsers= */
        uint32_t max_connections;  /* MaxConnections=, all uids */
        uint32_t max_waiting;      /* MaxWaiting=, requests, all uids */
        uint32_t max_fds_in_flight;/* MaxFdsInFlight= */
        uint32_t workers_per_node; /* WorkersPerNode=, 0: auto */
        const struct clear_method *clear_method; /* ClearMethod=, NULL: auto; one that this machine can run */
        uint64_t batch_bytes;      /* Batch= 32M: cleared or populated between two looks */
        uint64_t background_bytes_per_s; /* BackgroundRate= 2G, of each node; UINT64_MAX: no limit */
        uint64_t audit_bytes_per_s; /* AuditRate= 16M, of each node; 0: no audit */
        uint32_t warm_extents;     /* WarmExtents= 2000, in the fd store of the service manager; 0: none */
        uint64_t release_grace_ms; /* ReleaseGrace= 1s */
        uint64_t affinity_timeout_ms; /* AffinityTimeout= 10min */
        uint64_t unmap_after_ms;   /* UnmapAfter= 10s: the daemon's own mapping of a grant that nobody reported as mapped */
        uint64_t sweep_interval_ms;/* SweepInterval= 1min */
        uint64_t hold_back_ms;     /* HoldBack= 10s: the turn of a request that waits; UINT64_MAX: it does not end */
        enum config_recycle recycle;
        bool share_page_tables;    /* SharePageTables= yes */
        int log_level;             /* LogLevel= info, as LOG_* */
        /* [Pool NAME] */
        size_t n_pools;
        struct config_pool pools[CONFIG_MAX_POOLS];
        bool pools_are_default;    /* nothing was configured: half of each node's free pages */
        /* [Quota default], [Quota user:NAME], [Quota group:NAME] */
        struct config_quota quota;
        size_t n_user_quotas;
        struct config_user_quota user_quotas[CONFIG_MAX_USER_QUOTAS];
        size_t n_group_quotas;     /* [Quota group:NAME]; the first that fits counts */
        struct config_group_quota group_quotas[CONFIG_MAX_GROUP_QUOTAS];
};

struct config_args { /* the command line, unparsed; NULL / 0 where not given */
        const char *config_path; /* must exist when given; the default path may be missing */
        const char *socket_path;
        const char *const *pool_specs; /* [NAME=]SIZE:EXTENT:TARGET[@NODES]; replace all pools of the files */
        size_t n_pool_specs;
};

/*
 * config_load - read, check and resolve everything
 * @topology: borrowed; page sizes, nodes and per cents are checked against it.
 * @ret_config: large; set on success only.
 * @ret_error: on failure one line: file, line, key, reason, what to do.
 * There are no warnings: unknown keys are errors too. Blocks for file reads and look-ups of users and groups, which are not
 * re-entrant: loop thread only.
 * Returns 0; -EINVAL for bad content, -ENOENT etc. for files.
 */
int config_load(const struct config_args *args, const struct topology *topology, struct config *ret_config,
                char ret_error[CONFIG_TEXT_BYTES]);

/* Writes the sample file, every key with its default, commented out. A test compares it with config/hugezerod.conf. */
void config_write_sample(FILE *stream);
