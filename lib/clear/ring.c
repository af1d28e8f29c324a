/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A pointer chase through the caches. */
#include <stdint.h>

#include "ring.h"

void clear_ring_make(void *buffer, size_t n_bytes) {
        char *lines = buffer;
        size_t n_lines = n_bytes / CLEAR_RING_LINE_BYTES;
        uint64_t random = UINT64_C(0x9e3779b97f4a7c15); /* any number but 0 */

        for (size_t i = 0; i < n_lines; i++)
                *(void **) (lines + i * CLEAR_RING_LINE_BYTES) = lines + i * CLEAR_RING_LINE_BYTES;
        for (size_t i = n_lines; i-- > 1;) { /* Sattolo: swapping with an earlier one only leaves a single cycle */
                void **a = (void **) (lines + i * CLEAR_RING_LINE_BYTES), **b, *swap;

                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                b = (void **) (lines + random % i * CLEAR_RING_LINE_BYTES);
                swap = *a, *a = *b, *b = swap;
        }
}

void *clear_ring_walk(void *at, size_t n_steps) {
        void **step = at;

        for (size_t i = 0; i < n_steps; i++)
                step = *step;
        __asm__ volatile("" : : "r"(step) : "memory"); /* the last load is not left out */
        return step;
}
