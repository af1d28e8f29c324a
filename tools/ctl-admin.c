/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl reload, resize and drain: what administrators change while the daemon runs. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cleanup.h"
#include "ctl.h"
#include "parse.h"

#define DRAIN_POLL_MS 20 /* chosen: short beside what the kernel takes to free a GiB of pages, and no load */

static const char reload_help[] = "Usage: hugezeroctl reload [OPTIONS]\n"
                                  "\n"
                                  "Has the daemon read its configuration again. An error in it changes nothing.\n"
                                  "Names the keys that have changed and take effect at the next start only.\n"
                                  "\n"
                                  "Options:\n"
                                  "  --socket PATH   the daemon's socket\n"
                                  "  --help          this text\n";

static const char resize_help[] = "Usage: hugezeroctl resize POOL SIZE [OPTIONS]\n"
                                  "\n"
                                  "Gives the pool another target, on each node, until the next reload or start.\n"
                                  "Says so where a node has not as much now.\n"
                                  "\n"
                                  "Options:\n"
                                  "  --node NODE     on this node only\n"
                                  "  --socket PATH   the daemon's socket\n"
                                  "  --help          this text\n";

static const char drain_help[] = "Usage: hugezeroctl drain [OPTIONS]\n"
                                 "\n"
                                 "Gives what is ready back to the kernel, and what clients hold once it comes\n"
                                 "back: the target is 0 until the next reload or start.\n"
                                 "\n"
                                 "Options:\n"
                                 "  --node NODE     on this node only\n"
                                 "  --pool NAME     of this pool only\n"
                                 "  --wait[=TIME]   until nothing ready is left, at most TIME (10s, 5min;\n"
                                 "                  default: for ever)\n"
                                 "  --socket PATH   the daemon's socket\n"
                                 "  --help          this text\n";

/* What is resized. */
struct target {
        const char *pool; /* NULL: all */
        int32_t node;     /* HUGEZERO_NODE_ANY: all */
        uint64_t bytes;
};

enum { OPTION_NODE = CTL_OPTION_OWN, OPTION_POOL };

static int set_node(struct target *target, const char *verb, const char *value) {
        if (parse_i32(value, &target->node) < 0 || target->node < 0)
                return ctl_usage_error(verb, "option --node %s: the number of a node is expected", value);
        return CTL_EXIT_OK;
}

/* An empty name would mean all pools, which is more than a script with an empty variable wants. */
static int set_pool(struct target *target, const char *verb, const char *value) {
        if (!*value)
                return ctl_usage_error(verb, "pool '': the name of a pool is expected");
        target->pool = value;
        return CTL_EXIT_OK;
}

static int resize(const struct ctl *ctl, struct hugezero_conn *conn, const char *what, const struct target *target) {
        int r = hugezero_pool_resize(conn, target->pool, target->node, target->bytes);
        return r < 0 ? ctl_daemon_error(ctl, conn, what, r) : CTL_EXIT_OK;
}

int ctl_verb_reload(struct ctl *ctl, int argc, char *argv[]) {
        static const struct option options[] = {CTL_OPTIONS_COMMON, {}};
        int exit_code = ctl_take_options(ctl, argc, argv, options, reload_help);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        exit_code = ctl_connect(ctl, &conn);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        int r = hugezero_daemon_reload(conn);
        if (r < 0)
                return ctl_daemon_error(ctl, conn, "reloading", r);
        const char *start_keys = hugezero_conn_get_error_text(conn);
        if (*start_keys)
                printf("in effect only when hugezerod is started again: %s\n", start_keys);
        return CTL_EXIT_OK;
}

