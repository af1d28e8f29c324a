/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What was written, before it is understood: the sections of all sources, each key with its text and its place, later sources
 * over earlier ones. Names of sections and keys are checked here, values are not.
 */
#pragma once

#include <sys/queue.h>

#include "config-ini.h"
#include "config-table.h"

struct config_value {
        char *text; /* owned; NULL: not written anywhere */
        struct config_origin origin;
};

struct config_section {
        TAILQ_ENTRY(config_section) link;
        enum config_section_kind kind;
        char title[CONFIG_INI_SECTION_BYTES]; /* "Pool vms"; empty for a --pool */
        char name[CONFIG_INI_SECTION_BYTES];  /* "vms" */
        struct config_origin origin;          /* where it was begun last */
        struct config_value values[_CONFIG_KEY_MAX];
};

struct config_source {
        TAILQ_ENTRY(config_source) link;
        char name[]; /* a path, or an option with its argument */
};

struct config_draft {
        TAILQ_HEAD(, config_section) sections;
        TAILQ_HEAD(, config_source) sources; /* what origins point to */
        struct config_section *current;      /* of the file that is being read */
};

void config_draft_init(struct config_draft *draft);
void config_draft_done(struct config_draft *draft);

/* @path and the files of PATH.d. @must_exist: of @path itself. Returns 0 or a negative errno with @ret_error written. */
int config_draft_read(struct config_draft *draft, const char *path, bool must_exist, char ret_error[CONFIG_TEXT_BYTES]);
/* One stream instead of files. @name is copied. */
int config_draft_read_stream(struct config_draft *draft, FILE *stream, const char *name, char ret_error[CONFIG_TEXT_BYTES]);

/* --socket and --pool: as if written in a file. */
int config_draft_set_socket(struct config_draft *draft, const char *path, char ret_error[CONFIG_TEXT_BYTES]);
int config_draft_set_pools(struct config_draft *draft, const char *const *specs, size_t n_specs,
                           char ret_error[CONFIG_TEXT_BYTES]);

/* The next section of the kind behind @after (NULL: the first), or NULL. */
const struct config_section *config_draft_next(const struct config_draft *draft, enum config_section_kind kind,
                                               const struct config_section *after);

/* What was written, or the default. */
const char *config_section_text(const struct config_section *section, enum config_key_id key);
/* config_fail() at the place of a key's value. */
int config_section_fail(const struct config_section *section, enum config_key_id key, char ret_error[CONFIG_TEXT_BYTES],
                        const char *fmt, ...) __attribute__((format(printf, 4, 5)));
