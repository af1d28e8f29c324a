/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets with descriptors over a real socket pair: nothing missing unnoticed, nothing left open, order kept. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "fdpass.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

struct pair {
        int sender, receiver;
};

static void close_pair(struct pair *pair) {
        (void) safe_close(pair->sender);
        (void) safe_close(pair->receiver);
}

static struct pair new_pair(void) {
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
        return (struct pair){.sender = fds[0], .receiver = fds[1]};
}

#define _cleanup_pair_ _cleanup_(close_pair)

static int new_file(void) {
        int fd = memfd_create("fdpass", MFD_CLOEXEC);

        assert_true(fd >= 0);
        return fd;
}

static ino_t inode_of(int fd) {
        struct stat st;

        assert_int_equal(fstat(fd, &st), 0);
        return st.st_ino;
}

static void close_all(int *fds, size_t n_fds) {
        for (size_t i = 0; i < n_fds; i++)
                fds[i] = safe_close(fds[i]);
}

/* Sends the same file @n_fds times. */
static int send_copies(int socket_fd, const char *text, int file, size_t n_fds) {
        int fds[WIRE_MAX_FDS] = {};

        for (size_t i = 0; i < n_fds; i++)
                fds[i] = file;
        return fdpass_send(socket_fd, text, strlen(text), fds, n_fds);
}

/* Leaves room for just @n_more descriptors. The limit is on the number, and there may be gaps among the numbers in use. */
static struct rlimit limit_fds(int n_more) {
        struct rlimit before, now;
        int limit = 0;

        for (int n_free = 0; n_free < n_more || fcntl(limit, F_GETFD) >= 0; limit++)
                n_free += fcntl(limit, F_GETFD) < 0;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        now = before;
        now.rlim_cur = (rlim_t) limit;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &now), 0);
        return before;
}

static void a_packet_comes_with_its_descriptors(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int first = new_file(), second = new_file();
        int fds[2] = {first, second}, received[WIRE_MAX_FDS];
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(fdpass_send(pair.sender, "hello", 5, fds, 2), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 5);
        assert_memory_equal(buffer, "hello", 5);
        assert_int_equal(n_fds, 2);
        assert_int_equal(inode_of(received[0]), inode_of(first));
        assert_int_equal(inode_of(received[1]), inode_of(second));
        for (size_t i = 0; i < n_fds; i++)
                assert_int_equal(fcntl(received[i], F_GETFD), FD_CLOEXEC);
        assert_true(fcntl(first, F_GETFD) >= 0); /* only borrowed */
        close_all(received, n_fds);
}

static void a_packet_without_descriptors(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(fdpass_send(pair.sender, "x", 1, NULL, 0), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), 1);
        assert_int_equal(n_fds, 0);
}

static void nothing_there_is_eagain_and_touches_nothing(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), -EAGAIN);
        assert_int_equal(n_fds, 99);
}

static void order_of_packets_and_descriptors_is_kept(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        int files[8], received[WIRE_MAX_FDS];
        size_t n_fds;
        char buffer[16];

        for (size_t i = 0; i < ELEMENTSOF(files); i++)
                files[i] = new_file();
        for (size_t i = 0; i < ELEMENTSOF(files); i++) { /* 0 to 7 descriptors each */
                char text[2] = {(char) ('a' + i), 0};
                assert_int_equal(fdpass_send(pair.sender, text, 1, files, i), 0);
        }
        for (size_t i = 0; i < ELEMENTSOF(files); i++) {
                assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 1);
                assert_int_equal(buffer[0], 'a' + i);
                assert_int_equal(n_fds, i);
                for (size_t k = 0; k < n_fds; k++)
                        assert_int_equal(inode_of(received[k]), inode_of(files[k]));
                close_all(received, n_fds);
        }
        close_all(files, ELEMENTSOF(files));
}

static void the_kernels_limit_of_253_descriptors_goes_through(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        int files[WIRE_MAX_FDS], received[WIRE_MAX_FDS];
        size_t n_fds = 0;
        char buffer[16];

        for (size_t i = 0; i < WIRE_MAX_FDS; i++)
                files[i] = new_file();
        assert_int_equal(fdpass_send(pair.sender, "many", 4, files, WIRE_MAX_FDS), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 4);
        assert_int_equal(n_fds, WIRE_MAX_FDS);
        for (size_t i = 0; i < n_fds; i++) {
                assert_int_equal(inode_of(received[i]), inode_of(files[i]));
                assert_int_equal(fcntl(received[i], F_GETFD), FD_CLOEXEC);
        }
        close_all(received, n_fds);
        close_all(files, WIRE_MAX_FDS);
}

