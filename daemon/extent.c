/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One hugetlb memfd, from its making to its end. Everything the kernel is asked about such a file is asked here.
 *
 * Memory is populated through MADV_POPULATE_WRITE only, never by touching: an empty pool is then an error code, not a SIGBUS.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "extent.h"
#include "topology.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3 */
#endif
#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020 /* Linux 6.3 */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define SEALS_AT_HAND_OUT (F_SEAL_GROW | F_SEAL_SHRINK)
#define N_MAP_ATTEMPTS 16 /* chosen: each is lost only when another thread maps at that address in the microsecond between */

static int open_again(int fd, int flags) {
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        fd = open(path, flags | O_CLOEXEC);
        return fd < 0 ? negative_errno() : fd;
}

static int create_memfd(uint64_t page_size_bytes) {
        unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | (__builtin_ctzll(page_size_bytes) << MFD_HUGE_SHIFT);
        int fd;

        /* With vm.memfd_noexec=2 nothing else is allowed; before 6.3 the flag is unknown. */
        fd = memfd_create("hugezero", flags | MFD_NOEXEC_SEAL);
        if (fd < 0 && errno == EINVAL)
                fd = memfd_create("hugezero", flags);
        return fd < 0 ? negative_errno() : fd;
}

int extent_file_create(uint64_t page_size_bytes, struct extent_file *ret_file) {
        _cleanup_close_ int first_fd = -EBADF, fd = -EBADF;
        struct stat st;

        assert(page_size_bytes > 0 && (page_size_bytes & (page_size_bytes - 1)) == 0);
        first_fd = create_memfd(page_size_bytes);
        if (first_fd < 0)
                return first_fd;
        if (fchmod(first_fd, 0600) < 0)
                return negative_errno();
        /* The description that memfd_create returns is not counted as one by the kernel (no open happened); give it up. */
        fd = open_again(first_fd, O_RDWR | O_NONBLOCK);
        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0)
                return negative_errno();
        *ret_file = (struct extent_file){
                .fd = take_fd(&fd), .page_size_bytes = page_size_bytes, .dev = st.st_dev, .ino = st.st_ino};
        return 0;
}

void extent_file_done(struct extent_file *file) {
        extent_file_unmap(file);
        safe_close(file->fd);
        *file = EXTENT_FILE_NULL;
}

int extent_file_resize(struct extent_file *file, uint64_t bytes) {
        assert(bytes % file->page_size_bytes == 0);
        if (ftruncate(file->fd, bytes) < 0)
                return negative_errno();
        file->bytes = bytes;
        if (bytes == 0)
                extent_file_unmap(file);
        else if (bytes < file->mapped_bytes) {
                (void) munmap((char *) file->addr + bytes, file->mapped_bytes - bytes);
                file->mapped_bytes = bytes;
        }
        return 0;
}

