/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Encoding and decoding of messages: bytes in, bytes out, no sockets, no allocation.
 *
 * Each message is described once, by a code_*() function that names its fields in wire order and what must hold for them. The
 * same description reads and writes, so the two directions cannot differ, and nothing is sent that the peer would refuse.
 */

#include "wire.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MAX_ERROR 4095    /* kernel limit: MAX_ERRNO */
#define MIN_PAGE_SHIFT 12 /* kernel: no page is smaller than 4 KiB */
#define MAX_PAGE_SHIFT 40 /* chosen: far above the largest hugepage there is (16 GiB), and a shift that is defined */

static_assert(32 + WIRE_MAX_FDS * 16 <= WIRE_MAX_MESSAGE_BYTES, "D_GRANT fits one message");
static_assert(16 + WIRE_MAX_ITEMS * 64 <= WIRE_MAX_MESSAGE_BYTES, "C_ACQUIRE fits one message");
static_assert(24 + WIRE_MAX_POOL_ROWS * 176 <= WIRE_MAX_MESSAGE_BYTES, "D_POOLS fits one message");
static_assert(16 + WIRE_MAX_GRANT_ROWS * 96 <= WIRE_MAX_MESSAGE_BYTES, "D_GRANTS fits one message");
static_assert(16 + WIRE_MAX_LIMIT_ROWS * 24 <= WIRE_MAX_MESSAGE_BYTES, "D_LIMITS fits one message");

struct cursor {
        bool reading;
        uint8_t *bytes; /* not written to while reading */
        size_t n_bytes, pos;
        bool short_of_bytes; /* the packet or the buffer ended too early */
        bool bad;            /* a field has a value that it must not have */
        size_t item;         /* the one of C_ACQUIRE that is being coded, counted from 1; 0: none */
        /* Of the first of all faults: */
        const char *fault, *fault_field; /* the latter as the code names it, "item->bytes" */
        size_t fault_item;
};

static void note_fault(struct cursor *c, const char *field, const char *fault) {
        if (c->fault)
                return;
        c->fault = fault;
        c->fault_field = field;
        c->fault_item = c->item;
}

static void require(struct cursor *c, const char *field, bool condition, const char *fault) {
        if (condition)
                return;
        c->bad = true;
        note_fault(c, field, fault);
}

#define REQUIRE(c, field, condition) require(c, #field, condition, "its value is not allowed")

/* The next @n bytes of the packet, or NULL where it has ended. */
static uint8_t *take_bytes(struct cursor *c, const char *field, size_t n) {
        if (n > c->n_bytes - c->pos) {
                c->short_of_bytes = true;
                note_fault(c, field, "the message ends before it does");
                return NULL;
        }
        c->pos += n;
        return c->bytes + c->pos - n;
}

/* Inlined: with a length that is known it is one load and one store. */
__attribute__((always_inline)) static inline void copy_integer(uint8_t *to, const uint8_t *from, size_t n) {
        if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__)
                memcpy(to, from, n);
        else
                for (size_t i = 0; i < n; i++)
                        to[i] = from[n - 1 - i];
}

__attribute__((always_inline)) static inline void code_integer(struct cursor *c, const char *name, void *field, size_t n) {
        uint8_t *wire = take_bytes(c, name, n), *host = field;

        if (wire && c->reading)
                copy_integer(host, wire, n);
        else if (wire)
                copy_integer(wire, host, n);
        else if (c->reading)
                memset(host, 0, n); /* the conditions that follow look at it */
}

/* Zero on the wire, whatever the sender's structure holds. */
static void code_zero(struct cursor *c, const char *name, void *field, size_t n) {
        uint8_t *wire = take_bytes(c, name, n);

        if (c->reading)
                memset(field, 0, n);
        if (!wire)
                return;
        uint8_t bits = 0;
        if (!c->reading)
                memset(wire, 0, n);
        for (size_t i = 0; i < n; i++)
                bits |= wire[i];
        require(c, name, bits == 0, "it is reserved, and not 0");
}

#define INTEGER(c, field) code_integer(c, #field, &(field), sizeof(field))
#define RESERVED(c, field) code_zero(c, #field, &(field), sizeof(field))

