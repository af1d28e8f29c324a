/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a worker does with an extent, step by step; clears by a method that writes down how it is called. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "extent.h"
#include "pool.h"
#include "stock-internal.h"
#include "topology.h"

#define MIB (UINT64_C(1) << 20)
#define EXTENT_BYTES (8 * MIB)
#define WARM_PAGES (CLEAR_RADIUS_PAGES + 1) /* of page 0's neighbourhood */

static char *extent_start; /* dirty until the last step */
static uint64_t end_bytes; /* of what was cleared, without a gap */
static unsigned n_calls, n_small_calls;

static const char *always(void) {
        return NULL;
}

static void record(void *addr, size_t n_bytes) {
        if (n_calls++ == 0) {
                extent_start = (char *) addr - WARM_PAGES * clear_base_page_bytes();
                end_bytes = (uint64_t) ((char *) addr - extent_start);
        }
        assert_ptr_equal(addr, extent_start + end_bytes);
        for (size_t page = 0; page < WARM_PAGES; page++) /* what is needed first is in the cache only if it is last */
                assert_int_equal(extent_start[page * clear_base_page_bytes()], 0x5a);
        memset(addr, 0, n_bytes);
        end_bytes += n_bytes;
}

static void record_small(void *addr, size_t n_bytes) {
        n_small_calls++;
        record(addr, n_bytes);
}

static const struct clear_method recorder = {.name = "large", .fast_multi_page = true, .why_not = always, .clear = record};
static const struct clear_method small_recorder = {
        .name = "small", .fast_multi_page = true, .why_not = always, .clear = record_small};

/* Everything that a scrub of 8 MiB asks for. */
struct scene {
        struct config config;
        struct stock stock;
        struct pool pool;
        struct node_pool node_pool;
        struct extent extent;
        struct topology *topology;
};

static void build(struct scene *scene, uint64_t batch_bytes) {
        struct stock_node *node = &scene->stock.nodes[0];
        struct extent_file *file = &scene->extent.file;

        *scene = (struct scene){.config = {.batch_bytes = batch_bytes}};
        scene->stock.config = &scene->config;
        scene->pool.page_size_bytes = 2 * MIB;
        scene->pool.extent_bytes = EXTENT_BYTES;
        scene->node_pool.pool = &scene->pool;
        scene->extent.node_pool = &scene->node_pool;
        pthread_mutex_init(&scene->stock.map_lock, NULL);
        assert_int_equal(topology_new("/sys", &scene->topology), 0);
        scene->stock.topology = scene->topology;
        node->node = topology_node_at(scene->stock.topology, 0);
        clearing_init(&node->clearing, &scene->config, node->node, 1);
        node->clearing.results[0] = (struct clear_calibration){
                .n_slices = 2, .slice_bytes = {2 * MIB, 16 * MIB}, .chosen = {&small_recorder, &recorder}};
        atomic_store(&node->clearing.calibration, &node->clearing.results[0]);
        node->clearing.n_sessions = CLEARING_MAX_SESSIONS; /* no more is to be learnt */
        assert_int_equal(extent_file_create(2 * MIB, file), 0);
        assert_int_equal(extent_file_resize(file, EXTENT_BYTES), 0);
        assert_int_equal(extent_file_map(file, node->node), 0);
        assert_int_equal(extent_file_populate(file, 0, EXTENT_BYTES), 0);
        memset(file->addr, 0x5a, EXTENT_BYTES);
        extent_file_unmap(file);
        n_calls = n_small_calls = 0;
}

static struct work *new_work(struct scene *scene, const struct work_kind *kind, enum job_urgency urgency) {
        struct work *work = calloc(1, sizeof(*work) + sizeof(struct part));

        assert_non_null(work);
        work->stock = &scene->stock;
        work->node = &scene->stock.nodes[0];
        work->extent = &scene->extent;
        work->file = &scene->extent.file;
        work->kind = kind;
        work->to_bytes = work->limit_bytes = EXTENT_BYTES;
        atomic_store(&work->failed_bytes, UINT64_MAX);
        work->n_parts = 1;
        work->parts[0].work = work;
        work->parts[0].job.urgency = urgency;
        work_plan_step(&work->parts[0]);
        return work;
}

