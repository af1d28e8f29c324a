/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "metrics.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { GAUGE, COUNTER };
enum { PIECES, BYTES, SECONDS };

/* Names are without unit and "_total", which their formats treat differently. Those with labels of their own stand together. */
struct metric {
        const char *name, *help;
        uint8_t type, unit, width; /* width: bytes of the figure */
        size_t offset;
        const char *label; /* one more, or NULL */
};

#define METRIC(info, type, unit, name, field, help, label)                                                                     \
        { name, help, type, unit, sizeof(((struct info *) NULL)->field), offsetof(struct info, field), label }
#define DAEMON(type, unit, name, field, help) METRIC(hugezero_daemon_info, type, unit, name, field, help, NULL)
static const struct metric daemon_metrics[] = {
        DAEMON(GAUGE, SECONDS, "uptime", uptime_ms, "Time since the daemon was started."),
        DAEMON(GAUGE, PIECES, "clients", n_clients, "Connections of clients."),
        DAEMON(GAUGE, PIECES, "requests_waiting", n_waiting, "Requests that were not answered yet."),
        DAEMON(GAUGE, PIECES, "grants", n_grants, "Grants of which something is still held."),
        DAEMON(GAUGE, PIECES, "extents_granted", n_extents_granted, "Extents held by clients."),
        DAEMON(GAUGE, PIECES, "descriptors_in_flight", n_fds_in_flight, "Descriptors sent and not yet received."),
        DAEMON(COUNTER, PIECES, "requests_granted", n_granted_total, "Requests that were granted."),
        DAEMON(COUNTER, PIECES, "requests_refused", n_refused_total, "Requests that were refused."),
        DAEMON(COUNTER, BYTES, "granted", granted_bytes_total, "Memory handed out."),
        DAEMON(COUNTER, BYTES, "scrubbed", scrubbed_bytes_total, "Memory zeroed in place for another use by the same service."),
        DAEMON(COUNTER, PIECES, "doubtful_extents", n_doubts_total,
               "Extents given up because something about them was not certain."),
};

#define POOL_LABEL(type, unit, name, field, help, label) METRIC(hugezero_pool_info, type, unit, name, field, help, label)
#define POOL(type, unit, name, field, help) POOL_LABEL(type, unit, name, field, help, NULL)
#define SERVED "Extents handed out: as they were, cut, grown, or built from nothing."
static const struct metric pool_metrics[] = {
        POOL(GAUGE, BYTES, "pool_target", target_bytes, "What the pool is to hold on the node, handed out or not."),
        POOL(GAUGE, BYTES, "pool_ready", ready_bytes, "Memory that is zero and to be had at once."),
        POOL(GAUGE, BYTES, "pool_granted", granted_bytes, "Memory held by clients."),
        POOL(GAUGE, BYTES, "pool_returned", returned_bytes, "Memory that came back and is not zeroed yet."),
        POOL(GAUGE, BYTES, "pool_filling", filling_bytes, "Memory being zeroed by the kernel."),
        POOL(GAUGE, BYTES, "pool_shortfall", shortfall_bytes, "Memory missing because the kernel has no pages for it."),
        POOL(GAUGE, BYTES, "pool_pinned", pinned_bytes,
             "Memory given up of which pages are still pinned by a device or the kernel."),
        POOL(GAUGE, BYTES, "pool_kernel_free", kernel_free_bytes,
             "Free pages of this size that the kernel has on the node, reserved ones left out."),
        POOL(GAUGE, BYTES, "pool_largest_ready", largest_ready_bytes, "The largest extent that is ready."),
        POOL(GAUGE, PIECES, "pool_extents_ready", n_extents_ready, "Extents that are ready."),
        POOL(GAUGE, PIECES, "pool_workers", n_workers, "Threads of the daemon on the node."),
        POOL(GAUGE, PIECES, "pool_fill_threads", n_fill_threads,
             "How many of them are worth filling with; 0 is not measured yet."),
        POOL_LABEL(COUNTER, PIECES, "pool_extents_served", n_exact_total, SERVED, "how=\"exact\""),
        POOL_LABEL(COUNTER, PIECES, "pool_extents_served", n_cut_total, SERVED, "how=\"cut\""),
        POOL_LABEL(COUNTER, PIECES, "pool_extents_served", n_grown_total, SERVED, "how=\"grown\""),
        POOL_LABEL(COUNTER, PIECES, "pool_extents_served", n_built_total, SERVED, "how=\"built\""),
        POOL(COUNTER, BYTES, "pool_zeroed", zeroed_bytes_total, "Memory zeroed by kernel or daemon, for whatever purpose."),
        POOL(COUNTER, SECONDS, "pool_paced_wait", paced_wait_ms,
             "Time for which the pace held back what a request waited for, or was refused for."),
        POOL(COUNTER, BYTES, "pool_audited", audited_bytes_total, "Ready memory that was read a second time."),
        POOL(COUNTER, PIECES, "pool_audit_errors", n_audit_errors_total, "Extents that were not zero then, and were given up."),
};
#define N_DAEMON_METRICS (sizeof(daemon_metrics) / sizeof(daemon_metrics[0]))
#define N_POOL_METRICS (sizeof(pool_metrics) / sizeof(pool_metrics[0]))

