/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What every unit test includes first: cmocka with the headers that it wants before it, and a few helpers. */
#pragma once

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define ELEMENTSOF(array) (sizeof(array) / sizeof((array)[0]))

/* Ends the program: this machine cannot run these tests. Never for a test that failed. */
#define skip_all(...)                                                                                                          \
        do {                                                                                                                   \
                (void) fprintf(stderr, "skipped: ");                                                                           \
                (void) fprintf(stderr, __VA_ARGS__);                                                                           \
                (void) fputc('\n', stderr);                                                                                    \
                exit(77); /* meson: the test was skipped */                                                                    \
        } while (0)

/* Open descriptors of this process. */
static inline int count_fds(void) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;

        assert_non_null(dir);
        for (struct dirent *entry; (entry = readdir(dir));)
                n += entry->d_name[0] != '.';
        closedir(dir);
        return n - 1; /* without the folder's own */
}

/* As setup and teardown of a test: it leaves as many descriptors open as it found. */
static inline int setup_fd_count(void **state) {
        *state = (void *) (intptr_t) count_fds();
        return 0;
}

static inline int teardown_fd_count(void **state) {
        int n_before = (int) (intptr_t) *state, n_after = count_fds();

        if (n_after != n_before)
                print_error("%d descriptors before the test, %d after\n", n_before, n_after);
        return n_after == n_before ? 0 : -1;
}

#define test_without_fd_leak(function) cmocka_unit_test_setup_teardown(function, setup_fd_count, teardown_fd_count)
