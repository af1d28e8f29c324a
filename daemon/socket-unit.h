/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A socket that the service manager passed is as its unit says. */
#pragma once

struct config;

/* Warns where the configuration says something else of it: Socket=, SocketGroup= and SocketMode= change nothing there. */
void socket_unit_compare(const char *path, const struct config *config);
