/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a request means: checked against pools, nodes and limits; its candidates; whose memory it may get. No state. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "config.h"
#include "wire.h"

struct broker;
struct identity;
struct node_pool;
struct pool;
struct request;
struct service;
struct wire_item;

struct request_candidates {
        size_t n;
        struct node_pool *node_pools[CONFIG_MAX_POOLS * CONFIG_MAX_NODES];
};

/*
 * Can it ever be served? 0, or a negative errno and the reason: -EINVAL, -ENOENT (no such pool), -ENODEV (pool has no such node),
 * -ENOSPC (larger than any target, or all together than the targets), -EDQUOT (larger than what is left of the uid's quota), -EOPNOTSUPP (reopenable without SocketGroup=).
 */
int request_check(const struct broker *broker, const struct request *request, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
/*
 * What there is instead of a pool or node that was asked for, in one sentence: the names of the pools, where @pool is none of
 * them, else the nodes that it has (@pool "": any pool has).
 */
#define REQUEST_CHOICE_BYTES 128
const char *request_describe_choice(const struct broker *broker, const char *pool, char ret_text[REQUEST_CHOICE_BYTES]);
/* The node pools that may serve an item, best first. */
void request_find_candidates(const struct broker *broker, const struct wire_item *item, struct request_candidates *ret_candidates);
/* The item's size there: whole pages, whole extents in a fixed class; 0 where it does not fit 64 bits. */
uint64_t request_item_bytes(const struct wire_item *item, const struct pool *pool);
/* Recycle= in one place: the service whose returned memory this client may get, and who may get his. NULL: nobody. Owned by the caller. */
int request_recycle_key(const struct config *config, const struct identity *identity, struct service **ret_service);
