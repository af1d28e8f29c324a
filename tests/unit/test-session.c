/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a client may say, what it gets, and what becomes of one that says something else. */
#include "session-fixture.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void shake_hands(int fd, uint16_t version_min, uint16_t version_max) {
        client_send(fd, &(struct wire_message){
                                .op = WIRE_C_HELLO,
                                .request_id = 5,
                                .c_hello = {.magic = WIRE_MAGIC, .version_min = version_min, .version_max = version_max}});
}

static void hello_is_answered_with_the_limits(void **state) {
        struct fixture *f = *state;
        int fd = client_connect(f);
        struct wire_message answer;

        shake_hands(fd, 1, 9);
        client_receive(f, fd, WIRE_D_HELLO, &answer);
        assert_int_equal(answer.request_id, 5);
        assert_int_equal(answer.d_hello.version, 1);
        assert_int_equal(answer.d_hello.max_items, 16);
        assert_int_equal(answer.d_hello.max_fds, 253);
        assert_int_equal(answer.d_hello.max_message_bytes, 4096);
        assert_int_equal(answer.d_hello.features, 0);
        close(fd);
}

static void a_version_that_is_not_ours_is_refused_by_name(void **state) {
        struct fixture *f = *state;
        int fd = client_connect(f);

        shake_hands(fd, 2, 3);
        client_expect_refused(f, fd, 5, EPROTO, "speaks protocol version 1, the client 2 to 3");
        client_expect_closed(f, fd);
        close(fd);
}

static void nothing_goes_before_hello(void **state) {
        struct fixture *f = *state;

        for (uint16_t op = WIRE_C_HELLO + 1; op <= WIRE_C_LIMITS + 1; op++) {
                int fd = client_connect(f);
                if (op == WIRE_C_ACQUIRE)
                        client_acquire(fd, 7, 1, WIRE_MISS_FAIL);
                else if (op == WIRE_C_LIMITS + 1)
                        assert_int_equal(send(fd, "\x30\x00\x00\x00\x07\x00\x00\x00", 8, 0), 8);
                else
                        client_send(fd, &(struct wire_message){.op = op, .request_id = 7});
                client_expect_refused(f, fd, 7, EPROTO, "must be C_HELLO");
                client_expect_closed(f, fd);
                close(fd);
        }
        assert_int_equal(f->broker.last_grant_id, 0);
}

static void hello_comes_once(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        shake_hands(fd, 1, 1);
        client_expect_refused(f, fd, 5, EPROTO, "first message only");
        client_expect_closed(f, fd);
        close(fd);
}

static void whoever_does_not_say_hello_in_time_is_cut_off(void **state) {
        struct fixture *f = *state;
        struct session *session;
        int fds[2];

        f->context.handshake_ms = 20;
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(session_new(&f->context, fds[1], &session), 0);
        client_expect_refused(f, fds[0], 0, ETIMEDOUT, "within 20 ms");
        client_expect_closed(f, fds[0]);
        assert_int_equal(f->n_ended, 1);
        close(fds[0]);

        int fd = client_open(f); /* who did is left in peace */
        struct timeval longer = {.tv_usec = 60000};
        assert_int_equal(event_base_loopexit(f->base, &longer), 0);
        assert_int_equal(event_base_dispatch(f->base), 0);
        client_expect_nothing(f, fd);
        close(fd);
}

static void junk_of_any_length_ends_the_connection(void **state) {
        static const size_t lengths[] = {1, 7, 8, 9, 23, 24, 25, 100, 4095, 4096};
        struct fixture *f = *state;
        uint8_t junk[4096];

        memset(junk, 0xa5, sizeof(junk));
        junk[0] = WIRE_C_ACQUIRE;
        junk[1] = 0;
        for (size_t greeted = 0; greeted < 2; greeted++)
                for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
                        int fd = greeted ? client_open(f) : client_connect(f);
                        assert_int_equal(send(fd, junk, lengths[i], 0), lengths[i]);
                        client_expect_refused(f, fd, 0, EBADMSG, "malformed");
                        client_expect_closed(f, fd);
                        close(fd);
                }
}

