/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The table row by row; then real events of real memfds. */
#include "testing.h"

#include <event2/event.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "reclaim.h"

struct watched {
        struct reclaim *reclaim;
        int fd, wd;
        unsigned n_opened, n_closed;
        char last; /* 'o' or 'c' */
        /* what the test does inside the first callback */
        void (*react)(struct watched *watched);
        struct watched *other;
};

struct fixture {
        struct event_base *base;
        struct reclaim *reclaim;
        unsigned n_overflows;
        struct watched a, b;
        int n_fds_before;
};

static void on_event(void *context, bool opened) {
        struct watched *watched = context;
        void (*react)(struct watched *) = watched->react;

        watched->n_opened += opened;
        watched->n_closed += !opened;
        watched->last = opened ? 'o' : 'c';
        watched->react = NULL;
        if (react)
                react(watched);
}

static void on_overflow(void *userdata) {
        ((struct fixture *) userdata)->n_overflows++;
}

static int open_again(const struct watched *watched, int flags) {
        char path[64];

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", watched->fd);
        int fd = open(path, flags | O_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

/* Opens and closes: two events. */
static void touch(const struct watched *watched) {
        assert_int_equal(close(open_again(watched, O_RDWR)), 0);
}

static void assert_events(const struct watched *watched, unsigned n_opened, unsigned n_closed) {
        assert_int_equal(watched->n_opened, n_opened);
        assert_int_equal(watched->n_closed, n_closed);
}

static void watch_memfd(struct fixture *fixture, struct watched *ret_watched) {
        *ret_watched = (struct watched){.reclaim = fixture->reclaim, .fd = memfd_create("test", MFD_CLOEXEC)};
        assert_true(ret_watched->fd >= 0);
        assert_int_equal(reclaim_watch(fixture->reclaim, ret_watched->fd, ret_watched, &ret_watched->wd), 0);
        assert_true(ret_watched->wd > 0);
}

static int set_up(void **state) {
        struct fixture *fixture = calloc(1, sizeof(*fixture));

        fixture->n_fds_before = count_fds();
        fixture->base = event_base_new();
        assert_int_equal(reclaim_new(fixture->base, /* inotify_fd */ -EBADF, on_event, on_overflow, fixture, &fixture->reclaim), 0);
        watch_memfd(fixture, &fixture->a);
        watch_memfd(fixture, &fixture->b);
        *state = fixture;
        return 0;
}

static int tear_down(void **state) {
        struct fixture *fixture = *state;

        reclaim_free(fixture->reclaim);
        event_base_free(fixture->base);
        close(fixture->a.fd);
        close(fixture->b.fd);
        int n_leaked = count_fds() - fixture->n_fds_before;
        free(fixture);
        return n_leaked;
}

static void the_table_decides_row_by_row(void **state) {
        static const struct {
                bool close_event, foreign_open, held, doubt;
                enum reclaim_action action;
        } rows[] = {
                {1, 0, 0, 0, RECLAIM_FREE},      /* nobody holds it */
                {1, 0, 1, 0, RECLAIM_ASK_AGAIN}, /* not yet, or still held */
                {1, 1, 0, 0, RECLAIM_DROP},      /* somebody made a description of his own */
                {0, 1, 0, 0, RECLAIM_DROP},
                {0, 0, 0, 0, RECLAIM_KEEP}, /* unlocked by the holder */
                {0, 0, 1, 0, RECLAIM_KEEP}, /* held */
                {1, 0, 0, 1, RECLAIM_DROP}, /* doubt */
                {0, 0, 0, 1, RECLAIM_DROP},
                {1, 1, 0, 1, RECLAIM_DROP},
                {0, 1, 0, 1, RECLAIM_DROP},
                /* held: never scrubbed, never dropped, whatever else is known */
                {0, 1, 1, 0, RECLAIM_KEEP},
                {0, 0, 1, 1, RECLAIM_KEEP},
                {0, 1, 1, 1, RECLAIM_KEEP},
                {1, 1, 1, 0, RECLAIM_ASK_AGAIN},
                {1, 0, 1, 1, RECLAIM_ASK_AGAIN},
                {1, 1, 1, 1, RECLAIM_ASK_AGAIN},
        };
        unsigned seen = 0;

        for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
                struct reclaim_facts facts = {rows[i].close_event, rows[i].foreign_open, rows[i].held, rows[i].doubt};
                assert_int_equal(reclaim_decide(&facts), rows[i].action);
                seen |= 1U << (rows[i].close_event + 2 * rows[i].foreign_open + 4 * rows[i].held + 8 * rows[i].doubt);
        }
        assert_int_equal(seen, 0xffff); /* no combination is left out */
}

static void asking_again_slows_down(void **state) {
        static const uint64_t delays_ms[] = {1, 10, 100, 10000, 10000};

        for (unsigned i = 0; i < 5; i++)
                assert_int_equal(reclaim_ask_delay_ms(i), delays_ms[i]);
}

static void opening_and_closing_is_reported_for_the_right_file(void **state) {
        struct fixture *f = *state;

        int fd = open_again(&f->a, O_RDWR);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 0);
        close(fd);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
        assert_events(&f->b, 0, 0);
        fd = open_again(&f->b, O_RDONLY);
        close(fd);
        reclaim_drain(f->reclaim);
        assert_events(&f->b, 1, 1);
}

