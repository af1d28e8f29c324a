/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The daemon's figures as text for a monitoring system. hugezerod(8) lists the names. */
#pragma once

#include <stddef.h>
#include <stdio.h>

#include "hugezero.h"

enum metrics_format {
        METRICS_PROMETHEUS,  /* text format 0.0.4, also for node_exporter's textfile collector */
        METRICS_OPENMETRICS, /* OpenMetrics 1.0.0 */
};

#define METRICS_TYPE_PROMETHEUS "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_TYPE_OPENMETRICS "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Writes everything; whether @stream took it is for the caller to ask. */
void metrics_write(FILE *stream, enum metrics_format format, const struct hugezero_daemon_info *daemon,
                   const struct hugezero_pool_info *pools, size_t n_pools);
