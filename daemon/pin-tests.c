/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "pin-tests.h"

#include <errno.h>
#include <string.h>

#include "stock-internal.h"
#include "worker.h"

#define MAX_AWAITED 8 /* chosen: they cost no CPU time, each for whom nobody waits could cost somebody 165 ms */

int pin_tests_init(struct pin_tests *tests, struct event_base *base, const struct topology *topology, int node) {
        TAILQ_INIT(&tests->waiting);
        return worker_pool_new(base, topology, node, MAX_AWAITED, &tests->tester);
}

/* 0: it is not known to have pins; else the lower the longer ago its last test was. */
static size_t rank_of(const struct pin_tests *tests, uid_t uid) {
        for (size_t i = 0; i < tests->n_uids; i++)
                if (tests->uids[i] == uid)
                        return i + 1;
        return 0;
}

static void forget_uid(struct pin_tests *tests, uid_t uid) {
        size_t rank = rank_of(tests, uid);

        if (rank == 0)
                return;
        memmove(&tests->uids[rank - 1], &tests->uids[rank], (tests->n_uids - rank) * sizeof(tests->uids[0]));
        tests->n_uids--;
}

/* It is not on its way out, then: the pool and others' memory that is to be exchanged do not wait for it. */
static void suspect(const struct work *work) {
        if (work->extent->state == EXTENT_DROPPING)
                pool_move(work->extent, EXTENT_PINNED);
}

static void remember_uid(struct pin_tests *tests, uid_t uid) {
        const struct work *work;

        forget_uid(tests, uid);
        if (tests->n_uids == PIN_TESTS_UIDS)
                forget_uid(tests, tests->uids[0]);
        tests->uids[tests->n_uids++] = uid;
        TAILQ_FOREACH(work, &tests->waiting, test_link)
                if (work->test_uid == uid)
                        suspect(work);
}

/* Of those with pins a client may wait for one: that first. */
static struct work *find_next(const struct pin_tests *tests) {
        struct work *work, *best = NULL;
        size_t best_rank = 0;

        TAILQ_FOREACH(work, &tests->waiting, test_link) {
                size_t rank = rank_of(tests, work->test_uid);

                if (rank == 0)
                        return work;
                if (best && work->parts[0].job.urgency > best->parts[0].job.urgency)
                        continue;
                if (!best || work->parts[0].job.urgency < best->parts[0].job.urgency || rank < best_rank) {
                        best = work;
                        best_rank = rank;
                }
        }
        return best;
}

static void begin_next(struct pin_tests *tests) {
        struct work *work;

        while (tests->tester && (work = find_next(tests))) {
                if (tests->n_running >= (work->parts[0].job.urgency == JOB_WAITING ? MAX_AWAITED : 1))
                        return;
                TAILQ_REMOVE(&tests->waiting, work, test_link);
                work->test_runs = true;
                tests->n_running++;
                worker_pool_submit(tests->tester, &work->parts[0].job);
        }
}

void pin_tests_add(struct pin_tests *tests, struct work *work) {
        TAILQ_INSERT_TAIL(&tests->waiting, work, test_link);
        if (rank_of(tests, work->test_uid) > 0)
                suspect(work);
        begin_next(tests);
}

void pin_tests_end(struct pin_tests *tests, const struct work *work) {
        if (!work->test_runs)
                return;
        tests->n_running--;
        if (work->result == -EBUSY)
                remember_uid(tests, work->test_uid);
        else if (work->result == 0)
                forget_uid(tests, work->test_uid);
        begin_next(tests);
}

void pin_tests_done(struct pin_tests *tests) {
        struct worker_pool *tester = tests->tester;
        struct work *work;

        if (!tester)
                return;
        tests->tester = NULL; /* nothing more begins */
        worker_pool_free(tester);
        while ((work = TAILQ_FIRST(&tests->waiting))) {
                TAILQ_REMOVE(&tests->waiting, work, test_link);
                work->parts[0].job.done(&work->parts[0].job, -ECANCELED);
        }
}
