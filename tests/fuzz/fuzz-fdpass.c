/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A script of sends and receives on a real socket pair, next to a model of what must come out of it. Three bytes are a step:
 * what to do, and two small numbers. At the end no descriptor is open that was not open before.
 */

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cleanup.h"
#include "fdpass.h"
#include "fuzz.h"

#define MAX_STEPS 32 /* chosen: a queue of a few packets shows all there is */

enum { STEP_SEND, STEP_SEND_RAW, STEP_RECEIVE, STEP_LOOK, STEP_RECEIVE_LIMITED, STEP_CREDENTIALS, _STEP_MAX };

struct packet {
        size_t n_bytes, n_fds;
        uint8_t first_byte;
};

struct model {
        int sockets[2]; /* sent on the first, received on the second */
        struct packet queue[MAX_STEPS];
        size_t head, tail;
        bool credentials;
};

static int count_fds(void) {
        DIR *dir = opendir("/proc/self/fd");
        int n = 0;

        CHECK(dir);
        while (readdir(dir))
                n++;
        closedir(dir);
        return n;
}

static void step_send(struct model *model, uint8_t n_bytes, uint8_t n_fds) {
        struct packet packet = {
                .n_bytes = 1 + n_bytes, .n_fds = n_fds % (WIRE_MAX_FDS + 1), .first_byte = (uint8_t) model->tail};
        uint8_t buffer[256] = {packet.first_byte};
        int fds[WIRE_MAX_FDS];

        for (size_t i = 0; i < packet.n_fds; i++)
                fds[i] = model->sockets[i % 2]; /* a socket that is in flight to itself, too */
        int r = fdpass_send(model->sockets[0], buffer, packet.n_bytes, fds, packet.n_fds);
        CHECK(r == 0 || r == -EAGAIN || r == -ETOOMANYREFS);
        if (r == 0)
                model->queue[model->tail++] = packet;
}

/* What fdpass_send() never does: an empty packet, and descriptors in two blocks. */
static void step_send_raw(struct model *model, uint8_t n_bytes, uint8_t n_fds) {
        struct packet packet = {.n_bytes = n_bytes, .n_fds = 1 + n_fds % 8, .first_byte = (uint8_t) model->tail};
        uint8_t buffer[256] = {packet.first_byte};
        union {
                struct cmsghdr align;
                uint8_t bytes[256];
        } control = {};
        struct iovec iov = {.iov_base = buffer, .iov_len = packet.n_bytes};
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = CMSG_SPACE(sizeof(int)) + CMSG_SPACE((packet.n_fds - 1) * sizeof(int))};
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

        *cmsg = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
        memcpy(CMSG_DATA(cmsg), &model->sockets[0], sizeof(int));
        cmsg = CMSG_NXTHDR(&msg, cmsg);
        *cmsg = (struct cmsghdr){
                .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN((packet.n_fds - 1) * sizeof(int))};
        for (size_t i = 0; i + 1 < packet.n_fds; i++)
                memcpy(CMSG_DATA(cmsg) + i * sizeof(int), &model->sockets[i % 2], sizeof(int));
        if (sendmsg(model->sockets[0], &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
                model->queue[model->tail++] = packet;
        else
                CHECK(errno == EAGAIN || errno == ETOOMANYREFS);
}

/* The result that the header promises for the packet at the head of the queue. */
static ssize_t expected(const struct model *model, size_t buffer_bytes, size_t max_fds, size_t room_fds) {
        const struct packet *packet = &model->queue[model->head];

        if (model->head == model->tail)
                return -EAGAIN;
        if (packet->n_bytes > buffer_bytes)
                return -EMSGSIZE;
        if (packet->n_fds > room_fds)
                return -EMFILE;
        return packet->n_fds > max_fds && packet->n_bytes > 0 ? -EBADMSG : (ssize_t) packet->n_bytes;
}

static void check_fds(const int *fds, size_t n_fds) {
        for (size_t i = 0; i < n_fds; i++) {
                CHECK(fcntl(fds[i], F_GETFD) == FD_CLOEXEC);
                (void) safe_close(fds[i]);
        }
}

static void step_receive(struct model *model, uint8_t buffer_bytes, uint8_t max_fds, size_t room_fds) {
        const struct packet *packet = &model->queue[model->head];
        uint8_t *buffer = malloc(1 + buffer_bytes);
        int *fds = max_fds ? malloc(max_fds * sizeof(int)) : NULL;
        size_t n_fds = SIZE_MAX;

        CHECK(buffer && (fds || !max_fds));
        ssize_t wanted = expected(model, 1 + (size_t) buffer_bytes, max_fds, room_fds);
        ssize_t n = fdpass_receive(model->sockets[1], buffer, 1 + (size_t) buffer_bytes, fds, max_fds, &n_fds);
        CHECK(n == wanted);
        if (n < 0)
                CHECK(n_fds == SIZE_MAX);
        else {
                CHECK(n_fds == (n > 0 ? packet->n_fds : 0));
                CHECK(n == 0 || buffer[0] == packet->first_byte);
                check_fds(fds, n_fds);
        }
        if (n != -EAGAIN)
                model->head++;
        free(buffer);
        free(fds);
}

/* Looking takes nothing. Where credentials are asked for, each packet has control data. */
static void step_look(struct model *model) {
        int expected_result = -EAGAIN;

        if (model->head != model->tail)
                expected_result = model->queue[model->head].n_fds > 0 || model->credentials;
        CHECK(fdpass_next_has_fds(model->sockets[1]) == expected_result);
}

/* With room for @room_fds descriptors in this process. The limit is on the number, and there may be gaps below it. */
static void step_receive_limited(struct model *model, uint8_t room_fds, uint8_t max_fds) {
        struct rlimit before, now;
        int limit = 0;

        for (int n_free = 0; n_free < room_fds || fcntl(limit, F_GETFD) >= 0; limit++)
                n_free += fcntl(limit, F_GETFD) < 0;
        CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
        now = before;
        now.rlim_cur = (rlim_t) limit;
        CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
        step_receive(model, UINT8_MAX, max_fds, room_fds);
        CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

static void step(struct model *model, const uint8_t bytes[3]) {
        int on = bytes[1] & 1;

        switch (bytes[0] % _STEP_MAX) {
        case STEP_SEND:
                step_send(model, bytes[1], bytes[2]);
                break;
        case STEP_SEND_RAW:
                step_send_raw(model, bytes[1], bytes[2]);
                break;
        case STEP_RECEIVE:
                step_receive(model, bytes[1], bytes[2], SIZE_MAX);
                break;
        case STEP_LOOK:
                step_look(model);
                break;
        case STEP_RECEIVE_LIMITED:
                step_receive_limited(model, bytes[1], bytes[2]);
                break;
        case STEP_CREDENTIALS:
                CHECK(setsockopt(model->sockets[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0);
                model->credentials = on;
                break;
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
        struct model model = {};
        int n_before = count_fds();

        CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, model.sockets) == 0);
        for (size_t i = 0; i < MAX_STEPS && 3 * (i + 1) <= n_bytes; i++)
                step(&model, data + 3 * i);
        while (model.head != model.tail)
                step_receive(&model, UINT8_MAX, WIRE_MAX_FDS, SIZE_MAX);
        (void) safe_close(model.sockets[0]);
        (void) safe_close(model.sockets[1]);
        CHECK(count_fds() == n_before);
        return 0;
}
