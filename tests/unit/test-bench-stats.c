/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Median and percentiles. */
#include "testing.h"

#include "bench-stats.h"

static void the_median_is_the_middle(void **state) {
        uint64_t odd[] = {9, 1, 5}, even[] = {40, 10, 30, 20}, one[] = {7};

        assert_true(bench_stats_of(odd, 3).median_ns == 5);
        assert_true(bench_stats_of(even, 4).median_ns == 25);
        assert_true(bench_stats_of(one, 1).median_ns == 7);
}

static void one_slow_run_moves_the_maximum_only(void **state) {
        uint64_t samples[] = {10, 10, 11, 10, UINT64_C(5000000000)};
        struct bench_stats stats = bench_stats_of(samples, 5);

        assert_true(stats.median_ns == 10);
        assert_true(stats.min_ns == 10);
        assert_true(stats.max_ns == 5e9);
        assert_true(stats.p99_ns == 5e9);
}

static void percentiles_are_samples_by_nearest_rank(void **state) {
        uint64_t samples[200];

        for (size_t i = 0; i < ELEMENTSOF(samples); i++)
                samples[i] = i + 1;
        assert_int_equal(bench_percentile(samples, 200, 50), 100);
        assert_int_equal(bench_percentile(samples, 200, 99), 198);
        assert_int_equal(bench_percentile(samples, 200, 100), 200);
        assert_int_equal(bench_percentile(samples, 200, 0), 1);
        assert_int_equal(bench_percentile(samples, 3, 50), 2);
        assert_int_equal(bench_percentile(samples, 1, 99), 1);
}

static void the_order_of_the_runs_does_not_matter(void **state) {
        uint64_t up[101], down[101];

        for (size_t i = 0; i < 101; i++) {
                up[i] = i;
                down[i] = 100 - i;
        }
        struct bench_stats a = bench_stats_of(up, 101), b = bench_stats_of(down, 101);
        assert_true(a.median_ns == 50 && b.median_ns == 50);
        assert_true(a.p99_ns == 99 && b.p99_ns == 99);
}

static void the_median_of_doubles_is_the_middle(void **state) {
        double odd[] = {2.5, 0.5, 9}, even[] = {4, 1, 3, 2}, one[] = {7};

        assert_true(bench_median(odd, 3) == 2.5);
        assert_true(odd[0] == 0.5 && odd[2] == 9);
        assert_true(bench_median(even, 4) == 2.5);
        assert_true(bench_median(one, 1) == 7);
}

static void a_busy_run_is_compared_with_its_neighbours_only(void **state) {
        double slowdown = 0;

        assert_true(bench_slowdown(10, 20, 10, &slowdown));
        assert_true(slowdown == 2);
        assert_true(bench_slowdown(9, 30, 11 - 0.5, &slowdown));
        assert_true(slowdown > 3.07 && slowdown < 3.08);
        assert_true(bench_slowdown(10, 5, 10, &slowdown));
        assert_true(slowdown == 0.5);
}

static void runs_between_unequal_idle_ones_are_discarded(void **state) {
        double slowdown = -1;

        assert_false(bench_slowdown(10, 20, 12.1, &slowdown));
        assert_false(bench_slowdown(12.1, 20, 10, &slowdown));
        assert_false(bench_slowdown(0, 20, 10, &slowdown));
        assert_true(slowdown == -1);
        assert_true(bench_slowdown(10, 22, 12, &slowdown));
        assert_true(slowdown == 2);
        assert_true(bench_slowdown(12, 22, 10, &slowdown));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_median_is_the_middle),
                cmocka_unit_test(one_slow_run_moves_the_maximum_only),
                cmocka_unit_test(percentiles_are_samples_by_nearest_rank),
                cmocka_unit_test(the_median_of_doubles_is_the_middle),
                cmocka_unit_test(a_busy_run_is_compared_with_its_neighbours_only),
                cmocka_unit_test(runs_between_unequal_idle_ones_are_discarded),
                cmocka_unit_test(the_order_of_the_runs_does_not_matter),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