static void more_descriptors_than_expected_are_closed(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        int received[3] = {-1, -1, -1}, n_before = count_fds();
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(send_copies(pair.sender, "x", file, 3), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, 2, &n_fds), -EBADMSG);
        assert_int_equal(count_fds(), n_before);
        assert_int_equal(n_fds, 99);
        assert_int_equal(received[2], -1);

        assert_int_equal(send_copies(pair.sender, "x", file, 1), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), -EBADMSG);
        assert_int_equal(count_fds(), n_before);

        assert_int_equal(send_copies(pair.sender, "y", file, 2), 0); /* and the next packet is unharmed */
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, 2, &n_fds), 1);
        assert_int_equal(n_fds, 2);
        close_all(received, n_fds);
}

static void a_packet_longer_than_the_buffer_is_refused_whole(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        int received[WIRE_MAX_FDS], n_before = count_fds();
        size_t n_fds = 99;
        char buffer[4];

        assert_int_equal(send_copies(pair.sender, "12345", file, 5), 0);
        assert_int_equal(send_copies(pair.sender, "1234", file, 1), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), -EMSGSIZE);
        assert_int_equal(count_fds(), n_before);
        assert_int_equal(n_fds, 99);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 4);
        assert_int_equal(n_fds, 1);
        close_all(received, n_fds);
}

static void no_room_for_descriptors_is_emfile(void **state) {
        for (int n_more = 0; n_more < 5; n_more++) {
                _cleanup_pair_ struct pair pair = new_pair();
                _cleanup_close_ int file = new_file();
                int received[WIRE_MAX_FDS], n_before = count_fds();
                size_t n_fds = 99;
                char buffer[16];

                assert_int_equal(send_copies(pair.sender, "x", file, 5), 0);
                struct rlimit before = limit_fds(n_more);
                ssize_t n = fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds);
                assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
                assert_int_equal(n, -EMFILE);
                assert_int_equal(n_fds, 99);
                assert_int_equal(count_fds(), n_before);
        }
}

static void just_enough_room_for_descriptors(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        int received[WIRE_MAX_FDS];
        size_t n_fds = 0;
        char buffer[16];

        assert_int_equal(send_copies(pair.sender, "x", file, 5), 0);
        struct rlimit before = limit_fds(5);
        ssize_t n = fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(n, 1);
        assert_int_equal(n_fds, 5);
        close_all(received, n_fds);
}

static void end_of_stream(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        int received[WIRE_MAX_FDS];
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(send_copies(pair.sender, "last", file, 1), 0);
        pair.sender = safe_close(pair.sender);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 4);
        assert_int_equal(n_fds, 1);
        close_all(received, n_fds);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 0);
        assert_int_equal(n_fds, 0);
}

/* A raw sendmsg(2), for what fdpass_send() does not do. */
static void send_raw(int socket_fd, const void *bytes, size_t n_bytes, struct msghdr msg) {
        struct iovec iov = {.iov_base = (void *) bytes, .iov_len = n_bytes};

        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        assert_int_equal(sendmsg(socket_fd, &msg, MSG_DONTWAIT), n_bytes);
}

union raw_control {
        struct cmsghdr align;
        char bytes[256];
};

static struct cmsghdr *put_block(struct msghdr *msg, struct cmsghdr *cmsg, int type, const void *data, size_t n_bytes) {
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = type;
        cmsg->cmsg_len = CMSG_LEN(n_bytes);
        memcpy(CMSG_DATA(cmsg), data, n_bytes);
        return CMSG_NXTHDR(msg, cmsg);
}

static void an_empty_packet_ends_the_stream_and_leaks_nothing(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        union raw_control control = {};
        struct msghdr msg = {.msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int))};
        int received[WIRE_MAX_FDS], n_before = count_fds();
        size_t n_fds = 99;
        char buffer[16];

        (void) put_block(&msg, CMSG_FIRSTHDR(&msg), SCM_RIGHTS, &file, sizeof(int));
        send_raw(pair.sender, "", 0, msg);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 0);
        assert_int_equal(n_fds, 0);
        assert_int_equal(count_fds(), n_before);
}

