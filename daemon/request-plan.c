/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "request-plan.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "broker-internal.h"
#include "quota.h"
#include "request.h"
#include "stock.h"

/* As of waiting requests and connections (quota.c). Chosen. */
#define KEPT_SHARE 8 /* of the extents that the limit of open files allows */
#define MAX_KEPT 64
#define FEW 3        /* extents in a request, and grants */

struct request_plan *request_plan_free(struct request_plan *plan) {
        for (size_t i = 0; i < plan->n_items; i++)
                pool_plan_done(&plan->items[i]);
        service_unref(plan->service);
        free(plan);
        return NULL;
}

uint32_t request_plan_n_pieces(const struct request_plan *plan) {
        uint32_t n_pieces = 0;

        for (size_t i = 0; i < plan->n_items; i++)
                n_pieces += plan->items[i].n_pieces;
        return n_pieces;
}

/*
 * What the items that are planned already take from the kernel is not there twice, and what they leave over is there for those
 * that follow: of the same pool, or others would get what its target is short of.
 */
static void sum_fills(const struct request_plan *plan, const struct node_pool *np, int64_t *ret_own_bytes, int64_t *ret_others_bytes) {
        *ret_own_bytes = *ret_others_bytes = 0;
        for (size_t i = 0; i < plan->n_items; i++) {
                const struct node_pool *other = plan->items[i].node_pool;
                int64_t bytes = pool_plan_fill_bytes(&plan->items[i]);

                if (other == np)
                        *ret_own_bytes += bytes;
                else if (bytes > 0 && other->node == np->node && other->pool->page_size_bytes == np->pool->page_size_bytes)
                        *ret_others_bytes += bytes;
        }
}

/* What is built is charged with nothing yet; what is dropped makes room. */
static int64_t count_new(const struct request_plan *plan) {
        int64_t n_new = 0;

        for (size_t i = 0; i < plan->n_items; i++) {
                n_new -= (int64_t) plan->items[i].n_drops;
                for (size_t k = 0; k < plan->items[i].n_pieces; k++)
                        n_new += !plan->items[i].pieces[k].extent;
        }
        return n_new;
}

static uint64_t more_extents(const struct broker *broker, const struct request_plan *plan) {
        int64_t n_more = (int64_t) refill_extents_left(broker) - count_new(plan);

        return n_more > 0 ? (uint64_t) n_more : 0;
}

static int plan_item_at(struct broker *broker, struct request_plan *plan, const struct wire_item *item, struct node_pool *np,
                        bool instant_only, enum wire_on_miss on_miss) {
        struct plan_terms terms = {
                .bytes = request_item_bytes(item, np->pool),
                .service = plan->service,
                .several = item->flags & WIRE_ITEM_SEVERAL,
                .instant_only = instant_only,
                .may_fill = !instant_only && on_miss != WIRE_MISS_FAIL,
        };
        int64_t own_bytes, others_bytes;
        int r;

        if (terms.bytes == 0 || terms.bytes > np->target_bytes)
                return PLAN_NO;
        terms.n_new_extents = more_extents(broker, plan);
        sum_fills(plan, np, &own_bytes, &others_bytes);
        if (own_bytes < 0)
                terms.freed_bytes = (uint64_t) -own_bytes;
        if (!instant_only) {
                uint64_t taken_bytes = (uint64_t) (others_bytes + (own_bytes > 0 ? own_bytes : 0));

                terms.fillable_bytes = refill_fillable_bytes(broker, np);
                terms.fillable_bytes -= terms.fillable_bytes < taken_bytes ? terms.fillable_bytes : taken_bytes;
        }
        r = pool_plan(np, &terms, &plan->items[plan->n_items]);
        if (r == PLAN_YES)
                plan->n_items++;
        return r;
}

/* Ready memory that would do, but for a slice of it that is being read: waiting for that is better than the next best place. */
static bool would_serve(const struct node_pool *np, const struct wire_item *item, uid_t uid) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                if (extent->bytes >= item->bytes || (item->flags & WIRE_ITEM_SEVERAL))
                        return !turns_hold_back(np, uid);
        return false;
}

enum effort {
        EFFORT_INSTANT,
        EFFORT_READY, /* out of what is ready: the kernel zeroes what the largest extent lacks */
        EFFORT_ALL,   /* what is being filled and, where the request allows it, what can be filled too */
};

