/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The ledger in its memfd. A killed process leaves every store it has made: order among them is all that is needed. */

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "cleanup.h"
#include "ledger.h"

#define LEDGER_MAGIC UINT64_C(0x4c5a45475548) /* "HUGEZL" */

struct ledger_file {
        uint64_t magic;
        uint32_t version, n_records, record_bytes, reserved;
        uint64_t last_grant_id;
        uint64_t padding[60]; /* records begin at 512 */
        struct ledger_record records[LEDGER_MAX_RECORDS];
};

_Static_assert(sizeof(struct ledger_record) == 512, "the layout is kept: a successor reads it");
_Static_assert(offsetof(struct ledger_file, records) == 512, "the layout is kept: a successor reads it");

struct ledger {
        int fd;
        struct ledger_file *file;
        int next_slot; /* where to look for an unused record */
};

static int ledger_map(int fd, struct ledger **ret_ledger) {
        struct ledger *ledger = calloc(1, sizeof(*ledger));

        if (!ledger)
                return -ENOMEM;
        ledger->file = mmap(NULL, sizeof(struct ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (ledger->file == MAP_FAILED) {
                int r = negative_errno();
                free(ledger);
                return r;
        }
        ledger->fd = fd;
        *ret_ledger = ledger;
        return 0;
}

int ledger_new(struct ledger **ret_ledger) {
        _cleanup_close_ int fd = memfd_create("hugezero-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        int r;

        if (fd < 0 || fchmod(fd, 0600) < 0 || ftruncate(fd, sizeof(struct ledger_file)) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
                return negative_errno();
        r = ledger_map(fd, ret_ledger);
        if (r < 0)
                return r;
        (void) take_fd(&fd);
        (*ret_ledger)->file->version = LEDGER_VERSION;
        (*ret_ledger)->file->n_records = LEDGER_MAX_RECORDS;
        (*ret_ledger)->file->record_bytes = sizeof(struct ledger_record);
        atomic_thread_fence(memory_order_release);
        (*ret_ledger)->file->magic = LEDGER_MAGIC;
        return 0;
}

static bool record_is_sane(const struct ledger_record *record) {
        return record->state <= LEDGER_MEASURED && memchr(record->pool, 0, sizeof(record->pool)) &&
               memchr(record->cgroup, 0, sizeof(record->cgroup)) && record->position < (record->n_extents ? record->n_extents : 1);
}

int ledger_adopt(int fd, struct ledger **ret_ledger) {
        struct ledger *ledger;
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return negative_errno();
        if (!S_ISREG(st.st_mode) || st.st_size != sizeof(struct ledger_file))
                return -EPROTO;
        r = ledger_map(fd, &ledger);
        if (r < 0)
                return r;
        if (ledger->file->magic != LEDGER_MAGIC || ledger->file->version != LEDGER_VERSION ||
            ledger->file->n_records != LEDGER_MAX_RECORDS || ledger->file->record_bytes != sizeof(struct ledger_record)) {
                (void) munmap(ledger->file, sizeof(struct ledger_file));
                free(ledger);
                return -EPROTO;
        }
        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                if (!record_is_sane(&ledger->file->records[slot]))
                        ledger->file->records[slot] = (struct ledger_record) {.state = LEDGER_BUSY};
        *ret_ledger = ledger;
        return 0;
}

struct ledger *ledger_free(struct ledger *ledger) {
        if (!ledger)
                return NULL;
        (void) munmap(ledger->file, sizeof(struct ledger_file));
        (void) safe_close(ledger->fd);
        free(ledger);
        return NULL;
}

int ledger_fd(const struct ledger *ledger) {
        return ledger->fd;
}

uint64_t ledger_last_grant_id(const struct ledger *ledger) {
        return ledger->file->last_grant_id;
}

void ledger_set_last_grant_id(struct ledger *ledger, uint64_t grant_id) {
        ledger->file->last_grant_id = grant_id;
}

int ledger_take(struct ledger *ledger) {
        for (int i = 0; i < LEDGER_MAX_RECORDS; i++) {
                int slot = (ledger->next_slot + i) % LEDGER_MAX_RECORDS;

                if (ledger->file->records[slot].state == LEDGER_FREE) {
                        ledger->file->records[slot].state = LEDGER_BUSY;
                        ledger->next_slot = (slot + 1) % LEDGER_MAX_RECORDS;
                        return slot;
                }
        }
        return -ENOSPC;
}

void ledger_give(struct ledger *ledger, int slot) {
        assert(slot >= 0 && slot < LEDGER_MAX_RECORDS);
        ledger_set_state(ledger, slot, LEDGER_FREE);
}

void ledger_set_state(struct ledger *ledger, int slot, enum ledger_state state) {
        __atomic_store_n(&ledger->file->records[slot].state, state, __ATOMIC_RELEASE);
}

void ledger_write(struct ledger *ledger, int slot, const struct ledger_record *record) {
        struct ledger_record *target = &ledger->file->records[slot];
        uint32_t state = record->state;

        ledger_set_state(ledger, slot, LEDGER_BUSY);
        atomic_thread_fence(memory_order_seq_cst);
        memcpy((char *) target + sizeof(target->state), (const char *) record + sizeof(record->state),
               sizeof(*record) - sizeof(record->state));
        ledger_set_state(ledger, slot, state);
}

const struct ledger_record *ledger_read(const struct ledger *ledger, int slot) {
        return slot >= 0 && slot < LEDGER_MAX_RECORDS ? &ledger->file->records[slot] : NULL;
}
