/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * One client.
 *
 * Packets are read one by one and answered at once; nothing of the input is kept but what a waiting request needs. A session
 * ends (hang-up, breach) by being marked and is taken apart from the loop: its end may be found out deep inside the broker, in
 * a call made for somebody else.
 *
 * A connection whose client has left descriptors unread stays open, deaf and mute, until they are gone from the kernel's queue:
 * they count against the daemon's limit as long as they are there, so they count against the client's as well.
 */

#include <assert.h>
#include <event2/event.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>

#include "access.h"
#include "broker.h"
#include "cleanup.h"
#include "closing.h"
#include "config-build.h"
#include "fdpass.h"
#include "limit-rows.h"
#include "limit-texts.h"
#include "log-limit.h"
#include "parse.h"
#include "quota.h"
#include "reload.h"
#include "session.h"
#include "worker.h"

#define MAX_PENDING 8           /* chosen: replies in the outbox beyond which nothing more is read */
#define MAX_PACKETS_PER_TURN 16 /* chosen: of the loop, for all connections of a user together; each has one */
#define RETRY_MS 100            /* chosen: while something is pending and no event tells of room */

struct session_request {
        struct request request;
        struct session *session;
        uint32_t request_id;
        TAILQ_ENTRY(session_request) link;
        struct wire_c_acquire acquire; /* only the items that there are */
};

struct session {
        struct session_context *context;
        int fd;
        bool charged, greeted, ended, lingering, armed, first_request_used;
        struct identity identity;
        struct event *on_packet; /* readable, as long as nothing is pending */
        struct event *on_room;   /* while something is pending: readable or read by the client, edge-triggered */
        struct event *on_ended;
        struct outbox outbox;
        TAILQ_HEAD(, session_request) requests;
        unsigned n_requests;
        struct closing *closing; /* where descriptors may arrive */
        TAILQ_ENTRY(session) link;
        struct session_request first_request; /* spares the common case an allocation */
};

/* Closing */

/*
 * Reads what the client has sent and we have no use for: closing with unread packets would show the client an error in place of
 * our last words. False when descriptors are (or may be) among it.
 */
static bool session_drain(struct session *session) {
        uint8_t byte;

        while (!session->closing || fdpass_next_has_fds(session->fd) <= 0)
                if (recv(session->fd, &byte, sizeof(byte), MSG_DONTWAIT) <= 0)
                        return !session->closing || fdpass_is_drained(session->fd);
        return false;
}

static void session_close_socket(struct session *session) {
        (void) shutdown(session->fd, SHUT_RDWR); /* nothing can be added behind what is drained now */
        if (session_drain(session)) {
                session->fd = safe_close(session->fd);
                if (session->charged)
                        quota_uncharge(session->context->quota, session->identity.uid, QUOTA_CONNECTIONS, 1);
        } else {
                closing_begin(take_ptr(session->closing), session->context->closer, take_fd(&session->fd), session->context->quota,
                              session->identity.uid, session->charged);
        }
        session->charged = false;
}

/* Ending */

static void session_end(struct session *session) {
        if (session->ended)
                return;
        session->ended = true;
        outbox_close(&session->outbox);
        (void) event_del(session->on_packet);
        (void) event_del(session->on_room);
        event_active(session->on_ended, EV_TIMEOUT, 0);
}

/* Best effort, past everything that is pending: the connection is about to be closed. */
static void send_last_words(int fd, uint32_t request_id, int error, const char *text) {
        uint8_t buffer[64 + WIRE_MAX_TEXT_BYTES];
        struct wire_message message;

        message.op = WIRE_D_REFUSED;
        message.request_id = request_id;
        message.d_refused.error = -error;
        message.d_refused.reserved = 0;
        message.d_refused.n_text_bytes =
                (uint16_t) snprintf(message.d_refused.text, sizeof(message.d_refused.text), "%s", text);
        int n_bytes = wire_encode(&message, buffer, sizeof(buffer));
        if (n_bytes > 0)
                (void) fdpass_send(fd, buffer, (size_t) n_bytes, NULL, 0);
}

