/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The library against scripted daemons: connections, requests, grants, forked children. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "library-testing.h"

/* ---- connecting ---- */

static void script_version_2(struct fake_daemon *fake, int fd) {
        struct wire_message hello,
                answer = {
                        .op = WIRE_D_HELLO,
                        .d_hello = {.magic = WIRE_MAGIC, .version = 2, .max_items = 1, .max_fds = 1, .max_message_bytes = 1},
                };

        must(fake_receive(fd, WIRE_C_HELLO, &hello));
        answer.request_id = hello.request_id;
        fake_send(fd, &answer, NULL, 0);
}

static void script_refuse_version(struct fake_daemon *fake, int fd) {
        struct wire_message hello;

        must(fake_receive(fd, WIRE_C_HELLO, &hello));
        fake_refuse(fd, hello.request_id, EPROTO, "this daemon speaks version 7 only");
}

static void script_refuse_at_once(struct fake_daemon *fake, int fd) {
        fake_refuse(fd, 0, EUSERS, "4096 clients are connected already");
}

static void script_hang_up(struct fake_daemon *fake, int fd) {
}

static void script_garbage(struct fake_daemon *fake, int fd) {
        must(send(fd, "HTTP/1.1 400 Bad Request", 24, MSG_NOSIGNAL) == 24);
}

static void assert_open_fails(fake_script_fn script, int error, const char *word) {
        struct hugezero_conn *conn = (void *) 1;
        struct fake_daemon fake;

        fake_start(&fake, script, NULL);
        assert_int_equal(hugezero_conn_open(fake.path, &conn), error);
        assert_ptr_equal(conn, (void *) 1);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), word));
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), fake.path));
        fake_stop(&fake);
}

/* What the daemon has said is enough. */
static void a_refused_version_is_told_once(void **state) {
        struct hugezero_conn *conn;
        struct fake_daemon fake;
        char text[256];

        fake_start(&fake, script_refuse_version, NULL);
        assert_int_equal(hugezero_conn_open(fake.path, &conn), -EPROTO);
        (void) snprintf(text, sizeof(text), "cannot connect to '%s': this daemon speaks version 7 only", fake.path);
        assert_string_equal(hugezero_conn_get_error_text(NULL), text);
        fake_stop(&fake);
}

static void each_reason_not_to_connect_has_its_error(void **state) {
        assert_open_fails(script_version_2, -EPROTO, "version");
        assert_open_fails(script_refuse_version, -EPROTO, "speaks version 7 only");
        assert_open_fails(script_garbage, -EPROTO, "no answer of the protocol");
        assert_open_fails(script_refuse_at_once, -EUSERS, "4096 clients");
        assert_open_fails(script_hang_up, -ECONNRESET, "closed the connection");
}

static void a_socket_that_is_not_served_has_its_error(void **state) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct hugezero_conn *conn;
        char folder[] = "/tmp/hugezero-test-XXXXXX", long_path[120];

        assert_non_null(mkdtemp(folder));
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
        assert_int_equal(hugezero_conn_open(address.sun_path, &conn), -ENOENT);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), address.sun_path));

        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(hugezero_conn_open(address.sun_path, &conn), -ECONNREFUSED);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "is hugezerod running"));

        memset(long_path, 'x', sizeof(long_path) - 1);
        long_path[108] = 0;
        assert_int_equal(hugezero_conn_open(long_path, &conn), -ENAMETOOLONG);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "at most 107 bytes"));
        long_path[107] = 0;
        assert_int_equal(hugezero_conn_open(long_path, &conn), -ENOENT);
        assert_int_equal(hugezero_conn_open("", &conn), -EINVAL);
        assert_int_equal(hugezero_conn_open(folder, NULL), -EINVAL);
        assert_string_equal(hugezero_conn_get_error_text(NULL), "no place for the connection is given");
        assert_int_equal(hugezero_conn_open_within(folder, 0, &conn), -EINVAL);
        assert_string_equal(hugezero_conn_get_error_text(NULL), "the time to wait is less than 1 ms");
        (void) unlink(address.sun_path);
        (void) rmdir(folder);
}

