/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where messages go. Each is one line and one system call, so messages of several threads do not mix. Control characters do not
 * get through: names that clients choose appear in messages, and must not be able to forge a line of their own.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION /* the place would always be this file */

#include "log.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_BYTES 1024 /* chosen: twice the longest configuration error */
#define LINGER_MS 100      /* chosen: a hundred times what the journal takes on an idle machine */
#define MAX_FIELDS 8       /* chosen: twice what any message has */

static atomic_int log_max_level = LOG_INFO;
static atomic_bool log_to_journal;
static const char *log_program = "hugezerod";

/* systemd says in $JOURNAL_STREAM which socket it gave us as stderr; stderr may have been redirected since. */
static bool stderr_is_journal(void) {
        const char *stream = getenv("JOURNAL_STREAM");
        uint64_t dev, ino;
        struct stat st;

        if (!stream || sscanf(stream, "%" SCNu64 ":%" SCNu64, &dev, &ino) != 2 || fstat(STDERR_FILENO, &st) < 0)
                return false;
        /* sd_journal_send(3) is silent when there is no journal: a container may have inherited our stderr alone. */
        return st.st_dev == dev && st.st_ino == ino && access("/run/systemd/journal/socket", W_OK) == 0;
}

void log_set_program(const char *name) {
        log_program = name;
}

void log_open(int max_level) {
        log_max_level = max_level;
        log_to_journal = stderr_is_journal();
}

void log_linger(void) {
        const struct timespec delay = {.tv_nsec = LINGER_MS * 1000000};

        if (log_to_journal)
                (void) nanosleep(&delay, NULL);
}

static const char *level_name(int level) {
        switch (level) {
        case LOG_WARNING:
                return "warning";
        case LOG_NOTICE:
                return "notice";
        case LOG_INFO:
                return "info";
        case LOG_DEBUG:
                return "debug";
        default:
                return "error";
        }
}

static void write_line(int level, const char *text) {
        char line[MESSAGE_BYTES + 32];
        int n = snprintf(line, sizeof(line), "%s: %s: %s\n", log_program, level_name(level), text);

        /* No place is left to complain about stderr. */
        if (write(STDERR_FILENO, line, (size_t) n) < 0)
                return;
}

static void tame(char *text) {
        for (char *p = text; *p; p++)
                if (iscntrl((unsigned char) *p))
                        *p = '?';
}

static int send_record(int level, const char *id, const struct log_field *fields, const char *message) {
        char lines[3 + MAX_FIELDS][MESSAGE_BYTES + 32];
        struct iovec parts[3 + MAX_FIELDS];
        int n = 0;

        (void) snprintf(lines[n++], sizeof(lines[0]), "MESSAGE=%s", message);
        (void) snprintf(lines[n++], sizeof(lines[0]), "PRIORITY=%d", level);
        (void) snprintf(lines[n++], sizeof(lines[0]), "MESSAGE_ID=%s", id);
        for (; fields && fields->name && n < 3 + MAX_FIELDS; fields++)
                if (fields->text)
                        (void) snprintf(lines[n++], sizeof(lines[0]), "%s=%s", fields->name, fields->text);
                else
                        (void) snprintf(lines[n++], sizeof(lines[0]), "%s=%" PRId64, fields->name, fields->number);
        for (int i = 0; i < n; i++) {
                tame(lines[i]);
                parts[i] = (struct iovec){.iov_base = lines[i], .iov_len = strlen(lines[i])};
        }
        return sd_journal_sendv(parts, n);
}

void log_message(int level, const char *id, const struct log_field *fields, const char *fmt, ...) {
        int saved_errno = errno;
        char text[MESSAGE_BYTES];
        va_list ap;

        if (level > log_max_level)
                return;
        va_start(ap, fmt);
        (void) vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        tame(text);
        if (!log_to_journal || send_record(level, id, fields, text) < 0)
                write_line(level, text);
        errno = saved_errno;
}
