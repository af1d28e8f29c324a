/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Kernel features, tried instead of guessed from a version: distributions move them about. What is made here is gone again when
 * a probe returns; only the one for page-table sharing takes pages, 16 for a moment, and only where they are free.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "doctor.h"
#include "parse.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16, asm-generic */
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define GIB (UINT64_C(1) << 30)
#define MIB_2 (UINT64_C(2) << 20)
#define N_TABLES 8          /* chosen: page tables that are tried to share, 1 GiB of addresses each */
#define N_PAGES_PER_TABLE 2 /* the second costs a page fault only when the table is not shared */
#define N_UNMAP_ROUNDS 16   /* chosen: N_TABLES times as many interrupts tell from what an idle host makes in a millisecond */

/* As the daemon makes them: reopened, the first description closed. */
static int make_file(uint64_t page_size_bytes, uint64_t bytes) {
        char path[64];
        _cleanup_close_ int fd =
                memfd_create("hugezeroctl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB |
                                                           ((unsigned) __builtin_ctzll(page_size_bytes) << MAP_HUGE_SHIFT));
        if (fd < 0 || ftruncate(fd, (off_t) bytes) < 0)
                return negative_errno();
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
        return again < 0 ? negative_errno() : again;
}

static int reopen(int fd) {
        char path[64];
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int again = open(path, O_RDWR | O_CLOEXEC);
        return again < 0 ? negative_errno() : again;
}

static void probe_populate(struct doctor *doctor) {
        size_t page_bytes = (size_t) sysconf(_SC_PAGESIZE);
        void *addr = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int r = addr == MAP_FAILED || madvise(addr, page_bytes, MADV_POPULATE_WRITE) < 0 ? negative_errno() : 0;
        if (addr != MAP_FAILED)
                (void) munmap(addr, page_bytes);
        doctor_add(doctor, r < 0 ? DOCTOR_PROBLEM : DOCTOR_OK, "populate", "MADV_POPULATE_WRITE: %s",
                   r < 0 ? strerror(-r) : "there");
        if (r < 0)
                doctor_advise(doctor, "use Linux 5.14 or later; the daemon cannot fill pools without it");
}

static void probe_passrights(struct doctor *doctor) {
        _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        bool is_there = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &(int){0}, sizeof(int)) == 0;
        doctor_add(doctor, is_there ? DOCTOR_OK : DOCTOR_NOTE, "passrights", "SO_PASSRIGHTS: %s",
                   is_there ? "there" : "not there");
        if (!is_there)
                doctor_advise(doctor, "nothing to do: descriptors that clients send are received and closed by a thread of "
                                      "their own; Linux 6.16 "
                                      "keeps them out");
}

static void probe_flock(struct doctor *doctor, int base) {
        _cleanup_close_ int grant = reopen(base);
        bool is_exact = grant >= 0 && flock(grant, LOCK_SH | LOCK_NB) == 0 && flock(base, LOCK_EX | LOCK_NB) < 0 &&
                        errno == EWOULDBLOCK;
        grant = safe_close(grant);
        is_exact = is_exact && flock(base, LOCK_EX | LOCK_NB) == 0;
        doctor_add(doctor, is_exact ? DOCTOR_OK : DOCTOR_PROBLEM, "flock", "flock on hugetlb files: %s",
                   is_exact ? "tells who holds memory" : "does not work");
        if (!is_exact)
                doctor_advise(doctor, "the daemon cannot tell when memory comes back; please report the kernel: uname -a");
}

