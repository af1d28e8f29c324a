/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who is held back by whom, for each node pool. Requests of one user are served in order. A request that waits keeps later ones of
 * other users from the memory only in its turn, which is over after HoldBack=. Then nobody has a turn for twice as long, and it
 * waits on behind the others, with all of its user. So who wants much has time to collect what comes back; and who waits for
 * what never comes back stops others for a third of the time at most, under however many names.
 */

#include <stdlib.h>

#include "broker-internal.h"
#include "clock.h"
#include "request.h"

#define REST_FACTOR 2      /* chosen: turns take a third of the time at most */
#define LOOK_AGAIN_MS 1000 /* chosen: whether a request could ever be served takes a look at all that is granted */

/* Who is served soon has kept nobody for long: the rest is as long as that. */
static void end_turn(const struct broker *broker, struct node_pool *np, uint64_t now_ms) {
        np->turn = NULL;
        np->turns_from_ms = now_ms;
        if (broker->config->hold_back_ms != UINT64_MAX)
                np->turns_from_ms += (now_ms - np->turn_since_ms) * REST_FACTOR;
}

static bool is_over(const struct broker *broker, const struct node_pool *np, uint64_t now_ms) {
        return np->turn && now_ms - np->turn_since_ms >= broker->config->hold_back_ms;
}

/* All of them, so that who asks many times has no more turns than who asks once, and their order stays. */
static void move_to_end(struct broker *broker, uid_t uid) {
        struct request *last = TAILQ_LAST(&broker->waiting, request_queue), *next;

        for (struct request *request = TAILQ_FIRST(&broker->waiting); request; request = next) {
                next = request == last ? NULL : TAILQ_NEXT(request, link);
                if (request->identity->uid != uid)
                        continue;
                TAILQ_REMOVE(&broker->waiting, request, link);
                TAILQ_INSERT_TAIL(&broker->waiting, request, link);
        }
}

void turns_begin_walk(struct broker *broker) {
        uint64_t now_ms = clock_ms();

        BROKER_FOREACH_NODE_POOL(broker, np) {
                np->is_held = false;
                np->n_uids_waiting = 0;
                if (!is_over(broker, np, now_ms))
                        continue;
                uid_t uid = np->turn->identity->uid;
                end_turn(broker, np, now_ms);
                move_to_end(broker, uid);
        }
}

bool turns_hold_back(const struct node_pool *np, uid_t uid) {
        if (np->is_held)
                return true;
        for (size_t i = 0; i < np->n_uids_waiting; i++)
                if (np->uids_waiting[i] == uid)
                        return true;
        return false;
}

static void note_uid(struct node_pool *np, uid_t uid) {
        if (np->n_uids_waiting == np->uids_room) {
                size_t room = np->uids_room ? np->uids_room * 2 : 16;
                uid_t *uids = reallocarray(np->uids_waiting, room, sizeof(*uids));

                if (!uids) { /* strict order until there is memory */
                        np->is_held = true;
                        return;
                }
                np->uids_waiting = uids;
                np->uids_room = room;
        }
        np->uids_waiting[np->n_uids_waiting++] = uid;
}

void turns_wait_alone(struct broker *broker, const struct request *request) {
        uid_t uid = request->identity->uid;
        struct request_candidates candidates;

        for (size_t i = 0; i < request->acquire->n_items; i++) {
                request_find_candidates(broker, &request->acquire->items[i], &candidates);
                for (size_t k = 0; k < candidates.n; k++)
                        if (!turns_hold_back(candidates.node_pools[k], uid))
                                note_uid(candidates.node_pools[k], uid);
        }
}

static bool may_have_turn(struct broker *broker, const struct node_pool *np, struct request *request, uint64_t now_ms) {
        if (np->turn || broker->config->hold_back_ms == 0 || np->turns_from_ms > now_ms || request->turn_from_ms > now_ms)
                return false;
        if (request_could_be_served(broker, request))
                return true;
        request->turn_from_ms = now_ms + LOOK_AGAIN_MS;
        return false;
}

void turns_claim(struct broker *broker, struct node_pool *np, struct request *request) {
        uint64_t now_ms;

        if (turns_hold_back(np, request->identity->uid)) /* a turn would be of no use to it */
                return;
        now_ms = clock_ms();
        if (may_have_turn(broker, np, request, now_ms)) {
                np->turn = request;
                np->turn_since_ms = now_ms;
                request->has_turn = true;
        }
        if (np->turn == request)
                np->is_held = true;
        note_uid(np, request->identity->uid);
}

void turns_leave(struct broker *broker, struct request *request) {
        if (!request->has_turn)
                return;
        request->has_turn = false;
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (np->turn == request)
                        end_turn(broker, np, clock_ms());
}

uint64_t turns_end_ms(const struct broker *broker) {
        uint64_t first_ms = UINT64_MAX, end_ms;

        BROKER_FOREACH_NODE_POOL(broker, np)
                if (np->turn && !__builtin_add_overflow(np->turn_since_ms, broker->config->hold_back_ms, &end_ms) &&
                    end_ms < first_ms)
                        first_ms = end_ms;
        return first_ms;
}
