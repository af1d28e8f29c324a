/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Worker threads. Semaphores hold a step where the test wants it, so the order of things is never a matter of time. */
#include "testing.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "pace.h"
#include "topology.h"
#include "worker.h"

#define MIB (UINT64_C(1) << 20)
#define NS_PER_MS UINT64_C(1000000)
#define N_MANY 3000 /* chosen: runs in a fraction of a second with ThreadSanitizer */

struct trace { /* one letter for each step and for each done, in order */
        pthread_mutex_t lock;
        char text[64];
};

struct probe {
        struct job job;
        char letter;
        struct trace *trace;
        sem_t *entered, *go; /* each step posts the first and waits for the second, when there are any */
        int n_steps;         /* how many are left; the last one returns last_r */
        int last_r;
        struct worker_pool *resubmit_to;

        int n_stepped, n_done, result;
        pthread_t done_thread;
};

struct fixture {
        struct event_base *base;
        struct worker_pool *pool;
        struct trace trace;
        sem_t entered, go;
};

static void add_letter(struct trace *trace, char letter) {
        size_t n;

        pthread_mutex_lock(&trace->lock);
        n = strlen(trace->text);
        if (n + 1 < sizeof(trace->text))
                trace->text[n] = letter;
        pthread_mutex_unlock(&trace->lock);
}

static int step(struct job *job) {
        struct probe *probe = (struct probe *) job;

        probe->n_stepped++;
        if (probe->trace)
                add_letter(probe->trace, probe->letter);
        if (probe->entered)
                sem_post(probe->entered);
        if (probe->go)
                while (sem_wait(probe->go) < 0)
                        ;
        return --probe->n_steps > 0 ? 1 : probe->last_r;
}

static void done(struct job *job, int r) {
        struct probe *probe = (struct probe *) job;

        probe->n_done++;
        probe->result = r;
        probe->done_thread = pthread_self();
        if (probe->resubmit_to) {
                struct worker_pool *pool = probe->resubmit_to;

                probe->resubmit_to = NULL;
                worker_pool_submit(pool, job);
        }
}

static struct probe probe(struct fixture *fixture, char letter, enum job_urgency urgency, int n_steps) {
        return (struct probe){
                .job = {.urgency = urgency, .step = step, .done = done},
                .letter = letter,
                .trace = &fixture->trace,
                .n_steps = n_steps,
        };
}

/* A probe each of whose steps stops until the test goes on. */
static struct probe held_probe(struct fixture *fixture, char letter, enum job_urgency urgency, int n_steps) {
        struct probe held = probe(fixture, letter, urgency, n_steps);

        held.entered = &fixture->entered;
        held.go = &fixture->go;
        return held;
}

static void submit_and_wait_for_step(struct fixture *fixture, struct probe *held) {
        worker_pool_submit(fixture->pool, &held->job);
        while (sem_wait(&fixture->entered) < 0)
                ;
}

static void loop_until_done(struct fixture *fixture, const struct probe *last, int n_done) {
        while (last->n_done < n_done)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
}

static void start_pool(struct fixture *fixture, unsigned n_threads) {
        assert_int_equal(worker_pool_new(fixture->base, NULL, -1, n_threads, &fixture->pool), 0);
        assert_int_equal(worker_pool_n_threads(fixture->pool), n_threads);
}

static struct fixture fixture_of_test;

static int setup(void **state) {
        struct fixture *fixture = &fixture_of_test;

        *fixture = (struct fixture){.base = event_base_new(), .trace.lock = PTHREAD_MUTEX_INITIALIZER};
        sem_init(&fixture->entered, 0, 0);
        sem_init(&fixture->go, 0, 0);
        *state = fixture;
        return fixture->base ? 0 : -1;
}

static int teardown(void **state) {
        struct fixture *fixture = *state;

        worker_pool_free(fixture->pool);
        event_base_free(fixture->base);
        return 0;
}

