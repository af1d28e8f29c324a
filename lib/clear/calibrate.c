/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measuring of speed and of harm.
 *
 * Rounds go over all methods before the next begins: what disturbs a round (another process, a hypervisor) disturbs all of them
 * alike. Of several short runs the fastest counts, because disturbance only ever makes them slower: time that a hypervisor takes
 * away looks like the thread's own.
 *
 * A slice size is measured for all methods that have a chance, or not at all: who was left out could have been the best.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "calibrate.h"
#include "methods.h"
#include "ring.h"

#define PROBE_BYTES ((size_t) 8 << 20)      /* chosen: 0.8 ms at 10 GB/s, long against the clock's and the fence's cost */
#define HARM_BYTES ((size_t) 128 << 20)     /* chosen: a single extent shows nothing, this does (measured) */
#define MAX_L2_BYTES ((size_t) 4 << 20)     /* chosen: walking it cold takes 5 ms */
#define DEFAULT_L2_BYTES ((size_t) 1 << 20) /* chosen: where neither the C library nor the CPU tell */
#define LONG_RUN_BYTES ((size_t) 64 << 20) /* chosen: runs of so much are measured less often */
/* Shares of the budget. Chosen: what must be measured comes first; what makes it more certain shares with the harm. */
#define NEEDED_PERCENT 90
#define MORE_PERCENT 50
#define HARM_PERCENT 95      /* clearing up takes the rest */
#define WALL_TIMES 4         /* chosen: of the budget; a thread that gets less than a quarter of a CPU gives up */
#define N_NEEDED_ROUNDS 3    /* chosen: the least that several is */
#define N_NEEDED_LONG 2
#define N_MOST_ROUNDS 6      /* chosen */
#define N_MOST_LONG 3
#define N_HARM_ROUNDS 3      /* chosen */
#define FLUSH_NS_PER_BYTE 0.1 /* chosen, until it is known; measured 0.04 for lines that are in no cache, to 0.09 */
#define PREPARE_HARM_NS 8e6   /* measured: 4 to 6 ms with an L2 cache of 2 MiB */
#define HOPELESS 0.65        /* chosen: a method below this share of the best is not measured again, nor for larger slices */

struct probe {
        struct clear_calibration *calibration;
        char *addr; /* what is cleared */
        size_t n_bytes;
        size_t at_bytes; /* goes round */
        size_t n_flushed_bytes;
        uint64_t flush_ns; /* that it took */
        uint64_t start_ns, start_used_ns;
        uint64_t budget_ns; /* of CPU time, for all of it */
        bool (*stop)(void *userdata);
        void *userdata;
        char *warm;                /* the harm buffer, a ring of pointers in random order; our own: nobody else can take pages off it */
        size_t n_warm_bytes;       /* 0: harm cannot be measured */
        uint64_t warm_ns, cold_ns; /* one walk */
        int survival_percent[CLEAR_CALIBRATE_MAX_METHODS][CLEAR_CALIBRATE_MAX_SLICES][N_HARM_ROUNDS]; /* in ascending order */
        unsigned n_survivals[CLEAR_CALIBRATE_MAX_METHODS][CLEAR_CALIBRATE_MAX_SLICES];
        bool is_new[CLEAR_CALIBRATE_MAX_SLICES]; /* measured this time */
};

