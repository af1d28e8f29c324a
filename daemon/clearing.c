/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The node's choice of method and threads. */
#include <stdio.h>

#include "clearing.h"
#include "config.h"
#include "log.h"
#include "parse.h"

#define SMALL_BYTES (UINT64_C(2) << 20) /* the smallest extents there are on x86-64; and what is left of larger ones */
#define THREADS_NS UINT64_C(60000000)   /* chosen: an attempt to measure two of them takes 5 to 20 ms */
#define MIN_BUDGET_NS UINT64_C(5000000) /* chosen: with less there is nothing to learn */
#define HARM_NS UINT64_C(40000000)      /* chosen: 128 MiB at 10 GB/s for each of three methods */
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

struct clear_figures clearing_background_figures(const struct clearing *clearing, uint64_t extent_bytes) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);
        uint64_t slice_bytes = extent_bytes < clearing->batch_bytes ? extent_bytes : clearing->batch_bytes;

        if (clearing->configured || !calibration)
                return (struct clear_figures) {CLEAR_NOT_MEASURED, CLEAR_NOT_MEASURED};
        return clear_calibration_figures(calibration, slice_bytes);
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

static bool wants_threads(const struct clearing *clearing) {
        return atomic_load(&clearing->n_scrub_threads) == 0;
}

static bool may_measure_threads(const struct clearing *clearing, uint64_t bytes) {
        return wants_threads(clearing) && bytes >= CLEARING_THREADS_MIN_BYTES && left_ns(clearing) >= MIN_BUDGET_NS;
}

/* Nothing is known of it: there was too little memory, or the machine too busy. What is known of one size does for others. */
static bool may_learn_harm(const struct clear_calibration *calibration, uint64_t bytes) {
        for (size_t i = 0; calibration && i < calibration->n_slices; i++)
                if (calibration->is_measured[i] && !clear_calibration_lacks_harm(calibration, i))
                        return false;
        return calibration && bytes >= clear_calibrate_harm_bytes();
}

/*
 * Lock held. What measuring the methods on so much memory may cost; 0: there is nothing to learn from it. Where there will be
 * larger slices, which take longer, two thirds are left for them, and the threads, which may need several attempts, have a share
 * that is kept for them.
 */
static uint64_t budget_ns(const struct clearing *clearing, uint64_t bytes) {
        const struct clear_calibration *calibration = atomic_load(&clearing->calibration);
        uint64_t kept_ns = wants_threads(clearing) ? THREADS_NS : 0, ns;
        bool has_news = false, has_larger = false;

        if (clearing->configured || clearing->n_sessions == CLEARING_MAX_SESSIONS)
                return 0;
        for (size_t i = 0; i < clearing->n_wanted; i++)
                if (!is_measured(calibration, clearing->wanted_bytes[i])) {
                        has_news = has_news || clearing->wanted_bytes[i] <= bytes;
                        has_larger = has_larger || clearing->wanted_bytes[i] > bytes;
                }
        ns = left_ns(clearing) > kept_ns ? left_ns(clearing) - kept_ns : 0;
        if (has_larger)
                ns /= 3;
        return ns >= MIN_BUDGET_NS && (has_news || (ns >= HARM_NS && may_learn_harm(calibration, bytes))) ? ns : 0;
}

bool clearing_is_wanted(const struct clearing *clearing) {
        return !clearing->configured && !atomic_load(&clearing->calibration);
}

/*
 * True: there is something to learn, and until the session is ended nobody else measures. *ret_ns is the budget for the
 * methods, 0: the threads are all there is to measure.
 */
static bool begin_session(struct clearing *clearing, uint64_t bytes, uint64_t *ret_ns) {
        bool may_begin = false;

        (void) pthread_mutex_lock(&clearing->lock);
        if (!clearing->is_measuring) { /* the budget is with whoever measures */
                *ret_ns = budget_ns(clearing, bytes);
                may_begin = *ret_ns > 0 || may_measure_threads(clearing, bytes);
        }
        if (may_begin) {
                clearing->is_measuring = true;
                for (size_t i = 0; i < clearing->n_wanted; i++)
                        (void) clear_calibration_add(&clearing->state, clearing->wanted_bytes[i]);
        }
        (void) pthread_mutex_unlock(&clearing->lock);
        return may_begin;
}

/* How much is known: the speed of a size, and its harm. */
static unsigned n_known(const struct clear_calibration *calibration) {
        unsigned n = 0;

        for (size_t i = 0; calibration && i < calibration->n_slices; i++)
                if (calibration->is_measured[i])
                        n += clear_calibration_lacks_harm(calibration, i) ? 1 : 2;
        return n;
}

/* One that was called off has learnt less, and counts only by its CPU time; so does one for the threads alone. */
static void end_session(struct clearing *clearing, bool is_counted) {
        (void) pthread_mutex_lock(&clearing->lock);
        clearing->is_measuring = false;
        clearing->n_sessions += is_counted;
        if (n_known(&clearing->state) > n_known(atomic_load(&clearing->calibration))) {
                struct clear_calibration *result = &clearing->results[clearing->n_results++];

                *result = clearing->state;
                atomic_store(&clearing->calibration, result);
        }
        (void) pthread_mutex_unlock(&clearing->lock);
}

bool clearing_may_learn(struct clearing *clearing, uint64_t bytes) {
        bool may_learn;

        (void) pthread_mutex_lock(&clearing->lock);
        may_learn = !clearing->is_measuring && (budget_ns(clearing, bytes) > 0 || may_measure_threads(clearing, bytes));
        (void) pthread_mutex_unlock(&clearing->lock);
        return may_learn;
}

