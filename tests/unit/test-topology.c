/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Topology: machines that are not this one, as sysfs trees; and this one. */
#include "testing.h"

#include <errno.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "topology.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static char root[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
        return remove(path);
}

static int make_root(void **state) {
        strcpy(root, "/tmp/test-topology-XXXXXX");
        return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
        return nftw(root, remove_one, 16 /* fds */, FTW_DEPTH | FTW_PHYS);
}

static __attribute__((format(printf, 2, 3))) void put(const char *content, const char *fmt, ...) {
        char path[256], name[192];
        FILE *file;
        va_list args;

        va_start(args, fmt);
        vsnprintf(name, sizeof(name), fmt, args);
        va_end(args);
        snprintf(path, sizeof(path), "%s/%s", root, name);
        for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
                *slash = '\0';
                assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
                *slash = '/';
        }
        file = fopen(path, "w");
        assert_non_null(file);
        assert_true(fputs(content, file) >= 0);
        assert_int_equal(fclose(file), 0);
}

static void put_all_counters(int size_kib, const char *n_free, const char *n_reserved) {
        put("999\n", "kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", size_kib);
        put(n_free, "kernel/mm/hugepages/hugepages-%dkB/free_hugepages", size_kib);
        put(n_reserved, "kernel/mm/hugepages/hugepages-%dkB/resv_hugepages", size_kib);
        put("3\n", "kernel/mm/hugepages/hugepages-%dkB/surplus_hugepages", size_kib);
        put("8\n", "kernel/mm/hugepages/hugepages-%dkB/nr_overcommit_hugepages", size_kib);
}

static void put_node(int node, const char *cpus, const char *distances) {
        put(cpus, "devices/system/node/node%d/cpulist", node);
        put(distances, "devices/system/node/node%d/distance", node);
}

static void put_node_counters(int node, int size_kib, const char *n_pages, const char *n_free, const char *n_surplus) {
        put(n_pages, "devices/system/node/node%d/hugepages/hugepages-%dkB/nr_hugepages", node, size_kib);
        put(n_free, "devices/system/node/node%d/hugepages/hugepages-%dkB/free_hugepages", node, size_kib);
        put(n_surplus, "devices/system/node/node%d/hugepages/hugepages-%dkB/surplus_hugepages", node, size_kib);
}

static struct topology *load(void) {
        struct topology *topology = NULL;

        assert_int_equal(topology_new(root, &topology), 0);
        return topology;
}

static void assert_nearest(const struct topology *topology, int from_node, size_t n, const int *expected) {
        int nodes[8];

        assert_int_equal(topology_nodes_by_distance(topology, from_node, nodes, 8), n);
        assert_memory_equal(nodes, expected, n * sizeof(*expected));
}

static void a_machine_with_one_node(void **state) {
        struct topology *topology;
        struct topology_pages pages;

        put_all_counters(2048, "100\n", "40\n");
        put("0\n", "devices/system/node/online");
        put("0\n", "devices/system/node/has_memory");
        put_node(0, "0-1\n", "10\n");
        put_node_counters(0, 2048, "128\n", "100\n", "0\n");
        topology = load();
        assert_int_equal(topology_n_nodes(topology), 1);
        assert_int_equal(topology_node_at(topology, 0), 0);
        assert_true(topology_node_has_cpus(topology, 0));
        assert_int_equal(topology_n_page_sizes(topology), 1);
        assert_int_equal(topology_page_size_at(topology, 0), 2 * MIB);
        assert_int_equal(topology_default_page_size(topology), 2 * MIB);
        assert_int_equal(topology_read_pages(topology, 0, 2 * MIB, &pages), 0);
        assert_int_equal(pages.n_pages, 128);
        assert_int_equal(pages.n_free, 100);
        assert_int_equal(pages.n_surplus, 0);
        assert_int_equal(pages.n_free_all, 100);
        assert_int_equal(pages.n_reserved_all, 40);
        assert_int_equal(pages.n_surplus_all, 3);
        assert_true(topology_overcommits(topology, 2 * MIB));
        put("0\n", "kernel/mm/hugepages/hugepages-2048kB/nr_overcommit_hugepages");
        assert_false(topology_overcommits(topology, 2 * MIB));
        assert_false(topology_overcommits(topology, GIB));
        assert_int_equal(topology_available_bytes(topology, 0, 2 * MIB), 60 * 2 * MIB);
        assert_int_equal(topology_read_pages(topology, 0, GIB, &pages), -ENOENT);
        assert_int_equal(topology_read_pages(topology, 1, 2 * MIB, &pages), -ENOENT);
        assert_int_equal(topology_available_bytes(topology, 1, 2 * MIB), 0);
        topology_free(topology);
}