/* Fields of messages about a client. */
#define LOG_PEER(session) LOG_NUMBER("PID", (session)->identity.pid), LOG_NUMBER("UID", (session)->identity.uid)

static void session_log(const struct session *session, enum log_limit limit, const char *id, const char *what,
                        const char *text) {
        if (log_limit_pass(limit, session->identity.uid))
                log_notice(id, LOG_FIELDS(LOG_PEER(session)),
                           "%s the client with pid %d and uid %u: %s", what, (int) session->identity.pid,
                           (unsigned) session->identity.uid, text);
}

__attribute__((format(printf, 4, 5))) static void session_breach(struct session *session, uint32_t request_id, int error,
                                                                 const char *fmt, ...) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        va_list args;

        if (session->ended)
                return;
        va_start(args, fmt);
        (void) vsnprintf(text, sizeof(text), fmt, args);
        va_end(args);
        send_last_words(session->fd, request_id, error, text);
        session_log(session, LOG_LIMIT_BREACHES, LOG_ID_CLIENT_CUT_OFF, "Cutting off", text);
        session_end(session);
}

/* What sending came to: anything but 0 is the end of the connection. */
static void session_check(struct session *session, int r) {
        struct session_context *context = session->context;

        if (context->outboxes.refs_exhausted) {
                context->outboxes.refs_exhausted = false;
                if (log_limit_pass(LOG_LIMIT_IN_FLIGHT, LOG_NO_USER))
                        log_warning(LOG_ID_FDS_IN_FLIGHT, LOG_FIELDS(LOG_NUMBER("FDS_IN_FLIGHT", context->outboxes.n_fds_in_flight)),
                                    "Cannot send descriptors: the kernel counts too many of this user in flight (%u of ours); "
                                    "grants wait. Raise LimitNOFILE=, or lower MaxFdsInFlight=",
                                    context->outboxes.n_fds_in_flight);
        }
        if (r == -ETIMEDOUT && !session->ended)
                session_log(session, LOG_LIMIT_BREACHES, LOG_ID_CLIENT_CUT_OFF, "Cutting off", "it does not read its replies");
        if (r < 0)
                session_end(session);
}

static void session_send(struct session *session, const struct wire_message *message) {
        session_check(session, outbox_send(&session->outbox, message));
}

static void session_send_done(struct session *session, uint32_t request_id) {
        struct wire_message message;

        message.op = WIRE_D_DONE;
        message.request_id = request_id;
        session_send(session, &message);
}

static void session_refuse_args(struct session *session, uint32_t request_id, int error, const char *fmt, va_list args) {
        struct wire_message message;
        char text[4 * WIRE_MAX_TEXT_BYTES];

        /* It may quote what somebody wrote into a file: bytes that are no text, and letters of several bytes to be cut at. */
        (void) vsnprintf(text, sizeof(text), fmt, args);
        message.op = WIRE_D_REFUSED;
        message.request_id = request_id;
        message.d_refused.error = error < 0 ? -error : EIO;
        message.d_refused.reserved = 0;
        message.d_refused.n_text_bytes = (uint16_t) wire_make_text(message.d_refused.text, text);
        session_send(session, &message);
}

__attribute__((format(printf, 4, 5))) static void session_refuse(struct session *session, uint32_t request_id, int error,
                                                                 const char *fmt, ...) {
        va_list args;

        va_start(args, fmt);
        session_refuse_args(session, request_id, error, fmt, args);
        va_end(args);
}

/* A request for memory: the only ones that are counted, and whoever refused them, this is where. */
__attribute__((format(printf, 4, 5))) static void session_refuse_acquire(struct session *session, uint32_t request_id, int error,
                                                                         const char *fmt, ...) {
        va_list args;

        broker_count_refused(session->context->broker);
        va_start(args, fmt);
        session_refuse_args(session, request_id, error, fmt, args);
        va_end(args);
}

/* Requests */

static struct session_request *session_request_find(struct session *session, uint32_t request_id) {
        struct session_request *request;

