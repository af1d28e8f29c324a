/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A connection: opening and closing, messages out and in, and who waits for which answer.
 *
 * The socket never blocks; what it does not take waits in a list. A connection whose peer is gone or has broken the protocol
 * stays as an object that says so, with every open call finished. It belongs to the process that opened it: a forked child
 * that read from it would steal the parent's answers.
 */

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "config-build.h"
#include "fdpass.h"
#include "internal.h"

#define OPEN_TIMEOUT_MS 10000  /* chosen: a daemon that is being started answers within a second */
#define MAX_QUEUED_PACKETS 256 /* chosen: the socket's own buffer takes about as many */
#define TEXT_EMFILE "the grant has more descriptors than this process may open; raise RLIMIT_NOFILE (ulimit -n)"
#define MAX_PACKETS_AT_ONCE 256 /* chosen: bounds one hugezero_conn_dispatch() against a daemon that never stops sending */

struct packet {
        TAILQ_ENTRY(packet) link;
        size_t n_bytes;
        uint8_t bytes[];
};

struct hugezero_conn {
        int fd;
        dev_t dev; /* of the socket: a program that closes all descriptors closes this one too, and the number is used again */
        ino_t ino;
        pid_t pid;                /* of the process that may use it */
        int broken;               /* negative errno: nothing works any more; 0: in use */
        const char *broken_text;
        uint32_t last_request_id; /* 0 is the greeting's, and of messages that are not answered */
        unsigned n_queued;
        TAILQ_HEAD(, packet) queue;
        TAILQ_HEAD(, call) calls;
        struct fd_room fd_room;
        char text[TEXT_BYTES];
};

static _Thread_local char thread_text[THREAD_TEXT_BYTES];

void thread_set_text(const char *format, ...) {
        va_list args;

        va_start(args, format);
        (void) vsnprintf(thread_text, sizeof(thread_text), format, args);
        va_end(args);
}

void conn_set_text(struct hugezero_conn *conn, const char *format, ...) {
        va_list args;

        va_start(args, format);
        (void) vsnprintf(conn->text, sizeof(conn->text), format, args);
        va_end(args);
}

void call_finish(struct call *call, int result, const char *text) {
        call->result = result;
        call->text[0] = 0;
        if (text[0])
                (void) snprintf(call->text, sizeof(call->text), "%s", text);
        if (result < 0 && call->conn)
                conn_set_text(call->conn, "%s", text);
}

void call_unlink(struct call *call) {
        if (call->conn)
                TAILQ_REMOVE(&call->conn->calls, call, link);
        call->conn = NULL;
}

int conn_check(const struct hugezero_conn *conn) {
        if (!conn)
                return -EINVAL;
        if (conn->pid != getpid())
                return -ECHILD;
        return conn->broken;
}

int conn_fail_argument(struct hugezero_conn *conn, const char *text) {
        if (conn)
                conn_set_text(conn, "%s", text);
        else
                thread_set_text("%s", text);
        return -EINVAL;
}

int conn_use(struct hugezero_conn *conn) {
        int r = conn_check(conn);
        if (r == -EINVAL)
                return conn_fail_argument(NULL, "no connection is given");
        if (r == -ECHILD)
                conn_set_text(conn, "the connection belongs to the parent process; open one of your own");
        else if (r < 0)
                conn_set_text(conn, "%s", conn->broken_text);
        return r;
}

int conn_fd(const struct hugezero_conn *conn) {
        return conn->fd;
}

struct fd_room *conn_fd_room(struct hugezero_conn *conn) {
        return &conn->fd_room;
}

bool conn_owns_fd(const struct hugezero_conn *conn) {
        struct stat st;

        return fstat(conn->fd, &st) >= 0 && st.st_dev == conn->dev && st.st_ino == conn->ino;
}

static void clear_queue(struct hugezero_conn *conn) {
        struct packet *packet;

        while ((packet = TAILQ_FIRST(&conn->queue))) {
                TAILQ_REMOVE(&conn->queue, packet, link);
                free(packet);
        }
        conn->n_queued = 0;
}