/* A name or version: printable ASCII, terminated, zeros up to the end of the field. */
static void code_name(struct cursor *c, const char *field, char *name, size_t n) {
        size_t n_chars = 0;

        if (!c->reading) {
                n_chars = strnlen(name, n);
                uint8_t *wire = take_bytes(c, field, n);
                if (wire) {
                        memset(wire, 0, n);
                        memcpy(wire, name, n_chars);
                }
        } else {
                uint8_t *wire = take_bytes(c, field, n);
                memset(name, 0, n);
                if (wire) {
                        memcpy(name, wire, n);
                        n_chars = strnlen(name, n);
                        char bits = 0;
                        for (size_t i = n_chars; i < n; i++)
                                bits |= name[i];
                        require(c, field, bits == 0, "behind its end there is more than zeros");
                }
        }
        require(c, field, n_chars < n, "it has no end");
        for (size_t i = 0; i < n_chars; i++)
                require(c, field, name[i] >= ' ' && name[i] <= '~', "it has characters that are not printable");
}

#define NAME(c, field) code_name(c, #field, field, sizeof(field))

/* Length of the well-formed UTF-8 sequence (RFC 3629) at the start of @s; 0 when it is none or is a control character. */
static size_t utf8_sequence_bytes(const uint8_t *s, size_t n) {
        static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000};
        size_t n_sequence = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;

        if (n_sequence == 0 || n_sequence > n)
                return 0;
        if (n_sequence == 1)
                return s[0] >= 0x20 && s[0] != 0x7f ? 1 : 0;

        uint32_t code_point = s[0] & (0x7f >> n_sequence);
        for (size_t i = 1; i < n_sequence; i++) {
                if ((s[i] & 0xc0) != 0x80)
                        return 0;
                code_point = code_point << 6 | (s[i] & 0x3f);
        }
        if (code_point < smallest[n_sequence] || code_point > 0x10ffff || (code_point >= 0xd800 && code_point <= 0xdfff))
                return 0;
        return code_point < 0xa0 ? 0 : n_sequence; /* C1 controls can drive a terminal, too */
}

size_t wire_make_text(char text[WIRE_MAX_TEXT_BYTES + 1], const char *from) {
        size_t n_from = strlen(from), n = 0;

        for (size_t i = 0, n_sequence; i < n_from; i += n_sequence) {
                n_sequence = utf8_sequence_bytes((const uint8_t *) from + i, n_from - i);
                if (n + (n_sequence > 0 ? n_sequence : 1) > WIRE_MAX_TEXT_BYTES)
                        break;
                if (n_sequence > 0)
                        memcpy(text + n, from + i, n_sequence);
                else {
                        text[n] = '?';
                        n_sequence = 1;
                }
                n += n_sequence;
        }
        text[n] = 0;
        return n;
}

static void require_text(struct cursor *c, const uint8_t *text, size_t n) {
        for (size_t i = 0, n_sequence; i < n; i += n_sequence) {
                n_sequence = utf8_sequence_bytes(text + i, n - i);
                require(c, "text", n_sequence > 0, "it is not printable UTF-8");
                if (n_sequence == 0)
                        return;
        }
}

/* Anything but whole pages would be a lie about the memory behind the fd. */
static void require_pages(struct cursor *c, uint64_t bytes, uint8_t page_shift) {
        REQUIRE(c, page_shift, page_shift >= MIN_PAGE_SHIFT && page_shift <= MAX_PAGE_SHIFT);
        if (!c->bad)
                REQUIRE(c, bytes, bytes > 0 && (bytes & ((UINT64_C(1) << page_shift) - 1)) == 0);
}

static void code_c_hello(struct cursor *c, struct wire_message *m) {
        struct wire_c_hello *hello = &m->c_hello;

        INTEGER(c, hello->magic);
        INTEGER(c, hello->version_min);
        INTEGER(c, hello->version_max);
        INTEGER(c, hello->features); /* any: the daemon answers with those that it knows as well */
        REQUIRE(c, hello->magic, hello->magic == WIRE_MAGIC);
        REQUIRE(c, hello->version_max, hello->version_min <= hello->version_max);
}

static void code_d_hello(struct cursor *c, struct wire_message *m) {
        struct wire_d_hello *hello = &m->d_hello;

        INTEGER(c, hello->magic);
        INTEGER(c, hello->version);
        INTEGER(c, hello->max_items);
        INTEGER(c, hello->features);
        INTEGER(c, hello->max_fds);
        RESERVED(c, hello->reserved);
        INTEGER(c, hello->max_message_bytes);
        REQUIRE(c, hello->magic, hello->magic == WIRE_MAGIC);
        REQUIRE(c, hello->version, hello->version > 0);
        REQUIRE(c, hello->max_items, hello->max_items > 0);
        REQUIRE(c, hello->max_fds, hello->max_fds > 0);
        REQUIRE(c, hello->max_message_bytes, hello->max_message_bytes > 0);
}

