/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The configuration: defaults, the daemon's keys, users and quotas; one exact message for each thing that can be wrong. */
#include "testing.h"

#include <errno.h>
#include <string.h>
#include <syslog.h>

#include "cleanup.h"
#include "clear.h"
#include "config-build.h"
#include "config-table.h"
#include "config-testing.h"
#include "config.h"

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
        daemon_fails("Batch=1M", "Batch=: value \"1M\": out of range; give a multiple of 2 MiB, 2 MiB to 1 GiB");
        daemon_fails("Batch=3M", "Batch=: value \"3M\": no such multiple; give a multiple of 2 MiB, 2 MiB to 1 GiB");
        daemon_fails("Batch=4097K", "Batch=: value \"4097K\": no such multiple; give a multiple of 2 MiB, 2 MiB to 1 GiB");
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
        daemon_fails("AdminUsers=all",
                     "AdminUsers=: value \"all\": \"all\" is no user; give names or numbers of users, at most 64");
        daemon_fails("AllowUsers=all,root", "AllowUsers=: value \"all,root\": \"all\" is no user, and means everybody when it stands "
                                            "alone; give names or numbers of users, at most 64, or all");
        daemon_fails("AllowGroups=root all", "AllowGroups=: value \"root all\": \"all\" is no group, and means everybody when it "
                                             "stands alone; give names or numbers of groups, at most 64, or all");
        fails("[Daemon]\nAdminUsers=root 65534\n",
              ":2: [Daemon] AdminUsers=: value \"root 65534\": user \"65534\" is the kernel's overflow user, as whom many run that have "
              "nothing to do with each other; have them run as a user of their own, and name that");
        daemon_fails("TrustedUsers=nobody",
                     "TrustedUsers=: value \"nobody\": user \"nobody\" is the kernel's overflow user, as whom many run that have nothing to do "
                     "with each other; have them run as a user of their own, and name that");
        load("[Daemon]\nAllowUsers=65534\nAllowGroups=65534\n"); /* no more than one user among others */
        assert_int_equal(config.allow_users.ids[0], 65534);
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

static void check_page_limit(const struct config_quota *quota, size_t idx, uint64_t page_size_bytes, uint64_t max_bytes) {
        assert_true(idx < quota->n_page_limits);
        assert_true(quota->page_limits[idx].page_size_bytes == page_size_bytes);
        assert_true(quota->page_limits[idx].max_bytes == max_bytes);
}

static void single_page_sizes_have_limits_beside_that_of_all(void **state) {
        load("[Quota default]\nMaxBytes=64 GiB \t 1G:4G 2M:infinity\n");
        assert_true(config.quota.max_bytes == 64 * GIB);
        assert_int_equal(config.quota.n_page_limits, 2);
        check_page_limit(&config.quota, 0, GIB, 4 * GIB);
        check_page_limit(&config.quota, 1, 2 * MIB, UINT64_MAX);
        load("[Quota default]\nMaxBytes=1G:0\n");
        assert_true(config.quota.max_bytes == UINT64_MAX);
        assert_int_equal(config.quota.n_page_limits, 1);
        check_page_limit(&config.quota, 0, GIB, 0);
        load("");
        assert_int_equal(config.quota.n_page_limits, 0);
}

static void each_limit_of_a_page_size_is_inherited_by_itself(void **state) {
        const struct config_quota *user = &config.user_quotas[0].quota, *rich = &config.user_quotas[1].quota,
                                  *member = &config.group_quotas[0].quota;

        load("[Quota default]\nMaxBytes=8G 1G:1G\n[Quota user:54321]\nMaxBytes=2M:4M\n[Quota user:54322]\nMaxBytes=9G 1G:infinity\n"
             "[Quota group:3100]\nMaxBytes=7G\n");
        assert_true(user->max_bytes == 8 * GIB && rich->max_bytes == 9 * GIB && member->max_bytes == 7 * GIB);
        assert_int_equal(user->n_page_limits, 2);
        check_page_limit(user, 0, GIB, GIB);
        check_page_limit(user, 1, 2 * MIB, 4 * MIB);
        assert_int_equal(rich->n_page_limits, 1);
        check_page_limit(rich, 0, GIB, UINT64_MAX);
        assert_int_equal(member->n_page_limits, 1);
        check_page_limit(member, 0, GIB, GIB);
}

