/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reloading and resizing. A pool that is no longer configured gets a target of nothing and serves nobody; what clients hold of
 * it stays theirs, and comes back as always, to go to the kernel then.
 */

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "audit.h"
#include "broker-internal.h"
#include "config.h"
#include "parse.h"
#include "reload.h"
#include "request.h"
#include "stock.h"
#include "topology.h"

#define RESIZE_MAX_BYTES (UINT64_C(1) << 52) /* as Target=: the most that x86 can address physically */

static bool is_same_pool(const struct pool *pool, const struct config_pool *config) {
        return strcmp(pool->name, config->name) == 0 && pool->page_size_bytes == config->page_size_bytes &&
               pool->extent_bytes == config->extent_bytes;
}

static const struct config_pool *find_config(const struct config *config, const struct pool *pool) {
        for (size_t i = 0; i < config->n_pools; i++)
                if (is_same_pool(pool, &config->pools[i]))
                        return &config->pools[i];
        return NULL;
}

static struct pool *find_pool(const struct broker *broker, const struct config_pool *config) {
        for (size_t i = 0; i < broker->n_pools; i++)
                if (is_same_pool(broker->pools[i], config))
                        return broker->pools[i];
        return NULL;
}

static bool is_empty(const struct pool *pool) {
        for (size_t i = 0; i < pool->n_nodes; i++)
                if (pool_used_bytes(&pool->nodes[i]) > 0)
                        return false;
        return true;
}

/* Removed pools whose last extent has gone make room for new ones. */
static void forget_removed(struct broker *broker) {
        size_t n_kept = 0;

        for (size_t i = 0; i < broker->n_pools; i++)
                if (broker->pools[i]->removed && is_empty(broker->pools[i]))
                        pool_free(broker->pools[i]);
                else
                        broker->pools[n_kept++] = broker->pools[i];
        broker->n_pools = n_kept;
}

static int add_pools(struct broker *broker, const struct config *fresh) {
        struct pool *added[CONFIG_MAX_POOLS];
        size_t n_added = 0;
        int r = 0;

        for (size_t i = 0; i < fresh->n_pools && r >= 0; i++) {
                if (find_pool(broker, &fresh->pools[i]))
                        continue;
                if (broker->n_pools + n_added == CONFIG_MAX_POOLS)
                        r = -ENOSPC;
                else
                        r = pool_new(&fresh->pools[i], &added[n_added]);
                if (r >= 0)
                        added[n_added++]->broker = broker;
        }
        while (n_added > 0)
                if (r >= 0)
                        broker->pools[broker->n_pools++] = added[--n_added];
                else
                        pool_free(added[--n_added]);
        return r;
}

static int add_nodes(struct broker *broker, const struct config *fresh) {
        for (size_t i = 0; i < fresh->n_pools; i++) {
                struct pool *pool = find_pool(broker, &fresh->pools[i]);

                for (size_t k = 0; pool && k < fresh->pools[i].n_nodes; k++)
                        if (!pool_find_node(pool, fresh->pools[i].nodes[k].node)) {
                                int r = pool_add_node(pool, fresh->pools[i].nodes[k].node);

                                if (r < 0)
                                        return r;
                        }
        }
        return 0;
}

static void set_targets(struct broker *broker, const struct config *fresh) {
        for (size_t i = 0; i < broker->n_pools; i++) {
                struct pool *pool = broker->pools[i];
                const struct config_pool *config = find_config(fresh, pool);

                pool->removed = !config;
                for (size_t k = 0; k < pool->n_nodes; k++) {
                        struct node_pool *np = &pool->nodes[k];
                        uint64_t target_bytes = 0;

                        for (size_t n = 0; config && n < config->n_nodes; n++)
                                if (config->nodes[n].node == np->node)
                                        target_bytes = config->nodes[n].target_bytes;
                        pool_set_target(np, target_bytes, config);
                }
        }
}

#define START_KEY(key, field)                                                                                                  \
        {                                                                                                                      \
                key, offsetof(struct config, field), sizeof(((struct config *) NULL)->field)                                  \
        }
