/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Rows for LIMITS: what each uid may have and has. */
#pragma once

#include <stdbool.h>

#include "identity.h"
#include "wire.h"

struct quota;

/* @all: of all uids, and of all together; else only of the identity's. */
void limits_fill(const struct quota *quota, const struct identity *identity, bool all, const struct wire_c_limits *from,
                 struct wire_d_limits *ret_limits);
