/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * libhugezero - hugepages that are already zero, from hugezerod
 *
 * The daemon keeps hugetlb memory that is allocated, zeroed and on the right NUMA node. A program asks for some of it and gets
 * file descriptors, in microseconds where the kernel would need milliseconds per GiB. Four things play together:
 *
 *   connection  one socket to the daemon, struct hugezero_conn
 *   request     up to 16 items (bytes, page size, node, flags), granted together or not at all, struct hugezero_request
 *   grant       what one request gave: extents, one descriptor each, struct hugezero_grant
 *   extent      one hugetlb memfd of fixed, sealed size; all of its pages are present and zero at hand-out
 *
 * The memory belongs to whoever holds a descriptor of it or has it mapped. Neither closing the connection nor freeing any of
 * the objects above takes it away from a mapping, and the daemon notices by itself when the last descriptor and the last
 * mapping are gone. Memory handed out is shared memory: map it MAP_SHARED. A MAP_PRIVATE mapping would copy every page.
 *
 * In one call, on a connection that the library keeps for the process:
 *
 *     void *memory;
 *     int r = hugezero_alloc(UINT64_C(1) << 30, 0, HUGEZERO_NODE_LOCAL, 0, &memory);
 *     if (r < 0)
 *             errx(1, "1 GiB: %s: %s", strerror(-r), hugezero_conn_get_error_text(NULL));
 *     ...
 *     hugezero_free(memory);
 *
 * Step by step, with the descriptors in the caller's hands:
 *
 *     hugezero_conn_open(NULL, &conn);
 *     hugezero_request_new(&request);
 *     hugezero_request_add_item(request, UINT64_C(8) << 30, 0, 0, 0, NULL);
 *     hugezero_acquire(conn, request, &grant);
 *     hugezero_grant_map(grant, 0, NULL, 0, &memory, &bytes);
 *
 * Rules for all calls:
 *
 * - A failure is a negative errno value, never -1 plus errno. Arguments named ret_... are written on success only, and always
 *   then. The library writes nothing to stdout, stderr or the journal and raises no signal, SIGPIPE included.
 * - Sizes are bytes (uint64_t), times are milliseconds, nodes are NUMA node numbers as in /sys/devices/system/node.
 * - Every descriptor of the library is close-on-exec. A call that a signal interrupts is carried on with.
 * - "Threads: one at a time" means: a connection, and the requests submitted to it, may be used by any thread, but not by two
 *   at once. Different connections are independent. hugezero_alloc() and its relatives may be called by any thread at any time.
 * - A forked child keeps grants, descriptors and mappings. A connection does not survive the fork there: all that the child may
 *   do with it is to close it; everything else answers -ECHILD. The parent's side goes on undisturbed.
 * - -EINVAL for a wrong argument (NULL where it is not allowed, an unknown flag) is not repeated at each call.
 *
 * Errors of the connection that every call with a @conn may return; after the first three the connection is of no more use,
 * each later call returns the same, and all that is left to do is to close it (and to open another):
 *
 *   -ECONNRESET  the daemon is gone: stopped, restarted, or it has cut this client off
 *   -EBADMSG     what came is not a message of the protocol, or its descriptors do not match it
 *   -EPROTO      daemon and library have no version of the protocol in common, or what answers at the socket does not speak
 *                it (hugezero_conn_open() only)
 *   -ECHILD      the connection was opened by another process, which forked this one
 *   -EBADF       this program has closed the connection's descriptor, which it must not (closefrom(3), close_range(2))
 */
#ifndef HUGEZERO_H
#define HUGEZERO_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what leaves the library; everything else in it is hidden. */
#define HUGEZERO_EXPORT __attribute__((visibility("default")))

struct hugezero_conn;    /* a connection to the daemon */
struct hugezero_request; /* up to 16 items, and its way to the daemon and back */
struct hugezero_grant;   /* what one request gave: extents and their descriptors */
struct hugezero_status;  /* a snapshot of the daemon's figures */

/* Any node: of those that can serve at once the daemon takes the one with most memory ready, else whichever can serve. */
#define HUGEZERO_NODE_ANY (-1)
/* The node of the CPU that the calling thread runs on when the item is added; a wish, as with HUGEZERO_NODE_PREFERRED. */
#define HUGEZERO_NODE_LOCAL (-2)

/* Flags of hugezero_request_add_item(); hugezero_alloc() takes the first one too. */

/*
 * The node is a wish: the others follow by distance. A nearer node serves before a farther one whenever it has enough memory
 * ready, in whatever pieces: where none of them is large enough, the largest is grown, and the kernel zeroes what that lacks,
 * even though a farther node could serve at once. Only when no node has enough ready may the item be served out of what is being
 * filled or, with HUGEZERO_MISS_WAIT and HUGEZERO_MISS_FILL, has to be filled, the nearest node first again. Nodes at the same
 * distance count as one. Without this flag the item comes from that node or not at all.
 */
#define HUGEZERO_NODE_PREFERRED UINT32_C(0x1)
/* The item may come as several extents, each with its own descriptor, where one of that size cannot be had. */
#define HUGEZERO_SEVERAL_FDS UINT32_C(0x2)
/*
 * The descriptors may be opened again by path (/proc/PID/fd/N) by members of the daemon's SocketGroup=, as programs of another
 * uid do that take a path instead of a descriptor. Such memory goes back to the kernel after use instead of being kept.
 */
#define HUGEZERO_REOPENABLE UINT32_C(0x4)

/* Flags of hugezero_alloc() only. */

/* Where there is no daemon, or it has no memory: ordinary mmap(MAP_HUGETLB), zeroed by the kernel. */
#define HUGEZERO_FALLBACK_MMAP UINT32_C(0x100)
/* Wait without limit until there is memory: HUGEZERO_MISS_WAIT. Not together with HUGEZERO_FILL. */
#define HUGEZERO_WAIT UINT32_C(0x200)
/* Have the kernel zero what is missing, now, within the pool's target: HUGEZERO_MISS_FILL. */
#define HUGEZERO_FILL UINT32_C(0x400)

/* Flags of hugezero_grant_map(); hugezero_alloc() takes the first one too. */

