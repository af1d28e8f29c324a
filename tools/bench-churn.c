/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hugezeroctl bench churn: two services take and give back memory of mixed sizes, and the daemon is watched. It is slow on
 * purpose: what counts is not how much can be moved, but how often somebody has to wait, and what that costs.
 */
#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench-churn.h"
#include "bench-stats.h"
#include "cleanup.h"
#include "parse.h"

#define DEFAULT_SECONDS 20 /* chosen: 160 requests */
#define MAX_SECONDS 20000  /* chosen: what the array of waiting times has room for */
#define N_RETURNS 5        /* chosen: a median that one disturbed run does not move */
#define RETURN_UNITS 4     /* chosen: an ordinary size among those of the services */
#define RETURN_TIMEOUT_MS 60000
#define NS_PER_MS UINT64_C(1000000)
#define GIB ((double) (UINT64_C(1) << 30))

static const char help[] = "Usage: hugezeroctl bench churn [OPTIONS]\n"
                           "\n"
                           "Two services take memory of mixed sizes from a pool and give the oldest back,\n"
                           "each up to a quarter of the pool's target, four requests a second. Measured is\n"
                           "how many were served at once, how long the others waited, how much was zeroed\n"
                           "for it, what CPU time the daemon needed, and how soon what is given back can\n"
                           "be had again. Two services are two cgroups, else two users (both need root).\n"
                           "\n"
                           "Options:\n"
                           "  --seconds N        how long (default: 20)\n"
                           "  --page-size SIZE   pages of this size (default: the pool's or the kernel's)\n"
                           "  --node NODE        on this node (default: the one of the current CPU)\n"
                           "  --pool NAME        from this pool\n"
                           "  --several          the pool may give several extents\n"
                           "  --json             one JSON object\n"
                           "  --socket PATH      the daemon's socket\n"
                           "  --help             this text\n";

/* What the daemon has done since its start. */
struct account {
        struct hugezero_daemon_info info;
        double cpu_s; /* negative: not known */
};

struct result {
        struct bench_services services;
        struct bench_supply supply;
        struct bench_churn *churns;
        uint64_t seconds;
        double return_ms; /* median, from giving back to ready */
        struct account before, after;
};

/* The daemon's process; where systemd has made the socket, the only one of its name. 0: not known. */
static pid_t daemon_pid(const struct hugezero_conn *conn) {
        pid_t pid, found = 0;
        uid_t uid;
        if (ctl_peer(conn, &pid, &uid) < 0 || pid <= 0)
                return 0;
        if (pid != 1)
                return pid;
        DIR *dir = opendir("/proc");
        for (const struct dirent *entry; dir && (entry = readdir(dir));) {
                char path[sizeof("/proc//comm") + sizeof(entry->d_name)], comm[32] = "";
                (void) snprintf(path, sizeof(path), "/proc/%s/comm", entry->d_name);
                _cleanup_fclose_ FILE *file = fopen(path, "re");
                if (!file || !fgets(comm, sizeof(comm), file) || strcmp(comm, "hugezerod\n") != 0)
                        continue;
                if (found) {
                        found = 0;
                        break;
                }
                found = (pid_t) atoi(entry->d_name);
        }
        if (dir)
                (void) closedir(dir);
        return found;
}

static double cpu_seconds(pid_t pid) {
        char path[64], line[1024];
        unsigned long user, system;
        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        if (pid <= 0 || !file || !fgets(line, sizeof(line), file))
                return -1;
        const char *rest = strrchr(line, ')'); /* the name before it may contain anything */
        if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
                return -1;
        return (double) (user + system) / (double) sysconf(_SC_CLK_TCK);
}

static int take_account(const struct bench *bench, struct account *ret_account) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        int exit_code = ctl_read_status(bench->ctl, bench->conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        *ret_account = (struct account){.info.struct_bytes = sizeof(ret_account->info)};
        (void) hugezero_status_get_daemon(status, &ret_account->info);
        ret_account->cpu_s = cpu_seconds(daemon_pid(bench->conn));
        return CTL_EXIT_OK;
}