/* To the end; which steps may be done in the idle class, one letter each. Returns the result. */
static int run(struct work *work, char steps[static 16]) {
        size_t n_steps = 0;
        int r;

        do {
                assert_true(n_steps < 15);
                steps[n_steps++] = work->parts[0].job.step_may_idle ? 'i' : '-';
                r = work_step(&work->parts[0].job);
        } while (r > 0);
        steps[n_steps] = '\0';
        assert_int_equal(r, 0);
        assert_int_equal(work->stage, STAGE_END);
        r = work->result;
        free(work);
        return r;
}

static void tear_down(struct scene *scene) {
        extent_file_done(&scene->extent.file);
        clearing_done(&scene->stock.nodes[0].clearing);
        topology_free(scene->topology);
}

static void scrub(struct scene *scene, enum job_urgency urgency) {
        struct extent_file *file = &scene->extent.file;
        char steps[16];

        assert_int_equal(run(new_work(scene, &work_kind_scrub, urgency), steps), 0);
        assert_non_null(strchr(steps, 'i'));
        assert_true(end_bytes == EXTENT_BYTES); /* and nothing of the neighbourhood, which is memset()'s */
        assert_int_equal(extent_file_map(file, scene->node_pool.node), 0);
        for (size_t i = 0; i < EXTENT_BYTES; i += 64)
                assert_int_equal(((char *) file->addr)[i], 0);
        tear_down(scene);
}

static void in_the_background_the_first_touch_is_cleared_last(void **state) {
        static struct scene scene;

        build(&scene, 4 * MIB);
        scrub(&scene, JOB_SCRUB);
        assert_int_equal(n_calls, 2); /* the pages of the neighbourhood, less than a slice, do not wait for a turn of their own */
}

static void for_a_client_that_waits_too_and_all_else_is_one_unit(void **state) {
        static struct scene scene;

        build(&scene, 4 * MIB);
        scrub(&scene, JOB_WAITING);
        assert_int_equal(n_calls, 1);
}

static void an_extent_smaller_than_a_batch_is_cleared_by_what_is_best_for_its_size(void **state) {
        static struct scene scene;

        build(&scene, 32 * MIB);
        scrub(&scene, JOB_SCRUB);
        assert_int_equal(n_calls, 1);
        assert_int_equal(n_small_calls, 1);
}

/* Mapping, populating and unmapping take locks of the kernel: whoever has one must not be the last to be run. */
static void of_an_audit_the_reading_alone_may_wait_for_others(void **state) {
        static struct scene scene;
        struct extent_file *file = &scene.extent.file;
        struct work *work;
        char steps[16];

        build(&scene, 4 * MIB);
        assert_int_equal(extent_file_map(file, scene.node_pool.node), 0);
        memset(file->addr, 0, EXTENT_BYTES);
        assert_int_equal(run(new_work(&scene, &work_kind_audit, JOB_AUDIT), steps), 0);
        assert_string_equal(steps, "-i--");
        assert_non_null(file->addr); /* as it was */
        ((char *) file->addr)[EXTENT_BYTES - 1] = 1;
        extent_file_unmap(file);
        assert_int_equal(run(new_work(&scene, &work_kind_audit, JOB_AUDIT), steps), -EBADMSG);
        assert_null(file->addr);

        work = new_work(&scene, &work_kind_audit, JOB_AUDIT);
        assert_int_equal(work_step(&work->parts[0].job), 1);
        assert_non_null(file->addr);
        atomic_store(&work->stop, true); /* somebody wants the extent */
        assert_int_equal(run(work, steps), -ECANCELED);
        assert_null(file->addr);
        tear_down(&scene);
}

/* An audit of the first page. What is behind it is not zero, and would be if the methods were measured on it. */
static void what_is_not_zero_is_found_before_measuring_wipes_it(void **state) {
        static struct scene scene;
        struct clearing *clearing = &scene.stock.nodes[0].clearing;
        struct extent_file *file = &scene.extent.file;
        struct work *work;
        char steps[16];

        build(&scene, 4 * MIB);
        clearing_done(clearing);
        *clearing = (struct clearing){};
        clearing_init(clearing, &scene.config, scene.node_pool.node, 1);
        assert_int_equal(extent_file_map(file, scene.node_pool.node), 0);
        memset(file->addr, 0, EXTENT_BYTES);
        ((char *) file->addr)[5 * MIB + 17] = 1;
        assert_true(clearing_may_learn(clearing, EXTENT_BYTES));
        work = new_work(&scene, &work_kind_audit, JOB_AUDIT);
        work->to_bytes = work->limit_bytes = 2 * MIB;
        work->may_measure = true;
        assert_int_equal(run(work, steps), -EBADMSG);
        assert_int_equal(((char *) file->addr)[5 * MIB + 17], 1);
        /* The ledger calls it ready: nothing may be written to it. */
        ((char *) file->addr)[5 * MIB + 17] = 0;
        work = new_work(&scene, &work_kind_audit, JOB_AUDIT);
        assert_int_equal(run(work, steps), 0);
        assert_true(clearing_may_learn(clearing, EXTENT_BYTES));
        tear_down(&scene);
}

