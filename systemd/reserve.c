/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezero-reserve: the one part that needs root. Grows the kernel's hugepage pools as configured, once, and says what it got.
 */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

#include "cleanup.h"
#include "cmdline.h"
#include "complain.h"
#include "conf-files.h"
#include "config-build.h"
#include "kernelfs.h"
#include "log.h"
#include "parse.h"
#include "reserve-pages.h"
#include "stdfds.h"

#define LOCK_TRIES 100U /* chosen: ten seconds; whoever has it by right sets pages, which takes less */
#define LOCK_RETRY_NS 100000000

static const char *arg_config_path = HUGEZERO_RESERVE_CONFIG_PATH;
static bool arg_check_config;

#define LOG_GOAL(goal) LOG_NUMBER("NODE", (goal)->node), LOG_NUMBER("PAGE_SIZE_BYTES", (goal)->page_size_bytes)

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

static struct topology *read_topology(void) {
        struct topology *topology;
        int r = topology_new("/sys", &topology);

        if (r >= 0)
                return topology;
        if (r == -ENOSYS)
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "this kernel has no hugepages: there are no sizes in /sys/kernel/mm/hugepages; use one with "
                          "CONFIG_HUGETLBFS");
        else
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "reading the machine's nodes and page sizes from /sys failed: %s", strerror(-r));
        return NULL;
}

/* @must_exist: false for the default file and for a drop-in that has gone since it was listed. */
static int read_file(struct reserve_config *config, const char *path, bool must_exist) {
        _cleanup_fclose_ FILE *stream = NULL;
        char error[RESERVE_ERROR_BYTES];
        int r = conf_file_open(path, &stream);

        if (r == -ENOENT && !must_exist)
                return 0;
        if (r < 0) {
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "%s cannot be opened: %s", path,
                          conf_file_fault(r));
                return r;
        }
        r = reserve_config_read(config, stream, path, error);
        if (r < 0)
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "%s; nothing is reserved", error);
        return r;
}

static int read_drop_ins(struct reserve_config *config) {
        _cleanup_free_ char *folder = NULL;
        size_t n_paths;
        char **paths;
        int r;

        if (asprintf(&folder, "%s.d", arg_config_path) < 0) {
                folder = NULL;
                return -ENOMEM;
        }
        r = conf_paths_list(folder, &paths, &n_paths);
        if (r < 0) {
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "the drop-ins in %s cannot be listed: %s", folder,
                          strerror(-r));
                return r;
        }
        for (size_t i = 0; i < n_paths && r == 0; i++)
                r = read_file(config, paths[i], /* must_exist= */ false);
        conf_paths_free(paths, n_paths);
        return r;
}

static int read_config(struct reserve_config *config) {
        int r = read_file(config, arg_config_path, strcmp(arg_config_path, HUGEZERO_RESERVE_CONFIG_PATH) != 0);

        if (r == 0)
                r = read_drop_ins(config);
        reserve_config_sort(config);
        return r;
}

/* What the kernel's command line would have to say for this goal; pages taken at boot find memory that is whole. */
static void say_missing(const struct reserve_goal *goal, const struct reserve_result *result, const char *page) {
        log_warning(
                LOG_ID_RESERVE_SHORT, LOG_FIELDS(LOG_GOAL(goal), LOG_NUMBER("MISSING_PAGES", goal->n_pages - result->n_after)),
                "node %d: %" PRIu64 " of %" PRIu64
                " pages of %s are missing: the node has no more free memory in one piece, also after "
                "compaction. Free some memory and start this again, or have them reserved at boot by the kernel command line: "
                "hugepagesz=%" PRIu64 "K hugepages=%d:%" PRIu64,
                goal->node, goal->n_pages - result->n_after, goal->n_pages, page, goal->page_size_bytes / 1024, goal->node,
                goal->n_pages);
}

