/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "testing.h"

#include <errno.h>

#include "config.h"
#include "quota.h"

#define UID 1000
#define RICH_UID 1001

static struct config *test_config(void) {
        static struct config config;

        config = (struct config){
                .max_connections = 5,
                .max_waiting = UINT32_MAX,
                .max_fds_in_flight = 2000,
                .quota = {.max_bytes = 100, .max_grants = 3, .max_connections = 4, .max_waiting = 2, .max_request_rate = 7},
                .n_user_quotas = 1,
                .n_group_quotas = 2,
                .group_quotas = {{.gid = 50, .quota = {.max_bytes = 70}}, {.gid = 60, .quota = {.max_bytes = 80}}},
                .user_quotas = {{.uid = RICH_UID,
                                 .quota = {.max_bytes = UINT64_MAX,
                                           .max_grants = UINT32_MAX,
                                           .max_connections = UINT32_MAX,
                                           .max_waiting = UINT32_MAX}}},
        };
        return &config;
}

static struct quota *test_quota(void) {
        struct quota *quota;

        assert_int_equal(quota_new(test_config(), &quota), 0);
        return quota;
}

static void each_kind_has_the_limit_of_the_default_section(void **state) {
        static const uint64_t limits[_QUOTA_KIND_MAX] = {
                [QUOTA_BYTES] = 100, [QUOTA_GRANTS] = 3, [QUOTA_CONNECTIONS] = 4, [QUOTA_WAITING] = 2, [QUOTA_REQUESTS] = 7, [QUOTA_FDS_IN_FLIGHT] = 500};
        struct quota *quota = test_quota();

        for (enum quota_kind kind = 0; kind < _QUOTA_KIND_MAX; kind++) {
                if (kind == QUOTA_RETURNING || kind >= QUOTA_PAGES)
                        continue; /* what has its limit already, and what has none */
                assert_int_equal(quota_charge(quota, UID, kind, limits[kind] + 1), -EDQUOT);
                assert_int_equal(quota_charge(quota, UID, kind, limits[kind]), 0);
                assert_int_equal(quota_charge(quota, UID, kind, 1), -EDQUOT);
                quota_uncharge(quota, UID, kind, 1);
                assert_int_equal(quota_charge(quota, UID, kind, 1), 0);
                quota_uncharge(quota, UID, kind, limits[kind]);
        }
        quota_free(quota); /* asserts that every record is gone */
}

static void the_first_group_that_has_a_section_counts_until_the_last_charge_is_gone(void **state) {
        static const gid_t gids[] = {60, 7, 50};
        struct quota *quota = test_quota();

        assert_int_equal(quota_join(quota, UID, gids, 3), 0);
        assert_int_equal(quota_limit(quota, UID, QUOTA_BYTES), 70);
        assert_int_equal(quota_join(quota, UID, gids, 2), 0);
        assert_int_equal(quota_limit(quota, UID, QUOTA_BYTES), 80);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 80), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 1), -EDQUOT);
        quota_uncharge(quota, UID, QUOTA_BYTES, 80);
        assert_int_equal(quota_limit(quota, UID, QUOTA_BYTES), 100);
        /* A section of the user's own is more precise */
        assert_int_equal(quota_join(quota, RICH_UID, gids, 3), 0);
        assert_true(quota_limit(quota, RICH_UID, QUOTA_BYTES) == UINT64_MAX);
        /* Who joined and was refused is forgotten */
        assert_int_equal(quota_join(quota, UID, gids, 1), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 81), -EDQUOT);
        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_BYTES, UINT64_MAX - 1), 0);
        quota_uncharge(quota, RICH_UID, QUOTA_BYTES, UINT64_MAX - 1);
        quota_free(quota);
}

