/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker threads of one node. One lock per pool guards its queues and the state of its jobs; it is never held while a step or a
 * done runs. Finished jobs go into a list, and an eventfd wakes the loop thread for them.
 */
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "topology.h"
#include "worker.h"

enum job_state {
        JOB_STATE_QUEUED,
        JOB_STATE_RUNNING,
        JOB_STATE_STOPPING, /* running, cancelled */
        JOB_STATE_FINISHED, /* in the list of finished ones, or its done() runs */
};

TAILQ_HEAD(job_list, job);

struct worker {
        struct worker_pool *pool;
        unsigned idx;
        pthread_t thread;
};

struct worker_pool {
        const struct topology *topology;
        int node;
        struct event *event;
        int event_fd;
        bool in_done; /* loop thread only */

        pthread_mutex_t lock; /* guards the four below, and urgency, state, result and link of every job in here */
        pthread_cond_t wake;  /* a job was queued, or stopping */
        struct job_list queued[_JOB_URGENCY_MAX];
        struct job_list finished;
        bool stopping;

        unsigned n_threads;
        struct worker workers[];
};

/* Lock held. */
static void finish_job(struct worker_pool *pool, struct job *job, int r) {
        const uint64_t one = 1;

        job->state = JOB_STATE_FINISHED;
        job->result = r;
        /* A counter cannot overflow: it is written only when the list was empty, and taking the list resets it first. */
        if (TAILQ_EMPTY(&pool->finished))
                (void) !write(pool->event_fd, &one, sizeof(one));
        TAILQ_INSERT_TAIL(&pool->finished, job, link);
}

/* Lock held. NULL: none more urgent than @limit. */
static struct job *most_urgent(struct worker_pool *pool, enum job_urgency limit) {
        for (enum job_urgency urgency = 0; urgency < limit; urgency++)
                if (!TAILQ_EMPTY(&pool->queued[urgency]))
                        return TAILQ_FIRST(&pool->queued[urgency]);
        return NULL;
}

/* Lock held, but not while a step runs. Returns when the job has finished or is queued again. */
static void run_job(struct worker_pool *pool, struct job *job) {
        int r;

        TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
        job->state = JOB_STATE_RUNNING;
        for (;;) {
                pthread_mutex_unlock(&pool->lock);
                r = job->step(job);
                pthread_mutex_lock(&pool->lock);

                if (r <= 0)
                        return finish_job(pool, job, r);
                if (job->state == JOB_STATE_STOPPING)
                        return finish_job(pool, job, -ECANCELED);
                if (pool->stopping || most_urgent(pool, job->urgency))
                        break;
        }
        job->state = JOB_STATE_QUEUED;
        TAILQ_INSERT_HEAD(&pool->queued[job->urgency], job, link);
        /* Another thread may be idle by now; the urgent job is this one's, the interrupted one could be the other's. */
        pthread_cond_signal(&pool->wake);
}

static void *worker_main(void *userdata) {
        struct worker *worker = userdata;
        struct worker_pool *pool = worker->pool;
        char name[16]; /* kernel limit: TASK_COMM_LEN */

        if (pool->node >= 0) {
                snprintf(name, sizeof(name), "hz-%d/%u", pool->node, worker->idx);
                /* On other CPUs (a cpuset forbids the node's) the work is slower, its result the same. */
                (void) topology_bind_thread(pool->topology, pool->node);
        } else
                snprintf(name, sizeof(name), "hz-any/%u", worker->idx);
        (void) pthread_setname_np(pthread_self(), name);

        pthread_mutex_lock(&pool->lock);
        while (!pool->stopping) {
                struct job *job = most_urgent(pool, _JOB_URGENCY_MAX);

                if (job)
                        run_job(pool, job);
                else
                        pthread_cond_wait(&pool->wake, &pool->lock);
        }
        pthread_mutex_unlock(&pool->lock);
        return NULL;
}

/* Loop thread, lock not held. Empties @jobs. */
static void call_done(struct worker_pool *pool, struct job_list *jobs) {
        struct job *job;

        pool->in_done = true;
        while ((job = TAILQ_FIRST(jobs))) {
                TAILQ_REMOVE(jobs, job, link);
                job->done(job, job->result);
        }
        pool->in_done = false;
}

static void on_finished(evutil_socket_t fd, short what, void *userdata) {
        struct worker_pool *pool = userdata;
        struct job_list jobs = TAILQ_HEAD_INITIALIZER(jobs);
        uint64_t counter;

        (void) !read(fd, &counter, sizeof(counter));
        pthread_mutex_lock(&pool->lock);
        TAILQ_CONCAT(&jobs, &pool->finished, link);
        pthread_mutex_unlock(&pool->lock);
        call_done(pool, &jobs);
}

