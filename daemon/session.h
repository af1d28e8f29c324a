/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One client: handshake, requests, replies, hang-up. Bounded input and output. Loop thread only.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "log.h"
#include "outbox.h"
#include "trim.h"

struct broker;
struct config;
struct event;
struct event_base;
struct quota;
struct session;
struct worker_pool;

#define SESSION_MAX_REQUESTS 16    /* chosen: C_ACQUIREs of one connection that are not answered completely */
#define SESSION_HANDSHAKE_MS 10000 /* chosen: from connecting to C_HELLO */

/* What sessions share. */
struct session_context {
        struct event_base *base;
        struct broker *broker;
        struct quota *quota;
        const struct config *config;
        struct event *second; /* while requests of this second are counted */
        struct worker_pool *closer;
        struct trim trim; /* counts sessions and requests */
        /* A session is over: free it. Called from the loop, never from inside session_new(). */
        void (*ended)(struct session_context *context, struct session *session);
        uint64_t handshake_ms;
        struct outbox_group outboxes;
        TAILQ_HEAD(session_list, session) sessions;
        uint32_t n_sessions;
};

int session_context_init(struct session_context *context, struct event_base *base, struct broker *broker, struct quota *quota,
                         const struct config *config, struct worker_pool *closer,
                         void (*ended)(struct session_context *context, struct session *session));
void session_context_done(struct session_context *context); /* all sessions must be gone */

/* @fd: accepted, non-blocking; owned by the session from here on, also on failure, when the client has been told the reason. */
int session_new(struct session_context *context, int fd, struct session **ret_session);
/* Cancels, abandons and closes whatever the client still has here. */
struct session *session_free(struct session *session);
/* Tells the client that its waiting requests are refused; it must be about to end. */
void session_refuse_waiting(struct session *session, int error, const char *text);
/* After a reload: ends those whose users are served no longer. */
void session_context_admit_again(struct session_context *context);
