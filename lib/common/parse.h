/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Strict parsers for what people write: integers, sizes, times, node lists. All take the whole string or fail; all return 0
 * or -EINVAL (not of the form), -ERANGE (does not fit); outputs are set on success only. No locale, no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits only, no sign, no blanks. */
int parse_u64(const char *text, uint64_t *ret_value);
int parse_i32(const char *text, int32_t *ret_value); /* an optional leading '-' */
int parse_bool(const char *text, bool *ret_value);   /* yes/no, true/false, on/off, 1/0 */

/*
 * Bytes. 2097152, 2048k, 2048kB, 2048KiB, 2M, 2MB, 2Mi, 2MiB, 1.5G, also with one blank before the unit and in lower case; all
 * units are powers of 1024. What is not a whole number of bytes is rounded down.
 */
#define PARSE_SIZE_TOO_LARGE "it is too large: sizes end below 16E" /* what -ERANGE means */
int parse_size(const char *text, uint64_t *ret_bytes);

/* Milliseconds. "500ms", "10" (seconds), "10s", "5min", "2h", "1min 30s"; "infinity" gives UINT64_MAX. */
int parse_duration(const char *text, uint64_t *ret_ms);

/* Per cent, "50%" or "12.5%", in 1/1000 of a per cent (50000, 12500); 0 to 100 %. */
int parse_percent(const char *text, uint32_t *ret_millipercent);

#define PARSE_MAX_NODES 1024 /* kernel limit: CONFIG_NODES_SHIFT is at most 10 */
/* A set of nodes: "0", "0,2", "0-3", "0-1,4". Bit N of ret_bits[N / 64]. */
int parse_node_list(const char *text, uint64_t ret_bits[PARSE_MAX_NODES / 64]);

/* The canonical form: the largest unit that divides it evenly, "2 MiB", "5632 MiB", "1 GiB", "4097 B". Returns @buffer. */
#define FORMAT_SIZE_BYTES 32
const char *format_size(uint64_t bytes, char buffer[FORMAT_SIZE_BYTES]);
/* Copies @text; one that does not fit ends behind a word, with @ending. @n_bytes: more than @ending has. */
void cut_text(const char *text, const char *ending, char *buffer, size_t n_bytes);
const char *format_duration(uint64_t ms, char buffer[FORMAT_SIZE_BYTES]); /* "500ms", "10s", "10min", "infinity" */

/* Behind a noun that is counted, and the verb behind that. */
static inline const char *plural_s(uint64_t n) {
        return n == 1 ? "" : "s";
}

static inline const char *plural_are(uint64_t n) {
        return n == 1 ? "is" : "are";
}
