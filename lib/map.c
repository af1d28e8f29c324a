/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Extents to one contiguous range of addresses.
 *
 * MAP_FIXED is used inside a reservation only, our own or one that the caller has vouched for and /proc/self/maps has
 * confirmed, so nothing that exists is ever replaced. No madvise flag is set unless HUGEZERO_MAP_UNSHARED asks for it: the
 * kernel shares page tables only between mappings with equal flags.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "internal.h"

#define MAP_FLAGS (HUGEZERO_MAP_UNSHARED | HUGEZERO_MAP_RESERVED)
#define RESERVATION_FLAGS (MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE)

/* The extents to be mapped: @n of them, from @first on, one behind the other. */
struct layout {
        const struct grant_extent *extents;
        uint32_t n_extents;
        uint64_t bytes;
        uint64_t page_size_bytes; /* the largest */
        uint64_t align_bytes;     /* where we choose the address */
};

static int layout_make(const struct hugezero_grant *grant, uint32_t item, struct layout *ret_layout) {
        struct layout layout = {.align_bytes = 1};

        for (uint32_t i = 0; i < grant->n_extents; i++) {
                const struct grant_extent *extent = &grant->extents[i];
                if (item != HUGEZERO_ALL_ITEMS && extent->item != item)
                        continue;
                if (layout.bytes % extent->page_size_bytes)
                        return -EINVAL;
                if (layout.n_extents++ == 0)
                        layout.extents = extent;
                if (__builtin_add_overflow(layout.bytes, extent->bytes, &layout.bytes) || layout.bytes > SIZE_MAX / 2)
                        return -ENOMEM;
                if (extent->page_size_bytes > layout.page_size_bytes)
                        layout.page_size_bytes = extent->page_size_bytes;
                if (extent->bytes >= SHARE_BYTES)
                        layout.align_bytes = SHARE_BYTES;
        }
        if (layout.n_extents == 0)
                return -EINVAL;
        if (layout.align_bytes < layout.page_size_bytes)
                layout.align_bytes = layout.page_size_bytes;
        *ret_layout = layout;
        return 0;
}

static void *at(void *addr, uint64_t offset_bytes) {
        return (char *) addr + offset_bytes;
}

/* Address space of our own, a little too much, then trimmed to the aligned part. */
static int reserve_anywhere(const struct layout *layout, void **ret_addr) {
        uint64_t reserved_bytes = layout->bytes + layout->align_bytes;
        void *addr = mmap(NULL, reserved_bytes, PROT_NONE, RESERVATION_FLAGS, -1, 0);

        if (addr == MAP_FAILED)
                return negative_errno();
        uint64_t head_bytes = -(uintptr_t) addr % layout->align_bytes, tail_bytes = layout->align_bytes - head_bytes;
        if (head_bytes > 0)
                (void) munmap(addr, head_bytes);
        (void) munmap(at(addr, head_bytes + layout->bytes), tail_bytes);
        *ret_addr = at(addr, head_bytes);
        return 0;
}

static int reserve_at(const struct layout *layout, void *addr) {
        void *reserved = mmap(addr, layout->bytes, PROT_NONE, RESERVATION_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);

        return reserved == MAP_FAILED ? negative_errno() : 0;
}

/* Is all of it PROT_NONE, private and anonymous? Its parts may be several lines, as the kernel merges and splits at will. */
static int check_reservation(const struct layout *layout, const void *addr) {
        uintptr_t next = (uintptr_t) addr, end = next + layout->bytes;
        _cleanup_fclose_ FILE *maps = fopen("/proc/self/maps", "re");
        _cleanup_free_ char *line = NULL;
        size_t line_bytes = 0;

        if (!maps)
                return negative_errno();
        while (next < end && getline(&line, &line_bytes, maps) >= 0) {
                uintptr_t from, to;
                unsigned long inode;
                char permissions[5];

                if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %lu", &from, &to, permissions, &inode) != 4)
                        return -EIO;
                if (to <= next)
                        continue;
                if (from > next || strcmp(permissions, "---p") != 0 || inode != 0)
                        return -EEXIST;
                next = to;
        }
        return next < end ? -EEXIST : 0;
}