static void a_mapping_alone_delays_the_close_event(void **state) {
        struct fixture *f = *state;

        assert_int_equal(ftruncate(f->a.fd, 4096), 0);
        int fd = open_again(&f->a, O_RDWR);
        void *addr = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(addr, MAP_FAILED);
        close(fd);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 0);
        assert_int_equal(munmap(addr, 4096), 0);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

/* Making an O_PATH descriptor is silent on some kernels (6.18); what matters is that no use of it is. */
static void opening_through_a_path_descriptor_is_reported(void **state) {
        struct fixture *f = *state;
        struct watched path = {.fd = open_again(&f->a, O_PATH)};

        reclaim_drain(f->reclaim);
        f->a.n_opened = f->a.n_closed = 0;
        int fd = open_again(&path, O_RDWR);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 0);
        close(fd);
        close(path.fd);
}

static void equal_neighbours_merge_others_do_not(void **state) {
        struct fixture *f = *state;

        int first = open_again(&f->a, O_RDWR), second = open_again(&f->a, O_RDWR), third = open_again(&f->b, O_RDWR);
        int fourth = open_again(&f->a, O_RDWR);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 2, 0);
        assert_events(&f->b, 1, 0);
        close(first);
        close(second);
        close(fourth);
        close(third);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 2, 1);
        assert_events(&f->b, 1, 1);
}

static void the_loop_delivers_events(void **state) {
        struct fixture *f = *state;

        touch(&f->a);
        assert_int_equal(event_base_loop(f->base, EVLOOP_ONCE), 0);
        assert_events(&f->a, 1, 1);
}

static void our_own_open_is_swallowed_and_nothing_else(void **state) {
        struct fixture *f = *state;

        touch(&f->b);
        int own = open_again(&f->a, O_RDWR);
        reclaim_swallow_open(f->reclaim, f->a.wd);
        assert_events(&f->a, 0, 0);
        assert_events(&f->b, 1, 1);
        /* right after it, somebody else */
        int foreign = open_again(&f->a, O_RDWR);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 0);
        close(own);
        close(foreign);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

static void a_foreign_open_and_close_before_ours_is_delivered(void **state) {
        struct fixture *f = *state;

        touch(&f->a);
        close(open_again(&f->a, O_RDWR)); /* ours, merged with nobody's */
        reclaim_swallow_open(f->reclaim, f->a.wd);
        assert_events(&f->a, 1, 2);
}

