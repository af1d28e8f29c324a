/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The one table of keys, the parsers of its simple types, and the sample file. */
#include "config-table.h"

#include <assert.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "cleanup.h"
#include "clear.h"
#include "config-build.h"
#include "parse.h"
#include "wire.h"

#define TEXT_OF(macro) TEXT_OF_TOKEN(macro)
#define TEXT_OF_TOKEN(token) #token

static const struct config_word recycle_words[] = {
        {"same-service", CONFIG_RECYCLE_SAME_SERVICE},
        {"same-user", CONFIG_RECYCLE_SAME_USER},
        {"trusted", CONFIG_RECYCLE_TRUSTED},
        {"never", CONFIG_RECYCLE_NEVER},
        {},
};
static_assert(sizeof(enum config_recycle) == sizeof(int), "words are stored as int");

static const struct config_word level_words[] = {
        {"error", LOG_ERR}, {"warning", LOG_WARNING}, {"notice", LOG_NOTICE}, {"info", LOG_INFO}, {"debug", LOG_DEBUG}, {},
};

#define HOUR_MS UINT64_C(3600000)
/* Chosen: as many as a daemon with NOFILE 524288 (systemd's hard limit) can serve beside its extents. */
#define MAX_CLIENTS 65536

/* It would indent each row twice. */
/* clang-format off */
const struct config_key config_keys[_CONFIG_KEY_MAX] = {
        [CONFIG_KEY_SOCKET] = {
                .name = "Socket",
                .type = CONFIG_TYPE_PATH,
                .offset = offsetof(struct config, socket_path),
                .unit = "an absolute path of at most 107 bytes",
                .default_text = HUGEZERO_SOCKET_PATH,
                .help = "The socket that clients connect to. A socket that systemd passes is where ListenSequentialPacket= of its unit says; "
                        "anything else that is written here is then said in the log.",
        },
        [CONFIG_KEY_SOCKET_GROUP] = {
                .name = "SocketGroup",
                .type = CONFIG_TYPE_GROUP,
                .unit = "the name or number of a group, or none",
                .default_text = "none",
                .help = "The group whose members may connect. Reopenable grants are given to it too. The daemon must be root or a "
                        "member. With none the socket keeps the daemon's own group and no grant is reopenable; but the group of a "
                        "socket that systemd passes is taken over, unless it is root's or the daemon is no member. The file of "
                        "such a socket has the group that SocketGroup= of its unit names, so a group that is given here must be "
                        "given there too.",
        },
        [CONFIG_KEY_SOCKET_MODE] = {
                .name = "SocketMode",
                .type = CONFIG_TYPE_MODE,
                .offset = offsetof(struct config, socket_mode),
                .unit = "three or four octal digits, 0600 to 0777",
                .default_text = "0660",
                .help = "The access mode of the socket. Who may write to it may connect. A socket that systemd passes has the mode that "
                        "SocketMode= of its unit says.",
        },
        [CONFIG_KEY_ALLOW_USERS] = {
                .name = "AllowUsers",
                .type = CONFIG_TYPE_USERS,
                .offset = offsetof(struct config, allow_users),
                .unit = "names or numbers of users, at most 64, or all",
                .default_text = "all",
                .help = "Who is served, of those who can reach the socket. When AllowUsers= or AllowGroups= is given, only who is named in one "
                        "of them, and administrators.",
        },
        [CONFIG_KEY_ALLOW_GROUPS] = {
                .name = "AllowGroups",
                .type = CONFIG_TYPE_GROUPS,
                .offset = offsetof(struct config, allow_groups),
                .unit = "names or numbers of groups, at most 64, or all",
                .default_text = "all",
                .help = "The groups whose members are served, supplementary groups included. See AllowUsers=",
        },
        [CONFIG_KEY_ADMIN_USERS] = {
                .name = "AdminUsers",
                .type = CONFIG_TYPE_USERS,
                .offset = offsetof(struct config, admin_users),
                .gives_power = true,
                .unit = "names or numbers of users, at most 64",
                .default_text = "root",
                .help = "Users who may see all grants, have any of them looked at, resize pools and reload. Root and the daemon's own user always "
                        "may. The kernel's overflow user (nobody) is refused: many run as it.",
        },
        [CONFIG_KEY_TRUSTED_USERS] = {
                .name = "TrustedUsers",
                .type = CONFIG_TYPE_USERS,
                .offset = offsetof(struct config, trusted_users),
                .gives_power = true,
                .unit = "names or numbers of users, at most 64, or all",
                .default_text = "all",
                .help = "The users among whom memory passes with Recycle=trusted. For others it is then as with same-service. The "
                        "kernel's overflow user (nobody) is refused: many run as it.",
        },
        [CONFIG_KEY_MAX_CONNECTIONS] = {
                .name = "MaxConnections",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config, max_connections),
                .min = 1,
                .max = MAX_CLIENTS,
                .unit = "a number of connections",
                .default_text = "1024",
                .help = "Connections open at the same time, of all users together. Further ones are refused, but for "
                        "administrators'. The last eighth, 64 at most, is kept for users who have fewer than three. Whatever is given "
                        "here, they are at most 3/16 of the daemon's limit of open files, and with administrators' 7/32.",
        },
        [CONFIG_KEY_MAX_WAITING] = {
                .name = "MaxWaiting",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config, max_waiting),
                .min = 1,
                .max = MAX_CLIENTS,
                .unit = "a number of requests",
                .default_text = "1024",
                .help = "Requests that are not answered yet, of all users together. Further ones are refused. The last eighth, 64 at "
                        "most, is kept for users who have fewer than three.",
        },
        [CONFIG_KEY_MAX_FDS_IN_FLIGHT] = {
                .name = "MaxFdsInFlight",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config, max_fds_in_flight),
                .min = WIRE_MAX_FDS,
                .max = 1 << 20, /* kernel: the highest NOFILE without changing fs.nr_open */
                .unit = "a number of file descriptors",
                .default_text = "4096",
                .help = "File descriptors sent to clients that have not received them yet, of all users together. Keep it well under "
                        "the daemon's limit of open files: the kernel counts them against it. A user may have a quarter of what the "
                        "others leave; where that is reached, grants wait, or come in smaller parts.",
        },
        [CONFIG_KEY_WORKERS_PER_NODE] = {
                .name = "WorkersPerNode",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config, workers_per_node),
                .min = 1,
                .max = 64, /* chosen: fills stop to gain from threads long before */
                .word = "auto",
                .word_value = 0,
                .unit = "a number of threads",
                .default_text = "auto",
                .help = "Threads on each node that have pages zeroed and give them back. auto chooses by the node's CPUs.",
        },
        [CONFIG_KEY_CLEAR_METHOD] = {
                .name = "ClearMethod",
                .type = CONFIG_TYPE_METHOD,
                .offset = offsetof(struct config, clear_method),
                .unit = "the name of a method that this machine has, or auto",
                .default_text = "auto",
                .help = "How memory that came back is cleared. auto measures all methods on each node, when the first memory is there, "
                        "and takes the fastest one that does not ruin the caches of its neighbours for little.",
        },
        [CONFIG_KEY_BATCH] = {
                .name = "Batch",
                .type = CONFIG_TYPE_SIZE,
                .offset = offsetof(struct config, batch_bytes),
                .min = UINT64_C(2) << 20, /* chosen: below that methods lose more than waiting clients gain */
                .max = UINT64_C(1) << 30, /* chosen: 0.1 s at 10 GB/s */
                .multiple_of = UINT64_C(2) << 20, /* whole pages */
                .unit = "a multiple of 2 MiB",
                .default_text = TEXT_OF(CLEAR_BATCH_MIB) "M", /* PROCESS_PAGES_NON_PREEMPT_BATCH() of a fast method, in bytes */
                .help = "How much a thread clears or has populated before it looks whether something more urgent has come. Pages that "
                        "are larger are populated one at a time.",
        },
        [CONFIG_KEY_BACKGROUND_RATE] = {
                .name = "BackgroundRate",
                .type = CONFIG_TYPE_SIZE,
                .offset = offsetof(struct config, background_bytes_per_s),
                .min = UINT64_C(1) << 20, /* chosen: a pool that never becomes full helps nobody */
                .max = UINT64_C(1) << 50, /* bytes per second; chosen: beyond any memory */
                .word = "infinity",
                .word_value = UINT64_MAX,
                .unit = "a size per second",
                .default_text = "2G", /* measured: a cache-bound neighbour is slowed down by 1 % (by several times without a pace) */
                .help = "How much memory is zeroed on each node in the background. It does not bind while a client waits for the "
                        "memory, below Low=, and until a node was full for the first time.",
        },
        [CONFIG_KEY_AUDIT_RATE] = {
                .name = "AuditRate",
                .type = CONFIG_TYPE_SIZE,
                .offset = offsetof(struct config, audit_bytes_per_s),
                .max = UINT64_C(1) << 30, /* chosen: a tenth of a CPU */
                .unit = "a size per second",
                .default_text = "16M", /* chosen: 0.2 % of a CPU at 8 GB/s, and all of 1 TiB once in 18 hours */
                .help = "How much ready memory is read again on each node, to see that it is still zero. What is not goes back to the "
                        "kernel, with an error in the log. 0 turns that off. A round reads 2 MiB at least, and there is one a minute: less "
                        "than 35K is read as if it were that.",
        },
        [CONFIG_KEY_WARM_EXTENTS] = {
                .name = "WarmExtents",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config, warm_extents),
                .min = 0,
                .max = 2000, /* measured: PID 1 compares each stored descriptor with all others; 3,000 take it 4.2 s */
                .unit = "a number of extents",
                .default_text = "2000",
                .help = "How many extents survive a restart or crash of the daemon in the fd store of the service manager: what "
                        "clients hold first, then the largest. What is held beyond that is charged to nobody afterwards. 0 keeps none.",
        },
        [CONFIG_KEY_RELEASE_GRACE] = {
                .name = "ReleaseGrace",
                .type = CONFIG_TYPE_DURATION,
                .offset = offsetof(struct config, release_grace_ms),
                .min = 50, /* measured: io_uring pins of a killed client lived up to 36 ms */
                .max = HOUR_MS,
                .unit = "a time",
                .default_text = "1s",
                .help = "How long returned memory rests before it is zeroed in place, because devices of a process that has just died "
                        "may still write to it.",
        },
        [CONFIG_KEY_AFFINITY_TIMEOUT] = {
                .name = "AffinityTimeout",
                .type = CONFIG_TYPE_DURATION,
                .offset = offsetof(struct config, affinity_timeout_ms),
                .max = UINT64_MAX,
                .unit = "a time",
                .default_text = "10min",
                .help = "How long returned memory is kept for the service that had it, as long as that service exists. Then it is "
                        "exchanged for new pages from the kernel, which may serve anyone.",
        },
        [CONFIG_KEY_UNMAP_AFTER] = {
                .name = "UnmapAfter",
                .type = CONFIG_TYPE_DURATION,
                .offset = offsetof(struct config, unmap_after_ms),
                .min = 100, /* chosen: a client needs a moment to map, or page tables are never shared */
                .max = UINT64_MAX,
                .unit = "a time",
                .default_text = "10s",
                .help = "How long the daemon keeps its own mapping of granted memory when the client does not say that it has mapped "
                        "it. The client's first touch is fast while the daemon has it mapped.",
        },
        [CONFIG_KEY_SWEEP_INTERVAL] = {
                .name = "SweepInterval",
                .type = CONFIG_TYPE_DURATION,
                .offset = offsetof(struct config, sweep_interval_ms),
                .min = 100, /* chosen: 0.6 us per extent, 2,000 extents, about 1 % of a CPU */
                .max = HOUR_MS,
                .unit = "a time",
                .default_text = "1min",
                .help = "How often all granted memory is asked whether it is still held. Normally the kernel's events say so first.",
        },
        [CONFIG_KEY_HOLD_BACK] = {
                .name = "HoldBack",
                .type = CONFIG_TYPE_DURATION,
                .offset = offsetof(struct config, hold_back_ms),
                .max = UINT64_MAX,
                .unit = "a time",
                .default_text = "10s",
                .help = "How long a request that waits keeps later ones of other users from the memory that it waits for. Then they are "
                        "served before it, where there is enough for them, for twice as long. infinity: strictly first come, first "
                        "served.",
        },
        [CONFIG_KEY_RECYCLE] = {
                .name = "Recycle",
                .type = CONFIG_TYPE_WORD,
                .offset = offsetof(struct config, recycle),
                .words = recycle_words,
                .unit = "one of",
                .default_text = "same-service",
                .help = "Who may get memory again that was zeroed in place, instead of new pages from the kernel: same-service, the "
                        "same user in the same cgroup; same-user, the same user; trusted, anybody (only where all clients trust "
                        "each other: a device may still reach such memory); never, nobody.",
        },
        [CONFIG_KEY_SHARE_PAGE_TABLES] = {
                .name = "SharePageTables",
                .type = CONFIG_TYPE_BOOL,
                .offset = offsetof(struct config, share_page_tables),
                .unit = "yes or no",
                .default_text = "yes",
                .help = "Keep ready memory of 1 GiB and more mapped, so that clients take over its page tables and touch it without a "
                        "page fault for each page.",
        },
        [CONFIG_KEY_LOG_LEVEL] = {
                .name = "LogLevel",
                .type = CONFIG_TYPE_WORD,
                .offset = offsetof(struct config, log_level),
                .words = level_words,
                .unit = "one of",
                .default_text = "info",
                .help = "Messages of this level and of more serious ones are written.",
        },
        [CONFIG_KEY_PAGE_SIZE] = {
                .section = CONFIG_SECTION_POOL,
                .name = "PageSize",
                .type = CONFIG_TYPE_POOL,
                .unit = "a page size of the kernel, like 2M or 1G, or default",
                .default_text = "default",
                .help = "The size of the pool's pages. default is Hugepagesize of /proc/meminfo.",
        },
        [CONFIG_KEY_EXTENT_SIZE] = {
                .section = CONFIG_SECTION_POOL,
                .name = "ExtentSize",
                .type = CONFIG_TYPE_POOL,
                .unit = "a multiple of the page size, or auto",
                .default_text = "auto",
                .help = "The size of the pieces that memory is handed out in, one file descriptor each. auto serves any size with one "
                        "piece; a fixed size suits packet engines and many small clients.",
        },
        [CONFIG_KEY_TARGET] = {
                .section = CONFIG_SECTION_POOL,
                .name = "Target",
                .type = CONFIG_TYPE_POOL,
                .unit = "a multiple of the page size, up to 4 PiB; or 0% to 100%; or auto; or these for each node: node0:25G node1:75G",
                .default_text = "auto",
                .help = "How much memory the pool has on each node. Per cents are of the node's pages of that size at start, auto is "
                        "half of those that are free and not reserved at start; both are rounded down to whole pages or extents.",
        },
        [CONFIG_KEY_LOW] = {
                .section = CONFIG_SECTION_POOL,
                .name = "Low",
                .type = CONFIG_TYPE_POOL,
                .unit = "a size up to the target, or 0% to 100%",
                .default_text = "25%",
                .help = "When less than this of a node's target is ready, or less than the largest of the latest 32 requests, memory "
                        "is filled and cleared at full speed; what is beyond that is paced by BackgroundRate= to spare its neighbours.",
        },
        [CONFIG_KEY_NODES] = {
                .section = CONFIG_SECTION_POOL,
                .name = "Nodes",
                .type = CONFIG_TYPE_POOL,
                .unit = "numbers of nodes with memory, like 0,2 or 0-3, or all",
                .default_text = "all",
                .help = "The NUMA nodes that the pool is on. Where Target= names nodes, the pool is on those.",
        },
        [CONFIG_KEY_QUOTA_MAX_BYTES] = {
                .section = CONFIG_SECTION_QUOTA,
                .name = "MaxBytes",
                .type = CONFIG_TYPE_MEMORY,
                .unit = "a size, 0 B to 1 EiB, or infinity; behind it or alone the same of page sizes: 1G:4G 2M:infinity",
                .default_text = "infinity",
                .help = "Memory that a user holds or is being sent: of all page sizes, and of single ones. With 64G 1G:4G it may be "
                        "64 GiB in all, and 4 GiB of these in pages of 1 GiB.",
        },
        [CONFIG_KEY_QUOTA_MAX_GRANTS] = {
                .section = CONFIG_SECTION_QUOTA,
                .name = "MaxGrants",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config_quota, max_grants),
                .max = 1 << 20, /* chosen: every grant has a file descriptor, as MaxFdsInFlight= */
                .word = "infinity",
                .word_value = UINT32_MAX,
                .unit = "a number of grants",
                .default_text = "1024",
                .help = "Grants that a user holds.",
        },
        [CONFIG_KEY_QUOTA_MAX_CONNECTIONS] = {
                .section = CONFIG_SECTION_QUOTA,
                .name = "MaxConnections",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config_quota, max_connections),
                .max = MAX_CLIENTS,
                .word = "infinity",
                .word_value = UINT32_MAX,
                .unit = "a number of connections",
                .default_text = "64",
                .help = "Connections that a user has open at the same time. An administrator may have three whatever is given here.",
        },
        [CONFIG_KEY_QUOTA_MAX_WAITING] = {
                .section = CONFIG_SECTION_QUOTA,
                .name = "MaxWaiting",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config_quota, max_waiting),
                .max = MAX_CLIENTS,
                .word = "infinity",
                .word_value = UINT32_MAX,
                .unit = "a number of requests",
                .default_text = "64",
                .help = "Requests of a user that are not answered yet.",
        },
        [CONFIG_KEY_QUOTA_MAX_REQUEST_RATE] = {
                .section = CONFIG_SECTION_QUOTA,
                .name = "MaxRequestRate",
                .type = CONFIG_TYPE_COUNT,
                .offset = offsetof(struct config_quota, max_request_rate),
                .max = 1 << 20, /* chosen: far more than one daemon answers */
                .word = "infinity",
                .word_value = UINT32_MAX,
                .unit = "a number of requests",
                .default_text = "20000",
                .help = "Requests for memory of a user in one second. Further ones are refused until the second is over.",
        },
};
/* clang-format on */

