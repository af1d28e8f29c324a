/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What workers do with extents. All of this runs on worker threads; while it does, the extent's file is theirs. */
#include <assert.h>
#include <errno.h>

#include "extent.h"
#include "stock-internal.h"
#include "topology.h"

#define NEIGHBOURHOOD_PAGES (2 * CLEAR_RADIUS_PAGES + 1)

uint64_t work_slice_bytes(const struct work *work) {
        uint64_t page_bytes = work->extent->node_pool->pool->page_size_bytes, batch_bytes = work->node->clearing.batch_bytes;

        return batch_bytes > page_bytes ? batch_bytes - batch_bytes % page_bytes : page_bytes;
}

/* Only whole page tables can be shared, one covers 1 GiB of 2 MiB pages; a mapping that cannot be shared is only a budget spent. */
bool work_stays_mapped(const struct stock *stock, const struct extent_file *file) {
        return stock->config->share_page_tables && file->bytes >= EXTENT_SHARE_BYTES &&
               file->page_size_bytes < EXTENT_SHARE_BYTES;
}

static bool is_awaited(const struct work *work) {
        return work->parts[0].job.urgency == JOB_WAITING;
}

/* The stages of a fill */

/*
 * Where the host allows overcommitting the kernel takes ordinary memory for the pages that it lacks, as soon as they are mapped:
 * surplus pages, which the operator has not set aside. One worker at a time looks whether there are enough, or two would both
 * see the last one. Who is not of this daemon may still come in between: then all is given back before the next one looks, for
 * whom a surplus page that was there already would hide his own.
 */
static int map_without_surplus(struct work *work, uint64_t missing_bytes) {
        const struct topology *topology = work->stock->topology;
        uint64_t page_bytes = work->file->page_size_bytes;
        struct topology_pages before = {}, after;
        int r = -ENOSPC;

        (void) pthread_mutex_lock(&work->stock->map_lock);
        if (topology_available_bytes(topology, work->node->node, page_bytes) >= missing_bytes)
                r = topology_read_pages(topology, work->node->node, page_bytes, &before);
        if (r >= 0)
                r = extent_file_map(work->file, work->node->node);
        if (r >= 0)
                r = topology_read_pages(topology, work->node->node, page_bytes, &after);
        if (r >= 0 && after.n_surplus_all > before.n_surplus_all)
                r = -ENOSPC;
        work->is_overcommitted = r >= 0;
        work->n_surplus = before.n_surplus;
        if (r < 0 && !work->extent->sealed) /* a sealed one gives back when it is dropped */
                (void) extent_file_resize(work->file, work->from_bytes);
        (void) pthread_mutex_unlock(&work->stock->map_lock);
        return r;
}

/* Maps the file, @missing_bytes of which have no pages yet. */
static int map_file(struct work *work, uint64_t missing_bytes) {
        int r;

        if (topology_overcommits(work->stock->topology, work->file->page_size_bytes))
                r = map_without_surplus(work, missing_bytes);
        else
                r = extent_file_map(work->file, work->node->node);
        return r == -ENOMEM ? -ENOSPC : r;
}

static int fill_setup(struct work *work) {
        int r;

        if (work->file->fd < 0) {
                r = extent_file_create(work->extent->node_pool->pool->page_size_bytes, work->file);
                if (r < 0)
                        return r;
        }
        r = extent_file_resize(work->file, work->to_bytes);
        return r < 0 ? r : map_file(work, work->to_bytes - work->from_bytes);
}

int work_verify_placement(const struct extent_file *file, int node, uint64_t offset_bytes, uint64_t bytes) {
        uint64_t n_misplaced, n_missing;
        int r = topology_count_misplaced((char *) file->addr + offset_bytes, bytes, file->page_size_bytes, node, &n_misplaced,
                                         &n_missing);

        if (r < 0)
                return r;
        return n_misplaced > 0 || n_missing > 0 ? -EXDEV : 0;
}

/* Of a scrub too: its holder may have punched holes, or moved pages to another node. The kernel moves those that are in its way. */
static int populate_slice(struct work *work, uint64_t offset_bytes, uint64_t bytes) {
        int r = extent_file_populate(work->file, offset_bytes, bytes);

        return r < 0 ? r : work_verify_placement(work->file, work->node->node, offset_bytes, bytes);
}

/* Only what is filled for measuring is larger than its pool's extents. */
bool work_is_probe(const struct work *work) {
        uint64_t extent_bytes = work->extent->node_pool->pool->extent_bytes;

        return work->kind == &work_kind_fill && extent_bytes > 0 && work->to_bytes > extent_bytes;
}

