/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two services for a measurement. */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "bench-services.h"
#include "cleanup.h"

#define NOBODY 65534 /* kernel: overflowuid; has no rights anywhere */

/* The folder of our own cgroup in the unified hierarchy; false when there is none in the usual places. */
static bool own_cgroup(char *path, size_t n_bytes) {
        static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
        char line[256];
        _cleanup_fclose_ FILE *file = fopen("/proc/self/cgroup", "re");
        while (file && fgets(line, sizeof(line), file)) {
                line[strcspn(line, "\n")] = '\0';
                if (strncmp(line, "0::/", 4) != 0)
                        continue;
                for (size_t idx = 0; idx < sizeof(mounts) / sizeof(mounts[0]); idx++) {
                        char procs[512];
                        const char *own = strcmp(line, "0::/") == 0 ? "" : line + 3;
                        (void) snprintf(procs, sizeof(procs), "%s/cgroup.controllers", mounts[idx]);
                        if (access(procs, F_OK) == 0)
                                return snprintf(path, n_bytes, "%s%s", mounts[idx], own) < (int) n_bytes;
                }
        }
        return false;
}

static int join(const char *cgroup) {
        char path[600];
        (void) snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
        _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
        if (fd < 0 || write(fd, "0", 1) != 1) /* 0: who writes */
                return negative_errno();
        return 0;
}

/* Moving there and back shows whether the kernel lets us. */
static bool make_cgroups(struct bench_services *services) {
        char own[400];
        if (!own_cgroup(own, sizeof(own)))
                return false;
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++) {
                char *cgroup = services->cgroups[idx];
                (void) snprintf(cgroup, sizeof(services->cgroups[idx]), "%s/hugezero-bench-%d-%zu", own, (int) getpid(), idx);
                if (mkdir(cgroup, 0755) < 0) {
                        cgroup[0] = '\0';
                        return false;
                }
                if (join(cgroup) < 0 || join(own) < 0)
                        return false;
        }
        return true;
}

static void remove_cgroups(struct bench_services *services) {
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++)
                if (services->cgroups[idx][0] != '\0')
                        (void) rmdir(services->cgroups[idx]);
        memset(services->cgroups, 0, sizeof(services->cgroups));
}

void bench_services_init(struct bench_services *services) {
        *services = (struct bench_services){.kind = BENCH_SERVICES_CGROUPS};
        if (make_cgroups(services))
                return;
        remove_cgroups(services);
        services->kind = geteuid() == 0 ? BENCH_SERVICES_USERS : BENCH_SERVICES_ONE;
}

int bench_services_enter(const struct bench_services *services, size_t idx) {
        switch (services->kind) {
        case BENCH_SERVICES_CGROUPS:
                return join(services->cgroups[idx]);
        case BENCH_SERVICES_USERS:
                /* The effective one is what the kernel tells the daemon. */
                return idx > 0 && seteuid(NOBODY) < 0 ? negative_errno() : 0;
        default:
                return 0;
        }
}

void bench_services_done(struct bench_services *services) {
        remove_cgroups(services);
}

const char *bench_services_name(const struct bench_services *services) {
        static const char *const names[] = {"cgroups", "users", "one"};
        return names[services->kind];
}
