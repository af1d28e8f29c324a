/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Figures by HTTP.
 *
 * Whoever can connect is a stranger and may be hostile, and this is the thread that serves clients. So everything has a limit:
 * connections, their whole life, what is read ahead, and (because the place of a connection is given away by a timer only) how
 * many there are in a second. One connection is one request.
 */

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "broker.h"
#include "cleanup.h"
#include "clock.h"
#include "fdpass.h"
#include "figures.h"
#include "log.h"
#include "scrape-format.h"
#include "scrape.h"
#include "server.h"
#include "warm.h"

#define MAX_CONNECTIONS 8      /* chosen: two monitoring systems and a few people */
#define LIFE_MS 5000           /* chosen: an answer takes milliseconds */
#define IDLE_S 2               /* chosen */
#define SWEEP_MS 250           /* chosen: with MAX_CONNECTIONS 32 requests a second */
#define MAX_HEADER_BYTES 4096  /* chosen: Prometheus sends 350 */
#define MAX_BODY_BYTES 4096    /* chosen: nobody reads it, but who sends a little more than GET is told why that is refused */
#define MAX_UNREAD_BYTES 16384 /* chosen: evhttp leaves in here what comes behind a request */

struct connection {
        struct bufferevent *stream; /* a reference of ours; NULL: free place */
        uint64_t since_ms;
};

struct scrape {
        struct broker *broker;
        struct server *server;
        struct evhttp *http;
        struct evconnlistener *listeners[MAX_METRICS_SOCKETS]; /* evhttp's */
        size_t n_listeners;
        struct event *sweep;             /* while there are connections, or accepting has failed */
        struct connection connections[MAX_CONNECTIONS];
};

/* libevent has no argument of ours for errors of a listener whose connections are evhttp's. All listeners are of this one. */
static struct scrape *scrape_of_listener;

/* Connections */

static void pause_accepting(struct scrape *scrape) {
        for (size_t i = 0; i < scrape->n_listeners; i++)
                (void) evconnlistener_disable(scrape->listeners[i]);
        (void) event_add(scrape->sweep, &(struct timeval){.tv_usec = SWEEP_MS * 1000});
}

/* evhttp has let go of it: bufferevent_free() takes the callbacks away, and our reference kept it from being closed. */
static bool is_over(struct bufferevent *stream) {
        bufferevent_event_cb on_event;

        bufferevent_getcb(stream, NULL, NULL, &on_event, NULL);
        return !on_event;
}

static void on_sweep(evutil_socket_t fd, short what, void *userdata) {
        struct scrape *scrape = userdata;
        uint64_t now_ms = clock_ms();
        unsigned n_open = 0;

        for (struct connection *at = scrape->connections; at < scrape->connections + MAX_CONNECTIONS; at++) {
                if (!at->stream)
                        continue;
                if (is_over(at->stream)) {
                        (void) bufferevent_decref(at->stream);
                        at->stream = NULL;
                        continue;
                }
                n_open++;
                /* evhttp hears of it as of a peer that hangs up */
                if (now_ms - at->since_ms >= LIFE_MS)
                        (void) shutdown(bufferevent_getfd(at->stream), SHUT_RDWR);
        }
        for (size_t i = 0; n_open < MAX_CONNECTIONS && i < scrape->n_listeners; i++)
                (void) evconnlistener_enable(scrape->listeners[i]);
        if (n_open > 0)
                (void) event_add(scrape->sweep, &(struct timeval){.tv_usec = SWEEP_MS * 1000});
}

static struct bufferevent *on_connection(struct event_base *base, void *userdata) {
        struct scrape *scrape = userdata;
        struct bufferevent *stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
        unsigned n_free = 0;

        if (!stream)
                return NULL; /* evhttp tries for itself, and drops the connection */
        bufferevent_setwatermark(stream, EV_READ, 0, MAX_UNREAD_BYTES);
        for (struct connection *at = scrape->connections; at < scrape->connections + MAX_CONNECTIONS; at++) {
                if (at->stream)
                        continue;
                if (n_free++ > 0)
                        continue;
                bufferevent_incref(stream);
                *at = (struct connection){.stream = stream, .since_ms = clock_ms()};
        }
        assert(n_free > 0);
        if (n_free == 1)
                pause_accepting(scrape);
        else if (!event_pending(scrape->sweep, EV_TIMEOUT, NULL))
                (void) event_add(scrape->sweep, &(struct timeval){.tv_usec = SWEEP_MS * 1000});
        return stream;
}

