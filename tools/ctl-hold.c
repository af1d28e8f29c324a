/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl hold: keep a grant until a signal comes, and say where others can open it. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "ctl-acquire.h"
#include "ctl.h"

static const char help[] = "Usage: hugezeroctl hold [OPTIONS] SPEC...\n"
                           "\n"
                           "Acquires everything in one request, prints the path of each extent,\n"
                           "/proc/PID/fd/NUMBER, one a line, and keeps it until SIGINT, SIGTERM or SIGHUP.\n"
                           "\n"
                           "SPEC: bytes=SIZE[,node=NODE[,prefer]][,page-size=SIZE][,pool=NAME]\n"
                           "      [,several]\n"
                           "\n"
                           "Options:\n"
                           "  --wait[=TIME]   wait for memory, at most TIME (10s, 5min; default: for ever)\n"
                           "  --fill          have the kernel zero now what is missing\n"
                           "  --no-reopen     no other user has to open the path\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n";

/* Returns an exit code, or -1: go on. The options may stand before, between and behind the grants. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct ctl_acquire *acquire) {
        enum { OPTION_NO_REOPEN = CTL_OPTION_OWN };
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_MISS,
                {"no-reopen", no_argument, NULL, OPTION_NO_REOPEN},
                {},
        };
        for (;;) {
                int option = ctl_getopt(ctl, "hold", argc, argv, options, help), exit_code = CTL_EXIT_OK;
                if (option == -1 && optind == argc)
                        break;
                if (option == -1)
                        exit_code = ctl_acquire_add(acquire, "hold", argv[optind++]);
                else if (option == OPTION_NO_REOPEN)
                        acquire->is_plain = true;
                else if (option == CTL_OPTION_WAIT || option == CTL_OPTION_FILL)
                        exit_code = ctl_acquire_set_miss(acquire, "hold", option, optarg, argv[optind]);
                else
                        return ctl_getopt_exit(option);
                if (exit_code != CTL_EXIT_OK)
                        return exit_code;
        }
        return acquire->n_specs ? -1 : ctl_usage_error("hold", "no grant is given");
}

/*
 * Blocked before the first line is out: who reads it may send the signal at once. What the caller ignores (nohup, a shell's
 * background jobs) is not waited for: blocked, it would end us all the same.
 */
static void block_signals(sigset_t *ret_signals) {
        static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
        struct sigaction action;

        (void) sigemptyset(ret_signals);
        for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++)
                if (ends[i] == SIGTERM || sigaction(ends[i], NULL, &action) < 0 || action.sa_handler != SIG_IGN)
                        (void) sigaddset(ret_signals, ends[i]);
        (void) sigprocmask(SIG_BLOCK, ret_signals, NULL);
}

int ctl_verb_hold(struct ctl *ctl, int argc, char *argv[]) {
        struct ctl_acquire acquire = {};
        int exit_code = parse_options(ctl, argc, argv, &acquire);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_grant_ struct hugezero_grant *grant = NULL;
        exit_code = ctl_acquire_get(ctl, &acquire, &grant);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;

        sigset_t signals;
        block_signals(&signals);

        uint32_t n_extents = hugezero_grant_get_n_extents(grant);
        for (uint32_t idx = 0; idx < n_extents; idx++)
                printf("/proc/%d/fd/%d\n", (int) getpid(), hugezero_grant_get_fd(grant, idx));
        if (fflush(stdout) == EOF) {
                ctl_error("standard output cannot be written: %s", strerror(errno));
                clearerr(stdout); /* main would say it again, without the cause */
                return CTL_EXIT_FAILED;
        }
        while (sigwaitinfo(&signals, NULL) < 0 && errno == EINTR)
                ;
        return CTL_EXIT_OK;
}
