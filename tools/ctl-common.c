/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the verbs of hugezeroctl share. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <libsmartcols/libsmartcols.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "cleanup.h"
#include "cmdline.h"
#include "complain.h"
#include "ctl.h"
#include "parse.h"

#define SOCKET_PATH_MAX_BYTES (sizeof(((struct sockaddr_un *) NULL)->sun_path) - 1) /* kernel limit */
#define CONNECT_MIN_MS 1000  /* chosen: a healthy daemon on a busy machine answers before */
#define CONNECT_MAX_MS 10000 /* as hugezero_conn_open() */
#define MAX_CELLS 16 /* chosen: of a row with figures; the widest table has eight columns */

static _Atomic bool *was_complained; /* shared memory; NULL: each complaint is made */

void ctl_begin_shared_complaint(void) {
        void *addr = mmap(NULL, sizeof(*was_complained), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        was_complained = addr == MAP_FAILED ? NULL : addr; /* without it there are only too many of them */
}

void ctl_end_shared_complaint(void) {
        if (was_complained)
                (void) munmap((void *) was_complained, sizeof(*was_complained));
        was_complained = NULL;
}

bool ctl_take_complaint(void) {
        return !was_complained || !atomic_exchange(was_complained, true);
}

void ctl_error(const char *format, ...) {
        va_list arguments;
        if (!ctl_take_complaint())
                return;
        (void) fflush(stdout); /* keeps the order where both go to one terminal */
        va_start(arguments, format);
        complain_list("hugezeroctl", NULL, format, arguments);
        va_end(arguments);
}

int ctl_usage_error(const char *verb, const char *format, ...) {
        va_list arguments;
        (void) fflush(stdout);
        va_start(arguments, format);
        (void) cmdline_fail_list("hugezeroctl", verb, format, arguments);
        va_end(arguments);
        return CTL_EXIT_USAGE;
}

int ctl_getopt(struct ctl *ctl, const char *verb, int argc, char *argv[], const struct option *options, const char *help) {
        for (;;) {
                int option = cmdline_next("hugezeroctl", verb, argc, argv, options);
                switch (option) {
                case CTL_OPTION_HELP:
                        (void) fputs(help, stdout);
                        return CTL_OPTION_HELP;
                case CTL_OPTION_SOCKET:
                        if (strlen(optarg) > SOCKET_PATH_MAX_BYTES) {
                                (void) ctl_usage_error(verb, "option --socket=%s: a path of at most %zu bytes is expected", optarg,
                                                       SOCKET_PATH_MAX_BYTES);
                                return '?';
                        }
                        ctl->socket_path = optarg;
                        break;
                case CTL_OPTION_JSON:
                        ctl->json = true;
                        break;
                default:
                        return option;
                }
        }
}

int ctl_getopt_exit(int option) {
        return option == CTL_OPTION_HELP ? CTL_EXIT_OK : CTL_EXIT_USAGE;
}

int ctl_no_arguments(int argc, char *argv[]) {
        return cmdline_end("hugezeroctl", argv[0], argc, argv) < 0 ? CTL_EXIT_USAGE : CTL_EXIT_OK;
}

int ctl_take_options(struct ctl *ctl, int argc, char *argv[], const struct option *options, const char *help) {
        int option = ctl_getopt(ctl, argv[0], argc, argv, options, help);
        if (option != -1)
                return ctl_getopt_exit(option);
        int exit_code = ctl_no_arguments(argc, argv);
        return exit_code == CTL_EXIT_OK ? -1 : exit_code;
}

/* ESHUTDOWN is the last word of a daemon that stops. */
static int exit_code_of(int error) {
        return error == -ECONNRESET || error == -ESHUTDOWN ? CTL_EXIT_NO_DAEMON : CTL_EXIT_FAILED;
}

int ctl_connect(const struct ctl *ctl, struct hugezero_conn **ret_conn) {
        return ctl_connect_within(ctl, UINT64_MAX, ret_conn);
}

int ctl_connect_within(const struct ctl *ctl, uint64_t timeout_ms, struct hugezero_conn **ret_conn) {
        int32_t clamped_ms = timeout_ms < CONNECT_MIN_MS ? CONNECT_MIN_MS :
                             timeout_ms > CONNECT_MAX_MS ? CONNECT_MAX_MS :
                                                           (int32_t) timeout_ms;
        int r = hugezero_conn_open_within(ctl->socket_path, clamped_ms, ret_conn);
        if (r >= 0)
                return CTL_EXIT_OK;
        if (r == -ENOENT || r == -ECONNREFUSED)
                ctl_error("connecting: %s: no daemon: %s; start hugezerod, or name its socket with --socket", ctl->socket_path,
                          strerror(-r));
        else if (r == -ETIMEDOUT) /* the service manager may listen for a daemon that cannot start */
                ctl_error("%s; \"hugezeroctl doctor\" looks for the cause, and the daemon's log may tell it: journalctl -u hugezerod",
                          hugezero_conn_get_error_text(NULL));
        else /* this text has all there is to say */
                ctl_error("%s", hugezero_conn_get_error_text(NULL));
        return r == -ENOENT || r == -ECONNREFUSED || r == -ETIMEDOUT ? CTL_EXIT_NO_DAEMON : exit_code_of(r);
}

int ctl_item_of_refusal(const char **text) {
        unsigned item;
        int n_read = 0;
        if (sscanf(*text, "item %u: %n", &item, &n_read) != 1 || !n_read || item >= HUGEZERO_MAX_ITEMS)
                return -1;
        *text += n_read;
        return (int) item;
}

int ctl_daemon_error(const struct ctl *ctl, const struct hugezero_conn *conn, const char *what, int error) {
        const char *text = hugezero_conn_get_error_text(conn);
        (void) ctl_item_of_refusal(&text); /* there is one only, or @what names it */
        ctl_error("%s: %s: %s", what, ctl->socket_path, *text ? text : strerror(-error));
        return exit_code_of(error);
}

int ctl_read_status(const struct ctl *ctl, struct hugezero_conn *conn, struct hugezero_status **ret_status) {
        int r = hugezero_status_read(conn, ret_status);
        return r < 0 ? ctl_daemon_error(ctl, conn, "reading the status", r) : CTL_EXIT_OK;
}

int ctl_connect_and_read(const struct ctl *ctl, struct hugezero_conn **ret_conn, struct hugezero_status **ret_status) {
        int exit_code = ctl_connect(ctl, ret_conn);
        return exit_code == CTL_EXIT_OK ? ctl_read_status(ctl, *ret_conn, ret_status) : exit_code;
}

int ctl_parse_wait(const char *verb, const char *value, const char *next, uint64_t *ret_ms) {
        uint64_t ms = UINT64_MAX;
        int r = value ? parse_duration(value, &ms) : 0;
        if (r == -ERANGE)
                return ctl_usage_error(verb, "option --wait=%s: it is too long; use infinity", value);
        if (r < 0)
                return ctl_usage_error(verb,
                                       "option --wait=%s: a time is expected, a number with ms, s, min or h as in --wait=10s "
                                       "(without one: seconds), or infinity",
                                       value);
        if (!value && next && parse_duration(next, &ms) >= 0)
                return ctl_usage_error(verb, "option --wait: '%s' does not belong to it; a time is written behind '=': --wait=10s",
                                       next);
        *ret_ms = ms;
        return CTL_EXIT_OK;
}

int ctl_get_figures(const struct ctl *ctl, const struct hugezero_status *status, struct hugezero_daemon_info *ret_daemon,
                    struct hugezero_pool_info **ret_pools, size_t *ret_n_pools) {
        size_t n_pools = hugezero_status_get_n_pools(status);
        _cleanup_free_ struct hugezero_pool_info *pools = calloc(n_pools + 1, sizeof(*pools));
        *ret_daemon = (struct hugezero_daemon_info){.struct_bytes = sizeof(*ret_daemon)};
        int r = pools ? hugezero_status_get_daemon(status, ret_daemon) : -ENOMEM;
        for (size_t idx = 0; r >= 0 && idx < n_pools; idx++) {
                pools[idx].struct_bytes = sizeof(*pools);
                r = hugezero_status_get_pool(status, (uint32_t) idx, &pools[idx]);
        }
        if (r < 0) {
                ctl_error("reading the status: %s: %s", ctl->socket_path, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        *ret_n_pools = n_pools;
        *ret_pools = take_ptr(pools);
        return CTL_EXIT_OK;
}

int ctl_peer(const struct hugezero_conn *conn, pid_t *ret_pid, uid_t *ret_uid) {
        struct ucred peer;
        socklen_t n_bytes = sizeof(peer);
        if (getsockopt(hugezero_conn_get_fd(conn), SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) < 0)
                return negative_errno();
        *ret_pid = peer.pid;
        *ret_uid = peer.uid;
        return 0;
}

const char *ctl_format_threads(uint32_t n_worth, uint32_t n_workers, char buffer[CTL_THREADS_BYTES]) {
        if (n_workers == 1)
                (void) snprintf(buffer, CTL_THREADS_BYTES, "1 thread");
        else if (n_worth == 0)
                (void) snprintf(buffer, CTL_THREADS_BYTES, "up to %" PRIu32 " threads", n_workers);
        else
                (void) snprintf(buffer, CTL_THREADS_BYTES, "%" PRIu32 " of %" PRIu32 " threads", n_worth, n_workers);
        return buffer;
}

/* "memset (99.0 GB/s, leaves 98 % of a warm cache)"; @name: of the pool, or NULL. */
static void print_method(FILE *file, const struct hugezero_pool_info *pool, const char *name) {
        const char *separator = " (";
        fputs(*pool->clear_method ? pool->clear_method : "not measured yet", file);
        if (pool->clear_speed > 0) {
                fprintf(file, "%s%u.%u GB/s", separator, pool->clear_speed / 10U, pool->clear_speed % 10U);
                separator = ", ";
        }
        if (pool->clear_survival_percent != UINT16_MAX) {
                fprintf(file, "%sleaves %u %% of a warm cache", separator, (unsigned) pool->clear_survival_percent);
                separator = ", ";
        }
        if (name) {
                fprintf(file, "%s%s", separator, name);
                separator = ", ";
        }
        if (separator[0] == ',')
                fputc(')', file);
}

/* Whether all pools of the node are cleared alike. */
static bool is_one_method(const struct hugezero_status *status, int32_t node) {
        struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)}, first = {};
        bool is_first = true;
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                if (hugezero_status_get_pool(status, idx, &pool) < 0 || pool.node != node)
                        continue;
                if (is_first)
                        first = pool;
                is_first = false;
                if (strcmp(first.clear_method, pool.clear_method) != 0 || first.clear_speed != pool.clear_speed)
                        return false;
        }
        return true;
}

