/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests: checked, planned over all their items at once, carried out, answered. A request holds nothing while it waits, so
 * two of them can never wait for each other.
 *
 * The queue is first come first served per node pool: whatever an earlier request waits for is out of bounds for later ones.
 */

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit.h"
#include "broker-internal.h"
#include "clock.h"
#include "parse.h"
#include "quota.h"
#include "reclaim.h"
#include "request.h"
#include "status-line.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"

#define INLINE_CUT_BYTES (UINT64_C(1) << 30) /* cutting off 1 GiB takes 0.3 ms (measured): more is a worker's job */

/* One request that is being carried out. Outlives the request when that is cancelled. */
struct request_plan {
        struct broker *broker;
        struct request *request; /* NULL: cancelled */
        struct service *service; /* owned */
        uid_t uid;
        uint64_t charged_bytes;
        size_t n_items;
        unsigned n_drops_pending, n_works_pending;
        bool is_cutting; /* the first of two rounds of work */
        int result;
        struct item_plan items[WIRE_MAX_ITEMS];
};

__attribute__((format(printf, 4, 5))) static void refuse(struct broker *broker, struct request *request, int error,
                                                         const char *fmt, ...) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        va_list args;

        va_start(args, fmt);
        (void) vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        broker->n_refused_total++;
        request->refused(request, error, text);
}

static void leave_queue(struct broker *broker, struct request *request) {
        if (broker->next_to_serve == request) /* a callback may cancel others: serve_queue() must not follow a dead link */
                broker->next_to_serve = TAILQ_NEXT(request, link);
        TAILQ_REMOVE(&broker->waiting, request, link);
        broker->n_waiting--;
}

/* Carrying out */

static struct request_plan *plan_free(struct request_plan *plan) {
        for (size_t i = 0; i < plan->n_items; i++)
                pool_plan_done(&plan->items[i]);
        service_unref(plan->service);
        free(plan);
        return NULL;
}

static void uncharge(struct request_plan *plan) {
        quota_uncharge(plan->broker->quota, plan->uid, QUOTA_BYTES, plan->charged_bytes);
        quota_uncharge(plan->broker->quota, plan->uid, QUOTA_GRANTS, 1);
}

/* Whatever has pages goes back on the shelf. */
static void put_back(struct broker *broker, struct extent *extent) {
        if (extent->bytes == 0 || stock_make_ready(broker->stock, extent) < 0)
                returns_drop(broker, extent, /* test_pins= */ false);
}

#define TEXT_FEW_FILES                                                                                                         \
        "the daemon may open too few files for so many extents: ask for fewer and larger ones, or raise its limit (LimitNOFILE=, " \
        "ulimit -n)"

static void plan_failed(struct request_plan *plan) {
        struct broker *broker = plan->broker;
        struct request *request = plan->request;

        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_pieces; k++)
                        if (plan->items[i].pieces[k].extent)
                                put_back(broker, plan->items[i].pieces[k].extent);
        uncharge(plan);
        if (plan->result == -ENOSPC)
                for (size_t i = 0; i < plan->n_items; i++)
                        refill_pause(broker, plan->items[i].node_pool);
        if (request) {
                request->plan = NULL;
                if (request->acquire->on_miss == WIRE_MISS_WAIT && plan->result == -ENOSPC) {
                        /* Somebody took the pages meanwhile: back to its place, which is the front. */
                        TAILQ_INSERT_HEAD(&broker->waiting, request, link);
                        broker->n_waiting++;
                } else if (plan->result == -ENOSPC)
                        refuse(broker, request, -ENOMEM, "the kernel gave too few pages: somebody took them meanwhile, or a "
                                                         "hugetlb limit of the daemon's cgroup is reached");
                else
                        refuse(broker, request, plan->result, "preparing the memory failed: %s",
                               plan->result == -EMFILE ? TEXT_FEW_FILES : strerror(-plan->result));
        }
        plan_free(plan);
        broker_kick(broker);
}

static void count_piece(struct node_pool *np, const struct plan_piece *piece) {
        switch (piece->how) {
        case PLAN_EXACT:
                np->n_exact++;
                break;
        case PLAN_CUT:
                np->n_cut++;
                break;
        case PLAN_GROW:
                np->n_grown++;
                break;
        case PLAN_BUILD:
                np->n_built++;
                break;
        }
}

