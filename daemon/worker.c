/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Worker threads of one node. One lock per pool guards its queues and the state of its jobs; it is never held while a step or a
 * done runs, nor by a thread of the idle class, which might not be run for a second. Finished jobs go into a list, and an
 * eventfd wakes the loop thread for them.
 */
#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cleanup.h"
#include "pace.h"
#include "topology.h"
#include "worker.h"

#define DONE_PER_TURN 32 /* chosen: of the loop, which serves clients between; 10 us each where memory becomes ready */

enum job_state {
        JOB_STATE_QUEUED,
        JOB_STATE_RUNNING,
        JOB_STATE_FINISHED, /* in the list of finished ones, or its done() runs */
};

TAILQ_HEAD(job_list, job);

struct worker {
        struct worker_pool *pool;
        unsigned idx;
        pthread_t thread;
        _Atomic pid_t tid;
        struct job *job; /* that it runs; under the lock */
        _Atomic bool is_idle; /* in the idle class, or about to be; the loop thread may end that */
};

struct worker_pool {
        const struct topology *topology;
        int node;
        struct event *event;
        int event_fd;
        bool in_done; /* loop thread only */

        int policy;    /* written before the threads begin, as the next: the scheduling class of this process */
        bool may_idle;   /* threads can leave the idle class again */
        bool lacks_idle; /* they cannot, which is why there is none */

        pthread_mutex_t lock; /* guards the eight below; urgency (writing), state, has_begun, result, link and worker of every job in here */
        pthread_cond_t wake;  /* a job was queued, or stopping; waits by the monotonic clock */
        struct job_list queued[_JOB_URGENCY_MAX];
        struct job_list finished;
        struct pace pace; /* of background work */
        unsigned max_scrubs; /* that run at a time */
        unsigned n_jobs;  /* queued and running */
        _Atomic unsigned n_awaited; /* JOB_WAITING among them; read without the lock too, as the next two */
        _Atomic unsigned n_urgent;  /* for which no thread may be in the idle class */
        _Atomic bool stopping;

        unsigned n_threads;
        struct worker workers[];
};

static bool is_background(enum job_urgency urgency) {
        return urgency == JOB_SCRUB || urgency == JOB_FILL;
}

static bool may_be_idle(enum job_urgency urgency) {
        return is_background(urgency) || urgency == JOB_AUDIT;
}

/* The counter cannot overflow: it is written only when the list was empty, or part of it was taken, which resets it first. */
static void wake_loop(struct worker_pool *pool) {
        const uint64_t one = 1;

        (void) !write(pool->event_fd, &one, sizeof(one));
}

/* Lock held. */
static void finish_job(struct worker_pool *pool, struct job *job, int r) {
        pool->n_jobs--;
        pool->n_awaited -= job->urgency == JOB_WAITING;
        pool->n_urgent -= !may_be_idle(job->urgency);
        job->state = JOB_STATE_FINISHED;
        job->result = r;
        if (TAILQ_EMPTY(&pool->finished))
                wake_loop(pool);
        TAILQ_INSERT_TAIL(&pool->finished, job, link);
}

/* Lock held. NULL: none more urgent than @limit. */
static struct job *most_urgent(struct worker_pool *pool, enum job_urgency limit) {
        for (enum job_urgency urgency = 0; urgency < limit; urgency++)
                if (!TAILQ_EMPTY(&pool->queued[urgency]))
                        return TAILQ_FIRST(&pool->queued[urgency]);
        return NULL;
}

/* Lock held. Whether the next step of a job may begin; pays for it. */
static bool may_step(struct worker_pool *pool, const struct job *job) {
        return !is_background(job->urgency) || pace_take(&pool->pace, job->step_bytes, pace_now_ns());
}

/* Lock held. Those that were raised are scrubs no longer. */
static bool may_scrub(const struct worker_pool *pool) {
        unsigned n_scrubs = 0;

        for (unsigned i = 0; i < pool->n_threads; i++)
                n_scrubs += pool->workers[i].job && pool->workers[i].job->urgency == JOB_SCRUB;
        return n_scrubs < pool->max_scrubs;
}

/* Lock held. There is one less, so another may run; the thread that ended it may have something more urgent to do. */
static void wake_for_scrub(struct worker_pool *pool) {
        if (!TAILQ_EMPTY(&pool->queued[JOB_SCRUB]))
                pthread_cond_signal(&pool->wake);
}

/* Lock held. The most urgent job that may begin now, paid for. Of a class only the first one is asked: the others come after it. */
static struct job *next_job(struct worker_pool *pool, uint64_t *ret_due_ns) {
        *ret_due_ns = UINT64_MAX;
        for (enum job_urgency urgency = 0; urgency < _JOB_URGENCY_MAX; urgency++) {
                struct job *job = TAILQ_FIRST(&pool->queued[urgency]);

                if (!job || (urgency == JOB_SCRUB && !may_scrub(pool)))
                        continue;
                if (may_step(pool, job))
                        return job;
                *ret_due_ns = pool->pace.due_ns;
        }
        return NULL;
}

