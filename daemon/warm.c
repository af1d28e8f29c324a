/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps ledger and store in step with the pools, and takes over what a predecessor left.
 *
 * A record and an fd belong together only when device and inode agree: the ledger is written at once and the manager is told
 * later, so after a crash a name may still hold what was there before. Whatever does not match is dropped.
 */

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "broker-internal.h"
#include "cleanup.h"
#include "clock.h"
#include "parse.h"
#include "place.h"
#include "quota.h"
#include "reclaim.h"
#include "stock.h"
#include "store.h"
#include "warm.h"

#define MAX_CHARGES 256 /* chosen: records that charges may take from extents */
#define MAX_QUEUED 256  /* chosen: messages to the manager. It takes half a second for them with 2,000 extents, and most have a descriptor */
#define LOOK_AGAIN_MS 1000 /* chosen: what is filled takes the place of what was dropped within less, mostly */
#define TELL_AGAIN_MS UINT64_C(3600000) /* chosen: an hour */
#define N_OTHERS 2U /* the ledger and the inotify instance are in the store too */
#define SPARE_FDS 200 /* chosen (design): at a start with more stored fds than NOFILE allows the unit never starts again */

struct warm {
        struct ledger *ledger;
        struct store *store;
        unsigned n_stored, max_stored, n_charges;
        const char *reason; /* what allows no more than max_stored */
        int inotify_fd;     /* borrowed; to be stored, or -EBADF: it is already */
        bool is_ledger_new;
        struct extent *stored[LEDGER_MAX_RECORDS]; /* by slot */
        /* Of those that were noted as ready, else 0: searched at a hand-out, when the extents themselves would all have to be fetched. */
        uint64_t ready_bytes[LEDGER_MAX_RECORDS];
        unsigned n_ready; /* that are not 0 */
        struct event *timer;
        bool ready_left_out, held_left_out; /* some may be without a slot */
        uint64_t full_told_ms;
        bool cold_told;
};

static void name_slot(int slot, char ret_name[STORE_NAME_BYTES]) {
        static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyz";
        char text[8];
        size_t n = 0;

        do
                text[n++] = digits[slot % 36];
        while ((slot /= 36) > 0);
        *ret_name++ = 's';
        while (n > 0)
                *ret_name++ = text[--n];
        *ret_name = 0;
}

/* What the service manager says that it keeps for us. */
static unsigned n_offered(void) {
        const char *text = getenv("NOTIFY_SOCKET") ? getenv("FDSTORE") : NULL;
        uint64_t n;

        if (!text)
                return 0;
        if (parse_u64(text, &n) >= 0 && (n == 0 || n > N_OTHERS))
                return n < UINT_MAX ? (unsigned) n : UINT_MAX;
        log_warning(LOG_ID_FDSTORE_WRONG, LOG_FIELDS(LOG_TEXT("FDSTORE", text)),
                    "nothing will survive a restart: FDSTORE=\"%s\" in the environment is not how many descriptors the service manager keeps, "
                    "%u at least; make it the same number as FileDescriptorStoreMax= of the unit, or 0 for none", text, N_OTHERS + 1);
        return 0;
}

static unsigned limit_stored(const struct config *config, unsigned n_kept, const char **ret_reason) {
        unsigned max_stored = config->warm_extents < LEDGER_MAX_RECORDS ? config->warm_extents : LEDGER_MAX_RECORDS;
        struct rlimit limit = {};

        *ret_reason = "WarmExtents=";
        (void) getrlimit(RLIMIT_NOFILE, &limit);
        if (max_stored + SPARE_FDS > limit.rlim_max) {
                max_stored = limit.rlim_max > SPARE_FDS ? (unsigned) limit.rlim_max - SPARE_FDS : 0;
                *ret_reason = "LimitNOFILE= of the unit";
        }
        if (max_stored + N_OTHERS > n_kept) {
                max_stored = n_kept > N_OTHERS ? n_kept - N_OTHERS : 0;
                *ret_reason = "FileDescriptorStoreMax= of the unit and FDSTORE in its Environment=";
        }
        return max_stored;
}