const char *config_section_form(enum config_section_kind kind) {
        static const char *const forms[_CONFIG_SECTION_KIND_MAX] = {
                [CONFIG_SECTION_DAEMON] = "[Daemon]",
                [CONFIG_SECTION_POOL] = "[Pool NAME]",
                [CONFIG_SECTION_QUOTA] = "[Quota default], [Quota user:NAME] and [Quota group:NAME]",
        };

        return forms[kind];
}

const char *config_key_form(const struct config_key *key, char buffer[CONFIG_FORM_BYTES]) {
        char from[FORMAT_SIZE_BYTES], to[FORMAT_SIZE_BYTES], *end = buffer + CONFIG_FORM_BYTES;
        char *p = stpcpy(buffer, key->unit);

        if (key->type == CONFIG_TYPE_COUNT)
                p += snprintf(p, (size_t) (end - p), ", %" PRIu64 " to %" PRIu64, key->min, key->max);
        else if (key->type == CONFIG_TYPE_SIZE)
                p += snprintf(p, (size_t) (end - p), ", %s to %s", format_size(key->min, from), format_size(key->max, to));
        else if (key->type == CONFIG_TYPE_DURATION)
                p += snprintf(p, (size_t) (end - p), ", %s to %s", format_duration(key->min, from),
                              format_duration(key->max, to));
        for (const struct config_word *word = key->words; word && word->text; word++)
                p += snprintf(p, (size_t) (end - p), "%s %s", word == key->words ? "" : ",", word->text);
        if (key->word)
                p += snprintf(p, (size_t) (end - p), ", or %s", key->word);
        assert(p < end);
        return buffer;
}

