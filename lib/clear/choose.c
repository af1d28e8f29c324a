/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From figures to a choice and a sentence that explains it. No measuring here: the rule can be tested with any figures. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "calibrate.h"
#include "parse.h"

/* GB/s of memset(), which no choice may fall below by more than two runs differ; 0 where it was not measured. */
static double floor_gb_per_s(const struct clear_calibration *calibration, size_t slice, size_t *ret_i) {
        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->methods[i] == clear_method_cached() && calibration->figures[i][slice].gb_per_s > 0) {
                        *ret_i = i;
                        return calibration->figures[i][slice].gb_per_s;
                }
        return 0;
}

/* Index of the fastest method of a size that was measured. */
static size_t fastest(const struct clear_calibration *calibration, size_t slice) {
        size_t best = calibration->n_methods, cached = 0;
        double cached_gb_per_s = floor_gb_per_s(calibration, slice, &cached);

        for (size_t i = 0; i < calibration->n_methods; i++) {
                if (calibration->figures[i][slice].gb_per_s <= 0)
                        continue;
                if (best == calibration->n_methods ||
                    calibration->figures[i][slice].gb_per_s > calibration->figures[best][slice].gb_per_s)
                        best = i;
        }
        /* A lead that the next run may turn into a lag is none. */
        if (cached_gb_per_s > 0 && cached_gb_per_s * 100 >= calibration->figures[best][slice].gb_per_s *
                                                                   (100 - CLEAR_CALIBRATE_NOISE_PERCENT))
                return cached;
        return best;
}

/* Index of the method that replaces @best for doing so much less harm; @best itself where there is none. */
static size_t least_harmful(const struct clear_calibration *calibration, size_t slice, size_t best) {
        const struct clear_figures *fast = &calibration->figures[best][slice];
        size_t found = best, cached;
        double cached_gb_per_s = floor_gb_per_s(calibration, slice, &cached);
        int needed_percent;

        if (fast->survival_percent == CLEAR_NOT_MEASURED)
                return best;
        needed_percent = fast->survival_percent + CLEAR_CALIBRATE_HARM_POINTS;
        for (size_t i = 0; i < calibration->n_methods; i++) {
                const struct clear_figures *figures = &calibration->figures[i][slice];

                if (figures->gb_per_s * 100 < fast->gb_per_s * (100 - CLEAR_CALIBRATE_NEAR_PERCENT) ||
                    figures->gb_per_s * 100 < cached_gb_per_s * (100 - CLEAR_CALIBRATE_NOISE_PERCENT) ||
                    figures->survival_percent < needed_percent)
                        continue;
                found = i;
                needed_percent = figures->survival_percent + 1;
        }
        return found;
}

int clear_survival_percent(uint64_t warm_ns, uint64_t cold_ns, uint64_t took_ns) {
        if (took_ns <= warm_ns)
                return 100;
        return took_ns < cold_ns ? (int) ((cold_ns - took_ns) * 100 / (cold_ns - warm_ns)) : 0;
}

bool clear_calibration_lacks_harm(const struct clear_calibration *calibration, size_t slice) {
        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->figures[i][slice].survival_percent != CLEAR_NOT_MEASURED)
                        return false;
        return calibration->is_measured[slice];
}

/* Survival that is low for everybody says that others use the cache just now, and decides nothing. */
static bool survival_matters(const struct clear_calibration *calibration, size_t slice) {
        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->figures[i][slice].survival_percent >= CLEAR_CALIBRATE_HARM_POINTS)
                        return true;
        return false;
}

static void describe(char *text, size_t n_text_bytes, const struct clear_calibration *calibration, size_t i, size_t slice) {
        const struct clear_figures *figures = &calibration->figures[i][slice];
        int n = snprintf(text, n_text_bytes, "%s %.1f GB/s", calibration->methods[i]->name, figures->gb_per_s);

        if (figures->survival_percent != CLEAR_NOT_MEASURED && survival_matters(calibration, slice) && n > 0 &&
            (size_t) n < n_text_bytes)
                (void) snprintf(text + n, n_text_bytes - (size_t) n, " keeping %d %% of a warm cache",
                                figures->survival_percent);
}

