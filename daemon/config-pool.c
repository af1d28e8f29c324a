/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * From the text of a pool's keys to bytes per node. Sizes must be whole pages as written: rounding them in silence would give
 * another pool than the operator counts on. Only shares of what the machine has (per cents, auto) are rounded, down.
 */
#include "config-pool.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "parse.h"
#include "topology-text.h"

#define MAX_TARGET_BYTES                                                                                                       \
        (UINT64_C(1) << 52) /* kernel: the most that x86 can address physically; 64 nodes of it do not overflow */
#define NODE_BITS (PARSE_MAX_NODES / 64)

/* What is being resolved; the pool is copied out at the end. */
struct resolver {
        const struct config_section *section;
        const struct topology *topology;
        char *error;
        struct config_pool pool;
};

#define FAIL(resolver, key, ...) config_section_fail((resolver)->section, (key), (resolver)->error, __VA_ARGS__)

static int fail_form(struct resolver *resolver, enum config_key_id key, int r) {
        char form[CONFIG_FORM_BYTES];

        return FAIL(resolver, key, "%s; give %s", r == -ERANGE ? "out of range" : "not understood",
                    config_key_form(&config_keys[key], form));
}

/* @unit_bytes: the page size or the extent size */
static int fail_multiple(struct resolver *resolver, enum config_key_id key, uint64_t bytes, uint64_t unit_bytes) {
        const char *unit = unit_bytes == resolver->pool.page_size_bytes ? "page" : "extent";
        uint64_t below = bytes - bytes % unit_bytes;
        char size[FORMAT_SIZE_BYTES], low[FORMAT_SIZE_BYTES], high[FORMAT_SIZE_BYTES];

        (void) format_size(unit_bytes, size);
        (void) format_size(below, low);
        (void) format_size(below + unit_bytes, high);
        if (below == 0)
                return FAIL(resolver, key, "no multiple of the %s size, %s; give %s", unit, size, high);
        return FAIL(resolver, key, "no multiple of the %s size, %s; give %s or %s", unit, size, low, high);
}

static int resolve_page_size(struct resolver *resolver) {
        const char *text = config_section_text(resolver->section, CONFIG_KEY_PAGE_SIZE);
        char list[TOPOLOGY_LIST_BYTES];
        uint64_t bytes;
        int r;

        if (strcmp(text, "default") == 0)
                bytes = topology_default_page_size(resolver->topology);
        else {
                r = parse_size(text, &bytes);
                if (r < 0)
                        return fail_form(resolver, CONFIG_KEY_PAGE_SIZE, r);
        }
        if (topology_n_page_sizes(resolver->topology) == 0)
                return FAIL(resolver, CONFIG_KEY_PAGE_SIZE, "the kernel has no hugepages; use one with CONFIG_HUGETLBFS");
        if (!topology_has_page_size(resolver->topology, bytes))
                return FAIL(resolver, CONFIG_KEY_PAGE_SIZE, "the kernel has no pages of that size; it has %s",
                            topology_list_page_sizes(resolver->topology, list));
        resolver->pool.page_size_bytes = bytes;
        return 0;
}

static int resolve_extent_size(struct resolver *resolver) {
        const char *text = config_section_text(resolver->section, CONFIG_KEY_EXTENT_SIZE);
        uint64_t bytes;
        int r;

        if (strcmp(text, "auto") == 0)
                return 0;
        r = parse_size(text, &bytes);
        if (r == 0 && bytes > MAX_TARGET_BYTES)
                r = -ERANGE;
        if (r < 0)
                return fail_form(resolver, CONFIG_KEY_EXTENT_SIZE, r);
        if (bytes == 0 || bytes % resolver->pool.page_size_bytes != 0)
                return fail_multiple(resolver, CONFIG_KEY_EXTENT_SIZE, bytes, resolver->pool.page_size_bytes);
        resolver->pool.extent_bytes = bytes;
        return 0;
}