/* A client that comes now shall not wait for figures. */
static bool stop_measuring(void *userdata) {
        const struct work *work = userdata;

        return atomic_load(&work->stop) || worker_pool_is_awaited(work->node->workers);
}

/*
 * What is mapped is promised of the pages of all nodes. Where others took those of this node meanwhile, the kernel has made
 * surplus pages when it was populated. Whichever pages of the node are given back, that many are surplus pages no longer.
 */
static uint64_t count_surplus_bytes(const struct work *work) {
        uint64_t page_bytes = work->file->page_size_bytes;
        struct topology_pages pages;

        if (!work->is_overcommitted || topology_n_nodes(work->stock->topology) == 1 ||
            topology_read_pages(work->stock->topology, work->node->node, page_bytes, &pages) < 0 ||
            pages.n_surplus <= work->n_surplus)
                return 0;
        return (pages.n_surplus - work->n_surplus) * page_bytes;
}

/* Keeps what was populated without a gap from the start: that much is zero, placed and can be handed out. */
static int fill_finish(struct work *work, int r) {
        uint64_t kept_bytes = atomic_load(&work->next_bytes), failed_bytes = atomic_load(&work->failed_bytes);
        uint64_t surplus_bytes = count_surplus_bytes(work);
        int q = 0;

        if (failed_bytes < kept_bytes)
                kept_bytes = failed_bytes;
        if (kept_bytes > work->to_bytes)
                kept_bytes = work->to_bytes;
        if (surplus_bytes > 0) {
                kept_bytes = kept_bytes > surplus_bytes ? kept_bytes - surplus_bytes : 0;
                r = r < 0 ? r : -ENOSPC;
        }
        if (kept_bytes < work->from_bytes)
                kept_bytes = work->from_bytes;
        if (work->file->fd >= 0 && kept_bytes < work->file->bytes)
                q = extent_file_resize(work->file, kept_bytes);
        if (r >= 0 && q >= 0 && kept_bytes == work->to_bytes)
                q = clearing_measure(&work->node->clearing, work->file->addr, kept_bytes, work_is_probe(work), stop_measuring,
                                     work);
        if (!work_stays_mapped(work->stock, work->file))
                extent_file_unmap(work->file);
        if (r >= 0 && kept_bytes < work->to_bytes)
                r = -ECANCELED;
        return q < 0 && q != -ECANCELED ? q : r;
}

/* The stages of a scrub */

static void begin_clearing(struct work *work) {
        const struct clearing *clearing = &work->node->clearing;

        /* Its next holder touches the start first, if anything: that stays in the cache. */
        clear_slices_init(&work->slices, clearing_background_method(clearing, work->file->bytes), work->file->addr,
                          work->file->bytes / clear_base_page_bytes(), /* touch_page= */ 0,
                          clearing_batch_pages(clearing, /* awaited= */ false));
}

static int scrub_setup(struct work *work) {
        struct extent_check check;
        int r;

        /* A mapping that its holder made behind the end has reserved pages, which the file keeps: they are given back. */
        r = extent_file_resize(work->file, work->file->bytes);
        if (r >= 0)
                r = extent_file_check(work->file, &check);
        if (r < 0)
                return r;
        if (check.foreign_seal || check.size_bytes > work->file->bytes || check.present_bytes > work->file->bytes)
                return -EXDEV;
        work->missing_bytes = work->file->bytes - check.present_bytes;
        r = map_file(work, work->missing_bytes);
        if (r >= 0)
                begin_clearing(work);
        return r;
}

static int scrub_clear(struct work *work) {
        const struct clearing *clearing = &work->node->clearing;
        int r;

        if (is_awaited(work)) /* nothing needs this thread in between: the processor is told all there is */
                clear_slices_change(&work->slices, clearing_method(clearing, work->file->bytes),
                                    clearing_batch_pages(clearing, /* awaited= */ true));
        r = clear_next_slice(&work->slices);
        /* The neighbourhood of the first touch is too little to wait for its turn. */
        if (r > 0 && clear_slices_next_bytes(&work->slices) <= NEIGHBOURHOOD_PAGES * clear_base_page_bytes())
                r = clear_next_slice(&work->slices);
        return r;
}

static int scrub_finish(struct work *work, int r) {
        if (r >= 0) {
                int q = clearing_measure(&work->node->clearing, work->file->addr, work->file->bytes, /* is_probe= */ false,
                                         stop_measuring, work);

                r = q < 0 && q != -ECANCELED ? q : r;
        }
        if (!work_stays_mapped(work->stock, work->file))
                extent_file_unmap(work->file);
        return r;
}

/* The others have one step */

static int cut_setup(struct work *work) {
        return extent_file_resize(work->file, work->to_bytes);
}

