/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "kernelfs.h"

#include <linux/magic.h>
#include <stdbool.h>
#include <sys/vfs.h>
#include <unistd.h>

static bool is_mounted(const char *path, long magic) {
        struct statfs st;

        return statfs(path, &st) >= 0 && (long) st.f_type == magic;
}

const char *kernelfs_proc_fault(void) {
        return !is_mounted("/proc", PROC_SUPER_MAGIC) ? "/proc is not mounted" :
               access("/proc/self", R_OK | X_OK) < 0  ? "/proc cannot be read" : NULL;
}

const char *kernelfs_sys_fault(void) {
        return !is_mounted("/sys", SYSFS_MAGIC)                            ? "/sys is not mounted" :
               access("/sys", R_OK | X_OK) < 0 || access("/sys/kernel", R_OK | X_OK) < 0 ? "/sys cannot be read" : NULL;
}
