/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which method is best is measured where it will be used, and never assumed: processors differ, hypervisors change what they
 * do, and a method that is fast may ruin the caches of whoever runs beside it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "clear.h"

#define CLEAR_CALIBRATE_BUDGET_MS 300              /* chosen: what a start may cost; less for less memory */
#define CLEAR_CALIBRATE_BYTES ((size_t) 128 << 20) /* memory worth giving; more is not used */
#define CLEAR_CALIBRATE_NEAR_PERCENT 10            /* chosen: this much slower than the fastest is still a candidate */
#define CLEAR_CALIBRATE_HARM_POINTS 30             /* chosen: survival differs by so much or it does not decide */
#define CLEAR_CALIBRATE_NOISE_PERCENT 3            /* chosen: two runs of the same method differ by so much */
#define CLEAR_CALIBRATE_MAX_SLICES 4
#define CLEAR_CALIBRATE_MAX_METHODS 16
#define CLEAR_CALIBRATE_REASON_BYTES 512
#define CLEAR_NOT_MEASURED (-1)

struct clear_figures {
        double gb_per_s; /* 10^9 bytes per second, median of several runs; CLEAR_NOT_MEASURED: not available, or no time left */
        int survival_percent; /* how much of a warm buffer in the L2 cache outlives clearing; CLEAR_NOT_MEASURED */
};

struct clear_calibration {
        size_t n_slices, n_methods;
        size_t slice_bytes[CLEAR_CALIBRATE_MAX_SLICES]; /* ascending */
        const struct clear_method *methods[CLEAR_CALIBRATE_MAX_METHODS];
        struct clear_figures figures[CLEAR_CALIBRATE_MAX_METHODS][CLEAR_CALIBRATE_MAX_SLICES]; /* by method, then slice size */
        const struct clear_method *chosen[CLEAR_CALIBRATE_MAX_SLICES];                         /* one for each slice size */
        char reason[CLEAR_CALIBRATE_REASON_BYTES]; /* one line: what was chosen and why */
        unsigned took_ms;
};

/**
 * clear_calibrate - measure every available method
 * @addr:        populated memory of the pool, aligned to the base page; on success it is zero afterwards
 * @n_bytes:     CLEAR_CALIBRATE_BYTES, or less where there is not so much. A slice size that exceeds it is measured
 *               with what there is; harm is not measured in less than 8 times the L2 cache.
 * @slice_bytes: the slice sizes that will be used, ascending, multiples of the base page
 * @n_slices:    1 to CLEAR_CALIBRATE_MAX_SLICES
 *
 * The calling thread must be bound to the node whose memory it is, and does nothing else for CLEAR_CALIBRATE_BUDGET_MS at most.
 * What does not fit into the budget is left unmeasured: the harm of slow methods first.
 *
 * Returns: 0; -EINVAL for sizes that make no sense; what clear_pages() returns for memory that cannot be written.
 */
int clear_calibrate(void *addr, size_t n_bytes, const size_t *slice_bytes, size_t n_slices,
                    struct clear_calibration *ret_calibration);
/* The same; ends with -ECANCELED soon after @stop(userdata), asked before each run of a few ms, has said true. What was zero is. */
int clear_calibrate_until(void *addr, size_t n_bytes, const size_t *slice_bytes, size_t n_slices, bool (*stop)(void *userdata),
                          void *userdata, struct clear_calibration *ret_calibration);

/*
 * Sets chosen[] and reason from figures[]: the fastest; but of those within CLEAR_CALIBRATE_NEAR_PERCENT the least harmful,
 * where it keeps CLEAR_CALIBRATE_HARM_POINTS more of the cache than the fastest. Never one that is slower than memset(), and
 * memset() where it is as fast as the fastest but for CLEAR_CALIBRATE_NOISE_PERCENT, or where nothing was measured.
 */
void clear_calibration_choose(struct clear_calibration *calibration);

/*
 * What to use for a slice of @n_bytes: the choice for the largest measured size that is not larger. For less than was measured
 * memset(): what is good for large slices may be bad for small ones.
 */
const struct clear_method *clear_calibration_method(const struct clear_calibration *calibration, size_t n_bytes);