/*
 * Do not share page tables with the daemon's own mapping. Costs about 0.7 us per page at first touch; worth it on kernels
 * from mid-2025 to January 2026, which interrupt every CPU for each page table that stops being shared. The mapping is left
 * out of core dumps (MADV_DONTDUMP): this is what tells it apart from the daemon's.
 */
#define HUGEZERO_MAP_UNSHARED UINT32_C(0x1000)
/* @addr lies in the caller's own reservation, a PROT_NONE private anonymous mapping, which is replaced in that range. */
#define HUGEZERO_MAP_RESERVED UINT32_C(0x2000)

/* What the daemon does with a request when the memory is not ready. */

#define HUGEZERO_MISS_FAIL UINT32_C(0) /* refuse at once */
#define HUGEZERO_MISS_WAIT UINT32_C(1) /* wait until memory comes back or is filled, in turn */
#define HUGEZERO_MISS_FILL UINT32_C(2) /* have the kernel zero what is missing now, within the pool's target */

#define HUGEZERO_MAX_ITEMS 16           /* items of one request: a limit of the protocol */
#define HUGEZERO_ALL_EXTENTS UINT32_MAX /* instead of the position of one extent */
#define HUGEZERO_ALL_ITEMS UINT32_MAX   /* instead of the position of one item */

/* ---------------------------------------------------------------- connection ---------------------------------------------- */

/**
 * hugezero_conn_open - connect to the daemon and agree on a version of the protocol
 * @socket_path:  path of the daemon's socket, at most 107 bytes, or NULL: hugezero_socket_path(). Borrowed.
 * @ret_conn:     set on success. Owned by the caller; release with hugezero_conn_close().
 *
 * Nothing is reserved in the daemon by a connection alone. On failure hugezero_conn_get_error_text(NULL) says more.
 *
 * Guarantee:  the daemon has answered and speaks the library's protocol
 * Threads:    any
 * Blocks:     until the daemon answers, at most 10 s
 * Returns:    0, or a negative errno; nothing is open on failure
 * Errors:     -ENOENT        no socket there: hugezerod is not installed, never started, or uses another path
 *             -ECONNREFUSED  a socket file, but nobody listens: hugezerod has stopped
 *             -EACCES        the socket's permissions keep this user out; see SocketGroup= and SocketMode=
 *             -EPROTO        no common version of the protocol, or what answers there does not speak it
 *             -EUSERS        the daemon has as many clients as it is allowed to have
 *             -EDQUOT        this uid has as many connections as it is allowed to have
 *             -ETIMEDOUT     something listens but did not answer within 10 s
 *             -ECONNRESET    the daemon hung up without an answer
 *             -ENAMETOOLONG  @socket_path has more than 107 bytes
 *             -EMFILE        this process has no free descriptor: RLIMIT_NOFILE
 *             -ENOMEM        no memory for the object
 *             any other      of socket(2) or connect(2), as it came
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_conn_open(const char *socket_path, struct hugezero_conn **ret_conn);

/**
 * hugezero_conn_open_within - hugezero_conn_open(), with a time of the caller's
 * @socket_path:  as there
 * @timeout_ms:   at most so long it waits for the daemon's answer, 1 at least; a healthy daemon answers in milliseconds
 * @ret_conn:     as there
 *
 * A service manager that listens for a daemon which it cannot start lets every client wait until its time is over.
 *
 * Guarantee:  as hugezero_conn_open()
 * Threads:    any
 * Blocks:     until the daemon answers, at most @timeout_ms
 * Returns:    0, or a negative errno; nothing is open on failure
 * Errors:     those of hugezero_conn_open(); -ETIMEDOUT after @timeout_ms
 *             -EINVAL  @timeout_ms is less than 1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_conn_open_within(const char *socket_path, int32_t timeout_ms, struct hugezero_conn **ret_conn);

/**
 * hugezero_conn_close - close a connection
 * @conn:  a connection, or NULL, which does nothing. Consumed.
 *
 * Closing releases no memory: descriptors and mappings are the grant, and they stay. A request that is still on its way loses
 * its place in the daemon's queue; hugezero_request_finish() then says -ECANCELED. Allowed in a forked child, where only the
 * child's copy of the descriptor is closed.
 *
 * Guarantee:  grants, mappings and requests stay valid objects
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    nothing
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT void hugezero_conn_close(struct hugezero_conn *conn);

/**
 * hugezero_conn_get_fd - the descriptor to wait for in an event loop
 * @conn:  open connection. Borrowed.
 *
 * For poll(2) and relatives, level-triggered, with the events of hugezero_conn_get_events(). Not to be read, written or closed.
 *
 * Guarantee:  the same number until hugezero_conn_close()
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    the descriptor (>= 0), owned by the connection, or a negative errno
 * Errors:     -ECHILD  opened by another process
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_conn_get_fd(const struct hugezero_conn *conn);

/**
 * hugezero_conn_get_events - what to wait for on the descriptor
 * @conn:  open connection. Borrowed.
 *
 * Ask again after each call that uses the connection: POLLOUT comes and goes with output that the socket did not take.
 *
 * Guarantee:  valid until the next call with this connection
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    POLLIN, or POLLIN | POLLOUT, as of <poll.h>, or a negative errno
 * Errors:     those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_conn_get_events(const struct hugezero_conn *conn);

/**
 * hugezero_conn_dispatch - send what is pending and take in what has come
 * @conn:  open connection. Borrowed.
 *
 * Call it when the descriptor is ready (at any other time it does no harm), then ask each request that is on its way with
 * hugezero_request_finish(). When the daemon is gone, all of them have finished with -ECONNRESET.
 *
 * Guarantee:  whatever had arrived before the call belongs to its request now
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    0, or a negative errno when the connection is of no more use
 * Errors:     those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_conn_dispatch(struct hugezero_conn *conn);

/**
 * hugezero_conn_get_error_text - why the last call failed, in words
 * @conn:  open connection, or NULL: of the calling thread's calls that have no connection (hugezero_conn_open(),
 *         hugezero_request_add_item() and _set_miss(), hugezero_alloc(), hugezero_free()) the last that has failed. Borrowed.
 *
 * A request has a connection from hugezero_request_submit() until it is collected; -EINVAL of hugezero_request_cancel() and
 * hugezero_request_finish() for one that is not on its way is told with NULL.
 *
 * One line in English without a full stop: the daemon's reason when it has refused something, the library's own otherwise.
 * With HUGEZERO_FALLBACK_MMAP it says why the fall-back was taken.
 *
 * Guarantee:  never NULL, "" when nothing has failed; valid until the next call with this connection (NULL: of this thread)
 * Threads:    one at a time per connection; NULL: any
 * Blocks:     never
 * Returns:    a string owned by the library
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT const char *hugezero_conn_get_error_text(const struct hugezero_conn *conn);

/**
 * hugezero_socket_path - the path that hugezero_conn_open(NULL) uses
 *
 * The value of HUGEZERO_SOCKET where the environment has it and the process runs without raised privileges (secure_getenv(3)),
 * else the path that was chosen when the library was built.
 *
 * Guarantee:  never NULL or empty; valid until the environment is changed
 * Threads:    any, while no other thread changes the environment
 * Blocks:     never
 * Returns:    a string owned by the library or the environment
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT const char *hugezero_socket_path(void);

/* ------------------------------------------------------------------ request ----------------------------------------------- */

