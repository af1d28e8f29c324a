/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The kernel's side of hugezeroctl bench: what a program gets without the daemon. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"
#include "cleanup.h"
#include "kernelfs.h"
#include "parse.h"

void bench_touch(void *addr, uint64_t bytes, uint64_t page_size_bytes) {
        for (uint64_t offset = 0; offset < bytes; offset += page_size_bytes)
                ((volatile char *) addr)[offset] = 1;
}

/* A one-line file; false when it is not there. */
static bool read_line(const char *path, char *line, size_t n_bytes) {
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        if (!file || !fgets(line, (int) n_bytes, file))
                return false;
        line[strcspn(line, "\n")] = '\0';
        return true;
}

static bool read_number(uint64_t *ret_value, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool read_number(uint64_t *ret_value, const char *format, ...) {
        char path[256], line[64];
        va_list arguments;
        va_start(arguments, format);
        (void) vsnprintf(path, sizeof(path), format, arguments);
        va_end(arguments);
        return read_line(path, line, sizeof(line)) && parse_u64(line, ret_value) >= 0;
}

uint64_t bench_kernel_default_page_size(void) {
        char line[128];
        uint64_t kib = 0;
        _cleanup_fclose_ FILE *file = fopen("/proc/meminfo", "re");
        while (file && fgets(line, sizeof(line), file))
                if (sscanf(line, "Hugepagesize: %" SCNu64, &kib) == 1)
                        break;
        return kib * 1024;
}

/* The node's CPUs among those that we may use; all of these on a kernel without NUMA, or for a node without CPUs. */
static int node_cpus(int32_t node, cpu_set_t *ret_cpus) {
        char path[64], line[4096];
        uint64_t bits[PARSE_MAX_NODES / 64]; /* a list of CPUs is written like a list of nodes */
        _Static_assert(CPU_SETSIZE <= PARSE_MAX_NODES, "a list of CPUs does not fit");
        cpu_set_t allowed, cpus;
        if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
                return negative_errno();
        (void) snprintf(path, sizeof(path), "/sys/devices/system/node/node%" PRId32 "/cpulist", node);
        CPU_ZERO(&cpus);
        if (read_line(path, line, sizeof(line)) && parse_node_list(line, bits) >= 0)
                for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
                        if ((bits[cpu / 64] >> cpu % 64 & 1) && CPU_ISSET(cpu, &allowed))
                                CPU_SET(cpu, &cpus);
        *ret_cpus = CPU_COUNT(&cpus) ? cpus : allowed;
        return 0;
}

/* Reservations of the kernel are not per node: a node can run dry while a mapping is touched. There is no way back then. */
static void on_sigbus(int signo) {
        static const char text[] =
                "hugezeroctl: measuring: touching the kernel's pages: none is left on the node (SIGBUS); somebody "
                "else took them: free some and try again\n";
        if (ctl_take_complaint())
                (void) !write(STDERR_FILENO, text, sizeof(text) - 1);
        _exit(CTL_EXIT_FAILED);
}

int bench_kernel_bind(struct bench *bench) {
        unsigned cpu, node;
        bool is_chosen = bench->node >= 0;
        if (!is_chosen)
                bench->node = getcpu(&cpu, &node) < 0 ? 0 : (int32_t) node;
        unsigned long nodes[PARSE_MAX_NODES / (8 * sizeof(unsigned long))] = {};
        if (bench->node >= PARSE_MAX_NODES) {
                ctl_error("binding: node %" PRId32 ": there is no such node", bench->node);
                return CTL_EXIT_FAILED;
        }
        nodes[(size_t) bench->node / (8 * sizeof(long))] = 1UL << (size_t) bench->node % (8 * sizeof(long));
        /* As the task's policy: mmap with MAP_POPULATE allocates before anything could be bound. Threads inherit it. */
        int r = node_cpus(bench->node, &bench->cpus);
        if (r >= 0 && sched_setaffinity(0, sizeof(bench->cpus), &bench->cpus) < 0)
                r = negative_errno();
        /* A container may forbid it (EPERM), a kernel without NUMA has it not; the local node is likely all the same. */
        if (r >= 0 && syscall(SYS_set_mempolicy, MPOL_BIND, nodes, PARSE_MAX_NODES + 1) < 0 &&
            (is_chosen || (errno != EPERM && errno != ENOSYS)))
                r = negative_errno();
        if (r < 0) {
                ctl_error("binding: node %" PRId32 ": %s; /sys/devices/system/node/has_memory lists the nodes", bench->node,
                          r == -EINVAL ? "there is no such node, or it has no memory" : strerror(-r));
                return CTL_EXIT_FAILED;
        }
        bench->n_cpus = (unsigned) CPU_COUNT(&bench->cpus);
        (void) sigaction(SIGBUS, &(struct sigaction){.sa_handler = on_sigbus}, NULL);
        return CTL_EXIT_OK;
}

/* Pages on the node that nobody has and nobody has reserved; false where there are none of that size at all. */
static bool count_usable(const struct bench *bench, uint64_t *ret_n_usable) {
        static const char all[] = "/sys/kernel/mm/hugepages/hugepages-";
        uint64_t kib = bench->page_size_bytes / 1024, n_node, n_free, n_reserved;
        if (!read_number(&n_free, "%s%" PRIu64 "kB/free_hugepages", all, kib) ||
            !read_number(&n_reserved, "%s%" PRIu64 "kB/resv_hugepages", all, kib))
                return false;
        *ret_n_usable = n_free > n_reserved ? n_free - n_reserved : 0;
        if (read_number(&n_node, "/sys/devices/system/node/node%" PRId32 "/hugepages/hugepages-%" PRIu64 "kB/free_hugepages",
                        bench->node, kib) &&
            n_node < *ret_n_usable)
                *ret_n_usable = n_node;
        return true;
}

static uint64_t needed_pages(const struct bench *bench, uint64_t bytes) {
        return (bytes + bench->page_size_bytes - 1) / bench->page_size_bytes;
}

bool bench_kernel_has_free(const struct bench *bench, uint64_t bytes) {
        uint64_t n_usable;
        return count_usable(bench, &n_usable) && n_usable >= needed_pages(bench, bytes);
}

int bench_kernel_check_free(const struct bench *bench, uint64_t bytes) {
        uint64_t n_usable, n_needed = needed_pages(bench, bytes);
        char size[FORMAT_SIZE_BYTES];
        (void) format_size(bench->page_size_bytes, size);
        if (!count_usable(bench, &n_usable)) {
                if (kernelfs_sys_fault())
                        ctl_error("looking for free pages: %s", kernelfs_sys_fault());
                else
                        ctl_error("looking for free pages: /sys/kernel/mm/hugepages: this kernel has no pages of %s", size);
                return CTL_EXIT_FAILED;
        }
        if (n_usable >= n_needed)
                return CTL_EXIT_OK;
        ctl_error("measuring the kernel: node %" PRId32 ": %" PRIu64 " free page%s of %s %s needed%s, %" PRIu64
                  " %s there; reserve %" PRIu64 " more (vm.nr_hugepages), or measure a smaller amount with --bytes%s",
                  bench->node, n_needed, plural_s(n_needed), size, plural_are(n_needed),
                  bench->conn ? " beside the pool's" : "", n_usable, plural_are(n_usable), n_needed - n_usable,
                  bench->conn && !bench->is_lending ? ", or with the pool's own pages (bench --lend)" : "");
        return CTL_EXIT_FAILED;
}

struct stripe {
        pthread_t thread;
        char *addr;
        uint64_t bytes, page_size_bytes;
        int cpu;
};

static void *touch_stripe(void *userdata) {
        const struct stripe *stripe = userdata;
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t) stripe->cpu, &cpus);
        (void) sched_setaffinity(0, sizeof(cpus), &cpus);
        bench_touch(stripe->addr, stripe->bytes, stripe->page_size_bytes);
        return NULL;
}

