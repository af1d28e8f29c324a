/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The listening socket.
 *
 * Out of descriptors, the server stops accepting instead of spinning on a backlog that it cannot empty: clients wait in there,
 * and it goes on when a session has ended, or by a timer because others in this process use descriptors too.
 */

#include <assert.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "cleanup.h"
#include "config.h"
#include "fdpass.h"
#include "log-limit.h"
#include "server.h"
#include "session.h"
#include "socket-folder.h"

#define BACKLOG 1024        /* chosen; the kernel caps it at net.core.somaxconn */
#define ACCEPTS_PER_TURN 16 /* chosen: sessions get their turn during a rush */
#define PAUSE_MS 200        /* chosen */

struct server {
        struct session_context context; /* first: a session's context is its server */
        int listen_fd;
        struct event *acceptable, *resume;
        struct sockaddr_un address; /* of a socket file of our own, else all zero */
        dev_t dev;                  /* of that file: somebody may have put another one there */
        ino_t ino;
        bool has_made_folder; /* the one of that file */
};

/* The socket file */

/* False: the root. */
static bool parent_of(const struct sockaddr_un *address, char ret_parent[sizeof(address->sun_path)]) {
        (void) strcpy(ret_parent, address->sun_path);
        char *slash = strrchr(ret_parent, '/');
        if (!slash || slash == ret_parent)
                return false;
        *slash = '\0';
        return true;
}

static int make_parent(struct server *server, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        char parent[sizeof(server->address.sun_path)];
        int r;

        if (!parent_of(&server->address, parent))
                return socket_folder_check("/", ret_why);
        r = socket_folder_check(parent, ret_why);
        if (r != -ENOENT)
                return r;
        if (mkdir(parent, 0755) < 0) /* EEXIST: a symlink to nothing, or somebody was faster */
                return errno == EEXIST ? socket_folder_check(parent, ret_why) : negative_errno();
        server->has_made_folder = true;
        return chmod(parent, 0755) < 0 ? negative_errno() : 0; /* whatever the umask is */
}

/* -ECONNREFUSED: nobody; -EPROTOTYPE: a socket of another type; -EADDRINUSE: somebody who cannot be told, as with a full backlog. */
static int find_listener(const struct sockaddr_un *address, int type, struct ucred *ret_cred) {
        socklen_t length = sizeof(*ret_cred);
        _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

        if (fd < 0)
                return negative_errno();
        if (connect(fd, (const struct sockaddr *) address, sizeof(*address)) < 0)
                return errno == ECONNREFUSED || errno == EPROTOTYPE ? -errno : -EADDRINUSE;
        return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ret_cred, &length) < 0 ? -EADDRINUSE : 0;
}

/* Removes a socket file that nobody listens on. -EADDRINUSE with @ret_why: somebody does. */
static int remove_stale(const struct sockaddr_un *address, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        struct ucred cred;
        struct stat st;
        int r;

        if (lstat(address->sun_path, &st) < 0)
                return errno == ENOENT ? 0 : negative_errno();
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        r = find_listener(address, SOCK_SEQPACKET, &cred);
        if (r == -EPROTOTYPE)
                r = find_listener(address, SOCK_STREAM, &cred);
        if (r == -ECONNREFUSED)
                return unlink(address->sun_path) < 0 && errno != ENOENT ? negative_errno() : 0;
        if (r < 0 && r != -EADDRINUSE && r != -EPROTOTYPE)
                return r;
        if (r >= 0 && cred.pid == 1 && sd_booted() > 0)
                (void) snprintf(ret_why, SOCKET_FOLDER_WHY_SIZE,
                                "systemd listens there for the hugezerod of its unit; stop both (systemctl stop hugezerod.socket), "
                                "or listen elsewhere with --socket or Socket=");
        else if (r >= 0)
                (void) snprintf(ret_why, SOCKET_FOLDER_WHY_SIZE,
                                "Another daemon listens there, process %d of uid %u; stop it, or set Socket=", (int) cred.pid,
                                (unsigned) cred.uid);
        else
                (void) snprintf(ret_why, SOCKET_FOLDER_WHY_SIZE,
                                "Another daemon listens there, whose file is uid %u's; stop it, or set Socket=", (unsigned) st.st_uid);
        return -EADDRINUSE;
}

