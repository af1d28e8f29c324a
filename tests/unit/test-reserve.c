/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezero-reserve: its configuration, and growing in a tree of files that stands for /sys. Real pages: suite vm. */
#include "testing.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "fake-topology.h"
#include "reserve-pages.h"

static int read_bytes(struct reserve_config *config, const char *text, size_t n_bytes, char error[RESERVE_ERROR_BYTES]) {
        _cleanup_fclose_ FILE *stream = fmemopen((void *) text, n_bytes, "r");

        assert_non_null(stream);
        return reserve_config_read(config, stream, "FILE", error);
}

static int read_text(struct reserve_config *config, const char *text, char error[RESERVE_ERROR_BYTES]) {
        return read_bytes(config, text, strlen(text), error);
}

static void assert_goal(const struct reserve_goal *goal, uint64_t page_size_bytes, int node, uint64_t n_pages) {
        assert_int_equal(goal->page_size_bytes, page_size_bytes);
        assert_int_equal(goal->node, node);
        assert_int_equal(goal->n_pages, n_pages);
}

static void lines_become_goals_for_each_node_largest_pages_first(void **state) {
        const struct topology machine = fake_machine();
        struct reserve_config config = {.topology = &machine};
        char error[RESERVE_ERROR_BYTES];

        assert_int_equal(read_text(&config, "# remark\n\n2048kB all 16MiB\n#2M 0 1G\n  1GB\t1,0 2G ", error), 0);
        reserve_config_sort(&config);
        assert_int_equal(config.n_goals, 4);
        assert_goal(&config.goals[0], GIB, 0, 2);
        assert_goal(&config.goals[1], GIB, 1, 2);
        assert_goal(&config.goals[2], 2 * MIB, 0, 8);
        assert_goal(&config.goals[3], 2 * MIB, 1, 8);
        reserve_config_done(&config);
}

static void a_later_line_replaces_an_earlier_one(void **state) {
        const struct topology machine = fake_machine();
        struct reserve_config config = {.topology = &machine};
        char error[RESERVE_ERROR_BYTES];

        assert_int_equal(read_text(&config, "2M all 16M\n", error), 0);
        assert_int_equal(read_text(&config, "2M 1 0\n", error), 0);
        assert_int_equal(config.n_goals, 2);
        assert_goal(&config.goals[0], 2 * MIB, 0, 8);
        assert_goal(&config.goals[1], 2 * MIB, 1, 0);
        reserve_config_done(&config);
}

static void a_wrong_line_is_named(void **state) {
        static const struct {
                const char *text, *error;
        } cases[] = {
                {"2M 0\n", "FILE:1: three words are expected, PAGE-SIZE NODES AMOUNT, as in \"2M 0,1 16GiB\""},
                {"2M 0 2M # remark\n", "FILE:1: a remark behind the words; give it a line of its own"},
                {"\n2M 0 2M 2M\n", "FILE:2: three words are expected, PAGE-SIZE NODES AMOUNT, as in \"2M 0,1 16GiB\""},
                {"2M 0 2M\n4K 0 16M", "FILE:2: the kernel has no pages of size \"4K\"; it has 2 MiB, 1 GiB"},
                {"0 0 3M", "FILE:1: the kernel has no pages of size \"0\"; it has 2 MiB, 1 GiB"},
                {"huge 0 3M", "FILE:1: the kernel has no pages of size \"huge\"; it has 2 MiB, 1 GiB"},
                {"2M 9 16M", "FILE:1: there is no node 9; nodes with memory are 0, 1"},
                {"2M 0,3-9 16M", "FILE:1: there is no node 3; nodes with memory are 0, 1"},
                {"2M 2 96M", "FILE:1: node 2 has no memory; nodes with memory are 0, 1"},
                {"2M node0 2M", "FILE:1: \"node0\" names no nodes; write all, or numbers like 0,2 or 0-3"},
                {"2M 0 3M", "FILE:1: \"3M\" is no amount of 2 MiB pages; write a multiple of that, like 16GiB"},
                {"2M 0 many", "FILE:1: \"many\" is no amount of 2 MiB pages; write a multiple of that, like 16GiB"},
        };
        const struct topology machine = fake_machine();
        char error[RESERVE_ERROR_BYTES];

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                struct reserve_config config = {.topology = &machine};

                assert_int_equal(read_text(&config, cases[i].text, error), -EINVAL);
                assert_string_equal(error, cases[i].error);
                reserve_config_done(&config);
        }
}

