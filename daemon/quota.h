/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What each uid has: bytes, grants, connections, waiting requests, descriptors in flight. Every charge has its uncharge. Loop
 * thread, no system calls.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct config;
struct quota;

#define QUOTA_FIRST_PAGE_SHIFT 12 /* 4 KiB to 32 GiB; kernels have hugepages of 16 KiB (powerpc) to 16 GiB */
#define QUOTA_N_PAGE_SIZES 24

enum quota_kind {
        QUOTA_BYTES,
        QUOTA_GRANTS,
        QUOTA_CONNECTIONS,
        QUOTA_WAITING,
        QUOTA_REQUESTS,      /* in this second: quota_end_second() takes them off */
        QUOTA_RETURNING,     /* of the bytes: on their way back, as far as is known; no limit */
        QUOTA_FDS_IN_FLIGHT, /* sent and unread; a uid may have a quarter of what others leave of MaxFdsInFlight= */
        QUOTA_PAGES,         /* the first of QUOTA_N_PAGE_SIZES: of the bytes, those in pages of one size */
        QUOTA_PAGES_RETURNING = QUOTA_PAGES + QUOTA_N_PAGE_SIZES, /* the same of those on their way back */
        _QUOTA_KIND_MAX = QUOTA_PAGES_RETURNING + QUOTA_N_PAGE_SIZES
};

/* @kind: QUOTA_BYTES or QUOTA_RETURNING. @page_size_bytes: one that the kernel has. */
enum quota_kind quota_kind_of_pages(enum quota_kind kind, uint64_t page_size_bytes);

/* @config: borrowed, for the limits; must outlive the quota or be replaced by quota_set_config(). */
int quota_new(const struct config *config, struct quota **ret_quota);
struct quota *quota_free(struct quota *quota); /* all charges must be gone: asserted */
void quota_set_config(struct quota *quota, const struct config *config);
/* So many connections of all uids at most, whatever the configuration says, and @n_kept more for administrators. */
void quota_cap_connections(struct quota *quota, uint64_t max_connections, uint64_t n_kept);
/* 0; -EDQUOT: the uid's limit; -EUSERS: the limit over all uids (not bytes, grants); -ENOMEM. Nothing is charged on failure. */
int quota_charge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount);
/*
 * A connection of an administrator, who is to end what keeps others out. -EDQUOT: beyond the uid's limit, and some that he has
 * anyway; -EUSERS: beyond what quota_cap_connections() said.
 */
int quota_charge_administrator(struct quota *quota, uid_t uid);
/*
 * The limits of the first [Quota group:...] section that names one of @gids hold for the uid from now on, unless it has a
 * section of its own. They are forgotten with its last charge; so before the charge for a connection.
 */
int quota_join(struct quota *quota, uid_t uid, const gid_t *gids, size_t n_gids);
void quota_end_second(struct quota *quota);
/*
 * For what the uid has already, whatever its limit says now. 0 or -ENOMEM; -EOVERFLOW: of all users together it would be more than
 * 2^64, which what the machine has is not: callers charge no more than that.
 */
int quota_charge_anyway(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount);
void quota_uncharge(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t amount);
/* Memory is charged by these alone: QUOTA_BYTES or QUOTA_RETURNING, and the same of its page size. 0; -ENOMEM: neither. */
int quota_charge_memory_anyway(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t page_size_bytes, uint64_t bytes);
void quota_uncharge_memory(struct quota *quota, uid_t uid, enum quota_kind kind, uint64_t page_size_bytes, uint64_t bytes);
uint64_t quota_used(const struct quota *quota, uid_t uid, enum quota_kind kind);
/* The smallest uid from @from on that has anything; false: there is none. */
bool quota_next_uid(const struct quota *quota, uid_t from, uid_t *ret_uid);
uint64_t quota_used_all(const struct quota *quota, enum quota_kind kind);
uint64_t quota_limit_all(const struct quota *quota, enum quota_kind kind);
uint64_t quota_limit(const struct quota *quota, uid_t uid, enum quota_kind kind); /* UINT64_MAX: none */
