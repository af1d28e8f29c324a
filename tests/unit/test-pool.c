/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The books and the plans, without a single page: extents here have no files. */
#include "testing.h"

#include "identity.h"
#include "pool.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

static struct pool *make_pool(uint64_t extent_bytes, uint64_t target_bytes) {
        struct config_pool config = {
                .name = "test",
                .page_size_bytes = 2 * MIB,
                .extent_bytes = extent_bytes,
                .low_millipercent = 25000,
                .n_nodes = 1,
                .nodes[0] = {.node = 0, .target_bytes = target_bytes},
        };
        struct pool *pool;

        assert_int_equal(pool_new(&config, &pool), 0);
        return pool;
}

static struct extent *put(struct pool *pool, uint64_t bytes, struct service *service) {
        struct extent *extent;

        assert_int_equal(pool_add(&pool->nodes[0], EXTENT_FILLING, bytes, &extent), 0);
        extent->service = service ? service_ref(service) : NULL;
        extent->sealed = service != NULL; /* what was granted once has its size for life */
        assert_int_equal(pool_make_ready(extent), 0);
        return extent;
}

static void remove_all(struct pool *pool) {
        struct node_pool *np = &pool->nodes[0];
        struct shelf *shelf;

        TAILQ_FOREACH(shelf, &np->shelves, link)
                while (!TAILQ_EMPTY(&shelf->extents))
                        pool_remove(TAILQ_FIRST(&shelf->extents));
        for (int state = 0; state < _EXTENT_STATE_MAX; state++)
                while (!TAILQ_EMPTY(&np->extents[state]))
                        pool_remove(TAILQ_FIRST(&np->extents[state]));
        pool_free(pool);
}

static uint64_t n_new_extents = 1000;

static int plan(struct pool *pool, struct plan_terms terms, struct item_plan *ret_plan) {
        terms.n_new_extents = n_new_extents;
        *ret_plan = (struct item_plan) {};
        return pool_plan(&pool->nodes[0], &terms, ret_plan);
}

static void an_extent_of_exactly_that_size_comes_first(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct item_plan p;

        put(pool, 4 * GIB, NULL);
        put(pool, 3 * GIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 3 * GIB, .instant_only = true}, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 1);
        assert_int_equal(p.pieces[0].how, PLAN_EXACT);
        assert_int_equal(p.pieces[0].extent->bytes, 3 * GIB);
        assert_int_equal(p.pieces[0].extent->state, EXTENT_CLAIMED);
        pool_plan_undo(&p);
        assert_int_equal(pool->nodes[0].bytes[EXTENT_READY], 7 * GIB);
        remove_all(pool);
}

static void the_smallest_larger_extent_is_cut(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct item_plan p;

        put(pool, 8 * GIB, NULL);
        put(pool, 4 * GIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 3 * GIB + 2 * MIB, .instant_only = true}, &p), PLAN_YES);
        assert_int_equal(p.pieces[0].how, PLAN_CUT);
        assert_int_equal(p.pieces[0].extent->bytes, 4 * GIB);
        assert_int_equal(p.pieces[0].bytes, 3 * GIB + 2 * MIB);
        pool_plan_undo(&p);
        remove_all(pool);
}

static void a_sealed_extent_is_neither_cut_nor_grown(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct service *service;
        struct item_plan p;

        assert_int_equal(service_get(1, "/a", &service), 0);
        put(pool, 4 * GIB, service);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = service, .instant_only = true}, &p), PLAN_NO);
        /* It serves by being dropped: its pages build the new one. */
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = service}, &p), PLAN_YES);
        assert_int_equal(p.pieces[0].how, PLAN_BUILD);
        assert_int_equal(p.n_drops, 1);
        assert_int_equal(pool_plan_fill_bytes(&p), -3 * (int64_t) GIB);
        pool_plan_undo(&p);
        /* What an item before this one has left over is there without the kernel's own pages. */
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * GIB, .service = service}, &p), PLAN_NO);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * GIB, .service = service, .freed_bytes = 2 * GIB}, &p), PLAN_YES);
        assert_int_equal(pool_plan_fill_bytes(&p), 2 * (int64_t) GIB);
        pool_plan_undo(&p);
        remove_all(pool);
        service_unref(service);
}

