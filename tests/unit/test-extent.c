/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Extents on real hugetlb pages: what the kernel promises, and what a holder can and cannot do. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "extent.h"
#include "fdpass.h"
#include "topology.h"

#define PAGE_BYTES (UINT64_C(2) << 20)
#define GIB (UINT64_C(1) << 30)
#define N_NEEDED_PAGES 16 /* the most that a test uses, but for page_tables_are_shared */
#define OTHER_ID 65534    /* nobody, nogroup */

static struct topology *topology;
static int node;

static struct extent_file make(uint64_t page_size_bytes, uint64_t bytes) {
        struct extent_file file = EXTENT_FILE_NULL;

        assert_int_equal(extent_file_create(page_size_bytes, &file), 0);
        assert_int_equal(extent_file_resize(&file, bytes), 0);
        assert_int_equal(extent_file_map(&file, node), 0);
        return file;
}

static struct extent_file make_populated(unsigned n_pages) {
        struct extent_file file = make(PAGE_BYTES, n_pages * PAGE_BYTES);

        assert_int_equal(extent_file_populate(&file, 0, file.bytes), 0);
        return file;
}

/* What a client does with what it got. */
static char *map_grant(int fd, uint64_t bytes) {
        char *addr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        assert_ptr_not_equal(addr, MAP_FAILED);
        return addr;
}

static bool is_zero(const char *addr, uint64_t bytes) {
        return addr[0] == 0 && memcmp(addr, addr + 1, bytes - 1) == 0;
}

/* The kernel lets go of a dead process's files a little before and a little after its parent hears of it. */
static void assert_free_soon(struct extent_file *file) {
        for (int n = 0; n < 1000 && extent_file_is_held(file) == 1; n++)
                usleep(1000);
        assert_int_equal(extent_file_is_held(file), 0);
}

static int exit_code(pid_t pid) {
        int status;

        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
        return WEXITSTATUS(status);
}

