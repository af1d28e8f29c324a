/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A socket that is closed outside the loop, because descriptors in its queue may make that block. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "worker.h"

struct quota;

/* Allocated ahead, where descriptors may arrive: closing cannot fail. */
struct closing {
        struct job job;
        struct quota *quota;
        uid_t uid;
        bool charged; /* the connection counts until it is closed */
        int fd;
};

/* @closing, @fd: owned by the closer from here on. @charged: a connection of @uid, uncharged when it is closed. */
void closing_begin(struct closing *closing, struct worker_pool *closer, int fd, struct quota *quota, uid_t uid, bool charged);
