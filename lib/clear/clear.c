/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which methods there are, and how an extent is divided: slices, and the neighbourhood of the first touch last. */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "clear.h"
#include "methods.h"
#include "sanitizer.h"

enum { RIGHT, LEFT, NEIGHBOURHOOD, _RANGE_MAX };

static size_t min_pages(size_t a, size_t b) {
        return a < b ? a : b;
}

size_t clear_base_page_bytes(void) {
        return (size_t) sysconf(_SC_PAGESIZE);
}

const struct clear_method *clear_method_at(size_t idx) {
        if (idx < clear_n_generic_methods)
                return &clear_generic_methods[idx];
#if CLEAR_HAVE_ARCH_METHODS
        idx -= clear_n_generic_methods;
        if (idx < clear_n_arch_methods)
                return &clear_arch_methods[idx];
#endif
        return NULL;
}

const struct clear_method *clear_method_named(const char *name) {
        const struct clear_method *method;

        for (size_t i = 0; (method = clear_method_at(i)); i++)
                if (strcmp(method->name, name) == 0)
                        return method;
        return NULL;
}

const struct clear_method *clear_method_cached(void) {
        return &clear_generic_methods[0];
}

const struct clear_method *clear_method_likely(void) {
        const struct clear_method *method, *likely = clear_method_cached();

        for (size_t i = 0; (method = clear_method_at(i)); i++)
                if (method->non_temporal && !method->why_not())
                        likely = method;
        return likely;
}

int clear_pages(const struct clear_method *method, void *addr, size_t n_base_pages) {
        size_t page_bytes = clear_base_page_bytes(), n_bytes = n_base_pages * page_bytes;
        int r;

        assert((uintptr_t) addr % page_bytes == 0);
        assert(n_base_pages <= SIZE_MAX / page_bytes);

        if (n_bytes == 0)
                return 0;
        sanitizer_will_write(addr, n_bytes);
        r = clear_guarded(method->clear, addr, n_bytes, method->fast_multi_page ? n_bytes : page_bytes);
        if (method->publish)
                method->publish();
        if (r == 0)
                sanitizer_has_written(addr, n_bytes);
        return r;
}

static void touch(void *addr, size_t n_bytes) {
        (void) n_bytes;
        *(volatile char *) addr = 0;
}

int clear_touch(void *addr, size_t n_bytes, size_t page_bytes) {
        assert(n_bytes % page_bytes == 0);
        return clear_guarded(touch, addr, n_bytes, page_bytes);
}

void clear_slices_change(struct clear_slices *slices, const struct clear_method *method, size_t batch_base_pages) {
        size_t page_bytes = clear_base_page_bytes();

        if (batch_base_pages == 0)
                batch_base_pages = method->fast_multi_page ? PROCESS_PAGES_NON_PREEMPT_BATCH(method) : CLEAR_LOOK_UP_BYTES / page_bytes;
        if (!method->fast_multi_page)
                batch_base_pages = min_pages(batch_base_pages, CLEAR_LOOK_UP_BYTES / page_bytes);
        slices->method = method;
        slices->slice_base_pages = batch_base_pages;
}

void clear_slices_init(struct clear_slices *slices, const struct clear_method *method, void *addr, size_t n_base_pages,
                       size_t touch_page, size_t batch_base_pages) {
        size_t page_bytes = clear_base_page_bytes(), start = 0, end = 0;
        char *base = addr;

        if (touch_page < n_base_pages) { /* a hint outside of the extent is none */
                start = touch_page - min_pages(touch_page, CLEAR_RADIUS_PAGES);
                end = touch_page + min_pages(n_base_pages - touch_page, CLEAR_RADIUS_PAGES + 1);
        }
        *slices = (struct clear_slices){
                .ranges[RIGHT] = {base + end * page_bytes, n_base_pages - end},
                .ranges[LEFT] = {base, start},
                .ranges[NEIGHBOURHOOD] = {base + start * page_bytes, end - start},
        };
        clear_slices_change(slices, method, batch_base_pages);
}

/* The next range that is not yet zero. */
static struct clear_range *clear_slices_range(struct clear_slices *slices) {
        for (size_t i = 0; i < _RANGE_MAX; i++)
                if (slices->ranges[i].n_base_pages > 0)
                        return &slices->ranges[i];
        return NULL;
}

size_t clear_slices_next_bytes(const struct clear_slices *slices) {
        for (size_t i = 0; i < _RANGE_MAX; i++)
                if (slices->ranges[i].n_base_pages > 0)
                        return min_pages(slices->ranges[i].n_base_pages, slices->slice_base_pages) * clear_base_page_bytes();
        return 0;
}

int clear_next_slice(struct clear_slices *slices) {
        struct clear_range *range = clear_slices_range(slices);
        const struct clear_method *method = slices->method;
        size_t n_base_pages;
        int r;

        if (!range)
                return 0;
        if (range == &slices->ranges[NEIGHBOURHOOD])
                method = clear_method_cached();
        n_base_pages = min_pages(range->n_base_pages, slices->slice_base_pages);
        r = clear_pages(method, range->addr, n_base_pages);
        if (r < 0)
                return r;
        range->addr += n_base_pages * clear_base_page_bytes();
        range->n_base_pages -= n_base_pages;
        return clear_slices_range(slices) ? 1 : 0;
}

int clear_extent_around(const struct clear_method *method, void *addr, size_t n_base_pages, size_t touch_page) {
        struct clear_slices slices;
        int r;

        clear_slices_init(&slices, method, addr, n_base_pages, touch_page, n_base_pages);
        do
                r = clear_next_slice(&slices);
        while (r > 0);
        return r;
}
