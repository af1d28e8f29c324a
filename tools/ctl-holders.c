/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Which processes have a file open or mapped. /proc is read while it changes: whatever cannot be read any more belonged to a
 * process that ended, and is passed over.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>

#include "cleanup.h"
#include "ctl-holders.h"
#include "parse.h"

static void closedir_p(DIR **dir) {
        if (*dir)
                (void) closedir(*dir);
}
#define _cleanup_closedir_ _cleanup_(closedir_p)

static int compare_files(const void *left, const void *right) {
        const struct ctl_file *a = left, *b = right;
        if (a->dev != b->dev)
                return a->dev < b->dev ? -1 : 1;
        return a->ino == b->ino ? 0 : a->ino < b->ino ? -1 : 1;
}

static int compare_holders(const void *left, const void *right) {
        const struct ctl_holder *a = left, *b = right;
        int order = compare_files(&a->file, &b->file);
        return order ? order : a->pid == b->pid ? 0 : a->pid < b->pid ? -1 : 1;
}

bool ctl_process_comm(pid_t pid, char ret_comm[17]) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/%d/comm", (int) pid);
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        if (!file || !fgets(ret_comm, 17, file))
                return false;
        ret_comm[strcspn(ret_comm, "\n")] = '\0';
        return true;
}

int ctl_process_age(pid_t pid, uint64_t *ret_age_ms) {
        char path[64], line[1024];
        (void) snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        _cleanup_fclose_ FILE *file = fopen(path, "re");
        if (!file)
                return negative_errno();
        if (!fgets(line, sizeof(line), file))
                return -ESRCH;
        /* The command's name may hold blanks and parentheses: the last ')' ends it. Field 22 of proc(5) is the start, in ticks
         * after boot. */
        char *at = strrchr(line, ')');
        for (int field = 2; at && field < 22; field++)
                at = strchr(at + 1, ' ');
        if (!at)
                return -EBADMSG;
        struct timespec now;
        (void) clock_gettime(CLOCK_BOOTTIME, &now);
        uint64_t now_ms = (uint64_t) now.tv_sec * 1000 + (uint64_t) now.tv_nsec / 1000000;
        uint64_t start_ms = strtoull(at, NULL, 10) * 1000 / (uint64_t) sysconf(_SC_CLK_TCK);
        *ret_age_ms = start_ms < now_ms ? now_ms - start_ms : 0;
        return 0;
}

struct scan {
        const struct ctl_file *files;
        size_t n_files;
        struct ctl_holders holders;
        size_t n_first; /* the first row of the process at hand */
        pid_t pid;
        int process_fd; /* its folder in /proc */
};

static bool is_wanted(const struct scan *scan, struct ctl_file file) {
        return bsearch(&file, scan->files, scan->n_files, sizeof(file), compare_files);
}

/* The row of the process at hand for that file. NULL: out of memory. */
static struct ctl_holder *row_of(struct scan *scan, struct ctl_file file) {
        struct ctl_holders *holders = &scan->holders;
        for (size_t idx = scan->n_first; idx < holders->n_rows; idx++)
                if (compare_files(&holders->rows[idx].file, &file) == 0)
                        return &holders->rows[idx];
        if ((holders->n_rows & (holders->n_rows - 1)) == 0) { /* full at each power of two */
                size_t n_room = holders->n_rows ? holders->n_rows * 2 : 1;
                struct ctl_holder *rows = reallocarray(holders->rows, n_room, sizeof(*rows));
                if (!rows)
                        return NULL;
                holders->rows = rows;
        }
        struct ctl_holder *row = &holders->rows[holders->n_rows++];
        *row = (struct ctl_holder){.file = file, .pid = scan->pid};
        return row;
}

