/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Owns the event base and every module, brings them up in order and down in the opposite one. */

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <systemd/sd-daemon.h>

#include "access.h"
#include "broker-internal.h"
#include "cleanup.h"
#include "clear.h"
#include "config-build.h"
#include "config.h"
#include "files.h"
#include "log-limit.h"
#include "log.h"
#include "manager.h"
#include "parse.h"
#include "quota.h"
#include "reclaim.h"
#include "reload.h"
#include "scrape.h"
#include "server.h"
#include "socket-unit.h"
#include "status-line.h"
#include "stock.h"
#include "topology.h"
#include "warm.h"
#include "worker.h"

struct manager {
        struct topology *topology;
        const struct config_args *args;
        struct config *config;
        struct event_base *base;
        struct event *on_sigterm, *on_sigint, *on_sighup, *watchdog;
        struct worker_pool *closer;
        struct quota *quota;
        struct reclaim *reclaim;
        struct stock *stock;
        struct warm *warm;
        struct broker *broker;
        unsigned n_adopted;
        struct server *server;
        struct scrape *scrape;
};

static void on_overflow(void *userdata) {
        struct manager *manager = userdata;

        if (manager->broker)
                returns_on_overflow(manager->broker);
}

static void on_stop_signal(int fd, short what, void *userdata) {
        struct manager *manager = userdata;

        (void) sd_notify(/* unset_environment= */ 0, "STOPPING=1\nSTATUS=Giving memory back to the kernel");
        (void) event_base_loopbreak(manager->base);
}

/* @later: keys whose new values wait for the next start. */
static void log_reloaded(const struct manager *manager, const struct config *fresh, const char *later) {
        log_info(LOG_ID_RELOADED, LOG_NO_FIELDS, "the configuration was read again");
        if (manager->config->socket_is_passed)
                socket_unit_compare(manager->config->socket_path, fresh);
        if (later[0])
                log_notice(LOG_ID_RESTART_NEEDED, LOG_FIELDS(LOG_TEXT("KEYS", later)),
                           "changed, but in effect only when the daemon is started again: %s", later);
}

static int reload(void *userdata, char ret_text[WIRE_MAX_TEXT_BYTES + 1]) {
        struct manager *manager = userdata;
        _cleanup_free_ struct config *fresh = malloc(sizeof(*fresh));
        char error[CONFIG_TEXT_BYTES];
        bool may_log;
        int r = fresh ? topology_update(manager->topology) : -ENOMEM;

        if (r < 0)
                (void) snprintf(error, sizeof(error), "reading the machine's nodes from /sys failed: %s", strerror(-r));
        else
                r = config_load(manager->args, manager->topology, fresh, error);
        if (r >= 0)
                r = access_check_group(fresh, error);
        if (r >= 0) {
                reload_settle_auto(manager->broker, manager->config, fresh);
                r = reload_apply(manager->broker, manager->config, fresh, ret_text);
                (void) snprintf(error, sizeof(error), "%s",
                                r == -ENOSPC ? "too many pools: some that were removed are still held by clients"
                                             : strerror(-r));
        }
        may_log = log_limit_pass(r >= 0 ? LOG_LIMIT_RELOADS : LOG_LIMIT_RELOAD_FAILURES, LOG_NO_USER);
        if (r >= 0) {
                if (may_log)
                        log_reloaded(manager, fresh, ret_text);
                server_admit_again(manager->server);
                status_line_reload(manager->broker, NULL);
                return 0;
        }
        if (may_log)
                log_error(LOG_ID_RELOAD_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "reloading failed, nothing was changed: %s", error);
        status_line_reload(manager->broker, error);
        cut_text(error, " ... (the daemon's log has all of it)", ret_text, WIRE_MAX_TEXT_BYTES + 1);
        return r;
}

static void on_reload_signal(int fd, short what, void *userdata) {
        char text[WIRE_MAX_TEXT_BYTES + 1];
        struct timespec now;

        /* systemd 253 and later wait for this pair of Type=notify-reload; others ignore it. */
        (void) clock_gettime(CLOCK_MONOTONIC, &now);
        (void) sd_notifyf(/* unset_environment= */ 0, "RELOADING=1\nMONOTONIC_USEC=%lld",
                          (long long) now.tv_sec * 1000000 + now.tv_nsec / 1000);
        (void) reload(userdata, text);
        (void) sd_notify(/* unset_environment= */ 0, "READY=1");
}