static void a_packet_that_is_too_long_ends_the_connection(void **state) {
        struct fixture *f = *state;
        uint8_t packet[5000] = {WIRE_C_STATUS};
        int fd = client_open(f);

        assert_int_equal(send(fd, packet, sizeof(packet), 0), sizeof(packet));
        client_expect_refused(f, fd, 0, EBADMSG, "longer than 4096");
        client_expect_closed(f, fd);
        close(fd);
}

static void half_a_handshake_and_an_empty_packet_end_the_connection(void **state) {
        struct fixture *f = *state;
        uint8_t packet[64];
        struct wire_message hello = {.op = WIRE_C_HELLO, .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}};

        assert_int_equal(wire_encode(&hello, packet, sizeof(packet)), 24);
        int fd = client_connect(f);
        assert_int_equal(send(fd, packet, 12, 0), 12);
        client_expect_refused(f, fd, 0, EBADMSG, "12 bytes is malformed: field version_min");
        client_expect_closed(f, fd);
        close(fd);

        fd = client_connect(f);
        assert_int_equal(send(fd, packet, 0, 0), 0);
        client_expect_closed(f, fd);
        close(fd);
}

static void last_words_arrive_although_more_was_sent(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        assert_int_equal(send(fd, "junk", 4, 0), 4);
        for (uint32_t i = 0; i < 5; i++)
                client_send_op(fd, WIRE_C_STATUS, i);
        client_expect_refused(f, fd, 0, EBADMSG, "malformed");
        client_expect_closed(f, fd);
        close(fd);
}

static void an_unknown_operation_is_refused_and_no_more(void **state) {
        struct fixture *f = *state;
        struct wire_message answer;
        int fd = client_open(f);

        assert_int_equal(send(fd, "\x2a\x00\x00\x00\x09\x00\x00\x00 whatever", 17, 0), 17);
        client_expect_refused(f, fd, 9, EOPNOTSUPP, "does not know operation 42");
        client_send_op(fd, WIRE_C_STATUS, 10);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        close(fd);
}

static void a_grant_comes_with_its_request_id_and_descriptors(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 77, 3, WIRE_MISS_FAIL);
        client_expect_grant(f, fd, 77, 0, 3);
        client_acquire(fd, 77, 1, WIRE_MISS_FAIL); /* the id is free again */
        client_expect_grant(f, fd, 77, 0, 1);
        assert_int_equal(f->broker.n_extents_sent, 4);
        close(fd);
}

static void a_refusal_comes_with_the_brokers_reason(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 78, 1, WIRE_MISS_FILL);
        client_expect_refused(f, fd, 78, ENOSPC, "nothing is left");
        close(fd);
}

static void pipelined_requests_are_answered_in_order(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        for (uint32_t i = 0; i < 8; i++)
                client_acquire(fd, i, i + 1, i % 3 == 2 ? WIRE_MISS_FILL : WIRE_MISS_FAIL);
        for (uint32_t i = 0; i < 8; i++)
                if (i % 3 == 2)
                        client_expect_refused(f, fd, i, ENOSPC, "");
                else
                        client_expect_grant(f, fd, i, 0, i + 1);
        client_expect_nothing(f, fd);
        close(fd);
}