static const struct config_pool_node *find_auto(const struct config *config, const struct config_pool *pool, int node) {
        for (size_t i = 0; i < config->n_pools; i++)
                if (strcmp(config->pools[i].name, pool->name) == 0 && config->pools[i].page_size_bytes == pool->page_size_bytes)
                        for (size_t k = 0; k < config->pools[i].n_nodes; k++)
                                if (config->pools[i].nodes[k].node == node && config->pools[i].nodes[k].is_auto)
                                        return &config->pools[i].nodes[k];
        return NULL;
}

/* Half of what would be free if the daemon were not there; @floor_bytes at least. */
static uint64_t half_of_free(const struct broker *broker, uint64_t page_size_bytes, int node, uint64_t floor_bytes) {
        uint64_t bytes = topology_available_bytes(broker->topology, node, page_size_bytes);

        BROKER_FOREACH_NODE_POOL(broker, np)
                if (np->node == node && np->pool->page_size_bytes == page_size_bytes)
                        bytes += pool_used_bytes(np);
        return bytes / 2 > floor_bytes ? bytes / 2 : floor_bytes;
}

void reload_settle_auto(const struct broker *broker, const struct config *before, struct config *config) {
        for (size_t i = 0; i < config->n_pools; i++) {
                struct config_pool *pool = &config->pools[i];
                struct pool *present = find_pool(broker, pool);

                for (size_t k = 0; k < pool->n_nodes; k++) {
                        struct config_pool_node *node = &pool->nodes[k];
                        const struct config_pool_node *same = before ? find_auto(before, pool, node->node) : NULL;
                        struct node_pool *np = present ? pool_find_node(present, node->node) : NULL;
                        uint64_t unit_bytes = pool->extent_bytes != 0 ? pool->extent_bytes : pool->page_size_bytes;

                        if (!node->is_auto)
                                continue;
                        node->target_bytes = same ? same->target_bytes :
                                                    half_of_free(broker, pool->page_size_bytes, node->node,
                                                                 np && !before ? pool_used_bytes(np) : 0);
                        node->target_bytes -= node->target_bytes % unit_bytes;
                        if (np && !before)
                                pool_set_target(np, node->target_bytes, pool);
                }
        }
}

/* Sockets exist already, and worker threads read these fields: they stay as they are until the next start. */
static const struct start_key {
        const char *name;
        size_t offset, n_bytes;
} start_keys[] = {
        START_KEY("Socket=", socket_path),          START_KEY("SocketMode=", socket_mode), /* these two first */
        START_KEY("SocketGroup=", socket_group),    START_KEY("WorkersPerNode=", workers_per_node),
        START_KEY("ClearMethod=", clear_method),    START_KEY("Batch=", batch_bytes),
        START_KEY("WarmExtents=", warm_extents),    START_KEY("SharePageTables=", share_page_tables),
};
#define N_START_KEYS (sizeof(start_keys) / sizeof(start_keys[0]))

/* The keys that have changed and take effect later; "" when there are none. */
static void list_start_keys(const struct config *config, const struct config *fresh, char ret_list[WIRE_MAX_TEXT_BYTES + 1]) {
        /* Of a passed socket path and mode are what its unit says. */
        const struct start_key *key = start_keys + (config->socket_is_passed ? 2 : 0);
        size_t n = 0;

        ret_list[0] = 0;
        for (; key < start_keys + N_START_KEYS; key++)
                if (memcmp((const char *) config + key->offset, (const char *) fresh + key->offset, key->n_bytes) != 0)
                        n += (size_t) snprintf(ret_list + n, WIRE_MAX_TEXT_BYTES + 1 - n, "%s%s", n > 0 ? ", " : "", key->name);
}

