/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replies on their way to clients.
 *
 * Whether descriptors were read is asked when it matters, and by a timer as long as some are unread; in the common case of a
 * client that reads and asks again that is one ioctl. Who finds no room among the descriptors in flight waits in a queue; then
 * everybody with unread ones is woken by his client's reading, and the queue is served in order.
 *
 * A sendmsg() that fails with ETOOMANYREFS makes the same edge of writability as a client that reads (6.18: freeing the packet
 * that could not be sent wakes us). So who waits for room is not served because of his own edges.
 */

#include <assert.h>
#include <event2/event.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "broker.h"
#include "cleanup.h"
#include "clock.h"
#include "fdpass.h"
#include "outbox.h"
#include "quota.h"

#define RETRY_MS 100 /* chosen: while descriptors are unread or somebody waits for room */

static void outbox_group_serve(struct outbox_group *group);

static void outbox_pop(struct outbox *outbox) {
        struct outbox_entry *entry = TAILQ_FIRST(&outbox->entries);

        TAILQ_REMOVE(&outbox->entries, entry, link);
        outbox->n_entries--;
        if (entry == &outbox->first_grant)
                outbox->first_grant_used = false;
        else
                free(entry);
}

/* In flight */

static void outbox_group_arm(struct outbox_group *group) {
        if (!event_pending(group->retry, EV_TIMEOUT, NULL))
                (void) event_add(group->retry, &(struct timeval){.tv_usec = RETRY_MS * 1000});
}

static void outbox_forget_unread(struct outbox *outbox) {
        struct outbox_group *group = outbox->group;

        TAILQ_REMOVE(&group->unread, outbox, unread_link);
        group->n_fds_in_flight -= outbox->n_fds_unread;
        quota_uncharge(group->quota, outbox->uid, QUOTA_FDS_IN_FLIGHT, outbox->n_fds_unread);
        outbox->n_fds_unread = 0;
        outbox->blocked_since_ms = 0;
        if (!TAILQ_EMPTY(&group->waiting))
                outbox_group_serve(group);
}

static void outbox_note_unread(struct outbox *outbox, uint32_t n_fds) {
        struct outbox_group *group = outbox->group;

        TAILQ_INSERT_TAIL(&group->unread, outbox, unread_link);
        group->n_fds_in_flight += n_fds;
        outbox->n_fds_unread = n_fds;
        outbox->blocked_since_ms = clock_ms();
        outbox_group_arm(group);
}

/* True when no descriptors are unread. While the kernel wakes us for a reader it still counts 1. */
static bool outbox_all_read(struct outbox *outbox) {
        int n_bytes;

        if (outbox->n_fds_unread == 0)
                return true;
        if (ioctl(outbox->fd, SIOCOUTQ, &n_bytes) < 0 || n_bytes > 1)
                return false;
        outbox_forget_unread(outbox);
        return true;
}

static void outbox_wait_for_room(struct outbox *outbox, int reason) {
        struct outbox_group *group = outbox->group;

        outbox->wait_reason = reason;
        if (reason == -ETOOMANYREFS)
                group->refs_exhausted = true;
        if (outbox->waiting)
                return;
        if (TAILQ_EMPTY(&group->waiting))
                group->count_wanted = true;
        group->serve_again = true;
        outbox->waiting = true;
        TAILQ_INSERT_TAIL(&group->waiting, outbox, waiting_link);
        outbox_group_arm(group);
}

static void outbox_stop_waiting(struct outbox *outbox) {
        if (outbox->waiting)
                TAILQ_REMOVE(&outbox->group->waiting, outbox, waiting_link);
        outbox->waiting = false;
}

static int outbox_take_room(struct outbox *outbox, uint32_t n_fds) {
        struct outbox_group *group = outbox->group;

        /* First come, first served: where there is a queue, room is given out by outbox_group_serve(). */
        if (outbox != group->turn && !TAILQ_EMPTY(&group->waiting)) {
                if (!outbox->waiting)
                        outbox_wait_for_room(outbox, -EUSERS);
                return -EAGAIN;
        }
        int r = quota_charge(group->quota, outbox->uid, QUOTA_FDS_IN_FLIGHT, n_fds);
        if (r < 0) {
                outbox_wait_for_room(outbox, r);
                return -EAGAIN;
        }
        return 0;
}

/* Sending */

/* A share smaller than a full message is sent in smaller ones; where there is none, that of the least one is waited for. */
static unsigned outbox_max_fds(const struct outbox *outbox) {
        uint64_t limit = quota_limit(outbox->group->quota, outbox->uid, QUOTA_FDS_IN_FLIGHT);

        return limit < 1 ? 1 : limit > WIRE_MAX_FDS ? WIRE_MAX_FDS : (unsigned) limit;
}

