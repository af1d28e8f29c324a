/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezerod: options, order of start-up, exit code. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "access.h"
#include "cleanup.h"
#include "cmdline.h"
#include "complain.h"
#include "config-build.h"
#include "config.h"
#include "files.h"
#include "kernelfs.h"
#include "log.h"
#include "manager.h"
#include "socket-unit.h"
#include "stdfds.h"
#include "topology.h"
#include "warm.h"

static const char *arg_config_path;
static const char *arg_socket_path;
static const char *arg_pool_specs[CONFIG_MAX_POOLS];
static size_t arg_n_pool_specs;
static bool arg_check_config;

static void print_help(void) {
        printf("Usage: hugezerod [OPTION...]\n"
               "Keep hugetlb pages zeroed, allocated and placed, and hand them to clients.\n"
               "\n"
               "  --config FILE     read FILE instead of %s\n"
               "  --socket PATH     listen on PATH, an absolute path\n"
               "  --pool SPEC       a pool, PAGE:EXTENT:TARGET[@NODES], for example 2M:auto:4G\n"
               "                    or 2M:1G:50%%@0,1; TARGET is per node. Replaces all pools\n"
               "                    of the configuration; may be given several times\n"
               "  --check-config    say whether the configuration is valid, and exit\n"
               "  --help, -h        show this text, and exit\n"
               "  --version         show the version, and exit\n"
               "\n"
               "See hugezerod(8) and hugezerod.conf(5).\n",
               HUGEZERO_CONFIG_PATH);
}

/* Returns 1 to go on, 0 when done, negative when the command line is wrong. */
static int parse_arguments(int argc, char **argv) {
        enum { ARG_CONFIG = 256, ARG_SOCKET, ARG_POOL, ARG_CHECK_CONFIG, ARG_VERSION };
        static const struct option options[] = {
                CMDLINE_OPTION_HELP,
                {"config", required_argument, NULL, ARG_CONFIG},
                {"socket", required_argument, NULL, ARG_SOCKET},
                {"pool", required_argument, NULL, ARG_POOL},
                {"check-config", no_argument, NULL, ARG_CHECK_CONFIG},
                {"version", no_argument, NULL, ARG_VERSION},
                {},
        };
        int option, r;

        while ((option = cmdline_next("hugezerod", NULL, argc, argv, options)) >= 0)
                switch (option) {
                case ARG_CONFIG:
                        arg_config_path = optarg;
                        break;
                case ARG_SOCKET:
                        arg_socket_path = optarg;
                        break;
                case ARG_POOL:
                        if (arg_n_pool_specs == CONFIG_MAX_POOLS)
                                return cmdline_fail("hugezerod", NULL, "option --pool %s: at most %d pools", optarg,
                                                    CONFIG_MAX_POOLS);
                        arg_pool_specs[arg_n_pool_specs++] = optarg;
                        break;
                case ARG_CHECK_CONFIG:
                        arg_check_config = true;
                        break;
                case CMDLINE_HELP:
                        print_help();
                        return 0;
                case ARG_VERSION:
                        printf("hugezerod %s\n", HUGEZERO_VERSION);
                        return 0;
                default:
                        return -EINVAL;
                }
        r = cmdline_end("hugezerod", NULL, argc, argv);
        return r < 0 ? r : 1;
}

/* Clients' data must not reach a core dump: dumps are switched off, and shared hugetlb mappings kept out for those who switch them on again. */
static void protect_memory(void) {
#ifndef __SANITIZE_ADDRESS__ /* the leak checker attaches to its own process */
        (void) prctl(PR_SET_DUMPABLE, 0);
#endif
        _cleanup_close_ int fd = open("/proc/self/coredump_filter", O_WRONLY | O_CLOEXEC);

        if (fd >= 0)
                (void) !write(fd, "0x11", 4); /* anonymous private memory and ELF headers only; core(5) */
}

/* Every extent costs a descriptor, every grant on its way another one. */
static int check_file_limit(const struct topology *topology) {
        uint64_t limit = files_raise_limit(), least = files_least(topology_n_nodes(topology));

        if (limit >= least)
                return 0;
        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", EMFILE)),
                  "hugezerod may open %" PRIu64 " files, and needs %" PRIu64 " at least to serve anybody on this machine, better "
                  "65536: raise LimitNOFILE= of its unit, or \"ulimit -n\" where it is started by hand", limit, least);
        return -EMFILE;
}

