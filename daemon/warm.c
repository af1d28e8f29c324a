/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Keeps ledger and store in step with the pools, and takes over what a predecessor left.
 *
 * A record and an fd belong together only when device and inode agree: the ledger is written at once and the manager is told
 * later, so after a crash a name may still hold what was there before. Whatever does not match is dropped.
 */

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "broker-internal.h"
#include "cleanup.h"
#include "quota.h"
#include "reclaim.h"
#include "stock.h"
#include "store.h"
#include "warm.h"

#define MAX_CHARGES 256 /* chosen: records that charges may take from extents */
#define SPARE_FDS 200 /* chosen (design): at a start with more stored fds than NOFILE allows the unit never starts again */

struct warm {
        struct ledger *ledger;
        struct store *store;
        unsigned n_stored, max_stored, n_charges;
        uint64_t none_below_bytes; /* nothing to evict was found for this size: not searched again until a slot is given up */
        struct extent *stored[LEDGER_MAX_RECORDS]; /* by slot */
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

static unsigned limit_stored(const struct config *config) {
        const char *offered = getenv("FDSTORE");
        unsigned max_stored = config->warm_extents < LEDGER_MAX_RECORDS ? config->warm_extents : LEDGER_MAX_RECORDS;
        unsigned n_offered = offered ? (unsigned) atoi(offered) : 0;
        struct rlimit limit = {};

        (void) getrlimit(RLIMIT_NOFILE, &limit);
        if (max_stored + SPARE_FDS > limit.rlim_max)
                max_stored = limit.rlim_max > SPARE_FDS ? (unsigned) limit.rlim_max - SPARE_FDS : 0;
        if (max_stored + 2 > n_offered) /* the ledger and the inotify instance are there too */
                max_stored = n_offered > 2 ? n_offered - 2 : 0;
        return max_stored;
}

int warm_new(struct event_base *base, const struct config *config, struct inherited *inherited, int inotify_fd,
             struct warm **ret_warm) {
        struct warm *warm;
        int r = -ENOENT;

        *ret_warm = NULL;
        if (config->warm_extents == 0 || !store_is_offered())
                return 0;
        warm = calloc(1, sizeof(*warm));
        if (!warm)
                return -ENOMEM;
        warm->max_stored = limit_stored(config);
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
        if (!warm->ledger) {
                r = ledger_new(&warm->ledger);
                if (r < 0) {
                        warm_free(warm);
                        return r;
                }
                (void) store_add(warm->store, "ledg", ledger_fd(warm->ledger));
        }
        if (inotify_fd >= 0)
                (void) store_add(warm->store, "inot", inotify_fd);
        *ret_warm = warm;
        return 0;
}

struct warm *warm_free(struct warm *warm) {
        if (!warm)
                return NULL;
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

/* The largest extents are worth most: they are what takes longest to fill. */
static struct extent *find_smaller_ready(const struct warm *warm, uint64_t bytes) {
        struct extent *smallest = NULL;

