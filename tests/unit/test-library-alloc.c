/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* hugezero_alloc() and its relatives, and the figures of the daemon. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "fake-daemon.h"
#include "hugezero.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* A pool of so many extents, each a new sparse file; what is released comes back. */
struct stock {
        pthread_mutex_t lock; /* protects the rest */
        pthread_cond_t changed;
        unsigned n_ready, n_granted, n_released, n_mapped, n_waiting, n_gone;
        int error; /* refuse everything with it when it is not 0 */
        const char *text; /* the reason; NULL: a short one */
        bool hold; /* keep the next request waiting until the test has set go */
        bool go;
};

#define STOCK(n)                                                                                                               \
        { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .n_ready = (n) }

static void grant_or_refuse(struct stock *stock, int fd, const struct wire_message *m) {
        const struct wire_item *item = &m->c_acquire.items[0];
        uint64_t bytes = (item->bytes + 2 * MIB - 1) & ~(2 * MIB - 1);

        must(m->c_acquire.n_items == 1 && item->flags == WIRE_ITEM_SEVERAL);
        if (stock->hold) {
                stock->hold = false;
                stock->n_waiting++;
                (void) pthread_cond_broadcast(&stock->changed);
                while (!stock->go)
                        (void) pthread_cond_wait(&stock->changed, &stock->lock);
        }
        while (stock->n_ready == 0 && m->c_acquire.on_miss == WIRE_MISS_WAIT) {
                stock->n_waiting++;
                (void) pthread_cond_broadcast(&stock->changed);
                (void) pthread_cond_wait(&stock->changed, &stock->lock);
        }
        if (stock->error || stock->n_ready == 0) {
                fake_refuse(fd, m->request_id, stock->error ? stock->error : EAGAIN, stock->text ? stock->text : "nothing is ready");
                return;
        }
        stock->n_ready--;
        _cleanup_close_ int memfd = fake_memfd(bytes);
        fake_grant(fd, m->request_id, ++stock->n_granted, &memfd, 1, bytes, 21);
}

static void script_stock(struct fake_daemon *fake, int fd) {
        struct stock *stock = fake->data;
        struct wire_message m;

        if (!fake_greet(fd))
                return;
        while (fake_receive(fd, 0, &m)) {
                (void) pthread_mutex_lock(&stock->lock);
                if (m.op == WIRE_C_ACQUIRE)
                        grant_or_refuse(stock, fd, &m);
                else if (m.op == WIRE_C_MAPPED)
                        stock->n_mapped++;
                else if (m.op == WIRE_C_RELEASE) {
                        stock->n_released++;
                        stock->n_ready++;
                        (void) pthread_cond_broadcast(&stock->changed);
                        fake_send(fd, &(struct wire_message){.op = WIRE_D_DONE, .request_id = m.request_id}, NULL, 0);
                } else
                        must(!"an operation that hugezero_alloc() does not need");
                (void) pthread_mutex_unlock(&stock->lock);
        }
        (void) pthread_mutex_lock(&stock->lock);
        stock->n_gone++;
        (void) pthread_cond_broadcast(&stock->changed);
        (void) pthread_mutex_unlock(&stock->lock);
}

static void start(struct fake_daemon *fake, struct stock *stock) {
        fake_start(fake, script_stock, stock);
        assert_int_equal(setenv("HUGEZERO_SOCKET", fake->path, 1), 0);
}

static void wait_for_count(struct stock *stock, const unsigned *count, unsigned n) {
        (void) pthread_mutex_lock(&stock->lock);
        while (*count < n)
                (void) pthread_cond_wait(&stock->changed, &stock->lock);
        (void) pthread_mutex_unlock(&stock->lock);
}

static void assert_wrong(uint64_t bytes, uint64_t page_size_bytes, int32_t node, uint32_t flags, void **addr, const char *part) {
        assert_int_equal(hugezero_alloc(bytes, page_size_bytes, node, flags, addr), -EINVAL);
        if (!strstr(hugezero_conn_get_error_text(NULL), part))
                fail_msg("\"%s\" is missing in \"%s\"", part, hugezero_conn_get_error_text(NULL));
}

