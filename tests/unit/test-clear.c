/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Every method clears what it was told and nothing else; slices and hints come in order; SIGBUS is an error code. */
#include "testing.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <ucontext.h>
#endif

#include "clear.h"
#include "methods.h"
#include "sanitizer.h"

#if CLEAR_WITH_VALGRIND
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#ifndef RUNNING_ON_EMULATOR
#define RUNNING_ON_EMULATOR 0 /* 1: in user mode under QEMU, see run-arm64.sh */
#endif

/* With base pages larger than the host's, QEMU maps nothing behind the end of a file: touching it is SIGSEGV. */
#define HAVE_SIGBUS (!RUNNING_ON_EMULATOR || page_bytes == 4096)

#define N_PAGES (RUNNING_ON_EMULATOR ? 18 : 36) /* the range in which every offset and length is tried */
#define N_RANDOM_PAGES 300

/* Memory between two pages that nobody may touch, and the random bytes it is filled with. */
struct arena {
        char *memory, *random;
        size_t n_bytes;
};

static size_t page_bytes;

static void fill_random(char *bytes, size_t n_bytes) {
        static uint64_t x = 88172645463325252;

        for (size_t i = 0; i < n_bytes; i += sizeof(x)) {
                x ^= x << 13, x ^= x >> 7, x ^= x << 17;
                memcpy(bytes + i, &x, sizeof(x));
        }
        for (size_t i = 0; i < n_bytes; i += 64) /* a byte that was forgotten must not be zero by chance */
                bytes[i] = bytes[i + 63] = (char) 0xa5;
}

static struct arena arena_new(size_t n_pages) {
        struct arena arena = {.n_bytes = n_pages * page_bytes};
        char *whole = mmap(NULL, arena.n_bytes + 2 * page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        assert_true(whole != MAP_FAILED);
        arena.memory = whole + page_bytes;
        assert_int_equal(mprotect(arena.memory, arena.n_bytes, PROT_READ | PROT_WRITE), 0);
        arena.random = malloc(arena.n_bytes);
        assert_non_null(arena.random);
        fill_random(arena.random, arena.n_bytes);
        memcpy(arena.memory, arena.random, arena.n_bytes);
        return arena;
}

static void arena_free(struct arena *arena) {
        free(arena->random);
        assert_int_equal(munmap(arena->memory - page_bytes, arena->n_bytes + 2 * page_bytes), 0);
}

static bool all_zero(const char *bytes, size_t n_bytes) {
        return n_bytes == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, n_bytes - 1) == 0);
}

/* Exactly @n pages at @at are zero, all others are as they were. Makes the arena dirty again. */
static void arena_check(struct arena *arena, const char *what, size_t at, size_t n) {
        size_t start = at * page_bytes, length = n * page_bytes, end = start + length;

        if (memcmp(arena->memory, arena->random, start) != 0)
                fail_msg("%s: %zu pages at page %zu: memory below was changed", what, n, at);
        if (!all_zero(arena->memory + start, length))
                fail_msg("%s: %zu pages at page %zu: not all is zero", what, n, at);
        if (memcmp(arena->memory + end, arena->random + end, arena->n_bytes - end) != 0)
                fail_msg("%s: %zu pages at page %zu: memory above was changed", what, n, at);
        memcpy(arena->memory + start, arena->random + start, length);
}

/* The methods that can run here, one after the other. */
static const struct clear_method *next_available(size_t *idx) {
        const struct clear_method *method;

        while ((method = clear_method_at((*idx)++)))
                if (!method->why_not())
                        return method;
        return NULL;
}

static void try_everywhere(const struct clear_method *method, size_t n_pages) {
        struct arena arena = arena_new(n_pages);

        for (size_t at = 0; at < n_pages; at++)
                for (size_t n = 0; n <= n_pages - at; n++) {
                        assert_int_equal(clear_pages(method, arena.memory + at * page_bytes, n), 0);
                        arena_check(&arena, method->name, at, n);
                }
        arena_free(&arena);
}

