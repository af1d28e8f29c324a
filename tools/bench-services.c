/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two services for a measurement. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "bench-services.h"
#include "cleanup.h"
#include "ctl.h"

#define NOBODY 65534 /* kernel: overflowuid; has no rights anywhere */

/* How somebody ends us who has had enough of it. */
static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
#define N_ENDS (sizeof(ends) / sizeof(ends[0]))
static struct bench_services *to_clean_up; /* for the signal handler; written while the signals are blocked */

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

static void block_ends(sigset_t *ret_before) {
        sigset_t signals;
        (void) sigemptyset(&signals);
        for (size_t idx = 0; idx < N_ENDS; idx++)
                (void) sigaddset(&signals, ends[idx]);
        (void) sigprocmask(SIG_BLOCK, &signals, ret_before);
}

/* Nothing in here but what signal-safety(7) allows. The signal comes again as soon as this returns, and ends us. */
static void on_end(int number) {
        struct bench_services *services = to_clean_up;
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++)
                if (services->pids[idx] > 0)
                        (void) kill(services->pids[idx], SIGKILL);
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++)
                if (services->pids[idx] > 0)
                        (void) waitpid(services->pids[idx], NULL, 0); /* only then their cgroups can be removed */
        remove_cgroups(services);
        (void) signal(number, SIG_DFL);
        (void) raise(number);
}

/* What was ignored, as nohup(1) has it, stays so. */
static void set_handlers(void (*handler)(int)) {
        struct sigaction before, action = {.sa_handler = handler};
        (void) sigemptyset(&action.sa_mask);
        for (size_t idx = 0; idx < N_ENDS; idx++)
                (void) sigaddset(&action.sa_mask, ends[idx]); /* one after the other */
        for (size_t idx = 0; idx < N_ENDS; idx++)
                if (sigaction(ends[idx], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
                        (void) sigaction(ends[idx], &action, NULL);
}

void bench_services_init(struct bench_services *services) {
        sigset_t before;
        *services = (struct bench_services){.kind = BENCH_SERVICES_CGROUPS};
        block_ends(&before);
        if (!make_cgroups(services)) {
                remove_cgroups(services);
                services->kind = geteuid() == 0 ? BENCH_SERVICES_USERS : BENCH_SERVICES_ONE;
        }
        to_clean_up = services;
        set_handlers(on_end);
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
}

static int enter(const struct bench_services *services, size_t idx) {
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

int bench_services_fork(struct bench_services *services, size_t idx) {
        sigset_t before;
        block_ends(&before);
        pid_t parent = getpid(), pid = fork();
        int r = pid < 0 ? negative_errno() : pid > 0;
        if (pid > 0)
                services->pids[idx] = pid;
        if (pid == 0) {
                set_handlers(SIG_DFL);
                int enter_r = enter(services, idx);
                if (enter_r < 0)
                        ctl_error("becoming a service of its own: %s", strerror(-enter_r));
                (void) prctl(PR_SET_PDEATHSIG, SIGKILL); /* last: the kernel forgets it when the user changes */
                if (enter_r < 0 || getppid() != parent)
                        _exit(CTL_EXIT_FAILED);
        }
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
        return r;
}

int bench_services_wait(struct bench_services *services, size_t idx) {
        siginfo_t info = {};
        sigset_t before;
        if (services->pids[idx] == 0)
                return -ESRCH;
        /* Left as it is until the signals are blocked: its number must not be another's when it is killed. */
        if (waitid(P_PID, (id_t) services->pids[idx], &info, WEXITED | WNOWAIT) < 0)
                return negative_errno();
        block_ends(&before);
        (void) waitpid(services->pids[idx], NULL, 0);
        services->pids[idx] = 0;
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
        return info.si_code == CLD_EXITED ? info.si_status : -ECHILD;
}

void bench_services_done(struct bench_services *services) {
        sigset_t before;
        block_ends(&before);
        remove_cgroups(services);
        set_handlers(SIG_DFL);
        (void) sigprocmask(SIG_SETMASK, &before, NULL);
}

const char *bench_services_name(const struct bench_services *services) {
        static const char *const names[] = {"cgroups", "users", "one"};
        return names[services->kind];
}
