/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The pin tests of a node: one at a time, on threads of their own, since the kernel sleeps for 165 ms over one that finds pins;
 * several at a time where a client waits for them. Who is not known to have pinned memory goes first; the others take turns, and
 * their extents are in state PINNED meanwhile. Loop thread.
 */
#pragma once

#include <stddef.h>
#include <sys/queue.h>
#include <sys/types.h>

struct event_base;
struct topology;
struct work;
struct worker_pool;

#define PIN_TESTS_UIDS 64 /* chosen: users who are remembered for their pins; more than that are forgotten in turn */

struct pin_tests {
        struct worker_pool *tester;
        TAILQ_HEAD(, work) waiting;
        unsigned n_running;
        size_t n_uids;
        uid_t uids[PIN_TESTS_UIDS]; /* whose last test found pins; the latest one last */
};

int pin_tests_init(struct pin_tests *tests, struct event_base *base, const struct topology *topology, int node);
/* Of a work that drops an extent with the pin test; it is submitted when it is its turn. */
void pin_tests_add(struct pin_tests *tests, struct work *work);
/* It has ended, as its result says. The next one begins. */
void pin_tests_end(struct pin_tests *tests, const struct work *work);
/* What waits or runs ends with -ECANCELED. */
void pin_tests_done(struct pin_tests *tests);
