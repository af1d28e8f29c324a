/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How descriptors get to clients that read, read slowly, or do not read at all; and that the latter harm nobody else. */
#include "session-fixture.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"

static uint32_t in_flight(struct fixture *f) {
        outbox_group_count(&f->context.outboxes);
        return f->context.outboxes.n_fds_in_flight;
}

/* Runs the loop until the condition holds; a test that hangs here is ended by its time limit. */
#define run_until(f, condition)                                                                                                \
        while (!(condition))                                                                                                   \
        assert_true(event_base_loop((f)->base, EVLOOP_ONCE) >= 0)

static void a_large_grant_comes_in_parts_as_the_client_reads(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f);

        client_acquire(fd, 1, 600, WIRE_MISS_FAIL);
        fixture_settle(f);
        assert_int_equal(in_flight(f), 253);
        fixture_settle(f);
        assert_int_equal(f->broker.n_extents_sent, 253); /* not more before that is read */
        client_expect_grant(f, fd, 1, 0, 253);
        fixture_settle(f);
        assert_int_equal(f->broker.n_extents_sent, 506);
        assert_int_equal(in_flight(f), 253);
        client_expect_grant(f, fd, 1, 253, 253);
        fixture_settle(f);
        assert_int_equal(in_flight(f), 94);
        client_expect_grant(f, fd, 1, 506, 94);
        client_expect_nothing(f, fd);
        assert_int_equal(in_flight(f), 0);
        assert_int_equal(f->broker.n_grants, 0);
        close(fd);
}

static void nothing_overtakes_descriptors_that_are_unread(void **state) {
        struct fixture *f = *state;
        struct wire_message answer;
        int fd = client_open(f);

        client_acquire(fd, 1, 1, WIRE_MISS_FAIL);
        client_send_op(fd, WIRE_C_STATUS, 2);
        client_acquire(fd, 3, 2, WIRE_MISS_FAIL);
        client_send_op(fd, WIRE_C_STATUS, 4);
        fixture_settle(f);
        assert_int_equal(f->broker.n_extents_sent, 1);
        client_expect_grant(f, fd, 1, 0, 1);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        assert_int_equal(answer.request_id, 2);
        client_expect_grant(f, fd, 3, 0, 2);
        client_receive(f, fd, WIRE_D_STATUS, &answer);
        assert_int_equal(answer.request_id, 4);
        close(fd);
}

static void a_uid_has_its_share_of_what_is_in_flight(void **state) {
        struct fixture *f = *state; /* 4 * 253 for all, 253 for each */
        int fds[4];

        for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = client_open(f);
                client_acquire(fds[i], 1, 100, WIRE_MISS_FAIL);
                fixture_settle(f);
        }
        assert_int_equal(in_flight(f), 200);
        assert_int_equal(quota_used(f->quota, getuid(), QUOTA_FDS_IN_FLIGHT), 200);
        client_expect_grant(f, fds[1], 1, 0, 100);
        fixture_settle(f);
        assert_int_equal(in_flight(f), 200);
        client_expect_grant(f, fds[2], 1, 0, 100); /* first come, first served */
        client_expect_grant(f, fds[0], 1, 0, 100);
        client_expect_grant(f, fds[3], 1, 0, 100);
        assert_int_equal(in_flight(f), 0);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                close(fds[i]);
}

