/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps every node pool at its target: starts background fills out of pages that nobody has reserved, replaces extents that
 * wait to be renewed, and looks again for pages where the kernel has too few.
 */

#include <errno.h>
#include <event2/event.h>
#include <string.h>

#include "audit.h"
#include "broker-internal.h"
#include "clearing.h"
#include "clock.h"
#include "log-limit.h"
#include "parse.h"
#include "request.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"

#define RETRY_FIRST_S 1  /* chosen (design): looked for again after 1 s, then 2, 4 ... */
#define RETRY_MAX_S 60   /* ... up to 60 s */
#define FIXED_FILLS 8    /* chosen: small equal extents under way at once, enough to keep all workers of a node busy */
#define MERGE_FEWEST 8   /* chosen: of fewer ready extents none are given up for another pool */
#define MERGE_MOST 64    /* chosen: at once; each of them is looked for among all */

static uint64_t available_to(const struct broker *broker, const struct node_pool *np) {
        return np->paused ? 0 : topology_available_bytes(broker->topology, np->node, np->pool->page_size_bytes);
}

uint64_t refill_extents_left(const struct broker *broker) {
        uint64_t n_extents = 0, n_max = stock_max_extents(broker->stock);

        BROKER_FOREACH_NODE_POOL(broker, np)
                for (int state = 0; state < _EXTENT_STATE_MAX; state++)
                        n_extents += np->n_extents[state];
        return n_extents < n_max ? n_max - n_extents : 0;
}

uint64_t refill_fillable_bytes(const struct broker *broker, const struct node_pool *np) {
        uint64_t bytes = pool_deficit_bytes(np), available_bytes = bytes > 0 ? available_to(broker, np) : 0;

        return bytes < available_bytes ? bytes : available_bytes;
}

/* A whole extent of a fixed class is let finish: a part of it would serve nobody. */
static bool is_all_or_nothing(const struct extent *extent) {
        return extent->bytes == extent->node_pool->pool->extent_bytes;
}

void refill_stop(struct broker *broker, struct node_pool *np) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_FILLING], link)
                if (!is_all_or_nothing(extent))
                        stock_stop_fill(broker->stock, extent);
}

static bool raise_all(struct broker *broker, struct node_pool *np, enum extent_state state, enum job_urgency urgency) {
        struct extent *extent;
        bool was_paced = false;

        TAILQ_FOREACH(extent, &np->extents[state], link)
                was_paced |= stock_raise(broker->stock, extent, urgency);
        return was_paced;
}

void refill_raise(struct broker *broker, struct node_pool *np, enum job_urgency urgency) {
        bool was_filling = raise_all(broker, np, EXTENT_FILLING, urgency);
        bool was_paced = raise_all(broker, np, EXTENT_SCRUBBING, urgency) || was_filling;

        if (was_paced && urgency == JOB_WAITING)
                pool_note_paced_wait(np, /* refused_bytes= */ 0, clock_ms());
}

static bool is_held_back(const struct broker *broker, const struct node_pool *np) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_SCRUBBING], link)
                if (stock_is_paced(broker->stock, extent))
                        return true;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_FILLING], link)
                if (stock_is_paced(broker->stock, extent))
                        return true;
        return false;
}

void refill_note_refusal(struct broker *broker, const struct request *request) {
        for (size_t i = 0; i < request->acquire->n_items; i++) {
                const struct wire_item *item = &request->acquire->items[i];
                struct request_candidates candidates;

                request_find_candidates(broker, item, &candidates);
                for (size_t k = 0; k < candidates.n; k++) {
                        struct node_pool *np = candidates.node_pools[k];
                        uint64_t bytes = request_item_bytes(item, np->pool);

                        if (bytes <= np->target_bytes && is_held_back(broker, np))
                                pool_note_paced_wait(np, bytes, clock_ms());
                }
        }
}

bool refill_is_lacking(const struct broker *broker, const struct node_pool *np) {
        return np->claimed || (np->lacked_bytes > 0 && pool_ready_bytes(np) < np->lacked_bytes && is_held_back(broker, np));
}

