/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The ledger: what every warm extent is, in a shared memfd that outlives the daemon in the service manager's fd store. It is
 * written before a change takes effect outside, so that whatever instant the daemon dies at, its successor knows what may be
 * zero, what is somebody's, and what is neither. Loop thread only. No sockets, no extents here.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define LEDGER_VERSION 1
#define LEDGER_MAX_RECORDS 2000   /* PID 1 compares each new fd with all stored ones: 3,000 take 4.2 s (measured) */
#define LEDGER_CGROUP_BYTES 368   /* chosen: makes a record 512 bytes. Longer paths are not kept: such memory is renewed */

enum ledger_state {
        LEDGER_FREE = 0,     /* the record is unused */
        LEDGER_BUSY = 1,     /* being filled, cut, grown or dropped: its content is uncertain */
        LEDGER_READY = 2,    /* zero, and nobody has it */
        LEDGER_GRANTED = 3,  /* handed out, or about to be */
        LEDGER_RETURNED = 4, /* nobody holds it and nobody reopened it, but it is not cleared yet */
        LEDGER_PINNED = 5,   /* given up by everybody, but pages are in use: to be dropped once they are not */
        LEDGER_CHARGE = 6,   /* no memory of ours: a file that was given up, and somebody is charged for */
        LEDGER_MEASURED = 7, /* nobody has it, and it is zero but for its start: methods are measured there */
};

struct ledger_record {
        uint32_t state; /* enum ledger_state; written last */
        int32_t node;
        uint64_t page_size_bytes, bytes, dev, ino;
        int32_t wd; /* in the inotify instance that is stored beside the ledger */
        uint32_t position, n_extents; /* in its grant */
        uint8_t sealed, reopenable, foreign_open, doubt;
        uint64_t grant_id, created_ms, returned_ms; /* CLOCK_MONOTONIC: the store does not outlive the boot */
        uint32_t uid, pid;
        uint32_t item, has_service, service_uid, reserved;
        char pool[32];
        char cgroup[LEDGER_CGROUP_BYTES];
        uint64_t padding;
};

struct ledger;

/* A new ledger, empty, in a memfd of its own. */
int ledger_new(struct ledger **ret_ledger);
/*
 * Takes over what a predecessor left. @fd is owned by the ledger on success. -EPROTO: of another version or no ledger at all:
 * what belongs to it is to be dropped.
 */
int ledger_adopt(int fd, struct ledger **ret_ledger);
struct ledger *ledger_free(struct ledger *ledger);
int ledger_fd(const struct ledger *ledger);

uint64_t ledger_last_grant_id(const struct ledger *ledger);
void ledger_set_last_grant_id(struct ledger *ledger, uint64_t grant_id);

/* An unused record, marked BUSY; negative when all are used. */
int ledger_take(struct ledger *ledger);
void ledger_give(struct ledger *ledger, int slot);
/* The state is uncertain while the other fields change, and becomes what @record says when they all have. */
void ledger_write(struct ledger *ledger, int slot, const struct ledger_record *record);
void ledger_set_state(struct ledger *ledger, int slot, enum ledger_state state);
const struct ledger_record *ledger_read(const struct ledger *ledger, int slot); /* NULL: no such slot */
