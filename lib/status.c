/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's figures: asked for in messages, kept as a snapshot in the form of the public header. */

#include <errno.h>
#include <stdlib.h>

#include "figures.h"
#include "internal.h"

struct hugezero_status {
        struct hugezero_daemon_info daemon;
        struct hugezero_pool_info *pools;
        struct hugezero_grant_info *grants;
        struct hugezero_limit_info *limits;
        uint32_t n_pools, n_grants, n_limits;
};

/* A question on the stack, and where its answer goes. */
struct question {
        struct call call;
        struct hugezero_status *status;
        bool more;              /* rows follow behind the last one */
        uint64_t last_grant_id; /* of the last row of the answer */
        uint32_t last_extent;
        uint32_t last_uid;      /* likewise, of a limit */
        uint16_t last_kind;
};

static struct question *question_of(struct call *call) {
        return (struct question *) ((char *) call - offsetof(struct question, call));
}

/* Room for @n more rows in an array of @n_rows. */
static int grow(void *rows, uint32_t n_rows, uint32_t n, size_t row_bytes) {
        if (n == 0)
                return 0;
        void *grown = reallocarray(*(void **) rows, (size_t) n_rows + n, row_bytes);

        if (!grown)
                return -ENOMEM;
        *(void **) rows = grown;
        return 0;
}

static int take_status(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        figures_of_status(&message->d_status, &question_of(call)->status->daemon);
        return 0;
}

static int take_pools(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        const struct wire_d_pools *pools = &message->d_pools;
        struct question *question = question_of(call);
        struct hugezero_status *status = question->status;

        if (pools->n_rows > 0 && pools->first_row != status->n_pools)
                return -EBADMSG;
        int r = grow(&status->pools, status->n_pools, pools->n_rows, sizeof(status->pools[0]));
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < pools->n_rows; i++)
                figures_of_pool(&pools->rows[i], &status->pools[status->n_pools++]);
        /* An empty answer ends it, too: there may be fewer rows than a moment ago. */
        question->more = pools->n_rows > 0 && status->n_pools < pools->n_rows_total;
        return 0;
}

static void fill_grant(struct hugezero_grant_info *to, const struct wire_grant_row *from) {
        *to = (struct hugezero_grant_info){
                .extent = from->extent,
                .grant_id = from->grant_id,
                .uid = from->uid,
                .pid = from->pid,
                .node = from->node,
                .state = from->state,
                .bytes = from->bytes,
                .page_size_bytes = UINT64_C(1) << from->page_shift,
                .age_ms = from->age_ms,
                .dev = from->dev,
                .ino = from->ino,
        };
        memcpy(to->pool, from->pool, sizeof(to->pool));
}

static int take_grants(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        const struct wire_d_grants *grants = &message->d_grants;
        struct question *question = question_of(call);
        struct hugezero_status *status = question->status;

        int r = grow(&status->grants, status->n_grants, grants->n_rows, sizeof(status->grants[0]));
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < grants->n_rows; i++) {
                const struct wire_grant_row *row = &grants->rows[i];
                /* Ascending, or we might be asking for ever. */
                if (row->grant_id < question->last_grant_id ||
                    (row->grant_id == question->last_grant_id && row->extent <= question->last_extent))
                        return -EBADMSG;
                question->last_grant_id = row->grant_id;
                question->last_extent = row->extent;
                fill_grant(&status->grants[status->n_grants++], row);
        }
        question->more = grants->n_rows > 0 && grants->more;
        return 0;
}

static int take_limits(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        const struct wire_d_limits *limits = &message->d_limits;
        struct question *question = question_of(call);
        struct hugezero_status *status = question->status;

        int r = grow(&status->limits, status->n_limits, limits->n_rows, sizeof(status->limits[0]));
        if (r < 0)
                return r;
        for (uint32_t i = 0; i < limits->n_rows; i++) {
                const struct wire_limit_row *row = &limits->rows[i];
                if (row->uid < question->last_uid || (row->uid == question->last_uid && row->kind <= question->last_kind))
                        return -EBADMSG;
                question->last_uid = row->uid;
                question->last_kind = row->kind;
                status->limits[status->n_limits++] = (struct hugezero_limit_info){
                        .uid = row->uid, .kind = row->kind, .used = row->used, .limit = row->limit};
        }
        question->more = limits->n_rows > 0 && limits->more;
        return 0;
}

