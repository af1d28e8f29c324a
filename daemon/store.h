/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The service manager's fd store: what is put there survives the daemon. One thread of its own talks to the manager, which may
 * be slow (it compares each new fd with all it has), in batches that keep their order. Loop thread, but for that.
 */
#pragma once

struct event_base;
struct store;

#define STORE_NAME_BYTES 8 /* names are short: all of them go into one environment variable of the next daemon */

int store_new(struct event_base *base, struct store **ret_store);
/* Sends what is queued, waits for it, makes all callbacks that are due. */
struct store *store_free(struct store *store);

/* Messages that the manager has not taken yet. */
unsigned store_n_queued(const struct store *store);
/* Keeps a duplicate of @fd under @name. Fire and forget. Returns 0, or a negative errno: it is not kept. */
int store_add(struct store *store, const char *name, int fd);
/* Has the manager close what it keeps under @name; @done on the loop thread when it has. Without memory for that @done comes at once. */
void store_remove(struct store *store, const char *name, void (*done)(void *userdata), void *userdata);
