/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The configuration: defaults, spellings, precedence, and one exact message for each thing that can be wrong. */
#include "testing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <syslog.h>

#include "cleanup.h"
#include "clear.h"
#include "config-build.h"
#include "config-table.h"
#include "config.h"
#include "fake-topology.h"

static char folder[] = "/tmp/test-config-XXXXXX", main_file[64];
static struct config config; /* of the last load() that succeeded; large */

static void write_file(const char *name, const char *content) {
        char path[128];
        FILE *stream;

        (void) snprintf(path, sizeof(path), "%s/%s", folder, name);
        stream = fopen(path, "we");
        assert_non_null(stream);
        assert_int_equal(fputs(content, stream) < 0, 0);
        assert_int_equal(fclose(stream), 0);
}

static int load_args(const struct config_args *args, char error[CONFIG_TEXT_BYTES]) {
        struct topology topology = fake_machine();

        return config_load(args, &topology, &config, error);
}

/* Loads @content as the configuration; it must be fine. */
static void load(const char *content) {
        const struct config_args args = {.config_path = main_file};
        char error[CONFIG_TEXT_BYTES] = "untouched";

        write_file("main.conf", content);
        if (load_args(&args, error) != 0)
                fail_msg("%s", error);
        assert_string_equal(error, "untouched");
}

/* @expected: the message behind the name of the file. Nothing is written to the result. */
static void fails(const char *content, const char *expected) {
        const struct config_args args = {.config_path = main_file};
        char error[CONFIG_TEXT_BYTES] = "";

        write_file("main.conf", content);
        memset(&config, 0x55, sizeof(config));
        assert_int_equal(load_args(&args, error), -EINVAL);
        if (strncmp(error, main_file, strlen(main_file)) != 0 || strcmp(error + strlen(main_file), expected) != 0)
                fail_msg("message:  %s\nexpected: FILE%s", error, expected);
        for (size_t i = 0; i < sizeof(config); i++)
                assert_int_equal(((unsigned char *) &config)[i], 0x55);
}

static const struct config_pool *load_pool(const char *keys) {
        char content[1024];

        (void) snprintf(content, sizeof(content), "[Pool p]\n%s\n", keys);
        load(content);
        assert_int_equal(config.n_pools, 1);
        return &config.pools[0];
}

/* @keys: one line, the second of the file. */
static void pool_fails(const char *keys, const char *expected) {
        char content[1024], message[CONFIG_TEXT_BYTES + 32];

        (void) snprintf(content, sizeof(content), "[Pool p]\n%s\n", keys);
        (void) snprintf(message, sizeof(message), ":2: [Pool p] %s", expected);
        fails(content, message);
}

static void daemon_fails(const char *key, const char *expected) {
        char content[1024], message[CONFIG_TEXT_BYTES + 32];

        (void) snprintf(content, sizeof(content), "# remark\n[Daemon]\n%s\n", key);
        (void) snprintf(message, sizeof(message), ":3: [Daemon] %s", expected);
        fails(content, message);
}

static void check_defaults(void) {
        assert_string_equal(config.socket_path, HUGEZERO_SOCKET_PATH);
        assert_string_equal(config.socket_group, "");
        assert_int_equal(config.socket_gid, (gid_t) -1);
        assert_int_equal(config.socket_mode, 0660);
        assert_int_equal(config.max_connections, 1024);
        assert_int_equal(config.max_waiting, 1024);
        assert_int_equal(config.max_fds_in_flight, 4096);
        assert_int_equal(config.workers_per_node, 0);
        assert_null(config.clear_method);
        assert_true(config.batch_bytes == 32 * MIB);
        assert_true(config.background_bytes_per_s == 2 * GIB);
        assert_true(config.audit_bytes_per_s == 16 * MIB);
        assert_int_equal(config.release_grace_ms, 1000);
        assert_int_equal(config.affinity_timeout_ms, 600000);
        assert_int_equal(config.unmap_after_ms, 10000);
        assert_int_equal(config.sweep_interval_ms, 60000);
        assert_int_equal(config.recycle, CONFIG_RECYCLE_SAME_SERVICE);
        assert_true(config.share_page_tables);
        assert_int_equal(config.log_level, LOG_INFO);
        assert_true(config.quota.max_bytes == UINT64_MAX);
        assert_int_equal(config.quota.max_grants, 1024);
        assert_int_equal(config.quota.max_connections, 64);
        assert_int_equal(config.quota.max_waiting, 64);
        assert_int_equal(config.n_user_quotas, 0);
}

