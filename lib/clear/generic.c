/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What works on every architecture. memset() is first: clear_method_cached() counts on it. */
#include <stdint.h>
#include <string.h>

#include "methods.h"

static const char *always(void) {
        return NULL;
}

static void clear_memset(void *addr, size_t n_bytes) {
        memset(addr, 0, n_bytes);
        /* Memory that is written and never read by this program is what compilers look for. */
        __asm__ volatile("" : : "r"(addr) : "memory");
}

/* The fallback must not depend on the C library, and compilers turn a plain loop of zeroes back into a call of memset(). */
static void clear_generic(void *addr, size_t n_bytes) {
        uint64_t *line = addr, *end = line + n_bytes / sizeof(*line);

        for (; line < end; line += 8) {
                for (size_t i = 0; i < 8; i++)
                        line[i] = 0;
                __asm__ volatile("" : : "r"(line) : "memory");
        }
}

const struct clear_method clear_generic_methods[] = {
        {.name = "memset", .fast_multi_page = true, .why_not = always, .clear = clear_memset},
        {.name = "generic", .why_not = always, .clear = clear_generic},
};
const size_t clear_n_generic_methods = sizeof(clear_generic_methods) / sizeof(clear_generic_methods[0]);