/* What nothing else is of use without. In a store that is full there is room when what is of no use was taken out. */
static void store_own(struct warm *warm) {
        if (warm->max_stored > 0 && warm->is_ledger_new)
                (void) store_add(warm->store, "ledg", ledger_fd(warm->ledger));
        if (warm->max_stored > 0 && warm->inotify_fd >= 0)
                (void) store_add(warm->store, "inot", warm->inotify_fd);
}

int warm_new(struct event_base *base, const struct config *config, struct inherited *inherited, int inotify_fd,
             struct warm **ret_warm) {
        bool has_inherited = inherited->ledger_fd >= 0 || inherited->n_extents > 0 || inotify_fd < 0;
        unsigned n_kept = n_offered();
        const char *reason;
        unsigned max_stored = limit_stored(config, n_kept, &reason);
        bool could_store = n_kept > 0 && config->warm_extents > 0; /* if no other limit were in the way, which is to be said */
        struct warm *warm;
        int r = -ENOENT;

        *ret_warm = NULL;
        if (!could_store && !has_inherited)
                return 0;
        warm = calloc(1, sizeof(*warm));
        if (!warm)
                return -ENOMEM;
        warm->max_stored = max_stored;
        warm->reason = reason;
        warm->cold_told = !could_store;
        r = store_new(base, &warm->store);
        if (r < 0) {
                free(warm);
                return r;
        }
        if (inherited->ledger_fd >= 0) {
                r = ledger_adopt(inherited->ledger_fd, &warm->ledger);
                if (r >= 0)
                        (void) take_fd(&inherited->ledger_fd);
                else {
                        log_notice(LOG_ID_LEDGER_VERSION, LOG_NO_FIELDS,
                                   "the stored ledger is of another version: the pools begin cold");
                        store_remove(warm->store, "ledg", NULL, NULL);
                }
        }
        warm->inotify_fd = inotify_fd;
        if (!warm->ledger) {
                if (inherited->ledger_fd < 0 && inherited->n_extents > 0)
                        log_notice(LOG_ID_LEDGER_VERSION, LOG_NO_FIELDS,
                                   "the service manager kept %zu extents, but not the ledger that says what they are, as after its limit "
                                   "was lowered: the pools begin cold, and what clients hold of them is charged to nobody",
                                   inherited->n_extents);
                r = ledger_new(&warm->ledger);
                if (r < 0) {
                        warm_free(warm);
                        return r;
                }
                warm->is_ledger_new = true;
        }
        if (inherited->n_extents == 0)
                store_own(warm);
        *ret_warm = warm;
        return 0;
}

struct warm *warm_free(struct warm *warm) {
        if (!warm)
                return NULL;
        if (warm->timer)
                event_free(warm->timer);
        store_free(warm->store);
        ledger_free(warm->ledger);
        free(warm);
        return NULL;
}

/* Keeping the records */

static void describe_service(struct ledger_record *record, const struct service *service) {
        const char *cgroup = service ? service_cgroup(service) : NULL;

        if (!cgroup || strlen(cgroup) >= sizeof(record->cgroup))
                return; /* nobody's: it will be renewed */
        record->has_service = 1;
        record->service_uid = service_uid(service);
        memcpy(record->cgroup, cgroup, strlen(cgroup) + 1);
}

static void describe(const struct extent *extent, enum ledger_state state, struct ledger_record *ret_record) {
        const struct grant *grant = extent->grant;

        *ret_record = (struct ledger_record) {
                .state = state,
                .node = extent->node_pool->node,
                .page_size_bytes = extent->file.page_size_bytes,
                .bytes = extent->file.bytes,
                .dev = extent->file.dev,
                .ino = extent->file.ino,
                .wd = extent->wd,
                .sealed = extent->sealed,
                .reopenable = extent->reopenable,
                .foreign_open = extent->foreign_open,
                .doubt = extent->doubt,
                .returned_ms = extent->returned_ms,
                .uid = extent->extra_uid,
        };
        memcpy(ret_record->pool, extent->node_pool->pool->name, sizeof(ret_record->pool));
        if (grant) {
                ret_record->grant_id = grant->id;
                ret_record->created_ms = grant->created_ms;
                ret_record->uid = grant->uid;
                ret_record->pid = (uint32_t) grant->pid;
                ret_record->n_extents = grant->n_extents;
                ret_record->position = extent->position;
                ret_record->item = grant->extents[extent->position].item;
        }
        describe_service(ret_record, grant ? grant->service : extent->service);
}

