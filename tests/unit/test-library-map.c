/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Mapping grants, and what the library sends about them. Sparse memfds of ordinary pages stand for large extents. */
#include "testing.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"
#include "fake-daemon.h"
#include "hugezero.h"

#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

/* What the daemon answers to the one request, and what it hears afterwards. */
struct offer {
        uint64_t file_bytes; /* of each file when it is not what is announced; else 0 */
        uint32_t n_extents;
        struct wire_extent extents[6];
        int fds[6]; /* -1: a sparse memfd */
        struct wire_message heard[4];
        unsigned n_heard;
};

static void script_offer(struct fake_daemon *fake, int fd) {
        struct offer *offer = fake->data;
        struct wire_message m;

        must(fake_greet(fd));
        must(fake_receive(fd, WIRE_C_ACQUIRE, &m));
        struct wire_message answer = {
                .op = WIRE_D_GRANT,
                .request_id = m.request_id,
                .d_grant = {.grant_id = 42, .n_extents_total = offer->n_extents, .n_extents = (uint16_t) offer->n_extents},
        };
        memcpy(answer.d_grant.extents, offer->extents, sizeof(offer->extents));
        int fds[6];
        for (unsigned i = 0; i < offer->n_extents; i++)
                fds[i] = offer->fds[i] > 0 ? dup(offer->fds[i])
                                           : fake_memfd(offer->file_bytes ? offer->file_bytes : offer->extents[i].bytes);
        fake_send(fd, &answer, fds, offer->n_extents);
        for (unsigned i = 0; i < offer->n_extents; i++)
                close(fds[i]);
        while (fake_receive(fd, 0, &m)) {
                must(offer->n_heard < 4);
                offer->heard[offer->n_heard++] = m;
                if (m.op == WIRE_C_RELEASE && m.c_release.extent != 0)
                        fake_send(fd, &(struct wire_message){.op = WIRE_D_DONE, .request_id = m.request_id}, NULL, 0);
                else if (m.op == WIRE_C_RELEASE)
                        fake_refuse(fd, m.request_id, ENOENT, "extent 0 of grant 42 came back already");
        }
}

struct setting {
        struct fake_daemon fake;
        struct hugezero_conn *conn;
        struct hugezero_grant *grant;
};

/* @n_items items, all that is offered for them. */
static void set_up(struct setting *s, struct offer *offer, unsigned n_items) {
        struct hugezero_request *request;

        fake_start(&s->fake, script_offer, offer);
        assert_int_equal(hugezero_conn_open(s->fake.path, &s->conn), 0);
        assert_int_equal(hugezero_request_new(&request), 0);
        for (unsigned i = 0; i < n_items; i++)
                assert_int_equal(hugezero_request_add_item(request, 1, 0, HUGEZERO_NODE_ANY, HUGEZERO_SEVERAL_FDS, NULL), 0);
        assert_int_equal(hugezero_acquire(s->conn, request, &s->grant), 0);
        hugezero_request_free(request);
}

static void tear_down(struct setting *s) {
        hugezero_grant_free(s->grant);
        hugezero_conn_close(s->conn);
        fake_stop(&s->fake);
}

/* Mappings without access, as reservations are: what a sanitizer maps for its own purposes is of another kind. */
static unsigned count_reservations(void) {
        FILE *maps = fopen("/proc/self/maps", "re");
        char line[512];
        unsigned n = 0;

        assert_non_null(maps);
        while (fgets(line, sizeof(line), maps))
                n += strstr(line, " ---p ") != NULL;
        fclose(maps);
        return n;
}

/* The VmFlags of the mapping that begins at @addr. */
static void read_vm_flags(const void *addr, char *ret_flags, size_t n) {
        FILE *smaps = fopen("/proc/self/smaps", "re");
        char line[512], start[32];
        bool inside = false;

        assert_non_null(smaps);
        (void) snprintf(start, sizeof(start), "%lx-", (unsigned long) addr);
        ret_flags[0] = 0;
        while (fgets(line, sizeof(line), smaps)) {
                if (strstr(line, start) == line)
                        inside = true;
                if (inside && strncmp(line, "VmFlags:", 8) == 0) {
                        (void) snprintf(ret_flags, n, "%s", line + 8);
                        break;
                }
        }
        fclose(smaps);
        assert_true(inside);
}