static void memory_of_one_service_is_never_planned_for_another(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct service *one, *other;
        struct item_plan p;
        struct extent *theirs, *clean;

        assert_int_equal(service_get(1, "/one", &one), 0);
        assert_int_equal(service_get(1, "/other", &other), 0);
        theirs = put(pool, GIB, one);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = other, .instant_only = true}, &p), PLAN_NO);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .instant_only = true}, &p), PLAN_NO);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = other, .several = true, .instant_only = true}, &p),
                         PLAN_NO);
        clean = put(pool, GIB, NULL);
        /* The own memory first, so that the fresh one is left for strangers. */
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = one, .instant_only = true}, &p), PLAN_YES);
        assert_ptr_equal(p.pieces[0].extent, theirs);
        pool_plan_undo(&p);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = GIB, .service = other, .instant_only = true}, &p), PLAN_YES);
        assert_ptr_equal(p.pieces[0].extent, clean);
        pool_plan_undo(&p);
        remove_all(pool);
        service_unref(one);
        service_unref(other);
}

static enum plan_how how_it_is_planned(struct pool *pool, struct plan_terms terms) {
        enum plan_how how;
        struct item_plan p;

        assert_int_equal(plan(pool, terms, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 1);
        assert_int_equal(p.pieces[0].bytes, terms.bytes);
        how = p.pieces[0].how;
        pool_plan_undo(&p);
        return how;
}

static void a_large_extent_is_not_cut_for_a_page_that_the_kernel_has(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct plan_terms terms = {.bytes = 2 * MIB, .fillable_bytes = 2 * MIB};
        struct item_plan p;

        put(pool, GIB, NULL);
        assert_int_equal(how_it_is_planned(pool, terms), PLAN_BUILD);
        terms.instant_only = true; /* first others are asked, who may have that size */
        assert_int_equal(plan(pool, terms, &p), PLAN_NO);
        terms.instant_only = false;
        terms.fillable_bytes = 0;
        assert_int_equal(how_it_is_planned(pool, terms), PLAN_CUT);
        terms.bytes = terms.fillable_bytes = 34 * MIB; /* too long a wait */
        assert_int_equal(how_it_is_planned(pool, terms), PLAN_CUT);
        terms.bytes = terms.fillable_bytes = 2 * MIB;
        put(pool, 16 * MIB, NULL); /* too little that is lost */
        assert_int_equal(how_it_is_planned(pool, terms), PLAN_CUT);
        remove_all(pool);
}

static void several_extents_come_largest_first_and_the_last_is_cut(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct item_plan p;

        put(pool, 2 * GIB, NULL);
        put(pool, 4 * GIB, NULL);
        put(pool, 3 * GIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 8 * GIB, .several = true, .instant_only = true}, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 3);
        assert_int_equal(p.pieces[0].bytes, 4 * GIB);
        assert_int_equal(p.pieces[1].bytes, 3 * GIB);
        assert_int_equal(p.pieces[2].bytes, GIB);
        assert_int_equal(p.pieces[2].how, PLAN_CUT);
        pool_plan_undo(&p);
        remove_all(pool);
}

static void the_largest_smaller_extent_grows_and_the_smallest_others_are_dropped(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct item_plan p;
        struct extent *smallest, *largest;

        largest = put(pool, 4 * GIB, NULL);
        smallest = put(pool, GIB, NULL);
        put(pool, 2 * GIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 5 * GIB}, &p), PLAN_YES);
        assert_int_equal(p.pieces[0].how, PLAN_GROW);
        assert_ptr_equal(p.pieces[0].extent, largest);
        assert_int_equal(p.n_drops, 1);
        assert_ptr_equal(p.drops[0], smallest);
        pool_plan_undo(&p);
        /* Pages that the kernel has free are used before any extent is dropped. */
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 5 * GIB, .may_fill = true, .fillable_bytes = GIB}, &p), PLAN_YES);
        assert_int_equal(p.n_drops, 0);
        assert_int_equal(pool_plan_fill_bytes(&p), GIB);
        pool_plan_undo(&p);
        remove_all(pool);
}

static void without_a_descriptor_left_there_is_growth_and_exchange_only(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB), *fixed = make_pool(GIB, 16 * GIB);
        struct plan_terms terms = {.bytes = 2 * GIB, .may_fill = true, .fillable_bytes = 16 * GIB};
        struct extent *extent;
        struct item_plan p;

        n_new_extents = 0;
        assert_int_equal(plan(pool, terms, &p), PLAN_NO);
        extent = put(pool, GIB, NULL);
        assert_int_equal(plan(pool, terms, &p), PLAN_YES);
        assert_int_equal(p.pieces[0].how, PLAN_GROW);
        assert_int_equal(p.n_drops, 0);
        pool_plan_undo(&p);
        /* Nothing can be grown: one goes, for one that is built. */
        extent->sealed = true;
        assert_int_equal(plan(pool, terms, &p), PLAN_YES);
        assert_int_equal(p.pieces[0].how, PLAN_BUILD);
        assert_int_equal(p.n_drops, 1);
        pool_plan_undo(&p);
        terms.several = true;
        assert_int_equal(plan(fixed, terms, &p), PLAN_NO);
        n_new_extents = 2;
        assert_int_equal(plan(fixed, terms, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 2);
        pool_plan_undo(&p);
        n_new_extents = 1000;
        remove_all(fixed);
        remove_all(pool);
}