/* All parsers: 0, -EINVAL: not of the form, -ERANGE: out of range, -EDOM: between two of those that may be. */

static int parse_path(const char *text, char *ret_path) {
        /* sun_path has 108 bytes; one is for the 0 that some programs rely on */
        if (strlen(text) > 107)
                return -ERANGE;
        if (text[0] != '/' || text[strlen(text) - 1] == '/') /* the latter can be a folder only */
                return -EINVAL;
        (void) strcpy(ret_path, text);
        return 0;
}

static int parse_mode(const char *text, mode_t *ret_mode) {
        size_t n = strspn(text, "01234567");
        mode_t mode;

        if (n < 3 || n > 4 || text[n])
                return -EINVAL;
        mode = (mode_t) strtoul(text, NULL, /* base = */ 8);
        if (mode < 0600 || mode > 0777)
                return -ERANGE;
        *ret_mode = mode;
        return 0;
}

static int parse_word(const struct config_word *words, const char *text, int *ret_value) {
        for (; words->text; words++)
                if (strcmp(words->text, text) == 0) {
                        *ret_value = words->value;
                        return 0;
                }
        return -EINVAL;
}

static int method_fail(char reason[CONFIG_REASON_BYTES], const char *why) {
        const struct clear_method *method;
        int n = snprintf(reason, CONFIG_REASON_BYTES, "%s; give auto or one of those that this machine has: ", why);
        const char *separator = "";

        for (size_t i = 0; (method = clear_method_at(i)) && n < CONFIG_REASON_BYTES; i++)
                if (!method->why_not()) {
                        n += snprintf(reason + n, CONFIG_REASON_BYTES - (size_t) n, "%s%s", separator, method->name);
                        separator = ", ";
                }
        return -EINVAL;
}