static void note_ready(struct warm *warm, int slot, uint64_t bytes) {
        warm->n_ready += bytes > 0;
        warm->n_ready -= warm->ready_bytes[slot] > 0;
        warm->ready_bytes[slot] = bytes;
}

/* What has memory of clients is charged to them by it: forgotten, it would be neither theirs nor the pool's. */
static bool is_held(const struct extent *extent) {
        return extent->grant || extent->extra_bytes > 0;
}

/* Being audited it stays what it is. One that is claimed is about to be somebody's. */
static bool is_spare(const struct extent *extent) {
        return extent->state == EXTENT_READY || extent->state == EXTENT_AUDITING;
}

/* The largest extents are worth most: they are what takes longest to fill. */
static struct extent *find_smaller_ready(const struct warm *warm, uint64_t bytes) {
        struct extent *smallest = NULL;

        for (int slot = 0; warm->n_ready > 0 && slot < LEDGER_MAX_RECORDS; slot++)
                if (warm->ready_bytes[slot] > 0 && warm->ready_bytes[slot] < bytes && is_spare(warm->stored[slot])) {
                        smallest = warm->stored[slot];
                        bytes = warm->ready_bytes[slot];
                }
        return smallest;
}

static bool is_full(const struct warm *warm) {
        return warm->n_stored >= warm->max_stored || warm->n_stored + warm->n_charges >= LEDGER_MAX_RECORDS;
}

/* Those who were left out may have a chance now. */
static void look_again(struct warm *warm) {
        bool has_room = !is_full(warm);

        if (warm->timer && ((has_room && warm->ready_left_out) || ((has_room || warm->n_ready > 0) && warm->held_left_out)) &&
            !evtimer_pending(warm->timer, NULL))
                broker_timer_set(warm->timer, LOOK_AGAIN_MS);
}

static void give_slot(struct warm *warm, struct extent *extent, void (*done)(void *userdata), void *userdata) {
        char name[STORE_NAME_BYTES];
        int slot = extent->slot;

        name_slot(slot, name);
        extent->slot = -1;
        note_ready(warm, slot, 0);
        warm->stored[slot] = NULL;
        warm->n_stored--;
        ledger_give(warm->ledger, slot);
        store_remove(warm->store, name, done, userdata);
}

/* Who takes memory and gives it back without a pause shall not make the manager's queue grow: that is caught up with later. */
static bool make_room(struct warm *warm, const struct extent *extent, bool held) {
        struct extent *smaller;

        if (!is_full(warm))
                return true;
        if (warm->n_stored > warm->max_stored || (held && store_n_queued(warm->store) >= MAX_QUEUED))
                return false;
        smaller = find_smaller_ready(warm, held ? UINT64_MAX : extent->bytes);
        if (!smaller)
                return false;
        give_slot(warm, smaller, NULL, NULL);
        warm->ready_left_out = true;
        return true;
}

static int take_slot(struct warm *warm, struct extent *extent, bool held) {
        char name[STORE_NAME_BYTES];
        int slot, r;

        if (!make_room(warm, extent, held))
                return -ENOSPC;
        slot = ledger_take(warm->ledger);
        if (slot < 0)
                return slot;
        name_slot(slot, name);
        r = store_add(warm->store, name, extent->file.fd);
        if (r < 0) {
                ledger_give(warm->ledger, slot);
                return r;
        }
        extent->slot = slot;
        warm->stored[slot] = extent;
        warm->n_stored++;
        return 0;
}

