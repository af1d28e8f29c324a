/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests: checked, planned over all their items at once, carried out, answered. A request holds nothing while it waits, so
 * two of them can never wait for each other.
 *
 * Requests are looked at in the order in which they came: what an earlier one waits for is out of bounds for later ones of the
 * same user, and at times for all (turns.c).
 */

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "audit.h"
#include "broker-internal.h"
#include "clock.h"
#include "parse.h"
#include "quota.h"
#include "reclaim.h"
#include "request-plan.h"
#include "request.h"
#include "status-line.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"

#define INLINE_CUT_BYTES (UINT64_C(1) << 30) /* cutting off 1 GiB takes 0.3 ms (measured): more is a worker's job */

__attribute__((format(printf, 4, 5))) static void refuse(struct broker *broker, struct request *request, int error,
                                                         const char *fmt, ...) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        va_list args;

        va_start(args, fmt);
        (void) vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        request->refused(request, error, text);
}

static void leave_queue(struct broker *broker, struct request *request) {
        if (broker->next_to_serve == request) /* a callback may cancel others: serve_queue() must not follow a dead link */
                broker->next_to_serve = TAILQ_NEXT(request, link);
        TAILQ_REMOVE(&broker->waiting, request, link);
        broker->n_waiting--;
        turns_leave(broker, request);
}

/* Carrying out */

static void uncharge(struct request_plan *plan) {
        for (size_t i = 1; i < plan->charged.n; i++)
                quota_uncharge_memory(plan->broker->quota, plan->uid, QUOTA_BYTES, plan->charged.at[i].page_size_bytes,
                                      plan->charged.at[i].bytes);
        quota_uncharge(plan->broker->quota, plan->uid, QUOTA_GRANTS, 1);
}

/* Whatever has pages goes back on the shelf. */
static void put_back(struct broker *broker, struct extent *extent) {
        if (extent->file.bytes == 0 || stock_make_ready(broker->stock, extent) < 0)
                returns_drop(broker, extent, /* test_pins= */ false);
}

#define TEXT_FEW_FILES "the daemon may open too few files for so many extents: ask for fewer and larger ones, or raise " \
                       "its limit (LimitNOFILE=, ulimit -n)"

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
                if (request->acquire->on_miss != WIRE_MISS_FILL && plan->result == -ENOSPC) {
                        /* Somebody took the pages meanwhile: back to its place, which is the front, to do without them. */
                        TAILQ_INSERT_HEAD(&broker->waiting, request, link);
                        broker->n_waiting++;
                } else if (plan->result == -ENOSPC)
                        refuse(broker, request, -ENOMEM, "the kernel gave too few pages: somebody took them meanwhile, or a "
                                                         "hugetlb limit of the daemon's cgroup is reached");
                else
                        refuse(broker, request, plan->result, "preparing the memory failed: %s",
                               plan->result == -EMFILE ? TEXT_FEW_FILES : strerror(-plan->result));
        }
        request_plan_free(plan);
        broker_kick(broker);
}

