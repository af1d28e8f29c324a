/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "status-line.h"

#include <event2/event.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "broker-internal.h"
#include "clock.h"
#include "parse.h"

#define MIN_INTERVAL_MS 1000 /* chosen: who finds the manager's queue full waits, and clients with him; it has room for ten and more */

void status_line_update(struct broker *broker) {
        uint64_t now_ms = clock_ms(), due_ms = broker->status_told_ms + MIN_INTERVAL_MS;
        char text[STATUS_LINE_BYTES], size[FORMAT_SIZE_BYTES];
        uint64_t target_bytes = 0;
        bool is_filling = false;
        int short_node = -1;

        BROKER_FOREACH_NODE_POOL(broker, np) {
                target_bytes += np->target_bytes;
                is_filling |= np->target_bytes > 0 && !np->full_once;
                if (np->short_logged && short_node < 0)
                        short_node = np->node;
        }
        (void) format_size(target_bytes, size);
        if (target_bytes == 0)
                (void) snprintf(text, sizeof(text), "Serving no memory: all targets are 0");
        else if (short_node >= 0)
                (void) snprintf(text, sizeof(text), "Short of pages on node %d; the pools are to have %s", short_node, size);
        else
                (void) snprintf(text, sizeof(text), is_filling ? "Serving, while %s are filled" : "Serving %s", size);
        if (strcmp(text, broker->status_line) == 0)
                return;
        if (broker->status_told_ms > 0 && now_ms < due_ms) {
                if (!evtimer_pending(broker->status_timer, NULL))
                        broker_timer_set(broker->status_timer, due_ms - now_ms);
                return;
        }
        broker->status_told_ms = now_ms;
        (void) strcpy(broker->status_line, text);
        (void) sd_notifyf(/* unset_environment= */ 0, "STATUS=%s", text);
}

void status_line_on_timer(int fd, short what, void *userdata) {
        struct broker *broker = userdata;

        if (!broker->stopping)
                status_line_update(broker);
}

void status_line_reload(struct broker *broker, const char *error) {
        if (error)
                (void) sd_notifyf(/* unset_environment= */ 0, "STATUS=Reloading failed, nothing was changed: %s", error);
        else {
                broker->status_line[0] = 0;
                status_line_update(broker);
        }
}
