/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* {NAME.fd}, {NAME.path} and {NAME.bytes} in the arguments of a command. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "ctl-grant-spec.h"

struct ctl_placeholder {
        const char *name;
        uint64_t bytes;
        const int *fds; /* several: the values are lists with commas */
        size_t n_fds;
};

/*
 * ctl_placeholder_expand - replace what is meant for us, leave every other brace alone
 * "{WORD.WORD}" is meant for us when the first word is the name of a grant or the second is fd, path or bytes: JSON and shell
 * text pass.
 * @ret_text: owned by the caller, free(3). Returns 0, -ENOMEM, or -EINVAL and one line in @ret_error.
 */
int ctl_placeholder_expand(const char *text, const struct ctl_placeholder *grants, size_t n_grants, char **ret_text,
                           char ret_error[CTL_SPEC_ERROR_BYTES]);
