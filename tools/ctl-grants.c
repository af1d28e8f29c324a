/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl grants: who asked for what, and, for root, who has it now. */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "ctl-holders.h"
#include "ctl.h"
#include "kernelfs.h"
#include "parse.h"

static const char help[] = "Usage: hugezeroctl grants [OPTIONS]\n"
                           "\n"
                           "Shows each grant: who asked for it, how long ago, how much, and its state:\n"
                           "held (somebody has it), returning (it was closed and is being checked),\n"
                           "pinned (closed, but a device or the kernel still uses its pages).\n"
                           "Administrators (root, the daemon's user, AdminUsers=) see all grants, others\n"
                           "their own.\n"
                           "\n"
                           "Options:\n"
                           "  --holders       look through all processes for who has it now; root only\n"
                           "  --json          one JSON object, sizes in bytes\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n";

struct grants {
        struct hugezero_grant_info *rows; /* one per extent, those of a grant next to each other */
        size_t n_rows;
        struct ctl_holders holders;
        bool has_holders;
        pid_t daemon_pid; /* as the socket tells it: 1 when systemd made the socket */
};

static const char *state_name(uint32_t state) {
        switch (state) {
        case HUGEZERO_EXTENT_HELD:
                return "held";
        case HUGEZERO_EXTENT_RETURNING:
                return "returning";
        case HUGEZERO_EXTENT_PINNED:
                return "pinned";
        default:
                return "unknown";
        }
}

/* How many rows from @first on belong to its grant. */
static size_t count_extents(const struct grants *grants, size_t first) {
        size_t n = 1;
        while (first + n < grants->n_rows && grants->rows[first + n].grant_id == grants->rows[first].grant_id)
                n++;
        return n;
}

static const char *user_name(uid_t uid, char buffer[32]) {
        const struct passwd *user = getpwuid(uid);
        (void) snprintf(buffer, 32, "%u", (unsigned) uid);
        return user ? user->pw_name : buffer;
}

/* The asker's command; NULL when it is gone or its number belongs to a younger process by now. */
static const char *asker_comm(const struct hugezero_grant_info *row, char buffer[17]) {
        uint64_t process_age_ms;
        if (ctl_process_age((pid_t) row->pid, &process_age_ms) < 0 || process_age_ms + 1000 < row->age_ms)
                return NULL;
        return ctl_process_comm((pid_t) row->pid, buffer) ? buffer : NULL;
}

/* The daemon has each of its extents open; with a socket of systemd's also systemd may, in its fd store. */
static bool is_daemon(const struct grants *grants, const struct ctl_holder *holder) {
        return holder->pid == grants->daemon_pid || (grants->daemon_pid == 1 && strcmp(holder->comm, "hugezerod") == 0);
}

/* Adds @word to a list with commas unless it is in it. */
static void add_word(char *list, size_t n_bytes, const char *word) {
        size_t n_word = strlen(word), n_list = strlen(list);
        for (const char *at = list; (at = strstr(at, word)); at += n_word)
                if ((at == list || at[-1] == ',') && (at[n_word] == ',' || !at[n_word]))
                        return;
        (void) snprintf(list + n_list, n_bytes - n_list, "%s%s", n_list ? "," : "", word);
}

static json_t *holders_to_json(const struct grants *grants, const struct hugezero_grant_info *row) {
        json_t *json = json_array();
        size_t n;
        const struct ctl_holder *holder = ctl_holders_find(&grants->holders, (struct ctl_file){row->dev, row->ino}, &n);
        for (; n > 0; n--, holder++)
                (void) json_array_append_new(
                        json, json_pack("{s:i, s:I, s:s, s:I, s:I, s:b}", "pid", (int) holder->pid, "uid",
                                        (json_int_t) holder->uid, "comm", holder->comm, "fds", (json_int_t) holder->n_fds,
                                        "mappings", (json_int_t) holder->n_maps, "daemon", (int) is_daemon(grants, holder)));
        return json;
}

