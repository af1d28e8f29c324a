/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * x86-64. The first three are the kernel's; the others are for user space only, which may use vector registers freely.
 *
 * A hypervisor may hide CPUID flags: a method is offered only where its flag is seen, even where the instruction would work.
 */
#include <cpuid.h>
#include <immintrin.h>
#include <stdint.h>

#include "methods.h"

#define CPU_LACKS_IT "CPU lacks it"
#define OS_LACKS_IT "operating system does not save its registers"

#define LINE_BYTES 64            /* of a cache; a multiple of it would only be flushed twice */
#define LEAF7_EBX_ERMS (1u << 9) /* <cpuid.h> of gcc 12 has no name for it */
#define XCR0_AVX 0x06u           /* SSE and AVX state */
#define XCR0_AVX512 0xe6u        /* the same, mask registers, both halves of the ZMM file */

static const char *always(void) {
        return NULL; /* part of x86-64 */
}

const char *clear_x86_why_not_erms(const struct clear_x86 *x86) {
        return x86->leaf7_ebx & LEAF7_EBX_ERMS ? NULL : CPU_LACKS_IT;
}

const char *clear_x86_why_not_avx2(const struct clear_x86 *x86) {
        if (!(x86->leaf7_ebx & bit_AVX2))
                return CPU_LACKS_IT;
        return (x86->xcr0 & XCR0_AVX) == XCR0_AVX ? NULL : OS_LACKS_IT;
}

const char *clear_x86_why_not_avx512(const struct clear_x86 *x86) {
        if (!(x86->leaf7_ebx & bit_AVX512F))
                return CPU_LACKS_IT;
        return (x86->xcr0 & XCR0_AVX512) == XCR0_AVX512 ? NULL : OS_LACKS_IT;
}

/* AMD only. The instruction clears one cache line, clear_clzero() counts in lines of 64 bytes. */
const char *clear_x86_why_not_clzero(const struct clear_x86 *x86) {
        if (!(x86->leaf80000008_ebx & bit_CLZERO))
                return CPU_LACKS_IT;
        return ((x86->leaf1_ebx >> 8) & 0xff) * 8 == 64 ? NULL : "CPU has cache lines that are not 64 bytes long";
}

/* Leaves that there are not, and what cannot be asked, say 0. */
static struct clear_x86 ask(void) {
        unsigned eax, ebx, ecx, edx, high;
        struct clear_x86 x86 = {};

        if (__get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
                x86.leaf1_ebx = ebx;
                if (ecx & bit_OSXSAVE)
                        __asm__ volatile("xgetbv" : "=a"(x86.xcr0), "=d"(high) : "c"(0));
        }
        if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
                x86.leaf7_ebx = ebx;
        if (__get_cpuid(0x80000008, &eax, &ebx, &ecx, &edx))
                x86.leaf80000008_ebx = ebx;
        return x86;
}

static const char *why_not_erms(void) {
        const struct clear_x86 x86 = ask();

        return clear_x86_why_not_erms(&x86);
}

static const char *why_not_avx2(void) {
        const struct clear_x86 x86 = ask();

        return clear_x86_why_not_avx2(&x86);
}

static const char *why_not_avx512(void) {
        const struct clear_x86 x86 = ask();

        return clear_x86_why_not_avx512(&x86);
}

static const char *why_not_clzero(void) {
        const struct clear_x86 x86 = ask();

        return clear_x86_why_not_clzero(&x86);
}

static void clear_unrolled(void *addr, size_t n_bytes) {
        char *at = addr, *end = at + n_bytes;

        __asm__ volatile("1:\n\t"
                         "movq %[zero], (%[at])\n\t"
                         "movq %[zero], 8(%[at])\n\t"
                         "movq %[zero], 16(%[at])\n\t"
                         "movq %[zero], 24(%[at])\n\t"
                         "movq %[zero], 32(%[at])\n\t"
                         "movq %[zero], 40(%[at])\n\t"
                         "movq %[zero], 48(%[at])\n\t"
                         "movq %[zero], 56(%[at])\n\t"
                         "addq $64, %[at]\n\t"
                         "cmpq %[end], %[at]\n\t"
                         "jb 1b"
                         : [at] "+r"(at)
                         : [end] "r"(end), [zero] "r"(UINT64_C(0))
                         : "cc", "memory");
}

