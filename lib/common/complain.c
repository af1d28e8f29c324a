/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "complain.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES (PIPE_BUF - 256) /* a pipe takes PIPE_BUF in one piece; chosen: the rest is enough for what stands around the text */

void complain_list(const char *program, const char *last_line, const char *format, va_list arguments) {
        char text[TEXT_BYTES], message[PIPE_BUF];

        (void) vsnprintf(text, sizeof(text), format, arguments);
        int n = snprintf(message, sizeof(message), "%s: %s\n%s%s", program, text, last_line ? last_line : "", last_line ? "\n" : "");
        if (n >= (int) sizeof(message))
                n = (int) sizeof(message) - 1;
        /* No place is left to complain about stderr. */
        while (write(STDERR_FILENO, message, (size_t) n) < 0 && errno == EINTR)
                ;
}

void complain(const char *program, const char *last_line, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        complain_list(program, last_line, format, arguments);
        va_end(arguments);
}

int complain_of_output(const char *program) {
        int r = fflush(stdout) == EOF ? -errno : ferror(stdout) ? -EIO : 0;

        if (r < 0)
                complain(program, NULL, "standard output cannot be written: %s", strerror(-r));
        return r;
}