static int conn_break(struct hugezero_conn *conn, int error, const char *text) {
        struct call *call;

        conn->broken = error;
        conn->broken_text = text;
        conn_set_text(conn, "%s", text);
        clear_queue(conn);
        TAILQ_FOREACH(call, &conn->calls, link)
                if (call->result == -EINPROGRESS)
                        call_finish(call, error, text);
        return error;
}

/* An exchange with the daemon has failed with @error. */
static int conn_break_exchange(struct hugezero_conn *conn, int error, const char *text) {
        return conn_break(conn, error, error == -EBADF || error == -ENOTSOCK ? "this program has closed the descriptor of its "
                                                                                "connection to the daemon" : text);
}

static struct call *find_call(struct hugezero_conn *conn, uint32_t request_id) {
        struct call *call;

        TAILQ_FOREACH(call, &conn->calls, link)
                if (call->request_id == request_id && call->result == -EINPROGRESS)
                        return call;
        return NULL;
}

/* A number that was given out, but whose call was cancelled, has failed, or never wanted an answer. */
static bool is_answer_unwanted(const struct hugezero_conn *conn, uint32_t request_id) {
        return request_id == 0 || (int32_t) (conn->last_request_id - request_id) >= 0;
}

static int take_refusal(struct call *call, const struct wire_d_refused *refused, size_t n_fds) {
        if (n_fds > 0 || refused->error == EINPROGRESS)
                return -EBADMSG;
        call_finish(call, -refused->error, refused->n_text_bytes > 0 ? refused->text : strerror(refused->error));
        return 0;
}

static int take_message(struct hugezero_conn *conn, const struct wire_message *message, int *fds, size_t n_fds) {
        struct call *call = find_call(conn, message->request_id);

        if (!call)
                return is_answer_unwanted(conn, message->request_id) ? 0 : -EBADMSG;
        if (message->op == WIRE_D_REFUSED)
                return take_refusal(call, &message->d_refused, n_fds);
        if (message->op != call->answer_op || (n_fds > 0 && message->op != WIRE_D_GRANT))
                return -EBADMSG;

        int r = call->answer ? call->answer(call, message, fds, n_fds) : 0;
        if (r == -EBADMSG)
                return r;
        if (r != -EINPROGRESS)
                call_finish(call, r, r >= 0 ? "" : r == -EMFILE ? TEXT_EMFILE : strerror(-r));
        return 0;
}

/*
 * Descriptors are missing (MSG_CTRUNC), so the call is lost, but only that one: what else arrives for it is unwanted from now
 * on, is closed, and comes back to the daemon. fdpass_receive() has left the packet in @buffer.
 */
static int take_truncated(struct hugezero_conn *conn, const uint8_t buffer[WIRE_HEADER_BYTES]) {
        uint32_t request_id = buffer[4] | (uint32_t) buffer[5] << 8 | (uint32_t) buffer[6] << 16 | (uint32_t) buffer[7] << 24;
        struct call *call = find_call(conn, request_id);

        if (call)
                call_finish(call, -EMFILE, TEXT_EMFILE);
        return 0;
}

/* One packet. 0: taken in; -EAGAIN: there is none; else the connection is broken now. */
static int receive_packet(struct hugezero_conn *conn, bool wait) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;
        int fds[WIRE_MAX_FDS];
        size_t n_fds = 0;

        memset(buffer, 0, WIRE_HEADER_BYTES);
        ssize_t n = (wait ? fdpass_receive_wait : fdpass_receive)(conn->fd, buffer, sizeof(buffer), fds, WIRE_MAX_FDS, &n_fds);
        if (n == -EAGAIN)
                return -EAGAIN;
        if (n == -EMFILE)
                return take_truncated(conn, buffer);
        if (n == 0 || n == -ECONNRESET)
                return conn_break(conn, -ECONNRESET,
                                  "the daemon has closed the connection: stopped, restarted, or it cut us off");
        if (n < 0 && n != -EMSGSIZE && n != -EBADMSG)
                return conn_break_exchange(conn, (int) n, "cannot receive from the daemon");

        int r = n < 0 ? -EBADMSG : wire_decode(buffer, (size_t) n, WIRE_TO_CLIENT, &message);
        if (r >= 0)
                r = take_message(conn, &message, fds, n_fds);
        for (size_t i = 0; i < n_fds; i++)
                (void) safe_close(fds[i]);
        return r < 0 ? conn_break(conn, -EBADMSG, "the daemon has sent something that is no answer of the protocol") : 0;
}

