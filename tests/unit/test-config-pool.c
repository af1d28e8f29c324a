/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The pools of a configuration: every key, every spelling, and one exact message for each thing that can be wrong. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "config-testing.h"
#include "config.h"

static void every_pool_key_is_read(void **state) {
        const struct config_pool *pool = load_pool("PageSize=1G\nExtentSize=2G\nTarget=6G\nLow=1G\nNodes=1\n");

        assert_string_equal(pool->name, "p");
        assert_true(pool->page_size_bytes == GIB);
        assert_true(pool->extent_bytes == 2 * GIB);
        assert_int_equal(pool->low_millipercent, UINT32_MAX);
        assert_true(pool->low_bytes == GIB);
        assert_int_equal(pool->n_nodes, 1);
        assert_int_equal(pool->nodes[0].node, 1);
        assert_true(pool->nodes[0].target_bytes == 6 * GIB);
        assert_false(config.pools_are_default);

        (void) load_pool("");
        check_default_pool();
        assert_string_equal(config.pools[0].name, "p");
        assert_false(config.pools_are_default);
        (void) load_pool("PageSize=default\nExtentSize=auto\nTarget=auto\nLow=25%\nNodes=all\n");
        check_default_pool();
        assert_int_equal(load_pool("Low=12.5%")->low_millipercent, 12500);
        assert_true(load_pool("Low=501M")->low_bytes == 501 * MIB); /* what auto comes to is not known yet */
}

static void sizes_may_be_spelt_in_every_usual_way(void **state) {
        static const char *const spellings[] = {"2M", "2MB", "2Mi", "2MiB", "2048kB", "2048 KiB", "2097152", "2 m"};

        for (size_t i = 0; i < ELEMENTSOF(spellings); i++) {
                char keys[128];

                (void) snprintf(keys, sizeof(keys), "PageSize=%s\nExtentSize=%s\nTarget=%s\n", spellings[i], spellings[i],
                                spellings[i]);
                (void) load_pool(keys);
                assert_true(config.pools[0].page_size_bytes == 2 * MIB);
                assert_true(config.pools[0].extent_bytes == 2 * MIB);
                assert_true(config.pools[0].nodes[1].target_bytes == 2 * MIB);
        }
}

static void targets_may_be_shares_or_differ_by_node(void **state) {
        const struct config_pool *pool = load_pool("Target=50%");

        assert_true(pool->nodes[0].target_bytes == 1000 * MIB); /* of all pages, not of the free ones */
        assert_true(pool->nodes[1].target_bytes == 500 * MIB);
        pool = load_pool("Target=12.5%");
        assert_true(pool->nodes[1].target_bytes == 124 * MIB); /* 62.6 pages, rounded down */
        pool = load_pool("Target=node1:76M\tnode0:25%");
        assert_int_equal(pool->n_nodes, 2);
        assert_int_equal(pool->nodes[0].node, 1);
        assert_true(pool->nodes[0].target_bytes == 76 * MIB);
        assert_int_equal(pool->nodes[1].node, 0);
        assert_true(pool->nodes[1].target_bytes == 500 * MIB);
        pool = load_pool("Target=node1:0\nNodes=all");
        assert_int_equal(pool->n_nodes, 1);
        assert_int_equal(pool->nodes[0].node, 1);
        assert_true(pool->nodes[0].target_bytes == 0);
}