/* Free addresses from a multiple of EXTENT_SHARE_BYTES on. Another thread may take them before the caller does. */
static int find_congruent_addr(uint64_t bytes, void **ret_addr) {
        uint64_t span_bytes = bytes + EXTENT_SHARE_BYTES;
        void *span = mmap(NULL, span_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (span == MAP_FAILED)
                return negative_errno();
        (void) munmap(span, span_bytes);
        *ret_addr = (void *) (((uintptr_t) span + EXTENT_SHARE_BYTES - 1) & ~(uintptr_t) (EXTENT_SHARE_BYTES - 1));
        return 0;
}

/*
 * The range is looked for and then mapped without replacing anything, instead of mapped over a reservation: a MAP_FIXED that
 * fails (too few pages) leaves a hole in the reservation, which another worker may fill before we could give it back.
 */
static int map_congruent(struct extent_file *file, void **ret_addr) {
        const int protection = PROT_READ | PROT_WRITE;

        for (unsigned n = 0; n < N_MAP_ATTEMPTS; n++) {
                void *addr = NULL, *wanted = NULL;
                int r, flags = MAP_SHARED;

                if (file->bytes >= EXTENT_SHARE_BYTES) {
                        r = find_congruent_addr(file->bytes, &wanted);
                        if (r < 0)
                                return r;
                        flags |= MAP_FIXED_NOREPLACE;
                }
                addr = mmap(wanted, file->bytes, protection, flags, file->fd, 0);
                if (addr != MAP_FAILED) {
                        *ret_addr = addr;
                        return 0;
                }
                if (errno != EEXIST)
                        return negative_errno();
        }
        return -EEXIST;
}

int extent_file_map(struct extent_file *file, int node) {
        void *addr;
        int r;

        if (file->bytes == 0)
                return -EINVAL;
        extent_file_unmap(file);
        r = map_congruent(file, &addr);
        if (r < 0)
                return r;
        if (node >= 0) {
                r = topology_bind_memory(addr, file->bytes, node);
                if (r < 0) {
                        (void) munmap(addr, file->bytes);
                        return r;
                }
        }
        file->addr = addr;
        file->mapped_bytes = file->bytes;
        return 0;
}

void extent_file_unmap(struct extent_file *file) {
        if (file->addr)
                (void) munmap(file->addr, file->mapped_bytes);
        file->addr = NULL;
        file->mapped_bytes = 0;
}

int extent_file_populate(struct extent_file *file, uint64_t offset_bytes, uint64_t bytes) {
        assert(file->addr && offset_bytes <= file->mapped_bytes && bytes <= file->mapped_bytes - offset_bytes);
        while (madvise((char *) file->addr + offset_bytes, bytes, MADV_POPULATE_WRITE) < 0)
                switch (errno) {
                case EINTR:
                case EAGAIN:
                        continue;
                case EFAULT: /* touching would have raised SIGBUS: no page left for this file on that node */
                case ENOMEM:
                        return -ENOSPC;
                default:
                        return negative_errno();
                }
        return 0;
}

int extent_file_seal(struct extent_file *file) {
        return fcntl(file->fd, F_ADD_SEALS, SEALS_AT_HAND_OUT) < 0 ? negative_errno() : 0;
}

int extent_file_make_reopenable(struct extent_file *file, gid_t gid) {
        /* The group first: the mode must not open the file to the daemon's own group in between. */
        if (fchown(file->fd, (uid_t) -1, gid) < 0 || fchmod(file->fd, 0660) < 0)
                return negative_errno();
        return 0;
}

int extent_file_open_grant(struct extent_file *file, int *ret_fd) {
        _cleanup_close_ int fd = open_again(file->fd, O_RDWR);

        if (fd < 0)
                return fd;
        if (flock(fd, LOCK_SH | LOCK_NB) < 0)
                return negative_errno();
        *ret_fd = take_fd(&fd);
        return 0;
}

int extent_file_is_held(struct extent_file *file) {
        if (flock(file->fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? 1 : negative_errno();
        return flock(file->fd, LOCK_UN) < 0 ? negative_errno() : 0;
}

int extent_file_check(const struct extent_file *file, struct extent_check *ret_check) {
        struct stat st;
        int seals = fcntl(file->fd, F_GET_SEALS);

        if (seals < 0 || fstat(file->fd, &st) < 0)
                return negative_errno();
        *ret_check = (struct extent_check){
                .hides_pins = (seals & (F_SEAL_SEAL | F_SEAL_WRITE)) != 0,
                .size_bytes = st.st_size,
                .present_bytes = (uint64_t) st.st_blocks * 512 /* the unit of st_blocks, stat(3type) */,
                .foreign_seal = (seals & ~(SEALS_AT_HAND_OUT | F_SEAL_EXEC)) != 0,
        };
        return 0;
}

int extent_file_test_pins(struct extent_file *file) {
        extent_file_unmap(file);
        return fcntl(file->fd, F_ADD_SEALS, F_SEAL_WRITE) < 0 ? negative_errno() : 0;
}
