/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The codec against literal packets: each byte where wire.h says, each wrong value refused, only canonical bytes accepted. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "wire.h"

struct vector {
        const char *name;
        enum wire_direction direction;
        struct wire_message message;
        const char *hex; /* in wire order, blanks and line breaks ignored */
};

/* Values differ in each byte where the rules leave room for that, so that a swapped byte or field shows. */
static const struct vector vectors[] = {
        {"C_HELLO",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_HELLO,
          .request_id = 0x04030201,
          .c_hello = {.magic = WIRE_MAGIC, .version_min = 0x0201, .version_max = 0x0403, .features = 0x1817161514131211}},
         "0100 0000 01020304  485a455a 0102 0304  1112131415161718"},
        {"C_ACQUIRE",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_ACQUIRE,
          .request_id = 0xfffefdfc,
          .c_acquire = {.on_miss = WIRE_MISS_WAIT,
                        .n_items = 2,
                        .timeout_ms = 0x01020304,
                        .items = {{.bytes = 0x0807060504030201,
                                   .page_size_bytes = 0x1817161514131211,
                                   .node = 0x04030201,
                                   .node_mode = WIRE_NODE_STRICT,
                                   .flags = WIRE_ITEM_SEVERAL,
                                   .pool = "ram0"},
                                  {.bytes = 1,
                                   .page_size_bytes = 0,
                                   .node = -1,
                                   .node_mode = WIRE_NODE_ANY,
                                   .flags = WIRE_ITEM_SEVERAL | WIRE_ITEM_REOPENABLE,
                                   .pool = "0123456789 _-.~!abcdefghijABCDE"}}}},
         "0200 0000 fcfdfeff  01 02 0000 04030201"
         "0102030405060708 1112131415161718 01020304 01 01 0000 0000000000000000"
         "72616d30 00000000 0000000000000000 0000000000000000 0000000000000000"
         "0100000000000000 0000000000000000 ffffffff 00 03 0000 0000000000000000"
         "3031323334353637 3839205f2d2e7e21 6162636465666768 696a414243444500"},
        {"C_CANCEL",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_CANCEL, .request_id = 1, .c_cancel = {.target_request_id = 0x04030201}},
         "0300 0000 01000000  01020304 00000000"},
        {"C_MAPPED",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_MAPPED, .request_id = 2, .c_mapped = {.grant_id = 0x0807060504030201}},
         "0400 0000 02000000  0102030405060708"},
        {"C_RELEASE",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_RELEASE, .request_id = 3, .c_release = {.grant_id = 0x0807060504030201, .extent = WIRE_ALL_EXTENTS - 1}},
         "0500 0000 03000000  0102030405060708 feffffff 00000000"},
        {"C_STATUS", WIRE_TO_DAEMON, {.op = WIRE_C_STATUS, .request_id = 4}, "0600 0000 04000000"},
        {"C_POOLS",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_POOLS, .request_id = 5, .c_pools = {.first_row = 0x04030201}},
         "0700 0000 05000000  01020304 00000000"},
        {"C_GRANTS",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_GRANTS, .request_id = 6, .c_grants = {.after_grant_id = 0x0807060504030201, .after_extent = 0x14131211}},
         "0800 0000 06000000  0102030405060708 11121314 00000000"},
        {"C_RELOAD", WIRE_TO_DAEMON, {.op = WIRE_C_RELOAD, .request_id = 7}, "0900 0000 07000000"},
        {"C_RESIZE",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_RESIZE,
          .request_id = 8,
          .c_resize = {.target_bytes = 0x0807060504030201, .node = 0x14131211, .pool = "vm"}},
         "0a00 0000 08000000  0102030405060708 11121314 00000000"
         "766d000000000000 0000000000000000 0000000000000000 0000000000000000"},
        {"C_LIMITS",
         WIRE_TO_DAEMON,
         {.op = WIRE_C_LIMITS, .request_id = 9, .c_limits = {.after_uid = 0x04030201, .after_kind = 0x1211}},
         "0b00 0000 09000000  01020304 1112 0000"},
        {"D_LIMITS",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_LIMITS,
          .request_id = 10,
          .d_limits = {.n_rows = 1, .more = 1, .rows = {{.uid = 0x04030201, .kind = 0x1211, .used = 0x0807060504030201, .limit = 0x1817161514131211}}}},
         "4900 0000 0a000000  01000000 01000000  01020304 1112 0000 0102030405060708 1112131415161718"},
        {"D_HELLO",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_HELLO,
          .request_id = 7,
          .d_hello = {.magic = WIRE_MAGIC,
                      .version = 0x0201,
                      .max_items = 0x0403,
                      .features = 0x1817161514131211,
                      .max_fds = 0x2221,
                      .max_message_bytes = 0x34333231}},
         "4100 0000 07000000  485a455a 0102 0304  1112131415161718  2122 0000 31323334"},
        {"D_GRANT",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_GRANT,
          .request_id = 8,
          .d_grant = {.grant_id = 0x0807060504030201,
                      .n_extents_total = 0x04030201,
                      .first_extent = 0x03020100,
                      .n_extents = 2,
                      .extents = {{.bytes = 0x0807060504200000, .item = 3, .page_shift = 21, .node = 0x0201},
                                  {.bytes = 0x0807060540000000, .item = 15, .page_shift = 30, .node = 0x7fff}}}},
         "4200 0000 08000000  0102030405060708 01020304 00010203 0200 0000 00000000"
         "0000200405060708 03 15 0102 00000000"
         "0000004005060708 0f 1e ff7f 00000000"},
        {"D_REFUSED",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_REFUSED,
          .request_id = 9,
          .d_refused = {.error = 0x0201, .n_text_bytes = 14, .text = "no \"x\" \xc3\xa9\xe2\x82\xac\xc2\xa0"}},
         "4300 0000 09000000  01020000 0e00 0000 6e6f20227822 20c3a9 e282ac c2a0"},
        {"D_DONE", WIRE_TO_CLIENT, {.op = WIRE_D_DONE, .request_id = 10}, "4400 0000 0a000000"},
        {"D_RELOADED",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_RELOADED, .request_id = 9, .d_reloaded = {.n_start_keys_bytes = 6, .start_keys = "Batch="}},
         "4a00 0000 09000000  0600 0000 00000000 42617463683d"},
        {"D_STATUS",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_STATUS,
          .request_id = 11,
          .d_status = {.daemon_version = "0.1.0",
                       .uptime_ms = 0x0807060504030201,
                       .n_clients = 1,
                       .n_waiting = 2,
                       .n_pool_rows = 3,
                       .n_grants = 4,
                       .n_extents_granted = 5,
                       .n_granted_total = 6,
                       .n_refused_total = 7,
                       .n_exact = 8,
                       .n_cut = 9,
                       .n_grown = 10,
                       .n_built = 11,
                       .zeroed_bytes_total = 12,
                       .granted_bytes_total = 13,
                       .scrubbed_bytes_total = 14,
                       .n_fds_in_flight = 15,
                       .n_doubts = 0x1817161514131211,
                       .capped_at_extents = 0x2827262524232221}},
         "4600 0000 0b000000  302e312e3000 0000 0000000000000000 0000000000000000 0000000000000000"
         "0102030405060708 0100000000000000 0200000000000000 0300000000000000 0400000000000000 0500000000000000"
         "0600000000000000 0700000000000000 0800000000000000 0900000000000000 0a00000000000000 0b00000000000000"
         "0c00000000000000 0d00000000000000 0e00000000000000"
         "0f00000000000000 1112131415161718 2122232425262728"},
        {"D_POOLS",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_POOLS,
          .request_id = 12,
          .d_pools = {.n_rows_total = 0x04030201,
                      .first_row = 0x03020100,
                      .n_rows = 1,
                      .rows = {{.name = "default",
                                .node = 0x04030201,
                                .n_extents_ready = 0x14131211,
                                .page_size_bytes = 1,
                                .extent_bytes = 2,
                                .target_bytes = 3,
                                .ready_bytes = 4,
                                .granted_bytes = 5,
                                .returned_bytes = 6,
                                .filling_bytes = 7,
                                .shortfall_bytes = 8,
                                .pinned_bytes = 9,
                                .kernel_free_bytes = 10,
                                .largest_ready_bytes = 11,
                                .n_exact = 12,
                                .n_cut = 13,
                                .n_grown = 14,
                                .n_built = 15,
                                .zeroed_bytes_total = 0x1817161514131211,
                                .clear_method = "avx2-nt",
                                .n_workers = 0x24232221,
                                .n_fill_threads = 0x34333231,
                                .paced_wait_ms = 16,
                                .audited_bytes_total = 17,
                                .n_audit_errors = 0x4847464544434241,
                                .n_scrub_threads = 0x54535251,
                                .clear_speed = 0x6261,
                                .clear_survival = 0x0063}}}},
         "4700 0000 0c000000  01020304 00010203 01000000 00000000"
         "64656661756c7400 0000000000000000 0000000000000000 0000000000000000  01020304 11121314"
         "0100000000000000 0200000000000000"
         "0300000000000000 0400000000000000 0500000000000000 0600000000000000 0700000000000000 0800000000000000"
         "0900000000000000 0a00000000000000 0b00000000000000"
         "0c00000000000000 0d00000000000000 0e00000000000000 0f00000000000000 1112131415161718"
         "617678322d6e7400 0000000000000000 21222324 31323334 1000000000000000 1100000000000000 4142434445464748 51525354 6162 6300"},
        {"D_GRANTS",
         WIRE_TO_CLIENT,
         {.op = WIRE_D_GRANTS,
          .request_id = 13,
          .d_grants = {.n_rows = 1,
                       .more = 1,
                       .rows = {{.grant_id = 0x0807060504030201,
                                 .extent = 0x14131211,
                                 .uid = 0x24232221,
                                 .pid = 0x34333231,
                                 .node = 0x0201,
                                 .page_shift = 21,
                                 .state = WIRE_EXTENT_RETURNING,
                                 .bytes = 0x0807060504200000,
                                 .age_ms = 1,
                                 .dev = 2,
                                 .ino = 0x1817161514131211,
                                 .pool = "ram0"}}}},
         "4800 0000 0d000000  01000000 01000000"
         "0102030405060708 11121314 21222324 31323334 0102 15 02"
         "0000200405060708 0100000000000000 0200000000000000 1112131415161718"
         "72616d30 00000000 0000000000000000 0000000000000000 0000000000000000 0000000000000000"},
};