static void take_over_settings(struct config *config, const struct config *fresh) {
        config->allow_users = fresh->allow_users;
        config->allow_groups = fresh->allow_groups;
        config->admin_users = fresh->admin_users;
        config->trusted_users = fresh->trusted_users;
        config->max_connections = fresh->max_connections;
        config->max_waiting = fresh->max_waiting;
        config->max_fds_in_flight = fresh->max_fds_in_flight;
        config->background_bytes_per_s = fresh->background_bytes_per_s;
        config->audit_bytes_per_s = fresh->audit_bytes_per_s;
        config->release_grace_ms = fresh->release_grace_ms;
        config->affinity_timeout_ms = fresh->affinity_timeout_ms;
        config->unmap_after_ms = fresh->unmap_after_ms;
        config->sweep_interval_ms = fresh->sweep_interval_ms;
        config->hold_back_ms = fresh->hold_back_ms;
        config->recycle = fresh->recycle;
        config->log_level = fresh->log_level;
        config->quota = fresh->quota;
        config->n_user_quotas = fresh->n_user_quotas;
        memcpy(config->user_quotas, fresh->user_quotas, sizeof(config->user_quotas));
        config->n_group_quotas = fresh->n_group_quotas;
        memcpy(config->group_quotas, fresh->group_quotas, sizeof(config->group_quotas));
        config->n_pools = fresh->n_pools;
        memcpy(config->pools, fresh->pools, sizeof(config->pools));
        log_open(config->log_level);
}

int reload_apply(struct broker *broker, struct config *config, const struct config *fresh,
                 char ret_start_keys[WIRE_MAX_TEXT_BYTES + 1]) {
        int r;

        forget_removed(broker);
        r = stock_add_nodes(broker->stock); /* without a target a node changes nothing */
        if (r >= 0)
                r = audit_add_nodes(broker->audit);
        if (r >= 0)
                r = add_nodes(broker, fresh);
        if (r >= 0)
                r = add_pools(broker, fresh);
        if (r < 0)
                return r;
        list_start_keys(config, fresh, ret_start_keys);
        set_targets(broker, fresh);
        take_over_settings(config, fresh);
        stock_set_pace(broker->stock, config->background_bytes_per_s);
        audit_set_rate(broker->audit);
        returns_on_sweep(-1, 0, broker); /* shorter times count from now on */
        broker->targets_changed = true;
        broker_kick(broker);
        return 0;
}

__attribute__((format(printf, 3, 4))) static int say(char *ret_text, int error, const char *fmt, ...) {
        va_list args;

        va_start(args, fmt);
        (void) vsnprintf(ret_text, WIRE_MAX_TEXT_BYTES + 1, fmt, args);
        va_end(args);
        return error;
}

static int explain_nothing_found(const struct broker *broker, const char *pool, int node, char *ret_text) {
        char choice[REQUEST_CHOICE_BYTES];

        (void) request_describe_choice(broker, pool, choice);
        for (size_t i = 0; i < broker->n_pools; i++)
                if (node >= 0 && !broker->pools[i]->removed && strcmp(broker->pools[i]->name, pool) == 0)
                        return say(ret_text, -ENOENT, "pool \"%s\" has no memory on node %d; %s", pool, node, choice);
        if (pool[0] != 0)
                return say(ret_text, -ENOENT, "there is no pool \"%s\"; %s", pool, choice);
        return say(ret_text, -ENOENT, "no pool has memory on node %d; %s", node, choice);
}

int reload_resize(struct broker *broker, const char *pool, int node, uint64_t target_bytes, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        unsigned n_found = 0;
        char unit[FORMAT_SIZE_BYTES];

        /* First asked, then changed: all of them or none. */
        for (int change = 0; change <= 1; change++)
                BROKER_FOREACH_NODE_POOL(broker, np) {
                        uint64_t unit_bytes = np->pool->extent_bytes != 0 ? np->pool->extent_bytes : np->pool->page_size_bytes;

                        if (np->pool->removed || (pool[0] != 0 && strcmp(pool, np->pool->name) != 0) ||
                            (node >= 0 && node != np->node))
                                continue;
                        n_found++;
                        if (target_bytes > RESIZE_MAX_BYTES)
                                return say(ret_text, -EINVAL, "a target is at most 4 PiB");
                        if (target_bytes % unit_bytes != 0)
                                return say(ret_text, -EINVAL, "the target of pool \"%s\" must be a multiple of %s", np->pool->name,
                                           format_size(unit_bytes, unit));
                        if (change)
                                pool_set_target(np, target_bytes, /* config= */ NULL);
                }
        if (n_found == 0)
                return explain_nothing_found(broker, pool, node, ret_text);
        broker->targets_changed = true;
        broker_kick(broker);
        return 0;
}
