/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The one table of keys: names, types, ranges, defaults, help; and what follows from it alone. */
#pragma once

#include "config.h"

enum config_section_kind { CONFIG_SECTION_DAEMON, CONFIG_SECTION_POOL, CONFIG_SECTION_QUOTA, _CONFIG_SECTION_KIND_MAX };

/* In the order of the sample file. */
enum config_key_id {
        CONFIG_KEY_SOCKET,
        CONFIG_KEY_SOCKET_GROUP,
        CONFIG_KEY_SOCKET_MODE,
        CONFIG_KEY_ALLOW_USERS,
        CONFIG_KEY_ALLOW_GROUPS,
        CONFIG_KEY_ADMIN_USERS,
        CONFIG_KEY_TRUSTED_USERS,
        CONFIG_KEY_MAX_CONNECTIONS,
        CONFIG_KEY_MAX_WAITING,
        CONFIG_KEY_MAX_FDS_IN_FLIGHT,
        CONFIG_KEY_WORKERS_PER_NODE,
        CONFIG_KEY_CLEAR_METHOD,
        CONFIG_KEY_BATCH,
        CONFIG_KEY_BACKGROUND_RATE,
        CONFIG_KEY_AUDIT_RATE,
        CONFIG_KEY_WARM_EXTENTS,
        CONFIG_KEY_RELEASE_GRACE,
        CONFIG_KEY_AFFINITY_TIMEOUT,
        CONFIG_KEY_UNMAP_AFTER,
        CONFIG_KEY_SWEEP_INTERVAL,
        CONFIG_KEY_HOLD_BACK,
        CONFIG_KEY_RECYCLE,
        CONFIG_KEY_SHARE_PAGE_TABLES,
        CONFIG_KEY_LOG_LEVEL,
        CONFIG_KEY_PAGE_SIZE,
        CONFIG_KEY_EXTENT_SIZE,
        CONFIG_KEY_TARGET,
        CONFIG_KEY_LOW,
        CONFIG_KEY_NODES,
        CONFIG_KEY_QUOTA_MAX_BYTES,
        CONFIG_KEY_QUOTA_MAX_GRANTS,
        CONFIG_KEY_QUOTA_MAX_CONNECTIONS,
        CONFIG_KEY_QUOTA_MAX_WAITING,
        CONFIG_KEY_QUOTA_MAX_REQUEST_RATE,
        _CONFIG_KEY_MAX,
};

enum config_type {
        CONFIG_TYPE_PATH,     /* char[108] */
        CONFIG_TYPE_GROUP,    /* struct config: socket_group and socket_gid */
        CONFIG_TYPE_USERS,    /* struct config_ids */
        CONFIG_TYPE_GROUPS,   /* struct config_ids */
        CONFIG_TYPE_MODE,     /* mode_t */
        CONFIG_TYPE_COUNT,    /* uint32_t */
        CONFIG_TYPE_SIZE,     /* uint64_t, bytes */
        CONFIG_TYPE_DURATION, /* uint64_t, ms */
        CONFIG_TYPE_BOOL,     /* bool */
        CONFIG_TYPE_WORD,     /* int, or an enum: the position or value of the word */
        CONFIG_TYPE_METHOD,   /* const struct clear_method *: NULL for auto */
        CONFIG_TYPE_MEMORY,   /* config-limits.c knows: depends on the machine */
        CONFIG_TYPE_POOL,     /* config-pool.c knows: depends on the machine and on other keys */
};

struct config_word {
        const char *text;
        int value;
};

struct config_key {
        enum config_section_kind section;
        const char *name;
        enum config_type type;
        size_t offset;                   /* in struct config ([Daemon]) or struct config_quota */
        uint64_t min, max;               /* COUNT, SIZE, DURATION; unused elsewhere */
        uint64_t multiple_of;            /* COUNT, SIZE: 0: any number */
        const char *word;                /* COUNT, SIZE: a word beside the numbers, ... */
        uint64_t word_value;             /* ... and what it stands for */
        bool gives_power;                /* USERS: not to whom many are */
        const struct config_word *words; /* WORD: ends with a text of NULL */
        const char *unit;                /* what the value is, in words; the range is added to it */
        const char *default_text;        /* as in a file */
        const char *help;
};

extern const struct config_key config_keys[_CONFIG_KEY_MAX];

/* "[Pool NAME]": how a section is written, for messages. */
const char *config_section_form(enum config_section_kind kind);

/* Unit and range in one phrase, the same in messages, sample file and man page: "a number of requests, 1 to 65536". */
#define CONFIG_FORM_BYTES 128
const char *config_key_form(const struct config_key *key, char buffer[CONFIG_FORM_BYTES]);

/*
 * Parses @text into the struct at @base. Not for CONFIG_TYPE_MEMORY and CONFIG_TYPE_POOL. Returns 0, or -EINVAL with @ret_reason: what is wrong and
 * what to write instead.
 */
#define CONFIG_REASON_BYTES 256
int config_key_parse(const struct config_key *key, const char *text, void *base, char ret_reason[CONFIG_REASON_BYTES]);

/* @name: of a user (of a group where @group), or a number. 0, or the errno of the look-up, which may be 0 too: -ENOENT then. */
int config_find_id(bool group, const char *name, uint32_t *ret_id);
/* The reason for a failed getgrnam(3) or getpwnam(3): they leave 0 or one of several values in errno for "not found". */
const char *config_lookup_error(int error);