        for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++) {
                struct extent *extent = warm->stored[slot];

                if (extent && extent->state == EXTENT_READY && extent->bytes < bytes &&
                    (!smallest || extent->bytes < smallest->bytes))
                        smallest = extent;
        }
        return smallest;
}

static void give_slot(struct warm *warm, struct extent *extent, void (*done)(void *userdata), void *userdata) {
        char name[STORE_NAME_BYTES];
        int slot = extent->slot;

        name_slot(slot, name);
        extent->slot = -1;
        warm->stored[slot] = NULL;
        warm->n_stored--;
        warm->none_below_bytes = 0;
        ledger_give(warm->ledger, slot);
        store_remove(warm->store, name, done, userdata);
}

static int take_slot(struct warm *warm, struct extent *extent) {
        char name[STORE_NAME_BYTES];
        int slot, r;

        if (warm->n_stored >= warm->max_stored) {
                struct extent *smaller = NULL;

                if (extent->bytes > warm->none_below_bytes)
                        smaller = find_smaller_ready(warm, extent->bytes);
                if (!smaller) {
                        if (extent->bytes > warm->none_below_bytes)
                                warm->none_below_bytes = extent->bytes;
                        return -ENOSPC;
                }
                give_slot(warm, smaller, NULL, NULL);
        }
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

void warm_note(struct warm *warm, struct extent *extent, enum ledger_state state) {
        struct ledger_record record;

        if (!warm || (extent->slot < 0 && (state == LEDGER_RETURNED || state == LEDGER_PINNED || take_slot(warm, extent) < 0)))
                return;
        describe(extent, state, &record);
        ledger_write(warm->ledger, extent->slot, &record);
}

void warm_note_busy(struct warm *warm, struct extent *extent) {
        if (warm && extent->slot >= 0)
                ledger_set_state(warm->ledger, extent->slot, LEDGER_BUSY);
}

int warm_note_charge(struct warm *warm, const struct extent *extent, const struct lingering_charge *charge) {
        struct ledger_record record;
        int slot;

        if (!warm || warm->n_charges >= MAX_CHARGES)
                return -ENOSPC;
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
        return 1;
}

/* Taking over */

static struct node_pool *find_place(const struct broker *broker, const struct ledger_record *record) {
        BROKER_FOREACH_NODE_POOL(broker, np)
                if (strcmp(np->pool->name, record->pool) == 0 && np->node == record->node &&
                    np->pool->page_size_bytes == record->page_size_bytes &&
                    (np->pool->extent_bytes == 0 || np->pool->extent_bytes == record->bytes))
                        return np;
        return NULL;
}

static bool is_described_by(int fd, const struct ledger_record *record) {
        struct stat st;

        return fstat(fd, &st) >= 0 && st.st_dev == record->dev && st.st_ino == record->ino && record->bytes > 0 &&
               record->page_size_bytes > 0 && (uint64_t) st.st_blksize == record->page_size_bytes &&
               record->bytes % record->page_size_bytes == 0;
}

static struct extent *adopt_one(struct broker *broker, int slot, int *fd, bool have_events) {
        const struct ledger_record *record = ledger_read(broker->warm->ledger, slot);
        struct node_pool *np = NULL;
        struct extent *extent;

        if (!broker->warm->stored[slot] && record->state != LEDGER_FREE && record->state != LEDGER_BUSY &&
            is_described_by(*fd, record))
                np = find_place(broker, record);
        if (!np || pool_add(np, EXTENT_CLAIMED, record->bytes, &extent) < 0)
                return NULL;
        extent->file = (struct extent_file) {.fd = take_fd(fd), .page_size_bytes = record->page_size_bytes,
                                             .bytes = record->bytes, .dev = record->dev, .ino = record->ino};
        extent->slot = slot;
        extent->sealed = record->sealed;
        extent->reopenable = record->reopenable;
        extent->foreign_open = record->foreign_open;
        extent->doubt = record->doubt;
        extent->returned_ms = record->returned_ms;
        if (record->has_service)
                (void) service_get(record->service_uid, record->cgroup, &extent->service);
        broker->warm->stored[slot] = extent;
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

static void place_one(struct broker *broker, struct extent *extent) {
        const struct ledger_record record = *ledger_read(broker->warm->ledger, extent->slot);
        struct grant *grant;

        switch (record.state) {
        case LEDGER_READY:
                if (extent->foreign_open || extent->doubt || stock_adopt(broker->stock, extent) < 0 ||
                    stock_make_ready(broker->stock, extent) < 0)
                        returns_drop(broker, extent, /* test_pins= */ false);
                break;
        case LEDGER_GRANTED:
                grant = adopt_grant(broker, &record, extent->service);
                if (!grant || grant->n_extents != record.n_extents || grant->extents[record.position].extent ||
                    quota_charge_anyway(broker->quota, record.uid, QUOTA_BYTES, extent->bytes) < 0) {
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
        r = returns_adopt_charge(broker, record->uid, record->bytes, have_events ? record->wd : 0, service, slot);
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

unsigned warm_adopt(struct broker *broker, struct inherited *inherited, bool have_events) {
        struct warm *warm = broker->warm;
        char name[STORE_NAME_BYTES];
        unsigned n_adopted = 0;

        if (!warm)
                return 0;
        for (size_t i = 0; i < inherited->n_extents; i++) {
                struct inherited_extent *from = &inherited->extents[i];

                if (adopt_one(broker, from->slot, &from->fd, have_events))
                        n_adopted++;
                else {
                        from->fd = safe_close(from->fd);
                        name_slot(from->slot, name);
                        if (!warm->stored[from->slot])
                                store_remove(warm->store, name, NULL, NULL);
                }
        }
        adopt_charges(broker, have_events);
        broker->last_grant_id = ledger_last_grant_id(warm->ledger);
        /* Ready ones last: opening descriptions for them reads the event queue, which must find the granted ones in their place. */
        for (int ready = 0; ready <= 1; ready++)
                for (int slot = 0; slot < LEDGER_MAX_RECORDS; slot++)
                        if (warm->stored[slot] && (ledger_read(warm->ledger, slot)->state == LEDGER_READY) == ready)
                                place_one(broker, warm->stored[slot]);
        returns_catch_up(broker);
        return n_adopted;
}