static size_t from_hex(const char *hex, uint8_t bytes[WIRE_MAX_MESSAGE_BYTES]) {
        size_t n = 0;
        unsigned value;

        for (; *hex; hex++) {
                if (*hex == ' ')
                        continue;
                assert_int_equal(sscanf(hex++, "%2x", &value), 1);
                bytes[n++] = (uint8_t) value;
        }
        return n;
}

static const struct vector *find_vector(const char *name) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++)
                if (strcmp(vectors[i].name, name) == 0)
                        return &vectors[i];
        fail_msg("no vector %s", name);
        return NULL;
}

/* Decodes an exact-size copy, so that the sanitizer sees each byte read too many. What is accepted must encode to itself. */
static int decode(const uint8_t *bytes, size_t n_bytes, enum wire_direction direction, struct wire_message *ret_message) {
        uint8_t *copy = malloc(n_bytes ? n_bytes : 1), again[WIRE_MAX_MESSAGE_BYTES];

        assert_non_null(copy);
        memcpy(copy, bytes, n_bytes);
        int r = wire_decode(copy, n_bytes, direction, ret_message);
        if (r == 0) {
                assert_int_equal(wire_encode(ret_message, again, sizeof(again)), n_bytes);
                assert_memory_equal(again, copy, n_bytes);
        } else if (r == -EBADMSG) {
                char fault[WIRE_FAULT_BYTES];
                assert_true(strlen(wire_explain(copy, n_bytes, direction, fault)) > 0);
        }
        free(copy);
        return r;
}