static void a_request_id_in_use_ends_the_connection(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 1, 1, WIRE_MISS_WAIT);
        client_acquire(fd, 1, 1, WIRE_MISS_FAIL);
        client_expect_refused(f, fd, 1, EPROTO, "in use");
        client_expect_closed(f, fd);
        assert_int_equal(f->broker.n_cancelled, 1);
        close(fd);

        fd = client_open(f); /* so does one whose grant is not sent completely */
        client_acquire(fd, 1, 300, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_acquire(fd, 1, 1, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_expect_grant(f, fd, 1, 0, 253);
        client_expect_refused(f, fd, 1, EPROTO, "in use");
        client_expect_closed(f, fd);
        assert_int_equal(f->broker.n_abandoned, 1);
        close(fd);
}

static void waiting_requests_are_limited_per_connection_and_uid(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f), other = client_open(f);

        for (uint32_t i = 0; i < 16; i++)
                client_acquire(fd, i, 1, WIRE_MISS_WAIT), fixture_settle(f);
        client_acquire(fd, 16, 1, WIRE_MISS_WAIT);
        client_expect_refused(f, fd, 16, EDQUOT, "16 requests");
        f->config.quota.max_waiting = 17;
        client_acquire(other, 0, 1, WIRE_MISS_WAIT);
        client_acquire(other, 1, 1, WIRE_MISS_WAIT);
        client_expect_refused(f, other, 1, EDQUOT, "MaxWaiting= of its quota");
        f->config.quota.max_waiting = UINT32_MAX;
        f->config.max_waiting = 19; /* of which two are for who has few */
        client_acquire(other, 2, 1, WIRE_MISS_WAIT);
        client_expect_refused(f, other, 2, EUSERS, "of all users");
        assert_int_equal(f->broker.n_waiting, 17);
        f->config.quota.max_request_rate = 0;
        client_acquire(other, 3, 1, WIRE_MISS_WAIT);
        client_expect_refused(f, other, 3, EBUSY, "MaxRequestRate=");
        assert_int_equal(f->broker.n_refused, 4);
        f->config.quota.max_request_rate = UINT32_MAX;

        fixture_grant_waiting(f);
        client_expect_grant(f, fd, 0, 0, 1);
        client_acquire(fd, 17, 1, WIRE_MISS_WAIT);
        client_expect_nothing(f, fd);
        assert_int_equal(f->broker.n_waiting, 17);
        close(fd);
        close(other);
        fixture_settle(f);
        assert_int_equal(f->broker.n_waiting, 0);
        assert_int_equal(quota_used_all(f->quota, QUOTA_WAITING), 0);
}

static void cancelling_refuses_the_request_that_was_named(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 1, 1, WIRE_MISS_WAIT);
        client_acquire(fd, 2, 1, WIRE_MISS_WAIT);
        client_send(fd, &(struct wire_message){.op = WIRE_C_CANCEL, .request_id = 50, .c_cancel = {.target_request_id = 1}});
        client_expect_refused(f, fd, 1, ECANCELED, "cancelled");
        assert_int_equal(f->broker.n_cancelled, 1);
        /* what is not waiting is answered already */
        client_send(fd, &(struct wire_message){.op = WIRE_C_CANCEL, .request_id = 51, .c_cancel = {.target_request_id = 1}});
        client_expect_nothing(f, fd);
        fixture_grant_waiting(f);
        client_expect_grant(f, fd, 2, 0, 1);
        assert_int_equal(quota_used_all(f->quota, QUOTA_WAITING), 0);
        close(fd);
}

static void release_passes_the_brokers_answer_on(void **state) {
        struct fixture *f = *state;
        struct wire_message message = {.op = WIRE_C_RELEASE, .request_id = 4, .c_release = {.grant_id = 9, .extent = 2}},
                            answer;
        int fd = client_open(f);

        client_send(fd, &message);
        client_receive(f, fd, WIRE_D_DONE, &answer);
        assert_int_equal(answer.request_id, 4);
        f->broker.release_result = -ENOENT;
        client_send(fd, &message);
        client_expect_refused(f, fd, 4, ENOENT, "no grant 9");
        f->broker.release_result = -EINVAL;
        client_send(fd, &message);
        client_expect_refused(f, fd, 4, EINVAL, "position 2");
        f->broker.release_result = -EIO;
        client_send(fd, &message);
        client_expect_refused(f, fd, 4, EIO, "grant 9");
        close(fd);
}

static void mapped_is_passed_on_and_not_answered(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_send(fd, &(struct wire_message){.op = WIRE_C_MAPPED, .request_id = 4, .c_mapped = {.grant_id = 1234}});
        client_expect_nothing(f, fd);
        assert_int_equal(f->broker.mapped_grant_id, 1234);
        close(fd);
}

