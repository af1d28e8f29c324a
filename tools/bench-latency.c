/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hugezeroctl bench --latency: one extent of the least size, next to the least that two processes need for handing over a description
 * of their own, and to the kernel's way. The raw exchange is written out here, control messages included: it is the yardstick,
 * so nothing of the project may be in it, and its receiver sleeps in recvmsg without asking first.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bench-stats.h"
#include "bench.h"
#include "cleanup.h"
#include "parse.h"

#define N_WARM_UP 16         /* chosen: caches and the branch predictor are warm after a few */
#define DEFAULT_RUNS 256     /* chosen: a p99 that means something */
#define WAIT_MS 30000        /* chosen: for what a pool has to fill again while it learns the size */
#define RAW_REQUEST_BYTES 80 /* as a request for one item */
#define RAW_REPLY_BYTES 48   /* as a grant of one extent */
#define SPARE_FDS 32         /* chosen: what the process has open otherwise, with a margin */

union control {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr alignment;
};

static int raw_send(int socket_fd, size_t n_bytes, int fd) {
        char bytes[RAW_REQUEST_BYTES] = {};
        union control control = {};
        struct iovec iov = {bytes, n_bytes};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
        if (fd >= 0) {
                message.msg_control = &control;
                message.msg_controllen = sizeof(control);
                struct cmsghdr *header = CMSG_FIRSTHDR(&message);
                header->cmsg_level = SOL_SOCKET;
                header->cmsg_type = SCM_RIGHTS;
                header->cmsg_len = CMSG_LEN(sizeof(fd));
                memcpy(CMSG_DATA(header), &fd, sizeof(fd));
        }
        return sendmsg(socket_fd, &message, MSG_NOSIGNAL) < 0 ? negative_errno() : 0;
}

/* *@ret_fd is -1 when none came. Returns the length, 0 at the end. */
static ssize_t raw_receive(int socket_fd, int *ret_fd) {
        char bytes[RAW_REQUEST_BYTES];
        union control control;
        struct iovec iov = {bytes, sizeof(bytes)};
        struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
        ssize_t n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
        if (n < 0)
                return negative_errno();
        const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        *ret_fd = -1;
        if (header && header->cmsg_type == SCM_RIGHTS)
                memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
        return n;
}

/* The other process: each message is answered by a new description of the same hugetlb file. Never returns. */
static _Noreturn void raw_peer(int socket_fd, uint64_t page_size_bytes) {
        char path[64];
        int unused;
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        int file_fd = memfd_create("hugezeroctl-bench",
                                   MFD_CLOEXEC | MFD_HUGETLB | ((unsigned) __builtin_ctzll(page_size_bytes) << MAP_HUGE_SHIFT));
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", file_fd);
        while (file_fd >= 0 && raw_receive(socket_fd, &unused) > 0) {
                int fd = open(path, O_RDWR | O_CLOEXEC);
                if (fd < 0 || raw_send(socket_fd, RAW_REPLY_BYTES, fd) < 0)
                        break;
                (void) close(fd);
        }
        _exit(0);
}

static int raw_rounds(int socket_fd, uint64_t *samples_ns, unsigned n_runs) {
        for (unsigned run = 0; run < N_WARM_UP + n_runs; run++) {
                int fd = -1;
                uint64_t start_ns = bench_now_ns();
                int r = raw_send(socket_fd, RAW_REQUEST_BYTES, -1);
                ssize_t n = r < 0 ? r : raw_receive(socket_fd, &fd);
                uint64_t end_ns = bench_now_ns();
                if (n < 0 || fd < 0)
                        return n < 0 ? (int) n : -EPIPE;
                (void) close(fd);
                if (run >= N_WARM_UP)
                        samples_ns[run - N_WARM_UP] = end_ns - start_ns;
        }
        return 0;
}

static int measure_raw(const struct bench *bench, uint64_t *samples_ns) {
        int fds[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0) {
                ctl_error("measuring the raw exchange: socketpair: %s", strerror(errno));
                return CTL_EXIT_FAILED;
        }
        _cleanup_close_ int ours = fds[0], theirs = fds[1];
        pid_t pid = fork();
        if (pid == 0) {
                (void) close(ours);
                raw_peer(theirs, bench->page_size_bytes);
        }
        int r = pid < 0 ? negative_errno() : 0;
        theirs = safe_close(theirs);
        if (r >= 0)
                r = raw_rounds(ours, samples_ns, bench->n_runs);
        ours = safe_close(ours); /* the peer ends at this */
        if (pid > 0)
                (void) waitpid(pid, NULL, 0);
        if (r < 0)
                ctl_error("measuring the raw exchange: a hugetlb file between two processes: %s", strerror(-r));
        return r < 0 ? CTL_EXIT_FAILED : CTL_EXIT_OK;
}

