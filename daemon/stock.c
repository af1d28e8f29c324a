/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The long work on extents. A work has up to three stages: set-up, slices, finish. All but the slices of a large fill run as
 * one job on one worker of the extent's node; those are shared out among all of them, because two threads populate 1.6 times
 * as fast as one, while one thread that clears saturates memory already.
 *
 * The functions named *_setup, *_slice and *_finish run on workers, the rest on the loop thread.
 */

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cleanup.h"
#include "reclaim.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"

#define SLICE_BYTES (UINT64_C(32) << 20) /* the kernel's PROCESS_PAGES_NON_PREEMPT_BATCH: 32 MiB of base pages */

enum stage { STAGE_SETUP, STAGE_SLICES, STAGE_FINISH, STAGE_END };

struct work_kind {
        int (*setup)(struct work *work);
        int (*slice)(struct work *work, uint64_t offset_bytes, uint64_t bytes); /* NULL: set-up is all */
        int (*finish)(struct work *work, int r);
};

struct part {
        struct job job;
        struct work *work;
};

struct work {
        struct stock *stock;
        struct extent *extent;
        struct extent_file *file;
        const struct work_kind *kind;
        struct worker_pool *workers;
        int node;
        uint64_t from_bytes, to_bytes;
        bool test_pins;
        enum stage stage;              /* changes hands with the job: never read while parts run in parallel, but for SLICES */
        int result;                    /* of set-up and finish; like stage */
        _Atomic uint64_t next_bytes;   /* where the next slice begins */
        _Atomic uint64_t failed_bytes; /* the lowest offset that failed */
        _Atomic int slice_result;
        _Atomic bool stop;
        stock_done_fn done;
        void *userdata;
        unsigned n_parts, n_parts_running, n_parts_submitted; /* loop thread only */
        struct part parts[];
};

struct node_workers {
        int node;
        struct worker_pool *pool;
};

struct stock {
        const struct config *config;
        const struct topology *topology;
        struct reclaim *reclaim;
        struct warm *warm;
        size_t n_nodes;
        struct node_workers nodes[CONFIG_MAX_NODES];
        uint64_t n_opened_ahead, max_opened_ahead, max_files;
};

/* Worker thread: the stages */

static uint64_t slice_bytes_of(const struct work *work) {
        return work->file->page_size_bytes > SLICE_BYTES ? work->file->page_size_bytes : SLICE_BYTES;
}

/* Only whole page tables can be shared, one covers 1 GiB of 2 MiB pages; a mapping that cannot be shared is only a budget spent. */
static bool stays_mapped(const struct work *work) {
        return work->stock->config->share_page_tables && work->file->bytes >= EXTENT_SHARE_BYTES &&
               work->file->page_size_bytes < EXTENT_SHARE_BYTES;
}

static void note_failure(struct work *work, uint64_t offset_bytes, int r) {
        uint64_t lowest_bytes = atomic_load(&work->failed_bytes);
        int expected = 0;

        while (offset_bytes < lowest_bytes && !atomic_compare_exchange_weak(&work->failed_bytes, &lowest_bytes, offset_bytes))
                ;
        (void) atomic_compare_exchange_strong(&work->slice_result, &expected, r);
        atomic_store(&work->stop, true);
}

static bool do_slice(struct work *work) {
        uint64_t slice_bytes = slice_bytes_of(work), offset_bytes, left_bytes;
        int r;

        if (atomic_load(&work->stop))
                return false;
        offset_bytes = atomic_fetch_add(&work->next_bytes, slice_bytes);
        if (offset_bytes >= work->to_bytes)
                return false;
        left_bytes = work->to_bytes - offset_bytes;
        r = work->kind->slice(work, offset_bytes, left_bytes < slice_bytes ? left_bytes : slice_bytes);
        if (r < 0)
                note_failure(work, offset_bytes, r);
        return true;
}

