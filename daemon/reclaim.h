/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Who still holds an extent? Close and open events (inotify) are a hint, the flock question is the truth, and the table in
 * reclaim_decide() is the only place that draws conclusions. This file never touches memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct reclaim;

struct reclaim_facts {
        bool close_event;   /* an IN_CLOSE_* came since the grant, from an undisturbed queue */
        bool foreign_open;  /* an IN_OPEN that was not ours came since the grant */
        bool held;          /* flock says EAGAIN */
        bool doubt;         /* foreign seal, size or blocks more than made, wrong node, an error while asking */
};

enum reclaim_action {
        RECLAIM_KEEP,      /* held, or unlocked by its holder, and no event: stays granted */
        RECLAIM_ASK_AGAIN, /* closed but still held: ask by timer, keep the charge */
        RECLAIM_FREE,      /* nobody holds it: scrub or renew */
        RECLAIM_DROP,      /* nobody holds it as far as flock tells, but not certain: drop, without the pin test */
};

/* The table of reclaim, row by row; a held extent is never scrubbed and never dropped for being doubtful. */
enum reclaim_action reclaim_decide(const struct reclaim_facts *facts);

/* What happened to a watched inode; @context is what was given to reclaim_watch(). */
typedef void (*reclaim_event_fn)(void *context, bool opened);
/* The kernel's queue overflowed: every granted extent is to be asked, and none of the close events before counts. */
typedef void (*reclaim_overflow_fn)(void *userdata);

/*
 * @inotify_fd: an instance that a predecessor left, with what happened since in its queue; owned by the reclaim from here on, also
 * on failure. -EBADF: a new one.
 */
int reclaim_new(struct event_base *base, int inotify_fd, reclaim_event_fn on_event, reclaim_overflow_fn on_overflow,
                void *userdata, struct reclaim **ret_reclaim);
int reclaim_fd(const struct reclaim *reclaim); /* borrowed */
struct reclaim *reclaim_free(struct reclaim *reclaim);
/* Watches the inode behind @fd for IN_OPEN | IN_CLOSE. *ret_wd > 0. -ENOSPC: fs.inotify.max_user_watches is reached. */
int reclaim_watch(struct reclaim *reclaim, int fd, void *context, int *ret_wd);
/* A watch that the inherited instance has already. */
int reclaim_adopt_watch(struct reclaim *reclaim, int wd, void *context);
/* From now on opens and closes of the file behind @fd are not reported any more: there were too many. */
int reclaim_quiet(struct reclaim *reclaim, int fd);
/*
 * The daemon is about to give up a file that others may have open: from now on the watch only tells, once, when the last
 * description of any kind (O_PATH and mappings too) is gone, and ends with that. @fd may be closed right after this.
 */
void reclaim_detach(struct reclaim *reclaim, int fd, int wd, void (*gone)(void *context), void *context);
/* A file that a predecessor detached. */
int reclaim_adopt_detached(struct reclaim *reclaim, int wd, void (*gone)(void *context), void *context);
/* After an overflow, or a predecessor: tells of the detached files that went unnoticed. */
void reclaim_find_gone(struct reclaim *reclaim);
/* After this no event of that watch is delivered, also none that is already in the queue. */
void reclaim_unwatch(struct reclaim *reclaim, int wd);
/*
 * The daemon itself has just opened a description of a watched inode: reads the queue now and swallows exactly one IN_OPEN
 * of @wd. Other events are delivered as usual. Equal neighbours in the queue merge, so nobody else may be able to open between
 * an earlier reclaim_drain() and this.
 */
void reclaim_swallow_open(struct reclaim *reclaim, int wd);
/* Delivers what is in the queue now. */
void reclaim_drain(struct reclaim *reclaim);
/* Opens and closes a unix socket pair: the kernel collects garbage cycles of in-flight fds only then. */
void reclaim_collect_in_flight(void);

/* Delay before asking the n-th time again: 1, 10, 100 ms, then 10 s. */
uint64_t reclaim_ask_delay_ms(unsigned n_asked);