static void figures_are_the_brokers_and_the_servers(void **state) {
        struct fixture *f = *state;
        struct wire_message answer;
        int fd = client_open(f), other = client_open(f);

        client_acquire(other, 1, 5, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_send_op(fd, WIRE_C_STATUS, 6);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        assert_int_equal(answer.request_id, 6);
        assert_string_equal(answer.d_status.daemon_version, "1.2.3");
        assert_int_equal(answer.d_status.n_clients, 2);
        assert_int_equal(answer.d_status.n_fds_in_flight, 5);
        client_expect_grant(f, other, 1, 0, 5);
        client_send_op(fd, WIRE_C_STATUS, 7);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        assert_int_equal(answer.d_status.n_fds_in_flight, 0);

        client_send(fd, &(struct wire_message){.op = WIRE_C_POOLS, .request_id = 8, .c_pools = {.first_row = 3}});
        client_receive(f, fd, WIRE_D_POOLS, &answer);
        assert_int_equal(answer.d_pools.first_row, 3);
        assert_int_equal(answer.d_pools.n_rows_total, 7);
        client_send(fd, &(struct wire_message){.op = WIRE_C_GRANTS, .request_id = 9, .c_grants = {.after_grant_id = 40}});
        client_receive(f, fd, WIRE_D_GRANTS, &answer);
        assert_int_equal(answer.d_grants.rows[0].grant_id, 41);
        assert_int_equal(answer.d_grants.rows[0].uid, getuid());
        close(fd);
        close(other);
}

static void replies_that_nobody_reads_stop_the_reading(void **state) {
        struct fixture *f = *state;
        uint8_t packet[WIRE_HEADER_BYTES] = {WIRE_C_STATUS};
        struct wire_message answer;
        int fd = client_open(f), other = client_open(f);
        uint32_t n_sent = 0;

        for (bool progress = true; progress && n_sent < 100000;) {
                progress = false;
                while (memcpy(packet + 4, &n_sent, 4), send(fd, packet, sizeof(packet), 0) > 0) {
                        progress = true;
                        n_sent++;
                }
                assert_int_equal(errno, EAGAIN);
                fixture_settle(f);
        }
        assert_true(n_sent < 100000); /* neither side's queue takes more */
        client_send_op(other, WIRE_C_STATUS, 1);
        client_receive(f, other, WIRE_D_STATUS, &answer);
        for (uint32_t i = 0; i < n_sent; i++) {
                client_receive(f, fd, WIRE_D_STATUS, &answer);
                assert_int_equal(answer.request_id, i);
        }
        client_expect_nothing(f, fd);
        client_send_op(fd, WIRE_C_STATUS, 1);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        close(fd);
        close(other);
}

static unsigned n_served_in_a_turn(struct fixture *f) {
        unsigned n_before = f->broker.n_mapped;

        assert_true(event_base_loop(f->base, EVLOOP_ONCE | EVLOOP_NONBLOCK) >= 0);
        return f->broker.n_mapped - n_before;
}

static void send_mapped(int fd, unsigned n) {
        while (n-- > 0)
                client_send(fd, &(struct wire_message){.op = WIRE_C_MAPPED, .c_mapped = {.grant_id = 1}});
}

/* Also while a few replies are pending, when the loop looks for more than packets. */
static void a_turn_is_short_whatever_is_pending(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);
        bool served = true;

        for (uint32_t n_replies = 1; served; n_replies++) {
                assert_true(n_replies < 10000);
                client_send_op(fd, WIRE_C_STATUS, n_replies);
                fixture_settle(f);
                send_mapped(fd, 20);
                served = n_served_in_a_turn(f) > 0;
                assert_true(f->broker.n_mapped <= (n_replies - 1) * 20 + 16);
                fixture_settle(f);
        }
        close(fd);
}

static void connections_of_a_user_share_a_turn(void **state) {
        struct fixture *f = *state;
        int fds[4];

        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                fds[i] = client_open(f);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                send_mapped(fds[i], 16);
        for (unsigned turn = 0; turn < 4; turn++)
                assert_int_equal(n_served_in_a_turn(f), 16);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                close(fds[i]);
}

static void hanging_up_at_any_step_leaves_nothing(void **state) {
        struct fixture *f = *state;

        for (int step = 0; step < 7; step++) {
                int fd = step < 2 ? client_connect(f) : client_open(f);
                if (step == 1)
                        fixture_settle(f);
                if (step == 3)
                        client_acquire(fd, 1, 1, WIRE_MISS_WAIT); /* not even read */
                if (step == 4 || step == 5) {
                        client_acquire(fd, 1, 600, step == 4 ? WIRE_MISS_WAIT : WIRE_MISS_FAIL);
                        client_acquire(fd, 2, 1, WIRE_MISS_FAIL);
                        fixture_settle(f);
                }
                if (step == 6) {
                        client_acquire(fd, 1, 600, WIRE_MISS_FAIL);
                        client_expect_grant(f, fd, 1, 0, 253);
                }
                close(fd);
                fixture_settle(f);
                assert_int_equal(server_n_sessions(f->server), 0);
                assert_int_equal(server_n_fds_in_flight(f->server), 0);
                quota_end_second(f->quota);
                for (enum quota_kind kind = 0; kind < _QUOTA_KIND_MAX; kind++)
                        assert_int_equal(quota_used_all(f->quota, kind), 0);
                assert_int_equal(f->broker.n_grants, 0);
                assert_int_equal(f->broker.n_waiting, 0);
        }
}

