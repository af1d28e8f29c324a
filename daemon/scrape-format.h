/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Which format a scraper is answered in. */
#pragma once

#include "metrics.h"

/*
 * @accept: the Accept header, NULL for none. What the scraper prefers, as RFC 9110, 12.5.1, has it; of formats that it likes as
 * well as each other OpenMetrics when it names that, else the text format, which is also for who accepts neither. A q= that is
 * malformed counts as 0: nobody gets what he may have meant to refuse.
 */
enum metrics_format scrape_format(const char *accept);
