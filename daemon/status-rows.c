/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The figures of the daemon and of its pools, as they go to clients. */

#include <stdio.h>
#include <string.h>

#include "broker-internal.h"
#include "clearing.h"
#include "clock.h"
#include "config-build.h"
#include "stock.h"
#include "topology.h"

void broker_fill_status(const struct broker *broker, struct wire_d_status *ret_status) {
        *ret_status = (struct wire_d_status) {
                .uptime_ms = clock_ms() - broker->started_ms,
                .n_waiting = broker->n_waiting + broker->n_working,
                .n_grants = broker->n_grants,
                .n_extents_granted = broker->n_extents_granted,
                .n_granted_total = broker->n_granted_total,
                .n_refused_total = broker->n_refused_total,
                .granted_bytes_total = broker->granted_bytes_total,
                .scrubbed_bytes_total = broker->scrubbed_bytes_total,
                .n_doubts = broker->n_doubts,
                .capped_at_extents = broker->capped_at_extents,
        };
        (void) snprintf(ret_status->daemon_version, sizeof(ret_status->daemon_version), "%s", HUGEZERO_VERSION);
        BROKER_FOREACH_NODE_POOL(broker, np) {
                ret_status->n_pool_rows++;
                ret_status->n_exact += np->n_exact;
                ret_status->n_cut += np->n_cut;
                ret_status->n_grown += np->n_grown;
                ret_status->n_built += np->n_built;
                ret_status->zeroed_bytes_total += np->zeroed_bytes_total;
        }
}

/* Of which all are, or which most of its memory is. */
static uint64_t usual_extent_bytes(const struct node_pool *np) {
        return np->pool->extent_bytes > 0 ? np->pool->extent_bytes : UINT64_MAX;
}

/* What this pool's extents are cleared with in the background. */
static const char *clear_method_of(const struct node_pool *np, const struct clearing *clearing) {
        if (!clearing->configured && clearing_is_wanted(clearing))
                return "";
        return clearing_background_method(clearing, usual_extent_bytes(np))->name;
}

static void fill_pool_row(const struct broker *broker, const struct node_pool *np, struct wire_pool_row *ret_row) {
        const struct clearing *clearing = stock_clearing(broker->stock, np->node);
        struct clear_figures figures = clearing_background_figures(clearing, usual_extent_bytes(np));

        *ret_row = (struct wire_pool_row) {
                .node = np->node,
                .n_extents_ready = np->n_extents[EXTENT_READY] + np->n_extents[EXTENT_AUDITING],
                .page_size_bytes = np->pool->page_size_bytes,
                .extent_bytes = np->pool->extent_bytes,
                .target_bytes = np->target_bytes,
                .ready_bytes = pool_ready_bytes(np),
                .granted_bytes = np->bytes[EXTENT_GRANTED] + np->bytes[EXTENT_CLAIMED],
                .returned_bytes = np->bytes[EXTENT_RETURNED] + np->bytes[EXTENT_SCRUBBING] + np->bytes[EXTENT_RENEWING] +
                                  np->bytes[EXTENT_DROPPING],
                .filling_bytes = np->bytes[EXTENT_FILLING],
                .shortfall_bytes = np->shortfall_bytes,
                .pinned_bytes = np->bytes[EXTENT_PINNED],
                .kernel_free_bytes = topology_available_bytes(broker->topology, np->node, np->pool->page_size_bytes),
                .largest_ready_bytes = pool_largest_ready_bytes(np),
                .n_exact = np->n_exact,
                .n_cut = np->n_cut,
                .n_grown = np->n_grown,
                .n_built = np->n_built,
                .zeroed_bytes_total = np->zeroed_bytes_total,
                .n_workers = clearing->n_workers,
                .n_fill_threads = clearing->n_fill_threads,
                .n_scrub_threads = clearing->n_scrub_threads,
                .paced_wait_ms = pool_paced_wait_ms(np, clock_ms()),
                .audited_bytes_total = np->audited_bytes_total,
                .n_audit_errors = np->n_audit_errors,
                .clear_speed = figures.gb_per_s > 0 ? (uint16_t) (10 * figures.gb_per_s + 0.5) : 0,
                .clear_survival = figures.survival_percent >= 0 ? (uint16_t) figures.survival_percent : WIRE_SURVIVAL_UNKNOWN,
        };
        memcpy(ret_row->name, np->pool->name, sizeof(ret_row->name));
        (void) snprintf(ret_row->clear_method, sizeof(ret_row->clear_method), "%s", clear_method_of(np, clearing));
}

/* A pool that is removed is there as long as clients have something of it. */
static bool is_shown(const struct node_pool *np) {
        return !np->pool->removed || pool_used_bytes(np) > 0;
}

void broker_fill_pools(const struct broker *broker, uint32_t first_row, struct wire_d_pools *ret_pools) {
        uint32_t row = 0;

        ret_pools->n_rows = 0;
        ret_pools->first_row = first_row;
        ret_pools->reserved = 0;
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (is_shown(np) && row++ >= first_row && ret_pools->n_rows < WIRE_MAX_POOL_ROWS)
                        fill_pool_row(broker, np, &ret_pools->rows[ret_pools->n_rows++]);
        ret_pools->n_rows_total = row;
}
