/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The listening socket (own or activated) and the set of sessions. Loop thread only. */
#pragma once

#include <stdint.h>

struct broker;
struct config;
struct event_base;
struct quota;
struct server;
struct worker_pool;

/*
 * server_new - make or take over the listening socket and begin to accept
 * @config:      borrowed: path, mode, group
 * @listen_fd:   an activated socket (verified: AF_UNIX, SOCK_SEQPACKET, listening), or -EBADF to make one at
 * config->socket_path. A stale socket file is replaced; one that somebody listens on is -EADDRINUSE; anything else there is
 * -EEXIST. Owned by the server on success.
 * @closer:      one unbound worker that closes connections in which clients left descriptors (closing may block for seconds).
 *               To be freed after the server and before @quota: connections count until they are closed.
 * A failure is logged with what to do about it.
 */
int server_new(struct event_base *base, const struct config *config, int listen_fd, struct broker *broker, struct quota *quota,
               struct worker_pool *closer, struct server **ret_server);
/* Refuses what waits (ESHUTDOWN), closes all sessions, removes a socket file of our own. */
struct server *server_free(struct server *server);
/* After a reload: cuts off those whose users are served no longer. What they hold stays theirs. */
void server_admit_again(struct server *server);
uint32_t server_n_sessions(const struct server *server);
uint32_t server_n_fds_in_flight(const struct server *server);
