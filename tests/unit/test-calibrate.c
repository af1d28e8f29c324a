/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The rule by which a method is chosen, and a real calibration on this machine. */
#include "testing.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "calibrate.h"
#include "ring.h"

#ifndef RUNNING_ON_EMULATOR
#define RUNNING_ON_EMULATOR 0 /* 1: in user mode under QEMU, see run-arm64.sh */
#endif

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
                .is_measured = {true},
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
        rule_with_memset("beta", FIGURES(18.4, 40), FIGURES(20, 5), FIGURES(19, 8));
        rule_with_memset("alpha", FIGURES(18.5, 40), FIGURES(20, 5), FIGURES(19, 8)); /* two runs differ by so much */
        rule_with_memset("alpha", FIGURES(101.1, 98), FIGURES(99, 97), FIGURES(101.4, 23));
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
}

static void the_reason_names_both_sides_of_the_decision(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 2,
                .n_methods = 2,
                .slice_bytes = {2 * MIB, 32 * MIB},
                .is_measured = {true, true},
                .methods = {&methods[0], &methods[1]},
                .figures = {{{20, 5}, {20, NONE}}, {{19, 98}, {10, NONE}}},
        };

        clear_calibration_choose(&calibration);
        assert_string_equal(
                calibration.reason,
                "2 MiB: beta 19.0 GB/s keeping 98 % of a warm cache, less harm than the fastest, alpha 20.0 GB/s keeping 5 % "
                "of a warm cache; 32 MiB: alpha 20.0 GB/s, fastest, harm not measured");
        assert_ptr_equal(clear_calibration_method(&calibration, 2 * MIB - 1), clear_method_cached());
        assert_ptr_equal(clear_calibration_method(&calibration, 2 * MIB), &methods[1]);
        assert_ptr_equal(clear_calibration_method(&calibration, 32 * MIB - 1), &methods[1]);
        assert_ptr_equal(clear_calibration_method(&calibration, 32 * MIB), &methods[0]);
        assert_ptr_equal(clear_calibration_method(&calibration, 1024 * MIB), &methods[0]);
}

/* Others use the cache just now: that is no reason, and nothing to tell. */
static void survival_that_is_low_for_all_is_not_told(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 1,
                .n_methods = 2,
                .slice_bytes = {2 * MIB},
                .is_measured = {true},
                .methods = {&methods[0], &methods[1]},
                .figures = {{{20, 0}}, {{19, 3}}},
        };

        clear_calibration_choose(&calibration);
        assert_string_equal(calibration.reason, "2 MiB: alpha 20.0 GB/s, fastest");
}

/* However fast the only one is that there was time for. */
static void a_size_that_was_not_measured_for_all_takes_over_the_choice_of_a_smaller_one(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 4,
                .n_methods = 2,
                .slice_bytes = {2 * MIB, 16 * MIB, 32 * MIB, 64 * MIB},
                .is_measured = {false, true, false, true},
                .methods = {&methods[0], &methods[1]},
                .figures = {{{99, NONE}, {20, NONE}, {NONE, NONE}, {20, NONE}}, {{NONE, NONE}, {19, NONE}, {99, NONE}, {21, NONE}}},
        };

        clear_calibration_choose(&calibration);
        assert_ptr_equal(calibration.chosen[0], clear_method_likely());
        assert_ptr_equal(calibration.chosen[1], &methods[0]);
        assert_ptr_equal(calibration.chosen[2], &methods[0]);
        assert_ptr_equal(calibration.chosen[3], &methods[1]);
        assert_non_null(strstr(calibration.reason, ", not measured; 16 MiB: alpha 20.0 GB/s, fastest"));
        assert_non_null(strstr(calibration.reason, "; 32 MiB: alpha, not measured, as for 16 MiB; 64 MiB: beta 21.0 GB/s, fastest"));
        assert_null(strstr(calibration.reason, "99.0"));
}

