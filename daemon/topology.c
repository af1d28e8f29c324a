/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * NUMA nodes, distances, hugepage sizes and counters.
 *
 * Nodes and distances are read from sysfs at start and when topology_update() says so; counters are read each time they are
 * asked for. libnuma serves for its mbind and move_pages wrappers only: its own picture of the machine comes from fixed paths,
 * its CPU masks are cached without a lock, and numa_tonode_memory() prints instead of failing. A kernel without NUMA is a
 * machine with one node 0.
 */
#include <assert.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <numaif.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"
#include "topology.h"

#define MAX_NODES 1024              /* kernel limit: CONFIG_NODES_SHIFT is at most 10 */
#define MAX_CPUS 8192               /* kernel limit: CONFIG_NR_CPUS of x86_64, the largest of all */
#define MAX_PAGE_SIZES 16           /* chosen: no CPU has more than 5 */
#define LIST_TEXT_BYTES (64 * 1024) /* chosen: every second of 8192 CPUs fits ("8190," each) */
#define N_STATUS_PAGES 512          /* chosen: 6 KiB of stack, one call for 1 GiB of 2 MiB pages */
#define LOCAL_DISTANCE 10           /* kernel default, <linux/topology.h> */
#define REMOTE_DISTANCE 20          /* kernel default, <linux/topology.h> */
#define BITS_PER_LONG (CHAR_BIT * sizeof(unsigned long))

struct node {
        int node;
        bool exists; /* online, and its directory is there: a node that is just being added may lack it */
        bool has_memory, has_cpus;
        cpu_set_t cpus[MAX_CPUS / CPU_SETSIZE];
        int *distances; /* by position in nodes->at */
};

struct nodes {
        struct nodes *before; /* what was true until then: another thread may still be reading it */
        size_t n;             /* online ones, ascending; the order of the distance files */
        struct node at[];
};

struct topology {
        int root_fd;
        bool has_node_files;   /* false: kernel without NUMA; the counters of node 0 are those of the machine */
        struct nodes *_Atomic nodes; /* complete once they are here */
        size_t n_page_sizes;
        uint64_t page_sizes_bytes[MAX_PAGE_SIZES];
        uint64_t default_page_size_bytes;
};

/* No stdio: it would cost a buffer and two more system calls for each counter. */
static int read_text(int dir_fd, const char *path, char *ret_text, size_t text_bytes) {
        _cleanup_close_ int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);
        size_t n_bytes = 0;

        if (fd < 0)
                return negative_errno();
        for (;;) {
                ssize_t n = pread(fd, ret_text + n_bytes, text_bytes - n_bytes, n_bytes);

                if (n < 0)
                        return negative_errno();
                n_bytes += n;
                if (n_bytes == text_bytes)
                        return -E2BIG;
                if (n == 0)
                        break;
        }
        ret_text[n_bytes] = '\0';
        return 0;
}

static int read_u64(int dir_fd, const char *path, uint64_t *ret_value) {
        char text[32], *end;
        uint64_t value;
        int r = read_text(dir_fd, path, text, sizeof(text));

        if (r < 0)
                return r;
        errno = 0;
        value = strtoull(text, &end, 10);
        if (errno != 0 || end == text || (*end != '\0' && *end != '\n'))
                return -EBADMSG;
        *ret_value = value;
        return 0;
}

/* The kernel's list format: "0-3,8\n", or an empty line. Calls @each for every number. */
static int read_list(int dir_fd, const char *path, long max, void (*each)(void *userdata, long number), void *userdata) {
        _cleanup_free_ char *text = malloc(LIST_TEXT_BYTES);
        char *at = text;
        int r;

        if (!text)
                return -ENOMEM;
        r = read_text(dir_fd, path, text, LIST_TEXT_BYTES);
        if (r < 0)
                return r;
        while (isdigit((unsigned char) *at)) {
                long first = strtol(at, &at, 10), last = first;

                if (*at == '-') {
                        if (!isdigit((unsigned char) at[1]))
                                return -EBADMSG;
                        last = strtol(at + 1, &at, 10);
                }
                if (last < first || last >= max)
                        return -EBADMSG;
                for (long number = first; number <= last; number++)
                        each(userdata, number);
                if (*at == ',')
                        at++;
        }
        return *at == '\0' || *at == '\n' ? 0 : -EBADMSG;
}

