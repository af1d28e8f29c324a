/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl metrics: the figures as text, for node_exporter's textfile collector and for people with grep. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "ctl.h"
#include "metrics.h"

static const char help[] = "Usage: hugezeroctl metrics [OPTIONS]\n"
                           "\n"
                           "Prints the daemon's figures in the text format of Prometheus.\n"
                           "\n"
                           "Options:\n"
                           "  --output FILE   write them to FILE, which is replaced in one step\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n";

static int parse_options(struct ctl *ctl, int argc, char *argv[], const char **ret_path) {
        enum { OPTION_OUTPUT = CTL_OPTION_OWN };
        static const struct option options[] = {CTL_OPTIONS_COMMON, {"output", required_argument, NULL, OPTION_OUTPUT}, {}};
        int option;
        while ((option = ctl_getopt(ctl, argv[0], argc, argv, options, help)) == OPTION_OUTPUT)
                *ret_path = optarg;
        if (option != -1)
                return ctl_getopt_exit(option);
        int exit_code = ctl_no_arguments(argc, argv);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

static int write_all(int fd, const struct hugezero_daemon_info *daemon, const struct hugezero_pool_info *pools,
                     size_t n_pools) {
        /* For a reader who is somebody else; nothing in it is secret. */
        int r = fchmod(fd, 0644) < 0 ? negative_errno() : 0;
        FILE *stream = r >= 0 ? fdopen(fd, "w") : NULL;
        if (!stream) {
                r = r < 0 ? r : negative_errno();
                (void) safe_close(fd);
                return r;
        }
        metrics_write(stream, METRICS_PROMETHEUS, daemon, pools, n_pools);
        bool failed = ferror(stream);
        return fclose(stream) == EOF || failed ? negative_errno() : 0;
}

/* Beside the file, or it could not be put in its place; not named as one that a collector reads. */
static int replace(const char *path, const struct hugezero_daemon_info *daemon, const struct hugezero_pool_info *pools,
                   size_t n_pools) {
        _cleanup_free_ char *temporary = NULL;
        struct stat st;
        if (lstat(path, &st) >= 0 && !S_ISREG(st.st_mode))
                return -EEXIST;
        if (asprintf(&temporary, "%s.XXXXXX", path) < 0) {
                temporary = NULL;
                return -ENOMEM;
        }
        int fd = mkostemp(temporary, O_CLOEXEC);
        if (fd < 0)
                return negative_errno();
        int r = write_all(fd, daemon, pools, n_pools);
        if (r >= 0 && rename(temporary, path) < 0)
                r = negative_errno();
        if (r < 0)
                (void) unlink(temporary);
        return r;
}

int ctl_verb_metrics(struct ctl *ctl, int argc, char *argv[]) {
        const char *path = NULL;
        int exit_code = parse_options(ctl, argc, argv, &path);
        if (exit_code >= 0)
                return exit_code;

        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        _cleanup_status_ struct hugezero_status *status = NULL;
        _cleanup_free_ struct hugezero_pool_info *pools = NULL;
        struct hugezero_daemon_info daemon;
        size_t n_pools;
        exit_code = ctl_connect_and_read(ctl, &conn, &status);
        if (exit_code == CTL_EXIT_OK)
                exit_code = ctl_get_figures(ctl, status, &daemon, &pools, &n_pools);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        if (!path) {
                metrics_write(stdout, METRICS_PROMETHEUS, &daemon, pools, n_pools);
                return CTL_EXIT_OK;
        }
        int r = replace(path, &daemon, pools, n_pools);
        if (r >= 0)
                return CTL_EXIT_OK;
        ctl_error("writing the figures: %s: %s", path,
                  r == -EEXIST ? "something that is no regular file is there" : strerror(-r));
        return CTL_EXIT_FAILED;
}