char *ctl_new_methods_text(const struct hugezero_status *status, int32_t node) {
        struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
        bool is_one = is_one_method(status, node), is_first = true;
        char *text = NULL;
        size_t n_bytes;
        FILE *file = open_memstream(&text, &n_bytes);
        if (!file)
                return NULL;
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                if (hugezero_status_get_pool(status, idx, &pool) < 0 || pool.node != node)
                        continue;
                if (is_one && !*pool.clear_method)
                        fputs("a method that is ", file);
                fputs(is_first ? "" : ", ", file);
                print_method(file, &pool, is_one ? NULL : pool.name);
                is_first = false;
                if (is_one)
                        break;
        }
        return fclose(file) == 0 ? text : NULL;
}

const char *ctl_format_age(uint64_t ms, char buffer[CTL_AGE_BYTES]) {
        static const struct {
                uint64_t seconds;
                const char *name;
        } units[] = {{86400, "d"}, {3600, "h"}, {60, "min"}, {1, "s"}};
        uint64_t seconds = ms / 1000;
        size_t unit = 0;
        while (unit < 3 && seconds < units[unit].seconds)
                unit++;
        uint64_t rest = unit < 3 ? seconds % units[unit].seconds / units[unit + 1].seconds : 0;
        int n = snprintf(buffer, CTL_AGE_BYTES, "%" PRIu64 "%s", seconds / units[unit].seconds, units[unit].name);
        if (rest)
                (void) snprintf(buffer + n, CTL_AGE_BYTES - (size_t) n, " %" PRIu64 "%s", rest, units[unit + 1].name);
        return buffer;
}

