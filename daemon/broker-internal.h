/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What broker.c (requests), grants.c (grants), returns.c (memory that comes back), refill.c (filling) and status-rows.c share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "broker.h"
#include "log.h"
#include "pool.h"
#include "worker.h"

struct audit;
struct event;
struct event_base;
struct quota;
struct reclaim;
struct stock;
struct topology;
struct warm;

#define GRANT_BUCKETS 4096 /* chosen: short chains with the most grants that there are, by default */

struct ledger_record;
struct lingering_charge;

struct grant_extent {
        struct extent *extent; /* NULL: gone, or given up: */
        struct lingering_charge *given_up; /* somebody may still have it; the kernel tells when not */
        uint64_t bytes, dev, ino; /* the file itself is a worker's when it goes */
        uint8_t item, page_shift;
        int16_t node;
};

struct grant {
        struct broker *broker;
        uint64_t id;
        uid_t uid;
        pid_t pid;
        struct service *service; /* owned: whom alone the memory may serve again */
        struct service *asker;   /* owned: who asked, whatever Recycle= says; NULL: could not be told */
        uint64_t created_ms;
        uint32_t n_extents, n_left, n_sent;
        bool sending;            /* a session still holds a pointer to it */
        bool mapped_here;        /* some extents are mapped in the daemon: on broker->mapped_grants */
        uint32_t due_at, n_due; /* due.c's: from there on, round; with any left it is on broker->due_grants */
        TAILQ_ENTRY(grant) link, mapped_link, due_link;
        LIST_ENTRY(grant) id_link;
        struct grant_extent extents[];
};
TAILQ_HEAD(grant_list, grant);
LIST_HEAD(grant_bucket, grant);

/* The charge of memory that was given up while somebody may still have it. */
struct lingering_charge {
        struct broker *broker;
        uid_t uid;
        uint64_t page_size_bytes, bytes;
        int wd;                  /* > 0: until the kernel tells that the last description is gone */
        struct service *service; /* else: as long as it exists; owned. NULL: as long as the daemon runs */
        int slot;                /* its record, for a successor; < 0: none */
        struct grant *grant;     /* borrowed: whose memory it was, with wd only; NULL: unknown */
        uint32_t position;       /* in the grant, as the next */
        char pool[WIRE_POOL_NAME_BYTES];
        TAILQ_ENTRY(lingering_charge) link;
};

#define STATUS_LINE_BYTES 768 /* chosen: the longest has 200, and the error of a reload behind it */