static void nothing_is_claimed_when_there_is_too_little(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct item_plan p;

        put(pool, 4 * GIB, NULL);
        put(pool, GIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * GIB}, &p), PLAN_NO);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * GIB, .several = true}, &p), PLAN_NO);
        /* Free pages do not count for who refuses to wait for the kernel. */
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * GIB, .fillable_bytes = GIB}, &p), PLAN_NO);
        assert_int_equal(pool->nodes[0].bytes[EXTENT_READY], 5 * GIB);
        assert_int_equal(pool->nodes[0].bytes[EXTENT_CLAIMED], 0);
        remove_all(pool);
}

static void what_is_being_filled_counts_once_it_has_stopped(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct extent *filling;
        struct item_plan p;

        put(pool, GIB, NULL);
        assert_int_equal(pool_add(&pool->nodes[0], EXTENT_FILLING, 4 * GIB, &filling), 0);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 3 * GIB}, &p), PLAN_QUIESCE);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 3 * GIB, .instant_only = true}, &p), PLAN_NO);
        pool_resize(filling, 2 * GIB);
        assert_int_equal(pool_make_ready(filling), 0);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 3 * GIB}, &p), PLAN_YES);
        assert_ptr_equal(p.pieces[0].extent, filling);
        assert_int_equal(p.n_drops, 1);
        pool_plan_undo(&p);
        remove_all(pool);
}

static void a_fixed_class_gives_several_equal_extents_or_one(void **state) {
        struct pool *pool = make_pool(2 * MIB, 16 * MIB);
        struct item_plan p;

        for (int i = 0; i < 4; i++)
                put(pool, 2 * MIB, NULL);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 2 * MIB, .instant_only = true}, &p), PLAN_YES);
        pool_plan_undo(&p);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * MIB, .instant_only = true}, &p), PLAN_NO);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 6 * MIB, .several = true, .instant_only = true}, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 3);
        pool_plan_undo(&p);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 12 * MIB, .several = true}, &p), PLAN_NO);
        assert_int_equal(pool->nodes[0].n_extents[EXTENT_READY], 4);
        assert_int_equal(plan(pool, (struct plan_terms) {.bytes = 12 * MIB, .several = true, .may_fill = true,
                                                         .fillable_bytes = 4 * MIB}, &p), PLAN_YES);
        assert_int_equal(p.n_pieces, 6);
        assert_int_equal(p.pieces[5].how, PLAN_BUILD);
        pool_plan_undo(&p);
        assert_int_equal(pool->nodes[0].n_extents[EXTENT_READY], 4);
        remove_all(pool);
}

/* What a pool of @target_bytes is filled with before anything was asked for: as many extents as there are @expected sizes, then 2 MiB ones. */
static void assert_first_fills(uint64_t target_bytes, unsigned n_pages, const uint64_t *expected) {
        struct pool *pool = make_pool(0, target_bytes);
        uint64_t left_bytes = target_bytes;

        for (; *expected > 0; expected++) {
                assert_int_equal(pool_next_fill_bytes(&pool->nodes[0], left_bytes + 1), *expected);
                left_bytes -= *expected;
        }
        for (; n_pages > 0; n_pages--) {
                assert_int_equal(pool_next_fill_bytes(&pool->nodes[0], left_bytes), 2 * MIB);
                left_bytes -= 2 * MIB;
        }
        assert_int_equal(left_bytes, 0);
        assert_int_equal(pool_next_fill_bytes(&pool->nodes[0], 2 * MIB - 1), 0);
        remove_all(pool);
}

static void without_history_there_is_something_of_every_size(void **state) {
        assert_first_fills(16 * GIB, 32, (uint64_t[]) {4 * GIB, 4 * GIB, 4 * GIB, 2 * GIB, GIB, GIB / 2, 256 * MIB, 128 * MIB, 64 * MIB, 0});
        assert_first_fills(GIB, 16, (uint64_t[]) {256 * MIB, 256 * MIB, 256 * MIB, 128 * MIB, 64 * MIB, 32 * MIB, 0});
        assert_first_fills(16 * MIB, 2, (uint64_t[]) {4 * MIB, 4 * MIB, 4 * MIB, 0});
        assert_first_fills(6 * MIB, 3, (uint64_t[]) {0});
}