/* Gives @bytes back that were in use, and waits until the pool has as much ready as before. */
static int time_return(const struct bench *bench, struct hugezero_request *request, uint64_t *ret_ns) {
        struct bench_supply before, now;
        uint64_t unused_ns;
        int exit_code = bench_pool_supply(bench, &before);
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench_pool_run(bench, request, &unused_ns);
        uint64_t start_ns = bench_now_ns();
        while (exit_code == CTL_EXIT_OK) {
                exit_code = bench_pool_supply(bench, &now);
                *ret_ns = bench_now_ns() - start_ns;
                if (exit_code == CTL_EXIT_OK && !now.moving_bytes && now.ready_bytes >= before.ready_bytes)
                        return CTL_EXIT_OK;
                if (exit_code == CTL_EXIT_OK && *ret_ns > RETURN_TIMEOUT_MS * NS_PER_MS) {
                        ctl_error("waiting for memory to come back: %s: it is not ready after a minute; is somebody else busy "
                                  "with the pool?",
                                  bench->ctl->socket_path);
                        return CTL_EXIT_FAILED;
                }
                (void) nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
        }
        return exit_code;
}

static int time_returns(const struct bench *bench, uint64_t target_bytes, double *ret_ms) {
        _cleanup_request_ struct hugezero_request *request = NULL;
        uint64_t samples_ns[N_RETURNS];
        uint64_t bytes = RETURN_UNITS * bench_churn_unit_bytes(target_bytes, bench->page_size_bytes);
        if (bytes > target_bytes / BENCH_CHURN_SHARE)
                bytes = bench->page_size_bytes;
        int exit_code = bench_pool_new_request(bench, bytes, &request);
        for (size_t idx = 0; idx < N_RETURNS && exit_code == CTL_EXIT_OK; idx++)
                exit_code = time_return(bench, request, &samples_ns[idx]);
        if (exit_code == CTL_EXIT_OK)
                *ret_ms = bench_stats_of(samples_ns, N_RETURNS).median_ns / NS_PER_MS;
        return exit_code;
}

static int run_services(const struct bench *bench, struct result *result) {
        int exit_code = CTL_EXIT_OK;
        ctl_begin_shared_complaint();
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++) {
                int r = bench_services_fork(&result->services, idx);
                if (r == 0)
                        _exit(bench_churn_service(bench, idx, result->supply.target_bytes, result->seconds * 1000,
                                                  &result->churns[idx]));
                if (r < 0) {
                        ctl_error("starting a service: %s", strerror(-r));
                        exit_code = CTL_EXIT_FAILED;
                }
        }
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++) {
                int r = bench_services_wait(&result->services, idx);
                if (r != CTL_EXIT_OK)
                        exit_code = r < 0 ? CTL_EXIT_FAILED : r;
        }
        ctl_end_shared_complaint();
        return exit_code;
}

static int measure(const struct bench *bench, struct result *result) {
        int exit_code = bench_pool_wait(bench, bench->page_size_bytes, /* is_whole= */ false);
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench_pool_supply(bench, &result->supply);
        if (exit_code == CTL_EXIT_OK)
                exit_code = time_returns(bench, result->supply.target_bytes, &result->return_ms);
        if (exit_code == CTL_EXIT_OK)
                exit_code = take_account(bench, &result->before);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        bench_services_init(&result->services);
        exit_code = run_services(bench, result);
        /* What it costs to have everything ready again belongs to it. The groups are still there: services that are gone would
         * have the daemon renew what it has just cleared for them. */
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench_pool_wait(bench, bench->page_size_bytes, /* is_whole= */ false);
        if (exit_code == CTL_EXIT_OK)
                exit_code = take_account(bench, &result->after);
        bench_services_done(&result->services);
        return exit_code;
}

struct figures {
        unsigned n_granted, n_instant, n_refused;
        uint64_t granted_bytes, zeroed_bytes;
        double instant_share, p50_ms, p99_ms, zeroed_ratio, cpu_s, cpu_s_per_gib; /* NAN: not known */
};

