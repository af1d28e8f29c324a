/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Error messages of the programs. */
#pragma once

#include <stdarg.h>

/*
 * complain - "PROGRAM: text" and a newline on stderr
 * @last_line: one more line, or NULL
 * It is one write(2), so that messages of processes which run at the same time do not mix. A text that is too long for that
 * is cut off.
 */
void complain(const char *program, const char *last_line, const char *format, ...) __attribute__((format(printf, 3, 4)));
void complain_list(const char *program, const char *last_line, const char *format, va_list arguments)
        __attribute__((format(printf, 3, 0)));

/*
 * complain_of_output - to be called last: has everything reached standard output?
 * A full disk or a closed pipe shows only when it is flushed; an answer that did not arrive is no success.
 * Returns 0, or a negative errno after a complaint.
 */
int complain_of_output(const char *program);