static void before_anything_is_measured_stores_pass_by_the_caches(void **state) {
        const struct clear_method *likely = clear_method_likely(), *method;

        assert_null(likely->why_not());
        for (size_t i = 0; (method = clear_method_at(i)); i++)
                if (method->non_temporal && !method->why_not())
                        assert_true(likely->non_temporal);
}

static void a_long_reason_is_cut_not_overrun(void **state) {
        struct clear_calibration calibration = {
                .n_slices = 4, .n_methods = 2, .slice_bytes = {4096, 3 * 4096, 5 * 4096, 7 * 4096},
                .is_measured = {true, true, true, true}};
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

static char *map_zero(size_t n_bytes) {
        char *memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

        assert_true(memory != MAP_FAILED);
        return memory;
}

static void assert_zero(const char *memory, size_t n_bytes) {
        assert_true(memory[0] == 0 && memcmp(memory, memory + 1, n_bytes - 1) == 0);
}

static uint64_t cpu_ns(void) {
        struct timespec now;

        assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now), 0);
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

static void begin(struct clear_calibration *calibration, const size_t *slice_bytes, size_t n_slices) {
        clear_calibration_init(calibration);
        for (size_t i = 0; i < n_slices; i++)
                assert_int_equal(clear_calibration_add(calibration, slice_bytes[i]), 0);
        assert_int_equal(calibration->n_slices, n_slices);
}

static void assert_sane(const struct clear_calibration *calibration) {
        size_t n_available = 0;

        for (size_t i = 0; clear_method_at(i); i++)
                n_available += !clear_method_at(i)->why_not();
        assert_int_equal(calibration->n_methods, n_available);
        for (size_t slice = 0; slice < calibration->n_slices; slice++) {
                assert_non_null(calibration->chosen[slice]);
                assert_null(calibration->chosen[slice]->why_not());
                for (size_t i = 0; i < calibration->n_methods; i++) {
                        const struct clear_figures *figures = &calibration->figures[i][slice];

                        assert_true(calibration->is_measured[slice] || figures->gb_per_s == CLEAR_NOT_MEASURED);
                        assert_true(figures->gb_per_s == CLEAR_NOT_MEASURED ||
                                    (figures->gb_per_s > 0 && figures->gb_per_s < 10000));
                        assert_true(figures->survival_percent >= CLEAR_NOT_MEASURED && figures->survival_percent <= 100);
                }
        }
        assert_true(strlen(calibration->reason) > 0);
        assert_null(strchr(calibration->reason, '\n'));
}

static void print_figures(const struct clear_calibration *calibration) {
        print_message("%.0f ms of CPU time: %s\n", (double) calibration->used_ns / 1e6, calibration->reason);
        for (size_t i = 0; i < calibration->n_methods; i++) {
                print_message("%-10s", calibration->methods[i]->name);
                for (size_t slice = 0; slice < calibration->n_slices; slice++)
                        print_message(" %5.1f GB/s keeping %3d %% ", calibration->figures[i][slice].gb_per_s,
                                      calibration->figures[i][slice].survival_percent);
                print_message("\n");
        }
}

static void a_calibration_measures_and_chooses(void **state) {
        static const size_t slice_bytes[] = {MIB, 8 * MIB};
        size_t n_bytes = 32 * MIB;
        char *memory = map_zero(n_bytes);
        struct clear_calibration calibration;

        begin(&calibration, slice_bytes, ELEMENTSOF(slice_bytes));
        /* Plenty, so that no machine is too busy for it */
        assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, UINT64_C(20000000000), NULL, NULL), 0);
        assert_sane(&calibration);
        print_figures(&calibration);
        for (size_t slice = 0; slice < 2; slice++) {
                assert_true(calibration.is_measured[slice]);
                for (size_t i = 0; i < calibration.n_methods; i++)
                        if (slice == 0 || calibration.methods[i] == clear_method_cached())
                                assert_true(calibration.figures[i][slice].gb_per_s > 0);
        }
        assert_zero(memory, n_bytes);
        munmap(memory, n_bytes);
}

