/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From samples to the figures that are printed. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_stats { /* nanoseconds */
        double median_ns, min_ns, max_ns, p99_ns;
};

/* Sorts @samples_ns; at least one. The median of an even number is the mean of the two in the middle. */
struct bench_stats bench_stats_of(uint64_t *samples_ns, size_t n_samples);
/* Nearest rank: the smallest sample that at least @percent of all do not exceed. @sorted_ns is sorted. */
uint64_t bench_percentile(const uint64_t *sorted_ns, size_t n_samples, unsigned percent);

/* The mean of the two in the middle of an even number. Sorts @values; at least one. */
double bench_median(double *values, size_t n_values);

#define BENCH_IDLE_PERCENT 20 /* chosen: idle runs that differ by more say that somebody else was at work */
/*
 * What a neighbour did to a run, which took @busy, by what the runs before and after it took without that neighbour. False
 * where those differ by more than BENCH_IDLE_PERCENT of the shorter one: the run says nothing then.
 */
bool bench_slowdown(double idle_before, double busy, double idle_after, double *ret_slowdown);