static void probe_inotify(struct doctor *doctor, int base) {
        char path[64], events[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
        uint32_t seen = 0;
        _cleanup_close_ int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", base);
        if (fd >= 0 && inotify_add_watch(fd, path, IN_OPEN | IN_CLOSE) >= 0) {
                int again = reopen(base);
                (void) safe_close(again);
                for (ssize_t n; (n = read(fd, events, sizeof(events))) > 0;)
                        for (char *at = events; at < events + n;
                             at += sizeof(struct inotify_event) + ((struct inotify_event *) at)->len)
                                seen |= ((struct inotify_event *) at)->mask;
        }
        bool is_there = (seen & IN_OPEN) && (seen & IN_CLOSE_WRITE);
        doctor_add(doctor, is_there ? DOCTOR_OK : DOCTOR_PROBLEM, "inotify", "inotify on hugetlb files: %s",
                   is_there ? "reports opens and closes"
                   : fd < 0 ? "no instance is left for this user"
                            : "reports nothing");
        if (!is_there)
                doctor_advise(doctor, fd < 0 ? "raise fs.inotify.max_user_instances"
                                             : "memory comes back by the slow sweep only; please report: uname -a");
}

static void probe_lease(struct doctor *doctor, int base) {
        /* Whoever opens the file meanwhile (nobody can, but root) must not kill us. */
        (void) signal(SIGIO, SIG_IGN);
        bool is_there = fcntl(base, F_SETLEASE, F_WRLCK) == 0 && fcntl(base, F_SETLEASE, F_UNLCK) == 0;
        doctor_add(doctor, DOCTOR_OK, "leases", "leases on hugetlb files: %s",
                   is_there ? "there" : "not there, and seldom needed");
}

static void probe_files(struct doctor *doctor) {
        uint64_t sizes[DOCTOR_MAX_SIZES];
        size_t n_sizes = doctor_page_sizes(doctor, sizes);
        for (size_t idx = 0; idx < n_sizes; idx++) {
                char size[FORMAT_SIZE_BYTES];
                _cleanup_close_ int fd = make_file(sizes[idx], sizes[idx]);
                bool is_sealed = fd >= 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK) == 0 && ftruncate(fd, 0) < 0 &&
                                 errno == EPERM;
                if (fd < 0 && !doctor_has(doctor, "/proc"))
                        return; /* files are opened again there */
                doctor_add(doctor, is_sealed ? DOCTOR_OK : DOCTOR_PROBLEM, "memfd", "hugetlb memfd of %s: %s",
                           format_size(sizes[idx], size),
                           is_sealed ? "there, and can be sealed"
                           : fd < 0  ? strerror(-fd)
                                     : "cannot be sealed");
                if (!is_sealed)
                        doctor_advise(
                                doctor,
                                "is it a seccomp filter or a container? The daemon needs memfd_create(MFD_HUGETLB), open in "
                                "/proc/self/fd and F_ADD_SEALS");
                else if (idx == 0) {
                        probe_flock(doctor, fd);
                        probe_inotify(doctor, fd);
                        probe_lease(doctor, fd);
                }
        }
}