static uint32_t count_pieces(const struct request_plan *plan) {
        uint32_t n_pieces = 0;

        for (size_t i = 0; i < plan->n_items; i++)
                n_pieces += plan->items[i].n_pieces;
        return n_pieces;
}

static int prepare_pieces(struct request_plan *plan) {
        const struct wire_c_acquire *acquire = plan->request->acquire;

        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_pieces; k++) {
                        int r = stock_prepare_grant(plan->broker->stock, plan->items[i].pieces[k].extent,
                                                    acquire->items[i].flags & WIRE_ITEM_REOPENABLE);

                        if (r < 0)
                                return r;
                }
        return 0;
}

static void note_grant(struct grant *grant) {
        warm_note_grant_id(grant->broker->warm, grant->id);
        for (uint32_t i = 0; i < grant->n_extents; i++)
                warm_note(grant->broker->warm, grant->extents[i].extent, LEDGER_GRANTED);
}

/* All pieces have their size: becomes a grant. */
static void plan_finish(struct request_plan *plan) {
        struct broker *broker = plan->broker;
        struct request *request = plan->request;
        struct grant *grant;
        uint32_t position = 0;
        int r;

        r = prepare_pieces(plan);
        if (r >= 0)
                r = grant_new(broker, request->identity, plan->service, count_pieces(plan), &grant);
        if (r < 0) {
                plan->result = r;
                plan_failed(plan);
                return;
        }
        for (size_t i = 0; i < plan->n_items; i++) {
                struct item_plan *item = &plan->items[i];

                for (size_t k = 0; k < item->n_pieces; k++) {
                        count_piece(item->node_pool, &item->pieces[k]);
                        broker->granted_bytes_total += item->pieces[k].bytes;
                        pool_move(item->pieces[k].extent, EXTENT_GRANTED);
                        grant_set(grant, position++, item->pieces[k].extent, i);
                }
        }
        grant_publish(grant);
        note_grant(grant); /* before anything of it can leave */
        request->plan = NULL;
        request->granted(request, grant); /* what can be done behind the reply is done behind it */
        plan_free(plan);
}

static void plan_settled(struct request_plan *plan) {
        struct broker *broker = plan->broker;

        broker->n_working--;
        if (plan->request && plan->result >= 0)
                plan_finish(plan);
        else
                plan_failed(plan);
        broker_kick(broker); /* what was cut off can be filled, and what was not needed serves others */
}

/* The daemon stops while work is under way; the extents are let go of by broker_free(). */
static void plan_abandon(struct request_plan *plan) {
        plan->broker->n_working--;
        uncharge(plan);
        plan_free(plan);
}

static void start_pieces(struct request_plan *plan);

static void pieces_done(struct request_plan *plan) {
        if (plan->broker->stopping)
                plan_abandon(plan);
        else if (plan->is_cutting && plan->result >= 0) {
                plan->is_cutting = false;
                start_pieces(plan);
        } else
                plan_settled(plan);
}

static void piece_done(void *userdata, struct extent *extent, int r) {
        struct request_plan *plan = userdata;

        if (r < 0 && plan->result >= 0)
                plan->result = r;
        if (--plan->n_works_pending == 0)
                pieces_done(plan);
}

static int start_piece(struct request_plan *plan, struct node_pool *np, struct plan_piece *piece) {
        struct stock *stock = plan->broker->stock;
        int r = 0;

        switch (piece->how) {
        case PLAN_EXACT:
                return 0;
        case PLAN_CUT:
                if (piece->extent->bytes - piece->bytes <= INLINE_CUT_BYTES) {
                        warm_note_busy(plan->broker->warm, piece->extent);
                        r = extent_file_resize(&piece->extent->file, piece->bytes);
                        if (r >= 0)
                                pool_resize(piece->extent, piece->bytes);
                        return r;
                }
                r = stock_cut(stock, piece->extent, piece->bytes, piece_done, plan);
                break;
        case PLAN_BUILD:
                r = pool_add(np, EXTENT_CLAIMED, 0, &piece->extent);
                if (r < 0)
                        return r;
                __attribute__((fallthrough));
        case PLAN_GROW:
                r = stock_fill(stock, piece->extent, piece->bytes, JOB_WAITING, /* urgent_bytes= */ 0, piece_done, plan);
                break;
        }
        if (r >= 0)
                plan->n_works_pending++;
        return r;
}

