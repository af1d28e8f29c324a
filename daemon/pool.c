/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The books of a pool: states, shelves, byte counts, and what to fill next. plan.c finds what serves a request. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "identity.h"
#include "pool.h"

#define FIRST_PAGES_SHARE 32 /* chosen: of the target is in single pages before anything was asked for, POOL_HISTORY at most */

static int shelf_get(struct node_pool *np, struct service *service, struct shelf **ret_shelf) {
        struct shelf *shelf;

        TAILQ_FOREACH(shelf, &np->shelves, link) {
                if (shelf->service == service) {
                        *ret_shelf = shelf;
                        return 0;
                }
        }
        shelf = calloc(1, sizeof(*shelf));
        if (!shelf)
                return -ENOMEM;
        shelf->service = service ? service_ref(service) : NULL;
        TAILQ_INIT(&shelf->extents);
        TAILQ_INSERT_TAIL(&np->shelves, shelf, link);
        *ret_shelf = shelf;
        return 0;
}

static void shelf_free(struct node_pool *np, struct shelf *shelf) {
        TAILQ_REMOVE(&np->shelves, shelf, link);
        service_unref(shelf->service);
        free(shelf);
}

static struct shelf *shelf_of(const struct extent *extent) {
        struct shelf *shelf;

        TAILQ_FOREACH(shelf, &extent->node_pool->shelves, link)
                if (shelf->service == extent->service)
                        return shelf;
        assert(!"a ready extent is on a shelf");
        return NULL;
}

static uint64_t low_bytes_of(const struct node_pool *np, uint64_t target_bytes) {
        if (np->low_millipercent == UINT32_MAX)
                return np->configured_low_bytes < target_bytes ? np->configured_low_bytes : target_bytes; /* of Target=auto it may be more */
        return target_bytes / 100000 * np->low_millipercent;
}

int pool_add_node(struct pool *pool, int node) {
        struct node_pool *np = &pool->nodes[pool->n_nodes];
        struct shelf *shelf;

        if (pool->n_nodes == CONFIG_MAX_NODES)
                return -ENOSPC;
        *np = (struct node_pool) {.pool = pool, .node = node};
        for (int state = 0; state < _EXTENT_STATE_MAX; state++)
                TAILQ_INIT(&np->extents[state]);
        TAILQ_INIT(&np->shelves);
        pool->n_nodes++;
        return shelf_get(np, /* service= */ NULL, &shelf);
}

void pool_set_target(struct node_pool *np, uint64_t target_bytes, const struct config_pool *config) {
        if (config) {
                np->low_millipercent = config->low_millipercent;
                np->configured_low_bytes = config->low_bytes;
        }
        np->low_bytes = low_bytes_of(np, target_bytes);
        np->target_bytes = target_bytes;
        np->shortfall_bytes = 0;
}

uint64_t pool_excess_bytes(const struct node_pool *np) {
        uint64_t kept_bytes = pool_used_bytes(np) - np->bytes[EXTENT_RENEWING] - np->bytes[EXTENT_DROPPING];

        return kept_bytes > np->target_bytes ? kept_bytes - np->target_bytes : 0;
}

struct extent *pool_find_expendable(const struct node_pool *np) {
        struct extent *extent, *smallest = NULL;
        struct shelf *shelf;

        TAILQ_FOREACH(shelf, &np->shelves, link)
                TAILQ_FOREACH(extent, &shelf->extents, link) {
                        if (!smallest || extent->bytes < smallest->bytes)
                                smallest = extent;
                        if (np->pool->extent_bytes != 0)
                                break; /* all are equal */
                }
        return smallest;
}

int pool_new(const struct config_pool *config, struct pool **ret_pool) {
        struct pool *pool = calloc(1, sizeof(*pool));

        if (!pool)
                return -ENOMEM;
        memcpy(pool->name, config->name, sizeof(pool->name));
        pool->page_size_bytes = config->page_size_bytes;
        pool->extent_bytes = config->extent_bytes;
        for (size_t i = 0; i < config->n_nodes; i++) {
                if (pool_add_node(pool, config->nodes[i].node) < 0) {
                        pool_free(pool);
                        return -ENOMEM;
                }
                pool_set_target(&pool->nodes[i], config->nodes[i].target_bytes, config);
        }
        *ret_pool = pool;
        return 0;
}

