/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hugezeroctl bench --lend: on a host that has not twice the pages, the kernel is measured with the pool's. The pool is resized
 * to nothing meanwhile, and back afterwards.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "cleanup.h"

#define WAIT_MS 60000 /* chosen: longer than giving any pool back takes */
#define STEP_MS 20    /* chosen: short against that */

/* The one pool that requests are served from. */
static int find_pool(const struct bench *bench, struct bench_loan *loan) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        unsigned n_found = 0;
        int exit_code = ctl_read_status(bench->ctl, bench->conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) < 0 || pool.node != bench->node ||
                    pool.page_size_bytes != bench->page_size_bytes || (bench->pool && strcmp(pool.name, bench->pool) != 0))
                        continue;
                n_found++;
                loan->target_bytes = pool.target_bytes;
                (void) snprintf(loan->pool, sizeof(loan->pool), "%s", pool.name);
        }
        if (n_found == 1)
                return CTL_EXIT_OK;
        ctl_error("lending pages to the kernel: node %d: %u pools have pages of that size there; name one with --pool",
                  (int) bench->node, n_found);
        return CTL_EXIT_FAILED;
}

static int resize(const struct bench *bench, const struct bench_loan *loan, uint64_t target_bytes) {
        int r = hugezero_pool_resize(bench->conn, loan->pool, bench->node, target_bytes);
        return r < 0 ? ctl_daemon_error(bench->ctl, bench->conn, "resizing the pool", r) : CTL_EXIT_OK;
}

int bench_lend(const struct bench *bench, struct bench_loan *ret_loan) {
        sigset_t signals;
        int exit_code = find_pool(bench, ret_loan);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        /* Whoever interrupts us does not want to find an empty pool. */
        (void) sigemptyset(&signals);
        (void) sigaddset(&signals, SIGINT);
        (void) sigaddset(&signals, SIGTERM);
        (void) sigaddset(&signals, SIGHUP);
        (void) sigprocmask(SIG_BLOCK, &signals, &ret_loan->signals);
        exit_code = resize(bench, ret_loan, 0);
        if (exit_code != CTL_EXIT_OK) {
                (void) sigprocmask(SIG_SETMASK, &ret_loan->signals, NULL);
                return exit_code;
        }
        uint64_t end_ns = bench_now_ns() + WAIT_MS * UINT64_C(1000000);
        while (!bench_kernel_has_free(bench, bench->bytes) && bench_now_ns() < end_ns)
                (void) nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000}, NULL);
        return CTL_EXIT_OK; /* whether it is enough is asked, and told, before each measurement */
}

int bench_take_back(const struct bench *bench, const struct bench_loan *loan) {
        int exit_code = resize(bench, loan, loan->target_bytes);
        if (exit_code != CTL_EXIT_OK)
                ctl_error("giving the pool its pages back: '%s': it is empty now; hugezeroctl reload fills it again",
                          loan->pool);
        (void) sigprocmask(SIG_SETMASK, &loan->signals, NULL);
        return exit_code;
}
