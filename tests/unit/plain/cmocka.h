/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * As much of cmocka as our tests use, for targets that have no cmocka: a test compiled with this folder ahead of the system's
 * is a program that needs nothing but the C library. The first failure ends it.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct CMUnitTest {
        const char *name;
        void (*test)(void **state);
        int (*setup)(void **state);
        int (*teardown)(void **state);
};

#define cmocka_unit_test(function) ((struct CMUnitTest){#function, function, NULL, NULL})
#define cmocka_unit_test_setup_teardown(function, setup, teardown) ((struct CMUnitTest){#function, function, setup, teardown})

static jmp_buf plain_skip;

__attribute__((noreturn)) static void plain_fail(void) {
        printf("\n");
        (void) fflush(stdout);
        _exit(1);
}

#define print_message(...) ((void) printf(__VA_ARGS__))
#define print_error(...) ((void) printf(__VA_ARGS__))
#define skip() longjmp(plain_skip, 1)
#define fail_msg(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), plain_fail())
#define plain_assert(condition, text) ((condition) ? (void) 0 : fail_msg("%s", text))
#define assert_true(a) plain_assert(a, "not true: " #a)
#define assert_false(a) plain_assert(!(a), "not false: " #a)
#define assert_null(a) plain_assert((a) == NULL, "not NULL: " #a)
#define assert_non_null(a) plain_assert((a) != NULL, "NULL: " #a)
#define assert_ptr_equal(a, b) plain_assert((const void *) (a) == (const void *) (b), "different: " #a ", " #b)
#define assert_int_equal(a, b) plain_assert((intmax_t) (a) == (intmax_t) (b), "different: " #a ", " #b)
#define assert_int_not_equal(a, b) plain_assert((intmax_t) (a) != (intmax_t) (b), "equal: " #a ", " #b)
#define assert_string_equal(a, b) plain_assert(strcmp(a, b) == 0, "different: " #a ", " #b)

static void plain_run(const struct CMUnitTest *test) {
        void *state = NULL;

        plain_assert(!test->setup || test->setup(&state) == 0, "setup failed");
        if (setjmp(plain_skip) == 0) {
                test->test(&state);
                printf("[       OK ] %s\n", test->name);
        } else
                printf("[  SKIPPED ] %s\n", test->name);
        plain_assert(!test->teardown || test->teardown(&state) == 0, "teardown failed");
}

static int plain_run_all(const struct CMUnitTest *tests, size_t n_tests) {
        (void) setvbuf(stdout, NULL, _IOLBF, 0); /* a test that crashes or forks must not lose or repeat what was said */
        for (size_t i = 0; i < n_tests; i++)
                plain_run(&tests[i]);
        return 0;
}

#define cmocka_run_group_tests(tests, setup, teardown) plain_run_all(tests, sizeof(tests) / sizeof((tests)[0]))