static int outbox_send_grant_part(struct outbox *outbox, struct outbox_entry *entry) {
        struct outbox_group *group = outbox->group;
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message; /* 4 KiB, not worth clearing: all that is sent is set */
        int fds[WIRE_MAX_FDS], n_bytes, r;

        unsigned n_fds = broker_grant_next(entry->grant, outbox_max_fds(outbox), &message.d_grant, fds);
        if (n_fds == 0) {
                outbox_pop(outbox);
                return 1;
        }
        r = outbox_take_room(outbox, n_fds);
        if (r < 0)
                return r;
        message.op = WIRE_D_GRANT;
        message.request_id = entry->request_id;
        n_bytes = wire_encode(&message, buffer, sizeof(buffer));
        r = n_bytes < 0 ? n_bytes : fdpass_send(outbox->fd, buffer, (size_t) n_bytes, fds, n_fds);
        if (r < 0) {
                quota_uncharge(group->quota, outbox->uid, QUOTA_FDS_IN_FLIGHT, n_fds);
                if (r == -ETOOMANYREFS) {
                        outbox_wait_for_room(outbox, r);
                        return -EAGAIN;
                }
                outbox_stop_waiting(outbox); /* there was room: whatever this is, it is between the client and us */
                return r;
        }
        outbox_stop_waiting(outbox);
        outbox_note_unread(outbox, n_fds);
        struct grant *grant = entry->grant;
        if (message.d_grant.first_extent + message.d_grant.n_extents == message.d_grant.n_extents_total)
                outbox_pop(outbox);
        broker_grant_sent(group->broker, grant, n_fds);
        return 1;
}

/* 1: something was sent; 0: there is nothing; -EAGAIN: not now. */
static int outbox_send_next(struct outbox *outbox) {
        struct outbox_entry *entry = TAILQ_FIRST(&outbox->entries);

        if (!outbox_all_read(outbox))
                return -EAGAIN;
        if (!entry || outbox->closed)
                return 0;
        if (entry->grant)
                return outbox_send_grant_part(outbox, entry);

        int r = fdpass_send(outbox->fd, entry->bytes, entry->n_bytes, NULL, 0);
        if (r < 0)
                return r;
        outbox->blocked_since_ms = 0;
        outbox_pop(outbox);
        return 1;
}

int outbox_flush(struct outbox *outbox) {
        bool was_waiting = outbox->waiting;
        int r;

        if (outbox->flushing)
                return 0;
        outbox->flushing = true;
        do
                r = outbox_send_next(outbox);
        while (r > 0 && outbox->n_entries > 0); /* whether the last one was read is asked when it matters */
        outbox->flushing = false;

        if (outbox->waiting && !was_waiting)
                outbox_group_serve(outbox->group);
        if (r != -EAGAIN)
                return r < 0 ? r : 0;
        if (outbox->waiting)
                return 0; /* for others, which is not the client's fault */
        uint64_t now_ms = clock_ms();
        if (outbox->blocked_since_ms == 0)
                outbox->blocked_since_ms = now_ms;
        return !outbox->closed && now_ms - outbox->blocked_since_ms >= outbox->group->unread_limit_ms ? -ETIMEDOUT : 0;
}

static void outbox_push(struct outbox *outbox, struct outbox_entry *entry) {
        TAILQ_INSERT_TAIL(&outbox->entries, entry, link);
        outbox->n_entries++;
}

int outbox_send(struct outbox *outbox, const struct wire_message *message) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        int r;

        if (outbox->closed)
                return 0;
        int n_bytes = wire_encode(message, buffer, sizeof(buffer));
        if (n_bytes < 0)
                return n_bytes;
        if (outbox->n_entries == 0 && !outbox->flushing && outbox_all_read(outbox)) {
                r = fdpass_send(outbox->fd, buffer, (size_t) n_bytes, NULL, 0);
                if (r != -EAGAIN)
                        return r;
        }
        struct outbox_entry *entry = malloc(sizeof(*entry) + (size_t) n_bytes);
        if (!entry)
                return -ENOMEM;
        *entry = (struct outbox_entry){.n_bytes = (uint32_t) n_bytes, .bytes = memcpy(entry + 1, buffer, (size_t) n_bytes)};
        outbox_push(outbox, entry);
        return outbox_flush(outbox);
}

int outbox_send_grant(struct outbox *outbox, uint32_t request_id, struct grant *grant) {
        struct outbox_entry *entry = outbox->first_grant_used ? malloc(sizeof(*entry)) : &outbox->first_grant;

        if (!entry) {
                broker_grant_abandon(outbox->group->broker, grant);
                return -ENOMEM;
        }
        if (entry == &outbox->first_grant)
                outbox->first_grant_used = true;
        entry->grant = grant;
        entry->request_id = request_id;
        outbox_push(outbox, entry);
        return outbox->closed ? 0 : outbox_flush(outbox);
}