static int part_step(struct job *job) {
        struct work *work = ((struct part *) job)->work;

        switch (work->stage) {
        case STAGE_SETUP:
                work->result = work->kind->setup(work);
                if (!work->kind->slice)
                        return 0;
                work->stage = work->result < 0 ? STAGE_FINISH : STAGE_SLICES;
                /* Back to the loop, which brings in the other workers. */
                return work->n_parts > 1 && work->stage == STAGE_SLICES ? 0 : 1;
        case STAGE_SLICES:
                if (do_slice(work))
                        return 1;
                if (work->n_parts > 1)
                        return 0;
                work->stage = STAGE_FINISH;
                return 1;
        case STAGE_FINISH:
                work->result = work->kind->finish(work, work->result < 0 ? work->result : atomic_load(&work->slice_result));
                work->stage = STAGE_END;
                return 0;
        case STAGE_END:
                break;
        }
        return 0;
}

/* The kernel may hand out ordinary memory as surplus pages where overcommit allows it; those were not set aside by the operator. */
static int map_without_surplus(struct work *work) {
        struct topology_pages before, after;
        int r;

        r = topology_read_pages(work->stock->topology, work->node, work->file->page_size_bytes, &before);
        if (r >= 0)
                r = extent_file_map(work->file, work->node);
        if (r >= 0)
                r = topology_read_pages(work->stock->topology, work->node, work->file->page_size_bytes, &after);
        if (r < 0)
                return r == -ENOMEM ? -ENOSPC : r;
        return after.n_surplus_all > before.n_surplus_all ? -ENOSPC : 0;
}

static int fill_setup(struct work *work) {
        int r;

        if (work->file->fd < 0) {
                r = extent_file_create(work->extent->node_pool->pool->page_size_bytes, work->file);
                if (r < 0)
                        return r;
        }
        r = extent_file_resize(work->file, work->to_bytes);
        return r < 0 ? r : map_without_surplus(work);
}

static int fill_slice(struct work *work, uint64_t offset_bytes, uint64_t bytes) {
        uint64_t n_misplaced, n_missing;
        int r;

        r = extent_file_populate(work->file, offset_bytes, bytes);
        if (r < 0)
                return r;
        r = topology_count_misplaced((char *) work->file->addr + offset_bytes, bytes, work->file->page_size_bytes, work->node,
                                     &n_misplaced, &n_missing);
        if (r < 0)
                return r;
        if (n_misplaced > 0 || n_missing > 0)
                return -EXDEV;
        /* The kernel zeroes by another mapping. On a guest (probably one with shadow page tables) a client's first touches of a table
         * that nobody has used cost 100 us a page, and 0.4 us after this (measured). */
        if (stays_mapped(work))
                extent_file_touch(work->file, offset_bytes, bytes);
        return 0;
}

/* Keeps what was populated without a gap from the start: that much is zero, placed and can be handed out. */
static int fill_finish(struct work *work, int r) {
        uint64_t kept_bytes = atomic_load(&work->next_bytes), failed_bytes = atomic_load(&work->failed_bytes);
        int q = 0;

        if (failed_bytes < kept_bytes)
                kept_bytes = failed_bytes;
        if (kept_bytes > work->to_bytes)
                kept_bytes = work->to_bytes;
        if (kept_bytes < work->from_bytes)
                kept_bytes = work->from_bytes;
        if (work->file->fd >= 0 && kept_bytes < work->file->bytes)
                q = extent_file_resize(work->file, kept_bytes);
        if (!stays_mapped(work))
                extent_file_unmap(work->file);
        if (r >= 0 && kept_bytes < work->to_bytes)
                r = -ECANCELED;
        return q < 0 ? q : r;
}

static int scrub_setup(struct work *work) {
        struct extent_check check;
        int r;

        r = extent_file_check(work->file, &check);
        if (r < 0)
                return r;
        if (check.foreign_seal || check.size_bytes > work->file->bytes || check.present_bytes > work->file->bytes)
                return -EXDEV;
        return map_without_surplus(work);
}

static int scrub_slice(struct work *work, uint64_t offset_bytes, uint64_t bytes) {
        int r = fill_slice(work, offset_bytes, bytes); /* its holder may have punched holes, or moved pages to another node */

        if (r >= 0)
                extent_file_clear(work->file, offset_bytes, bytes);
        return r;
}

static int scrub_finish(struct work *work, int r) {
        if (!stays_mapped(work))
                extent_file_unmap(work->file);
        return r;
}