/* A free range of addresses, at a multiple of 1 GiB, as a reservation of the test's own. */
static char *reserve(uint64_t bytes) {
        char *addr = mmap(NULL, bytes + GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        assert_ptr_not_equal(addr, MAP_FAILED);
        char *aligned = addr + -(uintptr_t) addr % GIB;
        if (aligned > addr)
                munmap(addr, (size_t) (aligned - addr));
        munmap(aligned + bytes, GIB - (size_t) (aligned - addr));
        return aligned;
}

static void extents_become_one_range_whole_gib_first(void **state) {
        struct offer offer = {
                .n_extents = 4,
                .extents = {{3 * GIB / 2, .page_shift = 21},
                            {2 * MIB, .page_shift = 21},
                            {GIB, .page_shift = 21},
                            {4 * MIB, .page_shift = 21}},
        };
        static const uint64_t expected_bytes[] = {GIB, 3 * GIB / 2, 4 * MIB, 2 * MIB};
        struct hugezero_extent_info info = {.struct_bytes = sizeof(info)};
        struct setting s;
        uint64_t bytes, offset_bytes = 0;
        char byte;
        void *addr;

        set_up(&s, &offer, 1);
        unsigned n_before = count_reservations();
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0, &addr, &bytes), 0);
        assert_int_equal(bytes, 5 * GIB / 2 + 6 * MIB);
        assert_int_equal((uintptr_t) addr % GIB, 0);
        for (uint32_t i = 0; i < 4; i++) {
                assert_int_equal(hugezero_grant_get_extent(s.grant, i, &info), 0);
                assert_int_equal(info.bytes, expected_bytes[i]);
                ((char *) addr)[offset_bytes] = (char) ('a' + i);
                assert_int_equal(pread(hugezero_grant_get_fd(s.grant, i), &byte, 1, 0), 1);
                assert_int_equal(byte, 'a' + i);
                offset_bytes += info.bytes;
        }
        assert_int_equal(munmap(addr, bytes), 0);
        assert_int_equal(count_reservations(), n_before); /* no margin of the reservation is left */
        tear_down(&s);
}

static void items_are_mapped_apart_or_together(void **state) {
        struct offer offer = {
                .n_extents = 3,
                .extents = {{4 * MIB, 0, 21}, {2 * MIB, 1, 21}, {6 * MIB, 1, 21}},
        };
        struct setting s;
        uint64_t bytes;
        void *addr;

        set_up(&s, &offer, 2);
        assert_int_equal(hugezero_grant_map(s.grant, 1, NULL, 0, &addr, &bytes), 0);
        assert_int_equal(bytes, 8 * MIB);
        assert_int_equal((uintptr_t) addr % (2 * MIB), 0);
        ((char *) addr)[0] = 'x';
        assert_int_equal(munmap(addr, bytes), 0);
        assert_int_equal(hugezero_grant_map(s.grant, HUGEZERO_ALL_ITEMS, NULL, 0, &addr, &bytes), 0);
        assert_int_equal(bytes, 12 * MIB);
        assert_int_equal(((char *) addr)[0], 0);
        assert_int_equal(((char *) addr)[4 * MIB], 'x'); /* the larger extent of item 1, behind item 0 */
        assert_int_equal(munmap(addr, bytes), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0, &addr, NULL), 0);
        assert_int_equal(munmap(addr, 4 * MIB), 0);

        assert_int_equal(hugezero_grant_map(s.grant, 2, NULL, 0, &addr, &bytes), -EINVAL);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0x8000, &addr, &bytes), -EINVAL);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EINVAL);
        close(hugezero_grant_take_fd(s.grant, 1));
        assert_int_equal(hugezero_grant_map(s.grant, 1, NULL, 0, &addr, &bytes), -EBADF);
        assert_int_equal(hugezero_grant_map(s.grant, HUGEZERO_ALL_ITEMS, NULL, 0, &addr, &bytes), -EBADF);
        tear_down(&s);
}

static void larger_pages_do_not_follow_smaller_ones(void **state) {
        struct offer offer = {.n_extents = 2, .extents = {{2 * MIB, 0, 21}, {GIB, 1, 30}}};
        struct setting s;
        uint64_t bytes;
        void *addr;

        set_up(&s, &offer, 2);
        assert_int_equal(hugezero_grant_map(s.grant, HUGEZERO_ALL_ITEMS, NULL, 0, &addr, &bytes), -EINVAL);
        assert_int_equal(hugezero_grant_map(s.grant, 1, NULL, 0, &addr, &bytes), 0);
        assert_int_equal((uintptr_t) addr % GIB, 0);
        assert_int_equal(munmap(addr, bytes), 0);
        tear_down(&s);
}