/* In CPU time: what others on the machine do is none of its business. */
static void a_calibration_keeps_to_its_budget(void **state) {
        static const size_t slice_bytes[] = {2 * MIB, 16 * MIB, 32 * MIB, 64 * MIB, 128 * MIB};
        size_t n_bytes = CLEAR_CALIBRATE_BYTES;
        char *memory = map_zero(n_bytes);

        for (uint64_t budget_ns = CLEAR_CALIBRATE_BUDGET_NS / 16; budget_ns <= CLEAR_CALIBRATE_BUDGET_NS; budget_ns *= 4) {
                struct clear_calibration calibration;
                uint64_t start_ns = cpu_ns(), took_ns;

                begin(&calibration, slice_bytes, ELEMENTSOF(slice_bytes));
                assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, budget_ns, NULL, NULL), 0);
                took_ns = cpu_ns() - start_ns;
                assert_sane(&calibration);
                assert_true(calibration.used_ns <= took_ns);
                /* 5 ms: a run that cannot be interrupted, of the slowest method */
                if (took_ns > budget_ns + 5 * UINT64_C(1000000) && !RUNNING_ON_EMULATOR)
                        fail_msg("%.1f ms of CPU time instead of %.1f", (double) took_ns / 1e6, (double) budget_ns / 1e6);
                assert_zero(memory, n_bytes);
        }
        munmap(memory, n_bytes);
}

static void without_a_budget_nothing_is_measured_and_what_follows_measures_the_rest(void **state) {
        static const size_t slice_bytes[] = {4 * MIB, MIB, 16 * MIB};
        size_t n_bytes = 4 * MIB;
        char *memory = map_zero(n_bytes);
        struct clear_calibration calibration, before;

        begin(&calibration, slice_bytes, ELEMENTSOF(slice_bytes));
        assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, 0, NULL, NULL), 0);
        assert_false(calibration.is_measured[0] || calibration.is_measured[1] || calibration.is_measured[2]);
        assert_ptr_equal(calibration.chosen[0], clear_method_likely());
        assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, UINT64_C(20000000000), NULL, NULL), 0);
        assert_true(calibration.is_measured[0] && calibration.is_measured[1]);
        assert_false(calibration.is_measured[2]); /* it is larger than the memory */
        assert_ptr_equal(calibration.chosen[2], calibration.chosen[1]);
        assert_sane(&calibration);
        before = calibration;
        assert_int_equal(clear_calibration_add(&calibration, 2 * MIB), 0);
        assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, UINT64_C(20000000000), NULL, NULL), 0);
        assert_true(calibration.is_measured[1] && calibration.slice_bytes[1] == 2 * MIB && calibration.n_slices == 4);
        for (size_t i = 0; i < calibration.n_methods; i++) {
                assert_true(calibration.figures[i][0].gb_per_s == before.figures[i][0].gb_per_s);
                assert_true(calibration.figures[i][2].gb_per_s == before.figures[i][1].gb_per_s);
        }
        assert_true(calibration.used_ns > before.used_ns);
        assert_sane(&calibration);
        munmap(memory, n_bytes);
}

/* Of which memory a method was told, and whether just that had been flushed before. It leaves everything as it is. */
static struct {
        const void *flushed;
        size_t n_flushed_bytes, n_cold_bytes, n_other_bytes;
} seen;

static size_t n_rings_flushed; /* half a cache each */

/* When others take pages away: before the ring is made cold, without or with an instruction for that, or before it is walked.
 */
static struct {
        enum { VANISHES_NEVER, VANISHES_BEFORE_READING, VANISHES_BEFORE_FLUSH, VANISHES_BEFORE_WALK } when;
        int fd;
} vanishing;

static void vanish(void) {
        assert_int_equal(ftruncate(vanishing.fd, 0), 0);
}

int __real_clear_flush(void *addr, size_t n_bytes);
int __wrap_clear_flush(void *addr, size_t n_bytes);

