/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How many messages of a kind pass, and what is said of the others. The clock is the test's. */
#include "log-testing.h"

#include <string.h>
#include <time.h>

#include "log-limit.h"
#include "log.h"

#define MINUTE_S 60

static time_t now_s = 1000;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_time) {
        (void) clock;
        *ret_time = (struct timespec){.tv_sec = now_s};
        return 0;
}

static int begin(void **state) {
        int r = begin_capture(state);

        log_open(LOG_INFO);
        return r;
}

static int end(void **state) {
        log_limit_end();
        return end_capture(state);
}

static unsigned n_passed(enum log_limit limit, uid_t uid, unsigned n) {
        unsigned n_good = 0;

        for (unsigned i = 0; i < n; i++)
                n_good += log_limit_pass(limit, uid);
        return n_good;
}

static void what_was_left_out_is_said_when_the_interval_is_over(void **state) {
        assert_int_equal(n_passed(LOG_LIMIT_JOBS, LOG_NO_USER, 17), 10);
        now_s += MINUTE_S - 1;
        log_limit_sweep();
        assert_int_equal(n_passed(LOG_LIMIT_JOBS, LOG_NO_USER, 1), 0);
        assert_string_equal(captured(), "");
        now_s += 1;
        log_limit_sweep();
        assert_string_equal(captured(),
                            "hugezerod: notice: left out: 8 more about memory that could not be made ready or kept\n");
        now_s += 10 * MINUTE_S;
        log_limit_sweep();
        assert_string_equal(captured(), "");
        assert_int_equal(n_passed(LOG_LIMIT_JOBS, LOG_NO_USER, 17), 10);
}

static void nothing_is_said_of_nothing(void **state) {
        assert_int_equal(n_passed(LOG_LIMIT_BREACHES, 1000, 5), 5);
        now_s += MINUTE_S;
        log_limit_sweep();
        assert_string_equal(captured(), "");
}

static void no_user_hides_what_another_does(void **state) {
        assert_int_equal(n_passed(LOG_LIMIT_BREACHES, 1000, 1000), 5);
        assert_int_equal(n_passed(LOG_LIMIT_BREACHES, 1001, 2), 2);
        assert_int_equal(n_passed(LOG_LIMIT_REFUSALS, 1000, 2), 2);
        now_s += MINUTE_S;
        log_limit_sweep();
        assert_string_equal(captured(), "hugezerod: notice: left out: 995 more about clients that were cut off, of uid 1000\n");
}

/* More users than anybody keeps books of: they share one budget, and what is written stays bounded. */
static void many_users_do_not_write_without_end(void **state) {
        unsigned n_good = 0;

        for (uid_t uid = 1; uid <= 10000; uid++)
                n_good += n_passed(LOG_LIMIT_BREACHES, uid, 10);
        assert_int_equal(n_good, (32 + 1) * 5);
        log_limit_end();
        assert_non_null(strstr(captured(), "notice: left out: 99675 more about clients that were cut off\n"));
        assert_int_equal(n_passed(LOG_LIMIT_BREACHES, 20000, 10), 5);
}

static void the_end_leaves_nothing_unsaid(void **state) {
        assert_int_equal(n_passed(LOG_LIMIT_ACCEPTING, LOG_NO_USER, 2), 1);
        log_limit_end();
        assert_string_equal(captured(), "hugezerod: notice: left out: 1 more about connections that could not be accepted\n");
}

static void a_state_is_said_once(void **state) {
        assert_int_equal(n_passed(LOG_LIMIT_FILES, LOG_NO_USER, 1000), 1);
        log_limit_end();
        assert_string_equal(captured(), "");
}

#define limit_test(function) cmocka_unit_test_setup_teardown(function, begin, end)

int main(void) {
        const struct CMUnitTest tests[] = {
                limit_test(what_was_left_out_is_said_when_the_interval_is_over),
                limit_test(nothing_is_said_of_nothing),
                limit_test(no_user_hides_what_another_does),
                limit_test(many_users_do_not_write_without_end),
                limit_test(the_end_leaves_nothing_unsaid),
                limit_test(a_state_is_said_once),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