struct broker {
        struct event_base *base;
        const struct config *config;
        const struct topology *topology;
        struct quota *quota;
        struct reclaim *reclaim;
        struct stock *stock;
        struct audit *audit;
        struct warm *warm;               /* NULL: nothing survives the daemon */
        size_t n_pools;
        struct pool *pools[CONFIG_MAX_POOLS];
        TAILQ_HEAD(request_queue, request) waiting; /* in order of arrival, or as turns.c has put them */
        struct request *next_to_serve;   /* cursor of whoever walks the queue */
        bool targets_changed; /* reload.c's: waiting requests are to be looked at again */
        bool serving;
        unsigned n_waiting, n_working;
        struct grant_list grants;        /* by ascending id */
        struct grant_list mapped_grants; /* by age */
        struct grant_list due_grants;    /* due.c's: whose holders are to be asked about, in turn */
        struct extent_list due_extents;
        unsigned n_done_in_turn;         /* of the loop */
        struct grant_bucket grants_by_id[GRANT_BUCKETS];
        uint64_t last_grant_id;
        unsigned n_grants, n_extents_granted;
        TAILQ_HEAD(, lingering_charge) lingering;
        struct event *kick;              /* looks at the queue and at what to fill, once per turn of the loop */
        struct event *deadline_timer, *retry_timer, *sweep_timer, *unmap_timer, *affinity_timer, *due_timer;
        unsigned retry_s;
        uint64_t capped_at_extents;      /* refill.c's: pools lack memory, but the limit of open files allows no more extents; else 0 */
        bool stopping;                   /* workers are gone; callbacks only let go */
        /* The manager's: reads the configuration and applies it. */
        int (*reload)(void *userdata, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
        void *reload_userdata;
        struct event *status_timer; /* status-line.c's, as the next */
        uint64_t status_told_ms;
        char status_line[STATUS_LINE_BYTES]; /* status-line.c's: as it was told last */
        char reload_error[CONFIG_TEXT_BYTES]; /* status-line.c's: of the last reload, "" when that was right */
        uint64_t started_ms;
        uint64_t n_granted_total, n_refused_total, granted_bytes_total, scrubbed_bytes_total, n_doubts;
};

/* Fields of messages about a node pool. */
#define LOG_NODE_POOL(np) LOG_TEXT("POOL", (np)->pool->name), LOG_NUMBER("NODE", (np)->node)

#define BROKER_FOREACH_NODE_POOL(broker, np)                                                          \
        for (size_t _pool = 0; _pool < (broker)->n_pools; _pool++)                                    \
                for (struct node_pool *np = (broker)->pools[_pool]->nodes;                            \
                     np < (broker)->pools[_pool]->nodes + (broker)->pools[_pool]->n_nodes; np++)

int broker_new(struct event_base *base, const struct config *config, const struct topology *topology, struct quota *quota,
               struct reclaim *reclaim, struct stock *stock, struct warm *warm, struct broker **ret_broker);
/* Before the workers are stopped: nothing new is begun from now on. */
void broker_stop(struct broker *broker);
/* After the workers were stopped and all sessions are gone. Granted memory stays with its holders. */
struct broker *broker_free(struct broker *broker);

/* broker.c: look at the queue and the fills at the end of this turn of the loop */
void broker_kick(struct broker *broker);
int broker_timer_new(struct broker *broker, void (*callback)(int, short, void *), struct event **ret_timer);
void broker_timer_set(struct event *timer, uint64_t delay_ms);

/* turns.c: who may be served past whom. Requests are looked at one by one, and what waits is told: */
void turns_begin_walk(struct broker *broker);
/* Whether one that was looked at before keeps a user's requests from this memory. */
bool turns_hold_back(const struct node_pool *np, uid_t uid);
/* This one waits for what its own user holds: later ones of this user do not pass it, those of all others do. */
void turns_wait_alone(struct broker *broker, const struct request *request);
/* This one waits until memory of the node pool comes back. */
void turns_claim(struct broker *broker, struct node_pool *np, struct request *request);
/* Served, refused or gone. */
void turns_leave(struct broker *broker, struct request *request);
/* When the first turn is over and the requests are to be looked at again; UINT64_MAX: no time is set. */
uint64_t turns_end_ms(const struct broker *broker);

/* grants.c */
int grant_new(struct broker *broker, const struct identity *identity, struct service *service, uint32_t n_extents,
              struct grant **ret_grant);
/* One that a predecessor has sent; its place in the table is by its id. */
int grant_adopt(struct broker *broker, const struct identity *identity, struct service *service, uint64_t grant_id,
                uint32_t n_extents, struct grant **ret_grant);
void grant_set(struct grant *grant, uint32_t position, struct extent *extent, unsigned item);
/* The session has it from here on, or nobody: then it is freed when its last extent is gone. */
void grant_publish(struct grant *grant);
struct grant *grant_free(struct grant *grant); /* one that was never published */
/* Whether its charge is about to end, as far as is known: its user's requests may wait for that. */
void grant_note_returning(struct extent *extent, bool is_returning);
/* The extent's charge ends: it has another fate now. May free the grant. */
void grant_forget_extent(struct extent *extent);
/* The extent has gone from the books, but not from its holder: the charge stands for it until grant_end_given_up(). */
void grant_give_up_extent(struct extent *extent, struct lingering_charge *charge);
/* The same of a predecessor's. -EEXIST: the place is taken. */
int grant_adopt_given_up(struct grant *grant, const struct grant_extent *from, struct lingering_charge *charge);
void grant_end_given_up(struct lingering_charge *charge); /* may free the grant */
struct grant *grant_find(struct broker *broker, uint64_t id);
void grants_free_all(struct broker *broker);
void grants_on_unmap_timer(int fd, short what, void *userdata);

/* charges.c */

/* Brings what is charged for an extent besides its grant to @bytes, for @uid, whoever it was charged to before. */
void charges_set_extra(struct broker *broker, struct extent *extent, uid_t uid, uint64_t bytes);
/* A longer mapping grows the file whatever its seals say, and nothing tells of it. */
void charges_note_growth(struct broker *broker, struct extent *extent);
/*
 * Pages that the holder has punched out of the file are missing now. Whether the kernel has them or a pin of his cannot be told,
 * so they are charged until his service ends; where that cannot be told either, as long as the daemon runs.
 */
void charges_note_punched(struct broker *broker, struct extent *extent);
/*
 * The charge of an extent that is about to be dropped lives on without it: until its file is gone, where the watch tells that
 * (@watch), else as long as its service.
 */
void charges_let_linger(struct broker *broker, struct extent *extent, bool watch);
/* A charge that a predecessor left in the record @slot. -ENOENT: nothing would ever tell of its end. */
int charges_adopt(struct broker *broker, const struct ledger_record *record, int wd, struct service *service, int slot);
/* Ends those of services that are gone, or moves them to the control group above where the user may have removed it himself. */
void charges_sweep(struct broker *broker);
void charges_end_all(struct broker *broker);

/* due.c */

/* Sees to it that returns_do_due() is called for it, at the next turn of the loop or later. */
void due_extent(struct broker *broker, struct extent *extent);
void due_forget(struct broker *broker, struct extent *extent);
/*
 * Ask now who holds @n extents of a grant, from @first on, and act on the answers; about what is too much for one turn of the loop
 * in the next ones. The grant may be gone after it.
 */
void due_grant(struct broker *broker, uint64_t grant_id, uint32_t first, uint32_t n);
void due_on_timer(int fd, short what, void *userdata);

/* returns.c */
void returns_on_event(void *context, bool opened);
void returns_on_overflow(void *userdata);
/* What due_extent() was called for. May free the extent and its grant. */
void returns_do_due(struct broker *broker, struct extent *extent);
uint8_t returns_wire_state(const struct extent *extent);
/* Who held it last, as far as that is known; else (uid_t) -1. */
uid_t returns_last_uid(const struct extent *extent);
/* Drops an extent that nobody holds, with the pin test where @test_pins. */
void returns_drop(struct broker *broker, struct extent *extent, bool test_pins);
/* One that somebody may have opened by himself, or about which something is not certain. */
void returns_drop_doubtful(struct broker *broker, struct extent *extent);
/* An extent whose file is closed leaves the books; its charge ends. */
void returns_discard(struct extent *extent);
/* Of memory that was given back with the pin test: gone, or pinned (-EBUSY), and charged to whoever held it. */
void returns_finish_drop(struct broker *broker, struct extent *extent, int r);
/* What the predecessor was about to clear is cleared. */
void returns_resume(struct broker *broker, struct extent *extent);
void returns_resume_pinned(struct broker *broker, struct extent *extent, uid_t uid);
/* After adoption: what happened while nobody looked, then the question about everything that is granted. */
void returns_catch_up(struct broker *broker);
void returns_on_sweep(int fd, short what, void *userdata);
void returns_on_affinity(int fd, short what, void *userdata);
void returns_free_all(struct broker *broker);

/* refill.c */
void refill_run(struct broker *broker);
void refill_stop(struct broker *broker, struct node_pool *np);
/* Fills and scrubs that are under way. */
void refill_raise(struct broker *broker, struct node_pool *np, enum job_urgency urgency);
/* A request was refused for want of ready memory. */
void refill_note_refusal(struct broker *broker, const struct request *request);
/* Whether somebody waits for memory, or was refused and there is less ready still, while a pace holds work on it back. */
bool refill_is_lacking(const struct broker *broker, const struct node_pool *np);
/* For an extent that is about to be scrubbed, which refill_end_hurry() ends: as much is urgent as a client or the low mark wants. */
enum job_urgency refill_scrub_urgency(struct extent *extent);
void refill_end_hurry(struct extent *extent);
void refill_on_retry(int fd, short what, void *userdata);
/* The kernel said no although its counters said yes (a thief, a cgroup limit): leave it alone until the retry timer. */
void refill_pause(struct broker *broker, struct node_pool *np);
uint64_t refill_fillable_bytes(const struct broker *broker, const struct node_pool *np);
/* How many more the limit of open files has room for, of all pools together. */
uint64_t refill_extents_left(const struct broker *broker);