static struct node *find_node(struct nodes *nodes, int node) {
        for (size_t i = 0; i < nodes->n; i++)
                if (nodes->at[i].node == node)
                        return &nodes->at[i];
        return NULL;
}

static void add_node(void *userdata, long number) {
        struct nodes *nodes = userdata;

        nodes->at[nodes->n++] = (struct node){.node = number};
}

static void mark_memory(void *userdata, long number) {
        struct node *node = find_node(userdata, number);

        if (node)
                node->has_memory = true;
}

static void mark_cpu(void *userdata, long number) {
        struct node *node = userdata;

        CPU_SET_S(number, sizeof(node->cpus), node->cpus);
        node->has_cpus = true;
}

/* One line, one number for each online node, in ascending order of nodes. */
static void read_distances(int root_fd, const struct nodes *nodes, struct node *node) {
        char path[64], text[8 * MAX_NODES], *at = text;
        size_t own = node - nodes->at;

        for (size_t i = 0; i < nodes->n; i++)
                node->distances[i] = i == own ? LOCAL_DISTANCE : REMOTE_DISTANCE;
        snprintf(path, sizeof(path), "devices/system/node/node%d/distance", node->node);
        if (read_text(root_fd, path, text, sizeof(text)) < 0)
                return;
        for (size_t i = 0; i < nodes->n; i++) {
                char *end;
                long distance = strtol(at, &end, 10);

                if (end == at || distance <= 0 || distance > INT_MAX)
                        return;
                node->distances[i] = distance;
                at = end;
        }
}

static int read_node(int root_fd, const struct nodes *nodes, struct node *node) {
        char path[64];
        int r;

        node->distances = calloc(nodes->n, sizeof(*node->distances));
        if (!node->distances)
                return -ENOMEM;
        read_distances(root_fd, nodes, node);
        snprintf(path, sizeof(path), "devices/system/node/node%d/cpulist", node->node);
        r = read_list(root_fd, path, MAX_CPUS, mark_cpu, node);
        if (r == -ENOENT) { /* no directory: it stays a row of the distance files and nothing else */
                node->has_memory = false;
                return 0;
        }
        node->exists = r >= 0;
        return r;
}

static int read_only_node(int root_fd, struct nodes *nodes) {
        struct node *node = &nodes->at[0];
        int r;

        add_node(nodes, 0);
        node->exists = node->has_memory = true;
        node->distances = malloc(sizeof(*node->distances));
        if (!node->distances)
                return -ENOMEM;
        node->distances[0] = LOCAL_DISTANCE;
        r = read_list(root_fd, "devices/system/cpu/online", MAX_CPUS, mark_cpu, node);
        return r == -ENOENT ? 0 : r;
}

static struct nodes *nodes_free(struct nodes *nodes) {
        for (size_t i = 0; nodes && i < nodes->n; i++)
                free(nodes->at[i].distances);
        free(nodes);
        return NULL;
}

static void nodes_freep(struct nodes **nodes) {
        *nodes = nodes_free(*nodes);
}

static int read_nodes(int root_fd, struct nodes **ret_nodes, bool *ret_has_files) {
        _cleanup_(nodes_freep) struct nodes *nodes = calloc(1, sizeof(*nodes) + MAX_NODES * sizeof(nodes->at[0]));
        struct nodes *fitting;
        bool has_files;
        int r;

        if (!nodes)
                return -ENOMEM;
        r = read_list(root_fd, "devices/system/node/online", MAX_NODES, add_node, nodes);
        has_files = r != -ENOENT;
        if (!has_files)
                r = read_only_node(root_fd, nodes);
        if (r < 0)
                return r;
        fitting = realloc(nodes, sizeof(*nodes) + nodes->n * sizeof(nodes->at[0]));
        if (fitting)
                nodes = fitting;
        if (has_files)
                r = read_list(root_fd, "devices/system/node/has_memory", MAX_NODES, mark_memory, nodes);
        for (size_t i = 0; i < nodes->n && has_files && r >= 0; i++)
                r = read_node(root_fd, nodes, &nodes->at[i]);
        if (r < 0)
                return r;
        *ret_nodes = take_ptr(nodes);
        *ret_has_files = has_files;
        return 0;
}

static int compare_u64(const void *a, const void *b) {
        uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

        return (x > y) - (x < y);
}

static void closedir_p(DIR **dir) {
        if (*dir)
                (void) closedir(*dir);
}

