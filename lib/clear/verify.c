/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reading memory back. Twice as slow as clearing it, so a sample is what this is for. */
#include <assert.h>
#include <stdint.h>

#include "clear.h"
#include "methods.h"

#define BLOCK_BYTES 4096 /* chosen: divides every base page; looked at whole before the question is asked */

/* As wide as any processor's vectors; compilers divide it where they are narrower. */
typedef uint64_t line __attribute__((vector_size(64), may_alias));
#define BLOCK_LINES (BLOCK_BYTES / sizeof(line))

static _Thread_local const char *found; /* by the last look_for_bytes() of this thread; NULL: nothing but zeroes */

static bool block_is_zero(const line *block) {
        line bits[4] = {};
        uint64_t all = 0;

        /* Four chains, so that no load waits for the one before it. */
        for (size_t i = 0; i < BLOCK_LINES; i += 4)
                bits[0] |= block[i], bits[1] |= block[i + 1], bits[2] |= block[i + 2], bits[3] |= block[i + 3];
        bits[0] |= bits[1] | bits[2] | bits[3];
        for (size_t i = 0; i < sizeof(line) / sizeof(all); i++)
                all |= bits[0][i];
        return all == 0;
}

static void look_for_bytes(void *addr, size_t n_bytes) {
        const char *end = (const char *) addr + n_bytes;

        for (const char *at = addr; at < end; at += BLOCK_BYTES)
                if (!block_is_zero((const line *) at)) {
                        while (*at == 0)
                                at++;
                        found = at;
                        return;
                }
}

int clear_verify(void *addr, size_t n_bytes, size_t *ret_offset_bytes) {
        int r;

        assert((uintptr_t) addr % BLOCK_BYTES == 0 && n_bytes % BLOCK_BYTES == 0);
        found = NULL;
        if (n_bytes == 0)
                return 0;
        r = clear_guarded(look_for_bytes, addr, n_bytes, n_bytes);
        if (r < 0 || !found)
                return r;
        *ret_offset_bytes = (size_t) (found - (const char *) addr);
        return 1;
}
