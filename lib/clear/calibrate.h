/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which method is best is measured where it will be used, and never assumed: processors differ, hypervisors change what they
 * do, and a method that is fast may ruin the caches of whoever runs beside it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clear.h"

#define CLEAR_CALIBRATE_BUDGET_NS UINT64_C(300000000) /* chosen: CPU time that finding out may cost on a node, in all */
#define CLEAR_CALIBRATE_BYTES ((size_t) 128 << 20)    /* memory worth giving; more is not used */
#define CLEAR_CALIBRATE_NEAR_PERCENT 10               /* chosen: this much slower than the fastest is still a candidate */
#define CLEAR_CALIBRATE_HARM_POINTS 30                /* chosen: survival differs by so much or it does not decide */
#define CLEAR_CALIBRATE_NOISE_PERCENT 3               /* chosen: two runs of the same method differ by so much */
#define CLEAR_CALIBRATE_MAX_SLICES 6
#define CLEAR_CALIBRATE_MAX_METHODS 16
#define CLEAR_CALIBRATE_REASON_BYTES 768
#define CLEAR_NOT_MEASURED (-1)

struct clear_figures {
        double gb_per_s;      /* 10^9 bytes per second, the best of several runs; CLEAR_NOT_MEASURED: had no chance, or no time */
        int survival_percent; /* how much of a warm buffer in the L2 cache outlives clearing; CLEAR_NOT_MEASURED */
};

/* What is known; grows with each clear_calibrate(). A copy says what was known then. */
struct clear_calibration {
        size_t n_slices, n_methods;
        size_t slice_bytes[CLEAR_CALIBRATE_MAX_SLICES]; /* ascending */
        bool is_measured[CLEAR_CALIBRATE_MAX_SLICES];   /* for all methods that had a chance */
        const struct clear_method *methods[CLEAR_CALIBRATE_MAX_METHODS];
        struct clear_figures figures[CLEAR_CALIBRATE_MAX_METHODS][CLEAR_CALIBRATE_MAX_SLICES]; /* by method, then slice size */
        const struct clear_method *chosen[CLEAR_CALIBRATE_MAX_SLICES];                         /* one for each slice size */
        char reason[CLEAR_CALIBRATE_REASON_BYTES]; /* one line: what was chosen and why */
        uint64_t used_ns;                          /* CPU time that it took so far */
};

/* The methods that this machine can run, and no slice sizes. */
void clear_calibration_init(struct clear_calibration *calibration);
/* A slice size that is used, a multiple of the base page. -ENOSPC: there are too many. No figures are lost. */
int clear_calibration_add(struct clear_calibration *calibration, size_t slice_bytes);

/**
 * clear_calibrate - measure what is not measured yet
 *
 * Of memory that is not in the caches, as that is which clients give back: it is flushed before each run.
 *
 * @addr:      populated memory of the pool, aligned to the base page; what is zero stays zero
 * @n_bytes:   CLEAR_CALIBRATE_BYTES, or less where there is not so much. Slice sizes that exceed it are left alone; harm is not
 *             measured in less than clear_calibrate_harm_bytes(), and later where there is more.
 * @budget_ns: of the thread's CPU time. What does not fit is left unmeasured; so it is when others have had the CPU for much longer.
 * @stop:      asked before each run of a few ms: true ends it early; NULL: nobody wants that
 *
 * The calling thread must be bound to the node whose memory it is. Chooses anew, however it ends.
 *
 * Returns: 0; -ECANCELED; what clear_pages() returns for memory that cannot be written. What was measured until then stays.
 */
int clear_calibrate(struct clear_calibration *calibration, void *addr, size_t n_bytes, uint64_t budget_ns,
                    bool (*stop)(void *userdata), void *userdata);

/* Harm is told on 8 times the L2 cache, which pushes all else out of it. */
size_t clear_calibrate_harm_bytes(void);
/* Whether the speed of this size is known, and of harm nothing: memory or time did not last for it. */
bool clear_calibration_lacks_harm(const struct clear_calibration *calibration, size_t slice);
/* Of a warm buffer, by the time of a walk through it: while it is warm, while it is cold, and after clearing. */
int clear_survival_percent(uint64_t warm_ns, uint64_t cold_ns, uint64_t took_ns);

/*
 * Sets chosen[] and reason from figures[]: the fastest; but of those within CLEAR_CALIBRATE_NEAR_PERCENT the least harmful,
 * where it keeps CLEAR_CALIBRATE_HARM_POINTS more of the cache than the fastest. Never one that is slower than memset() by more
 * than CLEAR_CALIBRATE_NOISE_PERCENT, and memset() where it is slower than the fastest by no more than that. A size that was
 * not measured takes over the choice for the nearest smaller one that was; without one it is clear_method_likely().
 */
void clear_calibration_choose(struct clear_calibration *calibration);

/*
 * What to use for a slice of @n_bytes: the choice for the largest size that is not larger. For less than there is memset(): what
 * is good for large slices may be bad for small ones.
 */
const struct clear_method *clear_calibration_method(const struct clear_calibration *calibration, size_t n_bytes);
/* What was measured of the method for slices of @n_bytes; CLEAR_NOT_MEASURED for what was not. */
struct clear_figures clear_calibration_figures(const struct clear_calibration *calibration, size_t n_bytes);
