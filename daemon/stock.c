/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The long work on extents as the loop thread sees it: begun, raised, stopped, ended. What workers do is in stock-work.c. */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cleanup.h"
#include "pace.h"
#include "reclaim.h"
#include "stock-internal.h"
#include "topology.h"
#include "warm.h"

#define ROUND_SLICES 4 /* chosen: of a fill that is measured, for each round; two for each thread at least */

/* The life of a work */

static void submit_parts(struct work *work, unsigned n_parts) {
        work->n_parts_running = n_parts;
        if (work->n_parts_submitted < n_parts)
                work->n_parts_submitted = n_parts;
        for (unsigned i = 0; i < n_parts; i++) {
                work_plan_step(&work->parts[i]);
                if (work->test_pins)
                        pin_tests_add(&work->node->pin_tests, work);
                else
                        worker_pool_submit(work->node->workers, &work->parts[i].job);
        }
}

static void set_urgency(struct work *work, enum job_urgency urgency) {
        for (unsigned i = 0; i < work->n_parts; i++)
                work->parts[i].job.urgency = urgency;
}

/* Alone on its node and full speed ahead: then a part of the fill says how much its threads are worth. */
static unsigned measure_round(struct work *work, uint64_t left_bytes) {
        unsigned n_threads = clearing_threads_to_measure(&work->node->clearing);
        unsigned n_slices = 2 * n_threads > ROUND_SLICES ? 2 * n_threads : ROUND_SLICES;
        uint64_t bytes = n_slices * work_slice_bytes(work), at_bytes = atomic_load(&work->next_bytes);

        if (n_threads == 0 || at_bytes < work->from_bytes || bytes > left_bytes || worker_pool_n_jobs(work->node->workers) > 0)
                return 0;
        work->limit_bytes = at_bytes + bytes;
        work->round_from_bytes = at_bytes;
        work->round_start_ns = pace_now_ns();
        return n_threads;
}

/* The next round of slices: how far it goes, and by how many threads. All of them are for a client that waits. */
static void submit_slices(struct work *work) {
        uint64_t at_bytes = atomic_load(&work->next_bytes), urgent_end_bytes = work->to_bytes, slice_bytes = work_slice_bytes(work);
        unsigned n_parts = work->n_parts;

        if (work->urgent_bytes < work->to_bytes - work->from_bytes)
                urgent_end_bytes = (work->from_bytes + work->urgent_bytes + slice_bytes - 1) / slice_bytes * slice_bytes;
        if (urgent_end_bytes > work->to_bytes)
                urgent_end_bytes = work->to_bytes;
        work->round_start_ns = 0;
        work->limit_bytes = work->to_bytes;
        if (work->parts[0].job.urgency == JOB_LOW && at_bytes >= urgent_end_bytes)
                set_urgency(work, JOB_FILL);
        if (work->parts[0].job.urgency != JOB_WAITING)
                n_parts = clearing_fill_threads(&work->node->clearing);
        if (work->parts[0].job.urgency == JOB_LOW) {
                unsigned n_measured = measure_round(work, urgent_end_bytes - at_bytes);

                if (n_measured > 0)
                        n_parts = n_measured;
                else
                        work->limit_bytes = urgent_end_bytes;
        }
        submit_parts(work, n_parts < work->n_parts ? n_parts : work->n_parts);
}

static void note_round(struct work *work) {
        if (work->round_start_ns > 0 && work->parts[0].job.urgency == JOB_LOW && !atomic_load(&work->stop))
                clearing_note_fill(&work->node->clearing, work->limit_bytes - work->round_from_bytes,
                                   pace_now_ns() - work->round_start_ns);
        work->round_start_ns = 0;
}

/* What is left costs nothing, and is not to queue behind the slices of others. */
static void submit_finish(struct work *work) {
        work->stage = STAGE_TOUCHING;
        if (work->parts[0].job.urgency > JOB_LOW)
                set_urgency(work, JOB_LOW);
        submit_parts(work, 1);
}

static void work_end(struct work *work);

static void on_store_removed(void *userdata) {
        work_end(userdata);
}

/* The kernel has the pages back only when the service manager has closed its fd too. */
static bool is_stored_still(struct work *work) {
        return work->kind == &work_kind_drop && work->result == 0 &&
               warm_remove(work->stock->warm, work->extent, on_store_removed, work) > 0;
}