        TAILQ_FOREACH (request, &session->requests, link)
                if (request->request_id == request_id)
                        return request;
        return NULL;
}

/* The broker does not know it any more. */
static void session_request_free(struct session_request *request) {
        struct session *session = request->session;

        TAILQ_REMOVE(&session->requests, request, link);
        session->n_requests--;
        trim_count_freed(&session->context->trim);
        quota_uncharge(session->context->quota, session->identity.uid, QUOTA_WAITING, 1);
        if (request == &session->first_request)
                session->first_request_used = false;
        else
                free(request);
}

static void session_on_granted(struct request *broker_request, struct grant *grant) {
        struct session_request *request = broker_request->userdata;
        struct session *session = request->session;
        uint32_t request_id = request->request_id;

        session_request_free(request);
        session_check(session, outbox_send_grant(&session->outbox, request_id, grant));
}

static void session_on_refused(struct request *broker_request, int error, const char *text) {
        struct session_request *request = broker_request->userdata;
        struct session *session = request->session;
        uint32_t request_id = request->request_id;

        session_request_free(request);
        session_refuse_acquire(session, request_id, error, "%s", text);
}

/* Charges the request. */
static int session_request_new(struct session *session, const struct wire_message *message,
                               struct session_request **ret_request) {
        int r = quota_charge(session->context->quota, session->identity.uid, QUOTA_WAITING, 1);
        if (r < 0)
                return r;
        struct session_request *request = session->first_request_used ? malloc(sizeof(*request)) : &session->first_request;
        if (!request) {
                quota_uncharge(session->context->quota, session->identity.uid, QUOTA_WAITING, 1);
                return -ENOMEM;
        }
        if (request == &session->first_request)
                session->first_request_used = true;
        request->session = session;
        request->request_id = message->request_id;
        request->request = (struct request){
                .identity = &session->identity,
                .acquire = &request->acquire,
                .userdata = request,
                .granted = session_on_granted,
                .refused = session_on_refused,
        };
        memcpy(&request->acquire, &message->c_acquire,
               offsetof(struct wire_c_acquire, items) + message->c_acquire.n_items * sizeof(struct wire_item));
        TAILQ_INSERT_TAIL(&session->requests, request, link);
        session->n_requests++;
        trim_count_new(&session->context->trim);
        *ret_request = request;
        return 0;
}

static void on_second(evutil_socket_t fd, short events, void *userdata) {
        struct session_context *context = userdata;

        quota_end_second(context->quota);
}

/* Counts the request against what the user may ask in one second. */
static int session_count_request(struct session *session) {
        struct session_context *context = session->context;
        struct timeval second = {.tv_sec = 1};
        int r = quota_charge(context->quota, session->identity.uid, QUOTA_REQUESTS, 1);

        if (r >= 0 && !event_pending(context->second, EV_TIMEOUT, NULL))
                (void) event_add(context->second, &second);
        return r;
}

static void session_cancel_all(struct session *session) {
        struct session_request *request;

        while ((request = TAILQ_FIRST(&session->requests))) {
                broker_cancel(session->context->broker, &request->request);
                session_request_free(request);
        }
}

/* Operations */

static void session_do_acquire(struct session *session, const struct wire_message *message) {
        const struct quota *quota = session->context->quota;
        uid_t uid = session->identity.uid;
        char text[WIRE_MAX_TEXT_BYTES + 1];
        struct session_request *request;

        if (session_request_find(session, message->request_id) || outbox_has_grant_for(&session->outbox, message->request_id)) {
                session_breach(session, message->request_id, -EPROTO,
                               "request id %u is in use by a request that is not answered yet", (unsigned) message->request_id);
                return;
        }
        if (session->n_requests >= SESSION_MAX_REQUESTS) {
                session_refuse_acquire(session, message->request_id, -EDQUOT,
                                       "this connection has %d requests that are not answered yet; read their answers first",
                                       SESSION_MAX_REQUESTS);
                return;
        }
        if (session_count_request(session) == -EDQUOT) {
                session_refuse_acquire(session, message->request_id, -EBUSY, "%s", limit_explain(quota, uid, QUOTA_REQUESTS, text));
                return;
        }
        int r = session_request_new(session, message, &request);
        if (r >= 0)
                broker_submit(session->context->broker, &request->request);
        else if (r == -EDQUOT)
                session_refuse_acquire(session, message->request_id, r, "%s", limit_explain(quota, uid, QUOTA_WAITING, text));
        else if (r == -EUSERS)
                session_refuse_acquire(session, message->request_id, r, "too many requests of all users are waiting (MaxWaiting=)");
        else
                session_refuse_acquire(session, message->request_id, r, "hugezerod is out of memory for the request itself");
}

