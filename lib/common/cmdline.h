/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Command lines, by getopt_long(3): options before words, and complaints that say where help is. */
#pragma once

#include <getopt.h>
#include <stdarg.h>

#define CMDLINE_HELP 'h' /* --help and -h */
#define CMDLINE_OPTION_HELP                             \
        {                                               \
                "help", no_argument, NULL, CMDLINE_HELP \
        }

/*
 * cmdline_next - the next option; -1 behind the last one, '?' after a complaint
 * @verb: of the program's verbs the one whose options these are, for complaints; NULL: it has none, or it comes later
 * It ends at the first word that is no option: behind it somebody else's command line may begin. No value may be empty.
 */
int cmdline_next(const char *program, const char *verb, int argc, char *argv[], const struct option *options);
/* Behind the options, where no words are expected. 0, or -EINVAL after a complaint. */
int cmdline_end(const char *program, const char *verb, int argc, char *argv[]);

/* complain(), and where help is. Returns -EINVAL. */
int cmdline_fail(const char *program, const char *verb, const char *format, ...) __attribute__((format(printf, 3, 4)));
int cmdline_fail_list(const char *program, const char *verb, const char *format, va_list arguments)
        __attribute__((format(printf, 3, 0)));
