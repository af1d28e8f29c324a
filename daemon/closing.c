/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "closing.h"

#include <stdlib.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "fdpass.h"
#include "quota.h"

static int closing_step(struct job *job) {
        struct closing *closing = (struct closing *) job;
        uint8_t byte;

        /* Without room for descriptors: the kernel closes them right there. */
        while (!fdpass_is_drained(closing->fd))
                if (recv(closing->fd, &byte, sizeof(byte), MSG_DONTWAIT) < 0)
                        break;
        closing->fd = safe_close(closing->fd);
        return 0;
}

static void closing_done(struct job *job, int r) {
        struct closing *closing = (struct closing *) job;

        (void) safe_close(closing->fd); /* a cancelled one: the daemon stops */
        if (closing->charged)
                quota_uncharge(closing->quota, closing->uid, QUOTA_CONNECTIONS, 1);
        free(closing);
}

void closing_begin(struct closing *closing, struct worker_pool *closer, int fd, struct quota *quota, uid_t uid, bool charged) {
        *closing = (struct closing){
                .job = {.urgency = JOB_WAITING, .step = closing_step, .done = closing_done},
                .quota = quota,
                .uid = uid,
                .charged = charged,
                .fd = fd,
        };
        worker_pool_submit(closer, &closing->job);
}