static int cut_setup(struct work *work) {
        return extent_file_resize(work->file, work->to_bytes);
}

static int drop_setup(struct work *work) {
        if (work->test_pins && extent_file_test_pins(work->file) == -EBUSY)
                return -EBUSY;
        extent_file_done(work->file);
        return 0;
}

static int unmap_setup(struct work *work) {
        extent_file_unmap(work->file);
        return 0;
}

static const struct work_kind fill_kind = {fill_setup, fill_slice, fill_finish};
static const struct work_kind scrub_kind = {scrub_setup, scrub_slice, scrub_finish};
static const struct work_kind cut_kind = {.setup = cut_setup};
static const struct work_kind drop_kind = {.setup = drop_setup};
static const struct work_kind unmap_kind = {.setup = unmap_setup};

/* Loop thread: the life of a work */

static void submit_parts(struct work *work, unsigned n_parts) {
        work->n_parts_running = n_parts;
        if (work->n_parts_submitted < n_parts)
                work->n_parts_submitted = n_parts;
        for (unsigned i = 0; i < n_parts; i++)
                worker_pool_submit(work->workers, &work->parts[i].job);
}

static void work_end(struct work *work);

static void on_store_removed(void *userdata) {
        work_end(userdata);
}

/* The kernel has the pages back only when the service manager has closed its fd too. */
static bool is_stored_still(struct work *work) {
        return work->kind == &drop_kind && work->result == 0 &&
               warm_remove(work->stock->warm, work->extent, on_store_removed, work) > 0;
}

static void work_end(struct work *work) {
        struct extent *extent = work->extent;

        if (is_stored_still(work))
                return;
        extent->work = NULL;
        if ((work->kind == &fill_kind || work->kind == &cut_kind) && extent->bytes != extent->file.bytes) {
                assert(extent->state != EXTENT_READY);
                pool_resize(extent, extent->file.bytes);
        }
        if (work->kind == &fill_kind && extent->file.bytes > work->from_bytes)
                extent->node_pool->zeroed_bytes_total += extent->file.bytes - work->from_bytes;
        if (work->done)
                work->done(work->userdata, extent, work->result);
        free(work);
}

static void part_done(struct job *job, int r) {
        struct work *work = ((struct part *) job)->work;

        if (r == -ECANCELED) { /* the workers are being stopped: no further stage will run */
                work->result = r;
                work->stage = STAGE_END;
        }
        if (--work->n_parts_running > 0)
                return;
        if (work->kind->slice && work->n_parts > 1 && work->stage == STAGE_SLICES) {
                if (work->n_parts_submitted == 1)
                        submit_parts(work, work->n_parts);
                else {
                        work->stage = STAGE_FINISH;
                        submit_parts(work, 1);
                }
                return;
        }
        work_end(work);
}

static struct worker_pool *workers_of(struct stock *stock, int node) {
        for (size_t i = 0; i < stock->n_nodes; i++)
                if (stock->nodes[i].node == node)
                        return stock->nodes[i].pool;
        return NULL;
}

static int work_start(struct stock *stock, struct extent *extent, const struct work_kind *kind, enum job_urgency urgency,
                      unsigned n_parts, const struct work *template) {
        struct work *work;

        assert(!extent->work);
        work = calloc(1, sizeof(*work) + n_parts * sizeof(struct part));
        if (!work)
                return -ENOMEM;
        work->stock = stock;
        work->extent = extent;
        work->file = &extent->file;
        work->kind = kind;
        work->node = extent->node_pool->node;
        work->workers = workers_of(stock, work->node);
        work->from_bytes = template->from_bytes;
        work->to_bytes = template->to_bytes;
        work->test_pins = template->test_pins;
        work->done = template->done;
        work->userdata = template->userdata;
        atomic_store(&work->failed_bytes, UINT64_MAX);
        work->n_parts = n_parts;
        for (unsigned i = 0; i < n_parts; i++)
                work->parts[i] = (struct part) {
                        .work = work, .job = {.urgency = urgency, .step = part_step, .done = part_done}};
        extent->work = work;
        if (kind == &fill_kind || kind == &cut_kind || kind == &drop_kind)
                warm_note_busy(stock->warm, extent);
        submit_parts(work, 1);
        return 0;
}

