/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The files that a configuration consists of: FILE and those of FILE.d that end in .conf. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/*
 * Opens one for reading. -ENOTSUP: it is no regular file (nor /dev/null): a pipe that nobody writes to or a device without an end
 * would keep a program from starting; -EFBIG: it is larger than 1 MiB; else a negative errno of open(2).
 */
int conf_file_open(const char *path, FILE **ret_stream);
/* What a failure of it means, for an error message. */
const char *conf_file_fault(int r);

/*
 * The paths of the files in @folder that end in ".conf" and do not begin with a dot, in the order of their bytes, which depends on
 * no locale. None where there is no such folder. Free with conf_paths_free(). A negative errno, as of scandir(3).
 */
int conf_paths_list(const char *folder, char ***ret_paths, size_t *ret_n);
void conf_paths_free(char **paths, size_t n);
