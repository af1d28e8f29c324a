/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The socket file, accepting and its limits, clients that send descriptors, the end. */
#include "session-fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "clock.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

static int start(struct fixture *f, int listen_fd) {
        return server_new(f->base, &f->config, listen_fd, &f->broker, f->quota, f->closer, &f->server);
}

static int listen_elsewhere(struct fixture *f, int type) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        strcpy(address.sun_path, f->config.socket_path);
        int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        if (type != SOCK_DGRAM)
                assert_int_equal(listen(fd, 50), 0);
        return fd;
}

static void assert_serves(struct fixture *f) {
        struct wire_message answer;
        int fd = client_open(f);

        client_send_op(fd, WIRE_C_STATUS, 1);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        close(fd);
}

static void the_socket_file_has_the_configured_mode_and_group(void **state) {
        struct fixture *f = *state;
        struct stat st;

        f->server = server_free(f->server);
        f->config.socket_mode = 0666;
        if (getuid() == 0)
                f->config.socket_gid = 4711;
        mode_t umask_before = umask(0077);
        assert_int_equal(start(f, -EBADF), 0);
        umask(umask_before);
        assert_int_equal(lstat(f->config.socket_path, &st), 0);
        assert_true(S_ISSOCK(st.st_mode));
        assert_int_equal(st.st_mode & 07777, 0666);
        assert_int_equal(st.st_gid, getuid() == 0 ? 4711 : getgid());
        assert_serves(f);
}

static void the_last_folder_is_made(void **state) {
        struct fixture *f = *state;
        char folder[128];
        struct stat st;

        f->server = server_free(f->server);
        snprintf(folder, sizeof(folder), "%s/new", f->folder);
        snprintf(f->config.socket_path, sizeof(f->config.socket_path), "%s/new/s", f->folder);
        mode_t umask_before = umask(0077);
        assert_int_equal(start(f, -EBADF), 0);
        umask(umask_before);
        assert_int_equal(stat(folder, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0755);
        f->server = server_free(f->server);
        assert_int_equal(stat(folder, &st), -1); /* and removed again */

        snprintf(f->config.socket_path, sizeof(f->config.socket_path), "%s/new/deep/s", f->folder);
        assert_int_equal(start(f, -EBADF), -ENOENT);
}

static void a_stale_socket_is_replaced(void **state) {
        struct fixture *f = *state;

        f->server = server_free(f->server);
        close(listen_elsewhere(f, SOCK_SEQPACKET));
        assert_int_equal(start(f, -EBADF), 0);
        assert_serves(f);
}

static void a_socket_in_use_is_left_alone(void **state) {
        struct fixture *f = *state;
        static const int types[] = {SOCK_SEQPACKET, SOCK_STREAM, SOCK_DGRAM};

        f->server = server_free(f->server);
        for (size_t i = 0; i < ELEMENTSOF(types); i++) {
                int other = listen_elsewhere(f, types[i]);
                assert_int_equal(start(f, -EBADF), -EADDRINUSE);
                assert_null(f->server);
                assert_int_equal(access(f->config.socket_path, F_OK), 0);
                close(other);
                assert_int_equal(unlink(f->config.socket_path), 0);
        }
}

static void what_is_no_socket_is_left_alone(void **state) {
        struct fixture *f = *state;

        f->server = server_free(f->server);
        assert_int_equal(mknod(f->config.socket_path, S_IFREG | 0600, 0), 0);
        assert_int_equal(start(f, -EBADF), -EEXIST);
        assert_int_equal(unlink(f->config.socket_path), 0);
        assert_int_equal(symlink("/nowhere/at/all", f->config.socket_path), 0);
        assert_int_equal(start(f, -EBADF), -EEXIST);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

static void somebody_elses_file_in_our_place_stays(void **state) {
        struct fixture *f = *state;

        assert_int_equal(unlink(f->config.socket_path), 0);
        int other = listen_elsewhere(f, SOCK_SEQPACKET);
        f->server = server_free(f->server);
        assert_int_equal(access(f->config.socket_path, F_OK), 0);
        close(other);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

static void an_activated_socket_is_taken_over_and_its_file_stays(void **state) {
        struct fixture *f = *state;

        f->server = server_free(f->server);
        int fd = listen_elsewhere(f, SOCK_SEQPACKET);
        assert_int_equal(start(f, fd), 0);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_serves(f);
        f->server = server_free(f->server);
        assert_int_equal(fcntl(fd, F_GETFD), -1);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

static void an_activated_descriptor_of_another_kind_is_refused(void **state) {
        struct fixture *f = *state;
        int fds[5];

        f->server = server_free(f->server);
        fds[0] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0); /* not listening */
        fds[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(listen(fds[1], 1), 0);
        fds[2] = open("/dev/null", O_RDWR | O_CLOEXEC);
        fds[3] = listen_elsewhere(f, SOCK_STREAM);
        fds[4] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
                assert_true(fds[i] >= 0);
                assert_int_equal(start(f, fds[i]), -EPROTOTYPE);
                assert_true(fcntl(fds[i], F_GETFD) >= 0); /* still the caller's */
                close(fds[i]);
        }
        assert_int_equal(unlink(f->config.socket_path), 0);
}

static void connections_are_limited_per_uid_and_in_all(void **state) {
        struct fixture *f = *state;
        int a, b, c, refused;

        f->config.quota.max_connections = 3;
        c = client_open(f);
        a = client_open(f);
        b = client_open(f);
        refused = client_connect(f);
        client_expect_refused(f, refused, 0, EDQUOT, "MaxConnections= of its quota");
        client_expect_closed(f, refused);
        close(refused);
        assert_int_equal(server_n_sessions(f->server), 3);

        f->config.quota.max_connections = UINT32_MAX;
        quota_cap_connections(f->quota, 2, 1); /* the configuration's limit is none for root */
        refused = client_connect(f);
        /* also one that was quicker to speak than we were to refuse */
        client_send(refused, &(struct wire_message){.op = WIRE_C_HELLO,
                                                    .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}});
        client_expect_refused(f, refused, 0, EUSERS, "of all users");
        client_expect_closed(f, refused);
        close(refused);

        close(a);
        fixture_settle(f);
        assert_serves(f);
        close(b);
        close(c);
}

static void two_hundred_clients_connect_at_once(void **state) {
        struct fixture *f = *state;
        int fds[200];

        f->config.max_connections = f->config.quota.max_connections = UINT32_MAX;
        for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = client_connect(f);
                client_send(fds[i],
                            &(struct wire_message){.op = WIRE_C_HELLO,
                                                   .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}});
                client_acquire(fds[i], 1, 1, WIRE_MISS_FAIL);
        }
        for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
                struct wire_message answer;
                client_receive(f, fds[i], WIRE_D_HELLO, &answer);
                client_expect_grant(f, fds[i], 1, 0, 1);
        }
        assert_int_equal(server_n_sessions(f->server), ELEMENTSOF(fds));
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                close(fds[i]);
}

