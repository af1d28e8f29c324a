/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <fcntl.h>
#include <unistd.h>

/*
 * To be called first. A program that is started with standard descriptors closed gets their numbers for the first files that it
 * opens: messages would be written into a socket, or granted memory would become the standard output of the next program.
 * Where standard output was closed, writing to it goes on failing: an answer that nobody gets must not look like a success.
 */
static inline void open_standard_descriptors(void) {
        static const int flags[] = {[STDIN_FILENO] = O_RDONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_WRONLY};

        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
                if (fcntl(fd, F_GETFD) < 0)
                        (void) open("/dev/null", flags[fd]); /* the lowest number that is free, which is this one */
}
