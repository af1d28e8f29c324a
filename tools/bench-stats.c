/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From samples to the figures that are printed. */
#include <assert.h>
#include <stdlib.h>

#include "bench-stats.h"

static int compare(const void *left, const void *right) {
        uint64_t a = *(const uint64_t *) left, b = *(const uint64_t *) right;
        return a == b ? 0 : a < b ? -1 : 1;
}

uint64_t bench_percentile(const uint64_t *sorted_ns, size_t n_samples, unsigned percent) {
        assert(n_samples > 0 && percent <= 100);
        size_t rank = (n_samples * percent + 99) / 100; /* rounded up, counted from 1 */
        return sorted_ns[rank ? rank - 1 : 0];
}

struct bench_stats bench_stats_of(uint64_t *samples_ns, size_t n_samples) {
        assert(n_samples > 0);
        qsort(samples_ns, n_samples, sizeof(*samples_ns), compare);
        return (struct bench_stats){
                .median_ns = ((double) samples_ns[(n_samples - 1) / 2] + (double) samples_ns[n_samples / 2]) / 2,
                .min_ns = (double) samples_ns[0],
                .max_ns = (double) samples_ns[n_samples - 1],
                .p99_ns = (double) bench_percentile(samples_ns, n_samples, 99),
        };
}

static int compare_doubles(const void *left, const void *right) {
        double a = *(const double *) left, b = *(const double *) right;
        return (a > b) - (a < b);
}

double bench_median(double *values, size_t n_values) {
        assert(n_values > 0);
        qsort(values, n_values, sizeof(*values), compare_doubles);
        return (values[(n_values - 1) / 2] + values[n_values / 2]) / 2;
}

bool bench_slowdown(double idle_before, double busy, double idle_after, double *ret_slowdown) {
        double shorter = idle_before < idle_after ? idle_before : idle_after, longer = idle_before + idle_after - shorter;
        if (shorter <= 0 || longer * 100 > shorter * (100 + BENCH_IDLE_PERCENT))
                return false;
        *ret_slowdown = busy * 2 / (idle_before + idle_after);
        return true;
}