/**
 * hugezero_request_new - an empty request
 * @ret_request:  set on success. Owned by the caller; release with hugezero_request_free().
 *
 * A request without items that is refused when the memory is not ready (HUGEZERO_MISS_FAIL). Nothing is sent before
 * hugezero_request_submit() or hugezero_acquire(). After its end a request may be submitted again, as often as wanted.
 *
 * Guarantee:  none needed
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -ENOMEM  no memory for the object
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_new(struct hugezero_request **ret_request);

/**
 * hugezero_request_free - forget a request
 * @request:  a request, or NULL, which does nothing. Consumed.
 *
 * A request that is on its way is cancelled first, see hugezero_request_cancel(); a grant that nobody has collected goes back.
 *
 * Guarantee:  grants collected before stay valid
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    nothing
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT void hugezero_request_free(struct hugezero_request *request);

/**
 * hugezero_request_add_item - ask for one more piece of memory in the same request
 * @request:          a request that is not on its way. Borrowed.
 * @bytes:            bytes, > 0. The daemon rounds up to whole pages (to whole extents in a pool of fixed ones).
 * @page_size_bytes:  bytes, a power of two such as 2097152 or 1073741824; 0 = the pool's, or the system's default
 * @node:             NUMA node number, HUGEZERO_NODE_ANY or HUGEZERO_NODE_LOCAL
 * @flags:            HUGEZERO_NODE_PREFERRED, HUGEZERO_SEVERAL_FDS, HUGEZERO_REOPENABLE, or 0
 * @pool:             name of a pool, at most 31 bytes; NULL or "" = the one that fits best. Copied.
 *
 * Items are numbered from 0 in the order in which they are added. Whether pool, node and page size exist is seen by the daemon
 * at submission, not here. HUGEZERO_NODE_PREFERRED says nothing more with HUGEZERO_NODE_ANY and HUGEZERO_NODE_LOCAL.
 *
 * Guarantee:  the request is unchanged on failure
 * Threads:    one at a time per request
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no bytes, not a page size, not a node, an unknown flag, a name that is too long or not printable
 *             -E2BIG   HUGEZERO_MAX_ITEMS items are in it already
 *             -EBUSY   the request is on its way, or its result was not collected yet
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_add_item(struct hugezero_request *request, uint64_t bytes, uint64_t page_size_bytes,
                                              int32_t node, uint32_t flags, const char *pool);

/**
 * hugezero_request_set_miss - say what is to happen when the memory is not ready
 * @request:     a request that is not on its way. Borrowed.
 * @miss:        HUGEZERO_MISS_FAIL (what a new request has), HUGEZERO_MISS_WAIT or HUGEZERO_MISS_FILL
 * @timeout_ms:  with HUGEZERO_MISS_WAIT: milliseconds, -1 = without limit; else 0
 *
 * The time runs in the daemon, from the arrival of the request. It counts the waiting for memory only.
 *
 * Guarantee:  the request is unchanged on failure
 * Threads:    one at a time per request
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  an unknown @miss, or a @timeout_ms that does not go with it
 *             -EBUSY   the request is on its way, or its result was not collected yet
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_set_miss(struct hugezero_request *request, uint32_t miss, int32_t timeout_ms);

/**
 * hugezero_request_submit - send a request without waiting for the answer
 * @request:  a request with at least one item. Borrowed; stays the caller's and must live until it has finished.
 * @conn:     open connection. Borrowed.
 *
 * Any number of requests may be on their way on one connection. Each is answered on its own; the daemon may answer a later
 * one first. The answer arrives through hugezero_conn_dispatch() or any blocking call with the same connection, and is
 * collected by hugezero_request_finish().
 *
 * Guarantee:  after success hugezero_request_finish() has a result sooner or later, in any event when the connection ends
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    0, or a negative errno; the request is not on its way then
 * Errors:     -EINVAL   no item
 *             -EBUSY    the request is on its way already, or its result was not collected yet
 *             -EMFILE   this process has fewer free descriptors than the request has items: raise RLIMIT_NOFILE. (Not looked
 *                       at where the latest grant was far below the limit; hugezero_request_finish() says it then.)
 *             -ENOBUFS  256 messages wait for a daemon that does not read; dispatch, then try again
 *             -ENOMEM   no memory for the message
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_submit(struct hugezero_request *request, struct hugezero_conn *conn);

/**
 * hugezero_request_cancel - give up a request that is on its way
 * @request:  a submitted request. Borrowed.
 *
 * The request has finished at once, with -ECANCELED, and the daemon is told to forget it. A grant that crosses this message on
 * its way is thrown away when it arrives: its memory goes back.
 *
 * Guarantee:  after success hugezero_request_finish() returns -ECANCELED and never a grant
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EALREADY  it has finished before; hugezero_request_finish() has the result
 *             -EINVAL    it is not on its way
 *             -ECHILD    submitted by another process
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_cancel(struct hugezero_request *request);

/**
 * hugezero_request_finish - collect the result of a submitted request
 * @request:    a submitted request. Borrowed.
 * @ret_grant:  set on success. Owned by the caller; release with hugezero_grant_free().
 *
 * Looks at what has arrived, reads nothing itself. The result is handed over once; then the request may be changed or
 * submitted again. On a refusal the connection's error text is the daemon's reason for this request.
 *
 * Guarantee:  a grant is complete: every item with all its bytes and descriptors, every byte zero, every page present
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINPROGRESS  no answer yet: dispatch, then ask again
 *             -EAGAIN       HUGEZERO_MISS_FAIL: not enough memory is ready now
 *             -ETIMEDOUT    HUGEZERO_MISS_WAIT: it was not ready within the time given
 *             -ENOMEM       HUGEZERO_MISS_FILL: others hold so much that the pool's target leaves less (Target=), requests that
 *                           came earlier wait for it, or the kernel has too few free pages now. HUGEZERO_MISS_FAIL too: the
 *                           last extents that the daemon's limit of open files allows are kept for users with little
 *             -ENOSPC       more than the pool is to hold (Target=), so that waiting would be in vain
 *             -EDQUOT       a limit of this uid: bytes, grants or requests on their way
 *             -EUSERS       the daemon has as many requests on their way as it is allowed to have
 *             -ENOENT       no such pool, or none with pages of this size
 *             -ENODEV       no such node, or no pool with memory on it
 *             -EOPNOTSUPP   HUGEZERO_REOPENABLE, but the daemon has no SocketGroup=
 *             -ECANCELED    hugezero_request_cancel() or hugezero_conn_close()
 *             -ESHUTDOWN    the daemon is stopping
 *             -EMFILE       descriptors were missing: RLIMIT_NOFILE is too small for the grant. Those that came were closed,
 *                           the memory goes back; the connection stays usable
 *             -EINVAL       the pool has only extents that are smaller than an item without HUGEZERO_SEVERAL_FDS; or the
 *                           request was never submitted, or its result was collected before
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 *             any other     as the daemon refused it, explained by the error text
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_request_finish(struct hugezero_request *request, struct hugezero_grant **ret_grant);

/**
 * hugezero_acquire - submit a request and wait for its grant
 * @conn:       open connection. Borrowed.
 * @request:    a request with at least one item. Borrowed; may be used again afterwards.
 * @ret_grant:  set on success. Owned by the caller; release with hugezero_grant_free().
 *
 * hugezero_request_submit(), then waiting until it has finished, then hugezero_request_finish(). Answers to other requests on
 * the same connection that come in meanwhile are kept for them.
 *
 * Guarantee:  as hugezero_request_finish()
 * Threads:    one at a time per connection
 * Blocks:     until the daemon answers: with HUGEZERO_MISS_WAIT that is up to the time given there
 * Returns:    0, or a negative errno; nothing is granted then
 * Errors:     those of hugezero_request_submit() and hugezero_request_finish(), where -EINPROGRESS is waited out
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_acquire(struct hugezero_conn *conn, struct hugezero_request *request,
                                     struct hugezero_grant **ret_grant);

/* ------------------------------------------------------------------- grant ------------------------------------------------ */