int __wrap_clear_flush(void *addr, size_t n_bytes) {
        bool is_ring = n_bytes == clear_calibrate_harm_bytes() / 16;

        n_rings_flushed += is_ring;
        if (is_ring && (vanishing.when == VANISHES_BEFORE_READING || vanishing.when == VANISHES_BEFORE_FLUSH))
                vanish();
        if (is_ring && vanishing.when == VANISHES_BEFORE_READING)
                return -EOPNOTSUPP;
        seen.flushed = addr;
        seen.n_flushed_bytes = n_bytes;
        return __real_clear_flush(addr, n_bytes);
}

static void look(void *addr, size_t n_bytes) {
        if (addr == seen.flushed && n_bytes == seen.n_flushed_bytes)
                seen.n_cold_bytes += n_bytes;
        else
                seen.n_other_bytes += n_bytes;
        seen.flushed = NULL;
}

static const struct clear_method looking = {.name = "looking", .fast_multi_page = true, .clear = look};

static void calibrate_by_looking(struct clear_calibration *calibration, char *memory, size_t n_bytes) {
        memset(&seen, 0, sizeof(seen));
        clear_calibration_init(calibration);
        calibration->n_methods = 1;
        calibration->methods[0] = &looking;
        assert_int_equal(clear_calibration_add(calibration, 2 * MIB), 0);
        assert_int_equal(clear_calibrate(calibration, memory, n_bytes, UINT64_C(20000000000), NULL, NULL), 0);
        assert_true(calibration->is_measured[0]);
}

/* The caches hold memory that is cleared again and again, and nothing of what clients give back. */
static void speed_is_measured_on_memory_that_is_not_in_the_caches(void **state) {
        struct clear_calibration calibration;
        char *memory = map_zero(2 * MIB);

        calibrate_by_looking(&calibration, memory, 2 * MIB);
        assert_true(seen.n_cold_bytes >= 3 * 8 * MIB);
        assert_int_equal(seen.n_other_bytes, 0);
        /* So little memory tells nothing of the harm, and that is said */
        assert_true(clear_calibration_lacks_harm(&calibration, 0));
        assert_non_null(strstr(calibration.reason, "fastest, harm not measured"));
        munmap(memory, 2 * MIB);
}

/* Walks that take as long as the test says: what is left in a cache is also up to whoever else uses it. */
#define N_WALKS_BEFORE 9 /* to find out how long they take: one cold and two warm ones, three times */
#define WARM_WALK_NS UINT64_C(1000000)
#define COLD_WALK_NS (5 * WARM_WALK_NS)

static struct {
        uint64_t after_clearing_ns; /* 0: real walks */
        size_t n;
} walks;

void *__real_clear_ring_walk(void *at, size_t n_steps);
void *__wrap_clear_ring_walk(void *at, size_t n_steps);

void *__wrap_clear_ring_walk(void *at, size_t n_steps) {
        uint64_t start_ns = cpu_ns(), walk_ns = WARM_WALK_NS;
        size_t n = walks.n++;

        if (vanishing.when == VANISHES_BEFORE_WALK)
                vanish();
        if (vanishing.when != VANISHES_NEVER)
                (void) __real_clear_ring_walk(at, n_steps);
        if (walks.after_clearing_ns == 0)
                return __real_clear_ring_walk(at, n_steps);
        if (n < N_WALKS_BEFORE && n % 3 == 0)
                walk_ns = COLD_WALK_NS;
        if (n >= N_WALKS_BEFORE && n % 3 == 2) /* two that warm the cache, then the clearing */
                walk_ns = walks.after_clearing_ns;
        while (cpu_ns() - start_ns < walk_ns)
                ;
        return at;
}

static int survival_after(uint64_t after_clearing_ns) {
        size_t n_bytes = clear_calibrate_harm_bytes();
        struct clear_calibration calibration;
        char *memory = map_zero(n_bytes);

        walks.after_clearing_ns = after_clearing_ns;
        walks.n = n_rings_flushed = 0;
        calibrate_by_looking(&calibration, memory, n_bytes);
        walks.after_clearing_ns = 0;
        assert_int_equal(walks.n, N_WALKS_BEFORE + 3 * 3);
        assert_int_equal(n_rings_flushed, 3); /* or a cold walk would not be one */
        assert_int_equal(seen.n_other_bytes, 3 * 128 * MIB);
        assert_false(clear_calibration_lacks_harm(&calibration, 0));
        assert_null(strstr(calibration.reason, "not measured"));
        assert_zero(memory, n_bytes);
        munmap(memory, n_bytes);
        return calibration.figures[0][0].survival_percent;
}

