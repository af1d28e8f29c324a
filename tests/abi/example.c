/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <err.h>
#include <hugezero.h>
#include <stdio.h>
#include <string.h>

int main(void) {
        void *memory;
        uint64_t bytes;

        int r = hugezero_alloc(8 << 20, 0, HUGEZERO_NODE_LOCAL,
                               HUGEZERO_WAIT, &memory);
        if (r < 0)
                errx(1, "cannot get 8 MiB: %s",
                     hugezero_conn_get_error_text(NULL));
        hugezero_alloc_size(memory, &bytes);
        printf("%llu bytes, the first is %d\n",
               (unsigned long long) bytes, *(char *) memory);
        strcpy(memory, "ready to be written to");
        return hugezero_free(memory) < 0;
}
