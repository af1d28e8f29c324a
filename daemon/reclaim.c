/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Close and open events of granted extents, and the table that says what they mean.
 *
 * Callbacks may watch, unwatch and swallow. The buffer and the position in it therefore belong to the object: a nested call
 * goes on where the outer one stopped, so that events are delivered once and in order.
 */

#include <assert.h>
#include <event2/event.h>
#include <search.h>
#include <sys/inotify.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "reclaim.h"

#define BUFFER_BYTES 4096 /* chosen: 256 events, watches of files give no names */

struct reclaim_watch {
        int wd;
        void *context;
        bool swallow_open; /* the next IN_OPEN is our own */
        void (*gone)(void *context); /* detached: only the end matters */
        bool listed;
        TAILQ_ENTRY(reclaim_watch) link; /* of the detached ones */
};

struct reclaim {
        int inotify_fd;
        struct event *readable;
        reclaim_event_fn on_event;
        reclaim_overflow_fn on_overflow;
        void *userdata;
        void *watches; /* tsearch tree of struct reclaim_watch */
        TAILQ_HEAD(, reclaim_watch) detached;
        size_t position, n_bytes;
        _Alignas(struct inotify_event) char buffer[BUFFER_BYTES];
};

enum reclaim_action reclaim_decide(const struct reclaim_facts *facts) {
        /* "Held" is always true, whatever else is known: the memory of a live holder is never touched. */
        if (facts->held)
                return facts->close_event ? RECLAIM_ASK_AGAIN : RECLAIM_KEEP;
        if (facts->foreign_open || facts->doubt)
                return RECLAIM_DROP;
        /* "Free" is what the holder may have written there himself; it counts only with the kernel's word that the description
         * is gone. Until then he has the memory, and is charged for it. */
        return facts->close_event ? RECLAIM_FREE : RECLAIM_KEEP;
}

uint64_t reclaim_ask_delay_ms(unsigned n_asked) {
        static const uint64_t delays_ms[] = {1, 10,
                                             100}; /* chosen: mostly microseconds; a dying io_uring up to 36 ms (measured) */

        return n_asked < sizeof(delays_ms) / sizeof(*delays_ms) ? delays_ms[n_asked] : 10000;
}

void reclaim_collect_in_flight(void) {
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
                return;
        (void) safe_close(fds[0]);
        (void) safe_close(fds[1]);
}

static int reclaim_watch_compare(const void *a, const void *b) {
        int wd_a = ((const struct reclaim_watch *) a)->wd, wd_b = ((const struct reclaim_watch *) b)->wd;
        return wd_a < wd_b ? -1 : wd_a > wd_b;
}

static struct reclaim_watch *reclaim_watch_find(struct reclaim *reclaim, int wd) {
        struct reclaim_watch key = {.wd = wd}, **node = tfind(&key, &reclaim->watches, reclaim_watch_compare);
        return node ? *node : NULL;
}

static void reclaim_end_detached(struct reclaim *reclaim, struct reclaim_watch *watch) {
        void (*gone)(void *context) = watch->gone;
        void *context = watch->context;

        TAILQ_REMOVE(&reclaim->detached, watch, link);
        (void) tdelete(watch, &reclaim->watches, reclaim_watch_compare);
        free(watch);
        gone(context);
}

static void reclaim_deliver(struct reclaim *reclaim, const struct inotify_event *event) {
        if (event->mask & IN_Q_OVERFLOW) {
                reclaim->on_overflow(reclaim->userdata);
                return;
        }
        /* The kernel gives out wds in a circle, so what is queued for a wd that is gone cannot meet its successor. */
        struct reclaim_watch *watch = reclaim_watch_find(reclaim, event->wd);
        if (!watch)
                return;
        if (watch->gone) {
                if (event->mask & IN_IGNORED)
                        reclaim_end_detached(reclaim, watch);
        } else if (event->mask & IN_OPEN) {
                if (watch->swallow_open)
                        watch->swallow_open = false;
                else
                        reclaim->on_event(watch->context, /* opened */ true);
        } else if (event->mask & IN_CLOSE)
                reclaim->on_event(watch->context, /* opened */ false);
}