/*
 * A page whose memory has failed looks pinned for ever. It is found by mapping all of it again, which must take no page from
 * the kernel. Who has pinned another one keeps what he has, and gets nothing.
 */
static bool has_failed(struct work *work) {
        struct extent_check check;
        int r = extent_file_check(work->file, &check);

        if (r >= 0 && check.present_bytes >= work->file->bytes)
                r = extent_file_map(work->file, work->node->node);
        if (r >= 0 && work->file->addr)
                r = extent_file_populate(work->file, 0, work->file->bytes);
        extent_file_unmap(work->file);
        return r == -EHWPOISON;
}

static int drop_setup(struct work *work) {
        if (work->test_pins && extent_file_test_pins(work->file) == -EBUSY && !has_failed(work))
                return -EBUSY;
        extent_file_done(work->file);
        return 0;
}

static int unmap_setup(struct work *work) {
        extent_file_unmap(work->file);
        return 0;
}

uint64_t work_measured_bytes(const struct extent_file *file) {
        uint64_t bytes = file->bytes < CLEAR_CALIBRATE_BYTES ? file->bytes : CLEAR_CALIBRATE_BYTES;

        return bytes - bytes % file->page_size_bytes;
}

/*
 * The memory is idle: what was not measured when it was filled has another chance here, until somebody comes. Measuring leaves
 * nothing but zeroes, so what was not zero is looked for before. 1, as of clear_verify(): it was found.
 */
static int measure_idle(struct work *work, size_t *ret_offset_bytes) {
        struct clearing *clearing = &work->node->clearing;
        uint64_t bytes = work_measured_bytes(work->file);
        int r;

        if (!work->may_measure || !clearing_may_learn(clearing, bytes))
                return 0;
        r = populate_slice(work, 0, bytes);
        if (r >= 0)
                r = clear_verify(work->file->addr, bytes, ret_offset_bytes);
        if (r == 0)
                r = clearing_measure(clearing, work->file->addr, bytes, /* is_probe= */ false, stop_measuring, work);
        return r == -ECANCELED ? 0 : r;
}

/*
 * Reading is a step of its own, because it alone may be done in the idle class; all three take no longer than reading. Not bound to
 * the node, which the kernel refuses when its memory is gone: all pages are there, and where they are is asked.
 */
static int audit_setup(struct work *work) {
        struct extent_check check;
        int r = extent_file_check(work->file, &check);

        work->was_mapped = work->file->addr;
        if (r >= 0 && check.present_bytes < work->file->bytes)
                r = -EFAULT; /* populating would hide that somebody had his hands in it */
        if (r >= 0 && !work->was_mapped)
                r = extent_file_map(work->file, /* node= */ -1);
        return r < 0 ? r : populate_slice(work, work->from_bytes, work->to_bytes - work->from_bytes);
}

static int audit_read(struct work *work) {
        size_t offset_bytes = 0;
        int r;

        if (atomic_load(&work->stop))
                return -ECANCELED;
        r = clear_verify((char *) work->file->addr + work->from_bytes, work->to_bytes - work->from_bytes, &offset_bytes);
        work->found_bytes = work->from_bytes + offset_bytes;
        return r > 0 ? -EBADMSG : r;
}

static int audit_finish(struct work *work, int r) {
        size_t offset_bytes;

        if (r == 0) {
                r = measure_idle(work, &offset_bytes);
                if (r > 0) {
                        work->found_bytes = offset_bytes;
                        r = -EBADMSG;
                }
        }
        if (!work->was_mapped)
                extent_file_unmap(work->file);
        return r;
}

const struct work_kind work_kind_fill = {
        .setup = fill_setup, .slice = populate_slice, .finish = fill_finish, .is_touched = true, .is_zeroed_by_slices = true};
const struct work_kind work_kind_scrub = {
        .setup = scrub_setup, .slice = populate_slice, .clear = scrub_clear, .finish = scrub_finish, .is_touched = true};
const struct work_kind work_kind_cut = {.setup = cut_setup};
const struct work_kind work_kind_drop = {.setup = drop_setup};
const struct work_kind work_kind_unmap = {.setup = unmap_setup};
const struct work_kind work_kind_audit = {.setup = audit_setup, .clear = audit_read, .finish = audit_finish};

/* From stage to stage */

static void note_failure(struct work *work, uint64_t offset_bytes, int r) {
        uint64_t lowest_bytes = atomic_load(&work->failed_bytes);
        int expected = 0;

        while (offset_bytes < lowest_bytes && !atomic_compare_exchange_weak(&work->failed_bytes, &lowest_bytes, offset_bytes))
                ;
        (void) atomic_compare_exchange_strong(&work->slice_result, &expected, r);
        atomic_store(&work->stop, true);
}

