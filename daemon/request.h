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
 * Can it ever be served? Sets what it needs at least. 0, or a negative errno and the reason: -EINVAL, -ENOENT (no such pool),
 * -ENODEV (pool has no such node), -ENOSPC (larger than any target, or all together than the targets), -EDQUOT (larger than
 * what is left of the uid's quota, and not to wait for what is on its way back), -EOPNOTSUPP (reopenable without
 * SocketGroup=).
 */
int request_check(const struct broker *broker, struct request *request, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
void request_needs_add(struct request_needs *needs, uint64_t page_size_bytes, uint64_t bytes);
/* The first that is more than its limit leaves the user, now or (@is_back) once all that is on its way back is; NULL: none is. */
const struct request_need *request_find_excess(const struct broker *broker, uid_t uid, const struct request_needs *needs,
                                               bool is_back);
/* Why @needs do not fit its user's quota: which limit, what is asked, what is in use, and what helps. */
void request_explain_quota(const struct broker *broker, const struct request *request, const struct request_needs *needs,
                           char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
/* Whether it does not fit its user's quota, but may wait, and will or may fit when what is on its way back is charged no longer. */
bool request_awaits_quota(const struct broker *broker, const struct request *request);
/* Whether it could be, if all came back that its own user does not hold. */
bool request_could_be_served(const struct broker *broker, const struct request *request);
/*
 * What there is instead of a pool or node that was asked for, in one sentence: the names of the pools, where @pool is none of
 * them, else the nodes that it has (@pool "": any pool has).
 */
#define REQUEST_CHOICE_BYTES 128
const char *request_describe_choice(const struct broker *broker, const char *pool, char ret_text[REQUEST_CHOICE_BYTES]);
/* The node pools that may serve an item, best first. */
void request_find_candidates(const struct broker *broker, const struct wire_item *item, struct request_candidates *ret_candidates);
/* Where those end that are as near as the one at @first. All are where any node will do. */
size_t request_equally_near(const struct broker *broker, const struct wire_item *item, const struct request_candidates *candidates,
                            size_t first);
/* The item's size there: whole pages, whole extents in a fixed class; 0 where it does not fit 64 bits. */
uint64_t request_item_bytes(const struct wire_item *item, const struct pool *pool);
/* Recycle= in one place: the service whose returned memory this client may get, and who may get his. NULL: nobody. Owned by the caller. */
int request_recycle_key(const struct config *config, const struct identity *identity, struct service **ret_service);
