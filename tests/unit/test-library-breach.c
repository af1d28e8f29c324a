/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The library against daemons that are gone, that break the protocol, and that give more descriptors than there is room for. */
#include "testing.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "fdpass.h"
#include "library-testing.h"

static void script_half_a_grant(struct fake_daemon *fake, int fd) {
        _cleanup_close_ int memfd = fake_memfd(PAGE_BYTES);
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        struct wire_message half = {
                .op = WIRE_D_GRANT,
                .request_id = m.request_id,
                .d_grant = {.grant_id = 1, .n_extents_total = 2, .n_extents = 1, .extents = {{PAGE_BYTES, .page_shift = 12}}},
        };
        fake_send(fd, &half, &memfd, 1);
}

static void a_daemon_that_goes_ends_every_request(void **state) {
        struct hugezero_grant *grant;
        struct hugezero_status *status;
        struct fake_daemon fake;

        fake_start(&fake, script_half_a_grant, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *half = request_bytes(2 * PAGE_BYTES, HUGEZERO_SEVERAL_FDS), *other = request_bytes(1, 0);
        assert_int_equal(hugezero_request_submit(half, conn), 0);
        assert_int_equal(finish_in_loop(conn, half, &grant), -ECONNRESET);
        assert_non_null(strstr(hugezero_conn_get_error_text(conn), "closed the connection"));
        /* Every further call says the same, and none of them raises SIGPIPE. */
        assert_int_equal(hugezero_acquire(conn, other, &grant), -ECONNRESET);
        assert_int_equal(hugezero_conn_dispatch(conn), -ECONNRESET);
        assert_int_equal(hugezero_conn_get_events(conn), -ECONNRESET);
        assert_int_equal(hugezero_status_read(conn, &status), -ECONNRESET);
        hugezero_request_free(half);
        hugezero_request_free(other);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void sending_to_a_daemon_that_is_gone_raises_no_signal(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_greet, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(1, 0);
        fake_stop(&fake);
        assert_int_equal(hugezero_acquire(conn, request, &grant), -ECONNRESET);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
}

/* One wrong answer to a request for two pages as one extent from node 0. */
struct breach {
        const char *what;
        uint16_t op;
        uint32_t id_offset;
        struct wire_d_grant grant;
        unsigned n_fds;
        unsigned n_cut_bytes;
        int refused_error;
};

#define TWO_PAGES                                                                                                              \
        { .bytes = 2 * PAGE_BYTES, .page_shift = 12 }

static const struct breach breaches[] = {
        {.what = "a descriptor is missing", .grant = {1, 1, 0, 1, .extents = {TWO_PAGES}}, .n_fds = 0},
        {.what = "a descriptor too many", .grant = {1, 1, 0, 1, .extents = {TWO_PAGES}}, .n_fds = 2},
        {.what = "a request that does not exist", .id_offset = 5, .grant = {1, 1, 0, 1, .extents = {TWO_PAGES}}, .n_fds = 1},
        {.what = "an item that does not exist", .grant = {1, 1, 0, 1, .extents = {{2 * PAGE_BYTES, 1, 12}}}, .n_fds = 1},
        {.what = "too few bytes", .grant = {1, 1, 0, 1, .extents = {{PAGE_BYTES, .page_shift = 12}}}, .n_fds = 1},
        {.what = "pages of another size", .grant = {1, 1, 0, 1, .extents = {{2 << 20, .page_shift = 21}}}, .n_fds = 1},
        {.what = "another node", .grant = {1, 1, 0, 1, .extents = {{2 * PAGE_BYTES, .page_shift = 12, .node = 1}}}, .n_fds = 1},
        {.what = "two extents where one was wanted", .grant = {1, 2, 0, 2, .extents = {TWO_PAGES, TWO_PAGES}}, .n_fds = 2},
        {.what = "a message left out", .grant = {1, 2, 1, 1, .extents = {TWO_PAGES}}, .n_fds = 1},
        {.what = "a message cut short", .grant = {1, 1, 0, 1, .extents = {TWO_PAGES}}, .n_fds = 1, .n_cut_bytes = 1},
        {.what = "the answer to something else", .op = WIRE_D_DONE},
        {.what = "descriptors with such an answer", .op = WIRE_D_DONE, .n_fds = 1},
        {.what = "descriptors with a refusal", .op = WIRE_D_REFUSED, .n_fds = 1, .refused_error = ENOMEM},
        {.what = "a refusal that means to be continued", .op = WIRE_D_REFUSED, .refused_error = EINPROGRESS},
};

static void script_breach(struct fake_daemon *fake, int fd) {
        const struct breach *breach = fake->data;
        _cleanup_close_ int memfd = fake_memfd(2 * PAGE_BYTES);
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        int fds[2] = {memfd, memfd};
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        struct wire_message answer = {
                .op = breach->op ? breach->op : WIRE_D_GRANT,
                .request_id = m.request_id + breach->id_offset,
                .d_grant = breach->grant,
        };
        if (answer.op == WIRE_D_REFUSED)
                answer.d_refused = (struct wire_d_refused){.error = breach->refused_error};
        int n = wire_encode(&answer, buffer, sizeof(buffer));
        must(n > 0);
        must(fdpass_send(fd, buffer, (size_t) n - breach->n_cut_bytes, fds, breach->n_fds) == 0);
        must(!fake_receive(fd, 0, &m));
}

static void a_breach_of_the_protocol_ends_the_connection_and_leaks_nothing(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(breaches); i++) {
                struct hugezero_grant *grant = (void *) 1;
                struct hugezero_request *request;
                struct fake_daemon fake;
                int n_before = count_fds();

                fake_start(&fake, script_breach, (void *) &breaches[i]);
                struct hugezero_conn *conn = connect_to(&fake);
                assert_int_equal(hugezero_request_new(&request), 0);
                assert_int_equal(hugezero_request_add_item(request, 2 * PAGE_BYTES, PAGE_BYTES, 0, 0, NULL), 0);
                int r = hugezero_acquire(conn, request, &grant);
                if (r != -EBADMSG)
                        fail_msg("%s: %d", breaches[i].what, r);
                assert_ptr_equal(grant, (void *) 1);
                assert_int_equal(hugezero_conn_dispatch(conn), -EBADMSG);
                hugezero_request_free(request);
                hugezero_conn_close(conn);
                fake_stop(&fake);
                if (count_fds() != n_before)
                        fail_msg("%s: a descriptor has leaked", breaches[i].what);
        }
}

/* Answers a release with descriptors, or with something else; both would do no harm if nobody looked. */
static void script_release_breach(struct fake_daemon *fake, int fd) {
        const struct breach *breach = fake->data;
        _cleanup_close_ int memfd = fake_memfd(PAGE_BYTES);
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        fake_grant(fd, m.request_id, 1, &memfd, 1, PAGE_BYTES, 12);
        must(fake_receive(fd, WIRE_C_RELEASE, &m));
        fake_send(fd, &(struct wire_message){.op = breach->op, .request_id = m.request_id}, &memfd, breach->n_fds);
        must(!fake_receive(fd, 0, &m));
}

static void a_release_is_answered_by_done_alone(void **state) {
        static const struct breach answers[] = {{.op = WIRE_D_DONE, .n_fds = 1}, {.op = WIRE_D_STATUS}};

        for (size_t i = 0; i < ELEMENTSOF(answers); i++) {
                struct hugezero_grant *grant;
                struct fake_daemon fake;

                fake_start(&fake, script_release_breach, (void *) &answers[i]);
                struct hugezero_conn *conn = connect_to(&fake);
                struct hugezero_request *request = request_bytes(1, 0);
                assert_int_equal(hugezero_acquire(conn, request, &grant), 0);
                assert_int_equal(hugezero_grant_release(grant, conn), -EBADMSG);
                hugezero_grant_free(grant);
                hugezero_request_free(request);
                hugezero_conn_close(conn);
                fake_stop(&fake);
        }
}

static void script_refuse_and_leave(struct fake_daemon *fake, int fd) {
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        must(poll(&pollfd, 1, -1) == 1); /* the second request is there, and stays unread */
        fake_refuse(fd, m.request_id, ESHUTDOWN, "hugezerod is stopping");
}

static void what_a_daemon_says_before_it_hangs_up_is_heard(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_refuse_and_leave, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *first = request_bytes(1, 0), *second = request_bytes(1, 0);
        assert_int_equal(hugezero_request_submit(first, conn), 0);
        assert_int_equal(hugezero_request_submit(second, conn), 0);
        struct pollfd pollfd = {.fd = hugezero_conn_get_fd(conn)};
        assert_int_equal(poll(&pollfd, 1, 10000), 1); /* POLLHUP: it has gone */
        assert_int_equal(hugezero_conn_dispatch(conn), -ECONNRESET);
        assert_int_equal(hugezero_request_finish(second, &grant), -ECONNRESET);
        assert_int_equal(hugezero_request_finish(first, &grant), -ESHUTDOWN);
        assert_string_equal(hugezero_conn_get_error_text(conn), "hugezerod is stopping");
        hugezero_request_free(first);
        hugezero_request_free(second);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

/* ---- descriptors that have no room ---- */

static void script_announce_billions(struct fake_daemon *fake, int fd) {
        _cleanup_close_ int memfd = fake_memfd(PAGE_BYTES);
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        struct wire_message announcement = {
                .op = WIRE_D_GRANT,
                .request_id = m.request_id,
                .d_grant = {.grant_id = 1,
                            .n_extents_total = UINT32_MAX,
                            .n_extents = 1,
                            .extents = {{PAGE_BYTES, .page_shift = 12}}},
        };
        fake_send(fd, &announcement, &memfd, 1);
        must(!fake_receive(fd, 0, &m));
}

static void an_announced_number_is_not_believed(void **state) {
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_announce_billions, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(1, HUGEZERO_SEVERAL_FDS);
        assert_int_equal(hugezero_acquire(conn, request, &grant), -EMFILE);
        assert_int_equal(hugezero_conn_dispatch(conn), 0);
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static struct rlimit lower_fd_limit(rlim_t n) {
        struct rlimit before, lower;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        lower = (struct rlimit){n, before.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &lower), 0);
        return before;
}

static void a_grant_without_room_is_refused_whole_and_the_connection_stays(void **state) {
        struct hugezero_grant *grant = (void *) 1;
        struct fake_daemon fake;

        fake_start(&fake, script_grant_pages, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *many = request_bytes(600 * PAGE_BYTES, HUGEZERO_SEVERAL_FDS),
                                *one = request_bytes(PAGE_BYTES, 0);
        int n_before = count_fds();

        /*
         * More than the limit allows at all, seen by the announced number; then more than are free, seen by MSG_CTRUNC (and not
         * before: there was plenty of room the last time).
         */
        struct rlimit before = lower_fd_limit((rlim_t) n_before + 300);
        assert_int_equal(hugezero_acquire(conn, many, &grant), -EMFILE);
        assert_non_null(strstr(hugezero_conn_get_error_text(conn), "RLIMIT_NOFILE"));
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);

        _cleanup_free_ int *taken = calloc(200, sizeof(int));
        for (unsigned i = 0; i < 200; i++)
                taken[i] = dup(0);
        (void) lower_fd_limit((rlim_t) n_before + 200 + 410);
        assert_int_equal(hugezero_acquire(conn, many, &grant), -EMFILE);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        for (unsigned i = 0; i < 200; i++)
                close(taken[i]);
        assert_ptr_equal(grant, (void *) 1);

        /* What was still under way is thrown away, and does not get into the next grant. */
        assert_int_equal(hugezero_acquire(conn, one, &grant), 0);
        assert_int_equal(hugezero_grant_get_n_extents(grant), 1);
        hugezero_grant_free(grant);
        assert_true(count_fds() - n_before <= 1); /* the script's own */
        hugezero_request_free(many);
        hugezero_request_free(one);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void nothing_is_asked_for_without_a_free_descriptor(void **state) {
        unsigned n_by_op[WIRE_C_GRANTS + 1] = {};
        struct hugezero_grant *grant;
        struct fake_daemon fake;

        fake_start(&fake, script_count, n_by_op);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_request *request = request_bytes(1, 0);
        int first_free = dup(0);
        close(first_free);
        struct rlimit before = lower_fd_limit((rlim_t) first_free);
        assert_int_equal(hugezero_acquire(conn, request, &grant), -EMFILE);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_non_null(strstr(hugezero_conn_get_error_text(conn), "only 0 more"));
        hugezero_request_free(request);
        hugezero_conn_close(conn);
        fake_stop(&fake);
        assert_int_equal(n_by_op[WIRE_C_ACQUIRE], 0);
}

static void who_closes_the_descriptor_is_told_so(void **state) {
        struct fake_daemon fake;

        fake_start(&fake, script_greet, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        struct hugezero_status *status;
        assert_int_equal(close(hugezero_conn_get_fd(conn)), 0);
        for (int i = 0; i < 2; i++) {
                assert_int_equal(hugezero_status_read(conn, &status), -EBADF);
                assert_non_null(strstr(hugezero_conn_get_error_text(conn), "closed the descriptor"));
        }
        int fd = dup(0); /* the number is somebody else's, whose descriptor stays open */
        hugezero_conn_close(conn);
        assert_int_equal(close(fd), 0);
        fake_stop(&fake);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(a_daemon_that_goes_ends_every_request),
                test_without_fd_leak(sending_to_a_daemon_that_is_gone_raises_no_signal),
                test_without_fd_leak(a_breach_of_the_protocol_ends_the_connection_and_leaks_nothing),
                test_without_fd_leak(a_release_is_answered_by_done_alone),
                test_without_fd_leak(what_a_daemon_says_before_it_hangs_up_is_heard),
                test_without_fd_leak(an_announced_number_is_not_believed),
                test_without_fd_leak(a_grant_without_room_is_refused_whole_and_the_connection_stays),
                test_without_fd_leak(nothing_is_asked_for_without_a_free_descriptor),
                test_without_fd_leak(who_closes_the_descriptor_is_told_so),
        };

        return cmocka_run_group_tests_name("library-breach", tests, NULL, NULL);
}
