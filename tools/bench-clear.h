/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of hugezeroctl bench clear share. */
#pragma once

#include "bench-stats.h"
#include "bench.h"
#include "calibrate.h"

/* The chunks of the table: a base page, a page of 2 MiB, a slice of the daemon's, and a page of 1 GiB. */
enum { BENCH_N_CHUNKS = 4 };
extern const size_t bench_chunk_bytes[BENCH_N_CHUNKS];

/* Rows: the methods by their number, and behind them the kernel's two ways. */
enum { BENCH_ROW_DEMAND = CLEAR_CALIBRATE_MAX_METHODS, BENCH_ROW_POPULATE, BENCH_N_ROWS };

struct bench_speed { /* 10^9 bytes per second; 0: not measured */
        double median, min, max;
};

struct bench_speeds {
        struct bench_speed cells[BENCH_N_ROWS][BENCH_N_CHUNKS];
};

/*
 * Fills @ret_speeds from @bench->n_runs rounds over all rows. @memory: @bench->bytes of pages of the kernel's, which are given
 * back and had again in between. Returns an exit code.
 */
int bench_speeds_measure(const struct bench *bench, char *memory, struct bench_speeds *ret_speeds);
/* The fastest method for chunks of that size, or NULL where none was measured. */
const struct clear_method *bench_speeds_best(const struct bench_speeds *speeds, size_t chunk, double *ret_gb_per_s);
/* What @method has in the table. */
double bench_speeds_of(const struct bench_speeds *speeds, const struct clear_method *method, size_t chunk);

#define BENCH_HARM_RING_BYTES ((size_t) 8 << 20)   /* working set of the neighbour: in the cache that the CPUs share */
#define BENCH_PACE_BYTES_PER_S (UINT64_C(2) << 30) /* what the daemon's background work keeps to by default */

enum { BENCH_MAX_HARMS = 1 + CLEAR_CALIBRATE_MAX_METHODS }; /* the kernel's faults, and each method that can be used here */

struct bench_harm {
        unsigned n_runs, n_discarded; /* of the latter the neighbour's idle times differed too much */
        double slowdown, min, max;    /* median and spread; 0 without runs */
        double gb_per_s;              /* what was cleared meanwhile */
};

struct bench_harms {
        int cpu, neighbour_cpu; /* the latter -1: there is one CPU only, nothing was measured */
        size_t n_rows;
        const struct clear_method *methods[BENCH_MAX_HARMS]; /* NULL: the kernel faults pages in */
        struct bench_harm cells[BENCH_MAX_HARMS][2];         /* at full speed, at the pace */
};

/* How much slower a pointer chase on another CPU becomes. @memory as above. */
int bench_harms_measure(const struct bench *bench, char *memory, struct bench_harms *ret_harms);
