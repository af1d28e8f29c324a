/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Memory that comes back. What is known about an extent (events, the flock question, a look at the file) goes into
 * reclaim_decide(); this file carries out its answers: ask again, grace period, then scrub, renew or drop.
 */

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>

#include "audit.h"
#include "broker-internal.h"
#include "clock.h"
#include "identity.h"
#include "ledger.h"
#include "log-limit.h"
#include "parse.h"
#include "reclaim.h"
#include "stock.h"
#include "warm.h"

#define BUSY_RETRY_MS 1       /* chosen: a munmap of the daemon's own mapping is under way, which takes microseconds */
#define PIN_FIRST_MS 1000     /* chosen: pins of a killed io_uring user were seen to live 36 ms */
#define PIN_MAX_MS 60000      /* chosen: each test of a pinned extent takes 165 ms. Until then twice as long each time */
#define SURELY_HELD 3         /* somebody closed it, but as many questions, within 11 ms, said that somebody has it */
#define MAX_OPENS 64          /* chosen: more than any honest client's; whoever spins would keep the loop busy with events */

static void ask(struct broker *broker, struct extent *extent);
static void end_grace(struct broker *broker, struct extent *extent);

static struct broker *broker_of(const struct extent *extent) {
        return extent->node_pool->pool->broker;
}

void returns_do_due(struct broker *broker, struct extent *extent) {
        switch (extent->state) {
        case EXTENT_GRANTED:
                ask(broker, extent);
                break;
        case EXTENT_RETURNED:
                end_grace(broker, extent);
                break;
        case EXTENT_PINNED:
                if (!extent->work) /* else the sweep was faster */
                        returns_drop(broker, extent, /* test_pins= */ true);
                break;
        default:
                break;
        }
}

static void on_extent_timer(int fd, short what, void *userdata) {
        struct extent *extent = userdata;

        due_extent(broker_of(extent), extent);
}

static int set_timer(struct broker *broker, struct extent *extent, uint64_t delay_ms) {
        if (!extent->timer)
                extent->timer = evtimer_new(broker->base, on_extent_timer, extent);
        if (!extent->timer)
                return -ENOMEM;
        broker_timer_set(extent->timer, delay_ms);
        return 0;
}

static void free_timer(struct extent *extent) {
        if (extent->timer)
                event_free(extent->timer);
        extent->timer = NULL;
}

/* Dropping */

void returns_discard(struct extent *extent) {
        charges_set_extra(broker_of(extent), extent, 0, 0);
        grant_forget_extent(extent);
        due_forget(broker_of(extent), extent);
        free_timer(extent);
        pool_remove(extent);
}

static uint64_t pin_delay_ms(unsigned n_asked) {
        return n_asked < 6 ? PIN_FIRST_MS << n_asked : PIN_MAX_MS;
}

void returns_finish_drop(struct broker *broker, struct extent *extent, int r) {
        if (r != -EBUSY) {
                returns_discard(extent);
                return;
        }
        pool_move(extent, EXTENT_PINNED);
        grant_note_returning(extent, false);
        if (!extent->grant && extent->service && service_uid(extent->service) != SERVICE_OF_ALL && extent->extra_bytes == 0)
                charges_set_extra(broker, extent, service_uid(extent->service), extent->bytes);
        if (extent->grant || extent->extra_bytes > 0)
                warm_note(broker->warm, extent, LEDGER_PINNED);
        /* Without a timer the sweep asks again. */
        (void) set_timer(broker, extent, pin_delay_ms(extent->n_asked++));
}

static void drop_done(void *userdata, struct extent *extent, int r) {
        struct broker *broker = userdata;

        if (broker->stopping)
                return;
        returns_finish_drop(broker, extent, r);
        broker_kick(broker); /* what was to be replaced waited for it to be gone */
}

uid_t returns_last_uid(const struct extent *extent) {
        if (extent->grant)
                return extent->grant->uid;
        if (extent->extra_bytes > 0)
                return extent->extra_uid;
        return extent->service ? service_uid(extent->service) : (uid_t) -1;
}