static void memory_is_had_and_given_back_in_one_call_each(void **state) {
        struct stock stock = STOCK(2);
        struct fake_daemon fake;
        uint64_t bytes;
        void *addr;

        start(&fake, &stock);
        assert_int_equal(hugezero_alloc(2 * MIB + 1, 0, HUGEZERO_NODE_ANY, 0, &addr), 0);
        assert_int_equal(hugezero_alloc_size(addr, &bytes), 0);
        assert_int_equal(bytes, 4 * MIB);
        memset(addr, 1, bytes);
        assert_int_equal(hugezero_alloc_size((char *) addr + 4096, &bytes), -EINVAL);
        assert_int_equal(hugezero_free((char *) addr + 4096), -EINVAL);
        assert_int_equal(hugezero_free(addr), 0);
        assert_int_equal(hugezero_free(addr), -EINVAL);
        assert_int_equal(hugezero_free(NULL), 0);
        assert_int_equal(msync(addr, 4096, MS_ASYNC), -1); /* nothing is mapped there */

        /* Whole GiB: aligned, touched, and reported, so that the daemon can unmap them. */
        assert_int_equal(hugezero_alloc(2 * GIB, 0, HUGEZERO_NODE_ANY, 0, &addr), 0);
        assert_int_equal((uintptr_t) addr % GIB, 0);
        assert_int_equal(hugezero_free(addr), 0);

        assert_wrong(0, 0, -1, 0, &addr, "0 bytes");
        assert_wrong(1, 3, -1, 0, &addr, "no page size");
        assert_wrong(1, 0, -5, 0, &addr, "no node -5");
        assert_wrong(1, 0, 1024, 0, &addr, "no node 1024");
        assert_wrong(1, 0, -1, 0, NULL, "no place for the address");
        assert_wrong(1, 0, -1, HUGEZERO_REOPENABLE, &addr, "the flags 0x4 ");
        assert_wrong(1, 0, -1, HUGEZERO_WAIT | HUGEZERO_FILL, &addr, "HUGEZERO_WAIT and HUGEZERO_FILL");
        fake_stop(&fake);
        assert_int_equal(stock.n_granted, 2);
        assert_int_equal(stock.n_released, 2);
        assert_int_equal(stock.n_mapped, 1);
        assert_int_equal(fake.n_clients, 1);
}

#define N_PIECES 1500 /* more than the socket and the library's queue take together */

static void freeing_faster_than_the_daemon_reads_does_no_harm(void **state) {
        struct stock stock = STOCK(N_PIECES + 1);
        struct fake_daemon fake;
        void *pieces[N_PIECES];

        start(&fake, &stock);
        for (unsigned i = 0; i < N_PIECES; i++)
                assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &pieces[i]), 0);
        (void) pthread_mutex_lock(&stock.lock); /* it does not read now */
        for (unsigned i = 0; i < N_PIECES; i++)
                assert_int_equal(hugezero_free(pieces[i]), 0);
        (void) pthread_mutex_unlock(&stock.lock);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &pieces[0]), 0);
        assert_int_equal(hugezero_free(pieces[0]), 0);
        fake_stop(&fake);
        assert_true(stock.n_released > 100);
        assert_int_equal(fake.n_clients, 1);
}

#define N_THREADS 8
#define N_ROUNDS 40

static void *allocate_and_free(void *userdata) {
        for (unsigned i = 0; i < N_ROUNDS; i++) {
                uint64_t *addr, bytes;

                must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, (void **) &addr) == 0);
                must(*addr == 0);
                *addr = (uintptr_t) userdata;
                must(hugezero_alloc_size(addr, &bytes) == 0 && bytes == 2 * MIB);
                must(*addr == (uintptr_t) userdata);
                must(hugezero_free(addr) == 0);
        }
        return NULL;
}

static void any_thread_may_allocate_at_any_time(void **state) {
        struct stock stock = STOCK(N_THREADS * N_ROUNDS);
        pthread_t threads[N_THREADS];
        struct fake_daemon fake;

        start(&fake, &stock);
        for (uintptr_t i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, allocate_and_free, (void *) (i + 1)), 0);
        for (unsigned i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_join(threads[i], NULL), 0);
        fake_stop(&fake);
        assert_int_equal(stock.n_granted, N_THREADS * N_ROUNDS);
        assert_int_equal(fake.n_clients, 1);
}

static void *allocate_waiting(void *userdata) {
        must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, HUGEZERO_WAIT, userdata) == 0);
        return NULL;
}

static void a_waiting_allocation_does_not_keep_another_thread_from_freeing(void **state) {
        struct stock stock = STOCK(1);
        void *first, *second = NULL;
        struct fake_daemon fake;
        pthread_t thread;

        start(&fake, &stock);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &first), 0);
        assert_int_equal(pthread_create(&thread, NULL, allocate_waiting, &second), 0);
        wait_for_count(&stock, &stock.n_waiting, 1);
        assert_int_equal(hugezero_free(first), 0); /* which is what the other one waits for */
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(hugezero_free(second), 0);
        fake_stop(&fake);
}