static void control_characters_are_refused(void **state) {
        static const char nul[] = "2M 0 2M\r\n2M 0 48M\0 garbage\n", bell[] = "# remark\a\n";
        const struct topology machine = fake_machine();
        struct reserve_config config = {.topology = &machine};
        char error[RESERVE_ERROR_BYTES];

        assert_int_equal(read_bytes(&config, nul, sizeof(nul) - 1, error), -EINVAL);
        assert_string_equal(error, "FILE:2: the line has a control character (0x00); is this a text file?");
        assert_int_equal(read_bytes(&config, bell, sizeof(bell) - 1, error), -EINVAL);
        assert_string_equal(error, "FILE:1: the line has a control character (0x07); is this a text file?");
        reserve_config_done(&config);
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

static void run(const char *command, const char *root, const char *path) {
        char line[256];

        (void) snprintf(line, sizeof(line), "%s %s/%s", command, root, path);
        assert_int_equal(system(line), 0);
}

static int make_tree(char root[], const char *nr, const char *surplus) {
        assert_non_null(mkdtemp(root));
        run("mkdir -p", root, node_dir);
        int fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        write_file(fd, "nr_hugepages", nr);
        write_file(fd, "surplus_hugepages", surplus);
        return fd;
}

static void remove_tree(const char *root) {
        run("rm -r", root, "");
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

/* In the place of the node's file: a full pipe, so that compaction takes until somebody has set another number. */
struct slow_compaction {
        int root_fd, pipe_fd, inotify_fd;
};

static void begin_slow_compaction(struct slow_compaction *compaction, int root_fd) {
        static const char name[] = "devices/system/node/node0/compact";
        char path[64], bytes[4096] = "";

        compaction->root_fd = root_fd;
        assert_int_equal(mkfifoat(root_fd, name, 0600), 0);
        compaction->pipe_fd = openat(root_fd, name, O_RDWR | O_NONBLOCK | O_CLOEXEC);
        assert_true(compaction->pipe_fd >= 0);
        while (write(compaction->pipe_fd, bytes, sizeof(bytes)) > 0)
                ;
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", compaction->pipe_fd);
        compaction->inotify_fd = inotify_init1(IN_CLOEXEC);
        assert_true(inotify_add_watch(compaction->inotify_fd, path, IN_OPEN) >= 0);
}

static void *set_more_while_it_compacts(void *userdata) {
        const struct slow_compaction *compaction = userdata;
        char bytes[4096];

        assert_true(read(compaction->inotify_fd, bytes, sizeof(bytes)) > 0);
        write_file(compaction->root_fd, "nr_hugepages", "20\n");
        assert_int_equal(read(compaction->pipe_fd, bytes, sizeof(bytes)), sizeof(bytes));
        return NULL;
}

static void what_others_set_meanwhile_is_not_taken_back(void **state) {
        const struct reserve_goal goal = {.page_size_bytes = 2 * MIB, .n_pages = 12};
        char root[] = "/tmp/test-reserve-XXXXXX";
        _cleanup_close_ int fd = make_tree(root, "13\n", "3\n");
        struct slow_compaction compaction;
        struct reserve_result result;
        pthread_t thread;

        begin_slow_compaction(&compaction, fd);
        assert_int_equal(pthread_create(&thread, NULL, set_more_while_it_compacts, &compaction), 0);
        assert_int_equal(reserve_grow(fd, &goal, &result), 0);
        pthread_join(thread, NULL);
        assert_true(result.compacted);
        assert_int_equal(result.n_after, 17);
        assert_int_equal(result.n_writes, 1);
        assert_pages(fd, "20\n");
        close(compaction.pipe_fd);
        close(compaction.inotify_fd);
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
                cmocka_unit_test(control_characters_are_refused),
                test_without_fd_leak(a_pool_grows_to_the_goal),
                test_without_fd_leak(a_pool_that_is_larger_is_left_alone),
                test_without_fd_leak(surplus_pages_do_not_count),
                test_without_fd_leak(what_others_set_meanwhile_is_not_taken_back),
                test_without_fd_leak(a_size_or_node_that_is_not_there_is_said),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
