/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages: lines on stderr, or records for the journal; levels, and that no text can forge a line. */
#include "log-testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"

#define say(level, ...) log_message(level, LOG_ID_RELOADED, LOG_NO_FIELDS, __VA_ARGS__)

static void messages_are_lines_with_their_level(void **state) {
        log_open(LOG_DEBUG);
        say(LOG_ERR, "no %s", "socket");
        say(LOG_WARNING, "two");
        say(LOG_NOTICE, "three");
        say(LOG_INFO, "four");
        say(LOG_DEBUG, "five");
        assert_string_equal(captured(), "hugezerod: error: no socket\nhugezerod: warning: two\nhugezerod: notice: three\n"
                                        "hugezerod: info: four\nhugezerod: debug: five\n");
}

static void less_serious_messages_are_left_out(void **state) {
        log_open(LOG_WARNING);
        say(LOG_ERR, "one");
        say(LOG_WARNING, "two");
        say(LOG_NOTICE, "three");
        say(LOG_DEBUG, "four");
        assert_string_equal(captured(), "hugezerod: error: one\nhugezerod: warning: two\n");
}

static void text_from_outside_cannot_forge_a_line(void **state) {
        log_open(LOG_INFO);
        say(LOG_INFO, "pool \"%s\" is unknown", "x\nhugezerod: error: forged\r\x1b[2J\x7f");
        assert_string_equal(captured(), "hugezerod: info: pool \"x?hugezerod: error: forged??[2J?\" is unknown\n");
}

static void a_long_message_is_cut_and_still_a_line(void **state) {
        char text[5000];
        const char *line;

        memset(text, 'x', sizeof(text));
        text[sizeof(text) - 1] = 0;
        log_open(LOG_INFO);
        say(LOG_INFO, "%s", text);
        line = captured();
        assert_int_equal(strlen(line), strlen("hugezerod: info: ") + 1023 + 1);
        assert_int_equal(line[strlen(line) - 1], '\n');
}

static void errno_survives_a_message(void **state) {
        log_open(LOG_INFO);
        (void) close(STDERR_FILENO);
        errno = ENOTTY;
        say(LOG_ERR, "to nowhere");
        assert_int_equal(errno, ENOTTY);
        errno = 0;
}

static void *write_many(void *letter) {
        char text[200];

        memset(text, *(const char *) letter, sizeof(text));
        text[sizeof(text) - 1] = 0;
        for (int i = 0; i < 200; i++)
                say(LOG_INFO, "%s", text);
        return NULL;
}

