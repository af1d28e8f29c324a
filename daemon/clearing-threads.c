/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whether two threads clear more than one. Time is the thread's own: where memory is what both wait for, each of them takes
 * longer for the same. That says something only while both had a CPU, which is asked for each run.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "clearing-threads.h"
#include "pace.h"
#include "worker.h"

#define RUN_BYTES (UINT64_C(8) << 20)   /* chosen: 0.4 ms at 20 GB/s; the shorter, the likelier both have a CPU meanwhile */
#define N_ALONE 3                       /* chosen */
#define N_TOGETHER 12                   /* chosen: attempts */
#define N_TOGETHER_ENOUGH 4             /* chosen: of those in which both had a CPU */
#define WORTH_PERCENT 130               /* chosen: what a second thread gains has to pay for a CPU that others could use */
#define OVERLAP_PERCENT 90              /* chosen */
#define BEGIN_NS (20 * UINT64_C(1000000)) /* chosen: a machine on which a thread waits for longer has no CPU to spare */
#define BESIDE_NS (50 * UINT64_C(1000000)) /* chosen: all attempts take 5 to 20 ms */

struct side {
        const struct clear_method *method;
        char *addr;
        uint64_t bytes;
        _Atomic bool stop, runs;
        _Atomic int r;
        clockid_t clock; /* while it runs; only the thread itself can always ask for it */
        uint64_t used_ns; /* when it has ended */
};

static uint64_t clock_ns(clockid_t clock) {
        struct timespec now = {};

        (void) clock_gettime(clock, &now);
        return (uint64_t) now.tv_sec * PACE_NS_PER_S + (uint64_t) now.tv_nsec;
}

/* As clear_calibrate() does: what clients give back is not in the caches. Of stores that pass by them nothing is. */
static int make_cold(const struct side *side, char *addr, uint64_t bytes) {
        int r = side->method->non_temporal ? 0 : clear_flush(addr, bytes);

        return r == -EOPNOTSUPP ? 0 : r;
}

/* Both clear as much at a time: a method that is good for that may do something else with more. */
static int clear_piece(const struct side *side, uint64_t at_bytes) {
        return clear_pages(side->method, side->addr + at_bytes, CLEARING_THREADS_PIECE_BYTES / clear_base_page_bytes());
}

/* Ends by itself too: who is to stop it may be the one of both that gets no CPU. */
static void *clear_beside(void *userdata) {
        struct side *side = userdata;
        uint64_t at_bytes = 0;
        int r = -pthread_getcpuclockid(pthread_self(), &side->clock);

        while (!atomic_load(&side->stop) && r >= 0 && clock_ns(CLOCK_THREAD_CPUTIME_ID) < BESIDE_NS) {
                r = make_cold(side, side->addr + at_bytes, CLEARING_THREADS_PIECE_BYTES);
                if (r >= 0)
                        r = clear_piece(side, at_bytes);
                at_bytes = (at_bytes + CLEARING_THREADS_PIECE_BYTES) % side->bytes;
                atomic_store(&side->runs, true);
        }
        atomic_store(&side->runs, false);
        atomic_store(&side->r, r);
        side->used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        return NULL;
}

static int run_once(const struct side *own, uint64_t *ret_used_ns) {
        uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int r = 0;

        for (uint64_t at_bytes = 0; at_bytes < own->bytes && r >= 0; at_bytes += CLEARING_THREADS_PIECE_BYTES)
                r = clear_piece(own, at_bytes);
        *ret_used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns;
        return r;
}

static int run_alone(const struct side *own, uint64_t *ret_ns) {
        int r = 0;

        *ret_ns = UINT64_MAX;
        for (unsigned i = 0; i < N_ALONE && r >= 0; i++) {
                uint64_t ns;

                r = make_cold(own, own->addr, own->bytes);
                if (r < 0)
                        break;
                r = run_once(own, &ns);
                if (ns < *ret_ns)
                        *ret_ns = ns;
        }
        return r;
}