static void swallowing_without_an_open_leaves_nothing_behind(void **state) {
        struct fixture *f = *state;

        reclaim_swallow_open(f->reclaim, f->a.wd);
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

static void unwatching_discards_what_is_queued(void **state) {
        struct fixture *f = *state;

        touch(&f->a);
        touch(&f->b);
        reclaim_unwatch(f->reclaim, f->a.wd);
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 0, 0);
        assert_events(&f->b, 1, 1);
        reclaim_unwatch(f->reclaim, f->a.wd); /* unknown by now: harmless */
        reclaim_swallow_open(f->reclaim, f->a.wd);

        assert_int_equal(reclaim_watch(f->reclaim, f->a.fd, &f->a, &f->a.wd), 0);
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

static void an_inode_is_watched_once(void **state) {
        struct fixture *f = *state;
        int wd = -1;

        assert_int_equal(reclaim_watch(f->reclaim, f->a.fd, &f->b, &wd), -EEXIST);
        assert_int_equal(reclaim_watch(f->reclaim, -1, &f->b, &wd), -ENOENT);
        assert_int_equal(wd, -1);
}

static void a_watch_outlives_the_inode_until_it_is_taken_away(void **state) {
        struct fixture *f = *state;
        struct watched gone;

        watch_memfd(f, &gone);
        close(gone.fd);
        reclaim_drain(f->reclaim); /* IN_IGNORED */
        reclaim_unwatch(f->reclaim, gone.wd);
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

static void react_unwatch_both(struct watched *watched) {
        reclaim_unwatch(watched->reclaim, watched->other->wd);
        reclaim_unwatch(watched->reclaim, watched->wd);
}

static void callbacks_may_unwatch(void **state) {
        struct fixture *f = *state;

        f->a.react = react_unwatch_both;
        f->a.other = &f->b;
        touch(&f->a);
        touch(&f->b);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 0);
        assert_events(&f->b, 0, 0);
}

static void react_grant_other(struct watched *watched) {
        int own = open_again(watched->other, O_RDWR);
        reclaim_swallow_open(watched->reclaim, watched->other->wd);
        /* the rest of the outer queue has been delivered, before what came later */
        assert_int_equal(watched->last, 'c');
        assert_events(watched->other, 0, 0);
        close(own);
}

static void callbacks_may_swallow_and_order_is_kept(void **state) {
        struct fixture *f = *state;

        f->a.react = react_grant_other;
        f->a.other = &f->b;
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
        reclaim_drain(f->reclaim);
        assert_events(&f->b, 0, 1);
}

static void react_swallow_again(struct watched *watched) {
        reclaim_swallow_open(watched->reclaim, watched->wd);
}

static void a_nested_drain_keeps_what_the_outer_one_swallows(void **state) {
        struct fixture *f = *state;

        f->b.react = react_swallow_again; /* drains inside the delivery that comes before our open */
        touch(&f->b);
        int own = open_again(&f->a, O_RDWR);
        reclaim_swallow_open(f->reclaim, f->a.wd);
        assert_events(&f->a, 0, 0);
        assert_events(&f->b, 1, 1);
        close(own);
}

static void an_overflow_is_reported_once_and_the_queue_goes_on(void **state) {
        struct fixture *f = *state;
        unsigned max_events = 0;

        _cleanup_fclose_ FILE *stream = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
        assert_non_null(stream);
        assert_int_equal(fscanf(stream, "%u", &max_events), 1);
        if (max_events > 1000000)
                skip();
        for (unsigned i = 0; i < max_events / 2 + 10; i++)
                touch(&f->a);
        int own = open_again(&f->b, O_RDWR);
        reclaim_swallow_open(f->reclaim, f->b.wd); /* lost with the rest */
        assert_int_equal(f->n_overflows, 1);
        assert_events(&f->a, max_events / 2, max_events / 2);
        close(own);
        touch(&f->b);
        reclaim_drain(f->reclaim);
        assert_events(&f->b, 1, 1 /* merged: two closes, but not neighbours */ + 1);
        assert_int_equal(f->n_overflows, 1);
}

static void count_gone(void *context) {
        (*(unsigned *) context)++;
}

static void a_quiet_watch_reports_nothing_and_is_the_same_one(void **state) {
        struct fixture *f = *state;

        assert_int_equal(reclaim_quiet(f->reclaim, f->a.fd), 0);
        touch(&f->a);
        touch(&f->b);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 0, 0);
        assert_events(&f->b, 1, 1);
        reclaim_unwatch(f->reclaim, f->a.wd);
        assert_int_equal(reclaim_watch(f->reclaim, f->a.fd, &f->a, &f->a.wd), 0);
        touch(&f->a);
        reclaim_drain(f->reclaim);
        assert_events(&f->a, 1, 1);
}