static void every_method_clears_every_range_and_no_more(void **state) {
        const struct clear_method *method;

        for (size_t i = 0; (method = next_available(&i));)
                try_everywhere(method, N_PAGES);
}

static void every_method_clears_random_ranges_of_a_larger_arena(void **state) {
        struct arena arena = arena_new(N_RANDOM_PAGES);
        const struct clear_method *method;

        for (size_t i = 0; (method = next_available(&i));)
                for (size_t round = 0; round < (RUNNING_ON_EMULATOR ? 5 : 20); round++) {
                        size_t at = (size_t) random() % N_RANDOM_PAGES, n = (size_t) random() % (N_RANDOM_PAGES + 1 - at);

                        assert_int_equal(clear_pages(method, arena.memory + at * page_bytes, n), 0);
                        arena_check(&arena, method->name, at, n);
                }
        arena_free(&arena);
}

static void every_method_clears_a_hugetlb_page(void **state) {
        enum { HUGE_BYTES = 2 << 20 };
        size_t n_pages = HUGE_BYTES / page_bytes;
        const struct clear_method *method;
        char *memory = mmap(NULL, HUGE_BYTES, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB | 21 << MAP_HUGE_SHIFT, -1, 0);

        if (memory == MAP_FAILED && RUNNING_ON_EMULATOR) /* QEMU 7.2 maps at a fixed address, which is not aligned for it */
                return;
        if (memory == MAP_FAILED) {
                print_message("no free hugetlb page of 2 MiB, not tried\n");
                skip();
        }
        for (size_t i = 0; (method = next_available(&i));) {
                struct arena arena = {memory, malloc(HUGE_BYTES), HUGE_BYTES};

                assert_non_null(arena.random);
                fill_random(arena.random, HUGE_BYTES);
                memcpy(memory, arena.random, HUGE_BYTES);
                for (size_t at = 0; at < n_pages; at += 97) {
                        assert_int_equal(clear_pages(method, memory + at * page_bytes, n_pages - at), 0);
                        arena_check(&arena, method->name, at, n_pages - at);
                        assert_int_equal(clear_pages(method, memory, n_pages - at), 0);
                        arena_check(&arena, method->name, 0, n_pages - at);
                }
                free(arena.random);
        }
        munmap(memory, HUGE_BYTES);
}

static void names_are_unique_and_found(void **state) {
        const struct clear_method *method;

        for (size_t i = 0; (method = clear_method_at(i)); i++) {
                assert_ptr_equal(clear_method_named(method->name), method);
                if (method->why_not())
                        print_message("%s: %s\n", method->name, method->why_not());
                assert_true(!method->why_not() || strlen(method->why_not()) > 0);
                /* What passes by the caches is weakly ordered on every architecture we know. */
                assert_true(!method->non_temporal || method->publish);
        }
        assert_null(clear_method_named("no-such-method"));
        assert_null(clear_method_named(""));
        assert_null(clear_method_named("memse"));
        assert_null(clear_method_at(1000));
        assert_string_equal(clear_method_cached()->name, "memset");
        assert_false(clear_method_cached()->non_temporal);
        assert_non_null(clear_method_named("generic"));
}

static void a_batch_is_32_mib_or_one_page(void **state) {
        const struct clear_method *fast = clear_method_named("memset"), *slow = clear_method_named("generic");

        assert_int_equal(PROCESS_PAGES_NON_PREEMPT_BATCH(fast) * page_bytes, 32 << 20);
        assert_int_equal(PROCESS_PAGES_NON_PREEMPT_BATCH(slow), 1);
}

