/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The books: which extents there are, what each is doing, which one serves a request, what to fill next. Loop thread only.
 * pool.c makes no system calls at all, so that its logic is tested without any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "config.h"
#include "extent.h"

struct broker;
struct event;
struct grant;
struct node_pool;
struct request;
struct service;
struct work;

enum extent_state {
        EXTENT_FILLING,   /* the kernel zeroes it; has a prefix only */
        EXTENT_READY,     /* zero, populated, placed; on a shelf */
        EXTENT_AUDITING,  /* ready, but for a moment: a slice of it is read again */
        EXTENT_CLAIMED,   /* set aside for one request: being cut or grown, or not sent yet */
        EXTENT_GRANTED,   /* a client has it, or it is on its way there */
        EXTENT_RETURNED,  /* nobody holds it; in its grace period */
        EXTENT_SCRUBBING, /* cleared by us, to be kept for its service */
        EXTENT_RENEWING,  /* to be dropped as soon as a new extent took its place */
        EXTENT_DROPPING,  /* on its way back to the kernel */
        EXTENT_PINNED,    /* given up by everybody; the pin test found pages in use, or waits for a user of whom it did */
        _EXTENT_STATE_MAX,
};

TAILQ_HEAD(extent_list, extent);

struct extent {
        struct extent_file file;   /* while a job runs on the extent, the file is the worker's */
        struct node_pool *node_pool;
        enum extent_state state;
        uint64_t bytes;            /* as accounted; equals file.bytes whenever no job runs */
        struct service *service;   /* owned; who held it and whom alone it may serve again. NULL: fresh from the kernel */
        int grant_fd;              /* description opened ahead of the grant, locked; -EBADF: none */
        int wd;                    /* inotify watch; 0: none */
        int slot;                  /* warm.c: its record and its name in the fd store; -1: none */
        struct work *work;         /* stock.c's: the job that runs on it, or NULL */
        bool hurried;              /* refill.c's: being scrubbed at full speed */
        bool sealed;               /* its size is final */
        bool reopenable;
        bool close_event, foreign_open, doubt; /* facts for reclaim_decide(), since the grant */
        struct grant *grant;       /* borrowed; CLAIMED, GRANTED and what follows until the charge ends */
        uint32_t position;         /* in the grant */
        uint64_t extra_bytes;      /* charged to extra_uid beyond the grant: grown by its holder, or pinned when the grant is over */
        uid_t extra_uid;
        unsigned n_opens;          /* foreign ones since the grant */
        bool returning;            /* its charge is expected to end: counted as QUOTA_RETURNING of the grant's user */
        bool unlocked;             /* its holder has given up the lock, and it was counted as a doubt */
        unsigned n_asked;          /* how often the flock question said "held" since the close event */
        uint64_t audit_bytes;      /* how far the audit has come in it */
        uint64_t audit_stamp;      /* when it was ready or audited last, in counts of the node pool */
        uint64_t returned_ms;      /* monotonic clock; when its last holder was gone. Affinity counts from here */
        struct event *timer;       /* next question, end of grace, next pin test; owned by returns.c */
        bool is_due;               /* due.c's */
        TAILQ_ENTRY(extent) due_link;
        TAILQ_ENTRY(extent) link;  /* in the list of its state, or on its shelf when READY */
};

struct shelf { /* ready extents that may serve one service only; service NULL: anybody */
        struct service *service; /* owned */
        struct extent_list extents;
        uint64_t bytes;
        TAILQ_ENTRY(shelf) link;
};

#define POOL_HISTORY 32 /* chosen (design): request sizes remembered per node pool */

struct pool;

