/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measuring of speed and of harm.
 *
 * Rounds go over all methods before the next begins: what disturbs a round (another process, a hypervisor) disturbs all of them
 * alike. For speed the median of the rounds counts, not the best: some processors have a fast and a slow mode for the same
 * instruction, and change between them at will. For survival the best counts, because disturbance only ever lowers it.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "calibrate.h"
#include "ring.h"

#define PROBE_BYTES ((size_t) 8 << 20)      /* chosen: 0.8 ms at 10 GB/s, long against the clock's and the fence's cost */
#define HARM_BYTES ((size_t) 128 << 20)     /* chosen: a single extent shows nothing, this does (measured) */
#define MAX_L2_BYTES ((size_t) 4 << 20)     /* chosen: walking it cold takes 5 ms */
#define DEFAULT_L2_BYTES ((size_t) 1 << 20) /* chosen: where neither the C library nor the CPU tell */
#define NS_PER_MS UINT64_C(1000000)
#define SPEED_BUDGET_PERCENT 50 /* of the whole; harm takes what is left */
#define HARM_BUDGET_PERCENT 98  /* less what clearing up takes at the end */
#define MIN_BUDGET_MS 40        /* chosen: a few runs of each method, however little memory there is */
#define LONG_RUN_BYTES ((size_t) 64 << 20) /* chosen: longer runs are for methods that have a chance */
#define N_SPEED_ROUNDS 5                                                       /* chosen */
#define N_FULL_ROUNDS 2 /* chosen: after so many hopeless methods are left out */
#define N_HARM_ROUNDS 3 /* chosen */
#define HOPELESS 0.5    /* chosen: below this share of the best a method is not measured again */

/* What one method did with one slice size, in GB/s. */
struct samples {
        size_t n;
        double gb_per_s[N_SPEED_ROUNDS];
};

struct probe {
        struct clear_calibration *calibration;
        char *addr; /* what is cleared */
        size_t n_bytes;
        size_t at_bytes; /* goes round, so that no run meets lines that the one before has just left */
        size_t covered_bytes; /* have been cleared at least once, from the start of @addr on */
        uint64_t start_ns;
        uint64_t budget_ns; /* for all of it */
        bool (*stop)(void *userdata);
        void *userdata;
        char *warm;                /* the harm buffer, a ring of pointers in random order; behind @addr */
        size_t n_warm_bytes;       /* 0: harm cannot be measured */
        uint64_t warm_ns, cold_ns; /* one walk */
        struct samples samples[CLEAR_CALIBRATE_MAX_METHODS][CLEAR_CALIBRATE_MAX_SLICES];
};

