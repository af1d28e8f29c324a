/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Placeholders in the arguments of a command: ours are replaced, everybody else's braces stay. */
#include "testing.h"

#include <errno.h>
#include <string.h>

#include "ctl-placeholder.h"

static const int three_fds[] = {5, 6, 70}, one_fd[] = {3};
static const struct ctl_placeholder grants[] = {
        {.name = "ram0", .bytes = 8589934592, .fds = one_fd, .n_fds = 1},
        {.name = "ram", .bytes = 6291456, .fds = three_fds, .n_fds = 3},
};

static void becomes(const char *text, const char *expected) {
        char *expanded = NULL, error[CTL_SPEC_ERROR_BYTES] = "";
        int r = ctl_placeholder_expand(text, grants, ELEMENTSOF(grants), &expanded, error);

        if (r != 0 || strcmp(expanded, expected) != 0)
                fail_msg("\"%s\": r = %d, \"%s\" instead of \"%s\", error \"%s\"", text, r, r ? "" : expanded, expected, error);
        free(expanded);
}

static void fails(const char *text, const char *named) {
        char *expanded = (char *) text, error[CTL_SPEC_ERROR_BYTES] = "";
        int r = ctl_placeholder_expand(text, grants, ELEMENTSOF(grants), &expanded, error);

        if (r != -EINVAL || expanded != text || !strstr(error, named))
                fail_msg("\"%s\": r = %d, error \"%s\" without \"%s\", or the output was touched", text, r, error, named);
}

static void placeholders_are_replaced(void **state) {
        becomes("{ram0.fd}", "3");
        becomes("{ram0.path}", "/proc/self/fd/3");
        becomes("{ram0.bytes}", "8589934592");
        becomes("size={ram0.bytes},mem-path={ram0.path},share=on", "size=8589934592,mem-path=/proc/self/fd/3,share=on");
        becomes("{{ram0.fd}}", "{3}");
        becomes("{ram0.fd}{ram0.fd}", "33");
}

static void several_extents_become_a_list(void **state) {
        becomes("{ram.fd}", "5,6,70");
        becomes("{ram.path}", "/proc/self/fd/5,/proc/self/fd/6,/proc/self/fd/70");
        becomes("{ram.bytes}", "6291456");
}

static void other_braces_stay(void **state) {
        static const char *const others[] = {
                "",
                "{",
                "}",
                "{}",
                "{ram0}",
                "{ram0.fd",
                "{.}",
                "{a.b}",
                "${HOME}",
                "{ram0 .fd}",
                "{\"driver\": {\"a\": 1.5}}",
                "{print $1}",
        };

        for (size_t i = 0; i < ELEMENTSOF(others); i++)
                becomes(others[i], others[i]);
}

static void a_misspelt_placeholder_is_an_error(void **state) {
        fails("{ram1.fd}", "'ram1'");
        fails("x{ram1.path}y", "'ram1'");
        fails("{ram0.fd}{ra.bytes}", "'ra'");
        fails("{ram0.size}", "'.size'");
        fails("{ram0.}", "'.'");
        fails("{.fd}", "''");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(placeholders_are_replaced),
                cmocka_unit_test(several_extents_become_a_list),
                cmocka_unit_test(other_braces_stay),
                cmocka_unit_test(a_misspelt_placeholder_is_an_error),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