struct node_pool {
        struct pool *pool;
        int node;
        uint64_t target_bytes, low_bytes;
        uint32_t low_millipercent;     /* Low=, of whatever the target is; UINT32_MAX: */
        uint64_t configured_low_bytes; /* ... that many bytes, or all */
        struct extent_list extents[_EXTENT_STATE_MAX]; /* READY ones are on shelves instead */
        uint64_t bytes[_EXTENT_STATE_MAX];
        uint32_t n_extents[_EXTENT_STATE_MAX];
        TAILQ_HEAD(, shelf) shelves; /* never empty: the first one has service NULL */
        uint64_t history[POOL_HISTORY];
        unsigned n_history, next_history;
        uint64_t hurried_bytes;   /* refill.c's: of extents that are being scrubbed at full speed */
        bool was_low;             /* refill.c's: below the low mark at its last look */
        uint64_t paced_wait_since_ms, paced_wait_ms; /* somebody lacks memory whose work its pace holds back; 0: nobody. In all */
        uint64_t lacked_bytes;    /* the most for which one was refused since then; 0: none was */
        uint64_t audit_count;     /* how often an extent was made ready or audited */
        bool full_once;           /* has reached its target since start */
        bool claimed;             /* broker.c's: a request waits for its memory */
        bool blocked;             /* broker.c's: a request needs its fills to stop: no background fills now */
        bool is_held;             /* broker.c's and turns.c's: kept for a request, whoever comes later */
        struct request *turn;     /* turns.c's, as the next: whose turn it is, borrowed; NULL: nobody's */
        uint64_t turn_since_ms, turns_from_ms; /* nobody's is before */
        uid_t *uids_waiting;      /* owned: users of whom a request waits for it */
        size_t n_uids_waiting, uids_room;
        bool paused;              /* refill.c's: the kernel refused pages that its counters promised */
        bool short_logged;
        bool fills_fail;          /* status-line.c's: it was paused and is not full since */
        uint64_t reached_bytes;   /* status-line.c's: as much of the target has been there once */
        uint64_t shortfall_bytes; /* what the kernel lacks, as of the last look */
        uint64_t n_exact, n_cut, n_grown, n_built, zeroed_bytes_total, audited_bytes_total, n_audit_errors;
};

struct pool {
        struct broker *broker; /* borrowed; whose books these are. Not used by pool.c */
        char name[CONFIG_POOL_NAME_BYTES];
        uint64_t page_size_bytes;
        uint64_t extent_bytes; /* 0: auto */
        bool removed;          /* reload.c's: no longer configured; waits for its last extent */
        size_t n_nodes;
        struct node_pool nodes[CONFIG_MAX_NODES];
};

int pool_new(const struct config_pool *config, struct pool **ret_pool);
struct pool *pool_free(struct pool *pool); /* no extents may be left: asserted */
/* A node more, with a target of nothing. -ENOSPC: CONFIG_MAX_NODES are there already. */
int pool_add_node(struct pool *pool, int node);
/* @config: for Low=; NULL: as configured last. */
void pool_set_target(struct node_pool *np, uint64_t target_bytes, const struct config_pool *config);
/* What is kept beyond the target, not counting what is on its way out. */
uint64_t pool_excess_bytes(const struct node_pool *np);
/* The ready extent to give up for an excess: the smallest. NULL: none is ready. */
struct extent *pool_find_expendable(const struct node_pool *np);
struct node_pool *pool_find_node(struct pool *pool, int node);

/* A new extent of @bytes in @state. Its file is EXTENT_FILE_NULL. */
int pool_add(struct node_pool *np, enum extent_state state, uint64_t bytes, struct extent **ret_extent);
/* Takes it off the books and frees it; its file must be done and its timer freed. */
void pool_remove(struct extent *extent);
void pool_move(struct extent *extent, enum extent_state state);
/* READY is reached through this alone: puts it on the shelf of its service. -ENOMEM: no shelf; it stays where it was. */
int pool_make_ready(struct extent *extent);
void pool_resize(struct extent *extent, uint64_t bytes);
void pool_drop_empty_shelves(struct node_pool *np);