static int read_page_sizes(struct topology *topology) {
        _cleanup_close_ int fd = openat(topology->root_fd, "kernel/mm/hugepages", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_(closedir_p) DIR *dir = NULL;
        struct dirent *entry;

        if (fd < 0)
                return errno == ENOENT ? -ENOSYS : negative_errno();
        dir = fdopendir(fd);
        if (!dir)
                return negative_errno();
        (void) take_fd(&fd); /* the stream's now */
        while ((entry = readdir(dir)) && topology->n_page_sizes < MAX_PAGE_SIZES) {
                uint64_t size_kib;
                char suffix[3];

                if (sscanf(entry->d_name, "hugepages-%" SCNu64 "%2s", &size_kib, suffix) == 2 && strcmp(suffix, "kB") == 0)
                        topology->page_sizes_bytes[topology->n_page_sizes++] = size_kib * 1024;
        }
        qsort(topology->page_sizes_bytes, topology->n_page_sizes, sizeof(topology->page_sizes_bytes[0]), compare_u64);
        return topology->n_page_sizes > 0 ? 0 : -ENOSYS;
}

/* The default size is in no sysfs file. */
static void read_default_page_size(struct topology *topology) {
        char text[8192], *line;
        uint64_t size_kib;

        topology->default_page_size_bytes = topology->page_sizes_bytes[0];
        if (read_text(AT_FDCWD, "/proc/meminfo", text, sizeof(text)) < 0)
                return;
        line = strstr(text, "Hugepagesize:");
        if (line && sscanf(line, "Hugepagesize: %" SCNu64 " kB", &size_kib) == 1 &&
            topology_has_page_size(topology, size_kib * 1024))
                topology->default_page_size_bytes = size_kib * 1024;
}

int topology_new(const char *sysfs_root, struct topology **ret_topology) {
        _cleanup_(topology_freep) struct topology *topology = calloc(1, sizeof(*topology));
        struct nodes *nodes;
        int r;

        if (!topology)
                return -ENOMEM;
        topology->root_fd = open(sysfs_root, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (topology->root_fd < 0)
                return negative_errno();
        r = read_page_sizes(topology);
        if (r < 0)
                return r;
        read_default_page_size(topology);
        r = read_nodes(topology->root_fd, &nodes, &topology->has_node_files);
        if (r < 0)
                return r;
        topology->nodes = nodes;
        *ret_topology = take_ptr(topology);
        return 0;
}

struct topology *topology_free(struct topology *topology) {
        if (!topology)
                return NULL;
        for (struct nodes *nodes = topology->nodes, *before; nodes; nodes = before) {
                before = nodes->before;
                nodes_free(nodes);
        }
        safe_close(topology->root_fd);
        free(topology);
        return NULL;
}

static bool is_same(const struct nodes *a, const struct nodes *b) {
        if (a->n != b->n)
                return false;
        for (size_t i = 0; i < a->n; i++) {
                const struct node *x = &a->at[i], *y = &b->at[i];

                if (x->node != y->node || x->exists != y->exists || x->has_memory != y->has_memory ||
                    memcmp(x->cpus, y->cpus, sizeof(x->cpus)) != 0 ||
                    memcmp(x->distances, y->distances, a->n * sizeof(x->distances[0])) != 0)
                        return false;
        }
        return true;
}

int topology_update(struct topology *topology) {
        struct nodes *nodes;
        bool has_files;
        int r;

        if (!topology->has_node_files)
                return 0;
        r = read_nodes(topology->root_fd, &nodes, &has_files);
        if (r < 0)
                return r;
        if (is_same(topology->nodes, nodes)) {
                nodes_free(nodes);
                return 0;
        }
        nodes->before = topology->nodes;
        topology->nodes = nodes;
        return 1;
}

size_t topology_n_nodes(const struct topology *topology) {
        const struct nodes *nodes = topology->nodes;
        size_t n_nodes = 0;

        for (size_t i = 0; i < nodes->n; i++)
                n_nodes += nodes->at[i].has_memory;
        return n_nodes;
}

int topology_node_at(const struct topology *topology, size_t idx) {
        const struct nodes *nodes = topology->nodes;

        for (size_t i = 0; i < nodes->n; i++)
                if (nodes->at[i].has_memory && idx-- == 0)
                        return nodes->at[i].node;
        assert(!"position of a node out of range");
        return -1;
}

bool topology_node_exists(const struct topology *topology, int node) {
        const struct node *found = find_node(topology->nodes, node);

        return found && found->exists;
}

bool topology_node_has_memory(const struct topology *topology, int node) {
        const struct node *found = find_node(topology->nodes, node);

        return found && found->has_memory;
}

bool topology_node_has_cpus(const struct topology *topology, int node) {
        const struct node *found = find_node(topology->nodes, node);

        return found && found->has_cpus;
}

static int distance_between(struct nodes *nodes, int from_node, int to_node) {
        const struct node *from = find_node(nodes, from_node), *to = find_node(nodes, to_node);

        if (from && to)
                return from->distances[to - nodes->at];
        return from_node == to_node ? LOCAL_DISTANCE : REMOTE_DISTANCE;
}

int topology_distance(const struct topology *topology, int from_node, int to_node) {
        return distance_between(topology->nodes, from_node, to_node);
}

size_t topology_nodes_by_distance(const struct topology *topology, int from_node, int *ret_nodes, size_t max_nodes) {
        struct nodes *nodes = topology->nodes;
        size_t n_nodes = 0;

        /* Insertion sort: stable, so equal distances stay in the order of node numbers; and machines have few nodes. */
        for (size_t i = 0; i < nodes->n; i++) {
                int node = nodes->at[i].node, distance = distance_between(nodes, from_node, node);
                size_t at = n_nodes;

                if (!nodes->at[i].has_memory)
                        continue;
                while (at > 0 && distance_between(nodes, from_node, ret_nodes[at - 1]) > distance)
                        at--;
                if (at == max_nodes)
                        continue;
                if (n_nodes < max_nodes)
                        n_nodes++;
                memmove(&ret_nodes[at + 1], &ret_nodes[at], (n_nodes - at - 1) * sizeof(*ret_nodes));
                ret_nodes[at] = node;
        }
        return n_nodes;
}

int topology_current_node(void) {
        unsigned node;

        return getcpu(NULL, &node) < 0 ? -1 : (int) node;
}

size_t topology_n_page_sizes(const struct topology *topology) {
        return topology->n_page_sizes;
}

uint64_t topology_page_size_at(const struct topology *topology, size_t idx) {
        assert(idx < topology->n_page_sizes);
        return topology->page_sizes_bytes[idx];
}

bool topology_has_page_size(const struct topology *topology, uint64_t page_size_bytes) {
        for (size_t i = 0; i < topology->n_page_sizes; i++)
                if (topology->page_sizes_bytes[i] == page_size_bytes)
                        return true;
        return false;
}

uint64_t topology_default_page_size(const struct topology *topology) {
        return topology->default_page_size_bytes;
}

static int read_all_counter(const struct topology *topology, uint64_t page_size_bytes, const char *name, uint64_t *ret_value) {
        char path[128];

        snprintf(path, sizeof(path), "kernel/mm/hugepages/hugepages-%" PRIu64 "kB/%s", page_size_bytes / 1024, name);
        return read_u64(topology->root_fd, path, ret_value);
}

static int read_node_counter(const struct topology *topology, int node, uint64_t page_size_bytes, const char *name,
                             uint64_t *ret_value) {
        char path[128];

        if (!topology_node_exists(topology, node))
                return -ENOENT;
        if (!topology->has_node_files)
                return read_all_counter(topology, page_size_bytes, name, ret_value);
        snprintf(path, sizeof(path), "devices/system/node/node%d/hugepages/hugepages-%" PRIu64 "kB/%s", node,
                 page_size_bytes / 1024, name);
        return read_u64(topology->root_fd, path, ret_value);
}

int topology_read_pages(const struct topology *topology, int node, uint64_t page_size_bytes, struct topology_pages *ret_pages) {
        struct topology_pages pages = {};
        const struct {
                const char *name;
                bool of_node;
                uint64_t *value;
        } counters[] = {
                {"nr_hugepages", true, &pages.n_pages},
                /* Before the free ones: what is populated in between must not look free for anybody. */
                {"resv_hugepages", false, &pages.n_reserved_all},
                {"free_hugepages", true, &pages.n_free},
                {"surplus_hugepages", true, &pages.n_surplus},
                {"free_hugepages", false, &pages.n_free_all},
                {"surplus_hugepages", false, &pages.n_surplus_all},
        };

        for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]); i++) {
                int r = counters[i].of_node
                                ? read_node_counter(topology, node, page_size_bytes, counters[i].name, counters[i].value)
                                : read_all_counter(topology, page_size_bytes, counters[i].name, counters[i].value);

                if (r < 0)
                        return r;
        }
        *ret_pages = pages;
        return 0;
}