/* First what is cut, then what may need the pages that were cut off. */
static void start_pieces(struct request_plan *plan) {
        plan->n_works_pending = 1; /* so that nothing is settled before all have begun */
        for (size_t i = 0; i < plan->n_items && plan->result >= 0; i++)
                for (size_t k = 0; k < plan->items[i].n_pieces && plan->result >= 0; k++) {
                        struct plan_piece *piece = &plan->items[i].pieces[k];

                        if ((piece->how == PLAN_CUT) == plan->is_cutting)
                                plan->result = start_piece(plan, plan->items[i].node_pool, piece);
                }
        if (--plan->n_works_pending == 0)
                pieces_done(plan);
}

static void drop_done(void *userdata, struct extent *extent, int r) {
        struct request_plan *plan = userdata;
        struct broker *broker = plan->broker;

        plan->n_drops_pending--;
        if (broker->stopping) {
                if (plan->n_drops_pending == 0)
                        plan_abandon(plan);
                return;
        }
        returns_finish_drop(broker, extent, r);
        if (plan->n_drops_pending == 0)
                start_pieces(plan);
}

static void start_drops(struct request_plan *plan) {
        struct broker *broker = plan->broker;

        plan->n_drops_pending = 1;
        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_drops; k++) {
                        struct extent *extent = plan->items[i].drops[k];

                        stock_forget(broker->stock, extent);
                        extent->n_asked = 0;
                        pool_move(extent, EXTENT_DROPPING);
                        /* Whoever held it before may have it pinned: then it stays his. */
                        if (stock_drop(broker->stock, extent, /* test_pins= */ extent->sealed, JOB_WAITING, drop_done, plan) >= 0)
                                plan->n_drops_pending++;
                        else {
                                extent_file_done(&extent->file);
                                returns_discard(extent);
                        }
                }
        if (--plan->n_drops_pending == 0)
                start_pieces(plan);
}

static int charge(struct request_plan *plan) {
        struct quota *quota = plan->broker->quota;
        int r;

        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_pieces; k++)
                        plan->charged_bytes += plan->items[i].pieces[k].bytes;
        r = quota_charge(quota, plan->uid, QUOTA_GRANTS, 1);
        if (r < 0)
                return r;
        r = quota_charge(quota, plan->uid, QUOTA_BYTES, plan->charged_bytes);
        if (r < 0)
                quota_uncharge(quota, plan->uid, QUOTA_GRANTS, 1);
        return r;
}

static void refuse_quota(struct broker *broker, struct request *request, int r) {
        uid_t uid = request->identity->uid;
        char used[FORMAT_SIZE_BYTES], limit[FORMAT_SIZE_BYTES];

        if (r != -EDQUOT) {
                refuse(broker, request, r, "the daemon is out of memory");
                return;
        }
        refuse(broker, request, r,
               "the limit of uid %u is reached: %s of %s and %u of %u grants are in use; release some or raise MaxBytes= or "
               "MaxGrants=", (unsigned) uid, format_size(quota_used(broker->quota, uid, QUOTA_BYTES), used),
               format_size(quota_limit(broker->quota, uid, QUOTA_BYTES), limit),
               (unsigned) quota_used(broker->quota, uid, QUOTA_GRANTS), (unsigned) quota_limit(broker->quota, uid, QUOTA_GRANTS));
}

/* The request has left the queue. */
static void plan_begin(struct request_plan *plan) {
        struct request *request = plan->request;
        int r = charge(plan);

        if (r < 0) {
                for (size_t i = 0; i < plan->n_items; i++)
                        pool_plan_undo(&plan->items[i]);
                refuse_quota(plan->broker, request, r);
                plan_free(plan);
                return;
        }
        request->plan = plan;
        plan->broker->n_working++;
        /* What is handed out, not what was asked: the pool builds extents of the sizes that it remembers. */
        for (size_t i = 0; i < plan->n_items; i++) {
                struct node_pool *np = plan->items[i].node_pool;

                pool_note_request(np, request_item_bytes(&request->acquire->items[i], np->pool));
        }
        start_drops(plan);
}

