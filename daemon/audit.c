/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What should be found here is nothing. A byte that is not zero says that memory is failing, that a device writes where it may
 * no longer, or that somebody got hold of the daemon's own mapping. A page on another node was moved by the kernel, which takes
 * memory off line or needs room for larger pages.
 *
 * A round of reading at a time, so that an idle daemon sleeps between them; slice by slice within a round. Rounds that are no
 * more frequent than sweeps begin with one: then the daemon wakes up for the one as for both.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "audit.h"
#include "broker-internal.h"
#include "clock.h"
#include "log-limit.h"
#include "parse.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"

#define SLICE_BYTES (UINT64_C(2) << 20) /* chosen: 0.2 ms at 10 GB/s is what a request may have to wait */
#define BUSY_DELAY_MS 200               /* chosen: the node's workers have better things to do, or a request waits */
#define ROUND_BYTES (UINT64_C(1) << 30) /* chosen: 0.1 s of reading; by the rate it follows how often, within these limits: */
#define MIN_PERIOD_MS 1000              /* chosen: the finest in which a rate per second can be met */
#define MAX_PERIOD_MS 60000             /* chosen: as often as the sweep by default */

struct audit_node {
        struct audit *audit;
        int node;
        struct event *timer;
        uint64_t left_bytes;    /* of this round */
        uint64_t round_ms;      /* when it began; 0: none has yet */
        uint64_t next_round_ms; /* when it may begin */
        uint64_t reading_bytes; /* 0: nothing is being read */
};

struct audit {
        struct broker *broker;
        size_t n_nodes;
        struct audit_node nodes[CONFIG_MAX_NODES];
};

static uint64_t rate_of(const struct audit_node *node) {
        return node->audit->broker->config->audit_bytes_per_s;
}

static uint64_t period_ms(const struct audit_node *node) {
        uint64_t ms = ROUND_BYTES * 1000 / rate_of(node);

        return ms < MIN_PERIOD_MS ? MIN_PERIOD_MS : ms > MAX_PERIOD_MS ? MAX_PERIOD_MS : ms;
}

static bool begins_with_sweep(const struct audit_node *node) {
        return node->round_ms > 0 && period_ms(node) >= node->audit->broker->config->sweep_interval_ms;
}

/* After this much or, between two rounds, when the next one begins. */
static void set_timer(struct audit_node *node, uint64_t delay_ms) {
        uint64_t now_ms = clock_ms();

        if (rate_of(node) == 0)
                return; /* turned off */
        if (node->left_bytes == 0 && begins_with_sweep(node))
                return;
        if (node->left_bytes == 0)
                delay_ms = node->next_round_ms > now_ms ? node->next_round_ms - now_ms : 0;
        broker_timer_set(node->timer, delay_ms);
}

static uint64_t ready_bytes(const struct audit_node *node) {
        uint64_t bytes = 0;

        BROKER_FOREACH_NODE_POOL(node->audit->broker, np)
                if (np->node == node->node)
                        bytes += pool_ready_bytes(np);
        return bytes;
}

/* What has become due since the last one. Nothing is read twice in one round. */
static void begin_round(struct audit_node *node) {
        uint64_t now_ms = clock_ms(), passed_ms = node->round_ms > 0 ? now_ms - node->round_ms : period_ms(node), bytes;
        uint64_t most_bytes = ready_bytes(node);

        if (passed_ms > 2 * period_ms(node)) /* it could not be read meanwhile, and is not made up for */
                passed_ms = 2 * period_ms(node);
        bytes = rate_of(node) * passed_ms / 1000;
        node->round_ms = now_ms;
        node->next_round_ms = now_ms + period_ms(node);
        node->left_bytes = bytes < most_bytes ? bytes : most_bytes;
}

/* Found something, or could not read it. */
static void drop(struct broker *broker, struct extent *extent, int r) {
        struct node_pool *np = extent->node_pool;
        char size[FORMAT_SIZE_BYTES];

        if (r == -EBADMSG) {
                np->n_audit_errors++;
                if (log_limit_pass(LOG_LIMIT_JOBS, LOG_NO_USER))
                        log_error(LOG_ID_NOT_ZERO,
                                  LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("INODE", extent->file.ino),
                                             LOG_NUMBER("OFFSET", extent->audit_bytes)),
                                  "pool %s, node %d: byte %lu of a ready extent of %s (inode %lu) is not zero: somebody wrote "
                                  "into it, or its memory fails; it goes back to the kernel",
                                  np->pool->name, np->node, (unsigned long) extent->audit_bytes,
                                  format_size(extent->bytes, size), (unsigned long) extent->file.ino);
                returns_drop(broker, extent, /* test_pins= */ true);
                return;
        }
        broker->n_doubts++;
        if (log_limit_pass(LOG_LIMIT_JOBS, LOG_NO_USER))
                log_notice(LOG_ID_MEMORY_LOST, LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("ERRNO", -r)),
                           "pool %s, node %d: a ready extent of %s goes back to the kernel: %s", np->pool->name, np->node,
                           format_size(extent->bytes, size),
                           r == -EHWPOISON ? "its memory has failed; the kernel's log says where" :
                           r == -EXDEV     ? "pages of it were moved to another node" :
                                             "pages of it are missing");
        returns_drop(broker, extent, /* test_pins= */ true);
}

static bool is_lost(int r) {
        return r == -EBADMSG || r == -EHWPOISON || r == -EXDEV || r == -EFAULT || r == -ENOSPC;
}