static void session_do_cancel(struct session *session, const struct wire_message *message) {
        uint32_t request_id = message->c_cancel.target_request_id;
        struct session_request *request = session_request_find(session, request_id);

        /* Else its answer is on the way already. */
        if (!request)
                return;
        broker_cancel(session->context->broker, &request->request);
        session_request_free(request);
        session_refuse(session, request_id, -ECANCELED, "cancelled by the client");
}

static void session_do_mapped(struct session *session, const struct wire_message *message) {
        (void) broker_mapped(session->context->broker, &session->identity, message->c_mapped.grant_id);
}

static void session_do_release(struct session *session, const struct wire_message *message) {
        const struct wire_c_release *release = &message->c_release;
        int r = broker_release(session->context->broker, &session->identity, release->grant_id, release->extent);

        if (r >= 0)
                session_send_done(session, message->request_id);
        else if (r == -ENOENT)
                session_refuse(session, message->request_id, r, "no grant %llu of uid %u has this extent (any more)",
                               (unsigned long long) release->grant_id, (unsigned) session->identity.uid);
        else if (r == -EINVAL)
                session_refuse(session, message->request_id, r, "grant %llu has no extent at position %u",
                               (unsigned long long) release->grant_id, (unsigned) release->extent);
        else
                session_refuse(session, message->request_id, r, "cannot ask who holds grant %llu: %s",
                               (unsigned long long) release->grant_id, strerror(-r));
}

static void session_do_status(struct session *session, const struct wire_message *message) {
        struct session_context *context = session->context;
        struct wire_message answer;

        outbox_group_count(&context->outboxes);
        answer.op = WIRE_D_STATUS;
        answer.request_id = message->request_id;
        broker_fill_status(context->broker, &answer.d_status);
        answer.d_status.n_clients = context->n_sessions;
        answer.d_status.n_fds_in_flight = context->outboxes.n_fds_in_flight;
        session_send(session, &answer);
}

static void session_do_pools(struct session *session, const struct wire_message *message) {
        struct wire_message answer;

        answer.op = WIRE_D_POOLS;
        answer.request_id = message->request_id;
        broker_fill_pools(session->context->broker, message->c_pools.first_row, &answer.d_pools);
        session_send(session, &answer);
}

static void session_do_grants(struct session *session, const struct wire_message *message) {
        struct wire_message answer;

        answer.op = WIRE_D_GRANTS;
        answer.request_id = message->request_id;
        broker_fill_grants(session->context->broker, &session->identity, &message->c_grants, &answer.d_grants);
        session_send(session, &answer);
}

static void session_do_limits(struct session *session, const struct wire_message *message) {
        struct session_context *context = session->context;
        struct wire_message answer;

        answer.op = WIRE_D_LIMITS;
        answer.request_id = message->request_id;
        limits_fill(context->quota, &session->identity, access_is_administrator(context->config, session->identity.uid),
                    &message->c_limits, &answer.d_limits);
        session_send(session, &answer);
}

static bool session_may_administer(struct session *session, uint32_t request_id) {
        if (access_is_administrator(session->context->config, session->identity.uid))
                return true;
        session_refuse(session, request_id, -EPERM,
                       "uid %u is no administrator: root is, the user that hugezerod runs as, and those of AdminUsers=",
                       (unsigned) session->identity.uid);
        return false;
}

