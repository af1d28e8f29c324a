/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who got what: the table of grants, the way of their descriptors to the client, the daemon's own mappings of them. A grant
 * lives until the charge of its last extent has ended, whatever became of the connection.
 */

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "broker-internal.h"
#include "clock.h"
#include "quota.h"
#include "stock.h"

/* Ids are given out one after the other, so they are spread evenly. */
static struct grant_bucket *bucket_of(struct broker *broker, uint64_t id) {
        return &broker->grants_by_id[id % GRANT_BUCKETS];
}

struct grant *grant_find(struct broker *broker, uint64_t id) {
        struct grant *grant;

        LIST_FOREACH(grant, bucket_of(broker, id), id_link)
                if (grant->id == id)
                        return grant;
        return NULL;
}

static void insert_by_id(struct broker *broker, struct grant *grant) {
        struct grant *before = TAILQ_LAST(&broker->grants, grant_list);

        while (before && before->id > grant->id)
                before = TAILQ_PREV(before, grant_list, link);
        if (before)
                TAILQ_INSERT_AFTER(&broker->grants, before, grant, link);
        else
                TAILQ_INSERT_HEAD(&broker->grants, grant, link);
}

static int add_grant(struct broker *broker, const struct identity *identity, struct service *service, uint64_t grant_id,
                     uint32_t n_extents, struct grant **ret_grant) {
        struct grant *grant = malloc(sizeof(*grant) + n_extents * sizeof(struct grant_extent));

        if (!grant)
                return -ENOMEM;
        *grant = (struct grant) {
                .broker = broker,
                .id = grant_id,
                .uid = identity->uid,
                .pid = identity->pid,
                .service = service_ref(service),
                .asker = service_ref(identity->service),
                .n_extents = n_extents,
        };
        memset(grant->extents, 0, n_extents * sizeof(struct grant_extent));
        LIST_INSERT_HEAD(bucket_of(broker, grant_id), grant, id_link);
        broker->n_grants++;
        insert_by_id(broker, grant);
        *ret_grant = grant;
        return 0;
}

int grant_new(struct broker *broker, const struct identity *identity, struct service *service, uint32_t n_extents,
              struct grant **ret_grant) {
        int r = add_grant(broker, identity, service, broker->last_grant_id + 1, n_extents, ret_grant);

        if (r >= 0)
                broker->last_grant_id++;
        return r;
}

int grant_adopt(struct broker *broker, const struct identity *identity, struct service *service, uint64_t grant_id,
                uint32_t n_extents, struct grant **ret_grant) {
        int r = quota_charge_anyway(broker->quota, identity->uid, QUOTA_GRANTS, 1);

        if (r < 0)
                return r;
        r = add_grant(broker, identity, service, grant_id, n_extents, ret_grant);
        if (r < 0) {
                quota_uncharge(broker->quota, identity->uid, QUOTA_GRANTS, 1);
                return r;
        }
        (*ret_grant)->n_sent = n_extents;
        return 0;
}

struct grant *grant_free(struct grant *grant) {
        struct broker *broker = grant->broker;

        if (grant->mapped_here)
                TAILQ_REMOVE(&broker->mapped_grants, grant, mapped_link);
        if (grant->n_due > 0)
                TAILQ_REMOVE(&broker->due_grants, grant, due_link);
        TAILQ_REMOVE(&broker->grants, grant, link);
        LIST_REMOVE(grant, id_link);
        broker->n_grants--;
        service_unref(grant->service);
        service_unref(grant->asker);
        free(grant);
        return NULL;
}

static void grant_free_when_over(struct grant *grant) {
        if (grant->n_left > 0 || grant->sending)
                return;
        quota_uncharge(grant->broker->quota, grant->uid, QUOTA_GRANTS, 1);
        grant_free(grant);
}

void grant_set(struct grant *grant, uint32_t position, struct extent *extent, unsigned item) {
        uint64_t page_size_bytes = extent->node_pool->pool->page_size_bytes;

        extent->grant = grant;
        extent->position = position;
        grant->extents[position] = (struct grant_extent) {
                .extent = extent,
                .bytes = extent->bytes,
                .dev = extent->file.dev,
                .ino = extent->file.ino,
                .item = (uint8_t) item,
                .page_shift = (uint8_t) __builtin_ctzll(page_size_bytes),
                .node = (int16_t) extent->node_pool->node,
        };
        grant->n_left++;
        grant->broker->n_extents_granted++;
        if (extent->file.addr && !grant->mapped_here) {
                grant->mapped_here = true;
                TAILQ_INSERT_TAIL(&grant->broker->mapped_grants, grant, mapped_link);
        }
}

