/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Reads reserve.conf and its drop-ins. Everything is checked before the first page is asked for. */

#include "reserve-config.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cleanup.h"
#include "parse.h"
#include "topology-text.h"

#define BLANKS " \t\r\n" /* a CR ends lines of some editors */

struct place {
        const char *file;
        unsigned line;
        char *error;
};

__attribute__((format(printf, 2, 3))) static int fail(const struct place *place, const char *fmt, ...) {
        int n = snprintf(place->error, RESERVE_ERROR_BYTES, "%.200s:%u: ", place->file, place->line);
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(place->error + n, RESERVE_ERROR_BYTES - (size_t) n, fmt, ap);
        va_end(ap);
        return -EINVAL;
}

static int set_goal(struct reserve_config *config, const struct reserve_goal *goal) {
        struct reserve_goal *larger;

        for (size_t i = 0; i < config->n_goals; i++)
                if (config->goals[i].page_size_bytes == goal->page_size_bytes && config->goals[i].node == goal->node) {
                        config->goals[i] = *goal;
                        return 0;
                }
        larger = reallocarray(config->goals, config->n_goals + 1, sizeof(*goal));
        if (!larger)
                return -ENOMEM;
        config->goals = larger;
        config->goals[config->n_goals++] = *goal;
        return 0;
}

static int set_goals(struct reserve_config *config, const struct place *place, const uint64_t *nodes, struct reserve_goal goal) {
        char list[TOPOLOGY_LIST_BYTES];
        int r = 0;

        for (goal.node = 0; goal.node < PARSE_MAX_NODES && r == 0; goal.node++) {
                if (!(nodes[goal.node / 64] >> (goal.node % 64) & 1))
                        continue;
                if (!topology_node_exists(config->topology, goal.node))
                        return fail(place, "there is no node %d; nodes with memory are %s", goal.node,
                                    topology_list_nodes(config->topology, list));
                if (!topology_node_has_memory(config->topology, goal.node))
                        return fail(place, "node %d has no memory; nodes with memory are %s", goal.node,
                                    topology_list_nodes(config->topology, list));
                r = set_goal(config, &goal);
        }
        return r;
}

static int set_goals_of_all_nodes(struct reserve_config *config, struct reserve_goal goal) {
        int r = 0;

        for (size_t i = 0; i < topology_n_nodes(config->topology) && r == 0; i++) {
                goal.node = topology_node_at(config->topology, i);
                r = set_goal(config, &goal);
        }
        return r;
}

static int read_line(struct reserve_config *config, char *line, const struct place *place) {
        char *rest = NULL, page[FORMAT_SIZE_BYTES], list[TOPOLOGY_LIST_BYTES];
        const char *size = strtok_r(line, BLANKS, &rest), *nodes = strtok_r(NULL, BLANKS, &rest);
        const char *amount = strtok_r(NULL, BLANKS, &rest);
        uint64_t bits[PARSE_MAX_NODES / 64], bytes;
        struct reserve_goal goal = {};

        if (!size || size[0] == '#')
                return 0;
        const char *more = amount ? strtok_r(NULL, BLANKS, &rest) : NULL;
        if (more && more[0] == '#')
                return fail(place, "a remark behind the words; give it a line of its own");
        if (!amount || more)
                return fail(place, "three words are expected, PAGE-SIZE NODES AMOUNT, as in \"2M 0,1 16GiB\"");
        if (parse_size(size, &goal.page_size_bytes) < 0 || !topology_has_page_size(config->topology, goal.page_size_bytes))
                return fail(place, "the kernel has no pages of size \"%.40s\"; it has %s", size,
                            topology_list_page_sizes(config->topology, list));
        if (strcmp(nodes, "all") != 0 && parse_node_list(nodes, bits) < 0)
                return fail(place, "\"%.40s\" names no nodes; write all, or numbers like 0,2 or 0-3", nodes);
        if (parse_size(amount, &bytes) < 0 || bytes % goal.page_size_bytes != 0)
                return fail(place, "\"%.40s\" is no amount of %s pages; write a multiple of that, like 16GiB", amount,
                            format_size(goal.page_size_bytes, page));
        goal.n_pages = bytes / goal.page_size_bytes;
        return strcmp(nodes, "all") == 0 ? set_goals_of_all_nodes(config, goal) : set_goals(config, place, bits, goal);
}

/* Behind a NUL byte a line would not be read; others are not seen by who looks for a mistake. */
static int check_characters(const char *line, size_t n_bytes, const struct place *place) {
        for (size_t i = 0; i < n_bytes; i++)
                if (iscntrl((unsigned char) line[i]) && !memchr(BLANKS, line[i], strlen(BLANKS)))
                        return fail(place, "the line has a control character (0x%02x); is this a text file?",
                                    (unsigned) (unsigned char) line[i]);
        return 0;
}

int reserve_config_read(struct reserve_config *config, FILE *stream, const char *file, char ret_error[RESERVE_ERROR_BYTES]) {
        struct place place = {.file = file, .line = 1, .error = ret_error};
        _cleanup_free_ char *line = NULL;
        size_t line_bytes = 0;
        ssize_t n;
        int r = 0;

        for (; r == 0 && (n = getline(&line, &line_bytes, stream)) > 0; place.line++) {
                r = check_characters(line, (size_t) n, &place);
                if (r == 0)
                        r = read_line(config, line, &place);
        }
        if (r == -ENOMEM)
                (void) snprintf(ret_error, RESERVE_ERROR_BYTES, "out of memory");
        else if (r == 0 && !feof(stream)) { /* getline(3) without memory sets no error */
                r = negative_errno();
                (void) snprintf(ret_error, RESERVE_ERROR_BYTES, "reading %.200s failed: %s", file, strerror(-r));
        }
        return r;
}

static int compare_goals(const void *a, const void *b) {
        const struct reserve_goal *goal_a = a, *goal_b = b;

        if (goal_a->page_size_bytes != goal_b->page_size_bytes)
                return goal_a->page_size_bytes > goal_b->page_size_bytes ? -1 : 1;
        return goal_a->node - goal_b->node;
}

void reserve_config_sort(struct reserve_config *config) {
        if (config->n_goals > 0)
                qsort(config->goals, config->n_goals, sizeof(*config->goals), compare_goals);
}

void reserve_config_done(struct reserve_config *config) {
        free(config->goals);
        *config = (struct reserve_config){};
}
