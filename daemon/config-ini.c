/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The reader between a file and inih.
 *
 * inih takes lines from us and gives back keys. On the way it cuts section names, splits long lines, joins indented ones, takes
 * "Key: value" and " ;" for syntax and loses line numbers. So each line is checked here before inih sees it; inih then only has
 * to take apart what has one possible meaning.
 */
#include "config-ini.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include "cleanup.h"

#if INI_HANDLER_LINENO
#error "this inih passes a line number to its handler: not the library that handle_key() was written for"
#endif

struct ini_reader {
        FILE *stream;
        const struct config_ini_sink *sink;
        struct config_origin origin;
        char section[CONFIG_INI_SECTION_BYTES];
        int r;       /* the first failure; nothing is read or handled after it */
        char *error; /* CONFIG_TEXT_BYTES */
};

/* Copies for an error message, at most @size - 1 bytes; of what is too long the end becomes "...", where a letter ends. */
static const char *shorten(const char *text, char *buffer, size_t size) {
        size_t n = size - 4;

        if ((size_t) snprintf(buffer, size, "%s", text) < size)
                return buffer;
        while (n > 0 && ((unsigned char) text[n] & 0xc0) == 0x80)
                n--;
        (void) strcpy(buffer + n, "...");
        return buffer;
}

/* Like snprintf() behind what is there already; what does not fit is left out. */
__attribute__((format(printf, 2, 0))) static void append_v(char error[CONFIG_TEXT_BYTES], const char *fmt, va_list ap) {
        size_t used = strlen(error);

        (void) vsnprintf(error + used, CONFIG_TEXT_BYTES - used, fmt, ap);
}

__attribute__((format(printf, 2, 3))) static void append(char error[CONFIG_TEXT_BYTES], const char *fmt, ...) {
        va_list ap;

        va_start(ap, fmt);
        append_v(error, fmt, ap);
        va_end(ap);
}

int config_fail(char ret_error[CONFIG_TEXT_BYTES], const struct config_origin *origin, const char *section, const char *key,
                const char *value, const char *fmt, ...) {
        char file[150], shown[48]; /* bytes, chosen: with a section, a key and a reason they fit into CONFIG_TEXT_BYTES */
        va_list ap;

        ret_error[0] = 0;
        append(ret_error, "%s:", shorten(origin->file, file, sizeof(file)));
        if (origin->line > 0)
                append(ret_error, "%u:", origin->line);
        if (section)
                append(ret_error, " [%s]", section);
        if (key)
                append(ret_error, " %s=:", key);
        if (value)
                append(ret_error, " value \"%s\":", shorten(value, shown, sizeof(shown)));
        append(ret_error, " ");
        va_start(ap, fmt);
        append_v(ret_error, fmt, ap);
        va_end(ap);
        for (char *p = ret_error; *p; p++)
                if (iscntrl((unsigned char) *p)) /* of an option; files with such characters are refused */
                        *p = '?';
        return -EINVAL;
}

/*
 * Reads one line into @line, without its end and trailing blanks. Comments may have any length and are returned as empty lines.
 * Returns 1, 0 at the end of the stream, or a negative errno with *error written.
 */
static int read_line(struct ini_reader *reader, char line[CONFIG_INI_LINE_BYTES + 1]) {
        bool comment = false, blank = true;
        size_t n = 0;
        int c;

        reader->origin.line++;
        while ((c = getc_unlocked(reader->stream)) != EOF && c != '\n') {
                /* A CR is a blank at the end of a line, as inih sees it, and nonsense elsewhere. */
                if (iscntrl(c) && c != '\t' && c != '\r')
                        return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                           "the line has a control character (0x%02x); is this a text file?", (unsigned) c);
                if (blank && (c == '#' || c == ';'))
                        comment = true;
                if (!isspace(c))
                        blank = false;
                if (n < CONFIG_INI_LINE_BYTES)
                        line[n] = (char) c;
                n++;
        }
        if (ferror(reader->stream)) {
                int r = negative_errno();

                (void) config_fail(reader->error, &reader->origin, NULL, NULL, NULL, "cannot read: %s", strerror(-r));
                return r;
        }
        if (c == EOF && n == 0)
                return 0;
        if (comment || blank)
                n = 0;
        else if (n > CONFIG_INI_LINE_BYTES)
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "the line has %zu bytes; at most %d are read", n, CONFIG_INI_LINE_BYTES);
        while (n > 0 && isspace((unsigned char) line[n - 1]))
                n--;
        line[n] = 0;
        return 1;
}