/* Planning */

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
        sum_fills(plan, np, &own_bytes, &others_bytes);
        if (own_bytes < 0)
                terms.freed_bytes = (uint64_t) -own_bytes;
        if (terms.may_fill) {
                uint64_t taken_bytes = (uint64_t) (others_bytes + (own_bytes > 0 ? own_bytes : 0));

                terms.fillable_bytes = refill_fillable_bytes(broker, np);
                terms.fillable_bytes -= terms.fillable_bytes < taken_bytes ? terms.fillable_bytes : taken_bytes;
        }
        r = pool_plan(np, &terms, &plan->items[plan->n_items]);
        if (r == PLAN_YES)
                plan->n_items++;
        return r;
}

static bool is_audited(const struct request_candidates *candidates) {
        for (size_t i = 0; i < candidates->n; i++)
                if (!candidates->node_pools[i]->claimed && candidates->node_pools[i]->n_extents[EXTENT_AUDITING] > 0)
                        return true;
        return false;
}

/* Ready memory that would do, but for a slice of it that is being read: waiting for that is better than the next best place. */
static bool would_serve(const struct node_pool *np, const struct wire_item *item) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link)
                if (!np->claimed && (extent->bytes >= item->bytes || (item->flags & WIRE_ITEM_SEVERAL)))
                        return true;
        return false;
}

/* The node pools in order of preference: first who can serve at once, then who needs the kernel. */
static int plan_item(struct broker *broker, struct request_plan *plan, const struct wire_item *item, enum wire_on_miss on_miss) {
        struct request_candidates candidates;
        int result = PLAN_NO;

        request_find_candidates(broker, item, &candidates);
        for (int slow = 0; slow <= 1; slow++) {
                if (slow && is_audited(&candidates))
                        return PLAN_AUDITED;
                for (size_t i = 0; i < candidates.n; i++) {
                        int r = PLAN_NO;

                        if (!candidates.node_pools[i]->claimed)
                                r = plan_item_at(broker, plan, item, candidates.node_pools[i], !slow, on_miss);
                        if (r == PLAN_YES || r < 0)
                                return r;
                        if (!slow && would_serve(candidates.node_pools[i], item))
                                return PLAN_AUDITED;
                        if (r == PLAN_QUIESCE) {
                                candidates.node_pools[i]->blocked = true;
                                result = r;
                        }
                }
        }
        return result;
}

static int make_plan(struct broker *broker, struct request *request, struct request_plan **ret_plan) {
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
        if (r != PLAN_YES) {
                for (size_t i = 0; i < plan->n_items; i++)
                        pool_plan_undo(&plan->items[i]);
                plan_free(plan);
                return r;
        }
        *ret_plan = plan;
        return PLAN_YES;
}

/* What this request waits for is not for later ones. @audited: for the end of a slice only, which nothing makes shorter. */
static void claim_candidates(struct broker *broker, const struct request *request, bool audited) {
        for (size_t i = 0; i < request->acquire->n_items; i++) {
                struct request_candidates candidates;

                request_find_candidates(broker, &request->acquire->items[i], &candidates);
                for (size_t k = 0; k < candidates.n; k++) {
                        candidates.node_pools[k]->claimed = true;
                        audit_let_go(broker->audit, candidates.node_pools[k]);
                        if (audited)
                                continue;
                        if (candidates.node_pools[k]->blocked)
                                refill_stop(broker, candidates.node_pools[k]);
                        refill_raise(broker, candidates.node_pools[k], JOB_WAITING);
                }
        }
}

static void refuse_miss(struct broker *broker, struct request *request) {
        bool fill = request->acquire->on_miss == WIRE_MISS_FILL;

        if (fill && refill_extents_left(broker) == 0) {
                refuse(broker, request, -ENOMEM, TEXT_FEW_FILES);
                return;
        }
        refuse(broker, request, fill ? -ENOMEM : -EAGAIN, "%s",
               fill ? "within its target and behind earlier requests the pool cannot get that much now: wait for memory to come back, "
                      "raise Target=, or reserve more pages" :
                      "not enough memory is ready now, or earlier requests wait for it: wait too, have the kernel zero it, or retry "
                      "later");
}

