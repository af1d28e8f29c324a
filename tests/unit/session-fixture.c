/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "session-fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "fdpass.h"
#include "reload.h"

/* The broker */

struct grant {
        uint64_t id;
        uint32_t n_extents, n_sent;
        int fds[];
};

/* The size of the file names its position. */
static struct grant *grant_new(struct broker *broker, uint32_t n_extents) {
        struct grant *grant = malloc(sizeof(*grant) + n_extents * sizeof(int));

        assert_non_null(grant);
        *grant = (struct grant){.id = ++broker->last_grant_id, .n_extents = n_extents};
        for (uint32_t i = 0; i < n_extents; i++) {
                grant->fds[i] = memfd_create("grant", MFD_CLOEXEC);
                assert_true(grant->fds[i] >= 0);
                assert_int_equal(ftruncate(grant->fds[i], i + 1), 0);
        }
        broker->n_grants++;
        return grant;
}

static void grant_close(struct broker *broker, struct grant *grant, uint32_t n_extents) {
        for (uint32_t i = 0; i < n_extents; i++)
                close(grant->fds[grant->n_sent + i]);
        grant->n_sent += n_extents;
        if (grant->n_sent < grant->n_extents)
                return;
        broker->n_grants--;
        free(grant); /* at once, so that a session that looks at it again is found out */
}

void broker_submit(struct broker *broker, struct request *request) {
        uint32_t n_extents = (uint32_t) (request->acquire->items[0].bytes >> 21);

        assert_non_null(request->identity);
        switch (request->acquire->on_miss) {
        case WIRE_MISS_FAIL:
                request->granted(request, grant_new(broker, n_extents));
                return;
        case WIRE_MISS_WAIT:
                broker->n_waiting++;
                TAILQ_INSERT_TAIL(&broker->waiting, request, link);
                return;
        default:
                request->refused(request, -ENOSPC, "nothing is left");
        }
}

void broker_cancel(struct broker *broker, struct request *request) {
        TAILQ_REMOVE(&broker->waiting, request, link);
        broker->n_waiting--;
        broker->n_cancelled++;
}

void broker_count_refused(struct broker *broker) {
        broker->n_refused++;
}

uint64_t broker_grant_id(const struct grant *grant) {
        return grant->id;
}

unsigned broker_grant_next(struct grant *grant, unsigned max_fds, struct wire_d_grant *ret_message, int ret_fds[WIRE_MAX_FDS]) {
        uint32_t n = grant->n_extents - grant->n_sent < max_fds ? grant->n_extents - grant->n_sent : max_fds;

        ret_message->grant_id = grant->id;
        ret_message->n_extents_total = grant->n_extents;
        ret_message->first_extent = grant->n_sent;
        ret_message->n_extents = (uint16_t) n;
        ret_message->reserved = 0;
        ret_message->reserved2 = 0;
        for (uint32_t i = 0; i < n; i++) {
                ret_message->extents[i] = (struct wire_extent){.bytes = 2 << 20, .page_shift = 21};
                ret_fds[i] = grant->fds[grant->n_sent + i];
        }
        return n;
}

void broker_grant_sent(struct broker *broker, struct grant *grant, unsigned n_extents) {
        broker->n_extents_sent += n_extents;
        grant_close(broker, grant, n_extents);
}

void broker_grant_abandon(struct broker *broker, struct grant *grant) {
        broker->n_abandoned++;
        grant_close(broker, grant, grant->n_extents - grant->n_sent);
}

int broker_mapped(struct broker *broker, const struct identity *identity, uint64_t grant_id) {
        broker->mapped_grant_id = grant_id;
        broker->n_mapped++;
        return -ENOENT;
}

int broker_release(struct broker *broker, const struct identity *identity, uint64_t grant_id, uint32_t extent) {
        return broker->release_result;
}

void broker_fill_status(const struct broker *broker, struct wire_d_status *ret_status) {
        *ret_status = (struct wire_d_status){.daemon_version = "1.2.3", .n_waiting = broker->n_waiting};
}

void broker_fill_pools(const struct broker *broker, uint32_t first_row, struct wire_d_pools *ret_pools) {
        ret_pools->n_rows_total = 7;
        ret_pools->first_row = first_row;
        ret_pools->n_rows = 0;
        ret_pools->reserved = 0;
}

void broker_fill_grants(const struct broker *broker, const struct identity *identity, const struct wire_c_grants *from,
                        struct wire_d_grants *ret_grants) {
        ret_grants->n_rows = 1;
        ret_grants->more = 0;
        ret_grants->rows[0] = (struct wire_grant_row){.grant_id = from->after_grant_id + 1,
                                                      .uid = identity->uid,
                                                      .page_shift = 21,
                                                      .state = WIRE_EXTENT_HELD,
                                                      .bytes = 2 << 20,
                                                      .pool = "p"};
}

/* The fixture */

static void on_ended(struct session_context *context, struct session *session) {
        struct fixture *fixture = (struct fixture *) ((char *) context - offsetof(struct fixture, context));

        fixture->n_ended++;
        session_free(session);
}