static void open_in_20_ms(const char *path) {
        struct hugezero_conn *conn;
        struct timespec before, after;

        (void) clock_gettime(CLOCK_MONOTONIC, &before);
        assert_int_equal(hugezero_conn_open_within(path, 20, &conn), -ETIMEDOUT);
        (void) clock_gettime(CLOCK_MONOTONIC, &after);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "something listens there but does not answer"));
        assert_true(after.tv_sec - before.tv_sec < 8); /* not the 10 s of hugezero_conn_open() */
}

/* As a service manager does for a daemon that cannot start. */
static void the_time_to_connect_is_the_callers(void **state) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        char folder[] = "/tmp/hugezero-test-XXXXXX";

        assert_non_null(mkdtemp(folder));
        (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", folder);
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        assert_int_equal(listen(fd, 0), 0);
        open_in_20_ms(address.sun_path); /* is let in, and waits for an answer */
        open_in_20_ms(address.sun_path); /* waits to be let in: the backlog has room for one */
        (void) unlink(address.sun_path);
        (void) rmdir(folder);
}

static void a_socket_without_permission_has_its_error(void **state) {
        static const char *const texts[] = {"SocketGroup=", "a folder of the path"}; /* the socket is closed, or its folder */
        struct fake_daemon fake;
        int status;

        fake_start(&fake, script_greet, NULL);
        for (size_t i = 0; i < ELEMENTSOF(texts); i++) {
                pid_t pid = fork();
                if (pid == 0) {
                        struct hugezero_conn *conn;
                        must(chmod(fake.path, 0) == 0 && chmod(fake.folder, i == 0 ? 0711 : 0600) == 0);
                        must(geteuid() != 0 || setresuid(65534, 65534, 65534) == 0);
                        must(hugezero_conn_open(fake.path, &conn) == -EACCES);
                        must(strstr(hugezero_conn_get_error_text(NULL), texts[i]) != NULL);
                        _exit(0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                assert_int_equal(status, 0);
        }
        assert_int_equal(chmod(fake.folder, 0700), 0);
        fake_stop(&fake);
}

static void the_environment_names_the_socket(void **state) {
        struct hugezero_conn *conn;
        struct fake_daemon fake;

        assert_int_equal(unsetenv("HUGEZERO_SOCKET"), 0);
        assert_int_equal(hugezero_socket_path()[0], '/');
        fake_start(&fake, script_greet, NULL);
        assert_int_equal(setenv("HUGEZERO_SOCKET", fake.path, 1), 0);
        assert_string_equal(hugezero_socket_path(), fake.path);
        assert_int_equal(hugezero_conn_open(NULL, &conn), 0);
        assert_int_equal(fcntl(hugezero_conn_get_fd(conn), F_GETFD), FD_CLOEXEC);
        assert_int_equal(hugezero_conn_get_events(conn), POLLIN);
        assert_string_equal(hugezero_conn_get_error_text(conn), "");
        hugezero_conn_close(conn);
        assert_int_equal(unsetenv("HUGEZERO_SOCKET"), 0);
        fake_stop(&fake);
}

/* ---- requests ---- */

static void assert_text(const struct hugezero_conn *conn, const char *part) {
        const char *text = hugezero_conn_get_error_text(conn);

        if (!strstr(text, part))
                fail_msg("\"%s\" is missing in \"%s\"", part, text);
}

static void what_is_wrong_with_an_item_is_said(void **state) {
        static const struct {
                uint64_t bytes, page_size_bytes;
                int32_t node;
                uint32_t flags;
                const char *pool, *text;
        } wrong[] = {
                {.bytes = 0, .text = "0 bytes"},
                {.bytes = 1, .page_size_bytes = 3, .text = "3 bytes are no page size"},
                {.bytes = 1, .page_size_bytes = 2048, .text = "2048 bytes are no page size"},
                {.bytes = 1, .node = -5, .text = "no node -5"},
                {.bytes = 1, .node = 1024, .text = "no node 1024; nodes have numbers from 0 to 1023"},
                {.bytes = 1, .flags = 0x1008, .text = "the flags 0x1008"},
                {.bytes = 1, .pool = "bell\a", .text = "a pool's name"},
        };
        struct hugezero_request *request;

        assert_int_equal(hugezero_request_new(&request), 0);
        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                assert_int_equal(hugezero_request_add_item(request, wrong[i].bytes, wrong[i].page_size_bytes, wrong[i].node,
                                                           wrong[i].flags, wrong[i].pool),
                                 -EINVAL);
                assert_text(NULL, wrong[i].text);
        }
        assert_int_equal(hugezero_request_set_miss(request, 3, 0), -EINVAL);
        assert_text(NULL, "no such way to go on");
        for (unsigned i = 0; i < HUGEZERO_MAX_ITEMS; i++)
                assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, NULL), 0);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, NULL), -E2BIG);
        assert_text(NULL, "16 items already");
        hugezero_request_free(request);
}

