/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents with which something is due: a question, the end of a grace period, another pin test. So much of it is done in one turn
 * of the loop, else whoever gives back much, or asks for much again and again, would keep everybody waiting.
 */

#include <event2/event.h>

#include "broker-internal.h"
#include "reclaim.h"

#define PER_TURN 64       /* chosen: 0.1 ms where all are held, 0.3 ms where all are free */
#define GRANT_IN_A_ROW 16 /* chosen: then another grant's are due */

static void set_timer(struct broker *broker) {
        if (!evtimer_pending(broker->due_timer, NULL))
                broker_timer_set(broker->due_timer, 0);
}

void due_extent(struct broker *broker, struct extent *extent) {
        if (extent->is_due)
                return;
        extent->is_due = true;
        TAILQ_INSERT_TAIL(&broker->due_extents, extent, due_link);
        set_timer(broker);
}

void due_forget(struct broker *broker, struct extent *extent) {
        if (!extent->is_due)
                return;
        extent->is_due = false;
        TAILQ_REMOVE(&broker->due_extents, extent, due_link);
}

static void do_extent(struct broker *broker, struct extent *extent) {
        due_forget(broker, extent);
        returns_do_due(broker, extent);
}

/* May free the grant. */
static void do_next_of(struct broker *broker, struct grant *grant) {
        struct extent *extent = grant->extents[grant->due_at].extent;

        grant->due_at = (grant->due_at + 1) % grant->n_extents;
        grant->n_due--;
        if (grant->n_due == 0 || grant->due_at % GRANT_IN_A_ROW == 0) {
                TAILQ_REMOVE(&broker->due_grants, grant, due_link);
                if (grant->n_due > 0)
                        TAILQ_INSERT_TAIL(&broker->due_grants, grant, due_link);
        }
        if (extent && extent->state == EXTENT_GRANTED)
                do_extent(broker, extent);
}

/* Grants and extents by turns. */
static bool do_next(struct broker *broker) {
        struct extent *extent = TAILQ_FIRST(&broker->due_extents);
        struct grant *grant = TAILQ_FIRST(&broker->due_grants);

        if (grant && (!extent || broker->n_done_in_turn % 2 == 0))
                do_next_of(broker, grant);
        else if (extent)
                do_extent(broker, extent);
        return grant || extent;
}

static void do_while_it_is_our_turn(struct broker *broker) {
        while (broker->n_done_in_turn < PER_TURN && do_next(broker))
                broker->n_done_in_turn++;
        if (broker->n_done_in_turn > 0)
                set_timer(broker);
}

void due_on_timer(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        broker->n_done_in_turn = 0;
        do_while_it_is_our_turn(broker);
}

void due_grant(struct broker *broker, uint64_t grant_id, uint32_t first, uint32_t n) {
        struct grant *grant;

        /* A client that closes and then releases has its close events in the queue already: those first. */
        reclaim_drain(broker->reclaim);
        grant = grant_find(broker, grant_id);
        if (!grant)
                return;
        if (grant->n_due > 0) /* once more about all of it, from where it is: who repeats himself gets no further otherwise */
                grant->n_due = grant->n_extents;
        else {
                TAILQ_INSERT_TAIL(&broker->due_grants, grant, due_link);
                grant->due_at = first;
                grant->n_due = n;
        }
        do_while_it_is_our_turn(broker);
}