static void code_item(struct cursor *c, struct wire_item *item) {
        INTEGER(c, item->bytes);
        INTEGER(c, item->page_size_bytes);
        INTEGER(c, item->node);
        INTEGER(c, item->node_mode);
        INTEGER(c, item->flags);
        RESERVED(c, item->reserved);
        RESERVED(c, item->reserved2);
        NAME(c, item->pool);
        REQUIRE(c, item->bytes, item->bytes > 0);
        REQUIRE(c, item->node_mode, item->node_mode <= WIRE_NODE_PREFER);
        REQUIRE(c, item->node, item->node_mode == WIRE_NODE_ANY ? item->node == -1 : item->node >= 0);
        REQUIRE(c, item->flags, (item->flags & ~(WIRE_ITEM_SEVERAL | WIRE_ITEM_REOPENABLE)) == 0);
}

static void code_c_acquire(struct cursor *c, struct wire_message *m) {
        struct wire_c_acquire *acquire = &m->c_acquire;

        INTEGER(c, acquire->on_miss);
        INTEGER(c, acquire->n_items);
        RESERVED(c, acquire->reserved);
        INTEGER(c, acquire->timeout_ms);
        REQUIRE(c, acquire->on_miss, acquire->on_miss <= WIRE_MISS_FILL);
        REQUIRE(c, acquire->timeout_ms, acquire->on_miss == WIRE_MISS_WAIT ? acquire->timeout_ms >= -1 : acquire->timeout_ms == 0);
        REQUIRE(c, acquire->n_items, acquire->n_items >= 1 && acquire->n_items <= WIRE_MAX_ITEMS);
        for (size_t i = 0; i < acquire->n_items && !c->bad; i++) {
                c->item = i + 1;
                code_item(c, &acquire->items[i]);
        }
}

static void code_c_cancel(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_cancel.target_request_id);
        RESERVED(c, m->c_cancel.reserved);
}

static void code_c_mapped(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_mapped.grant_id);
}

static void code_c_release(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_release.grant_id);
        INTEGER(c, m->c_release.extent);
        RESERVED(c, m->c_release.reserved);
}

static void code_c_pools(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_pools.first_row);
        RESERVED(c, m->c_pools.reserved);
}

static void code_c_grants(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_grants.after_grant_id);
        INTEGER(c, m->c_grants.after_extent);
        RESERVED(c, m->c_grants.reserved);
}

static void code_c_resize(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_resize.target_bytes);
        INTEGER(c, m->c_resize.node);
        RESERVED(c, m->c_resize.reserved);
        NAME(c, m->c_resize.pool);
        REQUIRE(c, m->c_resize.node, m->c_resize.node >= -1);
}

static void code_c_limits(struct cursor *c, struct wire_message *m) {
        INTEGER(c, m->c_limits.after_uid);
        INTEGER(c, m->c_limits.after_kind);
        RESERVED(c, m->c_limits.reserved);
}

static void code_extent(struct cursor *c, struct wire_extent *extent) {
        INTEGER(c, extent->bytes);
        INTEGER(c, extent->item);
        INTEGER(c, extent->page_shift);
        INTEGER(c, extent->node);
        RESERVED(c, extent->reserved);
        REQUIRE(c, extent->item, extent->item < WIRE_MAX_ITEMS);
        REQUIRE(c, extent->node, extent->node >= 0);
        require_pages(c, extent->bytes, extent->page_shift);
}

static void code_d_grant(struct cursor *c, struct wire_message *m) {
        struct wire_d_grant *grant = &m->d_grant;

        INTEGER(c, grant->grant_id);
        INTEGER(c, grant->n_extents_total);
        INTEGER(c, grant->first_extent);
        INTEGER(c, grant->n_extents);
        RESERVED(c, grant->reserved);
        RESERVED(c, grant->reserved2);
        REQUIRE(c, grant->grant_id, grant->grant_id > 0);
        REQUIRE(c, grant->n_extents, grant->n_extents >= 1 && grant->n_extents <= WIRE_MAX_FDS);
        REQUIRE(c, grant->n_extents, (uint64_t) grant->first_extent + grant->n_extents <= grant->n_extents_total);
        for (size_t i = 0; i < grant->n_extents && !c->bad; i++)
                code_extent(c, &grant->extents[i]);
}