static json_t *extent_to_json(const struct grants *grants, const struct hugezero_grant_info *row) {
        json_t *json = json_pack("{s:i, s:I, s:I, s:i, s:s, s:s, s:I, s:I}", "extent", (int) row->extent, "bytes",
                                 (json_int_t) row->bytes, "page_size_bytes", (json_int_t) row->page_size_bytes, "node",
                                 (int) row->node, "pool", row->pool, "state", state_name(row->state), "dev",
                                 (json_int_t) row->dev, "ino", (json_int_t) row->ino);
        if (json && grants->has_holders)
                (void) json_object_set_new(json, "holders", holders_to_json(grants, row));
        return json;
}

static int print_json(const struct grants *grants) {
        json_t *list = json_array();
        for (size_t first = 0, n; first < grants->n_rows; first += n) {
                const struct hugezero_grant_info *row = &grants->rows[first];
                char user[32], comm[17];
                json_t *extents = json_array();
                uint64_t bytes = 0;
                n = count_extents(grants, first);
                for (size_t idx = 0; idx < n; idx++) {
                        bytes += row[idx].bytes;
                        (void) json_array_append_new(extents, extent_to_json(grants, &row[idx]));
                }
                (void) json_array_append_new(list, json_pack("{s:I, s:I, s:s, s:I, s:s?, s:I, s:I, s:o}", "grant_id",
                                                             (json_int_t) row->grant_id, "uid", (json_int_t) row->uid, "user",
                                                             user_name(row->uid, user), "pid", (json_int_t) row->pid, "comm",
                                                             asker_comm(row, comm), "age_ms", (json_int_t) row->age_ms, "bytes",
                                                             (json_int_t) bytes, "extents", extents));
        }
        return ctl_print_json(json_pack("{s:o}", "grants", list));
}

/* Adds each process once, however many of the grant's extents it has. */
static void add_holders(const struct grants *grants, const struct hugezero_grant_info *row, char *list, size_t n_bytes) {
        size_t n;
        const struct ctl_holder *holder = ctl_holders_find(&grants->holders, (struct ctl_file){row->dev, row->ino}, &n);
        for (; n > 0; n--, holder++) {
                char word[64];
                if (is_daemon(grants, holder))
                        continue;
                (void) snprintf(word, sizeof(word), "%d %s (%s)", (int) holder->pid, holder->comm,
                                !holder->n_fds   ? "mapping only"
                                : holder->n_maps ? "fd and mapping"
                                                 : "fd");
                add_word(list, n_bytes, word);
        }
}

static int print_text(const struct grants *grants) {
        if (!grants->n_rows) /* smartcols prints nothing at all then, not even the heading */
                return puts("no grants") == EOF ? CTL_EXIT_FAILED : CTL_EXIT_OK;
        static const struct ctl_column columns[] = {
                {"GRANT", true}, {"USER", false}, {"PID", true},   {"COMMAND", false}, {"AGE", true},      {"SIZE", true},
                {"FDS", true},   {"NODE", false}, {"POOL", false}, {"STATE", false},   {"HOLDERS", false},
        };
        size_t n_columns = sizeof(columns) / sizeof(columns[0]) - (grants->has_holders ? 0 : 1);
        struct libscols_table *table = ctl_table_new(columns, n_columns);
        for (size_t first = 0, n; first < grants->n_rows; first += n) {
                const struct hugezero_grant_info *row = &grants->rows[first];
                char id[24], user[32], pid[16], comm[17], age[CTL_AGE_BYTES], size[FORMAT_SIZE_BYTES], n_extents[24];
                char nodes[64] = "", pools[256] = "", states[64] = "", holders[1024] = "";
                uint64_t bytes = 0;
                n = count_extents(grants, first);
                for (size_t idx = 0; idx < n; idx++) {
                        char node[16];
                        bytes += row[idx].bytes;
                        (void) snprintf(node, sizeof(node), "%" PRId32, row[idx].node);
                        add_word(nodes, sizeof(nodes), node);
                        add_word(pools, sizeof(pools), row[idx].pool);
                        add_word(states, sizeof(states), state_name(row[idx].state));
                        if (grants->has_holders)
                                add_holders(grants, &row[idx], holders, sizeof(holders));
                }
                const char *command = asker_comm(row, comm);
                (void) snprintf(id, sizeof(id), "%" PRIu64, row->grant_id);
                (void) snprintf(pid, sizeof(pid), "%" PRIu32, row->pid);
                (void) snprintf(n_extents, sizeof(n_extents), "%zu", n);
                const char *cells[] = {id,
                                       user_name(row->uid, user),
                                       pid,
                                       command ? command : "(gone)",
                                       ctl_format_age(row->age_ms, age),
                                       format_size(bytes, size),
                                       n_extents,
                                       nodes,
                                       pools,
                                       states,
                                       *holders ? holders : "(none found)"};
                (void) ctl_table_add(table, cells, n_columns);
        }
        return ctl_table_print(table);
}

