/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the library's calls share beside the scripted daemon: short ways to do the usual, and usual scripts. */
#pragma once

#include <poll.h>

#include "cleanup.h"
#include "fake-daemon.h"
#include "hugezero.h"

#define PAGE_BYTES UINT64_C(4096)

static inline struct hugezero_conn *connect_to(struct fake_daemon *fake) {
        struct hugezero_conn *conn;

        assert_int_equal(hugezero_conn_open(fake->path, &conn), 0);
        return conn;
}

static inline struct hugezero_request *request_bytes(uint64_t bytes, uint32_t flags) {
        struct hugezero_request *request;

        assert_int_equal(hugezero_request_new(&request), 0);
        assert_int_equal(hugezero_request_add_item(request, bytes, 0, HUGEZERO_NODE_ANY, flags, NULL), 0);
        return request;
}

/* Dispatches until the request has finished, as an event loop would. */
static inline int finish_in_loop(struct hugezero_conn *conn, struct hugezero_request *request,
                                 struct hugezero_grant **ret_grant) {
        int r;

        while ((r = hugezero_request_finish(request, ret_grant)) == -EINPROGRESS) {
                struct pollfd pollfd = {.fd = hugezero_conn_get_fd(conn), .events = (short) hugezero_conn_get_events(conn)};
                assert_int_equal(poll(&pollfd, 1, 10000), 1);
                (void) hugezero_conn_dispatch(conn);
        }
        return r;
}

static inline void script_greet(struct fake_daemon *fake, int fd) {
        struct wire_message message;

        must(fake_greet(fd));
        must(!fake_receive(fd, 0, &message));
}

/* Grants every request from the same few files: extents of one page for each 4096 bytes asked, several where allowed. */
static inline void script_grant_pages(struct fake_daemon *fake, int fd) {
        struct wire_message m;
        uint64_t grant_id = 100;

        must(fake_greet(fd));
        while (fake_receive(fd, WIRE_C_ACQUIRE, &m)) {
                size_t n_fds = m.c_acquire.items[0].flags & WIRE_ITEM_SEVERAL ? m.c_acquire.items[0].bytes / PAGE_BYTES : 1;
                uint64_t bytes = m.c_acquire.items[0].bytes / n_fds;
                _cleanup_free_ int *fds = calloc(n_fds, sizeof(int));
                _cleanup_close_ int memfd = fake_memfd(bytes);
                must(fds);
                for (size_t i = 0; i < n_fds; i++)
                        fds[i] = memfd;
                fake_grant(fd, m.request_id, ++grant_id, fds, n_fds, bytes, 12);
        }
}

/* Reads whatever comes and counts it by op; answers nothing. */
static inline void script_count(struct fake_daemon *fake, int fd) {
        unsigned *n_by_op = fake->data;
        struct wire_message m;

        must(fake_greet(fd));
        while (fake_receive(fd, 0, &m))
                n_by_op[m.op]++;
}
