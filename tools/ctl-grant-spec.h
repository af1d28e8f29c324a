/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user writes for one grant: "name=ram0,bytes=8G,node=0,page-size=2M,pool=NAME,prefer,several". No allocation. */
#pragma once

#include <stdint.h>

#define CTL_GRANT_NAME_BYTES 32  /* chosen: a word in a command line; including the terminating 0 */
#define CTL_SPEC_ERROR_BYTES 256 /* chosen: one line */

struct ctl_grant_spec {
        char name[CTL_GRANT_NAME_BYTES]; /* empty: not given */
        char pool[32];                   /* the protocol's limit, with the terminating 0; empty: best fit */
        uint64_t bytes;                  /* > 0 */
        uint64_t page_size_bytes;        /* 0: the pool's, or the default one */
        int32_t node;                    /* number, HUGEZERO_NODE_ANY or HUGEZERO_NODE_LOCAL */
        uint32_t flags;                  /* HUGEZERO_NODE_PREFERRED, HUGEZERO_SEVERAL_FDS */
};

/* Returns 0, or -EINVAL and one line that says which part is wrong and what is expected. */
int ctl_grant_spec_parse(const char *text, struct ctl_grant_spec *ret_spec, char ret_error[CTL_SPEC_ERROR_BYTES]);
