/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hugezeroctl bench procs: one process on each CPU of the node, all at once, each writing to all of its hugetlb memory from
 * the first word to the last. The kernel has all of them wait while it zeroes; memory from the pool is there.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "bench-stats.h"
#include "bench.h"
#include "cleanup.h"
#include "parse.h"

#define DEFAULT_BYTES (UINT64_C(1) << 30) /* chosen: enough to see, on any machine */
#define DEFAULT_RUNS 5                    /* chosen: a median that one disturbed run does not move */
#define N_WARM_UP 1                       /* chosen: it teaches the pool the size */

static const char help[] = "Usage: hugezeroctl bench procs [OPTIONS]\n"
                           "\n"
                           "Starts one process per CPU of the node. All at once get hugetlb memory and\n"
                           "write to all of it, word after word:\n"
                           "  demand    mapped, the kernel zeroes page after page meanwhile\n"
                           "  pool      acquired from the daemon and mapped\n"
                           "  present   once more, to memory that is there: what remains is the writing\n"
                           "Measured is the time from the first beginning to the last end. The kernel\n"
                           "needs as much again in free pages as the pool.\n"
                           "\n"
                           "Options:\n"
                           "  --bytes SIZE       how much, for all processes together (default: 1G)\n"
                           "  --page-size SIZE   pages of this size (default: the pool's or the kernel's)\n"
                           "  --node NODE        on this node (default: the one of the current CPU)\n"
                           "  --runs N           runs of each (default: 5), after one that does not count\n"
                           "  --pool NAME        from this pool\n"
                           "  --several          the pool may give several extents to each process\n"
                           "  --json             one JSON object\n"
                           "  --socket PATH      the daemon's socket\n"
                           "  --help             this text\n";

enum { MODE_DEMAND, MODE_POOL, MODE_PRESENT, N_MODES };
static const char *const mode_names[N_MODES] = {"demand", "pool", "present"};

/* What a process tells the others; shared by all. */
struct seat {
        pid_t pid;
        int exit_code;
        uint64_t start_ns, written_ns, again_ns; /* beginning, all written, all written once more */
};

struct procs {
        struct bench bench; /* of one process: its share of the bytes */
        struct seat *seats; /* one for each process */
        int ready_fds[2], go_fds[2];
};

static void write_all(char *addr, uint64_t bytes, uint64_t value) {
        for (uint64_t at = 0; at < bytes; at += sizeof(value))
                *(volatile uint64_t *) (addr + at) = value;
}

/* Everything that has to be there before the common beginning is; waits for it. */
static int wait_for_go(const struct procs *procs) {
        char byte = 0;
        ssize_t n = write(procs->ready_fds[1], &byte, 1);
        (void) close(procs->ready_fds[1]); /* its end is that of all who are not ready yet: the parent notices when they die */
        if (n != 1 || read(procs->go_fds[0], &byte, 1) != 1)
                return CTL_EXIT_FAILED; /* another one has failed, and said why */
        return CTL_EXIT_OK;
}