static int measure_kernel(const struct bench *bench, uint64_t *samples_ns) {
        struct bench one = *bench;
        one.bytes = bench->unit_bytes;
        for (unsigned run = 0; run < N_WARM_UP + bench->n_runs; run++) {
                uint64_t ns;
                int exit_code = bench_kernel_run(&one, BENCH_DEMAND, &ns);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
                if (run >= N_WARM_UP)
                        samples_ns[run - N_WARM_UP] = ns;
        }
        return CTL_EXIT_OK;
}

/* All are kept until the end: giving back would have the daemon work while the next one is measured. */
static int acquire_round(const struct bench *bench, struct hugezero_request *request, struct hugezero_grant **grants,
                         uint64_t *samples_ns) {
        unsigned n = bench->n_warm_up + bench->n_runs, n_grants = 0;
        int exit_code = bench_pool_wait(bench, n * bench->unit_bytes, /* is_whole */ false);
        while (exit_code == CTL_EXIT_OK && n_grants < n) {
                uint64_t start_ns = bench_now_ns();
                int r = hugezero_acquire(bench->conn, request, &grants[n_grants]);
                uint64_t end_ns = bench_now_ns();
                if (r < 0) {
                        exit_code = ctl_daemon_error(bench->ctl, bench->conn, "acquiring one extent", r);
                        break;
                }
                if (n_grants >= bench->n_warm_up)
                        samples_ns[n_grants - bench->n_warm_up] = end_ns - start_ns;
                n_grants++;
        }
        while (n_grants > 0)
                hugezero_grant_free(grants[--n_grants]);
        return exit_code;
}

/*
 * Two rounds, of which the second counts. A pool of large extents has to cut the first ones and fill again what it cut off;
 * what comes back from the first round has the right size.
 */
static int measure_acquire(const struct bench *bench, uint64_t *samples_ns) {
        _cleanup_request_ struct hugezero_request *request = NULL;
        _cleanup_free_ struct hugezero_grant **grants = calloc(bench->n_warm_up + bench->n_runs, sizeof(struct hugezero_grant *));
        int exit_code = bench_pool_new_request(bench, bench->unit_bytes, &request);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        int r = grants ? hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, WAIT_MS) : -ENOMEM;
        if (r < 0) {
                ctl_error("measuring: %u run%s: %s", bench->n_runs, plural_s(bench->n_runs), strerror(-r));
                return CTL_EXIT_FAILED;
        }
        exit_code = acquire_round(bench, request, grants, samples_ns);
        return exit_code == CTL_EXIT_OK ? acquire_round(bench, request, grants, samples_ns) : exit_code;
}

struct figure {
        const char *key, *name;
        uint64_t *samples_ns;
        struct bench_stats stats;
};