/* The rest of a message: at most WIRE_MAX_TEXT_BYTES, which has been required. */
static void code_text(struct cursor *c, const char *name, char text[WIRE_MAX_TEXT_BYTES + 1], size_t n) {
        uint8_t *wire = c->bad ? NULL : take_bytes(c, name, n);

        if (!wire)
                return;
        if (c->reading) {
                memcpy(text, wire, n);
                text[n] = 0;
        } else
                memcpy(wire, text, n);
        require_text(c, wire, n);
}

static void code_d_refused(struct cursor *c, struct wire_message *m) {
        struct wire_d_refused *refused = &m->d_refused;

        INTEGER(c, refused->error);
        INTEGER(c, refused->n_text_bytes);
        RESERVED(c, refused->reserved);
        REQUIRE(c, refused->error, refused->error > 0 && refused->error <= MAX_ERROR);
        REQUIRE(c, refused->n_text_bytes, refused->n_text_bytes <= WIRE_MAX_TEXT_BYTES);
        code_text(c, "text", refused->text, refused->n_text_bytes);
}

static void code_d_reloaded(struct cursor *c, struct wire_message *m) {
        struct wire_d_reloaded *reloaded = &m->d_reloaded;

        INTEGER(c, reloaded->n_start_keys_bytes);
        RESERVED(c, reloaded->reserved);
        RESERVED(c, reloaded->reserved2);
        REQUIRE(c, reloaded->n_start_keys_bytes, reloaded->n_start_keys_bytes <= WIRE_MAX_TEXT_BYTES);
        code_text(c, "start_keys", reloaded->start_keys, reloaded->n_start_keys_bytes);
}

static void code_d_status(struct cursor *c, struct wire_message *m) {
        struct wire_d_status *status = &m->d_status;

        NAME(c, status->daemon_version);
        INTEGER(c, status->uptime_ms);
        INTEGER(c, status->n_clients);
        INTEGER(c, status->n_waiting);
        INTEGER(c, status->n_pool_rows);
        INTEGER(c, status->n_grants);
        INTEGER(c, status->n_extents_granted);
        INTEGER(c, status->n_granted_total);
        INTEGER(c, status->n_refused_total);
        INTEGER(c, status->n_exact);
        INTEGER(c, status->n_cut);
        INTEGER(c, status->n_grown);
        INTEGER(c, status->n_built);
        INTEGER(c, status->zeroed_bytes_total);
        INTEGER(c, status->granted_bytes_total);
        INTEGER(c, status->scrubbed_bytes_total);
        INTEGER(c, status->n_fds_in_flight);
        INTEGER(c, status->n_doubts);
        INTEGER(c, status->capped_at_extents);
}

static void code_pool_row(struct cursor *c, struct wire_pool_row *row) {
        NAME(c, row->name);
        INTEGER(c, row->node);
        INTEGER(c, row->n_extents_ready);
        INTEGER(c, row->page_size_bytes);
        INTEGER(c, row->extent_bytes);
        INTEGER(c, row->target_bytes);
        INTEGER(c, row->ready_bytes);
        INTEGER(c, row->granted_bytes);
        INTEGER(c, row->returned_bytes);
        INTEGER(c, row->filling_bytes);
        INTEGER(c, row->shortfall_bytes);
        INTEGER(c, row->pinned_bytes);
        INTEGER(c, row->kernel_free_bytes);
        INTEGER(c, row->largest_ready_bytes);
        INTEGER(c, row->n_exact);
        INTEGER(c, row->n_cut);
        INTEGER(c, row->n_grown);
        INTEGER(c, row->n_built);
        INTEGER(c, row->zeroed_bytes_total);
        NAME(c, row->clear_method);
        INTEGER(c, row->n_workers);
        INTEGER(c, row->n_fill_threads);
        INTEGER(c, row->paced_wait_ms);
        INTEGER(c, row->audited_bytes_total);
        INTEGER(c, row->n_audit_errors);
        INTEGER(c, row->n_scrub_threads);
        INTEGER(c, row->clear_speed);
        INTEGER(c, row->clear_survival);
        REQUIRE(c, row->clear_survival, row->clear_survival <= 100 || row->clear_survival == WIRE_SURVIVAL_UNKNOWN);
        REQUIRE(c, row->node, row->node >= 0);
}