/* What is on its way out gets no slot any more, nor does what is asked about pins for the first time: mostly there are none. */
static bool deserves_slot(const struct extent *extent, enum ledger_state state) {
        return state == LEDGER_READY || state == LEDGER_GRANTED || (state == LEDGER_PINNED && extent->state == EXTENT_PINNED);
}

/* Not for each of them: it may go on for days. */
static void tell_full(struct warm *warm) {
        uint64_t now_ms = clock_ms();

        if (warm->full_told_ms > 0 && now_ms - warm->full_told_ms < TELL_AGAIN_MS)
                return;
        warm->full_told_ms = now_ms;
        log_warning(LOG_ID_HELD_NOT_STORED, LOG_FIELDS(LOG_NUMBER("LIMIT", warm->max_stored), LOG_TEXT("REASON", warm->reason)),
                    "clients hold more extents than the %u that survive the daemon: a restart will forget the others, whose memory is "
                    "charged to nobody then; let it keep more: %s", warm->max_stored, warm->reason);
}

static void leave_out(struct warm *warm, bool held) {
        if (held && warm->max_stored > 0 && is_full(warm) && warm->n_ready == 0)
                tell_full(warm);
        *(held ? &warm->held_left_out : &warm->ready_left_out) = true;
        look_again(warm);
}

void warm_note(struct warm *warm, struct extent *extent, enum ledger_state state) {
        bool held = state != LEDGER_READY;
        struct ledger_record record;

        if (!warm || (extent->slot < 0 && !deserves_slot(extent, state)))
                return;
        if (extent->slot < 0 && take_slot(warm, extent, held) < 0) {
                leave_out(warm, held);
                return;
        }
        describe(extent, state, &record);
        ledger_write(warm->ledger, extent->slot, &record);
        note_ready(warm, extent->slot, held ? 0 : extent->bytes);
        if (!held)
                look_again(warm);
}

void warm_note_busy(struct warm *warm, struct extent *extent) {
        if (!warm || extent->slot < 0)
                return;
        ledger_set_state(warm->ledger, extent->slot, LEDGER_BUSY);
        note_ready(warm, extent->slot, 0);
}

void warm_note_measured(struct warm *warm, struct extent *extent, bool begins) {
        enum ledger_state from = begins ? LEDGER_READY : LEDGER_MEASURED, to = begins ? LEDGER_MEASURED : LEDGER_READY;

        if (warm && extent->slot >= 0 && ledger_read(warm->ledger, extent->slot)->state == from)
                ledger_set_state(warm->ledger, extent->slot, to);
}

int warm_note_charge(struct warm *warm, const struct extent *extent, const struct lingering_charge *charge) {
        struct ledger_record record;
        struct extent *ready;
        int slot;

        if (!warm || warm->n_charges >= MAX_CHARGES)
                return -ENOSPC;
        if (warm->n_stored + warm->n_charges >= LEDGER_MAX_RECORDS && (ready = find_smaller_ready(warm, UINT64_MAX))) {
                give_slot(warm, ready, NULL, NULL);
                warm->ready_left_out = true;
        }
        slot = ledger_take(warm->ledger);
        if (slot < 0)
                return slot;
        describe(extent, LEDGER_CHARGE, &record);
        record.uid = charge->uid;
        record.bytes = charge->bytes;
        record.wd = charge->wd;
        record.has_service = 0;
        describe_service(&record, charge->service);
        ledger_write(warm->ledger, slot, &record);
        warm->n_charges++;
        return slot;
}

void warm_change_charge(struct warm *warm, int slot, uint64_t bytes) {
        struct ledger_record record;

        if (!warm || slot < 0)
                return;
        record = *ledger_read(warm->ledger, slot);
        record.bytes = bytes;
        ledger_write(warm->ledger, slot, &record);
}

void warm_move_charge(struct warm *warm, int slot, const struct service *service) {
        struct ledger_record record;

        if (!warm || slot < 0)
                return;
        record = *ledger_read(warm->ledger, slot);
        record.has_service = 0;
        describe_service(&record, service);
        ledger_write(warm->ledger, slot, &record);
}