static void a_wrong_pool_value_is_named(void **state) {
        pool_fails("PageSize=4M", "PageSize=: value \"4M\": the kernel has no pages of that size; it has 2 MiB, 1 GiB");
        pool_fails("PageSize=big",
                   "PageSize=: value \"big\": not understood; give a page size of the kernel, like 2M or 1G, or default");
        pool_fails("PageSize=0", "PageSize=: value \"0\": the kernel has no pages of that size; it has 2 MiB, 1 GiB");
        pool_fails("ExtentSize=3M", "ExtentSize=: value \"3M\": no multiple of the page size, 2 MiB; give 2 MiB or 4 MiB");
        pool_fails("ExtentSize=0", "ExtentSize=: value \"0\": no multiple of the page size, 2 MiB; give 2 MiB");
        pool_fails("ExtentSize=1E", "ExtentSize=: value \"1E\": out of range; give a multiple of the page size, or auto");
        pool_fails("ExtentSize=half", "ExtentSize=: value \"half\": not understood; give a multiple of the page size, or auto");
        pool_fails("Target=4095M", "Target=: value \"4095M\": no multiple of the page size, 2 MiB; give 4094 MiB or 4 GiB");
        pool_fails("Target=33M\nExtentSize=32M", "Target=: value \"33M\": no multiple of the extent size, 32 MiB; give 32 MiB or 64 MiB");
        pool_fails("Target=3M\nExtentSize=1G", "Target=: value \"3M\": smaller than one extent of 1 GiB; "
                   "give more, or a smaller ExtentSize=");
        pool_fails("Target=1M", "Target=: value \"1M\": no multiple of the page size, 2 MiB; give 2 MiB");
        pool_fails("Low=101%", "Low=: value \"101%\": out of range; give a size up to the target, or 0% to 100%");
        pool_fails("Low=all", "Low=: value \"all\": not understood; give a size up to the target, or 0% to 100%");
        pool_fails("Low=501M\nTarget=500M",
                   "Low=: value \"501M\": more than the target of node 0, 500 MiB; give less, or per cents");
        pool_fails("Nodes=0,3", "Nodes=: value \"0,3\": there is no node 3; nodes with memory are 0, 1");
        pool_fails("Nodes=2", "Nodes=: value \"2\": node 2 has no memory; nodes with memory are 0, 1");
        pool_fails("Nodes=0-",
                   "Nodes=: value \"0-\": not understood; give numbers of nodes with memory, like 0,2 or 0-3, or all");
        pool_fails("Nodes=0-1024",
                   "Nodes=: value \"0-1024\": out of range; give numbers of nodes with memory, like 0,2 or 0-3, or all");
        fails("[Pool p]\nTarget=100M\nExtentSize=200M\n",
              ":2: [Pool p] Target=: value \"100M\": smaller than one extent of 200 MiB; "
              "give more, or a smaller ExtentSize=");
        fails("[Pool p]\nExtentSize=32M\nTarget=70M\n",
              ":3: [Pool p] Target=: value \"70M\": no multiple of the extent size, 32 MiB; give 64 MiB or 96 MiB");
        fails("[Pool p]\nTarget=node0:4M\nNodes=0\n",
              ":3: [Pool p] Nodes=: value \"0\": Target= names the nodes of this pool already; remove one of the two");
}

