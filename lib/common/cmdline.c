/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "cmdline.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>

#include "complain.h"

int cmdline_fail_list(const char *program, const char *verb, const char *format, va_list arguments) {
        char hint[64];

        (void) snprintf(hint, sizeof(hint), "Try: %s %s%s--help", program, verb ? verb : "", verb ? " " : "");
        complain_list(program, hint, format, arguments);
        return -EINVAL;
}

int cmdline_fail(const char *program, const char *verb, const char *format, ...) {
        va_list arguments;

        va_start(arguments, format);
        (void) cmdline_fail_list(program, verb, format, arguments);
        va_end(arguments);
        return -EINVAL;
}

/* getopt says of an unknown long option 0, of an unknown short one its letter, and which one it is if it is known. */
static bool is_known(const struct option *options, int option) {
        for (; options->name; options++)
                if (option != 0 && options->val == option)
                        return true;
        return false;
}

int cmdline_next(const char *program, const char *verb, int argc, char *argv[], const struct option *options) {
        const char *at = argv[optind > 0 ? optind : 1];
        /* '+': see above. ':': tells a missing value from an unknown option. */
        int option = getopt_long(argc, argv, "+:h", options, NULL);

        if (option == ':')
                (void) cmdline_fail(program, verb, "option %s: it needs a value", at);
        else if (option == '?')
                (void) cmdline_fail(program, verb, "option %s: %s", at,
                                    is_known(options, optopt) ? "it takes no value" : "there is no such option");
        else if (option != -1 && optarg && !*optarg)
                (void) cmdline_fail(program, verb, "option %s: its value is empty", at);
        else
                return option;
        return '?';
}

int cmdline_end(const char *program, const char *verb, int argc, char *argv[]) {
        return optind < argc ? cmdline_fail(program, verb, "argument '%s': only options are expected", argv[optind]) : 0;
}
