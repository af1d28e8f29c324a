/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The long work on extents, in slices on the workers of their node: fill, grow, cut, scrub, drop, unmap, audit. One job at a
 * time per extent. Loop thread; what runs on a worker is in stock-work.c.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"
#include "worker.h"

struct clearing;
struct event_base;
struct reclaim;
struct stock;
struct topology;
struct warm;

/* Loop thread. @r: 0 or a negative errno; the extent's accounts are up to date. Never called from inside the function that started the work. */
typedef void (*stock_done_fn)(void *userdata, struct extent *extent, int r);

int stock_new(struct event_base *base, const struct config *config, const struct topology *topology, struct reclaim *reclaim,
              struct warm *warm, struct stock **ret_stock);
/* Stops the workers; what runs ends with -ECANCELED. Extents are left as they are. */
void stock_stop(struct stock *stock);
struct stock *stock_free(struct stock *stock);

/* Workers for nodes that have got memory since. Returns 0 or a negative errno: then some have none yet. */
int stock_add_nodes(struct stock *stock);
/* BackgroundRate= of each node. */
void stock_set_pace(struct stock *stock, uint64_t bytes_per_s);
/* Borrowed; what is known about clearing on a node. */
struct clearing *stock_clearing(struct stock *stock, int node);
/* Whether the workers do without the idle class, as one that entered it could not leave it again. */
bool stock_lacks_idle_class(const struct stock *stock);
/* Whether the workers of a node have nothing to do. */
bool stock_is_idle(struct stock *stock, int node);

/*
 * Fills an extent up to @to_bytes, from nothing or from what it has, by all workers of its node that are worth it. Accounts it
 * at @to_bytes at once. At the end the extent has what could be populated (its prefix), 0 bytes if nothing. r: 0, -ENOSPC (too
 * few pages), -EXDEV (placed wrong: to be dropped), -ECANCELED (stopped), another negative errno.
 * @urgent_bytes: with JOB_LOW: when so much has been filled the rest is JOB_FILL
 */
int stock_fill(struct stock *stock, struct extent *extent, uint64_t to_bytes, enum job_urgency urgency, uint64_t urgent_bytes,
               stock_done_fn done, void *userdata);
/* Soon, but not before its first slice is done: that is for whoever needs it now. */
void stock_stop_fill(struct stock *stock, struct extent *extent);
/* Whether a pace holds its work back. */
bool stock_is_paced(const struct stock *stock, const struct extent *extent);
/* Returns whether a pace held its work back till now. */
bool stock_raise(struct stock *stock, struct extent *extent, enum job_urgency urgency);
int stock_cut(struct stock *stock, struct extent *extent, uint64_t to_bytes, stock_done_fn done, void *userdata);
/* Repopulates what was punched, clears all of it, verifies its nodes. Any failure means: drop it. */
int stock_scrub(struct stock *stock, struct extent *extent, enum job_urgency urgency, stock_done_fn done, void *userdata);
/* r: 0: gone, the file is closed. */
int stock_drop(struct stock *stock, struct extent *extent, enum job_urgency urgency, stock_done_fn done, void *userdata);
/*
 * With the pin test, in turn: pin-tests.h. r: 0: gone; -EBUSY: it found pages in use, the file is still open.
 * @uid: who may have pinned them
 */
int stock_test_and_drop(struct stock *stock, struct extent *extent, uid_t uid, enum job_urgency urgency, stock_done_fn done,
                        void *userdata);
/* Takes the daemon's own mapping of a granted extent away. Nobody is told when. */
void stock_unmap(struct stock *stock, struct extent *extent);
/*
 * Reads the next @bytes of a ready extent, from its audit_bytes on, which are set to where the next time begins. r: 0;
 * -EBADMSG: audit_bytes is the offset of a byte that is not zero; -EHWPOISON: memory that has failed; -EXDEV: pages of it are
 * on another node; another negative errno.
 */
int stock_audit(struct stock *stock, struct extent *extent, uint64_t bytes, stock_done_fn done, void *userdata);
/* Ends it with -ECANCELED when it has not begun yet; else it is about to end by itself. */
void stock_stop_audit(struct stock *stock, struct extent *extent);

/*
 * Puts a filled or scrubbed extent on its shelf: watches it, opens the description for its next grant ahead. On failure it
 * is as before and must be dropped.
 */
int stock_make_ready(struct stock *stock, struct extent *extent);
/*
 * Verifies an extent that a predecessor left as ready: seals, size, every page present and on its node, held by nobody.
 * @was_measured: methods were measured on it when the predecessor ended. What they wrote to is cleared, which takes 30 ms.
 */
int stock_adopt(struct stock *stock, struct extent *extent, bool was_measured);
/* Seals, opens the description if that was not done ahead, makes it reopenable: everything but sending it. */
int stock_prepare_grant(struct stock *stock, struct extent *extent, bool reopenable);
/* Closes what the daemon itself opened of an extent that is to be dropped; its watch goes too. */
void stock_forget(struct stock *stock, struct extent *extent);
/* As many as the limit of open files leaves room for, beside clients. */
uint64_t stock_max_extents(const struct stock *stock);
/* After it was sent: the description lives on with the client. */
void stock_close_grant_fd(struct extent *extent);