/* One node's part of Target=. @text is "4G", "50%" or "auto". */
static int resolve_amount(struct resolver *resolver, const char *text, struct config_pool_node *node) {
        uint64_t page = resolver->pool.page_size_bytes, extent = resolver->pool.extent_bytes, bytes;
        uint64_t unit = extent > 0 ? extent : page; /* what is no multiple would be short of it for ever */
        struct topology_pages pages;
        uint32_t millipercent;
        char size[FORMAT_SIZE_BYTES];
        int r;

        if (strcmp(text, "auto") == 0) {
                bytes = topology_available_bytes(resolver->topology, node->node, page) / 2;
                node->target_bytes = bytes - bytes % unit;
                node->is_auto = true;
                return 0;
        }
        r = strchr(text, '%') ? parse_percent(text, &millipercent) : parse_size(text, &bytes);
        if (r == 0 && !strchr(text, '%') && bytes > MAX_TARGET_BYTES)
                r = -ERANGE;
        if (r < 0)
                return fail_form(resolver, CONFIG_KEY_TARGET, r);
        if (strchr(text, '%')) {
                r = topology_read_pages(resolver->topology, node->node, page, &pages);
                if (r < 0)
                        return FAIL(resolver, CONFIG_KEY_TARGET, "cannot read how many pages node %d has (%s); give a size",
                                    node->node, strerror(-r));
                bytes = pages.n_pages * millipercent / 100000 * page;
                node->target_bytes = bytes - bytes % unit;
                return 0;
        }
        if (bytes > 0 && bytes < extent)
                return FAIL(resolver, CONFIG_KEY_TARGET, "smaller than one extent of %s; give more, or a smaller ExtentSize=",
                            format_size(extent, size));
        if (bytes % unit != 0)
                return fail_multiple(resolver, CONFIG_KEY_TARGET, bytes, unit);
        node->target_bytes = bytes;
        return 0;
}

/* Checks a node and appends it. @key: what named it. */
static int add_node(struct resolver *resolver, enum config_key_id key, int node, struct config_pool_node **ret_node) {
        struct config_pool *pool = &resolver->pool;
        char list[TOPOLOGY_LIST_BYTES];

        if (!topology_node_exists(resolver->topology, node))
                return FAIL(resolver, key, "there is no node %d; nodes with memory are %s", node,
                            topology_list_nodes(resolver->topology, list));
        if (!topology_node_has_memory(resolver->topology, node))
                return FAIL(resolver, key, "node %d has no memory; nodes with memory are %s", node,
                            topology_list_nodes(resolver->topology, list));
        for (size_t i = 0; i < pool->n_nodes; i++)
                if (pool->nodes[i].node == node)
                        return FAIL(resolver, key, "node %d is named twice; remove one", node);
        if (pool->n_nodes == CONFIG_MAX_NODES)
                return FAIL(resolver, key, "a pool can be on at most %d nodes; name fewer", CONFIG_MAX_NODES);
        *ret_node = &pool->nodes[pool->n_nodes++];
        (*ret_node)->node = node;
        return 0;
}

