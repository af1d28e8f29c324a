/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Huge pages without a daemon: the kernel's own, zeroed by the kernel. */

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"
#include "internal.h"

#define MAX_NODES 1024 /* kernel limit: CONFIG_NODES_SHIFT is at most 10 */

/* Of <linux/mempolicy.h>; libnuma is no dependency of the library for one call. */
#define POLICY_PREFERRED 1
#define POLICY_BIND 2

/* Left to itself the kernel takes its default size, but munmap() wants to know it. */
static int default_page_size(uint64_t *ret_bytes) {
        _cleanup_fclose_ FILE *meminfo = fopen("/proc/meminfo", "re");
        char line[128];
        uint64_t kib;

        if (!meminfo) /* in a container without /proc */
                return -EOPNOTSUPP;
        while (fgets(line, sizeof(line), meminfo))
                if (sscanf(line, "Hugepagesize: %" SCNu64 " kB", &kib) == 1 && kib > 0) {
                        *ret_bytes = kib * 1024;
                        return 0;
                }
        return -EOPNOTSUPP;
}

/*
 * The reservation that mmap() has made is not per node: a bound page that the node lacks would be a SIGBUS at first touch.
 * So a node means populating now, and an error in time.
 */
static int place(void *addr, uint64_t bytes, int32_t node, uint32_t flags) {
        unsigned long nodes[MAX_NODES / (8 * sizeof(unsigned long)) + 1] = {};
        int policy = flags & HUGEZERO_NODE_PREFERRED ? POLICY_PREFERRED : POLICY_BIND, r;
        unsigned local_node;

        if (node == HUGEZERO_NODE_LOCAL) {
                if (getcpu(NULL, &local_node) < 0)
                        return negative_errno();
                node = (int32_t) local_node;
                policy = POLICY_PREFERRED;
        }
        nodes[(size_t) node / (8 * sizeof(nodes[0]))] = 1UL << ((size_t) node % (8 * sizeof(nodes[0])));
        if (syscall(SYS_mbind, addr, bytes, policy, nodes, (unsigned long) MAX_NODES + 1, 0) < 0)
                return errno == EINVAL ? -ENODEV : negative_errno(); /* of these arguments only the node can be wrong */
        do
                r = madvise(addr, bytes, MADV_POPULATE_WRITE) < 0 ? negative_errno() : 0;
        while (r == -EINTR);
        return r == -EFAULT ? -ENOMEM : r; /* EFAULT is the kernel's word for a page that could not be had */
}

int fallback_map(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **ret_addr, uint64_t *ret_bytes) {
        if (page_size_bytes == 0) {
                int r = default_page_size(&page_size_bytes);
                if (r < 0)
                        return r;
        }
        if (bytes > SIZE_MAX - page_size_bytes)
                return -ENOMEM;
        bytes = (bytes + page_size_bytes - 1) & ~(page_size_bytes - 1);

        int page_shift = __builtin_ctzll(page_size_bytes);
        void *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | page_shift << MAP_HUGE_SHIFT, -1, 0);
        if (addr == MAP_FAILED)
                return negative_errno();
        int r = node == HUGEZERO_NODE_ANY ? 0 : place(addr, bytes, node, flags);
        if (r < 0) {
                (void) munmap(addr, bytes);
                return r;
        }
        *ret_addr = addr;
        *ret_bytes = bytes;
        return 0;
}