static int run_kernel(const struct procs *procs, struct seat *seat) {
        const struct bench *bench = &procs->bench;
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (__builtin_ctzll(bench->page_size_bytes) << MAP_HUGE_SHIFT);
        int exit_code = wait_for_go(procs);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        seat->start_ns = bench_now_ns();
        char *addr = mmap(NULL, bench->bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (addr == MAP_FAILED) {
                ctl_error("measuring the kernel: %" PRIu64 " bytes: %s", bench->bytes, strerror(errno));
                return CTL_EXIT_FAILED;
        }
        write_all(addr, bench->bytes, 1);
        seat->written_ns = bench_now_ns();
        return CTL_EXIT_OK;
}

static int run_pool(const struct procs *procs, struct seat *seat) {
        const struct bench *bench = &procs->bench;
        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        _cleanup_request_ struct hugezero_request *request = NULL;
        _cleanup_grant_ struct hugezero_grant *grant = NULL;
        void *addr;
        uint64_t bytes;
        int exit_code = ctl_connect(bench->ctl, &conn);
        if (exit_code == CTL_EXIT_OK)
                exit_code = bench_pool_new_request(bench, bench->bytes, &request);
        if (exit_code == CTL_EXIT_OK)
                exit_code = wait_for_go(procs);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        seat->start_ns = bench_now_ns();
        int r = hugezero_acquire(conn, request, &grant);
        if (r < 0)
                return ctl_daemon_error(bench->ctl, conn, "acquiring", r);
        r = hugezero_grant_map(grant, HUGEZERO_ALL_ITEMS, NULL, 0, &addr, &bytes);
        if (r < 0) {
                ctl_error("mapping the grant: %s: %s", bench->ctl->socket_path, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        write_all(addr, bench->bytes, 1);
        seat->written_ns = bench_now_ns();
        write_all(addr, bench->bytes, 2);
        seat->again_ns = bench_now_ns();
        return CTL_EXIT_OK;
}

static _Noreturn void process(struct procs *procs, int cpu, bool is_pool, struct seat *seat) {
        cpu_set_t cpus;
        CPU_ZERO(&cpus);
        CPU_SET((size_t) cpu, &cpus);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void) sched_setaffinity(0, sizeof(cpus), &cpus);
        /* Without these ends here, the parent's death and that of another process end the waiting. */
        (void) close(procs->ready_fds[0]);
        (void) close(procs->go_fds[1]);
        seat->exit_code = is_pool ? run_pool(procs, seat) : run_kernel(procs, seat);
        _exit(seat->exit_code);
}

/* Starts the processes; when all are ready all are let go. Returns 0 or a negative errno. */
static int start(struct procs *procs, bool is_pool) {
        unsigned n = 0, n_ready = 0;
        int r = 0;
        for (int cpu = 0; cpu < CPU_SETSIZE && r >= 0; cpu++) {
                if (!CPU_ISSET((size_t) cpu, &procs->bench.cpus))
                        continue;
                struct seat *seat = &procs->seats[n++];
                *seat = (struct seat){.exit_code = CTL_EXIT_FAILED};
                pid_t pid = fork();
                if (pid == 0)
                        process(procs, cpu, is_pool, seat);
                if (pid < 0)
                        r = negative_errno();
                seat->pid = pid; /* here only: the seat is the child's too */
        }
        procs->ready_fds[1] = safe_close(procs->ready_fds[1]);
        procs->go_fds[0] = safe_close(procs->go_fds[0]);
        char bytes[CPU_SETSIZE] = {};
        ssize_t n_read;
        while (n_ready < n && (n_read = read(procs->ready_fds[0], bytes, sizeof(bytes))) > 0)
                n_ready += (unsigned) n_read;
        if (r >= 0 && n_ready == n && write(procs->go_fds[1], bytes, n) != (ssize_t) n)
                r = negative_errno();
        return r; /* fewer are ready: some have failed and said so; closing our end ends the others */
}

static int run(struct procs *procs, bool is_pool) {
        ctl_begin_shared_complaint();
        procs->ready_fds[0] = procs->ready_fds[1] = procs->go_fds[0] = procs->go_fds[1] = -EBADF;
        (void) memset(procs->seats, 0, procs->bench.n_cpus * sizeof(*procs->seats));
        int r = pipe2(procs->ready_fds, O_CLOEXEC) < 0 || pipe2(procs->go_fds, O_CLOEXEC) < 0 ? negative_errno() : 0;
        if (r >= 0)
                r = start(procs, is_pool);
        for (size_t idx = 0; idx < 2; idx++) {
                (void) safe_close(procs->ready_fds[idx]);
                (void) safe_close(procs->go_fds[idx]);
        }
        int exit_code = CTL_EXIT_OK;
        for (unsigned idx = 0; idx < procs->bench.n_cpus; idx++) {
                int status = 0;
                if (procs->seats[idx].pid <= 0)
                        continue;
                (void) waitpid(procs->seats[idx].pid, &status, 0);
                if (!WIFEXITED(status) || WEXITSTATUS(status) != CTL_EXIT_OK)
                        exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : CTL_EXIT_FAILED;
                if (WIFSIGNALED(status))
                        ctl_error("process %u of %u was killed by signal %d (%s): nothing was measured; where that was for lack "
                                  "of memory the kernel's log says so",
                                  idx + 1, procs->bench.n_cpus, WTERMSIG(status), strsignal(WTERMSIG(status)));
        }
        if (r < 0) {
                ctl_error("starting a process for each of %u CPU%s: %s", procs->bench.n_cpus, plural_s(procs->bench.n_cpus),
                          strerror(-r));
                exit_code = CTL_EXIT_FAILED;
        }
        ctl_end_shared_complaint();
        return exit_code;
}

/* From the first beginning to the last end; writing once more, which begins when each has ended, as the slowest one does it. */
static void take_times(const struct procs *procs, bool is_pool, uint64_t ret_ns[N_MODES]) {
        uint64_t start_ns = UINT64_MAX, written_ns = 0, again_ns = 0;
        for (unsigned idx = 0; idx < procs->bench.n_cpus; idx++) {
                const struct seat *seat = &procs->seats[idx];
                start_ns = seat->start_ns < start_ns ? seat->start_ns : start_ns;
                written_ns = seat->written_ns > written_ns ? seat->written_ns : written_ns;
                again_ns = seat->again_ns - seat->written_ns > again_ns ? seat->again_ns - seat->written_ns : again_ns;
        }
        ret_ns[is_pool ? MODE_POOL : MODE_DEMAND] = written_ns - start_ns;
        if (is_pool)
                ret_ns[MODE_PRESENT] = again_ns;
}

static int run_all(struct procs *procs, const struct bench *parent, uint64_t ret_ns[N_MODES]) {
        int exit_code = bench_kernel_check_free(parent, parent->bytes);
        for (int is_pool = 0; is_pool < 2 && exit_code == CTL_EXIT_OK; is_pool++) {
                exit_code = bench_pool_wait(parent, parent->bytes, /* is_whole= */ false);
                if (exit_code == CTL_EXIT_OK)
                        exit_code = run(procs, is_pool);
                if (exit_code == CTL_EXIT_OK)
                        take_times(procs, is_pool, ret_ns);
        }
        return exit_code;
}

static int print_json(const struct bench *bench, const struct bench_stats stats[N_MODES], double over_pool) {
        json_t *modes = json_object();
        for (size_t mode = 0; mode < N_MODES; mode++)
                (void) json_object_set_new(modes, mode_names[mode],
                                           json_pack("{s:f, s:f, s:f, s:f}", "median_ms", stats[mode].median_ns / 1e6, "min_ms",
                                                     stats[mode].min_ns / 1e6, "max_ms", stats[mode].max_ns / 1e6, "gb_per_s",
                                                     (double) bench->bytes / stats[mode].median_ns));
        return ctl_print_json(json_pack("{s:I, s:I, s:i, s:i, s:i, s:o, s:f}", "bytes", (json_int_t) bench->bytes,
                                        "page_size_bytes", (json_int_t) bench->page_size_bytes, "node", (int) bench->node,
                                        "processes", (int) bench->n_cpus, "runs", (int) bench->n_runs, "modes", modes,
                                        "ratio_demand_over_pool", over_pool));
}

static int print_text(const struct bench *bench, const struct bench_stats stats[N_MODES], double over_pool) {
        static const struct ctl_column columns[] = {
                {"MODE", false}, {"MEDIAN ms", true}, {"MIN ms", true}, {"MAX ms", true}, {"GB/s", true}};
        char size[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        struct libscols_table *table = ctl_table_new(columns, 5);
        printf("%s in pages of %s on node %" PRId32 ", %u process%s, %u run%s\n", format_size(bench->bytes, size),
               format_size(bench->page_size_bytes, page), bench->node, bench->n_cpus, bench->n_cpus == 1 ? "" : "es",
               bench->n_runs, plural_s(bench->n_runs));
        for (size_t mode = 0; mode < N_MODES; mode++) {
                const struct bench_stats *of = &stats[mode];
                const struct ctl_figure figures[] = {{of->median_ns / 1e6, 3}, {of->min_ns / 1e6, 3}, {of->max_ns / 1e6, 3},
                                                     {(double) bench->bytes / of->median_ns, 3}};
                (void) ctl_table_add_figures(table, &mode_names[mode], 1, figures, 4);
        }
        int exit_code = ctl_table_print(table);
        if (exit_code == CTL_EXIT_OK)
                printf("demand takes %.2f times as long as the pool\n", over_pool);
        return exit_code;
}

static int measure(const struct bench *bench) {
        struct procs procs = {.bench = *bench};
        uint64_t ns[N_MODES] = {};
        struct bench_stats stats[N_MODES];
        size_t seats_bytes = bench->n_cpus * sizeof(*procs.seats);
        _cleanup_free_ uint64_t *samples_ns = calloc((size_t) bench->n_runs * N_MODES, sizeof(*samples_ns));
        procs.bench.bytes = bench->bytes / bench->n_cpus;
        procs.seats = mmap(NULL, seats_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (!samples_ns || procs.seats == MAP_FAILED) {
                ctl_error("measuring: %u run%s: out of memory", bench->n_runs, plural_s(bench->n_runs));
                return CTL_EXIT_FAILED;
        }
        int exit_code = CTL_EXIT_OK;
        for (unsigned n = 0; n < N_WARM_UP + bench->n_runs && exit_code == CTL_EXIT_OK; n++) {
                exit_code = run_all(&procs, bench, ns);
                for (size_t mode = 0; mode < N_MODES && n >= N_WARM_UP; mode++)
                        samples_ns[mode * bench->n_runs + n - N_WARM_UP] = ns[mode];
        }
        (void) munmap(procs.seats, seats_bytes);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        for (size_t mode = 0; mode < N_MODES; mode++)
                stats[mode] = bench_stats_of(samples_ns + mode * bench->n_runs, bench->n_runs);
        double over_pool = stats[MODE_DEMAND].median_ns / stats[MODE_POOL].median_ns;
        return bench->ctl->json ? print_json(bench, stats, over_pool) : print_text(bench, stats, over_pool);
}

/* Returns an exit code, or -1: go on. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct bench *bench) {
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                BENCH_OPTIONS_AMOUNT,
                BENCH_OPTIONS_PAGES,
                BENCH_OPTIONS_POOL,
                {},
        };
        return bench_parse_options(ctl, argc, argv, options, help, bench);
}

int bench_verb_procs(struct ctl *ctl, int argc, char *argv[]) {
        struct bench bench = {.ctl = ctl, .node = HUGEZERO_NODE_ANY, .bytes = DEFAULT_BYTES, .n_runs = DEFAULT_RUNS};
        int exit_code = parse_options(ctl, argc, argv, &bench);
        if (exit_code >= 0)
                return exit_code;
        exit_code = bench_connect(&bench);
        if (exit_code == CTL_EXIT_OK) {
                bench_round_up(&bench, bench.n_cpus);
                exit_code = measure(&bench);
        }
        hugezero_conn_close(bench.conn);
        return exit_code;
}
