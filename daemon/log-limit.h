/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* How many messages of a kind are written. What was left out is said when their interval is over. Loop thread only. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum log_limit {
        LOG_LIMIT_BREACHES, /* these four have a budget for each user: nobody hides what another one does */
        LOG_LIMIT_REFUSALS,
        LOG_LIMIT_DOUBTS,
        LOG_LIMIT_ORDERS,
        LOG_LIMIT_RELOADS,
        LOG_LIMIT_RELOAD_FAILURES, /* not hidden by what went well */
        LOG_LIMIT_SHORTAGES,
        LOG_LIMIT_EVENTS,
        LOG_LIMIT_JOBS,
        LOG_LIMIT_FILES,
        LOG_LIMIT_IN_FLIGHT,
        LOG_LIMIT_ACCEPTING,
        _LOG_LIMIT_MAX,
};

#define LOG_NO_USER ((uid_t) -1) /* of nobody in particular: all such messages share one budget */

/* True when the message may be written, else it is counted. @uid: whom it is about, or LOG_NO_USER. */
bool log_limit_pass(enum log_limit limit, uid_t uid);
/* Says what was left out in intervals that are over; to be called now and then. */
void log_limit_sweep(void);
/* Says all that was left out, and forgets everything; before the end. */
void log_limit_end(void);
