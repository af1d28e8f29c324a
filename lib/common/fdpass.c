/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Packets with descriptors over AF_UNIX SOCK_SEQPACKET.
 *
 * The kernel keeps a packet and its descriptors together and in order. What it does not do is tell a process that has no room
 * for a descriptor more than MSG_CTRUNC, and it installs whatever fits before that: each path out of here accounts for those.
 */

#include "fdpass.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "cleanup.h"

/* Younger than Debian 12's headers; these are the numbers of asm-generic/socket.h and linux/socket.h. */
#if !defined(SO_PASSRIGHTS) && !defined(__sparc__) && !defined(__hppa__)
#define SO_PASSRIGHTS 83
#endif
#ifndef SCM_PIDFD
#define SCM_PIDFD 4
#endif

/* Chosen: credentials, a pidfd and a security label, which a socket that was handed to us may be set up to deliver. */
#define OTHER_CONTROL_BYTES 512

union control {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(WIRE_MAX_FDS * sizeof(int)) + OTHER_CONTROL_BYTES];
};

int fdpass_send(int socket_fd, const void *buffer, size_t n_bytes, const int *fds, size_t n_fds) {
        struct iovec iov = {.iov_base = (void *) buffer, .iov_len = n_bytes};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
        union control control;
        ssize_t n;

        assert(n_bytes > 0); /* an empty packet looks like the end of the stream */
        assert(n_fds <= WIRE_MAX_FDS);

        if (n_fds > 0) {
                memset(&control, 0, CMSG_SPACE(n_fds * sizeof(int)));
                msg.msg_control = &control;
                msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
                cmsg->cmsg_level = SOL_SOCKET;
                cmsg->cmsg_type = SCM_RIGHTS;
                cmsg->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
                memcpy(CMSG_DATA(cmsg), fds, n_fds * sizeof(int));
        }

        do
                n = sendmsg(socket_fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? negative_errno() : 0;
}

/* What was installed in this process, as far as @ret_fds has room; the rest is closed. Returns how many are in @ret_fds. */
static size_t collect_fds(struct msghdr *msg, int *ret_fds, size_t max_fds) {
        size_t n_fds = 0;

        for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
                if (cmsg->cmsg_level != SOL_SOCKET || (cmsg->cmsg_type != SCM_RIGHTS && cmsg->cmsg_type != SCM_PIDFD))
                        continue;
                for (size_t offset = 0; offset + sizeof(int) <= cmsg->cmsg_len - CMSG_LEN(0); offset += sizeof(int)) {
                        int fd;
                        memcpy(&fd, CMSG_DATA(cmsg) + offset, sizeof(fd));
                        if (cmsg->cmsg_type == SCM_RIGHTS && n_fds < max_fds)
                                ret_fds[n_fds++] = fd;
                        else
                                (void) safe_close(fd); /* a pidfd, which is negative when it could not be had */
                }
        }
        return n_fds;
}

/*
 * A peer that closes with packets unread makes the kernel report ECONNRESET once, ahead of what is still in the queue: its last
 * words, with or without descriptors. So that is passed over.
 */
static ssize_t receive_message(int socket_fd, struct msghdr *msg, int flags) {
        bool was_reset = false;

        for (;;) {
                ssize_t n = recvmsg(socket_fd, msg, flags);
                if (n >= 0)
                        return n;
                if (errno == ECONNRESET && !was_reset)
                        was_reset = true;
                else if (errno != EINTR)
                        return negative_errno();
        }
}

static ssize_t receive(int socket_fd, int flags, void *buffer, size_t buffer_bytes, int ret_fds[WIRE_MAX_FDS],
                       size_t *ret_n_fds) {
        struct iovec iov = {.iov_base = buffer, .iov_len = buffer_bytes};
        union control control;
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

        *ret_n_fds = 0;
        ssize_t n = receive_message(socket_fd, &msg, flags | MSG_CMSG_CLOEXEC);
        if (n < 0)
                return n;

        *ret_n_fds = collect_fds(&msg, ret_fds, WIRE_MAX_FDS);
        if (msg.msg_flags & MSG_TRUNC)
                return -EMSGSIZE;
        if (msg.msg_flags & MSG_CTRUNC)
                return -EMFILE;
        return n;
}

static ssize_t receive_checked(int socket_fd, int flags, void *buffer, size_t buffer_bytes, int *ret_fds, size_t max_fds,
                               size_t *ret_n_fds) {
        int fds[WIRE_MAX_FDS];
        size_t n_fds;

        ssize_t n = receive(socket_fd, flags, buffer, buffer_bytes, fds, &n_fds);
        if (n > 0 && n_fds > max_fds)
                n = -EBADMSG;
        if (n <= 0) { /* an empty packet may have come with descriptors */
                for (size_t i = 0; i < n_fds; i++)
                        (void) safe_close(fds[i]);
                n_fds = 0;
        }
        if (n < 0)
                return n;
        if (n_fds > 0)
                memcpy(ret_fds, fds, n_fds * sizeof(int));
        *ret_n_fds = n_fds;
        return n;
}

ssize_t fdpass_receive(int socket_fd, void *buffer, size_t buffer_bytes, int *ret_fds, size_t max_fds, size_t *ret_n_fds) {
        return receive_checked(socket_fd, MSG_DONTWAIT, buffer, buffer_bytes, ret_fds, max_fds, ret_n_fds);
}

ssize_t fdpass_receive_wait(int socket_fd, void *buffer, size_t buffer_bytes, int *ret_fds, size_t max_fds, size_t *ret_n_fds) {
        return receive_checked(socket_fd, 0, buffer, buffer_bytes, ret_fds, max_fds, ret_n_fds);
}

int fdpass_refuse_incoming(int socket_fd) {
#ifdef SO_PASSRIGHTS
        int off = 0;

        if (setsockopt(socket_fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off)) >= 0)
                return 0;
        return errno == ENOPROTOOPT ? -EOPNOTSUPP : negative_errno();
#else
        return -EOPNOTSUPP;
#endif
}

bool fdpass_may_arrive(int socket_fd) {
#ifdef SO_PASSRIGHTS
        int on = 1;
        socklen_t length = sizeof(on);

        return getsockopt(socket_fd, SOL_SOCKET, SO_PASSRIGHTS, &on, &length) < 0 || on;
#else
        return true;
#endif
}

/* Looks at the next packet with no room for control data: MSG_CTRUNC then says that it has some. */
static ssize_t peek(int socket_fd, int *ret_flags) {
        char byte;
        struct iovec iov = {.iov_base = &byte, .iov_len = sizeof(byte)};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

        ssize_t n = receive_message(socket_fd, &msg, MSG_DONTWAIT | MSG_PEEK);
        *ret_flags = msg.msg_flags;
        return n;
}

int fdpass_next_has_fds(int socket_fd) {
        int flags;

        ssize_t n = peek(socket_fd, &flags);
        return n < 0 ? (int) n : (flags & MSG_CTRUNC) != 0;
}

bool fdpass_is_drained(int socket_fd) {
        int flags, on = 1;

        /* With credentials asked for every packet has control data; the end of the stream, also of length 0, has none. */
        if (setsockopt(socket_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
                return false;
        ssize_t n = peek(socket_fd, &flags);
        return n < 0 || (n == 0 && !(flags & MSG_CTRUNC));
}
