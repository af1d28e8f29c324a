/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What people write, turned into numbers and back. strtoul(3) and scanf(3) are too generous (blanks, signs, prefixes, locale),
 * so digits are read here. A text that is not of the form is -EINVAL even where its number would not fit either.
 */

#include "parse.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool is_digit(char c) {
        return c >= '0' && c <= '9';
}

/* The same in any locale. */
static char to_lower(char c) {
        return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* a * b + c, at most UINT64_MAX; tells in *overflow when that was too small. */
static uint64_t multiply_add(uint64_t a, uint64_t b, uint64_t c, bool *overflow) {
        uint64_t result;

        if (__builtin_mul_overflow(a, b, &result) || __builtin_add_overflow(result, c, &result)) {
                *overflow = true;
                return UINT64_MAX;
        }
        return result;
}

/* At least one digit; moves *text behind the last. False when there is none. */
static bool read_digits(const char **text, uint64_t *ret_value, bool *overflow) {
        uint64_t value = 0;

        if (!is_digit(**text))
                return false;
        for (; is_digit(**text); (*text)++)
                value = multiply_add(value, 10, (uint64_t) (**text - '0'), overflow);
        *ret_value = value;
        return true;
}

/* Does *text begin with @word, in any case? Then moves behind it. */
static bool read_word(const char **text, const char *word) {
        size_t n = 0;

        for (; word[n]; n++)
                if (to_lower((*text)[n]) != word[n])
                        return false;
        *text += n;
        return true;
}

int parse_u64(const char *text, uint64_t *ret_value) {
        bool overflow = false;
        uint64_t value;

        assert(text);
        if (!read_digits(&text, &value, &overflow) || *text)
                return -EINVAL;
        if (overflow)
                return -ERANGE;
        *ret_value = value;
        return 0;
}

int parse_i32(const char *text, int32_t *ret_value) {
        bool overflow = false;
        uint64_t value;

        assert(text);
        bool negative = *text == '-';
        text += negative;
        if (!read_digits(&text, &value, &overflow) || *text)
                return -EINVAL;
        if (overflow || value > (uint64_t) INT32_MAX + negative)
                return -ERANGE;
        *ret_value = (int32_t) (negative ? -(int64_t) value : (int64_t) value);
        return 0;
}

int parse_bool(const char *text, bool *ret_value) {
        static const char *const words[2][4] = {{"no", "false", "off", "0"}, {"yes", "true", "on", "1"}};

        assert(text);
        for (int value = 0; value < 2; value++)
                for (int i = 0; i < 4; i++) {
                        const char *rest = text;
                        if (read_word(&rest, words[value][i]) && !*rest) {
                                *ret_value = value;
                                return 0;
                        }
                }
        return -EINVAL;
}

static const char size_units[] = "kmgtpe";

/* "", "B", or one of the units with "", "i", "B" or "iB", to the end of @text. Gives the power of two, or -EINVAL. */
static int read_size_unit(const char *text) {
        int shift = 0;

        if (*text && to_lower(*text) != 'b') {
                const char *unit = strchr(size_units, to_lower(*text));
                if (!unit)
                        return -EINVAL;
                shift = 10 * (int) (unit - size_units + 1);
                text++;
                (void) read_word(&text, "i");
        }
        (void) read_word(&text, "b");
        return *text ? -EINVAL : shift;
}

int parse_size(const char *text, uint64_t *ret_bytes) {
        const char *fraction = NULL, *fraction_end = NULL;
        uint64_t whole, bytes, part = 0;
        bool overflow = false;

        assert(text);
        if (!read_digits(&text, &whole, &overflow))
                return -EINVAL;
        if (*text == '.') {
                fraction = ++text;
                while (is_digit(*text))
                        text++;
                fraction_end = text;
                if (fraction == fraction_end)
                        return -EINVAL;
        }
        if (*text == ' ' && !*++text)
                return -EINVAL;
        int shift = read_size_unit(text);
        if (shift < 0 || (fraction && shift == 0))
                return -EINVAL;

        /* From the last digit to the first: the exact value, rounded down to a byte, without a wider type. */
        while (fraction_end > fraction)
                part = (part + ((uint64_t) (*--fraction_end - '0') << shift)) / 10;
        bytes = multiply_add(whole, UINT64_C(1) << shift, part, &overflow);
        if (overflow)
                return -ERANGE;
        *ret_bytes = bytes;
        return 0;
}

static const struct {
        const char *name;
        uint64_t ms;
} time_units[] = {{"h", 3600000}, {"min", 60000}, {"s", 1000}, {"ms", 1}};
#define N_TIME_UNITS (sizeof(time_units) / sizeof(time_units[0]))

/* The position of the unit that *text begins with, or N_TIME_UNITS. "m" is none: minutes to some, milliseconds to others. */
static size_t read_time_unit(const char **text) {
        size_t idx = 0;

        while (idx < N_TIME_UNITS && !read_word(text, time_units[idx].name))
                idx++;
        return idx;
}

int parse_duration(const char *text, uint64_t *ret_ms) {
        uint64_t ms = 0, value;
        bool overflow = false;
        size_t next_unit = 0; /* units come in falling order, each at most once */

        assert(text);
        if (strcmp(text, "infinity") == 0) {
                *ret_ms = UINT64_MAX;
                return 0;
        }
        const char *start = text;
        do {
                if (text != start && *text == ' ')
                        text++;
                if (!read_digits(&text, &value, &overflow))
                        return -EINVAL;
                if (!*text && next_unit == 0) {
                        ms = multiply_add(value, 1000, 0, &overflow);
                        break;
                }
                size_t unit = read_time_unit(&text);
                if (unit < next_unit || unit >= N_TIME_UNITS)
                        return -EINVAL;
                next_unit = unit + 1;
                ms = multiply_add(value, time_units[unit].ms, ms, &overflow);
        } while (*text);

        if (overflow || ms == UINT64_MAX) /* that value means infinity */
                return -ERANGE;
        *ret_ms = ms;
        return 0;
}

int parse_percent(const char *text, uint32_t *ret_millipercent) {
        bool overflow = false;
        uint64_t value;

        assert(text);
        if (!read_digits(&text, &value, &overflow))
                return -EINVAL;
        value = multiply_add(value, 1000, 0, &overflow);
        if (*text == '.') {
                uint64_t weight = 100;
                text++;
                if (!is_digit(*text))
                        return -EINVAL;
                for (; is_digit(*text); text++, weight /= 10) {
                        if (weight == 0)
                                return -EINVAL;
                        value = multiply_add((uint64_t) (*text - '0'), weight, value, &overflow);
                }
        }
        if (strcmp(text, "%") != 0)
                return -EINVAL;
        if (overflow || value > 100000)
                return -ERANGE;
        *ret_millipercent = (uint32_t) value;
        return 0;
}

int parse_node_list(const char *text, uint64_t ret_bits[PARSE_MAX_NODES / 64]) {
        uint64_t bits[PARSE_MAX_NODES / 64] = {}, first, last;
        bool overflow = false, out_of_range = false;

        assert(text);
        for (;;) {
                if (!read_digits(&text, &first, &overflow))
                        return -EINVAL;
                last = first;
                if (*text == '-') {
                        text++;
                        if (!read_digits(&text, &last, &overflow) || last < first)
                                return -EINVAL;
                }
                if (last >= PARSE_MAX_NODES)
                        out_of_range = true;
                for (uint64_t node = first; node <= last && !out_of_range; node++)
                        bits[node / 64] |= UINT64_C(1) << (node % 64);
                if (!*text)
                        break;
                if (*text++ != ',')
                        return -EINVAL;
        }
        if (overflow || out_of_range)
                return -ERANGE;
        memcpy(ret_bits, bits, sizeof(bits));
        return 0;
}

const char *format_size(uint64_t bytes, char buffer[FORMAT_SIZE_BYTES]) {
        static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
        size_t unit = 0;

        while (bytes > 0 && bytes % 1024 == 0 && unit + 1 < sizeof(names) / sizeof(names[0])) {
                bytes /= 1024;
                unit++;
        }
        (void) snprintf(buffer, FORMAT_SIZE_BYTES, "%" PRIu64 " %s", bytes, names[unit]);
        return buffer;
}

const char *format_duration(uint64_t ms, char buffer[FORMAT_SIZE_BYTES]) {
        size_t unit = 0;

        if (ms == UINT64_MAX) {
                (void) snprintf(buffer, FORMAT_SIZE_BYTES, "infinity");
                return buffer;
        }
        if (ms == 0) {
                (void) snprintf(buffer, FORMAT_SIZE_BYTES, "0s");
                return buffer;
        }
        while (ms % time_units[unit].ms != 0)
                unit++;
        (void) snprintf(buffer, FORMAT_SIZE_BYTES, "%" PRIu64 "%s", ms / time_units[unit].ms, time_units[unit].name);
        return buffer;
}

void cut_text(const char *text, const char *ending, char *buffer, size_t n_bytes) {
        size_t n = strlen(text), n_ending = strlen(ending);

        if (n < n_bytes) {
                memcpy(buffer, text, n + 1);
                return;
        }
        n = n_bytes - 1 - n_ending;
        while (n > 0 && ((unsigned char) text[n] & 0xc0) == 0x80) /* within a letter */
                n--;
        for (size_t i = n; i > 0; i--)
                if (text[i] == ' ') {
                        n = i;
                        break;
                }
        memcpy(buffer, text, n);
        memcpy(buffer + n, ending, n_ending + 1);
}