static int parse_method(const char *text, const struct clear_method **ret_method, char reason[CONFIG_REASON_BYTES]) {
        const struct clear_method *method = NULL;
        const char *why;

        if (strcmp(text, "auto") != 0) {
                method = clear_method_named(text);
                if (!method)
                        return method_fail(reason, "no such method");
                why = method->why_not();
                if (why)
                        return method_fail(reason, why);
        }
        *ret_method = method;
        return 0;
}

/* COUNT, SIZE and DURATION. */
static int parse_number(const struct config_key *key, const char *text, uint64_t *ret_value) {
        uint64_t value;
        int r;

        if (key->word && strcmp(text, key->word) == 0) {
                *ret_value = key->word_value;
                return 0;
        }
        if (key->type == CONFIG_TYPE_COUNT)
                r = parse_u64(text, &value);
        else if (key->type == CONFIG_TYPE_SIZE)
                r = parse_size(text, &value);
        else
                r = parse_duration(text, &value);
        if (r < 0)
                return r;
        if (value < key->min || value > key->max)
                return -ERANGE;
        if (key->multiple_of > 0 && value % key->multiple_of != 0)
                return -EDOM;
        *ret_value = value;
        return 0;
}

const char *config_lookup_error(int error) {
        switch (error) {
        case 0:
        case ENOENT:
        case ESRCH:
        case EBADF:
        case EPERM:
                return "unknown on this machine";
        default:
                return strerror(error);
        }
}