static void clear_stosq(void *addr, size_t n_bytes) {
        size_t n_words = n_bytes / 8;

        __asm__ volatile("rep stosq" : "+D"(addr), "+c"(n_words) : "a"(UINT64_C(0)) : "memory");
}

static void clear_stosb(void *addr, size_t n_bytes) {
        __asm__ volatile("rep stosb" : "+D"(addr), "+c"(n_bytes) : "a"(0) : "memory");
}

static void clear_sse2(void *addr, size_t n_bytes) {
        __m128i zero = _mm_setzero_si128(), *at = addr, *end = at + n_bytes / sizeof(*at);

        for (; at < end; at += 4) {
                _mm_stream_si128(at, zero);
                _mm_stream_si128(at + 1, zero);
                _mm_stream_si128(at + 2, zero);
                _mm_stream_si128(at + 3, zero);
        }
}

__attribute__((target("avx2"))) static void clear_avx2(void *addr, size_t n_bytes) {
        __m256i zero = _mm256_setzero_si256(), *at = addr, *end = at + n_bytes / sizeof(*at);

        for (; at < end; at += 4) {
                _mm256_stream_si256(at, zero);
                _mm256_stream_si256(at + 1, zero);
                _mm256_stream_si256(at + 2, zero);
                _mm256_stream_si256(at + 3, zero);
        }
}

__attribute__((target("avx512f"))) static void clear_avx512(void *addr, size_t n_bytes) {
        __m512i zero = _mm512_setzero_si512(), *at = addr, *end = at + n_bytes / sizeof(*at);

        for (; at < end; at += 4) {
                _mm512_stream_si512(at, zero);
                _mm512_stream_si512(at + 1, zero);
                _mm512_stream_si512(at + 2, zero);
                _mm512_stream_si512(at + 3, zero);
        }
}

static void clear_clzero(void *addr, size_t n_bytes) {
        for (char *line = addr, *end = line + n_bytes; line < end; line += 64)
                __asm__ volatile(".byte 0x0f, 0x01, 0xfc" /* clzero */ : : "a"(line) : "memory");
}

/* Several lines at a time: they are ordered by the fence only. */
__attribute__((target("clflushopt"))) static void flush_unordered(char *addr, size_t n_bytes) {
        for (char *line = addr, *end = addr + n_bytes; line < end; line += LINE_BYTES)
                _mm_clflushopt(line);
}

void clear_arch_flush(void *addr, size_t n_bytes) {
        if (ask().leaf7_ebx & bit_CLFLUSHOPT)
                flush_unordered(addr, n_bytes);
        else
                for (char *line = addr, *end = line + n_bytes; line < end; line += LINE_BYTES)
                        _mm_clflush(line);
        _mm_mfence();
}

static void publish_sfence(void) {
        _mm_sfence();
}

#define CACHED .fast_multi_page = true
#define NON_TEMPORAL .fast_multi_page = true, .non_temporal = true, .publish = publish_sfence

const struct clear_method clear_arch_methods[] = {
        {.name = "unrolled", .why_not = always, .clear = clear_unrolled, CACHED},
        {.name = "rep-stosq", .why_not = always, .clear = clear_stosq, CACHED},
        {.name = "rep-stosb", .why_not = why_not_erms, .clear = clear_stosb, CACHED},
        {.name = "sse2-nt", .why_not = always, .clear = clear_sse2, NON_TEMPORAL},
        {.name = "avx2-nt", .why_not = why_not_avx2, .clear = clear_avx2, NON_TEMPORAL},
        {.name = "avx512-nt", .why_not = why_not_avx512, .clear = clear_avx512, NON_TEMPORAL},
        {.name = "clzero", .why_not = why_not_clzero, .clear = clear_clzero, NON_TEMPORAL},
};
const size_t clear_n_arch_methods = sizeof(clear_arch_methods) / sizeof(clear_arch_methods[0]);