static void each_field_is_where_the_header_says(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t expected[WIRE_MAX_MESSAGE_BYTES], buffer[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message;
                size_t n = from_hex(vectors[i].hex, expected);

                print_message("%s\n", vectors[i].name);
                assert_int_equal(wire_encode(&vectors[i].message, buffer, sizeof(buffer)), n);
                assert_memory_equal(buffer, expected, n);
                assert_int_equal(decode(expected, n, vectors[i].direction, &message), 0);
                assert_int_equal(message.op, vectors[i].message.op);
                assert_int_equal(message.request_id, vectors[i].message.request_id);
        }
}

static void each_message_has_the_length_that_the_header_says(void **state) {
        static const struct {
                const char *name;
                size_t n_bytes;
        } lengths[] = {
                {"C_HELLO", 24},          {"D_HELLO", 32},        {"C_ACQUIRE", 16 + 2 * 64},
                {"C_CANCEL", 16},         {"C_MAPPED", 16},       {"C_RELEASE", 24},
                {"C_STATUS", 8},          {"C_POOLS", 16},        {"C_GRANTS", 24},
                {"C_RELOAD", 8},          {"C_RESIZE", 56},
                {"D_GRANT", 32 + 2 * 16}, {"D_REFUSED", 16 + 14}, {"D_DONE", 8}, {"D_RELOADED", 16 + 6},
                {"D_STATUS", 184},        {"D_POOLS", 24 + 224},  {"D_GRANTS", 16 + 96},
                {"C_LIMITS", 16},         {"D_LIMITS", 16 + 24},
        };

        assert_int_equal(ELEMENTSOF(lengths), ELEMENTSOF(vectors));
        for (size_t i = 0; i < ELEMENTSOF(lengths); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
                assert_int_equal(from_hex(find_vector(lengths[i].name)->hex, bytes), lengths[i].n_bytes);
        }
}

static void a_fault_is_named(void **state) {
        static const struct {
                const char *vector;
                int offset; /* whose byte gets @value; -1: none */
                uint8_t value;
                int n_more; /* bytes than the message has */
                const char *fault;
        } faults[] = {
                {"C_HELLO", 2, 1, 0, "field reserved: it is reserved, and not 0"},
                {"C_HELLO", 8, 0, 0, "field magic: its value is not allowed"},
                {"C_ACQUIRE", 8, 9, 0, "field on_miss: its value is not allowed"},
                {"C_ACQUIRE", 48, 7, 0, "item 0, field pool: it has characters that are not printable"},
                {"C_ACQUIRE", 101, 0x80, 0, "item 1, field flags: its value is not allowed"},
                {"C_ACQUIRE", 104, 1, 0, "item 1, field reserved2: it is reserved, and not 0"},
                {"C_ACQUIRE", -1, 0, -1, "item 1, field pool: the message ends before it does"},
                {"C_ACQUIRE", -1, 0, 1, "145 bytes are too many"},
                {"C_STATUS", -1, 0, -1, "field request_id: the message ends before it does"},
                {"C_RESIZE", 20, 1, 0, "field reserved: it is reserved, and not 0"},
        };

        for (size_t i = 0; i < ELEMENTSOF(faults); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES] = {};
                struct wire_message message;
                char fault[WIRE_FAULT_BYTES];
                size_t n = from_hex(find_vector(faults[i].vector)->hex, bytes) + faults[i].n_more;

                if (faults[i].offset >= 0)
                        bytes[faults[i].offset] = faults[i].value;
                assert_int_equal(wire_decode(bytes, n, WIRE_TO_DAEMON, &message), -EBADMSG);
                assert_string_equal(wire_explain(bytes, n, WIRE_TO_DAEMON, fault), faults[i].fault);
        }
}