static void slice_done(void *userdata, struct extent *extent, int r) {
        struct audit_node *node = userdata;
        struct broker *broker = node->audit->broker;
        struct node_pool *np = extent->node_pool;

        if (r == 0)
                np->audited_bytes_total += node->reading_bytes;
        node->reading_bytes = 0;
        if (r == 0 || r == -ECANCELED)
                warm_note_measured(broker->warm, extent, /* begins= */ false);
        else if (is_lost(r)) /* also at the end: a successor would hand it out */
                warm_note_busy(broker->warm, extent);
        if (broker->stopping)
                return;
        if (extent->foreign_open)
                returns_drop_doubtful(broker, extent);
        else if (is_lost(r))
                drop(broker, extent, r);
        else if (pool_end_audit(extent) < 0)
                returns_drop(broker, extent, /* test_pins= */ true);
        set_timer(node, 0);
        if (broker->n_waiting > 0 || pool_excess_bytes(np) > 0 || node->left_bytes == 0)
                broker_kick(broker); /* whoever missed this extent, or waits for the end of the round */
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

static bool is_busy(const struct audit_node *node) {
        const struct broker *broker = node->audit->broker;

        return broker->n_waiting > 0 || !stock_is_idle(broker->stock, node->node);
}

/* Whether there is a point in asking again soon. */
static bool read_slice(struct audit_node *node) {
        struct broker *broker = node->audit->broker;
        struct extent *extent = next_extent(node);
        uint64_t bytes;

        if (!extent)
                return false;
        bytes = extent->bytes - extent->audit_bytes < SLICE_BYTES ? extent->bytes - extent->audit_bytes : SLICE_BYTES;
        pool_move(extent, EXTENT_AUDITING);
        if (stock_audit(broker->stock, extent, bytes, slice_done, node) >= 0) {
                node->reading_bytes = bytes;
                node->left_bytes -= bytes < node->left_bytes ? bytes : node->left_bytes;
        } else if (pool_end_audit(extent) < 0) /* no memory for a job, and none for a shelf */
                returns_drop(broker, extent, /* test_pins= */ true);
        return true;
}

static void continue_round(struct audit_node *node) {
        if (is_busy(node)) { /* nor does a round begin: what is being filled would be left to the next one */
                broker_timer_set(node->timer, BUSY_DELAY_MS);
                return;
        }
        if (node->left_bytes == 0)
                begin_round(node);
        if (!read_slice(node))
                node->left_bytes = 0; /* nothing is ready: perhaps there is when the next round begins */
        if (node->reading_bytes == 0)
                set_timer(node, BUSY_DELAY_MS);
}

static void on_timer(int fd, short what, void *userdata) {
        struct audit_node *node = userdata;

        if (!node->audit->broker->stopping)
                continue_round(node);
}

void audit_on_sweep(struct audit *audit) {
        /* The nearest sweep to when the round is due: what it reads is what has become due till then. */
        uint64_t then_ms = clock_ms() + audit->broker->config->sweep_interval_ms / 2;

        for (size_t i = 0; i < audit->n_nodes; i++) {
                struct audit_node *node = &audit->nodes[i];

                if (rate_of(node) > 0 && node->left_bytes == 0 && node->reading_bytes == 0 && begins_with_sweep(node) &&
                    node->next_round_ms <= then_ms && !evtimer_pending(node->timer, NULL))
                        continue_round(node);
        }
}

bool audit_had_round(const struct audit *audit, int node) {
        for (size_t i = 0; i < audit->n_nodes; i++)
                if (audit->nodes[i].node == node && rate_of(&audit->nodes[i]) > 0)
                        return audit->nodes[i].round_ms > 0 && audit->nodes[i].left_bytes == 0;
        return true;
}

void audit_let_go(struct audit *audit, struct node_pool *np) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                stock_stop_audit(audit->broker->stock, extent);
}

void audit_set_rate(struct audit *audit) {
        for (size_t i = 0; i < audit->n_nodes; i++) {
                struct audit_node *node = &audit->nodes[i];

                node->left_bytes = node->round_ms = 0;
                node->next_round_ms = clock_ms() + BUSY_DELAY_MS; /* at the start the first fill has begun by then */
                if (rate_of(node) == 0)
                        (void) event_del(node->timer);
                else if (node->reading_bytes == 0)
                        set_timer(node, 0);
        }
}

static bool has_node(const struct audit *audit, int node) {
        for (size_t i = 0; i < audit->n_nodes; i++)
                if (audit->nodes[i].node == node)
                        return true;
        return false;
}

int audit_add_nodes(struct audit *audit) {
        const struct broker *broker = audit->broker;

        for (size_t i = 0; i < topology_n_nodes(broker->topology) && audit->n_nodes < CONFIG_MAX_NODES; i++) {
                struct audit_node *node = &audit->nodes[audit->n_nodes];
                int number = topology_node_at(broker->topology, i);

                if (has_node(audit, number))
                        continue;
                node->timer = evtimer_new(broker->base, on_timer, node);
                if (!node->timer)
                        return -ENOMEM;
                node->audit = audit;
                node->node = number;
                audit->n_nodes++;
        }
        return 0;
}

int audit_new(struct broker *broker, struct audit **ret_audit) {
        struct audit *audit = calloc(1, sizeof(*audit));
        int r;

        if (!audit)
                return -ENOMEM;
        audit->broker = broker;
        r = audit_add_nodes(audit);
        if (r < 0) {
                audit_free(audit);
                return r;
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
