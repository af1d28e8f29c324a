/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the program writes to stderr, for a test to read. */
#pragma once

#include "testing.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"

static int real_stderr = -EBADF, capture = -EBADF;

/* As a setup: puts a file in the place of stderr, which is not the journal then. */
static int begin_capture(void **state) {
        real_stderr = dup(STDERR_FILENO);
        capture = memfd_create("stderr", MFD_CLOEXEC);
        (void) unsetenv("JOURNAL_STREAM");
        return real_stderr < 0 || capture < 0 || dup2(capture, STDERR_FILENO) < 0 ? -1 : 0;
}

static int end_capture(void **state) {
        int r = dup2(real_stderr, STDERR_FILENO) < 0 ? -1 : 0;

        real_stderr = safe_close(real_stderr);
        capture = safe_close(capture);
        return r;
}

/* What was written since begin_capture(), or since it was asked last. */
static const char *captured(void) {
        static char text[262144];
        ssize_t n = pread(capture, text, sizeof(text) - 1, 0);

        assert_true(n >= 0);
        text[n] = 0;
        assert_int_equal(ftruncate(capture, 0), 0);
        assert_int_equal(lseek(capture, 0, SEEK_SET), 0);
        return text;
}
