/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "socket-unit.h"

#include <grp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "config.h"
#include "log.h"

static void name_group(gid_t gid, char ret_name[64]) {
        const struct group *group = getgrgid(gid);

        if (group)
                (void) snprintf(ret_name, 64, "%s", group->gr_name);
        else
                (void) snprintf(ret_name, 64, "%u", (unsigned) gid);
}

void socket_unit_compare(const char *path, const struct config *config) {
        char keys[192] = "", unit_keys[192] = "", group[64];
        bool is_elsewhere = config->socket_is_written && strcmp(path, config->socket_path) != 0, has_group, has_mode;
        struct stat st;

        if (path[0] != '/' || stat(path, &st) < 0)
                st = (struct stat){.st_gid = config->socket_gid, .st_mode = config->socket_mode}; /* it has neither */
        has_group = config->socket_group[0] && config->socket_gid != st.st_gid;
        has_mode = config->socket_mode_is_written && config->socket_mode != (st.st_mode & 0777);
        if (!is_elsewhere && !has_group && !has_mode)
                return;
        (void) snprintf(keys, sizeof(keys), "%s%s%s", is_elsewhere ? " Socket=" : "", has_group ? " SocketGroup=" : "",
                        has_mode ? " SocketMode=" : "");
        (void) snprintf(unit_keys, sizeof(unit_keys), "%s%s%s%s", is_elsewhere ? " ListenSequentialPacket=" : "",
                        has_group ? " SocketGroup=" : "", has_group ? config->socket_group : "",
                        has_mode ? " SocketMode=" : "");
        name_group(st.st_gid, group);
        log_warning(LOG_ID_SOCKET_DIFFERS, LOG_FIELDS(LOG_TEXT("SOCKET", path), LOG_TEXT("KEYS", keys + 1)),
                    "the socket %s was passed to the daemon, with group %s and mode %04o: what the configuration says of it "
                    "(%s) has no effect there. Set the same in its unit: systemctl edit hugezerod.socket, with%s below "
                    "[Socket]; then systemctl restart hugezerod.socket",
                    path, group, (unsigned) (st.st_mode & 0777), keys + 1, unit_keys);
}