static void a_wrong_argument_is_not_told_with_the_text_of_an_earlier_call(void **state) {
        struct hugezero_grant *grant;
        struct hugezero_status *status;
        struct fake_daemon fake;

        fake_start(&fake, script_grant_pages, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(PAGE_BYTES, 0);
        assert_int_equal(hugezero_request_submit(request, conn), 0);
        assert_int_equal(hugezero_request_finish(request, NULL), -EINVAL);
        assert_text(conn, "no place for the grant");
        assert_int_equal(finish_in_loop(conn, request, &grant), 0);
        assert_int_equal(hugezero_request_finish(request, &grant), -EINVAL);
        assert_text(NULL, "not on its way");
        assert_int_equal(hugezero_request_cancel(request), -EINVAL);
        assert_text(NULL, "not on its way");
        assert_int_equal(hugezero_acquire(conn, request, NULL), -EINVAL);
        assert_text(conn, "no place for the grant");
        assert_int_equal(hugezero_request_submit(NULL, conn), -EINVAL);
        assert_text(conn, "no request");
        assert_int_equal(hugezero_grant_release_extent(grant, conn, 1), -EINVAL);
        assert_text(conn, "no extent of that number");
        assert_int_equal(hugezero_status_read(conn, NULL), -EINVAL);
        assert_text(conn, "no place for the figures");
        assert_int_equal(hugezero_grant_notify_mapped(NULL, conn), -EINVAL);
        assert_text(conn, "no grant");
        assert_int_equal(hugezero_status_read(NULL, &status), -EINVAL);
        assert_text(NULL, "no connection");
        hugezero_grant_free(grant);

        /* Nor is it after the connection has become useless. */
        assert_int_equal(hugezero_request_submit(request, conn), 0);
        fake_stop(&fake);
        while (hugezero_conn_dispatch(conn) >= 0)
                ;
        assert_text(conn, "closed the connection");
        (void) hugezero_acquire(conn, request, NULL);
        assert_int_equal(hugezero_conn_dispatch(conn), -ECONNRESET);
        assert_text(conn, "closed the connection");
        hugezero_request_free(request);
        hugezero_conn_close(conn);
}

static void a_request_takes_nothing_but_sense(void **state) {
        struct hugezero_request *request;

        assert_int_equal(hugezero_request_new(NULL), -EINVAL);
        assert_int_equal(hugezero_request_new(&request), 0);
        assert_int_equal(hugezero_request_add_item(NULL, 1, 0, -1, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 0, 0, -1, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 3 << 20, -1, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 2048, -1, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -3, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, 1024, 0, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0x8, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, HUGEZERO_WAIT, NULL), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, "a name that is one byte too long"), -EINVAL);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, "bell\a"), -EINVAL);
        assert_int_equal(hugezero_request_set_miss(request, 3, 0), -EINVAL);
        assert_int_equal(hugezero_request_set_miss(request, HUGEZERO_MISS_FAIL, 5), -EINVAL);
        assert_int_equal(hugezero_request_set_miss(request, HUGEZERO_MISS_FILL, -1), -EINVAL);
        assert_int_equal(hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, -2), -EINVAL);
        for (unsigned i = 0; i < HUGEZERO_MAX_ITEMS; i++)
                assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, "a name of thirty-one characters"), 0);
        assert_int_equal(hugezero_request_add_item(request, 1, 0, -1, 0, NULL), -E2BIG);
        assert_int_equal(hugezero_request_cancel(request), -EINVAL);
        hugezero_request_free(request);
        hugezero_request_free(NULL);
}

