/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Threads bound to a node that do the long work in slices. The only file with threads; it knows nothing of extents.
 *
 * A job is queued on the loop thread, its step() runs on one worker thread again and again until it says it has finished, its
 * done() runs on the loop thread. After each step the worker looks up: a more urgent job goes first, the interrupted one goes
 * back to the head of its class.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/queue.h>

struct event_base;
struct topology;
struct worker_pool;

enum job_urgency { /* in order of urgency */
        JOB_WAITING, /* a client waits for it */
        JOB_LOW,     /* filling below the low mark */
        JOB_SCRUB,   /* clearing and dropping what came back */
        JOB_FILL,    /* filling to the target */
        JOB_AUDIT,
        _JOB_URGENCY_MAX,
};

struct job {
        enum job_urgency urgency;
        /* Worker thread; one slice (32 MiB of clearing) at most. 1: call again; 0: finished; negative errno: failed, finished. */
        int (*step)(struct job *job);
        /* Loop thread, exactly once per submitted job, also for cancelled (-ECANCELED) or failed ones. May free the job, not the pool. */
        void (*done)(struct job *job, int r);
        /* worker.c's own */
        TAILQ_ENTRY(job) link;
        int result;
        int state;
};

/* @node -1: not bound. Threads are named "hz-NODE/N". @n_threads at least 1. */
int worker_pool_new(struct event_base *base, const struct topology *topology, int node, unsigned n_threads, struct worker_pool **ret_pool);
/* Asks all to stop at the next slice, joins them, calls done(-ECANCELED) for what is left, frees. */
struct worker_pool *worker_pool_free(struct worker_pool *pool);
unsigned worker_pool_n_threads(const struct worker_pool *pool);
/* Loop thread. The job is borrowed until its done() was called. Cannot fail. */
void worker_pool_submit(struct worker_pool *pool, struct job *job);
/* Loop thread. Raises (never lowers) the urgency of a job that waits or runs. */
void worker_pool_raise(struct worker_pool *pool, struct job *job, enum job_urgency urgency);
/* Loop thread. A waiting job is done(-ECANCELED) soon, a running one after its present step. A finished one ends as it did. */
void worker_pool_cancel(struct worker_pool *pool, struct job *job);
