/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any text is refused or understood, and what was understood is printed so that it reads as the same value. */

#include <errno.h>
#include <string.h>

#include "cleanup.h"
#include "fuzz.h"
#include "parse.h"

static bool is_known(int r) {
        return r == 0 || r == -EINVAL || r == -ERANGE;
}

static void parse_and_print(const char *text) {
        char buffer[FORMAT_SIZE_BYTES];
        uint64_t value, again, nodes[PARSE_MAX_NODES / 64];
        uint32_t millipercent;
        int32_t number;
        bool truth;

        int r = parse_size(text, &value);
        CHECK(is_known(r));
        if (r == 0)
                CHECK(parse_size(format_size(value, buffer), &again) == 0 && again == value);
        r = parse_duration(text, &value);
        CHECK(is_known(r));
        if (r == 0)
                CHECK(parse_duration(format_duration(value, buffer), &again) == 0 && again == value);
        r = parse_u64(text, &value);
        CHECK(is_known(r));
        if (r == 0) /* a plain number is a size as well */
                CHECK(parse_size(text, &again) == 0 && again == value);
        CHECK(is_known(parse_i32(text, &number)));
        CHECK(is_known(parse_bool(text, &truth)));
        r = parse_percent(text, &millipercent);
        CHECK(is_known(r) && (r != 0 || millipercent <= 100000));
        r = parse_node_list(text, nodes);
        CHECK(is_known(r));
        for (size_t i = 0, any = 0; r == 0 && i <= PARSE_MAX_NODES / 64; i++) {
                CHECK(i < PARSE_MAX_NODES / 64 || any);
                any |= i < PARSE_MAX_NODES / 64 && nodes[i] != 0;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
        _cleanup_free_ char *text = malloc(n_bytes + 1); /* ends where the sanitizer looks */

        CHECK(text);
        memcpy(text, data, n_bytes);
        text[n_bytes] = 0;
        parse_and_print(text);
        return 0;
}