static void jobs_run_in_order_of_urgency(void **state) {
        struct fixture *fixture = *state;
        struct probe blocker = held_probe(fixture, '-', JOB_WAITING, 1);
        struct probe jobs[] = {
                probe(fixture, 'f', JOB_FILL, 1),    probe(fixture, 'a', JOB_AUDIT, 1), probe(fixture, 'w', JOB_WAITING, 1),
                probe(fixture, 's', JOB_SCRUB, 1),   probe(fixture, 'l', JOB_LOW, 1),   probe(fixture, 'F', JOB_FILL, 1),
                probe(fixture, 'W', JOB_WAITING, 1), probe(fixture, 'd', JOB_DROP, 1),
        };

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &blocker);
        for (size_t i = 0; i < ELEMENTSOF(jobs); i++)
                worker_pool_submit(fixture->pool, &jobs[i].job);
        sem_post(&fixture->go);
        loop_until_done(fixture, &jobs[1], 1);
        assert_string_equal(fixture->trace.text, "-wWldsfFa");
}

static void an_urgent_job_goes_between_two_steps(void **state) {
        struct fixture *fixture = *state;
        struct probe interrupted = held_probe(fixture, 'f', JOB_FILL, 3), second = probe(fixture, 'F', JOB_FILL, 1);
        struct probe urgent = probe(fixture, 'w', JOB_WAITING, 2), equal = probe(fixture, 'a', JOB_AUDIT, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &interrupted);
        worker_pool_submit(fixture->pool, &second.job);
        worker_pool_submit(fixture->pool, &urgent.job);
        worker_pool_submit(fixture->pool, &equal.job);
        for (int i = 0; i < 3; i++)
                sem_post(&fixture->go);
        loop_until_done(fixture, &equal, 1);
        assert_string_equal(fixture->trace.text, "fwwffFa"); /* the interrupted one is still before its equals */
        assert_int_equal(interrupted.n_stepped, 3);
        assert_int_equal(interrupted.n_done, 1);
        assert_int_equal(urgent.n_done, 1);
}

static void failure_ends_a_job_and_reaches_done(void **state) {
        struct fixture *fixture = *state;
        struct probe failing = probe(fixture, 'x', JOB_LOW, 2);

        failing.last_r = -ENOSPC;
        start_pool(fixture, 1);
        worker_pool_submit(fixture->pool, &failing.job);
        loop_until_done(fixture, &failing, 1);
        assert_int_equal(failing.result, -ENOSPC);
        assert_int_equal(failing.n_stepped, 2);
        assert_true(pthread_equal(failing.done_thread, pthread_self()));
}

static void a_cancelled_waiting_job_never_runs(void **state) {
        struct fixture *fixture = *state;
        struct probe blocker = held_probe(fixture, '-', JOB_FILL, 1), waiting = probe(fixture, 'w', JOB_LOW, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &blocker);
        worker_pool_submit(fixture->pool, &waiting.job);
        assert_true(worker_pool_cancel(fixture->pool, &waiting.job));
        assert_false(worker_pool_cancel(fixture->pool, &waiting.job)); /* twice is harmless */
        assert_int_equal(waiting.n_done, 0);             /* done comes from the loop, not from inside cancel */
        loop_until_done(fixture, &waiting, 1);           /* while the only thread is still busy */
        assert_int_equal(waiting.result, -ECANCELED);
        assert_int_equal(waiting.n_stepped, 0);
        sem_post(&fixture->go);
        loop_until_done(fixture, &blocker, 1);
        assert_int_equal(waiting.n_done, 1);
}

/* Between its steps too: the next ones put in order what the first one began. */
static void a_job_that_has_begun_cannot_be_cancelled(void **state) {
        struct fixture *fixture = *state;
        struct probe begun = held_probe(fixture, 'b', JOB_AUDIT, 2), urgent = held_probe(fixture, 'u', JOB_WAITING, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &begun);
        assert_false(worker_pool_cancel(fixture->pool, &begun.job));
        worker_pool_submit(fixture->pool, &urgent.job);
        sem_post(&fixture->go);
        while (sem_wait(&fixture->entered) < 0) /* the urgent one's step: the other job is queued */
                ;
        assert_false(worker_pool_cancel(fixture->pool, &begun.job));
        sem_post(&fixture->go);
        sem_post(&fixture->go);
        loop_until_done(fixture, &begun, 1);
        assert_int_equal(begun.result, 0);
        assert_int_equal(begun.n_stepped, 2);
        assert_false(worker_pool_cancel(fixture->pool, &begun.job)); /* too late */
        assert_int_equal(begun.n_done, 1);

        begun.n_steps = 1;
        worker_pool_submit(fixture->pool, &urgent.job);
        while (sem_wait(&fixture->entered) < 0)
                ;
        worker_pool_submit(fixture->pool, &begun.job);
        assert_true(worker_pool_cancel(fixture->pool, &begun.job)); /* submitted again, it has not begun */
        sem_post(&fixture->go);
        loop_until_done(fixture, &urgent, 2);
        loop_until_done(fixture, &begun, 2);
        assert_int_equal(begun.result, -ECANCELED);
}

