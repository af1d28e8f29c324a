/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "kernelfs.h"

#include <errno.h>
#include <unistd.h>

/* By what must be there, not by the kind of file system: a container may put /sys together from parts of it. */

const char *kernelfs_proc_fault(void) {
        if (access("/proc/self/fd", R_OK | X_OK) >= 0)
                return NULL;
        return errno == ENOENT ? "/proc is not mounted" : "/proc cannot be read";
}

const char *kernelfs_sys_fault(void) {
        if (access("/sys/kernel", R_OK | X_OK) >= 0)
                return NULL;
        return errno == ENOENT ? "/sys is not mounted" : "/sys cannot be read";
}
