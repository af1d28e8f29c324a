/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "fake-daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cleanup.h"
#include "fdpass.h"

struct client {
        struct fake_daemon *fake;
        unsigned idx;
};

static void *serve_client(void *userdata) {
        struct client *client = userdata;
        struct fake_daemon *fake = client->fake;

        fake->script(fake, fake->client_fds[client->idx]);
        (void) pthread_mutex_lock(&fake->lock);
        fake->client_fds[client->idx] = safe_close(fake->client_fds[client->idx]);
        (void) pthread_mutex_unlock(&fake->lock);
        free(client);
        return NULL;
}

static void *serve(void *userdata) {
        struct fake_daemon *fake = userdata;
        int fd;

        while ((fd = accept4(fake->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
                struct client *client = malloc(sizeof(*client));
                must(client && fake->n_clients < FAKE_MAX_CLIENTS);
                (void) pthread_mutex_lock(&fake->lock);
                *client = (struct client){fake, fake->n_clients++};
                fake->client_fds[client->idx] = fd;
                must(pthread_create(&fake->clients[client->idx], NULL, serve_client, client) == 0);
                (void) pthread_mutex_unlock(&fake->lock);
        }
        return NULL;
}

void fake_start(struct fake_daemon *fake, fake_script_fn script, void *data) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};

        *fake = (struct fake_daemon){.folder = "/tmp/hugezero-test-XXXXXX", .script = script, .data = data};
        must(mkdtemp(fake->folder));
        (void) snprintf(fake->path, sizeof(fake->path), "%s/socket", fake->folder);
        (void) strcpy(address.sun_path, fake->path);
        must(pthread_mutex_init(&fake->lock, NULL) == 0);
        fake->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        must(fake->listener >= 0);
        must(bind(fake->listener, (struct sockaddr *) &address, sizeof(address)) == 0);
        must(listen(fake->listener, 8) == 0);
        must(pthread_create(&fake->thread, NULL, serve, fake) == 0);
}

void fake_stop(struct fake_daemon *fake) {
        must(shutdown(fake->listener, SHUT_RDWR) == 0);
        must(pthread_join(fake->thread, NULL) == 0);
        (void) pthread_mutex_lock(&fake->lock);
        for (unsigned i = 0; i < fake->n_clients; i++)
                if (fake->client_fds[i] >= 0)
                        (void) shutdown(fake->client_fds[i], SHUT_RDWR);
        (void) pthread_mutex_unlock(&fake->lock);
        for (unsigned i = 0; i < fake->n_clients; i++)
                must(pthread_join(fake->clients[i], NULL) == 0);
        fake->listener = safe_close(fake->listener);
        (void) unlink(fake->path);
        (void) rmdir(fake->folder);
        (void) pthread_mutex_destroy(&fake->lock);
}

static bool wait_for(int fd, short events) {
        struct pollfd pollfd = {.fd = fd, .events = events};

        return poll(&pollfd, 1, -1) == 1;
}

bool fake_receive(int fd, uint16_t op, struct wire_message *ret_message) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];
        size_t n_fds;

        must(wait_for(fd, POLLIN));
        ssize_t n = fdpass_receive(fd, buffer, sizeof(buffer), NULL, 0, &n_fds);
        if (n == 0 || n == -ECONNRESET)
                return false;
        must(n > 0);
        must(wire_decode(buffer, (size_t) n, WIRE_TO_DAEMON, ret_message) == 0);
        must(op == 0 || ret_message->op == op);
        return true;
}

void fake_send(int fd, const struct wire_message *message, const int *fds, size_t n_fds) {
        uint8_t buffer[WIRE_MAX_MESSAGE_BYTES];

        int n = wire_encode(message, buffer, sizeof(buffer));
        must(n > 0);
        for (;;) {
                int r = fdpass_send(fd, buffer, (size_t) n, fds, n_fds);
                if (r != -EAGAIN) { /* else the client is slow, and may be gone */
                        must(r == 0 || r == -EPIPE || r == -ECONNRESET);
                        return;
                }
                must(wait_for(fd, POLLOUT));
        }
}

bool fake_greet(int fd) {
        struct wire_message hello, answer;

        if (!fake_receive(fd, WIRE_C_HELLO, &hello))
                return false;
        must(hello.c_hello.version_min == WIRE_VERSION && hello.c_hello.version_max == WIRE_VERSION);
        answer = (struct wire_message){
                .op = WIRE_D_HELLO,
                .request_id = hello.request_id,
                .d_hello =
                        {
                                .magic = WIRE_MAGIC,
                                .version = WIRE_VERSION,
                                .max_items = WIRE_MAX_ITEMS,
                                .max_fds = WIRE_MAX_FDS,
                                .max_message_bytes = WIRE_MAX_MESSAGE_BYTES,
                        },
        };
        fake_send(fd, &answer, NULL, 0);
        return true;
}

void fake_refuse(int fd, uint32_t request_id, int error, const char *text) {
        struct wire_message message = {
                .op = WIRE_D_REFUSED,
                .request_id = request_id,
                .d_refused = {.error = error, .n_text_bytes = (uint16_t) strlen(text)},
        };

        (void) strcpy(message.d_refused.text, text);
        fake_send(fd, &message, NULL, 0);
}

int fake_memfd(uint64_t bytes) {
        int fd = memfd_create("hugezero-test", MFD_CLOEXEC);

        must(fd >= 0 && ftruncate(fd, (off_t) bytes) == 0);
        return fd;
}

int fake_hugetlb_memfd(uint64_t bytes) {
        int fd = memfd_create("hugezero-test", MFD_CLOEXEC | MFD_HUGETLB | MFD_HUGE_2MB);

        if (fd >= 0 && fallocate(fd, 0, 0, (off_t) bytes) == 0)
                return fd;
        int r = negative_errno();
        (void) safe_close(fd);
        return r;
}

void fake_grant(int fd, uint32_t request_id, uint64_t grant_id, const int *fds, size_t n_fds, uint64_t bytes,
                uint8_t page_shift) {
        for (size_t first = 0; first < n_fds; first += WIRE_MAX_FDS) {
                size_t n = n_fds - first < WIRE_MAX_FDS ? n_fds - first : WIRE_MAX_FDS;
                struct wire_message message = {
                        .op = WIRE_D_GRANT,
                        .request_id = request_id,
                        .d_grant =
                                {
                                        .grant_id = grant_id,
                                        .n_extents_total = (uint32_t) n_fds,
                                        .first_extent = (uint32_t) first,
                                        .n_extents = (uint16_t) n,
                                },
                };

                for (size_t i = 0; i < n; i++)
                        message.d_grant.extents[i] = (struct wire_extent){.bytes = bytes, .page_shift = page_shift};
                fake_send(fd, &message, fds + first, n);
        }
}
