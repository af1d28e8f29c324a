/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What serves one item from one node pool. In this order: an extent of exactly that size; a larger one, cut (or, where that
 * would waste much and the kernel has pages, one built from nothing); several, where the client takes several; the largest
 * smaller one, grown, for which others are dropped; one built from nothing. So a request fails for too few pages, never for
 * their shape. No system calls.
 */

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "pool.h"

#define BUILD_MOST_BYTES (UINT64_C(32) << 20) /* chosen: a client waits for 2 to 5 ms at most */
#define WASTE_TIMES 8                         /* chosen: as much as was asked for is cut off */

struct finder {
        struct node_pool *np;
        const struct plan_terms *terms;
        struct item_plan plan;
        size_t pieces_room, drops_room;
};

/* The shelves the terms may take from: the asker's own first, so that fresh memory is kept for strangers. */
static struct shelf *own_shelf(const struct finder *finder) {
        struct shelf *shelf;

        if (!finder->terms->service)
                return NULL;
        TAILQ_FOREACH(shelf, &finder->np->shelves, link)
                if (shelf->service == finder->terms->service)
                        return shelf;
        return NULL;
}

static struct shelf *clean_shelf(const struct finder *finder) {
        return TAILQ_FIRST(&finder->np->shelves);
}

static uint64_t takeable_bytes(const struct finder *finder) {
        struct shelf *own = own_shelf(finder);

        return clean_shelf(finder)->bytes + (own ? own->bytes : 0);
}

static int grow_array(void *array, size_t element_bytes, size_t n, size_t *room) {
        void **pointer = array, *larger;
        size_t new_room = *room ? *room * 2 : 8;

        if (n < *room)
                return 0;
        larger = reallocarray(*pointer, new_room, element_bytes);
        if (!larger)
                return -ENOMEM;
        *pointer = larger;
        *room = new_room;
        return 0;
}

static int take_piece(struct finder *finder, struct extent *extent, uint64_t bytes, enum plan_how how) {
        int r = grow_array(&finder->plan.pieces, sizeof(struct plan_piece), finder->plan.n_pieces, &finder->pieces_room);

        if (r < 0)
                return r;
        finder->plan.pieces[finder->plan.n_pieces++] = (struct plan_piece) {.extent = extent, .bytes = bytes, .how = how};
        if (extent)
                pool_move(extent, EXTENT_CLAIMED);
        return PLAN_YES;
}

static int take_drop(struct finder *finder, struct extent *extent) {
        int r = grow_array(&finder->plan.drops, sizeof(struct extent *), finder->plan.n_drops, &finder->drops_room);

        if (r < 0)
                return r;
        finder->plan.drops[finder->plan.n_drops++] = extent;
        pool_move(extent, EXTENT_CLAIMED);
        return 0;
}

static struct extent *shelf_exact(struct shelf *shelf, uint64_t bytes) {
        struct extent *extent;

        if (shelf)
                TAILQ_FOREACH(extent, &shelf->extents, link)
                        if (extent->bytes == bytes)
                                return extent;
        return NULL;
}

/* Smallest unsealed extent that is larger: sealed ones keep their size for life. */
static struct extent *find_cuttable(const struct finder *finder, uint64_t bytes) {
        struct extent *extent, *best = NULL;

        TAILQ_FOREACH(extent, &clean_shelf(finder)->extents, link)
                if (!extent->sealed && extent->bytes > bytes && (!best || extent->bytes < best->bytes))
                        best = extent;
        return best;
}

static void keep_largest_fitting(struct shelf *shelf, uint64_t bytes, struct extent **best) {
        struct extent *extent;

        if (shelf)
                TAILQ_FOREACH(extent, &shelf->extents, link)
                        if (extent->bytes <= bytes && (!*best || extent->bytes > (*best)->bytes))
                                *best = extent;
}

static struct extent *find_growable(const struct finder *finder) {
        struct extent *extent, *best = NULL;

        TAILQ_FOREACH(extent, &clean_shelf(finder)->extents, link)
                if (!extent->sealed && extent->bytes < finder->terms->bytes && (!best || extent->bytes > best->bytes))
                        best = extent;
        return best;
}