/* "node0:25G node1:75%": the pool is on these nodes. */
static int resolve_target_list(struct resolver *resolver, const char *text) {
        const char *nodes = config_section_text(resolver->section, CONFIG_KEY_NODES);
        char copy[CONFIG_INI_LINE_BYTES + 1], *save = NULL;
        int r;

        if (strcmp(nodes, "all") != 0)
                return FAIL(resolver, CONFIG_KEY_NODES, "Target= names the nodes of this pool already; remove one of the two");
        if (strlen(text) >= sizeof(copy)) /* from the command line; a file has no such lines */
                return fail_form(resolver, CONFIG_KEY_TARGET, -ERANGE);
        (void) strcpy(copy, text);
        for (char *word = strtok_r(copy, " \t", &save); word; word = strtok_r(NULL, " \t", &save)) {
                char *colon = strchr(word, ':');
                struct config_pool_node *node;
                int32_t number;

                if (strncmp(word, "node", 4) != 0 || !colon || word[4] == '-')
                        return fail_form(resolver, CONFIG_KEY_TARGET, -EINVAL);
                *colon = 0;
                r = parse_i32(word + 4, &number);
                if (r < 0)
                        return fail_form(resolver, CONFIG_KEY_TARGET, r);
                r = add_node(resolver, CONFIG_KEY_TARGET, number, &node);
                if (r == 0)
                        r = resolve_amount(resolver, colon + 1, node);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int resolve_all_nodes(struct resolver *resolver) {
        struct config_pool_node *node;
        int r = 0;

        for (size_t i = 0; i < topology_n_nodes(resolver->topology) && r == 0; i++)
                r = add_node(resolver, CONFIG_KEY_NODES, topology_node_at(resolver->topology, i), &node);
        return r;
}

static int resolve_nodes(struct resolver *resolver) {
        const char *text = config_section_text(resolver->section, CONFIG_KEY_NODES);
        struct config_pool_node *node;
        uint64_t bits[NODE_BITS];
        int r;

        if (strcmp(text, "all") == 0)
                return resolve_all_nodes(resolver);
        r = parse_node_list(text, bits);
        if (r < 0)
                return fail_form(resolver, CONFIG_KEY_NODES, r);
        for (int number = 0; number < PARSE_MAX_NODES && r == 0; number++)
                if (bits[number / 64] & UINT64_C(1) << (number % 64))
                        r = add_node(resolver, CONFIG_KEY_NODES, number, &node);
        return r;
}

/* Target= and Nodes=. */
static int resolve_target(struct resolver *resolver) {
        const char *text = config_section_text(resolver->section, CONFIG_KEY_TARGET);
        int r;

        if (strncmp(text, "node", 4) == 0)
                return resolve_target_list(resolver, text);
        r = resolve_nodes(resolver);
        for (size_t i = 0; i < resolver->pool.n_nodes && r == 0; i++)
                r = resolve_amount(resolver, text, &resolver->pool.nodes[i]);
        return r;
}

static int resolve_low(struct resolver *resolver) {
        const char *text = config_section_text(resolver->section, CONFIG_KEY_LOW);
        struct config_pool *pool = &resolver->pool;
        char size[FORMAT_SIZE_BYTES];
        uint32_t millipercent;
        uint64_t bytes;
        int r;

        r = strchr(text, '%') ? parse_percent(text, &millipercent) : parse_size(text, &bytes);
        if (r < 0)
                return fail_form(resolver, CONFIG_KEY_LOW, r);
        if (strchr(text, '%')) {
                pool->low_millipercent = millipercent;
                return 0;
        }
        for (size_t i = 0; i < pool->n_nodes; i++)
                if (bytes > pool->nodes[i].target_bytes && !pool->nodes[i].is_auto)
                        return FAIL(resolver, CONFIG_KEY_LOW, "more than the target of node %d, %s; give less, or per cents",
                                    pool->nodes[i].node, format_size(pool->nodes[i].target_bytes, size));
        pool->low_millipercent = UINT32_MAX;
        pool->low_bytes = bytes;
        return 0;
}

int config_pool_resolve(const struct config_section *section, const struct topology *topology, struct config_pool *ret_pool,
                        char ret_error[CONFIG_TEXT_BYTES]) {
        struct resolver resolver = {.section = section, .topology = topology, .error = ret_error};
        int r;

        assert(strlen(section->name) < sizeof(resolver.pool.name));
        (void) strcpy(resolver.pool.name, section->name);
        r = resolve_page_size(&resolver);
        if (r == 0)
                r = resolve_extent_size(&resolver);
        if (r == 0)
                r = resolve_target(&resolver);
        if (r == 0)
                r = resolve_low(&resolver);
        if (r == 0)
                *ret_pool = resolver.pool;
        return r;
}