static void serve(struct broker *broker, struct request *request) {
        struct request_plan *plan;
        int r = make_plan(broker, request, &plan);

        if (r == PLAN_YES) {
                leave_queue(broker, request);
                plan_begin(plan);
                return;
        }
        if (r == PLAN_QUIESCE || r == PLAN_AUDITED || (r == PLAN_NO && request->acquire->on_miss == WIRE_MISS_WAIT)) {
                claim_candidates(broker, request, r == PLAN_AUDITED);
                return;
        }
        leave_queue(broker, request);
        if (r < 0)
                refuse(broker, request, r, "the daemon is out of memory");
        else
                refuse_miss(broker, request);
}

static void serve_queue(struct broker *broker) {
        struct request *request;

        if (broker->serving) {
                broker_kick(broker);
                return;
        }
        broker->serving = true;
        BROKER_FOREACH_NODE_POOL(broker, np)
                np->claimed = np->blocked = false;
        broker->next_to_serve = TAILQ_FIRST(&broker->waiting);
        while ((request = broker->next_to_serve)) {
                broker->next_to_serve = TAILQ_NEXT(request, link);
                serve(broker, request);
        }
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (!np->claimed)
                        pool_end_paced_wait(np, clock_ms());
        broker->serving = false;
}

static void set_deadline_timer(struct broker *broker) {
        uint64_t now_ms = clock_ms(), first_ms = UINT64_MAX;
        struct request *request;

        TAILQ_FOREACH(request, &broker->waiting, link)
                if (request->deadline_ms < first_ms)
                        first_ms = request->deadline_ms;
        if (first_ms == UINT64_MAX)
                (void) event_del(broker->deadline_timer);
        else
                broker_timer_set(broker->deadline_timer, first_ms > now_ms ? first_ms - now_ms : 0);
}

static void on_deadline(int fd, short what, void *userdata) {
        struct broker *broker = userdata;
        uint64_t now_ms = clock_ms();
        struct request *request;

        broker->next_to_serve = TAILQ_FIRST(&broker->waiting);
        while ((request = broker->next_to_serve)) {
                broker->next_to_serve = TAILQ_NEXT(request, link);
                if (request->deadline_ms > now_ms)
                        continue;
                leave_queue(broker, request);
                refuse(broker, request, -ETIMEDOUT, "the memory was not ready within %d ms", request->acquire->timeout_ms);
        }
        broker_kick(broker);
}

/* What can no longer be served would wait for ever, and others behind it. */
static void check_waiting(struct broker *broker) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        struct request *request;

        broker->targets_changed = false;
        broker->next_to_serve = TAILQ_FIRST(&broker->waiting);
        while ((request = broker->next_to_serve)) {
                int r = request_check(broker, request, text);

                broker->next_to_serve = TAILQ_NEXT(request, link);
                if (r == 0 || r == -EDQUOT || r == -ENOMEM) /* its quota is free again some day */
                        continue;
                leave_queue(broker, request);
                refuse(broker, request, r, "%s", text);
        }
}

static void on_kick(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        if (broker->stopping)
                return;
        if (broker->targets_changed)
                check_waiting(broker);
        serve_queue(broker);
        set_deadline_timer(broker);
        refill_run(broker);
        status_line_update(broker);
}

void broker_kick(struct broker *broker) {
        event_active(broker->kick, EV_TIMEOUT, 0);
}

void broker_submit(struct broker *broker, struct request *request) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        int r;

        request->plan = NULL;
        request->deadline_ms = UINT64_MAX;
        r = broker->stopping ? -ESHUTDOWN : request_check(broker, request, text);
        if (r < 0) {
                refuse(broker, request, r, "%s", r == -ESHUTDOWN ? "the daemon is stopping" : text);
                return;
        }
        if (request->acquire->on_miss == WIRE_MISS_WAIT && request->acquire->timeout_ms >= 0)
                request->deadline_ms = clock_ms() + (uint64_t) request->acquire->timeout_ms;
        TAILQ_INSERT_TAIL(&broker->waiting, request, link);
        broker->n_waiting++;
        if (broker->n_waiting == 1)
                serve_queue(broker); /* the common case: at once, with nobody to ask for leave */
        if (broker->n_waiting > 0)
                broker_kick(broker);
}

