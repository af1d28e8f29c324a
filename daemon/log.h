/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Messages: to the journal with fields where stderr is the journal, else lines on stderr. Any thread. */
#pragma once

#include <stdint.h>
#include <syslog.h>

void log_open(int max_level); /* LOG_ERR to LOG_DEBUG; more than that is not written */
void log_message(int level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
#define log_error(...) log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) log_message(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) log_message(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_message(LOG_DEBUG, __VA_ARGS__)

/*
 * At most @burst messages per @interval_s through one limit; the next interval's first message is preceded by "N messages like
 * the next one were left out". Loop thread only. Returns true when the message may be written.
 */
struct log_limit {
        uint64_t interval_start_ms;
        uint32_t n_written, n_dropped;
};
int log_limit_pass(struct log_limit *limit, uint32_t burst, uint32_t interval_s);