/* Where the next words of the reason go; begins with those of a slice size. */
static char *add_to_reason(struct clear_calibration *calibration, size_t slice, size_t *ret_n_left) {
        size_t n = strlen(calibration->reason);
        char size[FORMAT_SIZE_BYTES];

        (void) snprintf(calibration->reason + n, sizeof(calibration->reason) - n, "%s%s: ", n > 0 ? "; " : "",
                        format_size(calibration->slice_bytes[slice], size));
        n = strlen(calibration->reason);
        *ret_n_left = sizeof(calibration->reason) - n;
        return calibration->reason + n;
}

static void choose_measured(struct clear_calibration *calibration, size_t slice) {
        size_t best = fastest(calibration, slice), chosen = least_harmful(calibration, slice, best), n_left;
        char *text = add_to_reason(calibration, slice, &n_left), fast[96], mild[96];

        calibration->chosen[slice] = calibration->methods[chosen];
        describe(fast, sizeof(fast), calibration, best, slice);
        describe(mild, sizeof(mild), calibration, chosen, slice);
        if (chosen == best)
                (void) snprintf(text, n_left, "%s, fastest%s", fast,
                                clear_calibration_lacks_harm(calibration, slice) ? ", harm not measured" : "");
        else
                (void) snprintf(text, n_left, "%s, less harm than the fastest, %s", mild, fast);
}

/* @as: a measured size, or n_slices: there is none. */
static void choose_unmeasured(struct clear_calibration *calibration, size_t slice, size_t as) {
        bool is_known = as < calibration->n_slices;
        char size[FORMAT_SIZE_BYTES] = "", *text;
        size_t n_left;

        calibration->chosen[slice] = is_known ? calibration->chosen[as] : clear_method_likely();
        if (is_known)
                (void) format_size(calibration->slice_bytes[as], size);
        text = add_to_reason(calibration, slice, &n_left);
        (void) snprintf(text, n_left, "%s, not measured%s%s", calibration->chosen[slice]->name, is_known ? ", as for " : "", size);
}

void clear_calibration_choose(struct clear_calibration *calibration) {
        size_t measured = calibration->n_slices;

        calibration->reason[0] = '\0';
        for (size_t slice = 0; slice < calibration->n_slices; slice++)
                if (calibration->is_measured[slice]) {
                        measured = slice;
                        choose_measured(calibration, slice);
                } else
                        choose_unmeasured(calibration, slice, measured);
}

/* The largest one that is not larger than @n_bytes, or n_slices. */
static size_t find_slice(const struct clear_calibration *calibration, size_t n_bytes) {
        size_t slice = 0;

        if (calibration->n_slices == 0 || n_bytes < calibration->slice_bytes[0])
                return calibration->n_slices;
        while (slice + 1 < calibration->n_slices && calibration->slice_bytes[slice + 1] <= n_bytes)
                slice++;
        return slice;
}

const struct clear_method *clear_calibration_method(const struct clear_calibration *calibration, size_t n_bytes) {
        size_t slice = find_slice(calibration, n_bytes);

        return slice < calibration->n_slices ? calibration->chosen[slice] : clear_method_cached();
}

struct clear_figures clear_calibration_figures(const struct clear_calibration *calibration, size_t n_bytes) {
        size_t slice = find_slice(calibration, n_bytes);

        for (size_t i = 0; slice < calibration->n_slices && i < calibration->n_methods; i++)
                if (calibration->methods[i] == calibration->chosen[slice])
                        return calibration->figures[i][slice];
        return (struct clear_figures) {CLEAR_NOT_MEASURED, CLEAR_NOT_MEASURED};
}