/* Not to be told apart from success where it is not allowed: the work is the same, its neighbours feel it a little more. */
static void set_class(pid_t tid, int policy) {
        (void) sched_setscheduler(tid, policy, &(struct sched_param){});
}

/* On a busy machine a step in the idle class may take seconds, and its thread is wanted. */
static void end_idle_steps(struct worker_pool *pool) {
        for (unsigned i = 0; i < pool->n_threads; i++)
                if (pool->workers[i].is_idle)
                        set_class(pool->workers[i].tid, pool->policy);
}

/*
 * Runs a step in the idle class: on a busy machine it takes only what others leave. That ends early when this job or one that this
 * thread may be needed for is urgent, or the pool is stopped: the loop thread notes that first and looks at is_idle then, this
 * thread does the opposite, so that at least one of them notices.
 */
static int run_idle_step(struct worker *worker, struct job *job) {
        int r;

        worker->is_idle = true;
        set_class(0, SCHED_IDLE);
        if (worker->pool->n_urgent > 0 || worker->pool->stopping)
                set_class(0, worker->pool->policy);
        r = job->step(job);
        set_class(0, worker->pool->policy);
        worker->is_idle = false;
        return r;
}

static int run_step(struct worker *worker, struct job *job) {
        enum job_urgency urgency = job->urgency;

        if (worker->pool->may_idle && job->step_may_idle && may_be_idle(urgency))
                return run_idle_step(worker, job);
        return job->step(job);
}

/* Lock held, but not while a step runs. The first step was paid for. Returns when the job has finished or is queued again. */
static void run_job(struct worker *worker, struct job *job) {
        struct worker_pool *pool = worker->pool;
        int r;

        TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
        job->state = JOB_STATE_RUNNING;
        job->has_begun = true;
        job->worker = worker;
        worker->job = job;
        for (;;) {
                pthread_mutex_unlock(&pool->lock);
                r = run_step(worker, job);
                pthread_mutex_lock(&pool->lock);

                if (r <= 0) {
                        worker->job = NULL;
                        wake_for_scrub(pool);
                        return finish_job(pool, job, r);
                }
                if (pool->stopping || most_urgent(pool, job->urgency) || !may_step(pool, job))
                        break;
        }
        job->state = JOB_STATE_QUEUED;
        job->worker = NULL;
        worker->job = NULL;
        TAILQ_INSERT_HEAD(&pool->queued[job->urgency], job, link);
        /* Another thread may be idle by now; the urgent job is this one's, the interrupted one could be the other's. */
        pthread_cond_signal(&pool->wake);
}