int ctl_print_json(json_t *json) {
        if (!json) {
                ctl_error("printing JSON: out of memory");
                return CTL_EXIT_FAILED;
        }
        /* That it cannot be written is said once, at the end: complain_of_output(). */
        bool is_written = json_dumpf(json, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(8)) >= 0 && putchar('\n') != EOF;
        json_decref(json);
        return is_written ? CTL_EXIT_OK : CTL_EXIT_FAILED;
}

struct libscols_table *ctl_table_new(const struct ctl_column *columns, size_t n_columns) {
        struct libscols_table *table = scols_new_table();
        if (!table)
                return NULL;
        /* A pipe has no width: without this smartcols would cut a row at 80 columns for a reader that is a program. */
        (void) scols_table_set_termforce(table, SCOLS_TERMFORCE_NEVER);
        for (size_t idx = 0; idx < n_columns; idx++)
                if (!scols_table_new_column(table, columns[idx].name, 0, columns[idx].is_right ? SCOLS_FL_RIGHT : 0)) {
                        scols_unref_table(table);
                        return NULL;
                }
        return table;
}

int ctl_table_add(struct libscols_table *table, const char *const *cells, size_t n_cells) {
        if (!table)
                return -ENOMEM;
        struct libscols_line *line = scols_table_new_line(table, NULL);
        if (!line)
                return -ENOMEM;
        for (size_t idx = 0; idx < n_cells; idx++) {
                int r = scols_line_set_data(line, idx, cells[idx]);
                if (r < 0)
                        return r;
        }
        return 0;
}

int ctl_table_add_figures(struct libscols_table *table, const char *const *words, size_t n_words,
                          const struct ctl_figure *figures, size_t n_figures) {
        const char *cells[MAX_CELLS];
        char texts[MAX_CELLS][32];
        assert(n_words + n_figures <= MAX_CELLS);
        for (size_t idx = 0; idx < n_words; idx++)
                cells[idx] = words[idx];
        for (size_t idx = 0; idx < n_figures; idx++) {
                (void) snprintf(texts[idx], sizeof(texts[idx]), "%.*f", figures[idx].decimals, figures[idx].value);
                cells[n_words + idx] = isnan(figures[idx].value) ? "-" : texts[idx];
        }
        return ctl_table_add(table, cells, n_words + n_figures);
}

int ctl_table_print(struct libscols_table *table) {
        int r = table ? scols_print_table(table) : -ENOMEM;
        scols_unref_table(table);
        if (r < 0)
                ctl_error("printing a table: standard output: %s", strerror(-r));
        return r < 0 ? CTL_EXIT_FAILED : CTL_EXIT_OK;
}
