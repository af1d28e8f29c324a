/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The protocol between hugezerod and its clients, all of it.
 *
 * AF_UNIX SOCK_SEQPACKET; one packet is one message. All integers are little-endian and have a fixed width, fields lie at
 * their natural alignment without holes, reserved fields are sent as 0 and refused when they are not. hugezero-protocol(7)
 * is the prose; the byte offsets are in the remarks here. C_ goes from client to daemon, D_ from daemon to client.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC UINT32_C(0x5a455a48) /* "HZEZ" as bytes on the wire */
#define WIRE_VERSION 1                  /* the one version there is so far */
#define WIRE_MAX_MESSAGE_BYTES 4096     /* chosen: fits a stack buffer, one packet never fragments */
#define WIRE_MAX_FDS 253                /* kernel limit per message: SCM_MAX_FD */
#define WIRE_MAX_ITEMS 16               /* chosen: a VM with a RAM backend per node on a large host */
#define WIRE_MAX_TEXT_BYTES 200         /* chosen: one line of reason */
#define WIRE_POOL_NAME_BYTES 32         /* including the terminating 0 */
#define WIRE_METHOD_NAME_BYTES 16       /* including the terminating 0 */
#define WIRE_ALL_EXTENTS UINT32_MAX

enum wire_op {
        WIRE_C_HELLO = 1,   /* first message of a client                          -> D_HELLO or D_REFUSED, then closed */
        WIRE_C_ACQUIRE = 2, /* up to 16 items, all or nothing                     -> D_GRANT (one or several) or D_REFUSED */
        WIRE_C_CANCEL = 3,  /* forget a waiting C_ACQUIRE                         -> D_REFUSED(ECANCELED) for that one */
        WIRE_C_MAPPED = 4,  /* the grant is mapped and touched                    -> nothing */
        WIRE_C_RELEASE = 5, /* please ask now whether this is still held          -> D_DONE or D_REFUSED */
        WIRE_C_STATUS = 6,  /* figures of the daemon                              -> D_STATUS */
        WIRE_C_POOLS = 7,   /* figures of pools, one row per pool and node        -> D_POOLS */
        WIRE_C_GRANTS = 8,  /* granted extents (own ones; all for root)           -> D_GRANTS */
        WIRE_C_RELOAD = 9,  /* read the configuration again (administrators)     -> D_RELOADED or D_REFUSED */
        WIRE_C_RESIZE = 10, /* another target for a pool (administrators)        -> D_DONE or D_REFUSED */

        WIRE_C_LIMITS = 11, /* limits and their use (own ones; all for administrators) -> D_LIMITS */

        WIRE_D_HELLO = 65,
        WIRE_D_GRANT = 66, /* carries one fd per extent named in it, in the same order */
        WIRE_D_REFUSED = 67,
        WIRE_D_DONE = 68,
        WIRE_D_STATUS = 70,
        WIRE_D_POOLS = 71,
        WIRE_D_GRANTS = 72,
        WIRE_D_LIMITS = 73,
        WIRE_D_RELOADED = 74,
};

enum wire_on_miss {
        WIRE_MISS_FAIL = 0, /* refuse at once */
        WIRE_MISS_WAIT = 1, /* wait up to timeout_ms for memory to come back or to be filled */
        WIRE_MISS_FILL = 2, /* have the kernel zero what is missing now; refuse when it has too few pages */
};

enum wire_node_mode {
        WIRE_NODE_ANY = 0,    /* the node field is -1 */
        WIRE_NODE_STRICT = 1, /* that node or nothing */
        WIRE_NODE_PREFER = 2, /* that node, else the others by distance */
};

enum wire_item_flags {
        WIRE_ITEM_SEVERAL = 1,    /* several fds are welcome */
        WIRE_ITEM_REOPENABLE = 2, /* the fds can be opened again by path by members of SocketGroup= */
};

enum wire_extent_state {
        WIRE_EXTENT_HELD = 1,      /* somebody holds it, or it is on its way to the client */
        WIRE_EXTENT_RETURNING = 2, /* closed; being asked about, or in its grace period */
        WIRE_EXTENT_PINNED = 3,    /* dropped, but its pages are still pinned by a device or the kernel */
};

enum wire_limit_kind {
        WIRE_LIMIT_BYTES = 1,
        WIRE_LIMIT_GRANTS = 2,
        WIRE_LIMIT_CONNECTIONS = 3,
        WIRE_LIMIT_WAITING = 4,
        WIRE_LIMIT_REQUESTS = 5, /* in this second */
        WIRE_LIMIT_FDS_IN_FLIGHT = 6,
        WIRE_LIMIT_PAGES = 256, /* + N: of the bytes, those in pages of 2^N bytes; only where there are any, or a limit */
};
#define WIRE_LIMIT_ALL_UIDS UINT32_MAX /* a limit on all uids together */

