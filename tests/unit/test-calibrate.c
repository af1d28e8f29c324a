/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rule by which a method is chosen, and a real calibration on this machine. */
#include "testing.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "calibrate.h"

#define MIB ((size_t) 1 << 20)
#define NONE CLEAR_NOT_MEASURED

/* Three methods that exist everywhere or need not be run: only their names matter to the rule. */
static const struct clear_method methods[] = {{.name = "alpha"}, {.name = "beta"}, {.name = "gamma"}};

static void rule_for(const struct clear_method *third, const char *expected, struct clear_figures alpha,
                     struct clear_figures beta, struct clear_figures gamma) {
        struct clear_calibration calibration = {
                .n_slices = 1,
                .n_methods = 3,
                .slice_bytes = {2 * MIB},
                .methods = {&methods[0], &methods[1], third},
                .figures = {{alpha}, {beta}, {gamma}},
                .reason = "what was here before",
        };

        clear_calibration_choose(&calibration);
        if (strcmp(calibration.chosen[0]->name, expected) != 0)
                fail_msg("%s was chosen instead of %s: %s", calibration.chosen[0]->name, expected, calibration.reason);
        assert_non_null(strstr(calibration.reason, expected));
        assert_ptr_equal(strstr(calibration.reason, "2 MiB: "), calibration.reason);
        assert_null(strchr(calibration.reason, '\n'));
}

static void rule(const char *expected, struct clear_figures alpha, struct clear_figures beta, struct clear_figures gamma) {
        rule_for(&methods[2], expected, alpha, beta, gamma);
}

#define FIGURES(gb_per_s, survival) ((struct clear_figures){gb_per_s, survival})

static void the_fastest_wins_unless_one_that_is_near_does_much_less_harm(void **state) {
        rule("beta", FIGURES(10, 0), FIGURES(20, 0), FIGURES(15, 0));
        /* 10 % slower is near, more is not */
        rule("alpha", FIGURES(18, 98), FIGURES(20, 5), FIGURES(15, 99));
        rule("beta", FIGURES(17.9, 98), FIGURES(20, 5), FIGURES(15, 99));
        /* 30 points decide, 29 do not */
        rule("alpha", FIGURES(19, 35), FIGURES(20, 5), FIGURES(1, 0));
        rule("beta", FIGURES(19, 34), FIGURES(20, 5), FIGURES(1, 0));
        /* the least harmful of those that are near, not the first that would do; the first of two equal ones */
        rule("gamma", FIGURES(19, 60), FIGURES(20, 5), FIGURES(18.5, 90));
        rule("alpha", FIGURES(19, 90), FIGURES(20, 5), FIGURES(18.5, 90));
        /* the fastest is the harmless one already */
        rule("beta", FIGURES(19, 70), FIGURES(20, 98), FIGURES(19, 100));
}

static void rule_with_memset(const char *expected, struct clear_figures alpha, struct clear_figures beta,
                             struct clear_figures cached) {
        rule_for(clear_method_cached(), expected, alpha, beta, cached);
}

static void nothing_below_memset_is_chosen(void **state) {
        rule_with_memset("memset", FIGURES(19, 98), FIGURES(18, 98), FIGURES(20, 5)); /* near, less harm, but slower */
        rule_with_memset("alpha", FIGURES(20, 98), FIGURES(18, 98), FIGURES(20, 5));
        rule_with_memset("alpha", FIGURES(19, 40), FIGURES(20, 5), FIGURES(19, 8));
        rule_with_memset("beta", FIGURES(18.9, 40), FIGURES(20, 5), FIGURES(19, 8));
        /* a lead of 3 % is none, one of 4 % is */
        rule_with_memset("memset", FIGURES(1, 0), FIGURES(20, 5), FIGURES(19.45, 8));
        rule_with_memset("beta", FIGURES(1, 0), FIGURES(20, 5), FIGURES(19.2, 8));
        rule_with_memset("beta", FIGURES(19.5, 5), FIGURES(20, 60), FIGURES(19.45, 8)); /* but harm still decides */
        rule_with_memset("beta", FIGURES(1, 0), FIGURES(20, 5), FIGURES(NONE, NONE));
}

