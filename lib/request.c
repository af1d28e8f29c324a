/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A request: put together, sent, cancelled, collected. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cleanup.h"
#include "internal.h"

#define MIN_PAGE_BYTES 4096 /* kernel: no page is smaller */
#define MAX_NODES 1024      /* kernel limit: CONFIG_NODES_SHIFT is at most 10 */
#define FDS_OPENED_MEANWHILE 256 /* chosen: by a program between two requests, at most; if it is wrong the answer cannot be taken */
#define ITEM_FLAGS (HUGEZERO_NODE_PREFERRED | HUGEZERO_SEVERAL_FDS | HUGEZERO_REOPENABLE)

static const char text_submitted[] = "the request is on its way already; finish or cancel it first";
static const char text_not_submitted[] = "the request is not on its way; submit it first";
static const char text_no_grant[] = "no place for the grant is given";

struct hugezero_request {
        struct wire_c_acquire acquire;
        bool submitted; /* until its result is collected */
        struct call call;
        struct hugezero_grant *grant; /* grows while call.result is -EINPROGRESS */
};

int hugezero_request_new(struct hugezero_request **ret_request) {
        if (!ret_request)
                return -EINVAL;
        struct hugezero_request *request = calloc(1, sizeof(*request));
        if (!request)
                return -ENOMEM;
        *ret_request = request;
        return 0;
}

bool is_pool_name(const char *pool) {
        size_t n = strnlen(pool, WIRE_POOL_NAME_BYTES);

        for (size_t i = 0; i < n; i++)
                if (pool[i] < ' ' || pool[i] > '~')
                        return false;
        return n < WIRE_POOL_NAME_BYTES;
}

static int set_node(struct wire_item *item, int32_t node, uint32_t flags) {
        unsigned local_node;

        if (node == HUGEZERO_NODE_ANY) {
                item->node = -1;
                item->node_mode = WIRE_NODE_ANY;
                return 0;
        }
        if (node == HUGEZERO_NODE_LOCAL) {
                if (getcpu(NULL, &local_node) < 0) {
                        int r = negative_errno();
                        thread_set_text("cannot ask for the node of the current CPU: %s", strerror(-r));
                        return r;
                }
                item->node = (int32_t) local_node;
                item->node_mode = WIRE_NODE_PREFER;
                return 0;
        }
        if (node < 0 || node >= MAX_NODES) {
                thread_set_text("there can be no node %" PRId32 "; nodes have numbers from 0 to %d", node, MAX_NODES - 1);
                return -EINVAL;
        }
        item->node = node;
        item->node_mode = flags & HUGEZERO_NODE_PREFERRED ? WIRE_NODE_PREFER : WIRE_NODE_STRICT;
        return 0;
}

/* What is wrong with the item becomes the thread's text: a request has no connection before it is submitted. */
static int check_item(const struct hugezero_request *request, uint64_t bytes, uint64_t page_size_bytes, uint32_t flags,
                      const char *pool) {
        if (!request)
                return conn_fail_argument(NULL, "no request is given");
        if (bytes == 0)
                return conn_fail_argument(NULL, "0 bytes are asked for; ask for more");
        if (flags & ~ITEM_FLAGS) {
                thread_set_text("the flags 0x%x are none of an item's", (unsigned) (flags & ~ITEM_FLAGS));
                return -EINVAL;
        }
        if (page_size_bytes > 0 && (page_size_bytes < MIN_PAGE_BYTES || (page_size_bytes & (page_size_bytes - 1)))) {
                thread_set_text("%" PRIu64 " bytes are no page size; it is a power of two, at least %d, or 0 for the default",
                                page_size_bytes, MIN_PAGE_BYTES);
                return -EINVAL;
        }
        if (pool && !is_pool_name(pool)) {
                thread_set_text("a pool's name has at most %d printable characters", WIRE_POOL_NAME_BYTES - 1);
                return -EINVAL;
        }
        if (request->submitted) {
                thread_set_text("%s", text_submitted);
                return -EBUSY;
        }
        if (request->acquire.n_items >= WIRE_MAX_ITEMS) {
                thread_set_text("the request has %d items already, and none can have more", WIRE_MAX_ITEMS);
                return -E2BIG;
        }
        return 0;
}