/* The ready extent to be audited next: that for which it has been longest. NULL: none is ready. */
struct extent *pool_next_to_audit(const struct node_pool *np);
/* An audited extent goes back on its shelf. When all of it was audited it is at the end of the line. -ENOMEM: no shelf. */
int pool_end_audit(struct extent *extent);

uint64_t pool_ready_bytes(const struct node_pool *np); /* and being audited */
uint64_t pool_used_bytes(const struct node_pool *np); /* all states */
/* What is missing to the target, not counting extents that wait to be renewed: their replacement comes first. */
uint64_t pool_deficit_bytes(const struct node_pool *np);
uint64_t pool_largest_ready_bytes(const struct node_pool *np);
/* What is missing to the low mark; UINT64_MAX as long as the pool never was full: nothing is enough then. 0: it is not low. */
uint64_t pool_below_low_bytes(const struct node_pool *np);
/* Somebody lacks what background work holds back, and does so no longer. Harmless when it was so already. @refused_bytes: 0: he waits. */
void pool_note_paced_wait(struct node_pool *np, uint64_t refused_bytes, uint64_t now_ms);
void pool_end_paced_wait(struct node_pool *np, uint64_t now_ms);
uint64_t pool_paced_wait_ms(const struct node_pool *np, uint64_t now_ms); /* in all, the present one included */
void pool_note_request(struct node_pool *np, uint64_t bytes);
/* Size of the extent to fill next out of @available_bytes (what the kernel can give and the target lacks); 0: nothing. */
uint64_t pool_next_fill_bytes(const struct node_pool *np, uint64_t available_bytes);

/* How one item is served from one node pool. */
enum plan_how { PLAN_EXACT, PLAN_CUT, PLAN_GROW, PLAN_BUILD };

struct plan_piece {
        struct extent *extent; /* NULL: to be built from nothing */
        uint64_t bytes;        /* its size when it is handed out */
        enum plan_how how;
};

struct item_plan {
        struct node_pool *node_pool;
        size_t n_pieces;
        struct plan_piece *pieces; /* owned */
        size_t n_drops;
        struct extent **drops; /* owned array; ready extents to be dropped first, so that the kernel has the pages; CLAIMED */
};

enum plan_result {
        PLAN_NO,      /* too little memory here now */
        PLAN_YES,     /* *ret_plan is set, its extents are CLAIMED */
        PLAN_AUDITED, /* broker.c's: memory that is being audited could do, ask again in a moment */
        PLAN_QUIESCE, /* yes, once what is being filled has stopped or finished: ask again then */
};

struct plan_terms {
        uint64_t bytes;           /* whole pages; whole extents in a fixed class */
        struct service *service;  /* borrowed; NULL: fresh memory only */
        bool several;             /* several extents are welcome */
        bool instant_only;        /* nothing that needs the kernel to zero */
        bool may_fill;            /* memory that is not ready yet counts too: what is being filled and ... */
        uint64_t fillable_bytes;  /* ... pages that the kernel has free and the target lacks. Without may_fill: instead of cutting */
        uint64_t freed_bytes;     /* pages that the items before this one leave over of what they take apart */
        uint64_t n_new_extents;   /* so many may be built; each that is dropped makes room for one more */
};

/* Claims what it uses; undo with pool_plan_undo(). Negative errno: -ENOMEM. */
int pool_plan(struct node_pool *np, const struct plan_terms *terms, struct item_plan *ret_plan);
/* Puts all claimed extents of a plan that was not begun back on their shelves and frees its arrays. */
void pool_plan_undo(struct item_plan *plan);
void pool_plan_done(struct item_plan *plan); /* frees the arrays only */
uint64_t pool_plan_bytes(const struct item_plan *plan); /* that are handed out */
/* Bytes of the pages that a plan takes from the kernel; less than 0: that its drops and cuts give it beyond that. */
int64_t pool_plan_fill_bytes(const struct item_plan *plan);
