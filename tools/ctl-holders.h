/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which processes have a file open or mapped, found in /proc. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ctl_file {
        uint64_t dev, ino;
};

struct ctl_holder { /* one process and one file */
        struct ctl_file file;
        pid_t pid;
        uid_t uid;
        char comm[17];   /* kernel limit: 16 with its 0 */
        uint32_t n_fds;  /* descriptors */
        uint32_t n_maps; /* mappings */
};

struct ctl_holders { /* sorted by file, then pid */
        struct ctl_holder *rows;
        size_t n_rows;
};

/*
 * ctl_holders_scan - look through all processes that we may look into
 * @files: sorted here
 * Processes that end meanwhile, or that we may not look into, are left out. A descriptor table that one thread has for itself,
 * and a descriptor on its way through a socket, are not seen. Returns 0 or a negative errno; release with ctl_holders_done().
 */
int ctl_holders_scan(struct ctl_file *files, size_t n_files, struct ctl_holders *ret_holders);
/* The first row of that file; *@ret_n of them lie one after the other. */
const struct ctl_holder *ctl_holders_find(const struct ctl_holders *holders, struct ctl_file file, size_t *ret_n);
void ctl_holders_done(struct ctl_holders *holders);

/* The command name of a process; false when it is gone. */
bool ctl_process_comm(pid_t pid, char ret_comm[17]);
/* How long ago it was started; -ESRCH and the like when it is gone. */
int ctl_process_age(pid_t pid, uint64_t *ret_age_ms);
