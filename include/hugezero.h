/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef HUGEZERO_H
#define HUGEZERO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct hugezero_conn;    /* a connection to the daemon */
struct hugezero_request; /* up to 16 items, and its way to the daemon and back */
struct hugezero_grant;   /* what one request gave: extents and their descriptors */
struct hugezero_status;  /* a snapshot of the daemon's figures */

#define HUGEZERO_NODE_ANY (-1)
#define HUGEZERO_NODE_LOCAL (-2) /* the node of the calling thread's CPU, when the item is added; preferred */

/* flags of hugezero_request_add_item and, where it says so, hugezero_alloc */
#define HUGEZERO_NODE_PREFERRED UINT32_C(0x1) /* the node is a wish, not a condition */
#define HUGEZERO_SEVERAL_FDS UINT32_C(0x2)    /* the item may come as several extents */
#define HUGEZERO_REOPENABLE UINT32_C(0x4)     /* the fd may be opened by path (/proc/PID/fd/N) by the socket group */
/* flags of hugezero_alloc only */
#define HUGEZERO_FALLBACK_MMAP UINT32_C(0x100) /* no daemon, or no memory in it: ordinary mmap(MAP_HUGETLB) */
#define HUGEZERO_WAIT UINT32_C(0x200)          /* wait without limit instead of failing */
#define HUGEZERO_FILL UINT32_C(0x400)          /* have the kernel zero what is missing now */
/* flags of hugezero_grant_map and hugezero_alloc */
#define HUGEZERO_MAP_UNSHARED UINT32_C(0x1000) /* do not share page tables with the daemon */

/* what the daemon does when the memory is not ready */
#define HUGEZERO_MISS_FAIL UINT32_C(0)
#define HUGEZERO_MISS_WAIT UINT32_C(1)
#define HUGEZERO_MISS_FILL UINT32_C(2)

#define HUGEZERO_MAX_ITEMS 16
#define HUGEZERO_ALL_EXTENTS UINT32_MAX

int hugezero_conn_open(const char *socket_path, struct hugezero_conn **ret_conn);
void hugezero_conn_close(struct hugezero_conn *conn);
int hugezero_conn_get_fd(const struct hugezero_conn *conn);
int hugezero_conn_get_events(const struct hugezero_conn *conn);
int hugezero_conn_dispatch(struct hugezero_conn *conn);
const char *hugezero_conn_get_error_text(const struct hugezero_conn *conn);
const char *hugezero_socket_path(void);

int hugezero_request_new(struct hugezero_request **ret_request);
void hugezero_request_free(struct hugezero_request *request);
int hugezero_request_add_item(struct hugezero_request *request, uint64_t bytes, uint64_t page_size_bytes, int32_t node,
                              uint32_t flags, const char *pool);
int hugezero_request_set_miss(struct hugezero_request *request, uint32_t miss, int32_t timeout_ms);
int hugezero_request_submit(struct hugezero_request *request, struct hugezero_conn *conn);
int hugezero_request_cancel(struct hugezero_request *request);
int hugezero_request_finish(struct hugezero_request *request, struct hugezero_grant **ret_grant);

int hugezero_acquire(struct hugezero_conn *conn, struct hugezero_request *request, struct hugezero_grant **ret_grant);

struct hugezero_extent_info {
        uint32_t struct_bytes; /* set by the caller: sizeof(struct hugezero_extent_info) */
        uint32_t item;
        int32_t node;
        uint32_t reserved;
        uint64_t bytes;
        uint64_t page_size_bytes;
};

uint64_t hugezero_grant_get_id(const struct hugezero_grant *grant);
uint32_t hugezero_grant_get_n_extents(const struct hugezero_grant *grant);
int hugezero_grant_get_extent(const struct hugezero_grant *grant, uint32_t idx, struct hugezero_extent_info *info);
int hugezero_grant_get_fd(const struct hugezero_grant *grant, uint32_t idx);
int hugezero_grant_take_fd(struct hugezero_grant *grant, uint32_t idx);
int hugezero_grant_map(struct hugezero_grant *grant, uint32_t item, void *addr, uint32_t flags, void **ret_addr,
                       uint64_t *ret_bytes);
int hugezero_grant_notify_mapped(struct hugezero_grant *grant, struct hugezero_conn *conn);
int hugezero_grant_release(struct hugezero_grant *grant, struct hugezero_conn *conn);
int hugezero_grant_release_extent(struct hugezero_grant *grant, struct hugezero_conn *conn, uint32_t idx);
void hugezero_grant_free(struct hugezero_grant *grant);

int hugezero_alloc(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **ret_addr);
int hugezero_alloc_size(const void *addr, uint64_t *ret_bytes);
int hugezero_free(void *addr);

struct hugezero_daemon_info {
        uint32_t struct_bytes;
        uint32_t reserved;
        char version[32];
        uint64_t uptime_ms, n_clients, n_waiting, n_grants, n_extents_granted;
        uint64_t n_granted_total, n_refused_total, n_exact_total, n_cut_total, n_grown_total, n_built_total;
        uint64_t zeroed_bytes_total, granted_bytes_total, scrubbed_bytes_total;
        uint64_t n_fds_in_flight, n_doubts_total;
};

struct hugezero_pool_info {
        uint32_t struct_bytes;
        int32_t node;
        char name[32];
        uint64_t page_size_bytes, extent_bytes;
        uint64_t target_bytes, ready_bytes, granted_bytes, returned_bytes, filling_bytes, shortfall_bytes;
        uint64_t pinned_bytes, kernel_free_bytes, largest_ready_bytes, n_extents_ready;
        uint64_t n_exact_total, n_cut_total, n_grown_total, n_built_total, zeroed_bytes_total;
};

#define HUGEZERO_EXTENT_HELD UINT32_C(1)
#define HUGEZERO_EXTENT_RETURNING UINT32_C(2)
#define HUGEZERO_EXTENT_PINNED UINT32_C(3)

struct hugezero_grant_info {
        uint32_t struct_bytes;
        uint32_t extent;
        uint64_t grant_id;
        uint32_t uid, pid;
        int32_t node;
        uint32_t state;
        uint64_t bytes, page_size_bytes, age_ms, dev, ino;
        char pool[32];
};

int hugezero_status_read(struct hugezero_conn *conn, struct hugezero_status **ret_status);
void hugezero_status_free(struct hugezero_status *status);
int hugezero_status_get_daemon(const struct hugezero_status *status, struct hugezero_daemon_info *info);
uint32_t hugezero_status_get_n_pools(const struct hugezero_status *status);
int hugezero_status_get_pool(const struct hugezero_status *status, uint32_t idx, struct hugezero_pool_info *info);
uint32_t hugezero_status_get_n_grants(const struct hugezero_status *status);
int hugezero_status_get_grant(const struct hugezero_status *status, uint32_t idx, struct hugezero_grant_info *info);

#ifdef __cplusplus
}
#endif

#endif
