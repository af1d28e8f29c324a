/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a request means: checked against pools, nodes and limits; its candidates; whose memory it may get. */

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "broker-internal.h"
#include "parse.h"
#include "quota.h"
#include "reclaim.h"
#include "request.h"
#include "topology.h"

uint64_t request_item_bytes(const struct wire_item *item, const struct pool *pool) {
        uint64_t unit_bytes = pool->extent_bytes != 0 ? pool->extent_bytes : pool->page_size_bytes;
        uint64_t n_units = item->bytes / unit_bytes + (item->bytes % unit_bytes != 0);
        uint64_t bytes;

        return __builtin_mul_overflow(n_units, unit_bytes, &bytes) ? 0 : bytes;
}

static uint64_t wanted_page_size(const struct broker *broker, const struct wire_item *item) {
        uint64_t default_bytes = topology_default_page_size(broker->topology);

        if (item->page_size_bytes != 0)
                return item->page_size_bytes;
        for (size_t i = 0; i < broker->n_pools; i++)
                if (broker->pools[i]->page_size_bytes == default_bytes)
                        return default_bytes;
        return broker->pools[0]->page_size_bytes;
}

/* How well a pool's extents suit an item, 0 best, negative: not at all. */
static int pool_fit(const struct broker *broker, const struct wire_item *item, const struct pool *pool) {
        if (item->pool[0] != 0)
                return strcmp(item->pool, pool->name) == 0 &&
                                       (item->page_size_bytes == 0 || item->page_size_bytes == pool->page_size_bytes) ? 0 : -1;
        if (pool->page_size_bytes != wanted_page_size(broker, item))
                return -1;
        if (pool->extent_bytes == item->bytes)
                return 0;
        if (pool->extent_bytes == 0)
                return 1;
        if (pool->extent_bytes > item->bytes)
                return 3; /* would waste the rest of an extent */
        return item->flags & WIRE_ITEM_SEVERAL ? 2 : -1;
}

struct ranked {
        struct node_pool *np;
        int fit, distance;
};

static int compare_ranked(const void *a, const void *b) {
        const struct ranked *left = a, *right = b;

        if (left->distance != right->distance)
                return left->distance < right->distance ? -1 : 1;
        if (left->fit != right->fit)
                return left->fit < right->fit ? -1 : 1;
        /* Any node will do: the one with most in stock. */
        if (pool_ready_bytes(left->np) != pool_ready_bytes(right->np))
                return pool_ready_bytes(left->np) > pool_ready_bytes(right->np) ? -1 : 1;
        return left->np < right->np ? -1 : left->np > right->np;
}

/* 0 where it does not matter. */
static int distance_to(const struct broker *broker, const struct wire_item *item, int node) {
        return item->node_mode == WIRE_NODE_PREFER && node != item->node ? topology_distance(broker->topology, item->node, node) : 0;
}

void request_find_candidates(const struct broker *broker, const struct wire_item *item, struct request_candidates *ret_candidates) {
        struct ranked ranked[CONFIG_MAX_POOLS * CONFIG_MAX_NODES];
        size_t n = 0;

        for (size_t p = 0; p < broker->n_pools; p++) {
                struct pool *pool = broker->pools[p];
                int fit = pool->removed ? -1 : pool_fit(broker, item, pool);

                for (size_t i = 0; fit >= 0 && i < pool->n_nodes; i++) {
                        int node = pool->nodes[i].node;

                        if (item->node_mode == WIRE_NODE_STRICT && node != item->node)
                                continue;
                        ranked[n++] = (struct ranked) {
                                .np = &pool->nodes[i], .fit = fit, .distance = distance_to(broker, item, node)};
                }
        }
        if (n > 1)
                qsort(ranked, n, sizeof(ranked[0]), compare_ranked);
        for (size_t i = 0; i < n; i++)
                ret_candidates->node_pools[i] = ranked[i].np;
        ret_candidates->n = n;
}

size_t request_equally_near(const struct broker *broker, const struct wire_item *item, const struct request_candidates *candidates,
                            size_t first) {
        int distance = distance_to(broker, item, candidates->node_pools[first]->node);
        size_t end = first + 1;

        while (end < candidates->n && distance_to(broker, item, candidates->node_pools[end]->node) == distance)
                end++;
        return end;
}