static void make_text(const char *from, const char *expected) {
        char text[WIRE_MAX_TEXT_BYTES + 1];

        assert_int_equal(wire_make_text(text, from), strlen(expected));
        assert_string_equal(text, expected);
}

static void anything_can_be_made_a_text(void **state) {
        char from[WIRE_MAX_TEXT_BYTES + 30] = "";

        make_text("", "");
        make_text("no \"x\" \xc3\xa9\xe2\x82\xac", "no \"x\" \xc3\xa9\xe2\x82\xac");
        make_text("Low=\xff\xfe [\xe9]", "Low=?? [?]");
        make_text("a\x1b[31m\x7f\xc2\x9b" "b\n\xe2\x82", "a?[31m???b???");
        for (int n = 0; n < 70; n++) /* three bytes each, 66 of them fit */
                (void) strcat(from, "\xe2\x82\xac");
        char expected[WIRE_MAX_TEXT_BYTES + 1] = "";
        (void) strncat(expected, from, 66 * 3);
        make_text(from, expected);
}

static void the_decoded_text_is_terminated(void **state) {
        const struct vector *vector = find_vector("D_REFUSED");
        uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;

        memset(&message, 'x', sizeof(message));
        assert_int_equal(wire_decode(bytes, from_hex(vector->hex, bytes), WIRE_TO_CLIENT, &message), 0);
        assert_string_equal(message.d_refused.text, vector->message.d_refused.text);
}

static void every_other_length_is_refused(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES + 64] = {};
                struct wire_message message;
                size_t n = from_hex(vectors[i].hex, bytes);

                for (size_t other = 0; other < sizeof(bytes); other++)
                        if (other != n)
                                assert_int_equal(decode(bytes, other, vectors[i].direction, &message), -EBADMSG);
        }
}

static void a_message_in_the_wrong_direction_is_unknown(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message = {};
                size_t n = from_hex(vectors[i].hex, bytes);

                assert_int_equal(decode(bytes, n, !vectors[i].direction, &message), -EOPNOTSUPP);
                assert_int_equal(message.op, vectors[i].message.op);
                assert_int_equal(message.request_id, vectors[i].message.request_id);
        }
}

static void unknown_ops_keep_their_request_id(void **state) {
        uint8_t bytes[WIRE_MAX_MESSAGE_BYTES + 1] = {0xff, 0xff, 0, 0, 1, 2, 3, 4};
        struct wire_message message = {};

        for (size_t n = WIRE_HEADER_BYTES; n < sizeof(bytes); n++)
                assert_int_equal(decode(bytes, n, WIRE_TO_DAEMON, &message), -EOPNOTSUPP);
        assert_int_equal(decode(bytes, sizeof(bytes), WIRE_TO_DAEMON, &message), -EBADMSG);
        assert_int_equal(message.op, 0xffff);
        assert_int_equal(message.request_id, 0x04030201);
        bytes[2] = 1;
        assert_int_equal(decode(bytes, sizeof(bytes), WIRE_TO_DAEMON, &message), -EBADMSG);
}

static void reserved_bytes_are_zero(void **state) {
        static const struct {
                const char *name;
                size_t offset, n;
        } reserved[] = {
                {"C_ACQUIRE", 10, 2},     {"C_ACQUIRE", 16 + 22, 2}, {"C_ACQUIRE", 16 + 24, 8}, {"C_ACQUIRE", 80 + 22, 10},
                {"C_CANCEL", 12, 4},      {"C_RELEASE", 20, 4},      {"C_POOLS", 12, 4},        {"C_GRANTS", 20, 4},
                {"D_HELLO", 26, 2},       {"D_GRANT", 26, 6},        {"D_GRANT", 32 + 12, 4},   {"D_GRANT", 48 + 12, 4},
                {"D_REFUSED", 14, 2},     {"D_RELOADED", 10, 6},   {"D_POOLS", 20, 4},
                {"D_GRANTS", 16 + 88, 8}, {"C_RESIZE", 20, 4},      {"C_LIMITS", 14, 2},      {"D_LIMITS", 16 + 6, 2},
        };
        uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;

        for (size_t i = 0; i < ELEMENTSOF(reserved); i++) {
                const struct vector *vector = find_vector(reserved[i].name);
                size_t n = from_hex(vector->hex, bytes);
                for (size_t bit = 0; bit < 8 * reserved[i].n; bit++) {
                        bytes[reserved[i].offset + bit / 8] ^= 1 << bit % 8;
                        assert_int_equal(decode(bytes, n, vector->direction, &message), -EBADMSG);
                        bytes[reserved[i].offset + bit / 8] ^= 1 << bit % 8;
                }
        }
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) { /* and in each header */
                size_t n = from_hex(vectors[i].hex, bytes);
                bytes[2] = 1;
                assert_int_equal(decode(bytes, n, vectors[i].direction, &message), -EBADMSG);
                bytes[2] = 0, bytes[3] = 0x80;
                assert_int_equal(decode(bytes, n, vectors[i].direction, &message), -EBADMSG);
        }
}