static enum job_urgency fill_urgency(const struct node_pool *np) {
        return np->blocked || np->claimed ? JOB_WAITING : pool_below_low_bytes(np) > 0 ? JOB_LOW : JOB_FILL;
}

static void arm_retry(struct broker *broker) {
        if (evtimer_pending(broker->retry_timer, NULL))
                return;
        broker->retry_s = broker->retry_s == 0 ? RETRY_FIRST_S : broker->retry_s;
        broker_timer_set(broker->retry_timer, (uint64_t) broker->retry_s * 1000);
}

void refill_pause(struct broker *broker, struct node_pool *np) {
        np->paused = true;
        arm_retry(broker);
}

/* Extents that were to be renewed are only dropped when what replaces them is there: the kernel's free pages belong to whoever comes first. */
static void drop_replaced(struct broker *broker, struct node_pool *np) {
        struct extent *extent;

        while ((extent = TAILQ_FIRST(&np->extents[EXTENT_RENEWING])) &&
               pool_used_bytes(np) - np->bytes[EXTENT_FILLING] - np->bytes[EXTENT_DROPPING] > np->target_bytes)
                returns_drop(broker, extent, /* test_pins= */ true);
}

static void fill_done(void *userdata, struct extent *extent, int r) {
        struct broker *broker = userdata;
        struct node_pool *np = extent->node_pool;

        if (broker->stopping)
                return;
        broker_kick(broker);
        if (r < 0 && r != -ENOSPC && r != -ECANCELED && log_limit_pass(LOG_LIMIT_JOBS, LOG_NO_USER))
                log_error(LOG_ID_FILL_FAILED, LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("ERRNO", -r)),
                          "filling an extent of pool %s on node %d failed: %s", np->pool->name, np->node,
                          r == -EXDEV     ? "the kernel placed its pages on another node" :
                          r == -EHWPOISON ? "its memory has failed; the kernel's log says where" :
                                            strerror(-r));
        /* Too few pages while others fill: it may only have been they who were quicker. Any other failure would just repeat itself. */
        if (r < 0 && r != -ECANCELED && (r != -ENOSPC || np->n_extents[EXTENT_FILLING] == 1))
                refill_pause(broker, np);
        /* The prefix of an extent that was stopped or came up short is as good as any; in a fixed class it fits nobody. */
        if (extent->bytes == 0 || r == -EXDEV || r == -EFAULT || r == -EHWPOISON ||
            (np->pool->extent_bytes != 0 && extent->bytes != np->pool->extent_bytes)) {
                returns_drop(broker, extent, /* test_pins= */ false);
                return;
        }
        r = stock_make_ready(broker->stock, extent);
        if (r < 0) {
                if (log_limit_pass(LOG_LIMIT_JOBS, LOG_NO_USER))
                        log_error(LOG_ID_WATCH_FAILED, LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("ERRNO", -r)),
                                  "an extent of pool %s cannot be watched and is dropped: %s; raise %s", np->pool->name,
                                  strerror(-r), r == -ENOSPC ? "fs.inotify.max_user_watches" : "the limit of open files");
                refill_pause(broker, np);
                returns_drop(broker, extent, /* test_pins= */ false);
                return;
        }
        drop_replaced(broker, np);
}

static int start_fill(struct broker *broker, struct node_pool *np, uint64_t bytes) {
        struct extent *extent;
        int r;

        r = pool_add(np, EXTENT_FILLING, 0, &extent);
        if (r < 0)
                return r;
        r = stock_fill(broker->stock, extent, bytes, fill_urgency(np), pool_below_low_bytes(np), fill_done, broker);
        if (r < 0)
                pool_remove(extent);
        return r;
}

