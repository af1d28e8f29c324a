/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <stdint.h>
#include <time.h>

/* Milliseconds of the monotonic clock. */
static inline uint64_t clock_ms(void) {
        struct timespec now;

        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}