/* One extent, as hugezero_grant_get_extent() fills it in. Later versions append fields; struct_bytes tells them apart. */
struct hugezero_extent_info {
        uint32_t struct_bytes;    /* set by the caller: sizeof(struct hugezero_extent_info) */
        uint32_t item;            /* position of the item in the request */
        int32_t node;             /* NUMA node number where all of its pages are */
        uint32_t reserved;        /* 0 */
        uint64_t bytes;           /* length of the file, a multiple of the page size; never map more than this */
        uint64_t page_size_bytes; /* bytes of one hugetlb page */
};

/**
 * hugezero_grant_get_id - the daemon's number of the grant
 * @grant:  a grant. Borrowed.
 *
 * As in hugezero_status_get_grant() and in the daemon's log.
 *
 * Guarantee:  not used again while the daemon lives, nor after a restart in which it kept its memory
 * Threads:    any
 * Blocks:     never
 * Returns:    the number, > 0; 0 for NULL
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT uint64_t hugezero_grant_get_id(const struct hugezero_grant *grant);

/**
 * hugezero_grant_get_n_extents - how many extents the grant has
 * @grant:  a grant. Borrowed.
 *
 * At least one per item; exactly one for an item without HUGEZERO_SEVERAL_FDS. They are numbered from 0: by item, and within an
 * item in the order in which hugezero_grant_map() lays them out, whole GiB first, then larger before smaller.
 *
 * Guarantee:  does not change, whatever is taken or released
 * Threads:    any
 * Blocks:     never
 * Returns:    the number; 0 for NULL
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT uint32_t hugezero_grant_get_n_extents(const struct hugezero_grant *grant);

/**
 * hugezero_grant_get_extent - size, page size and node of one extent
 * @grant:  a grant. Borrowed.
 * @idx:    position of the extent, from 0
 * @info:   in: struct_bytes; out: the rest. Borrowed.
 *
 * Fills as much of @info as its struct_bytes and the library's version have in common, and sets the rest to 0.
 *
 * Guarantee:  @info is unchanged on failure
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no such extent, or a struct_bytes smaller than that of version 0.1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_get_extent(const struct hugezero_grant *grant, uint32_t idx,
                                              struct hugezero_extent_info *info);

/**
 * hugezero_grant_get_fd - look at the descriptor of an extent
 * @grant:  a grant. Borrowed.
 * @idx:    position of the extent, from 0
 *
 * For mapping it by hand (MAP_SHARED), or passing it on to another process (SCM_RIGHTS, or a copy without close-on-exec for a
 * child); whoever has a copy holds the memory. Do not unlock or lock it with flock(2): the daemon's question who still holds
 * the extent is such a lock.
 *
 * Guarantee:  open until hugezero_grant_free(), hugezero_grant_release() or hugezero_grant_release_extent()
 * Threads:    any, while no other thread changes the grant
 * Blocks:     never
 * Returns:    the descriptor (>= 0), owned by the grant, or a negative errno
 * Errors:     -EINVAL  no such extent
 *             -EBADF   it was taken or released
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_get_fd(const struct hugezero_grant *grant, uint32_t idx);

/**
 * hugezero_grant_take_fd - take the descriptor of an extent out of the grant
 * @grant:  a grant. Borrowed.
 * @idx:    position of the extent, from 0
 *
 * From here on the descriptor is the caller's: the grant neither closes it nor maps it.
 *
 * Guarantee:  close-on-exec, open for reading and writing, size sealed
 * Threads:    one at a time per grant
 * Blocks:     never
 * Returns:    the descriptor (>= 0), owned by the caller, release with close(2); or a negative errno
 * Errors:     -EINVAL  no such extent
 *             -EBADF   it was taken or released before
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_take_fd(struct hugezero_grant *grant, uint32_t idx);

/**
 * hugezero_grant_map - map an item, or the whole grant, as one contiguous range
 * @grant:      a grant whose descriptors are all still there. Borrowed.
 * @item:       position of the item in the request, or HUGEZERO_ALL_ITEMS: all of them in order
 * @addr:       NULL = wherever there is room; else where the range begins, a multiple of the page size
 * @flags:      HUGEZERO_MAP_UNSHARED, HUGEZERO_MAP_RESERVED (with @addr only), or 0
 * @ret_addr:   set on success. Owned by the caller; release with munmap(2) of *@ret_bytes (in parts too).
 * @ret_bytes:  bytes mapped; may be NULL
 *
 * MAP_SHARED, PROT_READ | PROT_WRITE, one extent behind the other. Where @addr leaves the choice and an extent is of 1 GiB
 * or more, the range begins at a multiple of 1 GiB: then a whole GiB of 2 MiB pages costs the first touch a single page fault,
 * because the kernel shares the daemon's page tables. Of several items put those that are not of whole GiB last. Do not use madvise(2) with MADV_DONTFORK, MADV_DONTDUMP, MADV_RANDOM or MADV_HUGEPAGE before that
 * touch: the tables are not shared then.
 *
 * With @addr the range must be free, or lie in a PROT_NONE private anonymous mapping of the caller's (HUGEZERO_MAP_RESERVED,
 * checked in /proc/self/maps), so that heaps and caches grow in place. An existing mapping is never replaced.
 *
 * The mapping alone holds the memory: descriptors and grant may be closed and freed. Once it was touched, tell the daemon by
 * hugezero_grant_notify_mapped().
 *
 * Guarantee:  touching the range raises no SIGBUS and makes the kernel clear nothing, until a holder of the extents punches
 *             holes into them
 * Threads:    any, while no other thread changes the grant
 * Blocks:     never; a few microseconds per extent
 * Returns:    0, or a negative errno; nothing stays mapped then, a reservation is whole and PROT_NONE again
 * Errors:     -EINVAL   no such item, @addr is not aligned to the page size, or with HUGEZERO_ALL_ITEMS an extent with large
 *                       pages would follow at an address that is not aligned to them (put those items first)
 *             -EEXIST   something is mapped at @addr, or the range is not a reservation all over
 *             -EBADF    a descriptor that is needed was taken or released
 *             -ENOMEM   no room in the address space, or vm.max_map_count is reached
 *             -EBADMSG  a file is shorter than the daemon said
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_map(struct hugezero_grant *grant, uint32_t item, void *addr, uint32_t flags, void **ret_addr,
                                       uint64_t *ret_bytes);

/**
 * hugezero_grant_notify_mapped - tell the daemon that the grant is mapped and touched
 * @grant:  a grant. Borrowed.
 * @conn:   open connection of the same uid or an administrator, not necessarily the one that the grant came by. Borrowed.
 *
 * The daemon keeps extents of 1 GiB and more mapped for sharing their page tables. After this call it unmaps them, so that the
 * caller's data is not in its address space; without it that happens after a time (UnmapAfter=, 10 s). Call it when one byte
 * in each GiB was touched. It costs nothing to leave it out for smaller extents.
 *
 * Guarantee:  none: the message is on its way
 * Threads:    one at a time per connection
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -ENOBUFS  256 messages wait for a daemon that does not read
 *             -ENOMEM   no memory for the message
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_notify_mapped(struct hugezero_grant *grant, struct hugezero_conn *conn);

/**
 * hugezero_grant_release - give a whole grant back, ahead of noticing
 * @grant:  a grant. Borrowed; free it afterwards.
 * @conn:   open connection of the same uid or an administrator. Borrowed.
 *
 * Closes the descriptors that are still in the grant and has the daemon ask now whether anybody holds the extents, instead of
 * when the kernel's event arrives. Unmaps nothing: unmap first. Memory that is still mapped, or whose descriptor was copied or
 * taken, stays with whoever has it, and comes back later.
 *
 * Guarantee:  the daemon has taken note; nothing is said about who still holds the memory
 * Threads:    one at a time per connection
 * Blocks:     until the daemon answers
 * Returns:    0, or a negative errno; the descriptors are closed in any event
 * Errors:     -ENOENT  the daemon knows no such grant of this uid: it came back already, or belongs to another daemon
 *             -ENOBUFS, -ENOMEM  as hugezero_grant_notify_mapped()
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_release(struct hugezero_grant *grant, struct hugezero_conn *conn);

/**
 * hugezero_grant_release_extent - give one extent of a grant back, ahead of noticing
 * @grant:  a grant. Borrowed.
 * @conn:   open connection of the same uid or an administrator. Borrowed.
 * @idx:    position of the extent, from 0, or HUGEZERO_ALL_EXTENTS: hugezero_grant_release()
 *
 * As hugezero_grant_release(), for one extent: the others stay granted, each comes back on its own.
 *
 * Guarantee:  as hugezero_grant_release()
 * Threads:    one at a time per connection
 * Blocks:     until the daemon answers
 * Returns:    0, or a negative errno; the descriptor is closed in any event, except for -EINVAL
 * Errors:     -EINVAL  no such extent
 *             else as hugezero_grant_release()
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_grant_release_extent(struct hugezero_grant *grant, struct hugezero_conn *conn, uint32_t idx);

/**
 * hugezero_grant_free - close the descriptors of a grant and forget it
 * @grant:  a grant, or NULL, which does nothing. Consumed.
 *
 * Sends nothing: the daemon notices by itself when the last descriptor and the last mapping are gone. Mappings, copies of
 * descriptors and those that were taken stay. Allowed in a forked child, where the parent keeps what it has.
 *
 * Guarantee:  mappings stay valid
 * Threads:    one at a time per grant
 * Blocks:     never
 * Returns:    nothing
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT void hugezero_grant_free(struct hugezero_grant *grant);

/* ------------------------------------------------------------------- memory ----------------------------------------------- */

