/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The path is followed as the kernel does, one name at a time, and each folder and symlink that it leads through is looked at:
 * who may rename one of them decides where the rest leads. Looking from the root down, nobody can change what was passed.
 */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "socket-folder.h"

#define MAX_SYMLINKS 40 /* the kernel's limit, see path_resolution(7) */

struct walk {
        char done[PATH_MAX]; /* free of symlinks; the root is "" */
        char left[PATH_MAX];
        unsigned n_symlinks;
};

static int check_entry(const char *path, const struct stat *st, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        bool is_symlink = S_ISLNK(st->st_mode);

        if (!is_symlink && !S_ISDIR(st->st_mode))
                return -ENOTDIR;
        if (st->st_uid != 0 && st->st_uid != geteuid()) {
                (void) snprintf(ret_why, SOCKET_FOLDER_WHY_SIZE,
                                "the %s \"%s\" belongs to uid %u, who could replace the socket. It must belong to root or the "
                                "daemon's user; change its owner, or set Socket=",
                                is_symlink ? "symlink" : "folder", path, (unsigned) st->st_uid);
                return -EXDEV;
        }
        if (!is_symlink && (st->st_mode & 022) && !(st->st_mode & S_ISVTX)) {
                (void) snprintf(ret_why, SOCKET_FOLDER_WHY_SIZE,
                                "the folder \"%s\" of uid %u has mode %04o: others may write to it and could replace the socket. "
                                "Take that from them with chmod go-w, or set Socket=",
                                path, (unsigned) st->st_uid, (unsigned) st->st_mode & 07777);
                return -EXDEV;
        }
        return 0;
}

/* What it says comes before the rest of the path. */
static int walk_symlink(struct walk *walk, const char *path) {
        char target[PATH_MAX], left[PATH_MAX];
        ssize_t length = readlink(path, target, sizeof(target) - 1);

        if (length < 0)
                return negative_errno();
        target[length] = '\0';
        if (++walk->n_symlinks > MAX_SYMLINKS)
                return -ELOOP;
        if (snprintf(left, sizeof(left), "%s/%s", target, walk->left) >= (int) sizeof(left))
                return -ENAMETOOLONG;
        (void) strcpy(walk->left, left);
        if (target[0] == '/')
                walk->done[0] = '\0';
        return 0;
}

/* Takes the first name off what is left. */
static void take_name(struct walk *walk, char ret_name[PATH_MAX]) {
        size_t start = strspn(walk->left, "/"), length = strcspn(walk->left + start, "/");

        (void) memcpy(ret_name, walk->left + start, length);
        ret_name[length] = '\0';
        (void) memmove(walk->left, walk->left + start + length, strlen(walk->left + start + length) + 1);
}

static int walk_on(struct walk *walk, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        char name[PATH_MAX], path[PATH_MAX];
        struct stat st;
        int r;

        take_name(walk, name);
        if (name[0] == '\0' || strcmp(name, ".") == 0)
                return 0;
        if (strcmp(name, "..") == 0) {
                char *slash = strrchr(walk->done, '/');
                if (slash)
                        *slash = '\0';
                return 0;
        }
        if (snprintf(path, sizeof(path), "%s/%s", walk->done, name) >= (int) sizeof(path))
                return -ENAMETOOLONG;
        if (lstat(path, &st) < 0)
                return negative_errno();
        r = check_entry(path, &st, ret_why);
        if (r < 0)
                return r;
        if (S_ISLNK(st.st_mode))
                return walk_symlink(walk, path);
        (void) strcpy(walk->done, path);
        return 0;
}

int socket_folder_check(const char *path, char ret_why[SOCKET_FOLDER_WHY_SIZE]) {
        struct walk walk = {0};
        struct stat st;
        int r;

        if (strlen(path) >= sizeof(walk.left))
                return -ENAMETOOLONG;
        (void) strcpy(walk.left, path);
        if (stat("/", &st) < 0)
                return negative_errno();
        r = check_entry("/", &st, ret_why);
        while (r >= 0 && walk.left[0] != '\0')
                r = walk_on(&walk, ret_why);
        return r;
}
