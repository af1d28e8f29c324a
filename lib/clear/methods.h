/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the files of the clearing engine share; for nobody else. */
#pragma once

#include "clear.h"

extern const struct clear_method clear_generic_methods[];
extern const size_t clear_n_generic_methods;
#if defined(__x86_64__) || defined(__aarch64__)
#define CLEAR_HAVE_ARCH_METHODS 1
/* Of the non-temporal ones the likeliest to be the best is last. */
extern const struct clear_method clear_arch_methods[];
extern const size_t clear_n_arch_methods;
/* For clear_flush(): done when it returns. */
void clear_arch_flush(void *addr, size_t n_bytes);
#else
#define CLEAR_HAVE_ARCH_METHODS 0
#endif

#if defined(__x86_64__)
/* What the processor says of itself (CPUID), and of the register state that the operating system saves. */
struct clear_x86 {
        unsigned leaf1_ebx, leaf7_ebx, leaf80000008_ebx;
        unsigned xcr0;
};

/* Why a method may not be used; NULL: it may. */
const char *clear_x86_why_not_erms(const struct clear_x86 *x86);
const char *clear_x86_why_not_avx2(const struct clear_x86 *x86);
const char *clear_x86_why_not_avx512(const struct clear_x86 *x86);
const char *clear_x86_why_not_clzero(const struct clear_x86 *x86);
#endif

#if defined(__aarch64__)
/* Block size of "dc zva" in bytes, or 0 where this value of DCZID_EL0 prohibits the instruction. */
size_t clear_dczid_block_bytes(unsigned long long dczid);
/* Why "dc zva" may not be used; NULL: it may. */
const char *clear_dczid_why_not(unsigned long long dczid);
#endif

/* Runs @clear on @n_bytes in calls of @call_bytes; SIGBUS becomes a return value once clear_catch_sigbus() was called. */
int clear_guarded(void (*clear)(void *addr, size_t n_bytes), char *addr, size_t n_bytes, size_t call_bytes);
