/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Real sessions (and a real server) on a real socket, with a broker that grants small memfds and keeps count. Clients live in
 * the same thread: the loop runs only while a client waits, so the order of things is the test's.
 */
#pragma once

#include "testing.h"

#include <event2/event.h>
#include <stdbool.h>
#include <sys/un.h>

#include "broker.h"
#include "config.h"
#include "quota.h"
#include "server.h"
#include "session.h"
#include "wire.h"
#include "worker.h"

struct broker {
        TAILQ_HEAD(, request) waiting;
        unsigned n_waiting, n_cancelled, n_abandoned, n_refused, n_mapped, n_grants; /* n_grants: not completely sent or abandoned */
        unsigned n_extents_sent;
        uint64_t last_grant_id, mapped_grant_id;
        uint32_t first_row;
        int release_result;
        struct grant *ahead;
};

struct fixture {
        struct event_base *base;
        struct config config;
        struct quota *quota;
        struct worker_pool *closer;
        struct broker broker;
        struct server *server; /* NULL: sessions are made by hand, in the context */
        struct session_context context;
        unsigned n_ended; /* of sessions made by hand */
        int n_fds_before;
        char folder[64];
};

/* cmocka's setup and teardown: with the server, or with sessions made by hand so that their context can be set. */
int fixture_setup_server(void **state);
int fixture_setup_sessions(void **state);
int fixture_teardown(void **state);           /* fails when a descriptor, a charge or a grant is left */
void fixture_settle(struct fixture *fixture); /* until nothing is left to do */
/* Until the closer has closed what it had to and @n_charged connections are left. */
void fixture_wait_connections(struct fixture *fixture, uint64_t n_charged);
void fixture_grant_waiting(struct fixture *fixture); /* the oldest */
/* What the next fixture_grant_waiting() grants, when it is not to need descriptors then. */
void fixture_make_grant_ahead(struct fixture *fixture, uint32_t n_extents);

int client_connect(const struct fixture *fixture); /* no handshake; -errno on failure */
int client_open(struct fixture *fixture);          /* with handshake */
void client_send(int fd, const struct wire_message *message);
void client_send_op(int fd, uint16_t op, uint32_t request_id);
/* Asks for @n_fds descriptors; @on_miss WIRE_MISS_WAIT waits for fixture_grant_waiting(), _FAIL is granted, _FILL refused. */
void client_acquire(int fd, uint32_t request_id, uint32_t n_fds, enum wire_on_miss on_miss);
/* One packet that is there already. Returns its length, 0 or a negative errno; descriptors are checked and closed. */
ssize_t client_try_receive(int fd, struct wire_message *ret_message);
void client_receive(struct fixture *fixture, int fd, uint16_t op, struct wire_message *ret_message);
void client_expect_grant(struct fixture *fixture, int fd, uint32_t request_id, uint32_t first_extent, uint32_t n_extents);
void client_expect_refused(struct fixture *fixture, int fd, uint32_t request_id, int error, const char *word);
void client_expect_closed(struct fixture *fixture, int fd);
void client_expect_nothing(struct fixture *fixture, int fd);
/* A file to send, such that the test can tell when the last copy is closed. */
int pipe_to_send(int *ret_write_fd);
int send_with_fd(int fd, const void *packet, size_t n_bytes, int fd_to_send);

#define session_test(name) cmocka_unit_test_setup_teardown(name, fixture_setup_server, fixture_teardown)
#define bare_session_test(name) cmocka_unit_test_setup_teardown(name, fixture_setup_sessions, fixture_teardown)