void grant_publish(struct grant *grant) {
        struct broker *broker = grant->broker;

        grant->created_ms = clock_ms();
        grant->sending = true;
        broker->n_granted_total++;
        if (grant->mapped_here && !evtimer_pending(broker->unmap_timer, NULL))
                broker_timer_set(broker->unmap_timer, broker->config->unmap_after_ms);
}

void grant_note_returning(struct extent *extent, bool is_returning) {
        struct grant *grant = extent->grant;
        struct broker *broker = grant ? grant->broker : NULL;
        uint64_t page_size_bytes = extent->node_pool->pool->page_size_bytes;
        uint64_t bytes = grant ? grant->extents[extent->position].bytes : 0;

        if (!grant || extent->returning == is_returning)
                return;
        if (!is_returning)
                quota_uncharge_memory(broker->quota, grant->uid, QUOTA_RETURNING, page_size_bytes, bytes);
        else if (quota_charge_memory_anyway(broker->quota, grant->uid, QUOTA_RETURNING, page_size_bytes, bytes) < 0)
                return; /* nobody waits for it then */
        extent->returning = is_returning;
        if (!is_returning && broker->n_waiting > 0) /* for the better or the worse */
                broker_kick(broker);
}

/* What is charged for it by now is another's business. */
static void take_extent(struct extent *extent) {
        struct grant *grant = extent->grant;

        grant_note_returning(extent, false);
        quota_uncharge_memory(grant->broker->quota, grant->uid, QUOTA_BYTES, extent->node_pool->pool->page_size_bytes,
                              grant->extents[extent->position].bytes);
        grant->extents[extent->position].extent = NULL;
        extent->grant = NULL;
        grant->broker->n_extents_granted--;
}

void grant_forget_extent(struct extent *extent) {
        struct grant *grant = extent->grant;

        if (!grant)
                return;
        take_extent(extent);
        grant->n_left--;
        grant_free_when_over(grant);
}

void grant_give_up_extent(struct extent *extent, struct lingering_charge *charge) {
        struct grant *grant = extent->grant;

        take_extent(extent);
        charge->grant = grant;
        charge->position = extent->position;
        memcpy(charge->pool, extent->node_pool->pool->name, sizeof(charge->pool));
        grant->extents[extent->position].given_up = charge;
}

int grant_adopt_given_up(struct grant *grant, const struct grant_extent *from, struct lingering_charge *charge) {
        struct grant_extent *place = &grant->extents[charge->position];

        if (place->extent || place->given_up)
                return -EEXIST;
        *place = *from;
        place->given_up = charge;
        charge->grant = grant;
        grant->n_left++;
        return 0;
}

void grant_end_given_up(struct lingering_charge *charge) {
        struct grant *grant = charge->grant;

        if (!grant)
                return;
        grant->extents[charge->position].given_up = NULL;
        charge->grant = NULL;
        grant->n_left--;
        grant_free_when_over(grant);
}

void grants_free_all(struct broker *broker) {
        struct grant *grant;

        /* Their extents were let go of before, so only grants that a session abandoned late are left. */
        while ((grant = TAILQ_FIRST(&broker->grants))) {
                assert(grant->n_left == 0);
                grant->sending = false;
                grant_free_when_over(grant);
        }
}

/* Sending */

uint64_t broker_grant_id(const struct grant *grant) {
        return grant->id;
}

unsigned broker_grant_next(struct grant *grant, unsigned max_fds, struct wire_d_grant *ret_message,
                           int ret_fds[WIRE_MAX_FDS]) {
        uint32_t n_extents = grant->n_extents - grant->n_sent;

        if (n_extents > max_fds)
                n_extents = max_fds;
        ret_message->grant_id = grant->id;
        ret_message->n_extents_total = grant->n_extents;
        ret_message->first_extent = grant->n_sent;
        ret_message->n_extents = (uint16_t) n_extents;
        ret_message->reserved = 0;
        ret_message->reserved2 = 0;
        for (uint32_t i = 0; i < n_extents; i++) {
                const struct grant_extent *from = &grant->extents[grant->n_sent + i];

                ret_message->extents[i] = (struct wire_extent) {
                        .bytes = from->bytes, .item = from->item, .page_shift = from->page_shift, .node = from->node};
                ret_fds[i] = from->extent->grant_fd;
        }
        return n_extents;
}

static void close_copies(struct grant *grant, uint32_t n_extents) {
        for (uint32_t i = 0; i < n_extents; i++)
                stock_close_grant_fd(grant->extents[grant->n_sent + i].extent);
        grant->n_sent += n_extents;
        if (grant->n_sent == grant->n_extents)
                grant->sending = false;
}

