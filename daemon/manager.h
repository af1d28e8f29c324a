/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Owns the event base and every module; the only file that knows them all. */
#pragma once

struct config;
struct config_args;
struct inherited;
struct manager;
struct topology;

/*
 * manager_new - build the daemon up to the point where it serves
 * @topology, @args, @config: borrowed. @args is where the configuration is read again from; reloading changes the other two
 * @inherited: what the service manager passed; what is used is taken from it, the rest stays the caller's
 * Returns 0 or a negative errno; what failed has been logged.
 */
int manager_new(struct topology *topology, const struct config_args *args, struct config *config, struct inherited *inherited,
                struct manager **ret_manager);
/* Serves until SIGTERM or SIGINT; reloads on SIGHUP. Returns 0, or a negative errno when the event loop broke. */
int manager_run(struct manager *manager);
struct manager *manager_free(struct manager *manager);