int hugezero_request_add_item(struct hugezero_request *request, uint64_t bytes, uint64_t page_size_bytes, int32_t node,
                              uint32_t flags, const char *pool) {
        struct wire_item item = {.bytes = bytes, .page_size_bytes = page_size_bytes};

        int r = check_item(request, bytes, page_size_bytes, flags, pool);
        if (r >= 0)
                r = set_node(&item, node, flags);
        if (r < 0)
                return r;
        if (flags & HUGEZERO_SEVERAL_FDS)
                item.flags |= WIRE_ITEM_SEVERAL;
        if (flags & HUGEZERO_REOPENABLE)
                item.flags |= WIRE_ITEM_REOPENABLE;
        if (pool)
                memcpy(item.pool, pool, strlen(pool));
        request->acquire.items[request->acquire.n_items++] = item;
        return 0;
}

int hugezero_request_set_miss(struct hugezero_request *request, uint32_t miss, int32_t timeout_ms) {
        static const uint8_t wire_miss[] = {
                [HUGEZERO_MISS_FAIL] = WIRE_MISS_FAIL,
                [HUGEZERO_MISS_WAIT] = WIRE_MISS_WAIT,
                [HUGEZERO_MISS_FILL] = WIRE_MISS_FILL,
        };

        if (!request)
                return conn_fail_argument(NULL, "no request is given");
        if (miss >= sizeof(wire_miss) || (miss == HUGEZERO_MISS_WAIT ? timeout_ms < -1 : timeout_ms != 0))
                return conn_fail_argument(NULL, "there is no such way to go on when memory is not ready, or not with this time-out");
        if (request->submitted) {
                thread_set_text("%s", text_submitted);
                return -EBUSY;
        }
        request->acquire.on_miss = wire_miss[miss];
        request->acquire.timeout_ms = timeout_ms;
        return 0;
}

/* Descriptors are given out from the lowest. Far below the limit there is room, and asking would cost 2 system calls each. */
static bool has_room(const struct fd_room *room, unsigned n_fds) {
        return (uint64_t) room->last_fd + n_fds + FDS_OPENED_MEANWHILE < room->limit;
}

static void note_room(struct fd_room *room, int last_fd) {
        struct rlimit limit;

        room->limit = getrlimit(RLIMIT_NOFILE, &limit) < 0 ? 0 : limit.rlim_cur;
        room->last_fd = last_fd;
}

/*
 * A grant has one descriptor per item at least. Better no request than a grant that cannot be received: others may want the
 * memory. What happens between here and the answer is noticed by fdpass_receive().
 */
static int check_free_fds(struct hugezero_conn *conn, unsigned n_fds) {
        int fds[WIRE_MAX_ITEMS], r = 0;
        unsigned n = 0;

        if (has_room(conn_fd_room(conn), n_fds))
                return 0;
        for (; n < n_fds; n++) {
                fds[n] = fcntl(conn_fd(conn), F_DUPFD_CLOEXEC, 0);
                if (fds[n] < 0) {
                        r = negative_errno();
                        conn_set_text(conn,
                                      "the request needs %u free descriptors, but this process may open only %u more; "
                                      "raise RLIMIT_NOFILE (ulimit -n)",
                                      n_fds, n);
                        break;
                }
        }
        if (r >= 0)
                note_room(conn_fd_room(conn), fds[n - 1]);
        while (n > 0)
                (void) safe_close(fds[--n]);
        return r;
}

