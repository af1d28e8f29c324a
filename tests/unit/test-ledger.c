/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ledger.h"

static struct ledger *make(void) {
        struct ledger *ledger;

        assert_int_equal(ledger_new(&ledger), 0);
        return ledger;
}

/* The next daemon has nothing but the descriptor. */
static struct ledger *succeed(struct ledger *ledger) {
        struct ledger *next;
        int fd = fcntl(ledger_fd(ledger), F_DUPFD_CLOEXEC, 0);

        assert_true(fd >= 0);
        ledger_free(ledger);
        assert_int_equal(ledger_adopt(fd, &next), 0);
        return next;
}

static void what_was_written_is_read_by_the_successor(void **state) {
        struct ledger_record record = {.state = LEDGER_GRANTED, .bytes = 4096, .grant_id = 7, .n_extents = 2, .position = 1,
                                       .pool = "vm", .cgroup = "/system.slice/x.service"};
        struct ledger *ledger = make();
        int slot = ledger_take(ledger);

        assert_int_equal(ledger_read(ledger, slot)->state, LEDGER_BUSY);
        ledger_write(ledger, slot, &record);
        ledger_set_last_grant_id(ledger, 7);
        ledger = succeed(ledger);
        assert_memory_equal(ledger_read(ledger, slot), &record, sizeof(record));
        assert_int_equal(ledger_last_grant_id(ledger), 7);
        ledger_free(ledger);
}

static void a_record_that_makes_no_sense_reads_as_busy(void **state) {
        struct ledger_record unterminated = {.state = LEDGER_READY}, beyond = {.state = LEDGER_GRANTED, .n_extents = 1, .position = 1},
                             unknown = {.state = 99};
        struct ledger *ledger = make();

        memset(unterminated.pool, 'x', sizeof(unterminated.pool));
        ledger_write(ledger, ledger_take(ledger), &unterminated);
        ledger_write(ledger, ledger_take(ledger), &beyond);
        ledger_write(ledger, ledger_take(ledger), &unknown);
        ledger = succeed(ledger);
        for (int slot = 0; slot < 3; slot++)
                assert_int_equal(ledger_read(ledger, slot)->state, LEDGER_BUSY);
        ledger_free(ledger);
}

static void all_slots_are_given_once_and_come_back(void **state) {
        struct ledger *ledger = make();

        for (int i = 0; i < LEDGER_MAX_RECORDS; i++)
                assert_true(ledger_take(ledger) >= 0);
        assert_int_equal(ledger_take(ledger), -ENOSPC);
        ledger_give(ledger, 77);
        assert_int_equal(ledger_take(ledger), 77);
        assert_null(ledger_read(ledger, LEDGER_MAX_RECORDS));
        assert_null(ledger_read(ledger, -1));
        ledger_free(ledger);
}

static void another_version_and_what_is_no_ledger_are_refused(void **state) {
        struct ledger *ledger = make(), *next = NULL;
        uint32_t version = LEDGER_VERSION + 1;
        int fd = fcntl(ledger_fd(ledger), F_DUPFD_CLOEXEC, 0), other = memfd_create("other", MFD_CLOEXEC);

        assert_int_equal(pwrite(fd, &version, sizeof(version), 8), sizeof(version));
        assert_int_equal(ledger_adopt(fd, &next), -EPROTO);
        assert_int_equal(ledger_adopt(other, &next), -EPROTO);
        assert_null(next);
        close(fd);
        close(other);
        ledger_free(ledger);
}

static void its_size_cannot_be_changed_by_anybody(void **state) {
        struct ledger *ledger = make();

        assert_int_equal(ftruncate(ledger_fd(ledger), 0), -1);
        assert_int_equal(errno, EPERM);
        ledger_free(ledger);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(what_was_written_is_read_by_the_successor),
                test_without_fd_leak(a_record_that_makes_no_sense_reads_as_busy),
                test_without_fd_leak(all_slots_are_given_once_and_come_back),
                test_without_fd_leak(another_version_and_what_is_no_ledger_are_refused),
                test_without_fd_leak(its_size_cannot_be_changed_by_anybody),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