static void session_do_reload(struct session *session, const struct wire_message *message) {
        struct wire_message answer = {.op = WIRE_D_RELOADED, .request_id = message->request_id};
        struct wire_d_reloaded *reloaded = &answer.d_reloaded;
        int r;

        if (!session_may_administer(session, message->request_id))
                return;
        if (log_limit_pass(LOG_LIMIT_ORDERS, session->identity.uid))
                log_notice(LOG_ID_RELOAD_ASKED, LOG_FIELDS(LOG_PEER(session)),
                           "uid %u, process %d, has the configuration read again", (unsigned) session->identity.uid,
                           (int) session->identity.pid);
        r = broker_reload(session->context->broker, reloaded->start_keys);
        if (r < 0) {
                session_refuse(session, message->request_id, r, "%s", reloaded->start_keys);
                return;
        }
        reloaded->n_start_keys_bytes = (uint16_t) strlen(reloaded->start_keys);
        session_send(session, &answer);
}

static void session_log_resize(struct session *session, const struct wire_c_resize *resize) {
        char size[FORMAT_SIZE_BYTES], node[16];

        if (!log_limit_pass(LOG_LIMIT_ORDERS, session->identity.uid))
                return;
        (void) snprintf(node, sizeof(node), resize->node < 0 ? "all nodes" : "node %d", resize->node);
        log_notice(LOG_ID_RESIZED,
                   LOG_FIELDS(LOG_PEER(session), LOG_TEXT("POOL", resize->pool), LOG_NUMBER("NODE", resize->node),
                              LOG_NUMBER("TARGET_BYTES", resize->target_bytes)),
                   "uid %u, process %d, set the target of %s%s on %s to %s, until the next reload or start",
                   (unsigned) session->identity.uid, (int) session->identity.pid, resize->pool[0] ? "pool " : "all pools",
                   resize->pool, node, format_size(resize->target_bytes, size));
}

static void session_do_resize(struct session *session, const struct wire_message *message) {
        const struct wire_c_resize *resize = &message->c_resize;
        char text[WIRE_MAX_TEXT_BYTES + 1];
        int r;

        if (!session_may_administer(session, message->request_id))
                return;
        r = reload_resize(session->context->broker, resize->pool, resize->node, resize->target_bytes, text);
        if (r < 0) {
                session_refuse(session, message->request_id, r, "%s", text);
                return;
        }
        session_log_resize(session, resize);
        session_send_done(session, message->request_id);
}

static void session_do_hello(struct session *session, const struct wire_message *message) {
        const struct wire_c_hello *hello = &message->c_hello;

        if (session->greeted) {
                session_breach(session, message->request_id, -EPROTO, "C_HELLO can be the first message only");
                return;
        }
        if (hello->version_min > WIRE_VERSION || hello->version_max < WIRE_VERSION) {
                session_breach(session, message->request_id, -EPROTO,
                               "hugezerod %s speaks protocol version %d, the client %u to %u; install versions that match",
                               HUGEZERO_VERSION, WIRE_VERSION, (unsigned) hello->version_min, (unsigned) hello->version_max);
                return;
        }
        session->greeted = true;
        (void) event_remove_timer(session->on_packet); /* the handshake's */
        struct wire_message answer = {
                .op = WIRE_D_HELLO,
                .request_id = message->request_id,
                .d_hello = {.magic = WIRE_MAGIC,
                            .version = WIRE_VERSION,
                            .max_items = WIRE_MAX_ITEMS,
                            .max_fds = WIRE_MAX_FDS,
                            .max_message_bytes = WIRE_MAX_MESSAGE_BYTES},
        };
        session_send(session, &answer);
}