/* No test sees the stores themselves: what is said of them decides about fences, slices and what spares the caches. */
#if defined(__x86_64__)
static void methods_are_described_as_what_they_are(void **state) {
        static const char *const non_temporal[] = {"sse2-nt", "avx2-nt", "avx512-nt", "clzero"};
        static const char *const cached[] = {"unrolled", "rep-stosq", "rep-stosb"};

        for (size_t i = 0; i < ELEMENTSOF(non_temporal); i++) {
                const struct clear_method *method = clear_method_named(non_temporal[i]);

                assert_true(method->non_temporal && method->fast_multi_page);
                assert_non_null(method->publish);
        }
        for (size_t i = 0; i < ELEMENTSOF(cached); i++) {
                const struct clear_method *method = clear_method_named(cached[i]);

                assert_true(method->fast_multi_page && !method->non_temporal);
        }
}
#endif

/* A method that writes down how it is called, and clears. */
#define MAX_CALLS 4096
static struct call {
        char *addr;
        size_t n_bytes;
} calls[MAX_CALLS];
static size_t n_calls;
static bool recorder_writes = true;
static const char *must_be_dirty; /* this page has to be last */

static const char *always(void) {
        return NULL;
}

static void record(void *addr, size_t n_bytes) {
        assert_true(n_calls < MAX_CALLS);
        calls[n_calls++] = (struct call){addr, n_bytes};
        if (must_be_dirty)
                assert_int_equal(must_be_dirty[0], (char) 0xa5);
        if (recorder_writes)
                memset(addr, 0, n_bytes);
}

static size_t n_published, n_calls_published; /* fences, and calls before the last one */

static void publish(void) {
        n_published++;
        n_calls_published = n_calls;
}

static const struct clear_method recorder = {
        .name = "recorder", .fast_multi_page = true, .why_not = always, .clear = record, .publish = publish};
static const struct clear_method slow_recorder = {
        .name = "slow recorder", .why_not = always, .clear = record, .publish = publish};

static void assert_call(size_t idx, const char *addr, size_t n_bytes) {
        assert_true(idx < n_calls);
        assert_ptr_equal(calls[idx].addr, addr);
        assert_int_equal(calls[idx].n_bytes, n_bytes);
}

/* Right of the neighbourhood, left of it, then itself; nothing beside; whatever the slice size. */
static void try_hint(struct arena *arena, size_t at, size_t n, size_t touch, size_t batch) {
        size_t start = touch > 2 ? touch - 2 : 0, end = touch + 3 < n ? touch + 3 : n, expected = end;
        char *extent = arena->memory + at * page_bytes;
        struct clear_slices slices;
        int r;

        if (touch >= n)
                start = end = expected = 0;
        n_calls = 0;
        must_be_dirty = touch < n ? extent + touch * page_bytes : NULL;
        clear_slices_init(&slices, &recorder, extent, n, touch, batch);
        while ((r = clear_next_slice(&slices)) > 0)
                ;
        assert_int_equal(r, 0);
        assert_int_equal(clear_next_slice(&slices), 0);
        must_be_dirty = NULL;
        arena_check(arena, "with a hint", at, n);
        for (size_t i = 0; i < n_calls; i++) {
                if (expected == n && n_calls > 0 && calls[i].addr != extent + expected * page_bytes)
                        expected = 0;
                assert_ptr_equal(calls[i].addr, extent + expected * page_bytes);
                assert_true(calls[i].n_bytes <= batch * page_bytes);
                expected += calls[i].n_bytes / page_bytes;
                assert_true(expected <= start || (calls[i].addr >= extent + end * page_bytes && expected <= n));
        }
        assert_true(n_calls == 0 || expected == (start > 0 ? start : n));
}

static void the_first_touch_is_cleared_last(void **state) {
        struct arena arena = arena_new(14);

        for (size_t n = 1; n <= 12; n++)
                for (size_t touch = 0; touch <= n + 1; touch++)
                        for (size_t batch = 1; batch <= n; batch++)
                                try_hint(&arena, 1, n, touch, batch);
        try_hint(&arena, 1, 12, CLEAR_NO_TOUCH, 12);
        assert_int_equal(n_calls, 1);
        arena_free(&arena);
}