/**
 * hugezero_alloc - zeroed hugepage memory in one call
 * @bytes:            bytes, > 0; rounded up to whole pages, see hugezero_alloc_size()
 * @page_size_bytes:  bytes, a power of two; 0 = the system's default huge page size
 * @node:             NUMA node number, HUGEZERO_NODE_ANY or HUGEZERO_NODE_LOCAL
 * @flags:            HUGEZERO_NODE_PREFERRED, HUGEZERO_FALLBACK_MMAP, HUGEZERO_WAIT or HUGEZERO_FILL,
 *                    HUGEZERO_MAP_UNSHARED, HUGEZERO_SEVERAL_FDS (which goes without saying here), or 0
 * @ret_addr:         set on success. Owned by the caller; release with hugezero_free() and not otherwise.
 *
 * Acquires, maps, touches one byte per shareable GiB, tells the daemon, and closes the descriptors, on a connection that the
 * library opens at the first call and keeps for the process; it is opened again when the daemon was restarted, and when the
 * program has closed all descriptors, this one among them. A request with HUGEZERO_WAIT or HUGEZERO_FILL that cannot be served
 * at once goes on over a connection of its own, so that it keeps no other thread from allocating or freeing.
 *
 * The memory is shared with forked children, like any MAP_SHARED mapping, until each of them frees it, executes or exits. In a
 * child all three calls work: it connects anew at its first allocation.
 *
 * The fall-back is mmap(MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB) from the kernel's own pages, cleared by the kernel when they
 * are touched; with a @node they are bound to it and populated in the call.
 *
 * Guarantee:  all zero, one contiguous range, no SIGBUS; multiples of 1 GiB aligned where the memory came as whole GiB
 * Threads:    any
 * Blocks:     until the daemon answers; with HUGEZERO_WAIT until there is memory, with HUGEZERO_FILL until the kernel has
 *             cleared it. Threads that allocate at once take turns for the exchange with the daemon.
 * Returns:    0, or a negative errno; hugezero_conn_get_error_text(NULL) says more
 * Errors:     those of hugezero_conn_open(), hugezero_acquire() and hugezero_grant_map()
 *             -ENOMEM  with HUGEZERO_FALLBACK_MMAP: the kernel has too few free huge pages as well
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_alloc(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **ret_addr);

/**
 * hugezero_alloc_size - the real size of memory from hugezero_alloc()
 * @addr:       as hugezero_alloc() returned it. Borrowed.
 * @ret_bytes:  bytes mapped there, at least what was asked for
 *
 * All of it may be used.
 *
 * Guarantee:  does not change until hugezero_free()
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no memory of hugezero_alloc() begins at @addr
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_alloc_size(const void *addr, uint64_t *ret_bytes);

/**
 * hugezero_free - give memory from hugezero_alloc() back
 * @addr:  as hugezero_alloc() returned it, or NULL, which does nothing. Consumed.
 *
 * Unmaps it and, where a connection is open, asks the daemon to look after it now; the answer is not waited for. A forked
 * child frees its own mapping only, the parent keeps the memory.
 *
 * Guarantee:  nothing is mapped there any more; pages that a device has pinned are not handed out before it lets them go
 * Threads:    any
 * Blocks:     while another thread exchanges messages with the daemon; not for an answer of its own
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no memory of hugezero_alloc() begins at @addr
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_free(void *addr);

/* ------------------------------------------------------------------- status ----------------------------------------------- */