static int start_threads(struct worker_pool *pool, unsigned n_threads) {
        sigset_t blocked, saved;
        int r = 0;

        /* Signals are the loop thread's; but a fault of the thread's own, blocked, would kill without asking any handler. */
        sigfillset(&blocked);
        sigdelset(&blocked, SIGBUS);
        sigdelset(&blocked, SIGSEGV);
        sigdelset(&blocked, SIGILL);
        sigdelset(&blocked, SIGFPE);
        pthread_sigmask(SIG_SETMASK, &blocked, &saved);
        while (pool->n_threads < n_threads && r == 0) {
                struct worker *worker = &pool->workers[pool->n_threads];

                *worker = (struct worker){.pool = pool, .idx = pool->n_threads};
                r = pthread_create(&worker->thread, NULL, worker_main, worker);
                if (r == 0)
                        pool->n_threads++;
        }
        pthread_sigmask(SIG_SETMASK, &saved, NULL);
        return -r;
}

static void worker_pool_freep(struct worker_pool **pool) {
        *pool = worker_pool_free(*pool);
}

int worker_pool_new(struct event_base *base, const struct topology *topology, int node, unsigned n_threads,
                    struct worker_pool **ret_pool) {
        _cleanup_(worker_pool_freep) struct worker_pool *pool = NULL;
        int r;

        assert(n_threads > 0 && (node < 0 || topology));
        pool = calloc(1, sizeof(*pool) + n_threads * sizeof(pool->workers[0]));
        if (!pool)
                return -ENOMEM;
        pool->topology = topology;
        pool->node = node;
        pthread_mutex_init(&pool->lock, NULL);
        pthread_cond_init(&pool->wake, NULL);
        for (enum job_urgency urgency = 0; urgency < _JOB_URGENCY_MAX; urgency++)
                TAILQ_INIT(&pool->queued[urgency]);
        TAILQ_INIT(&pool->finished);
        pool->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (pool->event_fd < 0)
                return negative_errno();
        pool->event = event_new(base, pool->event_fd, EV_READ | EV_PERSIST, on_finished, pool);
        if (!pool->event || event_add(pool->event, NULL) < 0)
                return -ENOMEM;
        r = start_threads(pool, n_threads);
        if (r < 0)
                return r;
        *ret_pool = take_ptr(pool);
        return 0;
}

/* All threads are gone: what was queued last is cancelled. A done() may submit again, and is told again. */
static void cancel_all(struct worker_pool *pool) {
        struct job_list jobs = TAILQ_HEAD_INITIALIZER(jobs);
        struct job *job;

        do {
                while ((job = most_urgent(pool, _JOB_URGENCY_MAX)))
                        worker_pool_cancel(pool, job);
                TAILQ_CONCAT(&jobs, &pool->finished, link);
                call_done(pool, &jobs);
        } while (!TAILQ_EMPTY(&pool->finished) || most_urgent(pool, _JOB_URGENCY_MAX));
}

struct worker_pool *worker_pool_free(struct worker_pool *pool) {
        if (!pool)
                return NULL;
        assert(!pool->in_done);
        pthread_mutex_lock(&pool->lock);
        pool->stopping = true;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
        for (unsigned i = 0; i < pool->n_threads; i++)
                pthread_join(pool->workers[i].thread, NULL);
        cancel_all(pool);
        if (pool->event)
                event_free(pool->event);
        safe_close(pool->event_fd);
        pthread_cond_destroy(&pool->wake);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
        return NULL;
}

unsigned worker_pool_n_threads(const struct worker_pool *pool) {
        return pool->n_threads;
}

/* Lock held. */
static void queue_job(struct worker_pool *pool, struct job *job, enum job_urgency urgency) {
        job->urgency = urgency;
        job->state = JOB_STATE_QUEUED;
        TAILQ_INSERT_TAIL(&pool->queued[urgency], job, link);
        pthread_cond_signal(&pool->wake);
}

void worker_pool_submit(struct worker_pool *pool, struct job *job) {
        assert(job->step && job->done && job->urgency < _JOB_URGENCY_MAX);
        pthread_mutex_lock(&pool->lock);
        queue_job(pool, job, job->urgency);
        pthread_mutex_unlock(&pool->lock);
}

void worker_pool_raise(struct worker_pool *pool, struct job *job, enum job_urgency urgency) {
        pthread_mutex_lock(&pool->lock);
        if (urgency < job->urgency) {
                if (job->state == JOB_STATE_QUEUED) {
                        TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
                        queue_job(pool, job, urgency);
                } else
                        job->urgency = urgency;
        }
        pthread_mutex_unlock(&pool->lock);
}

void worker_pool_cancel(struct worker_pool *pool, struct job *job) {
        pthread_mutex_lock(&pool->lock);
        if (job->state == JOB_STATE_QUEUED) {
                TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
                finish_job(pool, job, -ECANCELED);
        } else if (job->state == JOB_STATE_RUNNING)
                job->state = JOB_STATE_STOPPING;
        pthread_mutex_unlock(&pool->lock);
}