void returns_drop(struct broker *broker, struct extent *extent, bool test_pins) {
        int r;

        stock_forget(broker->stock, extent);
        if (extent->timer)
                (void) event_del(extent->timer);
        if (extent->state != EXTENT_PINNED) { /* which it stays while it is tested again, and waits for that */
                extent->n_asked = 0;
                pool_move(extent, EXTENT_DROPPING);
        }
        if (test_pins)
                r = stock_test_and_drop(broker->stock, extent, returns_last_uid(extent), JOB_DROP, drop_done, broker);
        else
                r = stock_drop(broker->stock, extent, JOB_DROP, drop_done, broker);
        if (r < 0) {
                /* No memory for a job: here and now, which blocks the loop for a moment, but loses no page. */
                extent_file_done(&extent->file);
                drop_done(broker, extent, 0);
        }
}

void returns_resume_pinned(struct broker *broker, struct extent *extent, uid_t uid) {
        charges_set_extra(broker, extent, uid, extent->bytes);
        returns_drop(broker, extent, /* test_pins= */ true);
}

static void log_doubt(struct broker *broker, const struct extent *extent, const char *id, const char *reason) {
        char size[FORMAT_SIZE_BYTES];

        broker->n_doubts++;
        if (!log_limit_pass(LOG_LIMIT_DOUBTS, extent->grant ? extent->grant->uid : LOG_NO_USER))
                return;
        if (!extent->grant) /* it was ready, or its grant is over */
                log_notice(LOG_ID_MEMORY_LOST, LOG_FIELDS(LOG_NODE_POOL(extent->node_pool), LOG_NUMBER("ERRNO", EBUSY)),
                           "pool %s, node %d: an extent of %s that nobody had %s", extent->node_pool->pool->name,
                           extent->node_pool->node, format_size(extent->bytes, size), reason);
        else
                log_notice(id,
                           LOG_FIELDS(LOG_NUMBER("GRANT", extent->grant->id), LOG_NUMBER("UID", extent->grant->uid),
                                      LOG_NODE_POOL(extent->node_pool)),
                           "memory of grant %lu (uid %u) %s", (unsigned long) extent->grant->id, (unsigned) extent->grant->uid,
                           reason);
}

static bool hides_pins(const struct extent *extent) {
        struct extent_check check;

        return extent_file_check(&extent->file, &check) < 0 || check.hides_pins;
}

void returns_drop_doubtful(struct broker *broker, struct extent *extent) {
        /* Sealed or grown, but the kernel has said that it was the only description. */
        bool is_free = extent->close_event && !extent->foreign_open && !extent->doubt;
        bool test_pins = is_free && !hides_pins(extent);

        /* A reopenable grant is reopened as a matter of course. */
        if (!extent->reopenable || !extent->foreign_open)
                log_doubt(broker, extent, LOG_ID_DOUBT,
                          extent->foreign_open ? "goes back to the kernel, not into the pool: somebody opened it by himself" :
                          extent->doubt ? "goes back to the kernel, not into the pool: events about it were lost" :
                                          "goes back to the kernel, not into the pool: its holder sealed or grew it");
        if (!test_pins)
                charges_let_linger(broker, extent, /* watch= */ !is_free);
        returns_drop(broker, extent, test_pins);
}

/* After the grace period */

static void renew(struct broker *broker, struct extent *extent) {
        pool_move(extent, EXTENT_RENEWING);
        broker_kick(broker);
}

static void keep_timer(struct broker *broker) {
        if (!evtimer_pending(broker->affinity_timer, NULL))
                broker_timer_set(broker->affinity_timer, broker->config->affinity_timeout_ms);
}