/* Weakly ordered stores are nobody's until then. */
static void a_fence_comes_after_the_stores_and_before_the_return(void **state) {
        const struct clear_method *const methods[] = {&recorder, &slow_recorder};
        struct arena arena = arena_new(8);

        for (size_t i = 0; i < ELEMENTSOF(methods); i++)
                for (size_t n = 1; n <= 4; n++) {
                        n_calls = n_published = n_calls_published = 0;
                        assert_int_equal(clear_pages(methods[i], arena.memory, n), 0);
                        assert_int_equal(n_published, 1);
                        assert_int_equal(n_calls, methods[i]->fast_multi_page ? 1 : n);
                        assert_int_equal(n_calls_published, n_calls);
                }
        n_calls = n_published = 0;
        assert_int_equal(clear_extent_around(&recorder, arena.memory, 8, 4), 0);
        assert_int_equal(n_published, n_calls);
        assert_int_equal(n_calls_published, n_calls);
        arena_free(&arena);
}

static void an_extent_that_nobody_waits_for_is_one_unit(void **state) {
        struct arena arena = arena_new(14);

        n_calls = 0;
        assert_int_equal(clear_extent_around(&recorder, arena.memory + page_bytes, 12, CLEAR_NO_TOUCH), 0);
        arena_check(&arena, "without a hint", 1, 12);
        assert_int_equal(n_calls, 1);
        assert_call(0, arena.memory + page_bytes, 12 * page_bytes);

        n_calls = 0;
        assert_int_equal(clear_extent_around(&recorder, arena.memory + page_bytes, 12, 4), 0);
        arena_check(&arena, "with a hint", 1, 12);
        assert_int_equal(n_calls, 2);
        assert_call(0, arena.memory + 8 * page_bytes, 5 * page_bytes);
        assert_call(1, arena.memory + page_bytes, 2 * page_bytes);
        assert_int_equal(clear_extent_around(&recorder, arena.memory, 0, 0), 0);
        arena_free(&arena);
}

