/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How the limit of open files is shared out. */
#include "testing.h"

#include <errno.h>
#include <sys/resource.h>

#include "files.h"

static void set_limit(rlim_t n) {
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = n;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void every_part_has_enough_and_all_fit(void **state) {
        static const size_t n_nodes[] = {1, 8, 64};
        struct rlimit before;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        for (size_t i = 0; i < ELEMENTSOF(n_nodes); i++)
                for (rlim_t limit = files_least(n_nodes[i]); limit < 1000; limit++) {
                        struct files files;

                        set_limit(limit);
                        assert_int_equal(files_share_out(n_nodes[i], &files), 0);
                        assert_true(files.max_extents >= 12);
                        assert_true(files.max_connections >= 12);
                        assert_true(files.n_kept >= 2);
                        /* 11 of the daemon itself, one for each node; a quarter of what clients have is on its way to them */
                        assert_true(11 + n_nodes[i] + 2 * files.max_extents + files.max_connections * 4 / 3 <= limit);
                        assert_true(files.max_connections + files.n_kept + 2 <= files.max_connections * 4 / 3);
                }
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

static void a_limit_that_serves_nobody_is_refused(void **state) {
        struct files files;
        struct rlimit before;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        assert_true(files_least(1) <= 64);
        set_limit(files_least(1) - 1);
        assert_int_equal(files_share_out(1, &files), -EMFILE);
        set_limit(files_least(1));
        assert_int_equal(files_share_out(2, &files), -EMFILE);
        assert_int_equal(files_share_out(1, &files), 0);
        assert_int_equal(files_raise_limit(), before.rlim_max);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(every_part_has_enough_and_all_fit),
                test_without_fd_leak(a_limit_that_serves_nobody_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