/*
 * Nobody gets in before mode and group are what they shall be: the file takes the socket's mode when it is bound (minus the
 * umask, which is the process's and so not ours to change).
 */
static int bind_socket(struct server *server, const struct config *config, int fd, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        const struct sockaddr *address = (const struct sockaddr *) &server->address;
        const char *path = server->address.sun_path;
        struct stat st;

        if (fchmod(fd, 0600) < 0)
                return negative_errno();
        if (bind(fd, address, sizeof(server->address)) < 0) {
                if (errno != EADDRINUSE)
                        return negative_errno();
                int r = remove_stale(&server->address, ret_why);
                if (r < 0)
                        return r;
                if (bind(fd, address, sizeof(server->address)) < 0)
                        return negative_errno();
        }
        if (lstat(path, &st) < 0)
                return negative_errno();
        server->dev = st.st_dev;
        server->ino = st.st_ino;
        if (config->socket_gid != (gid_t) -1 && lchown(path, (uid_t) -1, config->socket_gid) < 0)
                return negative_errno();
        return chmod(path, config->socket_mode) < 0 ? negative_errno() : 0;
}

static void server_remove_file(struct server *server) {
        char parent[sizeof(server->address.sun_path)];
        struct stat st;

        if (server->ino != 0 && lstat(server->address.sun_path, &st) >= 0 && st.st_dev == server->dev &&
            st.st_ino == server->ino)
                (void) unlink(server->address.sun_path);
        server->ino = 0;
        if (server->has_made_folder && parent_of(&server->address, parent))
                (void) rmdir(parent); /* not when others have put something there */
        server->has_made_folder = false;
}

static const char *what_to_do(int error) {
        switch (error) {
        case -EEXIST:
                return "Something that is no socket is there; remove it, or set Socket=";
        case -EACCES:
        case -EPERM:
        case -EROFS:
                return "Its folder must be writable for the daemon, which must be a member of SocketGroup=";
        case -ENOENT:
        case -ENOTDIR:
                return "Only the last folder of the path is made where it is missing";
        default:
                return "See unix(7)";
        }
}

static void say_why_not(const char *path, int error, const char *why) {
        char text[SOCKET_FOLDER_WHY_SIZE];

        if (why[0] == '\0')
                (void) snprintf(text, sizeof(text), "%s. %s", strerror(-error), what_to_do(error));
        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -error), LOG_TEXT("SOCKET", path)),
                  "Cannot listen on \"%s\": %s", path, why[0] == '\0' ? text : why);
}

static int server_make_socket(struct server *server, const struct config *config) {
        char why[SOCKET_FOLDER_WHY_SIZE] = "";
        int r;

        if (strlen(config->socket_path) >= sizeof(server->address.sun_path))
                return -ENAMETOOLONG;
        server->address.sun_family = AF_UNIX;
        (void) strcpy(server->address.sun_path, config->socket_path);
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return negative_errno();
        r = make_parent(server, why);
        if (r >= 0)
                r = bind_socket(server, config, fd, why);
        if (r >= 0 && listen(fd, BACKLOG) < 0)
                r = negative_errno();
        if (r < 0) {
                say_why_not(config->socket_path, r, why);
                return r;
        }
        server->listen_fd = take_fd(&fd);
        return 0;
}

/* The activated socket */

static bool has_option(int fd, int option, int expected) {
        int value;
        socklen_t length = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, option, &value, &length) >= 0 && value == expected;
}

static int fail_otherwise(int error) {
        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -error)), "Cannot serve on the listening socket: %s",
                  strerror(-error));
        return error;
}

static int server_take_socket(struct server *server, int fd) {
        int flags;

        if (!has_option(fd, SO_DOMAIN, AF_UNIX) || !has_option(fd, SO_TYPE, SOCK_SEQPACKET) ||
            !has_option(fd, SO_ACCEPTCONN, 1)) {
                log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", EPROTOTYPE)),
                          "Cannot serve on the descriptor that was passed: it is no listening unix socket of type "
                          "SOCK_SEQPACKET. "
                          "The socket unit needs ListenSequentialPacket= and Accept=no");
                return -EPROTOTYPE;
        }
        flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
                return fail_otherwise(negative_errno());
        server->listen_fd = fd;
        return 0;
}