/* Maps all of the file at a multiple of 1 GiB, without reserving pages for its holes. NULL: it cannot be mapped. */
static char *map_tables(int fd) {
        char *space = mmap(NULL, (N_TABLES + 1) * GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (space == MAP_FAILED)
                return NULL;
        char *addr = (char *) (((uintptr_t) space + GIB - 1) / GIB * GIB), *end = addr + N_TABLES * GIB;
        if (addr > space)
                (void) munmap(space, (size_t) (addr - space));
        if (end < space + (N_TABLES + 1) * GIB)
                (void) munmap(end, (size_t) (space + (N_TABLES + 1) * GIB - end));
        if (mmap(addr, N_TABLES * GIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, 0) == MAP_FAILED) {
                (void) munmap(addr, N_TABLES * GIB);
                return NULL;
        }
        return addr;
}

/* Maps again, touches the pages that are present, unmaps. Returns the page faults of that, or -1. */
static long count_faults(int fd) {
        struct rusage before, after;
        char *addr = map_tables(fd);
        if (!addr)
                return -1;
        (void) getrusage(RUSAGE_SELF, &before);
        for (uint64_t table = 0; table < N_TABLES; table++)
                for (uint64_t page = 0; page < N_PAGES_PER_TABLE; page++)
                        ((volatile char *) addr)[table * GIB + page * MIB_2] = 1;
        (void) getrusage(RUSAGE_SELF, &after);
        (void) munmap(addr, N_TABLES * GIB);
        return after.ru_minflt - before.ru_minflt;
}

/* How often CPUs were interrupted to call a function, all together; 0 where the kernel does not count it. */
static uint64_t count_call_interrupts(void) {
        uint64_t n = 0;
        size_t n_room = 0;
        _cleanup_free_ char *line = NULL;
        _cleanup_fclose_ FILE *file = fopen("/proc/interrupts", "re");
        while (file && getline(&line, &n_room, file) > 0) {
                char *at = strstr(line, "unction call interrupts") ? strchr(line, ':') : NULL, *end = at ? at + 1 : NULL;
                /* One column per CPU, then the text, where no number is found any more. */
                while (end != at) {
                        at = end;
                        n += strtoull(at, &end, 10);
                }
        }
        return n;
}

/* Kernels from mid-2025 to January 2026 interrupt every CPU for each page table that stops being shared, others once per
 * unmapping. */
static void probe_unshare(struct doctor *doctor, int fd) {
        uint64_t n_others = (uint64_t) sysconf(_SC_NPROCESSORS_ONLN) - 1, before = count_call_interrupts();
        for (int round = 0; round < N_UNMAP_ROUNDS; round++)
                (void) count_faults(fd);
        uint64_t n = count_call_interrupts() - before;
        bool is_loud = n_others && n > n_others * N_UNMAP_ROUNDS * N_TABLES / 2;
        doctor_add(doctor, is_loud ? DOCTOR_NOTE : DOCTOR_OK, "unshare",
                   "unmapping %d shared page tables interrupts the other CPUs, times: %" PRIu64, N_TABLES,
                   n_others ? n / n_others / N_UNMAP_ROUNDS : 0);
        if (is_loud)
                doctor_advise(doctor, "a fault of kernels from mid-2025 to January 2026; use a later one, or do without where "
                                      "latency counts: "
                                      "SharePageTables=no in the daemon, HUGEZERO_MAP_UNSHARED in a program");
}

static void probe_sharing(struct doctor *doctor) {
        uint64_t n_free = 0, n_reserved = 0;
        (void) doctor_read_u64(doctor, &n_free, "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
        (void) doctor_read_u64(doctor, &n_reserved, "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages");
        if (n_free < n_reserved + N_TABLES * N_PAGES_PER_TABLE) {
                doctor_add(doctor, DOCTOR_OK, "sharing", "sharing page tables: not tried; it takes %d free pages of 2 MiB",
                           N_TABLES * N_PAGES_PER_TABLE);
                return;
        }
        _cleanup_close_ int fd = make_file(MIB_2, N_TABLES * GIB);
        char *addr = fd < 0 ? NULL : map_tables(fd);
        bool is_populated = addr;
        for (uint64_t table = 0; is_populated && table < N_TABLES; table++)
                is_populated = madvise(addr + table * GIB, N_PAGES_PER_TABLE * MIB_2, MADV_POPULATE_WRITE) == 0;
        long n_faults = is_populated ? count_faults(fd) : -1;
        if (n_faults < 0)
                doctor_add(doctor, DOCTOR_OK, "sharing", "sharing page tables: not tried; %d pages could not be mapped",
                           N_TABLES * N_PAGES_PER_TABLE);
        else if (n_faults < N_TABLES * N_PAGES_PER_TABLE) {
                doctor_add(doctor, DOCTOR_OK, "sharing", "sharing page tables: %d GiB cost a client %ld page faults", N_TABLES,
                           n_faults);
                probe_unshare(doctor, fd);
        } else {
                doctor_add(doctor, DOCTOR_NOTE, "sharing", "page tables are not shared: each page costs a client a page fault");
                doctor_advise(doctor, "everything works, but mapping takes 0.7 us per page; this kernel or architecture has no "
                                      "shared PMD tables");
        }
        if (addr)
                (void) munmap(addr, N_TABLES * GIB);
}

void doctor_probe_kernel(struct doctor *doctor) {
        probe_populate(doctor);
        probe_files(doctor);
        probe_sharing(doctor);
        probe_passrights(doctor);
}
