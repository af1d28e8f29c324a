/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any specification of a grant is refused with a line of text, or understood within its limits. What stands behind its first
 * newline is an argument of a command, in which the placeholders of that grant are replaced.
 */

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "cleanup.h"
#include "ctl-grant-spec.h"
#include "ctl-placeholder.h"
#include "fuzz.h"
#include "hugezero.h"

static bool is_one_line(const char error[CTL_SPEC_ERROR_BYTES]) {
        size_t n_bytes = strnlen(error, CTL_SPEC_ERROR_BYTES);

        return n_bytes > 0 && n_bytes < CTL_SPEC_ERROR_BYTES;
}

static void check_spec(const struct ctl_grant_spec *spec) {
        CHECK(spec->bytes > 0);
        CHECK((spec->page_size_bytes & (spec->page_size_bytes - 1)) == 0);
        CHECK(memchr(spec->name, 0, sizeof(spec->name)) && memchr(spec->pool, 0, sizeof(spec->pool)));
        CHECK(spec->node >= 0 || spec->node == HUGEZERO_NODE_ANY || spec->node == HUGEZERO_NODE_LOCAL);
        CHECK((spec->flags & ~(HUGEZERO_NODE_PREFERRED | HUGEZERO_SEVERAL_FDS)) == 0);
        CHECK(!(spec->flags & HUGEZERO_NODE_PREFERRED) || spec->node != HUGEZERO_NODE_ANY);
}

static void check_expansion(const char *text, const char *name) {
        static const int fds[] = {3, 1048575};
        const struct ctl_placeholder grant = {.name = name, .bytes = UINT64_MAX, .fds = fds, .n_fds = 2};
        _cleanup_free_ char *expanded = NULL;
        char error[CTL_SPEC_ERROR_BYTES] = "";
        int r = ctl_placeholder_expand(text, &grant, 1, &expanded, error);

        CHECK(r == 0 ? expanded != NULL : r == -EINVAL && is_one_line(error) && !expanded);
        if (r == 0 && !strchr(text, '{'))
                CHECK(strcmp(expanded, text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
        _cleanup_free_ char *text = malloc(n_bytes + 1); /* ends where the sanitizer looks */
        char error[CTL_SPEC_ERROR_BYTES] = "", *argument;
        struct ctl_grant_spec spec = {.name = "ram0"};

        CHECK(text);
        memcpy(text, data, n_bytes);
        text[n_bytes] = 0;
        argument = strchr(text, '\n');
        if (argument)
                *argument++ = 0;
        int r = ctl_grant_spec_parse(text, &spec, error);
        CHECK(r == 0 || (r == -EINVAL && is_one_line(error)));
        if (r == 0)
                check_spec(&spec);
        if (argument && *spec.name)
                check_expansion(argument, spec.name);
        return 0;
}