static int handle_signals(struct manager *manager) {
        /* SIGIO: a holder of a lease on memory we open could send it. SIGPIPE: a client's hang-up is an errno here. */
        (void) signal(SIGIO, SIG_IGN);
        (void) signal(SIGPIPE, SIG_IGN);
        manager->on_sigterm = evsignal_new(manager->base, SIGTERM, on_stop_signal, manager);
        manager->on_sigint = evsignal_new(manager->base, SIGINT, on_stop_signal, manager);
        manager->on_sighup = evsignal_new(manager->base, SIGHUP, on_reload_signal, manager);
        if (!manager->on_sighup || evsignal_add(manager->on_sighup, NULL) < 0 || !manager->on_sigterm || !manager->on_sigint ||
            evsignal_add(manager->on_sigterm, NULL) < 0 || evsignal_add(manager->on_sigint, NULL) < 0)
                return -ENOMEM;
        return 0;
}

static void log_pool(const struct config_pool *pool, const struct config_pool_node *node) {
        char page[FORMAT_SIZE_BYTES], extent[FORMAT_SIZE_BYTES], target[FORMAT_SIZE_BYTES];

        log_info(LOG_ID_POOL,
                 LOG_FIELDS(LOG_TEXT("POOL", pool->name), LOG_NUMBER("NODE", node->node),
                            LOG_NUMBER("TARGET_BYTES", node->target_bytes), LOG_NUMBER("PAGE_SIZE_BYTES", pool->page_size_bytes)),
                 "pool %s, node %d: %s of %s pages, extents %s", pool->name, node->node,
                 format_size(node->target_bytes, target), format_size(pool->page_size_bytes, page),
                 pool->extent_bytes == 0 ? "auto" : format_size(pool->extent_bytes, extent));
}

/* Target=auto was worked out when no page was free, and stays what it is. Nodes without pages are nothing unusual, pools are. */
static void log_no_target(const struct config_pool *pool) {
        char page[FORMAT_SIZE_BYTES];

        for (size_t i = 0; i < pool->n_nodes; i++)
                if (!pool->nodes[i].is_auto || pool->nodes[i].target_bytes > 0)
                        return;
        log_notice(LOG_ID_NO_TARGET, LOG_FIELDS(LOG_TEXT("POOL", pool->name), LOG_NUMBER("PAGE_SIZE_BYTES", pool->page_size_bytes)),
                   "pool %s gets no memory: its Target=auto is half of the %s pages that are free at the start, and there were too few; restart "
                   "hugezerod when there are more, or give it a Target=", pool->name, format_size(pool->page_size_bytes, page));
}

static void log_start(const struct manager *manager, unsigned n_adopted) {
        const struct config *config = manager->config;

        log_info(LOG_ID_STARTED, LOG_FIELDS(LOG_TEXT("VERSION", HUGEZERO_VERSION), LOG_TEXT("SOCKET", config->socket_path)),
                 "hugezerod %s serves on %s%s", HUGEZERO_VERSION, config->socket_path,
                 config->socket_is_passed ? ", a socket that was passed to it" : "");
        if (n_adopted > 0)
                log_info(LOG_ID_ADOPTED, LOG_FIELDS(LOG_NUMBER("EXTENTS", n_adopted)),
                         "extents taken over from the daemon before: %u", n_adopted);
        if (config->pools_are_default)
                log_notice(LOG_ID_DEFAULT_POOL, LOG_FIELDS(LOG_TEXT("POOL", config->pools[0].name)),
                           "no pool is configured: half of each node's free pages of the default size make the pool \"%s\"",
                           config->pools[0].name);
        for (size_t i = 0; i < config->n_pools; i++) {
                for (size_t k = 0; k < config->pools[i].n_nodes; k++)
                        log_pool(&config->pools[i], &config->pools[i].nodes[k]);
                log_no_target(&config->pools[i]);
        }
        if (stock_lacks_idle_class(manager->stock))
                log_info(LOG_ID_NO_IDLE_CLASS, LOG_NO_FIELDS,
                         "clearing and reading in the background do not use the idle scheduling class, which a thread could not leave "
                         "again when a client waits; give the daemon LimitNICE=+0 (ulimit -e 20) or CAP_SYS_NICE");
}

static void on_watchdog(int fd, short what, void *userdata) {
        (void) sd_notify(/* unset_environment= */ 0, "WATCHDOG=1");
}

/* Twice within the time that the service manager allows, as sd_watchdog_enabled(3) advises. */
static int feed_watchdog(struct manager *manager) {
        uint64_t allowed_us;
        int r = sd_watchdog_enabled(/* unset_environment= */ 0, &allowed_us);

        if (r <= 0)
                return r;
        struct timeval interval = {.tv_sec = (time_t) (allowed_us / 2000000), .tv_usec = (suseconds_t) (allowed_us / 2 % 1000000)};
        manager->watchdog = event_new(manager->base, -1, EV_PERSIST, on_watchdog, manager);
        return manager->watchdog && event_add(manager->watchdog, &interval) >= 0 ? 0 : -ENOMEM;
}

