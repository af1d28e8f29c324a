/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* What the machine has, as it is said in a message. */
#pragma once

#include "topology.h"

#define TOPOLOGY_LIST_BYTES 100 /* chosen: 20 nodes; a message stays readable */

/* Both leave out what does not fit, and return @buffer. */
const char *topology_list_nodes(const struct topology *topology, char buffer[TOPOLOGY_LIST_BYTES]);      /* with memory: "0, 1" */
const char *topology_list_page_sizes(const struct topology *topology, char buffer[TOPOLOGY_LIST_BYTES]); /* "2 MiB, 1 GiB" */