static void note_shortfall(struct broker *broker, struct node_pool *np, uint64_t deficit_bytes, uint64_t available_bytes) {
        char missing[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];

        np->shortfall_bytes = deficit_bytes - available_bytes;
        arm_retry(broker);
        if (np->short_logged || np->paused) /* why it is paused was said then */
                return;
        np->short_logged = log_limit_pass(LOG_LIMIT_SHORTAGES, LOG_NO_USER); /* and with it its end, or neither */
        if (!np->short_logged)
                return;
        log_notice(LOG_ID_SHORT, LOG_FIELDS(LOG_NODE_POOL(np), LOG_NUMBER("MISSING_BYTES", np->shortfall_bytes)),
                   "pool %s on node %d is short of %s: the kernel has too few free %s pages there; more are taken as they appear",
                   np->pool->name, np->node, format_size(np->shortfall_bytes, missing),
                   format_size(np->pool->page_size_bytes, page));
}

/* Said when the pool is full: pages that come and go meanwhile are no news. */
static void end_shortfall(struct node_pool *np) {
        np->shortfall_bytes = 0;
        if (!np->short_logged)
                return;
        np->short_logged = false;
        log_notice(LOG_ID_RECOVERED, LOG_FIELDS(LOG_NODE_POOL(np)),
                   "pool %s on node %d has all its pages again", np->pool->name, np->node);
}

static void shrink_done(void *userdata, struct extent *extent, int r) {
        struct broker *broker = userdata;

        if (broker->stopping)
                return;
        if (r < 0 || stock_make_ready(broker->stock, extent) < 0)
                returns_drop(broker, extent, /* test_pins= */ false);
        broker_kick(broker);
}

/* The target was lowered: gives ready memory back, whole extents first, the last one cut. */
static void shrink(struct broker *broker, struct node_pool *np) {
        uint64_t excess_bytes;
        struct extent *extent;

        if (pool_excess_bytes(np) > 0)
                refill_stop(broker, np);
        while ((excess_bytes = pool_excess_bytes(np)) > 0 && np->n_extents[EXTENT_FILLING] == 0 &&
               (extent = pool_find_expendable(np))) {
                pool_move(extent, EXTENT_CLAIMED);
                if (extent->sealed || extent->bytes <= excess_bytes ||
                    stock_cut(broker->stock, extent, extent->bytes - excess_bytes, shrink_done, broker) < 0)
                        returns_drop(broker, extent, /* test_pins= */ true);
                else
                        pool_resize(extent, extent->bytes - excess_bytes); /* so that nobody gives up the same bytes twice */
        }
        drop_replaced(broker, np);
}

/* Each extent is two open files. Some are left for clients, or a pool that cannot grow would not even be served from. */
static bool has_descriptors(struct broker *broker, struct node_pool *np) {
        uint64_t n_max = stock_max_extents(broker->stock);

        if (refill_extents_left(broker) > 0)
                return true;
        broker->capped_at_extents = n_max;
        arm_retry(broker);
        if (log_limit_pass(LOG_LIMIT_FILES, LOG_NO_USER))
                log_warning(LOG_ID_FILES_LIMIT, LOG_FIELDS(LOG_TEXT("POOL", np->pool->name), LOG_NUMBER("EXTENTS", n_max)),
                            "the pools stop at %lu extents: the limit of open files leaves room for no more; raise LimitNOFILE= "
                            "(ulimit -n), or choose a larger ExtentSize= for pool %s", (unsigned long) n_max, np->pool->name);
        return false;
}

/*
 * Where extents are to be given up for what @lacking lacks: it has any of its own, or the auto pool that keeps most descriptors for
 * small memory. One that is at it already is let finish.
 */
static struct node_pool *find_scattered(struct broker *broker, struct node_pool *lacking) {
        struct node_pool *found = NULL;

        BROKER_FOREACH_NODE_POOL(broker, np) {
                if (np->pool->extent_bytes != 0 || np->n_extents[EXTENT_READY] < (np == lacking ? 1 : MERGE_FEWEST))
                        continue;
                if (np->n_extents[EXTENT_FILLING] > 0 || np->n_extents[EXTENT_DROPPING] > 0)
                        return NULL;
                if (np == lacking)
                        return np;
                if (!found || np->n_extents[EXTENT_READY] > found->n_extents[EXTENT_READY])
                        found = np;
        }
        return found;
}

