/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's side of hugezeroctl bench. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"
#include "cleanup.h"
#include "parse.h"

#define WAIT_TOTAL_MS 120000 /* chosen: longer than filling any pool that this is run against by hand */
#define WAIT_STUCK_MS 15000  /* chosen: several of the daemon's timers; nothing moves any more */
#define WAIT_STEP_MS 5       /* chosen: short, for what is ready to be measured soon after; long against an exchange */

static bool is_usable(const struct bench *bench, const struct hugezero_pool_info *pool) {
        return pool->node == bench->node && pool->page_size_bytes == bench->page_size_bytes &&
               (!bench->pool || strcmp(pool->name, bench->pool) == 0);
}

int bench_pool_supply(const struct bench *bench, struct bench_supply *ret_supply) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        int exit_code = ctl_read_status(bench->ctl, bench->conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        struct bench_supply supply = {};
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) < 0)
                        continue;
                supply.moving_bytes += pool.returned_bytes + pool.filling_bytes;
                if (!is_usable(bench, &pool))
                        continue;
                supply.target_bytes += pool.target_bytes;
                supply.ready_bytes += pool.ready_bytes;
                if (pool.largest_ready_bytes > supply.largest_bytes)
                        supply.largest_bytes = pool.largest_ready_bytes;
        }
        *ret_supply = supply;
        return CTL_EXIT_OK;
}

static int complain(const struct bench *bench, uint64_t bytes, const struct bench_supply *supply) {
        char needed[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES], target[FORMAT_SIZE_BYTES], ready[FORMAT_SIZE_BYTES],
                largest[FORMAT_SIZE_BYTES];
        ctl_error("waiting for the pool: %s: %s in pages of %s are needed on node %" PRId32
                  ", the pool's target is %s, %s are ready, the largest extent has %s; measure less with --bytes, allow "
                  "--several, or raise Target=",
                  bench->pool ? bench->pool : bench->ctl->socket_path, format_size(bytes, needed),
                  format_size(bench->page_size_bytes, page), bench->node, format_size(supply->target_bytes, target),
                  format_size(supply->ready_bytes, ready), format_size(supply->largest_bytes, largest));
        return CTL_EXIT_FAILED;
}

int bench_pool_wait(const struct bench *bench, uint64_t bytes, bool is_whole) {
        uint64_t start_ns = bench_now_ns(), change_ns = start_ns;
        struct bench_supply last = {}, supply;
        for (;;) {
                int exit_code = bench_pool_supply(bench, &supply);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
                bool is_enough = (is_whole ? supply.largest_bytes : supply.ready_bytes) >= bytes;
                if (is_enough && !supply.moving_bytes)
                        return CTL_EXIT_OK;
                uint64_t now_ns = bench_now_ns();
                if (memcmp(&supply, &last, sizeof(supply)) != 0)
                        change_ns = now_ns;
                last = supply;
                if (supply.target_bytes < bytes) /* no waiting helps */
                        return complain(bench, bytes, &supply);
                if (now_ns - change_ns > WAIT_STUCK_MS * UINT64_C(1000000) ||
                    now_ns - start_ns > WAIT_TOTAL_MS * UINT64_C(1000000))
                        /* Another pool may be moving for ever, for other clients: that is noise, but no reason to give up. */
                        return is_enough ? CTL_EXIT_OK : complain(bench, bytes, &supply);
                (void) nanosleep(&(struct timespec){.tv_nsec = WAIT_STEP_MS * 1000000}, NULL);
        }
}

static int complain_of_name(const struct bench *bench) {
        ctl_error("looking for the pool: '%s': the daemon has none of this name; hugezeroctl status lists them", bench->pool);
        return CTL_EXIT_FAILED;
}

int bench_pool_page_size(const struct bench *bench, uint64_t *ret_bytes) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        int exit_code = ctl_read_status(bench->ctl, bench->conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) >= 0 && strcmp(pool.name, bench->pool) == 0) {
                        *ret_bytes = pool.page_size_bytes;
                        return CTL_EXIT_OK;
                }
        }
        return complain_of_name(bench);
}

