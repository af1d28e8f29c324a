/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* From figures to a choice and a sentence that explains it. No measuring here: the rule can be tested with any figures. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "calibrate.h"
#include "parse.h"

/* GB/s of memset(), which no choice may fall below; 0 where it was not measured. */
static double floor_gb_per_s(const struct clear_calibration *calibration, size_t slice, size_t *ret_i) {
        for (size_t i = 0; i < calibration->n_methods; i++)
                if (calibration->methods[i] == clear_method_cached() && calibration->figures[i][slice].gb_per_s > 0) {
                        *ret_i = i;
                        return calibration->figures[i][slice].gb_per_s;
                }
        return 0;
}

/* Index of the fastest method, or n_methods where none was measured. */
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
                    figures->gb_per_s < cached_gb_per_s || figures->survival_percent < needed_percent)
                        continue;
                found = i;
                needed_percent = figures->survival_percent + 1;
        }
        return found;
}

static void describe(char *text, size_t n_text_bytes, const struct clear_calibration *calibration, size_t i, size_t slice) {
        const struct clear_figures *figures = &calibration->figures[i][slice];
        int n = snprintf(text, n_text_bytes, "%s %.1f GB/s", calibration->methods[i]->name, figures->gb_per_s);

        if (figures->survival_percent != CLEAR_NOT_MEASURED && n > 0 && (size_t) n < n_text_bytes)
                (void) snprintf(text + n, n_text_bytes - (size_t) n, " keeping %d %% of a warm cache",
                                figures->survival_percent);
}

static void add_reason(struct clear_calibration *calibration, size_t slice, size_t best, size_t chosen) {
        size_t n = strlen(calibration->reason), n_left = sizeof(calibration->reason) - n;
        char size[FORMAT_SIZE_BYTES], fast[96], mild[96];

        (void) format_size(calibration->slice_bytes[slice], size);
        if (best == calibration->n_methods) {
                (void) snprintf(calibration->reason + n, n_left, "%s%s: %s, nothing was measured", n > 0 ? "; " : "", size,
                                calibration->chosen[slice]->name);
                return;
        }
        describe(fast, sizeof(fast), calibration, best, slice);
        if (chosen == best) {
                (void) snprintf(calibration->reason + n, n_left, "%s%s: %s, fastest", n > 0 ? "; " : "", size, fast);
                return;
        }
        describe(mild, sizeof(mild), calibration, chosen, slice);
        (void) snprintf(calibration->reason + n, n_left, "%s%s: %s, less harm than the fastest, %s", n > 0 ? "; " : "", size,
                        mild, fast);
}

void clear_calibration_choose(struct clear_calibration *calibration) {
        calibration->reason[0] = '\0';
        for (size_t slice = 0; slice < calibration->n_slices; slice++) {
                size_t best = fastest(calibration, slice), chosen = best;

                if (best < calibration->n_methods)
                        chosen = least_harmful(calibration, slice, best);
                calibration->chosen[slice] =
                        chosen < calibration->n_methods ? calibration->methods[chosen] : clear_method_cached();
                add_reason(calibration, slice, best, chosen);
        }
}

const struct clear_method *clear_calibration_method(const struct clear_calibration *calibration, size_t n_bytes) {
        size_t slice = 0;

        if (n_bytes < calibration->slice_bytes[0])
                return clear_method_cached();
        while (slice + 1 < calibration->n_slices && calibration->slice_bytes[slice + 1] <= n_bytes)
                slice++;
        return calibration->chosen[slice];
}
