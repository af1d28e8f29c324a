/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The node's choice of method and threads. */
#include <errno.h>
#include <stdio.h>

#include "clearing.h"
#include "config.h"
#include "log.h"

#define SMALL_BYTES (UINT64_C(2) << 20) /* the smallest extents there are on x86-64 */
#define MIN_BYTES (UINT64_C(16) << 20)  /* chosen: less than that says something about caches, not about memory */
#define MAX_PROBES 3                    /* chosen: where clients keep on interrupting, measuring must not cost fills for ever */
#define N_ROUNDS 2                      /* chosen: a number of threads is not condemned for one disturbance */
#define WORTH_PERCENT 10                /* chosen: a thread that gains less costs its CPU more than it gives */

void clearing_init(struct clearing *clearing, const struct config *config, int node, unsigned n_workers) {
        clearing->node = node;
        clearing->configured = config->clear_method;
        clearing->batch_bytes = config->batch_bytes - config->batch_bytes % SMALL_BYTES;
        clearing->n_workers = n_workers;
        clearing->n_fill_threads = n_workers == 1 ? 1 : 0;
}

const struct clear_method *clearing_method(const struct clearing *clearing, uint64_t n_bytes) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);

        if (clearing->configured)
                return clearing->configured;
        return calibration ? clear_calibration_method(calibration, n_bytes) : clear_method_cached();
}

size_t clearing_batch_pages(const struct clearing *clearing, bool awaited) {
        return (awaited ? CLEARING_UNIT_BYTES : clearing->batch_bytes) / clear_base_page_bytes();
}

/* The method */

bool clearing_is_wanted(const struct clearing *clearing) {
        return !clearing->configured && !atomic_load(&clearing->calibration);
}

/* The slice sizes that are really used, as far as the memory shows them: of small extents, of large ones, of whole ones. */
static size_t slice_sizes(const struct clearing *clearing, uint64_t bytes, size_t ret_bytes[CLEAR_CALIBRATE_MAX_SLICES]) {
        size_t n = 0;

        ret_bytes[n++] = SMALL_BYTES;
        if (clearing->batch_bytes > SMALL_BYTES && clearing->batch_bytes <= bytes)
                ret_bytes[n++] = clearing->batch_bytes;
        if (CLEAR_CALIBRATE_BYTES > clearing->batch_bytes && CLEAR_CALIBRATE_BYTES <= bytes)
                ret_bytes[n++] = CLEAR_CALIBRATE_BYTES;
        return n;
}

/* Each result knows more slice sizes than the one before: there cannot be more of them than sizes. */
static bool is_news(const struct clearing *clearing, size_t n_slices) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);

        return !clearing->configured && (!calibration || n_slices > calibration->n_slices);
}

int clearing_measure(struct clearing *clearing, void *addr, uint64_t bytes, bool is_probe, bool (*stop)(void *userdata),
                     void *userdata) {
        size_t slice_bytes[CLEAR_CALIBRATE_MAX_SLICES], n_slices = slice_sizes(clearing, bytes, slice_bytes);
        struct clear_calibration *result;
        int r = 0;

        if (bytes < MIN_BYTES || (atomic_load(&clearing->is_probing) && !is_probe) || !is_news(clearing, n_slices) ||
            atomic_exchange(&clearing->is_measuring, true))
                return 0;
        if (is_news(clearing, n_slices)) { /* another one may have ended between the question and the flag */
                result = &clearing->results[clearing->n_results];
                r = clear_calibrate_until(addr, bytes, slice_bytes, n_slices, stop, userdata, result);
                if (r >= 0) {
                        clearing->n_results++;
                        atomic_store(&clearing->calibration, result);
                }
        }
        atomic_store(&clearing->is_measuring, false);
        return r;
}