/* All that is there now. */
static int receive_packets(struct hugezero_conn *conn) {
        for (unsigned i = 0; i < MAX_PACKETS_AT_ONCE; i++) {
                int r = receive_packet(conn, /* wait */ false);
                if (r < 0)
                        return r == -EAGAIN ? 0 : r;
        }
        return 0;
}

/* The peer takes no more messages. Its last words, often the reason, may still lie in the socket. */
static int take_last_words(struct hugezero_conn *conn) {
        int r;

        do
                r = receive_packet(conn, /* wait */ false);
        while (r >= 0);
        return r == -EAGAIN ? conn_break(conn, -ECONNRESET, "the daemon takes no more messages") : r;
}

static int queue_packet(struct hugezero_conn *conn, const uint8_t *bytes, size_t n_bytes) {
        if (conn->n_queued >= MAX_QUEUED_PACKETS) {
                conn_set_text(conn, "%u messages wait to be read by the daemon; dispatch the connection first", conn->n_queued);
                return -ENOBUFS;
        }

        struct packet *packet = malloc(sizeof(*packet) + n_bytes);
        if (!packet) {
                conn_set_text(conn, "out of memory");
                return -ENOMEM;
        }
        packet->n_bytes = n_bytes;
        memcpy(packet->bytes, bytes, n_bytes);
        TAILQ_INSERT_TAIL(&conn->queue, packet, link);
        conn->n_queued++;
        return 0;
}

static int send_message(struct hugezero_conn *conn, const struct wire_message *message) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];

        int n = wire_encode(message, buffer, sizeof(buffer));
        if (n < 0)
                return n;
        int r = conn->n_queued > 0 ? -EAGAIN : fdpass_send(conn->fd, buffer, (size_t) n, NULL, 0);
        if (r == -EAGAIN)
                return queue_packet(conn, buffer, (size_t) n);
        if (r == -EPIPE || r == -ECONNRESET)
                return take_last_words(conn);
        return r < 0 ? conn_break_exchange(conn, r, "cannot send to the daemon") : 0;
}

static int send_queued(struct hugezero_conn *conn) {
        struct packet *packet;

        while ((packet = TAILQ_FIRST(&conn->queue))) {
                int r = fdpass_send(conn->fd, packet->bytes, packet->n_bytes, NULL, 0);
                if (r == -EAGAIN)
                        return 0;
                if (r == -EPIPE || r == -ECONNRESET)
                        return take_last_words(conn);
                if (r < 0)
                        return conn_break_exchange(conn, r, "cannot send to the daemon");
                TAILQ_REMOVE(&conn->queue, packet, link);
                conn->n_queued--;
                free(packet);
        }
        return 0;
}

static int post_checked(struct hugezero_conn *conn, struct wire_message *message) {
        /* Never 0 for something that may be answered: a late answer must be told from a greeting. */
        do
                message->request_id = ++conn->last_request_id;
        while (message->request_id == 0 || find_call(conn, message->request_id));
        return send_message(conn, message);
}

int conn_post(struct hugezero_conn *conn, struct wire_message *message) {
        int r = conn_use(conn);
        return r < 0 ? r : post_checked(conn, message);
}

int conn_call_checked(struct hugezero_conn *conn, struct wire_message *message, struct call *call) {
        int r = post_checked(conn, message);
        if (r < 0)
                return r;
        call->conn = conn;
        call->request_id = message->request_id;
        call->result = -EINPROGRESS;
        call->text[0] = 0;
        TAILQ_INSERT_TAIL(&conn->calls, call, link);
        return 0;
}

