/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "limit-texts.h"

#include <stdio.h>

static const struct {
        const char *none, *too_many;
} texts[] = {
        [QUOTA_CONNECTIONS] = {"may have no connections at all (MaxConnections= of its quota)",
                               "has too many connections (MaxConnections= of its quota)"},
        [QUOTA_WAITING] = {"may have no requests at all (MaxWaiting= of its quota)",
                           "has too many requests that wait (MaxWaiting= of its quota)"},
        [QUOTA_REQUESTS] = {"may not ask for memory at all (MaxRequestRate= of its quota)",
                            "asks for memory more often than its quota allows in one second (MaxRequestRate=)"},
};

const char *limit_explain(const struct quota *quota, uid_t uid, enum quota_kind kind, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        /* An administrator has some connections whatever the limit says: of him it is too many. */
        bool is_none = quota_limit(quota, uid, kind) == 0 && quota_used(quota, uid, kind) == 0;

        (void) snprintf(ret_text, WIRE_MAX_TEXT_BYTES + 1, "uid %u %s", (unsigned) uid,
                        is_none ? texts[kind].none : texts[kind].too_many);
        return ret_text;
}
