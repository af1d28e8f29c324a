/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the service manager shows of the daemon: "systemctl status". Loop thread. */
#pragma once

struct broker;

/* Tells it how the pools are, when that has changed, once a second at most; nothing while memory just comes and goes. */
void status_line_update(struct broker *broker);
void status_line_on_timer(int fd, short what, void *userdata);
/*
 * Reloading has failed, or (NULL) not. That is told before it returns, however short ago something was told; an error as long as
 * the configuration is not read again without one.
 */
void status_line_reload(struct broker *broker, const char *error);