static void a_client_that_hangs_up_makes_room(void **state) {
        struct fixture *f = *state;
        int sleeper = client_open(f), waiting = client_open(f), behind = client_open(f);

        client_acquire(sleeper, 1, 253, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_acquire(waiting, 1, 253, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_acquire(behind, 1, 1, WIRE_MISS_FAIL);
        client_expect_nothing(f, waiting);
        close(sleeper);
        client_expect_grant(f, waiting, 1, 0, 253);
        client_expect_grant(f, behind, 1, 0, 1);

        client_acquire(waiting, 2, 253, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_acquire(behind, 2, 253, WIRE_MISS_FAIL);
        client_expect_nothing(f, behind);
        close(behind); /* while it waits for room */
        fixture_settle(f);
        assert_int_equal(f->broker.n_abandoned, 1);
        client_expect_grant(f, waiting, 2, 0, 253);
        close(waiting);
        fixture_settle(f);
        assert_int_equal(in_flight(f), 0);
}

static int open_as(struct fixture *f, uid_t uid) {
        assert_int_equal(seteuid(uid), 0);
        int fd = client_open(f);
        assert_int_equal(seteuid(0), 0);
        return fd;
}

static void users_that_do_not_read_do_not_stop_others(void **state) {
        struct fixture *f = *state;
        int sleepers[3], fd;

        if (getuid() != 0)
                skip(); /* several uids are needed */
        for (uid_t i = 0; i < 3; i++) {
                sleepers[i] = open_as(f, 70000 + i);
                client_acquire(sleepers[i], 1, 600, WIRE_MISS_FAIL);
                fixture_settle(f);
        }
        assert_int_equal(in_flight(f), 253 + 189 + 142); /* each a quarter of what the others leave */
        fd = open_as(f, 70009);
        for (uint32_t i = 0; i < 20; i++) {
                client_acquire(fd, i, 200, WIRE_MISS_FAIL);
                client_expect_grant(f, fd, i, 0, 107);
                client_expect_grant(f, fd, i, 107, 93);
        }
        for (size_t i = 0; i < 3; i++)
                close(sleepers[i]);
        close(fd);
}

static void a_user_does_not_fill_a_small_limit(void **state) {
        struct fixture *f = *state;
        int sleepers[3], fd;

        if (getuid() != 0)
                skip(); /* several uids are needed */
        f->config.max_fds_in_flight = 253;
        for (size_t i = 0; i < ELEMENTSOF(sleepers); i++) {
                sleepers[i] = open_as(f, 70000);
                client_acquire(sleepers[i], 1, 253, WIRE_MISS_FAIL);
                fixture_settle(f);
        }
        assert_int_equal(in_flight(f), 63);
        fd = open_as(f, 70001);
        client_acquire(fd, 1, 60, WIRE_MISS_FAIL);
        client_expect_grant(f, fd, 1, 0, 47);
        client_expect_grant(f, fd, 1, 47, 13);
        /* Nothing was lost meanwhile: they read, and it is each one's turn. */
        for (uint32_t first = 0; first < 253; first += 63)
                for (size_t i = 0; i < ELEMENTSOF(sleepers); i++)
                        client_expect_grant(f, sleepers[i], 1, first, first == 252 ? 1 : 63);
        for (size_t i = 0; i < ELEMENTSOF(sleepers); i++)
                close(sleepers[i]);
        close(fd);
}

static void a_client_that_never_reads_is_cut_off_and_stays_charged(void **state) {
        struct fixture *f = *state;
        int fd = client_open(f), other = client_open(f);
        struct wire_message message;

        f->context.outboxes.unread_limit_ms = 10;
        client_acquire(fd, 1, 600, WIRE_MISS_FAIL);
        client_acquire(fd, 2, 1, WIRE_MISS_WAIT);
        run_until(f, f->broker.n_abandoned == 1);
        assert_int_equal(f->broker.n_cancelled, 1);
        assert_int_equal(in_flight(f), 253); /* they are in the kernel's queue, as long as the client leaves them there */
        assert_int_equal(quota_used_all(f->quota, QUOTA_CONNECTIONS), 2);
        assert_int_equal(f->n_ended, 0);
        client_acquire(other, 1, 1, WIRE_MISS_FAIL);
        client_expect_nothing(f, other);

        client_expect_grant(f, fd, 1, 0, 253);
        client_expect_grant(f, other, 1, 0, 1);
        assert_int_equal(client_try_receive(fd, &message), 0);
        run_until(f, f->n_ended == 1);
        assert_int_equal(quota_used_all(f->quota, QUOTA_CONNECTIONS), 1);
        close(fd);
        close(other);
}

/* How often the loop wakes up while nobody does anything. */
static unsigned count_wakeups(struct fixture *f, uint64_t duration_ms) {
        uint64_t start_ms = clock_ms();
        unsigned n = 0;

        for (; clock_ms() - start_ms < duration_ms; n++)
                assert_true(event_base_loop(f->base, EVLOOP_ONCE) >= 0);
        return n;
}

static void a_client_that_does_not_read_costs_no_time(void **state) {
        struct fixture *f = *state;
        uint8_t packet[WIRE_HEADER_BYTES] = {WIRE_C_STATUS};
        int full = client_open(f), unread = client_open(f), sent = 0;

        for (int before = -1; before != sent; fixture_settle(f))
                for (before = sent; send(full, packet, sizeof(packet), 0) > 0;)
                        sent++;
        client_acquire(unread, 1, 300, WIRE_MISS_FAIL);
        fixture_settle(f);
        assert_true(count_wakeups(f, 300) < 30); /* the timers of 100 ms, not a loop that spins */
        close(full);
        close(unread);
}

static void plain_replies_that_are_never_read_end_it_too(void **state) {
        struct fixture *f = *state;
        uint8_t packet[WIRE_HEADER_BYTES] = {WIRE_C_STATUS};
        int fd = client_open(f), sent = 0;

        f->context.outboxes.unread_limit_ms = 10;
        for (int before = -1; before != sent; fixture_settle(f))
                for (before = sent; send(fd, packet, sizeof(packet), 0) > 0;)
                        sent++;
        run_until(f, f->n_ended == 1);
        close(fd);
}

static void waiting_for_others_is_not_held_against_a_client(void **state) {
        struct fixture *f = *state;
        int sleeper = client_open(f), fd = client_open(f);

        client_acquire(sleeper, 1, 253, WIRE_MISS_FAIL);
        fixture_settle(f);
        client_acquire(fd, 1, 253, WIRE_MISS_FAIL);
        fixture_settle(f);
        /* Only the sleeper's time is up, when the timer looks. */
        f->context.outboxes.unread_limit_ms = 0;
        run_until(f, TAILQ_FIRST(&f->context.outboxes.unread)->closed);
        f->context.outboxes.unread_limit_ms = 30000;
        client_expect_nothing(f, fd);
        close(sleeper);
        client_expect_grant(f, fd, 1, 0, 253);
        close(fd);
}

static rlim_t set_fd_limit(rlim_t n_fds) {
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        rlim_t before = limit.rlim_cur;
        limit.rlim_cur = n_fds;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        return before;
}

static void serve_under_a_low_limit(void) {
        struct fixture *f;
        int fds[2];

        assert_int_equal(fixture_setup_sessions((void **) &f), 0);
        f->config.max_fds_in_flight = 4000;
        for (size_t i = 0; i < ELEMENTSOF(fds); i++) {
                fds[i] = client_open(f);
                client_acquire(fds[i], 1, 250, WIRE_MISS_WAIT);
        }
        fixture_settle(f);
        fixture_grant_waiting(f);
        assert_int_equal(f->broker.n_extents_sent, 250);
        fixture_make_grant_ahead(f, 250);
        rlim_t before = set_fd_limit(200); /* 250 of ours are in flight: over the kernel's limit */
        fixture_grant_waiting(f);
        client_expect_nothing(f, fds[1]);
        assert_false(TAILQ_EMPTY(&f->context.outboxes.waiting));
        assert_true(count_wakeups(f, 300) < 30);

        (void) set_fd_limit(before); /* for the receiving side; the loop does not run meanwhile */
        client_expect_grant(f, fds[0], 1, 0, 250);
        (void) set_fd_limit(200);
        run_until(f, f->broker.n_extents_sent == 500);
        (void) set_fd_limit(before);
        client_expect_grant(f, fds[1], 1, 0, 250);
        for (size_t i = 0; i < ELEMENTSOF(fds); i++)
                close(fds[i]);
        assert_int_equal(fixture_teardown((void **) &f), 0);
}

/* In a process of its own: with privileges the kernel would not mind. */
static void too_many_in_flight_for_the_kernel_is_waited_out(void **state) {
        int status;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                if (getuid() == 0 && (setgid(65533) < 0 || setuid(65533) < 0))
                        _exit(1);
                serve_under_a_low_limit();
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                bare_session_test(a_large_grant_comes_in_parts_as_the_client_reads),
                bare_session_test(nothing_overtakes_descriptors_that_are_unread),
                bare_session_test(a_uid_has_its_share_of_what_is_in_flight),
                bare_session_test(a_client_that_hangs_up_makes_room),
                bare_session_test(users_that_do_not_read_do_not_stop_others),
                bare_session_test(a_user_does_not_fill_a_small_limit),
                bare_session_test(a_client_that_never_reads_is_cut_off_and_stays_charged),
                bare_session_test(a_client_that_does_not_read_costs_no_time),
                bare_session_test(plain_replies_that_are_never_read_end_it_too),
                bare_session_test(waiting_for_others_is_not_held_against_a_client),
                cmocka_unit_test(too_many_in_flight_for_the_kernel_is_waited_out),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