static void no_more_scrubs_run_at_a_time_than_are_worth_it(void **state) {
        struct fixture *fixture = *state;
        struct probe first = held_probe(fixture, '1', JOB_SCRUB, 1), second = held_probe(fixture, '2', JOB_SCRUB, 1);
        struct probe third = held_probe(fixture, '3', JOB_SCRUB, 1), fill = probe(fixture, 'f', JOB_FILL, 1);

        start_pool(fixture, 2);
        worker_pool_limit_scrubs(fixture->pool, 1);
        submit_and_wait_for_step(fixture, &first);
        worker_pool_submit(fixture->pool, &second.job);
        worker_pool_submit(fixture->pool, &third.job);
        worker_pool_submit(fixture->pool, &fill.job);
        loop_until_done(fixture, &fill, 1); /* the other thread did what comes after them */
        assert_string_equal(fixture->trace.text, "1f");
        worker_pool_raise(fixture->pool, &first.job, JOB_WAITING); /* is a scrub no longer */
        while (sem_wait(&fixture->entered) < 0)
                ;
        assert_string_equal(fixture->trace.text, "1f2");
        worker_pool_limit_scrubs(fixture->pool, 2);
        worker_pool_raise(fixture->pool, &third.job, JOB_LOW); /* waits for a thread now, not for its turn */
        sem_post(&fixture->go);
        sem_post(&fixture->go);
        sem_post(&fixture->go);
        loop_until_done(fixture, &first, 1);
        loop_until_done(fixture, &second, 1);
        loop_until_done(fixture, &third, 1);
        assert_string_equal(fixture->trace.text, "1f23");
}

static void a_raised_job_overtakes(void **state) {
        struct fixture *fixture = *state;
        struct probe blocker = held_probe(fixture, '-', JOB_WAITING, 1);
        struct probe low = probe(fixture, 'l', JOB_LOW, 1), fill = probe(fixture, 'f', JOB_FILL, 1);
        struct probe audit = probe(fixture, 'a', JOB_AUDIT, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &blocker);
        worker_pool_submit(fixture->pool, &low.job);
        worker_pool_submit(fixture->pool, &fill.job);
        worker_pool_submit(fixture->pool, &audit.job);
        worker_pool_raise(fixture->pool, &audit.job, JOB_WAITING);
        worker_pool_raise(fixture->pool, &low.job, JOB_AUDIT); /* never lowers */
        sem_post(&fixture->go);
        loop_until_done(fixture, &fill, 1);
        assert_string_equal(fixture->trace.text, "-alf");
}

static void a_raised_running_job_is_not_interrupted(void **state) {
        struct fixture *fixture = *state;
        struct probe running = held_probe(fixture, 'r', JOB_FILL, 2), low = probe(fixture, 'l', JOB_LOW, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &running);
        worker_pool_submit(fixture->pool, &low.job);
        worker_pool_raise(fixture->pool, &running.job, JOB_LOW);
        sem_post(&fixture->go);
        sem_post(&fixture->go);
        loop_until_done(fixture, &low, 1);
        assert_string_equal(fixture->trace.text, "rrl");
}