bool outbox_has_grant_for(const struct outbox *outbox, uint32_t request_id) {
        const struct outbox_entry *entry;

        TAILQ_FOREACH (entry, &outbox->entries, link)
                if (entry->grant && entry->request_id == request_id)
                        return true;
        return false;
}

bool outbox_needs_wake(const struct outbox *outbox) {
        return outbox->n_entries > 0 || (outbox->n_fds_unread > 0 && !TAILQ_EMPTY(&outbox->group->waiting));
}

void outbox_init(struct outbox *outbox, struct outbox_group *group, int fd, uid_t uid, void (*changed)(void *userdata, int r),
                 void *userdata) {
        *outbox = (struct outbox){.group = group, .fd = fd, .uid = uid, .changed = changed, .userdata = userdata};
        TAILQ_INIT(&outbox->entries);
}

void outbox_close(struct outbox *outbox) {
        outbox->closed = true;
}

void outbox_clear(struct outbox *outbox) {
        struct outbox_entry *entry;
        bool was_waiting = outbox->waiting;

        assert(outbox->closed && !outbox->flushing);
        while ((entry = TAILQ_FIRST(&outbox->entries))) {
                struct grant *grant = entry->grant;
                outbox_pop(outbox);
                if (grant)
                        broker_grant_abandon(outbox->group->broker, grant);
        }
        outbox_stop_waiting(outbox);
        /* It may have been the one at the head, for which there was no room while there is some for others. */
        if (was_waiting)
                outbox_group_serve(outbox->group);
}

void outbox_done(struct outbox *outbox) {
        outbox_close(outbox);
        outbox_clear(outbox);
        if (outbox->n_fds_unread > 0)
                outbox_forget_unread(outbox);
}

/* All outboxes */

/* Once there is a queue, everybody with unread descriptors has to be told by his client's reading: outbox_needs_wake(). */
static void outbox_group_wake_unread(struct outbox_group *group) {
        struct outbox *outbox, *next;

        for (outbox = TAILQ_FIRST(&group->unread); outbox; outbox = next) {
                next = TAILQ_NEXT(outbox, unread_link);
                (void) outbox_all_read(outbox);
                outbox->changed(outbox->userdata, 0);
        }
}

static void outbox_group_serve(struct outbox_group *group) {
        struct outbox *outbox, *next;

        /* Nested, by what is found out on the way: the outer call goes round again. */
        group->serve_again = true;
        if (group->serving)
                return;
        group->serving = true;
        while (group->serve_again) {
                group->serve_again = false;
                if (group->count_wanted) {
                        group->count_wanted = false;
                        outbox_group_wake_unread(group);
                }
                for (outbox = TAILQ_FIRST(&group->waiting); outbox; outbox = next) {
                        next = TAILQ_NEXT(outbox, waiting_link);
                        group->turn = outbox;
                        int r = outbox_flush(outbox);
                        group->turn = NULL;
                        bool all_must_wait = outbox->waiting && outbox->wait_reason != -EDQUOT;
                        outbox->changed(outbox->userdata, r);
                        if (all_must_wait)
                                break;
                }
        }
        group->serving = false;
}

void outbox_group_count(struct outbox_group *group) {
        group->count_wanted = true;
        outbox_group_serve(group);
}

static void outbox_group_on_retry(evutil_socket_t fd, short events, void *userdata) {
        struct outbox_group *group = userdata;
        struct outbox *outbox, *next;

        group->serving = true; /* what is found out on the way is acted on when the list has been walked */
        for (outbox = TAILQ_FIRST(&group->unread); outbox; outbox = next) {
                next = TAILQ_NEXT(outbox, unread_link);
                int r = outbox_flush(outbox);
                outbox->changed(outbox->userdata, r);
        }
        group->serving = false;
        outbox_group_serve(group);
        if (TAILQ_EMPTY(&group->unread) && TAILQ_EMPTY(&group->waiting))
                (void) event_del(group->retry);
}

int outbox_group_init(struct outbox_group *group, struct event_base *base, struct broker *broker, struct quota *quota) {
        *group = (struct outbox_group){.broker = broker, .quota = quota, .unread_limit_ms = OUTBOX_UNREAD_LIMIT_MS};
        TAILQ_INIT(&group->unread);
        TAILQ_INIT(&group->waiting);
        group->retry = event_new(base, -1, EV_PERSIST, outbox_group_on_retry, group);
        return group->retry ? 0 : -ENOMEM;
}

void outbox_group_done(struct outbox_group *group) {
        assert(!group->retry || (TAILQ_EMPTY(&group->unread) && TAILQ_EMPTY(&group->waiting)));
        if (group->retry)
                event_free(group->retry);
        group->retry = NULL;
}
