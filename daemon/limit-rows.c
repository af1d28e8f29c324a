/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "limit-rows.h"
#include "quota.h"

/* By the kind on the wire; behind them come those of the page sizes. */
static const enum quota_kind kinds[] = {
        [WIRE_LIMIT_BYTES] = QUOTA_BYTES,       [WIRE_LIMIT_GRANTS] = QUOTA_GRANTS,
        [WIRE_LIMIT_CONNECTIONS] = QUOTA_CONNECTIONS, [WIRE_LIMIT_WAITING] = QUOTA_WAITING,
        [WIRE_LIMIT_REQUESTS] = QUOTA_REQUESTS, [WIRE_LIMIT_FDS_IN_FLIGHT] = QUOTA_FDS_IN_FLIGHT,
};
#define FIRST_PAGES_KIND (WIRE_LIMIT_PAGES + QUOTA_FIRST_PAGE_SHIFT)
#define MAX_KIND (FIRST_PAGES_KIND + QUOTA_N_PAGE_SIZES - 1)

static bool next_uid(const struct quota *quota, const struct identity *identity, bool all, uid_t from, uid_t *ret_uid) {
        if (!all) {
                *ret_uid = identity->uid;
                return identity->uid >= from;
        }
        if (!quota_next_uid(quota, from, ret_uid))
                *ret_uid = WIRE_LIMIT_ALL_UIDS;
        return true;
}

/* False: a page size that does not matter to the uid. */
static bool fill_row(const struct quota *quota, uid_t uid, uint16_t wire_kind, struct wire_limit_row *ret_row) {
        bool is_of_pages = wire_kind >= FIRST_PAGES_KIND, together = uid == WIRE_LIMIT_ALL_UIDS;
        enum quota_kind kind = is_of_pages ? QUOTA_PAGES + (wire_kind - (unsigned) FIRST_PAGES_KIND) : kinds[wire_kind];

        *ret_row = (struct wire_limit_row){
                .uid = uid,
                .kind = wire_kind,
                .used = together ? quota_used_all(quota, kind) : quota_used(quota, uid, kind),
                .limit = together ? quota_limit_all(quota, kind) : quota_limit(quota, uid, kind),
        };
        return !is_of_pages || ret_row->used > 0 || ret_row->limit != UINT64_MAX;
}

static uint16_t kind_after(uint16_t kind) {
        return kind >= WIRE_LIMIT_FDS_IN_FLIGHT && kind < FIRST_PAGES_KIND ? FIRST_PAGES_KIND :
               kind < MAX_KIND                                             ? (uint16_t) (kind + 1) :
                                                                             MAX_KIND + 1;
}

void limits_fill(const struct quota *quota, const struct identity *identity, bool all, const struct wire_c_limits *from,
                 struct wire_d_limits *ret_limits) {
        uint16_t first_kind = kind_after(from->after_kind);
        struct wire_limit_row row;
        uid_t uid = from->after_uid;

        ret_limits->n_rows = ret_limits->more = 0;
        for (; next_uid(quota, identity, all, uid, &uid); uid++, first_kind = 1) {
                if (uid != from->after_uid)
                        first_kind = 1;
                for (uint16_t kind = first_kind; kind <= MAX_KIND; kind = kind_after(kind)) {
                        if (!fill_row(quota, uid, kind, &row))
                                continue;
                        if (ret_limits->n_rows == WIRE_MAX_LIMIT_ROWS) {
                                ret_limits->more = 1;
                                return;
                        }
                        ret_limits->rows[ret_limits->n_rows++] = row;
                }
                if (uid == WIRE_LIMIT_ALL_UIDS || !all)
                        return;
        }
}
