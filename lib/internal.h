/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the files of the library share. Nothing of it leaves the library.
 *
 * connection.c is the only file that uses the socket. Whoever wants an answer embeds a struct call; the connection lists it
 * until it is collected, so that closing or losing the connection can finish all that are still open.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "hugezero.h"
#include "wire.h"

#define TEXT_BYTES (WIRE_MAX_TEXT_BYTES + 1)
#define THREAD_TEXT_BYTES (3 * TEXT_BYTES) /* a reason of the daemon's, a socket's path, and why the kernel has no memory either */
#define SHARE_BYTES (UINT64_C(1) << 30) /* kernel: one page table of PMDs maps 1 GiB, and is shared as a whole */

struct call {
        TAILQ_ENTRY(call) link;
        struct hugezero_conn *conn; /* NULL: in no list, never submitted or its connection was closed */
        uint32_t request_id;
        uint16_t answer_op;
        int result; /* -EINPROGRESS until it has finished */
        /*
         * Takes in one message with answer_op. Descriptors that it keeps it sets to -EBADF in @fds; the others are closed.
         * 0: finished; -EINPROGRESS: more messages follow; -EBADMSG: a breach of the protocol; else the call fails with it.
         * NULL: nothing to take in.
         */
        int (*answer)(struct call *call, const struct wire_message *message, int *fds, size_t n_fds);
        char text[TEXT_BYTES]; /* the reason of a failure */
};

/* What is known of the room for descriptors in this process. */
struct fd_room {
        uint64_t limit; /* RLIMIT_NOFILE; 0: not asked yet */
        int last_fd;    /* the latest one that was opened: the lowest that was free then */
};

/* 0, or why the connection cannot be used: -EINVAL (NULL), -ECHILD, or what has broken it. */
int conn_check(const struct hugezero_conn *conn);
/* The same, and the reason becomes the connection's text. */
int conn_use(struct hugezero_conn *conn);
/* @text becomes the connection's, or the thread's where there is none. Returns -EINVAL. */
int conn_fail_argument(struct hugezero_conn *conn, const char *text);
/* Whatever the state of the connection. */
int conn_fd(const struct hugezero_conn *conn);
struct fd_room *conn_fd_room(struct hugezero_conn *conn);
/* Sends @message, or queues it while the socket takes nothing; whatever answer comes is thrown away. Never blocks. */
int conn_post(struct hugezero_conn *conn, struct wire_message *message);
/* The same for a message whose answer is wanted. After success @call is in the connection's list until call_unlink(). */
int conn_call(struct hugezero_conn *conn, struct wire_message *message, struct call *call);
/* The same where conn_check() has just found nothing wrong: it costs a system call. */
int conn_call_checked(struct hugezero_conn *conn, struct wire_message *message, struct call *call);
/* Exchanges messages until @call has finished. Returns its result, or -ETIMEDOUT; @timeout_ms -1: no limit. */
int conn_wait(struct hugezero_conn *conn, struct call *call, int timeout_ms);
/* conn_call() and conn_wait() for a call on the caller's stack; the reason of a failure is the connection's text then. */
int conn_call_and_wait(struct hugezero_conn *conn, struct wire_message *message, struct call *call);
/* Is its descriptor still the socket that it was, and not closed, or somebody else's, behind the library's back? */
bool conn_owns_fd(const struct hugezero_conn *conn);
/* Closes the descriptor and leaves the object as it is, possibly in the middle of a change: in a forked child only. */
void conn_close_fd(struct hugezero_conn *conn);
void conn_set_text(struct hugezero_conn *conn, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The text of hugezero_conn_get_error_text(NULL). */
void thread_set_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

void call_finish(struct call *call, int result, const char *text);
void call_unlink(struct call *call);

/* What the daemon can have as the name of a pool; "" is any. */
bool is_pool_name(const char *pool);

struct grant_extent {
        int fd;                  /* -EBADF: taken or released */
        uint32_t item, position; /* position: as the daemon counts */
        int32_t node;
        uint64_t bytes, page_size_bytes;
};

struct hugezero_grant {
        uint64_t id;
        uint32_t n_extents;
        uint32_t n_arrived; /* while it is being put together */
        struct grant_extent extents[];
};

/*
 * Adds one D_GRANT to *@grant (NULL at the first one). 0: the grant is complete and fits @acquire; -EINPROGRESS: more messages
 * follow; -EBADMSG: something is wrong with it; -EMFILE: more descriptors than this process may ever have; -ENOMEM.
 */
int grant_collect(struct hugezero_grant **grant, const struct wire_c_acquire *acquire, const struct wire_d_grant *message,
                  int *fds, size_t n_fds);

/*
 * Touches one page in each GiB that can share page tables when the whole grant is mapped at @addr. An error instead of a
 * signal where a page is missing. Returns how many there were.
 */
int map_touch_shareable(const struct hugezero_grant *grant, void *addr);

/* Ordinary huge pages, as hugezero_alloc() promises them for HUGEZERO_FALLBACK_MMAP. */
int fallback_map(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **ret_addr, uint64_t *ret_bytes);

/*
 * Copies the part of @own that the caller's structure has room for, and clears what it has beyond that. Both begin with a
 * uint32_t struct_bytes. Nothing may be smaller than the structure of version 0.1.
 */
static inline int info_fill(void *info, const void *own, uint32_t own_bytes, uint32_t min_bytes) {
        uint32_t info_bytes;

        memcpy(&info_bytes, info, sizeof(info_bytes));
        if (info_bytes < min_bytes)
                return -EINVAL;
        memset(info, 0, info_bytes);
        memcpy(info, own, info_bytes < own_bytes ? info_bytes : own_bytes);
        memcpy(info, &info_bytes, sizeof(info_bytes));
        return 0;
}