static void a_restarted_daemon_is_found_again(void **state) {
        struct stock stock = STOCK(1), later = STOCK(1);
        void *kept, *addr;
        struct fake_daemon fake;

        start(&fake, &stock);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &kept), 0);
        fake_stop(&fake);
        *(char *) kept = 1; /* memory does not go with its daemon */
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr), -ENOENT);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), fake.path));
        start(&fake, &later);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr), 0);
        assert_int_equal(hugezero_free(addr), 0);
        assert_int_equal(hugezero_free(kept), 0);
        fake_stop(&fake);
}

static void wait_for_success(pid_t pid) {
        int status;

        must(pid > 0 && waitpid(pid, &status, 0) == pid);
        if (WIFSIGNALED(status))
                print_error("the child was ended by signal %d\n", WTERMSIG(status));
        must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* In a child: what the parent allocated is there and can be freed, and new memory comes over a connection of the child's own.
 */
static void use_in_child(char *inherited) {
        uint64_t bytes;
        void *addr;

        must(inherited[0] == 'p');
        must(hugezero_alloc_size(inherited, &bytes) == 0 && bytes == 2 * MIB);
        must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr) == 0);
        must(hugezero_free(addr) == 0);
        inherited[0] = 'c';
        must(hugezero_free(inherited) == 0);
}

static int next_fd(void) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

        must(fd >= 0 && close(fd) == 0);
        return fd;
}

static void allocates(int error) {
        void *addr;
        int r = hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr);

        if (r != error)
                print_error("hugezero_alloc() gave %d instead of %d: %s\n", r, error, hugezero_conn_get_error_text(NULL));
        must(r == error && (r < 0 || hugezero_free(addr) == 0));
}

/* As programs do that become a daemon or start another one. In a child: the fake daemon keeps its own. */
static void close_all_descriptors(void) {
        int pair[2], fd;
        char byte;
        void *addr;

        closefrom(3);
        fd = next_fd();
        allocates(0);
        closefrom(3);
        allocates(0);
        must(fcntl(fd, F_GETFD) >= 0); /* that is the new one */

        /* The number is somebody else's: nothing is sent there, nothing is closed. */
        must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr) == 0);
        must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, pair) == 0 && dup2(pair[0], fd) == fd);
        pid_t pid = fork();
        if (pid == 0)
                _exit(fcntl(fd, F_GETFD) < 0);
        wait_for_success(pid);
        must(hugezero_free(addr) == 0);
        allocates(0);
        must(read(pair[1], &byte, 1) < 0 && errno == EAGAIN);
        must(fcntl(fd, F_GETFD) >= 0);
        must(close(fd) == 0);
        must(open("/dev/null", O_RDONLY) == fd); /* not even a socket */
        allocates(0);

        /* And without a daemon there is what there would be otherwise. */
        closefrom(3);
        must(setenv("HUGEZERO_SOCKET", "/nonexistent/socket", 1) == 0);
        allocates(-ENOENT);
        closefrom(3);
        int r = hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, HUGEZERO_FALLBACK_MMAP, &addr);
        must(r == -ENOMEM || (r == 0 && hugezero_free(addr) == 0));
}

static void a_program_that_closes_all_descriptors_goes_on(void **state) {
        struct stock stock = STOCK(100);
        struct fake_daemon fake;

        start(&fake, &stock);
        pid_t pid = fork();
        if (pid == 0) {
                close_all_descriptors();
                _exit(0);
        }
        wait_for_success(pid);
        fake_stop(&fake);
}

static void a_forked_child_allocates_over_a_connection_of_its_own(void **state) {
        struct stock stock = STOCK(3);
        struct fake_daemon fake;
        char *addr;

        start(&fake, &stock);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, (void **) &addr), 0);
        addr[0] = 'p';
        pid_t pid = fork();
        if (pid == 0) {
                use_in_child(addr);
                _exit(0);
        }
        wait_for_success(pid);
        assert_int_equal(addr[0], 'c'); /* shared with the child, and kept when that had freed it */
        assert_int_equal(hugezero_free(addr), 0);
        fake_stop(&fake);
        assert_int_equal(fake.n_clients, 2);
}