/* No pool can be measured: which of the things that were asked for has none? */
static int complain_of_choice(const struct bench *bench, const struct hugezero_status *status) {
        char page[FORMAT_SIZE_BYTES], other[FORMAT_SIZE_BYTES];
        bool has_pages = false;
        (void) format_size(bench->page_size_bytes, page);
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) < 0 || (bench->pool && strcmp(pool.name, bench->pool) != 0))
                        continue;
                has_pages = has_pages || pool.page_size_bytes == bench->page_size_bytes;
                if (bench->pool && !has_pages) {
                        ctl_error("looking for the pool: '%s': it has pages of %s, not of %s; leave out --page-size or --pool",
                                  bench->pool, format_size(pool.page_size_bytes, other), page);
                        return CTL_EXIT_FAILED;
                }
        }
        if (has_pages)
                ctl_error("looking for a pool: %s: no pool has memory on node %" PRId32 "; hugezeroctl status lists them, "
                          "--node names another node", bench->pool ? bench->pool : bench->ctl->socket_path, bench->node);
        else if (bench->pool)
                complain_of_name(bench);
        else
                ctl_error("looking for a pool: %s: no pool has pages of %s; hugezeroctl status lists them, --page-size names "
                          "another size", bench->ctl->socket_path, page);
        return CTL_EXIT_FAILED;
}

int bench_pool_unit(const struct bench *bench, uint64_t *ret_bytes) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        uint64_t least_bytes = UINT64_MAX;
        int exit_code = ctl_read_status(bench->ctl, bench->conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) < 0 || !is_usable(bench, &pool))
                        continue;
                uint64_t bytes = pool.extent_bytes ? pool.extent_bytes : pool.page_size_bytes; /* 0: any size */
                least_bytes = bytes < least_bytes ? bytes : least_bytes;
        }
        if (least_bytes == UINT64_MAX)
                return complain_of_choice(bench, status);
        *ret_bytes = least_bytes;
        return CTL_EXIT_OK;
}

int bench_pool_new_request(const struct bench *bench, uint64_t bytes, struct hugezero_request **ret_request) {
        _cleanup_request_ struct hugezero_request *request = NULL;
        int r = hugezero_request_new(&request);
        if (r >= 0)
                r = hugezero_request_add_item(request, bytes, bench->page_size_bytes, bench->node,
                                              bench->is_several ? HUGEZERO_SEVERAL_FDS : 0, bench->pool);
        if (r < 0) {
                ctl_error("making the request: %" PRIu64 " bytes: %s", bytes, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        *ret_request = take_ptr(request);
        return CTL_EXIT_OK;
}

int bench_pool_run(const struct bench *bench, struct hugezero_request *request, uint64_t *ret_ns) {
        _cleanup_grant_ struct hugezero_grant *grant = NULL;
        void *addr = NULL;
        uint64_t bytes = 0, start_ns = bench_now_ns();
        int r = hugezero_acquire(bench->conn, request, &grant);
        if (r < 0)
                return ctl_daemon_error(bench->ctl, bench->conn, "acquiring", r);
        r = hugezero_grant_map(grant, 0, NULL, 0, &addr, &bytes);
        if (r >= 0)
                bench_touch(addr, bytes, bench->page_size_bytes);
        uint64_t end_ns = bench_now_ns();
        if (r < 0) {
                ctl_error("mapping the grant: %s: %s", bench->ctl->socket_path, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        (void) hugezero_grant_notify_mapped(grant, bench->conn);
        (void) munmap(addr, bytes);
        r = hugezero_grant_release(grant, bench->conn);
        if (r < 0 && r != -ENOENT)
                return ctl_daemon_error(bench->ctl, bench->conn, "giving back", r);
        *ret_ns = end_ns - start_ns;
        return CTL_EXIT_OK;
}