static const char *unit_suffix(const struct metric *metric) {
        static const char *const suffixes[] = {[PIECES] = "", [BYTES] = "_bytes", [SECONDS] = "_seconds"};

        return suffixes[metric->unit];
}

static void write_head(FILE *stream, enum metrics_format format, const struct metric *metric) {
        /* OpenMetrics names the family here, the other one the sample. */
        const char *total = metric->type == COUNTER && format == METRICS_PROMETHEUS ? "_total" : "";
        const char *unit = unit_suffix(metric);

        (void) fprintf(stream, "# HELP hugezero_%s%s%s %s\n# TYPE hugezero_%s%s%s %s\n", metric->name, unit, total,
                       metric->help, metric->name, unit, total, metric->type == COUNTER ? "counter" : "gauge");
        if (format == METRICS_OPENMETRICS && metric->unit != PIECES)
                (void) fprintf(stream, "# UNIT hugezero_%s%s %s\n", metric->name, unit, unit + 1);
}

static void write_value(FILE *stream, const struct metric *metric, const void *figures) {
        const char *at = (const char *) figures + metric->offset;
        uint64_t value = metric->width == sizeof(uint32_t) ? *(const uint32_t *) at : *(const uint64_t *) at;

        if (metric->unit == SECONDS)
                (void) fprintf(stream, " %" PRIu64 ".%03" PRIu64 "\n", value / 1000, value % 1000);
        else
                (void) fprintf(stream, " %" PRIu64 "\n", value);
}

/* A label's value, quoted; text that a daemon has sent could contain anything. */
static void write_quoted(FILE *stream, const char *text) {
        (void) fputc('"', stream);
        for (; *text; text++)
                if (*text == '\n')
                        (void) fputs("\\n", stream);
                else if (*text == '"' || *text == '\\')
                        (void) fprintf(stream, "\\%c", *text);
                else
                        (void) fputc(*text, stream);
        (void) fputc('"', stream);
}

/* As the configuration spells it: 2M, 1G. */
static void write_page_size(FILE *stream, uint64_t bytes) {
        static const char *const units[] = {"", "K", "M", "G", "T", NULL};
        size_t unit = 0;

        while (bytes >= 1024 && bytes % 1024 == 0 && units[unit + 1]) {
                bytes /= 1024;
                unit++;
        }
        (void) fprintf(stream, "\"%" PRIu64 "%s\"", bytes, units[unit]);
}

static const char *total_suffix(const struct metric *metric) {
        return metric->type == COUNTER ? "_total" : "";
}

static void write_pool(FILE *stream, const struct metric *metric, const struct hugezero_pool_info *pool) {
        (void) fprintf(stream, "hugezero_%s%s%s{pool=", metric->name, unit_suffix(metric), total_suffix(metric));
        write_quoted(stream, pool->name);
        (void) fprintf(stream, ",node=\"%" PRId32 "\",page_size=", pool->node);
        write_page_size(stream, pool->page_size_bytes);
        if (metric->label)
                (void) fprintf(stream, ",%s", metric->label);
        (void) fputc('}', stream);
        write_value(stream, metric, pool);
}

void metrics_write(FILE *stream, enum metrics_format format, const struct hugezero_daemon_info *daemon,
                   const struct hugezero_pool_info *pools, size_t n_pools) {
        bool open = format == METRICS_OPENMETRICS;

        (void) fprintf(
                stream,
                "# HELP hugezero_build%s Which hugezerod answers.\n# TYPE hugezero_build%s\nhugezero_build_info{version=",
                open ? "" : "_info", open ? " info" : "_info gauge");
        write_quoted(stream, daemon->version);
        (void) fputs("} 1\n", stream);
        for (size_t i = 0; i < N_DAEMON_METRICS; i++) {
                write_head(stream, format, &daemon_metrics[i]);
                (void) fprintf(stream, "hugezero_%s%s%s", daemon_metrics[i].name, unit_suffix(&daemon_metrics[i]),
                               total_suffix(&daemon_metrics[i]));
                write_value(stream, &daemon_metrics[i], daemon);
        }
        for (size_t i = 0; i < N_POOL_METRICS && n_pools > 0; i++) {
                if (i == 0 || strcmp(pool_metrics[i].name, pool_metrics[i - 1].name) != 0)
                        write_head(stream, format, &pool_metrics[i]);
                for (size_t k = 0; k < n_pools; k++)
                        write_pool(stream, &pool_metrics[i], &pools[k]);
        }
        if (open)
                (void) fputs("# EOF\n", stream);
}
