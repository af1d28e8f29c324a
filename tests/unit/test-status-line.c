/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the service manager is told of pools on several nodes. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "broker-internal.h"
#include "cleanup.h"
#include "config.h"
#include "status-line.h"

#define MIB (UINT64_C(1) << 20)
#define N_NODES 10

static struct broker broker;
static struct config config;
static int manager = -EBADF;

static int begin(void **state) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        struct config_pool pool = {.name = "p", .page_size_bytes = 2 * MIB, .n_nodes = N_NODES};
        char name[32];

        manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void) snprintf(name, sizeof(name), "@hugezero-test-%d", (int) getpid());
        (void) memcpy(address.sun_path + 1, name + 1, strlen(name) - 1);
        if (bind(manager, (const struct sockaddr *) &address,
                 (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(name))) < 0 ||
            setenv("NOTIFY_SOCKET", name, 1) < 0)
                return -1;
        for (int node = 0; node < N_NODES; node++)
                pool.nodes[node] = (struct config_pool_node){.node = node, .target_bytes = node < 4 ? 8 * MIB : 0};
        broker = (struct broker){.config = &config, .n_pools = 1};
        return pool_new(&pool, &broker.pools[0]);
}

static int end(void **state) {
        (void) unsetenv("NOTIFY_SOCKET");
        manager = safe_close(manager);
        (void) pool_free(broker.pools[0]);
        return 0;
}

/* What is told, at once. */
static void assert_told(const char *expected) {
        char text[1024] = "";

        broker.status_told_ms = 0;
        status_line_update(&broker);
        assert_true(recv(manager, text, sizeof(text) - 1, 0) > 0);
        assert_int_equal(strncmp(text, "STATUS=", 7), 0);
        text[strcspn(text, "\n")] = 0;
        assert_string_equal(text + 7, expected);
}

static void all_nodes_that_are_short_are_named(void **state) {
        struct node_pool *nodes = broker.pools[0]->nodes;

        assert_told("Serving, while 32 MiB are filled");
        nodes[1].short_logged = true;
        assert_told("Short of pages on node 1; the pools are to have 32 MiB");
        nodes[3].short_logged = true;
        assert_told("Short of pages on nodes 1, 3; the pools are to have 32 MiB");
        for (int node = 0; node < N_NODES; node++)
                nodes[node].short_logged = true;
        assert_told("Short of pages on nodes 0, 1, 2, 3, 4, 5, 6, 7 ...; the pools are to have 32 MiB");
}

static void a_kernel_that_refuses_is_told_until_the_target_is_reached(void **state) {
        struct node_pool *np = &broker.pools[0]->nodes[2];

        np->paused = true;
        assert_told("Cannot fill on node 2, the log says why; the pools are to have 32 MiB");
        np->paused = false; /* it tries again */
        broker.status_told_ms = 0;
        status_line_update(&broker);
        assert_int_equal(recv(manager, (char[8]){}, 8, 0), -1);
        np->target_bytes = 0;
        assert_told("Serving, while 24 MiB are filled");
}

static void the_limit_of_open_files_is_told(void **state) {
        broker.capped_at_extents = 29;
        assert_told("Stopped at 29 extents by the limit of open files; the pools are to have 32 MiB");
        broker.capped_at_extents = 0;
        assert_told("Serving, while 32 MiB are filled");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(all_nodes_that_are_short_are_named, begin, end),
                cmocka_unit_test_setup_teardown(a_kernel_that_refuses_is_told_until_the_target_is_reached, begin, end),
                cmocka_unit_test_setup_teardown(the_limit_of_open_files_is_told, begin, end),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