static void check_default_pool(void) {
        const struct config_pool *pool = &config.pools[0];

        assert_int_equal(config.n_pools, 1);
        assert_true(pool->page_size_bytes == 2 * MIB);
        assert_true(pool->extent_bytes == 0);
        assert_int_equal(pool->low_millipercent, 25000);
        assert_int_equal(pool->n_nodes, 2);
        assert_int_equal(pool->nodes[0].node, 0);
        assert_true(pool->nodes[0].target_bytes == 700 * MIB);
        assert_int_equal(pool->nodes[1].node, 1);
        assert_true(pool->nodes[1].target_bytes == 500 * MIB); /* half of 501 pages, rounded down */
}

static void an_empty_file_gives_the_defaults(void **state) {
        load("");
        check_defaults();
        check_default_pool();
        assert_string_equal(config.pools[0].name, "default");
        assert_true(config.pools_are_default);
}

static void no_file_at_all_gives_the_defaults(void **state) {
        char error[CONFIG_TEXT_BYTES] = "";

        if (access(HUGEZERO_CONFIG_PATH, F_OK) == 0 || access(HUGEZERO_CONFIG_PATH ".d", F_OK) == 0) {
                print_message("this machine has a configuration: %s\n", HUGEZERO_CONFIG_PATH);
                skip();
        }
        memset(&config, 0x55, sizeof(config));
        if (load_args(&(struct config_args){}, error) != 0)
                fail_msg("%s", error);
        check_defaults();
        check_default_pool();
        assert_true(config.pools_are_default);
}

static void a_file_that_was_asked_for_must_exist(void **state) {
        const struct config_args args = {.config_path = "/nonexistent/hugezerod.conf"};
        char error[CONFIG_TEXT_BYTES] = "";

        assert_int_equal(load_args(&args, error), -ENOENT);
        assert_string_equal(error, "/nonexistent/hugezerod.conf: cannot open the configuration: No such file or directory");
}

static void reserved_pages_are_not_half_taken(void **state) {
        const struct config_args args = {.config_path = main_file};
        struct topology topology = fake_machine();
        char error[CONFIG_TEXT_BYTES] = "";

        topology.pages[0][0].n_reserved = 100;
        write_file("main.conf", "");
        assert_int_equal(config_load(&args, &topology, &config, error), 0);
        assert_true(config.pools[0].nodes[0].target_bytes == 600 * MIB);
}

static void every_daemon_key_is_read(void **state) {
        load("[Daemon]\nSocket=/run/x.sock\nSocketGroup=root\nSocketMode=0666\nMaxConnections=1\nMaxWaiting=65536\n"
             "MaxFdsInFlight=253\nWorkersPerNode=3\nClearMethod=memset\nBatch=4M\nBackgroundRate=1M\nAuditRate=0\nReleaseGrace=50ms\nAffinityTimeout=1min 30s\nUnmapAfter=infinity\n"
             "SweepInterval=2\nRecycle=never\nSharePageTables=off\nLogLevel=debug\n");
        assert_string_equal(config.socket_path, "/run/x.sock");
        assert_string_equal(config.socket_group, "root");
        assert_int_equal(config.socket_gid, 0);
        assert_int_equal(config.socket_mode, 0666);
        assert_int_equal(config.max_connections, 1);
        assert_int_equal(config.max_waiting, 65536);
        assert_int_equal(config.max_fds_in_flight, 253);
        assert_int_equal(config.workers_per_node, 3);
        assert_ptr_equal(config.clear_method, clear_method_named("memset"));
        assert_true(config.batch_bytes == 4 * MIB);
        assert_true(config.background_bytes_per_s == MIB);
        assert_true(config.audit_bytes_per_s == 0);
        assert_int_equal(config.release_grace_ms, 50);
        assert_int_equal(config.affinity_timeout_ms, 90000);
        assert_true(config.unmap_after_ms == UINT64_MAX);
        assert_int_equal(config.sweep_interval_ms, 2000);
        assert_int_equal(config.recycle, CONFIG_RECYCLE_NEVER);
        assert_false(config.share_page_tables);
        assert_int_equal(config.log_level, LOG_DEBUG);
        assert_true(config.pools_are_default);

        load("[Daemon]\nSocketGroup=12345\nSocketMode=600\nRecycle=same-user\nLogLevel=error\n");
        assert_string_equal(config.socket_group, "12345");
        assert_int_equal(config.socket_gid, 12345);
        assert_int_equal(config.socket_mode, 0600);
        assert_int_equal(config.recycle, CONFIG_RECYCLE_SAME_USER);
        assert_int_equal(config.log_level, LOG_ERR);
        load("[Daemon]\nClearMethod=auto\nBackgroundRate=infinity\nAuditRate=1G\n");
        assert_null(config.clear_method);
        assert_true(config.background_bytes_per_s == UINT64_MAX);
        assert_true(config.audit_bytes_per_s == GIB);
        load("[Daemon]\nRecycle=trusted\nLogLevel=notice\n");
        assert_int_equal(config.recycle, CONFIG_RECYCLE_TRUSTED);
        assert_int_equal(config.log_level, LOG_NOTICE);
}

