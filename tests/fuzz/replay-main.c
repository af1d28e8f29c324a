/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stands in for libFuzzer's main in the ordinary test run: gives each file of a corpus folder to the target once. */

#include <dirent.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cleanup.h"
#include "fuzz.h"

#define MAX_INPUT_BYTES 65536 /* chosen: far above any input of use */

static void replay(const char *folder, const char *name) {
        static uint8_t bytes[MAX_INPUT_BYTES];
        _cleanup_free_ char *path = NULL;
        _cleanup_fclose_ FILE *file = NULL;

        if (asprintf(&path, "%s/%s", folder, name) < 0)
                errx(1, "out of memory");
        file = fopen(path, "re");
        if (!file)
                err(1, "cannot read %s", path);
        size_t n = fread(bytes, 1, sizeof(bytes), file);
        if (ferror(file) || n == sizeof(bytes))
                errx(1, "cannot read %s, or it is larger than %d bytes", path, MAX_INPUT_BYTES);

        /* An exact-size copy, so that the sanitizer sees each byte read too many. */
        _cleanup_free_ uint8_t *copy = malloc(n ? n : 1);
        if (!copy)
                errx(1, "out of memory");
        memcpy(copy, bytes, n);
        printf("%s, %zu bytes\n", name, n);
        (void) LLVMFuzzerTestOneInput(copy, n);
}

int main(int argc, char **argv) {
        unsigned n_inputs = 0;

        if (argc != 2)
                errx(2, "usage: %s CORPUS-FOLDER", argv[0]);
        (void) setvbuf(stdout, NULL, _IOLBF, 0); /* the last line names the input that ended it */
        DIR *dir = opendir(argv[1]);
        if (!dir)
                err(1, "cannot open %s", argv[1]);
        for (struct dirent *entry; (entry = readdir(dir));)
                if (entry->d_name[0] != '.') {
                        replay(argv[1], entry->d_name);
                        n_inputs++;
                }
        closedir(dir);
        if (n_inputs == 0)
                errx(1, "no input in %s", argv[1]);
        return 0;
}