static uint64_t clock_ns(clockid_t clock) {
        struct timespec now;

        (void) clock_gettime(clock, &now); /* cannot fail with the two that are used */
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* For the budget. */
static uint64_t now_ns(void) {
        return clock_ns(CLOCK_MONOTONIC);
}

/* For measuring: another thread that gets the CPU in between does not make a method slower. */
static uint64_t used_ns(void) {
        return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Whether @n_bytes at @gb_per_s (0: not known) and @more_ns end before this share of the budget has passed. */
static bool fits(const struct probe *probe, unsigned budget_percent, uint64_t more_ns, size_t n_bytes, double gb_per_s) {
        double needed_ns = (double) more_ns + (gb_per_s > 0 ? (double) n_bytes / gb_per_s : 0);
        double budget_ns = (double) probe->budget_ns * budget_percent / 100;

        needed_ns += needed_ns / 4; /* chosen: a quarter of its time is what a run varies by */

        return (double) (now_ns() - probe->start_ns) + needed_ns < budget_ns;
}

/* Clears @n_bytes (at least one slice) slice by slice, going round in the memory. */
static int clear_round(struct probe *probe, const struct clear_method *method, size_t slice_bytes, size_t n_bytes,
                       uint64_t *ret_ns) {
        size_t page_bytes = clear_base_page_bytes(), done_bytes = 0;
        uint64_t start_ns = used_ns();
        int r;

        if (probe->stop && probe->stop(probe->userdata))
                return -ECANCELED;
        if (slice_bytes > probe->n_bytes)
                slice_bytes = probe->n_bytes;
        do {
                if (probe->n_bytes - probe->at_bytes < slice_bytes)
                        probe->at_bytes = 0;
                r = clear_pages(method, probe->addr + probe->at_bytes, slice_bytes / page_bytes);
                if (r < 0)
                        return r;
                probe->at_bytes += slice_bytes;
                if (probe->at_bytes > probe->covered_bytes)
                        probe->covered_bytes = probe->at_bytes;
                done_bytes += slice_bytes;
        } while (done_bytes + slice_bytes <= n_bytes);
        /* Scaled to what was asked for: a slice does not always divide it. */
        *ret_ns = (uint64_t) ((double) (used_ns() - start_ns) * (double) n_bytes / (double) done_bytes);
        return 0;
}

static double best_gb_per_s(const struct clear_calibration *calibration, size_t slice) {
        double best = 0;

        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->figures[i][slice].gb_per_s > best)
                        best = calibration->figures[i][slice].gb_per_s;
        return best;
}

/* Adds a sample, which keeps them sorted, and returns the median; the upper one of an even number. */
static double median_with(struct samples *samples, double gb_per_s) {
        size_t i = samples->n++;

        for (; i > 0 && samples->gb_per_s[i - 1] > gb_per_s; i--)
                samples->gb_per_s[i] = samples->gb_per_s[i - 1];
        samples->gb_per_s[i] = gb_per_s;
        return samples->gb_per_s[samples->n / 2];
}

static int measure_speed_of(struct probe *probe, size_t i, size_t slice, unsigned round) {
        struct clear_calibration *calibration = probe->calibration;
        struct clear_figures *figures = &calibration->figures[i][slice];
        size_t slice_bytes = calibration->slice_bytes[slice];
        size_t n_bytes = slice_bytes > PROBE_BYTES ? slice_bytes : PROBE_BYTES;
        /* What the smaller slices say of a method must do as an estimate for its first run. */
        double estimate = figures->gb_per_s > 0 ? figures->gb_per_s : slice > 0 ? figures[-1].gb_per_s : 0;
        uint64_t took_ns;
        int r;

        if (round >= N_FULL_ROUNDS && figures->gb_per_s < HOPELESS * best_gb_per_s(calibration, slice))
                return 0;
        if (n_bytes > LONG_RUN_BYTES && slice > 0 && estimate < HOPELESS * best_gb_per_s(calibration, slice - 1))
                return 0;
        if (!fits(probe, SPEED_BUDGET_PERCENT, 0, n_bytes, estimate))
                return 0;
        r = clear_round(probe, calibration->methods[i], slice_bytes, n_bytes, &took_ns);
        if (r < 0)
                return r;
        if (took_ns > 0)
                figures->gb_per_s = median_with(&probe->samples[i][slice], (double) n_bytes / (double) took_ns);
        return 0;
}

static int measure_speed(struct probe *probe) {
        int r;

        for (unsigned round = 0; round < N_SPEED_ROUNDS; round++)
                for (size_t slice = 0; slice < probe->calibration->n_slices; slice++)
                        for (size_t i = 0; i < probe->calibration->n_methods; i++) {
                                r = measure_speed_of(probe, i, slice, round);
                                if (r < 0)
                                        return r;
                        }
        return 0;
}

static size_t l2_bytes(void) {
        long n_bytes = -1;

#ifdef _SC_LEVEL2_CACHE_SIZE
        n_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
        if (n_bytes <= 0)
                return DEFAULT_L2_BYTES;
        return (size_t) n_bytes < MAX_L2_BYTES ? (size_t) n_bytes : MAX_L2_BYTES;
}

static uint64_t walk_ring(char *buffer, size_t n_bytes) {
        uint64_t start_ns = used_ns();

        (void) clear_ring_walk(buffer, n_bytes / CLEAR_RING_LINE_BYTES);
        return used_ns() - start_ns;
}

/* Reads enough other memory to push everything out of the L2 cache. */
static void evict(const struct probe *probe) {
        const volatile char *at = probe->addr;

        for (size_t i = 0; i < 8 * probe->n_warm_bytes; i += CLEAR_RING_LINE_BYTES)
                (void) at[i];
}

/* Splits the harm buffer off and finds out what a warm and a cold walk take. */
static int prepare_harm(struct probe *probe) {
        /* Half of the cache (measured): a whole one does not stay warm beside the code, the page tables and the stack. */
        size_t page_bytes = clear_base_page_bytes(), n_bytes = l2_bytes() / 2 / page_bytes * page_bytes;
        int r;

        if (n_bytes < page_bytes || probe->n_bytes / 16 < n_bytes)
                return 0;
        probe->n_bytes -= n_bytes;
        probe->at_bytes = 0;
        probe->warm = probe->addr + probe->n_bytes;
        probe->n_warm_bytes = n_bytes;
        r = clear_pages(clear_method_cached(), probe->warm, n_bytes / page_bytes);
        if (r < 0)
                return r;
        clear_ring_make(probe->warm, n_bytes);
        probe->warm_ns = probe->cold_ns = UINT64_MAX;
        for (unsigned round = 0; round < N_HARM_ROUNDS; round++) {
                uint64_t took_ns;

                evict(probe);
                took_ns = walk_ring(probe->warm, n_bytes);
                if (took_ns < probe->cold_ns)
                        probe->cold_ns = took_ns;
                (void) walk_ring(probe->warm, n_bytes);
                took_ns = walk_ring(probe->warm, n_bytes);
                if (took_ns < probe->warm_ns)
                        probe->warm_ns = took_ns;
        }
        return 0;
}

static int measure_harm_of(struct probe *probe, size_t i, size_t slice) {
        struct clear_calibration *calibration = probe->calibration;
        struct clear_figures *figures = &calibration->figures[i][slice];
        int survival_percent = 0;
        uint64_t took_ns;
        int r;

        if (!fits(probe, HARM_BUDGET_PERCENT, 4 * probe->cold_ns, HARM_BYTES, figures->gb_per_s))
                return 0;
        (void) walk_ring(probe->warm, probe->n_warm_bytes);
        (void) walk_ring(probe->warm, probe->n_warm_bytes);
        r = clear_round(probe, calibration->methods[i], calibration->slice_bytes[slice], HARM_BYTES, &took_ns);
        if (r < 0)
                return r;
        took_ns = walk_ring(probe->warm, probe->n_warm_bytes);
        if (took_ns <= probe->warm_ns)
                survival_percent = 100;
        else if (took_ns < probe->cold_ns)
                survival_percent = (int) ((probe->cold_ns - took_ns) * 100 / (probe->cold_ns - probe->warm_ns));
        if (survival_percent > figures->survival_percent)
                figures->survival_percent = survival_percent;
        return 0;
}

/* Harm decides among the candidates only: they come first, in several rounds. The others are measured once, for the record. */
static int measure_harm(struct probe *probe) {
        const struct clear_calibration *calibration = probe->calibration;
        int r = prepare_harm(probe);

        /* Twice the time is what makes a cache worth keeping, and what noise does not hide. An emulator shows no difference. */
        if (r < 0 || probe->n_warm_bytes == 0 || probe->cold_ns < 2 * probe->warm_ns)
                return r;
        for (unsigned round = 0; round <= N_HARM_ROUNDS; round++)
                for (size_t slice = calibration->n_slices; slice-- > 0;) {
                        double near = best_gb_per_s(calibration, slice) * (100 - CLEAR_CALIBRATE_NEAR_PERCENT) / 100;

                        for (size_t i = 0; i < calibration->n_methods; i++) {
                                double gb_per_s = calibration->figures[i][slice].gb_per_s;

                                if (gb_per_s <= 0 || (gb_per_s < near) != (round == N_HARM_ROUNDS))
                                        continue;
                                r = measure_harm_of(probe, i, slice);
                                if (r < 0)
                                        return r;
                        }
                }
        return 0;
}

static void add_methods(struct clear_calibration *calibration) {
        const struct clear_method *method;

        for (size_t i = 0; (method = clear_method_at(i)) && calibration->n_methods < CLEAR_CALIBRATE_MAX_METHODS; i++) {
                if (method->why_not())
                        continue;
                for (size_t slice = 0; slice < calibration->n_slices; slice++)
                        calibration->figures[calibration->n_methods][slice] =
                                (struct clear_figures){CLEAR_NOT_MEASURED, CLEAR_NOT_MEASURED};
                calibration->methods[calibration->n_methods++] = method;
        }
}

/* A calibration of less memory takes less time: its runs are shorter, and say less. */
static uint64_t budget_ns(size_t n_bytes) {
        uint64_t budget_ms = CLEAR_CALIBRATE_BUDGET_MS * (uint64_t) n_bytes / CLEAR_CALIBRATE_BYTES;

        return (budget_ms > MIN_BUDGET_MS ? budget_ms : MIN_BUDGET_MS) * NS_PER_MS;
}

/* Leaves no traces behind, however far it came; when it came to the end, nothing but zeroes. */
static int measure(struct probe *probe) {
        size_t page_bytes = clear_base_page_bytes();
        int r = measure_speed(probe), q = 0;

        if (r >= 0)
                r = measure_harm(probe);
        if (probe->n_warm_bytes > 0)
                q = clear_pages(clear_method_cached(), probe->warm, probe->n_warm_bytes / page_bytes);
        if (q >= 0 && r >= 0 && probe->covered_bytes < probe->n_bytes)
                q = clear_pages(clear_method_cached(), probe->addr + probe->covered_bytes,
                                (probe->n_bytes - probe->covered_bytes) / page_bytes);
        return q < 0 ? q : r;
}

int clear_calibrate_until(void *addr, size_t n_bytes, const size_t *slice_bytes, size_t n_slices, bool (*stop)(void *userdata),
                          void *userdata, struct clear_calibration *ret_calibration) {
        struct clear_calibration calibration = {.n_slices = n_slices};
        struct probe probe = {
                .calibration = &calibration, .addr = addr, .start_ns = now_ns(), .stop = stop, .userdata = userdata};
        size_t page_bytes = clear_base_page_bytes();
        int r;

        if (n_slices == 0 || n_slices > CLEAR_CALIBRATE_MAX_SLICES || n_bytes < page_bytes)
                return -EINVAL;
        for (size_t i = 0; i < n_slices; i++) {
                if (slice_bytes[i] == 0 || slice_bytes[i] % page_bytes != 0 || (i > 0 && slice_bytes[i] <= slice_bytes[i - 1]))
                        return -EINVAL;
                calibration.slice_bytes[i] = slice_bytes[i];
        }
        probe.n_bytes = n_bytes < CLEAR_CALIBRATE_BYTES ? n_bytes / page_bytes * page_bytes : CLEAR_CALIBRATE_BYTES;
        probe.budget_ns = budget_ns(probe.n_bytes);
        add_methods(&calibration);
        r = measure(&probe);
        if (r < 0)
                return r;
        clear_calibration_choose(&calibration);
        calibration.took_ms = (unsigned) ((now_ns() - probe.start_ns) / NS_PER_MS);
        *ret_calibration = calibration;
        return 0;
}

int clear_calibrate(void *addr, size_t n_bytes, const size_t *slice_bytes, size_t n_slices,
                    struct clear_calibration *ret_calibration) {
        return clear_calibrate_until(addr, n_bytes, slice_bytes, n_slices, /* stop= */ NULL, NULL, ret_calibration);
}
