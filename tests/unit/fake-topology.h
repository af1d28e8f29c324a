/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A machine that is the same everywhere: nodes 0 and 1 with memory, node 2 with CPUs only; pages of 2 MiB (the default) and
 * 1 GiB. Included once, instead of linking topology.c, which knows only real machines' default page size.
 */
#pragma once

#include <errno.h>

#include "topology.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct fake_pages {
        uint64_t n_pages, n_free, n_reserved;
};

struct topology {
        size_t n_sizes;
        size_t n_nodes;
        struct fake_pages pages[2][2]; /* [node][page size] */
};

static const uint64_t fake_sizes[] = {2 * MIB, GIB};

static struct topology fake_machine(void) {
        return (struct topology){
                .n_sizes = 2,
                .n_nodes = 2,
                .pages = {{{1000, 700, 0}, {8, 8, 0}}, {{501, 501, 0}, {0, 0, 0}}},
        };
}

size_t topology_n_nodes(const struct topology *topology) {
        return topology->n_nodes;
}

int topology_node_at(const struct topology *topology, size_t idx) {
        return (int) idx;
}

bool topology_node_exists(const struct topology *topology, int node) {
        return node >= 0 && (size_t) node <= topology->n_nodes;
}

bool topology_node_has_memory(const struct topology *topology, int node) {
        return node >= 0 && (size_t) node < topology->n_nodes;
}

size_t topology_n_page_sizes(const struct topology *topology) {
        return topology->n_sizes;
}

uint64_t topology_page_size_at(const struct topology *topology, size_t idx) {
        return fake_sizes[idx];
}

bool topology_has_page_size(const struct topology *topology, uint64_t page_size_bytes) {
        for (size_t i = 0; i < topology->n_sizes; i++)
                if (fake_sizes[i] == page_size_bytes)
                        return true;
        return false;
}

uint64_t topology_default_page_size(const struct topology *topology) {
        return fake_sizes[0];
}

/* Nodes beyond 1 are as node 1. */
static const struct fake_pages *fake_pages_of(const struct topology *topology, int node, uint64_t page_size_bytes) {
        return &topology->pages[node > 0][page_size_bytes == GIB];
}

int topology_read_pages(const struct topology *topology, int node, uint64_t page_size_bytes, struct topology_pages *ret_pages) {
        const struct fake_pages *pages = fake_pages_of(topology, node, page_size_bytes);

        if (pages->n_pages == UINT64_MAX)
                return -ENOENT;
        *ret_pages = (struct topology_pages){.n_pages = pages->n_pages, .n_free = pages->n_free};
        return 0;
}

uint64_t topology_available_bytes(const struct topology *topology, int node, uint64_t page_size_bytes) {
        const struct fake_pages *pages = fake_pages_of(topology, node, page_size_bytes);

        return (pages->n_free - pages->n_reserved) * page_size_bytes;
}
