/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was measured on one node, and what follows from it: the method that clears memory which came back, and how many threads
 * are worth filling with. The method is measured by one worker on populated memory, which is zero already, for every slice size
 * that is used, as soon as there is so much memory at once: all of it together within CLEAR_CALIBRATE_BUDGET_NS. What could not
 * be measured then has further chances. So it is with the threads that clear, one or two; those that fill are measured by the loop
 * thread, which lets parts of the first large fill be done by one, two, four ... of them.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "calibrate.h"
#include "clearing-threads.h"

struct config;

#define CLEARING_UNIT_BYTES (UINT64_C(1) << 30) /* chosen: 0.1 s at 10 GB/s; for a waiting client an extent is one unit up to here */
#define CLEARING_MAX_SESSIONS 8                /* chosen: a size that is not measured after so many will not be */
#define CLEARING_MAX_STEPS 8                    /* 1, 2, 4 ... 64 threads and whatever is the most */

struct clearing {
        int node;
        const struct clear_method *configured; /* ClearMethod=; NULL: auto */
        uint64_t batch_bytes;                  /* Batch= */
        /* One of @results, set by a worker; later ones know more slice sizes. None changes any more. NULL: not measured yet. */
        _Atomic(const struct clear_calibration *) calibration;
        _Atomic bool is_probing;
        pthread_mutex_t lock; /* guards the next eight; @state is with whoever has set is_measuring */
        uint64_t wanted_bytes[CLEAR_CALIBRATE_MAX_SLICES];
        size_t n_wanted;
        bool is_measuring;
        struct clear_calibration state;
        struct clear_calibration results[2 * CLEAR_CALIBRATE_MAX_SLICES]; /* each knows a size or its harm more: no more are possible */
        unsigned n_results;
        unsigned n_sessions;
        struct clearing_threads scrub_threads; /* before n_scrub_threads is set */
        _Atomic unsigned n_scrub_threads;      /* worth using while nobody waits; 0: not measured yet */
        /* Loop thread only, from here on */
        unsigned n_workers;
        unsigned n_fill_threads; /* worth using; 0: not measured yet */
        unsigned n_measured;     /* how many figures there are, of as many rounds as it takes */
        double fill_gb_per_s[CLEARING_MAX_STEPS]; /* by 1 << i threads, the last one by n_workers; the best round counts */
        unsigned n_probes;       /* extents that were filled for measuring alone */
        bool is_settled;         /* as clearing_note_settled() was told */
        bool was_logged;
};

void clearing_init(struct clearing *clearing, const struct config *config, int node, unsigned n_workers);

void clearing_done(struct clearing *clearing);

/* Any thread. For a slice of @n_bytes; clear_method_likely() until there is something better. */
const struct clear_method *clearing_method(const struct clearing *clearing, uint64_t n_bytes);
/* Any thread. For an extent that nobody waits for: it is cleared in batches, or is less than one. */
const struct clear_method *clearing_background_method(const struct clearing *clearing, uint64_t extent_bytes);
/* Any thread. What was measured of that method; CLEAR_NOT_MEASURED for what was not. */
struct clear_figures clearing_background_figures(const struct clearing *clearing, uint64_t extent_bytes);
/* Any thread. Base pages of a slice; for CLEARING_UNIT_BYTES where a client waits. */
size_t clearing_batch_pages(const struct clearing *clearing, bool awaited);

/* Any thread. Slices of this size are used, and are to be measured. */
void clearing_want(struct clearing *clearing, uint64_t slice_bytes);
/* Any thread. The same for the slices of a pool; @extent_bytes 0: any, but hardly more than three quarters of the target. */
void clearing_want_extents(struct clearing *clearing, uint64_t extent_bytes, uint64_t target_bytes);

/* Any thread. Whether nothing is known of the methods yet. */
bool clearing_is_wanted(const struct clearing *clearing);
/* Any thread. How many scrubs at a time while nobody waits for one. */
unsigned clearing_scrub_threads(const struct clearing *clearing);
/* Any thread. Whether clearing_measure() would learn something on so much memory. */
bool clearing_may_learn(struct clearing *clearing, uint64_t bytes);
/*
 * Worker thread of the node. Measures on populated memory, where there is something to learn from so much of it and nobody else
 * is at it. What was zero is zero afterwards. When @stop(userdata) says so it ends early, with -ECANCELED.
 */
int clearing_measure(struct clearing *clearing, void *addr, uint64_t bytes, bool is_probe, bool (*stop)(void *userdata),
                     void *userdata);
/*
 * Loop thread. How much to fill for measuring alone, where the extents of a pool are too small; 0: nothing, or no longer. While
 * there is such a probe nothing less is measured.
 */
uint64_t clearing_take_probe(struct clearing *clearing, uint64_t extent_bytes, uint64_t target_bytes, uint64_t page_size_bytes);
/* Loop thread. It is filled and measured, or has failed. */
void clearing_end_probe(struct clearing *clearing);

/* Loop thread. By how many threads the next part of a large fill should be done to learn from it; 0: all is known. */
unsigned clearing_threads_to_measure(const struct clearing *clearing);
/* And what came of it. */
void clearing_note_fill(struct clearing *clearing, uint64_t bytes, uint64_t took_ns);
/* Loop thread. By how many threads to fill in the background. */
unsigned clearing_fill_threads(const struct clearing *clearing);

/* Loop thread. The node's pools have been filled, as far as there are pages, and idle: from here on chances to learn are rare. */
void clearing_note_settled(struct clearing *clearing);
/* Loop thread. One line for each node, as soon as there is no more to learn, or not soon. */
void clearing_log(struct clearing *clearing);