static void a_wrong_daemon_value_is_named(void **state) {
        daemon_fails("Socket=run/x", "Socket=: value \"run/x\": not understood; give an absolute path of at most 107 bytes");
        daemon_fails("SocketMode=rw",
                     "SocketMode=: value \"rw\": not understood; give three or four octal digits, 0600 to 0777");
        daemon_fails("SocketMode=0888",
                     "SocketMode=: value \"0888\": not understood; give three or four octal digits, 0600 to 0777");
        daemon_fails("SocketMode=1777",
                     "SocketMode=: value \"1777\": out of range; give three or four octal digits, 0600 to 0777");
        daemon_fails("SocketMode=0060",
                     "SocketMode=: value \"0060\": out of range; give three or four octal digits, 0600 to 0777");
        daemon_fails("SocketGroup=no such group",
                     "SocketGroup=: value \"no such group\": unknown on this machine; create the group or give another");
        daemon_fails("SocketGroup=4294967295",
                     "SocketGroup=: value \"4294967295\": unknown on this machine; create the group or give another");
        daemon_fails("SocketGroup=1234567890123456789012345678901234567890123456789012345678901234",
                     "SocketGroup=: value \"12345678901234567890123456789012345678901234...\": longer than the 63 bytes that a "
                     "group's name may have");
        daemon_fails("MaxWaiting=0", "MaxWaiting=: value \"0\": out of range; give a number of requests, 1 to 65536");
        daemon_fails("MaxWaiting=65537", "MaxWaiting=: value \"65537\": out of range; give a number of requests, 1 to 65536");
        daemon_fails("MaxWaiting=-1", "MaxWaiting=: value \"-1\": not understood; give a number of requests, 1 to 65536");
        daemon_fails("MaxWaiting=many", "MaxWaiting=: value \"many\": not understood; give a number of requests, 1 to 65536");
        daemon_fails("MaxFdsInFlight=252",
                     "MaxFdsInFlight=: value \"252\": out of range; give a number of file descriptors, 253 to 1048576");
        daemon_fails("WorkersPerNode=65",
                     "WorkersPerNode=: value \"65\": out of range; give a number of threads, 1 to 64, or auto");
        daemon_fails("Batch=1M", "Batch=: value \"1M\": out of range; give a size, 2 MiB to 1 GiB");
        daemon_fails("BackgroundRate=0",
                     "BackgroundRate=: value \"0\": out of range; give a size per second, 1 MiB to 1 PiB, or infinity");
        daemon_fails("AuditRate=infinity",
                     "AuditRate=: value \"infinity\": not understood; give a size per second, 0 B to 1 GiB");
        daemon_fails("ReleaseGrace=49ms", "ReleaseGrace=: value \"49ms\": out of range; give a time, 50ms to 1h");
        daemon_fails("ReleaseGrace=61min", "ReleaseGrace=: value \"61min\": out of range; give a time, 50ms to 1h");
        daemon_fails("AffinityTimeout=5m", "AffinityTimeout=: value \"5m\": not understood; give a time, 0s to infinity");
        daemon_fails("SweepInterval=infinity", "SweepInterval=: value \"infinity\": out of range; give a time, 100ms to 1h");
        daemon_fails("Recycle=always",
                     "Recycle=: value \"always\": not understood; give one of same-service, same-user, trusted, never");
        daemon_fails("SharePageTables=maybe", "SharePageTables=: value \"maybe\": not understood; give yes or no");
        daemon_fails("LogLevel=7", "LogLevel=: value \"7\": not understood; give one of error, warning, notice, info, debug");
}

