/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl status: the pools, node by node, and the daemon's counters. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "ctl.h"
#include "parse.h"

static const char help[] = "Usage: hugezeroctl status [OPTIONS]\n"
                           "\n"
                           "Shows each pool on each node, limits with their use, and the daemon's counters.\n"
                           "\n"
                           "Options:\n"
                           "  --json          one JSON object, sizes in bytes\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n";

/* The figures that can be added up over the pools of a node. */
static const struct {
        const char *key;
        size_t offset;
} sums[] = {
        {"target_bytes", offsetof(struct hugezero_pool_info, target_bytes)},
        {"ready_bytes", offsetof(struct hugezero_pool_info, ready_bytes)},
        {"granted_bytes", offsetof(struct hugezero_pool_info, granted_bytes)},
        {"returned_bytes", offsetof(struct hugezero_pool_info, returned_bytes)},
        {"filling_bytes", offsetof(struct hugezero_pool_info, filling_bytes)},
        {"shortfall_bytes", offsetof(struct hugezero_pool_info, shortfall_bytes)},
        {"pinned_bytes", offsetof(struct hugezero_pool_info, pinned_bytes)},
};
#define N_SUMS (sizeof(sums) / sizeof(sums[0]))

static uint64_t figure(const struct hugezero_pool_info *pool, size_t offset) {
        return *(const uint64_t *) ((const char *) pool + offset);
}

static json_t *pool_to_json(const struct hugezero_pool_info *pool) {
        json_t *json = json_pack("{s:s, s:i, s:I, s:I}", "name", pool->name, "node", (int) pool->node, "page_size_bytes",
                                 (json_int_t) pool->page_size_bytes, "extent_bytes", (json_int_t) pool->extent_bytes);
        for (size_t idx = 0; json && idx < N_SUMS; idx++)
                (void) json_object_set_new(json, sums[idx].key, json_integer((json_int_t) figure(pool, sums[idx].offset)));
        _cleanup_json_ json_t *more =
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "kernel_free_bytes", (json_int_t) pool->kernel_free_bytes,
                          "largest_ready_bytes", (json_int_t) pool->largest_ready_bytes, "extents_ready",
                          (json_int_t) pool->n_extents_ready, "exact", (json_int_t) pool->n_exact_total, "cut",
                          (json_int_t) pool->n_cut_total, "grown", (json_int_t) pool->n_grown_total, "built",
                          (json_int_t) pool->n_built_total, "zeroed_bytes", (json_int_t) pool->zeroed_bytes_total);
        _cleanup_json_ json_t *node = json_pack("{s:s?, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I}", "clear_method",
                                                *pool->clear_method ? pool->clear_method : NULL, "clear_gb_per_s",
                                                pool->clear_speed > 0 ? json_real(pool->clear_speed / 10.0) : json_null(),
                                                "clear_survival_percent",
                                                pool->clear_survival_percent != UINT16_MAX ?
                                                        json_integer(pool->clear_survival_percent) :
                                                        json_null(),
                                                "workers",
                                                (json_int_t) pool->n_workers, "fill_threads", (json_int_t) pool->n_fill_threads,
                                                "scrub_threads", (json_int_t) pool->n_scrub_threads,
                                                "paced_wait_ms", (json_int_t) pool->paced_wait_ms, "audited_bytes",
                                                (json_int_t) pool->audited_bytes_total, "audit_errors",
                                                (json_int_t) pool->n_audit_errors_total);
        if (json && more && node) {
                (void) json_object_update(json, more);
                (void) json_object_update(json, node);
        }
        return json;
}

static json_t *node_to_json(int32_t node, const struct hugezero_pool_info *pools, size_t n_pools) {
        json_t *json = json_pack("{s:i}", "node", (int) node);
        for (size_t idx = 0; json && idx < N_SUMS; idx++) {
                uint64_t sum = 0;
                for (size_t pool = 0; pool < n_pools; pool++)
                        sum += pools[pool].node == node ? figure(&pools[pool], sums[idx].offset) : 0;
                (void) json_object_set_new(json, sums[idx].key, json_integer((json_int_t) sum));
        }
        return json;
}

