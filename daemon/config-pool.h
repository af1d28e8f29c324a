/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Understands a pool's keys: against the machine and against each other. */
#pragma once

#include "config-draft.h"

/* Returns 0, or a negative errno with @ret_error written; @ret_pool is written on success only. */
int config_pool_resolve(const struct config_section *section, const struct topology *topology, struct config_pool *ret_pool,
                        char ret_error[CONFIG_TEXT_BYTES]);
