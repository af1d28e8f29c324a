/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What people write: every spelling, every limit, and the canonical form back. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "parse.h"

#define UNTOUCHED UINT64_C(0x5555555555555555)

static void size_is(const char *text, uint64_t expected) {
        uint64_t bytes = UNTOUCHED;
        int r = parse_size(text, &bytes);

        if (r != 0 || bytes != expected)
                fail_msg("\"%s\": r = %d, %llu bytes", text, r, (unsigned long long) bytes);
}

static void size_fails(const char *text, int expected) {
        uint64_t bytes = UNTOUCHED;
        int r = parse_size(text, &bytes);

        if (r != expected || bytes != UNTOUCHED)
                fail_msg("\"%s\": r = %d instead of %d, or the output was touched", text, r, expected);
}

static void every_spelling_of_a_size_is_understood(void **state) {
        static const char *const two_mib[] = {
                "2097152", "2097152B", "2097152 B", "2048k", "2048K", "2048kB", "2048KB", "2048kb",   "2048Ki",
                "2048KiB", "2048kiB",  "2048 kB",   "2M",    "2m",    "2MB",    "2mb",    "2Mi",      "2mi",
                "2MiB",    "2mib",     "2 M",       "2 MB",  "2 MiB", "002M",   "2.0M",   "2.000MiB",
        };

        for (size_t i = 0; i < ELEMENTSOF(two_mib); i++)
                size_is(two_mib[i], UINT64_C(2) << 20);
        size_is("0", 0);
        size_is("0G", 0);
        size_is("1G", UINT64_C(1) << 30);
        size_is("1.5G", UINT64_C(3) << 29);
        size_is("5.5 GiB", UINT64_C(11) << 29);
        size_is("0.5k", 512);
        size_is("3T", UINT64_C(3) << 40);
        size_is("1P", UINT64_C(1) << 50);
        size_is("15E", UINT64_C(15) << 60);
}

static void a_fraction_is_exact_and_rounded_down(void **state) {
        size_is("0.1G", 107374182); /* 107374182.4 */
        size_is("1.999999999999999999999999999999k", 2047);
        size_is("15.999999999999999999E", UINT64_MAX - 1); /* 2^64 - 1.15... */
        size_is("0.0009765625k", 1);
        size_is("0.0009765624k", 0);
}

static void sizes_beyond_64_bits_do_not_fit(void **state) {
        size_is("18446744073709551615", UINT64_MAX);
        size_fails("18446744073709551616", -ERANGE);
        size_fails("16E", -ERANGE);
        size_fails("17179869184G", -ERANGE);
        size_fails("99999999999999999999999999999999999999999k", -ERANGE);
        size_fails("99999999999999999999999999999999999999999x", -EINVAL);
}

static void junk_is_no_size(void **state) {
        static const char *const junk[] = {
                "",     " ",    "M",   "B",    "-1",   "+1",  "-2M",   " 2M", "2M ", "2  M", "2\tM",  "2 ",    "2X",
                "2MM",  "2Mx",  "2iB", "2MBi", "2Bi",  "2BB", "2Mib ", "1.M", ".5M", "1.5",  "1.5B",  "1..5M", "1.5.5M",
                "1,5M", "0x10", "1e3", "2M\n", "2.M5", "two", "2 M B", "٣M",  "inf", "nan",  "1_000",
        };

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                size_fails(junk[i], -EINVAL);
}

static void sizes_are_printed_in_one_form(void **state) {
        static const struct {
                uint64_t bytes;
                const char *text;
        } cases[] = {
                {0, "0 B"},
                {1, "1 B"},
                {4097, "4097 B"},
                {4096, "4 KiB"},
                {UINT64_C(2) << 20, "2 MiB"},
                {UINT64_C(11) << 29, "5632 MiB"},
                {UINT64_C(1) << 30, "1 GiB"},
                {UINT64_C(1) << 40, "1 TiB"},
                {UINT64_C(3) << 50, "3 PiB"},
                {UINT64_C(15) << 60, "15 EiB"},
                {UINT64_MAX, "18446744073709551615 B"},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                char buffer[FORMAT_SIZE_BYTES];
                assert_ptr_equal(format_size(cases[i].bytes, buffer), buffer);
                assert_string_equal(buffer, cases[i].text);
                size_is(buffer, cases[i].bytes); /* and read back */
        }
}