/*
 * No descriptor is left, as after many small grants: half of the ready extents go, the smallest first, for fewer larger ones. No
 * more than the kernel has to spare, or somebody else might get their pages.
 */
static void merge(struct broker *broker, struct node_pool *lacking) {
        struct node_pool *np = find_scattered(broker, lacking);
        uint64_t n = np ? (np->n_extents[EXTENT_READY] + 1) / 2 : 0, spare_bytes = np ? available_to(broker, np) : 0;
        struct extent *extent;

        for (n = n < MERGE_MOST ? n : MERGE_MOST; n > 0 && (extent = pool_find_expendable(np)); n--) {
                if (extent->bytes > spare_bytes)
                        return;
                spare_bytes -= extent->bytes;
                pool_move(extent, EXTENT_CLAIMED);
                returns_drop(broker, extent, /* test_pins= */ true);
        }
}

/* So much that this pool's share of half of the descriptors does for all that it lacks. */
static uint64_t least_fill_bytes(const struct broker *broker, const struct node_pool *np, uint64_t lacking_bytes) {
        uint64_t n_pools = 0, n_fills, page_bytes = np->pool->page_size_bytes;

        BROKER_FOREACH_NODE_POOL(broker, other)
                n_pools += other->target_bytes > 0;
        n_fills = refill_extents_left(broker) / 2 / (n_pools > 0 ? n_pools : 1);
        return lacking_bytes / (n_fills > 0 ? n_fills : 1) / page_bytes * page_bytes;
}

static uint64_t next_fill_bytes(const struct broker *broker, const struct node_pool *np, uint64_t available_bytes) {
        uint64_t bytes = pool_next_fill_bytes(np, available_bytes), least_bytes;

        if (np->pool->extent_bytes != 0)
                return bytes;
        least_bytes = least_fill_bytes(broker, np, available_bytes);
        return bytes < least_bytes ? least_bytes : bytes;
}

/* Where the extents of a fixed class are too small to measure on, a larger one is filled for that, and dropped again. */
static uint64_t probe_bytes(struct broker *broker, struct node_pool *np, uint64_t available_bytes) {
        struct extent *extent;

        if (np->pool->extent_bytes == 0 || available_bytes < np->target_bytes / 4)
                return 0;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_FILLING], link)
                if (!is_all_or_nothing(extent))
                        return 0; /* that is one */
        return clearing_take_probe(stock_clearing(broker->stock, np->node), np->pool->extent_bytes, np->target_bytes,
                                   np->pool->page_size_bytes);
}

/* Whether more has to be scrubbed at full speed to bring the pool to its low mark. */
static bool wants_hurry(const struct node_pool *np) {
        return np->hurried_bytes < pool_below_low_bytes(np);
}

static void begin_hurry(struct extent *extent) {
        extent->hurried = true;
        extent->node_pool->hurried_bytes += extent->bytes;
}

void refill_end_hurry(struct extent *extent) {
        if (extent->hurried)
                extent->node_pool->hurried_bytes -= extent->bytes;
        extent->hurried = false;
}

enum job_urgency refill_scrub_urgency(struct extent *extent) {
        const struct node_pool *np = extent->node_pool;
        enum job_urgency urgency = np->blocked || np->claimed ? JOB_WAITING : wants_hurry(np) ? JOB_LOW : JOB_SCRUB;

        if (urgency != JOB_SCRUB)
                begin_hurry(extent);
        return urgency;
}

static void hurry_scrubs(struct broker *broker, struct node_pool *np) {
        struct extent *extent;

        if (np->hurried_bytes == np->bytes[EXTENT_SCRUBBING])
                return;
        TAILQ_FOREACH(extent, &np->extents[EXTENT_SCRUBBING], link) {
                if (!wants_hurry(np))
                        return;
                if (extent->hurried)
                        continue;
                begin_hurry(extent);
                (void) stock_raise(broker->stock, extent, JOB_LOW);
        }
}

