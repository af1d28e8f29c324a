/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What users are charged for beside their grants: pages that they grew, punched out or pinned, and memory that was given up and
 * may live on. Such a charge ends when the kernel reports the memory gone, or with the service that may still have it.
 */

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker-internal.h"
#include "identity.h"
#include "ledger.h"
#include "quota.h"
#include "reclaim.h"
#include "topology.h"
#include "warm.h"

/* More than that no client can have, whatever size it gives a file: nothing that is charged may make sums run over. */
static uint64_t machine_bytes(void) {
        return (uint64_t) sysconf(_SC_PHYS_PAGES) * (uint64_t) sysconf(_SC_PAGESIZE);
}

static uint64_t at_most(uint64_t bytes, uint64_t most_bytes) {
        return bytes < most_bytes ? bytes : most_bytes;
}

void charges_set_extra(struct broker *broker, struct extent *extent, uid_t uid, uint64_t bytes) {
        uint64_t page_size_bytes = extent->node_pool->pool->page_size_bytes;

        quota_uncharge_memory(broker->quota, extent->extra_uid, QUOTA_BYTES, page_size_bytes, extent->extra_bytes);
        extent->extra_uid = uid;
        /* Without memory for the books it goes uncharged until the next look. */
        extent->extra_bytes = quota_charge_memory_anyway(broker->quota, uid, QUOTA_BYTES, page_size_bytes, bytes) < 0 ? 0 : bytes;
}

void charges_note_growth(struct broker *broker, struct extent *extent) {
        struct extent_check check;
        uint64_t bytes;

        if (!extent->grant || extent_file_check(&extent->file, &check) < 0)
                return;
        /* Pages that were not touched yet are reserved for him: nobody else gets them. */
        bytes = check.present_bytes > check.size_bytes ? check.present_bytes : check.size_bytes;
        charges_set_extra(broker, extent, extent->grant->uid, bytes > extent->bytes ? at_most(bytes - extent->bytes, machine_bytes()) : 0);
}

static void free_lingering(struct lingering_charge *charge) {
        struct broker *broker = charge->broker;

        TAILQ_REMOVE(&broker->lingering, charge, link);
        grant_end_given_up(charge);
        quota_uncharge_memory(broker->quota, charge->uid, QUOTA_BYTES, charge->page_size_bytes, charge->bytes);
        service_unref(charge->service);
        free(charge);
}

static void end_lingering(struct lingering_charge *charge) {
        warm_forget_charge(charge->broker->warm, charge->slot);
        free_lingering(charge);
}

static void on_gone(void *context) {
        end_lingering(context);
}

void charges_end_all(struct broker *broker) {
        struct lingering_charge *charge;

        while ((charge = TAILQ_FIRST(&broker->lingering))) {
                if (charge->wd > 0 && charge->slot < 0) /* else record and watch are for the successor */
                        reclaim_unwatch(broker->reclaim, charge->wd);
                free_lingering(charge);
        }
}

static struct lingering_charge *new_lingering(struct broker *broker, uid_t uid, uint64_t page_size_bytes, uint64_t bytes,
                                              struct service *service) {
        struct lingering_charge *charge = malloc(sizeof(*charge));

        if (!charge)
                return NULL;
        *charge = (struct lingering_charge) {
                .broker = broker, .uid = uid, .page_size_bytes = page_size_bytes, .bytes = bytes, .slot = -1};
        if (quota_charge_memory_anyway(broker->quota, uid, QUOTA_BYTES, page_size_bytes, bytes) < 0) {
                free(charge);
                return NULL;
        }
        charge->service = service ? service_ref(service) : NULL;
        TAILQ_INSERT_TAIL(&broker->lingering, charge, link);
        return charge;
}

int charges_adopt(struct broker *broker, const struct ledger_record *record, int wd, struct service *service, int slot) {
        struct lingering_charge *charge;

        if (wd <= 0 && !service)
                return -ENOENT; /* nothing would ever tell of its end */
        if (!topology_has_page_size(broker->topology, record->page_size_bytes))
                return -ENOENT; /* whatever wrote that */
        charge = new_lingering(broker, record->uid, record->page_size_bytes, record->bytes, service);
        if (!charge)
                return -ENOMEM;
        if (wd > 0 && reclaim_adopt_detached(broker->reclaim, wd, on_gone, charge) >= 0)
                charge->wd = wd;
        if (charge->wd <= 0 && !service) {
                free_lingering(charge);
                return -ENOENT;
        }
        charge->slot = slot;
        return 0;
}

