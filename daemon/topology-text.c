/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "topology-text.h"

#include <stdio.h>

#include "parse.h"

const char *topology_list_nodes(const struct topology *topology, char buffer[TOPOLOGY_LIST_BYTES]) {
        size_t used = 0;

        buffer[0] = 0;
        for (size_t i = 0; i < topology_n_nodes(topology) && used + 8 < TOPOLOGY_LIST_BYTES; i++)
                used += (size_t) snprintf(buffer + used, TOPOLOGY_LIST_BYTES - used, "%s%d", i > 0 ? ", " : "",
                                          topology_node_at(topology, i));
        return buffer;
}

const char *topology_list_page_sizes(const struct topology *topology, char buffer[TOPOLOGY_LIST_BYTES]) {
        char size[FORMAT_SIZE_BYTES];
        size_t used = 0;

        buffer[0] = 0;
        for (size_t i = 0; i < topology_n_page_sizes(topology) && used + 16 < TOPOLOGY_LIST_BYTES; i++)
                used += (size_t) snprintf(buffer + used, TOPOLOGY_LIST_BYTES - used, "%s%s", i > 0 ? ", " : "",
                                          format_size(topology_page_size_at(topology, i), size));
        return buffer;
}
