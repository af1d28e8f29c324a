/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl bench: the same amount of memory from the kernel and from the pool. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench-stats.h"
#include "bench.h"
#include "cleanup.h"
#include "ctl.h"
#include "parse.h"

#define DEFAULT_BYTES (UINT64_C(1) << 30) /* chosen: enough to see, on any machine */
#define DEFAULT_RUNS 7                    /* chosen: a median that one disturbed run does not move */

static const char help[] = "Usage: hugezeroctl bench [OPTIONS]\n"
                           "       hugezeroctl bench clear|procs|churn [OPTIONS]\n"
                           "\n"
                           "Measures how long a program waits for zeroed memory, all pages touched:\n"
                           "  demand             mmap, then the kernel zeroes page after page\n"
                           "  populate           mmap with MAP_POPULATE\n"
                           "  populate-parallel  mmap, touched by one thread per CPU of the node\n"
                           "  pool               acquired from the daemon, mapped, touched\n"
                           "The modes take turns, after one run of each that does not count; so does one of\n"
                           "the pool before each of its runs. The kernel needs as much again in free pages\n"
                           "as the pool.\n"
                           "\n"
                           "Other measurements, each with a --help of its own:\n"
                           "  clear   every method of clearing memory, and what it does to neighbours\n"
                           "  procs   one process per CPU, writing to all of its memory\n"
                           "  churn   two services that take and give back mixed sizes\n"
                           "\n"
                           "Options:\n"
                           "  --bytes SIZE       how much (default: 1G)\n"
                           "  --page-size SIZE   pages of this size (default: the pool's or the kernel's)\n"
                           "  --node NODE        on this node (default: the one of the current CPU)\n"
                           "  --runs N           runs of each mode (default: 7; with --latency 256,\n"
                           "                     or as many as the pool has extents for)\n"
                           "  --pool NAME        from this pool\n"
                           "  --several          the pool may give several extents\n"
                           "  --lend             the kernel gets the pool's pages while it is measured; for\n"
                           "                     hosts without twice the pages, and administrators\n"
                           "  --latency          one extent, of one page or the pool's fixed size,\n"
                           "                     beside a raw exchange between two processes and the\n"
                           "                     kernel's mmap and touch\n"
                           "  --json             one JSON object\n"
                           "  --socket PATH      the daemon's socket\n"
                           "  --help             this text\n";

enum { MODE_DEMAND, MODE_POPULATE, MODE_POPULATE_PARALLEL, MODE_POOL, N_MODES };
static const char *const mode_names[] = {"demand", "populate", "populate-parallel", "pool"};

/* Returns an exit code, or -1: go on. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct bench *bench, bool *ret_is_latency) {
        static int is_latency, is_lending;
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                BENCH_OPTIONS_AMOUNT,
                BENCH_OPTIONS_PAGES,
                BENCH_OPTIONS_POOL,
                {"latency", no_argument, &is_latency, true},
                {"lend", no_argument, &is_lending, true},
                {},
        };
        int exit_code = bench_parse_options(ctl, argc, argv, options, help, bench);
        if (exit_code >= 0)
                return exit_code;
        if (is_latency && (bench->bytes || bench->is_several || is_lending))
                return ctl_usage_error("bench",
                                       "option --latency: it measures one extent, without --bytes, --several and --lend");
        bench->is_lending = is_lending;
        *ret_is_latency = is_latency;
        return -1;
}

static int run_kernel(const struct bench *bench, uint64_t ret_ns[N_MODES]) {
        static const enum bench_kernel_mode kernel_modes[] = {BENCH_DEMAND, BENCH_POPULATE, BENCH_POPULATE_PARALLEL};
        int exit_code = CTL_EXIT_OK;
        for (size_t mode = 0; mode < MODE_POOL && exit_code == CTL_EXIT_OK; mode++) {
                exit_code = bench_kernel_check_free(bench, bench->bytes);
                if (exit_code == CTL_EXIT_OK)
                        exit_code = bench_kernel_run(bench, kernel_modes[mode], &ret_ns[mode]);
        }
        return exit_code;
}

static int run_kernel_with_loan(const struct bench *bench, uint64_t ret_ns[N_MODES]) {
        struct bench_loan loan;
        int exit_code = bench_lend(bench, &loan);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        exit_code = run_kernel(bench, ret_ns);
        int take_back_exit_code = bench_take_back(bench, &loan);
        return exit_code == CTL_EXIT_OK ? take_back_exit_code : exit_code;
}

/*
 * Twice, and the second time counts: while the kernel was measured the pool's memory lay idle, which may make its first access
 * slow (on a guest that was measured, 12 us a page after five seconds). What the kernel works on has just been used, too.
 */