static void an_idle_thread_does_not_wait_for_a_busy_one(void **state) {
        struct fixture *fixture = *state;
        struct probe busy = held_probe(fixture, 'b', JOB_FILL, 1), other = probe(fixture, 'o', JOB_AUDIT, 1);

        start_pool(fixture, 2);
        submit_and_wait_for_step(fixture, &busy);
        worker_pool_submit(fixture->pool, &other.job);
        loop_until_done(fixture, &other, 1);
        assert_int_equal(busy.n_done, 0);
        sem_post(&fixture->go);
        loop_until_done(fixture, &busy, 1);
}

static int endless_step(struct job *job) {
        struct probe *endless = (struct probe *) job;

        if (endless->n_stepped++ == 0)
                sem_post(endless->entered);
        return 1;
}

static void free_with_work_left_ends_every_job(void **state) {
        struct fixture *fixture = *state;
        struct probe finished = held_probe(fixture, 'x', JOB_WAITING, 1), endless = held_probe(fixture, 'e', JOB_FILL, 1);
        struct probe queued[5];

        endless.job.step = endless_step;
        start_pool(fixture, 1);
        for (size_t i = 0; i < ELEMENTSOF(queued); i++)
                queued[i] = probe(fixture, 'q', i % 2 ? JOB_FILL : JOB_AUDIT, 1);
        queued[3].resubmit_to = fixture->pool;
        sem_post(&fixture->go);
        submit_and_wait_for_step(fixture, &finished);
        submit_and_wait_for_step(fixture, &endless);
        for (size_t i = 0; i < ELEMENTSOF(queued); i++)
                worker_pool_submit(fixture->pool, &queued[i].job);
        fixture->pool = worker_pool_free(fixture->pool);
        assert_null(fixture->pool);
        assert_int_equal(finished.n_done, 1);
        assert_int_equal(finished.result, 0); /* it had finished, nobody had been told */
        assert_int_equal(endless.n_done, 1);
        assert_int_equal(endless.result, -ECANCELED);
        for (size_t i = 0; i < ELEMENTSOF(queued); i++) {
                assert_int_equal(queued[i].n_done, i == 3 ? 2 : 1);
                assert_int_equal(queued[i].result, -ECANCELED);
                assert_int_equal(queued[i].n_stepped, 0);
        }
        assert_null(worker_pool_free(NULL));
}

static void done_may_submit_the_job_again(void **state) {
        struct fixture *fixture = *state;
        struct probe again = probe(fixture, 'a', JOB_FILL, 1);

        start_pool(fixture, 1);
        again.resubmit_to = fixture->pool;
        worker_pool_submit(fixture->pool, &again.job);
        loop_until_done(fixture, &again, 2);
        assert_int_equal(again.n_stepped, 2);
}

/* Background work at 1 MiB per second; a step of @step_bytes. */
static struct probe paced_probe(struct fixture *fixture, char letter, enum job_urgency urgency, int n_steps,
                                uint64_t step_bytes) {
        struct probe paced = probe(fixture, letter, urgency, n_steps);

        paced.job.step_bytes = step_bytes;
        return paced;
}

static void background_work_waits_for_its_pace_and_nothing_else_does(void **state) {
        struct fixture *fixture = *state;
        struct probe paced = paced_probe(fixture, 's', JOB_SCRUB, 2, 3600 * MIB);
        struct probe others[] = {
                paced_probe(fixture, 'w', JOB_WAITING, 2, MIB), paced_probe(fixture, 'l', JOB_LOW, 2, MIB),
                paced_probe(fixture, 'd', JOB_DROP, 2, MIB),    paced_probe(fixture, 'f', JOB_FILL, 2, 0),
                paced_probe(fixture, 'a', JOB_AUDIT, 2, MIB),
        };
        struct probe equal = paced_probe(fixture, 'F', JOB_FILL, 1, 1);

        start_pool(fixture, 1);
        worker_pool_set_pace(fixture->pool, MIB);
        paced.entered = &fixture->entered;
        submit_and_wait_for_step(fixture, &paced); /* the next one is due in an hour */
        for (size_t i = 0; i < ELEMENTSOF(others); i++) {
                worker_pool_submit(fixture->pool, &others[i].job);
                loop_until_done(fixture, &others[i], 1);
        }
        worker_pool_submit(fixture->pool, &equal.job);
        assert_string_equal(fixture->trace.text, "swwllddffaa");
        assert_int_equal(worker_pool_n_jobs(fixture->pool), 2);
        assert_false(worker_pool_is_awaited(fixture->pool));

        worker_pool_raise(fixture->pool, &equal.job, JOB_SCRUB); /* still in the background */
        worker_pool_raise(fixture->pool, &paced.job, JOB_WAITING);
        loop_until_done(fixture, &paced, 1);
        assert_int_equal(equal.n_stepped, 0);
        worker_pool_raise(fixture->pool, &equal.job, JOB_LOW);
        loop_until_done(fixture, &equal, 1);
        assert_string_equal(fixture->trace.text, "swwllddffaasF");
        assert_int_equal(worker_pool_n_jobs(fixture->pool), 0);
}