static void session_dispatch(struct session *session, const struct wire_message *message) {
        static void (*const operations[])(struct session * session, const struct wire_message *message) = {
                [WIRE_C_HELLO] = session_do_hello,   [WIRE_C_ACQUIRE] = session_do_acquire, [WIRE_C_CANCEL] = session_do_cancel,
                [WIRE_C_MAPPED] = session_do_mapped, [WIRE_C_RELEASE] = session_do_release, [WIRE_C_STATUS] = session_do_status,
                [WIRE_C_POOLS] = session_do_pools,   [WIRE_C_GRANTS] = session_do_grants,   [WIRE_C_RELOAD] = session_do_reload,
                [WIRE_C_RESIZE] = session_do_resize, [WIRE_C_LIMITS] = session_do_limits,
        };

        if (!session->greeted && message->op != WIRE_C_HELLO)
                session_breach(session, message->request_id, -EPROTO, "the first message must be C_HELLO, not operation %u",
                               (unsigned) message->op);
        else if (message->op < sizeof(operations) / sizeof(*operations) && operations[message->op])
                operations[message->op](session, message);
        else /* a younger client may try, and do without */
                session_refuse(session, message->request_id, -EOPNOTSUPP, "hugezerod %s does not know operation %u",
                               HUGEZERO_VERSION, (unsigned) message->op);
}

/* Reads and answers one packet. False when there is none, or the session has ended. */
static bool session_read(struct session *session) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        char fault[WIRE_FAULT_BYTES];
        struct wire_message message;
        size_t n_fds;
        int r;

        r = session->closing ? fdpass_next_has_fds(session->fd) : 0;
        if (r > 0)
                session_breach(session, 0, -EPROTO, "descriptors are not accepted");
        if (r > 0 || r == -EAGAIN) /* what comes from here on has not been looked at */
                return false;
        ssize_t n_bytes = fdpass_receive(session->fd, buffer, sizeof(buffer), NULL, 0, &n_fds);
        if (n_bytes == -EAGAIN)
                return false;
        if (n_bytes == -EMSGSIZE)
                session_breach(session, 0, -EBADMSG, "a message is longer than %d bytes", WIRE_MAX_MESSAGE_BYTES);
        else if (n_bytes <= 0)
                session_end(session); /* it hung up */
        if (session->ended)
                return false;
        r = wire_decode(buffer, (size_t) n_bytes, WIRE_TO_DAEMON, &message);
        if (r < 0 && r != -EOPNOTSUPP)
                session_breach(session, 0, r, "a message of %zd bytes is malformed: %s", n_bytes,
                               wire_explain(buffer, (size_t) n_bytes, WIRE_TO_DAEMON, fault));
        else
                session_dispatch(session, &message);
        return !session->ended;
}

/* Events */

/*
 * As long as nothing is pending, the loop looks for packets only. While something is, it also has to hear of the client's
 * reading, which the kernel reports as an edge on a socket that is writable all along.
 * @again: the edge is used up and there may be more. A new event sees that, in the next turn: an activated one belongs to this.
 */
static void session_update_events(struct session *session, bool again) {
        struct timeval retry = {.tv_usec = RETRY_MS * 1000};
        bool arm = outbox_needs_wake(&session->outbox);
        int r;

        if (session->ended || (arm == session->armed && !(arm && again)))
                return;
        session->armed = arm;
        (void) event_del(session->on_packet);
        (void) event_del(session->on_room);
        r = arm ? event_add(session->on_room, &retry) : event_add(session->on_packet, NULL);
        if (r < 0)
                session_end(session);
}

static unsigned packets_per_turn(const struct session *session) {
        uint64_t n_sessions = quota_used(session->context->quota, session->identity.uid, QUOTA_CONNECTIONS);

        return n_sessions < 2 ? MAX_PACKETS_PER_TURN :
               n_sessions < MAX_PACKETS_PER_TURN ? (unsigned) (MAX_PACKETS_PER_TURN / n_sessions) : 1;
}

static void session_on_packet(evutil_socket_t fd, short events, void *userdata) {
        struct session *session = userdata;
        unsigned n_packets = 0, max_packets = packets_per_turn(session);

        if (events & EV_TIMEOUT)
                session_breach(session, 0, -ETIMEDOUT, "no C_HELLO came within %u ms",
                               (unsigned) session->context->handshake_ms);
        else /* a client that asks again at once is served without a turn of the loop in between */
                while (n_packets < max_packets && session->outbox.n_entries == 0 && session_read(session))
                        n_packets++;
        session_update_events(session, /* again= */ false);
}

