/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Placeholders in the arguments of a command. */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "ctl-placeholder.h"

#define WORD_CHARACTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

enum field { FIELD_FD, FIELD_PATH, FIELD_BYTES, N_FIELDS };
static const char *const field_names[] = {"fd", "path", "bytes"};

static bool is_equal(const char *text, size_t n_bytes, const char *word) {
        return strlen(word) == n_bytes && memcmp(text, word, n_bytes) == 0;
}

static void write_field(FILE *stream, const struct ctl_placeholder *grant, enum field field) {
        if (field == FIELD_BYTES) {
                (void) fprintf(stream, "%" PRIu64, grant->bytes);
                return;
        }
        for (size_t idx = 0; idx < grant->n_fds; idx++)
                (void) fprintf(stream, "%s%s%d", idx ? "," : "", field == FIELD_PATH ? "/proc/self/fd/" : "", grant->fds[idx]);
}

/* @text begins with '{'. Returns how many characters were replaced, 0 when they are not meant for us, -EINVAL. */
static ssize_t expand_one(const char *text, const struct ctl_placeholder *grants, size_t n_grants, FILE *stream, char *error) {
        const char *name = text + 1;
        size_t n_name = strspn(name, WORD_CHARACTERS);
        if (name[n_name] != '.')
                return 0;
        const char *word = name + n_name + 1;
        size_t n_word = strspn(word, WORD_CHARACTERS);
        if (word[n_word] != '}')
                return 0;

        size_t grant = 0, field = 0;
        while (grant < n_grants && !is_equal(name, n_name, grants[grant].name))
                grant++;
        while (field < N_FIELDS && !is_equal(word, n_word, field_names[field]))
                field++;
        if (grant == n_grants && field == N_FIELDS)
                return 0;
        if (grant == n_grants) {
                (void) snprintf(error, CTL_SPEC_ERROR_BYTES, "no --grant has the name '%.*s'", (int) n_name, name);
                return -EINVAL;
        }
        if (field == N_FIELDS) {
                (void) snprintf(error, CTL_SPEC_ERROR_BYTES, "a grant has .fd, .path and .bytes, but no '.%.*s'", (int) n_word,
                                word);
                return -EINVAL;
        }
        write_field(stream, &grants[grant], (enum field) field);
        return word + n_word + 1 - text;
}

int ctl_placeholder_expand(const char *text, const struct ctl_placeholder *grants, size_t n_grants, char **ret_text,
                           char ret_error[CTL_SPEC_ERROR_BYTES]) {
        _cleanup_free_ char *expanded = NULL;
        size_t n_bytes = 0;
        FILE *stream = open_memstream(&expanded, &n_bytes);
        if (!stream)
                return -ENOMEM;
        ssize_t n = 0;
        while (n >= 0 && *text) {
                n = *text == '{' ? expand_one(text, grants, n_grants, stream, ret_error) : 0;
                if (n == 0)
                        (void) putc(*text++, stream);
                else if (n > 0)
                        text += n;
        }
        bool is_short = ferror(stream);
        if (fclose(stream) == EOF || is_short)
                return -ENOMEM;
        if (n < 0)
                return (int) n;
        *ret_text = take_ptr(expanded);
        return 0;
}
