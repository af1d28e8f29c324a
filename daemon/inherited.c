/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the service manager passed at start: the socket, and what the predecessor had stored. */

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "cleanup.h"
#include "log.h"
#include "warm.h"

/* "s" and the number in base 36, at most four characters. Negative: not such a name. */
static int slot_of_name(const char *name) {
        char *end;
        long slot;

        if (name[0] != 's' || name[1] == 0 || strlen(name) > 4 || name[1] == '-' || name[1] == '+')
                return -EINVAL;
        slot = strtol(name + 1, &end, 36);
        return *end == 0 && slot >= 0 && slot < LEDGER_MAX_RECORDS ? (int) slot : -EINVAL;
}

static void take_metrics(struct inherited *inherited, int fd) {
        if (inherited->n_metrics < MAX_METRICS_SOCKETS) {
                inherited->metrics_fds[inherited->n_metrics++] = fd;
                return;
        }
        log_warning(LOG_ID_NO_METRICS, LOG_NO_FIELDS,
                    "metrics are served on the first %d sockets that were passed for them, ignoring another one",
                    MAX_METRICS_SOCKETS);
        (void) safe_close(fd);
}

/* It may be in the store, where it would stay, with whatever memory it is: of a daemon that knew more than this one. */
static void forget_stored(const char *name) {
        char text[300]; /* the manager's names have up to 255 characters */

        (void) snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
        (void) sd_notify(/* unset_environment= */ 0, text);
}

static int take_one(struct inherited *inherited, const char *name, int fd) {
        int slot = slot_of_name(name);

        if (strcmp(name, "ledg") == 0 && inherited->ledger_fd < 0)
                inherited->ledger_fd = fd;
        else if (strcmp(name, "inot") == 0 && inherited->inotify_fd < 0)
                inherited->inotify_fd = fd;
        else if (slot >= 0 && inherited->n_extents < WARM_MAX_INHERITED)
                inherited->extents[inherited->n_extents++] = (struct inherited_extent) {.slot = slot, .fd = fd};
        else if (strcmp(name, "metrics") == 0 && sd_is_socket(fd, AF_UNSPEC, 0, -1) > 0)
                take_metrics(inherited, fd);
        else if (sd_is_socket(fd, AF_UNSPEC, 0, -1) > 0) {
                if (inherited->listen_fd >= 0) {
                        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", EINVAL)),
                                  "the service manager passed more than one socket for clients (\"%s\" is too many); a drop-in of "
                                  "its unit that listens elsewhere begins with an empty ListenSequentialPacket=, and sockets for "
                                  "metrics have FileDescriptorName=metrics", name);
                        (void) safe_close(fd);
                        return -EINVAL;
                }
                inherited->listen_fd = fd;
        } else {
                log_warning(LOG_ID_UNKNOWN_FD, LOG_FIELDS(LOG_TEXT("FD_NAME", name)),
                            "the service manager passed \"%s\", which means nothing here, ignoring", name);
                (void) safe_close(fd);
                forget_stored(name);
        }
        return 0;
}

int inherited_take(struct inherited *ret_inherited) {
        char **names = NULL;
        int n_fds, r = 0;

        ret_inherited->listen_fd = ret_inherited->ledger_fd = ret_inherited->inotify_fd = -EBADF;
        ret_inherited->n_extents = ret_inherited->n_metrics = 0;
        n_fds = sd_listen_fds_with_names(/* unset_environment= */ 1, &names);
        for (int i = 0; i < n_fds; i++) {
                int q = take_one(ret_inherited, names[i], SD_LISTEN_FDS_START + i);

                if (q < 0)
                        r = q;
                free(names[i]);
        }
        free(names);
        if (n_fds < 0)
                log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -n_fds)),
                          "taking the descriptors of the service manager failed: %s; LISTEN_PID=, LISTEN_FDS= and LISTEN_FDNAMES= in the "
                          "environment do not say what was passed", strerror(-n_fds));
        return n_fds < 0 ? n_fds : r;
}

bool inherited_socket_path(const struct inherited *inherited, char ret_path[INHERITED_PATH_BYTES]) {
        struct sockaddr_un address = {};
        socklen_t n_bytes = sizeof(address);

        static_assert(sizeof(address.sun_path) < INHERITED_PATH_BYTES, "the kernel's need not be terminated");
        if (inherited->listen_fd < 0 || getsockname(inherited->listen_fd, (struct sockaddr *) &address, &n_bytes) < 0 ||
            address.sun_family != AF_UNIX || n_bytes <= offsetof(struct sockaddr_un, sun_path))
                return false;
        if (n_bytes > sizeof(address))
                n_bytes = sizeof(address);
        (void) memset(ret_path, 0, INHERITED_PATH_BYTES);
        (void) memcpy(ret_path, address.sun_path, n_bytes - offsetof(struct sockaddr_un, sun_path));
        if (ret_path[0] == 0)
                ret_path[0] = '@'; /* an abstract name, as ss(8) writes it */
        return true;
}

gid_t inherited_socket_gid(const struct inherited *inherited) {
        char path[INHERITED_PATH_BYTES];
        struct stat st;

        if (!inherited_socket_path(inherited, path) || path[0] != '/' || stat(path, &st) < 0 || st.st_gid == 0)
                return (gid_t) -1;
        return geteuid() == 0 || getegid() == st.st_gid || group_member(st.st_gid) ? st.st_gid : (gid_t) -1;
}

void inherited_done(struct inherited *inherited) {
        inherited->listen_fd = safe_close(inherited->listen_fd);
        inherited->ledger_fd = safe_close(inherited->ledger_fd);
        inherited->inotify_fd = safe_close(inherited->inotify_fd);
        for (size_t i = 0; i < inherited->n_metrics; i++)
                inherited->metrics_fds[i] = safe_close(inherited->metrics_fds[i]);
        for (size_t i = 0; i < inherited->n_extents; i++)
                inherited->extents[i].fd = safe_close(inherited->extents[i].fd);
}