/* A process that allocates, forks a child which sits there until @go closes, and ends without it. */
static void allocate_and_leave_a_child(int go[2]) {
        uint8_t byte;
        void *addr;

        must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr) == 0);
        pid_t pid = fork();
        must(pid >= 0);
        if (pid == 0) {
                close(go[1]);
                must(read(go[0], &byte, 1) == 0);
        }
        _exit(0);
}

static void a_forked_child_does_not_keep_the_parents_connection_open(void **state) {
        struct stock stock = STOCK(1);
        struct fake_daemon fake;
        int go[2];

        assert_int_equal(pipe(go), 0);
        start(&fake, &stock);
        pid_t pid = fork();
        if (pid == 0)
                allocate_and_leave_a_child(go);
        wait_for_success(pid);
        wait_for_count(&stock, &stock.n_gone, 1); /* the daemon sees the end of the parent while the child lives */
        close(go[0]);
        close(go[1]);
        fake_stop(&fake);
}

static void *allocate_once(void *userdata) {
        must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, userdata) == 0);
        return NULL;
}

/* The other thread is in the middle of the exchange with the daemon, and has its lock; neither it nor the lock is in the child.
 */
static void a_fork_in_the_middle_of_an_allocation_is_safe(void **state) {
        struct stock stock = STOCK(2);
        struct fake_daemon fake;
        void *addr, *other;
        pthread_t thread;

        start(&fake, &stock);
        stock.hold = true;
        assert_int_equal(pthread_create(&thread, NULL, allocate_once, &other), 0);
        wait_for_count(&stock, &stock.n_waiting, 1);
        int n_before = count_fds();
        pid_t pid = fork();
        if (pid == 0) {
                alarm(10);                         /* a lock that nobody will release would end here */
                must(count_fds() == n_before - 1); /* the connection is not held open here */
                must(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, 0, &addr) == 0);
                must(hugezero_free(addr) == 0);
                _exit(0);
        }
        wait_for_success(pid);
        (void) pthread_mutex_lock(&stock.lock);
        stock.go = true;
        (void) pthread_cond_broadcast(&stock.changed);
        (void) pthread_mutex_unlock(&stock.lock);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(hugezero_free(other), 0);
        fake_stop(&fake);
        assert_int_equal(fake.n_clients, 2);
}

static void the_fall_back_is_the_kernels_huge_pages(void **state) {
        struct stock stock = STOCK(0);
        struct fake_daemon fake;
        uint64_t bytes;
        char *addr;

        int fd = fake_hugetlb_memfd(4 * MIB);
        if (fd < 0)
                skip();
        close(fd);
        start(&fake, &stock);
        assert_int_equal(hugezero_alloc(2 * MIB, 2 * MIB, HUGEZERO_NODE_ANY, 0, (void **) &addr), -EAGAIN);
        assert_string_equal(hugezero_conn_get_error_text(NULL), "nothing is ready");
        for (int32_t node = HUGEZERO_NODE_LOCAL; node <= 0; node++) { /* local, any, node 0 */
                assert_int_equal(hugezero_alloc(MIB, 2 * MIB, node, HUGEZERO_FALLBACK_MMAP, (void **) &addr), 0);
                assert_int_equal(hugezero_alloc_size(addr, &bytes), 0);
                assert_int_equal(bytes, 2 * MIB);
                addr[bytes - 1] = 1;
                assert_int_equal(hugezero_free(addr), 0);
        }
        assert_string_equal(hugezero_conn_get_error_text(NULL), "nothing is ready");
        assert_true(hugezero_alloc(2 * MIB, 2 * MIB, 1023, HUGEZERO_FALLBACK_MMAP, (void **) &addr) < 0); /* no such node */
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "from the kernel"));
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "nothing is ready"));
        stock.text = "x123456789x123456789x123456789x123456789x123456789x123456789x123456789x123456789x123456789x123456789"
                     "x123456789x123456789x123456789x123456789x123456789x123456789x123456789x123456789x123456789 the end";
        assert_true(hugezero_alloc(2 * MIB, 2 * MIB, 1023, HUGEZERO_FALLBACK_MMAP, (void **) &addr) < 0);
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), "from the kernel"));
        assert_non_null(strstr(hugezero_conn_get_error_text(NULL), " the end"));
        stock.error = EDQUOT; /* a limit is not to be gone round */
        assert_int_equal(hugezero_alloc(2 * MIB, 2 * MIB, HUGEZERO_NODE_ANY, HUGEZERO_FALLBACK_MMAP, (void **) &addr), -EDQUOT);
        fake_stop(&fake);
        assert_int_equal(hugezero_alloc(2 * MIB, 0, HUGEZERO_NODE_ANY, HUGEZERO_FALLBACK_MMAP, (void **) &addr), 0);
        assert_int_equal(hugezero_free(addr), 0);
        assert_int_equal(stock.n_released, 0);
}