static struct fixture *fixture_new(void) {
        struct rlimit limit;
        struct fixture *fixture = calloc(1, sizeof(*fixture));

        assert_non_null(fixture);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        fixture->n_fds_before = count_fds();
        log_open(LOG_ERR);
        fixture->config = (struct config){
                .socket_gid = (gid_t) -1,
                .socket_mode = 0660,
                .max_connections = 100,
                .max_waiting = 1000,
                .max_fds_in_flight = 4 * 253,
                .quota = {.max_bytes = UINT64_MAX, .max_grants = UINT32_MAX, .max_connections = 20, .max_waiting = 100, .max_request_rate = UINT32_MAX},
                .allow_users.all = true,
                .allow_groups.all = true,
        };
        strcpy(fixture->folder, "/tmp/hugezero-test-XXXXXX");
        assert_non_null(mkdtemp(fixture->folder));
        snprintf(fixture->config.socket_path, sizeof(fixture->config.socket_path), "%s/s", fixture->folder);
        fixture->base = event_base_new();
        assert_int_equal(quota_new(&fixture->config, &fixture->quota), 0);
        assert_int_equal(worker_pool_new(fixture->base, NULL, -1, 1, &fixture->closer), 0);
        TAILQ_INIT(&fixture->broker.waiting);
        return fixture;
}

int fixture_setup_server(void **state) {
        struct fixture *fixture = fixture_new();

        assert_int_equal(server_new(fixture->base, &fixture->config, -EBADF, &fixture->broker, fixture->quota, fixture->closer,
                                    &fixture->server),
                         0);
        *state = fixture;
        return 0;
}

int fixture_setup_sessions(void **state) {
        struct fixture *fixture = fixture_new();

        assert_int_equal(session_context_init(&fixture->context, fixture->base, &fixture->broker, fixture->quota,
                                              &fixture->config, fixture->closer, on_ended),
                         0);
        *state = fixture;
        return 0;
}

int fixture_teardown(void **state) {
        struct fixture *fixture = *state;
        struct session *session;

        if (fixture->context.base) {
                while ((session = TAILQ_FIRST(&fixture->context.sessions)))
                        session_free(session);
                session_context_done(&fixture->context);
        }
        server_free(fixture->server);
        assert_int_equal(access(fixture->config.socket_path, F_OK), -1);
        worker_pool_free(fixture->closer);
        quota_free(fixture->quota);
        event_base_free(fixture->base);
        assert_int_equal(rmdir(fixture->folder), 0);
        assert_int_equal(fixture->broker.n_grants, 0);
        assert_int_equal(fixture->broker.n_waiting, 0);
        assert_int_equal(count_fds(), fixture->n_fds_before);
        free(fixture);
        return 0;
}

void fixture_settle(struct fixture *fixture) {
        /* Everything happens in this thread, so each round finds what the one before has caused; a chain is a few links long.
         */
        for (unsigned i = 0; i < 10; i++)
                assert_true(event_base_loop(fixture->base, EVLOOP_NONBLOCK) >= 0);
}

void fixture_wait_connections(struct fixture *fixture, uint64_t n_charged) {
        while (quota_used_all(fixture->quota, QUOTA_CONNECTIONS) != n_charged)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
}

void fixture_grant_waiting(struct fixture *fixture) {
        struct broker *broker = &fixture->broker;
        struct request *request = TAILQ_FIRST(&broker->waiting);

        assert_non_null(request);
        TAILQ_REMOVE(&broker->waiting, request, link);
        broker->n_waiting--;
        struct grant *grant = take_ptr(broker->ahead);
        request->granted(request, grant ? grant : grant_new(broker, (uint32_t) (request->acquire->items[0].bytes >> 21)));
}

void fixture_make_grant_ahead(struct fixture *fixture, uint32_t n_extents) {
        fixture->broker.ahead = grant_new(&fixture->broker, n_extents);
}

/* Clients */

int client_connect(const struct fixture *fixture) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        strcpy(address.sun_path, fixture->config.socket_path);
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        assert_true(fd >= 0);
        if (connect(fd, (struct sockaddr *) &address, sizeof(address)) >= 0)
                return fd;
        int r = negative_errno();
        close(fd);
        return r;
}

static int client_connect_by_hand(struct fixture *fixture) {
        struct session *session;
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        assert_int_equal(session_new(&fixture->context, fds[1], &session), 0);
        return fds[0];
}

int client_open(struct fixture *fixture) {
        int fd = fixture->server ? client_connect(fixture) : client_connect_by_hand(fixture);
        struct wire_message answer;

        assert_true(fd >= 0);
        client_send(fd, &(struct wire_message){.op = WIRE_C_HELLO,
                                               .request_id = 1000,
                                               .c_hello = {.magic = WIRE_MAGIC, .version_min = 1, .version_max = 1}});
        client_receive(fixture, fd, WIRE_D_HELLO, &answer);
        assert_int_equal(answer.request_id, 1000);
        return fd;
}

