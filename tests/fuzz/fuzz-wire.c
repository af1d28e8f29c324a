/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any packet is refused or understood completely: what was decoded encodes to the same bytes again. */

#include <errno.h>
#include <string.h>

#include "fuzz.h"
#include "wire.h"

static void decode(const uint8_t *data, size_t n_bytes, enum wire_direction direction) {
        uint8_t again[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;
        int r = wire_decode(data, n_bytes, direction, &message);

        CHECK(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
        if (r == -EBADMSG) {
                char fault[WIRE_FAULT_BYTES];
                CHECK(*wire_explain(data, n_bytes, direction, fault));
        }
        if (r != 0)
                return;
        CHECK(wire_encode(&message, again, sizeof(again)) == (int) n_bytes);
        CHECK(memcmp(again, data, n_bytes) == 0);
        if (message.op == WIRE_D_REFUSED)
                CHECK(strlen(message.d_refused.text) == message.d_refused.n_text_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
        decode(data, n_bytes, WIRE_TO_DAEMON);
        decode(data, n_bytes, WIRE_TO_CLIENT);
        return 0;
}
