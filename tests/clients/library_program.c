/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A program on libhugezero, driven line by line by test_library.py. Each command on stdin is answered by one line on stdout:
 *
 *   acquire BYTES FLAGS  acquire BYTES, map them with FLAGS, touch every page     -> page faults of mapping and touching
 *   touch                touch every page again                                   -> page faults
 *   notify               tell the daemon that it is mapped                        -> 0
 *   alloc BYTES FLAGS    hugezero_alloc, then touch every page                    -> page faults of both
 *   check                is all of it zero? then write to all of it               -> 1 or 0
 *   free                 hugezero_free                                            -> 0
 *
 * A call that fails answers its negative errno. The grant and its descriptors are closed at once: mappings are all that is
 * left.
 */
#include <hugezero.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#define PAGE_BYTES (UINT64_C(2) << 20)

static struct hugezero_conn *conn;
static struct hugezero_grant *grant;
static char *memory;
static uint64_t bytes;

static long count_faults(void) {
        struct rusage usage;

        (void) getrusage(RUSAGE_SELF, &usage);
        return usage.ru_minflt + usage.ru_majflt;
}

static long touch(void) {
        long before = count_faults();

        for (uint64_t offset = 0; offset < bytes; offset += PAGE_BYTES)
                ((volatile char *) memory)[offset] = 0;
        return count_faults() - before;
}

static long acquire(uint64_t n_bytes, uint32_t flags) {
        struct hugezero_request *request;

        int r = hugezero_conn_open(NULL, &conn);
        if (r >= 0)
                r = hugezero_request_new(&request);
        if (r >= 0)
                r = hugezero_request_add_item(request, n_bytes, PAGE_BYTES, HUGEZERO_NODE_ANY, 0, NULL);
        if (r >= 0)
                r = hugezero_request_set_miss(request, HUGEZERO_MISS_WAIT, 30000);
        if (r >= 0)
                r = hugezero_acquire(conn, request, &grant);
        if (r < 0)
                return r;
        hugezero_request_free(request);
        long before = count_faults();
        r = hugezero_grant_map(grant, 0, NULL, flags, (void **) &memory, &bytes);
        if (r < 0)
                return r;
        (void) touch();
        return count_faults() - before;
}

static long notify(void) {
        int r = hugezero_grant_notify_mapped(grant, conn);

        hugezero_grant_free(grant);
        return r;
}

static long alloc(uint64_t n_bytes, uint32_t flags) {
        long before = count_faults();

        int r = hugezero_alloc(n_bytes, PAGE_BYTES, HUGEZERO_NODE_ANY, flags, (void **) &memory);
        if (r >= 0)
                r = hugezero_alloc_size(memory, &bytes);
        if (r < 0)
                return r;
        (void) touch();
        return count_faults() - before;
}

static long check(void) {
        int is_zero = memory[0] == 0 && memcmp(memory, memory + 1, bytes - 1) == 0;

        memset(memory, 0xa5, bytes);
        return is_zero;
}

int main(void) {
        char word[16];
        uint64_t n_bytes;
        uint32_t flags;
        long answer;

        while (scanf("%15s", word) == 1) {
                if (strcmp(word, "acquire") == 0 && scanf("%" SCNu64 "%" SCNu32, &n_bytes, &flags) == 2)
                        answer = acquire(n_bytes, flags);
                else if (strcmp(word, "alloc") == 0 && scanf("%" SCNu64 "%" SCNu32, &n_bytes, &flags) == 2)
                        answer = alloc(n_bytes, flags);
                else if (strcmp(word, "touch") == 0)
                        answer = touch();
                else if (strcmp(word, "notify") == 0)
                        answer = notify();
                else if (strcmp(word, "check") == 0)
                        answer = check();
                else if (strcmp(word, "free") == 0)
                        answer = hugezero_free(memory);
                else
                        return 2;
                (void) printf("%ld\n", answer);
                (void) fflush(stdout);
        }
        return 0;
}