static json_t *nodes_to_json(const struct hugezero_pool_info *pools, size_t n_pools) {
        json_t *json = json_array();
        for (int32_t node = -1;;) {
                int32_t next = INT32_MAX;
                for (size_t idx = 0; idx < n_pools; idx++)
                        if (pools[idx].node > node && pools[idx].node < next)
                                next = pools[idx].node;
                if (next == INT32_MAX)
                        return json;
                (void) json_array_append_new(json, node_to_json(next, pools, n_pools));
                node = next;
        }
}

static const char *const limit_names[] = {
        [HUGEZERO_LIMIT_BYTES] = "bytes",     [HUGEZERO_LIMIT_GRANTS] = "grants",     [HUGEZERO_LIMIT_CONNECTIONS] = "connections",
        [HUGEZERO_LIMIT_WAITING] = "waiting", [HUGEZERO_LIMIT_REQUESTS] = "requests", [HUGEZERO_LIMIT_FDS_IN_FLIGHT] = "fds_in_flight",
};

/* 0: it is no limit of a page size. */
static uint64_t limit_page_size(uint32_t kind) {
        return kind >= HUGEZERO_LIMIT_PAGES && kind < HUGEZERO_LIMIT_PAGES + 64 ? UINT64_C(1) << (kind - HUGEZERO_LIMIT_PAGES) : 0;
}

/* The next row that this program has a name for. *idx begins with 0. */
static bool next_limit(const struct hugezero_status *status, uint32_t *idx, struct hugezero_limit_info *ret_limit) {
        while (*idx < hugezero_status_get_n_limits(status)) {
                *ret_limit = (struct hugezero_limit_info){.struct_bytes = sizeof(*ret_limit)};
                if (hugezero_status_get_limit(status, (*idx)++, ret_limit) >= 0 &&
                    (limit_page_size(ret_limit->kind) != 0 ||
                     (ret_limit->kind < sizeof(limit_names) / sizeof(limit_names[0]) && limit_names[ret_limit->kind])))
                        return true;
        }
        return false;
}

static json_t *limits_to_json(const struct hugezero_status *status) {
        struct hugezero_limit_info limit;
        json_t *json = json_array();

        for (uint32_t idx = 0; next_limit(status, &idx, &limit);) {
                uint64_t page_size_bytes = limit_page_size(limit.kind);
                json_t *row = json_pack("{s:o, s:s, s:I, s:o}", "uid",
                                        limit.uid == HUGEZERO_ALL_USERS ? json_null() : json_integer(limit.uid), "kind",
                                        page_size_bytes ? "page_bytes" : limit_names[limit.kind], "used", (json_int_t) limit.used,
                                        "limit",
                                        limit.limit == HUGEZERO_NO_LIMIT ? json_null() : json_integer((json_int_t) limit.limit));

                if (page_size_bytes)
                        (void) json_object_set_new(row, "page_size_bytes", json_integer((json_int_t) page_size_bytes));
                (void) json_array_append_new(json, row);
        }
        return json;
}

static int print_json(const struct hugezero_status *status, const struct hugezero_daemon_info *daemon,
                      const struct hugezero_pool_info *pools, size_t n_pools) {
        json_t *rows = json_array();
        for (size_t idx = 0; idx < n_pools; idx++)
                (void) json_array_append_new(rows, pool_to_json(&pools[idx]));
        json_t *counters =
                json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "granted", (json_int_t) daemon->n_granted_total,
                          "refused", (json_int_t) daemon->n_refused_total, "exact", (json_int_t) daemon->n_exact_total, "cut",
                          (json_int_t) daemon->n_cut_total, "grown", (json_int_t) daemon->n_grown_total, "built",
                          (json_int_t) daemon->n_built_total, "zeroed_bytes", (json_int_t) daemon->zeroed_bytes_total,
                          "granted_bytes", (json_int_t) daemon->granted_bytes_total, "scrubbed_bytes",
                          (json_int_t) daemon->scrubbed_bytes_total, "doubts", (json_int_t) daemon->n_doubts_total);
        json_t *ratio = daemon->granted_bytes_total
                                ? json_real((double) daemon->zeroed_bytes_total / (double) daemon->granted_bytes_total)
                                : json_null();
        return ctl_print_json(json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "version", daemon->version,
                                        "uptime_ms", (json_int_t) daemon->uptime_ms, "clients", (json_int_t) daemon->n_clients,
                                        "waiting", (json_int_t) daemon->n_waiting, "grants", (json_int_t) daemon->n_grants,
                                        "extents_granted", (json_int_t) daemon->n_extents_granted, "fds_in_flight",
                                        (json_int_t) daemon->n_fds_in_flight, "capped_at_extents",
                                        (json_int_t) daemon->capped_at_extents, "nodes", nodes_to_json(pools, n_pools), "pools",
                                        rows, "limits", limits_to_json(status), "counters", counters, "zeroed_per_granted_byte", ratio));
}

