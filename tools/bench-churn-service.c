/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One service of hugezeroctl bench churn: takes memory of mixed sizes, uses it, and gives the oldest back. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench-churn.h"
#include "cleanup.h"

#define STEP_MS 250   /* chosen: four requests a second, each held for about a second */
#define WAIT_MS 30000 /* chosen: longer than filling what a service may hold */
#define MAX_HELD 128  /* the share of the target in units, and more */
#define NS_PER_MS UINT64_C(1000000)

struct held {
        struct hugezero_grant *grant;
        void *addr;
        uint64_t bytes;
};

struct service {
        const struct bench *bench;
        struct hugezero_conn *conn;
        struct held held[MAX_HELD]; /* oldest first */
        unsigned n_held;
        uint64_t held_bytes;
        struct bench_churn *churn;
};

uint64_t bench_churn_unit_bytes(uint64_t target_bytes, uint64_t page_size_bytes) {
        uint64_t bytes = target_bytes / BENCH_CHURN_UNIT / page_size_bytes * page_size_bytes;
        return bytes ? bytes : page_size_bytes;
}

uint64_t bench_churn_size(uint64_t *random, uint64_t unit_bytes, uint64_t max_bytes) {
        *random ^= *random << 13, *random ^= *random >> 7, *random ^= *random << 17;
        uint64_t bytes = unit_bytes << *random % 5;
        while (bytes > max_bytes && bytes > unit_bytes)
                bytes /= 2;
        return bytes;
}

static int give_back(struct service *service) {
        struct held held = service->held[0];
        service->n_held--;
        service->held_bytes -= held.bytes;
        memmove(service->held, service->held + 1, service->n_held * sizeof(held));
        (void) munmap(held.addr, held.bytes);
        int r = hugezero_grant_release(held.grant, service->conn);
        hugezero_grant_free(held.grant);
        return r < 0 && r != -ENOENT ? ctl_daemon_error(service->bench->ctl, service->conn, "giving back", r) : CTL_EXIT_OK;
}

/* How often the kernel has zeroed memory while a client waited, to grow an extent or build one. */
static uint64_t count_fills(struct service *service) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        struct hugezero_daemon_info info = {.struct_bytes = sizeof(info)};
        if (hugezero_status_read(service->conn, &status) >= 0)
                (void) hugezero_status_get_daemon(status, &info);
        return info.n_grown_total + info.n_built_total;
}

/*
 * Asks without waiting, then with. Returns 1: at once, and the kernel zeroed nothing for it (nor for the other service
 * meanwhile, which cannot be told apart); 0: later; or a negative errno.
 */
static int acquire(struct service *service, uint64_t bytes, struct hugezero_grant **ret_grant, uint64_t *ret_ns) {
        _cleanup_request_ struct hugezero_request *request = NULL;
        if (bench_pool_new_request(service->bench, bytes, &request) != CTL_EXIT_OK)
                return -ENOMEM;
        uint64_t n_fills = count_fills(service), start_ns = bench_now_ns();
        int r = hugezero_acquire(service->conn, request, ret_grant);
        bool is_instant = r >= 0;
        if (r < 0 && r != -ECONNRESET && r != -EBADMSG) {
                r = hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, WAIT_MS);
                if (r >= 0)
                        r = hugezero_acquire(service->conn, request, ret_grant);
        }
        *ret_ns = bench_now_ns() - start_ns;
        return r < 0 ? r : is_instant && count_fills(service) == n_fills;
}

/* One more grant. */
static int take(struct service *service, uint64_t bytes) {
        struct bench_churn *churn = service->churn;
        _cleanup_grant_ struct hugezero_grant *grant = NULL;
        struct held *held = &service->held[service->n_held];
        uint64_t wait_ns;
        int r = acquire(service, bytes, &grant, &wait_ns);
        if (r == -ECONNRESET || r == -EBADMSG)
                return ctl_daemon_error(service->bench->ctl, service->conn, "acquiring", r);
        if (r < 0) {
                churn->n_refused++;
                (void) snprintf(churn->refusal, sizeof(churn->refusal), "%s", hugezero_conn_get_error_text(service->conn));
                return CTL_EXIT_OK;
        }
        churn->waits_ns[churn->n_granted++] = wait_ns;
        churn->n_instant += r == 1;
        r = hugezero_grant_map(grant, HUGEZERO_ALL_ITEMS, NULL, 0, &held->addr, &held->bytes);
        if (r < 0) {
                ctl_error("mapping the grant: %s: %s", service->bench->ctl->socket_path, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        bench_touch(held->addr, held->bytes, service->bench->page_size_bytes);
        (void) hugezero_grant_notify_mapped(grant, service->conn);
        held->grant = take_ptr(grant);
        churn->granted_bytes += held->bytes;
        service->held_bytes += held->bytes;
        service->n_held++;
        return CTL_EXIT_OK;
}

int bench_churn_service(const struct bench *bench, size_t idx, uint64_t target_bytes, uint64_t duration_ms,
                        struct bench_churn *churn) {
        struct service service = {.bench = bench, .churn = churn};
        uint64_t random = UINT64_C(0x9e3779b97f4a7c15) * (idx + 1); /* any number but 0: each run asks for the same */
        uint64_t share_bytes = target_bytes / BENCH_CHURN_SHARE;
        uint64_t unit_bytes = bench_churn_unit_bytes(target_bytes, bench->page_size_bytes);
        int exit_code = ctl_connect(bench->ctl, &service.conn);
        uint64_t end_ns = bench_now_ns() + duration_ms * NS_PER_MS;
        while (exit_code == CTL_EXIT_OK && bench_now_ns() < end_ns && churn->n_granted < BENCH_CHURN_MAX_REQUESTS) {
                uint64_t bytes = bench_churn_size(&random, unit_bytes, share_bytes);
                while (exit_code == CTL_EXIT_OK && service.n_held > 0 &&
                       (service.held_bytes + bytes > share_bytes || service.n_held == MAX_HELD))
                        exit_code = give_back(&service);
                if (exit_code == CTL_EXIT_OK)
                        exit_code = take(&service, bytes);
                if (exit_code == CTL_EXIT_OK)
                        (void) nanosleep(&(struct timespec){.tv_nsec = STEP_MS * NS_PER_MS}, NULL);
        }
        while (exit_code == CTL_EXIT_OK && service.n_held > 0)
                exit_code = give_back(&service);
        hugezero_conn_close(service.conn);
        return exit_code; /* what is left after an error goes back when the process ends */
}