/* The daemon as a whole. n_..._total and ..._bytes_total count since its start. */
struct hugezero_daemon_info {
        uint32_t struct_bytes;         /* set by the caller: sizeof(struct hugezero_daemon_info) */
        uint32_t reserved;             /* 0 */
        char version[32];              /* the daemon's, 0-terminated */
        uint64_t uptime_ms;            /* milliseconds since start */
        uint64_t n_clients;            /* connections, this one included */
        uint64_t n_waiting;            /* requests that were not answered yet */
        uint64_t n_grants;             /* grants of which something is still out */
        uint64_t n_extents_granted;    /* extents out */
        uint64_t n_granted_total;      /* requests that were granted */
        uint64_t n_refused_total;      /* requests that were refused */
        uint64_t n_exact_total;        /* extents handed out as they were */
        uint64_t n_cut_total;          /* extents cut to the request */
        uint64_t n_grown_total;        /* extents grown to the request */
        uint64_t n_built_total;        /* extents built for the request from nothing */
        uint64_t zeroed_bytes_total;   /* zeroed by kernel or daemon, for whatever purpose */
        uint64_t granted_bytes_total;  /* handed out */
        uint64_t scrubbed_bytes_total; /* zeroed in place for another use by the same service */
        uint64_t n_fds_in_flight;      /* descriptors sent and not yet received */
        uint64_t n_doubts_total;       /* extents dropped because something about them was not certain */
        uint64_t capped_at_extents;    /* 0; or pools lack memory, and its limit of open files stops them at so many extents */
};

