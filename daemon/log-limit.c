/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "log-limit.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "clock.h"
#include "log.h"

#define MINUTE_MS UINT64_C(60000)
#define N_SLOTS 32 /* chosen: users who cause messages within an interval; those beyond them share one budget */

static const struct {
        const char *about;
        uint32_t burst;
        uint64_t interval_ms;
        bool is_state; /* how often it was found to last says nothing */
} kinds[_LOG_LIMIT_MAX] = {
        /* All chosen. One line tells of a client that misbehaves; several, that it goes on. */
        [LOG_LIMIT_BREACHES] = {"about clients that were cut off", 5, MINUTE_MS},
        [LOG_LIMIT_REFUSALS] = {"about connections that were refused", 5, MINUTE_MS},
        [LOG_LIMIT_DOUBTS] = {"about memory that was given up", 10, MINUTE_MS},
        [LOG_LIMIT_ORDERS] = {"about orders of administrators", 60, MINUTE_MS}, /* who may give them in a loop */
        [LOG_LIMIT_RELOADS] = {"about reloads of the configuration", 20, MINUTE_MS},
        [LOG_LIMIT_RELOAD_FAILURES] = {"about reloads that failed", 20, MINUTE_MS},
        [LOG_LIMIT_SHORTAGES] = {"about pools that are short of pages", 60, MINUTE_MS, .is_state = true},
        [LOG_LIMIT_EVENTS] = {"about events that were lost", 1, MINUTE_MS},
        [LOG_LIMIT_JOBS] = {"about memory that could not be made ready or kept", 10, MINUTE_MS},
        [LOG_LIMIT_FILES] = {"about the limit of open files", 1, 60 * MINUTE_MS, .is_state = true},
        [LOG_LIMIT_IN_FLIGHT] = {"about descriptors in flight", 1, MINUTE_MS},
        [LOG_LIMIT_ACCEPTING] = {"about connections that could not be accepted", 1, MINUTE_MS},
};

struct slot {
        uint64_t start_ms; /* 0: not in use */
        uint32_t n_written, n_left_out;
        enum log_limit limit;
        uid_t uid;
};

static struct slot slots[N_SLOTS], rest[_LOG_LIMIT_MAX]; /* of each user, and of all others */

static bool is_over(const struct slot *slot, uint64_t now_ms) {
        return now_ms - slot->start_ms >= kinds[slot->limit].interval_ms;
}

static void end_slot(struct slot *slot) {
        bool is_user = slot->uid != LOG_NO_USER;
        char user[32] = "";

        if (is_user)
                (void) snprintf(user, sizeof(user), ", of uid %u", (unsigned) slot->uid);
        if (slot->n_left_out > 0)
                log_notice(LOG_ID_LEFT_OUT,
                           LOG_FIELDS(LOG_NUMBER("MESSAGES", slot->n_left_out),
                                      LOG_NUMBER("UID", is_user ? (int64_t) slot->uid : -1)),
                           "left out: %" PRIu32 " more %s%s", slot->n_left_out, kinds[slot->limit].about, user);
        *slot = (struct slot){};
}

static void end_slots(bool (*is_due)(const struct slot *slot, uint64_t now_ms), uint64_t now_ms) {
        for (struct slot *slot = slots; slot < slots + N_SLOTS; slot++)
                if (slot->start_ms > 0 && is_due(slot, now_ms))
                        end_slot(slot);
        for (struct slot *slot = rest; slot < rest + _LOG_LIMIT_MAX; slot++)
                if (slot->start_ms > 0 && is_due(slot, now_ms))
                        end_slot(slot);
}

static struct slot *find_slot(enum log_limit limit, uid_t uid) {
        struct slot *unused = NULL;

        for (struct slot *slot = slots; uid != LOG_NO_USER && slot < slots + N_SLOTS; slot++)
                if (slot->start_ms == 0)
                        unused = slot;
                else if (slot->limit == limit && slot->uid == uid)
                        return slot;
        if (!unused) {
                unused = &rest[limit];
                uid = LOG_NO_USER;
        }
        unused->limit = limit;
        unused->uid = uid;
        return unused;
}

bool log_limit_pass(enum log_limit limit, uid_t uid) {
        uint64_t now_ms = clock_ms();
        struct slot *slot;

        end_slots(is_over, now_ms);
        slot = find_slot(limit, uid);
        if (slot->start_ms == 0)
                slot->start_ms = now_ms;
        if (slot->n_written < kinds[limit].burst) {
                slot->n_written++;
                return true;
        }
        if (slot->n_left_out < UINT32_MAX && !kinds[limit].is_state)
                slot->n_left_out++;
        return false;
}

void log_limit_sweep(void) {
        end_slots(is_over, clock_ms());
}

static bool always(const struct slot *slot, uint64_t now_ms) {
        (void) slot;
        (void) now_ms;
        return true;
}

void log_limit_end(void) {
        end_slots(always, 0);
}
