/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reader of INI files: what it gives on, and that it refuses, with the line, what inih would change in silence. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "cleanup.h"
#include "config-ini.h"

/* Everything the sink was given, one "LINE [section]" or "LINE key|value" after the other. */
struct record {
        char text[2048];
        int refuse_line; /* the sink fails at this line */
};

static int note_section(void *userdata, const struct config_origin *origin, const char *section, char *error) {
        struct record *record = userdata;
        size_t used = strlen(record->text);

        if ((int) origin->line == record->refuse_line)
                return config_fail(error, origin, section, NULL, NULL, "not wanted");
        (void) snprintf(record->text + used, sizeof(record->text) - used, "%u [%s]\n", origin->line, section);
        return 0;
}

static int note_key(void *userdata, const struct config_origin *origin, const char *key, const char *value, char *error) {
        struct record *record = userdata;
        size_t used = strlen(record->text);

        if ((int) origin->line == record->refuse_line)
                return config_fail(error, origin, "A", key, value, "not wanted");
        (void) snprintf(record->text + used, sizeof(record->text) - used, "%u %s|%s\n", origin->line, key, value);
        return 0;
}

static int read_bytes(const void *bytes, size_t n_bytes, struct record *record, char error[CONFIG_TEXT_BYTES]) {
        const struct config_ini_sink sink = {note_section, note_key, record};
        _cleanup_fclose_ FILE *stream = n_bytes > 0 ? fmemopen((void *) bytes, n_bytes, "r") : fopen("/dev/null", "re");

        assert_non_null(stream);
        return config_ini_read(stream, "FILE", &sink, error);
}

static void gives(const char *content, const char *expected) {
        struct record record = {};
        char error[CONFIG_TEXT_BYTES] = "untouched";

        if (read_bytes(content, strlen(content), &record, error) != 0)
                fail_msg("%s", error);
        assert_string_equal(error, "untouched");
        assert_string_equal(record.text, expected);
}

static void refuses_bytes(const void *bytes, size_t n_bytes, const char *expected) {
        struct record record = {};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_int_equal(read_bytes(bytes, n_bytes, &record, error), -EINVAL);
        assert_string_equal(error, expected);
}

static void refuses(const char *content, const char *expected) {
        refuses_bytes(content, strlen(content), expected);
}

static void keys_come_with_their_lines(void **state) {
        gives("", "");
        gives("\n\n# remark\n; remark\n  # indented remark\n", "");
        gives("[A]\nkey=value\n\n# remark\nother = some value  \n[B c:d]\nkey\t=\tx=y;z\n",
              "1 [A]\n2 key|value\n5 other|some value\n6 [B c:d]\n7 key|x=y;z\n");
        gives("[A]\nkey=no end of line", "1 [A]\n2 key|no end of line\n");
        gives("[A]  \r\nkey=from another system\r\n\r\n", "1 [A]\n2 key|from another system\n");
        gives("[A]\nkey=#no remark\nkey=x#y\nkey=;x\n", "1 [A]\n2 key|#no remark\n3 key|x#y\n4 key|;x\n");
        gives("[A]\nkey=\"quotes stay\"\n", "1 [A]\n2 key|\"quotes stay\"\n");
}

static void remarks_may_have_any_length(void **state) {
        char content[5000];

        memset(content, 'x', sizeof(content));
        memcpy(content, "[A]\n#", 5);
        memcpy(content + 4000, "\nkey=value\n", 12);
        gives(content, "1 [A]\n3 key|value\n");
}

static void the_longest_line_is_read_whole(void **state) {
        char content[CONFIG_INI_LINE_BYTES + 16] = "[A]\nkey=", expected[CONFIG_INI_LINE_BYTES + 32] = "1 [A]\n2 key|";
        char value[CONFIG_INI_LINE_BYTES + 1] = "";

        memset(value, 'x', CONFIG_INI_LINE_BYTES - strlen("key="));
        (void) strcat(strcat(content, value), "\n");
        (void) strcat(strcat(expected, value), "\n");
        gives(content, expected);
        (void) strcpy(strchr(content, '\n') + strlen("\nkey=") + strlen(value), "xy\n");
        refuses(content, "FILE:2: the line has 199 bytes; at most 197 are read");
}

