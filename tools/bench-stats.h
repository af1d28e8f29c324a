/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From samples to the figures that are printed. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct bench_stats { /* nanoseconds */
        double median_ns, min_ns, max_ns, p99_ns;
};

/* Sorts @samples_ns; at least one. The median of an even number is the mean of the two in the middle. */
struct bench_stats bench_stats_of(uint64_t *samples_ns, size_t n_samples);
/* Nearest rank: the smallest sample that at least @percent of all do not exceed. @sorted_ns is sorted. */
uint64_t bench_percentile(const uint64_t *sorted_ns, size_t n_samples, unsigned percent);