static void script_items(struct fake_daemon *fake, int fd) {
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        must(m.c_acquire.n_items == 4 && m.c_acquire.on_miss == WIRE_MISS_WAIT && m.c_acquire.timeout_ms == 250);
        const struct wire_item *item = m.c_acquire.items;
        must(item[0].bytes == 5 && item[0].page_size_bytes == 1 << 30 && item[0].node == 3);
        must(item[0].node_mode == WIRE_NODE_STRICT && item[0].flags == 0 && strcmp(item[0].pool, "huge") == 0);
        must(item[1].node == 3 && item[1].node_mode == WIRE_NODE_PREFER && item[1].flags == WIRE_ITEM_SEVERAL);
        must(item[2].node == -1 && item[2].node_mode == WIRE_NODE_ANY && item[2].flags == WIRE_ITEM_REOPENABLE);
        must(item[3].node >= 0 && item[3].node_mode == WIRE_NODE_PREFER && item[3].pool[0] == 0);
        fake_refuse(fd, m.request_id, ETIMEDOUT, "nothing came back within 250ms");
        must(!fake_receive(fd, 0, &m));
}

static void the_daemon_gets_what_was_asked_and_its_reason_comes_back(void **state) {
        struct hugezero_grant *grant = (void *) 1;
        struct hugezero_request *request;
        struct fake_daemon fake;

        fake_start(&fake, script_items, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        assert_int_equal(hugezero_request_new(&request), 0);
        assert_int_equal(hugezero_request_submit(request, conn), -EINVAL); /* empty */
        assert_int_equal(hugezero_request_add_item(request, 5, 1 << 30, 3, 0, "huge"), 0);
        assert_int_equal(hugezero_request_add_item(request, 5, 0, 3, HUGEZERO_NODE_PREFERRED | HUGEZERO_SEVERAL_FDS, ""), 0);
        assert_int_equal(hugezero_request_add_item(request, 5, 0, HUGEZERO_NODE_ANY, HUGEZERO_REOPENABLE, NULL), 0);
        assert_int_equal(hugezero_request_add_item(request, 5, 0, HUGEZERO_NODE_LOCAL, 0, NULL), 0);
        assert_int_equal(hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, 250), 0);
        assert_int_equal(hugezero_acquire(conn, request, &grant), -ETIMEDOUT);
        assert_ptr_equal(grant, (void *) 1);
        assert_string_equal(hugezero_conn_get_error_text(conn), "nothing came back within 250ms");
        assert_int_equal(hugezero_request_finish(request, &grant), -EINVAL); /* collected */
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void a_request_can_be_used_again(void **state) {
        struct hugezero_extent_info info = {.struct_bytes = sizeof(info)};
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_grant_pages, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(PAGE_BYTES, 0);
        for (uint64_t id = 101; id < 104; id++) {
                assert_int_equal(hugezero_acquire(conn, request, &grant), 0);
                assert_int_equal(hugezero_grant_get_id(grant), id);
                assert_int_equal(hugezero_grant_get_n_extents(grant), 1);
                assert_int_equal(fcntl(hugezero_grant_get_fd(grant, 0), F_GETFD), FD_CLOEXEC);
                assert_int_equal(hugezero_grant_get_extent(grant, 0, &info), 0);
                assert_int_equal(info.bytes, PAGE_BYTES);
                assert_int_equal(info.page_size_bytes, PAGE_BYTES);
                assert_int_equal(info.item, 0);
                assert_int_equal(info.node, 0);
                assert_int_equal(hugezero_grant_get_extent(grant, 1, &info), -EINVAL);
                assert_int_equal(hugezero_grant_get_fd(grant, 1), -EINVAL);
                _cleanup_close_ int fd = hugezero_grant_take_fd(grant, 0);
                assert_true(fd >= 0);
                assert_int_equal(hugezero_grant_get_fd(grant, 0), -EBADF);
                assert_int_equal(hugezero_grant_take_fd(grant, 0), -EBADF);
                hugezero_grant_free(grant);
                assert_true(fcntl(fd, F_GETFD) >= 0);
        }
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void a_structure_of_another_version_is_filled_as_far_as_it_goes(void **state) {
        struct {
                struct hugezero_extent_info info;
                uint64_t later;
        } newer = {.info.struct_bytes = sizeof(newer), .later = 7};
        struct hugezero_extent_info older = {.struct_bytes = 8};
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_grant_pages, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(PAGE_BYTES, 0);
        assert_int_equal(hugezero_acquire(conn, request, &grant), 0);
        assert_int_equal(hugezero_grant_get_extent(grant, 0, &newer.info), 0);
        assert_int_equal(newer.info.bytes, PAGE_BYTES);
        assert_int_equal(newer.info.struct_bytes, sizeof(newer));
        assert_int_equal(newer.later, 0);
        assert_int_equal(hugezero_grant_get_extent(grant, 0, &older), -EINVAL);
        hugezero_grant_free(grant);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void a_grant_of_several_messages_is_put_together(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_grant_pages, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(600 * PAGE_BYTES, HUGEZERO_SEVERAL_FDS);
        int n_before = count_fds();
        assert_int_equal(hugezero_request_submit(request, conn), 0);
        assert_int_equal(finish_in_loop(conn, request, &grant), 0);
        assert_int_equal(hugezero_grant_get_n_extents(grant), 600);
        for (uint32_t i = 0; i < 600; i++)
                assert_int_equal(fcntl(hugezero_grant_get_fd(grant, i), F_GETFD), FD_CLOEXEC);
        hugezero_grant_free(grant);
        /* The script closes its own copy in its own time. */
        assert_true(count_fds() - n_before <= 1);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void script_reverse(struct fake_daemon *fake, int fd) {
        struct wire_message first, second, m;
        _cleanup_close_ int memfd = fake_memfd(2 * PAGE_BYTES);

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &first));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &second));
        must(first.request_id != second.request_id);
        fake_grant(fd, second.request_id, 2, &memfd, 1, 2 * PAGE_BYTES, 12);
        fake_grant(fd, first.request_id, 1, &memfd, 1, 2 * PAGE_BYTES, 12);
        must(!fake_receive(fd, 0, &m));
}