__attribute__((format(printf, 3, 4))) static int say(char ret_text[WIRE_MAX_TEXT_BYTES + 1], int error, const char *fmt, ...) {
        va_list args;

        va_start(args, fmt);
        (void) vsnprintf(ret_text, WIRE_MAX_TEXT_BYTES + 1, fmt, args);
        va_end(args);
        return error;
}

/* ", TEXT" behind what is there; "..." when that does not fit, and nothing after it. */
static void add_to_list(char list[REQUEST_CHOICE_BYTES], size_t start, const char *text) {
        size_t n = strlen(list);
        bool is_first = n == start;

        if (n >= 3 && strcmp(list + n - 3, "...") == 0)
                return;
        if (n + strlen(text) + sizeof(", , ...") > REQUEST_CHOICE_BYTES)
                text = "...";
        (void) snprintf(list + n, REQUEST_CHOICE_BYTES - n, "%s%s", is_first ? "" : ", ", text);
}

static bool has_pool(const struct broker *broker, const char *name) {
        for (size_t i = 0; i < broker->n_pools; i++)
                if (!broker->pools[i]->removed && strcmp(broker->pools[i]->name, name) == 0)
                        return true;
        return false;
}

const char *request_describe_choice(const struct broker *broker, const char *pool, char ret_text[REQUEST_CHOICE_BYTES]) {
        bool is_about_nodes = pool[0] == 0 || has_pool(broker, pool);
        char seen[PARSE_MAX_NODES] = {}, number[16];

        (void) strcpy(ret_text, is_about_nodes ? "there is memory on node " : "the pools are: ");
        size_t start = strlen(ret_text);
        for (size_t i = 0; i < broker->n_pools; i++) {
                const struct pool *other = broker->pools[i];

                if (other->removed || (is_about_nodes && pool[0] && strcmp(pool, other->name) != 0))
                        continue;
                if (!is_about_nodes)
                        add_to_list(ret_text, start, other->name);
                for (size_t k = 0; is_about_nodes && k < other->n_nodes; k++) {
                        int node = other->nodes[k].node;

                        if (node < 0 || node >= PARSE_MAX_NODES || seen[node]++)
                                continue;
                        (void) snprintf(number, sizeof(number), "%d", node);
                        add_to_list(ret_text, start, number);
                }
        }
        return ret_text;
}

/* Why has this item no candidate at all? The first question that says no is the reason. */
static int explain_no_candidate(const struct broker *broker, const struct wire_item *item, size_t idx, char *ret_text) {
        struct wire_item wish = *item;
        struct request_candidates candidates;
        char page[FORMAT_SIZE_BYTES], choice[REQUEST_CHOICE_BYTES];

        for (size_t i = 0; item->pool[0] != 0 && i < broker->n_pools; i++)
                if (strcmp(broker->pools[i]->name, item->pool) == 0 && item->page_size_bytes != 0 &&
                    item->page_size_bytes != broker->pools[i]->page_size_bytes)
                        return say(ret_text, -ENOENT, "item %zu: pool \"%s\" has pages of %s, another size was asked for", idx,
                                   item->pool, format_size(broker->pools[i]->page_size_bytes, page));
        wish.node_mode = WIRE_NODE_ANY;
        request_find_candidates(broker, &wish, &candidates);
        if (candidates.n > 0)
                return say(ret_text, -ENODEV, "item %zu: no pool that suits has memory on node %d; %s", idx, item->node,
                           request_describe_choice(broker, item->pool, choice));
        if (item->pool[0] != 0)
                return say(ret_text, -ENOENT, "item %zu: there is no pool \"%s\"; %s", idx, item->pool,
                           request_describe_choice(broker, item->pool, choice));
        wish.flags |= WIRE_ITEM_SEVERAL;
        request_find_candidates(broker, &wish, &candidates);
        if (candidates.n > 0)
                return say(ret_text, -EINVAL,
                           "item %zu: the pools of that page size hand out smaller extents only; ask for several", idx);
        return say(ret_text, -ENOENT, "item %zu: there is no pool with pages of %s; \"hugezeroctl status\" lists the pools", idx,
                   format_size(wanted_page_size(broker, item), page));
}