static void work_end(struct work *work) {
        struct extent *extent = work->extent;

        if (is_stored_still(work))
                return;
        extent->work = NULL;
        if ((work->kind == &work_kind_fill || work->kind == &work_kind_cut) && extent->bytes != extent->file.bytes) {
                assert(extent->state != EXTENT_READY);
                pool_resize(extent, extent->file.bytes);
        }
        if (work->kind == &work_kind_fill && extent->file.bytes > work->from_bytes)
                extent->node_pool->zeroed_bytes_total += extent->file.bytes - work->from_bytes;
        if (work->kind == &work_kind_scrub && work->result >= 0)
                extent->node_pool->zeroed_bytes_total += work->missing_bytes;
        if (work->kind == &work_kind_audit && work->result != -ECANCELED)
                extent->audit_bytes = work->result == -EBADMSG ? work->found_bytes : work->to_bytes;
        if (work_is_probe(work))
                clearing_end_probe(&work->node->clearing);
        if (work->node->workers) /* the store is the last to end, when the workers are gone */
                worker_pool_limit_scrubs(work->node->workers, clearing_scrub_threads(&work->node->clearing));
        clearing_log(&work->node->clearing);
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
        if (work->test_pins)
                pin_tests_end(&work->node->pin_tests, work);
        if (work->in_rounds && work->stage == STAGE_SLICES) {
                note_round(work);
                if (!work_is_stopped(work) && atomic_load(&work->next_bytes) < work->to_bytes)
                        submit_slices(work);
                else
                        submit_finish(work);
                return;
        }
        work_end(work);
}

static struct stock_node *node_of(struct stock *stock, int node) {
        for (size_t i = 0; i < stock->n_nodes; i++)
                if (stock->nodes[i].node == node)
                        return &stock->nodes[i];
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
        work->node = node_of(stock, extent->node_pool->node);
        work->from_bytes = template->from_bytes;
        work->to_bytes = work->limit_bytes = template->to_bytes;
        work->urgent_bytes = template->urgent_bytes;
        work->in_rounds = template->in_rounds;
        work->test_pins = template->test_pins;
        work->test_uid = template->test_uid;
        work->may_measure = template->may_measure;
        work->done = template->done;
        work->userdata = template->userdata;
        atomic_store(&work->failed_bytes, UINT64_MAX);
        work->n_parts = n_parts;
        for (unsigned i = 0; i < n_parts; i++)
                work->parts[i] = (struct part) {
                        .work = work, .job = {.urgency = urgency, .step = work_step, .done = part_done}};
        extent->work = work;
        if (work->test_pins && (extent->grant || extent->extra_bytes > 0))
                warm_note(stock->warm, extent, LEDGER_PINNED); /* the test may be long in coming: its charge survives us */
        else if (kind == &work_kind_fill || kind == &work_kind_cut || kind == &work_kind_drop)
                warm_note_busy(stock->warm, extent);
        else if (work->may_measure)
                warm_note_measured(stock->warm, extent, /* begins= */ true);
        submit_parts(work, 1);
        return 0;
}

int stock_fill(struct stock *stock, struct extent *extent, uint64_t to_bytes, enum job_urgency urgency, uint64_t urgent_bytes,
               stock_done_fn done, void *userdata) {
        struct stock_node *node = node_of(stock, extent->node_pool->node);
        struct work template = {.from_bytes = extent->file.bytes, .to_bytes = to_bytes, .urgent_bytes = urgent_bytes, .done = done,
                                .userdata = userdata};
        const struct node_pool *np = extent->node_pool;
        unsigned n_parts = 1;
        int r;

        clearing_want_extents(&node->clearing, np->pool->extent_bytes, np->target_bytes);
        template.in_rounds = to_bytes - extent->file.bytes > 2 * node->clearing.batch_bytes;
        if (template.in_rounds)
                n_parts = worker_pool_n_threads(node->workers);
        r = work_start(stock, extent, &work_kind_fill, urgency, n_parts, &template);
        if (r >= 0)
                pool_resize(extent, to_bytes);
        return r;
}

void stock_stop_fill(struct stock *stock, struct extent *extent) {
        if (!extent->work)
                return;
        atomic_store(&extent->work->stop, true);
        (void) stock_raise(stock, extent, JOB_WAITING); /* or it stops when its pace allows */
}