/* @config: the group is two fields of it. */
static int parse_group(const char *text, struct config *config, char reason[CONFIG_REASON_BYTES]) {
        const struct group *group;
        uint64_t number;

        if (strcmp(text, "none") == 0) {
                config->socket_group[0] = 0;
                config->socket_gid = (gid_t) -1;
                return 0;
        }
        if (strlen(text) >= sizeof(config->socket_group)) {
                (void) snprintf(reason, CONFIG_REASON_BYTES, "longer than the %zu bytes that a group's name may have",
                                sizeof(config->socket_group) - 1);
                return -EINVAL;
        }
        errno = 0;
        group = getgrnam(text);
        if (group)
                config->socket_gid = group->gr_gid;
        else if (parse_u64(text, &number) == 0 && number < (gid_t) -1)
                config->socket_gid = (gid_t) number;
        else {
                (void) snprintf(reason, CONFIG_REASON_BYTES, "%s; create the group or give another",
                                config_lookup_error(errno));
                return -EINVAL;
        }
        (void) strcpy(config->socket_group, text);
        return 0;
}

int config_find_id(bool group, const char *name, uint32_t *ret_id) {
        uint64_t number;

        errno = 0;
        if (group) {
                const struct group *found = getgrnam(name);

                if (found) {
                        *ret_id = found->gr_gid;
                        return 0;
                }
        } else {
                const struct passwd *found = getpwnam(name);

                if (found) {
                        *ret_id = found->pw_uid;
                        return 0;
                }
        }
        int error = errno;
        if (parse_u64(name, &number) < 0 || number >= UINT32_MAX)
                return error > 0 ? -error : -ENOENT;
        *ret_id = (uint32_t) number;
        return 0;
}