static void lines_that_inih_would_join_are_refused(void **state) {
        refuses("[A]\nkey=value\n  more\n",
                "FILE:3: the line is indented; lines are not continued, begin it in the first column");
        refuses("[A]\n\tkey=value\n", "FILE:2: the line is indented; lines are not continued, begin it in the first column");
        refuses(" [A]\n", "FILE:1: the line is indented; lines are not continued, begin it in the first column");
}

static void text_that_inih_would_drop_is_refused(void **state) {
        refuses("\n[A] text\n", "FILE:2: text after [section]; give it a line of its own");
        refuses("[A]]\n", "FILE:1: text after [section]; give it a line of its own");
        refuses("[A] ; remark\n", "FILE:1: text after [section]; give it a line of its own");
        refuses("[A ;b]\n", "FILE:1: the section's name has a semicolon or a tab; write [Section]");
        refuses("[A\n", "FILE:1: \"[\" without \"]\"; write [Section]");
        refuses("[A]\nkey=value ; remark\n",
                "FILE:2: [A] key=: value \"value ; remark\": a remark behind a value; give it a line of its own");
        refuses("[A]\nkey= ;remark\n",
                "FILE:2: [A] key=: value \";remark\": a remark behind a value; give it a line of its own");
}

/* inih would make it a part of the value: a path that nobody meant. */
static void remarks_behind_values_are_refused_in_either_form(void **state) {
        refuses("[A]\nkey=/x # remark\n",
                "FILE:2: [A] key=: value \"/x # remark\": a remark behind a value; give it a line of its own");
        refuses("[A]\nkey=value\t#remark\n",
                "FILE:2: [A] key=: value \"value?#remark\": a remark behind a value; give it a line of its own");
        refuses("[A]\nkey= #remark\n", "FILE:2: [A] key=: value \"#remark\": a remark behind a value; give it a line of its own");
        refuses("[A] # remark\n", "FILE:1: text after [section]; give it a line of its own");
        gives("[A]\nkey=a#b;c\n", "1 [A]\n2 key|a#b;c\n");
}

static void names_that_inih_would_cut_are_refused(void **state) {
        refuses("[123456789012345678901234567890123456789012345678901]\n",
                "FILE:1: the section's name has 51 bytes; at most 49 are read");
        gives("[1234567890123456789012345678901234567890123456789]\n",
              "1 [1234567890123456789012345678901234567890123456789]\n");
}

static void lines_that_are_no_key_are_refused(void **state) {
        refuses("key=value\n[A]\n", "FILE:1: key=: before any section; begin with a line like [Daemon]");
        refuses("key\n[A]\n", "FILE:1: \"key\" has no \"=\"; write Key=value, or put # before a remark");
        refuses("[A]\nkey\n", "FILE:2: [A] \"key\" has no \"=\"; write Key=value, or put # before a remark");
        refuses("[A]\nkey: value\n", "FILE:2: [A] \"key: value\" has no \"=\"; write Key=value, or put # before a remark");
        refuses("[A]\nkey: a=b\n", "FILE:2: [A] \"key: a=b\" has no key before \"=\"; keys have letters and digits only");
        refuses("[A]\n=value\n", "FILE:2: [A] \"=value\" has no key before \"=\"; keys have letters and digits only");
        refuses("[A]\nmy key=value\n",
                "FILE:2: [A] \"my key=value\" has no key before \"=\"; keys have letters and digits only");
        refuses("[A]\nkey=\n", "FILE:2: [A] key=: no value; give one, or remove the line to keep the default");
        refuses("[A]\nkey= \t\n", "FILE:2: [A] key=: no value; give one, or remove the line to keep the default");
}

