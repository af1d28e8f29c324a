/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What stock.c (the loop thread) and stock-work.c (the workers) share.
 *
 * A work has up to five stages: set-up, slices, clearing (or reading), touching, finish. All but the slices of a large fill run as
 * one job on one worker of the extent's node; those are shared out among several, because two threads populate up to 1.6 times as fast as one,
 * while one thread that clears saturates memory already.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "clear.h"
#include "clearing.h"
#include "files.h"
#include "pin-tests.h"
#include "stock.h"

enum stage { STAGE_SETUP, STAGE_SLICES, STAGE_CLEARING, STAGE_TOUCHING, STAGE_FINISH, STAGE_END };

struct work_kind {
        int (*setup)(struct work *work);
        int (*slice)(struct work *work, uint64_t offset_bytes, uint64_t bytes); /* NULL: nothing is populated slice by slice */
        /* Only moves bytes of mapped memory, so in the background it may wait. 1: there is more; NULL: there are none to move. */
        int (*clear)(struct work *work);
        int (*finish)(struct work *work, int r); /* NULL: set-up is all */
        bool is_touched;          /* when all else has succeeded */
        bool is_zeroed_by_slices; /* a slice costs its size, not next to nothing */
};

extern const struct work_kind work_kind_fill, work_kind_scrub, work_kind_cut, work_kind_drop, work_kind_unmap, work_kind_audit;

struct part {
        struct job job;
        struct work *work;
};

struct stock_node {
        int node;
        struct worker_pool *workers;
        struct pin_tests pin_tests;
        struct clearing clearing;
};

struct work {
        struct stock *stock;
        struct stock_node *node;
        struct extent *extent;
        struct extent_file *file;
        const struct work_kind *kind;
        uint64_t from_bytes, to_bytes;
        uint64_t missing_bytes; /* of a scrub: the kernel zeroes them before all is cleared */
        bool test_pins;
        bool was_mapped; /* audit: it stays so */
        uid_t test_uid; /* whose pins they would be */
        bool may_measure;        /* of an audit: it may write to the start of the memory, which the ledger knows */
        TAILQ_ENTRY(work) test_link; /* pin-tests.c's, as the next: it has begun */
        bool test_runs;
        bool is_overcommitted; /* the host allows surplus pages; then how many there were before it was mapped: */
        uint64_t n_surplus;    /* of the node */
        bool in_rounds;   /* the loop thread submits the slices, part by part */
        enum stage stage; /* changes hands with the job, like the next four: read only while parts run in parallel */
        int result;       /* of set-up and finish */
        uint64_t limit_bytes; /* where the slices end, or stop so that the loop thread can think again */
        struct clear_slices slices;
        uint64_t touched_bytes;
        uint64_t found_bytes;          /* audit: offset of the byte that is not zero */
        _Atomic uint64_t next_bytes;   /* where the next slice begins */
        _Atomic uint64_t failed_bytes; /* the lowest offset that failed */
        _Atomic int slice_result;
        _Atomic bool stop;
        stock_done_fn done;
        void *userdata;
        unsigned n_parts, n_parts_running, n_parts_submitted; /* loop thread only, from here on */
        uint64_t urgent_bytes;   /* of a fill: the rest may take its time */
        uint64_t round_start_ns; /* of a part of a fill that is measured; 0: none */
        uint64_t round_from_bytes;
        struct part parts[];
};

struct stock {
        struct event_base *base;
        const struct config *config;
        const struct topology *topology;
        struct reclaim *reclaim;
        struct warm *warm;
        size_t n_nodes;
        struct stock_node nodes[CONFIG_MAX_NODES];
        struct files files;
        pthread_mutex_t map_lock; /* who takes pages of the kernel while it overcommits */
};

/* Of the populating slices. */
uint64_t work_slice_bytes(const struct work *work);
/* A job's step: a stage, or a slice of it. */
int work_step(struct job *job);
/* What the next step of a job will cost; before it is submitted, and between steps. */
void work_plan_step(struct part *part);
/* Whether the daemon keeps its mapping of a ready extent. */
bool work_stays_mapped(const struct stock *stock, const struct extent_file *file);
bool work_is_probe(const struct work *work);
/* It failed, or was asked to stop and has done something: who stops a fill for its prefix would have nothing else. */
bool work_is_stopped(const struct work *work);
/* Of an extent that is idle: how much of its start methods are measured on. */
uint64_t work_measured_bytes(const struct extent_file *file);
int work_verify_placement(const struct extent_file *file, int node, uint64_t offset_bytes, uint64_t bytes);