/* Lock held. Until something is queued, or until background work is due. */
static void wait_for_job(struct worker_pool *pool, uint64_t due_ns) {
        struct timespec due = {.tv_sec = (time_t) (due_ns / PACE_NS_PER_S), .tv_nsec = (long) (due_ns % PACE_NS_PER_S)};

        if (due_ns == UINT64_MAX)
                pthread_cond_wait(&pool->wake, &pool->lock);
        else
                (void) pthread_cond_timedwait(&pool->wake, &pool->lock, &due);
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
        worker->tid = gettid();

        pthread_mutex_lock(&pool->lock);
        while (!pool->stopping) {
                uint64_t due_ns;
                struct job *job = next_job(pool, &due_ns);

                if (job)
                        run_job(worker, job);
                else
                        wait_for_job(pool, due_ns);
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
        struct job *job;
        uint64_t counter;

        (void) !read(fd, &counter, sizeof(counter));
        pthread_mutex_lock(&pool->lock);
        for (unsigned n = 0; n < DONE_PER_TURN && (job = TAILQ_FIRST(&pool->finished)); n++) {
                TAILQ_REMOVE(&pool->finished, job, link);
                TAILQ_INSERT_TAIL(&jobs, job, link);
        }
        if (!TAILQ_EMPTY(&pool->finished))
                wake_loop(pool);
        pthread_mutex_unlock(&pool->lock);
        call_done(pool, &jobs);
}

static void *try_idle_class(void *userdata) {
        struct worker_pool *pool = userdata;

        pool->may_idle = sched_setscheduler(0, SCHED_IDLE, &(struct sched_param){}) >= 0 &&
                         sched_setscheduler(0, pool->policy, &(struct sched_param){}) >= 0;
        return NULL;
}

/*
 * Everybody may enter the idle class; leaving it takes CAP_SYS_NICE or RLIMIT_NICE. A thread that could not leave would be of
 * no use to a waiting client, so one that is needed for nothing else tries it. Going and coming takes 1 to 5 us (measured).
 */
static void find_idle_class(struct worker_pool *pool) {
        pthread_t thread;

        pool->policy = sched_getscheduler(0);
        if (pool->policy != SCHED_OTHER && pool->policy != SCHED_BATCH)
                return; /* an operator who wants real time wants no idle class */
        if (pthread_create(&thread, NULL, try_idle_class, pool) == 0)
                pthread_join(thread, NULL);
        pool->lacks_idle = !pool->may_idle;
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
        find_idle_class(pool);
        while (pool->n_threads < n_threads && r == 0) {
                struct worker *worker = &pool->workers[pool->n_threads];

                worker->pool = pool;
                worker->idx = pool->n_threads;
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

static void init_wake(pthread_cond_t *wake) {
        pthread_condattr_t attributes;

        pthread_condattr_init(&attributes);
        pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        pthread_cond_init(wake, &attributes);
        pthread_condattr_destroy(&attributes);
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
        pool->pace.bytes_per_s = PACE_UNLIMITED;
        pool->max_scrubs = n_threads;
        pthread_mutex_init(&pool->lock, NULL);
        init_wake(&pool->wake);
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

/* Lock held. */
static void cancel_queued(struct worker_pool *pool, struct job *job) {
        TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
        finish_job(pool, job, -ECANCELED);
}

/* All threads are gone: what was queued last is cancelled. A done() may submit again, and is told again. */
static void cancel_all(struct worker_pool *pool) {
        struct job_list jobs = TAILQ_HEAD_INITIALIZER(jobs);
        struct job *job;

        do {
                while ((job = most_urgent(pool, _JOB_URGENCY_MAX)))
                        cancel_queued(pool, job);
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
        end_idle_steps(pool);
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

bool worker_pool_lacks_idle(const struct worker_pool *pool) {
        return pool->lacks_idle;
}

void worker_pool_set_pace(struct worker_pool *pool, uint64_t bytes_per_s) {
        pthread_mutex_lock(&pool->lock);
        pool->pace = (struct pace){.bytes_per_s = bytes_per_s};
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
}

unsigned worker_pool_n_jobs(struct worker_pool *pool) {
        unsigned n_jobs;

        pthread_mutex_lock(&pool->lock);
        n_jobs = pool->n_jobs;
        pthread_mutex_unlock(&pool->lock);
        return n_jobs;
}

bool worker_pool_is_awaited(struct worker_pool *pool) {
        return pool->n_awaited > 0;
}

/* Lock held. */
static void queue_job(struct worker_pool *pool, struct job *job) {
        job->state = JOB_STATE_QUEUED;
        TAILQ_INSERT_TAIL(&pool->queued[job->urgency], job, link);
        if (!may_be_idle(job->urgency))
                end_idle_steps(pool);
        pthread_cond_signal(&pool->wake);
}

void worker_pool_submit(struct worker_pool *pool, struct job *job) {
        assert(job->step && job->done && job->urgency < _JOB_URGENCY_MAX);
        pthread_mutex_lock(&pool->lock);
        pool->n_jobs++;
        job->has_begun = false;
        pool->n_awaited += job->urgency == JOB_WAITING;
        pool->n_urgent += !may_be_idle(job->urgency);
        queue_job(pool, job);
        pthread_mutex_unlock(&pool->lock);
}

void worker_pool_raise(struct worker_pool *pool, struct job *job, enum job_urgency urgency) {
        pthread_mutex_lock(&pool->lock);
        if (urgency < job->urgency) {
                if (job->state == JOB_STATE_QUEUED)
                        TAILQ_REMOVE(&pool->queued[job->urgency], job, link);
                if (job->state != JOB_STATE_FINISHED) {
                        pool->n_awaited += urgency == JOB_WAITING;
                        pool->n_urgent += !may_be_idle(urgency) && may_be_idle(job->urgency);
                }
                job->urgency = urgency;
                if (job->state == JOB_STATE_QUEUED)
                        queue_job(pool, job);
                else if (job->state != JOB_STATE_FINISHED && job->worker->is_idle)
                        set_class(job->worker->tid, pool->policy);
                wake_for_scrub(pool);
        }
        pthread_mutex_unlock(&pool->lock);
}

void worker_pool_limit_scrubs(struct worker_pool *pool, unsigned n_threads) {
        pthread_mutex_lock(&pool->lock);
        pool->max_scrubs = n_threads;
        pthread_cond_broadcast(&pool->wake);
        pthread_mutex_unlock(&pool->lock);
}

int worker_run_beside(void *(*run)(void *userdata), void *userdata, pthread_t *ret_thread) {
        return -pthread_create(ret_thread, NULL, run, userdata);
}

bool worker_pool_cancel(struct worker_pool *pool, struct job *job) {
        bool is_cancelled;

        pthread_mutex_lock(&pool->lock);
        is_cancelled = job->state == JOB_STATE_QUEUED && !job->has_begun;
        if (is_cancelled)
                cancel_queued(pool, job);
        pthread_mutex_unlock(&pool->lock);
        return is_cancelled;
}
