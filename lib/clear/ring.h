/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A pointer chase: how long it takes tells whether its buffer is still in the caches. */
#pragma once

#include <stddef.h>

#define CLEAR_RING_LINE_BYTES 64 /* one pointer in each; a multiple or a half of every known cache line */

/* The lines of the buffer become one ring in random order, which no prefetcher follows. The first line is part of it. */
void clear_ring_make(void *buffer, size_t n_bytes);
/* Returns where @n_steps lead to, from a line of the ring on. */
void *clear_ring_walk(void *at, size_t n_steps);