/* Leaves no descriptor that could be opened. */
static rlim_t exhaust_descriptors(void) {
        struct rlimit limit;
        int lowest_free = dup(0);

        assert_true(lowest_free >= 0);
        close(lowest_free);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = (rlim_t) lowest_free;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(dup(0), -1);
        return before;
}

static void restore_descriptors(rlim_t before) {
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = before;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void without_descriptors_clients_wait_in_the_backlog(void **state) {
        struct fixture *f = *state;
        int leaving = client_open(f), staying = client_open(f), fd = client_connect(f);
        struct wire_message answer;

        client_send(fd, &(struct wire_message){.op = WIRE_C_HELLO,
                                               .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}});
        rlim_t before = exhaust_descriptors();
        client_expect_nothing(f, fd);
        assert_int_equal(server_n_sessions(f->server), 2);
        client_send_op(staying, WIRE_C_STATUS, 1);
        client_receive(f, staying, WIRE_D_STATUS, &answer); /* the others are served */
        close(leaving);
        client_receive(f, fd, WIRE_D_HELLO, &answer); /* in the place of the one that left */
        restore_descriptors(before);

        int another = client_connect(f);
        client_send(another, &(struct wire_message){.op = WIRE_C_HELLO,
                                                    .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}});
        before = exhaust_descriptors();
        client_expect_nothing(f, another);
        restore_descriptors(before); /* by somebody else in this process: found out by the timer */
        client_receive(f, another, WIRE_D_HELLO, &answer);
        close(another);
        close(fd);
        close(staying);
}

static void stopping_refuses_what_waits(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 11, 1, WIRE_MISS_WAIT);
        client_acquire(fd, 12, 1, WIRE_MISS_WAIT);
        fixture_settle(f);
        f->server = server_free(f->server);
        client_expect_refused(f, fd, 11, ESHUTDOWN, "stopping");
        client_expect_refused(f, fd, 12, ESHUTDOWN, "stopping");
        client_expect_closed(f, fd);
        assert_int_equal(f->broker.n_cancelled, 2);
        close(fd);
}

/* Descriptors from clients */

/* A server whose clients can send descriptors, as with every kernel before 6.16. */
static void start_as_on_older_kernels(struct fixture *f) {
        int on = 1;

        f->server = server_free(f->server);
        int fd = listen_elsewhere(f, SOCK_SEQPACKET);
        assert_int_equal(start(f, fd), 0);
        (void) setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &on, sizeof(on));
}

static void assert_ends_up_closed(struct fixture *f, int read_fd) {
        char byte;

        while (read(read_fd, &byte, 1) != 0) /* end of file: the last copy of the other end is gone */
                assert_true(event_base_loop(f->base, EVLOOP_NONBLOCK) >= 0);
        close(read_fd);
}

static void descriptors_cannot_be_sent_where_the_kernel_refuses_them(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f), on = 0;
        uint8_t status[WIRE_HEADER_BYTES] = {WIRE_C_STATUS};
        socklen_t length = sizeof(on);
        struct wire_message answer;

        if (getsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &on, &length) < 0) {
                close(fd);
                skip();
        }
        assert_int_equal(send_with_fd(fd, status, sizeof(status), 0), -EPERM);
        client_send_op(fd, WIRE_C_STATUS, 3);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        assert_int_equal(answer.request_id, 3);
        close(fd);
}