/* 0, 2: ordinary; 3: memory only; 5: CPUs only; 7 is online but its directory is not there yet. */
static void put_odd_machine(void) {
        put_all_counters(2048, "100\n", "0\n");
        put_all_counters(1048576, "1\n", "0\n");
        put_all_counters(64, "0\n", "0\n");
        put("0,2-3,5,7\n", "devices/system/node/online");
        put("0,2-3\n", "devices/system/node/has_memory");
        put_node(0, "0-1,6\n", "10 20 40 20 30\n");
        put_node(2, "2-3\n", "20 10 17 20 30\n");
        put_node(3, "\n", "40 17 10 40 30\n");
        put_node(5, "4-5\n", "21 31 40 10 30\n");
        put_node_counters(2, 2048, "70\n", "60\n", "2\n");
}

static void node_numbers_have_gaps(void **state) {
        struct topology *topology;

        put_odd_machine();
        topology = load();
        assert_int_equal(topology_n_nodes(topology), 3);
        assert_int_equal(topology_node_at(topology, 1), 2);
        assert_int_equal(topology_node_at(topology, 2), 3);
        assert_false(topology_node_exists(topology, 1));
        assert_false(topology_node_exists(topology, 4));
        assert_int_equal(topology_n_page_sizes(topology), 3);
        assert_int_equal(topology_page_size_at(topology, 0), 64 * 1024);
        assert_int_equal(topology_page_size_at(topology, 2), GIB);
        assert_false(topology_has_page_size(topology, 4 * MIB));
        topology_free(topology);
}

static void nodes_without_memory_or_cpus_are_told_apart(void **state) {
        struct topology *topology;

        put_odd_machine();
        topology = load();
        assert_true(topology_node_has_memory(topology, 3));
        assert_false(topology_node_has_cpus(topology, 3));
        assert_true(topology_node_exists(topology, 5));
        assert_false(topology_node_has_memory(topology, 5));
        assert_true(topology_node_has_cpus(topology, 5));
        topology_free(topology);
}

static void an_online_node_without_directory_does_not_exist(void **state) {
        struct topology *topology;
        struct topology_pages pages;

        put_odd_machine();
        put("0,2-3,7\n", "devices/system/node/has_memory");
        topology = load();
        assert_false(topology_node_exists(topology, 7));
        assert_false(topology_node_has_memory(topology, 7));
        assert_int_equal(topology_n_nodes(topology), 3);
        assert_int_equal(topology_read_pages(topology, 7, 2 * MIB, &pages), -ENOENT);
        topology_free(topology);
}

static void distances_belong_to_online_nodes_in_order(void **state) {
        struct topology *topology;

        put_odd_machine();
        topology = load();
        assert_int_equal(topology_distance(topology, 0, 3), 40);
        assert_int_equal(topology_distance(topology, 2, 3), 17);
        assert_int_equal(topology_distance(topology, 5, 0), 21);
        assert_int_equal(topology_distance(topology, 7, 7), 10); /* the kernel's defaults where it tells none */
        assert_int_equal(topology_distance(topology, 7, 0), 20);
        assert_int_equal(topology_distance(topology, 6, 0), 20);
        topology_free(topology);
}

static void nearest_nodes_come_first(void **state) {
        struct topology *topology;
        int nodes[3] = {-1, -1, -1};

        put_odd_machine();
        topology = load();
        assert_nearest(topology, 0, 3, (int[]){0, 2, 3});
        assert_nearest(topology, 2, 3, (int[]){2, 3, 0});
        assert_nearest(topology, 3, 3, (int[]){3, 2, 0});
        assert_nearest(topology, 5, 3, (int[]){0, 2, 3});
        assert_nearest(topology, 7, 3, (int[]){0, 2, 3}); /* all the same: by number */
        assert_int_equal(topology_nodes_by_distance(topology, 3, nodes, 2), 2);
        assert_int_equal(nodes[0], 3);
        assert_int_equal(nodes[1], 2);
        assert_int_equal(nodes[2], -1);
        topology_free(topology);
}

