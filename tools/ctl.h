/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the verbs of hugezeroctl share: exit codes, error lines, tables, JSON, and the way to the daemon. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "cmdline.h"
#include "hugezero.h"

/* The contract of hugezeroctl(1). Functions here that return "an exit code" have already told the user why. */
enum ctl_exit {
        CTL_EXIT_OK = 0,
        CTL_EXIT_FAILED = 1,    /* refused by the daemon, or any other failure */
        CTL_EXIT_USAGE = 2,     /* a verb or an option that is not there */
        CTL_EXIT_NO_DAEMON = 3, /* nobody answers at the socket */
};

struct ctl {
        const char *socket_path; /* --socket, never NULL */
        bool json;               /* --json */
};

/* Each gets the whole command line from its own name on, and may be asked for --help. Returns an exit code. */
int ctl_verb_bench(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_doctor(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_drain(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_grants(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_hold(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_metrics(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_reload(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_resize(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_run(struct ctl *ctl, int argc, char *argv[]);
int ctl_verb_status(struct ctl *ctl, int argc, char *argv[]);

/* Options that every verb has, and those that several have; a verb's own begin at CTL_OPTION_OWN. */
enum { CTL_OPTION_HELP = CMDLINE_HELP, CTL_OPTION_SOCKET = 256, CTL_OPTION_JSON, CTL_OPTION_WAIT, CTL_OPTION_FILL, CTL_OPTION_OWN };
#define CTL_OPTIONS_COMMON                                                                                                     \
        CMDLINE_OPTION_HELP, {                                                                        \
                "socket", required_argument, NULL, CTL_OPTION_SOCKET                                                           \
        }
#define CTL_OPTIONS_JSON                                                                                                       \
        { "json", no_argument, NULL, CTL_OPTION_JSON }
#define CTL_OPTIONS_MISS                                                                                                       \
        {"wait", optional_argument, NULL, CTL_OPTION_WAIT}, {                                                                  \
                "fill", no_argument, NULL, CTL_OPTION_FILL                                                                     \
        }

/*
 * ctl_getopt - the next option that is the verb's own business; -1 at the end
 * @verb: for complaints; NULL for what stands before the verb
 * --socket and --json are taken here. CTL_OPTION_HELP (the help was printed) and '?' (the complaint was) end the verb:
 * its exit code is then ctl_getopt_exit().
 */
int ctl_getopt(struct ctl *ctl, const char *verb, int argc, char *argv[], const struct option *options, const char *help);
int ctl_getopt_exit(int option);
/*
 * --wait[=TIME], without TIME UINT64_MAX. @next: the word behind it, which somebody may have meant to be the time. Returns an
 * exit code.
 */
int ctl_parse_wait(const char *verb, const char *value, const char *next, uint64_t *ret_ms);
/* For verbs that take none: CTL_EXIT_OK, or a complaint and CTL_EXIT_USAGE. After the options. */
int ctl_no_arguments(int argc, char *argv[]);

/* For verbs without options of their own and without words. Returns an exit code, or -1: go on. */
int ctl_take_options(struct ctl *ctl, int argc, char *argv[], const struct option *options, const char *help);

/*
 * Processes that are forked from here on fail alike and at the same time: only the first complaint of them and of this one is
 * made, until the end of it.
 */
void ctl_begin_shared_complaint(void);
void ctl_end_shared_complaint(void);
/* Whether this process may make it; it has it then. Safe in signal handlers. */
bool ctl_take_complaint(void);

/* "hugezeroctl: " and the text, which reads "what failed: on what: why", and a newline; on stderr. */
void ctl_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and a pointer to the help of @verb (NULL: the global one). Returns CTL_EXIT_USAGE. */
int ctl_usage_error(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Which item of a request a refusal is about, counted from 0; -1: none. @text then begins with the reason. */
int ctl_item_of_refusal(const char **text);
/* Says why a call to the daemon failed, with the daemon's own reason where it gave one. Returns the exit code for it. */
int ctl_daemon_error(const struct ctl *ctl, const struct hugezero_conn *conn, const char *what, int error);

/* They return an exit code and set @ret_... when it is CTL_EXIT_OK. */
int ctl_connect(const struct ctl *ctl, struct hugezero_conn **ret_conn);
/* @timeout_ms: what the user wants to wait; a second at least, as that says nothing about a daemon, and 10 s at most. */
int ctl_connect_within(const struct ctl *ctl, uint64_t timeout_ms, struct hugezero_conn **ret_conn);
int ctl_read_status(const struct ctl *ctl, struct hugezero_conn *conn, struct hugezero_status **ret_status);
/* One after the other. */
int ctl_connect_and_read(const struct ctl *ctl, struct hugezero_conn **ret_conn, struct hugezero_status **ret_status);
/* The daemon's own figures and those of its pools. *ret_pools is freed by the caller. Likewise. */
int ctl_get_figures(const struct ctl *ctl, const struct hugezero_status *status, struct hugezero_daemon_info *ret_daemon,
                    struct hugezero_pool_info **ret_pools, size_t *ret_n_pools);

/* Who the kernel says made the listening socket: the daemon, or the service manager that activated it. */
int ctl_peer(const struct hugezero_conn *conn, pid_t *ret_pid, uid_t *ret_uid);

/* "3d 4h", "1min 5s", "12s": the two largest units; for times that somebody reads at a glance. */
#define CTL_AGE_BYTES 48
const char *ctl_format_age(uint64_t ms, char buffer[CTL_AGE_BYTES]);

/* "1 of 2 threads"; @n_worth 0: "up to 2 threads". */
#define CTL_THREADS_BYTES 48
const char *ctl_format_threads(uint32_t n_worth, uint32_t n_workers, char buffer[CTL_THREADS_BYTES]);

/* "avx2-nt (99.0 GB/s, leaves 98 % of a warm cache)"; of each pool, with its name, where those of the node differ. For free(). */
char *ctl_new_methods_text(const struct hugezero_status *status, int32_t node);

/* Prints and frees @json (NULL: out of memory). Returns an exit code. */
int ctl_print_json(json_t *json);

struct ctl_column {
        const char *name;
        bool is_right; /* numbers and sizes are aligned to the right */
};
struct libscols_table;
struct libscols_table *ctl_table_new(const struct ctl_column *columns, size_t n_columns);
/* One row; @cells are copied, NULL prints nothing. Returns 0 or a negative errno. */
int ctl_table_add(struct libscols_table *table, const char *const *cells, size_t n_cells);
/* One row of words and then numbers. Returns likewise. */
struct ctl_figure {
        double value; /* NAN: not known */
        int decimals;
};
int ctl_table_add_figures(struct libscols_table *table, const char *const *words, size_t n_words,
                          const struct ctl_figure *figures, size_t n_figures);
/* Prints and frees. Returns an exit code. */
int ctl_table_print(struct libscols_table *table);

static inline void ctl_conn_close_p(struct hugezero_conn **conn) {
        hugezero_conn_close(*conn);
}

static inline void ctl_status_free_p(struct hugezero_status **status) {
        hugezero_status_free(*status);
}

static inline void ctl_grant_free_p(struct hugezero_grant **grant) {
        hugezero_grant_free(*grant);
}

static inline void ctl_request_free_p(struct hugezero_request **request) {
        hugezero_request_free(*request);
}

static inline void ctl_json_decref_p(json_t **json) {
        json_decref(*json);
}

#define _cleanup_conn_ _cleanup_(ctl_conn_close_p)
#define _cleanup_status_ _cleanup_(ctl_status_free_p)
#define _cleanup_grant_ _cleanup_(ctl_grant_free_p)
#define _cleanup_request_ _cleanup_(ctl_request_free_p)
#define _cleanup_json_ _cleanup_(ctl_json_decref_p)
