/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What administrators tell a running daemon: read the configuration again, another target for a pool. */

#include <errno.h>

#include "internal.h"

static int take_reloaded(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        conn_set_text(call->conn, "%s", message->d_reloaded.start_keys);
        return 0;
}

int hugezero_daemon_reload(struct hugezero_conn *conn) {
        struct wire_message message = {.op = WIRE_C_RELOAD};
        struct call call = {.answer_op = WIRE_D_RELOADED, .answer = take_reloaded};

        return conn_call_and_wait(conn, &message, &call);
}

int hugezero_pool_resize(struct hugezero_conn *conn, const char *pool, int32_t node, uint64_t target_bytes) {
        struct wire_message message = {.op = WIRE_C_RESIZE, .c_resize = {.node = node, .target_bytes = target_bytes}};
        struct call call = {.answer_op = WIRE_D_DONE};

        int r = conn_use(conn);
        if (r < 0)
                return r;
        if (node < HUGEZERO_NODE_ANY || (pool && !is_pool_name(pool))) {
                conn_set_text(conn, "a node's number is 0 or more, a pool's name has at most %d printable characters",
                              WIRE_POOL_NAME_BYTES - 1);
                return -EINVAL;
        }
        if (pool)
                memcpy(message.c_resize.pool, pool, strlen(pool));
        return conn_call_and_wait(conn, &message, &call);
}