static int check_item(const struct broker *broker, const struct wire_item *item, size_t idx, struct request_needs *needs,
                      char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        struct request_candidates candidates;
        uint64_t largest_bytes = 0, least_bytes = UINT64_MAX;
        bool needs_several = false;
        char asked[FORMAT_SIZE_BYTES], target[FORMAT_SIZE_BYTES];

        if (item->node_mode == WIRE_NODE_PREFER && !topology_node_exists(broker->topology, item->node))
                return say(ret_text, -ENODEV, "item %zu: this machine has no node %d", idx, item->node);
        if ((item->flags & WIRE_ITEM_REOPENABLE) && broker->config->socket_gid == (gid_t) -1)
                return say(ret_text, -EOPNOTSUPP, "item %zu: reopenable memory needs SocketGroup= in the daemon's configuration", idx);
        request_find_candidates(broker, item, &candidates);
        if (candidates.n == 0)
                return explain_no_candidate(broker, item, idx, ret_text);
        for (size_t i = 0; i < candidates.n; i++) {
                const struct node_pool *np = candidates.node_pools[i];
                uint64_t bytes = request_item_bytes(item, np->pool);

                if (np->target_bytes > largest_bytes)
                        largest_bytes = np->target_bytes;
                if (bytes == 0 || bytes > np->target_bytes)
                        continue;
                if (np->pool->extent_bytes != 0 && bytes > np->pool->extent_bytes && !(item->flags & WIRE_ITEM_SEVERAL))
                        needs_several = true;
                else if (bytes < least_bytes)
                        least_bytes = bytes;
        }
        if (least_bytes == UINT64_MAX && needs_several)
                return say(ret_text, -EINVAL, "item %zu: the pool hands out smaller extents only; ask for several", idx);
        if (largest_bytes == 0)
                return say(ret_text, -ENOSPC, "item %zu: all pools that suit have a target of 0: drained, or set so, or no page was free when the "
                           "daemon was started. Ask its administrator for a reload, or a restart", idx);
        if (least_bytes == UINT64_MAX)
                return say(ret_text, -ENOSPC, "item %zu: %s asked, but no pool that suits has a target of more than %s on one node",
                           idx, format_size(item->bytes, asked), format_size(largest_bytes, target));
        request_needs_add(needs, candidates.node_pools[0]->pool->page_size_bytes, least_bytes); /* all have the same */
        return 0;
}

#define MAX_PLACEMENTS 2000 /* chosen: far more than sane requests need, and over in a fraction of a millisecond */

struct room {
        const struct node_pool *np;
        uint64_t taken_bytes;
};

/* Items that are tried against what the node pools could ever have. */
struct placement {
        const struct request *request;
        bool count_held; /* what its user holds stays taken */
        struct request_candidates *candidates; /* of each item */
        struct room rooms[CONFIG_MAX_POOLS * CONFIG_MAX_NODES];
        size_t n_rooms;
        size_t chosen[WIRE_MAX_ITEMS]; /* candidates */
        unsigned n_tried;
};

static uint64_t held_bytes(const struct node_pool *np, uid_t uid) {
        const struct extent *extent;
        uint64_t bytes = 0;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_GRANTED], link)
                if (extent->grant->uid == uid && !extent->close_event)
                        bytes += extent->bytes;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_PINNED], link)
                if (extent->grant ? extent->grant->uid == uid : extent->extra_uid == uid && extent->extra_bytes > 0)
                        bytes += extent->bytes;
        return bytes;
}

static struct room *room_of(struct placement *placement, const struct node_pool *np) {
        for (size_t i = 0; i < placement->n_rooms; i++)
                if (placement->rooms[i].np == np)
                        return &placement->rooms[i];
        placement->rooms[placement->n_rooms] = (struct room) {
                .np = np, .taken_bytes = placement->count_held ? held_bytes(np, placement->request->identity->uid) : 0};
        return &placement->rooms[placement->n_rooms++];
}

/* Of items that are alike it does not matter which is where: the later one goes no further to the front than the earlier one. */
static size_t first_place(const struct placement *placement, size_t idx) {
        const struct wire_item *items = placement->request->acquire->items;

        return idx > 0 && memcmp(&items[idx - 1], &items[idx], sizeof(items[idx])) == 0 ? placement->chosen[idx - 1] : 0;
}

/*
 * Whether the items from @idx on fit beside those before. In doubt, after many attempts, they do not: a request that can never be
 * granted would keep all others waiting.
 */
