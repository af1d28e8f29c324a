/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hugezeroctl bench clear: every method of the clearing engine beside the kernel's fault path, on hugetlb memory of its own,
 * what calibration chooses here, and what it does to a neighbour. No daemon is needed.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "bench-clear.h"
#include "cleanup.h"
#include "parse.h"

#define DEFAULT_BYTES (UINT64_C(1) << 30) /* the largest chunk */
#define DEFAULT_RUNS 5                    /* chosen: a median that one disturbed run does not move */

static const char help[] = "Usage: hugezeroctl bench clear [OPTIONS]\n"
                           "\n"
                           "Measures how fast each method clears hugetlb memory in chunks of 4 KiB, 2 MiB,\n"
                           "32 MiB and 1 GiB, and beside it the kernel's demand faults and MAP_POPULATE;\n"
                           "which method would be chosen here; and how much slower a pointer chase over\n"
                           "8 MiB on another CPU becomes. It takes free pages, and needs no daemon.\n"
                           "\n"
                           "Options:\n"
                           "  --bytes SIZE       how much memory (default: 1G)\n"
                           "  --page-size SIZE   pages of this size (default: the system's default)\n"
                           "  --node NODE        on this node (default: the one of the current CPU)\n"
                           "  --runs N           runs of each (default: 5)\n"
                           "  --no-harm          leave out the pointer chase, which takes most of the time\n"
                           "  --json             one JSON object\n"
                           "  --socket PATH      accepted; no daemon is needed\n"
                           "  --help             this text\n";

struct result {
        struct bench_speeds speeds;
        struct clear_calibration calibration;
        struct bench_harms harms;
};

/* NULL: there is less memory than that, nothing is known of such chunks. */
static const struct clear_method *chosen_for(const struct bench *bench, const struct result *result, size_t chunk) {
        if (bench_chunk_bytes[chunk] > bench->bytes)
                return NULL;
        return clear_calibration_method(&result->calibration, bench_chunk_bytes[chunk]);
}

static unsigned cpu_ms(const struct result *result) {
        return (unsigned) (result->calibration.used_ns / 1000000);
}

static json_t *number_or_null(double number) {
        return number > 0 ? json_real(number) : json_null();
}

/* The fractions of the last rows; 0 where one of both was not measured. */
static double ratio(double of, double over) {
        return of > 0 && over > 0 ? of / over : 0;
}

static json_t *speeds_json(const struct bench_speed speeds[BENCH_N_CHUNKS]) {
        json_t *array = json_array();
        for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++)
                (void) json_array_append_new(array, speeds[chunk].median > 0
                                                            ? json_pack("{s:f, s:f, s:f}", "median", speeds[chunk].median,
                                                                        "min", speeds[chunk].min, "max", speeds[chunk].max)
                                                            : json_null());
        return array;
}

static json_t *methods_json(const struct bench_speeds *speeds) {
        json_t *methods = json_array();
        for (size_t row = 0; row < BENCH_ROW_DEMAND && clear_method_at(row); row++)
                (void) json_array_append_new(methods, json_pack("{s:s, s:s?, s:o}", "method", clear_method_at(row)->name,
                                                                "why_not", clear_method_at(row)->why_not(), "gb_per_s",
                                                                speeds_json(speeds->cells[row])));
        return methods;
}

