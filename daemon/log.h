/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages: to the journal with fields where stderr is the journal, else lines on stderr. Any thread. */
#pragma once

#include <stdint.h>
#include <syslog.h>

#include "log-ids.h"

void log_set_program(const char *name); /* borrowed; what lines on stderr begin with, where it is not hugezerod */
void log_open(int max_level); /* LOG_ERR to LOG_DEBUG; more than that is not written */
/*
 * Before an exit that was not asked for: gives the journal time to look the process up. It shows a unit only the messages whose
 * sender it has still found, so that the reason of the failure would be missing there now and then.
 */
void log_linger(void);

/* What the journal keeps beside the text, to be searched by: upper-case names of journald. Texts may come from outside. */
struct log_field {
        const char *name;
        const char *text; /* NULL: the number */
        int64_t number;
};
#define LOG_TEXT(field_name, field_text) ((struct log_field){.name = (field_name), .text = (field_text)})
#define LOG_NUMBER(field_name, field_number) ((struct log_field){.name = (field_name), .number = (int64_t) (field_number)})
#define LOG_FIELDS(...) ((const struct log_field[]){__VA_ARGS__, {}})
#define LOG_NO_FIELDS ((const struct log_field *) NULL)

/*
 * log_message - one message
 * @id:     one of log-ids.h: whoever reads it can be told what to do
 * @fields: LOG_FIELDS(...), at most 8 are written; or LOG_NO_FIELDS
 */
void log_message(int level, const char *id, const struct log_field *fields, const char *fmt, ...)
        __attribute__((format(printf, 4, 5)));
#define log_error(id, fields, ...) log_message(LOG_ERR, id, fields, __VA_ARGS__)
#define log_warning(id, fields, ...) log_message(LOG_WARNING, id, fields, __VA_ARGS__)
#define log_notice(id, fields, ...) log_message(LOG_NOTICE, id, fields, __VA_ARGS__)
#define log_info(id, fields, ...) log_message(LOG_INFO, id, fields, __VA_ARGS__)
