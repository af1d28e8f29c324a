/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory in one call, on a connection that the process keeps.
 *
 * Two locks. exchange_lock is held while messages go out and an answer is awaited; table_lock for a look at the table. Only the
 * latter is taken across fork(), so that fork() never waits for the daemon, and the child's table is whole.
 */

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "internal.h"

#define ITEM_FLAGS (HUGEZERO_NODE_PREFERRED | HUGEZERO_SEVERAL_FDS)
#define ALLOC_FLAGS (ITEM_FLAGS | HUGEZERO_FALLBACK_MMAP | HUGEZERO_WAIT | HUGEZERO_FILL | HUGEZERO_MAP_UNSHARED)

static pthread_mutex_t exchange_lock = PTHREAD_MUTEX_INITIALIZER; /* protects default_conn and its use */
static struct hugezero_conn *default_conn;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER; /* protects table */
static void *table;                                            /* of struct piece, for tsearch(3) */

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool exchange_lock_is_ours; /* between fork_prepare() and the two after it; under table_lock */

struct piece {
        void *addr;
        uint64_t bytes;
        uint64_t grant_id; /* 0: fall-back */
};

static void request_freep(struct hugezero_request **request) {
        hugezero_request_free(*request);
}

static int compare_pieces(const void *a, const void *b) {
        const struct piece *x = a, *y = b;

        return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void fork_prepare(void) {
        (void) pthread_mutex_lock(&table_lock);
        exchange_lock_is_ours = pthread_mutex_trylock(&exchange_lock) == 0;
}

static void fork_parent(void) {
        if (exchange_lock_is_ours)
                (void) pthread_mutex_unlock(&exchange_lock);
        (void) pthread_mutex_unlock(&table_lock);
}

/*
 * The connection is the parent's. Its descriptor must not stay open here: the daemon would not notice when the parent ends.
 * Where another thread was in the middle of using the object it is given up as it stands, and only the descriptor is closed.
 */
static void fork_child(void) {
        struct hugezero_conn *conn = default_conn;

        default_conn = NULL;
        if (exchange_lock_is_ours)
                hugezero_conn_close(conn);
        else if (conn)
                conn_close_fd(conn);
        (void) pthread_mutex_init(&exchange_lock, NULL);
        (void) pthread_mutex_unlock(&table_lock);
}

static void register_fork_handlers(void) {
        (void) pthread_atfork(fork_prepare, fork_parent, fork_child);
}

/*
 * Drops the connection if it is dead: the daemon was restarted, or the program has closed all descriptors (closefrom(3)), which
 * may know nothing of this one. Where its number belongs to somebody else by now, no byte must be sent there.
 */
static void check_default_conn(void) {
        if (default_conn && conn_check(default_conn) >= 0 && conn_owns_fd(default_conn))
                return;
        hugezero_conn_close(default_conn);
        default_conn = NULL;
}

/* Once more when the connection turns out to be dead only now. */
static int acquire_by_default_conn(struct hugezero_request *request, struct hugezero_grant **ret_grant) {
        int r = -ECONNRESET;

        (void) pthread_mutex_lock(&exchange_lock);
        for (unsigned n_tries = 0; n_tries < 2 && (r == -ECONNRESET || r == -ECHILD); n_tries++) {
                check_default_conn();
                r = default_conn ? 0 : hugezero_conn_open(NULL, &default_conn);
                if (r < 0)
                        break;
                r = hugezero_acquire(default_conn, request, ret_grant);
                if (r < 0)
                        thread_set_text("%s", hugezero_conn_get_error_text(default_conn));
        }
        (void) pthread_mutex_unlock(&exchange_lock);
        return r;
}

static int acquire_by_own_conn(struct hugezero_request *request, struct hugezero_grant **ret_grant) {
        struct hugezero_conn *conn;

        int r = hugezero_conn_open(NULL, &conn);
        if (r < 0)
                return r;
        r = hugezero_acquire(conn, request, ret_grant);
        if (r < 0)
                thread_set_text("%s", hugezero_conn_get_error_text(conn));
        hugezero_conn_close(conn);
        return r;
}

/* Waiting keeps no lock: whoever frees memory in another thread must get through. */
static int acquire(struct hugezero_request *request, uint32_t flags, struct hugezero_grant **ret_grant) {
        int r = acquire_by_default_conn(request, ret_grant);

        if ((r != -EAGAIN && r != -ENOMEM) || !(flags & (HUGEZERO_WAIT | HUGEZERO_FILL)))
                return r;
        if (flags & HUGEZERO_WAIT)
                r = hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, -1);
        else
                r = hugezero_request_set_miss(request, HUGEZERO_MISS_FILL, 0);
        return r < 0 ? r : acquire_by_own_conn(request, ret_grant);
}