bool stock_is_paced(const struct stock *stock, const struct extent *extent) {
        enum job_urgency urgency = extent->work ? extent->work->parts[0].job.urgency : JOB_WAITING;

        return stock->config->background_bytes_per_s != UINT64_MAX && (urgency == JOB_SCRUB || urgency == JOB_FILL);
}

bool stock_raise(struct stock *stock, struct extent *extent, enum job_urgency urgency) {
        bool was_paced = stock_is_paced(stock, extent);
        struct work *work = extent->work;

        if (!work || work->parts[0].job.urgency <= urgency)
                return false;
        for (unsigned i = 0; i < work->n_parts; i++)
                if (i < work->n_parts_submitted)
                        worker_pool_raise(work->node->workers, &work->parts[i].job, urgency);
                else
                        work->parts[i].job.urgency = urgency;
        return was_paced;
}

int stock_cut(struct stock *stock, struct extent *extent, uint64_t to_bytes, stock_done_fn done, void *userdata) {
        struct work template = {.to_bytes = to_bytes, .done = done, .userdata = userdata};

        return work_start(stock, extent, &work_kind_cut, JOB_WAITING, 1, &template);
}

int stock_scrub(struct stock *stock, struct extent *extent, enum job_urgency urgency, stock_done_fn done, void *userdata) {
        struct work template = {.to_bytes = extent->file.bytes, .done = done, .userdata = userdata};

        return work_start(stock, extent, &work_kind_scrub, urgency, 1, &template);
}

int stock_drop(struct stock *stock, struct extent *extent, enum job_urgency urgency, stock_done_fn done, void *userdata) {
        struct work template = {.done = done, .userdata = userdata};

        return work_start(stock, extent, &work_kind_drop, urgency, 1, &template);
}

int stock_test_and_drop(struct stock *stock, struct extent *extent, uid_t uid, enum job_urgency urgency, stock_done_fn done,
                        void *userdata) {
        struct work template = {.test_pins = true, .test_uid = uid, .done = done, .userdata = userdata};

        return work_start(stock, extent, &work_kind_drop, urgency, 1, &template);
}

void stock_unmap(struct stock *stock, struct extent *extent) {
        struct work template = {};

        /* Without memory for the job the mapping just stays a while longer. */
        (void) work_start(stock, extent, &work_kind_unmap, JOB_DROP, 1, &template);
}

int stock_audit(struct stock *stock, struct extent *extent, uint64_t bytes, stock_done_fn done, void *userdata) {
        struct clearing *clearing = &node_of(stock, extent->node_pool->node)->clearing;
        struct work template = {.from_bytes = extent->audit_bytes, .to_bytes = extent->audit_bytes + bytes, .done = done,
                                .may_measure = clearing_may_learn(clearing, extent->bytes), .userdata = userdata};

        return work_start(stock, extent, &work_kind_audit, JOB_AUDIT, 1, &template);
}

void stock_stop_audit(struct stock *stock, struct extent *extent) {
        atomic_store(&extent->work->stop, true); /* it may be measuring */
        if (!worker_pool_cancel(extent->work->node->workers, &extent->work->parts[0].job))
                (void) stock_raise(stock, extent, JOB_WAITING); /* or what is left of it waits for what others leave */
}

bool stock_lacks_idle_class(const struct stock *stock) {
        return stock->n_nodes > 0 && worker_pool_lacks_idle(stock->nodes[0].workers);
}

bool stock_is_idle(struct stock *stock, int node) {
        return worker_pool_n_jobs(node_of(stock, node)->workers) == 0;
}

struct clearing *stock_clearing(struct stock *stock, int node) {
        return &node_of(stock, node)->clearing;
}

/* Descriptions and watches */

static int open_description(struct stock *stock, struct extent *extent) {
        int r;

        /* Equal neighbours in the queue merge: a foreign open that is still in it would vanish in ours. */
        if (extent->wd > 0)
                reclaim_drain(stock->reclaim);
        r = extent_file_open_grant(&extent->file, &extent->grant_fd);
        if (r < 0)
                return r;
        if (extent->wd > 0)
                reclaim_swallow_open(stock->reclaim, extent->wd);
        return 0;
}

int stock_make_ready(struct stock *stock, struct extent *extent) {
        int r = 0;

        if (extent->grant_fd < 0)
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
        extent->audit_bytes = 0;
        extent->close_event = extent->doubt = false;
        extent->n_asked = 0;
        r = pool_make_ready(extent);
        if (r >= 0)
                warm_note(stock->warm, extent, LEDGER_READY);
        return r;
}

