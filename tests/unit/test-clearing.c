/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A node's choice of method: for which sizes, at which cost, and what becomes of a measurement that was cut short. */
#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "clearing.h"
#include "config.h"
#include "log-testing.h"

#define MIB (UINT64_C(1) << 20)
#define NS_PER_MS UINT64_C(1000000)

static struct clearing clearing;
static char *memory; /* CLEAR_CALIBRATE_BYTES, zero and populated */

static void begin_by(const struct clear_method *method, uint64_t batch_bytes, unsigned n_workers) {
        const struct config config = {.batch_bytes = batch_bytes, .clear_method = method};

        clearing = (struct clearing){};
        clearing_init(&clearing, &config, /* node= */ 0, n_workers);
}

static void begin(uint64_t batch_bytes) {
        begin_by(/* method= */ NULL, batch_bytes, /* n_workers= */ 1);
}

static uint64_t cpu_ns(void) {
        struct timespec now;

        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

static int measure(uint64_t bytes) {
        return clearing_measure(&clearing, memory, bytes, /* is_probe= */ false, /* stop= */ NULL, NULL);
}

static const struct clear_calibration *known(void) {
        return atomic_load(&clearing.calibration);
}

static void the_budget_holds_for_all_pools_of_a_node(void **state) {
        static const uint64_t extents_bytes[] = {16 * MIB, 126 * MIB, 128 * MIB};
        uint64_t start_ns = cpu_ns(), took_ns;

        begin(32 * MIB);
        for (size_t i = 0; i < ELEMENTSOF(extents_bytes); i++)
                clearing_want_extents(&clearing, extents_bytes[i], extents_bytes[i]);
        for (size_t round = 0; round < 20; round++) /* whatever comes back later */
                for (size_t i = 0; i < ELEMENTSOF(extents_bytes); i++)
                        assert_int_equal(measure(extents_bytes[i]), 0);
        took_ns = cpu_ns() - start_ns;
        assert_non_null(known());
        print_message("%.0f ms: %s\n", (double) took_ns / 1e6, known()->reason);
        assert_true(known()->used_ns <= took_ns);
        /* 5 ms for each session's last run, which cannot be interrupted */
        if (took_ns > CLEAR_CALIBRATE_BUDGET_NS + clearing.n_sessions * 5 * NS_PER_MS)
                fail_msg("%.0f ms of CPU time", (double) took_ns / 1e6);
        clearing_done(&clearing);
}

static void assert_sizes(const uint64_t *bytes, size_t n) {
        assert_int_equal(clearing.state.n_slices, n);
        for (size_t i = 0; i < n; i++)
                assert_int_equal(clearing.state.slice_bytes[i], bytes[i]);
        clearing_done(&clearing);
}

/* A size that differs little from another one is not measured for itself. */
static void the_sizes_are_those_that_are_used(void **state) {
        begin(1024 * MIB);
        clearing_want_extents(&clearing, 256 * MIB, 1024 * MIB);
        assert_int_equal(measure(128 * MIB), 0);
        assert_sizes((const uint64_t[]){2 * MIB, 128 * MIB}, 2);

        begin(32 * MIB);
        clearing_want_extents(&clearing, 2 * MIB, 1024 * MIB);
        assert_int_equal(measure(16 * MIB), 0);
        assert_sizes((const uint64_t[]){2 * MIB}, 1);

        begin(32 * MIB);
        clearing_want_extents(&clearing, 16 * MIB, 16 * MIB);
        clearing_want_extents(&clearing, 0, 1024 * MIB);
        clearing_want_extents(&clearing, 18 * MIB, 1024 * MIB);
        assert_int_equal(measure(16 * MIB), 0);
        assert_sizes((const uint64_t[]){2 * MIB, 16 * MIB, 32 * MIB, 128 * MIB}, 4);

        begin(32 * MIB);
        clearing_want_extents(&clearing, 0, 64 * MIB); /* a quarter is filled first, then the rest */
        assert_int_equal(measure(16 * MIB), 0);
        assert_sizes((const uint64_t[]){2 * MIB, 32 * MIB, 48 * MIB}, 3);
}

static bool at_once(void *userdata) {
        return true;
}

/* Measuring gives up by itself where others have the CPUs, which is tested too. */
static void skip_on_busy_machine(void) {
        print_message("cannot: others had the CPUs all the time\n");
        skip();
}

static void what_was_called_off_is_measured_later(void **state) {
        begin(4 * MIB);
        clearing_want_extents(&clearing, 4 * MIB, 64 * MIB);
        assert_true(clearing_is_wanted(&clearing));
        assert_ptr_equal(clearing_background_method(&clearing, 4 * MIB), clear_method_likely());
        assert_ptr_equal(clearing_method(&clearing, 4096), clear_method_cached());
        for (size_t i = 0; i < 100; i++) { /* busy clients cost it no chance */
                assert_true(clearing_may_learn(&clearing, 16 * MIB));
                assert_int_equal(clearing_measure(&clearing, memory, 16 * MIB, false, at_once, NULL), -ECANCELED);
        }
        assert_true(clearing_is_wanted(&clearing));
        for (size_t i = 0; i < CLEARING_MAX_SESSIONS; i++) /* each of them ends by time where the machine is too busy */
                assert_int_equal(measure(16 * MIB), 0);
        if (clearing_is_wanted(&clearing))
                skip_on_busy_machine();
        assert_true(known()->is_measured[0]);
        clearing_done(&clearing);
}

static void what_is_too_large_is_left_until_there_is_enough_memory(void **state) {
        begin(32 * MIB);
        clearing_want_extents(&clearing, 64 * MIB, 1024 * MIB);
        assert_false(clearing_may_learn(&clearing, MIB));
        assert_true(clearing_may_learn(&clearing, 2 * MIB));
        assert_int_equal(measure(16 * MIB), 0);
        assert_true(clearing.state.used_ns <= CLEAR_CALIBRATE_BUDGET_NS / 2 + 5 * NS_PER_MS);
        assert_false(clearing.state.is_measured[1] || clearing.state.is_measured[2]);
        if (known() && known()->is_measured[0] && !clear_calibration_lacks_harm(known(), 0))
                assert_false(clearing_may_learn(&clearing, 16 * MIB));
        assert_true(clearing_may_learn(&clearing, 64 * MIB));
        clearing_done(&clearing);
}

void *__wrap_clear_ring_walk(void *at, size_t n_steps);

/* What is left in a cache is also up to who else uses it: a cold walk and two warm ones, again and again. */
void *__wrap_clear_ring_walk(void *at, size_t n_steps) {
        static size_t n_walks;
        uint64_t start_ns = cpu_ns(), walk_ns = n_walks++ % 3 == 0 ? 500000 : 50000;

        while (cpu_ns() - start_ns < walk_ns)
                ;
        return at;
}

static void harm_is_measured_as_soon_as_there_is_enough_memory(void **state) {
        begin(32 * MIB);
        for (size_t i = 0; i < CLEARING_MAX_SESSIONS / 2 && !known(); i++) /* each of them ends by time where the machine is too busy */
                assert_int_equal(measure(2 * MIB), 0);
        if (!known())
                skip_on_busy_machine();
        assert_true(known()->is_measured[0] && clear_calibration_lacks_harm(known(), 0));
        assert_false(clearing_may_learn(&clearing, 2 * MIB));
        assert_true(clearing_may_learn(&clearing, CLEAR_CALIBRATE_BYTES));
        while (clearing_may_learn(&clearing, CLEAR_CALIBRATE_BYTES)) /* the same */
                assert_int_equal(measure(CLEAR_CALIBRATE_BYTES), 0);
        print_message("%s\n", known()->reason);
        assert_false(clear_calibration_lacks_harm(known(), 0));
        clearing_done(&clearing);
}

/* Whatever the methods cost; and where they are not measured at all. Their number is found in one attempt of several. */
static void measure_threads_of(const struct clear_method *method) {
        begin_by(method, 32 * MIB, /* n_workers= */ 2);
        clearing_want_extents(&clearing, 128 * MIB, 128 * MIB);
        if (!method)
                clearing.state.used_ns = CLEAR_CALIBRATE_BUDGET_NS - 60 * NS_PER_MS; /* all but their share */
        assert_true(clearing_may_learn(&clearing, 4 * MIB));
        assert_false(clearing_may_learn(&clearing, 2 * MIB));
        for (size_t i = 0; i < 20 && atomic_load(&clearing.n_scrub_threads) == 0; i++)
                assert_int_equal(measure(4 * MIB), 0);
        assert_null(known());
        assert_true(clearing.state.used_ns <= CLEAR_CALIBRATE_BUDGET_NS + 20 * NS_PER_MS);
        if (atomic_load(&clearing.n_scrub_threads) == 0)
                assert_true(clearing.state.used_ns > 10 * NS_PER_MS); /* a busy machine: it was tried again and again */
        else
                assert_true(clearing.scrub_threads.two_gb_per_s > 0);
        assert_true(!method || !clearing_may_learn(&clearing, 128 * MIB) || atomic_load(&clearing.n_scrub_threads) == 0);
        clearing_done(&clearing);
}

static void threads_are_measured_whatever_the_methods_cost(void **state) {
        measure_threads_of(NULL);
}

static void threads_are_measured_with_a_configured_method(void **state) {
        measure_threads_of(clear_method_cached());
}

static void what_was_learnt_is_told_once(void **state) {
        begin(4 * MIB);
        clearing_log(&clearing);
        assert_false(clearing.was_logged);
        assert_int_equal(measure(2 * MIB), 0);
        clearing_log(&clearing);
        assert_true(clearing.was_logged == !clearing_may_learn(&clearing, CLEAR_CALIBRATE_BYTES));
        while (clearing_may_learn(&clearing, CLEAR_CALIBRATE_BYTES))
                assert_int_equal(measure(CLEAR_CALIBRATE_BYTES), 0);
        clearing_log(&clearing);
        assert_true(clearing.was_logged);
        clearing_done(&clearing);
}

static void what_cannot_be_learnt_is_not_waited_for(void **state) {
        begin_by(clear_method_cached(), 32 * MIB, /* n_workers= */ 2);
        clearing_log(&clearing); /* the threads may still be measured */
        assert_false(clearing.was_logged);
        clearing_note_settled(&clearing);
        assert_true(clearing.was_logged);
        clearing_done(&clearing);

        begin_by(/* method= */ NULL, 32 * MIB, /* n_workers= */ 2);
        clearing_note_settled(&clearing); /* nothing is known yet; the next idle time tells */
        assert_false(clearing.was_logged);
        clearing.state.used_ns = CLEAR_CALIBRATE_BUDGET_NS;
        clearing_log(&clearing);
        assert_true(clearing.was_logged);
        clearing_done(&clearing);
}

static void fill_by(unsigned n_threads, double gb_per_s) {
        assert_int_equal(clearing_threads_to_measure(&clearing), n_threads);
        assert_int_equal(clearing_fill_threads(&clearing), 4); /* as long as nothing is known */
        clearing_note_fill(&clearing, 1000000000, (uint64_t) (1e9 / gb_per_s));
}

static void fills_are_done_by_as_many_threads_as_were_worth_it(void **state) {
        begin_by(clear_method_cached(), 32 * MIB, /* n_workers= */ 4);
        fill_by(1, 10);
        fill_by(2, 9); /* somebody disturbed it: the best of two rounds counts */
        fill_by(4, 16.5);
        fill_by(1, 9);
        fill_by(2, 16);
        fill_by(4, 12);
        assert_int_equal(clearing_threads_to_measure(&clearing), 0);
        assert_int_equal(clearing_fill_threads(&clearing), 2);
        clearing_done(&clearing);
}

/* An extent that is smaller than Batch= is one slice of its own size. */
static void extents_are_cleared_by_what_is_best_for_their_slices(void **state) {
        const struct clear_method *small = clear_method_named("memset"), *large = clear_method_named("generic");

        begin(32 * MIB);
        clearing.results[0] = (struct clear_calibration){
                .n_slices = 3, .slice_bytes = {2 * MIB, 32 * MIB, 128 * MIB}, .chosen = {small, large, small}};
        atomic_store(&clearing.calibration, &clearing.results[0]);
        assert_ptr_equal(clearing_background_method(&clearing, 2 * MIB), small);
        assert_ptr_equal(clearing_background_method(&clearing, 30 * MIB), small);
        assert_ptr_equal(clearing_background_method(&clearing, 32 * MIB), large);
        assert_ptr_equal(clearing_background_method(&clearing, 1024 * MIB), large);
        assert_ptr_equal(clearing_method(&clearing, 1024 * MIB), small);
        clearing_done(&clearing);
}

static void a_second_thread_is_worth_it_when_it_gains_a_third(void **state) {
        assert_int_equal(clearing_threads_worth(100, 100), 2); /* none is slower for the other */
        assert_int_equal(clearing_threads_worth(100, 153), 2);
        assert_int_equal(clearing_threads_worth(100, 155), 1);
        assert_int_equal(clearing_threads_worth(100, 250), 1);
        assert_int_equal(clearing_threads_worth(100, UINT64_MAX), 0); /* there was no CPU for it */
}

static void two_threads_clear_beside_each_other(void **state) {
        struct clearing_threads threads;
        unsigned n_told = 0;
        int r;

        for (size_t i = 0; i < 100 && n_told < 5; i++) {
                assert_int_equal(clearing_threads_measure(clear_method_likely(), memory, 64 * MIB, NULL, NULL, &threads), 0);
                assert_true(threads.n_worth <= 2 && threads.used_ns > 0);
                print_message("%u of 2: %.1f GB/s, %.1f with one, in %.0f ms of CPU time\n", threads.n_worth,
                              threads.two_gb_per_s, threads.one_gb_per_s, (double) threads.used_ns / 1e6);
                n_told += threads.n_worth > 0;
                assert_true(threads.n_worth == 0 || (threads.two_gb_per_s > 0 && threads.one_gb_per_s > 0));
        }
        r = clearing_threads_measure(clear_method_likely(), memory, 64 * MIB, at_once, NULL, &threads);
        assert_true(r == -ECANCELED || (r == 0 && threads.n_worth == 0)); /* the latter where the other never had a CPU */
        assert_true(threads.used_ns > 0);
        assert_true(memory[0] == 0 && memcmp(memory, memory + 1, CLEAR_CALIBRATE_BYTES - 1) == 0);
        if (n_told == 0)
                skip_on_busy_machine();
}

static enum { THREADS_RUN, THREADS_END_AT_ONCE, NO_THREADS } threads_are;

static unsigned n_threads(void) {
        DIR *tasks = opendir("/proc/self/task");
        unsigned n = 0;

        assert_non_null(tasks);
        while (readdir(tasks))
                n++;
        closedir(tasks);
        return n;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *userdata), void *userdata);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *userdata), void *userdata);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *userdata), void *userdata) {
        unsigned n = n_threads();
        int r = threads_are == NO_THREADS ? EAGAIN : __real_pthread_create(thread, attributes, run, userdata);

        while (threads_are == THREADS_END_AT_ONCE && n_threads() > n)
                ;
        return r;
}

