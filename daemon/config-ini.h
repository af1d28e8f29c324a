/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads one INI file through inih, with line numbers, and refuses whatever inih would change without a word. */
#pragma once

#include <stdio.h>

#include "config.h"

#define CONFIG_INI_SECTION_BYTES 50 /* inih keeps 49 bytes of a section's name and the 0 */
#define CONFIG_INI_LINE_BYTES 197   /* inih splits longer lines: INI_MAX_LINE is 200, with CR, LF and 0 */

/* Where something was written. */
struct config_origin {
        const char *file; /* borrowed; or the option, "--pool 2M:auto:4G", with line 0 */
        unsigned line;
};

/*
 * Writes "FILE:LINE: [SECTION] KEY=: value "VALUE": REASON" to @ret_error. NULL leaves the part out; long or unprintable parts
 * are shortened so that it stays one line. Returns -EINVAL, for the caller to pass on.
 */
int config_fail(char ret_error[CONFIG_TEXT_BYTES], const struct config_origin *origin, const char *section, const char *key,
                const char *value, const char *fmt, ...) __attribute__((format(printf, 6, 7)));

/* Called in the order of the lines. A negative return stops the reading; *error is written then. */
struct config_ini_sink {
        int (*section)(void *userdata, const struct config_origin *origin, const char *section, char *error);
        int (*key)(void *userdata, const struct config_origin *origin, const char *key, const char *value, char *error);
        void *userdata;
};

/*
 * @file: what messages call the stream; kept in origins, so it must outlive what the sink stores.
 * Returns 0, -EINVAL for bad content, -EIO and others for the stream; @ret_error is written on failure only.
 */
int config_ini_read(FILE *stream, const char *file, const struct config_ini_sink *sink, char ret_error[CONFIG_TEXT_BYTES]);
