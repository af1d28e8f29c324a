/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One request for everything that the --grant options of run and hold name. */
#pragma once

#include "ctl-grant-spec.h"
#include "ctl.h"

struct ctl_acquire {
        struct ctl_grant_spec specs[HUGEZERO_MAX_ITEMS];
        const char *texts[HUGEZERO_MAX_ITEMS]; /* what @specs were written as */
        size_t n_specs;
        uint32_t miss; /* HUGEZERO_MISS_... */
        int32_t timeout_ms;
        bool is_plain; /* --no-reopen */
};

/* These say what is wrong and return an exit code. */
int ctl_acquire_add(struct ctl_acquire *acquire, const char *verb, const char *spec);
/* --wait and --fill; @next as for ctl_parse_wait(). */
int ctl_acquire_set_miss(struct ctl_acquire *acquire, const char *verb, int option, const char *value, const char *next);

/*
 * ctl_acquire_get - connect, acquire, and close the connection: the grant needs none
 * The paths of the grant can be opened by this process and its children.
 * The daemon gives reopenable grants to members of its SocketGroup= only. Where it has no such group, root and the daemon's own
 * user can open a plain grant just as well, and get one.
 */
int ctl_acquire_get(const struct ctl *ctl, const struct ctl_acquire *acquire, struct hugezero_grant **ret_grant);
