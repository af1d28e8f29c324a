/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets with file descriptors. fdpass.c is the only file that touches control messages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "wire.h"

/*
 * fdpass_send - send one packet with @n_fds descriptors (0 to WIRE_MAX_FDS)
 * The descriptors are borrowed: the kernel takes its own references. Never blocks (MSG_DONTWAIT), never raises SIGPIPE.
 * Returns 0, or -EAGAIN (peer's queue is full), -ETOOMANYREFS (the uid has too many descriptors in flight; back-pressure),
 * -EPIPE / -ECONNRESET (peer gone), another negative errno.
 */
int fdpass_send(int socket_fd, const void *buffer, size_t n_bytes, const int *fds, size_t n_fds);

/*
 * fdpass_receive - receive one packet and up to @max_fds descriptors, close-on-exec
 * @ret_fds: room for @max_fds; the first *@ret_n_fds are owned by the caller on success.
 * Does not wait (MSG_DONTWAIT). Returns the packet's length in bytes, 0 at end of stream, or -EAGAIN, -EMSGSIZE (packet longer
 * than the buffer), -EMFILE (control data was truncated, so descriptors are missing: MSG_CTRUNC; the packet is in @buffer all
 * the same, as whoever waits for it has to be told), -EBADMSG (more than @max_fds came), another negative errno. On failure and
 * at end of stream every descriptor that came was closed.
 */
ssize_t fdpass_receive(int socket_fd, void *buffer, size_t buffer_bytes, int *ret_fds, size_t max_fds, size_t *ret_n_fds);
/* The same, but waits for a packet on a blocking socket: one system call less than waiting and then receiving. */
ssize_t fdpass_receive_wait(int socket_fd, void *buffer, size_t buffer_bytes, int *ret_fds, size_t max_fds, size_t *ret_n_fds);

/*
 * fdpass_refuse_incoming - ask the kernel to refuse descriptors sent to this socket (SO_PASSRIGHTS=0, Linux 6.16)
 * Accepted sockets inherit it from the listener. Returns 0, or -EOPNOTSUPP where the kernel does not have it.
 */
int fdpass_refuse_incoming(int socket_fd);
/* Can descriptors be in this accepted socket's queue? False where the kernel has refused them ever since it was connected. */
bool fdpass_may_arrive(int socket_fd);
/*
 * fdpass_next_has_fds - does the next packet carry descriptors?
 * Returns 1, 0 (no, or the stream has ended), or a negative errno: -EAGAIN when there is no packet. One that comes after that
 * has not been looked at, so ask again before receiving.
 * Takes nothing. Where it is 1, both receiving the packet and closing the socket may block for as long as the sender likes
 * (a socket with SO_LINGER, a FUSE file): leave either to a thread that may block.
 */
int fdpass_next_has_fds(int socket_fd);
/* Is the queue empty, also of packets without content? After shutdown(SHUT_RD) that stays so. */
bool fdpass_is_drained(int socket_fd);