static int scan_fds(struct scan *scan) {
        int fd = openat(scan->process_fd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        _cleanup_closedir_ DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        if (!dir) {
                safe_close(fd);
                return 0;
        }
        for (struct dirent *entry; (entry = readdir(dir));) {
                char target[16];
                struct stat st;
                /* Only memfds are asked: stat of a file on a dead network server would hang. */
                if (readlinkat(dirfd(dir), entry->d_name, target, sizeof(target)) < 7 || memcmp(target, "/memfd:", 7) != 0 ||
                    fstatat(dirfd(dir), entry->d_name, &st, 0) < 0)
                        continue;
                struct ctl_file file = {.dev = st.st_dev, .ino = st.st_ino};
                struct ctl_holder *row = is_wanted(scan, file) ? row_of(scan, file) : NULL;
                if (row)
                        row->n_fds++;
                else if (is_wanted(scan, file))
                        return -ENOMEM;
        }
        return 0;
}

static int scan_maps(struct scan *scan) {
        int fd = openat(scan->process_fd, "maps", O_RDONLY | O_CLOEXEC);
        _cleanup_fclose_ FILE *maps = fd >= 0 ? fdopen(fd, "re") : NULL;
        if (!maps) {
                safe_close(fd);
                return 0;
        }
        _cleanup_free_ char *line = NULL;
        size_t n_room = 0;
        while (getline(&line, &n_room, maps) > 0) {
                unsigned dev_major, dev_minor;
                uint64_t ino;
                if (!strstr(line, "/memfd:") || sscanf(line, "%*s %*s %*s %x:%x %" SCNu64, &dev_major, &dev_minor, &ino) != 3)
                        continue;
                struct ctl_file file = {.dev = makedev(dev_major, dev_minor), .ino = ino};
                struct ctl_holder *row = is_wanted(scan, file) ? row_of(scan, file) : NULL;
                if (row)
                        row->n_maps++;
                else if (is_wanted(scan, file))
                        return -ENOMEM;
        }
        return 0;
}

static int scan_process(struct scan *scan, int proc_fd, const char *name) {
        struct stat st;
        _cleanup_close_ int fd = openat(proc_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return 0;
        scan->process_fd = fd;
        scan->n_first = scan->holders.n_rows;
        int r = scan_fds(scan);
        if (r >= 0)
                r = scan_maps(scan);
        for (size_t idx = scan->n_first; idx < scan->holders.n_rows; idx++) {
                struct ctl_holder *row = &scan->holders.rows[idx];
                row->uid = st.st_uid;
                (void) ctl_process_comm(scan->pid, row->comm);
        }
        return r;
}

int ctl_holders_scan(struct ctl_file *files, size_t n_files, struct ctl_holders *ret_holders) {
        struct scan scan = {.files = files, .n_files = n_files};
        _cleanup_closedir_ DIR *proc = opendir("/proc");
        if (!proc)
                return negative_errno();
        qsort(files, n_files, sizeof(*files), compare_files);
        int r = 0;
        for (struct dirent *entry; r >= 0 && (entry = readdir(proc));)
                if (parse_i32(entry->d_name, &scan.pid) == 0)
                        r = scan_process(&scan, dirfd(proc), entry->d_name);
        if (r < 0) {
                ctl_holders_done(&scan.holders);
                return r;
        }
        if (scan.holders.n_rows)
                qsort(scan.holders.rows, scan.holders.n_rows, sizeof(*scan.holders.rows), compare_holders);
        *ret_holders = scan.holders;
        return 0;
}

const struct ctl_holder *ctl_holders_find(const struct ctl_holders *holders, struct ctl_file file, size_t *ret_n) {
        size_t first = 0, n = 0;
        while (first < holders->n_rows && compare_files(&holders->rows[first].file, &file) < 0)
                first++;
        while (first + n < holders->n_rows && compare_files(&holders->rows[first + n].file, &file) == 0)
                n++;
        *ret_n = n;
        return n ? &holders->rows[first] : NULL;
}

void ctl_holders_done(struct ctl_holders *holders) {
        free(holders->rows);
        *holders = (struct ctl_holders){};
}
