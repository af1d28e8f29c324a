/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One client: handshake, requests, replies, hang-up. One reply with fds unread at a time (SIOCOUTQ), bounded input and output.
 * Loop thread only.
 */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

struct server;
struct session;

/* What sessions share; server.c owns it. */
struct session_context {
        struct event_base *base;
        const struct config *config;
        struct broker *broker;
        struct quota *quota;
        struct worker_pool *closer;
        struct server *server;
        uint32_t n_fds_in_flight; /* sent and not yet read, all sessions */
};

/* @fd: accepted, non-blocking; owned by the session from here on, also on failure. */
int session_new(struct session_context *context, int fd, struct session **ret_session);
struct session *session_free(struct session *session);
/* Somebody's in-flight fds were read or a send found ETOOMANYREFS: try to send what is pending. */
void session_retry_send(struct session *session);
/* server.c: called by a session that has ended (it is freed from the loop, not from inside its own callback). */
void server_session_ended(struct server *server, struct session *session);
/* server.c: room among the fds in flight; wakes the sessions that wait for it. */
void server_fds_read(struct server *server);