static void files_that_are_no_text_are_refused(void **state) {
        refuses_bytes("[A]\nkey=va\0lue\n", 15, "FILE:2: the line has a control character (0x00); is this a text file?");
        refuses_bytes("[A]\n# \0\n", 8, "FILE:2: the line has a control character (0x00); is this a text file?");
        refuses("[A]\nkey=\x1b[31m\n", "FILE:2: the line has a control character (0x1b); is this a text file?");
        refuses("\xef\xbb\xbf[A]\n", "FILE:1: the file begins with a byte order mark; save it as plain UTF-8");
        gives("[A]\nkey=\xc3\xa4\n", "1 [A]\n2 key|\xc3\xa4\n");
}

/* A file without any end of line: it must not be read to its end, which may never come. */
static void an_endless_file_is_refused(void **state) {
        _cleanup_fclose_ FILE *stream = fopen("/dev/zero", "re");
        struct record record = {};
        const struct config_ini_sink sink = {note_section, note_key, &record};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_non_null(stream);
        assert_int_equal(config_ini_read(stream, "FILE", &sink, error), -EINVAL);
        assert_string_equal(error, "FILE:1: the line has a control character (0x00); is this a text file?");
}

static void a_failed_read_says_why(void **state) {
        _cleanup_fclose_ FILE *stream = fopen("/", "re");
        struct record record = {};
        const struct config_ini_sink sink = {note_section, note_key, &record};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_non_null(stream);
        assert_int_equal(config_ini_read(stream, "FILE", &sink, error), -EISDIR);
        assert_string_equal(error, "FILE:1: cannot read: Is a directory");
}

static void nothing_is_read_after_the_first_failure(void **state) {
        static const char content[] = "[A]\nkey=1\nkey=2\n[B]\nkey=3\n";
        struct record record = {.refuse_line = 3};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_int_equal(read_bytes(content, strlen(content), &record, error), -EINVAL);
        assert_string_equal(record.text, "1 [A]\n2 key|1\n");
        assert_string_equal(error, "FILE:3: [A] key=: value \"2\": not wanted");

        record = (struct record){.refuse_line = 4};
        assert_int_equal(read_bytes(content, strlen(content), &record, error), -EINVAL);
        assert_string_equal(record.text, "1 [A]\n2 key|1\n3 key|2\n");
        assert_string_equal(error, "FILE:4: [B] not wanted");
}

static void a_message_stays_one_line_of_bounded_length(void **state) {
        char path[4096], value[200], error[CONFIG_TEXT_BYTES + 1];
        struct config_origin origin = {.file = path, .line = 4294967295};

        memset(path, 'p', sizeof(path));
        path[sizeof(path) - 1] = 0;
        memset(value, 'v', sizeof(value));
        value[0] = '\n';
        value[sizeof(value) - 1] = 0;
        error[CONFIG_TEXT_BYTES] = 'E';
        (void) config_fail(error, &origin, "section", "Key", value, "%s", path);
        assert_int_equal(strlen(error), CONFIG_TEXT_BYTES - 1);
        assert_int_equal(error[CONFIG_TEXT_BYTES], 'E');
        assert_null(strchr(error, '\n'));
        assert_non_null(strstr(error, "p...:4294967295: [section] Key=: value \"?vvvv"));
        assert_non_null(strstr(error, "vvv...\": pppp"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(keys_come_with_their_lines),
                test_without_fd_leak(remarks_may_have_any_length),
                test_without_fd_leak(the_longest_line_is_read_whole),
                test_without_fd_leak(lines_that_inih_would_join_are_refused),
                test_without_fd_leak(text_that_inih_would_drop_is_refused),
                test_without_fd_leak(remarks_behind_values_are_refused_in_either_form),
                test_without_fd_leak(names_that_inih_would_cut_are_refused),
                test_without_fd_leak(lines_that_are_no_key_are_refused),
                test_without_fd_leak(files_that_are_no_text_are_refused),
                test_without_fd_leak(an_endless_file_is_refused),
                test_without_fd_leak(a_failed_read_says_why),
                test_without_fd_leak(nothing_is_read_after_the_first_failure),
                test_without_fd_leak(a_message_stays_one_line_of_bounded_length),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