void warm_forget_charge(struct warm *warm, int slot) {
        if (slot < 0)
                return;
        ledger_give(warm->ledger, slot);
        warm->n_charges--;
}

void warm_note_grant_id(struct warm *warm, uint64_t grant_id) {
        if (warm)
                ledger_set_last_grant_id(warm->ledger, grant_id);
}

int warm_remove(struct warm *warm, struct extent *extent, void (*done)(void *userdata), void *userdata) {
        if (!warm || extent->slot < 0)
                return 0;
        give_slot(warm, extent, done, userdata);
        look_again(warm);
        return 1;
}

/* What is ready and stored; nothing of what is claimed. */
static uint64_t stored_ready_bytes(const struct warm *warm) {
        uint64_t bytes = 0;

        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                if (warm->ready_bytes[slot] > 0 && is_spare(warm->stored[slot]))
                        bytes += warm->ready_bytes[slot];
        return bytes;
}

void warm_tell_cold(struct broker *broker) {
        char ready[FORMAT_SIZE_BYTES], cold[FORMAT_SIZE_BYTES];
        struct warm *warm = broker->warm;
        uint64_t ready_bytes = 0, cold_bytes;

        if (!warm || warm->cold_told || !warm->ready_left_out)
                return;
        BROKER_FOREACH_NODE_POOL(broker, np)
                ready_bytes += pool_ready_bytes(np);
        cold_bytes = ready_bytes - stored_ready_bytes(warm);
        if (cold_bytes == 0)
                return;
        warm->cold_told = true;
        log_notice(LOG_ID_COLD,
                   LOG_FIELDS(LOG_NUMBER("READY_BYTES", ready_bytes), LOG_NUMBER("COLD_BYTES", cold_bytes),
                              LOG_NUMBER("LIMIT", warm->max_stored), LOG_TEXT("REASON", warm->reason)),
                   "of %s that are ready %s will not survive a restart of the daemon: no more than %u extents may be kept, which is "
                   "what %s allows", format_size(ready_bytes, ready), format_size(cold_bytes, cold), warm->max_stored, warm->reason);
}

/* Slots that have become free: first for what is held, then for the largest of what is ready. */

static void store_held(struct broker *broker) {
        struct warm *warm = broker->warm;
        struct extent *extent;

        warm->held_left_out = false;
        BROKER_FOREACH_NODE_POOL(broker, np) {
                TAILQ_FOREACH(extent, &np->extents[EXTENT_GRANTED], link)
                        if (extent->slot < 0 && !warm->held_left_out)
                                warm_note(warm, extent, LEDGER_GRANTED);
                TAILQ_FOREACH(extent, &np->extents[EXTENT_PINNED], link)
                        if (extent->slot < 0 && !warm->held_left_out && is_held(extent))
                                warm_note(warm, extent, LEDGER_PINNED);
        }
}

static int compare_sizes(const void *a, const void *b) {
        const struct extent *first = *(struct extent *const *) a, *second = *(struct extent *const *) b;

        return (first->bytes < second->bytes) - (first->bytes > second->bytes);
}

static void store_ready(struct broker *broker) {
        struct warm *warm = broker->warm;
        size_t n = 0, n_ready = 0;
        struct shelf *shelf;
        struct extent *extent;

        BROKER_FOREACH_NODE_POOL(broker, np)
                n_ready += np->n_extents[EXTENT_READY];
        _cleanup_free_ struct extent **extents = n_ready > 0 ? malloc(n_ready * sizeof(struct extent *)) : NULL;
        if (!extents)
                return;
        warm->ready_left_out = false;
        BROKER_FOREACH_NODE_POOL(broker, np) {
                TAILQ_FOREACH(extent, &np->extents[EXTENT_AUDITING], link) /* methods may be measured on it: not now */
                        warm->ready_left_out |= extent->slot < 0;
                TAILQ_FOREACH(shelf, &np->shelves, link)
                        TAILQ_FOREACH(extent, &shelf->extents, link)
                                if (extent->slot < 0)
                                        extents[n++] = extent;
        }
        qsort(extents, n, sizeof(extents[0]), compare_sizes);
        for (size_t i = 0; i < n; i++)
                if (!is_full(warm))
                        warm_note(warm, extents[i], LEDGER_READY);
                else
                        warm->ready_left_out = true;
}