#define MAX_BYTES_FORM "give a size, 0 B to 1 EiB, or infinity; behind it or alone the same of page sizes: 1G:4G 2M:infinity"

static void a_wrong_limit_of_a_page_size_is_named(void **state) {
        static const struct {
                const char *value, *reason;
        } wrong[] = {
                {"4M:1G", "the kernel has no pages of 4 MiB; it has 2 MiB, 1 GiB"},
                {"0:1G", "the kernel has no pages of 0 B; it has 2 MiB, 1 GiB"},
                {"8G 1G:4G 1024M:8G", "pages of 1 GiB are named twice; remove one"},
                {"1G:2E", "out of range; " MAX_BYTES_FORM},
                {"1G:50%", "not understood; " MAX_BYTES_FORM},
                {"1G:-1", "not understood; " MAX_BYTES_FORM},
                {"1G:", "not understood; " MAX_BYTES_FORM},
                {":1G", "not understood; " MAX_BYTES_FORM},
                {"1G:4G:4G", "not understood; " MAX_BYTES_FORM},
                {"1G:4G 64G", "not understood; " MAX_BYTES_FORM},
                {"64G, 1G:4G", "not understood; " MAX_BYTES_FORM},
                {"infinity:4G", "not understood; " MAX_BYTES_FORM},
        };

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                char content[128], expected[512];

                (void) snprintf(content, sizeof(content), "[Quota user:root]\nMaxBytes=%s\n", wrong[i].value);
                (void) snprintf(expected, sizeof(expected), ":2: [Quota user:root] MaxBytes=: value \"%s\": %s", wrong[i].value,
                                wrong[i].reason);
                fails(content, expected);
        }
}

static void a_wrong_quota_is_named(void **state) {
        fails("[Quota user:no-such-user]\n",
              ":1: [Quota user:no-such-user] user \"no-such-user\": unknown on this machine; create the "
              "user, or give a name or number that exists");
        fails("[Quota default]\nMaxBytes=2E\n",
              ":2: [Quota default] MaxBytes=: value \"2E\": out of range; " MAX_BYTES_FORM);
        fails("[Quota default]\nMaxBytes=50%\n",
              ":2: [Quota default] MaxBytes=: value \"50%\": not understood; " MAX_BYTES_FORM);
        fails("[Quota user:root]\n\nMaxGrants=4294967295\n",
              ":3: [Quota user:root] MaxGrants=: value \"4294967295\": out of range; "
              "give a number of grants, 0 to 1048576, or infinity");
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

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(an_empty_file_gives_the_defaults),
                test_without_fd_leak(no_file_at_all_gives_the_defaults),
                test_without_fd_leak(reserved_pages_are_not_half_taken),
                test_without_fd_leak(every_daemon_key_is_read),
                test_without_fd_leak(a_wrong_daemon_value_is_named),
                test_without_fd_leak(a_wrong_method_is_refused_with_a_list_of_the_right_ones),
                test_without_fd_leak(a_socket_path_must_fit_its_address),
                test_without_fd_leak(unknown_names_are_refused),
                test_without_fd_leak(keys_need_a_section_and_a_value),
                test_without_fd_leak(lists_of_users_and_groups_are_looked_up),
                test_without_fd_leak(members_of_a_group_have_its_quota),
                test_without_fd_leak(users_have_the_default_quota_but_for_what_is_written),
                test_without_fd_leak(a_wrong_quota_is_named),
                test_without_fd_leak(single_page_sizes_have_limits_beside_that_of_all),
                test_without_fd_leak(each_limit_of_a_page_size_is_inherited_by_itself),
                test_without_fd_leak(a_wrong_limit_of_a_page_size_is_named),
                test_without_fd_leak(the_forms_of_all_keys_fit),
                test_without_fd_leak(the_sample_file_is_what_the_table_says),
                test_without_fd_leak(the_sample_file_gives_the_defaults),
        };

        return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