static void answers_in_any_order_find_their_requests(void **state) {
        struct hugezero_grant *first_grant, *second_grant;
        struct fake_daemon fake;

        fake_start(&fake, script_reverse, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *first = request_bytes(PAGE_BYTES, 0), *second = request_bytes(PAGE_BYTES, 0);
        assert_int_equal(hugezero_request_submit(first, conn), 0);
        assert_int_equal(hugezero_request_submit(first, conn), -EBUSY);
        assert_int_equal(hugezero_request_add_item(first, 1, 0, -1, 0, NULL), -EBUSY);
        assert_int_equal(hugezero_request_set_miss(first, HUGEZERO_MISS_FAIL, 0), -EBUSY);
        assert_int_equal(hugezero_request_finish(first, &first_grant), -EINPROGRESS);
        assert_int_equal(hugezero_acquire(conn, second, &second_grant), 0);
        assert_int_equal(hugezero_grant_get_id(second_grant), 2);
        assert_int_equal(finish_in_loop(conn, first, &first_grant), 0);
        assert_int_equal(hugezero_grant_get_id(first_grant), 1);
        hugezero_grant_free(first_grant);
        hugezero_grant_free(second_grant);
        hugezero_request_free(first);
        hugezero_request_free(second);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void script_refuse_two(struct fake_daemon *fake, int fd) {
        struct wire_message first, second, m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &first));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &second));
        fake_refuse(fd, first.request_id, ENOENT, "the reason of the first");
        fake_refuse(fd, second.request_id, EDQUOT, "");
        must(!fake_receive(fd, 0, &m));
}

