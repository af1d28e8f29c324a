/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "testing.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "library-testing.h"

static void done(int fd, uint32_t request_id) {
        fake_send(fd, &(struct wire_message) {.op = WIRE_D_DONE, .request_id = request_id}, NULL, 0);
}

static void script_administer(struct fake_daemon *fake, int fd) {
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_RELOAD, &m));
        fake_refuse(fd, m.request_id, EINVAL, "hugezerod.conf:3: no such key");
        for (int i = 0; i < 2; i++) {
                static const char *const start_keys[] = {"SocketGroup=, Batch=", ""};
                struct wire_message answer = {.op = WIRE_D_RELOADED};

                must(fake_receive(fd, WIRE_C_RELOAD, &m));
                answer.request_id = m.request_id;
                (void) strcpy(answer.d_reloaded.start_keys, start_keys[i]);
                answer.d_reloaded.n_start_keys_bytes = (uint16_t) strlen(start_keys[i]);
                fake_send(fd, &answer, NULL, 0);
        }

        must(fake_receive(fd, WIRE_C_RESIZE, &m));
        must(strcmp(m.c_resize.pool, "vm") == 0 && m.c_resize.node == 3 && m.c_resize.target_bytes == UINT64_C(5) << 40);
        fake_refuse(fd, m.request_id, ENOENT, "there is no pool \"vm\"");
        for (int i = 0; i < 2; i++) {
                must(fake_receive(fd, WIRE_C_RESIZE, &m));
                must(m.c_resize.pool[0] == 0 && m.c_resize.node == -1 && m.c_resize.target_bytes == 0);
                done(fd, m.request_id);
        }
        must(!fake_receive(fd, 0, &m));
}

static void an_administrator_is_answered(void **state) {
        struct fake_daemon fake;

        fake_start(&fake, script_administer, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        assert_int_equal(hugezero_daemon_reload(conn), -EINVAL);
        assert_string_equal(hugezero_conn_get_error_text(conn), "hugezerod.conf:3: no such key");
        assert_int_equal(hugezero_daemon_reload(conn), 0);
        assert_string_equal(hugezero_conn_get_error_text(conn), "SocketGroup=, Batch=");
        assert_int_equal(hugezero_daemon_reload(conn), 0);
        assert_string_equal(hugezero_conn_get_error_text(conn), "");
        assert_int_equal(hugezero_pool_resize(conn, "vm", 3, UINT64_C(5) << 40), -ENOENT);
        assert_string_equal(hugezero_conn_get_error_text(conn), "there is no pool \"vm\"");
        assert_int_equal(hugezero_pool_resize(conn, NULL, HUGEZERO_NODE_ANY, 0), 0);
        assert_int_equal(hugezero_pool_resize(conn, "", HUGEZERO_NODE_ANY, 0), 0);
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

static void what_cannot_be_meant_is_not_sent(void **state) {
        struct fake_daemon fake;

        fake_start(&fake, script_greet, NULL);
        struct hugezero_conn *conn = connect_to(&fake);
        assert_int_equal(hugezero_daemon_reload(NULL), -EINVAL);
        assert_int_equal(hugezero_pool_resize(NULL, "vm", 0, 0), -EINVAL);
        assert_int_equal(hugezero_pool_resize(conn, "vm", HUGEZERO_NODE_LOCAL, 0), -EINVAL);
        assert_int_equal(hugezero_pool_resize(conn, "a name that is one byte too long", 0, 0), -EINVAL);
        assert_int_equal(hugezero_pool_resize(conn, "bell\a", 0, 0), -EINVAL);
        assert_non_null(strstr(hugezero_conn_get_error_text(conn), "at most 31 printable characters"));
        hugezero_conn_close(conn);
        fake_stop(&fake);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(an_administrator_is_answered),
                test_without_fd_leak(what_cannot_be_meant_is_not_sent),
        };

        return cmocka_run_group_tests_name("library-admin", tests, NULL, NULL);
}