static void a_job_that_waits_for_its_pace_can_be_cancelled(void **state) {
        struct fixture *fixture = *state;
        struct probe paced = paced_probe(fixture, 's', JOB_SCRUB, 2, 3600 * MIB);
        struct probe waiting = paced_probe(fixture, 'f', JOB_FILL, 2, MIB);

        start_pool(fixture, 2);
        worker_pool_set_pace(fixture->pool, MIB);
        paced.entered = &fixture->entered;
        submit_and_wait_for_step(fixture, &paced);
        worker_pool_submit(fixture->pool, &waiting.job);
        worker_pool_cancel(fixture->pool, &waiting.job);
        loop_until_done(fixture, &waiting, 1);
        assert_int_equal(waiting.result, -ECANCELED);
        fixture->pool = worker_pool_free(fixture->pool); /* the other one, too, without waiting for its pace */
        assert_int_equal(paced.n_done, 1);
        assert_int_equal(paced.result, -ECANCELED);
}

/* Only that it is not faster is sure: a busy machine makes everything slower. */
static void all_threads_share_one_pace(void **state) {
        struct fixture *fixture = *state;
        struct probe jobs[8];
        uint64_t start_ns = pace_now_ns(), took_ns;

        start_pool(fixture, 4);
        worker_pool_set_pace(fixture->pool, 100 * MIB);
        for (size_t i = 0; i < ELEMENTSOF(jobs); i++) {
                jobs[i] = paced_probe(fixture, 'a' + (char) i, i % 2 ? JOB_SCRUB : JOB_FILL, 2, MIB);
                worker_pool_submit(fixture->pool, &jobs[i].job);
        }
        for (size_t i = 0; i < ELEMENTSOF(jobs); i++)
                loop_until_done(fixture, &jobs[i], 1);
        took_ns = pace_now_ns() - start_ns;
        assert_true(took_ns >= 150 * NS_PER_MS); /* 16 steps of 10 ms each, of which the last one is not waited for */
        assert_true(worker_pool_n_jobs(fixture->pool) == 0);
}

static void whoever_waits_is_known(void **state) {
        struct fixture *fixture = *state;
        struct probe held = held_probe(fixture, 'h', JOB_FILL, 1), waiting = probe(fixture, 'w', JOB_WAITING, 1);

        start_pool(fixture, 1);
        submit_and_wait_for_step(fixture, &held);
        assert_false(worker_pool_is_awaited(fixture->pool));
        worker_pool_submit(fixture->pool, &waiting.job);
        assert_true(worker_pool_is_awaited(fixture->pool));
        worker_pool_cancel(fixture->pool, &waiting.job);
        assert_false(worker_pool_is_awaited(fixture->pool));
        worker_pool_raise(fixture->pool, &held.job, JOB_WAITING);
        worker_pool_raise(fixture->pool, &held.job, JOB_WAITING);
        assert_true(worker_pool_is_awaited(fixture->pool));
        sem_post(&fixture->go);
        loop_until_done(fixture, &held, 1);
        assert_false(worker_pool_is_awaited(fixture->pool));
}

struct class_facts {
        struct job job;
        sem_t *entered, *go;
        int before, after, n_done; /* scheduling class when the step began and when it was let go on */
};

static int note_classes(struct job *job) {
        struct class_facts *facts = (struct class_facts *) job;

        facts->before = sched_getscheduler(0);
        sem_post(facts->entered);
        while (sem_wait(facts->go) < 0)
                ;
        facts->after = sched_getscheduler(0);
        return 0;
}