static void a_new_extent_is_empty_and_private(void **state) {
        struct extent_file file = EXTENT_FILE_NULL;
        struct extent_check check;
        struct stat st;

        assert_int_equal(extent_file_create(PAGE_BYTES, &file), 0);
        assert_int_equal(fstat(file.fd, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(st.st_dev, file.dev);
        assert_int_equal(st.st_ino, file.ino);
        assert_int_equal(fcntl(file.fd, F_GETFD), FD_CLOEXEC);
        assert_true(fcntl(file.fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.size_bytes, 0);
        assert_int_equal(check.present_bytes, 0);
        assert_false(check.foreign_seal);
        assert_int_equal(extent_file_map(&file, node), -EINVAL);
        extent_file_done(&file);
        assert_int_equal(file.fd, -EBADF);
        extent_file_done(&file); /* harmless */
        assert_int_equal(extent_file_create(8 * PAGE_BYTES, &file), -ENODEV);
        assert_int_equal(file.fd, -EBADF);
}

static void populated_memory_is_present_placed_and_zero(void **state) {
        struct extent_file file = make(PAGE_BYTES, 4 * PAGE_BYTES);
        struct extent_check check;
        uint64_t n_misplaced = 77, n_missing = 77;

        assert_int_equal(topology_count_misplaced(file.addr, file.bytes, PAGE_BYTES, node, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_missing, 4);
        assert_int_equal(extent_file_populate(&file, PAGE_BYTES, 3 * PAGE_BYTES), 0);
        assert_int_equal(topology_count_misplaced(file.addr, file.bytes, PAGE_BYTES, node, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_missing, 1);
        assert_int_equal(n_misplaced, 0);
        assert_int_equal(topology_count_misplaced(file.addr, file.bytes, PAGE_BYTES, node + 1, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_misplaced, 3);
        assert_int_equal(extent_file_populate(&file, 0, file.bytes), 0);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.size_bytes, 4 * PAGE_BYTES);
        assert_int_equal(check.present_bytes, 4 * PAGE_BYTES);
        assert_true(is_zero(file.addr, file.bytes));
        extent_file_done(&file);
}

static void a_cut_gives_pages_back_and_keeps_the_rest(void **state) {
        struct extent_file file = make_populated(4);
        struct extent_check check;
        char *addr = file.addr;
        unsigned char present;

        addr[0] = addr[2 * PAGE_BYTES] = 1;
        assert_int_equal(extent_file_resize(&file, 3 * PAGE_BYTES), 0);
        assert_int_equal(file.mapped_bytes, 3 * PAGE_BYTES);
        assert_int_equal(mincore(addr + 3 * PAGE_BYTES, 4096, &present), -1); /* nothing is mapped there any more */
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.size_bytes, 3 * PAGE_BYTES);
        assert_int_equal(check.present_bytes, 3 * PAGE_BYTES);
        assert_int_equal(addr[0] + addr[2 * PAGE_BYTES], 2);
        assert_int_equal(extent_file_resize(&file, 0), 0);
        assert_null(file.addr);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.present_bytes, 0);
        extent_file_done(&file);
}

static void a_grown_extent_keeps_what_it_had(void **state) {
        struct extent_file file = make_populated(2);
        struct extent_check check;
        char *addr = file.addr;

        addr[PAGE_BYTES] = 7;
        assert_int_equal(extent_file_resize(&file, 5 * PAGE_BYTES), 0);
        assert_int_equal(file.mapped_bytes, 2 * PAGE_BYTES); /* until it is mapped anew */
        assert_int_equal(extent_file_map(&file, node), 0);
        assert_int_equal(file.mapped_bytes, 5 * PAGE_BYTES);
        assert_int_equal(extent_file_populate(&file, 0, file.bytes), 0);
        addr = file.addr;
        assert_int_equal(addr[PAGE_BYTES], 7);
        assert_true(is_zero(addr + 2 * PAGE_BYTES, 3 * PAGE_BYTES));
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.present_bytes, 5 * PAGE_BYTES);
        extent_file_done(&file);
}

static void a_sealed_extent_keeps_its_size(void **state) {
        struct extent_file file = make_populated(2);
        struct extent_check check;
        int fd;

        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(ftruncate(fd, PAGE_BYTES), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(ftruncate(fd, 3 * PAGE_BYTES), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(fallocate(fd, 0, 0, 3 * PAGE_BYTES), -1);
        assert_int_equal(errno, EPERM);
        assert_int_equal(extent_file_resize(&file, PAGE_BYTES), -EPERM);
        assert_int_equal(file.bytes, 2 * PAGE_BYTES);
        assert_int_equal(file.mapped_bytes, 2 * PAGE_BYTES);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_false(check.foreign_seal);
        close(fd);
        extent_file_done(&file);
}

static void a_longer_mmap_shows_in_the_check(void **state) {
        struct extent_file file = make_populated(2);
        struct extent_check check;
        char *addr;
        int fd;

        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        addr = map_grant(fd, 4 * PAGE_BYTES);
        addr[3 * PAGE_BYTES] = 1;
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.size_bytes, 4 * PAGE_BYTES);
        assert_int_equal(check.present_bytes, 3 * PAGE_BYTES);
        assert_int_equal(file.bytes, 2 * PAGE_BYTES);
        munmap(addr, 4 * PAGE_BYTES);
        close(fd);
        extent_file_done(&file);
}

static void a_punched_hole_shows_in_the_check_and_can_be_repopulated(void **state) {
        struct extent_file file = make_populated(3);
        struct extent_check check;
        int fd;

        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE_BYTES, PAGE_BYTES), 0);
        close(fd);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.present_bytes, 2 * PAGE_BYTES);
        assert_int_equal(extent_file_populate(&file, 0, file.bytes), 0);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.present_bytes, 3 * PAGE_BYTES);
        extent_file_done(&file);
}

static void a_foreign_seal_is_noticed(void **state) {
        static const int seals[] = {F_SEAL_SEAL, F_SEAL_FUTURE_WRITE};

        for (size_t i = 0; i < ELEMENTSOF(seals); i++) {
                struct extent_file file = make_populated(1);
                struct extent_check check;
                int fd;

                assert_int_equal(extent_file_seal(&file), 0);
                assert_int_equal(extent_file_open_grant(&file, &fd), 0);
                assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
                close(fd);
                assert_int_equal(extent_file_check(&file, &check), 0);
                assert_true(check.foreign_seal);
                assert_int_equal(extent_file_test_pins(&file), seals[i] == F_SEAL_SEAL ? -EPERM : 0);
                extent_file_done(&file);
        }
}