/* As whom those run whom somebody could not or would not tell apart: users without a place in a map, of NFS, without any rights. */
static bool is_overflow_user(uint32_t id) {
        _cleanup_fclose_ FILE *stream = fopen("/proc/sys/kernel/overflowuid", "re");
        uint32_t overflow_id;

        if (!stream || fscanf(stream, "%" SCNu32, &overflow_id) != 1)
                overflow_id = 65534; /* kernel: DEFAULT_OVERFLOWUID */
        return id == overflow_id;
}

/* Names with blanks or commas between them. */
static int parse_ids(const struct config_key *key, const char *text, struct config_ids *ret_ids,
                     char reason[CONFIG_REASON_BYTES]) {
        bool group = key->type == CONFIG_TYPE_GROUPS;
        struct config_ids ids = {.all = strcmp(text, "all") == 0 && strcmp(key->default_text, "all") == 0};
        _cleanup_free_ char *copy = strdup(text);
        char *position = NULL;
        int r;

        if (!copy)
                return -ENOMEM;
        for (char *name = ids.all ? NULL : strtok_r(copy, " \t,", &position); name; name = strtok_r(NULL, " \t,", &position)) {
                if (ids.n == CONFIG_MAX_IDS) {
                        (void) snprintf(reason, CONFIG_REASON_BYTES, "more than %d names; name a group instead", CONFIG_MAX_IDS);
                        return -EINVAL;
                }
                r = config_find_id(group, name, &ids.ids[ids.n]);
                if (r < 0 && strcmp(name, "all") == 0) {
                        bool may_stand_alone = strcmp(key->default_text, "all") == 0;

                        (void) snprintf(reason, CONFIG_REASON_BYTES, "\"all\" is no %s%s; give %s", group ? "group" : "user",
                                        may_stand_alone ? ", and means everybody when it stands alone" : "", key->unit);
                        return -EINVAL;
                }
                if (r < 0) {
                        (void) snprintf(reason, CONFIG_REASON_BYTES, "%s \"%.64s\": %s; create the %s or take it out",
                                        group ? "group" : "user", name, config_lookup_error(-r), group ? "group" : "user");
                        return -EINVAL;
                }
                if (key->gives_power && is_overflow_user(ids.ids[ids.n])) {
                        (void) snprintf(reason, CONFIG_REASON_BYTES, "user \"%.64s\" is the kernel's overflow user, as whom many run that have "
                                        "nothing to do with each other; have them run as a user of their own, and name that", name);
                        return -EINVAL;
                }
                ids.n++;
        }
        if (!ids.all && ids.n == 0) {
                (void) snprintf(reason, CONFIG_REASON_BYTES, "nobody is named; give %s", key->unit);
                return -EINVAL;
        }
        *ret_ids = ids;
        return 0;
}

