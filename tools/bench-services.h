/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two services in the daemon's sense (same user and same cgroup), made for a measurement. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { BENCH_N_SERVICES = 2 };

enum bench_services_kind {
        BENCH_SERVICES_CGROUPS, /* two cgroups of version 2, removed at the end */
        BENCH_SERVICES_USERS,   /* two users: our own, and nobody */
        BENCH_SERVICES_ONE,     /* neither can be had: both are the same service */
};

struct bench_services {
        enum bench_services_kind kind;
        char cgroups[BENCH_N_SERVICES][512];
        pid_t pids[BENCH_N_SERVICES]; /* 0: none */
};

/* Takes the first kind that can be had. From here to bench_services_done() a signal that ends us ends the services, too, and
 * removes the cgroups. */
void bench_services_init(struct bench_services *services);
/* Starts a process that is service @idx, and has to end by _exit(). Returns 0 there; here 1 or a negative errno. */
int bench_services_fork(struct bench_services *services, size_t idx);
/* Waits for its end. Returns its exit code; a negative errno when it has none. */
int bench_services_wait(struct bench_services *services, size_t idx);
/* When its processes are gone. */
void bench_services_done(struct bench_services *services);
/* "two cgroups" and so on. */
const char *bench_services_name(const struct bench_services *services);
