/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Where a configuration comes from: files, drop-ins and options, and which of them wins. */
#include "testing.h"

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "config-testing.h"
#include "config.h"

static void a_file_that_was_asked_for_must_exist(void **state) {
        const struct config_args args = {.config_path = "/nonexistent/hugezerod.conf"};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_int_equal(load_args(&args, error), -ENOENT);
        assert_string_equal(error, "/nonexistent/hugezerod.conf: cannot open the configuration: No such file or directory");
}

static void nothing_is_written_twice_in_a_file(void **state) {
        fails("[Daemon]\nMaxWaiting=5\nMaxWaiting=6\n",
              ":3: [Daemon] MaxWaiting=: value \"6\": the key was set in line 2 already; remove one");
        fails("[Pool p]\nTarget=4G\n\n[Pool q]\nTarget=4G\n[Pool p]\n",
              ":6: [Pool p] the section was begun in line 1 already; put its keys there");
        fails("[Daemon]\n[Daemon]\n", ":2: [Daemon] the section was begun in line 1 already; put its keys there");
        fails("[Quota user:root]\n[Quota user:0]\n", ":2: [Quota user:0] another section is for user number 0 too; remove one");
}

static void drop_ins_override_in_the_order_of_their_names(void **state) {
        write_file("main.conf.d/20-b.conf", "[Daemon]\nMaxWaiting=20\nMaxConnections=20\n[Pool p]\nTarget=40M\n[Pool q]\n");
        write_file("main.conf.d/10-a.conf", "[Daemon]\nMaxWaiting=10\nMaxConnections=10\nMaxFdsInFlight=1000\n");
        write_file("main.conf.d/B.conf", "[Daemon]\nMaxConnections=30\n");
        write_file("main.conf.d/a.conf", "[Daemon]\nMaxConnections=40\n"); /* many locales sort it before B */
        write_file("main.conf.d/30-c.conf.bak", "no configuration");
        write_file("main.conf.d/.hidden.conf", "no configuration");
        write_file("main.conf.d/README", "no configuration");
        load("[Daemon]\nMaxWaiting=5\nMaxConnections=5\nMaxFdsInFlight=500\nLogLevel=debug\n[Pool p]\nTarget=20M\nLow=10%\n");
        assert_int_equal(config.max_waiting, 20);
        assert_int_equal(config.max_connections, 40);
        assert_int_equal(config.max_fds_in_flight, 1000);
        assert_int_equal(config.log_level, LOG_DEBUG);
        assert_int_equal(config.n_pools, 2);
        assert_true(config.pools[0].nodes[0].target_bytes == 40 * MIB);
        assert_int_equal(config.pools[0].low_millipercent, 10000);
        assert_string_equal(config.pools[1].name, "q");
}

static void a_message_names_the_drop_in(void **state) {
        const struct config_args args = {.config_path = main_file};
        char error[CONFIG_TEXT_BYTES] = "", expected[CONFIG_TEXT_BYTES];

        write_file("main.conf.d/20-b.conf", "\n[Daemon]\nMaxWaiting=none\n");
        write_file("main.conf", "[Daemon]\nMaxWaiting=5\n");
        assert_int_equal(load_args(&args, error), -EINVAL);
        (void) snprintf(
                expected, sizeof(expected),
                "%s.d/20-b.conf:3: [Daemon] MaxWaiting=: value \"none\": not understood; give a number of requests, 1 to 65536",
                main_file);
        assert_string_equal(error, expected);
}