static int print_pools(const struct hugezero_pool_info *pools, size_t n_pools) {
        static const struct ctl_column columns[] = {
                {"POOL", false},   {"NODE", true},     {"PAGE", true},    {"EXTENT", true}, {"TARGET", true}, {"READY", true},
                {"GRANTED", true}, {"RETURNED", true}, {"FILLING", true}, {"SHORT", true},  {"PINNED", true}, {"LARGEST", true},
        };
        struct libscols_table *table = ctl_table_new(columns, sizeof(columns) / sizeof(columns[0]));
        for (size_t idx = 0; idx < n_pools; idx++) {
                const struct hugezero_pool_info *pool = &pools[idx];
                const uint64_t sizes[] = {pool->page_size_bytes,    pool->extent_bytes,    pool->target_bytes,
                                          pool->ready_bytes,        pool->granted_bytes,   pool->returned_bytes,
                                          pool->filling_bytes,      pool->shortfall_bytes, pool->pinned_bytes,
                                          pool->largest_ready_bytes};
                char node[16], texts[sizeof(sizes) / sizeof(sizes[0])][FORMAT_SIZE_BYTES];
                const char *cells[2 + sizeof(sizes) / sizeof(sizes[0])] = {pool->name, node};
                (void) snprintf(node, sizeof(node), "%" PRId32, pool->node);
                for (size_t at = 0; at < sizeof(sizes) / sizeof(sizes[0]); at++)
                        cells[2 + at] = at == 1 && !sizes[at] ? "auto" : format_size(sizes[at], texts[at]);
                (void) ctl_table_add(table, cells, sizeof(cells) / sizeof(cells[0]));
        }
        return ctl_table_print(table);
}

static const char *format_amount(uint32_t kind, uint64_t amount, char buffer[FORMAT_SIZE_BYTES]) {
        if (amount == HUGEZERO_NO_LIMIT)
                return "none";
        if (kind == HUGEZERO_LIMIT_BYTES || limit_page_size(kind) != 0)
                return format_size(amount, buffer);
        (void) snprintf(buffer, FORMAT_SIZE_BYTES, "%" PRIu64, amount);
        return buffer;
}

static int print_limits(const struct hugezero_status *status) {
        static const struct ctl_column columns[] = {{"UID", true}, {"LIMIT", false}, {"USED", true}, {"MAX", true}};
        struct libscols_table *table = ctl_table_new(columns, sizeof(columns) / sizeof(columns[0]));
        struct hugezero_limit_info limit;

        for (uint32_t idx = 0; next_limit(status, &idx, &limit);) {
                char uid[16], used[FORMAT_SIZE_BYTES], max[FORMAT_SIZE_BYTES], size[FORMAT_SIZE_BYTES], pages[FORMAT_SIZE_BYTES + 8];
                uint64_t page_size_bytes = limit_page_size(limit.kind);
                const char *cells[] = {
                        limit.uid == HUGEZERO_ALL_USERS ? "all" : uid, page_size_bytes ? pages : limit_names[limit.kind],
                        format_amount(limit.kind, limit.used, used), format_amount(limit.kind, limit.limit, max)};

                (void) snprintf(uid, sizeof(uid), "%" PRIu32, limit.uid);
                (void) snprintf(pages, sizeof(pages), "%s pages", format_size(page_size_bytes, size));
                (void) ctl_table_add(table, cells, sizeof(cells) / sizeof(cells[0]));
        }
        return ctl_table_print(table);
}