/* One for all pages of a size that are to end with the same service: whoever makes many of them does not make the daemon grow. */
static struct lingering_charge *find_lingering(struct broker *broker, uid_t uid, uint64_t page_size_bytes,
                                               const struct service *service) {
        struct lingering_charge *charge;

        TAILQ_FOREACH(charge, &broker->lingering, link)
                if (charge->wd <= 0 && charge->uid == uid && charge->page_size_bytes == page_size_bytes && charge->service == service)
                        return charge;
        return NULL;
}

static void add_to_lingering(struct lingering_charge *charge, uint64_t bytes) {
        struct broker *broker = charge->broker;

        bytes = at_most(bytes, charge->bytes < machine_bytes() ? machine_bytes() - charge->bytes : 0);
        if (quota_charge_memory_anyway(broker->quota, charge->uid, QUOTA_BYTES, charge->page_size_bytes, bytes) < 0)
                return;
        charge->bytes += bytes;
        warm_change_charge(broker->warm, charge->slot, charge->bytes);
}

/* Until the service ends; NULL: as long as the daemon runs. Without memory for the books it goes uncharged. */
static void linger_with_service(struct broker *broker, struct extent *extent, uid_t uid, struct service *service, uint64_t bytes) {
        uint64_t page_size_bytes = extent->node_pool->pool->page_size_bytes;
        struct lingering_charge *charge = find_lingering(broker, uid, page_size_bytes, service);

        if (!charge) {
                charge = new_lingering(broker, uid, page_size_bytes, bytes, service);
                if (charge && service)
                        charge->slot = warm_note_charge(broker->warm, extent, charge);
                return;
        }
        add_to_lingering(charge, bytes);
}

/*
 * A user to whom control groups are delegated can remove his own, and would be rid of the charge: then it is that of the one above
 * it, which is his too. One that is not his was removed by who may say that all of it is over.
 */
static void move_or_end(struct lingering_charge *charge) {
        struct broker *broker = charge->broker;
        struct lingering_charge *other;
        struct service *above;
        uint64_t bytes = charge->bytes;

        if (service_get_above(charge->service, charge->uid, &above) < 0) {
                end_lingering(charge);
                return;
        }
        other = find_lingering(broker, charge->uid, charge->page_size_bytes, above);
        if (other) {
                end_lingering(charge);
                add_to_lingering(other, bytes);
                service_unref(above);
                return;
        }
        service_unref(charge->service);
        charge->service = above;
        warm_move_charge(broker->warm, charge->slot, above);
}

void charges_sweep(struct broker *broker) {
        for (struct lingering_charge *charge = TAILQ_FIRST(&broker->lingering), *next; charge; charge = next) {
                next = TAILQ_NEXT(charge, link);
                if (charge->wd <= 0 && charge->service && !service_exists(charge->service))
                        move_or_end(charge);
        }
}

static struct service *whose_end_tells(const struct extent *extent) {
        const struct grant *grant = extent->grant;

        return grant && grant->asker ? grant->asker : grant ? grant->service : extent->service;
}

void charges_note_punched(struct broker *broker, struct extent *extent) {
        struct service *service = whose_end_tells(extent);
        struct extent_check check;

        if (extent_file_check(&extent->file, &check) >= 0 && check.present_bytes < extent->bytes)
                linger_with_service(broker, extent, extent->grant->uid, service && service_has_end(service) ? service : NULL,
                                    extent->bytes - check.present_bytes);
}

void charges_let_linger(struct broker *broker, struct extent *extent, bool watch) {
        struct grant *grant = extent->grant;
        struct service *service = whose_end_tells(extent);
        uint64_t bytes = extent->bytes + extent->extra_bytes;
        struct lingering_charge *charge = NULL;
        uid_t uid;

        if (!grant && !service)
                return;
        uid = grant ? grant->uid : service_uid(service);
        if (watch && extent->wd > 0) {
                charge = new_lingering(broker, uid, extent->node_pool->pool->page_size_bytes, bytes, service);
                if (!charge)
                        return;
                charge->wd = extent->wd;
                charge->slot = warm_note_charge(broker->warm, extent, charge);
        } else
                linger_with_service(broker, extent, uid, service, bytes);
        charges_set_extra(broker, extent, 0, 0);
        if (charge && grant)
                grant_give_up_extent(extent, charge);
        else
                grant_forget_extent(extent);
        if (!charge)
                return;
        extent->wd = 0;
        reclaim_detach(broker->reclaim, extent->file.fd, charge->wd, on_gone, charge);
}
