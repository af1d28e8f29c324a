/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a worker does with an extent that came back, step by step, by a method that writes down how it is called. */
#include "testing.h"

#include <errno.h>
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

static void scrub(struct scene *scene, enum job_urgency urgency) {
        struct extent_file *file = &scene->extent.file;
        struct work *work = calloc(1, sizeof(*work) + sizeof(struct part));
        int r;

        assert_non_null(work);
        work->stock = &scene->stock;
        work->node = &scene->stock.nodes[0];
        work->extent = &scene->extent;
        work->file = file;
        work->kind = &work_kind_scrub;
        work->to_bytes = work->limit_bytes = EXTENT_BYTES;
        atomic_store(&work->failed_bytes, UINT64_MAX);
        work->n_parts = 1;
        work->parts[0].work = work;
        work->parts[0].job.urgency = urgency;
        while ((r = work_step(&work->parts[0].job)) > 0)
                ;
        assert_int_equal(r, 0);
        assert_int_equal(work->result, 0);
        free(work);

        assert_true(end_bytes == EXTENT_BYTES); /* and nothing of the neighbourhood, which is memset()'s */
        assert_int_equal(extent_file_map(file, scene->node_pool.node), 0);
        for (size_t i = 0; i < EXTENT_BYTES; i += 64)
                assert_int_equal(((char *) file->addr)[i], 0);
        extent_file_done(file);
        clearing_done(&scene->stock.nodes[0].clearing);
        topology_free(scene->topology);
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

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(in_the_background_the_first_touch_is_cleared_last),
                cmocka_unit_test(for_a_client_that_waits_too_and_all_else_is_one_unit),
                cmocka_unit_test(an_extent_smaller_than_a_batch_is_cleared_by_what_is_best_for_its_size),
        };
        void *pages = mmap(NULL, EXTENT_BYTES, PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

        if (pages == MAP_FAILED)
                skip_all("4 free hugetlb pages of 2 MiB are needed; see vm.nr_hugepages");
        munmap(pages, EXTENT_BYTES);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
