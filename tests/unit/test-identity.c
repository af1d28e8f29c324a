/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Real sockets, real processes, real cgroups where the test may make some. */
#include "testing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "cleanup.h"
#include "identity.h"

static void equal_services_are_one_object(void **state) {
        struct service *a, *b, *other_user, *other_path;

        assert_int_equal(service_get(1, "/x", &a), 0);
        assert_int_equal(service_get(1, "/x", &b), 0);
        assert_int_equal(service_get(2, "/x", &other_user), 0);
        assert_int_equal(service_get(1, "/x/y", &other_path), 0);
        assert_ptr_equal(a, b);
        assert_ptr_not_equal(a, other_user);
        assert_ptr_not_equal(a, other_path);
        assert_int_equal(service_uid(other_user), 2);
        assert_string_equal(service_cgroup(other_path), "/x/y");

        assert_null(service_unref(a));
        assert_string_equal(service_cgroup(b), "/x"); /* one reference is left */
        assert_ptr_equal(service_ref(b), b);
        service_unref(b);
        service_unref(b);
        service_unref(other_user);
        service_unref(other_path);
        assert_null(service_unref(NULL));
        assert_null(service_ref(NULL));
}

static void the_path_is_copied(void **state) {
        char path[] = "/mine";
        struct service *service;

        assert_int_equal(service_get(1, path, &service), 0);
        path[1] = 'X';
        assert_string_equal(service_cgroup(service), "/mine");
        service_unref(service);
}

static void assert_exists(const char *cgroup, bool expected) {
        struct service *service;

        assert_int_equal(service_get(0, cgroup, &service), 0);
        assert_int_equal(service_exists(service), expected);
        service_unref(service);
}

static void a_service_exists_while_its_cgroup_does(void **state) {
        assert_exists("/", true);
        assert_exists("/no-such.slice/at-all.scope", false);
        /* what cannot be told */
        assert_exists("name=systemd:/no-such.slice", true);
        assert_exists("/../no-such.slice", true);
}

/* Where cgroups can be made, or NULL. */
static const char *cgroup_root(void) {
        static const char *const candidates[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
        char path[64];

        for (size_t i = 0; i < 2; i++) {
                (void) snprintf(path, sizeof(path), "%s/cgroup.procs", candidates[i]);
                if (access(path, W_OK) >= 0)
                        return candidates[i];
        }
        return NULL;
}

struct peer {
        int listen_fd, accepted_fd;
        pid_t pid;
        int quit_fd; /* closing it ends the peer */
};

static void enter_cgroup(const char *directory) {
        char path[256];

        (void) snprintf(path, sizeof(path), "%s/cgroup.procs", directory);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1)
                _exit(1);
}

/* A process that connects, from @cgroup if that is not NULL, and lives until it is told to end. */
static void peer_start(const char *cgroup, struct peer *ret_peer) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        socklen_t length = sizeof(sa_family_t);
        int quit[2];

        ret_peer->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        /* an abstract name of the kernel's choice */
        assert_int_equal(bind(ret_peer->listen_fd, (struct sockaddr *) &address, length), 0);
        assert_int_equal(listen(ret_peer->listen_fd, 1), 0);
        length = sizeof(address);
        assert_int_equal(getsockname(ret_peer->listen_fd, (struct sockaddr *) &address, &length), 0);
        assert_int_equal(pipe2(quit, O_CLOEXEC), 0);
        ret_peer->pid = fork();
        if (ret_peer->pid == 0) {
                char byte;
                close(quit[1]);
                if (cgroup)
                        enter_cgroup(cgroup);
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
                if (connect(fd, (struct sockaddr *) &address, length) < 0)
                        _exit(1);
                _exit((int) read(quit[0], &byte, 1));
        }
        assert_true(ret_peer->pid > 0);
        close(quit[0]);
        ret_peer->quit_fd = quit[1];
        ret_peer->accepted_fd = accept4(ret_peer->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        assert_true(ret_peer->accepted_fd >= 0);
}