static void assert_survival(uint64_t after_clearing_ns, int least_percent, int most_percent) {
        int percent = survival_after(after_clearing_ns);

        if (percent < least_percent || percent > most_percent)
                fail_msg("%d %% survive where a walk takes %.1f ms after clearing", percent, (double) after_clearing_ns / 1e6);
}

static void harm_is_that_of_as_much_memory_as_harms(void **state) {
        assert_survival(WARM_WALK_NS, 98, 100);
        assert_survival(COLD_WALK_NS / 2, 60, 65);
        assert_survival(2 * COLD_WALK_NS, 0, 0);
}

static void memory_that_is_lost_while_harm_is_measured_is_an_error_code(void **state) {
        size_t n_bytes = clear_calibrate_harm_bytes();

        assert_int_equal(clear_catch_sigbus(), 0);
        walks.after_clearing_ns = WARM_WALK_NS;
        for (unsigned when = VANISHES_BEFORE_READING; when <= VANISHES_BEFORE_WALK; when++) {
                struct clear_calibration calibration;
                char *memory;

                vanishing.fd = memfd_create("test", MFD_CLOEXEC);
                assert_true(vanishing.fd >= 0 && ftruncate(vanishing.fd, (off_t) n_bytes) == 0);
                memory = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, vanishing.fd, 0);
                assert_true(memory != MAP_FAILED);
                memset(memory, 0, n_bytes);
                clear_calibration_init(&calibration);
                calibration.n_methods = 1;
                calibration.methods[0] = clear_method_cached();
                assert_int_equal(clear_calibration_add(&calibration, 2 * MIB), 0);
                walks.n = 0;
                vanishing.when = when;
                assert_int_equal(clear_calibrate(&calibration, memory, n_bytes, UINT64_C(20000000000), NULL, NULL), -EFAULT);
                vanishing.when = VANISHES_NEVER;
                assert_true(calibration.is_measured[0]); /* it was harm that was being measured */
                munmap(memory, n_bytes);
                close(vanishing.fd);
        }
        walks.after_clearing_ns = 0;
}

static void survival_is_where_a_walk_lies_between_warm_and_cold(void **state) {
        assert_int_equal(clear_survival_percent(100, 500, 90), 100);
        assert_int_equal(clear_survival_percent(100, 500, 100), 100);
        assert_int_equal(clear_survival_percent(100, 500, 120), 95);
        assert_int_equal(clear_survival_percent(100, 500, 480), 5);
        assert_int_equal(clear_survival_percent(100, 500, 500), 0);
        assert_int_equal(clear_survival_percent(100, 500, 9999), 0);
}

static uint64_t walk_ns(char *ring, size_t n_bytes) {
        uint64_t start_ns = cpu_ns();

        (void) clear_ring_walk(ring, n_bytes / CLEAR_RING_LINE_BYTES);
        return cpu_ns() - start_ns;
}

static void what_is_flushed_has_to_be_fetched_again_and_is_the_same(void **state) {
        size_t n_bytes = MIB / 4;
        char *ring = map_zero(n_bytes), *copy = map_zero(n_bytes);
        uint64_t warm_ns = UINT64_MAX, cold_ns = UINT64_MAX;

        clear_ring_make(ring, n_bytes);
        memcpy(copy, ring, n_bytes);
        for (size_t i = 0; i < 20; i++) { /* others only ever make it slower */
                uint64_t ns;

                (void) walk_ns(ring, n_bytes);
                ns = walk_ns(ring, n_bytes);
                warm_ns = ns < warm_ns ? ns : warm_ns;
                assert_int_equal(clear_flush(ring, n_bytes), 0);
                ns = walk_ns(ring, n_bytes);
                cold_ns = ns < cold_ns ? ns : cold_ns;
        }
        assert_true(memcmp(ring, copy, n_bytes) == 0);
        if (cold_ns < 2 * warm_ns && !RUNNING_ON_EMULATOR)
                fail_msg("a walk takes %.0f us, and %.0f after flushing", (double) warm_ns / 1e3, (double) cold_ns / 1e3);
        munmap(ring, n_bytes);
        munmap(copy, n_bytes);
}

