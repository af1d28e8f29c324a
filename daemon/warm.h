/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents that survive the daemon: their records in the ledger, their fds in the service manager's store. All functions take a
 * NULL warm and then do nothing: without a store every pool is cold. Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "ledger.h"

struct broker;
struct config;
struct event_base;
struct extent;
struct lingering_charge;
struct service;
struct warm;

#define WARM_MAX_INHERITED (LEDGER_MAX_RECORDS + 64)

struct inherited_extent {
        int slot, fd;
};

#define MAX_METRICS_SOCKETS 8 /* chosen: loopback, a management network and a local collector, by both versions of IP */

/* What the service manager passed at start. */
struct inherited {
        int listen_fd, ledger_fd, inotify_fd; /* -EBADF: none */
        size_t n_extents, n_metrics;
        int metrics_fds[MAX_METRICS_SOCKETS];
        struct inherited_extent extents[WARM_MAX_INHERITED];
};

/* Reads and unsets $LISTEN_FDS, $LISTEN_FDNAMES. -EINVAL: more than one socket for clients. */
int inherited_take(struct inherited *ret_inherited);
/* Where the passed socket listens; an abstract name begins with "@". False: none was passed, or it is no unix socket. */
#define INHERITED_PATH_BYTES 109 /* of sockaddr_un, and a 0 */
bool inherited_socket_path(const struct inherited *inherited, char ret_path[INHERITED_PATH_BYTES]);
/* The group that the socket's file was given, if it can give files to that one; (gid_t) -1: none, or root's. */
gid_t inherited_socket_gid(const struct inherited *inherited);
void inherited_done(struct inherited *inherited); /* closes what nobody took */

/*
 * *ret_warm is NULL where nothing may be stored (no store is offered, or WarmExtents=0) and nothing was inherited: else that has to
 * be taken out of the store. Takes @inherited's ledger; where there is none, or one of
 * another version, begins a new one, and all inherited extents are dropped by warm_adopt().
 * @inotify_fd: borrowed; stored too. -EBADF: it was inherited, and is stored already.
 */
int warm_new(struct event_base *base, const struct config *config, struct inherited *inherited, int inotify_fd,
             struct warm **ret_warm);
/* Tells the manager what was queued. The records stay: they are the successor's. */
struct warm *warm_free(struct warm *warm);

/*
 * Every inherited extent finds its place again, or is dropped. Before anybody is served. Returns how many were adopted.
 * @have_events: the inotify instance was inherited too, so what happened meanwhile is known
 */
unsigned warm_adopt(struct broker *broker, struct inherited *inherited, bool have_events);

/* Says once in the log, when memory is ready that is not stored, how much and why. When the pools are filled, and later. */
void warm_tell_cold(struct broker *broker);

/* Written before what it says takes effect outside. The first one that says READY puts the extent into the store. */
void warm_note(struct warm *warm, struct extent *extent, enum ledger_state state);
/* Before its content or size becomes uncertain. */
void warm_note_busy(struct warm *warm, struct extent *extent);
/* Of one that is ready: before methods are measured on it, and when they have been. What measuring leaves is zero. */
void warm_note_measured(struct warm *warm, struct extent *extent, bool begins);
/*
 * A charge that outlives @extent has a record of its own. Returns its slot, or a negative errno: then it ends with this daemon.
 * Records for charges are few, so that nobody can take those of extents away.
 */
int warm_note_charge(struct warm *warm, const struct extent *extent, const struct lingering_charge *charge);
/* The end of another service ends it now. */
void warm_move_charge(struct warm *warm, int slot, const struct service *service);
void warm_change_charge(struct warm *warm, int slot, uint64_t bytes);
void warm_forget_charge(struct warm *warm, int slot);
void warm_note_grant_id(struct warm *warm, uint64_t grant_id);
/* The store lets go of it; then @done, from the loop. Returns 0 when there was nothing to do: no callback then. */
int warm_remove(struct warm *warm, struct extent *extent, void (*done)(void *userdata), void *userdata);