static void code_d_pools(struct cursor *c, struct wire_message *m) {
        struct wire_d_pools *pools = &m->d_pools;

        INTEGER(c, pools->n_rows_total);
        INTEGER(c, pools->first_row);
        INTEGER(c, pools->n_rows);
        RESERVED(c, pools->reserved);
        REQUIRE(c, pools->n_rows, pools->n_rows <= WIRE_MAX_POOL_ROWS);
        /* first_row is the client's, so it may lie behind the last row; then there are none */
        REQUIRE(c, pools->first_row, pools->n_rows == 0 || (uint64_t) pools->first_row + pools->n_rows <= pools->n_rows_total);
        for (size_t i = 0; i < pools->n_rows && !c->bad; i++)
                code_pool_row(c, &pools->rows[i]);
}

static void code_grant_row(struct cursor *c, struct wire_grant_row *row) {
        INTEGER(c, row->grant_id);
        INTEGER(c, row->extent);
        INTEGER(c, row->uid);
        INTEGER(c, row->pid);
        INTEGER(c, row->node);
        INTEGER(c, row->page_shift);
        INTEGER(c, row->state);
        INTEGER(c, row->bytes);
        INTEGER(c, row->age_ms);
        INTEGER(c, row->dev);
        INTEGER(c, row->ino);
        NAME(c, row->pool);
        RESERVED(c, row->reserved);
        REQUIRE(c, row->grant_id, row->grant_id > 0);
        REQUIRE(c, row->node, row->node >= 0);
        REQUIRE(c, row->state, row->state >= WIRE_EXTENT_HELD && row->state <= WIRE_EXTENT_PINNED);
        require_pages(c, row->bytes, row->page_shift);
}

static void code_d_grants(struct cursor *c, struct wire_message *m) {
        struct wire_d_grants *grants = &m->d_grants;

        INTEGER(c, grants->n_rows);
        INTEGER(c, grants->more);
        REQUIRE(c, grants->n_rows, grants->n_rows <= WIRE_MAX_GRANT_ROWS);
        REQUIRE(c, grants->more, grants->more <= 1);
        for (size_t i = 0; i < grants->n_rows && !c->bad; i++)
                code_grant_row(c, &grants->rows[i]);
}

static void code_limit_row(struct cursor *c, struct wire_limit_row *row) {
        INTEGER(c, row->uid);
        INTEGER(c, row->kind); /* any that is not 0: a younger daemon may know more */
        RESERVED(c, row->reserved);
        INTEGER(c, row->used);
        INTEGER(c, row->limit);
        REQUIRE(c, row->kind, row->kind > 0);
}

static void code_d_limits(struct cursor *c, struct wire_message *m) {
        struct wire_d_limits *limits = &m->d_limits;

        INTEGER(c, limits->n_rows);
        INTEGER(c, limits->more);
        REQUIRE(c, limits->n_rows, limits->n_rows <= WIRE_MAX_LIMIT_ROWS);
        REQUIRE(c, limits->more, limits->more <= 1);
        for (size_t i = 0; i < limits->n_rows && !c->bad; i++)
                code_limit_row(c, &limits->rows[i]);
}

static void code_nothing(struct cursor *c, struct wire_message *m) {
}

struct description {
        uint16_t op;
        enum wire_direction direction;
        size_t host_bytes; /* of the union's member */
        void (*code)(struct cursor *c, struct wire_message *m);
};

#define MEMBER_BYTES(member) sizeof(((struct wire_message *) NULL)->member)

static const struct description descriptions[] = {
        {WIRE_C_HELLO, WIRE_TO_DAEMON, MEMBER_BYTES(c_hello), code_c_hello},
        {WIRE_C_ACQUIRE, WIRE_TO_DAEMON, MEMBER_BYTES(c_acquire), code_c_acquire},
        {WIRE_C_CANCEL, WIRE_TO_DAEMON, MEMBER_BYTES(c_cancel), code_c_cancel},
        {WIRE_C_MAPPED, WIRE_TO_DAEMON, MEMBER_BYTES(c_mapped), code_c_mapped},
        {WIRE_C_RELEASE, WIRE_TO_DAEMON, MEMBER_BYTES(c_release), code_c_release},
        {WIRE_C_STATUS, WIRE_TO_DAEMON, 0, code_nothing},
        {WIRE_C_POOLS, WIRE_TO_DAEMON, MEMBER_BYTES(c_pools), code_c_pools},
        {WIRE_C_GRANTS, WIRE_TO_DAEMON, MEMBER_BYTES(c_grants), code_c_grants},
        {WIRE_C_RELOAD, WIRE_TO_DAEMON, 0, code_nothing},
        {WIRE_C_RESIZE, WIRE_TO_DAEMON, MEMBER_BYTES(c_resize), code_c_resize},
        {WIRE_C_LIMITS, WIRE_TO_DAEMON, MEMBER_BYTES(c_limits), code_c_limits},
        {WIRE_D_HELLO, WIRE_TO_CLIENT, MEMBER_BYTES(d_hello), code_d_hello},
        {WIRE_D_GRANT, WIRE_TO_CLIENT, MEMBER_BYTES(d_grant), code_d_grant},
        {WIRE_D_REFUSED, WIRE_TO_CLIENT, MEMBER_BYTES(d_refused), code_d_refused},
        {WIRE_D_DONE, WIRE_TO_CLIENT, 0, code_nothing},
        {WIRE_D_STATUS, WIRE_TO_CLIENT, MEMBER_BYTES(d_status), code_d_status},
        {WIRE_D_POOLS, WIRE_TO_CLIENT, MEMBER_BYTES(d_pools), code_d_pools},
        {WIRE_D_GRANTS, WIRE_TO_CLIENT, MEMBER_BYTES(d_grants), code_d_grants},
        {WIRE_D_LIMITS, WIRE_TO_CLIENT, MEMBER_BYTES(d_limits), code_d_limits},
        {WIRE_D_RELOADED, WIRE_TO_CLIENT, MEMBER_BYTES(d_reloaded), code_d_reloaded},
};