/* A new thread may share the CPU of who made it until the kernel spreads them, which takes longer than all of this. */
static void leave_own_cpu(pthread_t thread) {
        int cpu = sched_getcpu();
        cpu_set_t cpus;

        if (cpu < 0 || cpu >= CPU_SETSIZE || pthread_getaffinity_np(thread, sizeof(cpus), &cpus) != 0)
                return;
        CPU_CLR((unsigned) cpu, &cpus);
        if (CPU_COUNT(&cpus) > 0)
                (void) pthread_setaffinity_np(thread, sizeof(cpus), &cpus);
}

static bool is_share(uint64_t ns, uint64_t wall_ns) {
        return ns * 100 >= wall_ns * OVERLAP_PERCENT;
}

/* UINT64_MAX: never both at the same time. */
static int run_together(const struct side *own, const struct side *other, bool (*stop)(void *userdata), void *userdata,
                        uint64_t *ret_ns) {
        uint64_t begin_ns = pace_now_ns();
        unsigned n_good = 0;
        int r = 0;

        *ret_ns = UINT64_MAX;
        while (!atomic_load(&other->runs))
                if (pace_now_ns() - begin_ns > BEGIN_NS)
                        return 0;
                else
                        (void) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        for (unsigned i = 0; i < N_TOGETHER && n_good < N_TOGETHER_ENOUGH && r >= 0; i++) {
                uint64_t wall_ns, other_ns, ns;

                if (stop && stop(userdata))
                        return -ECANCELED;
                r = make_cold(own, own->addr, own->bytes);
                if (r < 0)
                        break;
                wall_ns = pace_now_ns(), other_ns = clock_ns(other->clock);
                r = run_once(own, &ns);
                other_ns = clock_ns(other->clock) - other_ns;
                wall_ns = pace_now_ns() - wall_ns;
                if (!atomic_load(&other->runs)) /* and its clock is gone with it */
                        return r;
                if (!is_share(ns, wall_ns) || !is_share(other_ns, wall_ns))
                        continue;
                n_good++;
                if (ns < *ret_ns)
                        *ret_ns = ns;
        }
        return r;
}

unsigned clearing_threads_worth(uint64_t alone_ns, uint64_t together_ns) {
        if (alone_ns == 0 || together_ns == UINT64_MAX)
                return 0;
        return 200 * alone_ns >= WORTH_PERCENT * together_ns ? 2 : 1;
}

int clearing_threads_measure(const struct clear_method *method, void *addr, uint64_t bytes, bool (*stop)(void *userdata),
                             void *userdata, struct clearing_threads *ret_threads) {
        uint64_t half_bytes = bytes / 2 < RUN_BYTES ? bytes / 2 - bytes / 2 % CLEARING_THREADS_PIECE_BYTES : RUN_BYTES;
        uint64_t start_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID), alone_ns, together_ns = UINT64_MAX;
        struct side own = {.method = method, .addr = addr, .bytes = half_bytes};
        struct side other = {.method = method, .addr = own.addr + half_bytes, .bytes = half_bytes};
        pthread_t thread;
        int r;

        if (half_bytes == 0)
                return -EINVAL;
        *ret_threads = (struct clearing_threads){};
        r = run_alone(&own, &alone_ns);
        /* Where no thread can be had (a limit of tasks) nothing is known, and nothing is wrong with the memory. */
        if (r >= 0 && worker_run_beside(clear_beside, &other, &thread) >= 0) {
                leave_own_cpu(thread);
                r = run_together(&own, &other, stop, userdata, &together_ns);
                atomic_store(&other.stop, true);
                (void) pthread_join(thread, NULL);
                if (r >= 0)
                        r = atomic_load(&other.r);
        }
        ret_threads->used_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns + other.used_ns;
        if (r < 0)
                return r;
        ret_threads->n_worth = clearing_threads_worth(alone_ns, together_ns);
        if (ret_threads->n_worth > 0) {
                ret_threads->one_gb_per_s = (double) half_bytes / (double) alone_ns;
                ret_threads->two_gb_per_s = 2 * (double) half_bytes / (double) together_ns;
        }
        return 0;
}
