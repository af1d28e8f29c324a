/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * How fast every method clears memory, and how fast the kernel does. Rounds go over all of them, so that what disturbs one
 * round disturbs all alike. Everything works through the same memory, a window at a time, and each is flushed from the caches
 * before: no run meets the lines that one before has left, and the kernel gets cold pages as the methods do.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench-clear.h"
#include "cleanup.h"
#include "parse.h"

#define WINDOW_BYTES (UINT64_C(128) << 20) /* chosen: cleared in each run by chunks that are smaller; 3 ms at 40 GB/s */

const size_t bench_chunk_bytes[BENCH_N_CHUNKS] = {(size_t) 4 << 10, (size_t) 2 << 20, (size_t) 32 << 20, (size_t) 1 << 30};

struct run {
        const struct bench *bench;
        char *memory;
        uint64_t at_bytes; /* where the next window begins */
        uint64_t *samples_ns[BENCH_N_ROWS][BENCH_N_CHUNKS];
};

/* The thread's own time: others that get the CPU meanwhile do not make clearing slower. */
static uint64_t used_ns(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* How much of the memory one run goes through: whole chunks and whole pages. 0: there is less than one. */
static uint64_t window_bytes(const struct bench *bench, size_t chunk) {
        uint64_t bytes = WINDOW_BYTES < bench->bytes ? WINDOW_BYTES : bench->bytes, unit = bench_chunk_bytes[chunk];
        if (unit < bench->page_size_bytes)
                unit = bench->page_size_bytes;
        if (unit > bench->bytes)
                return 0;
        return bytes < unit ? unit : bytes / unit * unit;
}

static bool is_measured(const struct bench *bench, size_t row, size_t chunk) {
        size_t unit_bytes = row < BENCH_ROW_DEMAND ? clear_base_page_bytes() : bench->page_size_bytes;
        if (bench_chunk_bytes[chunk] < unit_bytes || window_bytes(bench, chunk) == 0)
                return false;
        return row >= BENCH_ROW_DEMAND || (clear_method_at(row) && !clear_method_at(row)->why_not());
}

static int run_kernel(const struct run *run, char *window, uint64_t bytes, size_t chunk, bool is_populate, uint64_t *ret_ns) {
        int r = munmap(window, bytes) < 0 ? negative_errno() : 0;
        uint64_t start_ns = used_ns();
        for (uint64_t at = 0; at < bytes && r >= 0; at += bench_chunk_bytes[chunk])
                r = bench_kernel_map_at(run->bench, window + at, bench_chunk_bytes[chunk], is_populate);
        *ret_ns = used_ns() - start_ns;
        return r;
}

static int run_method(size_t row, char *window, uint64_t bytes, size_t chunk, uint64_t *ret_ns) {
        size_t n_base_pages = bench_chunk_bytes[chunk] / clear_base_page_bytes();
        int r = 0;
        uint64_t start_ns = used_ns();
        for (uint64_t at = 0; at < bytes && r >= 0; at += bench_chunk_bytes[chunk])
                r = clear_pages(clear_method_at(row), window + at, n_base_pages);
        *ret_ns = used_ns() - start_ns;
        return r;
}

static int run_round(struct run *run, unsigned round) {
        for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++) {
                uint64_t bytes = window_bytes(run->bench, chunk);
                for (size_t row = 0; row < BENCH_N_ROWS; row++) {
                        if (!is_measured(run->bench, row, chunk))
                                continue;
                        if (run->at_bytes + bytes > run->bench->bytes)
                                run->at_bytes = 0;
                        char *window = run->memory + run->at_bytes;
                        uint64_t *ret_ns = &run->samples_ns[row][chunk][round];
                        int r = clear_flush(window, bytes);
                        if (r == -EOPNOTSUPP)
                                r = 0;
                        if (r >= 0 && row < BENCH_ROW_DEMAND)
                                r = run_method(row, window, bytes, chunk, ret_ns);
                        else if (r >= 0)
                                r = run_kernel(run, window, bytes, chunk, row == BENCH_ROW_POPULATE, ret_ns);
                        if (r < 0)
                                return r;
                        run->at_bytes += bytes;
                }
        }
        return 0;
}

int bench_speeds_measure(const struct bench *bench, char *memory, struct bench_speeds *ret_speeds) {
        struct run run = {.bench = bench, .memory = memory};
        _cleanup_free_ uint64_t *samples_ns =
                calloc((size_t) BENCH_N_ROWS * BENCH_N_CHUNKS * bench->n_runs, sizeof(*samples_ns));
        int r = samples_ns ? 0 : -ENOMEM;
        for (size_t row = 0; row < BENCH_N_ROWS; row++)
                for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++)
                        run.samples_ns[row][chunk] = samples_ns + (row * BENCH_N_CHUNKS + chunk) * bench->n_runs;
        for (unsigned round = 0; round < bench->n_runs && r >= 0; round++)
                r = run_round(&run, round);
        if (r < 0) {
                ctl_error("measuring: %u run%s of clearing: %s; did others take the pages?", bench->n_runs,
                          plural_s(bench->n_runs), strerror(-r));
                return CTL_EXIT_FAILED;
        }
        for (size_t row = 0; row < BENCH_N_ROWS; row++)
                for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++) {
                        double bytes = (double) window_bytes(bench, chunk);
                        struct bench_stats stats = bench_stats_of(run.samples_ns[row][chunk], bench->n_runs);
                        ret_speeds->cells[row][chunk] = (struct bench_speed){};
                        if (is_measured(bench, row, chunk) && stats.min_ns > 0)
                                ret_speeds->cells[row][chunk] = (struct bench_speed){
                                        bytes / stats.median_ns, bytes / stats.max_ns, bytes / stats.min_ns};
                }
        return CTL_EXIT_OK;
}

const struct clear_method *bench_speeds_best(const struct bench_speeds *speeds, size_t chunk, double *ret_gb_per_s) {
        size_t best = 0;
        for (size_t row = 1; row < BENCH_ROW_DEMAND; row++)
                if (speeds->cells[row][chunk].median > speeds->cells[best][chunk].median)
                        best = row;
        *ret_gb_per_s = speeds->cells[best][chunk].median;
        return *ret_gb_per_s > 0 ? clear_method_at(best) : NULL;
}

double bench_speeds_of(const struct bench_speeds *speeds, const struct clear_method *method, size_t chunk) {
        for (size_t row = 0; row < BENCH_ROW_DEMAND; row++)
                if (clear_method_at(row) == method)
                        return speeds->cells[row][chunk].median;
        return 0;
}