/* Reads what machine this is, or says why that is not possible. */
static int look_at_machine(struct topology **ret_topology) {
        const char *proc = kernelfs_proc_fault(), *sys = kernelfs_sys_fault();
        int r = proc || sys ? -ENOENT : topology_new("/sys", ret_topology);

        if (proc)
                log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "%s: hugezerod opens its memory by /proc/self/fd and reads there who its clients are; mount it: "
                          "mount -t proc proc /proc", proc);
        if (sys)
                log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "%s: hugezerod reads there which nodes and hugepages the machine has; mount it: "
                          "mount -t sysfs sysfs /sys", sys);
        if (r < 0 && !proc && !sys)
                log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)),
                          "reading the machine's nodes and page sizes from /sys failed: %s",
                          r == -ENOSYS ? "this kernel has no hugepages, /sys/kernel/mm/hugepages is missing or empty; use one with "
                                         "CONFIG_HUGETLBFS" : strerror(-r));
        return r;
}

/* Checked also for --check-config: the service manager calls it in the unit's own namespaces. */
static int check_users(void) {
        if (access_sees_all_users("/proc/self/uid_map") && access_sees_all_users("/proc/self/gid_map"))
                return 0;
        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", EPERM)),
                  "hugezerod does not run in a user namespace that lacks users or groups: all that are missing would be one to "
                  "it, and get each other's memory. Run it outside, or without PrivateUsers=");
        return -EPERM;
}

static int run(struct topology *topology, const struct config_args *args, struct config *config) {
        static struct inherited inherited; /* 16 KiB */
        char passed_path[INHERITED_PATH_BYTES];
        struct manager *manager;
        int r;

        r = check_file_limit(topology);
        if (r < 0)
                return r;
        protect_memory();
        r = inherited_take(&inherited);
        config->socket_is_passed = inherited_socket_path(&inherited, passed_path);
        if (config->socket_is_passed) {
                if (r >= 0 && sd_is_socket(inherited.listen_fd, AF_UNIX, SOCK_SEQPACKET, 1) > 0) /* else it is not served at all */
                        socket_unit_compare(passed_path, config);
                (void) memcpy(config->socket_path, passed_path, sizeof(passed_path));
        }
        if (config->socket_gid == (gid_t) -1)
                config->socket_gid = inherited_socket_gid(&inherited);
        if (r >= 0)
                r = manager_new(topology, args, config, &inherited, &manager);
        inherited_done(&inherited);
        if (r < 0)
                return r;
        r = manager_run(manager);
        manager_free(manager);
        (void) sd_notify(/* unset_environment= */ 0, "STATUS="); /* or what it did last would be shown for ever */
        return r;
}

static int fail(void) {
        log_linger();
        return EXIT_FAILURE;
}

int main(int argc, char **argv) {
        struct config_args args = {.pool_specs = arg_pool_specs};
        char error[CONFIG_TEXT_BYTES];
        struct topology *topology;
        struct config *config;
        int r;

        open_standard_descriptors();
        r = parse_arguments(argc, argv);
        if (r <= 0)
                return r < 0 ? 2 : complain_of_output("hugezerod") < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
        log_open(LOG_INFO);
        r = look_at_machine(&topology);
        if (r < 0)
                return fail();
        args.config_path = arg_config_path;
        args.socket_path = arg_socket_path;
        args.n_pool_specs = arg_n_pool_specs;
        config = malloc(sizeof(*config));
        r = config ? config_load(&args, topology, config, error) : -ENOMEM;
        if (r >= 0)
                r = access_check_group(config, error);
        if (r < 0)
                log_error(LOG_ID_CONFIG_INVALID, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "%s", r == -ENOMEM ? "out of memory" : error);
        else
                r = check_users();
        if (r >= 0 && arg_check_config) {
                printf("The configuration is valid.\n");
                r = complain_of_output("hugezerod");
        } else if (r >= 0) {
                log_open(config->log_level);
                r = run(topology, &args, config);
        }
        free(config);
        topology_free(topology);
        return r < 0 ? fail() : EXIT_SUCCESS;
}
