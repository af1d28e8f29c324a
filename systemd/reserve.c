/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezero-reserve: the one part that needs root. Grows the kernel's hugepage pools as configured, once, and says what it got.
 */

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <syslog.h>

#include "cleanup.h"
#include "cmdline.h"
#include "complain.h"
#include "config-build.h"
#include "kernelfs.h"
#include "reserve-pages.h"
#include "stdfds.h"

static const char *arg_config_path = HUGEZERO_RESERVE_CONFIG_PATH;
static bool arg_check_config;

/* systemd takes "<N>" at the start of a line for its priority, as sd-daemon(3) says. */
__attribute__((format(printf, 2, 3))) static void say(int priority, const char *fmt, ...) {
        char text[RESERVE_ERROR_BYTES + 64];
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        if (getenv("JOURNAL_STREAM"))
                (void) fprintf(stderr, "<%d>%s\n", priority, text);
        else
                complain("hugezero-reserve", NULL, "%s", text);
}

static void print_help(void) {
        printf("Usage: hugezero-reserve [OPTION...]\n"
               "Grow the kernel's pools of hugepages to what is configured. Never shrink them.\n"
               "\n"
               "  --config FILE   read FILE and FILE.d/*.conf instead of\n"
               "                  %s\n"
               "  --check-config  say whether the configuration is valid, and exit\n"
               "  --help          show this text, and exit\n"
               "  --version       show the version, and exit\n"
               "\n"
               "See hugezero-reserve(8).\n",
               HUGEZERO_RESERVE_CONFIG_PATH);
}

/* Returns 1 to go on, 0 when done, negative when the command line is wrong. */
static int parse_arguments(int argc, char **argv) {
        enum { ARG_CONFIG = 256, ARG_CHECK_CONFIG, ARG_VERSION };
        static const struct option options[] = {
                CMDLINE_OPTION_HELP,
                {"config", required_argument, NULL, ARG_CONFIG},
                {"check-config", no_argument, NULL, ARG_CHECK_CONFIG},
                {"version", no_argument, NULL, ARG_VERSION},
                {},
        };
        int option, r;

        while ((option = cmdline_next("hugezero-reserve", NULL, argc, argv, options)) >= 0)
                switch (option) {
                case ARG_CONFIG:
                        arg_config_path = optarg;
                        break;
                case ARG_CHECK_CONFIG:
                        arg_check_config = true;
                        break;
                case CMDLINE_HELP:
                        print_help();
                        return 0;
                case ARG_VERSION:
                        printf("hugezero-reserve %s\n", HUGEZERO_VERSION);
                        return 0;
                default:
                        return -EINVAL;
                }
        r = cmdline_end("hugezero-reserve", NULL, argc, argv);
        return r < 0 ? r : 1;
}

static int read_nodes_with_memory(int sysfs_fd, uint64_t ret_bits[PARSE_MAX_NODES / 64]) {
        _cleanup_close_ int fd = openat(sysfs_fd, "devices/system/node/has_memory", O_RDONLY | O_CLOEXEC);
        char text[4096];
        ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);

        if (n < 0)
                return negative_errno();
        text[n] = 0;
        text[strcspn(text, "\n")] = 0;
        return parse_node_list(text, ret_bits);
}

/* @must_exist: false for the default file and for a drop-in that has gone since it was listed. */
static int read_file(struct reserve_config *config, const char *path, bool must_exist) {
        _cleanup_fclose_ FILE *stream = fopen(path, "re");
        char error[RESERVE_ERROR_BYTES];
        int r;

        if (!stream) {
                r = negative_errno();
                if (r == -ENOENT && !must_exist)
                        return 0;
                say(LOG_ERR, "%s cannot be opened: %s", path, strerror(-r));
                return r;
        }
        r = reserve_config_read(config, stream, path, error);
        if (r < 0)
                say(LOG_ERR, "%s; nothing is reserved", error);
        return r;
}

static int read_config(struct reserve_config *config) {
        char pattern[4096];
        glob_t drop_ins = {};
        int r;

        r = read_file(config, arg_config_path, strcmp(arg_config_path, HUGEZERO_RESERVE_CONFIG_PATH) != 0);
        (void) snprintf(pattern, sizeof(pattern), "%s.d/*.conf", arg_config_path);
        if (r == 0 && glob(pattern, 0, NULL, &drop_ins) == 0)
                for (size_t i = 0; i < drop_ins.gl_pathc && r == 0; i++)
                        r = read_file(config, drop_ins.gl_pathv[i], /* must_exist= */ false);
        globfree(&drop_ins);
        reserve_config_sort(config);
        return r;
}