/* Many clients that do what comes to mind, with hang-ups in between: nothing may be left, and nothing may go wrong on the way.
 */
static void a_crowd_that_comes_and_goes_leaves_nothing(void **state) {
        struct fixture *f = *state;
        int fds[12];
        unsigned short seed[3] = {1, 2, 3};
        struct wire_message answer;

        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                fds[i] = client_open(f);
        for (uint32_t n = 0; n < 3000; n++) {
                int *fd = &fds[(size_t) nrand48(seed) % ELEMENTSOF(fds)];
                long dice = nrand48(seed) % 100;
                uint8_t packet[WIRE_HEADER_BYTES] = {dice < 50 ? WIRE_C_STATUS : 99};
                if (dice < 30 && f->broker.n_waiting < 40)
                        client_try_receive(*fd, &answer);
                else if (dice < 45)
                        (void) send(*fd, packet, sizeof(packet), MSG_NOSIGNAL);
                else if (dice < 60)
                        (void) event_base_loop(f->base, EVLOOP_NONBLOCK);
                else if (dice < 70 && f->broker.n_waiting > 0)
                        fixture_grant_waiting(f);
                else if (dice < 95) {
                        struct wire_message acquire = {
                                .op = WIRE_C_ACQUIRE,
                                .request_id = n,
                                .c_acquire = {.on_miss = (uint8_t) (n % 3),
                                              .n_items = 1,
                                              .items = {{.bytes = (uint64_t) (1 + n % 60 * (n % 7)) << 21, .node = -1}}}};
                        uint8_t encoded[WIRE_MAX_MESSAGE_BYTES];
                        int n_bytes = wire_encode(&acquire, encoded, sizeof(encoded));
                        assert_true(n_bytes > 0);
                        (void) send(*fd, encoded, (size_t) n_bytes, MSG_NOSIGNAL);
                } else {
                        close(*fd);
                        *fd = client_open(f);
                }
        }
        assert_true(f->broker.last_grant_id > 100);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                close(fds[i]);
        fixture_wait_connections(f, 0);
        quota_end_second(f->quota);
        for (enum quota_kind kind = 0; kind < _QUOTA_KIND_MAX; kind++)
                assert_int_equal(quota_used_all(f->quota, kind), 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                session_test(hello_is_answered_with_the_limits),
                session_test(a_version_that_is_not_ours_is_refused_by_name),
                session_test(nothing_goes_before_hello),
                session_test(hello_comes_once),
                bare_session_test(whoever_does_not_say_hello_in_time_is_cut_off),
                session_test(junk_of_any_length_ends_the_connection),
                session_test(a_packet_that_is_too_long_ends_the_connection),
                session_test(half_a_handshake_and_an_empty_packet_end_the_connection),
                session_test(last_words_arrive_although_more_was_sent),
                session_test(an_unknown_operation_is_refused_and_no_more),
                session_test(a_grant_comes_with_its_request_id_and_descriptors),
                session_test(a_refusal_comes_with_the_brokers_reason),
                session_test(pipelined_requests_are_answered_in_order),
                session_test(a_request_id_in_use_ends_the_connection),
                session_test(waiting_requests_are_limited_per_connection_and_uid),
                session_test(cancelling_refuses_the_request_that_was_named),
                session_test(release_passes_the_brokers_answer_on),
                session_test(mapped_is_passed_on_and_not_answered),
                session_test(figures_are_the_brokers_and_the_servers),
                session_test(replies_that_nobody_reads_stop_the_reading),
                session_test(a_turn_is_short_whatever_is_pending),
                session_test(connections_of_a_user_share_a_turn),
                session_test(hanging_up_at_any_step_leaves_nothing),
                session_test(a_crowd_that_comes_and_goes_leaves_nothing),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