uint64_t clearing_take_probe(struct clearing *clearing, uint64_t extent_bytes, uint64_t target_bytes, uint64_t page_size_bytes) {
        /* A quarter, as of the first extents of other pools: the rest is filled meanwhile. */
        uint64_t bytes = target_bytes / 4;

        if (bytes > CLEAR_CALIBRATE_BYTES)
                bytes = CLEAR_CALIBRATE_BYTES;
        bytes -= bytes % page_size_bytes;
        if (!clearing_is_wanted(clearing) || bytes < MIN_BYTES || bytes <= extent_bytes || clearing->n_probes == MAX_PROBES ||
            atomic_load(&clearing->is_probing))
                return 0;
        clearing->n_probes++;
        atomic_store(&clearing->is_probing, true);
        return bytes;
}

void clearing_end_probe(struct clearing *clearing) {
        atomic_store(&clearing->is_probing, false);
}

/* The threads */

static unsigned n_steps(const struct clearing *clearing) {
        unsigned n = 0;

        while (1u << n < clearing->n_workers)
                n++;
        return n + 1;
}

static unsigned threads_of_step(const struct clearing *clearing, unsigned step) {
        return 1u << step < clearing->n_workers ? 1u << step : clearing->n_workers;
}

unsigned clearing_threads_to_measure(const struct clearing *clearing) {
        if (clearing->n_fill_threads > 0)
                return 0;
        return threads_of_step(clearing, clearing->n_measured % n_steps(clearing));
}

/* The fewest that no larger number beats by enough. */
static unsigned threads_worth(const struct clearing *clearing) {
        unsigned worth = 0;

        for (unsigned step = 1; step < n_steps(clearing); step++)
                if (clearing->fill_gb_per_s[step] * 100 >= clearing->fill_gb_per_s[worth] * (100 + WORTH_PERCENT))
                        worth = step;
        return threads_of_step(clearing, worth);
}

void clearing_note_fill(struct clearing *clearing, uint64_t bytes, uint64_t took_ns) {
        unsigned step = clearing->n_measured % n_steps(clearing);
        double gb_per_s = took_ns > 0 ? (double) bytes / (double) took_ns : 0;

        if (clearing->n_fill_threads > 0)
                return;
        if (gb_per_s > clearing->fill_gb_per_s[step])
                clearing->fill_gb_per_s[step] = gb_per_s;
        if (++clearing->n_measured == N_ROUNDS * n_steps(clearing))
                clearing->n_fill_threads = threads_worth(clearing);
}

unsigned clearing_fill_threads(const struct clearing *clearing) {
        return clearing->n_fill_threads > 0 ? clearing->n_fill_threads : clearing->n_workers;
}

/* What is known */

static void describe_threads(const struct clearing *clearing, char *text, size_t n_bytes) {
        unsigned step = 0;

        if (clearing->n_measured == 0 || clearing->n_fill_threads == 0) {
                (void) snprintf(text, n_bytes, "%u of %u threads", clearing_fill_threads(clearing), clearing->n_workers);
                return;
        }
        while (threads_of_step(clearing, step) < clearing->n_fill_threads)
                step++;
        (void) snprintf(text, n_bytes, "%u of %u threads (%.1f GB/s, %.1f with one)", clearing->n_fill_threads,
                        clearing->n_workers, clearing->fill_gb_per_s[step], clearing->fill_gb_per_s[0]);
}

void clearing_log(struct clearing *clearing) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);
        char threads[96];

        if ((clearing->was_logged && calibration == clearing->logged) || (!calibration && !clearing->configured))
                return;
        clearing->was_logged = true;
        clearing->logged = calibration;
        describe_threads(clearing, threads, sizeof(threads));
        if (calibration)
                log_info(LOG_ID_CLEARING, LOG_FIELDS(LOG_NUMBER("NODE", clearing->node)),
                         "node %d: fills by %s; clears, as measured in %u ms, %s", clearing->node, threads, calibration->took_ms,
                         calibration->reason);
        else
                log_info(LOG_ID_CLEARING, LOG_FIELDS(LOG_NUMBER("NODE", clearing->node)),
                         "node %d: fills by %s; clears, as configured, by %s", clearing->node, threads,
                         clearing->configured->name);
}