bool topology_overcommits(const struct topology *topology, uint64_t page_size_bytes) {
        uint64_t n_overcommit;

        /* The kernel does not offer it for sizes above its buddy allocator's: there is no such file. */
        return read_all_counter(topology, page_size_bytes, "nr_overcommit_hugepages", &n_overcommit) >= 0 && n_overcommit > 0;
}

uint64_t topology_available_bytes(const struct topology *topology, int node, uint64_t page_size_bytes) {
        uint64_t n_free, n_free_all, n_reserved_all, n_unreserved;

        /* In this order: a reserved page that is populated in between must not look like one that is free for anybody. */
        if (read_all_counter(topology, page_size_bytes, "resv_hugepages", &n_reserved_all) < 0 ||
            read_all_counter(topology, page_size_bytes, "free_hugepages", &n_free_all) < 0 ||
            read_node_counter(topology, node, page_size_bytes, "free_hugepages", &n_free) < 0)
                return 0;
        n_unreserved = n_free_all > n_reserved_all ? n_free_all - n_reserved_all : 0;
        return (n_free < n_unreserved ? n_free : n_unreserved) * page_size_bytes;
}

int topology_bind_thread(const struct topology *topology, int node) {
        struct nodes *nodes = topology->nodes;
        const struct node *nearest = NULL;

        for (size_t i = 0; i < nodes->n; i++) {
                const struct node *candidate = &nodes->at[i];

                if (candidate->has_cpus && (!nearest || distance_between(nodes, node, candidate->node) <
                                                                distance_between(nodes, node, nearest->node)))
                        nearest = candidate;
        }
        if (!nearest)
                return -ENOENT;
        return sched_setaffinity(0, sizeof(nearest->cpus), nearest->cpus) < 0 ? negative_errno() : 0;
}