/* Accepting */

static void server_pause(struct server *server, int error) {
        if (log_limit_pass(LOG_LIMIT_ACCEPTING, LOG_NO_USER))
                log_warning(LOG_ID_ACCEPT_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -error)),
                            "Cannot accept connections: %s. Clients wait; raise LimitNOFILE= if this is lasting",
                            strerror(-error));
        (void) event_del(server->acceptable);
        (void) event_add(server->resume, &(struct timeval){.tv_usec = PAUSE_MS * 1000});
}

static void server_resume(struct server *server) {
        if (!event_pending(server->resume, EV_TIMEOUT, NULL))
                return;
        (void) event_del(server->resume);
        (void) event_add(server->acceptable, NULL);
}

static void server_on_resume(evutil_socket_t fd, short events, void *userdata) {
        struct server *server = userdata;

        (void) event_add(server->acceptable, NULL);
}

static void server_on_acceptable(evutil_socket_t listen_fd, short events, void *userdata) {
        struct server *server = userdata;
        struct session *session;

        for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++) {
                int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                if (fd >= 0) {
                        (void) session_new(&server->context, fd, &session); /* it tells the client, and the log */
                        continue;
                }
                if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
                        server_pause(server, -errno);
                return; /* EAGAIN; or the error of a connection that is gone already, which is no matter of ours */
        }
}

static void server_on_session_ended(struct session_context *context, struct session *session) {
        (void) session_free(session);
        server_resume((struct server *) context);
}

static int server_start(struct server *server, struct event_base *base, const struct config *config, struct broker *broker,
                        struct quota *quota, struct worker_pool *closer) {
        int r;

        (void) fdpass_refuse_incoming(server->listen_fd); /* older kernels: sessions look before they receive */
        r = session_context_init(&server->context, base, broker, quota, config, closer, server_on_session_ended);
        if (r < 0)
                return fail_otherwise(r);
        server->acceptable = event_new(base, server->listen_fd, EV_READ | EV_PERSIST, server_on_acceptable, server);
        server->resume = event_new(base, -1, 0, server_on_resume, server);
        if (!server->acceptable || !server->resume || event_add(server->acceptable, NULL) < 0)
                return fail_otherwise(-ENOMEM);
        return 0;
}

int server_new(struct event_base *base, const struct config *config, int listen_fd, struct broker *broker, struct quota *quota,
               struct worker_pool *closer, struct server **ret_server) {
        struct server *server = calloc(1, sizeof(*server));
        int r;

        if (!server)
                return fail_otherwise(-ENOMEM);
        server->listen_fd = -EBADF;
        TAILQ_INIT(&server->context.sessions);
        r = listen_fd >= 0 ? server_take_socket(server, listen_fd) : server_make_socket(server, config);
        if (r >= 0)
                r = server_start(server, base, config, broker, quota, closer);
        if (r < 0) {
                if (listen_fd >= 0)
                        server->listen_fd = -EBADF; /* the caller's */
                (void) server_free(server);
                return r;
        }
        *ret_server = server;
        return 0;
}

struct server *server_free(struct server *server) {
        struct session *session;

        if (!server)
                return NULL;
        /* First the file: who connects now shall learn at once that nobody is here. */
        server_remove_file(server);
        if (server->acceptable)
                event_free(server->acceptable);
        if (server->resume)
                event_free(server->resume);
        (void) safe_close(server->listen_fd);
        while ((session = TAILQ_FIRST(&server->context.sessions))) {
                session_refuse_waiting(session, -ESHUTDOWN, "hugezerod is stopping");
                (void) session_free(session);
        }
        session_context_done(&server->context);
        free(server);
        return NULL;
}

void server_admit_again(struct server *server) {
        session_context_admit_again(&server->context);
}

uint32_t server_n_sessions(const struct server *server) {
        return server->context.n_sessions;
}

uint32_t server_n_fds_in_flight(const struct server *server) {
        return server->context.outboxes.n_fds_in_flight;
}