static json_t *chunks_json(const struct bench *bench, const struct result *result) {
        const struct bench_speeds *speeds = &result->speeds;
        json_t *chunks = json_array();
        for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++) {
                double best_speed;
                const struct clear_method *best = bench_speeds_best(speeds, chunk, &best_speed);
                const struct clear_method *chosen = chosen_for(bench, result, chunk);
                double chosen_speed = chosen ? bench_speeds_of(speeds, chosen, chunk) : 0;
                (void) json_array_append_new(
                        chunks,
                        json_pack("{s:I, s:s?, s:s?, s:o, s:o, s:o, s:o}", "bytes", (json_int_t) bench_chunk_bytes[chunk],
                                  "best", best ? best->name : NULL, "chosen", chosen ? chosen->name : NULL, "ratio_best_over_demand",
                                  number_or_null(ratio(best_speed, speeds->cells[BENCH_ROW_DEMAND][chunk].median)),
                                  "ratio_best_over_populate",
                                  number_or_null(ratio(best_speed, speeds->cells[BENCH_ROW_POPULATE][chunk].median)),
                                  "ratio_chosen_over_best", number_or_null(ratio(chosen_speed, best_speed)),
                                  "ratio_chosen_over_memset",
                                  number_or_null(ratio(chosen_speed, bench_speeds_of(speeds, clear_method_cached(), chunk)))));
        }
        return chunks;
}

static const char *harm_name(const struct bench_harms *harms, size_t row) {
        return harms->methods[row] ? harms->methods[row]->name : "kernel";
}

static json_t *harms_json(const struct bench_harms *harms) {
        json_t *rows = json_array();
        if (harms->neighbour_cpu < 0) {
                json_decref(rows);
                return json_null();
        }
        for (size_t harm = 0; harm < harms->n_rows; harm++)
                for (size_t paced = 0; paced < 2; paced++) {
                        const struct bench_harm *cell = &harms->cells[harm][paced];
                        (void) json_array_append_new(
                                rows, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:i, s:i}", "what", harm_name(harms, harm),
                                                "pace_bytes_per_s",
                                                paced ? json_integer((json_int_t) BENCH_PACE_BYTES_PER_S) : json_null(),
                                                "slowdown", number_or_null(cell->slowdown), "min", number_or_null(cell->min),
                                                "max", number_or_null(cell->max), "gb_per_s", number_or_null(cell->gb_per_s),
                                                "runs", (int) cell->n_runs, "discarded", (int) cell->n_discarded));
                }
        return json_pack("{s:i, s:i, s:I, s:o}", "cpu", harms->cpu, "neighbour_cpu", harms->neighbour_cpu, "ring_bytes",
                         (json_int_t) BENCH_HARM_RING_BYTES, "rows", rows);
}

static int print_json(const struct bench *bench, const struct result *result) {
        const struct bench_speeds *speeds = &result->speeds;
        return ctl_print_json(json_pack(
                "{s:I, s:I, s:i, s:i, s:o, s:o, s:{s:o, s:o}, s:{s:i, s:s}, s:o}", "bytes", (json_int_t) bench->bytes,
                "page_size_bytes", (json_int_t) bench->page_size_bytes, "node", (int) bench->node, "runs", (int) bench->n_runs,
                "chunks", chunks_json(bench, result), "methods", methods_json(speeds), "kernel", "demand",
                speeds_json(speeds->cells[BENCH_ROW_DEMAND]), "populate", speeds_json(speeds->cells[BENCH_ROW_POPULATE]),
                "calibration", "took_ms", (int) cpu_ms(result), "reason", result->calibration.reason, "harm",
                harms_json(&result->harms)));
}

#define CELL_BYTES 48

static void add_speeds(struct libscols_table *table, const char *name, const struct bench_speed speeds[BENCH_N_CHUNKS]) {
        char texts[BENCH_N_CHUNKS][CELL_BYTES];
        const char *cells[1 + BENCH_N_CHUNKS] = {name};
        for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++) {
                const struct bench_speed *speed = &speeds[chunk];
                (void) snprintf(texts[chunk], CELL_BYTES, "%.1f (%.1f..%.1f)", speed->median, speed->min, speed->max);
                cells[1 + chunk] = speed->median > 0 ? texts[chunk] : "-";
        }
        (void) ctl_table_add(table, cells, 1 + BENCH_N_CHUNKS);
}