static void each_request_keeps_its_own_reason(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_refuse_two, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *first = request_bytes(1, 0), *second = request_bytes(1, 0);
        assert_int_equal(hugezero_request_submit(first, conn), 0);
        assert_int_equal(hugezero_acquire(conn, second, &grant), -EDQUOT);
        assert_string_equal(hugezero_conn_get_error_text(conn), strerror(EDQUOT)); /* the daemon said nothing */
        assert_int_equal(hugezero_request_finish(first, &grant), -ENOENT);
        assert_string_equal(hugezero_conn_get_error_text(conn), "the reason of the first");
        hugezero_request_free(first);
        hugezero_request_free(second);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void script_cancel(struct fake_daemon *fake, int fd) {
        struct wire_message acquire, m;
        _cleanup_close_ int memfd = fake_memfd(PAGE_BYTES);

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &acquire));
        must(fake_receive(fd, WIRE_C_CANCEL, &m));
        must(m.c_cancel.target_request_id == acquire.request_id);
        fake_grant(fd, acquire.request_id, 1, &memfd, 1, PAGE_BYTES, 12); /* it has crossed the cancellation */
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        must(m.request_id != acquire.request_id);
        fake_grant(fd, m.request_id, 2, &memfd, 1, PAGE_BYTES, 12);
        must(!fake_receive(fd, 0, &m));
}

static void a_cancelled_request_never_has_a_grant(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_cancel, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(PAGE_BYTES, 0);
        assert_int_equal(hugezero_request_submit(request, conn), 0);
        assert_int_equal(hugezero_request_cancel(request), 0);
        assert_int_equal(hugezero_request_cancel(request), -EALREADY);
        assert_int_equal(hugezero_request_finish(request, &grant), -ECANCELED);
        assert_int_equal(hugezero_acquire(conn, request, &grant), 0);
        assert_int_equal(hugezero_grant_get_id(grant), 2);
        hugezero_grant_free(grant);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void requests_outlive_their_connection(void **state) {
        unsigned n_by_op[WIRE_C_GRANTS + 1] = {};
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_count, n_by_op);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *freed = request_bytes(1, 0), *finished = request_bytes(1, 0), *late = request_bytes(1, 0);
        assert_int_equal(hugezero_request_submit(freed, conn), 0);
        assert_int_equal(hugezero_request_submit(finished, conn), 0);
        assert_int_equal(hugezero_request_submit(late, conn), 0);
        hugezero_request_free(freed);
        hugezero_conn_close(conn);
        hugezero_conn_close(NULL);
        assert_int_equal(hugezero_request_finish(finished, &grant), -ECANCELED);
        assert_int_equal(hugezero_request_cancel(late), -EALREADY);
        hugezero_request_free(finished);
        hugezero_request_free(late);
        fake_stop(&fake);
        assert_int_equal(n_by_op[WIRE_C_ACQUIRE], 3);
        assert_int_equal(n_by_op[WIRE_C_CANCEL], 1); /* what was freed while on its way */
}

/* Reads nothing until the test says so. */
static void script_slow(struct fake_daemon *fake, int fd) {
        struct wire_message m;
        uint8_t byte;

        must(fake_greet(fd));
        must(read(*(int *) fake->data, &byte, 1) == 1);
        while (fake_receive(fd, WIRE_C_ACQUIRE, &m))
                fake_refuse(fd, m.request_id, ENOMEM, "no");
}