/*
 * Claims ready extents for dropping until the kernel would have @bytes and @n_builds may be built; the pieces are claimed already
 * and not among them.
 */
static int make_room(struct finder *finder, uint64_t bytes, uint64_t n_builds) {
        uint64_t room_bytes = finder->terms->freed_bytes + (finder->terms->may_fill ? finder->terms->fillable_bytes : 0);
        struct extent *extent;
        int r;

        while (room_bytes < bytes || finder->terms->n_new_extents + finder->plan.n_drops < n_builds) {
                extent = pool_find_expendable(finder->np);
                if (!extent)
                        return PLAN_NO;
                r = take_drop(finder, extent);
                if (r < 0)
                        return r;
                room_bytes += extent->bytes;
        }
        return PLAN_YES;
}

/*
 * What is cut off has to be zeroed again: where a little is asked for, the kernel has pages, and all that is ready is large, the
 * kernel zeroes as much as is wanted.
 */
static bool would_waste(const struct finder *finder, const struct extent *extent) {
        uint64_t bytes = finder->terms->bytes;

        return bytes <= BUILD_MOST_BYTES && extent->bytes - bytes >= WASTE_TIMES * bytes;
}

static int plan_cut_or_build(struct finder *finder, struct extent *extent) {
        const struct plan_terms *terms = finder->terms;

        if (would_waste(finder, extent)) {
                if (terms->instant_only && pool_deficit_bytes(finder->np) >= terms->bytes)
                        return PLAN_NO; /* asked again without that */
                if (terms->fillable_bytes >= terms->bytes && terms->n_new_extents > 0)
                        return take_piece(finder, NULL, terms->bytes, PLAN_BUILD);
        }
        return take_piece(finder, extent, terms->bytes, PLAN_CUT);
}

static int plan_single(struct finder *finder) {
        uint64_t bytes = finder->terms->bytes;
        struct extent *extent;

        extent = shelf_exact(own_shelf(finder), bytes);
        if (!extent)
                extent = shelf_exact(clean_shelf(finder), bytes);
        if (extent)
                return take_piece(finder, extent, bytes, PLAN_EXACT);
        extent = find_cuttable(finder, bytes);
        return extent ? plan_cut_or_build(finder, extent) : PLAN_NO;
}

/* Largest first, the last one cut, or built where that is allowed. */
static int plan_several(struct finder *finder) {
        uint64_t left_bytes = finder->terms->bytes;
        struct extent *extent;
        int r;

        while (left_bytes > 0) {
                extent = NULL;
                keep_largest_fitting(own_shelf(finder), left_bytes, &extent);
                keep_largest_fitting(clean_shelf(finder), left_bytes, &extent);
                if (!extent)
                        break;
                left_bytes -= extent->bytes;
                r = take_piece(finder, extent, extent->bytes, PLAN_EXACT);
                if (r < 0)
                        return r;
        }
        if (left_bytes == 0)
                return PLAN_YES;
        extent = find_cuttable(finder, left_bytes);
        if (extent)
                return take_piece(finder, extent, left_bytes, PLAN_CUT);
        if (finder->terms->instant_only)
                return PLAN_NO;
        r = make_room(finder, left_bytes, 1);
        return r == PLAN_YES ? take_piece(finder, NULL, left_bytes, PLAN_BUILD) : r;
}

static int plan_grow(struct finder *finder) {
        struct extent *base = find_growable(finder);
        uint64_t missing_bytes = finder->terms->bytes - (base ? base->bytes : 0);
        int r;

        r = take_piece(finder, base, finder->terms->bytes, base ? PLAN_GROW : PLAN_BUILD);
        if (r < 0)
                return r;
        return make_room(finder, missing_bytes, base ? 0 : 1);
}

/* Enough in all, ready or not? What is being filled is counted whole: its pages are free again when it stops. */
static int plan_slow(struct finder *finder) {
        struct node_pool *np = finder->np;
        uint64_t ready_bytes = np->bytes[EXTENT_READY], filling_bytes = np->bytes[EXTENT_FILLING];
        uint64_t room_bytes = finder->terms->freed_bytes + (finder->terms->may_fill ? finder->terms->fillable_bytes : 0);

        if (finder->terms->bytes > ready_bytes + filling_bytes + room_bytes)
                return PLAN_NO;
        if (filling_bytes > 0)
                return PLAN_QUIESCE;
        return finder->terms->several ? plan_several(finder) : plan_grow(finder);
}

