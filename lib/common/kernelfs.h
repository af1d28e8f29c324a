/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether the kernel's own file systems are there, before what is missing in them is taken for an answer. */
#pragma once

/* NULL, or what is wrong, in one clause: "/sys is not mounted". */
const char *kernelfs_proc_fault(void);
const char *kernelfs_sys_fault(void);
