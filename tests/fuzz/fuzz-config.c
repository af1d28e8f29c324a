/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Whole configurations: a file, then --pool options, each behind a byte of 0xff (which no UTF-8 text has). Whatever comes is
 * either refused with one line, or a configuration whose figures fit each other.
 */
#include <string.h>
#include <sys/mman.h>

#include "cleanup.h"
#include "clear.h"
#include "config.h"
#include "fuzz.h"

#include "../unit/fake-topology.h"

#define MAX_SPECS 4
#define SEPARATOR 0xff

static void check_pool(const struct topology *topology, const struct config_pool *pool) {
        CHECK(pool->name[0] && memchr(pool->name, 0, sizeof(pool->name)));
        CHECK(topology_has_page_size(topology, pool->page_size_bytes));
        CHECK(pool->extent_bytes % pool->page_size_bytes == 0);
        CHECK(pool->low_millipercent <= 100000 || pool->low_millipercent == UINT32_MAX);
        CHECK(pool->n_nodes > 0 && pool->n_nodes <= CONFIG_MAX_NODES);
        for (size_t i = 0; i < pool->n_nodes; i++) {
                CHECK(topology_node_has_memory(topology, pool->nodes[i].node));
                CHECK(pool->nodes[i].target_bytes % pool->page_size_bytes == 0);
                CHECK(pool->low_millipercent != UINT32_MAX || pool->low_bytes <= pool->nodes[i].target_bytes ||
                      pool->nodes[i].is_auto); /* that target depends on the day */
        }
}

static void check_ids(const struct config_ids *ids) {
        CHECK(ids->n <= CONFIG_MAX_IDS && (!ids->all || ids->n == 0));
        for (size_t i = 0; i < ids->n; i++)
                CHECK(ids->ids[i] != UINT32_MAX); /* to the kernel that is no user */
}

static void check_quota(const struct topology *topology, const struct config_quota *quota) {
        CHECK(quota->n_page_limits <= topology_n_page_sizes(topology));
        for (size_t i = 0; i < quota->n_page_limits; i++)
                CHECK(topology_has_page_size(topology, quota->page_limits[i].page_size_bytes));
}

static void check_config(const struct topology *topology, const struct config *config) {
        CHECK(config->socket_path[0] == '/' && memchr(config->socket_path, 0, sizeof(config->socket_path)));
        CHECK(config->max_connections > 0 && config->max_waiting > 0 && config->max_fds_in_flight > 0);
        CHECK(config->release_grace_ms > 0 && config->sweep_interval_ms > 0);
        CHECK(config->n_pools > 0 && config->n_pools <= CONFIG_MAX_POOLS);
        CHECK(config->n_user_quotas <= CONFIG_MAX_USER_QUOTAS && config->n_group_quotas <= CONFIG_MAX_GROUP_QUOTAS);
        check_ids(&config->allow_users);
        check_ids(&config->allow_groups);
        check_ids(&config->admin_users);
        check_ids(&config->trusted_users);
        CHECK(!config->clear_method || !config->clear_method->why_not());
        CHECK(config->batch_bytes > 0 && config->background_bytes_per_s > 0 && config->unmap_after_ms > 0);
        CHECK(config->recycle <= CONFIG_RECYCLE_NEVER);
        check_quota(topology, &config->quota);
        for (size_t i = 0; i < config->n_user_quotas; i++)
                check_quota(topology, &config->user_quotas[i].quota);
        for (size_t i = 0; i < config->n_pools; i++)
                check_pool(topology, &config->pools[i]);
}

/* Puts the first part into @fd and the others into specs, which are copies. Returns how many specs there are. */
static size_t split_input(const uint8_t *data, size_t n_bytes, int fd, char *ret_specs[MAX_SPECS]) {
        const uint8_t *end = n_bytes > 0 ? memchr(data, SEPARATOR, n_bytes) : NULL;
        size_t length = end ? (size_t) (end - data) : n_bytes, n_specs = 0;

        CHECK(write(fd, data, length) == (ssize_t) length);
        while (end && n_specs < MAX_SPECS) {
                const uint8_t *start = end + 1;

                end = memchr(start, SEPARATOR, n_bytes - (size_t) (start - data));
                length = (end ? end : data + n_bytes) - start;
                ret_specs[n_specs++] = strndup((const char *) start, length);
        }
        return n_specs;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
        static struct config config;
        _cleanup_close_ int fd = memfd_create("config", MFD_CLOEXEC);
        char path[32], error[CONFIG_TEXT_BYTES] = "", *specs[MAX_SPECS];
        struct topology topology = fake_machine();
        size_t n_specs = split_input(data, n_bytes, fd, specs);
        const struct config_args args = {
                .config_path = path, .pool_specs = (const char *const *) specs, .n_pool_specs = n_specs};
        int r;

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = config_load(&args, &topology, &config, error);
        if (r == 0) {
                CHECK(!error[0]);
                check_config(&topology, &config);
        } else {
                CHECK(r < 0);
                CHECK(error[0] && !strchr(error, '\n') && memchr(error, 0, sizeof(error)));
        }
        while (n_specs > 0)
                free(specs[--n_specs]);
        return 0;
}
