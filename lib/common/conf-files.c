/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cleanup.h"
#include "conf-files.h"

#define MAX_FILE_BYTES (1 << 20) /* chosen: far more than anybody writes; a device has no end */

int conf_file_open(const char *path, FILE **ret_stream) {
        _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return negative_errno();
        if (!S_ISREG(st.st_mode) && !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3) /* /dev/null: "no configuration" */))
                return -ENOTSUP;
        if (st.st_size > MAX_FILE_BYTES)
                return -EFBIG;
        *ret_stream = fdopen(fd, "r");
        if (!*ret_stream)
                return negative_errno();
        (void) take_fd(&fd);
        return 0;
}

const char *conf_file_fault(int r) {
        return r == -ENOTSUP ? "it is no regular file" : r == -EFBIG ? "it is larger than 1 MiB" : strerror(-r);
}

static int is_drop_in(const struct dirent *entry) {
        const char *dot = strrchr(entry->d_name, '.');

        return entry->d_name[0] != '.' && dot && strcmp(dot, ".conf") == 0;
}

/* As alphasort(3), but for the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b) {
        return strcmp((*a)->d_name, (*b)->d_name);
}

int conf_paths_list(const char *folder, char ***ret_paths, size_t *ret_n) {
        struct dirent **entries;
        int n = scandir(folder, &entries, is_drop_in, compare_names), r = 0;
        char **paths;

        if (n < 0) {
                r = negative_errno();
                if (r != -ENOENT && r != -ENOTDIR)
                        return r;
                n = 0, entries = NULL, r = 0;
        }
        paths = calloc((size_t) n + 1, sizeof(*paths));
        for (int i = 0; i < n; i++) {
                if (!paths || asprintf(&paths[i], "%s/%s", folder, entries[i]->d_name) < 0)
                        r = -ENOMEM;
                free(entries[i]);
        }
        free(entries);
        if (!paths || r < 0) {
                conf_paths_free(paths, (size_t) n);
                return -ENOMEM;
        }
        *ret_paths = paths;
        *ret_n = (size_t) n;
        return 0;
}

void conf_paths_free(char **paths, size_t n) {
        for (size_t i = 0; paths && i < n; i++)
                free(paths[i]);
        free(paths);
}