static void note_end(struct job *job, int r) {
        ((struct class_facts *) job)->n_done++;
}

enum meanwhile { NOTHING, RAISED, OTHER_AWAITED, OTHER_LOW };

/* Runs one job; in the middle of it @meanwhile happens. */
static struct class_facts classes_of(struct fixture *fixture, enum job_urgency urgency, bool may_idle, enum meanwhile meanwhile) {
        struct class_facts other = {
                .job = {.urgency = JOB_WAITING, .step = note_classes, .done = note_end},
                .entered = &fixture->entered,
                .go = &fixture->go,
                .n_done = 1,
        };
        struct class_facts facts = {
                .job = {.urgency = urgency, .step = note_classes, .done = note_end, .step_may_idle = may_idle},
                .entered = &fixture->entered,
                .go = &fixture->go,
        };

        worker_pool_submit(fixture->pool, &facts.job);
        while (sem_wait(&fixture->entered) < 0)
                ;
        if (meanwhile == RAISED)
                worker_pool_raise(fixture->pool, &facts.job, JOB_WAITING);
        if (meanwhile == OTHER_AWAITED || meanwhile == OTHER_LOW) {
                other.job.urgency = meanwhile == OTHER_LOW ? JOB_LOW : JOB_WAITING;
                other.n_done = 0;
                worker_pool_submit(fixture->pool, &other.job);
                sem_post(&fixture->go);
        }
        sem_post(&fixture->go);
        while (facts.n_done == 0 || other.n_done == 0)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
        (void) sem_trywait(&fixture->entered); /* of the other one */
        return facts;
}

static int note_class_of_stopped(struct job *job) {
        struct class_facts *facts = (struct class_facts *) job;

        sem_post(facts->entered);
        while (sched_getscheduler(0) == SCHED_IDLE) /* else the test hangs: nothing else ends it */
                ;
        facts->after = sched_getscheduler(0);
        return 0;
}

static void class_at_the_end_of(struct fixture *fixture) {
        struct class_facts facts = {
                .job = {.urgency = JOB_SCRUB, .step = note_class_of_stopped, .done = note_end, .step_may_idle = true},
                .entered = &fixture->entered,
        };

        worker_pool_submit(fixture->pool, &facts.job);
        while (sem_wait(&fixture->entered) < 0)
                ;
        fixture->pool = worker_pool_free(fixture->pool);
        assert_int_equal(facts.after, SCHED_OTHER);
        assert_int_equal(facts.n_done, 1);
}

static void background_work_takes_what_others_leave_until_a_client_waits(void **state) {
        struct fixture *fixture = *state;
        struct class_facts facts;

        start_pool(fixture, 1);
        facts = classes_of(fixture, JOB_SCRUB, /* may_idle= */ true, NOTHING);
        if (facts.before != SCHED_IDLE && (geteuid() != 0 || sched_getscheduler(0) != SCHED_OTHER))
                skip(); /* a thread of ours could not leave the idle class again */
        assert_int_equal(facts.before, SCHED_IDLE);
        assert_int_equal(facts.after, SCHED_IDLE);
        facts = classes_of(fixture, JOB_SCRUB, /* may_idle= */ true, RAISED);
        assert_int_equal(facts.before, SCHED_IDLE);
        assert_int_equal(facts.after, SCHED_OTHER);
        facts = classes_of(fixture, JOB_SCRUB, /* may_idle= */ true, OTHER_AWAITED);
        assert_int_equal(facts.before, SCHED_IDLE);
        assert_int_equal(facts.after, SCHED_OTHER); /* or who waits would wait for what others leave */
        assert_int_equal(classes_of(fixture, JOB_SCRUB, /* may_idle= */ true, OTHER_LOW).after, SCHED_OTHER);
        assert_int_equal(classes_of(fixture, JOB_AUDIT, true, NOTHING).after, SCHED_IDLE);
        assert_int_equal(classes_of(fixture, JOB_FILL, /* may_idle= */ false, NOTHING).before, SCHED_OTHER);
        assert_int_equal(classes_of(fixture, JOB_WAITING, /* may_idle= */ true, NOTHING).before, SCHED_OTHER);
        assert_int_equal(classes_of(fixture, JOB_LOW, /* may_idle= */ true, NOTHING).before, SCHED_OTHER);
        class_at_the_end_of(fixture);
}