/* Below its low mark a pool is in a hurry, and so is what had been begun before. */
static void note_low(struct broker *broker, struct node_pool *np) {
        bool is_low = pool_below_low_bytes(np) > 0;

        if (is_low && !np->was_low)
                (void) raise_all(broker, np, EXTENT_FILLING, JOB_LOW);
        if (is_low)
                hurry_scrubs(broker, np);
        np->was_low = is_low;
}

static void refill_node(struct broker *broker, struct node_pool *np) {
        uint32_t max_fills = np->pool->extent_bytes != 0 ? FIXED_FILLS : 1;
        struct extent *renewing;

        note_low(broker, np);
        shrink(broker, np);
        while (np->n_extents[EXTENT_FILLING] < max_fills) {
                uint64_t deficit_bytes = pool_deficit_bytes(np), available_bytes, bytes;

                if (deficit_bytes < np->pool->page_size_bytes) {
                        end_shortfall(np);
                        return;
                }
                available_bytes = available_to(broker, np);
                renewing = TAILQ_FIRST(&np->extents[EXTENT_RENEWING]);
                if (renewing && ((available_bytes < renewing->bytes && available_bytes < deficit_bytes) ||
                                 refill_extents_left(broker) == 0)) {
                        /* No spare pages or no descriptor for a replacement: its own are needed. */
                        returns_drop(broker, renewing, /* test_pins= */ true);
                        return;
                }
                /* Pages of extents on their way out are about to be free: that is no shortfall. */
                if (available_bytes + np->bytes[EXTENT_DROPPING] < deficit_bytes)
                        note_shortfall(broker, np, deficit_bytes, available_bytes + np->bytes[EXTENT_DROPPING]);
                else
                        np->shortfall_bytes = 0;
                if (!has_descriptors(broker, np)) {
                        merge(broker, np);
                        return;
                }
                if (available_bytes > deficit_bytes)
                        available_bytes = deficit_bytes;
                bytes = probe_bytes(broker, np, available_bytes);
                if (bytes == 0)
                        bytes = next_fill_bytes(broker, np, available_bytes);
                if (bytes == 0)
                        return;
                if (start_fill(broker, np, bytes) < 0) {
                        clearing_end_probe(stock_clearing(broker->stock, np->node));
                        return;
                }
                if (!np->paused)
                        broker->retry_s = 0; /* pages appear: look soon again */
        }
}

/* All that it can get for now. */
static bool has_all(const struct broker *broker, const struct node_pool *np) {
        return (np->full_once || np->target_bytes == 0 || np->paused || np->shortfall_bytes > 0 || broker->capped_at_extents > 0) &&
               np->n_extents[EXTENT_FILLING] == 0;
}

static bool is_filled(const struct broker *broker) {
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (!has_all(broker, np))
                        return false;
        return true;
}

/* There are no pages to fill, and what could not be measured meanwhile had another chance when it was idle. */
static bool is_settled(const struct broker *broker, int node) {
        bool has_memory = false;

        BROKER_FOREACH_NODE_POOL(broker, np) {
                if (np->node == node && !has_all(broker, np))
                        return false;
                has_memory |= np->node == node && pool_used_bytes(np) > 0;
        }
        return has_memory && audit_had_round(broker->audit, node);
}

void refill_run(struct broker *broker) {
        broker->capped_at_extents = 0;
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (!np->blocked)
                        refill_node(broker, np);
        BROKER_FOREACH_NODE_POOL(broker, np) {
                struct clearing *clearing = stock_clearing(broker->stock, np->node);

                if (!clearing->is_settled && is_settled(broker, np->node))
                        clearing_note_settled(clearing);
        }
        if (is_filled(broker))
                warm_tell_cold(broker);
}

void refill_on_retry(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        broker->retry_s = broker->retry_s * 2 > RETRY_MAX_S ? RETRY_MAX_S : broker->retry_s * 2;
        BROKER_FOREACH_NODE_POOL(broker, np)
                np->paused = false;
        broker_kick(broker);
}