static void scrub_done(void *userdata, struct extent *extent, int r) {
        struct broker *broker = userdata;

        if (broker->stopping)
                return;
        refill_end_hurry(extent);
        if (r < 0 || extent->foreign_open) {
                if (r != -ENOSPC && log_limit_pass(LOG_LIMIT_JOBS, LOG_NO_USER))
                        log_notice(LOG_ID_NOT_KEPT,
                                   LOG_FIELDS(LOG_NODE_POOL(extent->node_pool), LOG_NUMBER("ERRNO", -r)),
                                   "a returned extent of pool %s on node %d is dropped instead of kept: %s",
                                   extent->node_pool->pool->name, extent->node_pool->node,
                                   r == -EXDEV      ? "its holder moved, sealed or grew it" :
                                   r == -EHWPOISON  ? "its memory has failed; the kernel's log says where" :
                                   r == -EFAULT     ? "pages of it were missing and could not be had back" :
                                                      "it could not be cleared");
                returns_drop(broker, extent, /* test_pins= */ !hides_pins(extent));
                return;
        }
        broker->scrubbed_bytes_total += extent->bytes;
        extent->node_pool->zeroed_bytes_total += extent->bytes;
        r = stock_make_ready(broker->stock, extent);
        if (r < 0)
                returns_drop(broker, extent, /* test_pins= */ true);
        else
                keep_timer(broker);
        broker_kick(broker);
}

/*
 * A reopenable extent is never kept: an O_PATH descriptor of it, which no event tells of (measured on 6.18), would open the next
 * holder's memory.
 */
static bool may_keep(const struct broker *broker, const struct extent *extent) {
        const struct pool *pool = extent->node_pool->pool;

        if (pool->extent_bytes != 0 && pool->extent_bytes != extent->bytes)
                return false; /* of another pool, before a restart */
        return !extent->reopenable && broker->config->recycle != CONFIG_RECYCLE_NEVER &&
               broker->config->affinity_timeout_ms > 0 && extent->service && service_exists(extent->service);
}

static void end_grace(struct broker *broker, struct extent *extent) {
        if (extent->foreign_open || extent->doubt) {
                returns_drop_doubtful(broker, extent);
                return;
        }
        if (!may_keep(broker, extent)) {
                renew(broker, extent);
                return;
        }
        charges_set_extra(broker, extent, 0, 0);
        grant_forget_extent(extent);
        free_timer(extent); /* ready extents have none: whoever drops one does not look for it */
        pool_move(extent, EXTENT_SCRUBBING);
        if (stock_scrub(broker->stock, extent, refill_scrub_urgency(extent), scrub_done, broker) < 0) {
                refill_end_hurry(extent);
                returns_drop(broker, extent, /* test_pins= */ true);
        }
}

static void begin_grace(struct broker *broker, struct extent *extent) {
        service_unref(extent->service);
        extent->service = extent->grant->service ? service_ref(extent->grant->service) : NULL;
        extent->returned_ms = clock_ms();
        charges_note_punched(broker, extent);
        pool_move(extent, EXTENT_RETURNED);
        grant_note_returning(extent, true);
        warm_note(broker->warm, extent, LEDGER_RETURNED);
        if (set_timer(broker, extent, broker->config->release_grace_ms) < 0)
                returns_drop(broker, extent, /* test_pins= */ true);
}

/* Asking */

static bool is_suspect(const struct extent *extent) {
        struct extent_check check;

        if (extent_file_check(&extent->file, &check) < 0)
                return true;
        return check.foreign_seal || check.size_bytes > extent->bytes || check.present_bytes > extent->bytes;
}

/* "Free" without an event: it may have been closed since the queue was read last. True: nothing was heard of that. */
static bool is_unlocked(struct broker *broker, struct extent *extent) {
        uint64_t grant_id = extent->grant->id;
        uint32_t position = extent->position;
        const struct grant *grant;

        reclaim_drain(broker->reclaim);
        grant = grant_find(broker, grant_id); /* what came may have been the end of all this */
        return grant && grant->extents[position].extent == extent && extent->state == EXTENT_GRANTED && !extent->close_event;
}

