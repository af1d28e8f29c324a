/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezeroctl doctor: what on this host stands in the way, and what to do. Works without a daemon. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "ctl.h"
#include "doctor.h"

static const char help[] = "Usage: hugezeroctl doctor [OPTIONS]\n"
                           "\n"
                           "Looks for what on this host stands in the way: pages and where they are,\n"
                           "limits, the kernel's features, the socket. Says what to do about it. Needs no\n"
                           "daemon, changes nothing, takes a few free pages for a moment to try the\n"
                           "features. Exits with 1 when it found a problem; a note is none.\n"
                           "\n"
                           "Options:\n"
                           "  --json          one JSON object\n"
                           "  --socket PATH   the daemon's socket\n"
                           "  --help          this text\n";

static const char *const level_names[] = {"ok", "note", "problem"};

/* All pools of a node share its threads: the first one speaks for them. */
static bool is_first_of_node(const struct hugezero_status *status, uint32_t idx, int32_t node) {
        struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
        for (uint32_t before = 0; before < idx; before++)
                if (hugezero_status_get_pool(status, before, &pool) >= 0 && pool.node == node)
                        return false;
        return true;
}

static void check_targets(struct doctor *doctor, const struct hugezero_status *status) {
        uint64_t target_bytes = 0;

        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) >= 0)
                        target_bytes += pool.target_bytes;
        }
        if (target_bytes > 0)
                return;
        doctor_add(doctor, DOCTOR_PROBLEM, "targets", "the daemon serves no memory: the targets of all its pools are 0");
        doctor_advise(doctor, "drained: hugezeroctl reload; else no page was free when it was started: restart hugezerod when there "
                              "are some, or give its pools a Target=");
}

/* What the daemon has found out about its nodes and limits. */
static void check_clearing(struct doctor *doctor, struct hugezero_conn *conn) {
        _cleanup_status_ struct hugezero_status *status = NULL;

        struct hugezero_daemon_info daemon = {.struct_bytes = sizeof(daemon)};
        if (hugezero_status_read(conn, &status) < 0)
                return;
        if (hugezero_status_get_daemon(status, &daemon) >= 0)
                doctor->capped_at_extents = daemon.capped_at_extents;
        check_targets(doctor, status);
        for (uint32_t idx = 0; idx < hugezero_status_get_n_pools(status); idx++) {
                struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
                if (hugezero_status_get_pool(status, idx, &pool) < 0)
                        continue;
                if (pool.n_audit_errors_total > 0) {
                        doctor_add(doctor, DOCTOR_PROBLEM, "audit",
                                   "pool %s on node %" PRId32 ": ready extents that were not zero when they were read again: "
                                   "%" PRIu64,
                                   pool.name, pool.node, pool.n_audit_errors_total);
                        doctor_advise(doctor, "the daemon's log says where: journalctl -u hugezerod -p err; test the memory, "
                                              "and look for who writes into memory of others");
                }
                char fills[CTL_THREADS_BYTES], scrubs[CTL_THREADS_BYTES];
                _cleanup_free_ char *methods = ctl_new_methods_text(status, pool.node);
                if (methods && is_first_of_node(status, idx, pool.node))
                        doctor_add(doctor, DOCTOR_OK, "clearing", "node %" PRId32 ": by %s; fills by %s, scrubs by %s", pool.node, methods,
                                   ctl_format_threads(pool.n_fill_threads, pool.n_workers, fills),
                                   ctl_format_threads(pool.n_scrub_threads, pool.n_workers, scrubs));
        }
}

/* Why this user may not connect: the folder, the socket, or the daemon keeps it out. */
static void explain_kept_out(struct doctor *doctor, const char *path) {
        struct stat st;
        if (stat(path, &st) < 0) {
                doctor_add(doctor, DOCTOR_PROBLEM, "socket", "%s: this user may not enter a folder of the path", path);
                doctor_advise(doctor, "namei -l shows which one; have it opened (chmod a+x), or the daemon listen elsewhere, with Socket=");
                return;
        }
        if (faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) == 0) {
                doctor_add(doctor, DOCTOR_PROBLEM, "socket", "%s", hugezero_conn_get_error_text(NULL));
                doctor_advise(doctor, "AllowUsers= and AllowGroups= in hugezerod.conf say who is served");
                return;
        }
        const struct group *group = getgrgid(st.st_gid);
        doctor_add(doctor, DOCTOR_PROBLEM, "socket", "%s: this user may not connect", path);
        if (st.st_gid == 0 || !group)
                doctor_advise(doctor, "the socket has no group of its own: name one with SocketGroup=, in hugezerod.conf, or in the "
                                      "socket unit where systemd makes the socket, and have this user join it (usermod -aG GROUP USER)");
        else if (!(st.st_mode & S_IWGRP))
                doctor_advise(doctor, "the socket is closed to its group, %s: set SocketMode=0660", group->gr_name);
        else
                doctor_advise(doctor, "become a member of the socket's group: usermod -aG %s USER, then log in anew", group->gr_name);
}

