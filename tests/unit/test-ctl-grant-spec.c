/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user writes for one grant. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "ctl-grant-spec.h"
#include "hugezero.h"

static void a_full_spec_is_understood(void **state) {
        struct ctl_grant_spec spec;
        char error[CTL_SPEC_ERROR_BYTES];

        assert_int_equal(ctl_grant_spec_parse("name=ram0,bytes=8G,node=0,page-size=2M,pool=big,prefer,several", &spec, error),
                         0);
        assert_string_equal(spec.name, "ram0");
        assert_string_equal(spec.pool, "big");
        assert_int_equal(spec.bytes, UINT64_C(8) << 30);
        assert_int_equal(spec.page_size_bytes, 2 << 20);
        assert_int_equal(spec.node, 0);
        assert_int_equal(spec.flags, HUGEZERO_NODE_PREFERRED | HUGEZERO_SEVERAL_FDS);
}

static void all_but_the_size_has_a_default(void **state) {
        struct ctl_grant_spec spec;
        char error[CTL_SPEC_ERROR_BYTES];

        assert_int_equal(ctl_grant_spec_parse("bytes=4097", &spec, error), 0);
        assert_string_equal(spec.name, "");
        assert_string_equal(spec.pool, "");
        assert_int_equal(spec.bytes, 4097);
        assert_int_equal(spec.page_size_bytes, 0);
        assert_int_equal(spec.node, HUGEZERO_NODE_LOCAL);
        assert_int_equal(spec.flags, 0);
        assert_int_equal(ctl_grant_spec_parse("node=local,prefer,bytes=2M", &spec, error), 0);
        assert_int_equal(spec.node, HUGEZERO_NODE_LOCAL);
        assert_int_equal(ctl_grant_spec_parse("node=any,bytes=2M", &spec, error), 0);
        assert_int_equal(spec.node, HUGEZERO_NODE_ANY);
}

static void a_wrong_part_is_named_and_nothing_is_set(void **state) {
        static const struct {
                const char *text, *named;
        } wrong[] = {
                {"", "''"},
                {"name=a", "bytes=SIZE is missing"},
                {"bytes=8G,", "''"},
                {",bytes=8G", "''"},
                {"bytes", "'bytes': it needs a value"},
                {"bytes=", "bytes="},
                {"bytes=0", "bytes=0"},
                {"bytes=-1", "bytes=-1"},
                {"bytes=8X", "bytes=8X"},
                {"bytes=17179869184G", "bytes=17179869184G: it is too large"},
                {"bytes=16E", "bytes=16E: it is too large"},
                {"bytes=1G,bytes=2G", "given twice"},
                {"bytes=1G,several=yes", "'several': it takes no value"},
                {"bytes=1G,several,several", "given twice"},
                {"bytes=1G,size=2G", "'size': unknown"},
                {"bytes=1G,Name=a", "'Name': unknown"},
                {"bytes=1G,name=", "name="},
                {"bytes=1G,name=0a", "name=0a"},
                {"bytes=1G,name=a.b", "name=a.b"},
                {"bytes=1G,name=a234567890123456789012345678901x", "name=a2345"},
                {"bytes=1G,pool=", "pool="},
                {"bytes=1G,pool=a/b", "pool=a/b"},
                {"bytes=1G,pool=a2345678901234567890123456789012", "pool=a2345"},
                {"bytes=1G,page-size=3M", "page-size=3M"},
                {"bytes=1G,page-size=0", "page-size=0"},
                {"bytes=1G,node=-1", "node=-1"},
                {"bytes=1G,node=1x", "node=1x"},
                {"bytes=1G,node=1024", "node=1024: the number of a NUMA node, at most 1023"},
                {"bytes=1G,page-size=2k", "page-size=2k"},
                {"bytes=1G,node=any,prefer", "'prefer' needs node="},
        };

        for (size_t i = 0; i < ELEMENTSOF(wrong); i++) {
                struct ctl_grant_spec spec, untouched;
                char error[CTL_SPEC_ERROR_BYTES] = "";

                memset(&spec, 0x55, sizeof(spec));
                memset(&untouched, 0x55, sizeof(untouched));
                int r = ctl_grant_spec_parse(wrong[i].text, &spec, error);
                if (r != -EINVAL || !strstr(error, wrong[i].named) || memcmp(&spec, &untouched, sizeof(spec)) != 0)
                        fail_msg("\"%s\": r = %d, error \"%s\", \"%s\" is missing in it, or the output was touched",
                                 wrong[i].text, r, error, wrong[i].named);
        }
}

static void a_part_longer_than_any_sense_is_refused(void **state) {
        char text[4096], error[CTL_SPEC_ERROR_BYTES];
        struct ctl_grant_spec spec;

        memset(text, 'x', sizeof(text) - 1);
        text[sizeof(text) - 1] = '\0';
        assert_int_equal(ctl_grant_spec_parse(text, &spec, error), -EINVAL);
        memcpy(text, "bytes=1G,pool=", 14);
        assert_int_equal(ctl_grant_spec_parse(text, &spec, error), -EINVAL);
        assert_non_null(strstr(error, "longer than"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(a_full_spec_is_understood),
                cmocka_unit_test(all_but_the_size_has_a_default),
                cmocka_unit_test(a_wrong_part_is_named_and_nothing_is_set),
                cmocka_unit_test(a_part_longer_than_any_sense_is_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
