/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezero-reserve: its configuration, and growing in a tree of files that stands for /sys. Real pages: suite vm. */
#include "testing.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "reserve-pages.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static const uint64_t nodes_0_and_2[PARSE_MAX_NODES / 64] = {0x5};

static int read_text(struct reserve_config *config, const char *text, char error[RESERVE_ERROR_BYTES]) {
        _cleanup_fclose_ FILE *stream = fmemopen((void *) text, strlen(text), "r");

        assert_non_null(stream);
        return reserve_config_read(config, stream, "FILE", error);
}

static void assert_goal(const struct reserve_goal *goal, uint64_t page_size_bytes, int node, uint64_t n_pages) {
        assert_int_equal(goal->page_size_bytes, page_size_bytes);
        assert_int_equal(goal->node, node);
        assert_int_equal(goal->n_pages, n_pages);
}

static void lines_become_goals_for_each_node_largest_pages_first(void **state) {
        struct reserve_config config = {.all_nodes = nodes_0_and_2};
        char error[RESERVE_ERROR_BYTES];

        assert_int_equal(read_text(&config, "# remark\n\n2048kB all 16MiB\n  2MiB\t1,3 0 \n#1G 0 1G\n1GB 3 2G", error), 0);
        reserve_config_sort(&config);
        assert_int_equal(config.n_goals, 5);
        assert_goal(&config.goals[0], GIB, 3, 2);
        assert_goal(&config.goals[1], 2 * MIB, 0, 8);
        assert_goal(&config.goals[2], 2 * MIB, 1, 0);
        assert_goal(&config.goals[3], 2 * MIB, 2, 8);
        assert_goal(&config.goals[4], 2 * MIB, 3, 0);
        reserve_config_done(&config);
}

static void a_later_line_replaces_an_earlier_one(void **state) {
        struct reserve_config config = {.all_nodes = nodes_0_and_2};
        char error[RESERVE_ERROR_BYTES];

        assert_int_equal(read_text(&config, "2M all 16M\n", error), 0);
        assert_int_equal(read_text(&config, "2M 2 4M\n", error), 0);
        assert_int_equal(config.n_goals, 2);
        assert_goal(&config.goals[0], 2 * MIB, 0, 8);
        assert_goal(&config.goals[1], 2 * MIB, 2, 2);
        reserve_config_done(&config);
}

static void a_wrong_line_is_named(void **state) {
        static const struct {
                const char *text, *error;
        } cases[] = {
                {"2M 0\n", "FILE:1: three words are expected, PAGE-SIZE NODES AMOUNT, as in \"2M 0,1 16GiB\""},
                {"2M 0 2M # remark\n", "FILE:1: a remark behind the words; give it a line of its own"},
                {"\n2M 0 2M 2M\n", "FILE:2: three words are expected, PAGE-SIZE NODES AMOUNT, as in \"2M 0,1 16GiB\""},
                {"3M 0 3M", "FILE:1: \"3M\" is no page size; write one like 2M or 1G"},
                {"huge 0 3M", "FILE:1: \"huge\" is no page size; write one like 2M or 1G"},
                {"2M node0 2M", "FILE:1: \"node0\" names no nodes; write all, or numbers like 0,2 or 0-3"},
                {"2M 0 3M", "FILE:1: \"3M\" is no amount of 2 MiB pages; write a multiple of that, like 16GiB"},
                {"2M 0 many", "FILE:1: \"many\" is no amount of 2 MiB pages; write a multiple of that, like 16GiB"},
        };
        char error[RESERVE_ERROR_BYTES];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                struct reserve_config config = {.all_nodes = nodes_0_and_2};

                assert_int_equal(read_text(&config, cases[i].text, error), -EINVAL);
                assert_string_equal(error, cases[i].error);
                reserve_config_done(&config);
        }
}

/* A tree with one node and one page size; files keep what is written, as a kernel with memory enough would. */

static const char node_dir[] = "devices/system/node/node0/hugepages/hugepages-2048kB";