static void a_thread_that_is_gone_already_is_no_failure_of_the_memory(void **state) {
        for (threads_are = THREADS_END_AT_ONCE; threads_are <= NO_THREADS; threads_are++) {
                struct clearing_threads threads;

                assert_int_equal(clearing_threads_measure(clear_method_likely(), memory, 64 * MIB, NULL, NULL, &threads), 0);
                assert_int_equal(threads.n_worth, 0);
        }
        threads_are = THREADS_RUN;
}

/* What both threads are told to clear at a time. */
static _Atomic size_t n_piece_calls, n_other_calls;

static void clear_counted(void *addr, size_t n_bytes) {
        atomic_fetch_add(n_bytes == CLEARING_THREADS_PIECE_BYTES ? &n_piece_calls : &n_other_calls, 1);
        memset(addr, 0, n_bytes);
}

static void clear_for_large(void *addr, size_t n_bytes) {
        atomic_fetch_add(&n_other_calls, 1);
        memset(addr, 0, n_bytes);
}

static void threads_are_measured_by_the_method_for_what_they_clear_at_a_time(void **state) {
        static const struct clear_method small = {.name = "small", .fast_multi_page = true, .clear = clear_counted};
        static const struct clear_method large = {.name = "large", .fast_multi_page = true, .clear = clear_for_large};

        n_piece_calls = n_other_calls = 0;
        begin_by(/* method= */ NULL, 32 * MIB, /* n_workers= */ 2);
        clearing.state = (struct clear_calibration){.n_slices = 2,
                                                    .slice_bytes = {2 * MIB, 32 * MIB},
                                                    .is_measured = {true, true},
                                                    .chosen = {&small, &large},
                                                    .used_ns = CLEAR_CALIBRATE_BUDGET_NS -
                                                               60 * NS_PER_MS}; /* the threads' share is left */
        assert_int_equal(measure(64 * MIB), 0);
        assert_true(n_piece_calls >= 4 * 3); /* of 8 MiB, several times */
        assert_int_equal(n_other_calls, 0);
        clearing_done(&clearing);
}

