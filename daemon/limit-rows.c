/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "limit-rows.h"
#include "quota.h"

/* By the kind on the wire. */
static const enum quota_kind kinds[] = {
        [WIRE_LIMIT_BYTES] = QUOTA_BYTES,       [WIRE_LIMIT_GRANTS] = QUOTA_GRANTS,
        [WIRE_LIMIT_CONNECTIONS] = QUOTA_CONNECTIONS, [WIRE_LIMIT_WAITING] = QUOTA_WAITING,
        [WIRE_LIMIT_REQUESTS] = QUOTA_REQUESTS, [WIRE_LIMIT_FDS_IN_FLIGHT] = QUOTA_FDS_IN_FLIGHT,
};
#define MAX_KIND WIRE_LIMIT_FDS_IN_FLIGHT

static bool next_uid(const struct quota *quota, const struct identity *identity, bool all, uid_t from, uid_t *ret_uid) {
        if (!all) {
                *ret_uid = identity->uid;
                return identity->uid >= from;
        }
        if (!quota_next_uid(quota, from, ret_uid))
                *ret_uid = WIRE_LIMIT_ALL_UIDS;
        return true;
}

static void fill_row(const struct quota *quota, uid_t uid, uint16_t kind, struct wire_limit_row *ret_row) {
        bool together = uid == WIRE_LIMIT_ALL_UIDS;

        *ret_row = (struct wire_limit_row){
                .uid = uid,
                .kind = kind,
                .used = together ? quota_used_all(quota, kinds[kind]) : quota_used(quota, uid, kinds[kind]),
                .limit = together ? quota_limit_all(quota, kinds[kind]) : quota_limit(quota, uid, kinds[kind]),
        };
}

void limits_fill(const struct quota *quota, const struct identity *identity, bool all, const struct wire_c_limits *from,
                 struct wire_d_limits *ret_limits) {
        uint16_t first_kind = from->after_kind < MAX_KIND ? (uint16_t) (from->after_kind + 1) : MAX_KIND + 1;
        uid_t uid = from->after_uid;

        ret_limits->n_rows = ret_limits->more = 0;
        for (; next_uid(quota, identity, all, uid, &uid); uid++, first_kind = 1) {
                if (uid != from->after_uid)
                        first_kind = 1;
                for (uint16_t kind = first_kind; kind <= MAX_KIND; kind++) {
                        if (ret_limits->n_rows == WIRE_MAX_LIMIT_ROWS) {
                                ret_limits->more = 1;
                                return;
                        }
                        fill_row(quota, uid, kind, &ret_limits->rows[ret_limits->n_rows++]);
                }
                if (uid == WIRE_LIMIT_ALL_UIDS || !all)
                        return;
        }
}