static void on_timer(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        if (broker->stopping)
                return;
        if (broker->warm->held_left_out)
                store_held(broker);
        if (broker->warm->ready_left_out)
                store_ready(broker);
        look_again(broker->warm);
}

/* Taking over */

static bool is_described_by(int fd, const struct ledger_record *record) {
        struct stat st;

        return fstat(fd, &st) >= 0 && st.st_dev == record->dev && st.st_ino == record->ino && record->bytes > 0 &&
               record->page_size_bytes > 0 && (uint64_t) st.st_blksize == record->page_size_bytes &&
               record->bytes % record->page_size_bytes == 0;
}

static struct node_pool *find_place(struct broker *broker, const struct ledger_record *record, bool elsewhere) {
        struct node_pool *np;

        if (!elsewhere)
                return place_find(broker, record);
        switch (record->state) {
        case LEDGER_READY:
        case LEDGER_MEASURED:
        case LEDGER_RETURNED:
                return place_find_other(broker, record);
        case LEDGER_GRANTED:
        case LEDGER_PINNED:
                return place_make(broker, record, &np) < 0 ? NULL : np;
        default:
                return NULL;
        }
}

static bool is_known(const struct warm *warm, const struct inherited_extent *from) {
        const struct ledger_record *record = ledger_read(warm->ledger, from->slot);

        return from->fd >= 0 && !warm->stored[from->slot] && record->state != LEDGER_FREE && record->state != LEDGER_BUSY &&
               is_described_by(from->fd, record);
}

/* The next one shall not look for it where it was before. */
static void move_record(struct warm *warm, int slot, const struct pool *pool) {
        struct ledger_record record = *ledger_read(warm->ledger, slot);

        memcpy(record.pool, pool->name, sizeof(record.pool));
        ledger_write(warm->ledger, slot, &record);
}

static struct extent *adopt_one(struct broker *broker, struct inherited_extent *from, bool elsewhere, bool have_events) {
        const struct ledger_record *record = ledger_read(broker->warm->ledger, from->slot);
        struct node_pool *np = is_known(broker->warm, from) ? find_place(broker, record, elsewhere) : NULL;
        struct extent *extent;

        if (!np || pool_add(np, EXTENT_CLAIMED, record->bytes, &extent) < 0)
                return NULL;
        if (elsewhere)
                move_record(broker->warm, from->slot, np->pool);
        extent->file = (struct extent_file) {.fd = take_fd(&from->fd), .page_size_bytes = record->page_size_bytes,
                                             .bytes = record->bytes, .dev = record->dev, .ino = record->ino};
        extent->slot = from->slot;
        extent->sealed = record->sealed;
        extent->reopenable = record->reopenable;
        extent->foreign_open = record->foreign_open;
        extent->doubt = record->doubt;
        extent->returned_ms = record->returned_ms;
        if (record->has_service)
                (void) service_get(record->service_uid, record->cgroup, &extent->service);
        broker->warm->stored[from->slot] = extent;
        broker->warm->n_stored++;
        if (have_events && record->wd > 0 && reclaim_adopt_watch(broker->reclaim, record->wd, extent) >= 0)
                extent->wd = record->wd;
        else /* what happened meanwhile was not seen */
                extent->doubt = true;
        return extent;
}

static struct grant *adopt_grant(struct broker *broker, const struct ledger_record *record, struct service *service) {
        struct identity identity = {.uid = record->uid, .pid = (pid_t) record->pid};
        struct grant *grant = grant_find(broker, record->grant_id);

        if (grant)
                return grant;
        if (grant_adopt(broker, &identity, service, record->grant_id, record->n_extents, &grant) < 0)
                return NULL;
        grant->created_ms = record->created_ms;
        return grant;
}