static void a_pace_averages_out_and_saves_nothing_up(void **state) {
        struct pace pace = {.bytes_per_s = 1000};

        assert_true(pace_take(&pace, 500, 7 * PACE_NS_PER_S));
        assert_false(pace_take(&pace, 1, 7 * PACE_NS_PER_S));
        assert_false(pace_take(&pace, 1, pace.due_ns - 1));
        assert_int_equal(pace.due_ns, 7 * PACE_NS_PER_S + 500 * NS_PER_MS);
        assert_true(pace_take(&pace, 0, 7 * PACE_NS_PER_S)); /* costs nothing */
        assert_true(pace_take(&pace, 2000, pace.due_ns));
        assert_int_equal(pace.due_ns, 9 * PACE_NS_PER_S + 500 * NS_PER_MS);
        assert_true(pace_take(&pace, 1000, 3600 * PACE_NS_PER_S)); /* after an hour of nothing */
        assert_false(pace_take(&pace, 1000, 3600 * PACE_NS_PER_S));
        assert_int_equal(pace.due_ns, 3601 * PACE_NS_PER_S);
        assert_true(pace_take(&pace, UINT64_C(1) << 40, 3601 * PACE_NS_PER_S)); /* no overflow */
        assert_true(pace.due_ns > 3601 * PACE_NS_PER_S);
        pace.bytes_per_s = PACE_UNLIMITED;
        assert_true(pace_take(&pace, UINT64_MAX, 0));
        assert_true(pace_take(&pace, UINT64_MAX, 0));
}

struct thread_facts {
        struct job job;
        char name[16];
        sigset_t blocked;
        cpu_set_t cpus;
        int node, n_done;
};

static int look_around(struct job *job) {
        struct thread_facts *facts = (struct thread_facts *) job;

        pthread_getname_np(pthread_self(), facts->name, sizeof(facts->name));
        pthread_sigmask(SIG_SETMASK, NULL, &facts->blocked);
        facts->node = topology_current_node();
        (void) sched_getaffinity(0, sizeof(facts->cpus), &facts->cpus);
        return 0;
}

static void count_done(struct job *job, int r) {
        ((struct thread_facts *) job)->n_done++;
}

static void threads_have_a_name_a_node_and_no_signals(void **state) {
        struct fixture *fixture = *state;
        struct thread_facts facts = {.job = {.urgency = JOB_FILL, .step = look_around, .done = count_done}};
        struct topology *topology = NULL;
        cpu_set_t cpus, one_cpu;
        char name[16];
        int node, cpu = sched_getcpu();

        assert_int_equal(topology_new("/sys", &topology), 0);
        node = topology_node_at(topology, 0);
        assert_int_equal(sched_getaffinity(0, sizeof(cpus), &cpus), 0);
        CPU_ZERO(&one_cpu);
        CPU_SET((size_t) cpu, &one_cpu);
        assert_int_equal(sched_setaffinity(0, sizeof(one_cpu), &one_cpu), 0); /* which the thread would have, too */
        assert_int_equal(worker_pool_new(fixture->base, topology, node, 1, &fixture->pool), 0);
        worker_pool_submit(fixture->pool, &facts.job);
        while (facts.n_done == 0)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
        snprintf(name, sizeof(name), "hz-%d/0", node);
        assert_int_equal(sched_setaffinity(0, sizeof(cpus), &cpus), 0);
        assert_string_equal(facts.name, name);
        if (topology_n_nodes(topology) == 1)
                assert_true(CPU_COUNT(&facts.cpus) >= CPU_COUNT(&cpus)); /* all of the node */
        if (topology_node_has_cpus(topology, node))
                assert_int_equal(facts.node, node);
        assert_true(sigismember(&facts.blocked, SIGTERM));
        assert_true(sigismember(&facts.blocked, SIGIO));
        assert_false(sigismember(&facts.blocked, SIGBUS));
        pthread_sigmask(SIG_SETMASK, NULL, &facts.blocked);
        assert_false(sigismember(&facts.blocked, SIGTERM)); /* the loop thread's own mask is as before */
        fixture->pool = worker_pool_free(fixture->pool);
        topology_free(topology);
}

