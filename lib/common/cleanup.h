/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Cleanup attributes and the two ways in which ownership moves: take-pointer and take-fd. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((__cleanup__(function)))

/* Closes and keeps errno; accepts "none" (negative). */
static inline int safe_close(int fd) {
        if (fd >= 0) {
                int saved_errno = errno;
                (void) close(fd);
                errno = saved_errno;
        }
        return -EBADF;
}

static inline void close_fdp(int *fd) {
        *fd = safe_close(*fd);
}

static inline void free_p(void *pointer) {
        free(*(void **) pointer);
}

static inline void fclose_p(FILE **file) {
        if (*file)
                (void) fclose(*file);
}

#define _cleanup_close_ _cleanup_(close_fdp)
#define _cleanup_free_ _cleanup_(free_p)
#define _cleanup_fclose_ _cleanup_(fclose_p)

/* The value moves to the caller; the variable no longer owns it. */
#define take_ptr(pointer)                               \
        ({                                              \
                __typeof__(pointer) _taken = (pointer); \
                (pointer) = NULL;                       \
                _taken;                                 \
        })

static inline int take_fd(int *fd) {
        int taken = *fd;
        *fd = -EBADF;
        return taken;
}

/* errno as a negative value, never 0: some libraries fail without setting it. */
static inline int negative_errno(void) {
        return errno > 0 ? -errno : -EIO;
}
