/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl run: become a program that finds its memory in its file descriptors. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "ctl-acquire.h"
#include "ctl-placeholder.h"
#include "ctl.h"

static const char help[] = "Usage: hugezeroctl run --grant SPEC... [OPTIONS] -- COMMAND [ARGUMENT...]\n"
                           "\n"
                           "Acquires all grants in one request, replaces the placeholders in the\n"
                           "arguments and becomes COMMAND, which inherits the file descriptors.\n"
                           "\n"
                           "SPEC: name=NAME,bytes=SIZE[,node=NODE[,prefer]][,page-size=SIZE]\n"
                           "      [,pool=NAME][,several]\n"
                           "\n"
                           "Placeholders:\n"
                           "  {NAME.fd}       the number of the descriptor\n"
                           "  {NAME.path}     /proc/self/fd/NUMBER, which COMMAND can open\n"
                           "  {NAME.bytes}    the granted size\n"
                           "\n"
                           "Options:\n"
                           "  --grant SPEC    what to acquire; up to 16 times\n"
                           "  --wait[=TIME]   wait for memory, at most TIME (10s, 5min; default: for ever)\n"
                           "  --fill          have the kernel zero now what is missing\n"
                           "  --no-reopen     COMMAND uses {NAME.fd} and does not open {NAME.path}\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n"
                           "\n"
                           "Example, a virtual machine with 8 GiB:\n"
                           "  hugezeroctl run --grant name=ram0,bytes=8G -- qemu-system-x86_64 -m 8G \\\n"
                           "    -object memory-backend-file,id=m,size=8G,mem-path={ram0.path},share=on \\\n"
                           "    -machine q35,memory-backend=m\n";

struct run {
        struct ctl_acquire acquire;
        struct ctl_placeholder grants[HUGEZERO_MAX_ITEMS];
        int *fds; /* of all grants, those of one grant next to each other */
};

/* Returns an exit code, or -1: go on. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct run *run) {
        enum { OPTION_GRANT = CTL_OPTION_OWN, OPTION_NO_REOPEN };
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_MISS,
                {"grant", required_argument, NULL, OPTION_GRANT},
                {"no-reopen", no_argument, NULL, OPTION_NO_REOPEN},
                {},
        };
        struct ctl_acquire *acquire = &run->acquire;
        int option, exit_code = CTL_EXIT_OK;
        while ((option = ctl_getopt(ctl, "run", argc, argv, options, help)) != -1) {
                if (option == OPTION_GRANT)
                        exit_code = ctl_acquire_add(acquire, "run", optarg);
                else if (option == OPTION_NO_REOPEN)
                        acquire->is_plain = true;
                else if (option == CTL_OPTION_WAIT || option == CTL_OPTION_FILL)
                        exit_code = ctl_acquire_set_miss(acquire, "run", option, optarg, argv[optind]);
                else
                        return ctl_getopt_exit(option);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
        }
        if (!acquire->n_specs)
                return ctl_usage_error("run", "no --grant is given");
        if (optind == argc)
                return ctl_usage_error("run", "no command is given");
        for (size_t idx = 0; idx < acquire->n_specs; idx++) {
                const char *name = acquire->specs[idx].name;
                if (!*name)
                        return ctl_usage_error("run", "grant %zu: name=NAME is missing; the placeholders need it", idx + 1);
                for (size_t other = 0; other < idx; other++)
                        if (strcmp(name, acquire->specs[other].name) == 0)
                                return ctl_usage_error("run", "grant '%s': two have this name", name);
                run->grants[idx].name = name;
        }
        return -1;
}

static void free_arguments(char **arguments) {
        for (char **at = arguments; at && *at; at++)
                free(*at);
        free(arguments);
}

/* A copy of @arguments with the placeholders replaced, free_arguments(). Without descriptors yet it is a check. */
static int expand_arguments(const struct run *run, char *const arguments[], char ***ret_expanded) {
        size_t n = 0;
        while (arguments[n])
                n++;
        char **expanded = calloc(n + 1, sizeof(*expanded)), error[CTL_SPEC_ERROR_BYTES];
        int r = expanded ? 0 : -ENOMEM;
        for (size_t idx = 0; r >= 0 && idx < n; idx++) {
                r = ctl_placeholder_expand(arguments[idx], run->grants, run->acquire.n_specs, &expanded[idx], error);
                if (r == -EINVAL)
                        (void) ctl_usage_error("run", "argument '%s': %s", arguments[idx], error);
        }
        if (r >= 0) {
                *ret_expanded = expanded;
                return CTL_EXIT_OK;
        }
        free_arguments(expanded);
        if (r == -EINVAL)
                return CTL_EXIT_USAGE;
        ctl_error("replacing placeholders: %s: %s", *arguments, strerror(-r));
        return CTL_EXIT_FAILED;
}

/* The descriptors leave the grant and survive exec. */
static int take_fds(struct run *run, struct hugezero_grant *grant) {
        uint32_t n_extents = hugezero_grant_get_n_extents(grant);
        size_t n_fds = 0;
        run->fds = calloc(n_extents, sizeof(*run->fds));
        if (!run->fds)
                return -ENOMEM;
        for (uint32_t item = 0; item < run->acquire.n_specs; item++) {
                struct ctl_placeholder *placeholder = &run->grants[item];
                placeholder->fds = run->fds + n_fds;
                for (uint32_t idx = 0; idx < n_extents; idx++) {
                        struct hugezero_extent_info info = {.struct_bytes = sizeof(info)};
                        int r = hugezero_grant_get_extent(grant, idx, &info);
                        if (r < 0)
                                return r;
                        if (info.item != item)
                                continue;
                        int fd = hugezero_grant_take_fd(grant, idx);
                        if (fd < 0)
                                return fd;
                        if (fcntl(fd, F_SETFD, 0) < 0)
                                return negative_errno();
                        run->fds[n_fds++] = fd;
                        placeholder->n_fds++;
                        placeholder->bytes += info.bytes;
                }
        }
        return 0;
}

/* Comes back when it has failed only. */
static int become(struct run *run, struct hugezero_grant *grant, char *const command[]) {
        char **arguments;
        int r = take_fds(run, grant);
        if (r < 0) {
                ctl_error("taking the descriptors: %s: %s", *command, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        int exit_code = expand_arguments(run, command, &arguments);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        (void) execvp(*arguments, arguments);
        ctl_error("starting: %s: %s", *arguments, strerror(errno));
        free_arguments(arguments);
        return CTL_EXIT_FAILED;
}

int ctl_verb_run(struct ctl *ctl, int argc, char *argv[]) {
        struct run run = {};
        char **checked;
        int exit_code = parse_options(ctl, argc, argv, &run);
        if (exit_code >= 0)
                return exit_code;
        exit_code = expand_arguments(&run, argv + optind, &checked);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        free_arguments(checked);

        _cleanup_grant_ struct hugezero_grant *grant = NULL;
        exit_code = ctl_acquire_get(ctl, &run.acquire, &grant);
        if (exit_code == CTL_EXIT_OK)
                exit_code = become(&run, grant, argv + optind);
        free(run.fds);
        return exit_code;
}