/* A pool on one node. */
struct hugezero_pool_info {
        uint32_t struct_bytes;        /* set by the caller: sizeof(struct hugezero_pool_info) */
        int32_t node;                 /* NUMA node number */
        char name[32];                /* as configured, 0-terminated */
        uint64_t page_size_bytes;     /* bytes of one page */
        uint64_t extent_bytes;        /* of every extent; 0 = any size (ExtentSize=auto) */
        uint64_t target_bytes;        /* what the pool is to hold, handed out or not */
        uint64_t ready_bytes;         /* zero, populated, to be had at once */
        uint64_t granted_bytes;       /* held by clients */
        uint64_t returned_bytes;      /* came back, not zeroed yet */
        uint64_t filling_bytes;       /* being zeroed by the kernel */
        uint64_t shortfall_bytes;     /* missing because the kernel has no pages for it */
        uint64_t pinned_bytes;        /* dropped, but a device or the kernel still has the pages pinned */
        uint64_t kernel_free_bytes;   /* free pages of this size that the kernel has on the node, reserved ones left out */
        uint64_t largest_ready_bytes; /* the largest ready extent */
        uint64_t n_extents_ready;     /* ready extents */
        uint64_t n_exact_total;       /* as in hugezero_daemon_info, for this pool and node */
        uint64_t n_cut_total;
        uint64_t n_grown_total;
        uint64_t n_built_total;
        uint64_t zeroed_bytes_total;
        char clear_method[16];        /* how memory that came back is cleared on the node; empty: not measured yet */
        uint32_t n_workers;           /* threads of the daemon on the node */
        uint32_t n_fill_threads;      /* of them are worth filling with; 0 = not measured yet */
        uint64_t paced_wait_ms;       /* since start: requests lacked memory that the daemon's pace held back */
        uint64_t audited_bytes_total; /* since start: ready memory that was read again */
        uint64_t n_audit_errors_total; /* since start: extents that were not zero then, and were dropped */
        uint32_t n_scrub_threads;     /* of n_workers, how many clear at a time what nobody waits for; 0 = not measured yet */
        uint16_t clear_speed;         /* of clear_method as measured, in 0.1 GB/s; 0 = not measured */
        uint16_t clear_survival_percent; /* of a warm cache that it leaves as it was; UINT16_MAX = not measured */
};

/* States of a granted extent. */

#define HUGEZERO_EXTENT_HELD UINT32_C(1)      /* somebody holds it, or it is on its way to the client */
#define HUGEZERO_EXTENT_RETURNING UINT32_C(2) /* closed; being asked about, or in its grace period */
#define HUGEZERO_EXTENT_PINNED UINT32_C(3)    /* dropped, but its pages are still pinned by a device or the kernel */

/* One granted extent: those of the caller's uid, for administrators those of all. */
struct hugezero_grant_info {
        uint32_t struct_bytes;    /* set by the caller: sizeof(struct hugezero_grant_info) */
        uint32_t extent;          /* its number within the grant, as the daemon counts */
        uint64_t grant_id;        /* see hugezero_grant_get_id() */
        uint32_t uid;             /* of the process that asked */
        uint32_t pid;             /* of the process that asked; it may be gone, and the memory in other hands */
        int32_t node;             /* NUMA node number */
        uint32_t state;           /* HUGEZERO_EXTENT_HELD and so on */
        uint64_t bytes;           /* of the extent */
        uint64_t page_size_bytes; /* bytes of one page */
        uint64_t age_ms;          /* milliseconds since hand-out */
        uint64_t dev, ino;        /* name the memory in /proc/PID/maps and /proc/PID/fd */
        char pool[32];            /* where it came from, 0-terminated */
};

/* What a limit counts. Later versions may know more. */
#define HUGEZERO_LIMIT_BYTES          1
#define HUGEZERO_LIMIT_GRANTS         2
#define HUGEZERO_LIMIT_CONNECTIONS    3
#define HUGEZERO_LIMIT_WAITING        4
#define HUGEZERO_LIMIT_REQUESTS       5 /* in one second */
#define HUGEZERO_LIMIT_FDS_IN_FLIGHT  6 /* sent and not yet read */
#define HUGEZERO_LIMIT_PAGES          256 /* + N: of the bytes, those in pages of 2^N bytes; where there are any, or a limit */
#define HUGEZERO_ALL_USERS            UINT32_MAX /* in place of a uid: a limit on all users together */
#define HUGEZERO_NO_LIMIT             UINT64_MAX

/* One limit: those of the caller's uid, for administrators those of all that have anything, and of all together. */
struct hugezero_limit_info {
        uint32_t struct_bytes; /* set by the caller: sizeof(struct hugezero_limit_info) */
        uint32_t uid;          /* or HUGEZERO_ALL_USERS */
        uint32_t kind;         /* HUGEZERO_LIMIT_BYTES and so on */
        uint32_t reserved;     /* 0 */
        uint64_t used;         /* in bytes or pieces, as the kind says */
        uint64_t limit;        /* HUGEZERO_NO_LIMIT: none */
};

