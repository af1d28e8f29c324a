/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Two services in the daemon's sense (same user and same cgroup), made for a measurement. */
#pragma once

#include <stddef.h>

enum { BENCH_N_SERVICES = 2 };

enum bench_services_kind {
        BENCH_SERVICES_CGROUPS, /* two cgroups of version 2, removed at the end */
        BENCH_SERVICES_USERS,   /* two users: our own, and nobody */
        BENCH_SERVICES_ONE,     /* neither can be had: both are the same service */
};

struct bench_services {
        enum bench_services_kind kind;
        char cgroups[BENCH_N_SERVICES][512];
};

/* Takes the first kind that can be had. */
void bench_services_init(struct bench_services *services);
/* In a process of its own, before it connects: it becomes service @idx. Returns 0 or a negative errno. */
int bench_services_enter(const struct bench_services *services, size_t idx);
/* When its processes are gone. */
void bench_services_done(struct bench_services *services);
/* "two cgroups" and so on. */
const char *bench_services_name(const struct bench_services *services);