static void slices_are_batches_and_slow_methods_stop_more_often(void **state) {
        size_t n_bytes = (size_t) 96 << 20, n_pages = n_bytes / page_bytes + 1, n_slices = 0;
        char *memory =
                mmap(NULL, n_bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        struct clear_slices slices;

        assert_true(memory != MAP_FAILED);
        recorder_writes = false; /* only the calls are of interest */
        n_calls = 0;
        clear_slices_init(&slices, &recorder, memory, n_pages, CLEAR_NO_TOUCH, 0 /* default */);
        for (size_t i = 0; i < 3; i++) {
                assert_int_equal(clear_next_slice(&slices), 1);
                assert_call(i, memory + i * CLEAR_BATCH_BYTES, CLEAR_BATCH_BYTES);
        }
        assert_int_equal(clear_next_slice(&slices), 0);
        assert_call(3, memory + n_bytes, page_bytes);
        assert_int_equal(n_calls, 4);

        n_calls = 0;
        clear_slices_init(&slices, &slow_recorder, memory, (4 << 20) / page_bytes + 1, CLEAR_NO_TOUCH, 0);
        while (clear_next_slice(&slices) > 0) {
                n_slices++;
                assert_int_equal(n_calls, n_slices * CLEAR_LOOK_UP_BYTES / page_bytes);
        }
        assert_int_equal(n_slices, 2);
        for (size_t i = 0; i < n_calls; i++)
                assert_call(i, memory + i * page_bytes, page_bytes);
        recorder_writes = true;
        munmap(memory, n_bytes + page_bytes);
}

static void an_extent_that_somebody_begins_to_wait_for_becomes_one_unit(void **state) {
        struct arena arena = arena_new(14);
        struct clear_slices slices;

        n_calls = 0;
        clear_slices_init(&slices, &slow_recorder, arena.memory, 13, 0, 2);
        assert_int_equal(clear_slices_next_bytes(&slices), 2 * page_bytes);
        assert_int_equal(clear_next_slice(&slices), 1);
        assert_int_equal(n_calls, 2); /* page by page */
        clear_slices_change(&slices, &recorder, 1000);
        assert_int_equal(clear_slices_next_bytes(&slices), 8 * page_bytes);
        assert_int_equal(clear_next_slice(&slices), 1);
        assert_int_equal(clear_slices_next_bytes(&slices), 3 * page_bytes);
        assert_call(2, arena.memory + 5 * page_bytes, 8 * page_bytes);
        assert_int_equal(clear_next_slice(&slices), 0); /* the neighbourhood, not by this method */
        assert_int_equal(n_calls, 3);
        assert_int_equal(clear_slices_next_bytes(&slices), 0);
        arena_check(&arena, "changed on the way", 0, 13);
        arena_free(&arena);
}

static void a_byte_that_is_not_zero_is_found(void **state) {
        struct arena arena = arena_new(5);
        size_t n_bytes = 4 * page_bytes, offset_bytes = 4711;

        memset(arena.memory, 0, n_bytes);
        assert_int_equal(clear_verify(arena.memory, 0, &offset_bytes), 0);
        assert_int_equal(clear_verify(arena.memory, n_bytes, &offset_bytes), 0);
        assert_int_equal(offset_bytes, 4711);
        for (size_t at = 0; at < n_bytes; at += at < 300 || at > n_bytes - 300 ? 1 : 61) {
                arena.memory[at] = 1;
                arena.memory[n_bytes - 1] = 1; /* the first one is reported */
                assert_int_equal(clear_verify(arena.memory, n_bytes, &offset_bytes), 1);
                assert_int_equal(offset_bytes, at);
                arena.memory[at] = arena.memory[n_bytes - 1] = 0;
        }
        assert_int_equal(clear_verify(arena.memory + page_bytes, 4 * page_bytes, &offset_bytes), 1); /* random behind the end */
        assert_int_equal(offset_bytes, 3 * page_bytes);
        arena_free(&arena);
}

static void only_the_start_of_each_page_is_touched(void **state) {
        struct arena arena = arena_new(4);

        memset(arena.memory, 0xa5, 4 * page_bytes);
        assert_int_equal(clear_touch(arena.memory, 4 * page_bytes, 2 * page_bytes), 0);
        for (size_t at = 0; at < 4 * page_bytes; at++)
                assert_int_equal((unsigned char) arena.memory[at], at % (2 * page_bytes) == 0 ? 0 : 0xa5);
        assert_int_equal(clear_touch(arena.memory, 0, page_bytes), 0);
        arena_free(&arena);
}

/* What a memory failure would send to this thread: the machine has no memory to spare for a real one. */
static int bus_code;

static void fail_by_signal(void *addr, size_t n_bytes) {
        siginfo_t info = {.si_signo = SIGBUS, .si_code = bus_code, .si_addr = addr};

        (void) syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGBUS, &info);
}

static const struct clear_method failing = {
        .name = "failing", .fast_multi_page = true, .why_not = always, .clear = fail_by_signal};

static void a_missing_page_is_an_error_code(void **state) {
        int fd = memfd_create("test-clear", MFD_CLOEXEC);
        const struct clear_method *method;
        size_t offset_bytes;
        char *memory;

        if (!HAVE_SIGBUS) {
                close(fd);
                return;
        }
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t) (3 * page_bytes)), 0);
        memory = mmap(NULL, 8 * page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_true(memory != MAP_FAILED);
        assert_int_equal(clear_catch_sigbus(), 0);
        assert_int_equal(clear_catch_sigbus(), 0);
        for (size_t i = 0; (method = next_available(&i));)
                for (size_t round = 0; round < 2; round++) { /* again: the signal must not stay blocked */
                        struct clear_slices slices;

                        memset(memory, 0xa5, 3 * page_bytes);
                        clear_slices_init(&slices, method, memory, 8, CLEAR_NO_TOUCH, 3);
                        assert_int_equal(clear_next_slice(&slices), 1);
                        assert_true(all_zero(memory, 3 * page_bytes));
                        assert_int_equal(clear_next_slice(&slices), -EFAULT);
                        assert_int_equal(clear_pages(method, memory, 8), -EFAULT);
                        assert_int_equal(clear_pages(method, memory, 3), 0);
                }
        assert_int_equal(clear_verify(memory, 3 * page_bytes, &offset_bytes), 0);
        assert_int_equal(clear_verify(memory, 8 * page_bytes, &offset_bytes), -EFAULT);
        assert_int_equal(clear_verify(memory, 3 * page_bytes, &offset_bytes), 0);
        assert_int_equal(clear_touch(memory, 4 * page_bytes, 2 * page_bytes), 0); /* pages 0 and 2 are there, 1 is not looked at */
        assert_int_equal(clear_touch(memory, 4 * page_bytes, page_bytes), -EFAULT);
        munmap(memory, 8 * page_bytes);
        close(fd);
}