/* Also finds out which process the limits of interest belong to. */
static void check_socket(struct doctor *doctor, const struct ctl *ctl) {
        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        struct stat st;
        uid_t uid;
        int r = hugezero_conn_open(ctl->socket_path, &conn);
        if (r >= 0) {
                pid_t pid;
                if (ctl_peer(conn, &pid, &uid) >= 0 && pid > 1) /* 1: systemd has made the socket for the daemon */
                        doctor->daemon_pid = pid;
                doctor_add(doctor, DOCTOR_OK, "socket", "%s: the daemon answers", ctl->socket_path);
                check_clearing(doctor, conn);
                if (stat(ctl->socket_path, &st) == 0 && (st.st_mode & S_IWOTH)) {
                        doctor_add(doctor, DOCTOR_NOTE, "socket", "%s: every user of this host may connect", ctl->socket_path);
                        doctor_advise(doctor, "SocketGroup= and SocketMode=0660 in hugezerod.conf keep others out; quotas "
                                              "bound what each user gets");
                }
        } else if (r == -EACCES || r == -EPERM) {
                explain_kept_out(doctor, ctl->socket_path);
        } else if (r == -ENOENT || r == -ECONNREFUSED) {
                doctor_add(doctor, DOCTOR_NOTE, "socket", "%s: no daemon answers", ctl->socket_path);
                doctor_advise(doctor, "systemctl start hugezerod; or name another socket with --socket");
        } else {
                doctor_add(doctor, DOCTOR_PROBLEM, "socket", "%s: %s", ctl->socket_path, strerror(-r));
                doctor_advise(doctor, "look into the daemon's log: journalctl -u hugezerod");
        }
}

static int print_json(const struct doctor *doctor, size_t n_notes, size_t n_problems) {
        json_t *findings = json_array();
        for (size_t idx = 0; idx < doctor->n_findings; idx++) {
                const struct doctor_finding *finding = &doctor->findings[idx];
                (void) json_array_append_new(findings, json_pack("{s:s, s:s, s:s, s:s?}", "check", finding->check, "level",
                                                                 level_names[finding->level], "text", finding->text, "advice",
                                                                 *finding->advice ? finding->advice : NULL));
        }
        return ctl_print_json(json_pack("{s:o, s:I, s:I}", "findings", findings, "notes", (json_int_t) n_notes, "problems",
                                        (json_int_t) n_problems));
}

static void print_text(const struct doctor *doctor, size_t n_notes, size_t n_problems) {
        static const char *const marks[] = {"OK     ", "note   ", "PROBLEM"};
        for (size_t idx = 0; idx < doctor->n_findings; idx++) {
                const struct doctor_finding *finding = &doctor->findings[idx];
                printf("%s  %s: %s\n", marks[finding->level], finding->check, finding->text);
                if (*finding->advice)
                        printf("         -> %s\n", finding->advice);
        }
        printf("%zu problem%s, %zu note%s\n", n_problems, n_problems == 1 ? "" : "s", n_notes, n_notes == 1 ? "" : "s");
}

int ctl_verb_doctor(struct ctl *ctl, int argc, char *argv[]) {
        enum { OPTION_ROOT = CTL_OPTION_OWN };
        static const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                {"root", required_argument, NULL, OPTION_ROOT},
                {},
        };
        struct doctor doctor = {.root = ""};
        int option;
        while ((option = ctl_getopt(ctl, argv[0], argc, argv, options, help)) != -1) {
                if (option != OPTION_ROOT)
                        return ctl_getopt_exit(option);
                doctor.root = optarg;
        }
        int exit_code = ctl_no_arguments(argc, argv);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;

        /* A made-up host has no daemon and no kernel of its own. */
        if (!*doctor.root)
                check_socket(&doctor, ctl);
        doctor_check_mounts(&doctor);
        doctor_check_pages(&doctor);
        doctor_check_nodes(&doctor);
        doctor_check_cgroup(&doctor);
        doctor_check_limits(&doctor);
        doctor_check_kernel(&doctor);
        if (!*doctor.root)
                doctor_probe_kernel(&doctor);

        size_t n_levels[3] = {};
        for (size_t idx = 0; idx < doctor.n_findings; idx++)
                n_levels[doctor.findings[idx].level]++;
        if (ctl->json)
                exit_code = print_json(&doctor, n_levels[DOCTOR_NOTE], n_levels[DOCTOR_PROBLEM]);
        else
                print_text(&doctor, n_levels[DOCTOR_NOTE], n_levels[DOCTOR_PROBLEM]);
        if (doctor.is_out_of_memory)
                ctl_error("looking at the host: findings: out of memory, some are missing");
        doctor_done(&doctor);
        return exit_code == CTL_EXIT_OK && (n_levels[DOCTOR_PROBLEM] || doctor.is_out_of_memory) ? CTL_EXIT_FAILED : exit_code;
}
