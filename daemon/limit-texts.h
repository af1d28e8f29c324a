/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user is told who has reached a limit of its own. */
#pragma once

#include "quota.h"
#include "wire.h"

/* One more of @kind (connections, waiting requests, requests in one second) was -EDQUOT. Returns @ret_text. */
const char *limit_explain(const struct quota *quota, uid_t uid, enum quota_kind kind, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);