struct pool *pool_free(struct pool *pool) {
        if (!pool)
                return NULL;
        for (size_t i = 0; i < pool->n_nodes; i++) {
                struct node_pool *np = &pool->nodes[i];
                struct shelf *shelf;

                assert(pool_used_bytes(np) == 0);
                while ((shelf = TAILQ_FIRST(&np->shelves)))
                        shelf_free(np, shelf);
                free(np->uids_waiting);
        }
        free(pool);
        return NULL;
}

struct node_pool *pool_find_node(struct pool *pool, int node) {
        for (size_t i = 0; i < pool->n_nodes; i++)
                if (pool->nodes[i].node == node)
                        return &pool->nodes[i];
        return NULL;
}

static void list_insert(struct extent *extent) {
        struct node_pool *np = extent->node_pool;

        if (extent->state == EXTENT_READY) {
                struct shelf *shelf = shelf_of(extent);

                /* At the head: the extent that was used last is the one whose page tables and cache lines are warm. */
                TAILQ_INSERT_HEAD(&shelf->extents, extent, link);
                shelf->bytes += extent->bytes;
                extent->audit_stamp = ++np->audit_count;
        } else
                TAILQ_INSERT_TAIL(&np->extents[extent->state], extent, link);
        np->bytes[extent->state] += extent->bytes;
        np->n_extents[extent->state]++;
}

static void list_remove(struct extent *extent) {
        struct node_pool *np = extent->node_pool;

        if (extent->state == EXTENT_READY) {
                struct shelf *shelf = shelf_of(extent);

                TAILQ_REMOVE(&shelf->extents, extent, link);
                shelf->bytes -= extent->bytes;
        } else
                TAILQ_REMOVE(&np->extents[extent->state], extent, link);
        np->bytes[extent->state] -= extent->bytes;
        np->n_extents[extent->state]--;
}

int pool_add(struct node_pool *np, enum extent_state state, uint64_t bytes, struct extent **ret_extent) {
        struct extent *extent;

        assert(state != EXTENT_READY);
        extent = calloc(1, sizeof(*extent));
        if (!extent)
                return -ENOMEM;
        extent->file = EXTENT_FILE_NULL;
        extent->grant_fd = -EBADF;
        extent->slot = -1;
        extent->node_pool = np;
        extent->state = state;
        extent->bytes = bytes;
        list_insert(extent);
        *ret_extent = extent;
        return 0;
}

void pool_remove(struct extent *extent) {
        assert(extent->file.fd < 0 && extent->grant_fd < 0 && !extent->timer && !extent->work);
        list_remove(extent);
        service_unref(extent->service);
        free(extent);
}

void pool_move(struct extent *extent, enum extent_state state) {
        assert(state != EXTENT_READY);
        list_remove(extent);
        extent->state = state;
        list_insert(extent);
}

int pool_make_ready(struct extent *extent) {
        struct node_pool *np = extent->node_pool;
        struct shelf *shelf;
        int r;

        r = shelf_get(np, extent->service, &shelf);
        if (r < 0)
                return r;
        list_remove(extent);
        extent->state = EXTENT_READY;
        list_insert(extent);
        /* What is dropped has a replacement to come, at full speed. A fixed class may hold one of another size, of before
         * a restart. */
        if (pool_used_bytes(np) - np->bytes[EXTENT_DROPPING] + (np->pool->extent_bytes ? np->pool->extent_bytes - 1 : 0) >=
                    np->target_bytes &&
            np->n_extents[EXTENT_FILLING] == 0)
                np->full_once = true;
        return 0;
}

/* The last of a shelf is the one that has been there longest. */
struct extent *pool_next_to_audit(const struct node_pool *np) {
        struct extent *oldest = NULL;
        struct shelf *shelf;