static void a_wrong_method_is_refused_with_a_list_of_the_right_ones(void **state) {
        char names[256] = "", message[CONFIG_TEXT_BYTES], key[64];
        const char *const form = "ClearMethod=: value \"%s\": %s; give auto or one of those that this machine has: %s";
        const struct clear_method *method;

        for (size_t i = 0; (method = clear_method_at(i)); i++)
                if (!method->why_not()) {
                        (void) strcat(strcat(names, *names ? ", " : ""), method->name);
                        (void) snprintf(message, sizeof(message), "[Daemon]\nClearMethod=%s\n", method->name);
                        load(message);
                        assert_ptr_equal(config.clear_method, method);
                }
        (void) snprintf(message, sizeof(message), form, "magic", "no such method", names);
        daemon_fails("ClearMethod=magic", message);
        for (size_t i = 0; (method = clear_method_at(i)); i++)
                if (method->why_not()) {
                        (void) snprintf(key, sizeof(key), "ClearMethod=%s", method->name);
                        (void) snprintf(message, sizeof(message), form, method->name, method->why_not(), names);
                        daemon_fails(key, message);
                }
}

static void a_socket_path_must_fit_its_address(void **state) {
        char key[160] = "Socket=/", content[256];
        const size_t longest = strlen("Socket=") + 107;

        memset(key + 8, 'x', longest - 8);
        (void) snprintf(content, sizeof(content), "[Daemon]\n%s\n", key);
        load(content);
        assert_string_equal(config.socket_path, key + strlen("Socket="));
        assert_int_equal(strlen(config.socket_path), 107);
        key[longest] = 'x';
        daemon_fails(key,
                     "Socket=: value \"/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": out of range; give an absolute path "
                     "of at most 107 bytes");
}

static void unknown_names_are_refused(void **state) {
        fails("[Daemon]\nMaxConections=5\n",
              ":2: [Daemon] MaxConections=: unknown key; hugezerod.conf(5) lists those of [Daemon]");
        fails("[Daemon]\n\nmaxwaiting=5\n", ":3: [Daemon] maxwaiting=: unknown key; write MaxWaiting=");
        fails("[Daemon]\nTarget=5G\n", ":2: [Daemon] Target=: unknown key here; it belongs in [Pool NAME]");
        fails("[Pool p]\nLogLevel=info\n", ":2: [Pool p] LogLevel=: unknown key here; it belongs in [Daemon]");
        fails("[Quota default]\nNodes=0\n", ":2: [Quota default] Nodes=: unknown key here; it belongs in [Pool NAME]");
        fails("[Pool p]\nMaxBytes=1G\n",
              ":2: [Pool p] MaxBytes=: unknown key here; it belongs in [Quota default], [Quota user:NAME] and [Quota group:NAME]");
        static const char *const titles[] = {"daemon",      "Poolp", "Quota",   "Quota alice",
                                             "Quota user:", "",      " Daemon", "Pools p"};
        for (size_t i = 0; i < ELEMENTSOF(titles); i++) {
                char content[64], message[256];

                (void) snprintf(content, sizeof(content), "\n[%s]\n", titles[i]);
                (void) snprintf(
                        message, sizeof(message),
                        ":2: [%s] unknown section; there are [Daemon], [Pool NAME], [Quota default], [Quota user:NAME] and [Quota group:NAME]",
                        titles[i]);
                fails(content, message);
        }
}