void broker_cancel(struct broker *broker, struct request *request) {
        if (request->plan)
                request->plan->request = NULL;
        else
                leave_queue(broker, request);
        request->plan = NULL;
        if (!broker->stopping)
                broker_kick(broker);
}

int broker_reload(struct broker *broker, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        return broker->reload(broker->reload_userdata, ret_text);
}

/* Start and end */

int broker_timer_new(struct broker *broker, void (*callback)(int, short, void *), struct event **ret_timer) {
        *ret_timer = evtimer_new(broker->base, callback, broker);
        return *ret_timer ? 0 : -ENOMEM;
}

void broker_timer_set(struct event *timer, uint64_t delay_ms) {
        struct timeval delay = {.tv_sec = (time_t) (delay_ms / 1000), .tv_usec = (suseconds_t) (delay_ms % 1000 * 1000)};

        if (delay_ms != UINT64_MAX)
                (void) evtimer_add(timer, &delay);
}

static int make_timers(struct broker *broker) {
        int r = broker_timer_new(broker, on_kick, &broker->kick);

        if (r >= 0)
                r = broker_timer_new(broker, on_deadline, &broker->deadline_timer);
        if (r >= 0)
                r = broker_timer_new(broker, refill_on_retry, &broker->retry_timer);
        if (r >= 0)
                r = broker_timer_new(broker, returns_on_sweep, &broker->sweep_timer);
        if (r >= 0)
                r = broker_timer_new(broker, grants_on_unmap_timer, &broker->unmap_timer);
        if (r >= 0)
                r = broker_timer_new(broker, returns_on_affinity, &broker->affinity_timer);
        if (r >= 0)
                r = broker_timer_new(broker, status_line_on_timer, &broker->status_timer);
        return r;
}

int broker_new(struct event_base *base, const struct config *config, const struct topology *topology, struct quota *quota,
               struct reclaim *reclaim, struct stock *stock, struct warm *warm, struct broker **ret_broker) {
        struct broker *broker = calloc(1, sizeof(*broker));
        int r;

        if (!broker)
                return -ENOMEM;
        broker->base = base;
        broker->config = config;
        broker->topology = topology;
        broker->quota = quota;
        broker->reclaim = reclaim;
        broker->stock = stock;
        broker->warm = warm;
        broker->started_ms = clock_ms();
        TAILQ_INIT(&broker->waiting);
        TAILQ_INIT(&broker->grants);
        TAILQ_INIT(&broker->mapped_grants);
        TAILQ_INIT(&broker->lingering);
        r = make_timers(broker);
        for (size_t i = 0; i < config->n_pools && r >= 0; i++) {
                r = pool_new(&config->pools[i], &broker->pools[broker->n_pools]);
                if (r >= 0)
                        broker->pools[broker->n_pools++]->broker = broker;
        }
        if (r >= 0)
                r = audit_new(broker, &broker->audit);
        if (r < 0) {
                broker_free(broker);
                return r;
        }
        broker_timer_set(broker->sweep_timer, config->sweep_interval_ms);
        broker_kick(broker);
        *ret_broker = broker;
        return 0;
}

void broker_stop(struct broker *broker) {
        broker->stopping = true;
}

static void free_timer(struct event *timer) {
        if (timer)
                event_free(timer);
}

struct broker *broker_free(struct broker *broker) {
        if (!broker)
                return NULL;
        assert(broker->n_waiting == 0);
        broker->stopping = true;
        broker->audit = audit_free(broker->audit);
        returns_free_all(broker);
        grants_free_all(broker);
        for (size_t i = 0; i < broker->n_pools; i++)
                pool_free(broker->pools[i]);
        free_timer(broker->kick);
        free_timer(broker->deadline_timer);
        free_timer(broker->retry_timer);
        free_timer(broker->sweep_timer);
        free_timer(broker->unmap_timer);
        free_timer(broker->affinity_timer);
        free_timer(broker->status_timer);
        free(broker);
        return NULL;
}
