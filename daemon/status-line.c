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

#define MIN_INTERVAL_MS 1000 /* chosen: who finds the manager's queue full waits, clients with him; it has room for ten and more */

#define MAX_NODES_NAMED 8 /* chosen: more are named by "hugezeroctl status" */

/* Some condition of the pools, and the nodes on which it is. */
struct place {
        unsigned n_nodes;
        int nodes[MAX_NODES_NAMED];
        bool more;
};

static void add_node(struct place *place, int node) {
        for (unsigned i = 0; i < place->n_nodes; i++)
                if (place->nodes[i] == node)
                        return;
        if (place->n_nodes == MAX_NODES_NAMED)
                place->more = true;
        else
                place->nodes[place->n_nodes++] = node;
}

static const char *name_nodes(const struct place *place, char ret_text[64]) {
        size_t n = (size_t) snprintf(ret_text, 64, "node%s", place->n_nodes > 1 ? "s" : "");

        for (unsigned i = 0; i < place->n_nodes; i++)
                n += (size_t) snprintf(ret_text + n, 64 - n, "%s %d", i > 0 ? "," : "", place->nodes[i]);
        (void) snprintf(ret_text + n, 64 - n, "%s", place->more ? " ..." : "");
        return ret_text;
}

/* Whether the target has been there since it was set: memory that comes and goes is no news. */
static bool has_reached_target(struct node_pool *np) {
        if (np->bytes[EXTENT_FILLING] == 0 && pool_deficit_bytes(np) < np->pool->page_size_bytes) {
                np->reached_bytes = np->target_bytes;
                np->fills_fail = false;
        } else {
                if (np->reached_bytes > np->target_bytes)
                        np->reached_bytes = np->target_bytes;
                np->fills_fail |= np->paused;
        }
        return np->reached_bytes == np->target_bytes;
}

/* Target=auto was worked out when there were too few pages: it stays 0 when some appear. */
static bool waits_for_restart(const struct config *config) {
        for (size_t i = 0; i < config->n_pools; i++)
                for (size_t k = 0; k < config->pools[i].n_nodes; k++)
                        if (config->pools[i].nodes[k].is_auto && config->pools[i].nodes[k].target_bytes == 0)
                                return true;
        return false;
}

static void describe_pools(const struct broker *broker, char text[STATUS_LINE_BYTES]) {
        char size[FORMAT_SIZE_BYTES], nodes[64];
        struct place lacking = {}, failing = {};
        uint64_t target_bytes = 0;
        bool is_filling = false;

        BROKER_FOREACH_NODE_POOL(broker, np) {
                target_bytes += np->target_bytes;
                is_filling |= !has_reached_target(np);
                if (np->short_logged)
                        add_node(&lacking, np->node);
                else if (np->fills_fail)
                        add_node(&failing, np->node);
        }
        (void) format_size(target_bytes, size);
        if (target_bytes == 0 && waits_for_restart(broker->config))
                (void) snprintf(text, STATUS_LINE_BYTES,
                                "Serving no memory: too few pages were free at start; restart hugezerod when there are more");
        else if (target_bytes == 0)
                (void) snprintf(text, STATUS_LINE_BYTES, "Serving no memory: all targets are 0");
        else if (lacking.n_nodes > 0)
                (void) snprintf(text, STATUS_LINE_BYTES, "Short of pages on %s; the pools are to have %s",
                                name_nodes(&lacking, nodes), size);
        else if (broker->capped_at_extents > 0)
                (void) snprintf(text, STATUS_LINE_BYTES,
                                "Stopped at %llu extents by the limit of open files; the pools are to have %s",
                                (unsigned long long) broker->capped_at_extents, size);
        else if (failing.n_nodes > 0)
                (void) snprintf(text, STATUS_LINE_BYTES, "Cannot fill on %s, the log says why; the pools are to have %s",
                                name_nodes(&failing, nodes), size);
        else
                (void) snprintf(text, STATUS_LINE_BYTES, is_filling ? "Serving, while %s are filled" : "Serving %s", size);
}

void status_line_update(struct broker *broker) {
        uint64_t now_ms = clock_ms(), due_ms = broker->status_told_ms + MIN_INTERVAL_MS;
        char text[STATUS_LINE_BYTES];
        size_t n;

        describe_pools(broker, text);
        n = strlen(text);
        if (broker->reload_error[0])
                (void) snprintf(text + n, sizeof(text) - n, ". Reloading failed, nothing was changed: %s",
                                broker->reload_error);
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
        (void) snprintf(broker->reload_error, sizeof(broker->reload_error), "%s", error ? error : "");
        broker->status_told_ms = 0; /* at once: who has asked for it looks now */
        if (!broker->stopping)
                status_line_update(broker);
        broker->status_told_ms = 0; /* again when it is known what new targets come to */
        broker_kick(broker);
}