static void a_file_shorter_than_announced_is_not_mapped(void **state) {
        struct offer offer = {.n_extents = 1, .extents = {{4 * MIB, 0, 21}}, .file_bytes = 2 * MIB};
        struct setting s;
        uint64_t bytes = 7;
        void *addr = &s;

        set_up(&s, &offer, 1);
        unsigned n_before = count_reservations();
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0, &addr, &bytes), -EBADMSG);
        assert_ptr_equal(addr, &s);
        assert_int_equal(bytes, 7);
        assert_int_equal(count_reservations(), n_before);
        tear_down(&s);
}

static void an_address_is_taken_when_it_is_free_and_only_then(void **state) {
        struct offer offer = {.n_extents = 2, .extents = {{2 * MIB, 0, 21}, {2 * MIB, 0, 21}}};
        struct setting s;
        uint64_t bytes;
        void *addr;

        set_up(&s, &offer, 1);
        char *place = reserve(4 * MIB);
        assert_int_equal(munmap(place, 4 * MIB), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place + 4096, 0, &addr, &bytes), -EINVAL);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, 0, &addr, &bytes), 0);
        assert_ptr_equal(addr, place);
        place[3 * MIB] = 'x';
        /* Once more in the same place: what is there stays as it is. */
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, 0, &addr, &bytes), -EEXIST);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EEXIST);
        assert_int_equal(place[3 * MIB], 'x');
        assert_int_equal(munmap(place, 4 * MIB), 0);

        /* A reservation is not free, unless it is said to be one. */
        (void) mmap(place, 4 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, 0, &addr, &bytes), -EEXIST);
        assert_int_equal(munmap(place, 4 * MIB), 0);
        tear_down(&s);
}

static void a_reservation_is_filled_in_place(void **state) {
        struct offer offer = {.n_extents = 2, .extents = {{2 * MIB, 0, 21}, {2 * MIB, 0, 21}}};
        struct setting s;
        uint64_t bytes;
        void *addr;

        set_up(&s, &offer, 1);
        char *place = reserve(16 * MIB);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place + 2 * MIB, HUGEZERO_MAP_RESERVED, &addr, &bytes), 0);
        assert_ptr_equal(addr, place + 2 * MIB);
        memset(place + 2 * MIB, 1, 4 * MIB);
        assert_int_equal(mprotect(place, 2 * MIB, PROT_READ), 0); /* both neighbours are reserved still */
        assert_int_equal(mprotect(place, 2 * MIB, PROT_NONE), 0);

        /* Ranges that are no reservation all over: a mapping in front, behind, a readable part, a hole, the end. */
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EEXIST);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place + 4 * MIB, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EEXIST);
        assert_int_equal(mprotect(place + 10 * MIB, 4096, PROT_READ), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place + 8 * MIB, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EEXIST);
        assert_int_equal(munmap(place + 10 * MIB, 4096), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, place + 8 * MIB, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EEXIST);
        assert_int_equal(place[2 * MIB], 1);
        assert_int_equal(munmap(place, 16 * MIB), 0);
        tear_down(&s);
}

static void a_failed_mapping_leaves_the_reservation_whole(void **state) {
        struct offer offer = {
                .n_extents = 2,
                .extents = {{4 * MIB, 0, 21}, {2 * MIB, 0, 21}},
        };
        struct setting s;
        uint64_t bytes;
        void *addr;

        offer.fds[0] = fake_memfd(4 * MIB);
        offer.fds[1] = fake_memfd(4096); /* too short: fails when the first one is mapped already */
        set_up(&s, &offer, 1);
        char *place = reserve(6 * MIB);
        unsigned n_before = count_reservations();
        assert_int_equal(hugezero_grant_map(s.grant, 0, place, HUGEZERO_MAP_RESERVED, &addr, &bytes), -EBADMSG);
        assert_int_equal(count_reservations(), n_before);
        /* Still ours, still without access: a mapping that needs a free range is refused there. */
        assert_ptr_equal(mmap(place, 6 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), MAP_FAILED);
        char flags[512];
        read_vm_flags(place, flags, sizeof(flags));
        assert_null(strstr(flags, "rd "));
        assert_int_equal(munmap(place, 6 * MIB), 0);
        close(offer.fds[0]);
        close(offer.fds[1]);
        tear_down(&s);
}