static void what_was_not_measured_decides_nothing(void **state) {
        rule("beta", FIGURES(19, 98), FIGURES(20, NONE), FIGURES(19, 98));
        rule("beta", FIGURES(19, NONE), FIGURES(20, 0), FIGURES(18, NONE));
        rule("gamma", FIGURES(NONE, NONE), FIGURES(NONE, NONE), FIGURES(1, NONE));
        rule("gamma", FIGURES(NONE, 100), FIGURES(20, 0), FIGURES(19, 31));
        rule("memset", FIGURES(NONE, NONE), FIGURES(NONE, NONE), FIGURES(NONE, NONE));
}

static void the_reason_names_both_sides_of_the_decision(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 2,
                .n_methods = 2,
                .slice_bytes = {2 * MIB, 32 * MIB},
                .methods = {&methods[0], &methods[1]},
                .figures = {{{20, 5}, {20, NONE}}, {{19, 98}, {10, NONE}}},
        };

        clear_calibration_choose(&calibration);
        assert_string_equal(
                calibration.reason,
                "2 MiB: beta 19.0 GB/s keeping 98 % of a warm cache, less harm than the fastest, alpha 20.0 GB/s keeping 5 % "
                "of a warm cache; 32 MiB: alpha 20.0 GB/s, fastest");
        assert_ptr_equal(clear_calibration_method(&calibration, 2 * MIB - 1), clear_method_cached());
        assert_ptr_equal(clear_calibration_method(&calibration, 2 * MIB), &methods[1]);
        assert_ptr_equal(clear_calibration_method(&calibration, 32 * MIB - 1), &methods[1]);
        assert_ptr_equal(clear_calibration_method(&calibration, 32 * MIB), &methods[0]);
        assert_ptr_equal(clear_calibration_method(&calibration, 1024 * MIB), &methods[0]);
}

static void a_long_reason_is_cut_not_overrun(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 4, .n_methods = 2, .slice_bytes = {4096, 3 * 4096, 5 * 4096, 7 * 4096}};
        static char long_name[90];
        struct clear_method long_method = {.name = memset(long_name, 'x', sizeof(long_name) - 1)};

        for (size_t slice = 0; slice < 4; slice++) {
                calibration.figures[0][slice] = FIGURES(20, 5);
                calibration.figures[1][slice] = FIGURES(19, 98);
        }
        calibration.methods[0] = calibration.methods[1] = &long_method;
        clear_calibration_choose(&calibration);
        assert_true(strlen(calibration.reason) < sizeof(calibration.reason));
        assert_ptr_equal(calibration.chosen[3], &long_method);
}

static char *map_dirty(size_t n_bytes) {
        char *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(memory != MAP_FAILED);
        memset(memory, 0xa5, n_bytes);
        return memory;
}

static void assert_sane(const struct clear_calibration *calibration, size_t n_slices) {
        size_t n_available = 0;

        for (size_t i = 0; clear_method_at(i); i++)
                n_available += !clear_method_at(i)->why_not();
        assert_int_equal(calibration->n_methods, n_available);
        assert_int_equal(calibration->n_slices, n_slices);
        for (size_t slice = 0; slice < n_slices; slice++) {
                assert_non_null(calibration->chosen[slice]);
                assert_null(calibration->chosen[slice]->why_not());
                for (size_t i = 0; i < calibration->n_methods; i++) {
                        const struct clear_figures *figures = &calibration->figures[i][slice];

                        assert_true(figures->gb_per_s == CLEAR_NOT_MEASURED ||
                                    (figures->gb_per_s > 0 && figures->gb_per_s < 10000));
                        assert_true(figures->survival_percent >= CLEAR_NOT_MEASURED && figures->survival_percent <= 100);
                }
        }
        assert_true(strlen(calibration->reason) > 0);
        assert_null(strchr(calibration->reason, '\n'));
        /* The budget is CLEAR_CALIBRATE_BUDGET_MS; a busy machine or a checker may stop us for longer than that. */
        assert_true(calibration->took_ms < 10 * CLEAR_CALIBRATE_BUDGET_MS);
}