static void keys_need_a_section_and_a_value(void **state) {
        fails("LogLevel=info\n", ":1: LogLevel=: before any section; begin with a line like [Daemon]");
        fails("[Daemon]\nLogLevel=\n", ":2: [Daemon] LogLevel=: no value; give one, or remove the line to keep the default");
        fails("[Daemon]\nLogLevel\n", ":2: [Daemon] \"LogLevel\" has no \"=\"; write Key=value, or put # before a remark");
}

static void nothing_is_written_twice_in_a_file(void **state) {
        fails("[Daemon]\nMaxWaiting=5\nMaxWaiting=6\n",
              ":3: [Daemon] MaxWaiting=: value \"6\": the key was set in line 2 already; remove one");
        fails("[Pool p]\nTarget=4G\n\n[Pool q]\nTarget=4G\n[Pool p]\n",
              ":6: [Pool p] the section was begun in line 1 already; put its keys there");
        fails("[Daemon]\n[Daemon]\n", ":2: [Daemon] the section was begun in line 1 already; put its keys there");
        fails("[Quota user:root]\n[Quota user:0]\n", ":2: [Quota user:0] another section is for user number 0 too; remove one");
}

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
        pool_fails("Target=1M", "Target=: value \"1M\": no multiple of the page size, 2 MiB; give 2 MiB");
        pool_fails("Low=101%", "Low=: value \"101%\": out of range; give a size up to the target, or 0% to 100%");
        pool_fails("Low=all", "Low=: value \"all\": not understood; give a size up to the target, or 0% to 100%");
        pool_fails("Low=501M", "Low=: value \"501M\": more than the target of node 1, 500 MiB; give less, or per cents");
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

static void lists_of_users_and_groups_are_looked_up(void **state) {
        load("");
        assert_true(config.allow_users.all && config.allow_groups.all && config.trusted_users.all);
        assert_int_equal(config.admin_users.n, 1);
        assert_int_equal(config.admin_users.ids[0], 0);
        load("[Daemon]\nAllowUsers=root, 3001 3002\nAllowGroups=3100\nAdminUsers=3001\nTrustedUsers=root\n");
        assert_false(config.allow_users.all || config.allow_groups.all || config.trusted_users.all);
        assert_int_equal(config.allow_users.n, 3);
        assert_int_equal(config.allow_users.ids[2], 3002);
        assert_int_equal(config.allow_groups.n, 1);
        assert_int_equal(config.allow_groups.ids[0], 3100);
        assert_int_equal(config.admin_users.ids[0], 3001);
        assert_int_equal(config.trusted_users.ids[0], 0);
        fails("[Daemon]\nAllowUsers=root no-such-user\n",
              ":2: [Daemon] AllowUsers=: value \"root no-such-user\": user \"no-such-user\": unknown on this machine; create the user "
              "or take it out");
        fails("[Daemon]\nAllowGroups=,\n",
              ":2: [Daemon] AllowGroups=: value \",\": nobody is named; give names or numbers of groups, at most 64, or all");
        fails("[Daemon]\nAdminUsers=all\n", ":2: [Daemon] AdminUsers=: value \"all\": \"all\" is no user; give names or numbers of users, at most 64");
        fails("[Daemon]\nAllowUsers=all,root\n", ":2: [Daemon] AllowUsers=: value \"all,root\": \"all\" is no user, and means everybody when it "
              "stands alone; give names or numbers of users, at most 64, or all");
        fails("[Daemon]\nAllowGroups=root all\n", ":2: [Daemon] AllowGroups=: value \"root all\": \"all\" is no group, and means everybody "
              "when it stands alone; give names or numbers of groups, at most 64, or all");
        fails("[Daemon]\nAllowUsers=4294967295\n",
              ":2: [Daemon] AllowUsers=: value \"4294967295\": user \"4294967295\": unknown on this machine; create the user or take it out");
}

