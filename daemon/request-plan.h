/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From which node pools a request is served, all of its items at once, and out of which extents. */
#pragma once

#include "broker.h"
#include "pool.h"
#include "wire.h"

struct broker;
struct request;

/* One request that is being carried out. Outlives the request when that is cancelled. */
struct request_plan {
        struct broker *broker;
        struct request *request; /* NULL: cancelled */
        struct service *service; /* owned */
        uid_t uid;
        struct request_needs charged;
        size_t n_items;
        unsigned n_drops_pending, n_works_pending;
        bool is_cutting; /* the first of two rounds of work */
        int result;
        struct item_plan items[WIRE_MAX_ITEMS];
};

/*
 * request_plan_make - claims what the request is to be served with
 * Returns PLAN_YES: *ret_plan is set, and request_plan_free() what becomes of it in the end; PLAN_NO, PLAN_AUDITED or PLAN_QUIESCE;
 * -EMFILE: it would take of the last extents, which are kept for users with little; -ENOMEM.
 */
int request_plan_make(struct broker *broker, struct request *request, struct request_plan **ret_plan);
struct request_plan *request_plan_free(struct request_plan *plan); /* what it has claimed is not its business any more */
uint32_t request_plan_n_pieces(const struct request_plan *plan);
