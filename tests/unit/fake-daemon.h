/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A daemon for tests of the library: real sockets, real descriptors, and whatever script a test gives it, wrong ones included.
 * Each client has a thread of its own. In these threads must() takes the place of cmocka's assertions, which would jump.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wire.h"

#define FAKE_MAX_CLIENTS 32

#define must(condition)                                                                                                        \
        do {                                                                                                                   \
                if (!(condition)) {                                                                                            \
                        (void) fprintf(stderr, "%s:%d: must: %s\n", __FILE__, __LINE__, #condition);                           \
                        abort();                                                                                               \
                }                                                                                                              \
        } while (0)

struct fake_daemon;
/* Serves one client until it returns; @fd is closed then. */
typedef void (*fake_script_fn)(struct fake_daemon *fake, int fd);

struct fake_daemon {
        char folder[32], path[64];
        fake_script_fn script;
        int listener;
        pthread_t thread;
        pthread_mutex_t lock; /* protects what follows */
        unsigned n_clients;   /* so far */
        pthread_t clients[FAKE_MAX_CLIENTS];
        int client_fds[FAKE_MAX_CLIENTS];
        void *data; /* the test's */
};

/* Listens at fake->path before it returns. */
void fake_start(struct fake_daemon *fake, fake_script_fn script, void *data);
/* Hangs up on everybody, waits for the scripts to end, removes the socket. */
void fake_stop(struct fake_daemon *fake);

/* The next message, which must be @op when that is not 0; false when the client has gone. */
bool fake_receive(int fd, uint16_t op, struct wire_message *ret_message);
void fake_send(int fd, const struct wire_message *message, const int *fds, size_t n_fds);
/* The exchange of greetings; false when the client has gone. */
bool fake_greet(int fd);
void fake_refuse(int fd, uint32_t request_id, int error, const char *text);

/* A sparse memfd of ordinary pages; page_shift 12 describes it truthfully. */
int fake_memfd(uint64_t bytes);
/* A memfd of 2 MiB pages, all populated; negative errno where the machine has none left. */
int fake_hugetlb_memfd(uint64_t bytes);
/* One extent per descriptor, each @bytes of pages of 1 << @page_shift, item 0 on node 0; in as many messages as it takes. */
void fake_grant(int fd, uint32_t request_id, uint64_t grant_id, const int *fds, size_t n_fds, uint64_t bytes,
                uint8_t page_shift);