static void a_detached_file_is_gone_when_its_last_description_of_any_kind_is(void **state) {
        struct fixture *f = *state;
        unsigned n_gone = 0;
        int own = open_again(&f->a, O_RDWR), path_only = open_again(&f->a, O_PATH);

        assert_int_equal(ftruncate(f->a.fd, 4096), 0);
        void *mapping = mmap(NULL, 4096, PROT_READ, MAP_SHARED, own, 0);
        assert_true(mapping != MAP_FAILED);
        reclaim_drain(f->reclaim);
        reclaim_detach(f->reclaim, f->a.fd, f->a.wd, count_gone, &n_gone);
        f->a.fd = safe_close(f->a.fd);
        close(own);
        munmap(mapping, 4096);
        reclaim_drain(f->reclaim);
        assert_int_equal(n_gone, 0);
        close(path_only);
        reclaim_drain(f->reclaim);
        assert_int_equal(n_gone, 1);
        assert_int_equal(f->a.n_closed, 0);
}

static void a_detached_file_that_went_unnoticed_is_found(void **state) {
        struct fixture *f = *state;
        unsigned n_gone = 0, n_kept = 0;
        char dropped[4096];

        reclaim_detach(f->reclaim, f->a.fd, f->a.wd, count_gone, &n_gone);
        reclaim_detach(f->reclaim, f->b.fd, f->b.wd, count_gone, &n_kept);
        f->a.fd = safe_close(f->a.fd);
        assert_true(read(reclaim_fd(f->reclaim), dropped, sizeof(dropped)) > 0); /* as if the queue had overflowed */
        reclaim_find_gone(f->reclaim);
        assert_int_equal(n_gone, 1);
        assert_int_equal(n_kept, 0);
        reclaim_find_gone(f->reclaim);
        assert_int_equal(n_gone, 1);
}

static void collecting_in_flight_fds_leaves_none_open(void **state) {
        int n_before = count_fds();

        for (size_t i = 0; i < 3; i++)
                reclaim_collect_in_flight();
        assert_int_equal(count_fds(), n_before);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_table_decides_row_by_row),
                cmocka_unit_test(asking_again_slows_down),
                TEST(opening_and_closing_is_reported_for_the_right_file),
                TEST(a_mapping_alone_delays_the_close_event),
                TEST(opening_through_a_path_descriptor_is_reported),
                TEST(equal_neighbours_merge_others_do_not),
                TEST(the_loop_delivers_events),
                TEST(our_own_open_is_swallowed_and_nothing_else),
                TEST(a_foreign_open_and_close_before_ours_is_delivered),
                TEST(swallowing_without_an_open_leaves_nothing_behind),
                TEST(unwatching_discards_what_is_queued),
                TEST(an_inode_is_watched_once),
                TEST(a_watch_outlives_the_inode_until_it_is_taken_away),
                TEST(callbacks_may_unwatch),
                TEST(callbacks_may_swallow_and_order_is_kept),
                TEST(a_nested_drain_keeps_what_the_outer_one_swallows),
                TEST(an_overflow_is_reported_once_and_the_queue_goes_on),
                TEST(a_quiet_watch_reports_nothing_and_is_the_same_one),
                TEST(a_detached_file_is_gone_when_its_last_description_of_any_kind_is),
                TEST(a_detached_file_that_went_unnoticed_is_found),
                cmocka_unit_test(collecting_in_flight_fds_leaves_none_open),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
