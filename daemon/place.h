/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* In which node pool memory of a predecessor finds its place. Loop thread only. */
#pragma once

struct broker;
struct ledger_record;
struct node_pool;

/* Where it was. NULL: there is no such pool any more, or its extents are others now and nobody holds this one. */
struct node_pool *place_find(const struct broker *broker, const struct ledger_record *record);
/* Another pool of its node and page size that lacks memory of that shape. NULL: nobody can use it. */
struct node_pool *place_find_other(const struct broker *broker, const struct ledger_record *record);
/*
 * For what somebody holds: any pool of its node and page size, whether it fits there or not; where there is none, one that is made
 * for it, has no target, and serves nobody. Negative errno: -ENODEV (the node is gone), -ENOSPC (too many pools), -ENOMEM.
 */
int place_make(struct broker *broker, const struct ledger_record *record, struct node_pool **ret_np);