static void a_calibration_measures_chooses_and_leaves_zeroes(void **state) {
        static const size_t slice_bytes[] = {MIB, 8 * MIB};
        size_t n_bytes = 32 * MIB;
        char *memory = map_dirty(n_bytes);
        struct clear_calibration calibration;

        assert_int_equal(clear_calibrate(memory, n_bytes, slice_bytes, ELEMENTSOF(slice_bytes), &calibration), 0);
        print_message("%u ms: %s\n", calibration.took_ms, calibration.reason);
        assert_sane(&calibration, ELEMENTSOF(slice_bytes));
        for (size_t i = 0; i < calibration.n_methods; i++)
                print_message("%-10s %5.1f GB/s keeping %3d %%  %5.1f GB/s keeping %3d %%\n", calibration.methods[i]->name,
                              calibration.figures[i][0].gb_per_s, calibration.figures[i][0].survival_percent,
                              calibration.figures[i][1].gb_per_s, calibration.figures[i][1].survival_percent);
        assert_true(memory[0] == 0 && memcmp(memory, memory + 1, n_bytes - 1) == 0);
        munmap(memory, n_bytes);
}

static bool after_some_time(void *userdata) {
        unsigned *n_left = userdata;

        return *n_left == 0 || --*n_left == 0;
}

static void a_calibration_can_be_called_off_at_any_time(void **state) {
        static const size_t slice_bytes[] = {MIB};
        size_t n_bytes = 4 * MIB;
        char *memory = map_dirty(n_bytes);
        struct clear_calibration calibration = {.took_ms = 4711};
        unsigned n_runs = 1, n_asked;
        int r;

        do {
                unsigned n_left = n_runs;

                memset(memory, 0, n_bytes); /* as the kernel hands it out */
                r = clear_calibrate_until(memory, n_bytes, slice_bytes, 1, after_some_time, &n_left, &calibration);
                n_asked = n_runs - n_left;
                assert_true(memory[0] == 0 && memcmp(memory, memory + 1, n_bytes - 1) == 0);
                assert_true(r == -ECANCELED || (r == 0 && (n_runs > 1 || n_asked == 0))); /* a busy machine: no time for a run */
                assert_true(r == 0 || (n_asked == n_runs && calibration.took_ms == 4711));
                n_runs += 7;
        } while (r == -ECANCELED);
        assert_sane(&calibration, 1);
        munmap(memory, n_bytes);
}

static void little_memory_will_do(void **state) {
        static const size_t slice_bytes[] = {2 * MIB};
        size_t n_bytes = clear_base_page_bytes();
        char *memory = map_dirty(n_bytes);
        struct clear_calibration calibration;

        assert_int_equal(clear_calibrate(memory, n_bytes, slice_bytes, 1, &calibration), 0);
        assert_sane(&calibration, 1);
        munmap(memory, n_bytes);
}

static void sizes_that_make_no_sense_are_refused(void **state) {
        size_t page_bytes = clear_base_page_bytes();
        const size_t odd[] = {page_bytes + 1}, descending[] = {2 * page_bytes, page_bytes}, zero[] = {0}, good[] = {page_bytes};
        const size_t many[] = {page_bytes, 2 * page_bytes, 3 * page_bytes, 4 * page_bytes, 5 * page_bytes};
        struct clear_calibration calibration = {.took_ms = 4711};
        char *memory = map_dirty(page_bytes);

        assert_int_equal(clear_calibrate(memory, page_bytes, odd, 1, &calibration), -EINVAL);
        assert_int_equal(clear_calibrate(memory, page_bytes, descending, 2, &calibration), -EINVAL);
        assert_int_equal(clear_calibrate(memory, page_bytes, zero, 1, &calibration), -EINVAL);
        assert_int_equal(clear_calibrate(memory, page_bytes, many, 5, &calibration), -EINVAL);
        assert_int_equal(clear_calibrate(memory, page_bytes, good, 0, &calibration), -EINVAL);
        assert_int_equal(clear_calibrate(memory, page_bytes - 1, good, 1, &calibration), -EINVAL);
        assert_int_equal(calibration.took_ms, 4711);
        munmap(memory, page_bytes);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_fastest_wins_unless_one_that_is_near_does_much_less_harm),
                cmocka_unit_test(nothing_below_memset_is_chosen),
                cmocka_unit_test(what_was_not_measured_decides_nothing),
                cmocka_unit_test(the_reason_names_both_sides_of_the_decision),
                cmocka_unit_test(a_long_reason_is_cut_not_overrun),
                cmocka_unit_test(a_calibration_measures_chooses_and_leaves_zeroes),
                cmocka_unit_test(a_calibration_can_be_called_off_at_any_time),
                cmocka_unit_test(little_memory_will_do),
                cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