static void notify_mapped(struct hugezero_grant *grant) {
        (void) pthread_mutex_lock(&exchange_lock);
        check_default_conn();
        if (default_conn)
                (void) hugezero_grant_notify_mapped(grant, default_conn);
        (void) pthread_mutex_unlock(&exchange_lock);
}

static int map(struct hugezero_grant *grant, uint32_t flags, struct piece *piece) {
        int r = hugezero_grant_map(grant, HUGEZERO_ALL_ITEMS, NULL, flags & HUGEZERO_MAP_UNSHARED, &piece->addr, &piece->bytes);
        if (r >= 0) {
                r = map_touch_shareable(grant, piece->addr);
                if (r < 0)
                        (void) munmap(piece->addr, piece->bytes);
        }
        if (r < 0) {
                thread_set_text("cannot map the memory that the daemon has granted: %s", strerror(-r));
                return r;
        }
        /* The daemon keeps smaller extents unmapped anyway. */
        if (r > 0)
                notify_mapped(grant);
        piece->grant_id = hugezero_grant_get_id(grant);
        return 0;
}

static int alloc_from_daemon(struct hugezero_request *request, uint32_t flags, struct piece *piece) {
        struct hugezero_grant *grant;

        int r = acquire(request, flags, &grant);
        if (r < 0)
                return r;
        r = map(grant, flags, piece);
        hugezero_grant_free(grant);
        return r;
}

/* No daemon that can be asked, or none with such memory (ENOENT says both). Limits of the uid and wrong arguments are final. */
static bool is_reason_to_fall_back(int r) {
        static const int no_daemon[] = {ENOENT, ECONNREFUSED, EACCES, EPROTO, ETIMEDOUT, ECONNRESET, EUSERS, ESHUTDOWN};
        static const int no_memory[] = {EAGAIN, ENOMEM, ENOSPC, ENODEV};

        for (size_t i = 0; i < sizeof(no_daemon) / sizeof(no_daemon[0]); i++)
                if (r == -no_daemon[i])
                        return true;
        for (size_t i = 0; i < sizeof(no_memory) / sizeof(no_memory[0]); i++)
                if (r == -no_memory[i])
                        return true;
        return false;
}

static int fall_back(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, struct piece *piece) {
        char reason[THREAD_TEXT_BYTES];

        int r = fallback_map(bytes, page_size_bytes, node, flags, &piece->addr, &piece->bytes);
        if (r < 0) {
                (void) snprintf(reason, sizeof(reason), "%s", hugezero_conn_get_error_text(NULL));
                thread_set_text("no huge pages from the kernel: %s; and none from the daemon: %s", strerror(-r), reason);
        }
        return r;
}

static int remember(const struct piece *piece, struct piece *entry) {
        *entry = *piece;
        (void) pthread_mutex_lock(&table_lock);
        void *node = tsearch(entry, &table, compare_pieces);
        (void) pthread_mutex_unlock(&table_lock);
        return node ? 0 : -ENOMEM;
}

