/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How many threads are worth clearing with: one, or two where that is faster by a third. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "clear.h"

#define CLEARING_THREADS_PIECE_BYTES (UINT64_C(2) << 20)              /* chosen: 0.4 ms; methods are measured for as much */
#define CLEARING_THREADS_MIN_BYTES (2 * CLEARING_THREADS_PIECE_BYTES) /* one piece for each of two */

struct clearing_threads {
        unsigned n_worth; /* 0: it cannot be told, because the two never had a CPU each */
        double one_gb_per_s, two_gb_per_s;
        uint64_t used_ns; /* CPU time of both */
};

/*
 * Worker thread, with another one for as long as it takes. @method: what is best for CLEARING_THREADS_PIECE_BYTES, by which
 * both clear. @addr: populated memory, which stays zero where it is; ends with -ECANCELED when @stop(userdata) says so.
 * @ret_threads->used_ns is set in any case.
 */
int clearing_threads_measure(const struct clear_method *method, void *addr, uint64_t bytes, bool (*stop)(void *userdata),
                             void *userdata, struct clearing_threads *ret_threads);
/* The rule: by the CPU time of one run alone, and with another thread at work; UINT64_MAX: it never was. */
unsigned clearing_threads_worth(uint64_t alone_ns, uint64_t together_ns);