void broker_grant_sent(struct broker *broker, struct grant *grant, unsigned n_extents) {
        close_copies(grant, n_extents);
}

void broker_grant_abandon(struct broker *broker, struct grant *grant) {
        /* The last copies close here, which the kernel reports like any holder's close: one way back for all memory. */
        close_copies(grant, grant->n_extents - grant->n_sent);
}

/* The daemon's own mappings */

static void unmap_grant(struct broker *broker, struct grant *grant) {
        TAILQ_REMOVE(&broker->mapped_grants, grant, mapped_link);
        grant->mapped_here = false;
        for (uint32_t i = 0; i < grant->n_extents; i++) {
                struct extent *extent = grant->extents[i].extent;

                if (extent && extent->state == EXTENT_GRANTED && !extent->work && extent->file.addr)
                        stock_unmap(broker->stock, extent);
        }
}

void grants_on_unmap_timer(int fd, short what, void *userdata) {
        struct broker *broker = userdata;
        uint64_t now_ms = clock_ms();
        struct grant *grant;

        while ((grant = TAILQ_FIRST(&broker->mapped_grants))) {
                uint64_t due_ms = grant->created_ms + broker->config->unmap_after_ms;

                if (due_ms > now_ms) {
                        broker_timer_set(broker->unmap_timer, due_ms - now_ms);
                        return;
                }
                unmap_grant(broker, grant);
        }
}

static struct grant *find_own(struct broker *broker, const struct identity *identity, uint64_t grant_id) {
        struct grant *grant = grant_find(broker, grant_id);

        /* Foreign grants look like unknown ones: ids say nothing about others. */
        return grant && (identity->uid == grant->uid || access_is_administrator(broker->config, identity->uid)) ? grant : NULL;
}

int broker_mapped(struct broker *broker, const struct identity *identity, uint64_t grant_id) {
        struct grant *grant = find_own(broker, identity, grant_id);

        if (!grant)
                return -ENOENT;
        if (grant->mapped_here && !grant->sending)
                unmap_grant(broker, grant);
        return 0;
}

int broker_release(struct broker *broker, const struct identity *identity, uint64_t grant_id, uint32_t extent) {
        struct grant *grant = find_own(broker, identity, grant_id);

        if (!grant)
                return -ENOENT;
        if (extent != WIRE_ALL_EXTENTS && extent >= grant->n_extents)
                return -EINVAL;
        if (extent != WIRE_ALL_EXTENTS && !grant->extents[extent].extent && !grant->extents[extent].given_up)
                return -ENOENT;
        if (extent == WIRE_ALL_EXTENTS)
                due_grant(broker, grant_id, 0, grant->n_extents);
        else
                due_grant(broker, grant_id, extent, 1);
        return 0;
}

/* Rows for GRANTS */

static void fill_row(const struct broker *broker, const struct grant *grant, uint32_t position, struct wire_grant_row *ret_row) {
        const struct grant_extent *from = &grant->extents[position];
        const struct extent *extent = from->extent;

        *ret_row = (struct wire_grant_row) {
                .grant_id = grant->id,
                .extent = position,
                .uid = grant->uid,
                .pid = (uint32_t) grant->pid,
                .node = from->node,
                .page_shift = from->page_shift,
                .state = extent ? returns_wire_state(extent) : WIRE_EXTENT_HELD,
                .bytes = from->bytes,
                .age_ms = clock_ms() - grant->created_ms,
                .dev = from->dev,
                .ino = from->ino,
        };
        memcpy(ret_row->pool, extent ? extent->node_pool->pool->name : from->given_up->pool, sizeof(ret_row->pool));
}

void broker_fill_grants(const struct broker *broker, const struct identity *identity, const struct wire_c_grants *from,
                        struct wire_d_grants *ret_grants) {
        bool all = access_is_administrator(broker->config, identity->uid);
        const struct grant *grant;

        ret_grants->n_rows = ret_grants->more = 0;
        TAILQ_FOREACH(grant, &broker->grants, link) {
                uint32_t first = 0;

                if (grant->id < from->after_grant_id || (!all && identity->uid != grant->uid))
                        continue;
                if (grant->id == from->after_grant_id)
                        first = from->after_extent + 1;
                for (uint32_t i = first; i < grant->n_extents; i++) {
                        if (!grant->extents[i].extent && !grant->extents[i].given_up)
                                continue;
                        if (ret_grants->n_rows == WIRE_MAX_GRANT_ROWS) {
                                ret_grants->more = 1;
                                return;
                        }
                        fill_row(broker, grant, i, &ret_grants->rows[ret_grants->n_rows++]);
                }
        }
}