static int ask_daemon(struct hugezero_conn *conn, struct hugezero_status *status) {
        struct question question = {.call = {.answer_op = WIRE_D_STATUS, .answer = take_status}, .status = status};
        struct wire_message message = {.op = WIRE_C_STATUS};

        return conn_call_and_wait(conn, &message, &question.call);
}

static int ask_pools(struct hugezero_conn *conn, struct hugezero_status *status) {
        struct question question = {.call = {.answer_op = WIRE_D_POOLS, .answer = take_pools}, .status = status};
        int r;

        do {
                struct wire_message message = {.op = WIRE_C_POOLS, .c_pools = {.first_row = status->n_pools}};
                r = conn_call_and_wait(conn, &message, &question.call);
        } while (r >= 0 && question.more);
        return r;
}

static int ask_grants(struct hugezero_conn *conn, struct hugezero_status *status) {
        struct question question = {.call = {.answer_op = WIRE_D_GRANTS, .answer = take_grants}, .status = status};
        int r;

        do {
                struct wire_message message = {
                        .op = WIRE_C_GRANTS,
                        .c_grants = {.after_grant_id = question.last_grant_id, .after_extent = question.last_extent},
                };
                r = conn_call_and_wait(conn, &message, &question.call);
        } while (r >= 0 && question.more);
        return r;
}

static int ask_limits(struct hugezero_conn *conn, struct hugezero_status *status) {
        struct question question = {.call = {.answer_op = WIRE_D_LIMITS, .answer = take_limits}, .status = status};
        int r;

        do {
                struct wire_message message = {
                        .op = WIRE_C_LIMITS,
                        .c_limits = {.after_uid = question.last_uid, .after_kind = question.last_kind},
                };
                r = conn_call_and_wait(conn, &message, &question.call);
        } while (r >= 0 && question.more);
        return r == -EOPNOTSUPP ? 0 : r; /* an older daemon's limits are not known */
}

int hugezero_status_read(struct hugezero_conn *conn, struct hugezero_status **ret_status) {
        if (!ret_status)
                return conn_fail_argument(conn, "no place for the figures is given");
        int r = conn_use(conn);
        if (r < 0)
                return r;
        struct hugezero_status *status = calloc(1, sizeof(*status));
        if (!status)
                return -ENOMEM;

        r = ask_daemon(conn, status);
        if (r >= 0)
                r = ask_pools(conn, status);
        if (r >= 0)
                r = ask_grants(conn, status);
        if (r >= 0)
                r = ask_limits(conn, status);
        if (r < 0) {
                hugezero_status_free(status);
                return r;
        }
        *ret_status = status;
        return 0;
}

void hugezero_status_free(struct hugezero_status *status) {
        if (!status)
                return;
        free(status->pools);
        free(status->grants);
        free(status->limits);
        free(status);
}

int hugezero_status_get_daemon(const struct hugezero_status *status, struct hugezero_daemon_info *info) {
        if (!status || !info)
                return -EINVAL;
        return info_fill(info, &status->daemon, sizeof(status->daemon), sizeof(status->daemon));
}

uint32_t hugezero_status_get_n_pools(const struct hugezero_status *status) {
        return status ? status->n_pools : 0;
}

int hugezero_status_get_pool(const struct hugezero_status *status, uint32_t idx, struct hugezero_pool_info *info) {
        if (!status || !info || idx >= status->n_pools)
                return -EINVAL;
        return info_fill(info, &status->pools[idx], sizeof(status->pools[0]), sizeof(status->pools[0]));
}

uint32_t hugezero_status_get_n_grants(const struct hugezero_status *status) {
        return status ? status->n_grants : 0;
}

int hugezero_status_get_grant(const struct hugezero_status *status, uint32_t idx, struct hugezero_grant_info *info) {
        if (!status || !info || idx >= status->n_grants)
                return -EINVAL;
        return info_fill(info, &status->grants[idx], sizeof(status->grants[0]), sizeof(status->grants[0]));
}

uint32_t hugezero_status_get_n_limits(const struct hugezero_status *status) {
        return status ? status->n_limits : 0;
}

int hugezero_status_get_limit(const struct hugezero_status *status, uint32_t idx, struct hugezero_limit_info *info) {
        if (!status || !info || idx >= status->n_limits)
                return -EINVAL;
        return info_fill(info, &status->limits[idx], sizeof(status->limits[0]), sizeof(status->limits[0]));
}