static int print_speeds(const struct bench *bench, const struct result *result) {
        const struct bench_speeds *speeds = &result->speeds;
        char names[BENCH_N_CHUNKS][FORMAT_SIZE_BYTES], ratios[BENCH_N_CHUNKS][CELL_BYTES];
        struct ctl_column columns[1 + BENCH_N_CHUNKS] = {{"GB/s", false}};
        const char *best_cells[1 + BENCH_N_CHUNKS] = {"best/demand"}, *chosen_cells[1 + BENCH_N_CHUNKS] = {"chosen"};
        for (size_t chunk = 0; chunk < BENCH_N_CHUNKS; chunk++) {
                double best_speed;
                (void) bench_speeds_best(speeds, chunk, &best_speed);
                double times = ratio(best_speed, speeds->cells[BENCH_ROW_DEMAND][chunk].median);
                columns[1 + chunk] = (struct ctl_column){format_size(bench_chunk_bytes[chunk], names[chunk]), true};
                (void) snprintf(ratios[chunk], CELL_BYTES, "%.2f times", times);
                best_cells[1 + chunk] = times > 0 ? ratios[chunk] : "-";
                const struct clear_method *chosen = chosen_for(bench, result, chunk);
                chosen_cells[1 + chunk] = chosen ? chosen->name : "-";
        }
        struct libscols_table *table = ctl_table_new(columns, 1 + BENCH_N_CHUNKS);
        for (size_t row = 0; row < BENCH_ROW_DEMAND && clear_method_at(row); row++)
                if (!clear_method_at(row)->why_not())
                        add_speeds(table, clear_method_at(row)->name, speeds->cells[row]);
        add_speeds(table, "demand", speeds->cells[BENCH_ROW_DEMAND]);
        add_speeds(table, "populate", speeds->cells[BENCH_ROW_POPULATE]);
        (void) ctl_table_add(table, best_cells, 1 + BENCH_N_CHUNKS);
        (void) ctl_table_add(table, chosen_cells, 1 + BENCH_N_CHUNKS);
        return ctl_table_print(table);
}

static int print_harms(const struct bench_harms *harms) {
        static const struct ctl_column columns[] = {{"BESIDE", false}, {"PACE", false}, {"GB/s", true}, {"SLOWER", true},
                                                    {"MIN", true},     {"MAX", true},   {"RUNS", true}, {"DISCARDED", true}};
        if (harms->neighbour_cpu < 0)
                return puts("harm: not measured (--no-harm, or there is one CPU only)") == EOF ? CTL_EXIT_FAILED : CTL_EXIT_OK;
        printf("pointer chase over 8 MiB on CPU %d, clearing on CPU %d\n", harms->neighbour_cpu, harms->cpu);
        struct libscols_table *table = ctl_table_new(columns, 8);
        for (size_t harm = 0; harm < harms->n_rows; harm++)
                for (size_t paced = 0; paced < 2; paced++) {
                        const struct bench_harm *cell = &harms->cells[harm][paced];
                        const char *const words[] = {harm_name(harms, harm), paced ? "2 GiB/s" : "none"};
                        struct ctl_figure figures[] = {{cell->gb_per_s, 2}, {cell->slowdown, 2}, {cell->min, 2}, {cell->max, 2},
                                                       {cell->n_runs, 0}, {cell->n_discarded, 0}};
                        for (size_t idx = 0; idx < 4 && !cell->n_runs; idx++)
                                figures[idx].value = NAN;
                        (void) ctl_table_add_figures(table, words, 2, figures, 6);
                }
        return ctl_table_print(table);
}

static int print_text(const struct bench *bench, const struct result *result) {
        char size[FORMAT_SIZE_BYTES], page[FORMAT_SIZE_BYTES];
        printf("%s in pages of %s on node %d, %u run%s: median (min..max)\n", format_size(bench->bytes, size),
               format_size(bench->page_size_bytes, page), (int) bench->node, bench->n_runs, plural_s(bench->n_runs));
        int exit_code = print_speeds(bench, result);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        printf("calibration, %u ms of CPU time: %s\n\n", cpu_ms(result), result->calibration.reason);
        return print_harms(&result->harms);
}