/* Several blocks from the sender, credentials before them, and a pidfd that a socket from outside may be set up to deliver. */
static void other_control_data_is_ignored(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int first = new_file(), second = new_file();
        union raw_control control = {};
        struct msghdr msg = {.msg_control = &control, .msg_controllen = CMSG_SPACE(2 * sizeof(int)) + CMSG_SPACE(sizeof(int))};
        int received[WIRE_MAX_FDS], on = 1, n_before = count_fds(), fds[2] = {first, second};
        size_t n_fds = 99;
        char buffer[16];

        assert_int_equal(setsockopt(pair.receiver, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
        (void) setsockopt(pair.receiver, SOL_SOCKET, 76 /* SO_PASSPIDFD, Linux 6.5 */, &on, sizeof(on));
        struct cmsghdr *next = put_block(&msg, CMSG_FIRSTHDR(&msg), SCM_RIGHTS, fds, sizeof(fds));
        (void) put_block(&msg, next, SCM_RIGHTS, &first, sizeof(int));
        send_raw(pair.sender, "x", 1, msg);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 1);
        assert_int_equal(n_fds, 3);
        assert_int_equal(inode_of(received[0]), inode_of(first));
        assert_int_equal(inode_of(received[1]), inode_of(second));
        assert_int_equal(inode_of(received[2]), inode_of(first));
        assert_int_equal(count_fds(), n_before + 3);
        close_all(received, n_fds);

        send_copies(pair.sender, "full", first, WIRE_MAX_FDS); /* there is room for both */
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 4);
        assert_int_equal(n_fds, WIRE_MAX_FDS);
        close_all(received, n_fds);
}

static void descriptors_are_seen_without_taking_the_packet(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        union raw_control control = {};
        struct msghdr msg = {.msg_control = &control, .msg_controllen = CMSG_SPACE(sizeof(int))};
        int fds[2];
        size_t n_fds;
        char buffer[4];

        assert_true(fdpass_may_arrive(pair.receiver));
        assert_int_equal(send_copies(pair.sender, "12", file, 0), 0);
        assert_int_equal(send_copies(pair.sender, "123", file, 2), 0);
        (void) put_block(&msg, CMSG_FIRSTHDR(&msg), SCM_RIGHTS, &file, sizeof(int));
        send_raw(pair.sender, "", 0, msg);

        assert_int_equal(fdpass_next_has_fds(pair.receiver), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), 2);
        assert_int_equal(fdpass_next_has_fds(pair.receiver), 1);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), fds, 2, &n_fds), 3);
        assert_int_equal(n_fds, 2);
        close_all(fds, n_fds);
        assert_int_equal(fdpass_next_has_fds(pair.receiver), 1); /* the empty packet */
}

static void no_packet_is_not_a_packet_without_descriptors(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();

        assert_int_equal(fdpass_next_has_fds(pair.receiver), -EAGAIN);
        pair.sender = safe_close(pair.sender);
        assert_int_equal(fdpass_next_has_fds(pair.receiver), 0);
}

/* A sender that closes with packets unread makes the kernel report ECONNRESET once, ahead of what it had sent. */
static void last_words_of_a_peer_that_left_packets_unread(void **state) {
        for (int look_first = 0; look_first < 2; look_first++) {
                _cleanup_pair_ struct pair pair = new_pair();
                _cleanup_close_ int file = new_file();
                size_t n_fds = 0;
                char buffer[4];
                int fds[2];

                assert_int_equal(send_copies(pair.receiver, "x", file, 0), 0);
                assert_int_equal(send_copies(pair.sender, "12", file, 2), 0);
                pair.sender = safe_close(pair.sender);
                if (look_first)
                        assert_int_equal(fdpass_next_has_fds(pair.receiver), 1);
                assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), fds, 2, &n_fds), 2);
                assert_int_equal(n_fds, 2);
                close_all(fds, n_fds);
                assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), fds, 2, &n_fds), 0);
        }
}

static void a_queue_with_last_words_is_not_drained(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();

        assert_int_equal(send_copies(pair.receiver, "x", file, 0), 0);
        assert_int_equal(send_copies(pair.sender, "12", file, 1), 0);
        pair.sender = safe_close(pair.sender);
        assert_false(fdpass_is_drained(pair.receiver));
}

static void an_empty_packet_is_not_a_drained_queue(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        size_t n_fds;
        char buffer[4];

        assert_true(fdpass_is_drained(pair.receiver));
        send_raw(pair.sender, "", 0, (struct msghdr){});
        assert_int_equal(send_copies(pair.sender, "12", -1, 0), 0);
        assert_false(fdpass_is_drained(pair.receiver));
        assert_int_equal(shutdown(pair.receiver, SHUT_RDWR), 0);
        assert_false(fdpass_is_drained(pair.receiver));
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), 0);
        assert_false(fdpass_is_drained(pair.receiver));
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), 2);
        assert_true(fdpass_is_drained(pair.receiver));
}

