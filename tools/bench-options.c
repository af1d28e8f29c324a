/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the measurements of hugezeroctl bench have in common before they begin. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"
#include "kernelfs.h"
#include "parse.h"

#define SYSFS_PAGES "/sys/kernel/mm/hugepages"
#define MAX_BYTES (UINT64_C(1) << 47) /* kernel limit: user addresses on x86-64; no sum of a few of them can overflow */

static int take_page_size(struct bench *bench, const char *verb, const char *value) {
        char path[96];
        if (parse_size(value, &bench->page_size_bytes) < 0 || bench->page_size_bytes < 4096 ||
            (bench->page_size_bytes & (bench->page_size_bytes - 1)) != 0)
                return ctl_usage_error(verb, "option --page-size=%s: a page size of the kernel, as 2M or 1G, is expected", value);
        (void) snprintf(path, sizeof(path), SYSFS_PAGES "/hugepages-%" PRIu64 "kB", bench->page_size_bytes / 1024);
        if (access(SYSFS_PAGES, F_OK) == 0 && access(path, F_OK) < 0)
                return ctl_usage_error(verb, "option --page-size=%s: this kernel has no hugepages of that size; " SYSFS_PAGES
                                             " lists the sizes", value);
        return CTL_EXIT_OK;
}

int bench_take_option(struct bench *bench, const char *verb, int option, const char *value) {
        uint64_t n;
        int r;
        switch (option) {
        case BENCH_OPTION_BYTES:
                r = parse_size(value, &bench->bytes);
                if (r == -ERANGE)
                        return ctl_usage_error(verb, "option --bytes=%s: " PARSE_SIZE_TOO_LARGE, value);
                if (r < 0 || bench->bytes == 0)
                        return ctl_usage_error(verb, "option --bytes=%s: a size as 8G is expected", value);
                if (bench->bytes > MAX_BYTES)
                        return ctl_usage_error(verb, "option --bytes=%s: more than a process can map; 128T is the most", value);
                return CTL_EXIT_OK;
        case BENCH_OPTION_PAGE_SIZE:
                return take_page_size(bench, verb, value);
        case BENCH_OPTION_NODE:
                if (parse_i32(value, &bench->node) < 0 || bench->node < 0)
                        return ctl_usage_error(verb, "option --node=%s: the number of a NUMA node is expected", value);
                return CTL_EXIT_OK;
        case BENCH_OPTION_RUNS:
                if (parse_u64(value, &n) < 0 || n < 1 || n > BENCH_MAX_RUNS)
                        return ctl_usage_error(verb, "option --runs=%s: a number from 1 to %d is expected", value,
                                               BENCH_MAX_RUNS);
                bench->n_runs = (unsigned) n;
                return CTL_EXIT_OK;
        case BENCH_OPTION_POOL:
                bench->pool = value;
                return CTL_EXIT_OK;
        default:
                bench->is_several = true;
                return CTL_EXIT_OK;
        }
}

int bench_parse_options(struct ctl *ctl, int argc, char *argv[], const struct option *options, const char *help,
                        struct bench *bench) {
        int option;
        while ((option = ctl_getopt(ctl, argv[0], argc, argv, options, help)) != -1) {
                if (option == 0) /* getopt has set a flag */
                        continue;
                if (option < CTL_OPTION_OWN)
                        return ctl_getopt_exit(option);
                int exit_code = bench_take_option(bench, argv[0], option, optarg);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
        }
        int exit_code = ctl_no_arguments(argc, argv);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

int bench_choose_memory(struct bench *bench) {
        if (!bench->page_size_bytes)
                bench->page_size_bytes = bench_kernel_default_page_size();
        if (!bench->page_size_bytes) {
                ctl_error("choosing a page size: %s", kernelfs_proc_fault() ? kernelfs_proc_fault()
                                                                            : "/proc/meminfo: this kernel has no hugepages");
                return CTL_EXIT_FAILED;
        }
        bench->unit_bytes = bench->page_size_bytes;
        return bench_kernel_bind(bench);
}

int bench_connect(struct bench *bench) {
        int exit_code = ctl_connect(bench->ctl, &bench->conn);
        if (exit_code == CTL_EXIT_OK && !bench->page_size_bytes && bench->pool)
                exit_code = bench_pool_page_size(bench, &bench->page_size_bytes);
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench_choose_memory(bench);
        return exit_code == CTL_EXIT_OK ? bench_pool_unit(bench, &bench->unit_bytes) : exit_code;
}

void bench_round_up(struct bench *bench, unsigned n_shares) {
        uint64_t least_bytes = bench->unit_bytes * n_shares;
        bench->bytes = (bench->bytes + least_bytes - 1) / least_bytes * least_bytes;
}