static void a_page_size_has_a_limit_of_its_own(void **state) {
        const uint64_t mib = UINT64_C(1) << 20, gib = UINT64_C(1) << 30;
        struct config config = {.quota = {.max_bytes = 4 * gib, .n_page_limits = 1, .page_limits = {{gib, 2 * gib}}}};
        enum quota_kind large = quota_kind_of_pages(QUOTA_BYTES, gib), small = quota_kind_of_pages(QUOTA_BYTES, 2 * mib);
        struct quota *quota;

        assert_int_equal(quota_new(&config, &quota), 0);
        assert_true(quota_limit(quota, UID, large) == 2 * gib && quota_limit(quota, UID, small) == UINT64_MAX);
        assert_true(quota_limit(quota, UID, quota_kind_of_pages(QUOTA_RETURNING, gib)) == UINT64_MAX);
        assert_true(quota_limit_all(quota, large) == UINT64_MAX);
        assert_int_equal(quota_charge_memory_anyway(quota, UID, QUOTA_BYTES, gib, 2 * gib), 0);
        assert_int_equal(quota_charge_memory_anyway(quota, UID, QUOTA_BYTES, 2 * mib, 6 * mib), 0);
        assert_int_equal(quota_charge_memory_anyway(quota, UID, QUOTA_RETURNING, gib, gib), 0);
        assert_true(quota_used(quota, UID, QUOTA_BYTES) == 2 * gib + 6 * mib);
        assert_true(quota_used(quota, UID, large) == 2 * gib && quota_used(quota, UID, small) == 6 * mib);
        assert_true(quota_used_all(quota, QUOTA_RETURNING) == gib && quota_used_all(quota, large) == 2 * gib);
        assert_int_equal(quota_charge(quota, UID, large, 1), -EDQUOT);
        assert_int_equal(quota_charge(quota, UID + 1, large, 2 * gib), 0);
        quota_uncharge(quota, UID + 1, large, 2 * gib);
        quota_uncharge_memory(quota, UID, QUOTA_RETURNING, gib, gib);
        quota_uncharge_memory(quota, UID, QUOTA_BYTES, gib, 2 * gib);
        quota_uncharge_memory(quota, UID, QUOTA_BYTES, 2 * mib, 6 * mib);
        quota_free(quota);
}

static void every_page_size_of_any_kernel_has_a_kind(void **state) {
        for (unsigned shift = 14; shift <= 34; shift++) {
                enum quota_kind kind = quota_kind_of_pages(QUOTA_BYTES, UINT64_C(1) << shift);

                assert_in_range(kind, QUOTA_PAGES, QUOTA_PAGES_RETURNING - 1);
                assert_int_equal(quota_kind_of_pages(QUOTA_RETURNING, UINT64_C(1) << shift) - kind, QUOTA_PAGES_RETURNING - QUOTA_PAGES);
        }
}

static void requests_of_a_second_are_forgotten_with_it(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, UID, QUOTA_CONNECTIONS, 1), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_REQUESTS, 7), 0);
        assert_int_equal(quota_charge(quota, UID + 10, QUOTA_REQUESTS, 7), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_REQUESTS, 1), -EDQUOT);
        quota_end_second(quota);
        assert_int_equal(quota_used_all(quota, QUOTA_REQUESTS), 0);
        assert_int_equal(quota_used(quota, UID, QUOTA_CONNECTIONS), 1);
        assert_int_equal(quota_charge(quota, UID, QUOTA_REQUESTS, 1), 0);
        quota_uncharge(quota, UID, QUOTA_CONNECTIONS, 1);
        quota_end_second(quota);
        quota_free(quota);
}

static void a_users_section_replaces_the_default(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_GRANTS, UINT32_MAX), 0);
        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_GRANTS, UINT32_MAX), 0);
        quota_uncharge(quota, RICH_UID, QUOTA_GRANTS, UINT64_C(2) * UINT32_MAX);
        quota_free(quota);
}