static int take_grant(struct call *call, const struct wire_message *message, int *fds, size_t n_fds) {
        struct hugezero_request *request =
                (struct hugezero_request *) ((char *) call - offsetof(struct hugezero_request, call));

        if (n_fds > 0)
                conn_fd_room(call->conn)->last_fd = fds[n_fds - 1];
        return grant_collect(&request->grant, &request->acquire, &message->d_grant, fds, n_fds);
}

int hugezero_request_submit(struct hugezero_request *request, struct hugezero_conn *conn) {
        struct wire_message message;

        if (!request || !conn)
                return conn_fail_argument(conn, "no request or no connection is given");
        if (request->acquire.n_items == 0)
                return conn_fail_argument(conn, "the request has no items yet");
        if (request->submitted) {
                conn_set_text(conn, "%s", text_submitted);
                return -EBUSY;
        }
        int r = conn_use(conn);
        if (r < 0)
                return r;
        r = check_free_fds(conn, request->acquire.n_items);
        if (r < 0)
                return r;

        message.op = WIRE_C_ACQUIRE;
        memcpy(&message.c_acquire, &request->acquire,
               offsetof(struct wire_c_acquire, items) + request->acquire.n_items * sizeof(struct wire_item));
        request->call = (struct call){.answer_op = WIRE_D_GRANT, .answer = take_grant};
        r = conn_call_checked(conn, &message, &request->call);
        if (r < 0)
                return r;
        request->submitted = true;
        return 0;
}

static void forget_grant(struct hugezero_request *request) {
        hugezero_grant_free(request->grant);
        request->grant = NULL;
}

int hugezero_request_cancel(struct hugezero_request *request) {
        if (!request || !request->submitted)
                return conn_fail_argument(NULL, text_not_submitted);
        struct hugezero_conn *conn = request->call.conn;
        if (request->call.result != -EINPROGRESS) {
                if (conn)
                        conn_set_text(conn, "the request has been answered already; finish it");
                return -EALREADY;
        }

        /* Pending, so it is in its connection's list. */
        int r = conn_use(conn);
        if (r < 0)
                return r;
        struct wire_message message = {.op = WIRE_C_CANCEL, .c_cancel = {.target_request_id = request->call.request_id}};
        call_finish(&request->call, -ECANCELED, "the request was cancelled");
        /* Where the message cannot be sent the answer comes as if it had crossed. */
        (void) conn_post(conn, &message);
        return 0;
}

void hugezero_request_free(struct hugezero_request *request) {
        if (!request)
                return;
        if (request->submitted) {
                if (request->call.result == -EINPROGRESS)
                        (void) hugezero_request_cancel(request);
                call_unlink(&request->call);
        }
        forget_grant(request);
        free(request);
}

int hugezero_request_finish(struct hugezero_request *request, struct hugezero_grant **ret_grant) {
        if (!request || !request->submitted)
                return conn_fail_argument(NULL, text_not_submitted);
        struct hugezero_conn *conn = request->call.conn;
        if (!ret_grant)
                return conn_fail_argument(conn, text_no_grant);

        int r = request->call.result;
        if (r == -EINPROGRESS) {
                if (conn_use(conn) == -ECHILD)
                        return -ECHILD;
                conn_set_text(conn, "the daemon has not answered yet");
                return r;
        }
        if (r < 0 && conn)
                conn_set_text(conn, "%s", request->call.text);
        call_unlink(&request->call);
        request->submitted = false;
        if (r < 0) {
                forget_grant(request);
                return r;
        }
        *ret_grant = take_ptr(request->grant);
        return 0;
}

int hugezero_acquire(struct hugezero_conn *conn, struct hugezero_request *request, struct hugezero_grant **ret_grant) {
        if (!ret_grant)
                return conn_fail_argument(conn, text_no_grant);
        int r = hugezero_request_submit(request, conn);
        if (r < 0)
                return r;
        (void) conn_wait(conn, &request->call, -1);
        return hugezero_request_finish(request, ret_grant);
}