static void a_grant_is_held_through_its_fd(void **state) {
        struct extent_file file = make_populated(1);
        int fd;

        assert_int_equal(extent_file_is_held(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        assert_false(fcntl(fd, F_GETFL) & O_NONBLOCK);
        assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
        assert_int_equal(extent_file_is_held(&file), 1);
        assert_int_equal(extent_file_is_held(&file), 1); /* asking changes nothing */
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 0);
        extent_file_done(&file);
}

static void a_grant_is_held_through_a_duplicate(void **state) {
        struct extent_file file = make_populated(1);
        int fd, copy_fd;

        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        copy_fd = dup(fd);
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        close(copy_fd);
        assert_int_equal(extent_file_is_held(&file), 0);
        extent_file_done(&file);
}

static void a_grant_is_held_through_a_mapping_alone(void **state) {
        struct extent_file file = make_populated(2);
        char *addr;
        int fd;

        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        addr = map_grant(fd, 2 * PAGE_BYTES);
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        munmap(addr, PAGE_BYTES);
        assert_int_equal(extent_file_is_held(&file), 1); /* a part is enough */
        munmap(addr + PAGE_BYTES, PAGE_BYTES);
        assert_int_equal(extent_file_is_held(&file), 0);
        extent_file_done(&file);
}

static void a_grant_is_held_through_a_forked_child(void **state) {
        struct extent_file file = make_populated(1);
        int fd, gate[2];
        pid_t pid;

        assert_int_equal(pipe2(gate, O_CLOEXEC), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        pid = fork();
        if (pid == 0) {
                char byte;

                close(gate[1]);
                _exit(read(gate[0], &byte, 1) == 0 ? 0 : 1);
        }
        close(gate[0]);
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        close(gate[1]); /* the child goes */
        assert_int_equal(exit_code(pid), 0);
        assert_free_soon(&file);
        extent_file_done(&file);
}

static void a_grant_is_held_while_in_flight(void **state) {
        struct extent_file file = make_populated(1);
        int fd, received_fd, sockets[2];
        size_t n_fds;
        char byte = 0;

        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(fdpass_send(sockets[0], &byte, 1, &fd, 1), 0);
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        assert_int_equal(fdpass_receive(sockets[1], &byte, 1, &received_fd, 1, &n_fds), 1);
        assert_int_equal(extent_file_is_held(&file), 1);
        assert_int_equal(fdpass_send(sockets[0], &byte, 1, &received_fd, 1), 0);
        close(received_fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        close(sockets[1]); /* what nobody received is gone with the socket */
        assert_free_soon(&file);
        close(sockets[0]);
        extent_file_done(&file);
}

static void two_grants_are_both_asked_for(void **state) {
        struct extent_file file = make_populated(1);
        int first_fd, second_fd;

        assert_int_equal(extent_file_open_grant(&file, &first_fd), 0);
        assert_int_equal(extent_file_open_grant(&file, &second_fd), 0);
        close(first_fd);
        assert_int_equal(extent_file_is_held(&file), 1);
        close(second_fd);
        assert_int_equal(extent_file_is_held(&file), 0);
        extent_file_done(&file);
}

/* As a stranger who was given @fd: 0, or the errno of opening it again. */
static int reopen_as_other(int fd, gid_t gid) {
        pid_t pid = fork();

        if (pid == 0) {
                char path[32];

                if (setgroups(0, NULL) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(OTHER_ID, OTHER_ID, OTHER_ID) < 0)
                        _exit(200);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                _exit(open(path, O_RDWR | O_CLOEXEC) >= 0 ? 0 : errno);
        }
        return exit_code(pid);
}

static void only_the_group_can_open_a_reopenable_grant_again(void **state) {
        struct extent_file file;
        int fd;

        if (geteuid() != 0) {
                print_message("needs root: another uid and gid\n");
                skip();
        }
        file = make_populated(1);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(reopen_as_other(fd, OTHER_ID), EACCES);
        assert_int_equal(extent_file_make_reopenable(&file, OTHER_ID), 0);
        assert_int_equal(reopen_as_other(fd, OTHER_ID), 0);
        assert_int_equal(reopen_as_other(fd, OTHER_ID - 1), EACCES);
        close(fd);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0); /* the daemon itself still can */
        close(fd);
        assert_free_soon(&file);
        extent_file_done(&file);
}

static void pins_are_found(void **state) {
        struct extent_file file = make_populated(2);
        struct iovec part;
        int fd, pipe_fds[2];
        char *addr;

        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        addr = map_grant(fd, 2 * PAGE_BYTES);
        part = (struct iovec){.iov_base = addr + PAGE_BYTES, .iov_len = 4096};
        assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
        assert_int_equal(vmsplice(pipe_fds[1], &part, 1, SPLICE_F_GIFT), 4096);
        munmap(addr, 2 * PAGE_BYTES);
        close(fd);
        assert_int_equal(extent_file_is_held(&file), 0); /* flock does not see it */
        assert_int_equal(extent_file_test_pins(&file), -EBUSY);
        assert_null(file.addr);
        close(pipe_fds[0]);
        close(pipe_fds[1]);
        assert_int_equal(extent_file_test_pins(&file), 0);
        extent_file_done(&file);
}

static void without_pins_the_test_passes_and_writing_is_over(void **state) {
        struct extent_file file = make_populated(2);
        struct extent_check check;

        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_test_pins(&file), 0);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_true(check.foreign_seal);
        assert_int_equal(extent_file_map(&file, node), -EPERM);
        extent_file_done(&file);
}

static void the_pin_test_is_busy_while_someone_can_write(void **state) {
        struct extent_file file = make_populated(1);
        char *addr;
        int fd;

        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        addr = map_grant(fd, PAGE_BYTES);
        close(fd);
        assert_int_equal(extent_file_test_pins(&file), -EBUSY);
        addr[0] = 1;
        munmap(addr, PAGE_BYTES);
        extent_file_done(&file);
}

/* Not instrumented: a sanitizer's own memory would fault as well. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static long count_faults(volatile char *addr, uint64_t bytes) {
        struct rusage before, after;

        getrusage(RUSAGE_SELF, &before);
        for (uint64_t offset_bytes = 0; offset_bytes < bytes; offset_bytes += PAGE_BYTES)
                addr[offset_bytes] = 1;
        getrusage(RUSAGE_SELF, &after);
        return after.ru_minflt - before.ru_minflt;
}

/* A client's mapping at an address that begins a 1 GiB range, in another process. Returns the faults, at most 250. */
static int faults_of_a_client(int fd) {
        pid_t pid = fork();

        if (pid == 0) {
                char *span = mmap(NULL, 2 * GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
                char *addr = (char *) (((uintptr_t) span + GIB - 1) & ~(GIB - 1));
                long n_faults;

                if (mmap(addr, GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != addr)
                        _exit(255);
                n_faults = count_faults(addr, GIB);
                _exit(n_faults > 250 ? 250 : (int) n_faults);
        }
        return exit_code(pid);
}

static void a_page_of_1_gib_is_an_extent_like_any_other(void **state) {
        struct extent_file file;
        struct extent_check check;
        uint64_t n_misplaced = 77, n_missing = 77;
        int fd;

        if (topology_available_bytes(topology, node, GIB) < GIB) {
                print_message("needs a free hugetlb page of 1 GiB\n");
                skip();
        }
        file = make(GIB, GIB);
        assert_int_equal(extent_file_populate(&file, 0, GIB), 0);
        assert_int_equal(topology_count_misplaced(file.addr, GIB, GIB, node, &n_misplaced, &n_missing), 0);
        assert_int_equal(n_misplaced, 0);
        assert_int_equal(n_missing, 0);
        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_int_equal(extent_file_is_held(&file), 1);
        assert_in_range(faults_of_a_client(fd), 0, 1);
        close(fd);
        assert_free_soon(&file);
        assert_int_equal(extent_file_check(&file, &check), 0);
        assert_int_equal(check.present_bytes, GIB);
        assert_int_equal(extent_file_test_pins(&file), 0);
        extent_file_done(&file);
}

/* Reserves every page that nobody has, without taking one. False: somebody was quicker. */
static bool reserve_all(uint64_t page_bytes, struct extent_file *ret_file) {
        struct topology_pages pages;

        assert_int_equal(topology_read_pages(topology, node, page_bytes, &pages), 0);
        assert_int_equal(extent_file_create(page_bytes, ret_file), 0);
        assert_int_equal(extent_file_resize(ret_file, (pages.n_free_all - pages.n_reserved_all) * page_bytes), 0);
        if (extent_file_map(ret_file, -1 /* node: all of them */) == 0)
                return true;
        extent_file_done(ret_file);
        return false;
}

/*
 * Other programs may give pages back or take some while all are reserved, so a few attempts are made. 1 GiB pages where there
 * are some: hardly anyone else wants one in that moment.
 */
static void an_empty_pool_is_an_error_and_no_signal(void **state) {
        uint64_t page_bytes = topology_available_bytes(topology, node, GIB) > 0 ? GIB : PAGE_BYTES;
        struct extent_file file, late;
        int map_r = 0, populate_r = 0;

        if (topology_overcommits(topology, page_bytes)) {
                print_message("needs nr_overcommit_hugepages to be 0\n");
                skip();
        }
        file = make(page_bytes, page_bytes);
        assert_int_equal(extent_file_create(page_bytes, &late), 0);
        assert_int_equal(extent_file_resize(&late, page_bytes), 0);
        for (int n = 0; n < 10 && (populate_r == 0 || map_r == 0); n++) {
                struct extent_file others;

                assert_int_equal(extent_file_populate(&file, 0, page_bytes), 0);
                /* The page goes, and with it its reservation; the mapping stays. */
                assert_int_equal(fallocate(file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page_bytes), 0);
                if (!reserve_all(page_bytes, &others))
                        continue;
                populate_r = extent_file_populate(&file, 0, page_bytes);
                map_r = extent_file_map(&late, node);
                extent_file_done(&others);
        }
        assert_int_equal(populate_r, -ENOSPC);
        assert_int_equal(map_r, -ENOMEM);
        assert_null(late.addr);
        assert_int_equal(late.mapped_bytes, 0);
        extent_file_done(&late);
        extent_file_done(&file);
}

static void page_tables_are_shared(void **state) {
        struct extent_file file;
        int fd;

        if (topology_available_bytes(topology, node, PAGE_BYTES) < GIB) {
                print_message("needs 512 free pages of 2 MiB\n");
                skip();
        }
        file = make_populated(GIB / PAGE_BYTES);
        assert_int_equal((uintptr_t) file.addr % GIB, 0);
        assert_int_equal(extent_file_seal(&file), 0);
        assert_int_equal(extent_file_open_grant(&file, &fd), 0);
        assert_in_range(faults_of_a_client(fd), 0, 8);
        /* Mapped anew, before it is populated, the daemon has no page tables to share. */
        assert_int_equal(extent_file_map(&file, node), 0);
        assert_int_equal(faults_of_a_client(fd), 250);
        assert_int_equal(extent_file_map(&file, node), 0);
        assert_int_equal(extent_file_populate(&file, 0, file.bytes), 0);
        assert_in_range(faults_of_a_client(fd), 0, 8);
        close(fd);
        extent_file_done(&file);
}

static int setup_group(void **state) {
        assert_int_equal(topology_new("/sys", &topology), 0);
        node = topology_node_at(topology, 0);
        for (size_t i = 0; i < topology_n_nodes(topology); i++)
                if (topology_available_bytes(topology, topology_node_at(topology, i), PAGE_BYTES) >=
                    N_NEEDED_PAGES * PAGE_BYTES) {
                        node = topology_node_at(topology, i);
                        return 0;
                }
        skip_all("%d free hugetlb pages of 2 MiB on one node are needed; see vm.nr_hugepages", N_NEEDED_PAGES);
}

static int teardown_group(void **state) {
        topology_free(topology);
        return 0;
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(a_new_extent_is_empty_and_private),
                test_without_fd_leak(populated_memory_is_present_placed_and_zero),
                test_without_fd_leak(a_cut_gives_pages_back_and_keeps_the_rest),
                test_without_fd_leak(a_grown_extent_keeps_what_it_had),
                test_without_fd_leak(a_sealed_extent_keeps_its_size),
                test_without_fd_leak(a_longer_mmap_shows_in_the_check),
                test_without_fd_leak(a_punched_hole_shows_in_the_check_and_can_be_repopulated),
                test_without_fd_leak(a_foreign_seal_is_noticed),
                test_without_fd_leak(a_grant_is_held_through_its_fd),
                test_without_fd_leak(a_grant_is_held_through_a_duplicate),
                test_without_fd_leak(a_grant_is_held_through_a_mapping_alone),
                test_without_fd_leak(a_grant_is_held_through_a_forked_child),
                test_without_fd_leak(a_grant_is_held_while_in_flight),
                test_without_fd_leak(two_grants_are_both_asked_for),
                test_without_fd_leak(only_the_group_can_open_a_reopenable_grant_again),
                test_without_fd_leak(pins_are_found),
                test_without_fd_leak(without_pins_the_test_passes_and_writing_is_over),
                test_without_fd_leak(the_pin_test_is_busy_while_someone_can_write),
                test_without_fd_leak(a_page_of_1_gib_is_an_extent_like_any_other),
                test_without_fd_leak(an_empty_pool_is_an_error_and_no_signal),
                test_without_fd_leak(page_tables_are_shared),
        };

        return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