/* What the kernel's command line would have to say for this goal; pages taken at boot find memory that is whole. */
static void say_missing(const struct reserve_goal *goal, const struct reserve_result *result, const char *page) {
        say(LOG_WARNING,
            "node %d: %" PRIu64 " of %" PRIu64
            " pages of %s are missing: the node has no more free memory in one piece, also after "
            "compaction. Free some memory and start this again, or have them reserved at boot by the kernel command line: "
            "hugepagesz=%" PRIu64 "K hugepages=%d:%" PRIu64,
            goal->node, goal->n_pages - result->n_after, goal->n_pages, page, goal->page_size_bytes / 1024, goal->node,
            goal->n_pages);
}

/* Returns whether the goal is reached. */
static bool reserve(int sysfs_fd, const struct reserve_goal *goal) {
        char page[FORMAT_SIZE_BYTES];
        struct reserve_result result;
        int r;

        (void) format_size(goal->page_size_bytes, page);
        r = reserve_grow(sysfs_fd, goal, &result);
        if (r == -ENOENT)
                say(LOG_ERR, "node %d: there is no such node, or the kernel has no pages of %s; see /sys/kernel/mm/hugepages",
                    goal->node, page);
        else if (r < 0)
                say(LOG_ERR, "node %d: setting the number of %s pages failed: %s", goal->node, page, strerror(-r));
        if (r < 0)
                return false;
        say(LOG_INFO, "node %d: %" PRIu64 " pages of %s, %" PRIu64 " of them new, in %" PRIu64 ".%03" PRIu64 " s%s", goal->node,
            result.n_after, page, result.n_after - result.n_before, result.duration_us / 1000000,
            result.duration_us / 1000 % 1000, result.compacted ? ", after compaction" : "");
        if (result.n_after >= goal->n_pages)
                return true;
        say_missing(goal, &result, page);
        return false;
}

static int reserve_all(int sysfs_fd, const struct reserve_config *config) {
        /* So that two that run at the same time do not undo each other's growth between reading and writing */
        _cleanup_close_ int lock_fd = openat(sysfs_fd, "kernel/mm/hugepages", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool complete = true;

        if (lock_fd < 0) {
                say(LOG_ERR, "this kernel has no hugepages: /sys/kernel/mm/hugepages cannot be opened: %s", strerror(errno));
                return -ENOSYS;
        }
        (void) flock(lock_fd, LOCK_EX);
        if (config->n_goals == 0)
                say(LOG_INFO, "nothing is to be reserved: no line of %s and its drop-ins asks for any", arg_config_path);
        for (size_t i = 0; i < config->n_goals; i++)
                if (!reserve(sysfs_fd, &config->goals[i]))
                        complete = false;
        return complete ? 0 : -ENOMEM;
}

int main(int argc, char **argv) {
        uint64_t all_nodes[PARSE_MAX_NODES / 64];
        struct reserve_config config = {.all_nodes = all_nodes};
        int r;

        open_standard_descriptors();
        r = parse_arguments(argc, argv);
        if (r <= 0)
                return r < 0 ? 2 : complain_of_output("hugezero-reserve") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        if (kernelfs_sys_fault()) {
                say(LOG_ERR, "%s: the kernel's hugepages are reserved there; mount it: mount -t sysfs sysfs /sys",
                    kernelfs_sys_fault());
                return EXIT_FAILURE;
        }
        _cleanup_close_ int sysfs_fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = sysfs_fd < 0 ? negative_errno() : read_nodes_with_memory(sysfs_fd, all_nodes);
        if (r < 0) {
                say(LOG_ERR, "reading the machine's nodes from /sys/devices/system/node failed: %s", strerror(-r));
                return EXIT_FAILURE;
        }
        r = read_config(&config);
        if (r == 0 && arg_check_config) {
                printf("The configuration is valid.\n");
                r = complain_of_output("hugezero-reserve");
        } else if (r == 0)
                r = reserve_all(sysfs_fd, &config);
        reserve_config_done(&config);
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