static void reclaim_deliver_buffer(struct reclaim *reclaim) {
        while (reclaim->position < reclaim->n_bytes) {
                /* A copy: a nested call may refill the buffer. */
                struct inotify_event event = *(const struct inotify_event *) (reclaim->buffer + reclaim->position);
                reclaim->position += sizeof(event) + event.len;
                reclaim_deliver(reclaim, &event);
        }
}

void reclaim_drain(struct reclaim *reclaim) {
        ssize_t n_bytes;

        do {
                reclaim_deliver_buffer(reclaim);
                n_bytes = read(reclaim->inotify_fd, reclaim->buffer, BUFFER_BYTES);
                if (n_bytes <= 0)
                        return; /* EAGAIN: empty. A buffer of this size meets no other failure. */
                reclaim->position = 0;
                reclaim->n_bytes = (size_t) n_bytes;
                /* The kernel fills the buffer while it has events: with room left, the queue was empty. */
        } while (n_bytes > (ssize_t) (BUFFER_BYTES - sizeof(struct inotify_event)));
        reclaim_deliver_buffer(reclaim);
}

static void reclaim_on_readable(evutil_socket_t fd, short events, void *userdata) {
        reclaim_drain(userdata);
}

int reclaim_fd(const struct reclaim *reclaim) {
        return reclaim->inotify_fd;
}

int reclaim_new(struct event_base *base, int inotify_fd, reclaim_event_fn on_event, reclaim_overflow_fn on_overflow,
                void *userdata, struct reclaim **ret_reclaim) {
        assert(on_event && on_overflow);

        struct reclaim *reclaim = malloc(sizeof(*reclaim));
        if (!reclaim) {
                (void) safe_close(inotify_fd);
                return -ENOMEM;
        }
        *reclaim = (struct reclaim){.on_event = on_event, .on_overflow = on_overflow, .userdata = userdata};
        TAILQ_INIT(&reclaim->detached);
        reclaim->inotify_fd = inotify_fd >= 0 ? inotify_fd : inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
        if (reclaim->inotify_fd < 0) {
                int r = negative_errno();
                (void) reclaim_free(reclaim);
                return r;
        }
        reclaim->readable = event_new(base, reclaim->inotify_fd, EV_READ | EV_PERSIST, reclaim_on_readable, reclaim);
        if (!reclaim->readable || event_add(reclaim->readable, NULL) < 0) {
                (void) reclaim_free(reclaim);
                return -ENOMEM;
        }
        *ret_reclaim = reclaim;
        return 0;
}

struct reclaim *reclaim_free(struct reclaim *reclaim) {
        if (!reclaim)
                return NULL;
        if (reclaim->readable)
                event_free(reclaim->readable);
        (void) safe_close(reclaim->inotify_fd);
        tdestroy(reclaim->watches, free);
        free(reclaim);
        return NULL;
}

int reclaim_adopt_watch(struct reclaim *reclaim, int wd, void *context) {
        struct reclaim_watch *watch = malloc(sizeof(*watch));

        if (!watch)
                return -ENOMEM;
        *watch = (struct reclaim_watch){.wd = wd, .context = context};
        struct reclaim_watch **node = tsearch(watch, &reclaim->watches, reclaim_watch_compare);
        if (node && *node == watch)
                return 0;
        free(watch);
        return node ? -EEXIST : -ENOMEM;
}

static int add_watch(const struct reclaim *reclaim, int fd, uint32_t mask) {
        char path[sizeof("/proc/self/fd/-2147483648")];

        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int wd = inotify_add_watch(reclaim->inotify_fd, path, mask);
        return wd < 0 ? negative_errno() : wd;
}

