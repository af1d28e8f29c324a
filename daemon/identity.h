/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who a client is. A service is the trust domain of re-use: same uid and same cgroup path, read when the client connects.
 * Loop thread only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct service; /* interned: two equal services are one object, compare by pointer; reference-counted */

#define SERVICE_OF_ALL ((uid_t) -1) /* the uid of the service of all who trust each other */

struct identity {
        uid_t uid;
        gid_t gid;
        pid_t pid;              /* as the daemon sees it; 0 when it cannot */
        struct service *service; /* owned reference; NULL: could not be told, so equal to nobody's */
};

/* SO_PEERCRED and /proc/PID/cgroup (checked against pid re-use). Returns 0 or a negative errno. */
int identity_read(int socket_fd, struct identity *ret_identity);
void identity_done(struct identity *identity);

struct identity_groups {
        gid_t *gids; /* owned */
        size_t n;
};

/* The supplementary groups that the client had when it connected (SO_PEERGROUPS). */
int identity_read_groups(int socket_fd, struct identity_groups *ret_groups);
void identity_groups_done(struct identity_groups *groups);

/* @cgroup_path is copied. */
int service_get(uid_t uid, const char *cgroup_path, struct service **ret_service);
struct service *service_ref(struct service *service);
struct service *service_unref(struct service *service); /* takes NULL, returns NULL */
uid_t service_uid(const struct service *service);
const char *service_cgroup(const struct service *service);
/* Does its cgroup still exist, not made anew? True when that cannot be told. */
bool service_exists(const struct service *service);
/*
 * Of a service whose cgroup is gone: that of the nearest one above it that is there, where it belongs to @uid. -ENOENT: it does not,
 * or cannot be told.
 */
int service_get_above(const struct service *service, uid_t uid, struct service **ret_service);
/* Will service_exists() say so when it is over? Not for the root cgroup, nor where cgroups are out of sight. */
bool service_has_end(const struct service *service);