static bool place_items(struct placement *placement, size_t idx) {
        const struct wire_c_acquire *acquire = placement->request->acquire;

        if (idx == acquire->n_items)
                return true;
        if (placement->n_tried++ >= MAX_PLACEMENTS)
                return false;
        for (size_t i = first_place(placement, idx); i < placement->candidates[idx].n; i++) {
                const struct node_pool *np = placement->candidates[idx].node_pools[i];
                struct room *room = room_of(placement, np);
                uint64_t bytes = request_item_bytes(&acquire->items[idx], np->pool);

                if (bytes == 0 || room->taken_bytes > np->target_bytes || bytes > np->target_bytes - room->taken_bytes)
                        continue;
                room->taken_bytes += bytes;
                placement->chosen[idx] = i;
                if (place_items(placement, idx + 1))
                        return true;
                room->taken_bytes -= bytes;
        }
        return false;
}

/* 1 or 0: whether all items could be served at once; -ENOMEM. */
static int fit_together(const struct broker *broker, const struct request *request, bool count_held) {
        const struct wire_c_acquire *acquire = request->acquire;
        struct placement *placement = calloc(1, sizeof(*placement) + acquire->n_items * sizeof(struct request_candidates));
        bool fits;

        if (!placement)
                return -ENOMEM;
        placement->request = request;
        placement->count_held = count_held;
        placement->candidates = (struct request_candidates *) (placement + 1);
        for (size_t i = 0; i < acquire->n_items; i++)
                request_find_candidates(broker, &acquire->items[i], &placement->candidates[i]);
        fits = place_items(placement, 0);
        free(placement);
        return fits;
}

bool request_could_be_served(const struct broker *broker, const struct request *request) {
        return fit_together(broker, request, /* count_held= */ true) != 0;
}

/* Each item alone could be served; could all of them at once? Or the request would wait for ever, and others behind it. */
static int check_together(const struct broker *broker, const struct request *request, char *ret_text) {
        const struct wire_c_acquire *acquire = request->acquire;
        char asked[FORMAT_SIZE_BYTES];
        int r = acquire->n_items < 2 ? 1 : fit_together(broker, request, /* count_held= */ false);

        if (r > 0)
                return 0;
        if (r < 0)
                return say(ret_text, r, "the daemon is out of memory");
        return say(ret_text, -ENOSPC, "%u items of together %s asked: each would fit, but all at once exceed the targets of the pools "
                                      "that suit; ask for less at once, or raise Target=", (unsigned) acquire->n_items,
                   format_size(request->least.at[0].bytes, asked));
}

static bool fits(uint64_t amount, uint64_t used, uint64_t limit) {
        return amount <= limit && used <= limit - amount;
}

void request_needs_add(struct request_needs *needs, uint64_t page_size_bytes, uint64_t bytes) {
        struct request_need *need = needs->at;

        if (needs->n == 0)
                needs->at[needs->n++] = (struct request_need) {};
        needs->at[0].bytes += bytes; /* cannot overflow: 16 items, each at most a target that fits the machine */
        while (need < needs->at + needs->n && need->page_size_bytes != page_size_bytes)
                need++;
        if (need == needs->at + needs->n)
                needs->at[needs->n++] = (struct request_need) {.page_size_bytes = page_size_bytes};
        need->bytes += bytes;
}

static enum quota_kind kind_of(const struct request_need *need, enum quota_kind kind) {
        return need->page_size_bytes == 0 ? kind : quota_kind_of_pages(kind, need->page_size_bytes);
}

const struct request_need *request_find_excess(const struct broker *broker, uid_t uid, const struct request_needs *needs, bool is_back) {
        for (const struct request_need *need = needs->at; need < needs->at + needs->n; need++) {
                uint64_t used_bytes = quota_used(broker->quota, uid, kind_of(need, QUOTA_BYTES));

                if (is_back)
                        used_bytes -= quota_used(broker->quota, uid, kind_of(need, QUOTA_RETURNING));
                if (!fits(need->bytes, used_bytes, quota_limit(broker->quota, uid, kind_of(need, QUOTA_BYTES))))
                        return need;
        }
        return NULL;
}

static bool fits_quota(const struct broker *broker, const struct request *request) {
        uid_t uid = request->identity->uid;

        return !request_find_excess(broker, uid, &request->least, /* is_back= */ false) &&
               fits(1, quota_used(broker->quota, uid, QUOTA_GRANTS), quota_limit(broker->quota, uid, QUOTA_GRANTS));
}

bool request_awaits_quota(const struct broker *broker, const struct request *request) {
        uid_t uid = request->identity->uid;

        return request->acquire->on_miss == WIRE_MISS_WAIT && quota_used(broker->quota, uid, QUOTA_RETURNING) > 0 &&
               !fits_quota(broker, request) && !request_find_excess(broker, uid, &request->least, /* is_back= */ true);
}

