/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Talking to the service manager's fd store, from a thread that may wait for it. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <systemd/sd-daemon.h>

#include "cleanup.h"
#include "store.h"
#include "worker.h"

#define BARRIER_US 30000000 /* 30 s, chosen: a manager that is slower has other problems; the pages then are free a little later */

struct store_op {
        char name[STORE_NAME_BYTES];
        int fd; /* negative: remove */
        void (*done)(void *userdata);
        void *userdata;
        TAILQ_ENTRY(store_op) link;
};
TAILQ_HEAD(store_ops, store_op);

struct store {
        struct worker_pool *thread;
        struct job job;
        bool running, closing;
        unsigned n_queued; /* and being sent */
        struct store_ops queued;  /* loop thread */
        struct store_ops sending; /* the job's while it runs */
};

/* Worker thread */
static int send_batch(struct job *job) {
        struct store *store = (struct store *) ((char *) job - offsetof(struct store, job));
        bool removes = false;
        struct store_op *op;
        char text[64];

        TAILQ_FOREACH(op, &store->sending, link) {
                if (op->fd >= 0) {
                        /* FDPOLL=0: the manager would drop fds of its own accord on errors it polls for. */
                        (void) snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", op->name);
                        (void) sd_pid_notify_with_fds(0, 0, text, &op->fd, 1);
                } else {
                        (void) snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", op->name);
                        (void) sd_notify(0, text);
                        removes = true;
                }
        }
        /* Only after the barrier has the manager closed what it was told to: until then the pages are not free. */
        if (removes)
                (void) sd_notify_barrier(0, BARRIER_US);
        return 0;
}

static void submit(struct store *store) {
        if (store->running || TAILQ_EMPTY(&store->queued))
                return;
        store->running = true;
        TAILQ_CONCAT(&store->sending, &store->queued, link);
        worker_pool_submit(store->thread, &store->job);
}

static void op_free(struct store *store, struct store_op *op) {
        store->n_queued--;
        (void) safe_close(op->fd);
        if (op->done)
                op->done(op->userdata);
        free(op);
}

static void batch_done(struct job *job, int r) {
        struct store *store = (struct store *) ((char *) job - offsetof(struct store, job));
        struct store_ops done = TAILQ_HEAD_INITIALIZER(done);
        struct store_op *op;

        store->running = false;
        if (r == -ECANCELED) { /* never begun: store_free() sends it, before what came later */
                TAILQ_CONCAT(&store->sending, &store->queued, link);
                TAILQ_CONCAT(&store->queued, &store->sending, link);
                return;
        }
        TAILQ_CONCAT(&done, &store->sending, link);
        while ((op = TAILQ_FIRST(&done))) {
                TAILQ_REMOVE(&done, op, link);
                op_free(store, op);
        }
        if (!store->closing)
                submit(store);
}

int store_new(struct event_base *base, struct store **ret_store) {
        struct store *store = calloc(1, sizeof(*store));
        int r;

        if (!store)
                return -ENOMEM;
        TAILQ_INIT(&store->queued);
        TAILQ_INIT(&store->sending);
        store->job = (struct job) {.urgency = JOB_WAITING, .step = send_batch, .done = batch_done};
        r = worker_pool_new(base, /* topology= */ NULL, /* node= */ -1, /* n_threads= */ 1, &store->thread);
        if (r < 0) {
                free(store);
                return r;
        }
        *ret_store = store;
        return 0;
}

struct store *store_free(struct store *store) {
        struct store_op *op;

        if (!store)
                return NULL;
        store->closing = true;
        worker_pool_free(store->thread);
        /* What was queued last matters to the successor: sent here, where nobody is served any more. */
        TAILQ_CONCAT(&store->sending, &store->queued, link);
        (void) send_batch(&store->job);
        while ((op = TAILQ_FIRST(&store->sending))) {
                TAILQ_REMOVE(&store->sending, op, link);
                op_free(store, op);
        }
        free(store);
        return NULL;
}

static int enqueue(struct store *store, const char *name, int fd, void (*done)(void *userdata), void *userdata) {
        struct store_op *op = calloc(1, sizeof(*op));

        if (!op)
                return -ENOMEM;
        (void) snprintf(op->name, sizeof(op->name), "%s", name);
        op->fd = fd;
        op->done = done;
        op->userdata = userdata;
        TAILQ_INSERT_TAIL(&store->queued, op, link);
        store->n_queued++;
        submit(store);
        return 0;
}

unsigned store_n_queued(const struct store *store) {
        return store->n_queued;
}

int store_add(struct store *store, const char *name, int fd) {
        /* A duplicate: the extent may be dropped before the manager was told. */
        _cleanup_close_ int kept_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        int r;

        if (kept_fd < 0)
                return negative_errno();
        r = enqueue(store, name, kept_fd, NULL, NULL);
        if (r >= 0)
                (void) take_fd(&kept_fd);
        return r;
}

void store_remove(struct store *store, const char *name, void (*done)(void *userdata), void *userdata) {
        if (enqueue(store, name, -EBADF, done, userdata) >= 0)
                return;
        char text[64];

        (void) snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
        (void) sd_notify(0, text);
        if (done)
                done(userdata);
}