static void wrong_values_are_refused(void **state) {
        static const struct {
                const char *name;
                size_t offset;
                const char *hex, *why;
        } wrong[] = {
                {"C_HELLO", 8, "495a455a", "magic"},
                {"C_HELLO", 12, "0404", "version_min above version_max"},
                {"C_ACQUIRE", 8, "00", "a time without waiting"},
                {"C_ACQUIRE", 8, "02", "a time with filling"},
                {"C_ACQUIRE", 8, "03 02 0000 00000000", "on_miss out of the enum"},
                {"C_ACQUIRE", 12, "feffffff", "a time of -2"},
                {"C_ACQUIRE", 12, "00000080", "the smallest time"},
                {"C_ACQUIRE", 9, "00", "no item"},
                {"C_ACQUIRE", 9, "01", "fewer items than sent"},
                {"C_ACQUIRE", 9, "03", "more items than sent"},
                {"C_ACQUIRE", 9, "11", "17 items"},
                {"C_ACQUIRE", 9, "ff", "255 items"},
                {"C_ACQUIRE", 16, "0000000000000000", "an item of 0 bytes"},
                {"C_ACQUIRE", 16 + 16, "ffffffff", "node -1 with STRICT"},
                {"C_ACQUIRE", 16 + 16, "fdffffff", "node -3 with STRICT"},
                {"C_ACQUIRE", 16 + 20, "00", "ANY with a node"},
                {"C_ACQUIRE", 16 + 20, "03", "node_mode out of the enum"},
                {"C_ACQUIRE", 16 + 21, "04", "an unknown flag"},
                {"C_ACQUIRE", 16 + 21, "81", "an unknown flag beside a known one"},
                {"C_ACQUIRE", 80 + 16, "00000000", "node 0 with ANY"},
                {"C_ACQUIRE", 80 + 16, "feffffff", "node -2 with ANY"},
                {"C_ACQUIRE", 80 + 20, "01", "STRICT without a node"},
                {"C_ACQUIRE", 16 + 32, "00", "letters behind the end of the name"},
                {"C_ACQUIRE", 16 + 33, "0a", "a line break in the name"},
                {"C_ACQUIRE", 16 + 33, "1b", "an escape in the name"},
                {"C_ACQUIRE", 16 + 33, "7f", "a DEL in the name"},
                {"C_ACQUIRE", 16 + 33, "c3a9", "a letter beyond ASCII in the name"},
                {"C_ACQUIRE", 16 + 63, "61", "a letter in the last byte"},
                {"C_ACQUIRE", 80 + 63, "46", "a name without an end"},
                {"D_POOLS", 24 + 222, "6500", "101 per cent of a cache"},
                {"D_POOLS", 24 + 222, "feff", "a survival that is nearly unknown"},
                {"D_HELLO", 8, "485a455b", "magic"},
                {"D_HELLO", 12, "0000", "version 0"},
                {"D_HELLO", 14, "0000", "no items"},
                {"D_HELLO", 24, "0000", "no fds"},
                {"D_HELLO", 28, "00000000", "no bytes"},
                {"D_GRANT", 8, "0000000000000000", "grant 0"},
                {"D_GRANT", 24, "0000", "no extent"},
                {"D_GRANT", 24, "0100", "fewer extents than sent"},
                {"D_GRANT", 24, "0300", "more extents than sent"},
                {"D_GRANT", 24, "fe00", "254 extents"},
                {"D_GRANT", 24, "ffff", "65535 extents"},
                {"D_GRANT", 16, "01010203", "extents beyond the total"},
                {"D_GRANT", 20, "ffffffff", "a position that overflows"},
                {"D_GRANT", 32, "0000000000000000", "an extent of 0 bytes"},
                {"D_GRANT", 32, "0010", "no multiple of the page"},
                {"D_GRANT", 32 + 8, "10", "item 16"},
                {"D_GRANT", 32 + 9, "0b", "a page of 2 KiB"},
                {"D_GRANT", 32 + 9, "29", "a page of 2 TiB"},
                {"D_GRANT", 32 + 9, "ff", "a shift beyond 64 bits"},
                {"D_GRANT", 32 + 10, "ffff", "node -1"},
                {"D_REFUSED", 8, "00000000", "error 0"},
                {"D_REFUSED", 8, "ffffffff", "a negative error"},
                {"D_REFUSED", 8, "00100000", "error 4096"},
                {"D_REFUSED", 12, "0d00", "a shorter text than sent"},
                {"D_REFUSED", 12, "0f00", "a longer text than sent"},
                {"D_REFUSED", 12, "c900", "a text of 201 bytes"},
                {"D_REFUSED", 12, "ffff", "a text of 65535 bytes"},
                {"D_REFUSED", 16, "00", "a NUL in the text"},
                {"D_REFUSED", 16, "1b", "an escape in the text"},
                {"D_REFUSED", 16, "7f", "a DEL in the text"},
                {"D_REFUSED", 28, "c29b", "a C1 control in the text"},
                {"D_REFUSED", 16, "c0af", "an overlong sequence of two"},
                {"D_REFUSED", 25, "e08080", "an overlong sequence of three"},
                {"D_REFUSED", 25, "eda080", "a surrogate"},
                {"D_REFUSED", 25, "e28241", "a broken sequence"},
                {"D_REFUSED", 16, "f0828282", "an overlong sequence of four"},
                {"D_REFUSED", 16, "f4908080", "beyond Unicode"},
                {"D_REFUSED", 16, "f8888080", "a sequence of five"},
                {"D_REFUSED", 16, "80", "a sequence without a beginning"},
                {"D_REFUSED", 28, "e282", "a sequence without an end"},
                {"D_STATUS", 8 + 1, "00", "letters behind the end of the version"},
                {"D_STATUS", 8 + 1, "0a", "a line break in the version"},
                {"D_STATUS", 8, "3030303030303030303030303030303030303030303030303030303030303030", "a version without an end"},
                {"D_POOLS", 16, "00000000", "fewer rows than sent"},
                {"D_POOLS", 16, "02000000", "more rows than sent"},
                {"D_POOLS", 16, "18000000", "24 rows"},
                {"D_POOLS", 16, "01000001", "16777217 rows"},
                {"D_POOLS", 12, "01020304", "rows beyond the total"},
                {"D_POOLS", 12, "ffffffff", "a position that overflows"},
                {"D_POOLS", 24, "00", "letters behind the end of the name"},
                {"D_POOLS", 24 + 31, "61", "a letter in the last byte"},
                {"D_POOLS", 24 + 32, "ffffffff", "node -1"},
                {"D_GRANTS", 8, "00000000", "fewer rows than sent"},
                {"D_GRANTS", 8, "02000000", "more rows than sent"},
                {"D_GRANTS", 8, "2b000000", "43 rows"},
                {"D_GRANTS", 12, "02000000", "more is yes or no"},
                {"D_GRANTS", 16, "0000000000000000", "grant 0"},
                {"D_GRANTS", 16 + 20, "ffff", "node -1"},
                {"D_GRANTS", 16 + 22, "0b", "a page of 2 KiB"},
                {"D_GRANTS", 16 + 22, "80", "a shift beyond 64 bits"},
                {"D_GRANTS", 16 + 23, "00", "state 0"},
                {"D_GRANTS", 16 + 23, "04", "state out of the enum"},
                {"D_GRANTS", 16 + 24, "0000000000000000", "an extent of 0 bytes"},
                {"D_GRANTS", 16 + 24, "01", "no multiple of the page"},
                {"D_GRANTS", 16 + 56, "00", "letters behind the end of the name"},
        };

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                const struct vector *vector = find_vector(wrong[i].name);
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES], poke[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message;
                size_t n = from_hex(vector->hex, bytes), n_poke = from_hex(wrong[i].hex, poke);

                assert_true(wrong[i].offset + n_poke <= n);
                memcpy(bytes + wrong[i].offset, poke, n_poke);
                if (decode(bytes, n, vector->direction, &message) != -EBADMSG)
                        fail_msg("%s: %s was accepted", wrong[i].name, wrong[i].why);
        }
}