static void explain_excess(const struct broker *broker, uid_t uid, const struct request_need *excess, char *ret_text) {
        uint64_t max_bytes = quota_limit(broker->quota, uid, kind_of(excess, QUOTA_BYTES));
        unsigned shift = excess->page_size_bytes == 0 ? 0 : (unsigned) __builtin_ctzll(excess->page_size_bytes);
        char asked[FORMAT_SIZE_BYTES], limit[FORMAT_SIZE_BYTES], used[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        char pages[FORMAT_SIZE_BYTES + 16] = "", key[32] = "MaxBytes="; /* or " of 1 GiB pages" and "MaxBytes=1G:" */

        if (shift > 0) {
                (void) snprintf(pages, sizeof(pages), " of %s pages", format_size(excess->page_size_bytes, page));
                (void) snprintf(key, sizeof(key), "MaxBytes=%u%c:", 1U << shift % 10, " KMGTPE"[shift / 10]);
        }
        if (max_bytes == 0)
                (void) say(ret_text, -EDQUOT, "uid %u may have no memory%s at all (%s of its quota)", (unsigned) uid, pages, key);
        else
                (void) say(ret_text, -EDQUOT, "%s%s asked, but uid %u holds %s of the %s that %s allows it; %s, or raise %s",
                           format_size(excess->bytes, asked), pages, (unsigned) uid,
                           format_size(quota_used(broker->quota, uid, kind_of(excess, QUOTA_BYTES)), used),
                           format_size(max_bytes, limit), key, excess->bytes <= max_bytes ? "release some" : "ask for less", key);
}

void request_explain_quota(const struct broker *broker, const struct request *request, const struct request_needs *needs,
                           char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        uid_t uid = request->identity->uid;
        const struct request_need *excess = request_find_excess(broker, uid, needs, /* is_back= */ false);
        uint64_t max_grants = quota_limit(broker->quota, uid, QUOTA_GRANTS);

        if (max_grants == 0)
                (void) say(ret_text, -EDQUOT, "uid %u may have no grants at all (MaxGrants= of its quota)", (unsigned) uid);
        else if (excess)
                explain_excess(broker, uid, excess, ret_text);
        else
                (void) say(ret_text, -EDQUOT, "1 grant asked, but uid %u has %" PRIu64 " of the %" PRIu64 " that MaxGrants= allows it; "
                           "release some, or raise MaxGrants=", (unsigned) uid, quota_used(broker->quota, uid, QUOTA_GRANTS), max_grants);
}

static int check_quota(const struct broker *broker, const struct request *request, char *ret_text) {
        uid_t uid = request->identity->uid;

        if (request->acquire->on_miss == WIRE_MISS_WAIT && !fits_quota(broker, request))
                reclaim_drain(broker->reclaim); /* who closes and then asks has his close events in the queue already */
        /* That there are too many grants is found out when it is served. */
        if (quota_limit(broker->quota, uid, QUOTA_GRANTS) > 0 &&
            (!request_find_excess(broker, uid, &request->least, /* is_back= */ false) || request_awaits_quota(broker, request)))
                return 0;
        request_explain_quota(broker, request, &request->least, ret_text);
        return -EDQUOT;
}

int request_check(const struct broker *broker, struct request *request, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        int r;

        request->least.n = 0;
        for (size_t i = 0; i < request->acquire->n_items; i++) {
                r = check_item(broker, &request->acquire->items[i], i, &request->least, ret_text);
                if (r < 0)
                        return r;
        }
        r = check_together(broker, request, ret_text);
        return r < 0 ? r : check_quota(broker, request, ret_text);
}

int request_recycle_key(const struct config *config, const struct identity *identity, struct service **ret_service) {
        switch (config->recycle) {
        case CONFIG_RECYCLE_SAME_SERVICE:
                *ret_service = identity->service ? service_ref(identity->service) : NULL;
                return 0;
        case CONFIG_RECYCLE_SAME_USER:
                return service_get(identity->uid, "", ret_service);
        case CONFIG_RECYCLE_TRUSTED:
                if (access_is_trusted(config, identity->uid))
                        return service_get(SERVICE_OF_ALL, "", ret_service);
                *ret_service = identity->service ? service_ref(identity->service) : NULL;
                return 0;
        case CONFIG_RECYCLE_NEVER:
                break;
        }
        *ret_service = NULL;
        return 0;
}