static void one_uids_charges_are_not_anothers(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 100), 0);
        assert_int_equal(quota_charge(quota, UID + 100, QUOTA_BYTES, 100), 0);
        quota_uncharge(quota, UID, QUOTA_BYTES, 100);
        assert_int_equal(quota_charge(quota, UID + 100, QUOTA_BYTES, 1), -EDQUOT);
        quota_uncharge(quota, UID + 100, QUOTA_BYTES, 100);
        quota_free(quota);
}

static void connections_have_a_limit_over_all_uids(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, UID, QUOTA_CONNECTIONS, 4), 0);
        assert_int_equal(quota_charge(quota, UID + 1, QUOTA_CONNECTIONS, 1), 0);
        assert_int_equal(quota_charge(quota, UID + 2, QUOTA_CONNECTIONS, 1), -EUSERS);
        quota_uncharge(quota, UID, QUOTA_CONNECTIONS, 1);
        assert_int_equal(quota_charge(quota, UID + 2, QUOTA_CONNECTIONS, 1), 0);
        quota_uncharge(quota, UID, QUOTA_CONNECTIONS, 3);
        quota_uncharge(quota, UID + 1, QUOTA_CONNECTIONS, 1);
        quota_uncharge(quota, UID + 2, QUOTA_CONNECTIONS, 1);
        quota_free(quota);
}

static void a_user_may_have_a_quarter_of_what_others_leave_in_flight(void **state) {
        struct config small = {.max_fds_in_flight = 253};
        uint64_t limits[10], sum = 0;
        struct quota *quota;

        assert_int_equal(quota_new(&small, &quota), 0);
        for (uid_t i = 0; i < ELEMENTSOF(limits); i++) {
                limits[i] = quota_limit(quota, UID + i, QUOTA_FDS_IN_FLIGHT);
                sum += limits[i];
                assert_in_range(limits[i], i == 0 ? 63 : 1, i == 0 ? 63 : limits[i - 1]);
                assert_int_equal(quota_charge(quota, UID + i, QUOTA_FDS_IN_FLIGHT, limits[i] + 1), -EDQUOT);
                assert_int_equal(quota_charge(quota, UID + i, QUOTA_FDS_IN_FLIGHT, limits[i]), 0);
                assert_int_equal(quota_limit(quota, UID + i, QUOTA_FDS_IN_FLIGHT), limits[i]); /* its own do not count */
        }
        assert_in_range(sum, 1, 253 - 1);
        for (uid_t i = 0; i < ELEMENTSOF(limits); i++)
                quota_uncharge(quota, UID + i, QUOTA_FDS_IN_FLIGHT, limits[i]);
        quota_free(quota);
}

static void connections_may_be_capped_below_the_configuration(void **state) {
        struct config config = {.max_connections = 10, .quota = {.max_connections = UINT32_MAX}};
        struct quota *quota;

        assert_int_equal(quota_new(&config, &quota), 0);
        assert_int_equal(quota_limit_all(quota, QUOTA_CONNECTIONS), 10);
        quota_cap_connections(quota, 20, 1);
        assert_int_equal(quota_limit_all(quota, QUOTA_CONNECTIONS), 10);
        quota_cap_connections(quota, 2, 1);
        assert_int_equal(quota_charge(quota, UID, QUOTA_CONNECTIONS, 2), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_CONNECTIONS, 1), -EUSERS);
        quota_uncharge(quota, UID, QUOTA_CONNECTIONS, 2);
        quota_free(quota);
}

static void an_administrator_gets_in_whatever_limit_is_reached(void **state) {
        struct config config = {.max_connections = 2, .quota = {.max_connections = 1}};
        struct quota *quota;

        assert_int_equal(quota_new(&config, &quota), 0);
        assert_int_equal(quota_charge_anyway(quota, UID, QUOTA_CONNECTIONS, 10), 0);
        for (unsigned i = 0; i < 3; i++)
                assert_int_equal(quota_charge_administrator(quota, UID + 1), 0);
        assert_int_equal(quota_charge_administrator(quota, UID + 1), -EDQUOT);
        quota_uncharge(quota, UID + 1, QUOTA_CONNECTIONS, 3);
        quota_cap_connections(quota, 10, 2);
        assert_int_equal(quota_charge_administrator(quota, UID + 1), 0);
        assert_int_equal(quota_charge_administrator(quota, UID + 2), 0);
        assert_int_equal(quota_charge_administrator(quota, UID + 3), -EUSERS);
        for (uid_t uid = UID + 1; uid <= UID + 2; uid++)
                quota_uncharge(quota, uid, QUOTA_CONNECTIONS, 1);
        quota_uncharge(quota, UID, QUOTA_CONNECTIONS, 10);
        quota_free(quota);
}