/* Out of descriptors: the scraper waits in the backlog. Clients' connections say so in the log. */
static void on_accept_error(struct evconnlistener *listener, void *userdata) {
        pause_accepting(scrape_of_listener);
}

/* Answers */

static int write_figures(struct scrape *scrape, enum metrics_format format, FILE *stream) {
        struct hugezero_daemon_info daemon;
        struct hugezero_pool_info *pools;
        struct wire_d_status status;
        struct wire_d_pools rows;
        size_t n_pools = 0;

        broker_fill_status(scrape->broker, &status);
        status.n_clients = server_n_sessions(scrape->server);
        status.n_fds_in_flight = server_n_fds_in_flight(scrape->server);
        figures_of_status(&status, &daemon);
        pools = calloc(status.n_pool_rows + 1, sizeof(*pools));
        if (!pools)
                return -ENOMEM;
        do {
                broker_fill_pools(scrape->broker, (uint32_t) n_pools, &rows);
                for (uint32_t i = 0; i < rows.n_rows; i++)
                        figures_of_pool(&rows.rows[i], &pools[n_pools++]);
        } while (rows.n_rows > 0 && n_pools < status.n_pool_rows);
        metrics_write(stream, format, &daemon, pools, n_pools);
        free(pools);
        return 0;
}

static void free_text(const void *data, size_t n_bytes, void *text) {
        free(text);
}

static int make_answer(struct scrape *scrape, enum metrics_format format, struct evbuffer *buffer) {
        char *text = NULL;
        size_t n_bytes;
        FILE *stream = open_memstream(&text, &n_bytes);
        int r = stream ? write_figures(scrape, format, stream) : -ENOMEM;

        if (stream && fclose(stream) != 0)
                r = -ENOMEM;
        if (r >= 0 && evbuffer_add_reference(buffer, text, n_bytes, free_text, text) >= 0)
                return 0;
        free(text);
        return -ENOMEM;
}

static bool is_head(struct evhttp_request *request) {
        return evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;
}

/* With what is in the output buffer. libevent 2.1 would send that for HEAD as well. */
static void answer(struct evhttp_request *request, int code, const char *reason, const char *type) {
        struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
        struct evbuffer *buffer = evhttp_request_get_output_buffer(request);
        char n_bytes[24];

        (void) evhttp_add_header(headers, "Connection", "close");
        (void) evhttp_add_header(headers, "Content-Type", type);
        if (is_head(request)) {
                (void) snprintf(n_bytes, sizeof(n_bytes), "%zu", evbuffer_get_length(buffer));
                (void) evhttp_add_header(headers, "Content-Length", n_bytes);
                (void) evbuffer_drain(buffer, evbuffer_get_length(buffer));
        }
        evhttp_send_reply(request, code, reason, NULL);
}

static void refuse(struct evhttp_request *request, int code, const char *reason, const char *text) {
        (void) evbuffer_add_printf(evhttp_request_get_output_buffer(request), "%s\n", text);
        answer(request, code, reason, "text/plain; charset=utf-8");
}

static void on_request(struct evhttp_request *request, void *userdata) {
        enum metrics_format format =
                scrape_format(evhttp_find_header(evhttp_request_get_input_headers(request), "Accept"));

        if (evhttp_request_get_command(request) != EVHTTP_REQ_GET && !is_head(request)) {
                (void) evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "GET, HEAD");
                refuse(request, HTTP_BADMETHOD, "Method Not Allowed", "Only GET and HEAD are answered");
        } else if (make_answer(userdata, format, evhttp_request_get_output_buffer(request)) < 0)
                refuse(request, HTTP_INTERNAL, "Internal Server Error", "out of memory");
        else
                answer(request, HTTP_OK, "OK",
                       format == METRICS_OPENMETRICS ? METRICS_TYPE_OPENMETRICS : METRICS_TYPE_PROMETHEUS);
}

