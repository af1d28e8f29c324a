/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "access.h"
#include "cleanup.h"

static bool is_listed(const struct config_ids *ids, uint32_t id) {
        for (uint32_t i = 0; i < ids->n; i++)
                if (ids->ids[i] == id)
                        return true;
        return false;
}

bool access_is_administrator(const struct config *config, uid_t uid) {
        return uid == 0 || uid == geteuid() || is_listed(&config->admin_users, uid);
}

bool access_is_trusted(const struct config *config, uid_t uid) {
        return config->trusted_users.all || is_listed(&config->trusted_users, uid);
}

bool access_may_connect(const struct config *config, const struct identity *identity, const struct identity_groups *groups) {
        /* One list alone is a list of all who may: the other one's default does not let in everybody. */
        if ((config->allow_users.all && config->allow_groups.all) || access_is_administrator(config, identity->uid) ||
            is_listed(&config->allow_users, identity->uid) || is_listed(&config->allow_groups, identity->gid))
                return true;
        for (size_t i = 0; i < groups->n; i++)
                if (is_listed(&config->allow_groups, groups->gids[i]))
                        return true;
        return false;
}

bool access_sees_all_users(const char *map_path) {
        _cleanup_fclose_ FILE *stream = fopen(map_path, "re");
        uint64_t n_total = 0, n_mapped;

        if (!stream)
                return false;
        while (fscanf(stream, "%*u %*u %" SCNu64, &n_mapped) == 1)
                n_total += n_mapped;
        return n_total >= UINT32_MAX; /* the kernel: all but (uid_t) -1 */
}