static int map_extent(const struct grant_extent *extent, void *addr) {
        struct stat st;

        /* A mapping that is longer than the file would make it grow, seals or not. */
        if (fstat(extent->fd, &st) < 0)
                return negative_errno();
        if ((uint64_t) st.st_size < extent->bytes)
                return -EBADMSG;
        if (mmap(addr, extent->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, extent->fd, 0) == MAP_FAILED)
                return negative_errno();
        return 0;
}

/*
 * Makes the first @n_extents, and the next one whose mapping failed, PROT_NONE again. Before Linux 6.13 a failed MAP_FIXED
 * may have left a hole in place of that one, and another thread may have mapped something there: it is filled only if free.
 */
static void restore_reservation(const struct layout *layout, void *addr, uint32_t n_extents) {
        uint64_t offset_bytes = 0;

        for (uint32_t i = 0; i < n_extents; i++)
                offset_bytes += layout->extents[i].bytes;
        if (offset_bytes > 0)
                (void) mmap(addr, offset_bytes, PROT_NONE, RESERVATION_FLAGS | MAP_FIXED, -1, 0);
        if (n_extents < layout->n_extents)
                (void) mmap(at(addr, offset_bytes), layout->extents[n_extents].bytes, PROT_NONE,
                            RESERVATION_FLAGS | MAP_FIXED_NOREPLACE, -1, 0);
}

static int map_layout(const struct layout *layout, void *addr, uint32_t flags) {
        uint64_t offset_bytes = 0;
        uint32_t n_mapped = 0;
        int r = 0;

        for (; n_mapped < layout->n_extents; offset_bytes += layout->extents[n_mapped++].bytes) {
                r = map_extent(&layout->extents[n_mapped], at(addr, offset_bytes));
                if (r < 0)
                        break;
        }
        if (r >= 0 && (flags & HUGEZERO_MAP_UNSHARED) && madvise(addr, layout->bytes, MADV_DONTDUMP) < 0)
                r = negative_errno();
        if (r >= 0)
                return 0;

        if (flags & HUGEZERO_MAP_RESERVED)
                restore_reservation(layout, addr, n_mapped);
        else
                (void) munmap(addr, layout->bytes);
        return r;
}

int hugezero_grant_map(struct hugezero_grant *grant, uint32_t item, void *addr, uint32_t flags, void **ret_addr,
                       uint64_t *ret_bytes) {
        struct layout layout;

        if (!grant || !ret_addr || (flags & ~MAP_FLAGS) || (!addr && (flags & HUGEZERO_MAP_RESERVED)))
                return -EINVAL;
        int r = layout_make(grant, item, &layout);
        if (r < 0)
                return r;
        if ((uintptr_t) addr % layout.page_size_bytes || (uintptr_t) addr > UINTPTR_MAX - layout.bytes)
                return -EINVAL;

        if (flags & HUGEZERO_MAP_RESERVED)
                r = check_reservation(&layout, addr);
        else
                r = addr ? reserve_at(&layout, addr) : reserve_anywhere(&layout, &addr);
        if (r >= 0)
                r = map_layout(&layout, addr, flags);
        if (r < 0)
                return r;
        *ret_addr = addr;
        if (ret_bytes)
                *ret_bytes = layout.bytes;
        return 0;
}

int map_touch_shareable(const struct hugezero_grant *grant, void *addr) {
        int n_touched = 0;

        for (uint32_t i = 0; i < grant->n_extents; i++) {
                const struct grant_extent *extent = &grant->extents[i];
                /* Whole aligned GiB at addresses congruent to the file offset; larger pages have no such tables. */
                bool shareable = (uintptr_t) addr % SHARE_BYTES == 0 && extent->page_size_bytes < SHARE_BYTES;
                for (uint64_t offset_bytes = 0; shareable && offset_bytes + SHARE_BYTES <= extent->bytes;
                     offset_bytes += SHARE_BYTES) {
                        if (madvise(at(addr, offset_bytes), extent->page_size_bytes, MADV_POPULATE_READ) < 0)
                                return negative_errno();
                        n_touched++;
                }
                addr = at(addr, extent->bytes);
        }
        return n_touched;
}
