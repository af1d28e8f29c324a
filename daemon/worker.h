/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads bound to a node that do the long work in slices. The only file with threads; it knows nothing of extents.
 *
 * A job is queued on the loop thread, its step() runs on one worker thread again and again until it says it has finished, its
 * done() runs on the loop thread. After each step the worker looks up: a more urgent job goes first, the interrupted one goes
 * back to the head of its class.
 *
 * Background work (JOB_SCRUB, JOB_FILL) keeps a pace that all threads of the pool share. A job whose next step is not due yet
 * goes back to the head of its class and occupies no thread; a raised one is background work no longer.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct event_base;
struct topology;
struct worker_pool;

enum job_urgency { /* in order of urgency */
        JOB_WAITING, /* a client waits for it */
        JOB_LOW,     /* filling below the low mark */
        JOB_DROP,    /* giving memory back: moves no bytes, and fills wait for the kernel's free pages */
        JOB_SCRUB,   /* clearing what came back */
        JOB_FILL,    /* filling to the target */
        JOB_AUDIT,
        _JOB_URGENCY_MAX,
};

struct worker;

struct job {
        _Atomic enum job_urgency urgency; /* submitted with it; changed by worker_pool_raise() only, read by anyone */
        /*
         * Of the next step; set by whoever submits, then by step() for the step after it. How many bytes it moves at most,
         * which the pace is charged with in advance; and whether it can do with the idle scheduling class while it is
         * background work: then it must hold nothing in the meantime that others wait for, the kernel's locks included.
         */
        uint64_t step_bytes;
        bool step_may_idle;
        /* Worker thread; one slice (32 MiB of clearing) at most. 1: call again; 0: finished; negative errno: failed, finished. */
        int (*step)(struct job *job);
        /* Loop thread, exactly once per submitted job, also for cancelled (-ECANCELED) or failed ones. May free the job, not the pool. */
        void (*done)(struct job *job, int r);
        /* worker.c's own */
        TAILQ_ENTRY(job) link;
        int result;
        int state;
        bool has_begun; /* a step of it has */
        struct worker *worker; /* that runs it */
};

/* @node -1: not bound. Threads are named "hz-NODE/N". @n_threads at least 1. */
int worker_pool_new(struct event_base *base, const struct topology *topology, int node, unsigned n_threads, struct worker_pool **ret_pool);
/* Asks all to stop at the next slice, joins them, calls done(-ECANCELED) for what is left, frees. */
struct worker_pool *worker_pool_free(struct worker_pool *pool);
unsigned worker_pool_n_threads(const struct worker_pool *pool);
/* Whether background work that would may not: a thread could not leave the idle class again. */
bool worker_pool_lacks_idle(const struct worker_pool *pool);
/* Loop thread. Of background work, from now on; UINT64_MAX, which is how a pool begins: no pace. */
void worker_pool_set_pace(struct worker_pool *pool, uint64_t bytes_per_s);
/* Any thread. How many JOB_SCRUB run at a time from now on; until then as many as there are threads. */
void worker_pool_limit_scrubs(struct worker_pool *pool, unsigned n_threads);
/* Any thread. Runs @run(userdata) on another thread, bound as this one and of the same class, which is to be joined. */
int worker_run_beside(void *(*run)(void *userdata), void *userdata, pthread_t *ret_thread);
/* Any thread. Jobs that are queued or run. */
unsigned worker_pool_n_jobs(struct worker_pool *pool);
/* Any thread. Whether a JOB_WAITING is queued or runs. */
bool worker_pool_is_awaited(struct worker_pool *pool);
/* Loop thread. The job is borrowed until its done() was called. Cannot fail. */
void worker_pool_submit(struct worker_pool *pool, struct job *job);
/* Loop thread. Raises (never lowers) the urgency of a job that waits or runs. */
void worker_pool_raise(struct worker_pool *pool, struct job *job, enum job_urgency urgency);
/* Loop thread. Whether it will be done(-ECANCELED) soon. No: a step of it has begun, and the next ones give back what that one took. */
bool worker_pool_cancel(struct worker_pool *pool, struct job *job);
