/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The examples of hugezerod.conf(5) load, on a machine with two nodes. */
#include "testing.h"

#include <string.h>

#include "cleanup.h"
#include "config-draft.h"
#include "fake-topology.h"

/* Groups and users of the examples that need not exist here, and such as do everywhere: numbers. */
static const char *const names[][2] = {
        {"=kvm", "=1001"}, {"=dpdk", "=1002"}, {"user:postgres", "user:1003"}, {"user:nobody", "user:1004"}};

static FILE *open_page(void) {
        FILE *page = fopen(SOURCE_ROOT "/daemon/hugezerod.conf.5.scd", "re");

        assert_non_null(page);
        return page;
}

static void write_replaced(FILE *out, const char *line) {
        for (size_t i = 0; i < ELEMENTSOF(names); i++) {
                const char *found = strstr(line, names[i][0]);

                if (found) {
                        (void) fprintf(out, "%.*s%s%s", (int) (found - line), line, names[i][1], found + strlen(names[i][0]));
                        return;
                }
        }
        (void) fputs(line, out);
}

static void load(const char *path) {
        static struct config config;
        const struct config_args args = {.config_path = path};
        struct topology topology = fake_machine();
        char error[CONFIG_TEXT_BYTES];

        if (config_load(&args, &topology, &config, error) != 0)
                fail_msg("an example of the page: %s", error);
        assert_false(config.pools_are_default);
}

static void every_example_of_the_page_loads(void **state) {
        _cleanup_fclose_ FILE *page = open_page(), *out = NULL;
        char path[] = "/tmp/test-config-examples-XXXXXX", line[512];
        bool inside = false;
        int n_examples = 0;

        assert_true((out = fdopen(mkstemp(path), "we")));
        while (fgets(line, sizeof(line), page)) {
                bool fence = strcmp(line, "```\n") == 0;

                if (inside && fence && ftell(out) > 0) {
                        assert_int_equal(fflush(out), 0);
                        load(path);
                        n_examples++;
                        rewind(out);
                        assert_int_equal(ftruncate(fileno(out), 0), 0);
                } else if (inside && !fence && strncmp(line, "hugezerod ", 10) != 0)
                        write_replaced(out, line);
                inside ^= fence;
        }
        assert_int_equal(unlink(path), 0);
        assert_false(inside);
        assert_int_equal(n_examples, 3);
}

/* "hugezerod --pool 'SPEC' --pool SPEC" */
static void every_pool_option_of_the_page_is_understood(void **state) {
        _cleanup_fclose_ FILE *page = open_page();
        char line[512];
        int n_specs = 0;

        while (fgets(line, sizeof(line), page)) {
                if (strncmp(line, "hugezerod --pool ", 17) != 0)
                        continue;
                for (char *p = strstr(line, "--pool "), *end; p; p = strstr(end, "--pool "), n_specs++) {
                        struct topology topology = fake_machine();
                        static struct config config;
                        const char *spec = p + 7 + (p[7] == '\'');
                        const struct config_args args = {.pool_specs = &spec, .n_pool_specs = 1, .config_path = "/dev/null"};
                        char error[CONFIG_TEXT_BYTES], after;

                        end = (char *) spec + strcspn(spec, p[7] == '\'' ? "'" : " \n");
                        after = *end;
                        *end = 0;
                        if (config_load(&args, &topology, &config, error) != 0)
                                fail_msg("%s", error);
                        *end = after;
                }
        }
        assert_int_equal(n_specs, 4);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(every_example_of_the_page_loads),
                test_without_fd_leak(every_pool_option_of_the_page_is_understood),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
