/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Figures as text: two formats with the same samples, and names that cannot break a line. */
#include "testing.h"

#include <stdlib.h>
#include <string.h>

#include "metrics.h"

static const struct hugezero_daemon_info daemon_info = {
        .version = "1.2", .uptime_ms = 61005, .n_clients = 3, .granted_bytes_total = UINT64_C(1) << 40};
static const struct hugezero_pool_info pools[] = {
        {.name = "small", .node = 0, .page_size_bytes = 2 << 20, .ready_bytes = 4 << 20, .n_workers = 7, .n_cut_total = 5},
        {.name = "a\"b\\c\nd", .node = 12, .page_size_bytes = 1 << 30, .paced_wait_ms = 1500},
};

static char *write_text(enum metrics_format format, size_t n_pools) {
        char *text = NULL;
        size_t n_bytes;
        FILE *stream = open_memstream(&text, &n_bytes);

        assert_non_null(stream);
        metrics_write(stream, format, &daemon_info, pools, n_pools);
        assert_int_equal(fclose(stream), 0);
        assert_int_equal(strlen(text), n_bytes);
        return text;
}

static void samples_have_their_names_labels_and_values(void **state) {
        static const char *const lines[] = {
                "\nhugezero_build_info{version=\"1.2\"} 1\n",
                "\nhugezero_uptime_seconds 61.005\n",
                "\nhugezero_clients 3\n",
                "\nhugezero_granted_bytes_total 1099511627776\n",
                "\nhugezero_pool_ready_bytes{pool=\"small\",node=\"0\",page_size=\"2M\"} 4194304\n",
                "\nhugezero_pool_workers{pool=\"small\",node=\"0\",page_size=\"2M\"} 7\n",
                "\nhugezero_pool_extents_served_total{pool=\"small\",node=\"0\",page_size=\"2M\",how=\"cut\"} 5\n",
                "\nhugezero_pool_paced_wait_seconds_total{pool=\"a\\\"b\\\\c\\nd\",node=\"12\",page_size=\"1G\"} 1.500\n",
        };

        for (int format = METRICS_PROMETHEUS; format <= METRICS_OPENMETRICS; format++) {
                char *text = write_text((enum metrics_format) format, 2);

                for (size_t i = 0; i < ELEMENTSOF(lines); i++)
                        assert_non_null(strstr(text, lines[i]));
                free(text);
        }
}

static void families_are_named_as_each_format_wants_it(void **state) {
        char *prometheus = write_text(METRICS_PROMETHEUS, 1), *open = write_text(METRICS_OPENMETRICS, 1);

        assert_non_null(strstr(prometheus, "# TYPE hugezero_build_info gauge\n"));
        assert_non_null(strstr(prometheus, "# TYPE hugezero_granted_bytes_total counter\n"));
        assert_null(strstr(prometheus, "# UNIT"));
        assert_null(strstr(prometheus, "# EOF"));
        assert_non_null(strstr(open, "# TYPE hugezero_build info\n"));
        assert_non_null(strstr(open, "# TYPE hugezero_granted_bytes counter\n# UNIT hugezero_granted_bytes bytes\n"));
        assert_string_equal(open + strlen(open) - 6, "# EOF\n");
        free(prometheus);
        free(open);
}

static void a_family_has_one_head_whatever_labels_it_has(void **state) {
        char *text = write_text(METRICS_PROMETHEUS, 2);
        const char *first = strstr(text, "# TYPE hugezero_pool_extents_served_total");

        assert_non_null(first);
        assert_null(strstr(first + 1, "# TYPE hugezero_pool_extents_served_total"));
        free(text);
}

static void without_pools_there_are_no_heads_of_theirs(void **state) {
        char *text = write_text(METRICS_OPENMETRICS, 0);

        assert_null(strstr(text, "pool"));
        assert_string_equal(text + strlen(text) - 6, "# EOF\n");
        free(text);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(samples_have_their_names_labels_and_values),
                cmocka_unit_test(families_are_named_as_each_format_wants_it),
                cmocka_unit_test(a_family_has_one_head_whatever_labels_it_has),
                cmocka_unit_test(without_pools_there_are_no_heads_of_theirs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