static void on_other_request(struct evhttp_request *request, void *userdata) {
        refuse(request, HTTP_NOTFOUND, "Not Found", "Only /metrics is here");
}

/* The listeners */

static int socket_option(int fd, int option) {
        int value;
        socklen_t n_bytes = sizeof(value);

        return getsockopt(fd, SOL_SOCKET, option, &value, &n_bytes) < 0 ? negative_errno() : value;
}

/* Why the socket is not served; NULL: it can be. */
static const char *objection(int fd) {
        int domain = socket_option(fd, SO_DOMAIN), flags = fcntl(fd, F_GETFL);

        if ((domain != AF_UNIX && domain != AF_INET && domain != AF_INET6) || socket_option(fd, SO_TYPE) != SOCK_STREAM ||
            socket_option(fd, SO_ACCEPTCONN) != 1)
                return "it is no listening stream socket; its unit needs ListenStream= and Accept=no";
        if (domain == AF_UNIX && fdpass_refuse_incoming(fd) < 0)
                return "on a Unix socket this kernel cannot refuse descriptors, with which a scraper could stop the daemon "
                       "(Linux "
                       "6.16 can); use a TCP socket";
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
                return strerror(errno);
        return NULL;
}

static int set_up(struct scrape *scrape, struct event_base *base) {
        scrape->sweep = event_new(base, -1, 0, on_sweep, scrape);
        scrape->http = evhttp_new(base);
        if (!scrape->sweep || !scrape->http)
                return -ENOMEM;
        evhttp_set_allowed_methods(scrape->http, UINT16_MAX); /* all: on_request() refuses, and says what is answered */
        evhttp_set_max_headers_size(scrape->http, MAX_HEADER_BYTES);
        evhttp_set_max_body_size(scrape->http, MAX_BODY_BYTES);
        evhttp_set_timeout(scrape->http, IDLE_S);
        evhttp_set_bevcb(scrape->http, on_connection, scrape);
        evhttp_set_gencb(scrape->http, on_other_request, scrape);
        scrape_of_listener = scrape;
        return evhttp_set_cb(scrape->http, "/metrics", on_request, scrape) < 0 ? -ENOMEM : 0;
}

static int listen_on(struct scrape *scrape, struct event_base *base, int *fd) {
        struct evconnlistener *listener;

        listener = evconnlistener_new(base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, /* backlog= */ 0, *fd);
        if (!listener)
                return -ENOMEM;
        (void) take_fd(fd);
        if (!evhttp_bind_listener(scrape->http, listener)) {
                evconnlistener_free(listener);
                return -ENOMEM;
        }
        evconnlistener_set_error_cb(listener, on_accept_error);
        scrape->listeners[scrape->n_listeners++] = listener;
        return 0;
}

int scrape_new(struct event_base *base, int fds[], size_t n_fds, struct broker *broker, struct server *server,
               struct scrape **ret_scrape) {
        struct scrape *scrape = calloc(1, sizeof(*scrape));
        int r = scrape ? set_up(scrape, base) : -ENOMEM;

        for (size_t i = 0; i < n_fds && r >= 0; i++) {
                const char *why_not = objection(fds[i]);

                if (why_not)
                        log_warning(LOG_ID_NO_METRICS, LOG_NO_FIELDS,
                                    "metrics are not served on a socket that was passed for them, ignoring: %s", why_not);
                else
                        r = listen_on(scrape, base, &fds[i]);
        }
        if (r >= 0 && scrape->n_listeners > 0) {
                scrape->broker = broker;
                scrape->server = server;
        } else
                scrape = scrape_free(scrape);
        if (r >= 0)
                *ret_scrape = scrape;
        return r;
}

struct scrape *scrape_free(struct scrape *scrape) {
        if (!scrape)
                return NULL;
        if (scrape->http)
                evhttp_free(scrape->http);
        for (struct connection *at = scrape->connections; at < scrape->connections + MAX_CONNECTIONS; at++)
                if (at->stream)
                        (void) bufferevent_decref(at->stream);
        if (scrape->sweep)
                event_free(scrape->sweep);
        scrape_of_listener = NULL;
        free(scrape);
        return NULL;
}
