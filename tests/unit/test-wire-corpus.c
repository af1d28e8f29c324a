/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* With what the fuzzer of the codec begins. */
#include "testing.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>

#include "wire.h"

#define CORPUS SOURCE_ROOT "/tests/fuzz/corpus/wire"

/* Both directions; an op below WIRE_D_HELLO is the client's. */
static void find_decoded(const char *name, bool is_found[UINT8_MAX]) {
        uint8_t bytes[WIRE_MAX_MESSAGE_BYTES];
        struct wire_message message;
        char path[PATH_MAX];

        assert_true((size_t) snprintf(path, sizeof(path), "%s/%s", CORPUS, name) < sizeof(path));
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        size_t n = fread(bytes, 1, sizeof(bytes), file);
        bool is_all = fgetc(file) == EOF; /* inputs that are too long are there as well */
        assert_int_equal(fclose(file), 0);
        for (enum wire_direction direction = WIRE_TO_DAEMON; is_all && direction <= WIRE_TO_CLIENT; direction++)
                if (wire_decode(bytes, n, direction, &message) == 0)
                        is_found[message.op] = true;
}

static void the_fuzzer_begins_with_a_good_message_of_each_operation(void **state) {
        bool is_found[UINT8_MAX] = {};
        struct wire_message message;
        struct dirent *entry;
        unsigned n_known = 0;

        DIR *folder = opendir(CORPUS);
        assert_non_null(folder);
        while ((entry = readdir(folder)))
                if (entry->d_name[0] != '.')
                        find_decoded(entry->d_name, is_found);
        assert_int_equal(closedir(folder), 0);
        for (uint8_t op = 0; op < UINT8_MAX; op++) {
                const uint8_t header[WIRE_HEADER_BYTES] = {op};
                bool is_known = wire_decode(header, sizeof(header), WIRE_TO_DAEMON, &message) != -EOPNOTSUPP ||
                                wire_decode(header, sizeof(header), WIRE_TO_CLIENT, &message) != -EOPNOTSUPP;

                n_known += is_known;
                if (is_known && !is_found[op])
                        fail_msg("nothing in " CORPUS " decodes as operation %u", op);
        }
        assert_true(n_known >= 20);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_fuzzer_begins_with_a_good_message_of_each_operation),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
