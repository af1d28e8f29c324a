/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

#include <fcntl.h>
#include <unistd.h>

/*
 * To be called first. A program that is started with standard descriptors closed gets their numbers for the first files that it
 * opens: messages would be written into a socket, or granted memory would become the standard output of the next program.
 */
static inline void open_standard_descriptors(void) {
        int fd;

        do
                fd = open("/dev/null", O_RDWR);
        while (fd >= 0 && fd <= STDERR_FILENO);
        if (fd > STDERR_FILENO)
                (void) close(fd);
}