static void count_piece(struct node_pool *np, const struct plan_piece *piece) {
        uint64_t *const counts[] = {
                [PLAN_EXACT] = &np->n_exact, [PLAN_CUT] = &np->n_cut, [PLAN_GROW] = &np->n_grown, [PLAN_BUILD] = &np->n_built};

        (*counts[piece->how])++;
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
                r = grant_new(broker, request->identity, plan->service, request_plan_n_pieces(plan), &grant);
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
        request_plan_free(plan);
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
        request_plan_free(plan);
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

static int start_piece(struct request_plan *plan, struct plan_piece *piece) {
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
                                plan->result = start_piece(plan, piece);
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

/* Whoever held it before may have it pinned: then it stays his. */
static int drop_for(struct request_plan *plan, struct extent *extent) {
        struct stock *stock = plan->broker->stock;

        if (extent->sealed)
                return stock_test_and_drop(stock, extent, returns_last_uid(extent), JOB_WAITING, drop_done, plan);
        return stock_drop(stock, extent, JOB_WAITING, drop_done, plan);
}

/* What is to be built is on the books before anything is dropped for it, or the pool would fill that place by itself. */
static int add_pieces(struct request_plan *plan) {
        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_pieces; k++) {
                        struct plan_piece *piece = &plan->items[i].pieces[k];

                        if (piece->how == PLAN_BUILD &&
                            pool_add(plan->items[i].node_pool, EXTENT_CLAIMED, piece->bytes, &piece->extent) < 0)
                                return -ENOMEM;
                }
        return 0;
}

static void start_drops(struct request_plan *plan) {
        struct broker *broker = plan->broker;

        plan->n_drops_pending = 1;
        plan->result = add_pieces(plan);
        for (size_t i = 0; i < plan->n_items; i++)
                for (size_t k = 0; k < plan->items[i].n_drops; k++) {
                        struct extent *extent = plan->items[i].drops[k];

                        stock_forget(broker->stock, extent);
                        extent->n_asked = 0;
                        pool_move(extent, EXTENT_DROPPING);
                        if (drop_for(plan, extent) >= 0)
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
                request_needs_add(&plan->charged, plan->items[i].node_pool->pool->page_size_bytes, pool_plan_bytes(&plan->items[i]));
        r = quota_charge(quota, plan->uid, QUOTA_GRANTS, 1);
        if (r < 0)
                return r;
        if (request_find_excess(plan->broker, plan->uid, &plan->charged, /* is_back= */ false)) {
                quota_uncharge(quota, plan->uid, QUOTA_GRANTS, 1);
                return -EDQUOT;
        }
        for (size_t i = 1; i < plan->charged.n; i++) /* cannot fail: the user is on the books for the grant */
                (void) quota_charge_memory_anyway(quota, plan->uid, QUOTA_BYTES, plan->charged.at[i].page_size_bytes,
                                                  plan->charged.at[i].bytes);
        return 0;
}

static void refuse_quota(struct request_plan *plan, int r) {
        char text[WIRE_MAX_TEXT_BYTES + 1];

        if (r == -EDQUOT)
                request_explain_quota(plan->broker, plan->request, &plan->charged, text);
        refuse(plan->broker, plan->request, r, "%s", r == -EDQUOT ? text : "the daemon is out of memory");
}

/* The request has left the queue. */
static void plan_begin(struct request_plan *plan) {
        struct request *request = plan->request;
        int r = charge(plan);

        if (r < 0) {
                for (size_t i = 0; i < plan->n_items; i++)
                        pool_plan_undo(&plan->items[i]);
                refuse_quota(plan, r);
                request_plan_free(plan);
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

/* Serving */

/*
 * What this request waits for is not for later ones of its user, nor for anybody's when it will be served in a moment.
 * PLAN_AUDITED: at the end of a slice, which nothing makes shorter.
 */
static void claim_candidates(struct broker *broker, struct request *request, int result) {
        for (size_t i = 0; i < request->acquire->n_items; i++) {
                struct request_candidates candidates;

                request_find_candidates(broker, &request->acquire->items[i], &candidates);
                for (size_t k = 0; k < candidates.n; k++) {
                        struct node_pool *np = candidates.node_pools[k];

                        np->claimed = true;
                        if (result == PLAN_NO)
                                turns_claim(broker, np, request);
                        else
                                np->is_held = true;
                        audit_let_go(broker->audit, np);
                        if (result == PLAN_AUDITED)
                                continue;
                        if (np->blocked)
                                refill_stop(broker, np);
                        refill_raise(broker, np, JOB_WAITING);
                }
        }
}

static void refuse_miss(struct broker *broker, struct request *request) {
        bool fill = request->acquire->on_miss == WIRE_MISS_FILL;

        refill_note_refusal(broker, request);
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
        int r = request_plan_make(broker, request, &plan);

        if (r == PLAN_YES) {
                leave_queue(broker, request);
                plan_begin(plan);
                return;
        }
        if (r == PLAN_QUIESCE || r == PLAN_AUDITED || (r == PLAN_NO && request->acquire->on_miss == WIRE_MISS_WAIT)) {
                claim_candidates(broker, request, r);
                return;
        }
        if (r == -EMFILE && request->acquire->on_miss == WIRE_MISS_WAIT) {
                turns_wait_alone(broker, request);
                return;
        }
        leave_queue(broker, request);
        if (r == -EMFILE)
                refuse(broker, request, -ENOMEM, "the last extents that the limit of open files allows are kept for users with little: "
                                                 "release some, or have LimitNOFILE= raised");
        else if (r < 0)
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
        turns_begin_walk(broker);
        BROKER_FOREACH_NODE_POOL(broker, np)
                np->claimed = np->blocked = false;
        broker->next_to_serve = TAILQ_FIRST(&broker->waiting);
        while ((request = broker->next_to_serve)) {
                broker->next_to_serve = TAILQ_NEXT(request, link);
                if (request_awaits_quota(broker, request))
                        turns_wait_alone(broker, request);
                else
                        serve(broker, request);
        }
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (!refill_is_lacking(broker, np))
                        pool_end_paced_wait(np, clock_ms());
        broker->serving = false;
}

static void set_deadline_timer(struct broker *broker) {
        uint64_t now_ms = clock_ms(), first_ms = turns_end_ms(broker);
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
        request->turn_from_ms = 0;
        request->has_turn = false;
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

void broker_count_refused(struct broker *broker) {
        broker->n_refused_total++;
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
                r = broker_timer_new(broker, due_on_timer, &broker->due_timer);
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
        TAILQ_INIT(&broker->due_grants);
        TAILQ_INIT(&broker->due_extents);
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
        struct event *timers[] = {broker->kick,        broker->deadline_timer, broker->retry_timer, broker->sweep_timer,
                                  broker->unmap_timer, broker->affinity_timer, broker->due_timer, broker->status_timer};
        for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
                if (timers[i])
                        event_free(timers[i]);
        free(broker);
        return NULL;
}
