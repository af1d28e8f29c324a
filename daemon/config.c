/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Puts the sources together and resolves them: [Daemon] and [Quota ...] here, pools in config-pool.c. */
#include "config.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "cleanup.h"
#include "config-build.h"
#include "config-draft.h"
#include "config-limits.h"
#include "config-pool.h"
#include "parse.h"
#include "wire.h"

static_assert(CONFIG_POOL_NAME_BYTES == WIRE_POOL_NAME_BYTES, "a pool's name fits both");

/* What a source that names no such section is resolved from. */
static const struct config_section no_daemon = {.title = "Daemon", .origin.file = "defaults"};
static const struct config_section no_pool = {
        .kind = CONFIG_SECTION_POOL, .title = "Pool default", .name = "default", .origin.file = "defaults"};
static const struct config_section no_quota = {
        .kind = CONFIG_SECTION_QUOTA, .title = "Quota default", .origin.file = "defaults"};

/*
 * Parses the section's keys into @base. @written_only: keys that were not written are left alone, for a section that inherits
 * from another.
 */
static int resolve_keys(const struct config_section *section, bool written_only, const struct topology *topology, void *base,
                        char *error) {
        char reason[CONFIG_REASON_BYTES];
        int r;

        for (enum config_key_id key = 0; key < _CONFIG_KEY_MAX; key++) {
                if (config_keys[key].section != section->kind || (written_only && !section->values[key].text))
                        continue;
                if (config_keys[key].type == CONFIG_TYPE_MEMORY) {
                        r = config_limits_resolve(section, topology, base, error);
                        if (r < 0)
                                return r;
                } else if (config_key_parse(&config_keys[key], config_section_text(section, key), base, reason) < 0)
                        return config_section_fail(section, key, error, "%s", reason);
        }
        return 0;
}

static int resolve_pools(const struct config_draft *draft, const struct topology *topology, struct config *config,
                         char *error) {
        const struct config_section *section = NULL;
        int r;

        while ((section = config_draft_next(draft, CONFIG_SECTION_POOL, section))) {
                if (config->n_pools == CONFIG_MAX_POOLS)
                        return config_fail(error, &section->origin, section->title[0] ? section->title : NULL, NULL, NULL,
                                           "there can be at most %d pools; remove some", CONFIG_MAX_POOLS);
                r = config_pool_resolve(section, topology, &config->pools[config->n_pools], error);
                if (r < 0)
                        return r;
                config->n_pools++;
        }
        if (config->n_pools > 0)
                return 0;
        r = config_pool_resolve(&no_pool, topology, &config->pools[0], error);
        if (r < 0)
                return r;
        config->n_pools = 1;
        config->pools_are_default = true;
        return 0;
}

/* @name: of a user or group, or a number. */
static int find_id(const struct config_section *section, bool group, const char *name, uint32_t *ret_id, char *error) {
        const char *what = group ? "group" : "user";
        int r = config_find_id(group, name, ret_id);

        if (r < 0)
                return config_fail(error, &section->origin, section->title, NULL, NULL,
                                   "%s \"%s\": %s; create the %s, or give a name or number that exists", what, name,
                                   config_lookup_error(-r), what);
        return 0;
}

static int resolve_user_quota(const struct config_section *section, const struct topology *topology, struct config *config,
                              char *error) {
        struct config_user_quota *quota = &config->user_quotas[config->n_user_quotas];
        int r;

        if (config->n_user_quotas == CONFIG_MAX_USER_QUOTAS)
                return config_fail(error, &section->origin, section->title, NULL, NULL,
                                   "there can be quotas of at most %d users; remove some", CONFIG_MAX_USER_QUOTAS);
        r = find_id(section, /* group= */ false, section->name + strlen("user:"), &quota->uid, error);
        if (r < 0)
                return r;
        for (size_t i = 0; i < config->n_user_quotas; i++)
                if (config->user_quotas[i].uid == quota->uid)
                        return config_fail(error, &section->origin, section->title, NULL, NULL,
                                           "another section is for user number %u too; remove one", (unsigned) quota->uid);
        quota->quota = config->quota;
        r = resolve_keys(section, /* written_only = */ true, topology, &quota->quota, error);
        if (r < 0)
                return r;
        config->n_user_quotas++;
        return 0;
}