/* ---- figures ---- */

#define N_POOLS (WIRE_MAX_POOL_ROWS + 2)
#define N_GRANTS (WIRE_MAX_GRANT_ROWS + 1)
#define N_LIMITS (WIRE_MAX_LIMIT_ROWS + 1)

enum misbehaviour { NONE, POOLS_SKIPPED, GRANTS_REPEATED, GRANTS_BACKWARDS, LIMITS_REPEATED };

static void answer_pools(int fd, const struct wire_message *m, enum misbehaviour misbehaviour) {
        struct wire_message answer = {.op = WIRE_D_POOLS, .request_id = m->request_id};
        struct wire_d_pools *pools = &answer.d_pools;

        pools->n_rows_total = N_POOLS;
        pools->first_row = m->c_pools.first_row + (misbehaviour == POOLS_SKIPPED && m->c_pools.first_row > 0);
        for (uint32_t i = pools->first_row; i < N_POOLS && pools->n_rows < WIRE_MAX_POOL_ROWS; i++)
                pools->rows[pools->n_rows++] = (struct wire_pool_row){.name = "main", .node = (int32_t) i, .n_cut = i + 7};
        fake_send(fd, &answer, NULL, 0);
}

static void answer_grants(int fd, const struct wire_message *m, enum misbehaviour misbehaviour) {
        struct wire_message answer = {.op = WIRE_D_GRANTS, .request_id = m->request_id};
        struct wire_d_grants *grants = &answer.d_grants;
        uint64_t next = m->c_grants.after_grant_id + 1;

        if (next > 1 && misbehaviour == GRANTS_REPEATED)
                next--;
        if (next > 1 && misbehaviour == GRANTS_BACKWARDS)
                next = 1;
        for (; next <= N_GRANTS && grants->n_rows < WIRE_MAX_GRANT_ROWS; next++)
                grants->rows[grants->n_rows++] = (struct wire_grant_row){
                        .grant_id = next, .page_shift = 21, .state = WIRE_EXTENT_PINNED, .bytes = 4 * MIB, .ino = next * 2};
        grants->more = next <= N_GRANTS;
        fake_send(fd, &answer, NULL, 0);
}

static void answer_limits(int fd, const struct wire_message *m, enum misbehaviour misbehaviour) {
        struct wire_message answer = {.op = WIRE_D_LIMITS, .request_id = m->request_id};
        uint32_t next = m->c_limits.after_kind + 1;

        if (next > 1 && misbehaviour == LIMITS_REPEATED)
                next--;
        for (; next <= N_LIMITS && answer.d_limits.n_rows < WIRE_MAX_LIMIT_ROWS; next++)
                answer.d_limits.rows[answer.d_limits.n_rows++] =
                        (struct wire_limit_row){.uid = 1000, .kind = (uint16_t) next, .used = next, .limit = UINT64_MAX};
        answer.d_limits.more = next <= N_LIMITS;
        fake_send(fd, &answer, NULL, 0);
}

static void script_status(struct fake_daemon *fake, int fd) {
        enum misbehaviour misbehaviour = fake->data ? *(enum misbehaviour *) fake->data : NONE;
        struct wire_message m;

        must(fake_greet(fd));
        while (fake_receive(fd, 0, &m))
                if (m.op == WIRE_C_STATUS) {
                        struct wire_message answer = {
                                .op = WIRE_D_STATUS,
                                .request_id = m.request_id,
                                .d_status = {.daemon_version = "9.8.7", .n_clients = 3, .n_doubts = 4},
                        };
                        fake_send(fd, &answer, NULL, 0);
                } else if (m.op == WIRE_C_POOLS)
                        answer_pools(fd, &m, misbehaviour);
                else if (m.op == WIRE_C_LIMITS)
                        answer_limits(fd, &m, misbehaviour);
                else
                        answer_grants(fd, &m, misbehaviour);
}

