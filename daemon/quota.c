/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What each uid has, and how much it may have. */

#include <assert.h>
#include <search.h>

#include "cleanup.h"
#include "config.h"
#include "quota.h"
#include "wire.h"

struct quota_user {
        uid_t uid;
        uint64_t charged[_QUOTA_KIND_MAX]; /* never all zero: the record is freed then */
};

struct quota {
        const struct config *config;
        void *users; /* tsearch tree of struct quota_user */
        uint64_t charged_all[_QUOTA_KIND_MAX];
};

static int quota_user_compare(const void *a, const void *b) {
        uid_t uid_a = ((const struct quota_user *) a)->uid, uid_b = ((const struct quota_user *) b)->uid;
        return uid_a < uid_b ? -1 : uid_a > uid_b;
}

static struct quota_user *quota_user_find(const struct quota *quota, uid_t uid) {
        struct quota_user key = {.uid = uid}, **node = tfind(&key, &quota->users, quota_user_compare);
        return node ? *node : NULL;
}

static struct quota_user *quota_user_add(struct quota *quota, uid_t uid) {
        _cleanup_free_ struct quota_user *user = calloc(1, sizeof(*user));
        if (!user)
                return NULL;
        user->uid = uid;
        if (!tsearch(user, &quota->users, quota_user_compare))
                return NULL;
        return take_ptr(user);
}

static uint64_t limit_from_u32(uint32_t limit) {
        return limit == UINT32_MAX ? UINT64_MAX : limit; /* "infinity" */
}

static uint64_t quota_limit_user(const struct config *config, uid_t uid, enum quota_kind kind) {
        const struct config_quota *limits = &config->quota;

        for (size_t i = 0; i < config->n_user_quotas; i++)
                if (config->user_quotas[i].uid == uid)
                        limits = &config->user_quotas[i].quota;
        switch (kind) {
        case QUOTA_BYTES:
                return limits->max_bytes;
        case QUOTA_GRANTS:
                return limit_from_u32(limits->max_grants);
        case QUOTA_CONNECTIONS:
                return limit_from_u32(limits->max_connections);
        case QUOTA_WAITING:
                return limit_from_u32(limits->max_waiting);
        case QUOTA_FDS_IN_FLIGHT:
                /* Chosen: who does not read cannot keep the rest from being served. */
                return config->max_fds_in_flight / 4 > WIRE_MAX_FDS ? config->max_fds_in_flight / 4 : WIRE_MAX_FDS;
        case _QUOTA_KIND_MAX:
                break;
        }
        assert(!"no such kind of quota");
        return 0;
}

static uint64_t quota_limit_all(const struct config *config, enum quota_kind kind) {
        switch (kind) {
        case QUOTA_CONNECTIONS:
                return limit_from_u32(config->max_connections);
        case QUOTA_WAITING:
                return limit_from_u32(config->max_waiting);
        case QUOTA_FDS_IN_FLIGHT:
                return config->max_fds_in_flight > WIRE_MAX_FDS ? config->max_fds_in_flight : WIRE_MAX_FDS;
        default:
                return UINT64_MAX;
        }
}

/* Written so that no sum can wrap. The charge may be above the limit already, after a reload that lowered it. */
static bool fits(uint64_t charged, uint64_t amount, uint64_t limit) {
        return charged <= limit && amount <= limit - charged;
}

int quota_new(const struct config *config, struct quota **ret_quota) {
        assert(config);

        struct quota *quota = calloc(1, sizeof(*quota));
        if (!quota)
                return -ENOMEM;
        quota->config = config;
        *ret_quota = quota;
        return 0;
}

struct quota *quota_free(struct quota *quota) {
        if (!quota)
                return NULL;
        assert(!quota->users);
        free(quota);
        return NULL;
}

void quota_set_config(struct quota *quota, const struct config *config) {
        assert(config);
        quota->config = config;
}

int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        struct quota_user *user = quota_user_find(quota, uid);

        if (!fits(user ? user->charged[kind] : 0, amount, quota_limit_user(quota->config, uid, kind)))
                return -EDQUOT;
        if (!fits(quota->charged_all[kind], amount, quota_limit_all(quota->config, kind)))
                return -EUSERS;
        return quota_charge_anyway(quota, uid, kind, amount);
}

int quota_charge_anyway(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        struct quota_user *user = quota_user_find(quota, uid);

        if (amount == 0)
                return 0;
        if (!user)
                user = quota_user_add(quota, uid);
        if (!user)
                return -ENOMEM;
        user->charged[kind] += amount;
        quota->charged_all[kind] += amount;
        return 0;
}

void quota_uncharge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        if (amount == 0)
                return;

        struct quota_user *user = quota_user_find(quota, uid);
        assert(user && user->charged[kind] >= amount && quota->charged_all[kind] >= amount);
        user->charged[kind] -= amount;
        quota->charged_all[kind] -= amount;
        for (size_t i = 0; i < _QUOTA_KIND_MAX; i++)
                if (user->charged[i] > 0)
                        return;
        (void) tdelete(user, &quota->users, quota_user_compare);
        free(user);
}

uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind) {
        const struct quota_user *user = quota_user_find(quota, uid);
        return user ? user->charged[kind] : 0;
}

uint64_t quota_used_all(const struct quota *quota, enum quota_kind kind) {
        return quota->charged_all[kind];
}

uint64_t quota_limit(const struct quota *quota, uid_t uid, enum quota_kind kind) {
        return quota_limit_user(quota->config, uid, kind);
}
