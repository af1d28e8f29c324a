/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Memory as it is found in earnest: what comes back was written long ago, and its lines have left the caches since. */
#include <errno.h>

#include "clear.h"
#include "methods.h"

int clear_flush(void *addr, size_t n_bytes) {
#if CLEAR_HAVE_ARCH_METHODS
        return n_bytes > 0 ? clear_guarded(clear_arch_flush, addr, n_bytes, n_bytes) : 0;
#else
        (void) addr;
        (void) n_bytes;
        return -EOPNOTSUPP;
#endif
}
