/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of hugezeroctl bench churn share: one service's part of it, and its figures. */
#pragma once

#include "bench.h"
#include "bench-services.h"

#define BENCH_CHURN_MAX_REQUESTS 100000 /* of one service; 250 ms each: seven hours */

/* What a service did, in memory that it shares with the parent. */
struct bench_churn {
        unsigned n_granted, n_instant, n_refused; /* instant: by the first question, which does not wait, out of memory that was zero */
        char refusal[256]; /* the daemon's reason for the last one */
        uint64_t granted_bytes;
        uint64_t waits_ns[BENCH_CHURN_MAX_REQUESTS]; /* of the granted ones, from asking to having */
};

/* The share of the pool's target that a service holds at most, and the sizes it asks for: 1, 2, 4, 8 or 16 units. */
#define BENCH_CHURN_SHARE 4  /* a quarter: with what is in its grace period, two services keep a pool nearly busy */
#define BENCH_CHURN_UNIT 128 /* of the target; whole pages */
uint64_t bench_churn_unit_bytes(uint64_t target_bytes, uint64_t page_size_bytes);
/* The next size, at most @max_bytes; @random goes on. */
uint64_t bench_churn_size(uint64_t *random, uint64_t unit_bytes, uint64_t max_bytes);

/* Service @idx, in a process of its own, for so long. Returns an exit code. */
int bench_churn_service(const struct bench *bench, size_t idx, uint64_t target_bytes, uint64_t duration_ms,
                        struct bench_churn *churn);