/* Every message begins with:              offset 0  u16 op, u16 reserved, u32 request_id (chosen by the client, echoed) */
#define WIRE_HEADER_BYTES 8

struct wire_c_hello { /* 24 bytes in all */
        uint32_t magic;
        uint16_t version_min, version_max; /* the daemon picks the highest that both know */
        uint64_t features;                 /* none defined yet: 0 */
};

struct wire_d_hello { /* 32 bytes in all */
        uint32_t magic;
        uint16_t version, max_items;
        uint64_t features;
        uint16_t max_fds, reserved;
        uint32_t max_message_bytes;
};

struct wire_item {                /* 64 bytes each, from offset 16 */
        uint64_t bytes;           /* > 0; rounded up to whole pages (or extents) by the daemon */
        uint64_t page_size_bytes; /* 0: the pool's, or the system's default page size */
        int32_t node;             /* -1 with WIRE_NODE_ANY */
        uint8_t node_mode, flags;
        uint16_t reserved;
        uint64_t reserved2;
        char pool[WIRE_POOL_NAME_BYTES]; /* empty: best fit; else 0-terminated and 0-padded */
};

struct wire_c_acquire {
        uint8_t on_miss, n_items;
        uint16_t reserved;
        int32_t timeout_ms; /* for WIRE_MISS_WAIT: -1 waits without limit; else 0 */
        struct wire_item items[WIRE_MAX_ITEMS];
};

struct wire_c_cancel { /* 16 bytes in all */
        uint32_t target_request_id, reserved;
};

struct wire_c_mapped { /* 16 bytes in all */
        uint64_t grant_id;
};

struct wire_c_release { /* 24 bytes in all */
        uint64_t grant_id;
        uint32_t extent, reserved; /* position in the grant, or WIRE_ALL_EXTENTS */
};

struct wire_c_pools { /* 16 bytes in all */
        uint32_t first_row, reserved;
};

struct wire_c_grants { /* 24 bytes in all: rows behind this one, in ascending order; 0, 0 starts */
        uint64_t after_grant_id;
        uint32_t after_extent, reserved;
};

struct wire_c_resize { /* 56 bytes in all */
        uint64_t target_bytes;
        int32_t node; /* -1: all nodes */
        uint32_t reserved;
        char pool[WIRE_POOL_NAME_BYTES]; /* empty: all pools */
};

struct wire_c_limits { /* 16 bytes in all: rows behind this one, by uid, then kind; 0, 0 starts */
        uint32_t after_uid;
        uint16_t after_kind, reserved;
};

struct wire_extent { /* 16 bytes each, from offset 32 */
        uint64_t bytes;
        uint8_t item, page_shift;
        int16_t node;
        uint32_t reserved;
};

struct wire_d_grant {
        uint64_t grant_id;                      /* > 0 */
        uint32_t n_extents_total, first_extent; /* extents of the grant; position of the first one in this message */
        uint16_t n_extents, reserved;
        uint32_t reserved2;
        struct wire_extent extents[WIRE_MAX_FDS];
};

struct wire_d_refused { /* 16 bytes, then the text */
        int32_t error;  /* > 0, a Linux errno (asm-generic numbers) */
        uint16_t n_text_bytes, reserved;
        char text[WIRE_MAX_TEXT_BYTES + 1]; /* UTF-8, on the wire without the terminating 0 */
};

struct wire_d_status { /* 8 + 32 + 8 * 18 = 184 bytes in all */
        char daemon_version[32];
        uint64_t uptime_ms, n_clients, n_waiting, n_pool_rows, n_grants, n_extents_granted;
        uint64_t n_granted_total, n_refused_total, n_exact, n_cut, n_grown, n_built; /* since start */
        uint64_t zeroed_bytes_total, granted_bytes_total, scrubbed_bytes_total;      /* since start */
        uint64_t n_fds_in_flight, n_doubts;
        uint64_t capped_at_extents; /* 0: pools may grow; else the limit of open files stops them here */
};

struct wire_pool_row { /* 224 bytes each, from offset 24 */
        char name[WIRE_POOL_NAME_BYTES];
        int32_t node;
        uint32_t n_extents_ready;
        uint64_t page_size_bytes, extent_bytes; /* extent_bytes 0: auto */
        uint64_t target_bytes, ready_bytes, granted_bytes, returned_bytes, filling_bytes, shortfall_bytes;
        uint64_t pinned_bytes, kernel_free_bytes, largest_ready_bytes;
        uint64_t n_exact, n_cut, n_grown, n_built, zeroed_bytes_total; /* since start */
        char clear_method[WIRE_METHOD_NAME_BYTES];                     /* of the node; empty: not measured yet */
        uint32_t n_workers, n_fill_threads; /* of the node; n_fill_threads 0: how many are worth it was not measured yet */
        uint64_t paced_wait_ms, audited_bytes_total, n_audit_errors; /* since start */
        uint32_t n_scrub_threads; /* as n_fill_threads */
        uint16_t clear_speed;     /* of clear_method, in 0.1 GB/s; 0: not measured */
        uint16_t clear_survival;  /* per cent of a warm cache that it leaves; WIRE_SURVIVAL_UNKNOWN: not measured */
};
#define WIRE_SURVIVAL_UNKNOWN UINT16_MAX
#define WIRE_MAX_POOL_ROWS 18 /* (4096 - 24) / 224 */

