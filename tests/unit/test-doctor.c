/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The checks of hugezeroctl doctor, on made-up hosts. */
#include "testing.h"

#include <errno.h>
#include <ftw.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "doctor.h"

#define PAGES "/sys/kernel/mm/hugepages/hugepages-"
#define NODE "/sys/devices/system/node"

struct host {
        char root[64];
        struct doctor doctor;
};

/* Writes a file below the root, with the folders above it. */
__attribute__((format(printf, 3, 4))) static void put(const struct host *host, const char *text, const char *path_format, ...) {
        char path[512];
        int n = snprintf(path, sizeof(path), "%s", host->root);
        va_list arguments;

        va_start(arguments, path_format);
        (void) vsnprintf(path + n, sizeof(path) - (size_t) n, path_format, arguments);
        va_end(arguments);
        for (char *slash = path + n; (slash = strchr(slash + 1, '/'));) {
                *slash = '\0';
                if (mkdir(path, 0755) < 0)
                        assert_int_equal(errno, EEXIST);
                *slash = '/';
        }
        FILE *file = fopen(path, "we");
        assert_non_null(file);
        (void) fprintf(file, "%s\n", text);
        assert_int_equal(fclose(file), 0);
}

static void put_size(const struct host *host, unsigned kib, const char *nr, const char *n_free, const char *reserved) {
        put(host, nr, PAGES "%ukB/nr_hugepages", kib);
        put(host, n_free, PAGES "%ukB/free_hugepages", kib);
        put(host, reserved, PAGES "%ukB/resv_hugepages", kib);
        put(host, "0", PAGES "%ukB/surplus_hugepages", kib);
        put(host, "0", PAGES "%ukB/nr_overcommit_hugepages", kib);
}

/* A host without any fault: two nodes, 64 pages of 2 MiB on each. */
static int setup(void **state) {
        struct host *host = calloc(1, sizeof(*host));

        assert_non_null(host);
        strcpy(host->root, "/tmp/test-doctor-XXXXXX");
        assert_non_null(mkdtemp(host->root));
        host->doctor.root = host->root;
        put_size(host, 2048, "128", "128", "0");
        put(host, "0-1", NODE "/has_memory");
        put(host, "0-1", NODE "/has_cpu");
        for (int node = 0; node < 2; node++)
                put(host, "64", NODE "/node%d/hugepages/hugepages-2048kB/nr_hugepages", node);
        put(host, "0::/user.slice/shell.scope", "/proc/self/cgroup");
        put(host, "max", "/sys/fs/cgroup/user.slice/hugetlb.2MB.max");
        put(host, "Max open files            1024                 524288               files     ", "/proc/self/limits");
        put(host, "192536", "/proc/sys/fs/inotify/max_user_watches");
        put(host, "128", "/proc/sys/fs/inotify/max_user_instances");
        put(host, "65530", "/proc/sys/vm/max_map_count");
        put(host, "6.1.0-18-amd64", "/proc/sys/kernel/osrelease");
        put(host, "BOOT_IMAGE=/vmlinuz root=/dev/vda1 ro quiet", "/proc/cmdline");
        put(host, "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set", "/boot/config-6.1.0-18-amd64");
        *state = host;
        return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *position) {
        return remove(path);
}