static void the_loop_goes_on_between_many_finished_jobs(void **state) {
        enum { N_JOBS = 100 };
        struct fixture *fixture = *state;
        struct probe jobs[N_JOBS];
        int n_done = 0;

        start_pool(fixture, 1);
        for (int i = 0; i < N_JOBS; i++) {
                jobs[i] = probe(fixture, 0, JOB_SCRUB, 1);
                jobs[i].trace = NULL;
                jobs[i].entered = &fixture->entered;
                worker_pool_submit(fixture->pool, &jobs[i].job);
        }
        for (int i = 0; i < N_JOBS; i++) /* all but the last are finished then */
                while (sem_wait(&fixture->entered) < 0)
                        ;
        assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
        for (int i = 0; i < N_JOBS; i++)
                n_done += jobs[i].n_done;
        assert_int_equal(n_done, 32);
        loop_until_done(fixture, &jobs[N_JOBS - 1], 1);
}

static void many_jobs_each_end_exactly_once(void **state) {
        struct fixture *fixture = *state;
        struct probe *jobs = calloc(N_MANY, sizeof(*jobs));
        int n_done = 0, n_cancelled = 0;

        assert_non_null(jobs);
        srandom(1);
        start_pool(fixture, 4);
        for (int i = 0; i < N_MANY; i++) {
                jobs[i] = probe(fixture, 0, random() % _JOB_URGENCY_MAX, 1 + random() % 3);
                jobs[i].trace = NULL;
                jobs[i].last_r = -i;
                worker_pool_submit(fixture->pool, &jobs[i].job);
                if (i % 3 == 0)
                        worker_pool_raise(fixture->pool, &jobs[random() % (i + 1)].job, JOB_WAITING);
                if (i % 5 == 0)
                        worker_pool_cancel(fixture->pool, &jobs[random() % (i + 1)].job);
                if (i % 7 == 0)
                        assert_true(event_base_loop(fixture->base, EVLOOP_NONBLOCK) >= 0);
        }
        for (int i = 0; i < N_MANY; i++)
                loop_until_done(fixture, &jobs[i], 1);
        for (int i = 0; i < N_MANY; i++) {
                n_done += jobs[i].n_done;
                n_cancelled += jobs[i].n_steps > 0;
                assert_int_equal(jobs[i].result, jobs[i].n_steps > 0 ? -ECANCELED : -i);
                assert_true(pthread_equal(jobs[i].done_thread, pthread_self()));
        }
        assert_int_equal(n_done, N_MANY);
        assert_true(n_cancelled <= N_MANY / 5);
        free(jobs);
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(jobs_run_in_order_of_urgency),
                test(an_urgent_job_goes_between_two_steps),
                test(failure_ends_a_job_and_reaches_done),
                test(a_cancelled_waiting_job_never_runs),
                test(a_job_that_has_begun_cannot_be_cancelled),
                test(no_more_scrubs_run_at_a_time_than_are_worth_it),
                test(a_raised_job_overtakes),
                test(a_raised_running_job_is_not_interrupted),
                test(an_idle_thread_does_not_wait_for_a_busy_one),
                test(free_with_work_left_ends_every_job),
                test(done_may_submit_the_job_again),
                test(the_loop_goes_on_between_many_finished_jobs),
                cmocka_unit_test(a_pace_averages_out_and_saves_nothing_up),
                test(background_work_waits_for_its_pace_and_nothing_else_does),
                test(a_job_that_waits_for_its_pace_can_be_cancelled),
                test(all_threads_share_one_pace),
                test(whoever_waits_is_known),
                test(background_work_takes_what_others_leave_until_a_client_waits),
                test(threads_have_a_name_a_node_and_no_signals),
                test(many_jobs_each_end_exactly_once),
        };

        return cmocka_run_group_tests(tests, setup_fd_count, teardown_fd_count);
}
