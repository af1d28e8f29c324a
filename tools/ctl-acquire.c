/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* One request for everything that the --grant options of run and hold name. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "ctl-acquire.h"

int ctl_acquire_add(struct ctl_acquire *acquire, const char *verb, const char *spec) {
        char error[CTL_SPEC_ERROR_BYTES];
        if (acquire->n_specs == HUGEZERO_MAX_ITEMS)
                return ctl_usage_error(verb, "grant '%s': a request has at most %d", spec, HUGEZERO_MAX_ITEMS);
        if (ctl_grant_spec_parse(spec, &acquire->specs[acquire->n_specs], error) < 0)
                return ctl_usage_error(verb, "grant '%s': %s", spec, error);
        acquire->texts[acquire->n_specs++] = spec;
        return CTL_EXIT_OK;
}

int ctl_acquire_set_miss(struct ctl_acquire *acquire, const char *verb, int option, const char *value, const char *next) {
        uint32_t miss = option == CTL_OPTION_FILL ? HUGEZERO_MISS_FILL : HUGEZERO_MISS_WAIT;
        uint64_t timeout_ms = UINT64_MAX;
        if (acquire->miss != HUGEZERO_MISS_FAIL && acquire->miss != miss)
                return ctl_usage_error(verb, "option --fill: --wait is given too, and only one of them can be");
        int exit_code = option == CTL_OPTION_WAIT ? ctl_parse_wait(verb, value, next, &timeout_ms) : CTL_EXIT_OK;
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        if (timeout_ms != UINT64_MAX && timeout_ms > INT32_MAX)
                return ctl_usage_error(verb, "option --wait=%s: more than 24 days; use infinity", value);
        acquire->miss = miss;
        acquire->timeout_ms = miss == HUGEZERO_MISS_FILL ? 0 : timeout_ms == UINT64_MAX ? -1 : (int32_t) timeout_ms;
        return CTL_EXIT_OK;
}

static int try_once(struct hugezero_conn *conn, const struct ctl_acquire *acquire, uint32_t flags,
                    struct hugezero_grant **ret_grant) {
        _cleanup_request_ struct hugezero_request *request = NULL;
        int r = hugezero_request_new(&request);
        for (size_t idx = 0; r >= 0 && idx < acquire->n_specs; idx++) {
                const struct ctl_grant_spec *spec = &acquire->specs[idx];
                r = hugezero_request_add_item(request, spec->bytes, spec->page_size_bytes, spec->node, spec->flags | flags,
                                              *spec->pool ? spec->pool : NULL);
        }
        if (r >= 0)
                r = hugezero_request_set_miss(request, acquire->miss, acquire->timeout_ms);
        return r < 0 ? r : hugezero_acquire(conn, request, ret_grant);
}

/* The daemon's files have mode 0600 unless they are reopenable: who can open them all the same? */
static bool can_open_anyway(const struct hugezero_conn *conn) {
        pid_t pid;
        uid_t uid;
        return geteuid() == 0 || (ctl_peer(conn, &pid, &uid) >= 0 && geteuid() == uid);
}

/* The daemon counts items from 0; here they have the names that the user gave them. */
static int refused(const struct ctl *ctl, const struct ctl_acquire *acquire, const struct hugezero_conn *conn, int error,
                   const char *advice) {
        const char *text = hugezero_conn_get_error_text(conn);
        int item = ctl_item_of_refusal(&text);
        if (item < 0 || (size_t) item >= acquire->n_specs)
                return ctl_daemon_error(ctl, conn, "acquiring", error);
        ctl_error("acquiring '%s': %s: %s%s",
                  *acquire->specs[item].name ? acquire->specs[item].name : acquire->texts[item], ctl->socket_path, text, advice);
        return CTL_EXIT_FAILED;
}

int ctl_acquire_get(const struct ctl *ctl, const struct ctl_acquire *acquire, struct hugezero_grant **ret_grant) {
        _cleanup_conn_ struct hugezero_conn *conn = NULL;
        bool is_bounded = acquire->miss == HUGEZERO_MISS_WAIT && acquire->timeout_ms >= 0;
        int exit_code = ctl_connect_within(ctl, is_bounded ? (uint64_t) acquire->timeout_ms : UINT64_MAX, &conn);
        if (exit_code != CTL_EXIT_OK)
                return exit_code;
        int r = try_once(conn, acquire, acquire->is_plain ? 0 : HUGEZERO_REOPENABLE, ret_grant);
        bool is_unsupported = r == -EOPNOTSUPP && !acquire->is_plain;
        if (is_unsupported && can_open_anyway(conn)) {
                r = try_once(conn, acquire, 0, ret_grant);
                is_unsupported = false;
        }
        if (r >= 0)
                return CTL_EXIT_OK;
        return refused(ctl, acquire, conn, r,
                       is_unsupported ? "; or give --no-reopen when only the descriptor is needed" : "");
}
