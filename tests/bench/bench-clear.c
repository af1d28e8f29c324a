/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Clearing speed of every method for chunks of 4 KiB, 2 MiB, 32 MiB and 1 GiB on hugetlb memory: the table of the kernel's
 * patches. Rounds go over all methods, so that what disturbs one round disturbs all of them; shown are median and spread of
 * five.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "calibrate.h"
#include "clear.h"
#include "parse.h"

#define MEMORY_BYTES ((size_t) 1 << 30)   /* 512 pages of 2 MiB */
#define WINDOW_BYTES ((size_t) 128 << 20) /* cleared in each run by smaller chunks; moves on, to stay out of the caches */
#define N_ROUNDS 5
#define MAX_METHODS 16

static const size_t chunk_bytes[] = {(size_t) 4 << 10, (size_t) 2 << 20, (size_t) 32 << 20, (size_t) 1 << 30};
#define N_CHUNKS (sizeof(chunk_bytes) / sizeof(chunk_bytes[0]))

static double gb_per_s[MAX_METHODS][N_CHUNKS][N_ROUNDS];

static double now_s(void) {
        struct timespec now;

        /* The thread's own time: others that get the CPU meanwhile do not make clearing slower. */
        (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
        return (double) now.tv_sec + (double) now.tv_nsec / 1e9;
}

static int by_value(const void *a, const void *b) {
        return (*(const double *) a > *(const double *) b) - (*(const double *) a < *(const double *) b);
}

static double measure(const struct clear_method *method, char *memory, size_t n_bytes, size_t chunk) {
        size_t page_bytes = clear_base_page_bytes();
        double start_s = now_s();

        for (size_t at_bytes = 0; at_bytes < n_bytes; at_bytes += chunk)
                if (clear_pages(method, memory + at_bytes, chunk / page_bytes) < 0)
                        exit(EXIT_FAILURE);
        return (double) n_bytes / (now_s() - start_s) / 1e9;
}

static void measure_all(char *memory) {
        const struct clear_method *method;
        size_t at_bytes = 0;

        for (size_t round = 0; round < N_ROUNDS; round++)
                for (size_t c = 0; c < N_CHUNKS; c++)
                        for (size_t i = 0; i < MAX_METHODS && (method = clear_method_at(i)); i++) {
                                size_t n_bytes = chunk_bytes[c] > WINDOW_BYTES ? chunk_bytes[c] : WINDOW_BYTES;

                                if (method->why_not() || chunk_bytes[c] < clear_base_page_bytes())
                                        continue;
                                at_bytes = (at_bytes + n_bytes) % MEMORY_BYTES;
                                gb_per_s[i][c][round] = measure(method, memory + at_bytes, n_bytes, chunk_bytes[c]);
                        }
}

static void print_cell(double *samples) {
        qsort(samples, N_ROUNDS, sizeof(*samples), by_value);
        printf("  %6.1f (%5.1f..%5.1f)", samples[N_ROUNDS / 2], samples[0], samples[N_ROUNDS - 1]);
}

static void print_table(void) {
        const struct clear_method *method;

        printf("%-10s", "GB/s");
        for (size_t c = 0; c < N_CHUNKS; c++) {
                char size[FORMAT_SIZE_BYTES];

                printf("  %21s", format_size(chunk_bytes[c], size));
        }
        printf("\n");
        for (size_t i = 0; i < MAX_METHODS && (method = clear_method_at(i)); i++) {
                printf("%-10s", method->name);
                if (method->why_not())
                        printf("  %s", method->why_not());
                else
                        for (size_t c = 0; c < N_CHUNKS; c++)
                                print_cell(gb_per_s[i][c]);
                printf("\n");
        }
}

int main(void) {
        static const size_t slice_bytes[] = {(size_t) 2 << 20, CLEAR_BATCH_BYTES, CLEAR_CALIBRATE_BYTES};
        struct clear_calibration calibration;
        char *memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

        if (memory == MAP_FAILED) {
                (void) fprintf(stderr, "bench-clear: cannot map 512 hugetlb pages of 2 MiB: %m; free or reserve them\n");
                return 77;
        }
        measure_all(memory);
        print_table();
        if (clear_calibrate(memory, MEMORY_BYTES, slice_bytes, 3, &calibration) < 0)
                return EXIT_FAILURE;
        printf("calibration, %u ms: %s\n", calibration.took_ms, calibration.reason);
        return EXIT_SUCCESS;
}
