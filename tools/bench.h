/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the parts of hugezeroctl bench share. Functions that return an exit code have said why already. */
#pragma once

#include <sched.h>
#include <signal.h>
#include <time.h>

#include "ctl.h"

#define BENCH_MAX_RUNS 100000 /* chosen: hours */

struct bench {
        const struct ctl *ctl;
        struct hugezero_conn *conn;
        const char *pool; /* NULL: any that fits */
        uint64_t bytes, page_size_bytes;
        uint64_t unit_bytes; /* the least that is handed out: a page, or an extent where all have one size */
        int32_t node;
        unsigned n_runs, n_warm_up; /* the latter do not count */
        bool is_several;
        bool is_lending; /* the kernel is measured with the pool's pages */
        cpu_set_t cpus;  /* where this process may run: those of the node */
        unsigned n_cpus;
};

static inline uint64_t bench_now_ns(void) {
        struct timespec now;
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

/* Options that several of the measurements take; an own one begins at BENCH_OPTION_OWN. */
enum {
        BENCH_OPTION_BYTES = CTL_OPTION_OWN,
        BENCH_OPTION_PAGE_SIZE,
        BENCH_OPTION_NODE,
        BENCH_OPTION_RUNS,
        BENCH_OPTION_POOL,
        BENCH_OPTION_SEVERAL,
        BENCH_OPTION_OWN,
};
#define BENCH_OPTIONS_AMOUNT                                               \
        {"bytes", required_argument, NULL, BENCH_OPTION_BYTES}, {          \
                "runs", required_argument, NULL, BENCH_OPTION_RUNS         \
        }
#define BENCH_OPTIONS_PAGES                                                \
        {"page-size", required_argument, NULL, BENCH_OPTION_PAGE_SIZE}, {  \
                "node", required_argument, NULL, BENCH_OPTION_NODE         \
        }
#define BENCH_OPTIONS_POOL                                                 \
        {"pool", required_argument, NULL, BENCH_OPTION_POOL}, {            \
                "several", no_argument, NULL, BENCH_OPTION_SEVERAL         \
        }
/* Returns an exit code. @verb is for complaints. */
int bench_take_option(struct bench *bench, const char *verb, int option, const char *value);
/* All of a command line with no other options than these and flags. Returns an exit code, or -1: go on. */
int bench_parse_options(struct ctl *ctl, int argc, char *argv[], const struct option *options, const char *help,
                        struct bench *bench);
/* Chooses a page size where none was, and calls bench_kernel_bind(). Returns an exit code. */
int bench_choose_memory(struct bench *bench);
/* Connects and does the same, with the page and extent size of the pool. Close @bench->conn. Returns an exit code. */
int bench_connect(struct bench *bench);
/* Makes @bench->bytes whole units for each of @n_shares. */
void bench_round_up(struct bench *bench, unsigned n_shares);

/* Writes to one byte of each page. */
void bench_touch(void *addr, uint64_t bytes, uint64_t page_size_bytes);

enum bench_kernel_mode { BENCH_DEMAND, BENCH_POPULATE, BENCH_POPULATE_PARALLEL };

/* Chooses the node (the one that runs us, when @bench->node is -1), its CPUs and its memory for all that follows. */
int bench_kernel_bind(struct bench *bench);
/* 0: unknown. */
uint64_t bench_kernel_default_page_size(void);
/* Complains when the kernel has fewer than that free for us on the node. */
int bench_kernel_check_free(const struct bench *bench, uint64_t bytes);
bool bench_kernel_has_free(const struct bench *bench, uint64_t bytes);
/* Maps @bench->bytes of the kernel's pages, touches all, and unmaps outside of the measured time. */
int bench_kernel_run(const struct bench *bench, enum bench_kernel_mode mode, uint64_t *ret_ns);

/* The pages of the pool, while the kernel has them. */
struct bench_loan {
        char pool[32];
        uint64_t target_bytes; /* that the pool gets back */
        sigset_t signals;      /* that were blocked before */
};
/* Empties the pool until bench_take_back(), which is due after success. For administrators. Returns an exit code. */
int bench_lend(const struct bench *bench, struct bench_loan *ret_loan);
int bench_take_back(const struct bench *bench, const struct bench_loan *loan);

struct bench_supply {
        uint64_t target_bytes, ready_bytes, largest_bytes; /* of the rows that a request can use */
        uint64_t moving_bytes;                             /* of all rows: what will be noise */
};
/* What the daemon has now. */
int bench_pool_supply(const struct bench *bench, struct bench_supply *ret_supply);
/* Waits until the pool can serve @bytes again, as one extent of that size with @is_whole, and is idle. */
int bench_pool_wait(const struct bench *bench, uint64_t bytes, bool is_whole);
/* The page size of @bench->pool; CTL_EXIT_FAILED when there is no such pool. */
int bench_pool_page_size(const struct bench *bench, uint64_t *ret_bytes);
/* The size of one page, or of one extent where there are no smaller ones. */
int bench_pool_unit(const struct bench *bench, uint64_t *ret_bytes);
int bench_pool_new_request(const struct bench *bench, uint64_t bytes, struct hugezero_request **ret_request);
/* Acquires, maps and touches; gives back outside of the measured time. */
int bench_pool_run(const struct bench *bench, struct hugezero_request *request, uint64_t *ret_ns);

/* bench --latency: one extent of the least size, next to what the kernel needs at least. @n_runs 0: as many as the pool allows. */
int bench_latency(struct bench *bench);

/* Maps and touches @bytes of the kernel's pages at @addr, which replaces what is there. Returns 0 or a negative errno. */
int bench_kernel_map_at(const struct bench *bench, char *addr, uint64_t bytes, bool is_populate);

/* The other measurements, verbs of their own below bench. */
int bench_verb_clear(struct ctl *ctl, int argc, char *argv[]);
int bench_verb_procs(struct ctl *ctl, int argc, char *argv[]);
int bench_verb_churn(struct ctl *ctl, int argc, char *argv[]);