/* Once for each node, whose pools share its threads. */
static void print_nodes(const struct hugezero_status *status, const struct hugezero_pool_info *pools, size_t n_pools) {
        for (size_t idx = 0; idx < n_pools; idx++) {
                uint64_t paced_wait_ms = 0, audited_bytes = 0, n_audit_errors = 0;
                char audited[FORMAT_SIZE_BYTES];
                bool is_first = true;
                for (size_t other = 0; other < n_pools; other++) {
                        if (pools[other].node != pools[idx].node)
                                continue;
                        is_first = is_first && other >= idx;
                        paced_wait_ms += pools[other].paced_wait_ms;
                        audited_bytes += pools[other].audited_bytes_total;
                        n_audit_errors += pools[other].n_audit_errors_total;
                }
                if (!is_first)
                        continue;
                char fills[CTL_THREADS_BYTES], scrubs[CTL_THREADS_BYTES];
                _cleanup_free_ char *methods = ctl_new_methods_text(status, pools[idx].node);
                printf("node %" PRId32 ": clears by %s, fills by %s, scrubs by %s; requests lacked paced memory for %" PRIu64
                       " ms; audited %s, errors %" PRIu64 "\n",
                       pools[idx].node, methods ? methods : "-",
                       ctl_format_threads(pools[idx].n_fill_threads, pools[idx].n_workers, fills),
                       ctl_format_threads(pools[idx].n_scrub_threads, pools[idx].n_workers, scrubs), paced_wait_ms,
                       format_size(audited_bytes, audited), n_audit_errors);
        }
}

static int print_text(const struct hugezero_status *status, const struct hugezero_daemon_info *daemon,
                      const struct hugezero_pool_info *pools, size_t n_pools) {
        char uptime[CTL_AGE_BYTES], zeroed[FORMAT_SIZE_BYTES], granted[FORMAT_SIZE_BYTES], scrubbed[FORMAT_SIZE_BYTES];
        printf("hugezerod %s, up %s\n", daemon->version, ctl_format_age(daemon->uptime_ms, uptime));
        printf("clients %" PRIu64 ", requests waiting %" PRIu64 ", grants %" PRIu64 " with %" PRIu64 " extent%s\n",
               daemon->n_clients, daemon->n_waiting, daemon->n_grants, daemon->n_extents_granted,
               plural_s(daemon->n_extents_granted));
        int exit_code = print_pools(pools, n_pools);
        if (exit_code == CTL_EXIT_OK)
                exit_code = print_limits(status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        if (daemon->capped_at_extents)
                printf("the pools stop at %" PRIu64 " extent%s: hugezerod may open too few files; raise LimitNOFILE= (ulimit -n), or "
                       "ExtentSize=\n", daemon->capped_at_extents, plural_s(daemon->capped_at_extents));
        print_nodes(status, pools, n_pools);
        printf("since start: granted %" PRIu64 ", refused %" PRIu64 "; extents exact %" PRIu64 ", cut %" PRIu64
               ", grown %" PRIu64 ", built %" PRIu64 "\n",
               daemon->n_granted_total, daemon->n_refused_total, daemon->n_exact_total, daemon->n_cut_total,
               daemon->n_grown_total, daemon->n_built_total);
        printf("since start: zeroed %s (scrubbed %s), granted %s", format_size(daemon->zeroed_bytes_total, zeroed),
               format_size(daemon->scrubbed_bytes_total, scrubbed), format_size(daemon->granted_bytes_total, granted));
        if (daemon->granted_bytes_total)
                printf("; %.2f zeroed per granted byte",
                       (double) daemon->zeroed_bytes_total / (double) daemon->granted_bytes_total);
        (void) putchar('\n');
        return CTL_EXIT_OK;
}

int ctl_verb_status(struct ctl *ctl, int argc, char *argv[]) {
        static const struct option options[] = {CTL_OPTIONS_COMMON, CTL_OPTIONS_JSON, {}};
        int exit_code = ctl_take_options(ctl, argc, argv, options, help);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        _cleanup_status_ struct hugezero_status *status = NULL;
        exit_code = ctl_connect_and_read(ctl, &conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;

        struct hugezero_daemon_info daemon;
        _cleanup_free_ struct hugezero_pool_info *pools = NULL;
        size_t n_pools;
        exit_code = ctl_get_figures(ctl, status, &daemon, &pools, &n_pools);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        return ctl->json ? print_json(status, &daemon, pools, n_pools) : print_text(status, &daemon, pools, n_pools);
}
