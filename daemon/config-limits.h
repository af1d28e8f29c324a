/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Understands MaxBytes=: against the machine. */
#pragma once

#include "config-draft.h"

/*
 * What the section says of all page sizes and of single ones; the rest of @quota stays. Returns 0, or a negative errno with
 * @ret_error written.
 */
int config_limits_resolve(const struct config_section *section, const struct topology *topology, struct config_quota *quota,
                          char ret_error[CONFIG_TEXT_BYTES]);