static void a_node_without_hugepage_files_has_no_pages(void **state) {
        struct topology *topology;
        struct topology_pages pages;

        put_odd_machine();
        topology = load();
        assert_int_equal(topology_read_pages(topology, 0, 2 * MIB, &pages), -ENOENT);
        assert_int_equal(topology_available_bytes(topology, 0, 2 * MIB), 0);
        assert_int_equal(topology_read_pages(topology, 2, 2 * MIB, &pages), 0);
        assert_int_equal(pages.n_pages, 70);
        assert_int_equal(pages.n_surplus, 2);
        assert_int_equal(topology_available_bytes(topology, 2, 2 * MIB), 60 * 2 * MIB);
        topology_free(topology);
}

static void nodes_come_and_go(void **state) {
        struct topology *topology;

        put_odd_machine();
        topology = load();
        assert_int_equal(topology_update(topology), 0);
        put("0,3,5\n", "devices/system/node/has_memory");
        put_node(3, "\n", "40 17 10 18 30\n");
        put_node(7, "7\n", "30 30 30 30 10\n");
        assert_int_equal(topology_update(topology), 1);
        assert_int_equal(topology_n_nodes(topology), 3);
        assert_int_equal(topology_node_at(topology, 2), 5);
        assert_true(topology_node_exists(topology, 2));
        assert_false(topology_node_has_memory(topology, 2));
        assert_true(topology_node_has_cpus(topology, 7));
        assert_nearest(topology, 3, 3, (int[]){3, 5, 0});
        assert_int_equal(topology_update(topology), 0);
        put("0,3,x\n", "devices/system/node/has_memory");
        assert_int_equal(topology_update(topology), -EBADMSG);
        assert_int_equal(topology_n_nodes(topology), 3);
        topology_free(topology);
}

static void a_kernel_without_numa_is_one_node(void **state) {
        struct topology *topology;
        struct topology_pages pages;

        put_all_counters(2048, "100\n", "200\n");
        put("0-3\n", "devices/system/cpu/online");
        topology = load();
        assert_int_equal(topology_n_nodes(topology), 1);
        assert_int_equal(topology_node_at(topology, 0), 0);
        assert_true(topology_node_exists(topology, 0));
        assert_true(topology_node_has_cpus(topology, 0));
        assert_int_equal(topology_distance(topology, 0, 0), 10);
        assert_int_equal(topology_read_pages(topology, 0, 2 * MIB, &pages), 0);
        assert_int_equal(pages.n_pages, 999);
        assert_int_equal(pages.n_free, 100);
        assert_int_equal(topology_available_bytes(topology, 0, 2 * MIB), 0); /* more reserved than free */
        topology_free(topology);
}

static void a_kernel_without_hugetlb_is_refused(void **state) {
        struct topology *topology = NULL;

        put("0\n", "devices/system/node/online");
        assert_int_equal(topology_new(root, &topology), -ENOSYS);
        put("", "kernel/mm/hugepages/other");
        assert_int_equal(topology_new(root, &topology), -ENOSYS);
        assert_null(topology);
        assert_int_equal(topology_new("/nonexistent", &topology), -ENOENT);
}

static void garbage_in_sysfs_is_an_error(void **state) {
        static const char *const lists[] = {"0-", "3-1\n", "x\n", "0-5000\n", "0;1\n"};
        struct topology *topology = NULL;

        put_all_counters(2048, "many\n", "0\n");
        put("0\n", "devices/system/node/has_memory");
        put_node(0, "0\n", "10\n");
        for (size_t i = 0; i < ELEMENTSOF(lists); i++) {
                put(lists[i], "devices/system/node/online");
                assert_int_equal(topology_new(root, &topology), -EBADMSG);
        }
        put("0\n", "devices/system/node/online");
        put_node(0, "0\n", "far\n");
        topology = load();
        assert_int_equal(topology_distance(topology, 0, 0), 10);
        assert_int_equal(topology_available_bytes(topology, 0, 2 * MIB), 0);
        topology_free(topology);
}