static void figures_of_many_rows_come_in_one_snapshot(void **state) {
        struct hugezero_daemon_info daemon = {.struct_bytes = sizeof(daemon)};
        struct hugezero_pool_info pool = {.struct_bytes = sizeof(pool)};
        struct hugezero_grant_info grant = {.struct_bytes = sizeof(grant)};
        struct hugezero_limit_info limit = {.struct_bytes = sizeof(limit)};
        struct hugezero_status *status;
        struct hugezero_conn *conn;
        struct fake_daemon fake;

        fake_start(&fake, script_status, NULL);
        assert_int_equal(hugezero_conn_open(fake.path, &conn), 0);
        assert_int_equal(hugezero_status_read(conn, &status), 0);
        hugezero_conn_close(conn);
        fake_stop(&fake);
        assert_int_equal(hugezero_status_get_daemon(status, &daemon), 0);
        assert_string_equal(daemon.version, "9.8.7");
        assert_int_equal(daemon.n_clients, 3);
        assert_int_equal(daemon.n_doubts_total, 4);
        assert_int_equal(hugezero_status_get_n_pools(status), N_POOLS);
        assert_int_equal(hugezero_status_get_n_grants(status), N_GRANTS);
        for (uint32_t i = 0; i < N_POOLS; i++) {
                assert_int_equal(hugezero_status_get_pool(status, i, &pool), 0);
                assert_int_equal(pool.node, i);
                assert_int_equal(pool.n_cut_total, i + 7);
                assert_string_equal(pool.name, "main");
        }
        for (uint32_t i = 0; i < N_GRANTS; i++) {
                assert_int_equal(hugezero_status_get_grant(status, i, &grant), 0);
                assert_int_equal(grant.grant_id, i + 1);
                assert_int_equal(grant.ino, 2 * (i + 1));
                assert_int_equal(grant.page_size_bytes, 2 * MIB);
                assert_int_equal(grant.state, HUGEZERO_EXTENT_PINNED);
        }
        assert_int_equal(hugezero_status_get_n_limits(status), N_LIMITS);
        for (uint32_t i = 0; i < N_LIMITS; i++) {
                assert_int_equal(hugezero_status_get_limit(status, i, &limit), 0);
                assert_int_equal(limit.uid, 1000);
                assert_int_equal(limit.kind, i + 1);
                assert_int_equal(limit.used, i + 1);
                assert_true(limit.limit == HUGEZERO_NO_LIMIT);
        }
        assert_int_equal(hugezero_status_get_limit(status, N_LIMITS, &limit), -EINVAL);
        assert_int_equal(hugezero_status_get_pool(status, N_POOLS, &pool), -EINVAL);
        assert_int_equal(hugezero_status_get_grant(status, N_GRANTS, &grant), -EINVAL);
        pool.struct_bytes = 16;
        assert_int_equal(hugezero_status_get_pool(status, 0, &pool), -EINVAL);
        hugezero_status_free(status);
        hugezero_status_free(NULL);
}

static void rows_in_a_wrong_order_do_not_keep_us_asking_for_ever(void **state) {
        for (enum misbehaviour misbehaviour = POOLS_SKIPPED; misbehaviour <= LIMITS_REPEATED; misbehaviour++) {
                struct hugezero_status *status;
                struct hugezero_conn *conn;
                struct fake_daemon fake;

                fake_start(&fake, script_status, &misbehaviour);
                assert_int_equal(hugezero_conn_open(fake.path, &conn), 0);
                assert_int_equal(hugezero_status_read(conn, &status), -EBADMSG);
                hugezero_conn_close(conn);
                fake_stop(&fake);
        }
}

int main(void) {
        /* The process keeps its connection from test to test, so descriptors are counted for the last two only. */
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(memory_is_had_and_given_back_in_one_call_each),
                cmocka_unit_test(freeing_faster_than_the_daemon_reads_does_no_harm),
                cmocka_unit_test(any_thread_may_allocate_at_any_time),
                cmocka_unit_test(a_waiting_allocation_does_not_keep_another_thread_from_freeing),
                cmocka_unit_test(a_restarted_daemon_is_found_again),
                cmocka_unit_test(a_program_that_closes_all_descriptors_goes_on),
                cmocka_unit_test(the_fall_back_is_the_kernels_huge_pages),
                cmocka_unit_test(a_forked_child_allocates_over_a_connection_of_its_own),
                cmocka_unit_test(a_forked_child_does_not_keep_the_parents_connection_open),
                cmocka_unit_test(a_fork_in_the_middle_of_an_allocation_is_safe),
                test_without_fd_leak(figures_of_many_rows_come_in_one_snapshot),
                test_without_fd_leak(rows_in_a_wrong_order_do_not_keep_us_asking_for_ever),
        };

        return cmocka_run_group_tests_name("library-alloc", tests, NULL, NULL);
}