static int build(struct manager *manager, const struct topology *topology, struct inherited *inherited, const char **ret_what) {
        int r;

        *ret_what = "setting up the event loop";
        manager->base = event_base_new();
        if (!manager->base)
                return -ENOMEM;
        r = handle_signals(manager);
        if (r >= 0)
                r = feed_watchdog(manager);
        if (r < 0)
                return r;
        *ret_what = "preparing for memory failures";
        r = clear_catch_sigbus();
        if (r < 0)
                return r;
        *ret_what = "starting the worker threads";
        r = worker_pool_new(manager->base, topology, /* node= */ -1, /* n_threads= */ 1, &manager->closer);
        if (r < 0)
                return r;
        struct files files;
        r = files_share_out(topology_n_nodes(topology), &files);
        if (r >= 0)
                r = quota_new(manager->config, &manager->quota);
        if (r < 0)
                return r;
        quota_cap_connections(manager->quota, files.max_connections, files.n_kept);
        *ret_what = "setting up inotify (see fs.inotify.max_user_instances)";
        bool has_events = inherited->inotify_fd >= 0;
        r = reclaim_new(manager->base, take_fd(&inherited->inotify_fd), returns_on_event, on_overflow, manager,
                        &manager->reclaim);
        if (r < 0)
                return r;
        *ret_what = "setting up the ledger";
        r = warm_new(manager->base, manager->config, inherited, has_events ? -EBADF : reclaim_fd(manager->reclaim),
                     &manager->warm);
        if (r < 0)
                return r;
        *ret_what = "starting the worker threads of the nodes";
        r = stock_new(manager->base, manager->config, topology, manager->reclaim, manager->warm, &manager->stock);
        if (r < 0)
                return r;
        *ret_what = "setting up the pools";
        r = broker_new(manager->base, manager->config, topology, manager->quota, manager->reclaim, manager->stock,
                       manager->warm, &manager->broker);
        if (r < 0)
                return r;
        manager->n_adopted = warm_adopt(manager->broker, inherited, has_events);
        if (manager->n_adopted > 0)
                reload_settle_auto(manager->broker, /* before= */ NULL, manager->config);
        manager->broker->reload = reload;
        manager->broker->reload_userdata = manager;
        *ret_what = NULL; /* server_new() says what and why */
        r = server_new(manager->base, manager->config, take_fd(&inherited->listen_fd), manager->broker, manager->quota, manager->closer,
                       &manager->server);
        if (r < 0 || inherited->n_metrics == 0)
                return r;
        *ret_what = "serving metrics";
        return scrape_new(manager->base, inherited->metrics_fds, inherited->n_metrics, manager->broker, manager->server,
                          &manager->scrape);
}

int manager_new(struct topology *topology, const struct config_args *args, struct config *config, struct inherited *inherited,
                struct manager **ret_manager) {
        struct manager *manager = calloc(1, sizeof(*manager));
        const char *what = "allocating memory";
        int r = -ENOMEM;

        if (manager) {
                manager->topology = topology;
                manager->args = args;
                manager->config = config;
                r = build(manager, topology, inherited, &what);
        }
        if (r < 0) {
                if (what)
                        log_error(LOG_ID_START_FAILED, LOG_FIELDS(LOG_NUMBER("ERRNO", -r)), "%s failed: %s", what, strerror(-r));
                manager_free(manager);
                return r;
        }
        log_start(manager, manager->n_adopted);
        *ret_manager = manager;
        return 0;
}

int manager_run(struct manager *manager) {
        int r;

        /* Ready means able to serve: the pools fill meanwhile, and what is missing can be waited for. */
        (void) sd_notify(/* unset_environment= */ 0, "READY=1");
        r = event_base_dispatch(manager->base);
        log_info(LOG_ID_STOPPED, LOG_FIELDS(LOG_NUMBER("GRANTS", manager->broker->n_granted_total)),
                 "stopping; grants since the start: %lu", (unsigned long) manager->broker->n_granted_total);
        return r < 0 ? -EIO : 0;
}

struct manager *manager_free(struct manager *manager) {
        if (!manager)
                return NULL;
        if (manager->broker)
                broker_stop(manager->broker);
        scrape_free(manager->scrape);
        manager->server = server_free(manager->server);
        if (manager->stock)
                stock_stop(manager->stock);
        manager->warm = warm_free(manager->warm);
        manager->broker = broker_free(manager->broker);
        stock_free(manager->stock);
        reclaim_free(manager->reclaim);
        worker_pool_free(manager->closer); /* what it still had to close was charged */
        quota_free(manager->quota);
        log_limit_end();
        if (manager->on_sigterm)
                event_free(manager->on_sigterm);
        if (manager->watchdog)
                event_free(manager->watchdog);
        if (manager->on_sighup)
                event_free(manager->on_sighup);
        if (manager->on_sigint)
                event_free(manager->on_sigint);
        if (manager->base)
                event_base_free(manager->base);
        free(manager);
        return NULL;
}