static int take_section(struct ini_reader *reader, const char *line) {
        const char *name = line + 1, *end = strchr(name, ']');
        size_t length = end ? (size_t) (end - name) : 0;

        if (!end)
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL, "\"[\" without \"]\"; write [Section]");
        if (end[1])
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "text after [section]; give it a line of its own");
        if (length >= CONFIG_INI_SECTION_BYTES)
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "the section's name has %zu bytes; at most %d are read", length,
                                   CONFIG_INI_SECTION_BYTES - 1);
        if (memchr(name, ';', length) || memchr(name, '\t', length))
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "the section's name has a semicolon or a tab; write [Section]");
        memcpy(reader->section, name, length);
        reader->section[length] = 0;
        return reader->sink->section(reader->sink->userdata, &reader->origin, reader->section, reader->error);
}

/*
 * A blank and a semicolon begin a comment in inih, in the middle of a value too; with "#" it would be a part of the value, which
 * nobody means who writes it.
 */
static bool has_inline_comment(const char *value) {
        for (const char *p = value; (p = strpbrk(p, "#;")); p++)
                if (p > value && isspace((unsigned char) p[-1]))
                        return true;
        return false;
}

/* The form of a "Key=value" line; its content is looked at when inih hands it to handle_key(). */
static int check_key(struct ini_reader *reader, const char *line) {
        const char *equals = strchr(line, '='), *p = line;
        const char *section = reader->section[0] ? reader->section : NULL;
        char key[32], shown[48]; /* bytes, chosen: longer than any key; enough to find the line */

        while (isalnum((unsigned char) *p))
                p++;
        (void) snprintf(key, sizeof(key), "%.*s", (int) (p - line), line);
        while (isblank((unsigned char) *p))
                p++;
        if (!equals)
                return config_fail(reader->error, &reader->origin, section, NULL, NULL,
                                   "\"%s\" has no \"=\"; write Key=value, or put # before a remark",
                                   shorten(line, shown, sizeof(shown)));
        if (!key[0] || p != equals)
                return config_fail(reader->error, &reader->origin, section, NULL, NULL,
                                   "\"%s\" has no key before \"=\"; keys have letters and digits only",
                                   shorten(line, shown, sizeof(shown)));
        if (!section)
                return config_fail(reader->error, &reader->origin, NULL, key, NULL,
                                   "before any section; begin with a line like [Daemon]");
        for (p = equals + 1; isspace((unsigned char) *p);)
                p++;
        if (!*p)
                return config_fail(reader->error, &reader->origin, section, key, NULL,
                                   "no value; give one, or remove the line to keep the default");
        if (has_inline_comment(equals + 1))
                return config_fail(reader->error, &reader->origin, section, key, p,
                                   "a remark behind a value; give it a line of its own");
        return 0;
}

static int check_line(struct ini_reader *reader, const char *line) {
        if (reader->origin.line == 1 && strncmp(line, "\xef\xbb\xbf", 3) == 0)
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "the file begins with a byte order mark; save it as plain UTF-8");
        if (!line[0])
                return 0;
        if (isspace((unsigned char) line[0]))
                return config_fail(reader->error, &reader->origin, NULL, NULL, NULL,
                                   "the line is indented; lines are not continued, begin it in the first column");
        return line[0] == '[' ? take_section(reader, line) : check_key(reader, line);
}

/* ini_reader of inih: like fgets(). */
static char *next_line(char *buffer, int size, void *stream) {
        struct ini_reader *reader = stream;
        char line[CONFIG_INI_LINE_BYTES + 1];
        int r;

        if (reader->r < 0)
                return NULL;
        r = read_line(reader, line);
        if (r == 0)
                return NULL;
        if (r > 0)
                r = check_line(reader, line);
        if (r >= 0 && strlen(line) + 1 > (size_t) size)
                r = config_fail(reader->error, &reader->origin, NULL, NULL, NULL, "inih reads at most %d bytes per line",
                                size - 1);
        if (r < 0) {
                reader->r = r;
                return NULL;
        }
        return strcpy(buffer, line);
}

/* ini_handler of inih: 1 is success. */
static int handle_key(void *userdata, const char *section, const char *key, const char *value) {
        struct ini_reader *reader = userdata;

        if (reader->r < 0 || !key) /* some builds of inih announce sections by a key of NULL */
                return 1;
        assert(value);
        assert(strcmp(section, reader->section) == 0);
        reader->r = reader->sink->key(reader->sink->userdata, &reader->origin, key, value, reader->error);
        return reader->r >= 0;
}

int config_ini_read(FILE *stream, const char *file, const struct config_ini_sink *sink, char ret_error[CONFIG_TEXT_BYTES]) {
        struct ini_reader reader = {.stream = stream, .sink = sink, .origin = {.file = file}, .error = ret_error};
        int n = ini_parse_stream(next_line, &reader, handle_key, &reader);

        if (reader.r < 0)
                return reader.r;
        if (n != 0) /* -2: no memory; lines that inih would refuse do not pass check_line() */
                return config_fail(ret_error, &reader.origin, NULL, NULL, NULL, "the INI library gave up (%d)", n);
        return 0;
}