static void submitting_never_blocks_and_is_bounded(void **state) {
        struct hugezero_request *requests[4096];
        struct hugezero_grant *grant;
        struct fake_daemon fake;
        int go[2], r = 0;
        unsigned n = 0;

        assert_int_equal(pipe(go), 0);
        fake_start(&fake, script_slow, &go[0]);
        struct hugezero_conn *conn = connect_to(&fake);
        for (; r == 0 && n < ELEMENTSOF(requests); n++) {
                requests[n] = request_bytes(1, 0);
                r = hugezero_request_submit(requests[n], conn);
        }
        assert_int_equal(r, -ENOBUFS);
        hugezero_request_free(requests[--n]); /* the one that did not go */
        assert_true(n > 256);
        assert_int_equal(hugezero_conn_get_events(conn), POLLIN | POLLOUT);
        assert_int_equal(hugezero_conn_dispatch(conn), 0);
        assert_int_equal(hugezero_request_finish(requests[0], &grant), -EINPROGRESS);
        assert_int_equal(write(go[1], "", 1), 1);
        for (unsigned i = 0; i < n; i++) {
                assert_int_equal(finish_in_loop(conn, requests[i], &grant), -ENOMEM);
                hugezero_request_free(requests[i]);
        }
        assert_int_equal(hugezero_conn_get_events(conn), POLLIN);
        hugezero_conn_close(conn);
        fake_stop(&fake);
        close(go[0]);
        close(go[1]);
}

static void a_blocking_call_sends_what_was_queued_before_it(void **state) {
        struct hugezero_request *requests[4096];
        struct hugezero_grant *grant;
        struct fake_daemon fake;
        unsigned n = 0;
        int go[2];

        assert_int_equal(pipe(go), 0);
        fake_start(&fake, script_slow, &go[0]);
        struct hugezero_conn *conn = connect_to(&fake);
        while (hugezero_conn_get_events(conn) == POLLIN) {
                requests[n] = request_bytes(1, 0);
                assert_int_equal(hugezero_request_submit(requests[n++], conn), 0);
                assert_true(n < ELEMENTSOF(requests));
        }
        struct hugezero_request *last = request_bytes(1, 0);
        assert_int_equal(write(go[1], "", 1), 1);
        assert_int_equal(hugezero_acquire(conn, last, &grant), -ENOMEM);
        hugezero_request_free(last);
        for (unsigned i = 0; i < n; i++) {
                assert_int_equal(hugezero_request_finish(requests[i], &grant), -ENOMEM); /* answered in order */
                hugezero_request_free(requests[i]);
        }
        hugezero_conn_close(conn);
        fake_stop(&fake);
        close(go[0]);
        close(go[1]);
}

static atomic_uint n_signals;

static void count_signal(int signal) {
        atomic_fetch_add(&n_signals, 1);
}

static void script_late(struct fake_daemon *fake, int fd) {
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        while (atomic_load(&n_signals) < 5)
                must(poll(NULL, 0, 1) == 0 || errno == EINTR);
        fake_refuse(fd, m.request_id, ENOMEM, "no");
        must(!fake_receive(fd, 0, &m));
}

