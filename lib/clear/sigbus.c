/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * SIGBUS while clearing: a page that somebody punched out and that cannot be had back, or memory that has failed. It must cost
 * one extent, not the daemon with all its grants.
 *
 * The fault is synchronous: it is raised on the thread that clears, while it clears. So a thread-local landing place is enough.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>

#include "methods.h"
#include "sanitizer.h"

static _Thread_local sigjmp_buf *volatile landing; /* set while this thread is inside clear_guarded() */
static _Thread_local volatile int landing_r;       /* why the jump was taken */
static struct sigaction before;                    /* what SIGBUS did before us; written once, ahead of all faults */

static void on_sigbus(int signo, siginfo_t *info, void *context) {
        if (info->si_code == BUS_MCEERR_AO)
                return;
        if (landing && (info->si_code == BUS_MCEERR_AR || info->si_code == BUS_ADRERR)) {
                landing_r = info->si_code == BUS_MCEERR_AR ? -EHWPOISON : -EFAULT;
                siglongjmp(*landing, 1);
        }
        /* Not ours. A faulting instruction is repeated and meets the former action; a signal that was sent is sent again. */
        (void) sigaction(SIGBUS, &before, NULL);
        if (info->si_code <= 0)
                (void) raise(SIGBUS);
}

int clear_catch_sigbus(void) {
        /* SA_NODEFER: the handler is left by a jump, which does not give the signal mask back. */
        const struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
        struct sigaction old;

        if (sigaction(SIGBUS, NULL, &old) < 0)
                return -errno;
        if ((old.sa_flags & SA_SIGINFO) && old.sa_sigaction == on_sigbus)
                return 0;
        before = old;
        return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}

int clear_guarded(void (*clear)(void *addr, size_t n_bytes), char *addr, size_t n_bytes, size_t call_bytes) {
        sigjmp_buf buffer;

        landing_r = 0;
        /* Saving the mask would be a system call. Our handler does not change it, that of ThreadSanitizer around it does. */
        if (sigsetjmp(buffer, CLEAR_WITH_TSAN) == 0) {
                landing = &buffer;
                for (size_t at_bytes = 0; at_bytes < n_bytes; at_bytes += call_bytes)
                        clear(addr + at_bytes, call_bytes);
        }
        landing = NULL;
        return landing_r;
}