static bool after_some_time(void *userdata) {
        unsigned *n_left = userdata;

        return *n_left == 0 || --*n_left == 0;
}

static void a_calibration_can_be_called_off_at_any_time(void **state) {
        static const size_t slice_bytes[] = {MIB};
        size_t n_bytes = 4 * MIB;
        char *memory = map_zero(n_bytes);
        struct clear_calibration calibration;
        unsigned n_runs = 1;
        int r;

        do {
                unsigned n_left = n_runs;

                begin(&calibration, slice_bytes, 1);
                r = clear_calibrate(&calibration, memory, n_bytes, UINT64_C(20000000000), after_some_time, &n_left);
                assert_zero(memory, n_bytes);
                assert_true(r == -ECANCELED || (r == 0 && n_runs > 1));
                assert_sane(&calibration); /* nothing that was measured half */
                n_runs += 7;
        } while (r == -ECANCELED);
        assert_true(calibration.is_measured[0]);
        munmap(memory, n_bytes);
}

static void sizes_that_make_no_sense_are_refused(void **state) {
        size_t page_bytes = clear_base_page_bytes();
        struct clear_calibration calibration;

        clear_calibration_init(&calibration);
        assert_int_equal(clear_calibration_add(&calibration, page_bytes + 1), -EINVAL);
        assert_int_equal(clear_calibration_add(&calibration, 0), -EINVAL);
        for (size_t i = CLEAR_CALIBRATE_MAX_SLICES; i > 0; i--)
                assert_int_equal(clear_calibration_add(&calibration, i * page_bytes), 0);
        assert_int_equal(clear_calibration_add(&calibration, page_bytes), 0); /* is there */
        assert_int_equal(clear_calibration_add(&calibration, 100 * page_bytes), -ENOSPC);
        for (size_t i = 0; i < CLEAR_CALIBRATE_MAX_SLICES; i++)
                assert_int_equal(calibration.slice_bytes[i], (i + 1) * page_bytes);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_fastest_wins_unless_one_that_is_near_does_much_less_harm),
                cmocka_unit_test(nothing_below_memset_is_chosen),
                cmocka_unit_test(what_was_not_measured_decides_nothing),
                cmocka_unit_test(the_reason_names_both_sides_of_the_decision),
                cmocka_unit_test(survival_that_is_low_for_all_is_not_told),
                cmocka_unit_test(a_size_that_was_not_measured_for_all_takes_over_the_choice_of_a_smaller_one),
                cmocka_unit_test(before_anything_is_measured_stores_pass_by_the_caches),
                cmocka_unit_test(a_long_reason_is_cut_not_overrun),
                cmocka_unit_test(a_calibration_measures_and_chooses),
                cmocka_unit_test(a_calibration_keeps_to_its_budget),
                cmocka_unit_test(without_a_budget_nothing_is_measured_and_what_follows_measures_the_rest),
                cmocka_unit_test(speed_is_measured_on_memory_that_is_not_in_the_caches),
                cmocka_unit_test(harm_is_that_of_as_much_memory_as_harms),
                cmocka_unit_test(memory_that_is_lost_while_harm_is_measured_is_an_error_code),
                cmocka_unit_test(survival_is_where_a_walk_lies_between_warm_and_cold),
                cmocka_unit_test(what_is_flushed_has_to_be_fetched_again_and_is_the_same),
                cmocka_unit_test(a_calibration_can_be_called_off_at_any_time),
                cmocka_unit_test(sizes_that_make_no_sense_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