static void ask(struct broker *broker, struct extent *extent) {
        int held = extent_file_is_held(&extent->file);
        struct reclaim_facts facts = {
                .close_event = extent->close_event,
                .foreign_open = extent->foreign_open,
                .held = held > 0,
                .doubt = extent->doubt || held < 0 || (held == 0 && extent->close_event && is_suspect(extent)),
        };
        enum reclaim_action action = reclaim_decide(&facts);

        if (action != RECLAIM_FREE)
                charges_note_growth(broker, extent);
        if (action == RECLAIM_KEEP) {
                grant_note_returning(extent, false);
                if (held == 0 && !extent->unlocked && is_unlocked(broker, extent)) {
                        extent->unlocked = true;
                        log_doubt(broker, extent, LOG_ID_UNLOCKED,
                                  "was unlocked by its holder; it is his until the kernel says that he has let go");
                }
                return;
        }
        if (action == RECLAIM_ASK_AGAIN) {
                /* Without memory for a timer the sweep asks again. */
                (void) set_timer(broker, extent, reclaim_ask_delay_ms(extent->n_asked++));
                grant_note_returning(extent, extent->n_asked < SURELY_HELD);
                return;
        }
        if (extent->work) {
                (void) set_timer(broker, extent, BUSY_RETRY_MS);
                return;
        }
        if (action == RECLAIM_FREE)
                begin_grace(broker, extent);
        else
                returns_drop_doubtful(broker, extent);
}

/* Nothing is heard of it any more: it has to be asked about by timer. */
static bool is_quiet(const struct extent *extent) {
        return extent->n_opens >= MAX_OPENS;
}

static void note_open_grant(struct broker *broker, struct extent *extent) {
        if (extent->n_opens == 0)
                warm_note(broker->warm, extent, LEDGER_GRANTED);
        /* Once: each of his closes is a close event too, so that one alone says nothing about being quiet already. */
        if (++extent->n_opens != MAX_OPENS || reclaim_quiet(broker->reclaim, extent->file.fd) < 0)
                return;
        extent->close_event = true; /* no event will tell any more: ask by timer */
        due_extent(broker, extent);
}

void returns_on_event(void *context, bool opened) {
        struct extent *extent = context;
        struct broker *broker = broker_of(extent);

        if (opened) {
                extent->foreign_open = true;
                if (extent->state == EXTENT_GRANTED)
                        note_open_grant(broker, extent);
                if (extent->state == EXTENT_READY) { /* root can open the daemon's own descriptors: that memory has a holder now */
                        pool_move(extent, EXTENT_CLAIMED);
                        returns_drop_doubtful(broker, extent);
                }
        } else if (extent->state == EXTENT_GRANTED) {
                extent->close_event = true;
                extent->n_asked = 0;
                grant_note_returning(extent, true);
                due_extent(broker, extent);
        }
}

static void ask_all(struct broker *broker, struct node_pool *np, bool doubt) {
        struct extent *extent;

        TAILQ_FOREACH(extent, &np->extents[EXTENT_GRANTED], link) {
                if (doubt) {
                        extent->doubt = true;
                        extent->close_event = is_quiet(extent);
                        warm_note(broker->warm, extent, LEDGER_GRANTED);
                }
                due_extent(broker, extent);
        }
}

void returns_on_overflow(void *userdata) {
        struct broker *broker = userdata;

        if (log_limit_pass(LOG_LIMIT_EVENTS, LOG_NO_USER))
                log_warning(LOG_ID_EVENTS_LOST, LOG_NO_FIELDS,
                            "events about granted memory were lost (the inotify queue overflowed): it will go back to the kernel "
                            "when it is returned; raise fs.inotify.max_queued_events if this happens again");
        reclaim_find_gone(broker->reclaim);
        BROKER_FOREACH_NODE_POOL(broker, np)
                ask_all(broker, np, /* doubt= */ true);
}

void returns_catch_up(struct broker *broker) {
        struct extent *extent;

        reclaim_drain(broker->reclaim);
        reclaim_find_gone(broker->reclaim);
        BROKER_FOREACH_NODE_POOL(broker, np) {
                /* The predecessor may have read the event of its end, and died of something else before it wrote that down. */
                TAILQ_FOREACH(extent, &np->extents[EXTENT_GRANTED], link)
                        if (!extent->close_event && extent_file_is_held(&extent->file) == 0)
                                extent->doubt = true;
                ask_all(broker, np, /* doubt= */ false);
        }
}