static void a_fill_looks_up_after_each_batch(void **state) {
        static struct scene scene;
        char steps[16];

        build(&scene, 4 * MIB);
        extent_file_done(&scene.extent.file);
        scene.extent.file = EXTENT_FILE_NULL;
        assert_int_equal(run(new_work(&scene, &work_kind_fill, JOB_FILL), steps), 0);
        assert_string_equal(steps, "------"); /* set-up, two slices, that there is no third one, touching, finish */
        assert_true(scene.extent.file.bytes == EXTENT_BYTES);
        tear_down(&scene);
}

/* All that is missing, as a holder may have punched it, is there before the first byte is cleared: what cannot be had is an error. */
static void a_hole_is_filled_before_anything_is_cleared(void **state) {
        static struct scene scene;
        struct extent_check check;
        uint64_t paid_bytes = 0;
        struct work *work;
        char steps[16];

        build(&scene, 4 * MIB);
        assert_int_equal(fallocate(scene.extent.file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4 * MIB, 2 * MIB), 0);
        assert_int_equal(extent_file_check(&scene.extent.file, &check), 0);
        assert_true(check.present_bytes == EXTENT_BYTES - 2 * MIB);
        work = new_work(&scene, &work_kind_scrub, JOB_SCRUB);
        while (work->stage != STAGE_CLEARING) {
                assert_int_equal(work_step(&work->parts[0].job), 1);
                if (work->stage == STAGE_SLICES)
                        paid_bytes += work->parts[0].job.step_bytes;
        }
        assert_int_equal(paid_bytes, 2 * MIB); /* the kernel's zeroing is paced like ours */
        assert_int_equal(work->missing_bytes, 2 * MIB);
        assert_int_equal(n_calls, 0);
        assert_int_equal(extent_file_check(&scene.extent.file, &check), 0);
        assert_true(check.present_bytes == EXTENT_BYTES);
        assert_int_equal(run(work, steps), 0);
        tear_down(&scene);
}

static int fail_to_clear(struct work *work) {
        return -EHWPOISON;
}

static int finish_with(struct work *work, int r) {
        extent_file_unmap(work->file);
        return r;
}

static void what_cannot_be_cleared_is_a_failure(void **state) {
        const struct work_kind kind = {
                .setup = work_kind_scrub.setup, .clear = fail_to_clear, .finish = finish_with, .is_touched = true};
        static struct scene scene;
        char steps[16];

        build(&scene, 4 * MIB);
        assert_int_equal(run(new_work(&scene, &kind, JOB_SCRUB), steps), -EHWPOISON);
        tear_down(&scene);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(in_the_background_the_first_touch_is_cleared_last),
                cmocka_unit_test(for_a_client_that_waits_too_and_all_else_is_one_unit),
                cmocka_unit_test(an_extent_smaller_than_a_batch_is_cleared_by_what_is_best_for_its_size),
                cmocka_unit_test(a_fill_looks_up_after_each_batch),
                cmocka_unit_test(a_hole_is_filled_before_anything_is_cleared),
                cmocka_unit_test(what_cannot_be_cleared_is_a_failure),
                cmocka_unit_test(of_an_audit_the_reading_alone_may_wait_for_others),
                cmocka_unit_test(what_is_not_zero_is_found_before_measuring_wipes_it),
        };
        void *pages = mmap(NULL, EXTENT_BYTES, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

        if (pages == MAP_FAILED)
                skip_all("4 free hugetlb pages of 2 MiB are needed; see vm.nr_hugepages");
        munmap(pages, EXTENT_BYTES);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