static void only_the_unshared_flag_changes_the_flags_of_a_mapping(void **state) {
        struct offer offer = {.n_extents = 1, .extents = {{2 * MIB, 0, 21}}};
        char own[512], mapped[512];
        struct setting s;
        uint64_t bytes;
        void *addr;

        set_up(&s, &offer, 1);
        /* As the daemon maps: no flags of its own. */
        void *plain = mmap(NULL, 2 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, hugezero_grant_get_fd(s.grant, 0), 0);
        assert_ptr_not_equal(plain, MAP_FAILED);
        read_vm_flags(plain, own, sizeof(own));
        assert_int_equal(munmap(plain, 2 * MIB), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0, &addr, &bytes), 0);
        read_vm_flags(addr, mapped, sizeof(mapped));
        assert_string_equal(own, mapped);
        assert_int_equal(munmap(addr, bytes), 0);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, HUGEZERO_MAP_UNSHARED, &addr, &bytes), 0);
        read_vm_flags(addr, mapped, sizeof(mapped));
        assert_string_not_equal(own, mapped);
        assert_int_equal(munmap(addr, bytes), 0);
        tear_down(&s);
}

static void hugetlb_pages_are_mapped_and_the_mapping_alone_holds_them(void **state) {
        struct offer offer = {.n_extents = 2, .extents = {{2 * MIB, 0, 21}, {4 * MIB, 0, 21}}};
        struct setting s;
        uint64_t bytes;
        void *addr;

        offer.fds[0] = fake_hugetlb_memfd(2 * MIB);
        offer.fds[1] = fake_hugetlb_memfd(4 * MIB);
        if (offer.fds[0] < 0 || offer.fds[1] < 0) {
                (void) safe_close(offer.fds[0]);
                (void) safe_close(offer.fds[1]);
                skip();
        }
        set_up(&s, &offer, 1);
        close(offer.fds[0]);
        close(offer.fds[1]);
        assert_int_equal(hugezero_grant_map(s.grant, 0, NULL, 0, &addr, &bytes), 0);
        assert_int_equal(bytes, 6 * MIB);
        tear_down(&s);
        memset(addr, 1, bytes);
        assert_int_equal(munmap(addr, bytes), 0);
}

static void releases_name_extents_as_the_daemon_counts(void **state) {
        struct offer offer = {.n_extents = 3, .extents = {{2 * MIB, 0, 21}, {4 * MIB, 0, 21}, {8 * MIB, 0, 21}}};
        struct setting s;

        set_up(&s, &offer, 1);
        assert_int_equal(hugezero_grant_notify_mapped(s.grant, s.conn), 0);
        assert_int_equal(hugezero_grant_release_extent(s.grant, s.conn, 0), 0); /* the largest: the daemon's last */
        assert_int_equal(hugezero_grant_get_fd(s.grant, 0), -EBADF);
        assert_true(hugezero_grant_get_fd(s.grant, 1) >= 0);
        assert_int_equal(hugezero_grant_release_extent(s.grant, s.conn, 2), -ENOENT);
        assert_string_equal(hugezero_conn_get_error_text(s.conn), "extent 0 of grant 42 came back already");
        assert_int_equal(hugezero_grant_release_extent(s.grant, s.conn, 3), -EINVAL);
        assert_int_equal(hugezero_grant_release(s.grant, s.conn), 0);
        assert_int_equal(hugezero_grant_get_fd(s.grant, 1), -EBADF);
        tear_down(&s);
        assert_int_equal(offer.n_heard, 4);
        assert_int_equal(offer.heard[0].op, WIRE_C_MAPPED);
        assert_int_equal(offer.heard[0].c_mapped.grant_id, 42);
        assert_int_equal(offer.heard[1].c_release.extent, 2);
        assert_int_equal(offer.heard[2].c_release.extent, 0);
        assert_int_equal(offer.heard[3].c_release.extent, WIRE_ALL_EXTENTS);
        assert_int_equal(offer.heard[3].c_release.grant_id, 42);
}

int main(void) {
        const struct CMUnitTest tests[] = {
                test_without_fd_leak(extents_become_one_range_whole_gib_first),
                test_without_fd_leak(items_are_mapped_apart_or_together),
                test_without_fd_leak(larger_pages_do_not_follow_smaller_ones),
                test_without_fd_leak(a_file_shorter_than_announced_is_not_mapped),
                test_without_fd_leak(an_address_is_taken_when_it_is_free_and_only_then),
                test_without_fd_leak(a_reservation_is_filled_in_place),
                test_without_fd_leak(a_failed_mapping_leaves_the_reservation_whole),
                test_without_fd_leak(only_the_unshared_flag_changes_the_flags_of_a_mapping),
                test_without_fd_leak(hugetlb_pages_are_mapped_and_the_mapping_alone_holds_them),
                test_without_fd_leak(releases_name_extents_as_the_daemon_counts),
        };

        return cmocka_run_group_tests_name("library-map", tests, NULL, NULL);
}
