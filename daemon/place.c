/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where memory of a predecessor belongs. Pools may have been renamed, removed or made anew with other extents since it was
 * written down: what clients hold is theirs all the same, and what is ready is worth keeping where a pool can use it.
 */

#include <errno.h>
#include <string.h>

#include "broker-internal.h"
#include "config.h"
#include "ledger.h"
#include "place.h"
#include "topology.h"

static bool fits(const struct node_pool *np, const struct ledger_record *record) {
        return np->pool->extent_bytes == 0 || np->pool->extent_bytes == record->bytes;
}

static bool is_of_pool(const struct pool *pool, const struct ledger_record *record) {
        return strcmp(pool->name, record->pool) == 0 && pool->page_size_bytes == record->page_size_bytes;
}

struct node_pool *place_find(const struct broker *broker, const struct ledger_record *record) {
        bool is_held = record->state == LEDGER_GRANTED || record->state == LEDGER_PINNED;

        BROKER_FOREACH_NODE_POOL(broker, np)
                if (is_of_pool(np->pool, record) && np->node == record->node && (is_held || fits(np, record)))
                        return np;
        return NULL;
}

struct node_pool *place_find_other(const struct broker *broker, const struct ledger_record *record) {
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (!np->pool->removed && np->node == record->node && np->pool->page_size_bytes == record->page_size_bytes &&
                    fits(np, record) && pool_deficit_bytes(np) >= record->bytes)
                        return np;
        return NULL;
}

/* The better the longer it may stay there when it comes back. */
static int rate(const struct node_pool *np, const struct ledger_record *record) {
        return 2 * fits(np, record) + (pool_deficit_bytes(np) >= record->bytes);
}

static struct node_pool *find_any(const struct broker *broker, const struct ledger_record *record) {
        struct node_pool *best = NULL;

        BROKER_FOREACH_NODE_POOL(broker, np)
                if (np->node == record->node && np->pool->page_size_bytes == record->page_size_bytes && !np->pool->removed &&
                    (!best || rate(np, record) > rate(best, record)))
                        best = np;
        return best;
}

/* One that serves nobody, like a pool that is removed by a reload: it is there as long as something is in it. */
static int make_removed(struct broker *broker, const struct ledger_record *record, struct pool **ret_pool) {
        struct config_pool config = {.page_size_bytes = record->page_size_bytes};
        struct pool *pool;
        int r;

        if (broker->n_pools == CONFIG_MAX_POOLS)
                return -ENOSPC;
        memcpy(config.name, record->pool, sizeof(config.name));
        r = pool_new(&config, &pool);
        if (r < 0)
                return r;
        pool->broker = broker;
        pool->removed = true;
        broker->pools[broker->n_pools++] = pool;
        *ret_pool = pool;
        return 0;
}

static bool has_workers(const struct broker *broker, int node) {
        for (size_t i = 0; i < topology_n_nodes(broker->topology); i++)
                if (topology_node_at(broker->topology, i) == node)
                        return true;
        return false;
}

/* A pool may be there without this node: it gets it, as by a reload. */
static int get_pool(struct broker *broker, const struct ledger_record *record, struct pool **ret_pool) {
        for (size_t i = 0; i < broker->n_pools; i++)
                if (is_of_pool(broker->pools[i], record) && broker->pools[i]->extent_bytes == 0) {
                        *ret_pool = broker->pools[i];
                        return 0;
                }
        return make_removed(broker, record, ret_pool);
}

int place_make(struct broker *broker, const struct ledger_record *record, struct node_pool **ret_np) {
        struct node_pool *np = find_any(broker, record);
        struct pool *pool;
        int r = 0;

        if (np) {
                *ret_np = np;
                return 0;
        }
        if (!has_workers(broker, record->node))
                return -ENODEV; /* nobody could let go of it when it comes back */
        r = get_pool(broker, record, &pool);
        if (r >= 0 && !pool_find_node(pool, record->node))
                r = pool_add_node(pool, record->node);
        if (r >= 0)
                *ret_np = pool_find_node(pool, record->node);
        return r;
}
