/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What clearing does to a neighbour: a pointer chase through a buffer that fits into the caches, on another CPU, with and
 * without clearing beside it. Idle and busy runs take turns, and a busy one is compared with the two idle ones next to it only:
 * what else goes on in the machine changes slower than that, or shows in the difference between the two.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench-clear.h"
#include "cleanup.h"
#include "ring.h"

#define SAMPLE_NS UINT64_C(100000000) /* chosen: six slices at the pace, and fifty walks through an undisturbed ring */
#define MORE_ROUNDS 3                 /* chosen: so many times the rounds asked for, where runs are discarded */
#define HUGE_PAGE_BYTES ((size_t) 2 << 20)
#define NS_PER_S UINT64_C(1000000000)

struct work {
        const struct bench *bench;
        char *memory;
        const struct clear_method *method; /* NULL: the kernel faults pages in */
        uint64_t pace_bytes_per_s;         /* 0: full speed */
        int cpu;
        pthread_t thread;
        atomic_bool is_stopping;
        atomic_uint n_slices;
        int r;
        uint64_t slice_bytes, took_ns;
};

static void run_on(int cpu) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t) cpu, &cpus);
        (void) sched_setaffinity(0, sizeof(cpus), &cpus);
}

static int work_slice(const struct work *work, char *at) {
        if (work->method)
                return clear_pages(work->method, at, work->slice_bytes / clear_base_page_bytes());
        if (munmap(at, work->slice_bytes) < 0)
                return negative_errno();
        return bench_kernel_map_at(work->bench, at, work->slice_bytes, /* is_populate= */ false);
}

static void *work_thread(void *userdata) {
        struct work *work = userdata;
        uint64_t at_bytes = 0, start_ns = bench_now_ns(), due_ns = start_ns;
        run_on(work->cpu);
        while (!atomic_load(&work->is_stopping) && work->r >= 0) {
                if (at_bytes + work->slice_bytes > work->bench->bytes)
                        at_bytes = 0;
                work->r = work_slice(work, work->memory + at_bytes);
                at_bytes += work->slice_bytes;
                (void) atomic_fetch_add(&work->n_slices, 1);
                if (!work->pace_bytes_per_s)
                        continue;
                /* As the daemon's pace: time that was not used is not made up for. */
                due_ns += (uint64_t) ((double) work->slice_bytes / (double) work->pace_bytes_per_s * NS_PER_S);
                uint64_t now_ns = bench_now_ns();
                if (due_ns < now_ns)
                        due_ns = now_ns;
                struct timespec due = {.tv_sec = (time_t) (due_ns / NS_PER_S), .tv_nsec = (long) (due_ns % NS_PER_S)};
                (void) clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        }
        work->took_ns = bench_now_ns() - start_ns;
        return NULL;
}