/* One thread per CPU of the node, each with its own part. */
static int touch_parallel(const struct bench *bench, char *addr) {
        struct stripe stripes[CPU_SETSIZE];
        uint64_t n_pages = (bench->bytes + bench->page_size_bytes - 1) / bench->page_size_bytes;
        unsigned n = 0;
        int r = 0;
        for (int cpu = 0; cpu < CPU_SETSIZE && r == 0; cpu++) {
                if (!CPU_ISSET((size_t) cpu, &bench->cpus))
                        continue;
                uint64_t first = n_pages * n / bench->n_cpus, end = n_pages * (n + 1) / bench->n_cpus;
                stripes[n] = (struct stripe){
                        .addr = addr + first * bench->page_size_bytes,
                        .bytes = (end - first) * bench->page_size_bytes,
                        .page_size_bytes = bench->page_size_bytes,
                        .cpu = cpu,
                };
                r = pthread_create(&stripes[n].thread, NULL, touch_stripe, &stripes[n]);
                n += r == 0;
        }
        while (n > 0)
                (void) pthread_join(stripes[--n].thread, NULL);
        return -r;
}

int bench_kernel_run(const struct bench *bench, enum bench_kernel_mode mode, uint64_t *ret_ns) {
        uint64_t bytes = (bench->bytes + bench->page_size_bytes - 1) / bench->page_size_bytes * bench->page_size_bytes;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (__builtin_ctzll(bench->page_size_bytes) << MAP_HUGE_SHIFT);
        int r = 0;
        uint64_t start_ns = bench_now_ns();
        char *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | (mode == BENCH_POPULATE ? MAP_POPULATE : 0), -1, 0);
        if (addr == MAP_FAILED)
                r = negative_errno();
        else if (mode == BENCH_POPULATE_PARALLEL)
                r = touch_parallel(bench, addr);
        else
                bench_touch(addr, bytes, bench->page_size_bytes);
        uint64_t end_ns = bench_now_ns();
        if (addr != MAP_FAILED)
                (void) munmap(addr, bytes);
        if (r < 0) {
                ctl_error("measuring the kernel: %" PRIu64 " bytes: %s", bytes, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        *ret_ns = end_ns - start_ns;
        return CTL_EXIT_OK;
}

int bench_kernel_map_at(const struct bench *bench, char *addr, uint64_t bytes, bool is_populate) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_FIXED |
                    (__builtin_ctzll(bench->page_size_bytes) << MAP_HUGE_SHIFT) | (is_populate ? MAP_POPULATE : 0);
        if (mmap(addr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0) == MAP_FAILED)
                return negative_errno();
        bench_touch(addr, bytes, bench->page_size_bytes);
        return 0;
}
