/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Tells checkers about memory written by assembly, which compilers do not instrument. All of it is nothing in an ordinary
 * build; the valgrind request is a handful of instructions without effect.
 */
#pragma once

#include <stddef.h>

#ifndef __has_feature
#define __has_feature(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define CLEAR_WITH_ASAN 1
#else
#define CLEAR_WITH_ASAN 0
#endif

#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define CLEAR_WITH_MSAN 1
#else
#define CLEAR_WITH_MSAN 0
#endif

#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CLEAR_WITH_TSAN 1
void __tsan_write_range(void *addr, long n_bytes); /* exported by the run time, in none of its headers; as gcc knows it */
#else
#define CLEAR_WITH_TSAN 0
#endif

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#define CLEAR_WITH_VALGRIND 1
#else
#define CLEAR_WITH_VALGRIND 0
#endif

/* Before clearing: a write to memory that must not be written is reported here, at its first byte. */
static inline void sanitizer_will_write(void *addr, size_t n_bytes) {
#if CLEAR_WITH_ASAN
        volatile char *poisoned = __asan_region_is_poisoned(addr, n_bytes);
        if (poisoned)
                *poisoned = 0;
#endif
#if CLEAR_WITH_TSAN
        __tsan_write_range(addr, n_bytes);
#endif
}

/* After clearing: every byte has a known value. */
static inline void sanitizer_has_written(void *addr, size_t n_bytes) {
#if CLEAR_WITH_MSAN
        __msan_unpoison(addr, n_bytes);
#endif
#if CLEAR_WITH_VALGRIND
        (void) VALGRIND_MAKE_MEM_DEFINED(addr, n_bytes);
#endif
}