static bool is_ready(const struct ledger_record *record) {
        return record->state == LEDGER_READY || record->state == LEDGER_MEASURED;
}

static void place_one(struct broker *broker, struct extent *extent) {
        const struct ledger_record record = *ledger_read(broker->warm->ledger, extent->slot);
        struct grant *grant;

        switch (record.state) {
        case LEDGER_READY:
        case LEDGER_MEASURED:
                if (extent->foreign_open || extent->doubt ||
                    stock_adopt(broker->stock, extent, record.state == LEDGER_MEASURED) < 0 ||
                    stock_make_ready(broker->stock, extent) < 0)
                        returns_drop(broker, extent, /* test_pins= */ false);
                break;
        case LEDGER_GRANTED:
                grant = adopt_grant(broker, &record, extent->service);
                if (!grant || grant->n_extents != record.n_extents || grant->extents[record.position].extent ||
                    quota_charge_memory_anyway(broker->quota, record.uid, QUOTA_BYTES, extent->node_pool->pool->page_size_bytes,
                                               extent->bytes) < 0) {
                        returns_drop(broker, extent, /* test_pins= */ false);
                        break;
                }
                pool_move(extent, EXTENT_GRANTED);
                grant_set(grant, record.position, extent, record.item);
                break;
        case LEDGER_RETURNED:
                returns_resume(broker, extent);
                break;
        case LEDGER_PINNED:
                returns_resume_pinned(broker, extent, record.uid);
                break;
        default:
                returns_drop(broker, extent, /* test_pins= */ false);
        }
}

/* A predecessor that died on its way from the one to the other left both: the extent has the charge then. */
static bool is_stored(const struct warm *warm, const struct ledger_record *record) {
        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                if (warm->stored[slot] && warm->stored[slot]->file.ino == record->ino &&
                    warm->stored[slot]->file.dev == record->dev)
                        return true;
        return false;
}

static bool adopt_charge(struct broker *broker, int slot, bool have_events) {
        const struct ledger_record *record = ledger_read(broker->warm->ledger, slot);
        struct service *service = NULL;
        int r;

        if (record->state != LEDGER_CHARGE || is_stored(broker->warm, record))
                return false;
        if (record->has_service)
                (void) service_get(record->service_uid, record->cgroup, &service);
        r = charges_adopt(broker, record, have_events ? record->wd : 0, service, slot);
        service_unref(service);
        if (r >= 0)
                broker->warm->n_charges++;
        return r >= 0;
}

static void adopt_charges(struct broker *broker, bool have_events) {
        struct warm *warm = broker->warm;

        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                if (!warm->stored[slot] && ledger_read(warm->ledger, slot)->state != LEDGER_FREE &&
                    !adopt_charge(broker, slot, have_events))
                        ledger_give(warm->ledger, slot); /* nothing came with it, or what did not match */
}

/* What is lost first: what nobody holds, of that the smallest. */
static struct extent *find_least_worth(const struct warm *warm) {
        struct extent *least = NULL;

        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++) {
                struct extent *extent = warm->stored[slot];

                if (!extent || extent->state == EXTENT_DROPPING) /* leaves the store by itself */
                        continue;
                if (!least || (!is_held(extent) && is_held(least)) ||
                    (is_held(extent) == is_held(least) && extent->bytes < least->bytes))
                        least = extent;
        }
        return least;
}

/* The predecessor may have been allowed to store more. What is taken out of the store stays known to this daemon. */
static void meet_limit(struct warm *warm) {
        struct extent *extent;
        unsigned n_taken_out = 0;

        while (warm->n_stored > warm->max_stored && (extent = find_least_worth(warm))) {
                give_slot(warm, extent, NULL, NULL);
                *(is_held(extent) ? &warm->held_left_out : &warm->ready_left_out) = true;
                n_taken_out++;
        }
        if (warm->max_stored == 0) {
                store_remove(warm->store, "ledg", NULL, NULL);
                store_remove(warm->store, "inot", NULL, NULL);
        }
        if (n_taken_out > 0)
                log_notice(LOG_ID_NOT_STORED,
                           LOG_FIELDS(LOG_NUMBER("EXTENTS", n_taken_out), LOG_NUMBER("LIMIT", warm->max_stored)),
                           "extents of the daemon before that will not survive another restart: %u; WarmExtents=, the limit of open files "
                           "and the service manager's allow %u", n_taken_out, warm->max_stored);
}