static int find_holders(struct grants *grants) {
        _cleanup_free_ struct ctl_file *files = calloc(grants->n_rows + 1, sizeof(*files));
        if (!files)
                return -ENOMEM;
        for (size_t idx = 0; idx < grants->n_rows; idx++)
                files[idx] = (struct ctl_file){grants->rows[idx].dev, grants->rows[idx].ino};
        return ctl_holders_scan(files, grants->n_rows, &grants->holders);
}

static int read_grants(const struct ctl *ctl, struct grants *grants) {
        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        _cleanup_status_ struct hugezero_status *status = NULL;
        uid_t daemon_uid;
        int exit_code = ctl_connect_and_read(ctl, &conn, &status);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        int r = ctl_peer(conn, &grants->daemon_pid, &daemon_uid);
        grants->n_rows = hugezero_status_get_n_grants(status);
        grants->rows = calloc(grants->n_rows + 1, sizeof(*grants->rows));
        if (!grants->rows)
                r = -ENOMEM;
        for (size_t idx = 0; r >= 0 && idx < grants->n_rows; idx++) {
                grants->rows[idx].struct_bytes = sizeof(*grants->rows);
                r = hugezero_status_get_grant(status, (uint32_t) idx, &grants->rows[idx]);
        }
        if (r >= 0 && grants->has_holders)
                r = find_holders(grants);
        if (r < 0)
                ctl_error("reading the grants: %s: %s", ctl->socket_path, strerror(-r));
        return r < 0 ? CTL_EXIT_FAILED : CTL_EXIT_OK;
}

int ctl_verb_grants(struct ctl *ctl, int argc, char *argv[]) {
        enum { OPTION_HOLDERS = CTL_OPTION_OWN };
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                {"holders", no_argument, NULL, OPTION_HOLDERS},
                {},
        };
        struct grants grants = {};
        int option;
        while ((option = ctl_getopt(ctl, argv[0], argc, argv, options, help)) != -1) {
                if (option != OPTION_HOLDERS)
                        return ctl_getopt_exit(option);
                grants.has_holders = true;
        }
        int exit_code = ctl_no_arguments(argc, argv);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        if (grants.has_holders && geteuid() != 0) {
                ctl_error("looking for holders: /proc: only root may look into all processes; try sudo");
                return CTL_EXIT_FAILED;
        }
        if (grants.has_holders && kernelfs_proc_fault()) {
                ctl_error("looking for holders: %s", kernelfs_proc_fault());
                return CTL_EXIT_FAILED;
        }
        exit_code = read_grants(ctl, &grants);
        if (exit_code == CTL_EXIT_OK)
                exit_code = ctl->json ? print_json(&grants) : print_text(&grants);
        ctl_holders_done(&grants.holders);
        free(grants.rows);
        return exit_code;
}
