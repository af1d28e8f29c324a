/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Who is served, who administers, who trusts whom: the lists of the configuration against what the kernel says of a client. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "config.h"
#include "identity.h"

/* @groups: from identity_read_groups(). Administrators always may. */
bool access_may_connect(const struct config *config, const struct identity *identity, const struct identity_groups *groups);
/* Root, the daemon's own user, and those of AdminUsers=. */
bool access_is_administrator(const struct config *config, uid_t uid);
bool access_is_trusted(const struct config *config, uid_t uid);
/* Whether the daemon can give files to SocketGroup=. Returns 0, or a negative errno with @ret_error: why not, and what to do. */
int access_check_group(const struct config *config, char ret_error[CONFIG_TEXT_BYTES]);
/*
 * False where the daemon sees several users as one, because users are missing in the map of its user namespace: those are all
 * the kernel's overflow user then.
 */
bool access_sees_all_users(const char *map_path);