        TAILQ_FOREACH(shelf, &np->shelves, link) {
                struct extent *last = TAILQ_LAST(&shelf->extents, extent_list);

                if (last && (!oldest || last->audit_stamp < oldest->audit_stamp))
                        oldest = last;
        }
        return oldest;
}

int pool_end_audit(struct extent *extent) {
        uint64_t stamp = extent->audit_stamp;
        struct shelf *shelf;
        int r = pool_make_ready(extent);

        if (r < 0)
                return r;
        if (extent->audit_bytes >= extent->bytes)
                extent->audit_bytes = 0;
        else { /* the rest of it comes next */
                shelf = shelf_of(extent);
                TAILQ_REMOVE(&shelf->extents, extent, link);
                TAILQ_INSERT_TAIL(&shelf->extents, extent, link);
                extent->audit_stamp = stamp;
        }
        return 0;
}

void pool_resize(struct extent *extent, uint64_t bytes) {
        assert(extent->state != EXTENT_READY);
        extent->node_pool->bytes[extent->state] += bytes - extent->bytes;
        extent->bytes = bytes;
}

void pool_drop_empty_shelves(struct node_pool *np) {
        for (struct shelf *shelf = TAILQ_FIRST(&np->shelves), *next; shelf; shelf = next) {
                next = TAILQ_NEXT(shelf, link);
                if (shelf->service && TAILQ_EMPTY(&shelf->extents))
                        shelf_free(np, shelf);
        }
}

uint64_t pool_ready_bytes(const struct node_pool *np) {
        return np->bytes[EXTENT_READY] + np->bytes[EXTENT_AUDITING];
}

uint64_t pool_used_bytes(const struct node_pool *np) {
        uint64_t used_bytes = 0;

        for (int state = 0; state < _EXTENT_STATE_MAX; state++)
                used_bytes += np->bytes[state];
        return used_bytes;
}

uint64_t pool_deficit_bytes(const struct node_pool *np) {
        uint64_t kept_bytes = pool_used_bytes(np) - np->bytes[EXTENT_RENEWING];

        return kept_bytes < np->target_bytes ? np->target_bytes - kept_bytes : 0;
}

uint64_t pool_largest_ready_bytes(const struct node_pool *np) {
        uint64_t largest_bytes = 0;
        struct shelf *shelf;
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                if (extent->bytes > largest_bytes)
                        largest_bytes = extent->bytes;
        TAILQ_FOREACH(shelf, &np->shelves, link) {
                if (np->pool->extent_bytes != 0 && !TAILQ_EMPTY(&shelf->extents))
                        return np->pool->extent_bytes; /* all are equal, and there may be very many */
                TAILQ_FOREACH(extent, &shelf->extents, link)
                        if (extent->bytes > largest_bytes)
                                largest_bytes = extent->bytes;
        }
        return largest_bytes;
}

static uint64_t largest_recent_bytes(const struct node_pool *np) {
        uint64_t largest_bytes = 0;

        for (unsigned i = 0; i < np->n_history; i++)
                if (np->history[i] > largest_bytes)
                        largest_bytes = np->history[i];
        return largest_bytes < np->target_bytes ? largest_bytes : np->target_bytes;
}

uint64_t pool_below_low_bytes(const struct node_pool *np) {
        uint64_t recent_bytes = largest_recent_bytes(np), ready_bytes = pool_ready_bytes(np);
        uint64_t mark_bytes = np->low_bytes > recent_bytes ? np->low_bytes : recent_bytes;

        if (!np->full_once)
                return UINT64_MAX;
        return ready_bytes < mark_bytes ? mark_bytes - ready_bytes : 0;
}

void pool_note_paced_wait(struct node_pool *np, uint64_t refused_bytes, uint64_t now_ms) {
        if (np->paced_wait_since_ms == 0)
                np->paced_wait_since_ms = now_ms;
        if (refused_bytes > np->lacked_bytes)
                np->lacked_bytes = refused_bytes;
}

uint64_t pool_paced_wait_ms(const struct node_pool *np, uint64_t now_ms) {
        return np->paced_wait_ms + (np->paced_wait_since_ms > 0 ? now_ms - np->paced_wait_since_ms : 0);
}