bool work_is_stopped(const struct work *work) {
        return atomic_load(&work->stop) && (atomic_load(&work->slice_result) < 0 || atomic_load(&work->next_bytes) > work->from_bytes);
}

/* The next slice that nobody else does. */
static bool take_slice(struct work *work, uint64_t *ret_offset_bytes, uint64_t *ret_bytes) {
        uint64_t slice_bytes = work_slice_bytes(work), offset_bytes = atomic_load(&work->next_bytes), end_bytes;

        if (work_is_stopped(work))
                return false;
        do {
                if (offset_bytes >= work->limit_bytes)
                        return false;
                end_bytes = work->limit_bytes - offset_bytes > slice_bytes ? offset_bytes + slice_bytes : work->limit_bytes;
        } while (!atomic_compare_exchange_weak(&work->next_bytes, &offset_bytes, end_bytes));
        *ret_offset_bytes = offset_bytes;
        *ret_bytes = end_bytes - offset_bytes;
        return true;
}

static bool do_slice(struct work *work) {
        uint64_t offset_bytes, bytes;
        int r;

        if (!take_slice(work, &offset_bytes, &bytes))
                return false;
        r = work->kind->slice(work, offset_bytes, bytes);
        if (r < 0)
                note_failure(work, offset_bytes, r);
        return true;
}

/*
 * The last thing before it is ready: the first access to a page that nobody has used for a while is slow (measured on a guest,
 * a page of 2 MiB: 2 us behind scrubbing, 12 us after five seconds, less than 0.1 us behind this). 1: there is more.
 */
static int touch_more(struct work *work) {
        uint64_t from_bytes = work->touched_bytes, left_bytes;
        int r;

        if (!work->kind->is_touched || work->result < 0 || atomic_load(&work->slice_result) < 0 || atomic_load(&work->stop) ||
            is_awaited(work))
                return 0;
        left_bytes = work->file->bytes - from_bytes;
        work->touched_bytes += left_bytes < EXTENT_SHARE_BYTES ? left_bytes : EXTENT_SHARE_BYTES;
        r = clear_touch((char *) work->file->addr + from_bytes, work->touched_bytes - from_bytes, work->file->page_size_bytes);
        if (r < 0)
                note_failure(work, from_bytes, r);
        return r >= 0 && work->touched_bytes < work->file->bytes;
}

static int do_stage(struct work *work) {
        int r;

        switch (work->stage) {
        case STAGE_SETUP:
                work->result = work->kind->setup(work);
                if (!work->kind->finish)
                        return 0;
                work->stage = work->result < 0 ? STAGE_FINISH : work->kind->slice ? STAGE_SLICES : STAGE_CLEARING;
                /* Back to the loop, which brings in the other workers. */
                return work->in_rounds && work->stage == STAGE_SLICES ? 0 : 1;
        case STAGE_SLICES:
                if (do_slice(work))
                        return 1;
                if (work->in_rounds)
                        return 0;
                work->stage = work->kind->clear && atomic_load(&work->slice_result) >= 0 ? STAGE_CLEARING : STAGE_TOUCHING;
                return 1;
        case STAGE_CLEARING:
                r = work->kind->clear(work);
                if (r < 0)
                        note_failure(work, 0, r);
                if (r <= 0)
                        work->stage = STAGE_TOUCHING;
                return 1;
        case STAGE_TOUCHING:
                if (touch_more(work) == 0)
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

/* Of a scrub the pages that its holder has punched out; where they are among the others is not known. */
static uint64_t zeroed_by_slice_bytes(const struct work *work) {
        uint64_t slice_bytes = work_slice_bytes(work);

        if (work->kind->is_zeroed_by_slices)
                return slice_bytes;
        return (uint64_t) ((double) work->missing_bytes / (double) work->file->bytes * (double) slice_bytes);
}

void work_plan_step(struct part *part) {
        const struct work *work = part->work;

        part->job.step_bytes = 0;
        part->job.step_may_idle = false;
        if (work->stage == STAGE_SLICES && atomic_load(&work->next_bytes) < work->limit_bytes && !atomic_load(&work->stop))
                part->job.step_bytes = zeroed_by_slice_bytes(work);
        if (work->stage == STAGE_CLEARING) {
                part->job.step_bytes = clear_slices_next_bytes(&work->slices);
                part->job.step_may_idle = true;
        }
}

int work_step(struct job *job) {
        struct part *part = (struct part *) job;
        int r = do_stage(part->work);

        if (r > 0)
                work_plan_step(part);
        return r;
}