static void options_come_before_all_files(void **state) {
        static const char *const specs[] = {"2M:auto:4G", "1G:2G:50%", "vms=2M:32M:64M@1", "2M:auto:node1:10M node0:25%"};
        const struct config_args args = {.config_path = main_file,
                                         .socket_path = "/tmp/other.sock",
                                         .pool_specs = specs,
                                         .n_pool_specs = ELEMENTSOF(specs)};
        char error[CONFIG_TEXT_BYTES] = "";

        write_file("main.conf",
                   "[Daemon]\nSocket=/run/x.sock\nMaxWaiting=5\n[Pool gone]\nPageSize=16M\n[Pool pool0]\nLow=1%\n");
        if (load_args(&args, error) != 0)
                fail_msg("%s", error);
        assert_string_equal(config.socket_path, "/tmp/other.sock");
        assert_int_equal(config.max_waiting, 5);
        assert_false(config.pools_are_default);
        assert_int_equal(config.n_pools, 4);
        assert_string_equal(config.pools[0].name, "pool0");
        assert_true(config.pools[0].page_size_bytes == 2 * MIB);
        assert_true(config.pools[0].extent_bytes == 0);
        assert_int_equal(config.pools[0].n_nodes, 2);
        assert_true(config.pools[0].nodes[1].target_bytes == 4 * GIB);
        assert_int_equal(config.pools[0].low_millipercent, 25000);
        assert_string_equal(config.pools[1].name, "pool1");
        assert_true(config.pools[1].extent_bytes == 2 * GIB);
        assert_true(config.pools[1].nodes[0].target_bytes == 4 * GIB);
        assert_true(config.pools[1].nodes[1].target_bytes == 0);
        assert_string_equal(config.pools[2].name, "vms");
        assert_int_equal(config.pools[2].n_nodes, 1);
        assert_int_equal(config.pools[2].nodes[0].node, 1);
        assert_string_equal(config.pools[3].name, "pool3");
        assert_int_equal(config.pools[3].nodes[0].node, 1);
        assert_true(config.pools[3].nodes[0].target_bytes == 10 * MIB);
        assert_true(config.pools[3].nodes[1].target_bytes == 500 * MIB);
}

static void spec_fails(const char *const *specs, size_t n_specs, const char *expected) {
        const struct config_args args = {.config_path = main_file, .pool_specs = specs, .n_pool_specs = n_specs};
        char error[CONFIG_TEXT_BYTES] = "";

        write_file("main.conf", "");
        assert_int_equal(load_args(&args, error), -EINVAL);
        assert_string_equal(error, expected);
}

static void a_wrong_option_is_named(void **state) {
        static const char *const malformed[] = {"",         "2M",         "2M:auto",     ":auto:4G", "2M::4G",
                                                "2M:auto:", "2M:auto:@0", "2M:auto:4G@", "a=",         "=2M:auto:4G"};
        const struct config_args args = {.config_path = main_file, .socket_path = "sock"};
        char error[CONFIG_TEXT_BYTES] = "", expected[CONFIG_TEXT_BYTES];

        for (size_t i = 0; i < ELEMENTSOF(malformed); i++) {
                (void) snprintf(expected, sizeof(expected),
                                "--pool %s: not understood; give [NAME=]PAGESIZE:EXTENTSIZE:TARGET[@NODES], "
                                "like 2M:auto:4G or vms=1G:1G:50%%@0,1",
                                malformed[i]);
                spec_fails(&malformed[i], 1, expected);
        }
        spec_fails((const char *const[]){"4M:auto:4G"}, 1,
                   "--pool 4M:auto:4G: PageSize=: value \"4M\": the kernel has no pages of that size; it has 2 MiB, 1 GiB");
        spec_fails((const char *const[]){"2M:auto:4G@0,9"}, 1,
                   "--pool 2M:auto:4G@0,9: Nodes=: value \"0,9\": there is no node 9; nodes with memory are 0, 1");
        spec_fails((const char *const[]){"2M:3M:4G"}, 1,
                   "--pool 2M:3M:4G: ExtentSize=: value \"3M\": no multiple of the page size, 2 MiB; give 2 MiB or 4 MiB");
        spec_fails((const char *const[]){"a=2M:auto:4G", "a=1G:auto:4G"}, 2,
                   "--pool a=1G:auto:4G: pool \"a\": there is another pool of that name; change one");
        spec_fails((const char *const[]){"a\nb=2M:auto:4G"}, 1,
                   "--pool a?b=2M:auto:4G: pool \"a?b\": the pool's name has other characters than letters, digits, \"-\", "
                   "\"_\" and "
                   "\".\"; change it");
        spec_fails((const char *const[]){"pool1=2M:auto:4G", "1G:auto:4G"}, 2,
                   "--pool 1G:auto:4G: pool \"pool1\": there is another pool of that name; change one");

        write_file("main.conf", "");
        assert_int_equal(load_args(&args, error), -EINVAL);
        assert_string_equal(error,
                            "--socket: [Daemon] Socket=: value \"sock\": not understood; give an absolute path of at most 107 "
                            "bytes");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(a_file_that_was_asked_for_must_exist),
                test_without_fd_leak(nothing_is_written_twice_in_a_file),
                cmocka_unit_test_teardown(drop_ins_override_in_the_order_of_their_names, remove_drop_ins),
                cmocka_unit_test_teardown(a_message_names_the_drop_in, remove_drop_ins),
                test_without_fd_leak(options_come_before_all_files),
                test_without_fd_leak(a_wrong_option_is_named),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