void pool_end_paced_wait(struct node_pool *np, uint64_t now_ms) {
        np->paced_wait_ms = pool_paced_wait_ms(np, now_ms);
        np->paced_wait_since_ms = np->lacked_bytes = 0;
}

void pool_note_request(struct node_pool *np, uint64_t bytes) {
        np->history[np->next_history] = bytes;
        np->next_history = (np->next_history + 1) % POOL_HISTORY;
        if (np->n_history < POOL_HISTORY)
                np->n_history++;
}

/* Extents of that size that could serve anybody at once. */
static unsigned count_stock(const struct node_pool *np, uint64_t min_bytes, uint64_t max_bytes) {
        const struct shelf *clean = TAILQ_FIRST(&np->shelves);
        const struct extent *extent;
        unsigned n_stock = 0;

        TAILQ_FOREACH(extent, &clean->extents, link)
                if (extent->bytes >= min_bytes && extent->bytes <= max_bytes)
                        n_stock++;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                if (!extent->service && extent->bytes >= min_bytes && extent->bytes <= max_bytes)
                        n_stock++;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_FILLING], link)
                if (extent->bytes >= min_bytes && extent->bytes <= max_bytes)
                        n_stock++;
        return n_stock;
}

static unsigned count_asked(const struct node_pool *np, uint64_t bytes) {
        unsigned n_asked = 0;

        for (unsigned i = 0; i < np->n_history; i++)
                if (np->history[i] == bytes)
                        n_asked++;
        return n_asked;
}

/* The size that was asked most often beyond what is in stock, of those that fit; 0: the stock covers the history. */
static uint64_t most_wanted_bytes(const struct node_pool *np, uint64_t available_bytes) {
        uint64_t wanted_bytes = 0;
        unsigned n_wanted = 0;

        for (unsigned i = 0; i < np->n_history; i++) {
                uint64_t bytes = np->history[i];
                unsigned n_asked = count_asked(np, bytes), n_stock = count_stock(np, bytes, bytes);

                if (bytes <= available_bytes && n_asked > n_stock && n_asked - n_stock > n_wanted) {
                        n_wanted = n_asked - n_stock;
                        wanted_bytes = bytes;
                }
        }
        return wanted_bytes;
}

/*
 * Nothing was asked for yet: three quarters of the target as three extents, then ever smaller ones, at last single pages. What is
 * cut off an extent has to be zeroed again: the first small requests shall not cost the pool its large extents.
 */
static uint64_t first_fill_bytes(const struct node_pool *np, uint64_t available_bytes) {
        uint64_t page_bytes = np->pool->page_size_bytes, pages_bytes = np->target_bytes / FIRST_PAGES_SHARE, bytes;

        if (pages_bytes > POOL_HISTORY * page_bytes)
                pages_bytes = POOL_HISTORY * page_bytes;
        if (available_bytes > np->target_bytes / 4)
                bytes = np->target_bytes / 4;
        else
                bytes = available_bytes > pages_bytes ? available_bytes / 2 : page_bytes;
        bytes -= bytes % page_bytes;
        return bytes < page_bytes ? page_bytes : bytes;
}

uint64_t pool_next_fill_bytes(const struct node_pool *np, uint64_t available_bytes) {
        uint64_t page_bytes = np->pool->page_size_bytes, largest_bytes, wanted_bytes;

        available_bytes -= available_bytes % page_bytes;
        if (np->pool->extent_bytes != 0)
                return available_bytes >= np->pool->extent_bytes ? np->pool->extent_bytes : 0;
        if (available_bytes == 0)
                return 0;
        if (np->n_history == 0)
                return first_fill_bytes(np, available_bytes);
        wanted_bytes = most_wanted_bytes(np, available_bytes);
        if (pool_ready_bytes(np) < available_bytes && wanted_bytes != 0)
                return wanted_bytes; /* short of stock: what is asked most comes first */
        largest_bytes = largest_recent_bytes(np);
        if (largest_bytes <= available_bytes && count_stock(np, largest_bytes, UINT64_MAX) == 0)
                return largest_bytes;
        return wanted_bytes != 0 ? wanted_bytes : available_bytes;
}
