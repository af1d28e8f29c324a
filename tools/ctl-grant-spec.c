/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What a user writes for one grant. Arbitrary text comes in here: it is a fuzz target. */
#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "ctl-grant-spec.h"
#include "hugezero.h"
#include "parse.h"

#define MIN_PAGE_BYTES 4096 /* kernel: no page is smaller */
#define PART_BYTES 128 /* chosen: longer than any value that makes sense */

static const char *const keys[] = {"name", "bytes", "page-size", "node", "pool", "prefer", "several"};
enum { KEY_NAME, KEY_BYTES, KEY_PAGE_SIZE, KEY_NODE, KEY_POOL, KEY_PREFER, KEY_SEVERAL, N_KEYS };

__attribute__((format(printf, 2, 3))) static int fail(char error[CTL_SPEC_ERROR_BYTES], const char *format, ...) {
        va_list arguments;
        va_start(arguments, format);
        (void) vsnprintf(error, CTL_SPEC_ERROR_BYTES, format, arguments);
        va_end(arguments);
        return -EINVAL;
}

static bool is_letter(char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Letters, digits and @others; what a placeholder or a pool may be called. */
static bool is_word(const char *text, const char *others) {
        for (; *text; text++)
                if (!is_letter(*text) && !(*text >= '0' && *text <= '9') && !strchr(others, *text))
                        return false;
        return true;
}

static int take_name(const char *value, struct ctl_grant_spec *spec, char *error) {
        if (!is_letter(*value) || !is_word(value, "_-") || strlen(value) >= sizeof(spec->name))
                return fail(error, "name=%s: a letter, then letters, digits, '_' or '-', at most %zu in all, are expected",
                            value, sizeof(spec->name) - 1);
        strcpy(spec->name, value);
        return 0;
}

static int take_pool(const char *value, struct ctl_grant_spec *spec, char *error) {
        if (!*value || !is_word(value, "_-.") || strlen(value) >= sizeof(spec->pool))
                return fail(error, "pool=%s: the name of a pool is expected; hugezeroctl status lists them", value);
        strcpy(spec->pool, value);
        return 0;
}

static int take_node(const char *value, struct ctl_grant_spec *spec, char *error) {
        int32_t node;
        if (strcmp(value, "any") == 0)
                node = HUGEZERO_NODE_ANY;
        else if (strcmp(value, "local") == 0)
                node = HUGEZERO_NODE_LOCAL;
        else if (parse_i32(value, &node) < 0 || node < 0 || node >= PARSE_MAX_NODES)
                return fail(error, "node=%s: the number of a NUMA node, at most %d, 'local' or 'any' is expected", value,
                            PARSE_MAX_NODES - 1);
        spec->node = node;
        return 0;
}

static int take_value(int key, const char *value, struct ctl_grant_spec *spec, char *error) {
        int r;

        switch (key) {
        case KEY_NAME:
                return take_name(value, spec, error);
        case KEY_BYTES:
                r = parse_size(value, &spec->bytes);
                if (r == -ERANGE)
                        return fail(error, "bytes=%s: " PARSE_SIZE_TOO_LARGE, value);
                if (r < 0 || spec->bytes == 0)
                        return fail(error, "bytes=%s: a size as 2M, 8G or 4194304, larger than 0, is expected", value);
                return 0;
        case KEY_PAGE_SIZE:
                if (parse_size(value, &spec->page_size_bytes) < 0 || spec->page_size_bytes < MIN_PAGE_BYTES ||
                    (spec->page_size_bytes & (spec->page_size_bytes - 1)) != 0)
                        return fail(error, "page-size=%s: a page size of the kernel, as 2M or 1G, is expected", value);
                return 0;
        case KEY_NODE:
                return take_node(value, spec, error);
        default:
                return take_pool(value, spec, error);
        }
}

/* One part between commas; @part is a copy and is cut at '='. */
static int take_part(char *part, uint32_t *seen, struct ctl_grant_spec *spec, char *error) {
        char *value = strchr(part, '=');
        if (value)
                *value++ = '\0';
        int key = 0;
        while (key < N_KEYS && strcmp(part, keys[key]) != 0)
                key++;
        if (key == N_KEYS)
                return fail(error, "'%s': unknown; name=, bytes=, page-size=, node=, pool=, prefer and several are expected",
                            part);
        if (*seen & (UINT32_C(1) << key))
                return fail(error, "'%s': it is given twice", part);
        *seen |= UINT32_C(1) << key;

        bool is_flag = key == KEY_PREFER || key == KEY_SEVERAL;
        if (is_flag && value)
                return fail(error, "'%s': it takes no value", part);
        if (!is_flag && !value)
                return fail(error, "'%s': it needs a value: %s=...", part, part);
        if (is_flag) {
                spec->flags |= key == KEY_PREFER ? HUGEZERO_NODE_PREFERRED : HUGEZERO_SEVERAL_FDS;
                return 0;
        }
        return take_value(key, value, spec, error);
}

int ctl_grant_spec_parse(const char *text, struct ctl_grant_spec *ret_spec, char ret_error[CTL_SPEC_ERROR_BYTES]) {
        struct ctl_grant_spec spec = {.node = HUGEZERO_NODE_LOCAL};
        uint32_t seen = 0;
        for (const char *at = text;;) {
                size_t n_bytes = strcspn(at, ",");
                char part[PART_BYTES];
                if (n_bytes >= sizeof(part))
                        return fail(ret_error, "'%.20s...': longer than %zu characters", at, sizeof(part) - 1);
                memcpy(part, at, n_bytes);
                part[n_bytes] = '\0';
                int r = take_part(part, &seen, &spec, ret_error);
                if (r < 0)
                        return r;
                if (!at[n_bytes])
                        break;
                at += n_bytes + 1;
        }
        if (!spec.bytes)
                return fail(ret_error, "bytes=SIZE is missing");
        if ((spec.flags & HUGEZERO_NODE_PREFERRED) && spec.node == HUGEZERO_NODE_ANY)
                return fail(ret_error, "'prefer' needs node=NUMBER or node=local");
        *ret_spec = spec;
        return 0;
}