static void messages_of_threads_do_not_mix(void **state) {
        pthread_t threads[4];
        int n_lines = 0;

        assert_int_equal(fcntl(capture, F_SETFL, O_APPEND), 0);
        log_open(LOG_INFO);
        for (size_t i = 0; i < ELEMENTSOF(threads); i++)
                assert_int_equal(pthread_create(&threads[i], NULL, write_many, (void *) &"abcd"[i]), 0);
        for (size_t i = 0; i < ELEMENTSOF(threads); i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        for (const char *line = captured(), *end; (end = strchr(line, '\n')); line = end + 1, n_lines++) {
                const char *text = line + strlen("hugezerod: info: ");
                char letters[] = {*text, 0};

                assert_int_equal(end - text, 199);
                assert_int_equal(strspn(text, letters), 199);
        }
        assert_int_equal(n_lines, 4 * 200);
}

static void set_journal_stream(void) {
        char stream[64];
        struct stat st;

        assert_int_equal(fstat(STDERR_FILENO, &st), 0);
        (void) snprintf(stream, sizeof(stream), "%lu:%lu", (unsigned long) st.st_dev, (unsigned long) st.st_ino);
        assert_int_equal(setenv("JOURNAL_STREAM", stream, /* replace = */ 1), 0);
}

static void a_redirected_stderr_is_not_the_journal(void **state) {
        assert_int_equal(setenv("JOURNAL_STREAM", "8:1", /* replace = */ 1), 0);
        log_open(LOG_INFO);
        say(LOG_INFO, "one");
        assert_int_equal(setenv("JOURNAL_STREAM", "nonsense", /* replace = */ 1), 0);
        log_open(LOG_INFO);
        say(LOG_INFO, "two");
        assert_string_equal(captured(), "hugezerod: info: one\nhugezerod: info: two\n");
}

/* A journal of our own, in a mount namespace of our own. Negative: not allowed here. */
static int open_journal(void) {
        struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/journal/socket"};
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        if (unshare(geteuid() == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 || mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
                return negative_errno();
        assert_int_equal(mkdir("/run/systemd", 0755), 0);
        assert_int_equal(mkdir("/run/systemd/journal", 0755), 0);
        assert_true(fd >= 0);
        assert_int_equal(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
        return take_fd(&fd);
}

/* The last test: the process does not leave that namespace. */
static void the_journal_gets_records_with_a_priority(void **state) {
        _cleanup_close_ int journal = open_journal();
        char record[4096];
        ssize_t n;

        if (journal < 0) {
                print_message("cannot: no mount namespace here: %s\n", strerror(-journal));
                skip();
        }
        set_journal_stream();
        log_open(LOG_INFO);
        log_warning(LOG_ID_SHORT,
                    LOG_FIELDS(LOG_TEXT("POOL", "a\nMESSAGE_ID=forged"), LOG_NUMBER("NODE", 0),
                               LOG_NUMBER("MISSING_BYTES", UINT64_C(1) << 40)),
                    "out of\n%s", "pages");
        say(LOG_DEBUG, "not this");
        assert_string_equal(captured(), "");
        n = recv(journal, record, sizeof(record) - 1, MSG_DONTWAIT);
        assert_true(n > 0);
        record[n] = 0;
        assert_non_null(strstr(record, "MESSAGE=out of?pages\n"));
        assert_non_null(strstr(record, "PRIORITY=4\n"));
        assert_non_null(strstr(record, "MESSAGE_ID=" LOG_ID_SHORT "\n"));
        assert_non_null(strstr(record, "POOL=a?MESSAGE_ID=forged\n"));
        assert_non_null(strstr(record, "NODE=0\n"));
        assert_non_null(strstr(record, "MISSING_BYTES=1099511627776\n"));
        assert_null(strstr(record, "CODE_FILE"));
        assert_int_equal(recv(journal, record, sizeof(record), MSG_DONTWAIT), -1);

        /* More fields than there is room for are left out, not written beyond it. */
        log_warning(LOG_ID_SHORT,
                    LOG_FIELDS(LOG_NUMBER("A", 1), LOG_NUMBER("B", 2), LOG_NUMBER("C", 3), LOG_NUMBER("D", 4),
                               LOG_NUMBER("E", 5), LOG_NUMBER("F", 6), LOG_NUMBER("G", 7), LOG_NUMBER("H", 8),
                               LOG_NUMBER("I", 9)),
                    "many");
        n = recv(journal, record, sizeof(record) - 1, MSG_DONTWAIT);
        assert_true(n > 0);
        record[n] = 0;
        assert_non_null(strstr(record, "\nH=8\n"));
        assert_null(strstr(record, "\nI=9\n"));

        /* The variable was inherited, but no journal can be reached: the message must not vanish. */
        assert_int_equal(unlink("/run/systemd/journal/socket"), 0);
        log_open(LOG_INFO);
        say(LOG_WARNING, "no pages");
        assert_string_equal(captured(), "hugezerod: warning: no pages\n");
}

#define captured_test(function) cmocka_unit_test_setup_teardown(function, begin_capture, end_capture)

int main(void) {
        const struct CMUnitTest tests[] = {
                captured_test(messages_are_lines_with_their_level),
                captured_test(less_serious_messages_are_left_out),
                captured_test(text_from_outside_cannot_forge_a_line),
                captured_test(a_long_message_is_cut_and_still_a_line),
                captured_test(errno_survives_a_message),
                captured_test(messages_of_threads_do_not_mix),
                captured_test(a_redirected_stderr_is_not_the_journal),
                captured_test(the_journal_gets_records_with_a_priority),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