static int run_pool(const struct bench *bench, struct hugezero_request *request, bool is_warm_up, uint64_t *ret_ns) {
        int exit_code = CTL_EXIT_OK;
        for (unsigned n = 0; n < 2 && exit_code == CTL_EXIT_OK; n++) {
                /* The first request of all teaches the daemon the size; from then on it has to have an extent of it ready. */
                exit_code = bench_pool_wait(bench, bench->bytes, /* is_whole= */ !bench->is_several && (n > 0 || !is_warm_up));
                if (exit_code == CTL_EXIT_OK)
                        exit_code = bench_pool_run(bench, request, ret_ns);
        }
        return exit_code;
}

/* One run of every mode. @ret_ns is indexed by mode. */
static int run_all(const struct bench *bench, struct hugezero_request *request, bool is_warm_up, uint64_t ret_ns[N_MODES]) {
        int exit_code = bench_pool_wait(bench, bench->bytes, /* is_whole= */ false);
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench->is_lending ? run_kernel_with_loan(bench, ret_ns) : run_kernel(bench, ret_ns);
        return exit_code == CTL_EXIT_OK ? run_pool(bench, request, is_warm_up, &ret_ns[MODE_POOL]) : exit_code;
}

static int print_json(const struct bench *bench, const struct bench_stats stats[N_MODES], double demand_ratio,
                      double parallel_ratio) {
        json_t *modes = json_object();
        for (size_t mode = 0; mode < N_MODES; mode++) {
                const struct bench_stats *of = &stats[mode];
                (void) json_object_set_new(modes, mode_names[mode],
                                           json_pack("{s:f, s:f, s:f, s:f, s:f}", "median_ms", of->median_ns / 1e6, "min_ms",
                                                     of->min_ns / 1e6, "max_ms", of->max_ns / 1e6, "p99_ms", of->p99_ns / 1e6,
                                                     "gb_per_s", (double) bench->bytes / of->median_ns));
        }
        return ctl_print_json(json_pack("{s:I, s:I, s:i, s:i, s:i, s:o, s:f, s:f}", "bytes", (json_int_t) bench->bytes,
                                        "page_size_bytes", (json_int_t) bench->page_size_bytes, "node", (int) bench->node,
                                        "threads", (int) bench->n_cpus, "runs", (int) bench->n_runs, "modes", modes,
                                        "ratio_demand_over_pool", demand_ratio, "ratio_parallel_over_pool", parallel_ratio));
}

