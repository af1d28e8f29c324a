/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the tests of the configuration share: a folder of their own, and short ways to load and to fail. */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "fake-topology.h"

static char folder[] = "/tmp/test-config-XXXXXX", main_file[64];
static struct config config; /* of the last load() that succeeded; large */

static inline void write_file(const char *name, const char *content) {
        char path[128];
        FILE *stream;

        (void) snprintf(path, sizeof(path), "%s/%s", folder, name);
        stream = fopen(path, "we");
        assert_non_null(stream);
        assert_int_equal(fputs(content, stream) < 0, 0);
        assert_int_equal(fclose(stream), 0);
}

static inline int load_args(const struct config_args *args, char error[CONFIG_TEXT_BYTES]) {
        struct topology topology = fake_machine();

        return config_load(args, &topology, &config, error);
}

/* Loads @content as the configuration; it must be fine. */
static inline void load(const char *content) {
        const struct config_args args = {.config_path = main_file};
        char error[CONFIG_TEXT_BYTES] = "untouched";

        write_file("main.conf", content);
        if (load_args(&args, error) != 0)
                fail_msg("%s", error);
        assert_string_equal(error, "untouched");
}

/* @expected: the message behind the name of the file. Nothing is written to the result. */
static inline void fails(const char *content, const char *expected) {
        const struct config_args args = {.config_path = main_file};
        char error[CONFIG_TEXT_BYTES] = "";

        write_file("main.conf", content);
        memset(&config, 0x55, sizeof(config));
        assert_int_equal(load_args(&args, error), -EINVAL);
        if (strncmp(error, main_file, strlen(main_file)) != 0 || strcmp(error + strlen(main_file), expected) != 0)
                fail_msg("message:  %s\nexpected: FILE%s", error, expected);
        for (size_t i = 0; i < sizeof(config); i++)
                assert_int_equal(((unsigned char *) &config)[i], 0x55);
}

static inline void check_default_pool(void) {
        const struct config_pool *pool = &config.pools[0];

        assert_int_equal(config.n_pools, 1);
        assert_true(pool->page_size_bytes == 2 * MIB);
        assert_true(pool->extent_bytes == 0);
        assert_int_equal(pool->low_millipercent, 25000);
        assert_int_equal(pool->n_nodes, 2);
        assert_int_equal(pool->nodes[0].node, 0);
        assert_true(pool->nodes[0].target_bytes == 700 * MIB);
        assert_int_equal(pool->nodes[1].node, 1);
        assert_true(pool->nodes[1].target_bytes == 500 * MIB); /* half of 501 pages, rounded down */
}

static inline const struct config_pool *load_pool(const char *keys) {
        char content[1024];

        (void) snprintf(content, sizeof(content), "[Pool p]\n%s\n", keys);
        load(content);
        assert_int_equal(config.n_pools, 1);
        return &config.pools[0];
}

/* @keys: one line, the second of the file. */
static inline void pool_fails(const char *keys, const char *expected) {
        char content[1024], message[CONFIG_TEXT_BYTES + 32];

        (void) snprintf(content, sizeof(content), "[Pool p]\n%s\n", keys);
        (void) snprintf(message, sizeof(message), ":2: [Pool p] %s", expected);
        fails(content, message);
}

static inline void daemon_fails(const char *key, const char *expected) {
        char content[1024], message[CONFIG_TEXT_BYTES + 32];

        (void) snprintf(content, sizeof(content), "# remark\n[Daemon]\n%s\n", key);
        (void) snprintf(message, sizeof(message), ":3: [Daemon] %s", expected);
        fails(content, message);
}

static inline int make_folder(void **state) {
        char path[128];

        if (!mkdtemp(folder))
                return -1;
        (void) snprintf(main_file, sizeof(main_file), "%s/main.conf", folder);
        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        return mkdir(path, 0700);
}

static inline int remove_drop_ins(void **state) {
        char path[512];
        DIR *dir;

        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        dir = opendir(path);
        if (!dir)
                return -1;
        for (struct dirent *entry; (entry = readdir(dir));) {
                (void) snprintf(path, sizeof(path), "%s.d/%s", main_file, entry->d_name);
                (void) unlink(path);
        }
        return closedir(dir);
}

static inline int remove_folder(void **state) {
        char path[128];

        (void) snprintf(path, sizeof(path), "%s.d", main_file);
        if (remove_drop_ins(state) < 0 || rmdir(path) < 0 || unlink(main_file) < 0)
                return -1;
        return rmdir(folder);
}