static int print(const struct bench *bench, const struct figure figures[3]) {
        double over_raw = figures[0].stats.median_ns / figures[1].stats.median_ns;
        double kernel_over = figures[2].stats.median_ns / figures[0].stats.median_ns;
        if (bench->ctl->json) {
                json_t *json = json_pack("{s:I, s:I, s:i, s:i, s:f, s:f}", "page_size_bytes",
                                         (json_int_t) bench->page_size_bytes, "extent_bytes", (json_int_t) bench->unit_bytes,
                                         "node", (int) bench->node, "runs", (int) bench->n_runs, "ratio_acquire_over_raw",
                                         over_raw, "ratio_kernel_over_acquire", kernel_over);
                for (size_t idx = 0; json && idx < 3; idx++) {
                        char key[64];
                        (void) snprintf(key, sizeof(key), "%s_us_p50", figures[idx].key);
                        (void) json_object_set_new(json, key, json_real(figures[idx].stats.median_ns / 1e3));
                        (void) snprintf(key, sizeof(key), "%s_us_p99", figures[idx].key);
                        (void) json_object_set_new(json, key, json_real(figures[idx].stats.p99_ns / 1e3));
                }
                return ctl_print_json(json);
        }
        static const struct ctl_column columns[] = {{"WHAT", false}, {"P50 us", true}, {"P99 us", true}};
        struct libscols_table *table = ctl_table_new(columns, 3);
        for (size_t idx = 0; idx < 3; idx++) {
                const struct ctl_figure cells[] = {{figures[idx].stats.median_ns / 1e3, 1}, {figures[idx].stats.p99_ns / 1e3, 1}};
                (void) ctl_table_add_figures(table, &figures[idx].name, 1, cells, 2);
        }
        char size[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        printf("One extent of %s in pages of %s on node %" PRId32 ", %u run%s\n", format_size(bench->unit_bytes, size),
               format_size(bench->page_size_bytes, page), bench->node, bench->n_runs, plural_s(bench->n_runs));
        int exit_code = ctl_table_print(table);
        if (exit_code == CTL_EXIT_OK)
                printf("acquiring takes %.2f times the raw exchange; the kernel's page takes %.2f times as long\n", over_raw,
                       kernel_over);
        return exit_code;
}

/* All extents are out at the same time: the pool bounds how many there can be. */
static int choose_runs(struct bench *bench) {
        struct bench_supply supply;
        int exit_code = bench_pool_supply(bench, &supply);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        uint64_t n_extents = supply.target_bytes / bench->unit_bytes;
        if (!bench->n_runs && n_extents)
                bench->n_runs = n_extents >= DEFAULT_RUNS + N_WARM_UP ? DEFAULT_RUNS :
                                n_extents > 2 * N_WARM_UP             ? (unsigned) n_extents - N_WARM_UP :
                                                                        (unsigned) (n_extents + 1) / 2;
        if (!n_extents || bench->n_runs > n_extents) {
                char size[FORMAT_SIZE_BYTES], target[FORMAT_SIZE_BYTES];
                unsigned n_needed = bench->n_runs ? bench->n_runs : 1;
                ctl_error("measuring: %s: %u extent%s of %s %s needed at the same time on node %" PRId32
                          ", the pool's target is %s; measure fewer with --runs, or raise Target=",
                          bench->pool ? bench->pool : bench->ctl->socket_path, n_needed, plural_s(n_needed),
                          format_size(bench->unit_bytes, size), plural_are(n_needed), bench->node,
                          format_size(supply.target_bytes, target));
                return CTL_EXIT_FAILED;
        }
        bench->n_warm_up = n_extents - bench->n_runs < N_WARM_UP ? (unsigned) n_extents - bench->n_runs : N_WARM_UP;
        return CTL_EXIT_OK;
}

int bench_latency(struct bench *bench) {
        struct figure figures[] = {
                {"acquire", "acquire one extent from the daemon", NULL, {}},
                {"raw", "raw exchange between two processes, with reopen", NULL, {}},
                {"kernel", "kernel: mmap, touch", NULL, {}},
        };
        int (*const measure[])(const struct bench *, uint64_t *) = {measure_acquire, measure_raw, measure_kernel};
        struct rlimit limit;
        int exit_code = choose_runs(bench);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < bench->n_runs + N_WARM_UP + SPARE_FDS) {
                limit.rlim_cur = limit.rlim_max;
                (void) setrlimit(RLIMIT_NOFILE, &limit);
        }
        exit_code = bench_kernel_check_free(bench, bench->unit_bytes);
        for (size_t idx = 0; idx < 3 && exit_code == CTL_EXIT_OK; idx++) {
                figures[idx].samples_ns = calloc(bench->n_runs, sizeof(uint64_t));
                if (!figures[idx].samples_ns) {
                        ctl_error("measuring: %u run%s: out of memory", bench->n_runs, plural_s(bench->n_runs));
                        exit_code = CTL_EXIT_FAILED;
                        break;
                }
                exit_code = measure[idx](bench, figures[idx].samples_ns);
                if (exit_code == CTL_EXIT_OK)
                        figures[idx].stats = bench_stats_of(figures[idx].samples_ns, bench->n_runs);
        }
        if (exit_code == CTL_EXIT_OK)
                exit_code = print(bench, figures);
        for (size_t idx = 0; idx < 3; idx++)
                free(figures[idx].samples_ns);
        return exit_code;
}