static void fills_follow_the_sizes_that_were_asked_for(void **state) {
        struct pool *pool = make_pool(0, 16 * GIB);
        struct node_pool *np = &pool->nodes[0];

        pool_note_request(np, 6 * GIB);
        for (int i = 0; i < 3; i++)
                pool_note_request(np, 2 * GIB);
        /* Less is ready than waits to be filled: what is asked most. */
        assert_int_equal(pool_next_fill_bytes(np, 16 * GIB), 2 * GIB);
        put(pool, 2 * GIB, NULL);
        put(pool, 2 * GIB, NULL);
        put(pool, 2 * GIB, NULL);
        put(pool, 2 * GIB, NULL);
        /* Half is ready: now one as large as the largest. */
        assert_int_equal(pool_next_fill_bytes(np, 8 * GIB), 6 * GIB);
        put(pool, 6 * GIB, NULL);
        /* Everything asked for is in stock: the rest as one. */
        assert_int_equal(pool_next_fill_bytes(np, 2 * GIB), 2 * GIB);
        remove_all(pool);
}

static void a_fixed_class_is_filled_by_whole_extents(void **state) {
        struct pool *pool = make_pool(32 * MIB, GIB);

        assert_int_equal(pool_next_fill_bytes(&pool->nodes[0], GIB), 32 * MIB);
        assert_int_equal(pool_next_fill_bytes(&pool->nodes[0], 31 * MIB), 0);
        remove_all(pool);
}

static void extents_that_wait_for_their_replacement_leave_room_for_it(void **state) {
        struct pool *pool = make_pool(0, 4 * GIB);
        struct node_pool *np = &pool->nodes[0];
        struct extent *extent = put(pool, 4 * GIB, NULL);

        assert_int_equal(pool_deficit_bytes(np), 0);
        assert_true(np->full_once);
        pool_move(extent, EXTENT_RENEWING);
        assert_int_equal(pool_deficit_bytes(np), 4 * GIB);
        assert_int_equal(pool_used_bytes(np), 4 * GIB);
        remove_all(pool);
}

static void a_pool_is_low_until_it_was_full_and_below_its_mark(void **state) {
        struct pool *pool = make_pool(0, 4 * GIB);
        struct node_pool *np = &pool->nodes[0];
        struct extent *half;

        put(pool, 2 * GIB, NULL);
        assert_true(pool_below_low_bytes(np) == UINT64_MAX);
        half = put(pool, 2 * GIB, NULL);
        assert_true(pool_below_low_bytes(np) == 0);
        pool_move(half, EXTENT_GRANTED);
        assert_true(pool_below_low_bytes(np) == 0);
        pool_note_request(np, 3 * GIB); /* who asked for that much may ask again */
        assert_true(pool_below_low_bytes(np) == GIB);
        remove_all(pool);
}

static void the_low_mark_follows_the_target_and_outlives_a_target_of_nothing(void **state) {
        struct config_pool config = {.low_millipercent = UINT32_MAX, .low_bytes = GIB};
        struct pool *pool = make_pool(0, 4 * GIB);
        struct node_pool *np = &pool->nodes[0];

        pool_set_target(np, 0, NULL);
        assert_int_equal(np->low_bytes, 0);
        pool_set_target(np, 8 * GIB, NULL);
        assert_int_equal(np->low_bytes, 8 * GIB / 100000 * 25000);
        pool_set_target(np, 0, &config);
        assert_int_equal(np->low_bytes, 0);
        pool_set_target(np, 8 * GIB, NULL);
        assert_int_equal(np->low_bytes, GIB);
        pool_set_target(np, GIB / 2, NULL);
        assert_int_equal(np->low_bytes, GIB / 2);
        remove_all(pool);
}

static void the_time_that_requests_wait_for_paced_work_adds_up(void **state) {
        struct node_pool np = {};

        pool_end_paced_wait(&np, 5);
        assert_int_equal(np.paced_wait_ms, 0);
        pool_note_paced_wait(&np, 0, 10);
        pool_note_paced_wait(&np, 0, 17); /* still the same wait */
        assert_int_equal(pool_paced_wait_ms(&np, 25), 15);
        pool_end_paced_wait(&np, 30);
        pool_end_paced_wait(&np, 40);
        assert_int_equal(np.paced_wait_ms, 20);
        pool_note_paced_wait(&np, 4, 100);
        pool_note_paced_wait(&np, 3, 100);
        assert_int_equal(np.lacked_bytes, 4); /* the most that was asked for */
        pool_end_paced_wait(&np, 101);
        assert_int_equal(np.lacked_bytes, 0);
        assert_int_equal(np.paced_wait_ms, 21);
}

