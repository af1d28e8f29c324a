/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures by HTTP, for a monitoring system, on a listener that the service manager passed. Loop thread only. */
#pragma once

struct broker;
struct event_base;
struct scrape;
struct server;

/*
 * scrape_new - answer GET /metrics
 * @listen_fd: a listening stream socket, Unix or TCP. Taken, also on failure.
 * *ret_scrape is NULL, with a warning in the log, where the socket cannot be served without harm: clients matter more.
 */
int scrape_new(struct event_base *base, int listen_fd, struct broker *broker, struct server *server,
               struct scrape **ret_scrape);
struct scrape *scrape_free(struct scrape *scrape);