static int measure_threads(struct clearing *clearing, void *addr, uint64_t bytes, bool (*stop)(void *userdata), void *userdata) {
        const struct clear_method *method = clearing->configured;
        struct clearing_threads threads;
        int r;

        /* For pieces of the size that is tried: what is best for larger ones may be something else there. */
        if (!method)
                method = clear_calibration_method(&clearing->state, CLEARING_THREADS_PIECE_BYTES);
        r = clearing_threads_measure(method, addr, bytes, stop, userdata, &threads);

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
        int r = 0;

        if ((atomic_load(&clearing->is_probing) && !is_probe) || !begin_session(clearing, bytes, &ns))
                return 0;
        if (ns > 0)
                r = clear_calibrate(&clearing->state, addr, bytes, ns, stop, userdata);
        if (r >= 0 && may_measure_threads(clearing, bytes))
                r = measure_threads(clearing, addr, bytes, stop, userdata);
        end_session(clearing, ns > 0 && r >= 0);
        return r;
}

uint64_t clearing_take_probe(struct clearing *clearing, uint64_t extent_bytes, uint64_t target_bytes, uint64_t page_size_bytes) {
        /* A quarter, as of the first extents of other pools: the rest is filled meanwhile. */
        uint64_t bytes = target_bytes / 4;

        if (bytes > CLEAR_CALIBRATE_BYTES)
                bytes = CLEAR_CALIBRATE_BYTES;
        bytes -= bytes % page_size_bytes;
        if ((!clearing_is_wanted(clearing) && !wants_threads(clearing)) || bytes < CLEARING_THREADS_MIN_BYTES ||
            bytes <= extent_bytes || extent_bytes >= CLEAR_CALIBRATE_BYTES || clearing->n_probes == MAX_PROBES ||
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

        if (clearing->n_fill_threads == 1 && clearing->n_workers > 1) {
                (void) snprintf(text, n_bytes, "1 of %u threads (%.1f GB/s, %.1f with two)", clearing->n_workers,
                                clearing->fill_gb_per_s[0], clearing->fill_gb_per_s[1]);
                return;
        }
        while (threads_of_step(clearing, step) < clearing->n_fill_threads)
                step++;
        describe_threads(text, n_bytes, clearing->n_fill_threads, clearing->n_workers, clearing->fill_gb_per_s[step],
                         clearing->fill_gb_per_s[0]);
}

static void describe_scrubs(const struct clearing *clearing, char *text, size_t n_bytes) {
        const struct clearing_threads *threads = &clearing->scrub_threads;
        unsigned n_worth = atomic_load(&clearing->n_scrub_threads);
        double one = threads->one_gb_per_s, two = threads->two_gb_per_s;
        char piece[FORMAT_SIZE_BYTES];

        if (n_worth == 0 || clearing->n_workers == 1) { /* the figures may just be written */
                describe_threads(text, n_bytes, n_worth, clearing->n_workers, 0, 0);
                return;
        }
        /* Batches and methods of other sizes have figures of their own beside these */
        (void) snprintf(text, n_bytes, "%u of %u threads (%.1f GB/s, %.1f with %s, %s at a time%s)", n_worth,
                        clearing->n_workers, n_worth == 1 ? one : two, n_worth == 1 ? two : one, n_worth == 1 ? "two" : "one",
                        format_size(CLEARING_THREADS_PIECE_BYTES, piece), clearing->n_workers > 2 ? ", two at most" : "");
}

/* Lock held. All attempts to measure the methods are used up. */
static bool has_given_up(const struct clearing *clearing) {
        return left_ns(clearing) < MIN_BUDGET_NS || clearing->n_sessions == CLEARING_MAX_SESSIONS;
}

/* Whether a line would say what is worth knowing, and say it for long. */
static bool may_log(struct clearing *clearing) {
        bool knows_methods = clearing->configured || atomic_load(&clearing->calibration), may_log;

        if (clearing->was_logged)
                return false;
        (void) pthread_mutex_lock(&clearing->lock);
        may_log = !clearing->is_measuring && (knows_methods || has_given_up(clearing)) &&
                  (clearing->is_settled || (clearing->n_fill_threads > 0 && budget_ns(clearing, CLEAR_CALIBRATE_BYTES) == 0 &&
                                           !may_measure_threads(clearing, CLEAR_CALIBRATE_BYTES)));
        (void) pthread_mutex_unlock(&clearing->lock);
        return may_log;
}

void clearing_log(struct clearing *clearing) {
        char fills[96], scrubs[96], methods[CLEAR_CALIBRATE_REASON_BYTES + 64];
        const struct clear_calibration *calibration;

        if (!may_log(clearing))
                return;
        clearing->was_logged = true;
        calibration = atomic_load(&clearing->calibration);
        describe_fills(clearing, fills, sizeof(fills));
        describe_scrubs(clearing, scrubs, sizeof(scrubs));
        if (clearing->configured)
                (void) snprintf(methods, sizeof(methods), "as configured, by %s", clearing->configured->name);
        else if (calibration)
                (void) snprintf(methods, sizeof(methods), "as measured in %u ms, %s",
                                (unsigned) (calibration->used_ns / 1000000), calibration->reason);
        else
                (void) snprintf(methods, sizeof(methods), "as the machine was too busy to measure it, by %s",
                                clear_method_likely()->name);
        log_info(LOG_ID_CLEARING, LOG_FIELDS(LOG_NUMBER("NODE", clearing->node)), "node %d: fills by %s, scrubs by %s; clears, %s",
                 clearing->node, fills, scrubs, methods);
}

void clearing_note_settled(struct clearing *clearing) {
        clearing->is_settled = true;
        clearing_log(clearing);
}