static void peer_end(struct peer *peer) {
        int status;

        close(peer->quit_fd);
        assert_int_equal(waitpid(peer->pid, &status, 0), peer->pid);
        assert_int_equal(status, 0);
}

static void peer_close(struct peer *peer) {
        close(peer->accepted_fd);
        close(peer->listen_fd);
}

static void a_peer_is_known_by_uid_gid_pid_and_service(void **state) {
        struct identity first, second;
        struct peer peer;

        peer_start(NULL, &peer);
        assert_int_equal(identity_read(peer.accepted_fd, &first), 0);
        assert_int_equal(first.uid, getuid());
        assert_int_equal(first.gid, getgid());
        assert_int_equal(first.pid, peer.pid);
        assert_non_null(first.service);
        assert_int_equal(service_uid(first.service), getuid());
        assert_true(service_exists(first.service));
        assert_int_equal(identity_read(peer.accepted_fd, &second), 0);
        assert_ptr_equal(first.service, second.service);
        identity_done(&first);
        identity_done(&second);
        assert_null(first.service);
        peer_end(&peer);
        peer_close(&peer);
}

static void a_peer_that_is_gone_has_no_service(void **state) {
        struct identity identity;
        struct peer peer;

        peer_start(NULL, &peer);
        peer_end(&peer);
        assert_int_equal(identity_read(peer.accepted_fd, &identity), 0);
        assert_int_equal(identity.uid, getuid());
        assert_null(identity.service);
        identity_done(&identity);
        peer_close(&peer);
}

static void a_peer_that_is_a_zombie_has_no_service(void **state) {
        struct identity identity;
        struct peer peer;
        siginfo_t info;

        peer_start(NULL, &peer);
        close(peer.quit_fd);
        peer.quit_fd = -EBADF;
        assert_int_equal(waitid(P_PID, (id_t) peer.pid, &info, WEXITED | WNOWAIT), 0);
        assert_int_equal(identity_read(peer.accepted_fd, &identity), 0);
        assert_null(identity.service);
        assert_int_equal(waitpid(peer.pid, NULL, 0), peer.pid);
        peer_close(&peer);
}

static void two_cgroups_are_two_services_and_end_with_their_cgroup(void **state) {
        const char *root = cgroup_root();
        char directories[2][128];
        struct identity identities[2];

        if (!root)
                skip();
        for (size_t i = 0; i < 2; i++) {
                struct peer peer;
                (void) snprintf(directories[i], sizeof(directories[i]), "%s/hugezero-test-%d-%zu", root, (int) getpid(), i);
                assert_int_equal(mkdir(directories[i], 0755), 0);
                peer_start(directories[i], &peer);
                assert_int_equal(identity_read(peer.accepted_fd, &identities[i]), 0);
                peer_end(&peer);
                peer_close(&peer);
                assert_non_null(identities[i].service);
                assert_string_equal(service_cgroup(identities[i].service), directories[i] + strlen(root));
                assert_true(service_exists(identities[i].service));
        }
        assert_ptr_not_equal(identities[0].service, identities[1].service);
        for (size_t i = 0; i < 2; i++) {
                assert_int_equal(rmdir(directories[i]), 0);
                assert_false(service_exists(identities[i].service));
                identity_done(&identities[i]);
        }
}

static void what_is_no_socket_has_no_identity(void **state) {
        struct identity identity = {.uid = 4711};

        assert_int_equal(identity_read(-1, &identity), -EBADF);
        assert_int_equal(identity.uid, 4711);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(equal_services_are_one_object),
                test_without_fd_leak(the_path_is_copied),
                test_without_fd_leak(a_service_exists_while_its_cgroup_does),
                test_without_fd_leak(a_peer_is_known_by_uid_gid_pid_and_service),
                test_without_fd_leak(a_peer_that_is_gone_has_no_service),
                test_without_fd_leak(a_peer_that_is_a_zombie_has_no_service),
                test_without_fd_leak(two_cgroups_are_two_services_and_end_with_their_cgroup),
                test_without_fd_leak(what_is_no_socket_has_no_identity),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
