/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * So many bytes per second on average, in pieces of any size. Whoever moves a piece pays before he begins; the next one waits
 * until it is paid off. Time that nobody used is not saved up: a burst after a quiet hour would be what the pace is there to
 * prevent. Pure arithmetic; whoever shares one between threads guards it.
 */
#pragma once

#include <stdint.h>
#include <time.h>

#define PACE_UNLIMITED UINT64_MAX
#define PACE_NS_PER_S UINT64_C(1000000000)

struct pace {
        uint64_t bytes_per_s; /* PACE_UNLIMITED: everything may begin at once */
        uint64_t due_ns;      /* monotonic clock; the next piece may begin then */
};

static inline uint64_t pace_now_ns(void) {
        struct timespec now;

        (void) clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
        return (uint64_t) now.tv_sec * PACE_NS_PER_S + (uint64_t) now.tv_nsec;
}

/* Whether a piece may begin now; if so it has been paid for. If not, ask again at pace->due_ns. */
static inline int pace_take(struct pace *pace, uint64_t bytes, uint64_t now_ns) {
        if (pace->bytes_per_s == PACE_UNLIMITED || bytes == 0)
                return 1;
        if (now_ns < pace->due_ns)
                return 0;
        pace->due_ns = now_ns + (uint64_t) ((double) bytes / (double) pace->bytes_per_s * PACE_NS_PER_S);
        return 1;
}
