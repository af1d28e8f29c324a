/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who a client is, by what the kernel recorded when it connected.
 *
 * The cgroup is read by pid, and a pid can be somebody else's by then. It counts only when the connector's pidfd says
 * afterwards that the process still lives; else the client is of no known service: its memory is not kept for it,
 * and a charge whose end only a service could tell has none while the daemon runs.
 */

#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <search.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "identity.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5, asm-generic; Debian 12's headers are older */
#endif

struct service {
        unsigned n_refs;
        uid_t uid;
        uint64_t cgroup_ino; /* a cgroup of the same name that was made anew is another one; 0: could not be told */
        const char *cgroup;  /* behind the struct */
};

static void *services; /* tsearch tree of struct service; loop thread only */

static int service_compare(const void *a, const void *b) {
        const struct service *service_a = a, *service_b = b;

        if (service_a->uid != service_b->uid)
                return service_a->uid < service_b->uid ? -1 : 1;
        if (service_a->cgroup_ino != service_b->cgroup_ino)
                return service_a->cgroup_ino < service_b->cgroup_ino ? -1 : 1;
        return strcmp(service_a->cgroup, service_b->cgroup);
}

/*
 * "36 29 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw". A mount of something below the root, or with blanks
 * (written as \040) in its path, is none where our paths could be looked up.
 */
static bool parse_cgroup_mount(const char *line, char ret_path[PATH_MAX]) {
        char root[2], path[PATH_MAX];
        const char *type = strstr(line, " - ");

        if (!type || strncmp(type, " - cgroup2 ", strlen(" - cgroup2 ")) != 0)
                return false;
        if (sscanf(line, "%*d %*d %*s %1s %4095s", root, path) != 2 || root[0] != '/' || path[0] != '/' || strchr(path, '\\'))
                return false;
        (void) strcpy(ret_path, path);
        return true;
}

/* Where the unified hierarchy is mounted; "" when it is not to be found. */
static const char *cgroup_mount(void) {
        static char mount[PATH_MAX];
        static bool searched;

        if (searched)
                return mount;
        searched = true;
        _cleanup_fclose_ FILE *stream = fopen("/proc/self/mountinfo", "re");
        _cleanup_free_ char *line = NULL;
        size_t line_bytes = 0;
        while (stream && getline(&line, &line_bytes, stream) > 0)
                if (parse_cgroup_mount(line, mount))
                        break;
        return mount;
}

/* -ENOENT: it does not exist; other negative values: that cannot be told. */
static int stat_cgroup(const char *cgroup, struct stat *ret_st) {
        const char *mount = cgroup_mount();
        char path[2 * PATH_MAX];

        /* A path of the systemd hierarchy ("name=...") is elsewhere, one outside our cgroup namespace ("/..") out of sight. */
        if (mount[0] == '\0' || cgroup[0] != '/' || strncmp(cgroup, "/..", 3) == 0)
                return -ENODATA;
        if (snprintf(path, sizeof(path), "%s%s", mount, cgroup) >= (int) sizeof(path))
                return -ENAMETOOLONG;
        if (stat(path, ret_st) < 0)
                return errno == ENOTDIR ? -ENOENT : negative_errno();
        return 0;
}

int service_get(uid_t uid, const char *cgroup_path, struct service **ret_service) {
        struct service key = {.uid = uid, .cgroup = cgroup_path}, **node;
        struct stat st;

        assert(cgroup_path);
        if (stat_cgroup(cgroup_path, &st) >= 0)
                key.cgroup_ino = st.st_ino;
        node = tfind(&key, &services, service_compare);
        if (node) {
                *ret_service = service_ref(*node);
                return 0;
        }
        size_t path_bytes = strlen(cgroup_path) + 1;
        _cleanup_free_ struct service *service = malloc(sizeof(*service) + path_bytes);
        if (!service)
                return -ENOMEM;
        *service = key;
        service->n_refs = 1;
        service->cgroup = memcpy(service + 1, cgroup_path, path_bytes);
        if (!tsearch(service, &services, service_compare))
                return -ENOMEM;
        *ret_service = take_ptr(service);
        return 0;
}

struct service *service_ref(struct service *service) {
        if (service)
                service->n_refs++;
        return service;
}

struct service *service_unref(struct service *service) {
        if (!service || --service->n_refs > 0)
                return NULL;
        (void) tdelete(service, &services, service_compare);
        free(service);
        return NULL;
}

uid_t service_uid(const struct service *service) {
        return service->uid;
}

const char *service_cgroup(const struct service *service) {
        return service->cgroup;
}

bool service_exists(const struct service *service) {
        struct stat st;
        int r = stat_cgroup(service->cgroup, &st);

        return r < 0 ? r != -ENOENT : service->cgroup_ino == 0 || st.st_ino == service->cgroup_ino;
}