int config_key_parse(const struct config_key *key, const char *text, void *base, char ret_reason[CONFIG_REASON_BYTES]) {
        char form[CONFIG_FORM_BYTES];
        void *field = (char *) base + key->offset;
        uint64_t number;
        int r;

        assert(key->type != CONFIG_TYPE_MEMORY && key->type != CONFIG_TYPE_POOL);
        switch (key->type) {
        case CONFIG_TYPE_GROUP:
                return parse_group(text, base, ret_reason);
        case CONFIG_TYPE_USERS:
        case CONFIG_TYPE_GROUPS:
                return parse_ids(key, text, field, ret_reason);
        case CONFIG_TYPE_METHOD:
                return parse_method(text, field, ret_reason);
        case CONFIG_TYPE_PATH:
                r = parse_path(text, field);
                break;
        case CONFIG_TYPE_MODE:
                r = parse_mode(text, field);
                break;
        case CONFIG_TYPE_BOOL:
                r = parse_bool(text, field);
                break;
        case CONFIG_TYPE_WORD:
                r = parse_word(key->words, text, field);
                break;
        default:
                r = parse_number(key, text, &number);
                if (r == 0 && key->type == CONFIG_TYPE_COUNT)
                        *(uint32_t *) field = (uint32_t) number;
                else if (r == 0)
                        *(uint64_t *) field = number;
        }
        if (r == 0)
                return 0;
        (void) snprintf(ret_reason, CONFIG_REASON_BYTES, "%s; give %s",
                        r == -ERANGE ? "out of range"
                        : r == -EDOM ? "no such multiple"
                                     : "not understood",
                        config_key_form(key, form));
        return -EINVAL;
}
