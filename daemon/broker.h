/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a session asks of the pools: requests in, grants out. Loop thread only. broker.c owns the queue of requests, the table
 * of grants and the life of extents between them; it knows no sockets.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "identity.h"
#include "wire.h"

struct broker;
struct grant;
struct request;

/* What a request needs of its user's quota: first of all page sizes together, then of each. */
struct request_needs {
        size_t n;
        struct request_need {
                uint64_t page_size_bytes; /* 0: of all sizes */
                uint64_t bytes;
        } at[1 + WIRE_MAX_ITEMS];
};

/*
 * One C_ACQUIRE. Owned by the session, alive from broker_submit() until a callback or broker_cancel().
 * Exactly one callback comes, possibly from inside broker_submit(); the session may free the request in it.
 */
struct request {
        const struct identity *identity; /* borrowed; outlives the request */
        const struct wire_c_acquire *acquire; /* borrowed; outlives the request */
        void *userdata;
        /* The session must send it (broker_grant_next()) or abandon it (broker_grant_abandon()). */
        void (*granted)(struct request *request, struct grant *grant);
        /* @error: negative errno for the client; @text: the reason, at most WIRE_MAX_TEXT_BYTES. Nothing is held. */
        void (*refused)(struct request *request, int error, const char *text);
        /* broker.c's own */
        TAILQ_ENTRY(request) link;
        struct request_plan *plan;
        struct request_needs least; /* that it will be charged */
        uint64_t deadline_ms;
        uint64_t turn_from_ms; /* turns.c's, as the next: it has no turn before */
        bool has_turn;
};

void broker_submit(struct broker *broker, struct request *request);
/* No callback comes after this; whatever was prepared for the request goes back to the pools. For cancel and hang-up alike. */
void broker_cancel(struct broker *broker, struct request *request);

/* A request was refused, by the broker or before it came to it. */
void broker_count_refused(struct broker *broker);

uint64_t broker_grant_id(const struct grant *grant);
/*
 * The next message of a grant that is being sent: fills @ret_message (extents from *the first not yet sent*) and @ret_fds,
 * which stay the grant's. @max_fds: at most so many, 1 to WIRE_MAX_FDS. Returns how many fds; 0 when everything was sent.
 */
unsigned broker_grant_next(struct grant *grant, unsigned max_fds, struct wire_d_grant *ret_message, int ret_fds[WIRE_MAX_FDS]);
/* That message was accepted by the kernel: the descriptions are the client's now, the daemon closes its copies. */
void broker_grant_sent(struct broker *broker, struct grant *grant, unsigned n_extents);
/* The client is gone: what was not sent goes back. The grant may be freed by this. */
void broker_grant_abandon(struct broker *broker, struct grant *grant);

/* From any connection of the uid that asked, or of an administrator. Unknown or foreign grants: -ENOENT. MAPPED twice is harmless. */
int broker_mapped(struct broker *broker, const struct identity *identity, uint64_t grant_id);
/*
 * Asks who holds it, about much of it in several turns of the loop; proves nothing by itself. -ENOENT: no such grant of yours, or
 * that extent is gone already. -EINVAL: no such position.
 */
int broker_release(struct broker *broker, const struct identity *identity, uint64_t grant_id, uint32_t extent);

/*
 * Reads the configuration again. 0, or a negative errno; nothing is changed then. @ret_text: of a failure the reason; else the
 * keys that have changed and take effect at the next start, "" for none.
 */
int broker_reload(struct broker *broker, char ret_text[WIRE_MAX_TEXT_BYTES + 1]);

/* n_clients and n_fds_in_flight are the server's to add. */
void broker_fill_status(const struct broker *broker, struct wire_d_status *ret_status);
void broker_fill_pools(const struct broker *broker, uint32_t first_row, struct wire_d_pools *ret_pools);
/* Rows of the identity's uid; of all uids for administrators. */
void broker_fill_grants(const struct broker *broker, const struct identity *identity, const struct wire_c_grants *from,
                        struct wire_d_grants *ret_grants);