/* As the daemon does at its start, for as large slices as there is memory. */
static int calibrate(const struct bench *bench, char *memory, struct clear_calibration *ret_calibration) {
        static const size_t slice_bytes[] = {(size_t) 2 << 20, CLEAR_BATCH_BYTES, CLEAR_CALIBRATE_BYTES};
        int r = 0;
        clear_calibration_init(ret_calibration);
        for (size_t idx = 0; idx < sizeof(slice_bytes) / sizeof(slice_bytes[0]) && r >= 0; idx++)
                if (slice_bytes[idx] <= bench->bytes)
                        r = clear_calibration_add(ret_calibration, slice_bytes[idx]);
        if (r >= 0)
                r = clear_calibrate(ret_calibration, memory, bench->bytes, CLEAR_CALIBRATE_BUDGET_NS, /* stop= */ NULL, NULL);
        if (r < 0) {
                ctl_error("calibrating: %" PRIu64 " bytes: %s", bench->bytes, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        return CTL_EXIT_OK;
}

static int measure(const struct bench *bench, char *memory, bool with_harm, struct result *ret_result) {
        int exit_code = bench_speeds_measure(bench, memory, &ret_result->speeds);
        if (exit_code == CTL_EXIT_OK)
                exit_code = calibrate(bench, memory, &ret_result->calibration);
        ret_result->harms = (struct bench_harms){.cpu = -1, .neighbour_cpu = -1};
        if (exit_code != CTL_EXIT_OK || !with_harm)
                return exit_code;
        return bench_harms_measure(bench, memory, &ret_result->harms);
}

/* Returns an exit code, or -1: go on. */
static int parse_options(struct ctl *ctl, int argc, char *argv[], struct bench *bench, int *ret_no_harm) {
        const struct option options[] = {
                CTL_OPTIONS_COMMON,
                CTL_OPTIONS_JSON,
                BENCH_OPTIONS_AMOUNT,
                BENCH_OPTIONS_PAGES,
                {"no-harm", no_argument, ret_no_harm, 1},
                {},
        };
        return bench_parse_options(ctl, argc, argv, options, help, bench);
}

int bench_verb_clear(struct ctl *ctl, int argc, char *argv[]) {
        struct bench bench = {.ctl = ctl, .node = HUGEZERO_NODE_ANY, .bytes = DEFAULT_BYTES, .n_runs = DEFAULT_RUNS};
        struct result result;
        int no_harm = 0, exit_code = parse_options(ctl, argc, argv, &bench, &no_harm);
        if (exit_code >= 0)
                return exit_code;
        exit_code = bench_choose_memory(&bench);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        bench_round_up(&bench, 1);
        exit_code = bench_kernel_check_free(&bench, bench.bytes);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        /* Address space first, aligned as the pages need it wherever parts are mapped anew. */
        size_t reserved_bytes = bench.bytes + bench.page_size_bytes;
        char *reserved = mmap(NULL, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        char *memory =
                reserved + (bench.page_size_bytes - (uintptr_t) reserved % bench.page_size_bytes) % bench.page_size_bytes;
        if (reserved == MAP_FAILED) {
                ctl_error("taking %" PRIu64 " bytes of address space: %s; give less with --bytes, or raise the limit (ulimit -v)",
                          (uint64_t) reserved_bytes, strerror(errno));
                return CTL_EXIT_FAILED;
        }
        int r = bench_kernel_map_at(&bench, memory, bench.bytes, true);
        if (r < 0) {
                ctl_error("taking memory: %" PRIu64 " bytes of hugepages: %s", bench.bytes, strerror(-r));
                return CTL_EXIT_FAILED;
        }
        exit_code = measure(&bench, memory, !no_harm, &result);
        (void) munmap(reserved, reserved_bytes);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        return ctl->json ? print_json(&bench, &result) : print_text(&bench, &result);
}
