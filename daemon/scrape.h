/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures by HTTP, for a monitoring system, on listeners that the service manager passed. Loop thread only. */
#pragma once

#include <stddef.h>

struct broker;
struct event_base;
struct scrape;
struct server;

/*
 * scrape_new - answer GET /metrics
 * @fds: @n_fds listening stream sockets, Unix or TCP; at most MAX_METRICS_SOCKETS. Those that are served are taken (-EBADF).
 * One that cannot be served without harm is left out, with a warning in the log: clients matter more. *ret_scrape is NULL
 * where that leaves none.
 */
int scrape_new(struct event_base *base, int fds[], size_t n_fds, struct broker *broker, struct server *server,
               struct scrape **ret_scrape);
struct scrape *scrape_free(struct scrape *scrape);