static void unsigned_integers(void **state) {
        static const char *const junk[] = {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "1a", "-", "1\n"};
        uint64_t value = UNTOUCHED;

        assert_int_equal(parse_u64("18446744073709551616", &value), -ERANGE);
        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                assert_int_equal(parse_u64(junk[i], &value), -EINVAL);
        assert_true(value == UNTOUCHED);
        assert_int_equal(parse_u64("18446744073709551615", &value), 0);
        assert_true(value == UINT64_MAX);
        assert_int_equal(parse_u64("0010", &value), 0);
        assert_true(value == 10);
}

static void signed_integers(void **state) {
        static const char *const junk[] = {"", "-", "--1", "+1", " 1", "1 ", "1.0", "-a", "- 1"};
        static const char *const large[] = {"2147483648", "-2147483649", "99999999999999999999", "-18446744073709551616"};
        int32_t value = 0x55555555;

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                assert_int_equal(parse_i32(junk[i], &value), -EINVAL);
        for (size_t i = 0; i < ELEMENTSOF(large); i++)
                assert_int_equal(parse_i32(large[i], &value), -ERANGE);
        assert_int_equal(value, 0x55555555);
        assert_int_equal(parse_i32("2147483647", &value), 0);
        assert_int_equal(value, INT32_MAX);
        assert_int_equal(parse_i32("-2147483648", &value), 0);
        assert_int_equal(value, INT32_MIN);
        assert_int_equal(parse_i32("-1", &value), 0);
        assert_int_equal(value, -1);
        assert_int_equal(parse_i32("-0", &value), 0);
        assert_int_equal(value, 0);
}

static void booleans(void **state) {
        static const char *const yes[] = {"yes", "true", "on", "1", "Yes", "TRUE"};
        static const char *const no[] = {"no", "false", "off", "0", "No", "OFF"};
        static const char *const junk[] = {"", "y", "n", "2", "01", "yes ", " yes", "yess", "tru", "offf"};
        bool value;

        for (size_t i = 0; i < ELEMENTSOF(yes); i++) {
                value = false;
                assert_int_equal(parse_bool(yes[i], &value), 0);
                assert_true(value);
        }
        for (size_t i = 0; i < ELEMENTSOF(no); i++) {
                value = true;
                assert_int_equal(parse_bool(no[i], &value), 0);
                assert_false(value);
        }
        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                assert_int_equal(parse_bool(junk[i], &value), -EINVAL);
}

static void durations(void **state) {
        static const struct {
                const char *text, *canonical;
                uint64_t ms;
        } cases[] = {
                {"0", "0s", 0},
                {"500ms", "500ms", 500},
                {"10", "10s", 10000},
                {"10s", "10s", 10000},
                {"1500ms", "1500ms", 1500},
                {"5min", "5min", 300000},
                {"10min", "10min", 600000},
                {"120min", "2h", 7200000},
                {"2h", "2h", 7200000},
                {"1min 30s", "90s", 90000},
                {"1h30min", "90min", 5400000},
                {"1h 1min 1s 1ms", "3661001ms", 3661001},
                {"infinity", "infinity", UINT64_MAX},
                {"18446744073709551614ms", "18446744073709551614ms", UINT64_MAX - 1},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                char buffer[FORMAT_SIZE_BYTES];
                uint64_t ms = UNTOUCHED;
                assert_int_equal(parse_duration(cases[i].text, &ms), 0);
                assert_true(ms == cases[i].ms);
                assert_string_equal(format_duration(ms, buffer), cases[i].canonical);
                assert_int_equal(parse_duration(buffer, &ms), 0);
                assert_true(ms == cases[i].ms);
        }
}

static void junk_is_no_duration(void **state) {
        static const char *const junk[] = {
                "",       " ",        "s",         "-1s",   "+1s",      " 1s",   "1s ",       "1  s",
                "1 s",    "1m",       "1x",        "1.5s",  "30s 1min", "1s 1s", "1min  30s", "1min 30",
                "1min30", "infinite", "infinity ", "10sec", "1s,1ms",   "1min ", "1h  1s",
        };
        static const char *const large[] = {"18446744073709551615ms", "18446744073709551616ms", "18446744073709551615",
                                            "5124095576031h"};
        uint64_t ms = UNTOUCHED;

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                if (parse_duration(junk[i], &ms) != -EINVAL)
                        fail_msg("\"%s\" was accepted", junk[i]);
        for (size_t i = 0; i < ELEMENTSOF(large); i++)
                assert_int_equal(parse_duration(large[i], &ms), -ERANGE);
        assert_true(ms == UNTOUCHED);
}

