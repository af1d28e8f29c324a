/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "figures.h"

#include <string.h>

void figures_of_status(const struct wire_d_status *from, struct hugezero_daemon_info *ret_daemon) {
        *ret_daemon = (struct hugezero_daemon_info){
                .uptime_ms = from->uptime_ms,
                .n_clients = from->n_clients,
                .n_waiting = from->n_waiting,
                .n_grants = from->n_grants,
                .n_extents_granted = from->n_extents_granted,
                .n_granted_total = from->n_granted_total,
                .n_refused_total = from->n_refused_total,
                .n_exact_total = from->n_exact,
                .n_cut_total = from->n_cut,
                .n_grown_total = from->n_grown,
                .n_built_total = from->n_built,
                .zeroed_bytes_total = from->zeroed_bytes_total,
                .granted_bytes_total = from->granted_bytes_total,
                .scrubbed_bytes_total = from->scrubbed_bytes_total,
                .n_fds_in_flight = from->n_fds_in_flight,
                .n_doubts_total = from->n_doubts,
                .capped_at_extents = from->capped_at_extents,
        };
        memcpy(ret_daemon->version, from->daemon_version, sizeof(ret_daemon->version));
}

void figures_of_pool(const struct wire_pool_row *from, struct hugezero_pool_info *ret_pool) {
        *ret_pool = (struct hugezero_pool_info){
                .node = from->node,
                .page_size_bytes = from->page_size_bytes,
                .extent_bytes = from->extent_bytes,
                .target_bytes = from->target_bytes,
                .ready_bytes = from->ready_bytes,
                .granted_bytes = from->granted_bytes,
                .returned_bytes = from->returned_bytes,
                .filling_bytes = from->filling_bytes,
                .shortfall_bytes = from->shortfall_bytes,
                .pinned_bytes = from->pinned_bytes,
                .kernel_free_bytes = from->kernel_free_bytes,
                .largest_ready_bytes = from->largest_ready_bytes,
                .n_extents_ready = from->n_extents_ready,
                .n_exact_total = from->n_exact,
                .n_cut_total = from->n_cut,
                .n_grown_total = from->n_grown,
                .n_built_total = from->n_built,
                .zeroed_bytes_total = from->zeroed_bytes_total,
                .n_workers = from->n_workers,
                .n_fill_threads = from->n_fill_threads,
                .paced_wait_ms = from->paced_wait_ms,
                .audited_bytes_total = from->audited_bytes_total,
                .n_audit_errors_total = from->n_audit_errors,
                .n_scrub_threads = from->n_scrub_threads,
                .clear_speed = from->clear_speed,
                .clear_survival_percent = from->clear_survival,
        };
        memcpy(ret_pool->name, from->name, sizeof(ret_pool->name));
        memcpy(ret_pool->clear_method, from->clear_method, sizeof(ret_pool->clear_method));
}