static void members_of_a_group_have_its_quota(void **state) {
        load("[Quota group:3100]\nMaxBytes=8G\nMaxRequestRate=5\n[Quota default]\nMaxGrants=10\n");
        assert_int_equal(config.n_group_quotas, 1);
        assert_int_equal(config.group_quotas[0].gid, 3100);
        assert_true(config.group_quotas[0].quota.max_bytes == 8 * GIB);
        assert_int_equal(config.group_quotas[0].quota.max_grants, 10);
        assert_int_equal(config.group_quotas[0].quota.max_request_rate, 5);
        assert_int_equal(config.quota.max_request_rate, 20000);
        fails("[Quota group:no-such-group]\n", ":1: [Quota group:no-such-group] group \"no-such-group\": unknown on this machine; create the "
              "group, or give a name or number that exists");
        fails("[Quota group:root]\n[Quota group:0]\n", ":2: [Quota group:0] another section is for group number 0 too; remove one");
}

static void users_have_the_default_quota_but_for_what_is_written(void **state) {
        load("[Quota user:root]\nMaxBytes=8G\n[Quota "
             "default]\nMaxBytes=1G\nMaxGrants=10\nMaxConnections=infinity\nMaxWaiting=0\n"
             "[Quota user:54321]\nMaxWaiting=7\nMaxGrants=infinity\n");
        assert_true(config.quota.max_bytes == GIB);
        assert_int_equal(config.quota.max_grants, 10);
        assert_int_equal(config.quota.max_connections, UINT32_MAX);
        assert_int_equal(config.quota.max_waiting, 0);
        assert_int_equal(config.n_user_quotas, 2);
        assert_int_equal(config.user_quotas[0].uid, 0);
        assert_true(config.user_quotas[0].quota.max_bytes == 8 * GIB);
        assert_int_equal(config.user_quotas[0].quota.max_grants, 10);
        assert_int_equal(config.user_quotas[1].uid, 54321);
        assert_true(config.user_quotas[1].quota.max_bytes == GIB);
        assert_int_equal(config.user_quotas[1].quota.max_grants, UINT32_MAX);
        assert_int_equal(config.user_quotas[1].quota.max_waiting, 7);
}