static void session_on_room(evutil_socket_t fd, short events, void *userdata) {
        struct session *session = userdata;
        unsigned n_packets = 0, max_packets = packets_per_turn(session);

        session_check(session, outbox_flush(&session->outbox));
        while (!session->ended && session->outbox.n_entries <= MAX_PENDING && n_packets < max_packets && session_read(session))
                n_packets++;
        if (n_packets < max_packets && (events & EV_CLOSED))
                session_end(session); /* it cannot have anything more to read or to say */
        session_update_events(session, n_packets == max_packets);
}

static void session_on_changed(void *userdata, int r) {
        struct session *session = userdata;

        session_check(session, r);
        session_update_events(session, /* again= */ false);
        if (session->lingering && session->outbox.n_fds_unread == 0)
                event_active(session->on_ended, EV_TIMEOUT, 0);
}

static void session_on_ended(evutil_socket_t fd, short events, void *userdata) {
        struct session *session = userdata;

        session_cancel_all(session);
        outbox_clear(&session->outbox);
        if (!session->lingering)
                (void) shutdown(session->fd, SHUT_RDWR);
        (void) outbox_flush(&session->outbox);
        session->lingering = session->outbox.n_fds_unread > 0;
        if (!session->lingering)
                session->context->ended(session->context, session);
}

/* Being made and unmade */

static int session_add_events(struct session *session) {
        struct event_base *base = session->context->base;
        uint64_t handshake_ms = session->context->handshake_ms;
        struct timeval handshake = {.tv_sec = (time_t) (handshake_ms / 1000),
                                    .tv_usec = (suseconds_t) (handshake_ms % 1000) * 1000};

        session->on_packet = event_new(base, session->fd, EV_READ | EV_PERSIST, session_on_packet, session);
        session->on_room =
                event_new(base, session->fd, EV_READ | EV_WRITE | EV_CLOSED | EV_ET | EV_PERSIST, session_on_room, session);
        session->on_ended = event_new(base, -1, 0, session_on_ended, session);
        if (!session->on_packet || !session->on_room || !session->on_ended || event_add(session->on_packet, &handshake) < 0)
                return -ENOMEM;
        return 0;
}

void session_refuse_waiting(struct session *session, int error, const char *text) {
        struct session_request *request;

        TAILQ_FOREACH (request, &session->requests, link) {
                broker_count_refused(session->context->broker);
                send_last_words(session->fd, request->request_id, error, text);
        }
}

/* Not being told its groups is being in none. */
static int session_admit(struct session *session, const char *or_what) {
        const struct config *config = session->context->config;
        _cleanup_(identity_groups_done) struct identity_groups groups = {};
        char text[WIRE_MAX_TEXT_BYTES + 1];

        if (!config->allow_groups.all || config->n_group_quotas > 0)
                (void) identity_read_groups(session->fd, &groups);
        if (access_may_connect(config, &session->identity, &groups))
                return config->n_group_quotas > 0 ? quota_join(session->context->quota, session->identity.uid, groups.gids, groups.n) : 0;
        (void) snprintf(text, sizeof(text), "uid %u is not named by AllowUsers=, and none of its groups by AllowGroups=",
                        (unsigned) session->identity.uid);
        session_refuse_waiting(session, -EACCES, text);
        send_last_words(session->fd, 0, -EACCES, text);
        session_log(session, LOG_LIMIT_REFUSALS, LOG_ID_CLIENT_REFUSED, or_what, text);
        return -EACCES;
}

