/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What changes while the daemon runs: pools and targets grow and shrink, limits and times change. Loop thread only. */
#pragma once

#include <stdint.h>

#include "wire.h"

struct broker;
struct config;

/*
 * Makes @config, which all modules share, what @fresh says, as far as that is possible at run time; the rest (socket, threads,
 * store) stays as it is: @ret_start_keys names the keys among it that have changed, "" when none has. Nothing is changed on
 * failure: -ENOSPC (too many pools), -ENOMEM.
 */
int reload_apply(struct broker *broker, struct config *config, const struct config *fresh,
                 char ret_start_keys[WIRE_MAX_TEXT_BYTES + 1]);

/*
 * What Target=auto comes to in @config: as in @before, where that had it for the same pool. Without @before, at start, half of
 * what is free and of what the pools have taken over, and not less than that is. Else half of what is free or the pools'.
 */
void reload_settle_auto(const struct broker *broker, const struct config *before, struct config *config);

/*
 * Another target for a pool on a node until the next reload or start. @pool "": all pools; @node -1: all nodes.
 * -ENOENT: there is no such pool or node; -EINVAL: no whole pages, or no whole extents. @ret_text has the reason.
 */
int reload_resize(struct broker *broker, const char *pool, int node, uint64_t target_bytes, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
