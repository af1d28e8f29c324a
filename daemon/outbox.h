/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The replies to one client, in order, and the descriptors in flight of all. Loop thread only.
 *
 * A client has one message with descriptors unread at most, and nothing is sent behind it: so the kernel's count of unread
 * bytes (SIOCOUTQ) tells exactly when they have been read. All of them together stay under the quota, because the kernel counts
 * them against the daemon's limit of open files: a client that does not read would otherwise stop hand-out for all.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

struct broker;
struct event;
struct event_base;
struct grant;
struct outbox;
struct quota;
struct wire_message;

#define OUTBOX_UNREAD_LIMIT_MS                                                                                                 \
        30000 /* chosen: a client that leaves what it asked for unread for so long is not coming back                          \
               */

/* What outboxes share. */
struct outbox_group {
        struct broker *broker;
        struct quota *quota;
        uint64_t unread_limit_ms;
        uint32_t n_fds_in_flight;
        bool refs_exhausted; /* the kernel said ETOOMANYREFS; whoever reports it resets it */
        /* outbox.c's own */
        TAILQ_HEAD(outbox_list, outbox) unread, waiting;
        struct event *retry;
        struct outbox *turn; /* the one that may take room although there is a queue */
        bool serving, serve_again, count_wanted;
};

int outbox_group_init(struct outbox_group *group, struct event_base *base, struct broker *broker, struct quota *quota);
void outbox_group_done(struct outbox_group *group); /* all its outboxes must be done */
/* Asks about everybody's unread descriptors: reading is only noticed when somebody needs to know. */
void outbox_group_count(struct outbox_group *group);

struct outbox_entry {
        TAILQ_ENTRY(outbox_entry) link;
        struct grant *grant; /* NULL: the bytes */
        uint32_t request_id;
        uint32_t n_bytes;
        uint8_t *bytes; /* behind the struct */
};

struct outbox {
        struct outbox_group *group;
        int fd; /* borrowed */
        uid_t uid;
        void *userdata;
        /* Something was tried on behalf of all: @r as of outbox_flush(), and outbox_needs_wake() may have changed. */
        void (*changed)(void *userdata, int r);
        unsigned n_entries;
        uint32_t n_fds_unread;
        /* outbox.c's own */
        TAILQ_HEAD(outbox_entries, outbox_entry) entries;
        uint64_t blocked_since_ms; /* since when the client leaves unread what stops us; 0: it does not */
        int wait_reason;           /* why there was no room: -EDQUOT is the uid's own matter, the rest concerns all */
        bool flushing, closed, waiting, first_grant_used;
        TAILQ_ENTRY(outbox) unread_link, waiting_link;
        struct outbox_entry first_grant; /* spares the common case an allocation */
};

void outbox_init(struct outbox *outbox, struct outbox_group *group, int fd, uid_t uid, void (*changed)(void *userdata, int r),
                 void *userdata);
/* Abandons what is pending and forgets what is unread. */
void outbox_done(struct outbox *outbox);
/* Nothing is sent any more. What is unread is still counted. */
void outbox_close(struct outbox *outbox);
/* After outbox_close(): abandons what is pending. Not from inside a callback of the broker. */
void outbox_clear(struct outbox *outbox);

/* All return 0, also when the reply only joined the queue, or a negative errno: the connection is of no more use. */
int outbox_send(struct outbox *outbox, const struct wire_message *message);
int outbox_send_grant(struct outbox *outbox, uint32_t request_id,
                      struct grant *grant); /* the grant is the outbox's, also on failure */
/* Sends what can be sent. -ETIMEDOUT: the client has left unread what stops us for too long. */
int outbox_flush(struct outbox *outbox);

bool outbox_has_grant_for(const struct outbox *outbox, uint32_t request_id);
/* Should it be flushed when the client reads? Else there is nothing to do, or nobody to whom it matters. */
bool outbox_needs_wake(const struct outbox *outbox);