int stock_fill(struct stock *stock, struct extent *extent, uint64_t to_bytes, enum job_urgency urgency, stock_done_fn done,
               void *userdata) {
        struct work template = {.from_bytes = extent->file.bytes, .to_bytes = to_bytes, .done = done, .userdata = userdata};
        unsigned n_parts = worker_pool_n_threads(workers_of(stock, extent->node_pool->node));
        int r;

        if (to_bytes - extent->file.bytes <= 2 * SLICE_BYTES)
                n_parts = 1;
        r = work_start(stock, extent, &fill_kind, urgency, n_parts, &template);
        if (r >= 0)
                pool_resize(extent, to_bytes);
        return r;
}

void stock_stop_fill(struct extent *extent) {
        if (extent->work)
                atomic_store(&extent->work->stop, true);
}

void stock_raise(struct stock *stock, struct extent *extent, enum job_urgency urgency) {
        struct work *work = extent->work;

        if (!work)
                return;
        for (unsigned i = 0; i < work->n_parts; i++)
                if (i < work->n_parts_submitted)
                        worker_pool_raise(work->workers, &work->parts[i].job, urgency);
                else
                        work->parts[i].job.urgency = urgency;
}

int stock_cut(struct stock *stock, struct extent *extent, uint64_t to_bytes, stock_done_fn done, void *userdata) {
        struct work template = {.to_bytes = to_bytes, .done = done, .userdata = userdata};

        return work_start(stock, extent, &cut_kind, JOB_WAITING, 1, &template);
}

int stock_scrub(struct stock *stock, struct extent *extent, stock_done_fn done, void *userdata) {
        struct work template = {.to_bytes = extent->file.bytes, .done = done, .userdata = userdata};

        return work_start(stock, extent, &scrub_kind, JOB_SCRUB, 1, &template);
}

int stock_drop(struct stock *stock, struct extent *extent, bool test_pins, enum job_urgency urgency, stock_done_fn done,
               void *userdata) {
        struct work template = {.test_pins = test_pins, .done = done, .userdata = userdata};

        return work_start(stock, extent, &drop_kind, urgency, 1, &template);
}

void stock_unmap(struct stock *stock, struct extent *extent) {
        struct work template = {};

        /* Without memory for the job the mapping just stays a while longer. */
        (void) work_start(stock, extent, &unmap_kind, JOB_DROP, 1, &template);
}

/* Loop thread: descriptions and watches */

static int open_description(struct stock *stock, struct extent *extent) {
        int r;

        /* Equal neighbours in the queue merge: a foreign open that is still in it would vanish in ours. */
        if (extent->wd > 0)
                reclaim_drain(stock->reclaim);
        r = extent_file_open_grant(&extent->file, &extent->grant_fd);
        if (r < 0)
                return r;
        stock->n_opened_ahead++;
        if (extent->wd > 0)
                reclaim_swallow_open(stock->reclaim, extent->wd);
        return 0;
}

int stock_make_ready(struct stock *stock, struct extent *extent) {
        int r = 0;

        if (extent->grant_fd < 0 && stock->n_opened_ahead < stock->max_opened_ahead)
                r = open_description(stock, extent);
        if (r >= 0 && extent->wd <= 0)
                r = reclaim_watch(stock->reclaim, extent->file.fd, extent, &extent->wd);
        if (r >= 0 && extent->foreign_open)
                r = -EXDEV;
        if (r >= 0 && extent->node_pool->pool->extent_bytes != 0 && !extent->sealed) {
                r = extent_file_seal(&extent->file); /* a fixed size is final from the start: 2-3 us less at hand-out */
                extent->sealed = r >= 0;
        }
        if (r < 0)
                return r;
        extent->close_event = extent->doubt = false;
        extent->n_asked = 0;
        r = pool_make_ready(extent);
        if (r >= 0)
                warm_note(stock->warm, extent, LEDGER_READY);
        return r;
}