/* In a child, so that this process stays where it was. */
static int cpus_after_bind(int node) {
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                struct topology *topology = load();
                cpu_set_t cpus;
                int r = topology_bind_thread(topology, node);

                if (r < 0)
                        _exit(100 - r);
                _exit(sched_getaffinity(0, sizeof(cpus), &cpus) < 0
                              ? 99
                              : (CPU_ISSET(0, &cpus) ? 1 : 0) + (CPU_ISSET(1, &cpus) ? 2 : 0));
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void threads_run_on_the_nearest_node_with_cpus(void **state) {
        put_odd_machine();
        put_node(0, "0\n", "10 20 15 20 30\n");
        put_node(2, "4096\n", "20 10 17 20 30\n");
        put_node(3, "\n", "15 17 10 40 30\n");
        assert_int_equal(cpus_after_bind(0), 1);
        assert_int_equal(cpus_after_bind(3), 1);            /* memory only, node 0 is nearest */
        assert_int_equal(cpus_after_bind(2), 100 + EINVAL); /* a CPU that is not there */
}

static void this_machine_is_understood(void **state) {
        struct topology *topology = NULL;
        struct topology_pages pages;
        int node;

        assert_int_equal(topology_new("/sys", &topology), 0);
        assert_true(topology_n_nodes(topology) >= 1);
        node = topology_node_at(topology, 0);
        assert_true(topology_node_exists(topology, node));
        assert_true(topology_has_page_size(topology, topology_default_page_size(topology)));
        assert_true(topology_node_exists(topology, topology_current_node()));
        for (size_t i = 0; i < topology_n_page_sizes(topology); i++) {
                assert_int_equal(topology_read_pages(topology, node, topology_page_size_at(topology, i), &pages), 0);
                assert_true(pages.n_free <= pages.n_pages);
        }
        assert_int_equal(topology_bind_thread(topology, node), 0);
        topology_free(topology);
}

static void placement_is_asked_from_the_kernel(void **state) {
        const size_t page_bytes = sysconf(_SC_PAGESIZE), bytes = 600 * page_bytes; /* more than one call's worth */
        char *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int node = topology_current_node();
        uint64_t n_misplaced = 77, n_missing = 77;

        assert_ptr_not_equal(addr, MAP_FAILED);
        (void) madvise(addr, bytes, MADV_NOHUGEPAGE); /* or newer kernels make more pages present than were touched */
        assert_int_equal(topology_bind_memory(addr, bytes, node), 0);
        assert_int_equal(topology_bind_memory(addr, bytes, -1), -EINVAL);
        assert_int_equal(topology_bind_memory(addr, bytes, 1023), -EINVAL); /* the kernel's answer for no such node */
        for (size_t i = 0; i < 590; i++)
                addr[i * page_bytes] = 1;
        assert_int_equal(topology_count_misplaced(addr, bytes, page_bytes, node, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_misplaced, 0);
        assert_int_equal(n_missing, 10);
        assert_int_equal(topology_count_misplaced(addr, bytes, page_bytes, node + 1, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_misplaced, 590);
        assert_int_equal(munmap(addr, bytes), 0);
}

/* What a kernel without NUMA answers. */
static void refuse_numa_calls(void) {
        struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 1, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_move_pages, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = {.len = ELEMENTSOF(filter), .filter = filter};

        assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static int ask_without_numa(void) {
        const size_t page_bytes = sysconf(_SC_PAGESIZE), bytes = 4 * page_bytes;
        char *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        uint64_t n_misplaced = 77, n_missing = 77;

        refuse_numa_calls();
        addr[0] = addr[2 * page_bytes] = 1;
        if (topology_bind_memory(addr, bytes, 0) != 0 || topology_bind_memory(addr, bytes, 1) != -ENOSYS)
                return 1;
        if (topology_count_misplaced(addr, bytes, page_bytes, 1, &n_misplaced, &n_missing) != -ENOSYS)
                return 2;
        if (topology_count_misplaced(addr, bytes, page_bytes, 0, &n_misplaced, &n_missing) != 0)
                return 3;
        return n_misplaced == 0 && n_missing == 2 ? 0 : 4;
}

static void without_numa_calls_presence_is_still_told(void **state) {
        pid_t pid = fork();
        int status;

        if (pid == 0)
                _exit(ask_without_numa());
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

#define test(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
        const struct CMUnitTest tests[] = {
                test(a_machine_with_one_node),
                test(node_numbers_have_gaps),
                test(nodes_without_memory_or_cpus_are_told_apart),
                test(an_online_node_without_directory_does_not_exist),
                test(distances_belong_to_online_nodes_in_order),
                test(nearest_nodes_come_first),
                test(a_node_without_hugepage_files_has_no_pages),
                test(nodes_come_and_go),
                test(a_kernel_without_numa_is_one_node),
                test(a_kernel_without_hugetlb_is_refused),
                test(garbage_in_sysfs_is_an_error),
                test(threads_run_on_the_nearest_node_with_cpus),
                cmocka_unit_test(this_machine_is_understood),
                cmocka_unit_test(placement_is_asked_from_the_kernel),
                cmocka_unit_test(without_numa_calls_presence_is_still_told),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