struct wire_d_pools {
        uint32_t n_rows_total, first_row;
        uint32_t n_rows, reserved;
        struct wire_pool_row rows[WIRE_MAX_POOL_ROWS];
};

struct wire_grant_row { /* 96 bytes each, from offset 16 */
        uint64_t grant_id;
        uint32_t extent, uid;
        uint32_t pid; /* the asker's, as the daemon sees it; it may be gone */
        int16_t node;
        uint8_t page_shift, state;
        uint64_t bytes, age_ms, dev, ino; /* dev and ino name the memory in /proc/PID/maps and fd */
        char pool[WIRE_POOL_NAME_BYTES];
        uint64_t reserved;
};
#define WIRE_MAX_GRANT_ROWS 42 /* (4096 - 16) / 96 */

struct wire_d_grants {
        uint32_t n_rows, more; /* more: 1 when rows follow behind the last one */
        struct wire_grant_row rows[WIRE_MAX_GRANT_ROWS];
};

struct wire_limit_row { /* 24 bytes each, from offset 16 */
        uint32_t uid; /* or WIRE_LIMIT_ALL_UIDS */
        uint16_t kind, reserved;
        uint64_t used, limit; /* limit UINT64_MAX: none */
};
#define WIRE_MAX_LIMIT_ROWS 170 /* (4096 - 16) / 24 */

struct wire_d_limits {
        uint32_t n_rows, more; /* more: 1 when rows follow behind the last one */
        struct wire_limit_row rows[WIRE_MAX_LIMIT_ROWS];
};

struct wire_d_reloaded { /* 16 bytes, then the text */
        uint16_t n_start_keys_bytes, reserved;
        uint32_t reserved2;
        char start_keys[WIRE_MAX_TEXT_BYTES + 1]; /* "Batch=, SocketMode=": changed, in effect at the next start */
};

/* One message in host byte order. C_STATUS, C_RELOAD and D_DONE have a header only. */
struct wire_message {
        uint16_t op;
        uint32_t request_id;
        union {
                struct wire_c_hello c_hello;
                struct wire_c_acquire c_acquire;
                struct wire_c_cancel c_cancel;
                struct wire_c_mapped c_mapped;
                struct wire_c_release c_release;
                struct wire_c_pools c_pools;
                struct wire_c_grants c_grants;
                struct wire_c_resize c_resize;
                struct wire_c_limits c_limits;
                struct wire_d_hello d_hello;
                struct wire_d_grant d_grant;
                struct wire_d_refused d_refused;
                struct wire_d_status d_status;
                struct wire_d_pools d_pools;
                struct wire_d_grants d_grants;
                struct wire_d_limits d_limits;
                struct wire_d_reloaded d_reloaded;
        };
};

enum wire_direction { WIRE_TO_DAEMON, WIRE_TO_CLIENT };

/*
 * wire_encode - write @message to @buffer
 * Reserved fields and what lies behind the end of a name are written as 0, whatever is in @message.
 * Returns the number of bytes written, or -EINVAL when wire_decode() would refuse it, -EMSGSIZE when @buffer is too small.
 */
int wire_encode(const struct wire_message *message, uint8_t *buffer, size_t buffer_bytes);

/* Makes a text field of whatever @from is: bytes that are no text become "?", and it ends with a letter. Returns its length. */
size_t wire_make_text(char text[WIRE_MAX_TEXT_BYTES + 1], const char *from);

/*
 * wire_decode - read and check one packet of the given direction
 * Returns 0, or -EBADMSG (wrong length, reserved field set, value out of the enum or range, text or name not terminated or with
 * control characters), -EOPNOTSUPP (unknown op; @ret_message then has op and request_id). @ret_message is set on success only,
 * with that exception. Never asserts on input.
 */
int wire_decode(const uint8_t *buffer, size_t n_bytes, enum wire_direction direction, struct wire_message *ret_message);

/*
 * wire_explain - what wire_decode() has refused with -EBADMSG
 * "item 0, field flags: its value is not allowed", for people. Returns @ret_text.
 */
#define WIRE_FAULT_BYTES 96
const char *wire_explain(const uint8_t *buffer, size_t n_bytes, enum wire_direction direction, char ret_text[WIRE_FAULT_BYTES]);