static void per_cents(void **state) {
        static const struct {
                const char *text;
                uint32_t millipercent;
        } cases[] = {{"0%", 0},          {"50%", 50000},   {"12.5%", 12500},    {"0.001%", 1},
                     {"33.333%", 33333}, {"100%", 100000}, {"100.000%", 100000}};
        static const char *const junk[] = {"",    "%",       "50",     "50 %", "-1%", "50%%", "1.%",
                                           ".5%", "1.2345%", "1.5.5%", " 5%",  "5% ", "1,5%"};
        static const char *const large[] = {"100.001%", "101%", "18446744073709551616%", "18446744073709551%"};
        uint32_t millipercent = 0x55555555;

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                assert_int_equal(parse_percent(junk[i], &millipercent), -EINVAL);
        for (size_t i = 0; i < ELEMENTSOF(large); i++)
                assert_int_equal(parse_percent(large[i], &millipercent), -ERANGE);
        assert_int_equal(millipercent, 0x55555555);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                assert_int_equal(parse_percent(cases[i].text, &millipercent), 0);
                assert_int_equal(millipercent, cases[i].millipercent);
        }
}

static void node_lists(void **state) {
        static const struct {
                const char *text;
                uint64_t first_word, last_word;
        } cases[] = {
                {"0", 0x1, 0},           {"0,2", 0x5, 0},
                {"0-3", 0xf, 0},         {"0-1,4", 0x13, 0},
                {"4,0-1", 0x13, 0},      {"0,0", 0x1, 0},
                {"3-3", 0x8, 0},         {"63", 1ULL << 63, 0},
                {"1023", 0, 1ULL << 63}, {"0-1023", UINT64_MAX, UINT64_MAX},
        };
        static const char *const junk[] = {"",      ",",  "0,", ",0",   "0,,1", "-",   "0-",  "-0", "3-0",
                                           "0-1-2", " 0", "0 ", "0, 1", "a",    "0x1", "0;1", "all"};
        static const char *const large[] = {"1024", "0-1024", "18446744073709551616", "0-18446744073709551615", "1024,0"};
        uint64_t bits[PARSE_MAX_NODES / 64] = {UNTOUCHED};

        for (size_t i = 0; i < ELEMENTSOF(junk); i++)
                assert_int_equal(parse_node_list(junk[i], bits), -EINVAL);
        for (size_t i = 0; i < ELEMENTSOF(large); i++)
                assert_int_equal(parse_node_list(large[i], bits), -ERANGE);
        assert_true(bits[0] == UNTOUCHED);
        for (size_t i = 0; i < ELEMENTSOF(cases); i++) {
                memset(bits, 0x55, sizeof(bits));
                assert_int_equal(parse_node_list(cases[i].text, bits), 0);
                assert_true(bits[0] == cases[i].first_word && bits[15] == cases[i].last_word);
        }
}

static void cut(const char *text, size_t n_bytes, const char *expected) {
        char buffer[32];

        memset(buffer, '#', sizeof(buffer));
        cut_text(text, " ...", buffer, n_bytes);
        assert_string_equal(buffer, expected);
        assert_int_equal(buffer[n_bytes], '#');
}

static void what_does_not_fit_ends_behind_a_word(void **state) {
        cut("one two three", 14, "one two three");
        cut("one two three", 13, "one two ...");
        cut("one two three", 12, "one two ...");
        cut("one two three", 11, "one ...");
        cut("onetwothree", 10, "onetw ...");
        cut("", 5, "");
        cut("on\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 8, "on ...");
        cut("on\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 9, "on\xc3\xa9 ...");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(every_spelling_of_a_size_is_understood),
                cmocka_unit_test(a_fraction_is_exact_and_rounded_down),
                cmocka_unit_test(sizes_beyond_64_bits_do_not_fit),
                cmocka_unit_test(junk_is_no_size),
                cmocka_unit_test(sizes_are_printed_in_one_form),
                cmocka_unit_test(unsigned_integers),
                cmocka_unit_test(signed_integers),
                cmocka_unit_test(booleans),
                cmocka_unit_test(durations),
                cmocka_unit_test(junk_is_no_duration),
                cmocka_unit_test(per_cents),
                cmocka_unit_test(node_lists),
                cmocka_unit_test(what_does_not_fit_ends_behind_a_word),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
