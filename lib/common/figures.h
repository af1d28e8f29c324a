/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's figures as the public header has them, from those on the wire. */
#pragma once

#include "hugezero.h"
#include "wire.h"

/* struct_bytes is left 0. */
void figures_of_status(const struct wire_d_status *from, struct hugezero_daemon_info *ret_daemon);
void figures_of_pool(const struct wire_pool_row *from, struct hugezero_pool_info *ret_pool);