static int figure_out(const struct result *result, struct figures *ret_figures) {
        struct figures figures = {.cpu_s = NAN, .cpu_s_per_gib = NAN};
        _cleanup_free_ uint64_t *waits_ns = calloc(BENCH_N_SERVICES * BENCH_CHURN_MAX_REQUESTS, sizeof(*waits_ns));
        if (!waits_ns) {
                ctl_error("adding up: out of memory");
                return CTL_EXIT_FAILED;
        }
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++) {
                const struct bench_churn *churn = &result->churns[idx];
                memcpy(waits_ns + figures.n_granted, churn->waits_ns, churn->n_granted * sizeof(*waits_ns));
                figures.n_granted += churn->n_granted;
                figures.n_instant += churn->n_instant;
                figures.n_refused += churn->n_refused;
                figures.granted_bytes += churn->granted_bytes;
        }
        if (!figures.n_granted) {
                ctl_error("measuring: %s: none of %u request%s was granted; hugezeroctl status shows what the pool has",
                          result->supply.target_bytes ? "the pool" : "no pool", figures.n_refused, plural_s(figures.n_refused));
                return CTL_EXIT_FAILED;
        }
        struct bench_stats stats = bench_stats_of(waits_ns, figures.n_granted);
        figures.instant_share = (double) figures.n_instant / (figures.n_granted + figures.n_refused);
        figures.p50_ms = stats.median_ns / NS_PER_MS;
        figures.p99_ms = stats.p99_ns / NS_PER_MS;
        figures.zeroed_bytes = result->after.info.zeroed_bytes_total - result->before.info.zeroed_bytes_total;
        figures.zeroed_ratio = (double) figures.zeroed_bytes / (double) figures.granted_bytes;
        if (result->before.cpu_s >= 0 && result->after.cpu_s >= 0) {
                figures.cpu_s = result->after.cpu_s - result->before.cpu_s;
                figures.cpu_s_per_gib = figures.cpu_s / ((double) figures.granted_bytes / GIB);
        }
        *ret_figures = figures;
        return CTL_EXIT_OK;
}

static json_t *known(double number) {
        return isnan(number) ? json_null() : json_real(number);
}

static int print_json(const struct bench *bench, const struct result *result, const struct figures *figures) {
        const struct hugezero_daemon_info *before = &result->before.info, *after = &result->after.info;
        return ctl_print_json(json_pack(
                "{s:I, s:I, s:I, s:i, s:s, s:i, s:i, s:i, s:f, s:f, s:f, s:I, s:I, s:I, s:f, s:o, s:o, s:f, s:I, s:I, s:I, "
                "s:I}",
                "seconds", (json_int_t) result->seconds, "target_bytes", (json_int_t) result->supply.target_bytes,
                "page_size_bytes", (json_int_t) bench->page_size_bytes, "node", (int) bench->node, "services",
                bench_services_name(&result->services), "granted", (int) figures->n_granted, "instant",
                (int) figures->n_instant, "refused", (int) figures->n_refused, "instant_share", figures->instant_share,
                "wait_ms_p50", figures->p50_ms, "wait_ms_p99", figures->p99_ms, "granted_bytes",
                (json_int_t) figures->granted_bytes, "zeroed_bytes", (json_int_t) figures->zeroed_bytes, "scrubbed_bytes",
                (json_int_t) (after->scrubbed_bytes_total - before->scrubbed_bytes_total), "zeroed_per_granted_byte",
                figures->zeroed_ratio, "daemon_cpu_s", known(figures->cpu_s), "daemon_cpu_s_per_gib",
                known(figures->cpu_s_per_gib), "return_to_ready_ms", result->return_ms, "exact",
                (json_int_t) (after->n_exact_total - before->n_exact_total), "cut",
                (json_int_t) (after->n_cut_total - before->n_cut_total), "grown",
                (json_int_t) (after->n_grown_total - before->n_grown_total), "built",
                (json_int_t) (after->n_built_total - before->n_built_total)));
}

