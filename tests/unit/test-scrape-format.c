/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Accept headers, and the format that they ask for. */
#include "testing.h"

#include "scrape-format.h"

#define OPEN "application/openmetrics-text"

static void the_preferred_format_is_served(void **state) {
        static const struct {
                const char *accept;
                enum metrics_format format;
        } cases[] = {
                {NULL, METRICS_PROMETHEUS},
                {"", METRICS_PROMETHEUS},
                {"*/*", METRICS_PROMETHEUS},
                {"text/plain", METRICS_PROMETHEUS},
                {OPEN, METRICS_OPENMETRICS},
                {"Application/OpenMetrics-Text", METRICS_OPENMETRICS},
                {OPEN "2", METRICS_PROMETHEUS},
                {"x-" OPEN, METRICS_PROMETHEUS},
                /* Weights */
                {OPEN ";q=0", METRICS_PROMETHEUS},
                {OPEN ";q=0.000, */*", METRICS_PROMETHEUS},
                {OPEN ";q=0.1,text/plain;version=0.0.4;q=0.9", METRICS_PROMETHEUS},
                {OPEN ";q=0.9,text/plain;q=0.1", METRICS_OPENMETRICS},
                {OPEN "; Q=0.2 ,\ttext/plain ; q=0.19", METRICS_OPENMETRICS},
                {"text/plain, " OPEN, METRICS_OPENMETRICS}, /* as well as the other, and it is named */
                {OPEN ";q=0.5,text/plain", METRICS_PROMETHEUS},
                {"text/plain;q=0.5," OPEN, METRICS_OPENMETRICS},
                {OPEN ";q=0,text/plain;q=0", METRICS_PROMETHEUS},
                /* Ranges: the one that says most decides, wherever it is */
                {OPEN ";q=0.3,text/*;q=0.4", METRICS_PROMETHEUS},
                {OPEN ";q=0.3,*/*;q=0.4", METRICS_PROMETHEUS},
                {"*/*;q=0.4,text/plain;q=0.2," OPEN ";q=0.3", METRICS_OPENMETRICS},
                {"application/*,text/plain;q=0.5", METRICS_OPENMETRICS},
                {"application/*," OPEN ";q=0,text/plain;q=0.5", METRICS_PROMETHEUS},
                {"application/*,text/*", METRICS_PROMETHEUS},
                /* Malformed weights count as 0 */
                {OPEN ";q=", METRICS_PROMETHEUS},
                {OPEN ";q=1.5", METRICS_PROMETHEUS},
                {OPEN ";q=-1", METRICS_PROMETHEUS},
                {OPEN ";q=0.1234", METRICS_PROMETHEUS},
                {OPEN ";q=.5", METRICS_PROMETHEUS},
                {OPEN ";q=1x", METRICS_PROMETHEUS},
                {OPEN ";q=0.5x,text/plain;q=0.1", METRICS_PROMETHEUS},
                {"text/plain;q=high," OPEN ";q=0.1", METRICS_OPENMETRICS},
                {OPEN ";q=1.000", METRICS_OPENMETRICS},
                {OPEN ";q=1.", METRICS_OPENMETRICS},
                /* Versions that are not served do not count */
                {OPEN ";version=1.0.0", METRICS_OPENMETRICS},
                {OPEN ";version=\"1.0.0\"", METRICS_OPENMETRICS},
                {OPEN ";version=0.0.1,text/plain;q=0.5", METRICS_PROMETHEUS},
                /* Quoted strings hide separators */
                {"text/plain;x=\"," OPEN ";q=1,\"", METRICS_PROMETHEUS},
                {"text/plain;q=0.5;x=\"\\\"," OPEN "\"," OPEN ";q=0.6", METRICS_OPENMETRICS},
                {"text/plain;x=\"" OPEN, METRICS_PROMETHEUS},
                {"text/plain;x=\"\\", METRICS_PROMETHEUS},
                {",;=,; =\",q," OPEN ";;=;q", METRICS_PROMETHEUS},
                /* Prometheus 2 and 3 */
                {OPEN ";version=1.0.0," OPEN ";version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", METRICS_OPENMETRICS},
                {OPEN ";version=1.0.0;escaping=allow-utf-8;q=0.5," OPEN ";version=0.0.1;q=0.4,"
                      "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                 METRICS_OPENMETRICS},
                {"text/plain;version=0.0.4;q=0.6," OPEN ";version=1.0.0;q=0.5", METRICS_PROMETHEUS},
        };

        for (size_t i = 0; i < ELEMENTSOF(cases); i++)
                if (scrape_format(cases[i].accept) != cases[i].format)
                        fail_msg("%s", cases[i].accept ? cases[i].accept : "no header");
}

int main(void) {
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(the_preferred_format_is_served),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