static void a_wrong_quota_is_named(void **state) {
        fails("[Quota user:no-such-user]\n",
              ":1: [Quota user:no-such-user] user \"no-such-user\": unknown on this machine; create the "
              "user, or give a name or number that exists");
        fails("[Quota default]\nMaxBytes=2E\n",
              ":2: [Quota default] MaxBytes=: value \"2E\": out of range; give a size, 0 B to 1 EiB, or infinity");
        fails("[Quota default]\nMaxBytes=50%\n",
              ":2: [Quota default] MaxBytes=: value \"50%\": not understood; give a size, 0 B to 1 EiB, or infinity");
        fails("[Quota user:root]\n\nMaxGrants=4294967295\n",
              ":3: [Quota user:root] MaxGrants=: value \"4294967295\": out of range; "
              "give a number of grants, 0 to 1048576, or infinity");
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

static void the_forms_of_all_keys_fit(void **state) {
        for (size_t i = 0; i < _CONFIG_KEY_MAX; i++) {
                char form[CONFIG_FORM_BYTES];

                assert_true(strlen(config_keys[i].unit) < sizeof(form));
                assert_true(strlen(config_key_form(&config_keys[i], form)) + strlen("not understood; give ") <
                            CONFIG_REASON_BYTES);
                assert_true(strlen(config_keys[i].help) > 0);
        }
}

static char *read_stream(FILE *stream) {
        char *text = calloc(1, 65536);

        assert_non_null(stream);
        assert_non_null(text);
        rewind(stream);
        assert_true(fread(text, 1, 65535, stream) > 0);
        return text;
}

static void the_sample_file_is_what_the_table_says(void **state) {
        static const char path[] = SOURCE_ROOT "/config/hugezerod.conf";
        _cleanup_fclose_ FILE *sample = fopen(path, getenv("UPDATE_SAMPLE") ? "w+e" : "re"), *written = tmpfile();
        _cleanup_free_ char *expected = NULL, *text = NULL;

        assert_non_null(sample);
        if (strcmp(HUGEZERO_SOCKET_PATH, "/run/hugezero/hugezero.sock") != 0) {
                print_message("built with another socket path than the sample's\n");
                return;
        }
        config_write_sample(written);
        if (getenv("UPDATE_SAMPLE"))
                config_write_sample(sample);
        expected = read_stream(written);
        text = read_stream(sample);
        for (size_t i = 0, line = 1; text[i] || expected[i]; line += text[i++] == '\n')
                if (text[i] != expected[i]) {
                        print_error("%s:%zu is not what the table of keys says; UPDATE_SAMPLE=1 %s rewrites it\n", path, line,
                                    program_invocation_name);
                        fail();
                }
}

/* With every remark sign before a key or section taken away, too. */
static void the_sample_file_gives_the_defaults(void **state) {
        _cleanup_fclose_ FILE *written = tmpfile();
        _cleanup_free_ char *text = NULL;
        char *out;

        config_write_sample(written);
        text = read_stream(written);
        load(text);
        check_defaults();
        assert_true(config.pools_are_default);

        out = text;
        for (char *p = text; *p; p++)
                if (*p != '#' || p[1] == ' ' || (p > text && p[-1] != '\n'))
                        *out++ = *p;
        *out = 0;
        load(text);
        check_defaults();
        check_default_pool();
        assert_false(config.pools_are_default);
}

static int make_folder(void **state) {
        char path[128];

        if (!mkdtemp(folder))
                return -1;
        (void) snprintf(main_file, sizeof(main_file), "%s/main.conf", folder);
        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        return mkdir(path, 0700);
}

static int remove_drop_ins(void **state) {
        char path[512];
        DIR *dir;

        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        dir = opendir(path);
        if (!dir)
                return -1;
        for (struct dirent *entry; (entry = readdir(dir));) {
                (void) snprintf(path, sizeof(path), "%s.d/%s", main_file, entry->d_name);
                (void) unlink(path);
        }
        return closedir(dir);
}

static int remove_folder(void **state) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        if (remove_drop_ins(state) < 0 || rmdir(path) < 0 || unlink(main_file) < 0)
                return -1;
        return rmdir(folder);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(an_empty_file_gives_the_defaults),
                test_without_fd_leak(no_file_at_all_gives_the_defaults),
                test_without_fd_leak(a_file_that_was_asked_for_must_exist),
                test_without_fd_leak(reserved_pages_are_not_half_taken),
                test_without_fd_leak(every_daemon_key_is_read),
                test_without_fd_leak(a_wrong_daemon_value_is_named),
                test_without_fd_leak(a_wrong_method_is_refused_with_a_list_of_the_right_ones),
                test_without_fd_leak(a_socket_path_must_fit_its_address),
                test_without_fd_leak(unknown_names_are_refused),
                test_without_fd_leak(keys_need_a_section_and_a_value),
                test_without_fd_leak(nothing_is_written_twice_in_a_file),
                test_without_fd_leak(every_pool_key_is_read),
                test_without_fd_leak(sizes_may_be_spelt_in_every_usual_way),
                test_without_fd_leak(targets_may_be_shares_or_differ_by_node),
                test_without_fd_leak(a_wrong_pool_value_is_named),
                test_without_fd_leak(a_wrong_target_is_named),
                test_without_fd_leak(a_wrong_pool_name_is_refused),
                test_without_fd_leak(a_kernel_without_hugepages_is_named),
                test_without_fd_leak(pages_that_cannot_be_counted_are_named),
                test_without_fd_leak(there_are_limits_on_pools_nodes_and_quotas),
                test_without_fd_leak(lists_of_users_and_groups_are_looked_up),
                test_without_fd_leak(members_of_a_group_have_its_quota),
                test_without_fd_leak(users_have_the_default_quota_but_for_what_is_written),
                test_without_fd_leak(a_wrong_quota_is_named),
                cmocka_unit_test_teardown(drop_ins_override_in_the_order_of_their_names, remove_drop_ins),
                cmocka_unit_test_teardown(a_message_names_the_drop_in, remove_drop_ins),
                test_without_fd_leak(options_come_before_all_files),
                test_without_fd_leak(a_wrong_option_is_named),
                test_without_fd_leak(the_forms_of_all_keys_fit),
                test_without_fd_leak(the_sample_file_is_what_the_table_says),
                test_without_fd_leak(the_sample_file_gives_the_defaults),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
