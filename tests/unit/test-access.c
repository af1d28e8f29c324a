/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "testing.h"

#include <string.h>
#include <unistd.h>

#include "access.h"
#include "cleanup.h"

#define UID 3001

static const struct identity client = {.uid = UID, .gid = 3050};

static bool may_connect(const struct config *config, const gid_t *gids, size_t n) {
        const struct identity_groups groups = {.gids = (gid_t *) gids, .n = n};

        return access_may_connect(config, &client, &groups);
}

static void without_lists_everybody_is_served(void **state) {
        const struct config config = {.allow_users.all = true, .allow_groups.all = true};

        assert_true(may_connect(&config, NULL, 0));
}

static void one_list_alone_is_the_list_of_all(void **state) {
        const struct config users = {.allow_users = {.n = 1, .ids = {UID + 1}}, .allow_groups.all = true};
        const struct config groups = {.allow_users.all = true, .allow_groups = {.n = 1, .ids = {3100}}};

        assert_false(may_connect(&users, (gid_t[]){3100}, 1));
        assert_false(may_connect(&groups, (gid_t[]){3101, 3102}, 2));
        assert_true(may_connect(&groups, (gid_t[]){3101, 3100}, 2));
}

static void being_in_one_list_is_enough(void **state) {
        const struct config by_user = {.allow_users = {.n = 2, .ids = {1, UID}}, .allow_groups = {.n = 1, .ids = {7}}};
        const struct config by_group = {.allow_users = {.n = 1, .ids = {1}}, .allow_groups = {.n = 2, .ids = {7, 3050}}};
        const struct config by_office = {.allow_users = {.n = 1, .ids = {1}}, .admin_users = {.n = 1, .ids = {UID}}};

        assert_true(may_connect(&by_user, NULL, 0));
        assert_true(may_connect(&by_group, NULL, 0));
        assert_true(may_connect(&by_office, NULL, 0));
}

static void administrators_are_root_ourselves_and_the_named(void **state) {
        const struct config config = {.admin_users = {.n = 1, .ids = {UID}}};

        assert_true(access_is_administrator(&config, 0));
        assert_true(access_is_administrator(&config, geteuid()));
        assert_true(access_is_administrator(&config, UID));
        assert_false(access_is_administrator(&config, UID + 1));
}

static bool sees_all(const char *map) {
        char path[] = "/tmp/test-access-XXXXXX";
        _cleanup_close_ int fd = mkstemp(path);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, map, strlen(map)), strlen(map));
        bool all = access_sees_all_users(path);
        assert_int_equal(unlink(path), 0);
        return all;
}

static void a_map_with_holes_is_seen(void **state) {
        assert_true(sees_all("         0          0 4294967295\n"));
        assert_true(sees_all("0 0 65536\n65536 65536 4294901759\n"));
        assert_false(sees_all("         0       1000          1\n"));
        assert_false(sees_all("0 0 65536\n"));
        assert_false(sees_all(""));
        assert_false(access_sees_all_users("/nonexistent/uid_map"));
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(without_lists_everybody_is_served),
                cmocka_unit_test(one_list_alone_is_the_list_of_all),
                cmocka_unit_test(being_in_one_list_is_enough),
                cmocka_unit_test(administrators_are_root_ourselves_and_the_named),
                cmocka_unit_test(a_map_with_holes_is_seen),
        };
        return cmocka_run_group_tests(tests, NULL, NULL);
}
