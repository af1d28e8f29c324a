/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One hugetlb memfd: made, sized, mapped, populated, sealed, reopened, asked about, given up. extent.c is the only file that
 * makes such calls. No state of the pool is known here. Any thread, one at a time per extent_file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct extent_file {
        int fd;                   /* the daemon's own description (reopened, O_NONBLOCK); -EBADF when there is none */
        uint64_t page_size_bytes;
        uint64_t bytes;           /* what we made it; st_size of a held extent is not to be trusted */
        void *addr;               /* NULL while not mapped; congruent to the file offset modulo 1 GiB */
        uint64_t mapped_bytes;
        uint64_t dev, ino;
};

#define EXTENT_FILE_NULL ((struct extent_file) {.fd = -EBADF})
#define EXTENT_SHARE_BYTES (UINT64_C(1) << 30) /* kernel: one PMD page table maps 1 GiB of 2 MiB pages; smaller extents share nothing */

/* An empty extent: memfd, mode 0600, reopened so that the first description is gone. -ENODEV: the kernel lacks the size. */
int extent_file_create(uint64_t page_size_bytes, struct extent_file *ret_file);
/* Unmaps, closes. Freeing the pages of a large extent takes milliseconds per GiB: a worker's job. */
void extent_file_done(struct extent_file *file);

/* ftruncate to @bytes; cuts or grows, before sealing only. The mapping's tail behind a cut is unmapped. */
int extent_file_resize(struct extent_file *file, uint64_t bytes);
/*
 * Maps [0, file->bytes) MAP_SHARED, read and write, replacing an earlier mapping. The kernel reserves missing pages for it now:
 * -ENOMEM when it has too few. @node >= 0 binds missing pages to that node. No madvise flags: they would prevent page-table
 * sharing with clients.
 */
int extent_file_map(struct extent_file *file, int node);
void extent_file_unmap(struct extent_file *file);
/* MADV_POPULATE_WRITE on part of the mapping; the kernel zeroes what is missing. -ENOSPC: no page left on the node. Never SIGBUS. */
int extent_file_populate(struct extent_file *file, uint64_t offset_bytes, uint64_t bytes);

/* F_SEAL_GROW | F_SEAL_SHRINK, 2-3 us. Not F_SEAL_SEAL: the pin test adds one. */
int extent_file_seal(struct extent_file *file);
/* fchown(-1, gid) and mode 0660, so that members of the group who hold the fd can open it again. */
int extent_file_make_reopenable(struct extent_file *file, gid_t gid);
/*
 * Another open file description of the same memory, with flock(LOCK_SH) on it: the grant. While that description lives
 * anywhere (fd, mapping, in flight), extent_file_is_held() says so. Close-on-exec, blocking mode, read and write.
 */
int extent_file_open_grant(struct extent_file *file, int *ret_fd);
/* The flock question, 0.6 us. 1: held, true without doubt. 0: no locked description lives. Negative errno: cannot be told. */
int extent_file_is_held(struct extent_file *file);

struct extent_check {
        uint64_t size_bytes, present_bytes; /* st_size, st_blocks */
        bool foreign_seal;                  /* a seal that we did not set */
        bool hides_pins;                    /* one of those that make the pin test say nothing */
};
int extent_file_check(const struct extent_file *file, struct extent_check *ret_check);
/*
 * The pin test: adds F_SEAL_WRITE, for good. Unmaps first. 0: no page is pinned. -EBUSY (after about 165 ms): some are.
 * Only when nobody holds the extent, and only on the way to dropping it.
 */
int extent_file_test_pins(struct extent_file *file);
