/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The clearing engine: zeroes mapped memory as fast as this machine can, in bounded slices.
 *
 * All counts are base pages (the CPU's smallest page, 4 KiB on x86-64), as for the kernel's clear_pages(). A method clears a
 * whole slice in one call and in ascending order: prefetchers follow it, and the processor learns the real extent.
 *
 * Nothing here allocates, logs or starts a thread. Every call may run on any thread, on different memory at the same time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct clear_method {
        const char *name;     /* as in ClearMethod= */
        bool non_temporal;    /* its stores pass by the caches; false: the cleared lines are left in them */
        bool fast_multi_page; /* gains from being told many pages at once; false: called page by page */
        /* NULL where this CPU and operating system can run it, else the reason as half a sentence ("CPU lacks it"). */
        const char *(*why_not)(void);
        /* @n_bytes: a multiple of the base page, not 0. Called through clear_pages(), which adds everything else. */
        void (*clear)(void *addr, size_t n_bytes);
        /* Orders the stores of clear() before everything that follows; NULL where the CPU does so by itself. */
        void (*publish)(void);
};

#define CLEAR_BATCH_MIB 32 /* the kernel's SZ_32M: 3 ms at 10 GB/s between two looks */
#define CLEAR_BATCH_BYTES ((size_t) CLEAR_BATCH_MIB << 20)
#define CLEAR_LOOK_UP_BYTES ((size_t) 2 << 20) /* bytes; chosen: a slow method at 1 GB/s takes 2 ms for them */
#define CLEAR_RADIUS_PAGES 2                   /* base pages kept warm on both sides of the first touch; the kernel's figure */
#define CLEAR_NO_TOUCH ((size_t) -1)           /* as a touch hint: not known where the memory will be touched first */

/* How many base pages @method is told in one call when others wait for the thread. The kernel's name for the same thing. */
#define PROCESS_PAGES_NON_PREEMPT_BATCH(method) ((method)->fast_multi_page ? CLEAR_BATCH_BYTES / clear_base_page_bytes() : 1)

/* The CPU's smallest page as the kernel is built. */
size_t clear_base_page_bytes(void);

/* All methods built in, those this CPU cannot run included. NULL when @idx is past the last one. */
const struct clear_method *clear_method_at(size_t idx);
/* NULL: no such name. Ask the method's why_not() before using it. */
const struct clear_method *clear_method_named(const char *name);
/* The one that always works and leaves its lines in the caches: the C library's memset(). */
const struct clear_method *clear_method_cached(void);
/* For large slices, as long as nothing was measured: of those that pass by the caches the last one listed that this CPU can run. */
const struct clear_method *clear_method_likely(void);

/*
 * Makes clear_pages() return an error where a page is missing or its memory has failed, instead of the process being killed by
 * SIGBUS. For the whole process, once. Any other SIGBUS ends where it would have ended before; a notice about failed memory
 * that nobody has touched (BUS_MCEERR_AO) is dropped, because touching it raises the error that counts.
 */
int clear_catch_sigbus(void);

/**
 * clear_pages - zero contiguous base pages in one go
 * @method:       one whose why_not() is NULL
 * @addr:         start, aligned to the base page; mapped, writable and populated
 * @n_base_pages: how many; 0 is allowed
 *
 * The stores are visible to whoever learns of them afterwards by any ordinary means: the fence that weakly ordered stores need
 * is inside. A method without fast_multi_page is called once for each page, without looking up in between.
 *
 * Returns: 0; with clear_catch_sigbus() -EFAULT (a page is missing and could not be had) or -EHWPOISON (memory failure):
 *          how much has been cleared is then not known, and the memory is best given back.
 */
int clear_pages(const struct clear_method *method, void *addr, size_t n_base_pages);

/**
 * clear_extent_around - zero an extent as one unit, the place of the first touch last
 * @touch_page: base page within the extent that will be touched first, or CLEAR_NO_TOUCH
 *
 * Clears what lies right of the neighbourhood, then left of it, then the neighbourhood itself by cached stores, so that the
 * lines which are needed first are in the cache. For a thread that nobody waits for in between; others take slices.
 */
int clear_extent_around(const struct clear_method *method, void *addr, size_t n_base_pages, size_t touch_page);

struct clear_range {
        char *addr;
        size_t n_base_pages;
};

/* An extent on its way to zero. Filled by clear_slices_init(); the fields are clear.c's own. */
struct clear_slices {
        const struct clear_method *method;
        size_t slice_base_pages;
        struct clear_range ranges[3]; /* in order of clearing: right, left, neighbourhood */
};

/**
 * clear_slices_init - prepare to clear an extent slice by slice
 * @touch_page:       as for clear_extent_around()
 * @batch_base_pages: base pages between two looks; 0: CLEAR_BATCH_BYTES. A method without fast_multi_page stops every
 *                    CLEAR_LOOK_UP_BYTES at the latest.
 */
void clear_slices_init(struct clear_slices *slices, const struct clear_method *method, void *addr, size_t n_base_pages,
                       size_t touch_page, size_t batch_base_pages);
/* Bytes of the next slice; 0: all is zero. */
size_t clear_slices_next_bytes(const struct clear_slices *slices);
/* Clears the next slice. 1: there is more; 0: all is zero; negative: as clear_pages(), do not go on. */
int clear_next_slice(struct clear_slices *slices);
/*
 * From here on larger or smaller slices, by another method: somebody has begun to wait for the extent, and it may as well be
 * cleared as one unit. @batch_base_pages as for clear_slices_init().
 */
void clear_slices_change(struct clear_slices *slices, const struct clear_method *method, size_t batch_base_pages);

/*
 * Writes a zero to the start of each page: what the processor, and on a guest the host, keeps of its recently used pages is
 * there for the next who touches them. @n_bytes: a multiple of @page_bytes. 0, or negative as clear_pages().
 */
int clear_touch(void *addr, size_t n_bytes, size_t page_bytes);

/*
 * Writes back what the caches hold of this memory, and lets them forget it: for measuring what clearing costs where nobody has
 * used the memory for long. -EOPNOTSUPP: a program cannot do that here, and then no method passes by the caches either.
 * Otherwise as clear_pages().
 */
int clear_flush(void *addr, size_t n_bytes);

/*
 * Looks for a byte that is not zero. 0: all are. 1: *ret_offset_bytes is where the first other one is. Negative: as
 * clear_pages(), for memory that cannot be read.
 * @addr: aligned to the base page, like @n_bytes
 */
int clear_verify(void *addr, size_t n_bytes, size_t *ret_offset_bytes);
