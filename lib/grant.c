/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A grant: put together from messages, looked at, taken apart, given back. */

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cleanup.h"
#include "internal.h"

/* Bounds what a count from outside makes us allocate: a grant that cannot be received need not have room. */
static uint64_t max_fds(void) {
        struct rlimit limit;

        return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? 0 : limit.rlim_cur;
}

static int grant_new(const struct wire_d_grant *message, struct hugezero_grant **ret_grant) {
        if (message->n_extents_total > message->n_extents && message->n_extents_total > max_fds())
                return -EMFILE;
        struct hugezero_grant *grant = malloc(sizeof(*grant) + message->n_extents_total * sizeof(grant->extents[0]));
        if (!grant)
                return -ENOMEM;
        *grant = (struct hugezero_grant){.id = message->grant_id, .n_extents = message->n_extents_total};
        *ret_grant = grant;
        return 0;
}

/* Whole GiB first, so that each of them, and the first one behind them, begins at a multiple of 1 GiB. */
static int compare_extents(const void *a, const void *b) {
        const struct grant_extent *x = a, *y = b;

        if (x->item != y->item)
                return x->item < y->item ? -1 : 1;
        if ((x->bytes % SHARE_BYTES == 0) != (y->bytes % SHARE_BYTES == 0))
                return x->bytes % SHARE_BYTES == 0 ? -1 : 1;
        if (x->bytes != y->bytes)
                return x->bytes > y->bytes ? -1 : 1;
        return x->position < y->position ? -1 : 1;
}

/* All or nothing: each item in full, from pages of the size asked for, in one piece where several were not wanted. */
static bool fits(const struct hugezero_grant *grant, const struct wire_c_acquire *acquire) {
        uint64_t bytes[WIRE_MAX_ITEMS] = {};
        uint32_t n_extents[WIRE_MAX_ITEMS] = {};

        for (uint32_t i = 0; i < grant->n_extents; i++) {
                const struct grant_extent *extent = &grant->extents[i];
                if (extent->item >= acquire->n_items)
                        return false;
                const struct wire_item *item = &acquire->items[extent->item];
                if (item->page_size_bytes > 0 && item->page_size_bytes != extent->page_size_bytes)
                        return false;
                if (item->node_mode == WIRE_NODE_STRICT && item->node != extent->node)
                        return false;
                if (__builtin_add_overflow(bytes[extent->item], extent->bytes, &bytes[extent->item]))
                        return false;
                n_extents[extent->item]++;
        }
        for (uint32_t i = 0; i < acquire->n_items; i++)
                if (bytes[i] < acquire->items[i].bytes || (n_extents[i] > 1 && !(acquire->items[i].flags & WIRE_ITEM_SEVERAL)))
                        return false;
        return true;
}

int grant_collect(struct hugezero_grant **grant, const struct wire_c_acquire *acquire, const struct wire_d_grant *message,
                  int *fds, size_t n_fds) {
        if (n_fds != message->n_extents)
                return -EBADMSG;
        if (!*grant) {
                int r = grant_new(message, grant);
                if (r < 0)
                        return r;
        }

        struct hugezero_grant *g = *grant;
        if (message->grant_id != g->id || message->n_extents_total != g->n_extents || message->first_extent != g->n_arrived)
                return -EBADMSG;
        for (size_t i = 0; i < n_fds; i++) {
                const struct wire_extent *extent = &message->extents[i];
                g->extents[g->n_arrived] = (struct grant_extent){
                        .fd = take_fd(&fds[i]),
                        .item = extent->item,
                        .position = g->n_arrived,
                        .node = extent->node,
                        .bytes = extent->bytes,
                        .page_size_bytes = UINT64_C(1) << extent->page_shift,
                };
                g->n_arrived++;
        }
        if (g->n_arrived < g->n_extents)
                return -EINPROGRESS;
        if (!fits(g, acquire))
                return -EBADMSG;
        qsort(g->extents, g->n_extents, sizeof(g->extents[0]), compare_extents);
        return 0;
}

void hugezero_grant_free(struct hugezero_grant *grant) {
        if (!grant)
                return;
        for (uint32_t i = 0; i < grant->n_arrived; i++)
                (void) safe_close(grant->extents[i].fd);
        free(grant);
}

uint64_t hugezero_grant_get_id(const struct hugezero_grant *grant) {
        return grant ? grant->id : 0;
}

uint32_t hugezero_grant_get_n_extents(const struct hugezero_grant *grant) {
        return grant ? grant->n_extents : 0;
}

int hugezero_grant_get_extent(const struct hugezero_grant *grant, uint32_t idx, struct hugezero_extent_info *info) {
        if (!grant || !info || idx >= grant->n_extents)
                return -EINVAL;
        const struct grant_extent *extent = &grant->extents[idx];
        struct hugezero_extent_info own = {
                .item = extent->item,
                .node = extent->node,
                .bytes = extent->bytes,
                .page_size_bytes = extent->page_size_bytes,
        };
        return info_fill(info, &own, sizeof(own), sizeof(own));
}

int hugezero_grant_get_fd(const struct hugezero_grant *grant, uint32_t idx) {
        if (!grant || idx >= grant->n_extents)
                return -EINVAL;
        return grant->extents[idx].fd;
}

int hugezero_grant_take_fd(struct hugezero_grant *grant, uint32_t idx) {
        if (!grant || idx >= grant->n_extents)
                return -EINVAL;
        return take_fd(&grant->extents[idx].fd);
}

int hugezero_grant_notify_mapped(struct hugezero_grant *grant, struct hugezero_conn *conn) {
        if (!grant)
                return conn_fail_argument(conn, "no grant is given");
        struct wire_message message = {.op = WIRE_C_MAPPED, .c_mapped = {.grant_id = grant->id}};
        return conn_post(conn, &message);
}

static int release(struct hugezero_grant *grant, struct hugezero_conn *conn, uint32_t position) {
        struct wire_message message = {
                .op = WIRE_C_RELEASE,
                .c_release = {.grant_id = grant->id, .extent = position},
        };
        struct call call = {.answer_op = WIRE_D_DONE};

        return conn_call_and_wait(conn, &message, &call);
}

int hugezero_grant_release(struct hugezero_grant *grant, struct hugezero_conn *conn) {
        if (!grant || !conn)
                return conn_fail_argument(conn, "no grant or no connection is given");
        for (uint32_t i = 0; i < grant->n_extents; i++)
                grant->extents[i].fd = safe_close(grant->extents[i].fd);
        return release(grant, conn, WIRE_ALL_EXTENTS);
}

int hugezero_grant_release_extent(struct hugezero_grant *grant, struct hugezero_conn *conn, uint32_t idx) {
        if (idx == HUGEZERO_ALL_EXTENTS)
                return hugezero_grant_release(grant, conn);
        if (!grant || !conn || idx >= grant->n_extents)
                return conn_fail_argument(conn, "no grant or no connection is given, or the grant has no extent of that number");
        grant->extents[idx].fd = safe_close(grant->extents[idx].fd);
        return release(grant, conn, grant->extents[idx].position);
}