static int print_text(const struct bench *bench, const struct bench_stats stats[N_MODES], double demand_ratio,
                      double parallel_ratio) {
        static const struct ctl_column columns[] = {
                {"MODE", false}, {"MEDIAN ms", true}, {"MIN ms", true}, {"MAX ms", true}, {"P99 ms", true}, {"GB/s", true},
        };
        char size[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        struct libscols_table *table = ctl_table_new(columns, 6);
        printf("%s in pages of %s on node %" PRId32 ", %u run%s, %u thread%s in parallel\n", format_size(bench->bytes, size),
               format_size(bench->page_size_bytes, page), bench->node, bench->n_runs, plural_s(bench->n_runs),
               bench->n_cpus, plural_s(bench->n_cpus));
        for (size_t mode = 0; mode < N_MODES; mode++) {
                const struct bench_stats *of = &stats[mode];
                const struct ctl_figure figures[] = {{of->median_ns / 1e6, 3}, {of->min_ns / 1e6, 3}, {of->max_ns / 1e6, 3},
                                                     {of->p99_ns / 1e6, 3}, {(double) bench->bytes / of->median_ns, 1}};
                (void) ctl_table_add_figures(table, &mode_names[mode], 1, figures, 5);
        }
        int exit_code = ctl_table_print(table);
        if (exit_code == CTL_EXIT_OK)
                printf("demand takes %.1f times as long as the pool, populate-parallel %.1f times\n", demand_ratio,
                       parallel_ratio);
        return exit_code;
}

static int bench_amount(const struct bench *bench) {
        uint64_t *samples_ns[N_MODES], ns[N_MODES] = {};
        struct bench_stats stats[N_MODES];
        _cleanup_request_ struct hugezero_request *request = NULL;
        _cleanup_free_ uint64_t *all = calloc((size_t) bench->n_runs * N_MODES, sizeof(*all));
        if (!all) {
                ctl_error("measuring: %u run%s: out of memory", bench->n_runs, plural_s(bench->n_runs));
                return CTL_EXIT_FAILED;
        }
        for (size_t mode = 0; mode < N_MODES; mode++)
                samples_ns[mode] = all + mode * bench->n_runs;
        int exit_code = bench_pool_new_request(bench, bench->bytes, &request);
        if (exit_code == CTL_EXIT_OK)
                exit_code = run_all(bench, request, /* is_warm_up */ true, ns);
        /* Run by run in turn, so that whatever disturbs the machine for a while disturbs all modes alike. */
        for (unsigned run = 0; run < bench->n_runs && exit_code == CTL_EXIT_OK; run++) {
                exit_code = run_all(bench, request, /* is_warm_up */ false, ns);
                for (size_t mode = 0; mode < N_MODES; mode++)
                        samples_ns[mode][run] = ns[mode];
        }
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        for (size_t mode = 0; mode < N_MODES; mode++)
                stats[mode] = bench_stats_of(samples_ns[mode], bench->n_runs);
        double demand_ratio = stats[MODE_DEMAND].median_ns / stats[MODE_POOL].median_ns;
        double parallel_ratio = stats[MODE_POPULATE_PARALLEL].median_ns / stats[MODE_POOL].median_ns;
        return bench->ctl->json ? print_json(bench, stats, demand_ratio, parallel_ratio)
                                : print_text(bench, stats, demand_ratio, parallel_ratio);
}

/* "bench clear" and so on, measurements with options of their own. Returns an exit code, or -1: none of these words is there.
 */
static int run_other(struct ctl *ctl, int argc, char *argv[]) {
        static const struct {
                const char *word, *verb;
                int (*run)(struct ctl *ctl, int argc, char *argv[]);
        } others[] = {
                {"churn", "bench churn", bench_verb_churn},
                {"clear", "bench clear", bench_verb_clear},
                {"procs", "bench procs", bench_verb_procs},
        };
        for (size_t idx = 0; argc > 1 && idx < sizeof(others) / sizeof(others[0]); idx++)
                if (strcmp(argv[1], others[idx].word) == 0) {
                        argv[1] = (char *) others[idx].verb; /* what complaints call it; nobody writes to it */
                        return others[idx].run(ctl, argc - 1, argv + 1);
                }
        return -1;
}

int ctl_verb_bench(struct ctl *ctl, int argc, char *argv[]) {
        int exit_code = run_other(ctl, argc, argv);
        if (exit_code >= 0)
                return exit_code;
        struct bench bench = {.ctl = ctl, .node = HUGEZERO_NODE_ANY};
        bool is_latency = false;
        exit_code = parse_options(ctl, argc, argv, &bench, &is_latency);
        if (exit_code >= 0)
                return exit_code;
        if (!bench.n_runs && !is_latency)
                bench.n_runs = DEFAULT_RUNS;
        if (!bench.bytes)
                bench.bytes = DEFAULT_BYTES;

        exit_code = bench_connect(&bench);
        if (exit_code == CTL_EXIT_OK)
                bench_round_up(&bench, 1);
        if (exit_code == CTL_EXIT_OK)
                exit_code = is_latency ? bench_latency(&bench) : bench_amount(&bench);
        hugezero_conn_close(bench.conn);
        return exit_code;
}