static int resolve_group_quota(const struct config_section *section, const struct topology *topology, struct config *config,
                               char *error) {
        struct config_group_quota *quota = &config->group_quotas[config->n_group_quotas];
        int r;

        if (config->n_group_quotas == CONFIG_MAX_GROUP_QUOTAS)
                return config_fail(error, &section->origin, section->title, NULL, NULL,
                                   "there can be quotas of at most %d groups; remove some", CONFIG_MAX_GROUP_QUOTAS);
        r = find_id(section, /* group= */ true, section->name + strlen("group:"), &quota->gid, error);
        if (r < 0)
                return r;
        for (size_t i = 0; i < config->n_group_quotas; i++)
                if (config->group_quotas[i].gid == quota->gid)
                        return config_fail(error, &section->origin, section->title, NULL, NULL,
                                           "another section is for group number %u too; remove one", (unsigned) quota->gid);
        quota->quota = config->quota;
        r = resolve_keys(section, /* written_only = */ true, topology, &quota->quota, error);
        if (r < 0)
                return r;
        config->n_group_quotas++;
        return 0;
}

static int resolve_quotas(const struct config_draft *draft, const struct topology *topology, struct config *config, char *error) {
        const struct config_section *section = NULL, *common = &no_quota;
        int r;

        while ((section = config_draft_next(draft, CONFIG_SECTION_QUOTA, section)))
                if (strcmp(section->name, "default") == 0)
                        common = section;
        config->quota.max_bytes = UINT64_MAX; /* where MaxBytes= names single page sizes only */
        r = resolve_keys(common, /* written_only = */ false, topology, &config->quota, error);
        while (r == 0 && (section = config_draft_next(draft, CONFIG_SECTION_QUOTA, section)))
                if (section != common)
                        r = strncmp(section->name, "group:", 6) == 0 ? resolve_group_quota(section, topology, config, error) :
                                                                       resolve_user_quota(section, topology, config, error);
        return r;
}

static int read_sources(struct config_draft *draft, const struct config_args *args, char *error) {
        const char *path = args->config_path ? args->config_path : HUGEZERO_CONFIG_PATH;
        int r = config_draft_read(draft, path, /* must_exist = */ args->config_path, error);

        if (r == 0 && args->socket_path)
                r = config_draft_set_socket(draft, args->socket_path, error);
        if (r == 0 && args->n_pool_specs > 0)
                r = config_draft_set_pools(draft, args->pool_specs, args->n_pool_specs, error);
        return r;
}

int config_load(const struct config_args *args, const struct topology *topology, struct config *ret_config,
                char ret_error[CONFIG_TEXT_BYTES]) {
        _cleanup_(config_draft_done) struct config_draft draft;
        const struct config_section *section;
        _cleanup_free_ struct config *config = calloc(1, sizeof(*config));
        int r;

        config_draft_init(&draft);
        if (!config) {
                (void) snprintf(ret_error, CONFIG_TEXT_BYTES, "not enough memory to read the configuration");
                return -ENOMEM;
        }
        r = read_sources(&draft, args, ret_error);
        if (r < 0)
                return r;
        section = config_draft_next(&draft, CONFIG_SECTION_DAEMON, NULL);
        config->socket_is_written = section && section->values[CONFIG_KEY_SOCKET].text;
        config->socket_mode_is_written = section && section->values[CONFIG_KEY_SOCKET_MODE].text;
        r = resolve_keys(section ? section : &no_daemon, /* written_only = */ false, topology, config, ret_error);
        if (r == 0)
                r = resolve_pools(&draft, topology, config, ret_error);
        if (r == 0)
                r = resolve_quotas(&draft, topology, config, ret_error);
        if (r == 0)
                *ret_config = *config;
        return r;
}