static int plan_item_among(struct broker *broker, struct request_plan *plan, const struct wire_item *item, enum wire_on_miss on_miss,
                           const struct request_candidates *candidates, size_t first, size_t end, enum effort effort) {
        int r, result = PLAN_NO;

        for (size_t i = first; i < end; i++) {
                struct node_pool *np = candidates->node_pools[i];

                if (turns_hold_back(np, plan->uid))
                        continue;
                if (effort != EFFORT_INSTANT && np->n_extents[EXTENT_AUDITING] > 0)
                        return PLAN_AUDITED;
                if (effort == EFFORT_READY && np->bytes[EXTENT_READY] < request_item_bytes(item, np->pool))
                        continue;
                r = plan_item_at(broker, plan, item, np, effort == EFFORT_INSTANT, on_miss);
                if (r == PLAN_YES || r < 0)
                        return r;
                if (effort == EFFORT_INSTANT && would_serve(np, item, plan->uid))
                        return PLAN_AUDITED;
                if (r == PLAN_QUIESCE) {
                        np->blocked = true;
                        result = r;
                }
        }
        return result;
}

/*
 * The nearest nodes first, with all that they have ready, then what has to be filled, nearest first again. Of equally near ones,
 * which all are where any node will do, first who can serve at once.
 */
static int plan_item(struct broker *broker, struct request_plan *plan, const struct wire_item *item, enum wire_on_miss on_miss) {
        struct request_candidates candidates;
        size_t end;
        int r = PLAN_NO;

        request_find_candidates(broker, item, &candidates);
        for (int fill = 0; fill <= 1; fill++)
                for (size_t first = 0; first < candidates.n && r == PLAN_NO; first = end) {
                        end = request_equally_near(broker, item, &candidates, first);
                        r = plan_item_among(broker, plan, item, on_miss, &candidates, first, end, fill ? EFFORT_ALL : EFFORT_INSTANT);
                        if (r == PLAN_NO && !fill)
                                r = plan_item_among(broker, plan, item, on_miss, &candidates, first, end, EFFORT_READY);
                }
        return r;
}

/* A user who took them all would leave nobody anything to be served with, whatever else is free. */
static bool takes_of_the_last(const struct broker *broker, const struct request_plan *plan) {
        static const enum extent_state held[] = {EXTENT_CLAIMED, EXTENT_GRANTED, EXTENT_RETURNED, EXTENT_PINNED};
        uint64_t n_max = stock_max_extents(broker->stock), n_kept = n_max / KEPT_SHARE < MAX_KEPT ? n_max / KEPT_SHARE : MAX_KEPT;
        int64_t n_held = count_new(plan);

        BROKER_FOREACH_NODE_POOL(broker, np)
                for (size_t i = 0; i < sizeof(held) / sizeof(held[0]); i++)
                        n_held += np->n_extents[held[i]];
        if (n_held <= (int64_t) (n_max - n_kept) || access_is_administrator(broker->config, plan->uid))
                return false;
        return request_plan_n_pieces(plan) > FEW || quota_used(broker->quota, plan->uid, QUOTA_GRANTS) >= FEW;
}

int request_plan_make(struct broker *broker, struct request *request, struct request_plan **ret_plan) {
        const struct wire_c_acquire *acquire = request->acquire;
        struct request_plan *plan = malloc(sizeof(*plan));
        int r = PLAN_YES, result = PLAN_YES;

        if (!plan)
                return -ENOMEM;
        /* Not all 16 items: the first n_items are set. */
        memset(plan, 0, offsetof(struct request_plan, items));
        plan->broker = broker;
        plan->request = request;
        plan->uid = request->identity->uid;
        plan->is_cutting = true;
        r = request_recycle_key(broker->config, request->identity, &plan->service);
        for (size_t i = 0; i < acquire->n_items && r >= 0 && result != PLAN_NO; i++) {
                r = plan_item(broker, plan, &acquire->items[i], acquire->on_miss);
                if (r != PLAN_YES)
                        result = r;
        }
        if (r >= 0)
                r = result;
        if (r == PLAN_YES && takes_of_the_last(broker, plan))
                r = -EMFILE;
        if (r != PLAN_YES) {
                for (size_t i = 0; i < plan->n_items; i++)
                        pool_plan_undo(&plan->items[i]);
                request_plan_free(plan);
                return r;
        }
        *ret_plan = plan;
        return PLAN_YES;
}