int topology_bind_memory(void *addr, uint64_t bytes, int node) {
        unsigned long mask[MAX_NODES / BITS_PER_LONG] = {};

        if (node < 0 || node >= MAX_NODES)
                return -EINVAL;
        mask[node / BITS_PER_LONG] = 1UL << (node % BITS_PER_LONG);
        /* One more than there are: the kernel looks at maxnode - 1 bits (mbind(2), "maxnode"). */
        if (mbind(addr, bytes, MPOL_BIND, mask, MAX_NODES + 1, 0) < 0)
                return errno == ENOSYS && node == 0 ? 0 : negative_errno();
        return 0;
}

/* Without move_pages(2) there is one node, so only presence is left to ask. */
static int count_missing(const void *addr, uint64_t bytes, uint64_t page_size_bytes, uint64_t *ret_n_missing) {
        uint64_t step_bytes = sysconf(_SC_PAGESIZE), n_missing = 0;
        unsigned char present;

        for (uint64_t offset_bytes = 0; offset_bytes < bytes; offset_bytes += page_size_bytes) {
                if (mincore((char *) addr + offset_bytes, step_bytes, &present) < 0)
                        return negative_errno();
                n_missing += !(present & 1);
        }
        *ret_n_missing = n_missing;
        return 0;
}

int topology_count_misplaced(const void *addr, uint64_t bytes, uint64_t page_size_bytes, int node, uint64_t *ret_n_misplaced,
                             uint64_t *ret_n_missing) {
        uint64_t n_misplaced = 0, n_missing = 0, offset_bytes = 0;
        void *pages[N_STATUS_PAGES];
        int status[N_STATUS_PAGES], r;

        while (offset_bytes < bytes) {
                unsigned n = 0;

                for (; n < N_STATUS_PAGES && offset_bytes < bytes; n++, offset_bytes += page_size_bytes)
                        pages[n] = (char *) addr + offset_bytes;
                if (move_pages(0 /* pid: this process */, n, pages, NULL /* nodes: only tell */, status, 0) < 0) {
                        if (errno != ENOSYS || node != 0)
                                return negative_errno();
                        r = count_missing(addr, bytes, page_size_bytes, &n_missing);
                        if (r < 0)
                                return r;
                        break;
                }
                for (unsigned i = 0; i < n; i++) {
                        n_missing += status[i] < 0;
                        n_misplaced += status[i] >= 0 && status[i] != node;
                }
        }
        *ret_n_misplaced = n_misplaced;
        *ret_n_missing = n_missing;
        return 0;
}
