/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Whether nobody but root and the daemon's user can change what the path of a folder leads to. */
#pragma once

#define SOCKET_FOLDER_WHY_SIZE 4352 /* a path of PATH_MAX, and a sentence */

/*
 * 0; -EXDEV: others could put something else in place of @path, an absolute one, or in it: which folder, whose it is and what to
 * do is in ret_why. -ENOENT: something is missing, but nobody else could make it. Or another errno.
 */
int socket_folder_check(const char *path, char ret_why[SOCKET_FOLDER_WHY_SIZE]);
