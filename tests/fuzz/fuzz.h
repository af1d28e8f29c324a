/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What every fuzz target includes: the entry point, and a check that works in every build. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#define CHECK(condition)                                                                                                       \
        do {                                                                                                                   \
                if (!(condition)) {                                                                                            \
                        (void) fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                       \
                        abort();                                                                                               \
                }                                                                                                              \
        } while (0)