static void signals_do_not_end_a_call(void **state) {
        struct sigaction action = {.sa_handler = count_signal}, before;
        struct itimerval often = {{0, 2000}, {0, 2000}}, never = {};
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        atomic_store(&n_signals, 0);
        fake_start(&fake, script_late, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(1, 0);
        assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
        assert_int_equal(setitimer(ITIMER_REAL, &often, NULL), 0);
        assert_int_equal(hugezero_acquire(conn, request, &grant), -ENOMEM);
        assert_int_equal(setitimer(ITIMER_REAL, &never, NULL), 0);
        assert_int_equal(sigaction(SIGALRM, &before, NULL), 0);
        assert_true(atomic_load(&n_signals) >= 5);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

/* ---- forked children ---- */

static void check_child(struct hugezero_conn *conn, struct hugezero_request *idle, struct hugezero_request *pending,
                        struct hugezero_grant *held) {
        struct hugezero_status *status;
        struct hugezero_grant *grant;

        must(hugezero_acquire(conn, idle, &grant) == -ECHILD);
        must(hugezero_request_cancel(pending) == -ECHILD);
        must(hugezero_request_finish(pending, &grant) == -ECHILD);
        must(hugezero_conn_dispatch(conn) == -ECHILD);
        must(hugezero_conn_get_fd(conn) == -ECHILD);
        must(hugezero_conn_get_events(conn) == -ECHILD);
        must(hugezero_grant_notify_mapped(held, conn) == -ECHILD);
        must(hugezero_status_read(conn, &status) == -ECHILD);
        must(fcntl(hugezero_grant_get_fd(held, 0), F_GETFD) >= 0);
        hugezero_request_free(pending);
        hugezero_conn_close(conn);
        hugezero_grant_free(held);
        hugezero_request_free(idle);
}

static void script_second_after_child(struct fake_daemon *fake, int fd) {
        _cleanup_close_ int memfd = fake_memfd(PAGE_BYTES);
        struct wire_message first, second, m;
        uint8_t byte;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &first));
        fake_grant(fd, first.request_id, 1, &memfd, 1, PAGE_BYTES, 12);
        must(fake_receive(fd, WIRE_C_ACQUIRE, &second));
        must(read(*(int *) fake->data, &byte, 1) == 1);
        fake_grant(fd, second.request_id, 2, &memfd, 1, PAGE_BYTES, 12);
        must(!fake_receive(fd, 0, &m)); /* nothing of the child's */
}

static void a_forked_child_keeps_grants_and_leaves_the_connection_alone(void **state) {
        struct hugezero_grant *held, *grant;
        struct fake_daemon fake;
        int go[2], status;

        assert_int_equal(pipe(go), 0);
        fake_start(&fake, script_second_after_child, &go[0]);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *idle = request_bytes(1, 0), *pending = request_bytes(1, 0);
        assert_int_equal(hugezero_acquire(conn, idle, &held), 0);
        assert_int_equal(hugezero_request_submit(pending, conn), 0);
        pid_t pid = fork();
        if (pid == 0) {
                check_child(conn, idle, pending, held);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        assert_int_equal(write(go[1], "", 1), 1);
        assert_int_equal(finish_in_loop(conn, pending, &grant), 0);
        hugezero_grant_free(grant);
        hugezero_grant_free(held);
        hugezero_request_free(pending);
        hugezero_request_free(idle);
        hugezero_conn_close(conn);
        fake_stop(&fake);
        close(go[0]);
        close(go[1]);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(each_reason_not_to_connect_has_its_error),
                test_without_fd_leak(a_refused_version_is_told_once),
                test_without_fd_leak(a_socket_that_is_not_served_has_its_error),
                test_without_fd_leak(the_time_to_connect_is_the_callers),
                test_without_fd_leak(a_socket_without_permission_has_its_error),
                test_without_fd_leak(the_environment_names_the_socket),
                test_without_fd_leak(what_is_wrong_with_an_item_is_said),
                test_without_fd_leak(a_wrong_argument_is_not_told_with_the_text_of_an_earlier_call),
                test_without_fd_leak(a_request_takes_nothing_but_sense),
                test_without_fd_leak(the_daemon_gets_what_was_asked_and_its_reason_comes_back),
                test_without_fd_leak(a_request_can_be_used_again),
                test_without_fd_leak(a_structure_of_another_version_is_filled_as_far_as_it_goes),
                test_without_fd_leak(a_grant_of_several_messages_is_put_together),
                test_without_fd_leak(answers_in_any_order_find_their_requests),
                test_without_fd_leak(each_request_keeps_its_own_reason),
                test_without_fd_leak(a_cancelled_request_never_has_a_grant),
                test_without_fd_leak(requests_outlive_their_connection),
                test_without_fd_leak(submitting_never_blocks_and_is_bounded),
                test_without_fd_leak(a_blocking_call_sends_what_was_queued_before_it),
                test_without_fd_leak(signals_do_not_end_a_call),
                test_without_fd_leak(a_forked_child_keeps_grants_and_leaves_the_connection_alone),
        };

        return cmocka_run_group_tests_name("library", tests, NULL, NULL);
}