int conn_call(struct hugezero_conn *conn, struct wire_message *message, struct call *call) {
        int r = conn_use(conn);
        return r < 0 ? r : conn_call_checked(conn, message, call);
}

static int64_t now_ms(void) {
        struct timespec now;

        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static short events(const struct hugezero_conn *conn) {
        return conn->n_queued > 0 ? POLLIN | POLLOUT : POLLIN;
}

int conn_wait(struct hugezero_conn *conn, struct call *call, int timeout_ms) {
        int64_t deadline_ms = timeout_ms >= 0 ? now_ms() + timeout_ms : INT64_MAX;

        while (call->result == -EINPROGRESS) {
                struct pollfd pollfd = {.fd = conn->fd, .events = events(conn)};
                int64_t left_ms = timeout_ms >= 0 ? deadline_ms - now_ms() : -1;

                if (timeout_ms >= 0 && left_ms <= 0)
                        return -ETIMEDOUT;
                /* Without a time-out and with nothing to send, receiving is waiting; unless the caller made the socket non-blocking. */
                if (timeout_ms < 0 && conn->n_queued == 0 && receive_packet(conn, /* wait */ true) != -EAGAIN)
                        continue;
                int r = poll(&pollfd, 1, (int) left_ms) < 0 ? negative_errno() : 0;
                if (r < 0 && r != -EINTR)
                        return conn_break(conn, r, "cannot wait for the daemon");
                if (conn->n_queued > 0)
                        (void) send_queued(conn);
                /* One packet, not all: asking the socket whether there is another one would be for nothing nearly always. */
                if (call->result == -EINPROGRESS)
                        (void) receive_packet(conn, /* wait */ false);
        }
        return call->result;
}

int conn_call_and_wait(struct hugezero_conn *conn, struct wire_message *message, struct call *call) {
        int r = conn_call(conn, message, call);
        if (r < 0)
                return r;
        r = conn_wait(conn, call, -1);
        call_unlink(call);
        return r;
}

static int connect_socket(const char *path, int timeout_ms, int *ret_fd) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct timeval timeout = {.tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000};
        _cleanup_close_ int fd = -EBADF;
        int r;

        if (path[0] == 0)
                return -EINVAL;
        if (strlen(path) >= sizeof(address.sun_path))
                return -ENAMETOOLONG;
        memcpy(address.sun_path, path, strlen(path) + 1);

        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return negative_errno();
        /* Where the backlog is full connect() waits, but not longer than this: EAGAIN. Messages go out with MSG_DONTWAIT. */
        if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)) < 0)
                return negative_errno();
        do
                r = connect(fd, (struct sockaddr *) &address, sizeof(address));
        while (r < 0 && errno == EINTR);
        if (r < 0)
                return errno == EAGAIN ? -ETIMEDOUT : negative_errno();
        *ret_fd = take_fd(&fd);
        return 0;
}

struct greeting {
        struct call call; /* first */
        bool is_other;    /* the daemon has answered with another version */
};

static int take_hello(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        bool is_other = message->d_hello.version != WIRE_VERSION || message->d_hello.features != 0;

        ((struct greeting *) call)->is_other = is_other;
        return is_other ? -EPROTO : 0;
}

static int greet(struct hugezero_conn *conn, int timeout_ms) {
        struct wire_message message = {
                .op = WIRE_C_HELLO,
                .c_hello = {.magic = WIRE_MAGIC, .version_min = WIRE_VERSION, .version_max = WIRE_VERSION},
        };
        /* Number 0, so that a daemon which refuses a client before reading anything can tell it why. */
        struct greeting greeting = {
                .call = {.conn = conn, .answer_op = WIRE_D_HELLO, .answer = take_hello, .result = -EINPROGRESS}};
        struct call *call = &greeting.call;

        TAILQ_INSERT_TAIL(&conn->calls, call, link);
        int r = send_message(conn, &message);
        if (r >= 0 || call->result != -EINPROGRESS)
                r = conn_wait(conn, call, timeout_ms);
        call_unlink(call);
        conn_set_text(conn, "%s",
                      greeting.is_other ? "daemon and library speak no common version of the protocol" : call->text);
        return r == -EBADMSG || r == -EPROTONOSUPPORT ? -EPROTO : r;
}

