/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What each uid has, and how much it may have. */

#include <assert.h>
#include <search.h>
#include <sys/queue.h>

#include "cleanup.h"
#include "config.h"
#include "quota.h"
#include "wire.h"

#define KEPT_PART 8  /* chosen: one place of so many is kept for users who have few */
#define MOST_KEPT 64 /* chosen: places */
#define FEW 3        /* chosen: a program's, a command's, and one to spare */
#define ALWAYS 3     /* chosen: connections that an administrator may have whatever his limit says */

struct quota_user {
        uid_t uid;
        bool in_group;
        gid_t gid; /* of the section whose limits hold for it */
        TAILQ_ENTRY(quota_user) link;
        uint64_t charged[_QUOTA_KIND_MAX]; /* never all zero: the record is freed then */
};

struct quota {
        const struct config *config;
        void *users; /* tsearch tree of struct quota_user */
        TAILQ_HEAD(, quota_user) list;
        uint64_t charged_all[_QUOTA_KIND_MAX];
        uint64_t max_connections, n_kept; /* beside the configuration's */
};

static int quota_user_compare(const void *a, const void *b) {
        uid_t uid_a = ((const struct quota_user *) a)->uid, uid_b = ((const struct quota_user *) b)->uid;
        return uid_a < uid_b ? -1 : uid_a > uid_b;
}

static struct quota_user *quota_user_find(const struct quota *quota, uid_t uid) {
        struct quota_user key = {.uid = uid}, **node = tfind(&key, &quota->users, quota_user_compare);
        return node ? *node : NULL;
}

/* Frees it when it has nothing. */
static void quota_user_check(struct quota *quota, struct quota_user *user) {
        for (size_t i = 0; i < _QUOTA_KIND_MAX; i++)
                if (user->charged[i] > 0)
                        return;
        TAILQ_REMOVE(&quota->list, user, link);
        (void) tdelete(user, &quota->users, quota_user_compare);
        free(user);
}

static struct quota_user *quota_user_add(struct quota *quota, uid_t uid) {
        _cleanup_free_ struct quota_user *user = calloc(1, sizeof(*user));
        if (!user)
                return NULL;
        user->uid = uid;
        if (!tsearch(user, &quota->users, quota_user_compare))
                return NULL;
        TAILQ_INSERT_TAIL(&quota->list, user, link);
        return take_ptr(user);
}

static uint64_t limit_from_u32(uint32_t limit) {
        return limit == UINT32_MAX ? UINT64_MAX : limit; /* "infinity" */
}

static const struct config_quota *limits_of(const struct quota *quota, uid_t uid) {
        const struct config *config = quota->config;
        const struct quota_user *user;

        for (size_t i = 0; i < config->n_user_quotas; i++)
                if (config->user_quotas[i].uid == uid)
                        return &config->user_quotas[i].quota;
        user = config->n_group_quotas > 0 ? quota_user_find(quota, uid) : NULL;
        for (size_t i = 0; i < config->n_group_quotas && user && user->in_group; i++)
                if (config->group_quotas[i].gid == user->gid)
                        return &config->group_quotas[i].quota;
        return &config->quota;
}

/*
 * Chosen: a quarter of what the others leave. So who does not read keeps nobody from being served, and many who do not leave
 * something still.
 */
static uint64_t fds_limit(const struct quota *quota, uid_t uid) {
        uint64_t limit = quota_limit_all(quota, QUOTA_FDS_IN_FLIGHT);
        uint64_t others = quota->charged_all[QUOTA_FDS_IN_FLIGHT] - quota_used(quota, uid, QUOTA_FDS_IN_FLIGHT);

        return others < limit ? (limit - others) / 4 : 0;
}

static uint64_t pages_limit(const struct config_quota *limits, enum quota_kind kind) {
        for (size_t i = 0; i < limits->n_page_limits; i++)
                if (quota_kind_of_pages(QUOTA_BYTES, limits->page_limits[i].page_size_bytes) == kind)
                        return limits->page_limits[i].max_bytes;
        return UINT64_MAX;
}