static const char *why(int error) {
        switch (error) {
        case -ENOENT:
                return "the node has no such file in /sys/devices/system/node: it has just gone, or the kernel is built without "
                       "CONFIG_NUMA; have the pages reserved at boot by the kernel command line";
        case -EACCES:
        case -EPERM:
                return "only root may; run this as root, or start hugezero-reserve.service";
        case -EROFS:
                return "/sys is read-only here, as in a container; run this on the host";
        default:
                return strerror(-error);
        }
}

/* Returns whether the goal is reached. */
static bool reserve(int sysfs_fd, const struct reserve_goal *goal) {
        char page[FORMAT_SIZE_BYTES];
        struct reserve_result result;
        int r;

        (void) format_size(goal->page_size_bytes, page);
        r = reserve_grow(sysfs_fd, goal, &result);
        if (r < 0) {
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "node %d: setting the number of %s pages failed: %s", goal->node, page, why(r));
                return false;
        }
        log_info(LOG_ID_RESERVED,
                 LOG_FIELDS(LOG_GOAL(goal), LOG_NUMBER("PAGES", result.n_after),
                            LOG_NUMBER("NEW_PAGES", result.n_after - result.n_before)),
                 "node %d: %" PRIu64 " pages of %s, %" PRIu64 " of them new, in %" PRIu64 ".%03" PRIu64 " s%s", goal->node,
                 result.n_after, page, result.n_after - result.n_before, result.duration_us / 1000000,
                 result.duration_us / 1000 % 1000, result.compacted ? ", after compaction" : "");
        if (result.n_after >= goal->n_pages)
                return true;
        say_missing(goal, &result, page);
        return false;
}

/* Anybody may lock the folder, and keep the lock: then both numbers are read again just before they are written, which has to do. */
static void lock(int fd) {
        for (unsigned i = 0; i < LOCK_TRIES; i++) {
                if (flock(fd, LOCK_EX | LOCK_NB) >= 0 || errno != EWOULDBLOCK)
                        return;
                (void) nanosleep(&(struct timespec){.tv_nsec = LOCK_RETRY_NS}, NULL);
        }
        log_warning(LOG_ID_RESERVE_LOCKED, LOG_NO_FIELDS,
                    "another process has locked /sys/kernel/mm/hugepages for %u s; going on without it", LOCK_TRIES / 10);
}

static int reserve_all(const struct reserve_config *config) {
        _cleanup_close_ int sysfs_fd = open("/sys", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* So that two that run at the same time do not undo each other's growth between reading and writing */
        _cleanup_close_ int lock_fd = openat(sysfs_fd, "kernel/mm/hugepages", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        bool complete = true;

        lock(lock_fd);
        if (config->n_goals == 0)
                log_info(LOG_ID_NOTHING_RESERVED, LOG_NO_FIELDS,
                         "nothing is to be reserved: no line of %s and its drop-ins asks for any", arg_config_path);
        for (size_t i = 0; i < config->n_goals; i++)
                if (!reserve(sysfs_fd, &config->goals[i]))
                        complete = false;
        return complete ? 0 : -ENOMEM;
}

int main(int argc, char **argv) {
        _cleanup_(topology_freep) struct topology *topology = NULL;
        struct reserve_config config = {};
        int r;

        open_standard_descriptors();
        log_set_program("hugezero-reserve");
        r = parse_arguments(argc, argv);
        if (r <= 0)
                return r < 0 ? 2 : complain_of_output("hugezero-reserve") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        log_open(LOG_INFO);
        if (kernelfs_sys_fault()) {
                log_error(LOG_ID_RESERVE_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", ENOENT)),
                          "%s: the kernel's hugepages are reserved there; mount it: mount -t sysfs sysfs /sys",
                          kernelfs_sys_fault());
                return EXIT_FAILURE;
        }
        topology = read_topology();
        if (!topology)
                return EXIT_FAILURE;
        config.topology = topology;
        r = read_config(&config);
        if (r == 0 && arg_check_config) {
                printf("The configuration is valid.\n");
                r = complain_of_output("hugezero-reserve");
        } else if (r == 0)
                r = reserve_all(&config);
        reserve_config_done(&config);
        if (r < 0)
                log_linger();
        return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