/* The client is told what it cannot do about it and what its administrator can. */
static int session_charge(struct session *session) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        uid_t uid = session->identity.uid;
        bool may_end_crowds = access_is_administrator(session->context->config, uid);
        int r = may_end_crowds ? quota_charge_administrator(session->context->quota, uid) :
                                 quota_charge(session->context->quota, uid, QUOTA_CONNECTIONS, 1);
        uint64_t limit = quota_limit_all(session->context->quota, QUOTA_CONNECTIONS);

        session->charged = r >= 0;
        if (r >= 0)
                return 0;
        if (r == -EDQUOT)
                (void) limit_explain(session->context->quota, uid, QUOTA_CONNECTIONS, text);
        else if (r == -EUSERS)
                (void) snprintf(text, sizeof(text), "there are too many connections of all users (%s)",
                                may_end_crowds || limit < session->context->config->max_connections ?
                                        "LimitNOFILE= of hugezerod, or ulimit -n, leaves room for no more" : "MaxConnections=");
        else
                (void) snprintf(text, sizeof(text), "hugezerod is out of memory for another connection");
        send_last_words(session->fd, 0, r, text);
        session_log(session, LOG_LIMIT_REFUSALS, LOG_ID_CLIENT_REFUSED, "Refusing a connection to", text);
        return r;
}

int session_new(struct session_context *context, int fd, struct session **ret_session) {
        struct session *session = malloc(sizeof(*session));
        int r;

        if (!session) {
                (void) safe_close(fd);
                return -ENOMEM;
        }
        *session = (struct session){.context = context, .fd = fd};
        TAILQ_INIT(&session->requests);
        TAILQ_INSERT_TAIL(&context->sessions, session, link);
        context->n_sessions++;
        trim_count_new(&context->trim);
        outbox_init(&session->outbox, &context->outboxes, fd, 0, session_on_changed, session);
        if (fdpass_may_arrive(fd)) {
                session->closing = malloc(sizeof(*session->closing));
                if (!session->closing) {
                        (void) session_free(session);
                        return -ENOMEM;
                }
        }
        r = identity_read(fd, &session->identity);
        if (r >= 0) {
                session->outbox.uid = session->identity.uid;
                r = session_admit(session, "Refusing a connection to");
                if (r >= 0)
                        r = session_charge(session);
        }
        if (r >= 0)
                r = session_add_events(session);
        if (r < 0) {
                (void) session_free(session);
                return r;
        }
        *ret_session = session;
        return 0;
}

struct session *session_free(struct session *session) {
        if (!session)
                return NULL;
        struct session_context *context = session->context;

        session->ended = true;
        session_cancel_all(session);
        outbox_done(&session->outbox);
        if (session->on_packet)
                event_free(session->on_packet);
        if (session->on_room)
                event_free(session->on_room);
        if (session->on_ended)
                event_free(session->on_ended);
        session_close_socket(session);
        free(session->closing);
        identity_done(&session->identity);
        TAILQ_REMOVE(&context->sessions, session, link);
        context->n_sessions--;
        trim_count_freed(&context->trim);
        free(session);
        return NULL;
}

void session_context_admit_again(struct session_context *context) {
        struct session *session;

        TAILQ_FOREACH (session, &context->sessions, link)
                if (!session->ended && session_admit(session, "Cutting off") == -EACCES)
                        session_end(session);
}

int session_context_init(struct session_context *context, struct event_base *base, struct broker *broker, struct quota *quota,
                         const struct config *config, struct worker_pool *closer,
                         void (*ended)(struct session_context *context, struct session *session)) {
        *context = (struct session_context){
                .base = base,
                .broker = broker,
                .quota = quota,
                .config = config,
                .closer = closer,
                .ended = ended,
                .handshake_ms = SESSION_HANDSHAKE_MS,
        };
        TAILQ_INIT(&context->sessions);
        context->second = event_new(base, -1, 0, on_second, context);
        if (!context->second || trim_init(&context->trim, base) < 0)
                return -ENOMEM;
        return outbox_group_init(&context->outboxes, base, broker, quota);
}

void session_context_done(struct session_context *context) {
        assert(TAILQ_EMPTY(&context->sessions));
        if (context->second) { /* else it was never begun */
                quota_end_second(context->quota);
                event_free(context->second);
        }
        trim_done(&context->trim);
        outbox_group_done(&context->outboxes);
}