static void a_full_queue_is_eagain(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        uint8_t packet[WIRE_MAX_MESSAGE_BYTES] = {};
        int r = 0, n_sent = 0;

        while (r == 0 && n_sent < 100000) {
                r = fdpass_send(pair.sender, packet, sizeof(packet), NULL, 0);
                n_sent += r == 0;
        }
        assert_int_equal(r, -EAGAIN);
        assert_true(n_sent > 0);
}

static void a_peer_that_is_gone_raises_no_signal(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();

        pair.receiver = safe_close(pair.receiver);
        assert_int_equal(fdpass_send(pair.sender, "x", 1, NULL, 0), -EPIPE);
}

static void a_closed_descriptor_cannot_be_sent(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        int fd = -1;
        size_t n_fds;
        char buffer[16];

        assert_int_equal(fdpass_send(pair.sender, "x", 1, &fd, 1), -EBADF);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), NULL, 0, &n_fds), -EAGAIN);
}

/* Counted per uid, and CAP_SYS_RESOURCE or CAP_SYS_ADMIN lifts the limit: needs a process without them and a uid of its own. */
static int send_until_too_many(void) {
        struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
        int fds[2], r;

        if (geteuid() == 0 && (setgid(61234) < 0 || setuid(61234) < 0))
                return -errno;
        int file = memfd_create("fdpass", MFD_CLOEXEC);
        if (file < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0 || setrlimit(RLIMIT_NOFILE, &limit) < 0)
                return -errno;
        for (int i = 0; i < 20; i++) {
                r = send_copies(fds[0], "x", file, 32);
                if (r < 0)
                        return r;
        }
        return 0;
}

static void too_many_in_flight_is_etoomanyrefs(void **state) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0)
                _exit(-send_until_too_many());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), ETOOMANYREFS);
}

static void descriptors_can_be_refused_where_the_kernel_can(void **state) {
        _cleanup_pair_ struct pair pair = new_pair();
        _cleanup_close_ int file = new_file();
        int received[WIRE_MAX_FDS], value = 1, r = fdpass_refuse_incoming(pair.receiver);
        socklen_t value_bytes = sizeof(value);
        size_t n_fds = 0;
        char buffer[16];

        if (getsockopt(pair.receiver, SOL_SOCKET, SO_PASSRIGHTS, &value, &value_bytes) < 0) {
                assert_int_equal(errno, ENOPROTOOPT);
                assert_int_equal(r, -EOPNOTSUPP);
                assert_int_equal(send_copies(pair.sender, "x", file, 1), 0);
                assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 1);
                close_all(received, n_fds);
                return;
        }
        assert_int_equal(r, 0);
        assert_int_equal(value, 0);
        assert_false(fdpass_may_arrive(pair.receiver));
        assert_int_equal(send_copies(pair.sender, "x", file, 1), -EPERM);
        assert_int_equal(fdpass_send(pair.sender, "x", 1, NULL, 0), 0);
        assert_int_equal(fdpass_receive(pair.receiver, buffer, sizeof(buffer), received, WIRE_MAX_FDS, &n_fds), 1);
        assert_int_equal(n_fds, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(a_packet_comes_with_its_descriptors),
                test_without_fd_leak(a_packet_without_descriptors),
                test_without_fd_leak(nothing_there_is_eagain_and_touches_nothing),
                test_without_fd_leak(order_of_packets_and_descriptors_is_kept),
                test_without_fd_leak(the_kernels_limit_of_253_descriptors_goes_through),
                test_without_fd_leak(more_descriptors_than_expected_are_closed),
                test_without_fd_leak(a_packet_longer_than_the_buffer_is_refused_whole),
                test_without_fd_leak(no_room_for_descriptors_is_emfile),
                test_without_fd_leak(just_enough_room_for_descriptors),
                test_without_fd_leak(end_of_stream),
                test_without_fd_leak(an_empty_packet_ends_the_stream_and_leaks_nothing),
                test_without_fd_leak(other_control_data_is_ignored),
                test_without_fd_leak(descriptors_are_seen_without_taking_the_packet),
                test_without_fd_leak(no_packet_is_not_a_packet_without_descriptors),
                test_without_fd_leak(last_words_of_a_peer_that_left_packets_unread),
                test_without_fd_leak(a_queue_with_last_words_is_not_drained),
                test_without_fd_leak(an_empty_packet_is_not_a_drained_queue),
                test_without_fd_leak(a_full_queue_is_eagain),
                test_without_fd_leak(a_peer_that_is_gone_raises_no_signal),
                test_without_fd_leak(a_closed_descriptor_cannot_be_sent),
                test_without_fd_leak(too_many_in_flight_is_etoomanyrefs),
                test_without_fd_leak(descriptors_can_be_refused_where_the_kernel_can),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