static void write_file(int dir_fd, const char *name, const char *text) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s/%s", node_dir, name);
        _cleanup_close_ int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static int make_tree(char root[], const char *nr, const char *surplus) {
        char path[256];

        assert_non_null(mkdtemp(root));
        (void) snprintf(path, sizeof(path), "mkdir -p %s/%s", root, node_dir);
        assert_int_equal(system(path), 0);
        int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        write_file(fd, "nr_hugepages", nr);
        write_file(fd, "surplus_hugepages", surplus);
        return fd;
}

static void remove_tree(const char *root) {
        char command[256];

        (void) snprintf(command, sizeof(command), "rm -r %s", root);
        assert_int_equal(system(command), 0);
}

static void assert_pages(int dir_fd, const char *expected) {
        char path[128], text[32] = "";

        (void) snprintf(path, sizeof(path), "%s/nr_hugepages", node_dir);
        _cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
        assert_true(read(fd, text, sizeof(text) - 1) > 0);
        assert_string_equal(text, expected);
}

static void a_pool_grows_to_the_goal(void **state) {
        const struct reserve_goal goal = {.page_size_bytes = 2 * MIB, .n_pages = 12};
        char root[] = "/tmp/test-reserve-XXXXXX";
        _cleanup_close_ int fd = make_tree(root, "9\n", "0\n");
        struct reserve_result result;

        assert_int_equal(reserve_grow(fd, &goal, &result), 0);
        assert_int_equal(result.n_before, 9);
        assert_int_equal(result.n_after, 12);
        assert_int_equal(result.n_writes, 1);
        assert_false(result.compacted);
        assert_pages(fd, "12");
        remove_tree(root);
}

static void a_pool_that_is_larger_is_left_alone(void **state) {
        const struct reserve_goal goal = {.page_size_bytes = 2 * MIB, .n_pages = 12};
        char root[] = "/tmp/test-reserve-XXXXXX";
        _cleanup_close_ int fd = make_tree(root, "20\n", "5\n");
        struct reserve_result result;

        assert_int_equal(reserve_grow(fd, &goal, &result), 0);
        assert_int_equal(result.n_after, 15);
        assert_int_equal(result.n_writes, 0);
        assert_pages(fd, "20\n");
        remove_tree(root);
}

static void surplus_pages_do_not_count(void **state) {
        const struct reserve_goal goal = {.page_size_bytes = 2 * MIB, .n_pages = 12};
        char root[] = "/tmp/test-reserve-XXXXXX";
        _cleanup_close_ int fd = make_tree(root, "13\n", "3\n");
        struct reserve_result result;

        /* The files of this tree never give the last two: as often as a kernel without memory it is asked, twice */
        assert_int_equal(reserve_grow(fd, &goal, &result), 0);
        assert_int_equal(result.n_before, 10);
        assert_int_equal(result.n_after, 9);
        assert_int_equal(result.n_writes, 2);
        assert_true(result.compacted);
        assert_pages(fd, "12\n"); /* the new line is the old text's */
        remove_tree(root);
}

static void a_size_or_node_that_is_not_there_is_said(void **state) {
        const struct reserve_goal goals[] = {{.page_size_bytes = GIB, .n_pages = 1},
                                             {.page_size_bytes = 2 * MIB, .node = 1, .n_pages = 1}};
        char root[] = "/tmp/test-reserve-XXXXXX";
        _cleanup_close_ int fd = make_tree(root, "0\n", "0\n");
        struct reserve_result result;

        for (size_t i = 0; i < ELEMENTSOF(goals); i++)
                assert_int_equal(reserve_grow(fd, &goals[i], &result), -ENOENT);
        remove_tree(root);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(lines_become_goals_for_each_node_largest_pages_first),
                cmocka_unit_test(a_later_line_replaces_an_earlier_one),
                cmocka_unit_test(a_wrong_line_is_named),
                test_without_fd_leak(a_pool_grows_to_the_goal),
                test_without_fd_leak(a_pool_that_is_larger_is_left_alone),
                test_without_fd_leak(surplus_pages_do_not_count),
                test_without_fd_leak(a_size_or_node_that_is_not_there_is_said),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