static const struct description *find_description(uint16_t op) {
        for (size_t i = 0; i < sizeof(descriptions) / sizeof(descriptions[0]); i++)
                if (descriptions[i].op == op)
                        return &descriptions[i];
        return NULL;
}

static void code_header(struct cursor *c, struct wire_message *m) {
        uint16_t reserved = 0;

        INTEGER(c, m->op);
        RESERVED(c, reserved);
        INTEGER(c, m->request_id);
}

int wire_encode(const struct wire_message *message, uint8_t *buffer, size_t buffer_bytes) {
        struct cursor c = {.bytes = buffer, .n_bytes = buffer_bytes};
        struct wire_message *m = (struct wire_message *) message; /* only reading writes to the message */
        const struct description *description = find_description(message->op);

        if (!description)
                return -EINVAL;
        code_header(&c, m);
        description->code(&c, m);
        if (c.bad)
                return -EINVAL;
        return c.short_of_bytes ? -EMSGSIZE : (int) c.pos;
}

static int decode(struct cursor *c, const uint8_t *buffer, size_t n_bytes, enum wire_direction direction,
                  struct wire_message *ret_message) {
        struct wire_message m;

        *c = (struct cursor){.reading = true, .bytes = (uint8_t *) buffer, .n_bytes = n_bytes};
        if (c->n_bytes > WIRE_MAX_MESSAGE_BYTES)
                return -EBADMSG;
        code_header(c, &m);
        if (c->bad || c->short_of_bytes)
                return -EBADMSG;

        const struct description *description = find_description(m.op);
        if (!description || description->direction != direction) {
                ret_message->op = m.op;
                ret_message->request_id = m.request_id;
                return -EOPNOTSUPP;
        }
        description->code(c, &m);
        if (c->bad || c->short_of_bytes || c->pos != c->n_bytes)
                return -EBADMSG;
        memcpy(ret_message, &m, offsetof(struct wire_message, c_hello) + description->host_bytes);
        return 0;
}

int wire_decode(const uint8_t *buffer, size_t n_bytes, enum wire_direction direction, struct wire_message *ret_message) {
        struct cursor c;

        return decode(&c, buffer, n_bytes, direction, ret_message);
}

/* "flags" of "item->flags", "target_bytes" of "m->c_resize.target_bytes". */
static const char *last_word(const char *field) {
        const char *word = field;

        for (; *field; field++)
                if (*field == '>' || *field == '.')
                        word = field + 1;
        return word;
}

const char *wire_explain(const uint8_t *buffer, size_t n_bytes, enum wire_direction direction, char ret_text[WIRE_FAULT_BYTES]) {
        struct wire_message message;
        struct cursor c;
        char item[32] = "";

        (void) decode(&c, buffer, n_bytes, direction, &message);
        if (c.fault_item > 0)
                (void) snprintf(item, sizeof(item), "item %zu, ", c.fault_item - 1);
        if (c.fault)
                (void) snprintf(ret_text, WIRE_FAULT_BYTES, "%sfield %s: %s", item, last_word(c.fault_field), c.fault);
        else
                (void) snprintf(ret_text, WIRE_FAULT_BYTES, "%zu bytes are too many", n_bytes);
        return ret_text;
}