/* On the loop thread: nobody is served yet, and 1 GiB takes half a millisecond. */
static int clear_measured(const struct clearing *clearing, const struct extent_file *file) {
        uint64_t bytes = work_measured_bytes(file);

        return clear_pages(clearing_method(clearing, bytes), file->addr, bytes / clear_base_page_bytes());
}

int stock_adopt(struct stock *stock, struct extent *extent, bool was_measured) {
        const struct node_pool *np = extent->node_pool;
        struct extent_check check;
        int node = np->node;
        int r = extent_file_check(&extent->file, &check);

        if (r < 0)
                return r;
        if (check.foreign_seal || check.size_bytes != extent->file.bytes || check.present_bytes != extent->file.bytes ||
            extent_file_is_held(&extent->file) != 0)
                return -EXDEV;
        r = extent_file_map(&extent->file, node);
        if (r >= 0)
                r = extent_file_populate(&extent->file, 0, extent->file.bytes);
        if (r >= 0)
                r = work_verify_placement(&extent->file, node, 0, extent->file.bytes);
        if (r >= 0 && was_measured)
                r = clear_measured(&node_of(stock, node)->clearing, &extent->file);
        if (!work_stays_mapped(stock, &extent->file))
                extent_file_unmap(&extent->file);
        clearing_want_extents(&node_of(stock, node)->clearing, np->pool->extent_bytes, np->target_bytes);
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
        stock_close_grant_fd(extent);
}

void stock_close_grant_fd(struct extent *extent) {
        extent->grant_fd = safe_close(extent->grant_fd);
}

uint64_t stock_max_extents(const struct stock *stock) {
        return stock->files.max_extents;
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

static int add_node(struct stock *stock, int number) {
        struct stock_node *node = &stock->nodes[stock->n_nodes];
        unsigned n_workers = workers_per_node(stock->config, topology_n_nodes(stock->topology));
        int r = worker_pool_new(stock->base, stock->topology, number, n_workers, &node->workers);

        if (r >= 0)
                r = pin_tests_init(&node->pin_tests, stock->base, stock->topology, number);
        if (r < 0) {
                node->workers = worker_pool_free(node->workers);
                return r;
        }
        node->node = number;
        clearing_init(&node->clearing, stock->config, number, n_workers);
        stock->n_nodes++;
        return 0;
}

int stock_add_nodes(struct stock *stock) {
        int r = 0;

        for (size_t i = 0; i < topology_n_nodes(stock->topology) && r >= 0; i++) {
                int node = topology_node_at(stock->topology, i);

                if (!node_of(stock, node) && stock->n_nodes < CONFIG_MAX_NODES)
                        r = add_node(stock, node);
        }
        stock_set_pace(stock, stock->config->background_bytes_per_s);
        return r;
}

int stock_new(struct event_base *base, const struct config *config, const struct topology *topology, struct reclaim *reclaim,
              struct warm *warm, struct stock **ret_stock) {
        struct stock *stock = calloc(1, sizeof(*stock));
        int r;

        if (!stock)
                return -ENOMEM;
        stock->base = base;
        stock->config = config;
        stock->topology = topology;
        stock->reclaim = reclaim;
        stock->warm = warm;
        (void) pthread_mutex_init(&stock->map_lock, NULL);
        r = files_share_out(topology_n_nodes(topology), &stock->files);
        if (r >= 0)
                r = stock_add_nodes(stock);
        if (r < 0) {
                stock_free(stock);
                return r;
        }
        *ret_stock = stock;
        return 0;
}

void stock_set_pace(struct stock *stock, uint64_t bytes_per_s) {
        for (size_t i = 0; i < stock->n_nodes; i++)
                worker_pool_set_pace(stock->nodes[i].workers, bytes_per_s);
}

void stock_stop(struct stock *stock) {
        for (size_t i = 0; i < stock->n_nodes; i++) {
                pin_tests_done(&stock->nodes[i].pin_tests);
                stock->nodes[i].workers = worker_pool_free(stock->nodes[i].workers);
        }
}

struct stock *stock_free(struct stock *stock) {
        if (!stock)
                return NULL;
        stock_stop(stock);
        for (size_t i = 0; i < stock->n_nodes; i++)
                clearing_done(&stock->nodes[i].clearing);
        (void) pthread_mutex_destroy(&stock->map_lock);
        free(stock);
        return NULL;
}