/* On the loop thread: nobody is served yet, and 1 GiB takes half a millisecond. */
int stock_adopt(struct stock *stock, struct extent *extent) {
        struct work work = {.stock = stock, .extent = extent, .file = &extent->file, .node = extent->node_pool->node};
        struct extent_check check;
        int r = extent_file_check(&extent->file, &check);

        if (r < 0)
                return r;
        if (check.foreign_seal || check.size_bytes != extent->file.bytes || check.present_bytes != extent->file.bytes ||
            extent_file_is_held(&extent->file) != 0)
                return -EXDEV;
        r = extent_file_map(&extent->file, work.node);
        if (r >= 0)
                r = fill_slice(&work, 0, extent->file.bytes);
        if (!stays_mapped(&work))
                extent_file_unmap(&extent->file);
        return r;
}

int stock_prepare_grant(struct stock *stock, struct extent *extent, bool reopenable) {
        int r = 0;

        if (!extent->sealed) {
                r = extent_file_seal(&extent->file);
                extent->sealed = r >= 0;
        }
        if (r >= 0 && extent->wd <= 0)
                r = reclaim_watch(stock->reclaim, extent->file.fd, extent, &extent->wd);
        if (r >= 0 && extent->grant_fd < 0)
                r = open_description(stock, extent);
        if (r >= 0 && reopenable) {
                r = extent_file_make_reopenable(&extent->file, stock->config->socket_gid);
                extent->reopenable = r >= 0;
        }
        return r;
}

void stock_forget(struct stock *stock, struct extent *extent) {
        if (extent->wd > 0)
                reclaim_unwatch(stock->reclaim, extent->wd);
        extent->wd = 0;
        stock_close_grant_fd(stock, extent);
}

void stock_close_grant_fd(struct stock *stock, struct extent *extent) {
        if (extent->grant_fd < 0)
                return;
        extent->grant_fd = safe_close(extent->grant_fd);
        stock->n_opened_ahead--;
}

bool stock_has_descriptors(const struct stock *stock, uint64_t n_extents) {
        return n_extents + stock->n_opened_ahead < stock->max_files;
}

/* Start and stop */

static unsigned workers_per_node(const struct config *config, size_t n_nodes) {
        long n_cpus = sysconf(_SC_NPROCESSORS_ONLN);
        unsigned n_workers = n_cpus > 0 ? (unsigned) n_cpus / (unsigned) n_nodes / 4 : 1;

        if (config->workers_per_node > 0)
                return config->workers_per_node;
        /* Chosen: a quarter of the node's CPUs; two at least, since a second one still speeds up filling by 1.6; eight are plenty for any memory. */
        return n_workers < 2 ? 2 : n_workers > 8 ? 8 : n_workers;
}

int stock_new(struct event_base *base, const struct config *config, const struct topology *topology, struct reclaim *reclaim,
              struct warm *warm, struct stock **ret_stock) {
        struct stock *stock = calloc(1, sizeof(*stock));
        struct rlimit limit = {};
        int r = 0;

        if (!stock)
                return -ENOMEM;
        stock->config = config;
        stock->topology = topology;
        stock->reclaim = reclaim;
        stock->warm = warm;
        (void) getrlimit(RLIMIT_NOFILE, &limit);
        stock->max_files = limit.rlim_cur - limit.rlim_cur / 4; /* chosen: a quarter is for clients and for the daemon itself */
        stock->max_opened_ahead = limit.rlim_cur / 3; /* each extent has a description of its own besides; the rest is for clients */
        for (size_t i = 0; i < topology_n_nodes(topology) && i < CONFIG_MAX_NODES && r >= 0; i++) {
                struct node_workers *node = &stock->nodes[stock->n_nodes];

                node->node = topology_node_at(topology, i);
                r = worker_pool_new(base, topology, node->node, workers_per_node(config, topology_n_nodes(topology)),
                                    &node->pool);
                if (r >= 0)
                        stock->n_nodes++;
        }
        if (r < 0) {
                stock_free(stock);
                return r;
        }
        *ret_stock = stock;
        return 0;
}

void stock_stop(struct stock *stock) {
        for (size_t i = 0; i < stock->n_nodes; i++)
                stock->nodes[i].pool = worker_pool_free(stock->nodes[i].pool);
}

struct stock *stock_free(struct stock *stock) {
        if (stock)
                stock_stop(stock);
        free(stock);
        return NULL;
}
