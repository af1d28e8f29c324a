/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
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

/* Tried, because membership is not all that decides: root may lack the capability, and a member be filtered. */
static int try_group(gid_t gid) {
        _cleanup_close_ int fd = memfd_create("hugezero-group", MFD_CLOEXEC);

        return fd < 0 || fchown(fd, (uid_t) -1, gid) < 0 ? negative_errno() : 0;
}

int access_check_group(const struct config *config, char ret_error[CONFIG_TEXT_BYTES]) {
        char user[64];
        const struct passwd *passwd;
        int r = config->socket_group[0] ? try_group(config->socket_gid) : 0;

        if (r >= 0)
                return 0;
        passwd = getpwuid(geteuid());
        if (passwd)
                (void) snprintf(user, sizeof(user), "%s", passwd->pw_name);
        else
                (void) snprintf(user, sizeof(user), "%u", (unsigned) geteuid());
        (void) snprintf(ret_error, CONFIG_TEXT_BYTES,
                        "[Daemon] SocketGroup=%s: the user %s cannot give memory to this group: %s. hugezerod must be a "
                        "member: \"usermod -aG %s USER\" for the user that it runs as, hugezero in its unit, and start "
                        "it again",
                        config->socket_group, user, r == -EPERM ? "it is no member" : strerror(-r), config->socket_group);
        return r;
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