static uint64_t clock_ns(clockid_t clock) {
        struct timespec now;

        (void) clock_gettime(clock, &now); /* cannot fail with the two that are used */
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* For the limit in case that others have the CPU. */
static uint64_t now_ns(void) {
        return clock_ns(CLOCK_MONOTONIC);
}

/* For the budget and for measuring: another thread that gets the CPU in between does not make a method slower. */
static uint64_t used_ns(void) {
        return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

/* Whether so much more ends before this share of the budget is used up. */
static bool fits(const struct probe *probe, unsigned budget_percent, double needed_ns) {
        double budget_ns = (double) probe->budget_ns * budget_percent / 100;

        needed_ns += needed_ns / 4; /* chosen: a quarter of its time is what a run varies by */
        return (double) (used_ns() - probe->start_used_ns) + needed_ns < budget_ns &&
               now_ns() - probe->start_ns < WALL_TIMES * probe->budget_ns;
}

static int flush(struct probe *probe, char *slice, size_t slice_bytes) {
        uint64_t start_ns = used_ns();
        int r = clear_flush(slice, slice_bytes);

        probe->flush_ns += used_ns() - start_ns;
        probe->n_flushed_bytes += slice_bytes;
        return r == -EOPNOTSUPP ? 0 : r;
}

/*
 * Clears @n_bytes (at least one slice) slice by slice, going round in the memory. @is_cold: each slice is flushed before it is
 * cleared and timed. The caches hold all of this memory, from the first round on, but nothing of what clients give back:
 * methods that write to the caches would look twice as fast here as they are there (measured).
 */
static int clear_round(struct probe *probe, const struct clear_method *method, size_t slice_bytes, size_t n_bytes, bool is_cold,
                       uint64_t *ret_ns) {
        size_t page_bytes = clear_base_page_bytes(), done_bytes = 0;
        uint64_t start_ns, took_ns = 0;
        char *slice;
        int r;

        if (probe->stop && probe->stop(probe->userdata))
                return -ECANCELED;
        do {
                if (probe->n_bytes - probe->at_bytes < slice_bytes)
                        probe->at_bytes = 0;
                slice = probe->addr + probe->at_bytes;
                r = is_cold ? flush(probe, slice, slice_bytes) : 0;
                if (r < 0)
                        return r;
                start_ns = used_ns();
                r = clear_pages(method, slice, slice_bytes / page_bytes);
                if (r < 0)
                        return r;
                took_ns += used_ns() - start_ns;
                probe->at_bytes += slice_bytes;
                done_bytes += slice_bytes;
        } while (done_bytes + slice_bytes <= n_bytes);
        /* Scaled to what was asked for: a slice does not always divide it. */
        *ret_ns = (uint64_t) ((double) took_ns * (double) n_bytes / (double) done_bytes);
        return 0;
}

static double best_gb_per_s(const struct clear_calibration *calibration, size_t slice) {
        double best = 0;

        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->figures[i][slice].gb_per_s > best)
                        best = calibration->figures[i][slice].gb_per_s;
        return best;
}

/* How much a run of this slice size clears. */
static size_t run_bytes(const struct clear_calibration *calibration, size_t slice) {
        size_t slice_bytes = calibration->slice_bytes[slice];

        return slice_bytes > PROBE_BYTES ? slice_bytes : PROBE_BYTES;
}

/* The nearest smaller size that was measured, or n_slices. */
static size_t measured_below(const struct clear_calibration *calibration, size_t slice) {
        for (size_t i = slice; i-- > 0;)
                if (calibration->is_measured[i])
                        return i;
        return calibration->n_slices;
}

/* Whether a method may turn out as the best, by what smaller slices say of it. memset() always may: it is what others must beat. */
static bool is_candidate(const struct clear_calibration *calibration, size_t i, size_t slice) {
        size_t below = measured_below(calibration, slice);

        return below == calibration->n_slices || calibration->methods[i] == clear_method_cached() ||
               calibration->figures[i][below].gb_per_s >= HOPELESS * best_gb_per_s(calibration, below);
}

static double flush_ns_per_byte(const struct probe *probe) {
        return probe->n_flushed_bytes > 0 ? (double) probe->flush_ns / (double) probe->n_flushed_bytes : FLUSH_NS_PER_BYTE;
}

/* What a run will take, with the flushing; of the first ones nothing is known but how long the slowest one before took. */
static double estimate_ns(const struct probe *probe, size_t i, size_t slice) {
        const struct clear_calibration *calibration = probe->calibration;
        size_t below = measured_below(calibration, slice);
        double gb_per_s = calibration->figures[i][slice].gb_per_s;

        if (gb_per_s <= 0 && below < calibration->n_slices)
                gb_per_s = calibration->figures[i][below].gb_per_s;
        for (size_t k = 0; k < i && gb_per_s <= 0; k++)
                if (calibration->figures[k][slice].gb_per_s > 0)
                        gb_per_s = calibration->figures[k][slice].gb_per_s;
        return (double) run_bytes(calibration, slice) * ((gb_per_s > 0 ? 1 / gb_per_s : 0) + flush_ns_per_byte(probe));
}

static int run_once(struct probe *probe, size_t i, size_t slice) {
        struct clear_calibration *calibration = probe->calibration;
        struct clear_figures *figures = &calibration->figures[i][slice];
        size_t n_bytes = run_bytes(calibration, slice);
        uint64_t took_ns;
        int r = clear_round(probe, calibration->methods[i], calibration->slice_bytes[slice], n_bytes, /* is_cold= */ true,
                            &took_ns);

        if (r >= 0 && took_ns > 0 && (double) n_bytes / (double) took_ns > figures->gb_per_s)
                figures->gb_per_s = (double) n_bytes / (double) took_ns;
        return r;
}

/* What disturbs a short run may well make it look hopeless once. */
static unsigned n_before_hopeless(const struct clear_calibration *calibration, size_t slice) {
        return run_bytes(calibration, slice) < LONG_RUN_BYTES ? 2 : 1;
}

/* 1: all that have a chance had a run; 0: the budget does not last for that. */
static int run_round(struct probe *probe, size_t slice, unsigned round, unsigned budget_percent) {
        const struct clear_calibration *calibration = probe->calibration;
        int r;

        for (size_t i = 0; i < calibration->n_methods; i++) {
                if (!is_candidate(calibration, i, slice) ||
                    (round >= n_before_hopeless(calibration, slice) &&
                     calibration->figures[i][slice].gb_per_s < HOPELESS * best_gb_per_s(calibration, slice)))
                        continue;
                if (!fits(probe, budget_percent, estimate_ns(probe, i, slice)))
                        return 0;
                r = run_once(probe, i, slice);
                if (r < 0)
                        return r;
        }
        return 1;
}

static void forget_slice(struct clear_calibration *calibration, size_t slice) {
        for (size_t i = 0; i < calibration->n_methods; i++)
                calibration->figures[i][slice] = (struct clear_figures){CLEAR_NOT_MEASURED, CLEAR_NOT_MEASURED};
}

static unsigned n_needed(const struct clear_calibration *calibration, size_t slice) {
        return run_bytes(calibration, slice) < LONG_RUN_BYTES ? N_NEEDED_ROUNDS : N_NEEDED_LONG;
}

/* Whether there is a point in beginning with a size: half of a measurement is none. */
static bool is_affordable(const struct probe *probe, size_t slice) {
        const struct clear_calibration *calibration = probe->calibration;
        double needed_ns = 0;

        for (size_t i = 0; i < calibration->n_methods; i++)
                if (is_candidate(calibration, i, slice))
                        needed_ns += n_needed(calibration, slice) * estimate_ns(probe, i, slice);
        return fits(probe, NEEDED_PERCENT, needed_ns);
}

/* The rounds without which a figure says nothing. Either all of them are done, or there are no figures. */
static int measure_needed(struct probe *probe, size_t slice) {
        struct clear_calibration *calibration = probe->calibration;
        int r = is_affordable(probe, slice);

        for (unsigned round = 0; r > 0 && round < n_needed(calibration, slice); round++)
                r = run_round(probe, slice, round, NEEDED_PERCENT);
        if (r > 0 && best_gb_per_s(calibration, slice) > 0)
                calibration->is_measured[slice] = probe->is_new[slice] = true;
        else
                forget_slice(calibration, slice);
        return r;
}

static int measure_speed(struct probe *probe) {
        const struct clear_calibration *calibration = probe->calibration;
        int r;

        for (size_t slice = 0; slice < calibration->n_slices; slice++) {
                if (calibration->is_measured[slice] || calibration->slice_bytes[slice] > probe->n_bytes)
                        continue;
                r = measure_needed(probe, slice);
                if (r <= 0)
                        return r; /* larger ones would cost even more */
        }
        for (unsigned round = N_NEEDED_LONG; round < N_MOST_ROUNDS; round++)
                for (size_t slice = 0; slice < calibration->n_slices; slice++) {
                        if (!probe->is_new[slice] || round < n_needed(calibration, slice) ||
                            (round >= N_MOST_LONG && run_bytes(calibration, slice) >= LONG_RUN_BYTES))
                                continue;
                        r = run_round(probe, slice, round, MORE_PERCENT);
                        if (r <= 0)
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

size_t clear_calibrate_harm_bytes(void) {
        return 8 * l2_bytes();
}

static uint64_t walk_ring(char *buffer, size_t n_bytes) {
        uint64_t start_ns = used_ns();

        (void) clear_ring_walk(buffer, n_bytes / CLEAR_RING_LINE_BYTES);
        return used_ns() - start_ns;
}

static void read_lines(void *addr, size_t n_bytes) {
        const volatile char *at = addr;

        for (size_t i = 0; i < n_bytes; i += CLEAR_RING_LINE_BYTES)
                (void) at[i];
}

/* Without an instruction for that, reading much other memory has to push it out. */
static int make_cold(const struct probe *probe) {
        int r = clear_flush(probe->warm, probe->n_warm_bytes);
        size_t n_bytes = clear_calibrate_harm_bytes();

        return r == -EOPNOTSUPP ? clear_guarded(read_lines, probe->addr, n_bytes, n_bytes) : r;
}

/* Makes the harm buffer and finds out what a warm and a cold walk take. */
static int prepare_harm(struct probe *probe) {
        /* Half of the cache (measured): a whole one does not stay warm beside the code, the page tables and the stack. */
        size_t page_bytes = clear_base_page_bytes(), n_bytes = l2_bytes() / 2 / page_bytes * page_bytes;
        void *warm;

        if (n_bytes < page_bytes || probe->n_bytes < clear_calibrate_harm_bytes())
                return 0;
        warm = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (warm == MAP_FAILED)
                return 0; /* the speed alone decides */
        probe->warm = warm;
        probe->n_warm_bytes = n_bytes;
        clear_ring_make(probe->warm, n_bytes);
        probe->warm_ns = probe->cold_ns = UINT64_MAX;
        for (unsigned round = 0; round < N_HARM_ROUNDS; round++) {
                uint64_t took_ns;
                int r = make_cold(probe);

                if (r < 0)
                        return r;
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

/*
 * The median counts: stores through the caches may leave nearly all of a buffer once, and nearly nothing of it the next time
 * (measured), and the best would be luck.
 */
static void note_survival(struct probe *probe, size_t i, size_t slice, int percent) {
        int *percents = probe->survival_percent[i][slice];
        unsigned at = probe->n_survivals[i][slice]++, n = at + 1;

        for (; at > 0 && percents[at - 1] > percent; at--)
                percents[at] = percents[at - 1];
        percents[at] = percent;
        probe->calibration->figures[i][slice].survival_percent = percents[n / 2];
}

static int measure_harm_of(struct probe *probe, size_t i, size_t slice) {
        struct clear_calibration *calibration = probe->calibration;
        uint64_t took_ns;
        int r;

        if (!fits(probe, HARM_PERCENT, 4 * (double) probe->cold_ns + (double) HARM_BYTES / calibration->figures[i][slice].gb_per_s))
                return 0;
        (void) walk_ring(probe->warm, probe->n_warm_bytes);
        (void) walk_ring(probe->warm, probe->n_warm_bytes);
        r = clear_round(probe, calibration->methods[i], calibration->slice_bytes[slice], HARM_BYTES, /* is_cold= */ false,
                        &took_ns);
        if (r < 0)
                return r;
        took_ns = walk_ring(probe->warm, probe->n_warm_bytes);
        note_survival(probe, i, slice, clear_survival_percent(probe->warm_ns, probe->cold_ns, took_ns));
        return 0;
}

/* Among those that are near the fastest it may decide; it is nothing to spend CPU time on for the others. */
static int measure_harm(struct probe *probe) {
        const struct clear_calibration *calibration = probe->calibration;
        bool is_wanted[CLEAR_CALIBRATE_MAX_SLICES] = {}, has_any = false;
        int r;

        for (size_t slice = 0; slice < calibration->n_slices; slice++) {
                is_wanted[slice] = clear_calibration_lacks_harm(calibration, slice) &&
                                   calibration->slice_bytes[slice] <= probe->n_bytes;
                has_any = has_any || is_wanted[slice];
        }
        r = has_any && fits(probe, HARM_PERCENT, PREPARE_HARM_NS) ? prepare_harm(probe) : 0;

        /* Twice the time is what makes a cache worth keeping, and what noise does not hide. An emulator shows no difference. */
        if (r < 0 || probe->n_warm_bytes == 0 || probe->cold_ns < 2 * probe->warm_ns)
                return r;
        for (unsigned round = 0; round < N_HARM_ROUNDS; round++)
                for (size_t slice = calibration->n_slices; slice-- > 0;) {
                        double near = best_gb_per_s(calibration, slice) * (100 - CLEAR_CALIBRATE_NEAR_PERCENT) / 100;

                        for (size_t i = 0; i < calibration->n_methods && is_wanted[slice]; i++) {
                                double gb_per_s = calibration->figures[i][slice].gb_per_s;

                                r = gb_per_s > 0 && gb_per_s >= near ? measure_harm_of(probe, i, slice) : 0;
                                if (r < 0)
                                        return r;
                        }
                }
        return 0;
}

static int measure(struct probe *probe) {
        int r = measure_speed(probe);

        if (r >= 0)
                r = measure_harm(probe);
        if (probe->warm)
                (void) munmap(probe->warm, probe->n_warm_bytes);
        return r;
}

void clear_calibration_init(struct clear_calibration *calibration) {
        const struct clear_method *method;

        *calibration = (struct clear_calibration){};
        for (size_t i = 0; (method = clear_method_at(i)) && calibration->n_methods < CLEAR_CALIBRATE_MAX_METHODS; i++)
                if (!method->why_not())
                        calibration->methods[calibration->n_methods++] = method;
        clear_calibration_choose(calibration);
}

int clear_calibration_add(struct clear_calibration *calibration, size_t slice_bytes) {
        size_t slice = 0, n_above;

        if (slice_bytes == 0 || slice_bytes % clear_base_page_bytes() != 0)
                return -EINVAL;
        while (slice < calibration->n_slices && calibration->slice_bytes[slice] < slice_bytes)
                slice++;
        if (slice < calibration->n_slices && calibration->slice_bytes[slice] == slice_bytes)
                return 0;
        if (calibration->n_slices == CLEAR_CALIBRATE_MAX_SLICES)
                return -ENOSPC;
        n_above = calibration->n_slices++ - slice;
        memmove(&calibration->slice_bytes[slice + 1], &calibration->slice_bytes[slice], n_above * sizeof(size_t));
        memmove(&calibration->is_measured[slice + 1], &calibration->is_measured[slice], n_above * sizeof(bool));
        for (size_t i = 0; i < calibration->n_methods; i++)
                memmove(&calibration->figures[i][slice + 1], &calibration->figures[i][slice],
                        n_above * sizeof(struct clear_figures));
        calibration->slice_bytes[slice] = slice_bytes;
        calibration->is_measured[slice] = false;
        forget_slice(calibration, slice);
        clear_calibration_choose(calibration);
        return 0;
}

int clear_calibrate(struct clear_calibration *calibration, void *addr, size_t n_bytes, uint64_t budget_ns,
                    bool (*stop)(void *userdata), void *userdata) {
        struct probe probe = {.calibration = calibration,
                              .addr = addr,
                              .n_bytes = n_bytes < CLEAR_CALIBRATE_BYTES ? n_bytes : CLEAR_CALIBRATE_BYTES,
                              .start_ns = now_ns(),
                              .start_used_ns = used_ns(),
                              .budget_ns = budget_ns,
                              .stop = stop,
                              .userdata = userdata};
        int r;

        probe.n_bytes -= probe.n_bytes % clear_base_page_bytes();
        r = measure(&probe);
        clear_calibration_choose(calibration);
        calibration->used_ns += used_ns() - probe.start_used_ns;
        return r;
}
