/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "scrape-format.h"

#include <stdbool.h>
#include <string.h>
#include <strings.h>

#define MAX_Q 1000 /* in thousandths, as many digits as a weight has */

/* Which of the header's ranges decides: the one that says most. */
enum match { MATCH_NONE, MATCH_ALL, MATCH_FAMILY, MATCH_NAME };

struct offer {
        const char *name, *family, *version;
        enum match match;
        unsigned q;
};

struct span {
        const char *at, *end;
};

static bool is_word(struct span span, const char *word) {
        return (size_t) (span.end - span.at) == strlen(word) && strncasecmp(span.at, word, strlen(word)) == 0;
}

static struct span trim(struct span span) {
        while (span.at < span.end && strchr(" \t", span.at[0]))
                span.at++;
        while (span.at < span.end && strchr(" \t", span.end[-1]))
                span.end--;
        return span;
}

/* Cuts off what comes before the next @separator that is not quoted. False when nothing is left. */
static bool next_part(struct span *rest, char separator, struct span *ret_part) {
        const char *at = rest->at;
        bool quoted = false;

        if (at >= rest->end)
                return false;
        for (; at < rest->end && (quoted || *at != separator); at++)
                if (*at == '"')
                        quoted = !quoted;
                else if (quoted && *at == '\\' && at + 1 < rest->end)
                        at++;
        *ret_part = trim((struct span){rest->at, at});
        rest->at = at + 1;
        return true;
}

/* "0", "0.5", "1.000": one digit and at most three behind the point. */
static unsigned parse_q(struct span text) {
        unsigned q = 0, unit = MAX_Q;
        size_t n = (size_t) (text.end - text.at);

        if (n < 1 || n > 5 || (n > 1 && text.at[1] != '.'))
                return 0;
        for (size_t i = 0; i < n; i++) {
                if (i == 1)
                        continue;
                if (text.at[i] < '0' || text.at[i] > '9')
                        return 0;
                q += (unsigned) (text.at[i] - '0') * unit;
                unit /= 10;
        }
        return q <= MAX_Q ? q : 0;
}

static enum match match_of(const struct offer *offer, struct span range, struct span version) {
        if (version.at && !is_word(version, offer->version))
                return MATCH_NONE;
        return is_word(range, offer->name)   ? MATCH_NAME :
               is_word(range, offer->family) ? MATCH_FAMILY :
               is_word(range, "*/*")         ? MATCH_ALL :
                                               MATCH_NONE;
}

/* @range: "type/subtype;name=value;q=0.5" */
static void take_range(struct span element, struct offer *offers, size_t n_offers) {
        struct span range, parameter, version = {};
        unsigned q = MAX_Q;

        if (!next_part(&element, ';', &range))
                return;
        while (next_part(&element, ';', &parameter)) {
                struct span name = {};

                if (!next_part(&parameter, '=', &name))
                        continue;
                if (parameter.at < parameter.end && parameter.at[0] == '"' && parameter.end - parameter.at > 1) {
                        parameter.at++;
                        parameter.end--;
                }
                if (is_word(name, "q"))
                        q = parse_q(parameter);
                else if (is_word(name, "version"))
                        version = parameter;
        }
        for (size_t i = 0; i < n_offers; i++) {
                enum match match = match_of(&offers[i], range, version);

                if (match > offers[i].match || (match == offers[i].match && match != MATCH_NONE && q > offers[i].q)) {
                        offers[i].match = match;
                        offers[i].q = q;
                }
        }
}

enum metrics_format scrape_format(const char *accept) {
        struct offer offers[] = {
                [METRICS_PROMETHEUS] = {.name = "text/plain", .family = "text/*", .version = "0.0.4"},
                [METRICS_OPENMETRICS] = {.name = "application/openmetrics-text", .family = "application/*", .version = "1.0.0"},
        };
        const struct offer *text = &offers[METRICS_PROMETHEUS], *open = &offers[METRICS_OPENMETRICS];
        struct span rest = {accept, accept ? accept + strlen(accept) : NULL}, element;

        while (next_part(&rest, ',', &element))
                take_range(element, offers, sizeof(offers) / sizeof(offers[0]));
        if (open->q > text->q || (open->q > 0 && open->q == text->q && open->match == MATCH_NAME))
                return METRICS_OPENMETRICS;
        return METRICS_PROMETHEUS;
}