static int print_text(const struct bench *bench, const struct result *result, const struct figures *figures) {
        static const char *const services[] = {"two services (cgroups)", "two services (users)", "one service (two need root)"};
        char target[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        printf("%s, pool of %s in pages of %s on node %" PRId32 ", %" PRIu64 " s\n", services[result->services.kind],
               format_size(result->supply.target_bytes, target), format_size(bench->page_size_bytes, page), bench->node,
               result->seconds);
        printf("%u request%s of %.2f GiB granted, %u refused, %.1f %% served at once\n", figures->n_granted,
               plural_s(figures->n_granted), (double) figures->granted_bytes / GIB, figures->n_refused, figures->instant_share * 100);
        for (size_t idx = 0; idx < BENCH_N_SERVICES; idx++)
                if (*result->churns[idx].refusal) {
                        printf("refused: %s\n", result->churns[idx].refusal);
                        break;
                }
        printf("waited: median %.3f ms, p99 %.3f ms\n", figures->p50_ms, figures->p99_ms);
        printf("zeroed: %.2f bytes for each byte granted\n", figures->zeroed_ratio);
        if (isnan(figures->cpu_s))
                printf("the daemon's CPU time: not known, which process it is cannot be told\n");
        else
                printf("the daemon's CPU time: %.2f s, %.3f s for each GiB granted\n", figures->cpu_s, figures->cpu_s_per_gib);
        printf("given back, then ready after %.0f ms, ReleaseGrace= included\n", result->return_ms);
        return CTL_EXIT_OK;
}

enum { OPTION_SECONDS = BENCH_OPTION_OWN };

/* Returns an exit code, or -1: go on. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct bench *bench, uint64_t *ret_seconds) {
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                {"seconds", required_argument, NULL, OPTION_SECONDS},
                BENCH_OPTIONS_PAGES,
                BENCH_OPTIONS_POOL,
                {},
        };
        int option;
        while ((option = ctl_getopt(ctl, argv[0], argc, argv, options, help)) != -1) {
                if (option < CTL_OPTION_OWN)
                        return ctl_getopt_exit(option);
                int exit_code = CTL_EXIT_OK;
                if (option != OPTION_SECONDS)
                        exit_code = bench_take_option(bench, argv[0], option, optarg);
                else if (parse_u64(optarg, ret_seconds) < 0 || *ret_seconds < 1 || *ret_seconds > MAX_SECONDS)
                        exit_code = ctl_usage_error(argv[0], "option --seconds=%s: a number from 1 to %d is expected", optarg,
                                                    MAX_SECONDS);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
        }
        int exit_code = ctl_no_arguments(argc, argv);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

int bench_verb_churn(struct ctl *ctl, int argc, char *argv[]) {
        struct bench bench = {.ctl = ctl, .node = HUGEZERO_NODE_ANY};
        struct result result = {.seconds = DEFAULT_SECONDS};
        struct figures figures;
        int exit_code = parse_options(ctl, argc, argv, &bench, &result.seconds);
        if (exit_code >= 0)
                return exit_code;
        size_t churns_bytes = BENCH_N_SERVICES * sizeof(*result.churns);
        result.churns = mmap(NULL, churns_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (result.churns == MAP_FAILED) {
                ctl_error("measuring: %zu bytes: %s", churns_bytes, strerror(errno));
                return CTL_EXIT_FAILED;
        }
        exit_code = bench_connect(&bench);
        if (exit_code == CTL_EXIT_OK)
                exit_code = measure(&bench, &result);
        if (exit_code == CTL_EXIT_OK)
                exit_code = figure_out(&result, &figures);
        if (exit_code == CTL_EXIT_OK)
                exit_code = ctl->json ? print_json(&bench, &result, &figures) : print_text(&bench, &result, &figures);
        hugezero_conn_close(bench.conn);
        (void) munmap(result.churns, churns_bytes);
        return exit_code;
}
