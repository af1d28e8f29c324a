/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From the text of MaxBytes= to the limits of all page sizes together and of single ones. */
#include "config-limits.h"

#include <errno.h>
#include <string.h>

#include "config-pool.h"
#include "parse.h"
#include "topology-text.h"

#define MAX_BYTES (UINT64_C(1) << 60) /* chosen: more than any machine has, sums do not overflow */

#define FAIL(section, error, ...) config_section_fail((section), CONFIG_KEY_QUOTA_MAX_BYTES, (error), __VA_ARGS__)

static int fail_form(const struct config_section *section, int r, char *error) {
        char form[CONFIG_FORM_BYTES];

        return FAIL(section, error, "%s; give %s", r == -ERANGE ? "out of range" : "not understood",
                    config_key_form(&config_keys[CONFIG_KEY_QUOTA_MAX_BYTES], form));
}

static int parse_amount(const char *text, uint64_t *ret_bytes) {
        uint64_t bytes;
        int r;

        if (strcmp(text, "infinity") == 0) {
                *ret_bytes = UINT64_MAX;
                return 0;
        }
        r = parse_size(text, &bytes);
        if (r == 0 && bytes > MAX_BYTES)
                r = -ERANGE;
        if (r == 0)
                *ret_bytes = bytes;
        return r;
}

static struct config_page_limit *find_limit(struct config_quota *quota, uint64_t page_size_bytes) {
        for (size_t i = 0; i < quota->n_page_limits; i++)
                if (quota->page_limits[i].page_size_bytes == page_size_bytes)
                        return &quota->page_limits[i];
        return NULL;
}

/* "1G:4G", appended to @written. */
static int resolve_page_limit(const struct config_section *section, const struct topology *topology, char *word,
                              struct config_quota *written, char *error) {
        char *colon = strchr(word, ':'), size[FORMAT_SIZE_BYTES], list[TOPOLOGY_LIST_BYTES];
        struct config_page_limit limit;
        int r = colon ? 0 : -EINVAL;

        if (r == 0) {
                *colon = 0;
                r = parse_size(word, &limit.page_size_bytes);
        }
        if (r == 0)
                r = parse_amount(colon + 1, &limit.max_bytes);
        if (r < 0)
                return fail_form(section, r, error);
        (void) format_size(limit.page_size_bytes, size);
        if (!topology_has_page_size(topology, limit.page_size_bytes))
                return FAIL(section, error, "the kernel has no pages of %s; it has %s", size,
                            topology_list_page_sizes(topology, list));
        if (find_limit(written, limit.page_size_bytes))
                return FAIL(section, error, "pages of %s are named twice; remove one", size);
        if (written->n_page_limits == CONFIG_MAX_PAGE_SIZES)
                return FAIL(section, error, "more than %d page sizes; name fewer", CONFIG_MAX_PAGE_SIZES);
        written->page_limits[written->n_page_limits++] = limit;
        return 0;
}

/* Each limit by itself: one that this section does not name is as @quota has it already. */
static void merge(const struct config_quota *written, struct config_quota *quota) {
        quota->max_bytes = written->max_bytes;
        for (size_t i = 0; i < written->n_page_limits; i++) {
                struct config_page_limit *limit = find_limit(quota, written->page_limits[i].page_size_bytes);

                if (!limit) /* there is room: both name sizes that the kernel has, which are no more */
                        limit = &quota->page_limits[quota->n_page_limits++];
                *limit = written->page_limits[i];
        }
}

/* Behind the amount for all page sizes, whose unit may stand behind a blank: the word that has the first colon, or the end. */
static char *find_page_limits(char *text) {
        char *at = strchr(text, ':');

        if (!at)
                return text + strlen(text);
        while (at > text && at[-1] != ' ' && at[-1] != '\t')
                at--;
        return at;
}

int config_limits_resolve(const struct config_section *section, const struct topology *topology, struct config_quota *quota,
                          char ret_error[CONFIG_TEXT_BYTES]) {
        const char *text = config_section_text(section, CONFIG_KEY_QUOTA_MAX_BYTES);
        struct config_quota written = {.max_bytes = quota->max_bytes};
        char copy[CONFIG_INI_LINE_BYTES + 1], *save = NULL, *limits, *end;
        int r = 0;

        if (strlen(text) >= sizeof(copy))
                return fail_form(section, -ERANGE, ret_error);
        (void) strcpy(copy, text);
        limits = end = find_page_limits(copy);
        while (end > copy && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
        if (end > copy || !*limits) {
                char sum[CONFIG_INI_LINE_BYTES + 1];

                (void) snprintf(sum, sizeof(sum), "%.*s", (int) (end - copy), copy);
                r = parse_amount(sum, &written.max_bytes);
                if (r < 0)
                        return fail_form(section, r, ret_error);
        }
        for (char *word = strtok_r(limits, " \t", &save); word && r == 0; word = strtok_r(NULL, " \t", &save))
                r = resolve_page_limit(section, topology, word, &written, ret_error);
        if (r == 0)
                merge(&written, quota);
        return r;
}