static void failed_memory_is_an_error_code_of_its_own(void **state) {
        struct arena arena = arena_new(2);

        if (RUNNING_ON_VALGRIND || RUNNING_ON_EMULATOR) /* both take such a signal for a fault of their own */
                return;
        assert_int_equal(clear_catch_sigbus(), 0);
        for (size_t round = 0; round < 2; round++) {
                bus_code = BUS_MCEERR_AR;
                assert_int_equal(clear_pages(&failing, arena.memory, 2), -EHWPOISON);
                bus_code = BUS_MCEERR_AO; /* a notice only */
                assert_int_equal(clear_pages(&failing, arena.memory, 2), 0);
        }
        arena_free(&arena);
}

/* How a child ends that runs @action. */
static int end_of(void (*action)(void *context), void *context) {
        int status, null_fd;
        pid_t pid = fork();

        assert_true(pid >= 0);
        if (pid == 0) {
                const struct rlimit no_core = {0, 0};

                (void) setrlimit(RLIMIT_CORE, &no_core);
                null_fd = open("/dev/null", O_WRONLY);
                (void) dup2(null_fd, STDERR_FILENO); /* a sanitizer's report is expected, not of interest */
                action(context);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void touch_missing_page(void *context) {
        int fd = memfd_create("test-clear", MFD_CLOEXEC);
        volatile char *memory = mmap(NULL, page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

        memory[0] = 1;
}

static void send_sigbus(void *context) {
        (void) kill(getpid(), SIGBUS);
}

/* Without the test runner's and the sanitizer's own handlers, which would take the signal for a failed test. */
static void catch_and(void *action) {
        (void) signal(SIGBUS, SIG_DFL);
        if (clear_catch_sigbus() == 0)
                ((void (*)(void *)) action)(NULL);
}

static void any_other_sigbus_kills_as_before(void **state) {
        void (*const actions[])(void *) = {send_sigbus, touch_missing_page};

        for (size_t i = 0; i < (HAVE_SIGBUS ? ELEMENTSOF(actions) : 1); i++) {
                int status = end_of(catch_and, actions[i]);

                assert_true(WIFSIGNALED(status));
                assert_int_equal(WTERMSIG(status), SIGBUS);
        }
}

#if CLEAR_WITH_ASAN
static void clear_poisoned(void *context) {
        struct arena *arena = context;

        __asan_poison_memory_region(arena->memory + page_bytes, page_bytes);
        (void) clear_pages(clear_method_at(2), arena->memory, 2);
}

static void clearing_what_must_not_be_written_is_reported(void **state) {
        struct arena arena = arena_new(2);

        assert_int_not_equal(end_of(clear_poisoned, &arena), 0);
        arena_free(&arena);
}
#endif

#if defined(__x86_64__)
/* Stands in for the processor where it has no clzero: the loop around the instruction is then all that is tested. */
static void emulate_clzero(int signo, siginfo_t *info, void *context) {
        greg_t *registers = ((ucontext_t *) context)->uc_mcontext.gregs;
        const unsigned char *code = (const unsigned char *) registers[REG_RIP];

        if (code[0] != 0x0f || code[1] != 0x01 || code[2] != 0xfc)
                abort();
        memset((void *) ((uintptr_t) registers[REG_RAX] & ~(uintptr_t) 63), 0, 64);
        registers[REG_RIP] += 3;
}

static void clzero_counts_its_lines_right_without_the_instruction(void **state) {
        const struct sigaction action = {.sa_sigaction = emulate_clzero, .sa_flags = SA_SIGINFO};
        const struct clear_method *method = clear_method_named("clzero");
        struct sigaction old;

        assert_non_null(method);
        if (!method->why_not() || RUNNING_ON_VALGRIND)
                return; /* tried with all the others; valgrind does not let the handler step over an instruction */
        assert_int_equal(sigaction(SIGILL, &action, &old), 0);
        try_everywhere(method, 8);
        assert_int_equal(sigaction(SIGILL, &old, NULL), 0);
}

/* The kernel looked at the same flags and at what it enabled itself. */
static void methods_are_available_where_the_kernel_says_so(void **state) {
        static const struct {
                const char *method, *flag;
        } pairs[] = {{"rep-stosb", " erms "}, {"avx2-nt", " avx2 "}, {"avx512-nt", " avx512f "}, {"clzero", " clzero "}};
        FILE *file = fopen("/proc/cpuinfo", "re");
        char line[8192];

        if (!file || RUNNING_ON_VALGRIND) /* valgrind shows the processor that it models */
                skip();
        do
                assert_non_null(fgets(line, sizeof(line), file));
        while (strncmp(line, "flags", 5) != 0);
        fclose(file);
        line[strcspn(line, "\n")] = ' ';
        for (size_t i = 0; i < ELEMENTSOF(pairs); i++)
                if (!clear_method_named(pairs[i].method)->why_not() != !!strstr(line, pairs[i].flag))
                        fail_msg("%s and the kernel's flag%sdisagree", pairs[i].method, pairs[i].flag);
        assert_null(clear_method_named("unrolled")->why_not());
        assert_null(clear_method_named("rep-stosq")->why_not());
        assert_null(clear_method_named("sse2-nt")->why_not());
}
#endif

#if defined(__aarch64__)
static void dc_zva_is_refused_where_it_is_prohibited(void **state) {
        unsigned long long dczid;

        assert_int_equal(clear_dczid_block_bytes(0x04), 64);
        assert_int_equal(clear_dczid_block_bytes(0x00), 4);
        assert_int_equal(clear_dczid_block_bytes(0x09), 2048);
        for (unsigned long long size = 0; size <= 9; size++) {
                assert_int_equal(clear_dczid_block_bytes(0x10 | size), 0);
                assert_non_null(clear_dczid_why_not(0x10 | size));
                assert_null(clear_dczid_why_not(size));
        }
        __asm__("mrs %0, dczid_el0" : "=r"(dczid)); /* no emulator prohibits it in user mode */
        assert_ptr_equal(clear_method_named("dc-zva")->why_not(), clear_dczid_why_not(dczid));
}
#endif

#if defined(__x86_64__)
#define ERMS (1u << 9) /* bits of CPUID leaf 7, EBX, as Intel numbers them */
#define AVX2 (1u << 5)
#define AVX512F (1u << 16)
#define SSE_AND_AVX 0x7u /* of XCR0 */
#define ALL_STATE 0xe7u

static bool lacks(const char *(*why_not)(const struct clear_x86 *), const char *word, struct clear_x86 x86) {
        const char *text = why_not(&x86);

        return text && strstr(text, word);
}

/* Of each question the answer that decides, and all others as they would tempt. */
static void a_method_is_offered_where_processor_and_system_have_it(void **state) {
        const struct clear_x86 all = {.leaf1_ebx = 8 << 8, .leaf7_ebx = ~0u, .leaf80000008_ebx = ~0u, .xcr0 = ~0u};
        struct clear_x86 x86 = all;

        assert_null(clear_x86_why_not_erms(&all));
        assert_null(clear_x86_why_not_avx2(&all));
        assert_null(clear_x86_why_not_avx512(&all));
        assert_null(clear_x86_why_not_clzero(&all));

        x86.leaf7_ebx = ~ERMS;
        assert_true(lacks(clear_x86_why_not_erms, "CPU lacks", x86));
        assert_null(clear_x86_why_not_avx2(&x86));
        x86.leaf7_ebx = ~AVX2;
        assert_true(lacks(clear_x86_why_not_avx2, "CPU lacks", x86));
        assert_null(clear_x86_why_not_avx512(&x86));
        x86.leaf7_ebx = ~AVX512F;
        assert_true(lacks(clear_x86_why_not_avx512, "CPU lacks", x86));
        assert_null(clear_x86_why_not_avx2(&x86));

        x86 = all;
        x86.xcr0 = SSE_AND_AVX; /* no masks and no wide registers: a system that is older than they are */
        assert_null(clear_x86_why_not_avx2(&x86));
        assert_true(lacks(clear_x86_why_not_avx512, "operating system", x86));
        x86.xcr0 = ALL_STATE & ~(1u << 7); /* one part of it is too little */
        assert_true(lacks(clear_x86_why_not_avx512, "operating system", x86));
        x86.xcr0 = ALL_STATE;
        assert_null(clear_x86_why_not_avx512(&x86));
        x86.xcr0 = 0; /* cannot even be asked */
        assert_true(lacks(clear_x86_why_not_avx2, "operating system", x86));
        assert_null(clear_x86_why_not_erms(&x86)); /* which needs none of it */

        x86 = all;
        x86.leaf80000008_ebx = ~1u;
        assert_true(lacks(clear_x86_why_not_clzero, "CPU lacks", x86));
        x86 = all;
        x86.leaf1_ebx = 16 << 8;
        assert_true(lacks(clear_x86_why_not_clzero, "cache lines", x86));
}
#endif

int main(void) {
        const struct CMUnitTest tests[] = {
#if defined(__x86_64__)
                cmocka_unit_test(a_method_is_offered_where_processor_and_system_have_it),
#endif
                cmocka_unit_test(names_are_unique_and_found),
                cmocka_unit_test(every_method_clears_every_range_and_no_more),
                cmocka_unit_test(every_method_clears_random_ranges_of_a_larger_arena),
                cmocka_unit_test(every_method_clears_a_hugetlb_page),
                cmocka_unit_test(a_batch_is_32_mib_or_one_page),
                cmocka_unit_test(the_first_touch_is_cleared_last),
                cmocka_unit_test(a_fence_comes_after_the_stores_and_before_the_return),
                cmocka_unit_test(an_extent_that_nobody_waits_for_is_one_unit),
                cmocka_unit_test(slices_are_batches_and_slow_methods_stop_more_often),
                cmocka_unit_test(an_extent_that_somebody_begins_to_wait_for_becomes_one_unit),
                cmocka_unit_test(a_byte_that_is_not_zero_is_found),
                cmocka_unit_test(only_the_start_of_each_page_is_touched),
                test_without_fd_leak(a_missing_page_is_an_error_code),
                cmocka_unit_test(failed_memory_is_an_error_code_of_its_own),
                cmocka_unit_test(any_other_sigbus_kills_as_before),
#if CLEAR_WITH_ASAN
                cmocka_unit_test(clearing_what_must_not_be_written_is_reported),
#endif
#if defined(__x86_64__)
                cmocka_unit_test(methods_are_described_as_what_they_are),
                cmocka_unit_test(clzero_counts_its_lines_right_without_the_instruction),
                cmocka_unit_test(methods_are_available_where_the_kernel_says_so),
#endif
#if defined(__aarch64__)
                cmocka_unit_test(dc_zva_is_refused_where_it_is_prohibited),
#endif
        };

        page_bytes = clear_base_page_bytes();
        return cmocka_run_group_tests(tests, NULL, NULL);
}