static int teardown(void **state) {
        struct host *host = *state;

        doctor_done(&host->doctor);
        (void) nftw(host->root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        free(host);
        return 0;
}

static void examine(struct host *host) {
        doctor_check_mounts(&host->doctor);
        doctor_check_pages(&host->doctor);
        doctor_check_nodes(&host->doctor);
        doctor_check_cgroup(&host->doctor);
        doctor_check_limits(&host->doctor);
        doctor_check_kernel(&host->doctor);
}

/* All findings of a level, for the message of a failed test and for finding none. */
static unsigned count(const struct host *host, enum doctor_level level) {
        unsigned n = 0;

        for (size_t i = 0; i < host->doctor.n_findings; i++)
                n += host->doctor.findings[i].level == level;
        return n;
}

static void finds(const struct host *host, enum doctor_level level, const char *check, const char *text, const char *advice) {
        for (size_t i = 0; i < host->doctor.n_findings; i++) {
                const struct doctor_finding *finding = &host->doctor.findings[i];

                if (finding->level == level && strcmp(finding->check, check) == 0 && strstr(finding->text, text) &&
                    strstr(finding->advice, advice))
                        return;
        }
        for (size_t i = 0; i < host->doctor.n_findings; i++)
                print_error("%d %s: %s -> %s\n", (int) host->doctor.findings[i].level, host->doctor.findings[i].check,
                            host->doctor.findings[i].text, host->doctor.findings[i].advice);
        fail_msg("no finding %s of level %d with \"%s\" and advice \"%s\"", check, (int) level, text, advice);
}

static void a_good_host_has_no_problem_and_no_advice(void **state) {
        struct host *host = *state;

        examine(host);
        assert_int_equal(count(host, DOCTOR_PROBLEM), 0);
        assert_int_equal(count(host, DOCTOR_NOTE), 0);
        for (size_t i = 0; i < host->doctor.n_findings; i++)
                assert_string_equal(host->doctor.findings[i].advice, "");
        finds(host, DOCTOR_OK, "pages", "2 MiB: 128 pages, 128 free", "");
        finds(host, DOCTOR_OK, "nodes", "node 0: 64, node 1: 64", "");
        finds(host, DOCTOR_OK, "cgroup", "no limits", "");
        finds(host, DOCTOR_OK, "nofile", "524288", "");
        finds(host, DOCTOR_OK, "init_on_alloc", "off", "");
}

static void a_kernel_without_hugepages_is_a_problem(void **state) {
        struct host *host = *state;
        char path[512];

        (void) snprintf(path, sizeof(path), "%s/sys/kernel/mm", host->root);
        assert_int_equal(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        examine(host);
        finds(host, DOCTOR_PROBLEM, "pages", "no hugepages", "CONFIG_HUGETLBFS");
}

static void no_reserved_page_is_a_problem_with_a_way_out(void **state) {
        struct host *host = *state;

        put_size(host, 2048, "0", "0", "0");
        put_size(host, 1048576, "0", "0", "0");
        examine(host);
        finds(host, DOCTOR_PROBLEM, "pages", "no hugepages of any size", "vm.nr_hugepages");
        finds(host, DOCTOR_NOTE, "pages", "2 MiB: no pages", "nr_hugepages");
        finds(host, DOCTOR_NOTE, "pages", "1 GiB: no pages", "kernel command line: hugepagesz=1G hugepages=N");
}

static void pages_that_are_taken_or_promised_are_noted(void **state) {
        struct host *host = *state;

        put_size(host, 2048, "128", "100", "30");
        put_size(host, 1048576, "2", "0", "0");
        examine(host);
        finds(host, DOCTOR_NOTE, "reserved", "2 MiB: 30 free pages are promised", "other 70");
        finds(host, DOCTOR_NOTE, "pages", "1 GiB: 2 pages, none free", "status");
        assert_int_equal(count(host, DOCTOR_PROBLEM), 0);
}

static void surplus_and_overcommit_are_noted(void **state) {
        struct host *host = *state;

        put(host, "5", PAGES "2048kB/surplus_hugepages");
        put(host, "1000", PAGES "2048kB/nr_overcommit_hugepages");
        examine(host);
        finds(host, DOCTOR_NOTE, "surplus", "5 surplus pages", "nr_hugepages");
        finds(host, DOCTOR_NOTE, "overcommit", "up to 1000 pages", "nr_overcommit_hugepages");
}

static void a_node_without_pages_is_a_problem(void **state) {
        struct host *host = *state;

        put(host, "0", NODE "/node1/hugepages/hugepages-2048kB/nr_hugepages");
        examine(host);
        finds(host, DOCTOR_PROBLEM, "nodes", "no pages on node 1 (node 0: 64, node 1: 0)", "node1/hugepages/hugepages-2048kB");
}

static void a_node_without_cpus_or_memory_needs_no_pages(void **state) {
        struct host *host = *state;

        put(host, "0", NODE "/node1/hugepages/hugepages-2048kB/nr_hugepages");
        put(host, "0", NODE "/has_cpu");
        examine(host);
        assert_int_equal(count(host, DOCTOR_PROBLEM), 0);
        doctor_done(&host->doctor);
        put(host, "0-1", NODE "/has_cpu");
        put(host, "0", NODE "/has_memory");
        examine(host);
        assert_int_equal(count(host, DOCTOR_PROBLEM), 0);
}

static void limits_of_control_groups_above_count(void **state) {
        struct host *host = *state;

        put(host, "134217728", "/sys/fs/cgroup/user.slice/hugetlb.2MB.max");
        put(host, "67108864", "/sys/fs/cgroup/user.slice/hugetlb.2MB.current");
        put(host, "134217728", "/sys/fs/cgroup/user.slice/shell.scope/hugetlb.2MB.rsvd.max");
        put(host, "134217728", "/sys/fs/cgroup/user.slice/shell.scope/hugetlb.2MB.rsvd.current");
        examine(host);
        finds(host, DOCTOR_NOTE, "cgroup", "/user.slice: hugetlb.2MB.max is 128 MiB, used up to 50 %",
              "echo max > /sys/fs/cgroup/user.slice/");
        finds(host, DOCTOR_PROBLEM, "cgroup", "/user.slice/shell.scope: hugetlb.2MB.rsvd.max is 128 MiB, used up to 100 %",
              "rsvd.max");
}

static void the_daemons_group_and_limits_are_looked_at_when_it_is_known(void **state) {
        struct host *host = *state;

        host->doctor.daemon_pid = 4711;
        put(host, "0::/system.slice/hugezerod.service", "/proc/4711/cgroup");
        put(host, "0", "/sys/fs/cgroup/system.slice/hugezerod.service/hugetlb.2MB.max");
        put(host, "Max open files            1024                 1024                 files     ", "/proc/4711/limits");
        examine(host);
        finds(host, DOCTOR_PROBLEM, "cgroup", "/system.slice/hugezerod.service: hugetlb.2MB.max is 0", "echo max");
        finds(host, DOCTOR_PROBLEM, "nofile", "the daemon may open up to 1024", "LimitNOFILE=");
}

static void what_is_not_mounted_is_named_and_no_answer(void **state) {
        static const char *const mounts[] = {"proc", "sys"};
        struct host *host = *state;
        char from[128], to[128];

        for (size_t i = 0; i < ELEMENTSOF(mounts); i++) {
                (void) snprintf(from, sizeof(from), "%s/%s", host->root, mounts[i]);
                (void) snprintf(to, sizeof(to), "%s/not-%s", host->root, mounts[i]);
                assert_int_equal(rename(from, to), 0);
                examine(host);
                (void) snprintf(from, sizeof(from), "/%s is not mounted", mounts[i]);
                finds(host, DOCTOR_PROBLEM, "mounts", from, "mount -t");
                assert_int_equal(count(host, DOCTOR_PROBLEM), 1);
                for (size_t k = 0; k < host->doctor.n_findings; k++)
                        assert_null(strstr(host->doctor.findings[k].text, "this kernel"));
                doctor_done(&host->doctor);
                (void) snprintf(from, sizeof(from), "%s/%s", host->root, mounts[i]);
                assert_int_equal(rename(to, from), 0);
        }
}

static void pools_that_the_limit_of_files_stops_are_a_problem(void **state) {
        struct host *host = *state;

        host->doctor.capped_at_extents = 4711;
        examine(host);
        finds(host, DOCTOR_PROBLEM, "nofile", "stop at 4711 extents", "LimitNOFILE=");
        finds(host, DOCTOR_PROBLEM, "nofile", "stop at 4711 extents", "ulimit -n");
}

static void small_limits_are_problems(void **state) {
        struct host *host = *state;

        put(host, "Max open files            1024                 4095                 files     ", "/proc/self/limits");
        put(host, "100", "/proc/sys/fs/inotify/max_user_watches");
        put(host, "1", "/proc/sys/fs/inotify/max_user_instances");
        put(host, "1000", "/proc/sys/vm/max_map_count");
        examine(host);
        finds(host, DOCTOR_PROBLEM, "nofile", "4095", "LimitNOFILE=");
        finds(host, DOCTOR_PROBLEM, "inotify", "fs.inotify.max_user_watches is 100", "sysctl fs.inotify.max_user_watches=8192");
        finds(host, DOCTOR_PROBLEM, "inotify", "fs.inotify.max_user_instances is 1", "sysctl fs.inotify.max_user_instances=");
        finds(host, DOCTOR_PROBLEM, "maps", "vm.max_map_count is 1000", "sysctl vm.max_map_count=65530");
}

static void locked_memory_is_noted_unless_unlimited(void **state) {
        struct host *host = *state;

        put(host, "Max locked memory         8388608              8388608              bytes     ", "/proc/self/limits");
        examine(host);
        finds(host, DOCTOR_NOTE, "memlock", "8 MiB", "LimitMEMLOCK=");
        doctor_done(&host->doctor);
        put(host, "Max locked memory         unlimited            unlimited            bytes     ", "/proc/self/limits");
        examine(host);
        finds(host, DOCTOR_OK, "memlock", "any amount", "");
}

static void an_old_kernel_is_a_problem(void **state) {
        struct host *host = *state;

        put(host, "5.10.0-28-amd64", "/proc/sys/kernel/osrelease");
        examine(host);
        finds(host, DOCTOR_PROBLEM, "kernel", "Linux 5.10.0-28-amd64", "5.14");
        doctor_done(&host->doctor);
        put(host, "5.14.0", "/proc/sys/kernel/osrelease");
        examine(host);
        finds(host, DOCTOR_OK, "kernel", "Linux 5.14.0", "");
}

static void init_on_alloc_is_noted_wherever_it_is_set(void **state) {
        struct host *host = *state;

        put(host, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y", "/boot/config-6.1.0-18-amd64");
        examine(host);
        finds(host, DOCTOR_NOTE, "init_on_alloc", "clears pages when they are reserved", "init_on_alloc=0");
        doctor_done(&host->doctor);
        put(host, "ro init_on_alloc=0 quiet", "/proc/cmdline");
        examine(host);
        finds(host, DOCTOR_OK, "init_on_alloc", "off", "");
        doctor_done(&host->doctor);
        put(host, "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set", "/boot/config-6.1.0-18-amd64");
        put(host, "ro init_on_alloc=1", "/proc/cmdline");
        examine(host);
        finds(host, DOCTOR_NOTE, "init_on_alloc", "clears pages", "init_on_alloc=0");
}

#define on_a_host(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void) {
        const struct CMUnitTest tests[] = {
                on_a_host(a_good_host_has_no_problem_and_no_advice),
                on_a_host(a_kernel_without_hugepages_is_a_problem),
                on_a_host(no_reserved_page_is_a_problem_with_a_way_out),
                on_a_host(pages_that_are_taken_or_promised_are_noted),
                on_a_host(surplus_and_overcommit_are_noted),
                on_a_host(a_node_without_pages_is_a_problem),
                on_a_host(a_node_without_cpus_or_memory_needs_no_pages),
                on_a_host(limits_of_control_groups_above_count),
                on_a_host(the_daemons_group_and_limits_are_looked_at_when_it_is_known),
                on_a_host(pools_that_the_limit_of_files_stops_are_a_problem),
                on_a_host(small_limits_are_problems),
                on_a_host(what_is_not_mounted_is_named_and_no_answer),
                on_a_host(locked_memory_is_noted_unless_unlimited),
                on_a_host(an_old_kernel_is_a_problem),
                on_a_host(init_on_alloc_is_noted_wherever_it_is_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