/* After the extents: who asked for what was given up is known from the grant. */
static void adopt_given_up(struct broker *broker, struct lingering_charge *charge) {
        const struct ledger_record *record = charge->slot >= 0 ? ledger_read(broker->warm->ledger, charge->slot) : NULL;
        struct grant *grant;

        if (!record || charge->wd <= 0 || record->grant_id == 0 || record->position >= record->n_extents ||
            record->page_size_bytes == 0)
                return;
        grant = adopt_grant(broker, record, charge->service);
        if (!grant || grant->n_extents != record->n_extents)
                return;
        charge->position = record->position;
        memcpy(charge->pool, record->pool, sizeof(charge->pool));
        (void) grant_adopt_given_up(grant, &(struct grant_extent) {
                .bytes = record->bytes, .dev = record->dev, .ino = record->ino, .item = (uint8_t) record->item,
                .page_shift = (uint8_t) __builtin_ctzll(record->page_size_bytes), .node = (int16_t) record->node}, charge);
}

static void give_up(struct warm *warm, struct inherited_extent *from) {
        char name[STORE_NAME_BYTES];

        from->fd = safe_close(from->fd);
        name_slot(from->slot, name);
        if (!warm->stored[from->slot])
                store_remove(warm->store, name, NULL, NULL);
}

/* First what is in its pool as before: what the others lack is known then. */
static unsigned adopt_all(struct broker *broker, struct inherited *inherited, bool have_events) {
        unsigned n_as_before = 0, n_elsewhere = 0, n_given_up = 0;

        for (size_t i = 0; i < inherited->n_extents; i++)
                n_as_before += adopt_one(broker, &inherited->extents[i], /* elsewhere= */ false, have_events) != NULL;
        for (size_t i = 0; i < inherited->n_extents; i++) {
                struct inherited_extent *from = &inherited->extents[i];

                if (from->fd < 0)
                        continue;
                if (adopt_one(broker, from, /* elsewhere= */ true, have_events))
                        n_elsewhere++;
                else {
                        n_given_up += is_known(broker->warm, from);
                        give_up(broker->warm, from);
                }
        }
        if (n_elsewhere + n_given_up > 0)
                log_notice(LOG_ID_POOLS_CHANGED,
                           LOG_FIELDS(LOG_NUMBER("EXTENTS", n_elsewhere), LOG_NUMBER("GIVEN_UP", n_given_up)),
                           "pools have changed since the daemon before; of its extents are in other pools now, or in one that is gone: %u, "
                           "of use to none and back with the kernel: %u", n_elsewhere, n_given_up);
        return n_as_before + n_elsewhere;
}

unsigned warm_adopt(struct broker *broker, struct inherited *inherited, bool have_events) {
        struct warm *warm = broker->warm;
        struct lingering_charge *charge;
        unsigned n_adopted;

        if (!warm)
                return 0;
        (void) broker_timer_new(broker, on_timer, &warm->timer); /* without it what is left out once is left out */
        n_adopted = adopt_all(broker, inherited, have_events);
        if (inherited->n_extents > 0)
                store_own(warm);
        adopt_charges(broker, have_events);
        broker->last_grant_id = ledger_last_grant_id(warm->ledger);
        /* Ready ones last: opening descriptions for them reads the event queue, which must find the granted ones in their place. */
        for (int ready = 0; ready <= 1; ready++)
                for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                        if (warm->stored[slot] && is_ready(ledger_read(warm->ledger, slot)) == ready)
                                place_one(broker, warm->stored[slot]);
        TAILQ_FOREACH(charge, &broker->lingering, link)
                adopt_given_up(broker, charge);
        returns_catch_up(broker);
        meet_limit(warm);
        return n_adopted;
}