/* Nanoseconds of the thread's own time for one step, over SAMPLE_NS: being preempted is not the harm that is meant here. */
static double chase(void **at) {
        size_t n_walk = BENCH_HARM_RING_BYTES / CLEAR_RING_LINE_BYTES, n_steps = 0;
        struct timespec now;
        uint64_t start_ns = 0, took_ns = 0;
        do {
                /* The first walk warms up and does not count. */
                *at = clear_ring_walk(*at, n_walk);
                (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
                uint64_t now_ns = (uint64_t) now.tv_sec * NS_PER_S + (uint64_t) now.tv_nsec;
                if (start_ns)
                        n_steps += n_walk;
                else
                        start_ns = now_ns;
                took_ns = now_ns - start_ns;
        } while (took_ns < SAMPLE_NS);
        return (double) took_ns / (double) n_steps;
}

/* The chase while @work goes on beside it. */
static int chase_beside(struct work *work, void **at, double *ret_ns, double *ret_gb_per_s) {
        int r = -pthread_create(&work->thread, NULL, work_thread, work);
        if (r < 0)
                return r;
        while (!atomic_load(&work->n_slices)) /* until it is at work */
                (void) nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        *ret_ns = chase(at);
        atomic_store(&work->is_stopping, true);
        (void) pthread_join(work->thread, NULL);
        *ret_gb_per_s = (double) work->n_slices * (double) work->slice_bytes / (double) work->took_ns;
        return work->r;
}

struct samples {
        double *slowdowns, *gb_per_s; /* one for each run that counts */
};

static int run_round(const struct work *template, void **ring, struct samples samples[BENCH_MAX_HARMS][2],
                     struct bench_harms *harms) {
        double idle_before = chase(ring);
        for (size_t harm = 0; harm < harms->n_rows; harm++)
                for (size_t paced = 0; paced < 2; paced++) {
                        struct bench_harm *cell = &harms->cells[harm][paced];
                        if (cell->n_runs == template->bench->n_runs)
                                continue;
                        struct work work = *template;
                        work.method = harms->methods[harm];
                        work.pace_bytes_per_s = paced ? BENCH_PACE_BYTES_PER_S : 0;
                        double busy, gb_per_s, slowdown;
                        int r = chase_beside(&work, ring, &busy, &gb_per_s);
                        if (r < 0)
                                return r;
                        double idle_after = chase(ring);
                        if (bench_slowdown(idle_before, busy, idle_after, &slowdown)) {
                                samples[harm][paced].slowdowns[cell->n_runs] = slowdown;
                                samples[harm][paced].gb_per_s[cell->n_runs++] = gb_per_s;
                        } else
                                cell->n_discarded++;
                        idle_before = idle_after;
                }
        return 0;
}

static bool is_complete(const struct bench_harms *harms, unsigned n_runs) {
        for (size_t harm = 0; harm < harms->n_rows; harm++)
                if (harms->cells[harm][0].n_runs < n_runs || harms->cells[harm][1].n_runs < n_runs)
                        return false;
        return true;
}

static int measure(const struct work *template, struct bench_harms *harms) {
        unsigned n_runs = template->bench->n_runs;
        struct samples samples[BENCH_MAX_HARMS][2];
        _cleanup_free_ double *values = calloc(harms->n_rows * 2 * 2 * n_runs, sizeof(*values));
        _cleanup_free_ void *ring = aligned_alloc(HUGE_PAGE_BYTES, BENCH_HARM_RING_BYTES);
        if (!values || !ring)
                return -ENOMEM;
        for (size_t idx = 0; idx < harms->n_rows * 2; idx++)
                samples[idx / 2][idx % 2] = (struct samples){values + 2 * idx * n_runs, values + (2 * idx + 1) * n_runs};
        (void) madvise(ring, BENCH_HARM_RING_BYTES, MADV_HUGEPAGE); /* so that it is the caches that count, not the TLB */
        clear_ring_make(ring, BENCH_HARM_RING_BYTES);
        void *at = ring;
        int r = 0;
        for (unsigned round = 0; round < MORE_ROUNDS * n_runs && r >= 0 && !is_complete(harms, n_runs); round++)
                r = run_round(template, &at, samples, harms);
        for (size_t idx = 0; idx < harms->n_rows * 2; idx++) {
                struct bench_harm *cell = &harms->cells[idx / 2][idx % 2];
                double *slowdowns = samples[idx / 2][idx % 2].slowdowns;
                if (!cell->n_runs)
                        continue;
                cell->slowdown = bench_median(slowdowns, cell->n_runs);
                cell->min = slowdowns[0];
                cell->max = slowdowns[cell->n_runs - 1];
                cell->gb_per_s = bench_median(samples[idx / 2][idx % 2].gb_per_s, cell->n_runs);
        }
        return r;
}

int bench_harms_measure(const struct bench *bench, char *memory, struct bench_harms *ret_harms) {
        struct bench_harms harms = {.cpu = -1, .neighbour_cpu = -1, .n_rows = 1};
        const struct clear_method *method;
        for (size_t idx = 0; (method = clear_method_at(idx)) && harms.n_rows < BENCH_MAX_HARMS; idx++)
                if (!method->why_not())
                        harms.methods[harms.n_rows++] = method;
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
                if (CPU_ISSET((size_t) cpu, &bench->cpus)) {
                        if (harms.cpu < 0)
                                harms.cpu = cpu;
                        else /* the last one: on most processors not a sibling of the first */
                                harms.neighbour_cpu = cpu;
                }
        uint64_t slice_bytes = CLEAR_BATCH_BYTES < bench->page_size_bytes ? bench->page_size_bytes : CLEAR_BATCH_BYTES;
        if (slice_bytes > bench->bytes)
                slice_bytes = bench->bytes;
        struct work template = {.bench = bench, .memory = memory, .cpu = harms.cpu, .slice_bytes = slice_bytes};
        int r = 0;
        if (harms.neighbour_cpu >= 0) {
                run_on(harms.neighbour_cpu);
                r = measure(&template, &harms);
                (void) sched_setaffinity(0, sizeof(bench->cpus), &bench->cpus);
        }
        if (r < 0) {
                ctl_error("measuring what clearing does to a neighbour: CPU %d: %s", harms.cpu, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        *ret_harms = harms;
        return CTL_EXIT_OK;
}
