/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What the machine is made of: NUMA nodes, distances, hugepage sizes and how many pages of each the kernel has free.
 * topology.c is the only file that includes <numa.h> or <numaif.h>.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct topology;

/* @sysfs_root: "/sys"; a test passes a tree of its own. Returns 0, -ENOSYS (kernel without hugetlb), -ENOMEM, ... */
int topology_new(const char *sysfs_root, struct topology **ret_topology);
struct topology *topology_free(struct topology *topology);
static inline void topology_freep(struct topology **topology) {
        *topology = topology_free(*topology);
}
/*
 * Looks at the nodes again; other threads may be asking meanwhile. Returns 1: some have come or gone, or have got or lost memory
 * or CPUs; 0: none; or a negative errno, and nothing has changed.
 */
int topology_update(struct topology *topology);

/* Nodes with memory, by ascending number. A position (idx) is not a node number. */
size_t topology_n_nodes(const struct topology *topology);
int topology_node_at(const struct topology *topology, size_t idx);
bool topology_node_exists(const struct topology *topology, int node);     /* online, with or without memory */
bool topology_node_has_memory(const struct topology *topology, int node);
bool topology_node_has_cpus(const struct topology *topology, int node);
int topology_distance(const struct topology *topology, int from_node, int to_node);
/* All nodes with memory, nearest to @from_node first (itself included); equal distances by number. Returns how many were written. */
size_t topology_nodes_by_distance(const struct topology *topology, int from_node, int *ret_nodes, size_t max_nodes);
int topology_current_node(void); /* of the calling thread's CPU, or -1 */

/* Page sizes the kernel has, ascending. */
size_t topology_n_page_sizes(const struct topology *topology);
uint64_t topology_page_size_at(const struct topology *topology, size_t idx);
bool topology_has_page_size(const struct topology *topology, uint64_t page_size_bytes);
uint64_t topology_default_page_size(const struct topology *topology); /* Hugepagesize of /proc/meminfo */

struct topology_pages {
        uint64_t n_pages, n_free, n_surplus;                      /* of the node */
        uint64_t n_free_all, n_reserved_all, n_surplus_all;       /* of all nodes: reservations belong to none */
};
/* Reads sysfs now (about 10 us a file). Returns 0, -ENOENT for a size or node that is not there. */
int topology_read_pages(const struct topology *topology, int node, uint64_t page_size_bytes, struct topology_pages *ret_pages);
/* Whether the kernel takes ordinary memory, surplus pages, when it has too few of that size. */
bool topology_overcommits(const struct topology *topology, uint64_t page_size_bytes);
/* Bytes that may be taken on the node without touching what others have reserved: min(node free, all free - all reserved). 0 on error. */
uint64_t topology_available_bytes(const struct topology *topology, int node, uint64_t page_size_bytes);

/* Runs the calling thread on the node's CPUs; on a memory-only node, on those of the nearest node that has some. */
int topology_bind_thread(const struct topology *topology, int node);
/* MPOL_BIND for a mapping that has no pages yet. Returns 0 or a negative errno of mbind(2). */
int topology_bind_memory(void *addr, uint64_t bytes, int node);
/*
 * Asks the kernel (move_pages(2), status only) where the pages of a populated mapping are. Reads nothing of their content.
 * *ret_n_misplaced counts pages on another node; *ret_n_missing pages not present. Returns 0 or a negative errno.
 */
int topology_count_misplaced(const void *addr, uint64_t bytes, uint64_t page_size_bytes, int node, uint64_t *ret_n_misplaced,
                             uint64_t *ret_n_missing);
