/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The node's choice of method and threads. */
#include <stdio.h>

#include "clearing.h"
#include "config.h"
#include "log.h"

#define SMALL_BYTES (UINT64_C(2) << 20) /* the smallest extents there are on x86-64; and what is left of larger ones */
#define MIN_BYTES (UINT64_C(16) << 20)  /* chosen: less than that says something about caches, not about memory */
#define THREADS_BYTES (UINT64_C(32) << 20) /* chosen: half for each of two */
#define THREADS_NS UINT64_C(40000000)      /* chosen: 0.3 GB at 10 GB/s, what measuring two of them clears */
#define MIN_BUDGET_NS UINT64_C(5000000) /* chosen: with less there is nothing to learn */
#define MAX_PROBES 3                    /* chosen: where clients keep on interrupting, measuring must not cost fills for ever */
#define N_ROUNDS 2                      /* chosen: a number of threads is not condemned for one disturbance */
#define WORTH_PERCENT 10                /* chosen: a thread that gains less costs its CPU more than it gives */

void clearing_init(struct clearing *clearing, const struct config *config, int node, unsigned n_workers) {
        (void) pthread_mutex_init(&clearing->lock, NULL);
        clearing->node = node;
        clearing->configured = config->clear_method;
        clearing->batch_bytes = config->batch_bytes;
        clearing->n_workers = n_workers;
        clearing->n_fill_threads = n_workers == 1 ? 1 : 0;
        clearing->n_scrub_threads = n_workers == 1 ? 1 : 0;
        clear_calibration_init(&clearing->state);
        clearing_want(clearing, SMALL_BYTES);
}

void clearing_done(struct clearing *clearing) {
        (void) pthread_mutex_destroy(&clearing->lock);
}

const struct clear_method *clearing_method(const struct clearing *clearing, uint64_t n_bytes) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);

        if (clearing->configured)
                return clearing->configured;
        if (calibration)
                return clear_calibration_method(calibration, n_bytes);
        return n_bytes < SMALL_BYTES ? clear_method_cached() : clear_method_likely();
}

const struct clear_method *clearing_background_method(const struct clearing *clearing, uint64_t extent_bytes) {
        return clearing_method(clearing, extent_bytes < clearing->batch_bytes ? extent_bytes : clearing->batch_bytes);
}

size_t clearing_batch_pages(const struct clearing *clearing, bool awaited) {
        return (awaited ? CLEARING_UNIT_BYTES : clearing->batch_bytes) / clear_base_page_bytes();
}

/* The slice sizes */

/* A size that a smaller one is as good for is not worth the time. */
static bool is_as_good(uint64_t bytes, uint64_t larger_bytes) {
        return bytes <= larger_bytes && larger_bytes - bytes < bytes / 4;
}

void clearing_want(struct clearing *clearing, uint64_t slice_bytes) {
        size_t n;

        if (slice_bytes > CLEAR_CALIBRATE_BYTES)
                slice_bytes = CLEAR_CALIBRATE_BYTES;
        slice_bytes -= slice_bytes % clear_base_page_bytes();
        (void) pthread_mutex_lock(&clearing->lock);
        n = clearing->n_wanted;
        for (size_t i = 0; i < n; i++)
                if (is_as_good(clearing->wanted_bytes[i], slice_bytes))
                        slice_bytes = 0;
        if (slice_bytes >= SMALL_BYTES && n < CLEAR_CALIBRATE_MAX_SLICES) {
                clearing->wanted_bytes[n] = slice_bytes;
                clearing->n_wanted++;
        }
        (void) pthread_mutex_unlock(&clearing->lock);
}

void clearing_want_extents(struct clearing *clearing, uint64_t extent_bytes, uint64_t target_bytes) {
        uint64_t largest_bytes = extent_bytes > 0 ? extent_bytes : target_bytes - target_bytes / 4;

        clearing_want(clearing, largest_bytes < clearing->batch_bytes ? largest_bytes : clearing->batch_bytes);
        clearing_want(clearing, largest_bytes);
}

/* Measuring */

static bool is_measured(const struct clear_calibration *calibration, uint64_t slice_bytes) {
        for (size_t i = 0; calibration && i < calibration->n_slices; i++)
                if (calibration->slice_bytes[i] == slice_bytes)
                        return calibration->is_measured[i];
        return false;
}

