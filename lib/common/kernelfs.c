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

/* In a container /sys may be a file system of its own, into which parts of sysfs are mounted. */
const char *kernelfs_sys_fault(void) {
        if (access("/sys", R_OK | X_OK) < 0)
                return "/sys cannot be read";
        return !is_mounted("/sys/kernel", SYSFS_MAGIC) ? "/sys is not mounted" :
               access("/sys/kernel", R_OK | X_OK) < 0 ? "/sys cannot be read" : NULL;
}