/**
 * hugezero_status_read - ask the daemon for its figures
 * @conn:        open connection. Borrowed.
 * @ret_status:  set on success. Owned by the caller; release with hugezero_status_free().
 *
 * Reads the daemon's own figures, those of all pools, the granted extents and the limits of the caller's uid (for administrators
 * those of all). The four are asked for one after the other, the extents some forty at a time: what changes meanwhile may be seen
 * in one part and not in another.
 *
 * Guarantee:  the snapshot does not change, and needs no connection any more
 * Threads:    one at a time per connection
 * Blocks:     until the daemon has answered, one exchange per forty extents and four more
 * Returns:    0, or a negative errno
 * Errors:     -ENOBUFS, -ENOMEM  as hugezero_request_submit()
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_status_read(struct hugezero_conn *conn, struct hugezero_status **ret_status);

/**
 * hugezero_status_free - forget a snapshot
 * @status:  a snapshot, or NULL, which does nothing. Consumed.
 *
 * Frees memory, nothing else.
 *
 * Guarantee:  none needed
 * Threads:    one at a time per snapshot
 * Blocks:     never
 * Returns:    nothing
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT void hugezero_status_free(struct hugezero_status *status);

/**
 * hugezero_status_get_daemon - the figures of the daemon as a whole
 * @status:  a snapshot. Borrowed.
 * @info:    in: struct_bytes; out: the rest. Borrowed.
 *
 * Fills as much of @info as its struct_bytes and the library's version have in common, and sets the rest to 0.
 *
 * Guarantee:  @info is unchanged on failure
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  a struct_bytes smaller than that of version 0.1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_status_get_daemon(const struct hugezero_status *status, struct hugezero_daemon_info *info);

/**
 * hugezero_status_get_n_pools - how many rows of pools there are
 * @status:  a snapshot. Borrowed.
 *
 * One row per pool and node, in the daemon's order.
 *
 * Guarantee:  does not change
 * Threads:    any
 * Blocks:     never
 * Returns:    the number; 0 for NULL
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT uint32_t hugezero_status_get_n_pools(const struct hugezero_status *status);

/**
 * hugezero_status_get_pool - one row: a pool on a node
 * @status:  a snapshot. Borrowed.
 * @idx:     position of the row, from 0
 * @info:    in: struct_bytes; out: the rest. Borrowed.
 *
 * Fills as much of @info as its struct_bytes and the library's version have in common, and sets the rest to 0.
 *
 * Guarantee:  @info is unchanged on failure
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no such row, or a struct_bytes smaller than that of version 0.1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_status_get_pool(const struct hugezero_status *status, uint32_t idx,
                                             struct hugezero_pool_info *info);

/**
 * hugezero_status_get_n_grants - how many rows of granted extents there are
 * @status:  a snapshot. Borrowed.
 *
 * One row per extent, by grant and then by number within the grant.
 *
 * Guarantee:  does not change
 * Threads:    any
 * Blocks:     never
 * Returns:    the number; 0 for NULL
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT uint32_t hugezero_status_get_n_grants(const struct hugezero_status *status);

/**
 * hugezero_status_get_grant - one row: a granted extent
 * @status:  a snapshot. Borrowed.
 * @idx:     position of the row, from 0
 * @info:    in: struct_bytes; out: the rest. Borrowed.
 *
 * Fills as much of @info as its struct_bytes and the library's version have in common, and sets the rest to 0.
 *
 * Guarantee:  @info is unchanged on failure
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no such row, or a struct_bytes smaller than that of version 0.1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_status_get_grant(const struct hugezero_status *status, uint32_t idx,
                                              struct hugezero_grant_info *info);

/**
 * hugezero_status_get_n_limits - how many limits the snapshot has
 * @status:  a snapshot. Borrowed.
 *
 * They are sorted by uid and kind. A daemon that is too old to tell them has none.
 *
 * Guarantee:  does not change
 * Threads:    any
 * Blocks:     never
 * Returns:    the number; 0 for NULL
 * Errors:     none
 * Since:      0.1
 */
HUGEZERO_EXPORT uint32_t hugezero_status_get_n_limits(const struct hugezero_status *status);

/**
 * hugezero_status_get_limit - one row: what a user may have, and has
 * @status:  a snapshot. Borrowed.
 * @idx:     position of the row, from 0
 * @info:    in: struct_bytes; out: the rest. Borrowed.
 *
 * Fills as much of @info as its struct_bytes and the library's version have in common, and sets the rest to 0.
 *
 * Guarantee:  @info is unchanged on failure
 * Threads:    any
 * Blocks:     never
 * Returns:    0, or a negative errno
 * Errors:     -EINVAL  no such row, or a struct_bytes smaller than that of version 0.1
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_status_get_limit(const struct hugezero_status *status, uint32_t idx,
                                              struct hugezero_limit_info *info);

/* --------------------------------------------------------------- administration -------------------------------------------- */

/**
 * hugezero_daemon_reload - have the daemon read its configuration again
 * @conn:  open connection of an administrator: root, the user that the daemon runs as, those of AdminUsers=. Borrowed.
 *
 * Pools grow, shrink, come and go as the file says, and lose what hugezero_pool_resize() gave them. What is ready beyond a lower
 * target goes back to the kernel; what clients hold stays theirs. SIGHUP to the daemon does the same and tells its log alone.
 *
 * Guarantee:  all of the configuration is in force, but for keys that are read at start only, or nothing of it when there is an
 *             error in it. After success hugezero_conn_get_error_text() names those of them that have changed
 *             ("SocketGroup=, Batch="); "" when none has.
 * Threads:    one at a time per connection
 * Blocks:     until the daemon has read it; filling and shrinking go on behind it
 * Returns:    0, or a negative errno
 * Errors:     -EPERM   the caller is no administrator
 *             -EINVAL  there is an error in it; hugezero_conn_get_error_text() says in which line
 *             -ENOSPC  too many pools, those included that were removed and are still held
 *             -ENOENT, -EACCES and the like  the file cannot be read
 *             -EOPNOTSUPP  the daemon is too old
 *             -ENOBUFS, -ENOMEM  as hugezero_request_submit()
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_daemon_reload(struct hugezero_conn *conn);

/**
 * hugezero_pool_resize - give a pool another target
 * @conn:          open connection of an administrator: root, the user that the daemon runs as, those of AdminUsers=. Borrowed.
 * @pool:          its name; NULL or "" for all pools. Borrowed.
 * @node:          NUMA node number, or HUGEZERO_NODE_ANY for all nodes
 * @target_bytes:  what it is to hold on each of these nodes, handed out or not; whole pages, in a pool of fixed extents whole
 *                 extents; 0 empties it
 *
 * The daemon fills the pool up to there, or gives what is ready beyond it back to the kernel; what clients hold stays theirs. It
 * lasts until the next hugezero_daemon_reload() or start.
 *
 * Guarantee:  all that are meant have the target, or none
 * Threads:    one at a time per connection
 * Blocks:     until the daemon has taken note; filling and shrinking go on behind it, as hugezero_status_read() shows
 * Returns:    0, or a negative errno
 * Errors:     -EPERM   the caller is no administrator
 *             -ENOENT  there is no such pool, or not on that node
 *             -EINVAL  no whole pages or extents, a name that no pool can have, or a negative node
 *             -EOPNOTSUPP  the daemon is too old
 *             -ENOBUFS, -ENOMEM  as hugezero_request_submit()
 *             those of the connection: -ECONNRESET, -EBADMSG, -ECHILD
 * Since:      0.1
 */
HUGEZERO_EXPORT int hugezero_pool_resize(struct hugezero_conn *conn, const char *pool, int32_t node, uint64_t target_bytes);

#ifdef __cplusplus
}
#endif

#endif
