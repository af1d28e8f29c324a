/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * arm64. All of it was at one time the kernel's clear_page(): MOPS in both forms, "dc zva", pairs of non-temporal stores.
 *
 * The MOPS instructions are written as numbers, because assemblers older than binutils 2.38 do not know them and later ones
 * want an architecture level that the rest of the file must not be built for.
 */
#include <sys/auxv.h>

#include "methods.h"

#ifndef HWCAP2_MOPS
#define HWCAP2_MOPS (1UL << 43) /* Linux 6.5 */
#endif

#define CPU_LACKS_IT "CPU lacks it"

/* Destination x0, length x1, value xzr; all three instructions in this order and next to each other. */
#define SETP ".inst 0x19df0420\n\t"
#define SETM ".inst 0x19df4420\n\t"
#define SETE ".inst 0x19df8420"
#define SETPN ".inst 0x19df2420\n\t"
#define SETMN ".inst 0x19df6420\n\t"
#define SETEN ".inst 0x19dfa420"

static const char *always(void) {
        return NULL;
}

static const char *why_not_mops(void) {
        return getauxval(AT_HWCAP2) & HWCAP2_MOPS ? NULL : CPU_LACKS_IT;
}

size_t clear_dczid_block_bytes(unsigned long long dczid) {
        return dczid & 0x10 /* DZP */ ? 0 : (size_t) 4 << (dczid & 0xf) /* log2 of the size in words */;
}

const char *clear_dczid_why_not(unsigned long long dczid) {
        return clear_dczid_block_bytes(dczid) > 0 ? NULL : "prohibited by the operating system or the hypervisor (DCZID_EL0.DZP)";
}

static unsigned long long read_dczid(void) {
        unsigned long long dczid;

        __asm__("mrs %0, dczid_el0" : "=r"(dczid));
        return dczid;
}

static const char *why_not_zva(void) {
        return clear_dczid_why_not(read_dczid());
}

static void clear_mops(void *addr, size_t n_bytes) {
        register char *at __asm__("x0") = addr;
        register size_t left_bytes __asm__("x1") = n_bytes;

        __asm__ volatile(SETP SETM SETE : "+r"(at), "+r"(left_bytes) : : "cc", "memory");
}

static void clear_mops_nt(void *addr, size_t n_bytes) {
        register char *at __asm__("x0") = addr;
        register size_t left_bytes __asm__("x1") = n_bytes;

        __asm__ volatile(SETPN SETMN SETEN : "+r"(at), "+r"(left_bytes) : : "cc", "memory");
}

/* A block is 2 KiB at most (field of 4 bits, 9 is the architecture's maximum), so it always divides a page. */
static void clear_zva(void *addr, size_t n_bytes) {
        size_t block_bytes = clear_dczid_block_bytes(read_dczid());

        for (char *at = addr, *end = at + n_bytes; at < end; at += block_bytes)
                __asm__ volatile("dc zva, %0" : : "r"(at) : "memory");
}

static void clear_stnp(void *addr, size_t n_bytes) {
        for (char *at = addr, *end = at + n_bytes; at < end; at += 64)
                __asm__ volatile("stnp xzr, xzr, [%0]\n\t"
                                 "stnp xzr, xzr, [%0, #16]\n\t"
                                 "stnp xzr, xzr, [%0, #32]\n\t"
                                 "stnp xzr, xzr, [%0, #48]"
                                 :
                                 : "r"(at)
                                 : "memory");
}

/* CTR_EL0.DminLine: log2 of the smallest line of all data caches, in words of 4 bytes. */
static size_t line_bytes(void) {
        unsigned long long ctr;

        __asm__("mrs %0, ctr_el0" : "=r"(ctr));
        return (size_t) 4 << ((ctr >> 16) & 0xf);
}

/* Linux allows it to programs, and where a processor's erratum forbids that it does it for them. */
void clear_arch_flush(void *addr, size_t n_bytes) {
        size_t step_bytes = line_bytes();

        for (char *line = addr, *end = line + n_bytes; line < end; line += step_bytes)
                __asm__ volatile("dc civac, %0" : : "r"(line) : "memory");
        __asm__ volatile("dsb sy" : : : "memory");
}

/* Non-temporal pairs may pass other stores even where an address depends on them. The rest are ordinary stores. */
static void publish_dmb(void) {
        __asm__ volatile("dmb ish" : : : "memory");
}

#define CACHED .fast_multi_page = true, .publish = publish_dmb
#define NON_TEMPORAL CACHED, .non_temporal = true

const struct clear_method clear_arch_methods[] = {
        {.name = "mops", .why_not = why_not_mops, .clear = clear_mops, CACHED},
        {.name = "dc-zva", .why_not = why_not_zva, .clear = clear_zva, CACHED},
        {.name = "stnp", .why_not = always, .clear = clear_stnp, NON_TEMPORAL},
        {.name = "mops-nt", .why_not = why_not_mops, .clear = clear_mops_nt, NON_TEMPORAL},
};
const size_t clear_n_arch_methods = sizeof(clear_arch_methods) / sizeof(clear_arch_methods[0]);