static void sums_never_wrap(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, UINT64_MAX), -EDQUOT);
        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_BYTES, UINT64_MAX), 0);
        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_BYTES, 1), -EDQUOT);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 1), -EUSERS);
        quota_uncharge(quota, RICH_UID, QUOTA_BYTES, UINT64_MAX);
        quota_free(quota);
}

static void failures_and_nothing_leave_no_record(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 0), 0);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 101), -EDQUOT);
        quota_uncharge(quota, UID, QUOTA_BYTES, 0);
        quota_free(quota);
}

static void a_lowered_limit_refuses_until_enough_is_given_back(void **state) {
        struct quota *quota = test_quota();
        struct config lower = *test_config();

        lower.quota.max_bytes = 10;
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 100), 0);
        quota_set_config(quota, &lower);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 1), -EDQUOT);
        quota_uncharge(quota, UID, QUOTA_BYTES, 91);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 2), -EDQUOT);
        assert_int_equal(quota_charge(quota, UID, QUOTA_BYTES, 1), 0);
        quota_uncharge(quota, UID, QUOTA_BYTES, 10);
        quota_free(quota);
}

static void use_and_limits_can_be_read(void **state) {
        struct quota *quota = test_quota();

        assert_int_equal(quota_limit(quota, UID, QUOTA_BYTES), 100);
        assert_int_equal(quota_limit(quota, RICH_UID, QUOTA_GRANTS), UINT64_MAX);
        assert_int_equal(quota_charge(quota, UID, QUOTA_GRANTS, 2), 0);
        assert_int_equal(quota_charge(quota, RICH_UID, QUOTA_GRANTS, 5), 0);
        assert_int_equal(quota_used(quota, UID, QUOTA_GRANTS), 2);
        assert_int_equal(quota_used(quota, UID, QUOTA_BYTES), 0);
        assert_int_equal(quota_used(quota, UID + 2, QUOTA_GRANTS), 0);
        assert_int_equal(quota_used_all(quota, QUOTA_GRANTS), 7);
        quota_uncharge(quota, UID, QUOTA_GRANTS, 2);
        quota_uncharge(quota, RICH_UID, QUOTA_GRANTS, 5);
        quota_free(quota);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(each_kind_has_the_limit_of_the_default_section),
                cmocka_unit_test(the_first_group_that_has_a_section_counts_until_the_last_charge_is_gone),
                cmocka_unit_test(a_page_size_has_a_limit_of_its_own),
                cmocka_unit_test(every_page_size_of_any_kernel_has_a_kind),
                cmocka_unit_test(requests_of_a_second_are_forgotten_with_it),
                cmocka_unit_test(a_users_section_replaces_the_default),
                cmocka_unit_test(one_uids_charges_are_not_anothers),
                cmocka_unit_test(connections_have_a_limit_over_all_uids),
                cmocka_unit_test(a_user_may_have_a_quarter_of_what_others_leave_in_flight),
                cmocka_unit_test(connections_may_be_capped_below_the_configuration),
                cmocka_unit_test(an_administrator_gets_in_whatever_limit_is_reached),
                cmocka_unit_test(sums_never_wrap),
                cmocka_unit_test(failures_and_nothing_leave_no_record),
                cmocka_unit_test(use_and_limits_can_be_read),
                cmocka_unit_test(a_lowered_limit_refuses_until_enough_is_given_back),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