void client_send(int fd, const struct wire_message *message) {
        uint8_t packet[WIRE_MAX_MESSAGE_BYTES];
        int n_bytes = wire_encode(message, packet, sizeof(packet));

        assert_true(n_bytes > 0);
        assert_int_equal(fdpass_send(fd, packet, (size_t) n_bytes, NULL, 0), 0);
}

void client_send_op(int fd, uint16_t op, uint32_t request_id) {
        client_send(fd, &(struct wire_message){.op = op, .request_id = request_id});
}

void client_acquire(int fd, uint32_t request_id, uint32_t n_fds, enum wire_on_miss on_miss) {
        struct wire_message message = {
                .op = WIRE_C_ACQUIRE,
                .request_id = request_id,
                .c_acquire = {.on_miss = (uint8_t) on_miss,
                              .n_items = 1,
                              .timeout_ms = on_miss == WIRE_MISS_WAIT ? -1 : 0,
                              .items = {{.bytes = (uint64_t) n_fds << 21, .node = -1}}},
        };

        client_send(fd, &message);
}

ssize_t client_try_receive(int fd, struct wire_message *ret_message) {
        uint8_t packet[WIRE_MAX_MESSAGE_BYTES];
        int fds[WIRE_MAX_FDS];
        size_t n_fds;
        struct stat st;

        ssize_t n_bytes = fdpass_receive(fd, packet, sizeof(packet), fds, WIRE_MAX_FDS, &n_fds);
        if (n_bytes <= 0)
                return n_bytes;
        assert_int_equal(wire_decode(packet, (size_t) n_bytes, WIRE_TO_CLIENT, ret_message), 0);
        assert_int_equal(n_fds, ret_message->op == WIRE_D_GRANT ? ret_message->d_grant.n_extents : 0);
        for (size_t i = 0; i < n_fds; i++) {
                assert_int_equal(fstat(fds[i], &st), 0);
                assert_int_equal(st.st_size, ret_message->d_grant.first_extent + i + 1);
                close(fds[i]);
        }
        return n_bytes;
}

void client_receive(struct fixture *fixture, int fd, uint16_t op, struct wire_message *ret_message) {
        ssize_t n_bytes;

        while ((n_bytes = client_try_receive(fd, ret_message)) == -EAGAIN)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
        assert_true(n_bytes > 0);
        assert_int_equal(ret_message->op, op);
}

void client_expect_grant(struct fixture *fixture, int fd, uint32_t request_id, uint32_t first_extent, uint32_t n_extents) {
        struct wire_message message;

        client_receive(fixture, fd, WIRE_D_GRANT, &message);
        assert_int_equal(message.request_id, request_id);
        assert_int_equal(message.d_grant.first_extent, first_extent);
        assert_int_equal(message.d_grant.n_extents, n_extents);
}

void client_expect_refused(struct fixture *fixture, int fd, uint32_t request_id, int error, const char *word) {
        struct wire_message message;

        client_receive(fixture, fd, WIRE_D_REFUSED, &message);
        assert_int_equal(message.request_id, request_id);
        assert_int_equal(message.d_refused.error, error);
        if (!strstr(message.d_refused.text, word))
                fail_msg("\"%s\" is not in \"%s\"", word, message.d_refused.text);
}

void client_expect_closed(struct fixture *fixture, int fd) {
        struct wire_message message;
        ssize_t n_bytes;

        while ((n_bytes = client_try_receive(fd, &message)) == -EAGAIN)
                assert_true(event_base_loop(fixture->base, EVLOOP_ONCE) >= 0);
        assert_int_equal(n_bytes, 0);
}

void client_expect_nothing(struct fixture *fixture, int fd) {
        struct wire_message message;

        fixture_settle(fixture);
        assert_int_equal(client_try_receive(fd, &message), -EAGAIN);
}

int pipe_to_send(int *ret_write_fd) {
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
        *ret_write_fd = fds[1];
        return fds[0];
}

/* By hand, because fdpass_send() sends no empty packets. */
int send_with_fd(int fd, const void *packet, size_t n_bytes, int fd_to_send) {
        union {
                struct cmsghdr header;
                uint8_t bytes[CMSG_SPACE(sizeof(int))];
        } control = {.header = {.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))}};
        struct iovec iov = {.iov_base = (void *) packet, .iov_len = n_bytes};
        struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

        memcpy(CMSG_DATA(&control.header), &fd_to_send, sizeof(int));
        return sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? negative_errno() : 0;
}

int broker_reload(struct broker *broker, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        (void) snprintf(ret_text, WIRE_MAX_TEXT_BYTES + 1, "hugezerod.conf:3: no good");
        return -EINVAL;
}

int reload_resize(struct broker *broker, const char *pool, int node, uint64_t target_bytes, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        (void) snprintf(ret_text, WIRE_MAX_TEXT_BYTES + 1, "no pool %s", pool);
        return strcmp(pool, "vm") == 0 && node == -1 && target_bytes == 4096 ? 0 : -ENOENT;
}