static uint64_t quota_limit_user(const struct quota *quota, uid_t uid, enum quota_kind kind) {
        const struct config_quota *limits = limits_of(quota, uid);

        if (kind >= QUOTA_PAGES)
                return pages_limit(limits, kind);
        switch (kind) {
        case QUOTA_BYTES:
                return limits->max_bytes;
        case QUOTA_GRANTS:
                return limit_from_u32(limits->max_grants);
        case QUOTA_CONNECTIONS:
                return limit_from_u32(limits->max_connections);
        case QUOTA_WAITING:
                return limit_from_u32(limits->max_waiting);
        case QUOTA_REQUESTS:
                return limit_from_u32(limits->max_request_rate);
        case QUOTA_RETURNING:
                return UINT64_MAX;
        case QUOTA_FDS_IN_FLIGHT:
                return fds_limit(quota, uid);
        default:
                break;
        }
        assert(!"no such kind of quota");
        return 0;
}

uint64_t quota_limit_all(const struct quota *quota, enum quota_kind kind) {
        const struct config *config = quota->config;

        switch (kind) {
        case QUOTA_CONNECTIONS:
                return config->max_connections < quota->max_connections ? config->max_connections : quota->max_connections;
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

/*
 * The last places of all users' are for those who have few: else as few users as fill the limit with what each may have would
 * keep everybody else out for as long as they like.
 */
static bool leaves_places(const struct quota *quota, const struct quota_user *user, enum quota_kind kind, uint64_t amount) {
        uint64_t limit = quota_limit_all(quota, kind), n_kept = limit / KEPT_PART < MOST_KEPT ? limit / KEPT_PART : MOST_KEPT;

        if (kind != QUOTA_CONNECTIONS && kind != QUOTA_WAITING)
                n_kept = 0;
        return fits(user ? user->charged[kind] : 0, amount, FEW) || fits(quota->charged_all[kind], amount, limit - n_kept);
}

int quota_new(const struct config *config, struct quota **ret_quota) {
        assert(config);

        struct quota *quota = calloc(1, sizeof(*quota));
        if (!quota)
                return -ENOMEM;
        quota->config = config;
        quota->max_connections = UINT64_MAX;
        TAILQ_INIT(&quota->list);
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

void quota_cap_connections(struct quota *quota, uint64_t max_connections, uint64_t n_kept) {
        quota->max_connections = max_connections;
        quota->n_kept = n_kept;
}

void quota_set_config(struct quota *quota, const struct config *config) {
        assert(config);
        quota->config = config;
}

int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        struct quota_user *user = quota_user_find(quota, uid);

        int r = 0;

        if (!fits(user ? user->charged[kind] : 0, amount, quota_limit_user(quota, uid, kind)))
                r = -EDQUOT;
        else if (!fits(quota->charged_all[kind], amount, quota_limit_all(quota, kind)) ||
                 !leaves_places(quota, user, kind, amount))
                r = -EUSERS;
        else
                r = quota_charge_anyway(quota, uid, kind, amount);
        if (r < 0 && user)
                quota_user_check(quota, user); /* it may have joined only */
        return r;
}

int quota_charge_administrator(struct quota *quota, uid_t uid) {
        struct quota_user *user = quota_user_find(quota, uid);
        uint64_t limit = quota_limit_user(quota, uid, QUOTA_CONNECTIONS), most;
        int r;

        if (__builtin_add_overflow(quota->max_connections, quota->n_kept, &most))
                most = UINT64_MAX;
        if (!fits(user ? user->charged[QUOTA_CONNECTIONS] : 0, 1, limit > ALWAYS ? limit : ALWAYS))
                r = -EDQUOT;
        else
                r = fits(quota->charged_all[QUOTA_CONNECTIONS], 1, most) ? quota_charge_anyway(quota, uid, QUOTA_CONNECTIONS, 1)
                                                                         : -EUSERS;
        if (r < 0 && user)
                quota_user_check(quota, user);
        return r;
}

int quota_charge_anyway(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        struct quota_user *user = quota_user_find(quota, uid);
        uint64_t sum;

        if (amount == 0)
                return 0;
        if (!user)
                user = quota_user_add(quota, uid);
        if (!user)
                return -ENOMEM;
        /* What others hold is at most the machine's, so that the sum of all is what counts. */
        if (__builtin_add_overflow(quota->charged_all[kind], amount, &sum)) {
                quota_user_check(quota, user);
                return -EOVERFLOW;
        }
        user->charged[kind] += amount;
        quota->charged_all[kind] = sum;
        return 0;
}

void quota_uncharge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount) {
        if (amount == 0)
                return;

        struct quota_user *user = quota_user_find(quota, uid);
        assert(user && user->charged[kind] >= amount && quota->charged_all[kind] >= amount);
        user->charged[kind] -= amount;
        quota->charged_all[kind] -= amount;
        quota_user_check(quota, user);
}

enum quota_kind quota_kind_of_pages(enum quota_kind kind, uint64_t page_size_bytes) {
        unsigned idx = (unsigned) __builtin_ctzll(page_size_bytes) - QUOTA_FIRST_PAGE_SHIFT;

        assert(kind == QUOTA_BYTES || kind == QUOTA_RETURNING);
        assert(idx < QUOTA_N_PAGE_SIZES);
        return (kind == QUOTA_BYTES ? QUOTA_PAGES : QUOTA_PAGES_RETURNING) + idx;
}

int quota_charge_memory_anyway(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t page_size_bytes, uint64_t bytes) {
        int r = quota_charge_anyway(quota, uid, kind, bytes);

        /* There is a record by now, and those of a page size are no more than all: nothing is left that could fail. */
        return r < 0 ? r : quota_charge_anyway(quota, uid, quota_kind_of_pages(kind, page_size_bytes), bytes);
}

void quota_uncharge_memory(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t page_size_bytes, uint64_t bytes) {
        quota_uncharge(quota, uid, quota_kind_of_pages(kind, page_size_bytes), bytes);
        quota_uncharge(quota, uid, kind, bytes);
}

int quota_join(struct quota *quota, uid_t uid, const gid_t *gids, size_t n_gids) {
        const struct config *config = quota->config;
        struct quota_user *user = quota_user_find(quota, uid);

        if (!user)
                user = quota_user_add(quota, uid);
        if (!user)
                return -ENOMEM;
        user->in_group = false;
        for (size_t i = 0; i < config->n_group_quotas && !user->in_group; i++)
                for (size_t k = 0; k < n_gids; k++)
                        if (config->group_quotas[i].gid == gids[k]) {
                                user->in_group = true;
                                user->gid = gids[k];
                        }
        return 0;
}

void quota_end_second(struct quota *quota) {
        struct quota_user *user, *next;

        for (user = TAILQ_FIRST(&quota->list); user; user = next) {
                next = TAILQ_NEXT(user, link);
                quota->charged_all[QUOTA_REQUESTS] -= user->charged[QUOTA_REQUESTS];
                user->charged[QUOTA_REQUESTS] = 0;
                quota_user_check(quota, user);
        }
}

uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind) {
        const struct quota_user *user = quota_user_find(quota, uid);
        return user ? user->charged[kind] : 0;
}

bool quota_next_uid(const struct quota *quota, uid_t from, uid_t *ret_uid) {
        const struct quota_user *user, *best = NULL;

        TAILQ_FOREACH (user, &quota->list, link)
                if (user->uid >= from && (!best || user->uid < best->uid))
                        best = user;
        if (best)
                *ret_uid = best->uid;
        return best;
}

uint64_t quota_used_all(const struct quota *quota, enum quota_kind kind) {
        return quota->charged_all[kind];
}

uint64_t quota_limit(const struct quota *quota, uid_t uid, enum quota_kind kind) {
        return quota_limit_user(quota, uid, kind);
}