static void descriptors_cut_the_client_off_and_are_closed_elsewhere(void **state) {
        struct fixture *f = *state;
        uint8_t status[WIRE_HEADER_BYTES] = {WIRE_C_STATUS};
        int write_fd, read_fd, fd;

        start_as_on_older_kernels(f);
        assert_serves(f);
        for (size_t n_bytes = 0; n_bytes <= sizeof(status); n_bytes += sizeof(status)) {
                fd = client_open(f);
                read_fd = pipe_to_send(&write_fd);
                assert_int_equal(send_with_fd(fd, status, n_bytes, write_fd), 0);
                close(write_fd);
                client_expect_refused(f, fd, 0, EPROTO, "not accepted");
                client_expect_closed(f, fd);
                assert_ends_up_closed(f, read_fd);
                close(fd);
        }
        fixture_wait_connections(f, 0);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

static void descriptors_behind_a_hang_up_or_a_refusal_are_closed_elsewhere(void **state) {
        struct fixture *f = *state;
        int write_fd, read_fd, fd;

        start_as_on_older_kernels(f);
        for (size_t step = 0; step < 4; step++) {
                f->config.max_connections = step == 3 ? 0 : 100;
                fd = step == 0 ? client_open(f) : client_connect(f);
                read_fd = pipe_to_send(&write_fd);
                if (step == 1)
                        assert_int_equal(send(fd, "junk", 4, 0), 4);
                if (step == 2)
                        assert_int_equal(send(fd, "", 0, 0), 0); /* looks like a hang-up */
                assert_int_equal(send_with_fd(fd, "12345678", 8, write_fd), 0);
                close(write_fd);
                close(fd);
                assert_ends_up_closed(f, read_fd);
        }
        fixture_wait_connections(f, 0);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

/* A TCP socket whose closing blocks for a second: its peer does not read, and what was written must be waited for. */
static int socket_that_lingers(int *ret_peer_fd) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t length = sizeof(address);
        struct linger linger = {.l_onoff = 1, .l_linger = 1};
        char block[65536] = {};
        int small = 4096;

        int listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(setsockopt(listen_fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
        assert_int_equal(bind(listen_fd, (struct sockaddr *) &address, length), 0);
        assert_int_equal(listen(listen_fd, 1), 0);
        assert_int_equal(getsockname(listen_fd, (struct sockaddr *) &address, &length), 0);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(fd, (struct sockaddr *) &address, length), 0);
        *ret_peer_fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        assert_true(*ret_peer_fd >= 0);
        close(listen_fd);
        while (send(fd, block, sizeof(block), MSG_DONTWAIT) > 0)
                ;
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
        return fd;
}

static void a_descriptor_whose_closing_blocks_does_not_stop_the_loop(void **state) {
        struct fixture *f = *state;
        int peer_fd, fd, other;
        struct wire_message answer;

        start_as_on_older_kernels(f);
        fd = client_open(f);
        other = client_open(f);
        int lingering = socket_that_lingers(&peer_fd);
        assert_int_equal(send_with_fd(fd, "12345678", 8, lingering), 0);
        uint64_t start_ms = clock_ms();
        close(lingering); /* not the last copy: the one in flight is */
        client_expect_refused(f, fd, 0, EPROTO, "not accepted");
        client_expect_closed(f, fd);
        close(fd);
        client_send_op(other, WIRE_C_STATUS, 1);
        client_receive(f, other, WIRE_D_STATUS, &answer);
        close(other);
        fixture_settle(f);
        assert_true(clock_ms() - start_ms < 500);
        /* The one that sent it is charged for its connection until it is closed, the other one is not. */
        assert_int_equal(quota_used_all(f->quota, QUOTA_CONNECTIONS), 1);
        fixture_wait_connections(f, 0);
        assert_true(clock_ms() - start_ms >= 900);
        close(peer_fd);
        assert_int_equal(unlink(f->config.socket_path), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                session_test(the_socket_file_has_the_configured_mode_and_group),
                session_test(the_last_folder_is_made),
                session_test(a_stale_socket_is_replaced),
                session_test(a_socket_in_use_is_left_alone),
                session_test(what_is_no_socket_is_left_alone),
                session_test(somebody_elses_file_in_our_place_stays),
                session_test(an_activated_socket_is_taken_over_and_its_file_stays),
                session_test(an_activated_descriptor_of_another_kind_is_refused),
                session_test(connections_are_limited_per_uid_and_in_all),
                session_test(two_hundred_clients_connect_at_once),
                session_test(without_descriptors_clients_wait_in_the_backlog),
                session_test(stopping_refuses_what_waits),
                session_test(descriptors_cannot_be_sent_where_the_kernel_refuses_them),
                session_test(descriptors_cut_the_client_off_and_are_closed_elsewhere),
                session_test(descriptors_behind_a_hang_up_or_a_refusal_are_closed_elsewhere),
                session_test(a_descriptor_whose_closing_blocks_does_not_stop_the_loop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