static void a_wrong_target_is_named(void **state) {
        static const char form[] =
                "give a multiple of the page size, up to 4 PiB; or 0% to 100%; or auto; or these for each node: "
                "node0:25G node1:75G";
        static const struct {
                const char *value, *reason;
        } cases[] = {
                {"4", "no multiple of the page size, 2 MiB; give 2 MiB"},
                {"lots", "not understood; %s"},
                {"4G%", "not understood; %s"},
                {"101%", "out of range; %s"},
                {"5P", "out of range; %s"},
                {"20E", "out of range; %s"},
                {"node", "not understood; %s"},
                {"node0", "not understood; %s"},
                {"node0:", "not understood; %s"},
                {"node:4G", "not understood; %s"},
                {"node-1:4G", "not understood; %s"},
                {"node0:4G 5G", "not understood; %s"},
                {"4G node1:5G", "not understood; %s"},
                {"node9999999999:4G", "out of range; %s"},
                {"node0:3M", "no multiple of the page size, 2 MiB; give 2 MiB or 4 MiB"},
                {"node0:4G node7:4G", "there is no node 7; nodes with memory are 0, 1"},
                {"node2:4G", "node 2 has no memory; nodes with memory are 0, 1"},
                {"node0:4G node0:4G", "node 0 is named twice; remove one"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                bool with_form = strstr(cases[i].reason, "%s");
                char keys[128], reason[256], expected[CONFIG_TEXT_BYTES];

                (void) snprintf(reason, sizeof(reason), "%.*s%s", (int) strcspn(cases[i].reason, "%"), cases[i].reason,
                                with_form ? form : "");
                (void) snprintf(keys, sizeof(keys), "Target=%s", cases[i].value);
                (void) snprintf(expected, sizeof(expected), "Target=: value \"%s\": %s", cases[i].value, reason);
                pool_fails(keys, expected);
        }
}

static void a_wrong_pool_name_is_refused(void **state) {
        load("[Pool Az09-_.]\n[Pool 1234567890123456789012345678901]\n");
        assert_string_equal(config.pools[0].name, "Az09-_.");
        assert_string_equal(config.pools[1].name, "1234567890123456789012345678901");
        fails("[Pool]\n", ":1: [Pool] a pool needs a name; write [Pool NAME]");
        fails("[Pool ]\n", ":1: [Pool ] a pool needs a name; write [Pool NAME]");
        fails("[Pool 12345678901234567890123456789012]\n",
              ":1: [Pool 12345678901234567890123456789012] the pool's name is longer than 31 bytes; shorten it");
        fails("[Pool a/b]\n",
              ":1: [Pool a/b] the pool's name has other characters than letters, digits, \"-\", \"_\" and \".\"; "
              "change it");
        fails("[Pool  a]\n", ":1: [Pool  a] the pool's name has other characters than letters, digits, \"-\", \"_\" and \".\"; "
                             "change it");
}

static void a_kernel_without_hugepages_is_named(void **state) {
        const struct config_args args = {.config_path = main_file};
        struct topology topology = fake_machine();
        char error[CONFIG_TEXT_BYTES] = "";

        topology.n_sizes = 0;
        write_file("main.conf", "");
        assert_int_equal(config_load(&args, &topology, &config, error), -EINVAL);
        assert_string_equal(error,
                            "defaults: [Pool default] PageSize=: value \"default\": the kernel has no hugepages; use one with "
                            "CONFIG_HUGETLBFS");
}

static void pages_that_cannot_be_counted_are_named(void **state) {
        const struct config_args args = {.config_path = main_file};
        struct topology topology = fake_machine();
        char error[CONFIG_TEXT_BYTES] = "";

        topology.pages[1][0].n_pages = UINT64_MAX;
        write_file("main.conf", "[Pool p]\nTarget=50%\n");
        assert_int_equal(config_load(&args, &topology, &config, error), -EINVAL);
        assert_non_null(strstr(error,
                               ":2: [Pool p] Target=: value \"50%\": cannot read how many pages node 1 has (No such file or "
                               "directory); give a size"));
}

static void there_are_limits_on_pools_nodes_and_quotas(void **state) {
        const struct config_args args = {.config_path = main_file};
        char content[4096] = "", error[CONFIG_TEXT_BYTES] = "", *p = content;
        struct topology topology = fake_machine();

        for (int i = 0; i < CONFIG_MAX_POOLS; i++)
                p += sprintf(p, "[Pool p%d]\n", i);
        load(content);
        assert_int_equal(config.n_pools, CONFIG_MAX_POOLS);
        (void) sprintf(p, "[Pool more]\n");
        fails(content, ":17: [Pool more] there can be at most 16 pools; remove some");

        p = content;
        for (int i = 0; i < CONFIG_MAX_USER_QUOTAS; i++)
                p += sprintf(p, "[Quota user:%d]\n", 70000 + i);
        load(content);
        assert_int_equal(config.n_user_quotas, CONFIG_MAX_USER_QUOTAS);
        (void) sprintf(p, "[Quota user:69999]\n");
        fails(content, ":65: [Quota user:69999] there can be quotas of at most 64 users; remove some");

        topology.n_nodes = CONFIG_MAX_NODES;
        write_file("main.conf", "[Pool p]\nTarget=4M\n");
        assert_int_equal(config_load(&args, &topology, &config, error), 0);
        assert_int_equal(config.pools[0].n_nodes, CONFIG_MAX_NODES);
        topology.n_nodes++;
        assert_int_equal(config_load(&args, &topology, &config, error), -EINVAL);
        assert_non_null(strstr(error, ":1: [Pool p] Nodes=: value \"all\": a pool can be on at most 64 nodes; name fewer"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(every_pool_key_is_read),
                test_without_fd_leak(sizes_may_be_spelt_in_every_usual_way),
                test_without_fd_leak(targets_may_be_shares_or_differ_by_node),
                test_without_fd_leak(a_wrong_pool_value_is_named),
                test_without_fd_leak(a_wrong_target_is_named),
                test_without_fd_leak(a_wrong_pool_name_is_refused),
                test_without_fd_leak(a_kernel_without_hugepages_is_named),
                test_without_fd_leak(pages_that_cannot_be_counted_are_named),
                test_without_fd_leak(there_are_limits_on_pools_nodes_and_quotas),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