static void set_open_text(const char *path, int error, const char *reason) {
        const char *help = "";
        struct stat st;

        if (error == -ENOENT || error == -ECONNREFUSED)
                help = "; is hugezerod running there?";
        else if (error == -EACCES && !reason[0] && stat(path, &st) < 0 && errno == EACCES)
                help = "; a folder of the path keeps this user out";
        else if (error == -EACCES && !reason[0])
                help = "; only root and members of the socket's group, SocketGroup=, may connect";
        else if (error == -ETIMEDOUT)
                help = "; something listens there but does not answer";
        else if (error == -ENAMETOOLONG)
                help = "; the path of a socket has at most 107 bytes"; /* kernel limit: sun_path, with its 0 */
        thread_set_text("cannot connect to '%.107s': %s%s", path, reason[0] ? reason : strerror(-error), help);
}

int hugezero_conn_open(const char *socket_path, struct hugezero_conn **ret_conn) {
        return hugezero_conn_open_within(socket_path, OPEN_TIMEOUT_MS, ret_conn);
}

int hugezero_conn_open_within(const char *socket_path, int32_t timeout_ms, struct hugezero_conn **ret_conn) {
        if (!ret_conn)
                return conn_fail_argument(NULL, "no place for the connection is given");
        if (timeout_ms < 1)
                return conn_fail_argument(NULL, "the time to wait is less than 1 ms");
        int64_t deadline_ms = now_ms() + timeout_ms;
        const char *path = socket_path ? socket_path : hugezero_socket_path();
        struct hugezero_conn *conn = calloc(1, sizeof(*conn));
        if (!conn) {
                set_open_text(path, -ENOMEM, "");
                return -ENOMEM;
        }
        conn->fd = -EBADF;
        conn->pid = getpid();
        TAILQ_INIT(&conn->queue);
        TAILQ_INIT(&conn->calls);

        int r = connect_socket(path, timeout_ms, &conn->fd);
        struct stat st;
        if (r >= 0 && fstat(conn->fd, &st) >= 0) {
                conn->dev = st.st_dev;
                conn->ino = st.st_ino;
        }
        if (r >= 0)
                r = greet(conn, (int) (deadline_ms > now_ms() ? deadline_ms - now_ms() : 0));
        if (r < 0) {
                set_open_text(path, r, conn->text);
                hugezero_conn_close(conn);
                return r;
        }
        *ret_conn = conn;
        return 0;
}

void hugezero_conn_close(struct hugezero_conn *conn) {
        struct call *call;

        if (!conn)
                return;
        while ((call = TAILQ_FIRST(&conn->calls))) {
                if (call->result == -EINPROGRESS)
                        call_finish(call, -ECANCELED, "the connection was closed before the daemon had answered");
                call_unlink(call);
        }
        clear_queue(conn);
        conn_close_fd(conn);
        free(conn);
}

void conn_close_fd(struct hugezero_conn *conn) {
        if (conn_owns_fd(conn))
                (void) safe_close(conn->fd);
}

int hugezero_conn_get_fd(const struct hugezero_conn *conn) {
        int r = conn_check(conn);
        if (r == -EINVAL || r == -ECHILD)
                return r;
        return conn->fd;
}

int hugezero_conn_get_events(const struct hugezero_conn *conn) {
        int r = conn_check(conn);
        return r < 0 ? r : events(conn);
}

int hugezero_conn_dispatch(struct hugezero_conn *conn) {
        int r = conn_use(conn);
        if (r >= 0)
                r = send_queued(conn);
        if (r >= 0)
                r = receive_packets(conn);
        return r;
}

const char *hugezero_conn_get_error_text(const struct hugezero_conn *conn) {
        return conn ? conn->text : thread_text;
}

const char *hugezero_socket_path(void) {
        const char *path = secure_getenv("HUGEZERO_SOCKET");

        return path && path[0] ? path : HUGEZERO_SOCKET_PATH;
}