static void the_audit_goes_round_and_finishes_what_it_began(void **state) {
        struct pool *pool = make_pool(0, 8 * GIB);
        struct node_pool *np = &pool->nodes[0];
        struct extent *extents[3], *extent;
        struct service *service;

        assert_null(pool_next_to_audit(np));
        assert_int_equal(service_get(7, "/x", &service), 0);
        extents[0] = put(pool, GIB, NULL);
        extents[1] = put(pool, 2 * GIB, service);
        extents[2] = put(pool, GIB, NULL);
        service_unref(service);
        for (size_t i = 0; i < 7; i++) { /* oldest first, on whichever shelf, in two slices each */
                for (unsigned slice = 1; slice <= 2; slice++) {
                        extent = pool_next_to_audit(np);
                        assert_ptr_equal(extent, extents[i % 3]);
                        pool_move(extent, EXTENT_AUDITING);
                        assert_int_equal(pool_ready_bytes(np), 4 * GIB);
                        assert_int_equal(pool_largest_ready_bytes(np), 2 * GIB);
                        pool_drop_empty_shelves(np);
                        extent->audit_bytes = slice * extent->bytes / 2;
                        assert_int_equal(pool_end_audit(extent), 0);
                        assert_int_equal(extent->audit_bytes, slice == 1 ? extent->bytes / 2 : 0);
                }
        }
        /* What has just become ready comes last; what is taken away in the middle is no obstacle. */
        extent = put(pool, GIB, NULL);
        pool_move(extents[1], EXTENT_GRANTED);
        assert_ptr_equal(pool_next_to_audit(np), extents[2]);
        pool_move(extents[2], EXTENT_GRANTED);
        pool_move(extents[0], EXTENT_GRANTED);
        assert_ptr_equal(pool_next_to_audit(np), extent);
        remove_all(pool);
}

static void empty_shelves_go_and_the_clean_one_stays(void **state) {
        struct pool *pool = make_pool(0, 4 * GIB);
        struct service *service;
        struct extent *extent;

        assert_int_equal(service_get(7, "/x", &service), 0);
        extent = put(pool, GIB, service);
        pool_move(extent, EXTENT_GRANTED);
        pool_drop_empty_shelves(&pool->nodes[0]);
        assert_null(TAILQ_FIRST(&pool->nodes[0].shelves)->service);
        assert_null(TAILQ_NEXT(TAILQ_FIRST(&pool->nodes[0].shelves), link));
        remove_all(pool);
        service_unref(service);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(an_extent_of_exactly_that_size_comes_first),
                cmocka_unit_test(the_smallest_larger_extent_is_cut),
                cmocka_unit_test(a_sealed_extent_is_neither_cut_nor_grown),
                cmocka_unit_test(memory_of_one_service_is_never_planned_for_another),
                cmocka_unit_test(a_large_extent_is_not_cut_for_a_page_that_the_kernel_has),
                cmocka_unit_test(several_extents_come_largest_first_and_the_last_is_cut),
                cmocka_unit_test(the_largest_smaller_extent_grows_and_the_smallest_others_are_dropped),
                cmocka_unit_test(without_a_descriptor_left_there_is_growth_and_exchange_only),
                cmocka_unit_test(nothing_is_claimed_when_there_is_too_little),
                cmocka_unit_test(what_is_being_filled_counts_once_it_has_stopped),
                cmocka_unit_test(a_fixed_class_gives_several_equal_extents_or_one),
                cmocka_unit_test(without_history_there_is_something_of_every_size),
                cmocka_unit_test(fills_follow_the_sizes_that_were_asked_for),
                cmocka_unit_test(a_fixed_class_is_filled_by_whole_extents),
                cmocka_unit_test(extents_that_wait_for_their_replacement_leave_room_for_it),
                cmocka_unit_test(a_pool_is_low_until_it_was_full_and_below_its_mark),
                cmocka_unit_test(the_low_mark_follows_the_target_and_outlives_a_target_of_nothing),
                cmocka_unit_test(the_time_that_requests_wait_for_paced_work_adds_up),
                cmocka_unit_test(the_audit_goes_round_and_finishes_what_it_began),
                cmocka_unit_test(empty_shelves_go_and_the_clean_one_stays),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
