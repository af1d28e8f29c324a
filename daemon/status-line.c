/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "status-line.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <systemd/sd-daemon.h>

#include "broker-internal.h"
#include "parse.h"

void status_line_update(struct broker *broker) {
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
        (void) strcpy(broker->status_line, text);
        (void) sd_notifyf(/* unset_environment= */ 0, "STATUS=%s", text);
}

void status_line_reload(struct broker *broker, const char *error) {
        if (error)
                (void) sd_notifyf(/* unset_environment= */ 0, "STATUS=Reloading failed, nothing was changed: %s", error);
        else {
                broker->status_line[0] = 0;
                status_line_update(broker);
        }
}