static void assert_told(unsigned n_workers, unsigned n_worth, const char *expected) {
        const char *text;

        begin_by(clear_method_cached(), 32 * MIB, n_workers);
        clearing.scrub_threads = (struct clearing_threads){.n_worth = n_worth, .one_gb_per_s = 65, .two_gb_per_s = 130};
        clearing.n_scrub_threads = n_worth;
        (void) begin_capture(NULL);
        clearing_note_settled(&clearing);
        text = captured();
        (void) end_capture(NULL);
        if (!strstr(text, expected))
                fail_msg("\"%s\" is not in: %s", expected, text);
        clearing_done(&clearing);
}

/* Beside the figures of methods and batches, which may be others. */
static void what_figures_of_threads_are_of_is_told(void **state) {
        assert_told(1, 1, ", scrubs by 1 thread; clears");
        assert_told(2, 0, ", scrubs by up to 2 threads, not measured yet; clears");
        assert_told(2, 1, ", scrubs by 1 of 2 threads (65.0 GB/s, 130.0 with two, 2 MiB at a time); clears");
        assert_told(2, 2, ", scrubs by 2 of 2 threads (130.0 GB/s, 65.0 with one, 2 MiB at a time); clears");
        assert_told(64, 1, ", scrubs by 1 of 64 threads (65.0 GB/s, 130.0 with two, 2 MiB at a time, two at most); clears");
        assert_told(64, 2, ", scrubs by 2 of 64 threads (130.0 GB/s, 65.0 with one, 2 MiB at a time, two at most); clears");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_budget_holds_for_all_pools_of_a_node),
                cmocka_unit_test(the_sizes_are_those_that_are_used),
                cmocka_unit_test(what_was_called_off_is_measured_later),
                cmocka_unit_test(what_is_too_large_is_left_until_there_is_enough_memory),
                cmocka_unit_test(harm_is_measured_as_soon_as_there_is_enough_memory),
                cmocka_unit_test(threads_are_measured_whatever_the_methods_cost),
                cmocka_unit_test(threads_are_measured_with_a_configured_method),
                cmocka_unit_test(fills_are_done_by_as_many_threads_as_were_worth_it),
                cmocka_unit_test(what_was_learnt_is_told_once),
                cmocka_unit_test(what_cannot_be_learnt_is_not_waited_for),
                cmocka_unit_test(extents_are_cleared_by_what_is_best_for_their_slices),
                cmocka_unit_test(a_second_thread_is_worth_it_when_it_gains_a_third),
                cmocka_unit_test(two_threads_clear_beside_each_other),
                cmocka_unit_test(a_thread_that_is_gone_already_is_no_failure_of_the_memory),
                cmocka_unit_test(threads_are_measured_by_the_method_for_what_they_clear_at_a_time),
                cmocka_unit_test(what_figures_of_threads_are_of_is_told),
        };

        memory = mmap(NULL, CLEAR_CALIBRATE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        return memory == MAP_FAILED ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