int hugezero_alloc(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **ret_addr) {
        _cleanup_(request_freep) struct hugezero_request *request = NULL;
        _cleanup_free_ struct piece *entry = NULL;
        struct piece piece = {};

        if (!ret_addr)
                return conn_fail_argument(NULL, "no place for the address is given");
        if (flags & ~ALLOC_FLAGS) {
                thread_set_text("the flags 0x%x are none of hugezero_alloc()", (unsigned) (flags & ~ALLOC_FLAGS));
                return -EINVAL;
        }
        if ((flags & HUGEZERO_WAIT) && (flags & HUGEZERO_FILL))
                return conn_fail_argument(NULL, "the flags HUGEZERO_WAIT and HUGEZERO_FILL exclude each other; give one of them");
        (void) pthread_once(&once, register_fork_handlers);
        entry = malloc(sizeof(*entry));
        int r = entry ? hugezero_request_new(&request) : -ENOMEM;
        if (r < 0) {
                thread_set_text("out of memory");
                return r;
        }
        r = hugezero_request_add_item(request, bytes, page_size_bytes, node, (flags & ITEM_FLAGS) | HUGEZERO_SEVERAL_FDS, NULL);
        if (r < 0)
                return r;

        r = alloc_from_daemon(request, flags, &piece);
        if ((flags & HUGEZERO_FALLBACK_MMAP) && is_reason_to_fall_back(r))
                r = fall_back(bytes, page_size_bytes, node, flags, &piece);
        if (r < 0)
                return r;
        r = remember(&piece, entry);
        if (r < 0) {
                (void) munmap(piece.addr, piece.bytes);
                thread_set_text("out of memory");
                return r;
        }
        entry = NULL; /* the table's now */
        *ret_addr = piece.addr;
        return 0;
}

int hugezero_alloc_size(const void *addr, uint64_t *ret_bytes) {
        struct piece key = {.addr = (void *) addr};
        int r = -EINVAL;

        if (!ret_bytes)
                return -EINVAL;
        (void) pthread_mutex_lock(&table_lock);
        struct piece **found = tfind(&key, &table, compare_pieces);
        if (found) {
                *ret_bytes = (*found)->bytes;
                r = 0;
        }
        (void) pthread_mutex_unlock(&table_lock);
        return r;
}

static struct piece *forget(void *addr) {
        struct piece key = {.addr = addr}, *piece = NULL;

        (void) pthread_mutex_lock(&table_lock);
        struct piece **found = tfind(&key, &table, compare_pieces);
        if (found) {
                piece = *found;
                (void) tdelete(&key, &table, compare_pieces);
        }
        (void) pthread_mutex_unlock(&table_lock);
        return piece;
}

/*
 * The daemon notices anyway; this only makes it look now, and is left out while it has more to read than it can. Earlier
 * answers are taken in first, so that they do not pile up: a client that does not read is cut off.
 */
static void release(uint64_t grant_id) {
        struct wire_message message = {
                .op = WIRE_C_RELEASE,
                .c_release = {.grant_id = grant_id, .extent = WIRE_ALL_EXTENTS},
        };

        (void) pthread_mutex_lock(&exchange_lock);
        check_default_conn();
        if (default_conn && hugezero_conn_dispatch(default_conn) >= 0 && hugezero_conn_get_events(default_conn) == POLLIN)
                (void) conn_post(default_conn, &message);
        (void) pthread_mutex_unlock(&exchange_lock);
}

int hugezero_free(void *addr) {
        if (!addr)
                return 0;
        _cleanup_free_ struct piece *piece = forget(addr);
        if (!piece) {
                thread_set_text("no memory of hugezero_alloc() begins at %p", addr);
                return -EINVAL;
        }
        if (munmap(piece->addr, piece->bytes) < 0) {
                int r = negative_errno();
                thread_set_text("cannot unmap what begins at %p: %s", addr, strerror(-r));
                return r;
        }
        if (piece->grant_id > 0)
                release(piece->grant_id);
        return 0;
}
