/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory of a crowd goes back to the kernel when the crowd has gone. Loop thread only. */
#pragma once

struct event;
struct event_base;

struct trim {
        struct event *timer;
        unsigned n_objects, n_most; /* now, and since memory was given back last */
};

int trim_init(struct trim *trim, struct event_base *base);
void trim_done(struct trim *trim);
/* Something was allocated, or freed, of which clients can have many. */
void trim_count_new(struct trim *trim);
void trim_count_freed(struct trim *trim);