int reclaim_watch(struct reclaim *reclaim, int fd, void *context, int *ret_wd) {
        _cleanup_free_ struct reclaim_watch *watch = malloc(sizeof(*watch));
        if (!watch)
                return -ENOMEM;
        /* IN_MASK_CREATE: a second watch of an inode would be the same wd, and one unwatch would end both. */
        int wd = add_watch(reclaim, fd, IN_OPEN | IN_CLOSE | IN_MASK_CREATE);
        if (wd < 0)
                return wd;
        *watch = (struct reclaim_watch){.wd = wd, .context = context};
        if (!tsearch(watch, &reclaim->watches, reclaim_watch_compare)) {
                (void) inotify_rm_watch(reclaim->inotify_fd, wd);
                return -ENOMEM;
        }
        (void) take_ptr(watch);
        *ret_wd = wd;
        return 0;
}

int reclaim_quiet(struct reclaim *reclaim, int fd) {
        int wd = add_watch(reclaim, fd, IN_DELETE_SELF); /* a mask must not be empty; the same inode is the same watch */

        return wd < 0 ? wd : 0;
}

void reclaim_detach(struct reclaim *reclaim, int fd, int wd, void (*gone)(void *context), void *context) {
        struct reclaim_watch *watch = reclaim_watch_find(reclaim, wd);

        if (!watch)
                return;
        TAILQ_INSERT_TAIL(&reclaim->detached, watch, link);
        watch->gone = gone;
        watch->context = context;
        (void) reclaim_quiet(reclaim, fd);
}

int reclaim_adopt_detached(struct reclaim *reclaim, int wd, void (*gone)(void *context), void *context) {
        struct reclaim_watch *watch;
        int r = reclaim_adopt_watch(reclaim, wd, context);

        if (r < 0)
                return r;
        watch = reclaim_watch_find(reclaim, wd);
        watch->gone = gone;
        TAILQ_INSERT_TAIL(&reclaim->detached, watch, link);
        return 0;
}

/* Lines like "inotify wd:7 ino:1a2b sdev:f mask:..." in fdinfo are the watches that there are; proc_pid_fdinfo(5). */
static int mark_listed(struct reclaim *reclaim) {
        char path[sizeof("/proc/self/fdinfo/-2147483648")];
        _cleanup_free_ char *line = NULL;
        size_t line_bytes = 0;
        unsigned wd;

        (void) snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", reclaim->inotify_fd);
        _cleanup_fclose_ FILE *stream = fopen(path, "re");
        if (!stream)
                return negative_errno();
        while (getline(&line, &line_bytes, stream) > 0) {
                struct reclaim_watch *watch =
                        sscanf(line, "inotify wd:%x", &wd) == 1 ? reclaim_watch_find(reclaim, (int) wd) : NULL;
                if (watch)
                        watch->listed = true;
        }
        return 0;
}

void reclaim_find_gone(struct reclaim *reclaim) {
        struct reclaim_watch *watch, *next;

        TAILQ_FOREACH (watch, &reclaim->detached, link)
                watch->listed = false;
        if (TAILQ_EMPTY(&reclaim->detached) || mark_listed(reclaim) < 0)
                return;
        for (watch = TAILQ_FIRST(&reclaim->detached); watch; watch = next) {
                next = TAILQ_NEXT(watch, link);
                if (!watch->listed)
                        reclaim_end_detached(reclaim, watch);
        }
}

void reclaim_unwatch(struct reclaim *reclaim, int wd) {
        struct reclaim_watch *watch = reclaim_watch_find(reclaim, wd);

        if (!watch)
                return;
        if (watch->gone)
                TAILQ_REMOVE(&reclaim->detached, watch, link);
        (void) inotify_rm_watch(reclaim->inotify_fd, wd); /* EINVAL: the inode is gone already, and the watch with it */
        (void) tdelete(watch, &reclaim->watches, reclaim_watch_compare);
        free(watch);
}

void reclaim_swallow_open(struct reclaim *reclaim, int wd) {
        struct reclaim_watch *watch = reclaim_watch_find(reclaim, wd);

        if (!watch)
                return;
        watch->swallow_open = true;
        reclaim_drain(reclaim);
        /* Not found in the queue (it overflowed): the next open is somebody else's. A callback may have unwatched it. */
        watch = reclaim_watch_find(reclaim, wd);
        if (watch)
                watch->swallow_open = false;
}