static uint64_t left_ns(const struct clearing *clearing) {
        return clearing->state.used_ns < CLEAR_CALIBRATE_BUDGET_NS ? CLEAR_CALIBRATE_BUDGET_NS - clearing->state.used_ns : 0;
}

static bool wants_threads(const struct clearing *clearing, uint64_t bytes) {
        return atomic_load(&clearing->n_scrub_threads) == 0 && bytes >= THREADS_BYTES;
}

/*
 * Lock held. What measuring on so much memory may cost; 0: there is nothing to learn from it. Where there will be larger slices
 * half is left for them.
 */
static uint64_t budget_ns(const struct clearing *clearing, uint64_t bytes) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);
        bool has_news = false, has_larger = false;

        for (size_t i = 0; i < clearing->n_wanted; i++)
                if (!is_measured(calibration, clearing->wanted_bytes[i])) {
                        has_news = has_news || clearing->wanted_bytes[i] <= bytes;
                        has_larger = has_larger || clearing->wanted_bytes[i] > bytes;
                }
        /* The threads may need several attempts, which must not use up what the sizes need. */
        has_news = has_news || (!has_larger && wants_threads(clearing, bytes));
        if (!has_news || clearing->n_sessions == CLEARING_MAX_SESSIONS || left_ns(clearing) < MIN_BUDGET_NS)
                return 0;
        return has_larger ? left_ns(clearing) / 2 : left_ns(clearing);
}

bool clearing_is_wanted(const struct clearing *clearing) {
        return !clearing->configured && !atomic_load(&clearing->calibration);
}

/* What there is to learn: the budget, and until it is ended nobody else measures. 0: nothing, or somebody else does. */
static uint64_t begin_session(struct clearing *clearing, uint64_t bytes) {
        uint64_t ns = 0;

        (void) pthread_mutex_lock(&clearing->lock);
        if (!clearing->is_measuring)
                ns = budget_ns(clearing, bytes);
        if (ns > 0) {
                clearing->is_measuring = true;
                for (size_t i = 0; i < clearing->n_wanted; i++)
                        (void) clear_calibration_add(&clearing->state, clearing->wanted_bytes[i]);
        }
        (void) pthread_mutex_unlock(&clearing->lock);
        return ns;
}

static unsigned n_measured_slices(const struct clear_calibration *calibration) {
        unsigned n = 0;

        for (size_t i = 0; calibration && i < calibration->n_slices; i++)
                n += calibration->is_measured[i];
        return n;
}

/* One that was called off has learnt less, and counts only by its CPU time. */
static void end_session(struct clearing *clearing, bool is_complete) {
        (void) pthread_mutex_lock(&clearing->lock);
        clearing->is_measuring = false;
        clearing->n_sessions += is_complete;
        if (n_measured_slices(&clearing->state) > n_measured_slices(atomic_load(&clearing->calibration))) {
                struct clear_calibration *result = &clearing->results[clearing->n_results++];

                *result = clearing->state;
                atomic_store(&clearing->calibration, result);
        }
        (void) pthread_mutex_unlock(&clearing->lock);
}

bool clearing_may_learn(struct clearing *clearing, uint64_t bytes) {
        bool may_learn;

        if (clearing->configured || bytes < MIN_BYTES)
                return false;
        (void) pthread_mutex_lock(&clearing->lock);
        may_learn = !clearing->is_measuring && budget_ns(clearing, bytes) > 0;
        (void) pthread_mutex_unlock(&clearing->lock);
        return may_learn;
}

/* The threads have a share that is kept for them. */
static uint64_t calibration_ns(const struct clearing *clearing, uint64_t bytes, uint64_t ns) {
        return !wants_threads(clearing, bytes) ? ns : ns > 2 * THREADS_NS ? ns - THREADS_NS : ns / 2;
}

static int measure_threads(struct clearing *clearing, void *addr, uint64_t bytes, bool (*stop)(void *userdata), void *userdata) {
        struct clearing_threads threads;
        int r = clearing_threads_measure(clear_calibration_method(&clearing->state, clearing->batch_bytes), addr, bytes, stop,
                                         userdata, &threads);

        clearing->state.used_ns += threads.used_ns;
        if (r < 0 || threads.n_worth == 0)
                return r;
        clearing->scrub_threads = threads;
        atomic_store(&clearing->n_scrub_threads, threads.n_worth);
        return 0;
}