int service_get_above(const struct service *service, uid_t uid, struct service **ret_service) {
        _cleanup_free_ char *path = strdup(service->cgroup);
        struct stat st;
        char *end;
        int r;

        if (!path)
                return -ENOMEM;
        do {
                end = strrchr(path, '/');
                if (!end || end == path)
                        return -ENOENT;
                *end = '\0';
                r = stat_cgroup(path, &st);
        } while (r == -ENOENT);
        return r < 0 || st.st_uid != uid ? -ENOENT : service_get(uid, path, ret_service);
}

bool service_has_end(const struct service *service) {
        return service->cgroup_ino != 0 && service->cgroup[1] != '\0';
}

/*
 * The line of the unified hierarchy, "0::/path". Where that has no structure (hosts with the old hierarchies only keep
 * everything in its root), the systemd hierarchy's, "1:name=systemd:/path": told apart from the former by keeping its name.
 */
static int read_cgroup(pid_t pid, char **ret_cgroup) {
        char path[sizeof("/proc/-2147483648/cgroup")];
        _cleanup_free_ char *unified = NULL, *named = NULL, *line = NULL;
        size_t line_bytes = 0;

        (void) snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) pid);
        _cleanup_fclose_ FILE *stream = fopen(path, "re");
        if (!stream)
                return negative_errno();
        while (getline(&line, &line_bytes, stream) > 0) {
                char *rest = strchr(line, ':');
                line[strcspn(line, "\n")] = '\0';
                if (strncmp(line, "0::/", 4) == 0 && !unified)
                        unified = strdup(line + 3);
                else if (rest && strncmp(rest + 1, "name=systemd:/", 14) == 0 && !named)
                        named = strdup(rest + 1);
        }
        bool unified_is_root = unified && strcmp(unified, "/") == 0;
        if (named && strcmp(named, "name=systemd:/") != 0 && (!unified || unified_is_root))
                *ret_cgroup = take_ptr(named);
        else if (unified || named)
                *ret_cgroup = unified ? take_ptr(unified) : take_ptr(named);
        else
                return -ENODATA;
        return 0;
}

/* Before Linux 6.5 the pidfd is of whoever has the pid now: a connector that is gone may have been replaced until then. */
static int open_peer_pidfd(int socket_fd, pid_t pid) {
        int pidfd;
        socklen_t length = sizeof(pidfd);

        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) >= 0)
                return pidfd;
        if (errno != ENOPROTOOPT)
                return negative_errno();
        pidfd = pidfd_open(pid, 0);
        return pidfd < 0 ? negative_errno() : pidfd;
}

static int read_service(int socket_fd, const struct ucred *cred, struct service **ret_service) {
        _cleanup_free_ char *cgroup = NULL;
        int r;

        _cleanup_close_ int pidfd = open_peer_pidfd(socket_fd, cred->pid);
        if (pidfd < 0)
                return pidfd;
        r = read_cgroup(cred->pid, &cgroup);
        if (r < 0)
                return r;
        struct pollfd exited = {.fd = pidfd, .events = POLLIN};
        if (poll(&exited, 1, /* timeout_ms */ 0) != 0)
                return -ESRCH;
        return service_get(cred->uid, cgroup, ret_service);
}

int identity_read(int socket_fd, struct identity *ret_identity) {
        struct ucred cred;
        socklen_t length = sizeof(cred);

        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
                return negative_errno();
        *ret_identity = (struct identity){.uid = cred.uid, .gid = cred.gid, .pid = cred.pid > 0 ? cred.pid : 0};
        /* Not being told the service is no failure: the client is served, what it gives back is not re-used in place. */
        if (ret_identity->pid > 0 && read_service(socket_fd, &cred, &ret_identity->service) < 0)
                ret_identity->service = NULL;
        return 0;
}

int identity_read_groups(int socket_fd, struct identity_groups *ret_groups) {
        socklen_t length = 0;

        /* They are fixed since the connect(): the first call tells their length. */
        if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &length) < 0 && errno != ERANGE)
                return negative_errno();
        _cleanup_free_ gid_t *gids = malloc(length > 0 ? length : 1);
        if (!gids)
                return -ENOMEM;
        if (length > 0 && getsockopt(socket_fd, SOL_SOCKET, SO_PEERGROUPS, gids, &length) < 0)
                return negative_errno();
        *ret_groups = (struct identity_groups){.gids = take_ptr(gids), .n = length / sizeof(gid_t)};
        return 0;
}

void identity_groups_done(struct identity_groups *groups) {
        free(groups->gids);
        *groups = (struct identity_groups){};
}

void identity_done(struct identity *identity) {
        identity->service = service_unref(identity->service);
}