static void limits_are_accepted(void **state) {
        static const struct {
                const char *name;
                size_t offset;
                const char *hex;
        } right[] = {
                {"C_HELLO", 12, "0304"},       /* version_min equals version_max */
                {"C_ACQUIRE", 12, "ffffffff"}, /* wait without limit */
                {"C_ACQUIRE", 12, "00000000"}, /* wait, but not at all */
                {"C_ACQUIRE", 12, "ffffff7f"},
                {"C_ACQUIRE", 16, "ffffffffffffffff"},
                {"C_ACQUIRE", 16 + 16, "00000000 02"}, /* prefer node 0 */
                {"C_ACQUIRE", 16 + 32, "00000000"},    /* best fit */
                {"D_GRANT", 16, "02010203"},           /* the last two */
                {"D_GRANT", 32 + 9, "0c"},
                {"D_GRANT", 32 + 10, "0000"},
                {"D_REFUSED", 8, "ff0f0000"},
                {"D_REFUSED", 16, "f09f9982"},
                {"D_POOLS", 12, "00020304"},
                {"D_GRANTS", 16 + 23, "03"},
                {"D_GRANTS", 16 + 56, "00000000"},
        };

        for (size_t i = 0; i < ELEMENTSOF(right); i++) {
                const struct vector *vector = find_vector(right[i].name);
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES], poke[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message;
                size_t n = from_hex(vector->hex, bytes), n_poke = from_hex(right[i].hex, poke);

                memcpy(bytes + right[i].offset, poke, n_poke);
                if (decode(bytes, n, vector->direction, &message) != 0)
                        fail_msg("%s with %s at %zu was refused", right[i].name, right[i].hex, right[i].offset);
        }
}

