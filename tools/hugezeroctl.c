/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The command line interface: a table of verbs and main. Each verb is a file of its own, ctl-VERB.c. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "complain.h"
#include "config-build.h"
#include "ctl.h"
#include "stdfds.h"

static const struct {
        const char *name;
        int (*run)(struct ctl *ctl, int argc, char *argv[]);
} verbs[] = {
        {"status", ctl_verb_status}, {"grants", ctl_verb_grants}, {"run", ctl_verb_run},
        {"hold", ctl_verb_hold},     {"resize", ctl_verb_resize}, {"drain", ctl_verb_drain},
        {"reload", ctl_verb_reload}, {"metrics", ctl_verb_metrics}, {"bench", ctl_verb_bench},
        {"doctor", ctl_verb_doctor},
};

static const char help[] = "Usage: hugezeroctl [--socket PATH] VERB [OPTIONS]\n"
                           "\n"
                           "Asks hugezerod for hugepages that are already zero, and about them.\n"
                           "\n"
                           "Verbs:\n"
                           "  status    pools and counters of the daemon\n"
                           "  grants    who asked for what, how long ago, and who has it now\n"
                           "  run       start a program with granted memory as file descriptors\n"
                           "  hold      keep a grant and print its path\n"
                           "  resize    give a pool another target\n"
                           "  drain     give what is ready back to the kernel\n"
                           "  reload    have the daemon read its configuration again\n"
                           "  metrics   the figures as text for a monitoring system\n"
                           "  bench     measure the pool against the kernel\n"
                           "  doctor    what on this host stands in the way, and what to do\n"
                           "\n"
                           "Options:\n"
                           "  --socket PATH   the daemon's socket\n"
                           "                  (else $HUGEZERO_SOCKET, else " HUGEZERO_SOCKET_PATH ")\n"
                           "  --help          this text; after a verb, the verb's options\n"
                           "  --version       the version of this program\n"
                           "\n"
                           "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no daemon.\n";

static int dispatch(struct ctl *ctl, int argc, char *argv[]) {
        enum { OPTION_VERSION = CTL_OPTION_OWN };
        static const struct option options[] = {CTL_OPTIONS_COMMON, {"version", no_argument, NULL, OPTION_VERSION}, {}};
        int option = ctl_getopt(ctl, NULL, argc, argv, options, help);
        if (option == OPTION_VERSION)
                return puts("hugezeroctl " HUGEZERO_VERSION) == EOF ? CTL_EXIT_FAILED : CTL_EXIT_OK;
        if (option != -1)
                return ctl_getopt_exit(option);
        if (optind == argc)
                return ctl_usage_error(NULL, "no verb is given");

        char **verb = argv + optind;
        for (size_t idx = 0; idx < sizeof(verbs) / sizeof(verbs[0]); idx++)
                if (strcmp(*verb, verbs[idx].name) == 0) {
                        argc -= optind;
                        optind = 0; /* glibc: start over, with another argv */
                        return verbs[idx].run(ctl, argc, verb);
                }
        return ctl_usage_error(NULL, "verb '%s': there is no such verb", *verb);
}

int main(int argc, char *argv[]) {
        open_standard_descriptors();
        struct ctl ctl = {.socket_path = hugezero_socket_path()};
        int exit_code = dispatch(&ctl, argc, argv);
        return complain_of_output("hugezeroctl") < 0 && exit_code == CTL_EXIT_OK ? CTL_EXIT_FAILED : exit_code;
}