void returns_resume(struct broker *broker, struct extent *extent) {
        if (extent->foreign_open || extent->doubt || extent_file_is_held(&extent->file) != 0) {
                returns_drop_doubtful(broker, extent);
                return;
        }
        pool_move(extent, EXTENT_RETURNED);
        if (set_timer(broker, extent, broker->config->release_grace_ms) < 0)
                returns_drop(broker, extent, /* test_pins= */ true);
}

/* Memory that is kept for a service for too long, or for one that is gone, is renewed so that it can serve anybody. */
static uint64_t expire_shelf(struct broker *broker, struct shelf *shelf, uint64_t now_ms) {
        uint64_t next_ms = UINT64_MAX;
        bool exists = service_exists(shelf->service);
        struct extent *extent, *next;

        for (extent = TAILQ_FIRST(&shelf->extents); extent; extent = next) {
                uint64_t due_ms = extent->returned_ms + broker->config->affinity_timeout_ms;

                next = TAILQ_NEXT(extent, link);
                if (!exists || due_ms <= now_ms)
                        renew(broker, extent);
                else if (due_ms - now_ms < next_ms)
                        next_ms = due_ms - now_ms;
        }
        return next_ms;
}

void returns_on_affinity(int fd, short what, void *userdata) {
        struct broker *broker = userdata;
        uint64_t now_ms = clock_ms(), next_ms = UINT64_MAX;

        BROKER_FOREACH_NODE_POOL(broker, np) {
                struct shelf *shelf;

                TAILQ_FOREACH(shelf, &np->shelves, link) {
                        uint64_t due_ms = shelf->service ? expire_shelf(broker, shelf, now_ms) : UINT64_MAX;

                        if (due_ms < next_ms)
                                next_ms = due_ms;
                }
        }
        if (next_ms != UINT64_MAX)
                broker_timer_set(broker->affinity_timer, next_ms);
}

/* Those for whose timer there was no memory. */
static void ask_pinned(struct broker *broker, struct node_pool *np) {
        struct extent *extent, *next;

        for (extent = TAILQ_FIRST(&np->extents[EXTENT_PINNED]); extent; extent = next) {
                next = TAILQ_NEXT(extent, link);
                if (!extent->work && !(extent->timer && evtimer_pending(extent->timer, NULL)))
                        returns_drop(broker, extent, /* test_pins= */ true);
        }
}

void returns_on_sweep(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        reclaim_collect_in_flight();
        reclaim_drain(broker->reclaim);
        BROKER_FOREACH_NODE_POOL(broker, np) {
                ask_all(broker, np, /* doubt= */ false);
                ask_pinned(broker, np);
                pool_drop_empty_shelves(np);
        }
        returns_on_affinity(-1, 0, broker);
        charges_sweep(broker);
        audit_on_sweep(broker->audit);
        log_limit_sweep();
        broker_timer_set(broker->sweep_timer, broker->config->sweep_interval_ms);
}

uint8_t returns_wire_state(const struct extent *extent) {
        switch (extent->state) {
        case EXTENT_CLAIMED:
        case EXTENT_GRANTED:
                return extent->close_event && extent->n_asked < SURELY_HELD ? WIRE_EXTENT_RETURNING : WIRE_EXTENT_HELD;
        case EXTENT_PINNED:
                return WIRE_EXTENT_PINNED;
        default:
                return WIRE_EXTENT_RETURNING;
        }
}

static void dispose(struct broker *broker, struct extent *extent) {
        if (extent->slot >= 0)
                stock_close_grant_fd(extent); /* the watch is for the successor, like the rest of it */
        else
                stock_forget(broker->stock, extent);
        extent_file_done(&extent->file);
        returns_discard(extent);
}

void returns_free_all(struct broker *broker) {
        BROKER_FOREACH_NODE_POOL(broker, np) {
                struct extent *extent;
                struct shelf *shelf;

                for (int state = 0; state < _EXTENT_STATE_MAX; state++)
                        while ((extent = TAILQ_FIRST(&np->extents[state])))
                                dispose(broker, extent);
                TAILQ_FOREACH(shelf, &np->shelves, link)
                        while ((extent = TAILQ_FIRST(&shelf->extents)))
                                dispose(broker, extent);
        }
        charges_end_all(broker);
}