unsigned clearing_scrub_threads(const struct clearing *clearing) {
        unsigned n_threads = atomic_load(&clearing->n_scrub_threads);

        return n_threads > 0 ? n_threads : clearing->n_workers;
}

int clearing_measure(struct clearing *clearing, void *addr, uint64_t bytes, bool is_probe, bool (*stop)(void *userdata),
                     void *userdata) {
        uint64_t ns;
        int r;

        if (clearing->configured || bytes < MIN_BYTES || (atomic_load(&clearing->is_probing) && !is_probe))
                return 0;
        ns = begin_session(clearing, bytes);
        if (ns == 0)
                return 0;
        r = clear_calibrate(&clearing->state, addr, bytes, calibration_ns(clearing, bytes, ns), stop, userdata);
        if (r >= 0 && wants_threads(clearing, bytes) && left_ns(clearing) >= THREADS_NS)
                r = measure_threads(clearing, addr, bytes, stop, userdata);
        end_session(clearing, r >= 0);
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

/* @one_gb_per_s 0: was not measured, there is no choice. */
static void describe_threads(char *text, size_t n_bytes, unsigned n_worth, unsigned n_workers, double gb_per_s,
                             double one_gb_per_s) {
        if (n_workers == 1)
                (void) snprintf(text, n_bytes, "1 thread");
        else if (n_worth == 0)
                (void) snprintf(text, n_bytes, "up to %u threads, not measured yet", n_workers);
        else
                (void) snprintf(text, n_bytes, "%u of %u threads (%.1f GB/s, %.1f with one)", n_worth, n_workers, gb_per_s,
                                one_gb_per_s);
}

static void describe_fills(const struct clearing *clearing, char *text, size_t n_bytes) {
        unsigned step = 0;

        while (threads_of_step(clearing, step) < clearing->n_fill_threads)
                step++;
        describe_threads(text, n_bytes, clearing->n_fill_threads, clearing->n_workers, clearing->fill_gb_per_s[step],
                         clearing->fill_gb_per_s[0]);
}

static void describe_scrubs(const struct clearing *clearing, char *text, size_t n_bytes) {
        const struct clearing_threads *threads = &clearing->scrub_threads;
        unsigned n_worth = atomic_load(&clearing->n_scrub_threads);

        if (n_worth == 1 && clearing->n_workers > 1)
                (void) snprintf(text, n_bytes, "1 of %u threads (%.1f GB/s, %.1f with two)", clearing->n_workers,
                                threads->one_gb_per_s, threads->two_gb_per_s);
        else
                describe_threads(text, n_bytes, n_worth, clearing->n_workers, threads->two_gb_per_s, threads->one_gb_per_s);
}

void clearing_log(struct clearing *clearing) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);
        unsigned n_scrub_threads = atomic_load(&clearing->n_scrub_threads);
        char fills[96], scrubs[96];

        if ((clearing->was_logged && calibration == clearing->logged && clearing->n_fill_threads == clearing->n_logged_fill &&
             n_scrub_threads == clearing->n_logged_scrub) ||
            (!calibration && !clearing->configured))
                return;
        clearing->was_logged = true;
        clearing->logged = calibration;
        clearing->n_logged_fill = clearing->n_fill_threads;
        clearing->n_logged_scrub = n_scrub_threads;
        describe_fills(clearing, fills, sizeof(fills));
        describe_scrubs(clearing, scrubs, sizeof(scrubs));
        if (calibration)
                log_info(LOG_ID_CLEARING, LOG_FIELDS(LOG_NUMBER("NODE", clearing->node)),
                         "node %d: fills by %s, scrubs by %s; clears, as measured in %u ms, %s", clearing->node, fills, scrubs,
                         (unsigned) (calibration->used_ns / 1000000), calibration->reason);
        else
                log_info(LOG_ID_CLEARING, LOG_FIELDS(LOG_NUMBER("NODE", clearing->node)),
                         "node %d: fills by %s, scrubs by %s; clears, as configured, by %s", clearing->node, fills, scrubs,
                         clearing->configured->name);
}
