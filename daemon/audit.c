/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What should be found here is nothing. A byte that is not zero says that memory is failing, that a device writes where it may
 * no longer, or that somebody got hold of the daemon's own mapping.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "audit.h"
#include "broker-internal.h"
#include "pace.h"
#include "parse.h"
#include "stock.h"
#include "topology.h"

#define SLICE_BYTES (UINT64_C(2) << 20) /* chosen: 0.2 ms at 10 GB/s is what a request may have to wait */
#define IDLE_DELAY_MS 200               /* chosen: nothing was ready, or the node was busy */

struct audit_node {
        struct audit *audit;
        int node;
        struct pace pace;
        struct event *timer;
        uint64_t reading_bytes; /* 0: nothing is being read */
};

struct audit {
        struct broker *broker;
        size_t n_nodes;
        struct audit_node nodes[CONFIG_MAX_NODES];
};

static void set_timer(struct audit_node *node, uint64_t min_delay_ms) {
        uint64_t now_ns = pace_now_ns(), delay_ms = min_delay_ms;

        if (node->pace.bytes_per_s == 0)
                return; /* turned off */
        if (node->pace.due_ns > now_ns + min_delay_ms * PACE_NS_PER_S / 1000)
                delay_ms = (node->pace.due_ns - now_ns) * 1000 / PACE_NS_PER_S + 1;
        broker_timer_set(node->timer, delay_ms);
}

/* Found something, or could not read it. */
static void drop(struct broker *broker, struct extent *extent, int r) {
        struct node_pool *np = extent->node_pool;
        char size[FORMAT_SIZE_BYTES];

        if (r == -EBADMSG) {
                np->n_audit_errors++;
                if (log_limit_pass(&broker->job_limit, LOG_BURST, LOG_INTERVAL_S))
                        log_error(LOG_ID_NOT_ZERO,
                                  LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("INODE", extent->file.ino),
                                             LOG_NUMBER("OFFSET", extent->audit_bytes)),
                                  "pool %s, node %d: byte %lu of a ready extent of %s (inode %lu) is not zero: somebody wrote "
                                  "into it, or its memory fails; it goes back to the kernel",
                                  np->pool->name, np->node, (unsigned long) extent->audit_bytes,
                                  format_size(extent->bytes, size), (unsigned long) extent->file.ino);
        } else if (log_limit_pass(&broker->job_limit, LOG_BURST, LOG_INTERVAL_S))
                log_notice(LOG_ID_MEMORY_LOST, LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("ERRNO", -r)),
                           "pool %s, node %d: a ready extent of %s goes back to the kernel: %s", np->pool->name, np->node,
                           format_size(extent->bytes, size),
                           r == -EHWPOISON ? "its memory has failed; the kernel's log says where" : "pages of it are missing");
        returns_drop(broker, extent, /* test_pins= */ true);
}

static void slice_done(void *userdata, struct extent *extent, int r) {
        struct audit_node *node = userdata;
        struct broker *broker = node->audit->broker;
        struct node_pool *np = extent->node_pool;

        if (r == 0)
                np->audited_bytes_total += node->reading_bytes;
        node->reading_bytes = 0;
        if (broker->stopping)
                return;
        if (extent->foreign_open)
                returns_drop_doubtful(broker, extent);
        else if (r == -EBADMSG || r == -EHWPOISON || r == -EFAULT || r == -ENOSPC)
                drop(broker, extent, r);
        else if (pool_end_audit(extent) < 0)
                returns_drop(broker, extent, /* test_pins= */ true);
        set_timer(node, 0);
        if (broker->n_waiting > 0 || pool_excess_bytes(np) > 0)
                broker_kick(broker); /* whoever missed this extent */
}

/* Of all pools of the node in turn, so that each has seen as many rounds as the others. */
static struct extent *next_extent(const struct audit_node *node) {
        struct extent *next = NULL;
        double fewest_rounds = 0;

        BROKER_FOREACH_NODE_POOL(node->audit->broker, np) {
                double rounds = (double) np->audited_bytes_total / (double) (pool_ready_bytes(np) + 1);
                struct extent *extent = np->node == node->node ? pool_next_to_audit(np) : NULL;

                if (extent && (!next || rounds < fewest_rounds)) {
                        next = extent;
                        fewest_rounds = rounds;
                }
        }
        return next;
}

static void read_slice(struct audit_node *node) {
        struct broker *broker = node->audit->broker;
        struct extent *extent;
        uint64_t bytes;

        if (broker->n_waiting > 0 || !stock_is_idle(broker->stock, node->node))
                return;
        extent = next_extent(node);
        if (!extent || !pace_take(&node->pace, SLICE_BYTES, pace_now_ns()))
                return;
        bytes = extent->bytes - extent->audit_bytes < SLICE_BYTES ? extent->bytes - extent->audit_bytes : SLICE_BYTES;
        pool_move(extent, EXTENT_AUDITING);
        if (stock_audit(broker->stock, extent, bytes, slice_done, node) >= 0)
                node->reading_bytes = bytes;
        else if (pool_end_audit(extent) < 0) /* no memory for a job, and none for a shelf */
                returns_drop(broker, extent, /* test_pins= */ true);
}

static void on_timer(int fd, short what, void *userdata) {
        struct audit_node *node = userdata;

        if (node->audit->broker->stopping)
                return;
        read_slice(node);
        if (node->reading_bytes == 0)
                set_timer(node, IDLE_DELAY_MS);
}

void audit_let_go(struct audit *audit, struct node_pool *np) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                stock_stop_audit(audit->broker->stock, extent);
}

void audit_set_rate(struct audit *audit) {
        for (size_t i = 0; i < audit->n_nodes; i++) {
                struct audit_node *node = &audit->nodes[i];

                node->pace.bytes_per_s = audit->broker->config->audit_bytes_per_s;
                if (node->pace.bytes_per_s == 0)
                        (void) event_del(node->timer);
                else if (node->reading_bytes == 0)
                        set_timer(node, 0);
        }
}

int audit_new(struct broker *broker, struct audit **ret_audit) {
        struct audit *audit = calloc(1, sizeof(*audit));

        if (!audit)
                return -ENOMEM;
        audit->broker = broker;
        for (size_t i = 0; i < topology_n_nodes(broker->topology) && i < CONFIG_MAX_NODES; i++) {
                struct audit_node *node = &audit->nodes[audit->n_nodes];

                node->audit = audit;
                node->node = topology_node_at(broker->topology, i);
                node->timer = evtimer_new(broker->base, on_timer, node);
                if (!node->timer) {
                        audit_free(audit);
                        return -ENOMEM;
                }
                audit->n_nodes++;
        }
        audit_set_rate(audit);
        *ret_audit = audit;
        return 0;
}

struct audit *audit_free(struct audit *audit) {
        for (size_t i = 0; audit && i < audit->n_nodes; i++)
                event_free(audit->nodes[i].timer);
        free(audit);
        return NULL;
}
