/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Reads ready memory again, slice by slice at the pace of AuditRate=, to see that it is still zero. An extent is away from its
 * shelf for one slice at a time, while its node has nothing else to do. Loop thread.
 */
#pragma once

#include "pool.h"

struct audit;

int audit_new(struct broker *broker, struct audit **ret_audit);
struct audit *audit_free(struct audit *audit);
/* Nodes that have got memory since are read too, once AuditRate= is set again. -ENOMEM: some are not. */
int audit_add_nodes(struct audit *audit);
/* AuditRate= was changed. */
void audit_set_rate(struct audit *audit);
/* Where rounds are no more frequent than sweeps: they begin with one. */
void audit_on_sweep(struct audit *audit);
/* Whether what was idle has been read since the start, as far as its rate goes; true where none reads. */
bool audit_had_round(const struct audit *audit, int node);
/* Somebody wants memory of this node pool: what is being audited is back soon, and the broker kicked then. */
void audit_let_go(struct audit *audit, struct node_pool *np);