static int plan_auto(struct finder *finder) {
        int r = plan_single(finder);

        if (r != PLAN_NO)
                return r;
        if (finder->terms->several && takeable_bytes(finder) >= finder->terms->bytes) {
                r = plan_several(finder);
                if (r != PLAN_NO || finder->terms->instant_only)
                        return r;
                pool_plan_undo(&finder->plan);
                finder->pieces_room = finder->drops_room = 0;
        }
        return finder->terms->instant_only ? PLAN_NO : plan_slow(finder);
}

static int take_equals(struct finder *finder, struct shelf *shelf, uint64_t *left_bytes) {
        struct extent *extent;
        int r;

        while (shelf && *left_bytes > 0 && (extent = TAILQ_FIRST(&shelf->extents))) {
                *left_bytes -= extent->bytes;
                r = take_piece(finder, extent, extent->bytes, PLAN_EXACT);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int plan_fixed(struct finder *finder) {
        uint64_t left_bytes = finder->terms->bytes, extent_bytes = finder->np->pool->extent_bytes;
        int r;

        if (left_bytes > extent_bytes && !finder->terms->several)
                return PLAN_NO;
        r = take_equals(finder, own_shelf(finder), &left_bytes);
        if (r >= 0)
                r = take_equals(finder, clean_shelf(finder), &left_bytes);
        if (r < 0)
                return r;
        if (left_bytes == 0)
                return PLAN_YES;
        if (finder->terms->instant_only)
                return PLAN_NO;
        if (finder->terms->may_fill && finder->np->bytes[EXTENT_FILLING] > 0)
                return PLAN_QUIESCE;
        r = make_room(finder, left_bytes, left_bytes / extent_bytes);
        for (; r == PLAN_YES && left_bytes > 0; left_bytes -= extent_bytes)
                r = take_piece(finder, NULL, extent_bytes, PLAN_BUILD);
        return r;
}

int pool_plan(struct node_pool *np, const struct plan_terms *terms, struct item_plan *ret_plan) {
        struct finder finder = {.np = np, .terms = terms, .plan.node_pool = np};
        int r;

        assert(terms->bytes > 0 && terms->bytes % np->pool->page_size_bytes == 0);
        r = np->pool->extent_bytes != 0 ? plan_fixed(&finder) : plan_auto(&finder);
        if (r != PLAN_YES) {
                pool_plan_undo(&finder.plan);
                return r;
        }
        *ret_plan = finder.plan;
        return PLAN_YES;
}

void pool_plan_undo(struct item_plan *plan) {
        /* The shelves still exist: empty ones are only dropped by the sweep, never while a plan is made. */
        for (size_t i = 0; i < plan->n_pieces; i++)
                if (plan->pieces[i].extent)
                        (void) pool_make_ready(plan->pieces[i].extent);
        for (size_t i = 0; i < plan->n_drops; i++)
                (void) pool_make_ready(plan->drops[i]);
        pool_plan_done(plan);
}

void pool_plan_done(struct item_plan *plan) {
        free(plan->pieces);
        free(plan->drops);
        *plan = (struct item_plan) {.node_pool = plan->node_pool};
}

uint64_t pool_plan_bytes(const struct item_plan *plan) {
        uint64_t bytes = 0;

        for (size_t i = 0; i < plan->n_pieces; i++)
                bytes += plan->pieces[i].bytes;
        return bytes;
}

int64_t pool_plan_fill_bytes(const struct item_plan *plan) {
        int64_t fill_bytes = 0;

        for (size_t i = 0; i < plan->n_pieces; i++) {
                const struct plan_piece *piece = &plan->pieces[i];

                fill_bytes += (int64_t) piece->bytes - (int64_t) (piece->extent ? piece->extent->bytes : 0);
        }
        for (size_t i = 0; i < plan->n_drops; i++)
                fill_bytes -= (int64_t) plan->drops[i]->bytes;
        return fill_bytes;
}