/* Returns an exit code, or -1: go on. The options may stand before, between and behind the two words. */
static int parse_resize(struct ctl *ctl, int argc, char *argv[], struct target *target) {
        static const struct option options[] = {CTL_OPTIONS_COMMON, {"node", required_argument, NULL, OPTION_NODE}, {}};
        const char *words[2] = {};
        size_t n_words = 0;
        for (;;) {
                int option = ctl_getopt(ctl, "resize", argc, argv, options, resize_help);
                if (option == -1 && optind == argc)
                        break;
                if (option == -1 && n_words == 2)
                        return ctl_usage_error("resize", "argument '%s': there is one too many", argv[optind]);
                if (option == -1)
                        words[n_words++] = argv[optind++];
                else if (option != OPTION_NODE)
                        return ctl_getopt_exit(option);
                else if (set_node(target, "resize", optarg) != CTL_EXIT_OK)
                        return CTL_EXIT_USAGE;
        }
        if (n_words < 2)
                return ctl_usage_error("resize", "a pool and a size are expected");
        int r = parse_size(words[1], &target->bytes);
        if (r == -ERANGE)
                return ctl_usage_error("resize", "size '%s': " PARSE_SIZE_TOO_LARGE, words[1]);
        if (r < 0)
                return ctl_usage_error("resize", "size '%s': a size like 2M or 8G is expected", words[1]);
        int exit_code = set_pool(target, "resize", words[0]);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

/* A target beyond what there is is no error, as in Target=; but who mistyped it should not learn it from the log. */
static int say_what_lacks(const struct ctl *ctl, struct hugezero_conn *conn, const struct target *target) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        char wanted[FORMAT_SIZE_BYTES], available[FORMAT_SIZE_BYTES];
        int exit_code = ctl_read_status(ctl, conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        uint32_t n_pools = hugezero_status_get_n_pools(status);
        for (uint32_t idx = 0; idx < n_pools; idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                (void) hugezero_status_get_pool(status, idx, &pool);
                if (strcmp(target->pool, pool.name) != 0 || (target->node != HUGEZERO_NODE_ANY && target->node != pool.node))
                        continue;
                uint64_t bytes = pool.ready_bytes + pool.granted_bytes + pool.returned_bytes + pool.filling_bytes +
                                 pool.kernel_free_bytes;
                if (target->bytes > bytes)
                        printf("node %d has %s for pool %s now, not %s; the rest is taken as pages appear\n", (int) pool.node,
                               format_size(bytes, available), pool.name, format_size(target->bytes, wanted));
        }
        return CTL_EXIT_OK;
}

int ctl_verb_resize(struct ctl *ctl, int argc, char *argv[]) {
        struct target target = {.node = HUGEZERO_NODE_ANY};
        int exit_code = parse_resize(ctl, argc, argv, &target);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        exit_code = ctl_connect(ctl, &conn);
        if (exit_code == CTL_EXIT_OK)
                exit_code = resize(ctl, conn, "resizing", &target);
        return exit_code == CTL_EXIT_OK ? say_what_lacks(ctl, conn, &target) : exit_code;
}

/* What the daemon has of the target's pools beside what clients hold. */
static int read_left(const struct ctl *ctl, struct hugezero_conn *conn, const struct target *target, uint64_t *ret_bytes) {
        _cleanup_status_ struct hugezero_status *status = NULL;
        uint64_t bytes = 0;
        int exit_code = ctl_read_status(ctl, conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        uint32_t n_pools = hugezero_status_get_n_pools(status);
        for (uint32_t idx = 0; idx < n_pools; idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                (void) hugezero_status_get_pool(status, idx, &pool);
                if ((!target->pool || strcmp(target->pool, pool.name) == 0) &&
                    (target->node == HUGEZERO_NODE_ANY || target->node == pool.node))
                        bytes += pool.ready_bytes + pool.returned_bytes + pool.filling_bytes;
        }
        *ret_bytes = bytes;
        return CTL_EXIT_OK;
}

static uint64_t now_ms(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
}

static int wait_drained(const struct ctl *ctl, struct hugezero_conn *conn, const struct target *target, uint64_t timeout_ms) {
        static const struct timespec pause = {.tv_nsec = DRAIN_POLL_MS * 1000000L};
        char left[FORMAT_SIZE_BYTES], time[FORMAT_SIZE_BYTES];
        uint64_t start_ms = now_ms(), bytes;
        for (;;) {
                int exit_code = read_left(ctl, conn, target, &bytes);
                if (exit_code != CTL_EXIT_OK || bytes == 0)
                        return exit_code;
                if (now_ms() - start_ms >= timeout_ms)
                        break;
                (void) nanosleep(&pause, NULL);
        }
        ctl_error("draining: %s: %s are left after %s; the daemon goes on, \"hugezeroctl status\" shows how far it is",
                  ctl->socket_path, format_size(bytes, left), format_duration(timeout_ms, time));
        return CTL_EXIT_FAILED;
}

/* Returns an exit code, or -1: go on. */
static int parse_drain(struct ctl *ctl, int argc, char *argv[], struct target *target, bool *ret_wait, uint64_t *ret_timeout_ms) {
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                {"node", required_argument, NULL, OPTION_NODE},
                {"pool", required_argument, NULL, OPTION_POOL},
                {"wait", optional_argument, NULL, CTL_OPTION_WAIT},
                {},
        };
        int option, exit_code = CTL_EXIT_OK;
        while ((option = ctl_getopt(ctl, "drain", argc, argv, options, drain_help)) != -1) {
                if (option == OPTION_NODE)
                        exit_code = set_node(target, "drain", optarg);
                else if (option == OPTION_POOL)
                        exit_code = set_pool(target, "drain", optarg);
                else if (option == CTL_OPTION_WAIT) {
                        exit_code = ctl_parse_wait("drain", optarg, argv[optind], ret_timeout_ms);
                        *ret_wait = true;
                } else
                        return ctl_getopt_exit(option);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
        }
        exit_code = ctl_no_arguments(argc, argv);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

int ctl_verb_drain(struct ctl *ctl, int argc, char *argv[]) {
        struct target target = {.node = HUGEZERO_NODE_ANY};
        uint64_t timeout_ms = UINT64_MAX;
        bool wait = false;
        int exit_code = parse_drain(ctl, argc, argv, &target, &wait, &timeout_ms);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        exit_code = ctl_connect_within(ctl, timeout_ms, &conn);
        if (exit_code == CTL_EXIT_OK)
                exit_code = resize(ctl, conn, "draining", &target);
        return exit_code == CTL_EXIT_OK && wait ? wait_drained(ctl, conn, &target, timeout_ms) : exit_code;
}