/* Each message filled to its limit goes through, and one more element does not. */
static void the_largest_messages_fit(void **state) {
        struct wire_message message = {.op = WIRE_C_ACQUIRE, .c_acquire = {.n_items = WIRE_MAX_ITEMS}}, decoded;
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];

        for (size_t i = 0; i < WIRE_MAX_ITEMS; i++)
                message.c_acquire.items[i] = (struct wire_item){.bytes = i + 1, .node = -1};
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), 16 + 16 * 64);
        assert_int_equal(decode(buffer, 16 + 16 * 64, WIRE_TO_DAEMON, &decoded), 0);
        assert_int_equal(decoded.c_acquire.items[15].bytes, 16);
        message.c_acquire.n_items++;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);

        message =
                (struct wire_message){.op = WIRE_D_GRANT, .d_grant = {.grant_id = 1, .n_extents_total = 253, .n_extents = 253}};
        for (size_t i = 0; i < WIRE_MAX_FDS; i++)
                message.d_grant.extents[i] = (struct wire_extent){.bytes = (i + 1) << 21, .page_shift = 21};
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), 32 + 253 * 16);
        assert_int_equal(decode(buffer, 32 + 253 * 16, WIRE_TO_CLIENT, &decoded), 0);
        assert_int_equal(decoded.d_grant.extents[252].bytes, UINT64_C(253) << 21);
        message.d_grant.n_extents_total = ++message.d_grant.n_extents;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);

        message = (struct wire_message){.op = WIRE_D_POOLS, .d_pools = {.n_rows_total = 100, .n_rows = WIRE_MAX_POOL_ROWS}};
        for (size_t i = 0; i < WIRE_MAX_POOL_ROWS; i++)
                message.d_pools.rows[i].ready_bytes = i;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), 24 + 18 * 224);
        assert_int_equal(decode(buffer, 24 + 18 * 224, WIRE_TO_CLIENT, &decoded), 0);
        assert_int_equal(decoded.d_pools.rows[17].ready_bytes, 17);
        message.d_pools.n_rows++;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);

        message = (struct wire_message){.op = WIRE_D_GRANTS, .d_grants = {.n_rows = WIRE_MAX_GRANT_ROWS}};
        for (size_t i = 0; i < WIRE_MAX_GRANT_ROWS; i++)
                message.d_grants.rows[i] =
                        (struct wire_grant_row){.grant_id = i + 1, .bytes = 4096, .page_shift = 12, .state = WIRE_EXTENT_HELD};
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), 16 + 42 * 96);
        assert_int_equal(decode(buffer, 16 + 42 * 96, WIRE_TO_CLIENT, &decoded), 0);
        assert_int_equal(decoded.d_grants.rows[41].grant_id, 42);
        message.d_grants.n_rows++;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);
}

/* Packets that are right in all but their count. */
static void one_too_many_and_one_too_few_are_refused(void **state) {
        uint8_t bytes[WIRE_MAX_MESSAGE_BYTES], item[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;

        from_hex("0200000001000000 00000000 00000000", bytes); /* no item at all */
        assert_int_equal(decode(bytes, 16, WIRE_TO_DAEMON, &message), -EBADMSG);

        bytes[9] = 17;
        from_hex("0100000000000000 0000000000000000 ffffffff 00000000 0000000000000000"
                 "0000000000000000 0000000000000000 0000000000000000 0000000000000000",
                 item);
        for (size_t i = 0; i < 17; i++)
                memcpy(bytes + 16 + 64 * i, item, 64);
        assert_int_equal(decode(bytes, 16 + 17 * 64, WIRE_TO_DAEMON, &message), -EBADMSG);
        bytes[9] = 16; /* and it is the count indeed */
        assert_int_equal(decode(bytes, 16 + 16 * 64, WIRE_TO_DAEMON, &message), 0);

        from_hex("4300000001000000 01000000 c9000000", bytes);
        memset(bytes + 16, 'a', 201);
        assert_int_equal(decode(bytes, 16 + 201, WIRE_TO_CLIENT, &message), -EBADMSG);
        bytes[12] = 200;
        assert_int_equal(decode(bytes, 16 + 200, WIRE_TO_CLIENT, &message), 0);

        memset(bytes + 16, 'a', sizeof(bytes) - 16); /* as much text as a packet can hold */
        bytes[12] = (sizeof(bytes) - 16) & 0xff;
        bytes[13] = (sizeof(bytes) - 16) >> 8;
        assert_int_equal(decode(bytes, sizeof(bytes), WIRE_TO_CLIENT, &message), -EBADMSG);
}

/* A page of rows may be empty: no pools, no grants, or a client that asks beyond the last row. */
static void empty_tables_are_accepted(void **state) {
        struct wire_message pools = {.op = WIRE_D_POOLS, .d_pools = {.n_rows_total = 3, .first_row = 7}}, decoded;
        struct wire_message grants = {.op = WIRE_D_GRANTS}, refused = {.op = WIRE_D_REFUSED, .d_refused = {.error = ENOENT}};
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];

        assert_int_equal(wire_encode(&pools, buffer, sizeof(buffer)), 24);
        assert_int_equal(decode(buffer, 24, WIRE_TO_CLIENT, &decoded), 0);
        assert_int_equal(wire_encode(&grants, buffer, sizeof(buffer)), 16);
        assert_int_equal(decode(buffer, 16, WIRE_TO_CLIENT, &decoded), 0);
        assert_int_equal(wire_encode(&refused, buffer, sizeof(buffer)), 16);
        assert_int_equal(decode(buffer, 16, WIRE_TO_CLIENT, &decoded), 0);
        assert_string_equal(decoded.d_refused.text, "");
}

static void nothing_is_sent_that_the_peer_would_refuse(void **state) {
        struct wire_message message = {.op = 99};
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];

        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);

        message = find_vector("D_REFUSED")->message;
        message.d_refused.n_text_bytes = WIRE_MAX_TEXT_BYTES + 1;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);
        message.d_refused.n_text_bytes = 3;
        message.d_refused.text[1] = '\n';
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);

        message = find_vector("C_ACQUIRE")->message;
        memset(message.c_acquire.items[0].pool, 'a', WIRE_POOL_NAME_BYTES);
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);
        message = find_vector("C_ACQUIRE")->message;
        message.c_acquire.items[1].node = 5;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), -EINVAL);
}

/* Leftovers in the sender's memory stay there. */
static void names_and_reserved_fields_leak_nothing(void **state) {
        struct wire_message message = find_vector("C_ACQUIRE")->message;
        uint8_t expected[WIRE_MAX_MESSAGE_BYTES], buffer[WIRE_MAX_MESSAGE_BYTES];
        size_t n = from_hex(find_vector("C_ACQUIRE")->hex, expected);

        memset(buffer, 0xff, sizeof(buffer));
        memcpy(message.c_acquire.items[0].pool + 5, "secret", 6);
        message.c_acquire.reserved = 0xffff;
        message.c_acquire.items[0].reserved2 = UINT64_MAX;
        assert_int_equal(wire_encode(&message, buffer, sizeof(buffer)), n);
        assert_memory_equal(buffer, expected, n);
}

static void a_buffer_that_is_too_small_is_told(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t expected[WIRE_MAX_MESSAGE_BYTES];
                size_t n = from_hex(vectors[i].hex, expected);

                for (size_t small = 0; small < n; small++) {
                        uint8_t *buffer = malloc(small ? small : 1);
                        assert_non_null(buffer);
                        assert_int_equal(wire_encode(&vectors[i].message, buffer, small), -EMSGSIZE);
                        free(buffer);
                }
        }
}

static void the_output_is_touched_on_success_only(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message, before;
                size_t n = from_hex(vectors[i].hex, bytes);

                memset(&message, 0xaa, sizeof(message));
                before = message;
                assert_int_equal(decode(bytes, n - 1, vectors[i].direction, &message), -EBADMSG);
                assert_memory_equal(&message, &before, sizeof(message));
        }
}

/* decode() checks that what was accepted encodes to the very same bytes; here is its food. */
static void each_value_of_each_byte_is_refused_or_canonical(void **state) {
        for (size_t i = 0; i < ELEMENTSOF(vectors); i++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message;
                size_t n = from_hex(vectors[i].hex, bytes);

                for (size_t offset = WIRE_HEADER_BYTES; offset < n; offset++) {
                        uint8_t original = bytes[offset];
                        for (unsigned value = 0; value < 256; value++) {
                                bytes[offset] = (uint8_t) value;
                                int r = decode(bytes, n, vectors[i].direction, &message);
                                assert_true(r == 0 || r == -EBADMSG);
                        }
                        bytes[offset] = original;
                }
        }
}

static void random_bytes_do_no_harm(void **state) {
        uint64_t seed = 88172645463325252ULL; /* xorshift64: the same bytes in each run */

        for (size_t round = 0; round < 30000; round++) {
                uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
                struct wire_message message;
                const struct vector *vector = &vectors[round % ELEMENTSOF(vectors)];
                size_t n = from_hex(vector->hex, bytes);

                for (size_t i = 0; i < 1 + round % 7; i++) {
                        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
                        bytes[(seed >> 16) % n] = (uint8_t) (round % 2 ? seed : seed % 4);
                }
                int r = decode(bytes, round % 3 ? n : (seed >> 40) % (n + 1), seed >> 63, &message);
                assert_true(r == 0 || r == -EBADMSG || r == -EOPNOTSUPP);
        }
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_field_is_where_the_header_says),
                cmocka_unit_test(each_message_has_the_length_that_the_header_says),
                cmocka_unit_test(a_fault_is_named),
                cmocka_unit_test(anything_can_be_made_a_text),
                cmocka_unit_test(the_decoded_text_is_terminated),
                cmocka_unit_test(every_other_length_is_refused),
                cmocka_unit_test(a_message_in_the_wrong_direction_is_unknown),
                cmocka_unit_test(unknown_ops_keep_their_request_id),
                cmocka_unit_test(reserved_bytes_are_zero),
                cmocka_unit_test(wrong_values_are_refused),
                cmocka_unit_test(limits_are_accepted),
                cmocka_unit_test(the_largest_messages_fit),
                cmocka_unit_test(one_too_many_and_one_too_few_are_refused),
                cmocka_unit_test(empty_tables_are_accepted),
                cmocka_unit_test(nothing_is_sent_that_the_peer_would_refuse),
                cmocka_unit_test(names_and_reserved_fields_leak_nothing),
                cmocka_unit_test(a_buffer_that_is_too_small_is_told),
                cmocka_unit_test(the_output_is_touched_on_success_only),
                cmocka_unit_test(each_value_of_each_byte_is_refused_or_canonical),
                cmocka_unit_test(random_bytes_do_no_harm),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
