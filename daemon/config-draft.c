/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Collects sections and keys from files, drop-ins and options. Values stay text: config.c and config-pool.c understand them. */
#include "config-draft.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cleanup.h"
#include "conf-files.h"

static struct config_section *add_section(struct config_draft *draft, enum config_section_kind kind, const char *title,
                                          const char *name, const struct config_origin *origin) {
        struct config_section *section = calloc(1, sizeof(*section));

        if (!section)
                return NULL;
        section->kind = kind;
        section->origin = *origin;
        (void) snprintf(section->title, sizeof(section->title), "%s", title);
        (void) snprintf(section->name, sizeof(section->name), "%s", name);
        TAILQ_INSERT_TAIL(&draft->sections, section, link);
        return section;
}

void config_draft_init(struct config_draft *draft) {
        *draft = (struct config_draft){};
        TAILQ_INIT(&draft->sections);
        TAILQ_INIT(&draft->sources);
}

static void free_section(struct config_draft *draft, struct config_section *section) {
        TAILQ_REMOVE(&draft->sections, section, link);
        for (size_t i = 0; i < _CONFIG_KEY_MAX; i++)
                free(section->values[i].text);
        free(section);
}

void config_draft_done(struct config_draft *draft) {
        struct config_section *section;
        struct config_source *source;

        while ((section = TAILQ_FIRST(&draft->sections)))
                free_section(draft, section);
        while ((source = TAILQ_FIRST(&draft->sources))) {
                TAILQ_REMOVE(&draft->sources, source, link);
                free(source);
        }
}

/* Keeps "@prefix@name" for origins. NULL: no memory. */
static const char *add_source(struct config_draft *draft, const char *prefix, const char *name) {
        struct config_source *source = malloc(sizeof(*source) + strlen(prefix) + strlen(name) + 1);

        if (!source)
                return NULL;
        (void) stpcpy(stpcpy(source->name, prefix), name);
        TAILQ_INSERT_TAIL(&draft->sources, source, link);
        return source->name;
}

static int no_memory(char *error) {
        (void) snprintf(error, CONFIG_TEXT_BYTES, "not enough memory to read the configuration");
        return -ENOMEM;
}

static int set_value(struct config_section *section, enum config_key_id key, const char *text, size_t length,
                     const struct config_origin *origin) {
        char *copy = strndup(text, length);

        if (!copy)
                return -ENOMEM;
        free(section->values[key].text);
        section->values[key] = (struct config_value){.text = copy, .origin = *origin};
        return 0;
}

const struct config_section *config_draft_next(const struct config_draft *draft, enum config_section_kind kind,
                                               const struct config_section *after) {
        const struct config_section *section = after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&draft->sections);

        while (section && section->kind != kind)
                section = TAILQ_NEXT(section, link);
        return section;
}

static struct config_section *find_section(struct config_draft *draft, enum config_section_kind kind, const char *name) {
        struct config_section *section;

        TAILQ_FOREACH (section, &draft->sections, link)
                if (section->kind == kind && strcmp(section->name, name) == 0)
                        break;
        return section;
}

/* What is wrong with a pool's name, or NULL. */
static const char *pool_name_fault(const char *name) {
        if (!name[0])
                return "a pool needs a name; write [Pool NAME]";
        if (strlen(name) >= CONFIG_POOL_NAME_BYTES)
                return "the pool's name is longer than 31 bytes; shorten it";
        for (; *name; name++)
                if (!isalnum((unsigned char) *name) && !strchr("-_.", *name))
                        return "the pool's name has other characters than letters, digits, \"-\", \"_\" and \".\"; change it";
        return NULL;
}

/* Splits @title. Returns NULL, or what is wrong with it. */
static const char *read_title(const char *title, enum config_section_kind *ret_kind, const char **ret_name) {
        if (strcmp(title, "Daemon") == 0) {
                *ret_kind = CONFIG_SECTION_DAEMON;
                *ret_name = "";
                return NULL;
        }
        if (strncmp(title, "Pool", 4) == 0 && (!title[4] || title[4] == ' ')) {
                *ret_kind = CONFIG_SECTION_POOL;
                *ret_name = title + 4 + (title[4] == ' ');
                return pool_name_fault(*ret_name);
        }
        *ret_kind = CONFIG_SECTION_QUOTA;
        *ret_name = title + strlen("Quota ");
        if (strcmp(title, "Quota default") == 0 || (strncmp(title, "Quota user:", 11) == 0 && title[11]) ||
            (strncmp(title, "Quota group:", 12) == 0 && title[12]))
                return NULL;
        return "unknown section; there are [Daemon], [Pool NAME], [Quota default], [Quota user:NAME] and [Quota group:NAME]";
}

static int begin_section(void *userdata, const struct config_origin *origin, const char *title, char *error) {
        struct config_draft *draft = userdata;
        enum config_section_kind kind;
        const char *name, *fault = read_title(title, &kind, &name);
        struct config_section *section;

        if (fault)
                return config_fail(error, origin, title, NULL, NULL, "%s", fault);
        section = find_section(draft, kind, name);
        if (section && section->origin.file == origin->file)
                return config_fail(error, origin, title, NULL, NULL,
                                   "the section was begun in line %u already; put its keys there", section->origin.line);
        if (!section)
                section = add_section(draft, kind, title, name, origin);
        if (!section)
                return no_memory(error);
        section->origin = *origin;
        draft->current = section;
        return 0;
}

static int fail_unknown_key(const struct config_origin *origin, const struct config_section *section, const char *name,
                            char *error) {
        for (const struct config_key *key = config_keys; key < config_keys + _CONFIG_KEY_MAX; key++)
                if (key->section == section->kind && strcasecmp(key->name, name) == 0)
                        return config_fail(error, origin, section->title, name, NULL, "unknown key; write %s=", key->name);
        for (const struct config_key *key = config_keys; key < config_keys + _CONFIG_KEY_MAX; key++)
                if (strcmp(key->name, name) == 0)
                        return config_fail(error, origin, section->title, name, NULL, "unknown key here; it belongs in %s",
                                           config_section_form(key->section));
        return config_fail(error, origin, section->title, name, NULL, "unknown key; hugezerod.conf(5) lists those of %s",
                           config_section_form(section->kind));
}

static int take_key(void *userdata, const struct config_origin *origin, const char *name, const char *text, char *error) {
        struct config_draft *draft = userdata;
        struct config_section *section = draft->current;
        enum config_key_id key = 0;

        while (key < _CONFIG_KEY_MAX && (config_keys[key].section != section->kind || strcmp(config_keys[key].name, name) != 0))
                key++;
        if (key == _CONFIG_KEY_MAX)
                return fail_unknown_key(origin, section, name, error);
        if (section->values[key].text && section->values[key].origin.file == origin->file)
                return config_fail(error, origin, section->title, name, text, "the key was set in line %u already; remove one",
                                   section->values[key].origin.line);
        return set_value(section, key, text, strlen(text), origin) < 0 ? no_memory(error) : 0;
}

int config_draft_read_stream(struct config_draft *draft, FILE *stream, const char *name, char ret_error[CONFIG_TEXT_BYTES]) {
        const struct config_ini_sink sink = {.section = begin_section, .key = take_key, .userdata = draft};
        const char *file = add_source(draft, "", name);

        if (!file)
                return no_memory(ret_error);
        draft->current = NULL;
        return config_ini_read(stream, file, &sink, ret_error);
}

static int read_file(struct config_draft *draft, const char *path, bool must_exist, char ret_error[CONFIG_TEXT_BYTES]) {
        _cleanup_fclose_ FILE *stream = NULL;
        int r = conf_file_open(path, &stream);

        if (r < 0) {
                const struct config_origin origin = {.file = path};

                if (r == -ENOENT && !must_exist)
                        return 0;
                (void) config_fail(ret_error, &origin, NULL, NULL, NULL, "cannot open the configuration: %s",
                                   conf_file_fault(r));
                return r == -ENOTSUP || r == -EFBIG ? -EINVAL : r;
        }
        return config_draft_read_stream(draft, stream, path, ret_error);
}

static int read_drop_ins(struct config_draft *draft, const char *path, char ret_error[CONFIG_TEXT_BYTES]) {
        _cleanup_free_ char *folder = NULL;
        size_t n_paths;
        char **paths;
        int r;

        if (asprintf(&folder, "%s.d", path) < 0) {
                folder = NULL;
                return no_memory(ret_error);
        }
        r = conf_paths_list(folder, &paths, &n_paths);
        if (r < 0) {
                const struct config_origin origin = {.file = folder};

                (void) config_fail(ret_error, &origin, NULL, NULL, NULL, "cannot list the drop-ins: %s", strerror(-r));
                return r;
        }
        for (size_t i = 0; i < n_paths && r == 0; i++)
                r = read_file(draft, paths[i], /* must_exist = */ true, ret_error);
        conf_paths_free(paths, n_paths);
        return r;
}

int config_draft_read(struct config_draft *draft, const char *path, bool must_exist, char ret_error[CONFIG_TEXT_BYTES]) {
        int r = read_file(draft, path, must_exist, ret_error);

        return r < 0 ? r : read_drop_ins(draft, path, ret_error);
}

int config_draft_set_socket(struct config_draft *draft, const char *path, char ret_error[CONFIG_TEXT_BYTES]) {
        const struct config_origin origin = {.file = "--socket"};
        struct config_section *section = find_section(draft, CONFIG_SECTION_DAEMON, "");

        if (!section)
                section = add_section(draft, CONFIG_SECTION_DAEMON, "Daemon", "", &origin);
        if (!section || set_value(section, CONFIG_KEY_SOCKET, path, strlen(path), &origin) < 0)
                return no_memory(ret_error);
        return 0;
}

/* [NAME=]PAGESIZE:EXTENTSIZE:TARGET[@NODES] */
static int add_pool(struct config_draft *draft, const char *spec, size_t idx, char *error) {
        const char *file = add_source(draft, "--pool ", spec), *equals = strchr(spec, '=');
        const char *page = equals ? equals + 1 : spec, *extent = strchr(page, ':'),
                   *target = extent ? strchr(extent + 1, ':') : NULL;
        const char *nodes = target ? strchr(target, '@') : NULL, *end = spec + strlen(spec), *fault;
        const struct config_origin origin = {.file = file};
        char name[CONFIG_INI_SECTION_BYTES];
        struct config_section *section;

        if (!file)
                return no_memory(error);
        if (!target || equals == spec || extent == page || target == extent + 1 || (nodes ? nodes : end) == target + 1 ||
            (nodes && !nodes[1]))
                return config_fail(error, &origin, NULL, NULL, NULL,
                                   "not understood; give [NAME=]PAGESIZE:EXTENTSIZE:TARGET[@NODES], like 2M:auto:4G or "
                                   "vms=1G:1G:50%%@0,1");
        if (equals)
                (void) snprintf(name, sizeof(name), "%.*s", (int) (equals - spec), spec);
        else
                (void) snprintf(name, sizeof(name), "pool%zu", idx);
        fault = pool_name_fault(name);
        if (!fault && find_section(draft, CONFIG_SECTION_POOL, name))
                fault = "there is another pool of that name; change one";
        if (fault)
                return config_fail(error, &origin, NULL, NULL, NULL, "pool \"%s\": %s", name, fault);
        section = add_section(draft, CONFIG_SECTION_POOL, "", name, &origin);
        if (!section || set_value(section, CONFIG_KEY_PAGE_SIZE, page, (size_t) (extent - page), &origin) < 0 ||
            set_value(section, CONFIG_KEY_EXTENT_SIZE, extent + 1, (size_t) (target - extent - 1), &origin) < 0 ||
            set_value(section, CONFIG_KEY_TARGET, target + 1, (size_t) ((nodes ? nodes : end) - target - 1), &origin) < 0 ||
            (nodes && set_value(section, CONFIG_KEY_NODES, nodes + 1, (size_t) (end - nodes - 1), &origin) < 0))
                return no_memory(error);
        return 0;
}

int config_draft_set_pools(struct config_draft *draft, const char *const *specs, size_t n_specs,
                           char ret_error[CONFIG_TEXT_BYTES]) {
        struct config_section *section, *next;
        int r = 0;

        for (section = TAILQ_FIRST(&draft->sections); section; section = next) {
                next = TAILQ_NEXT(section, link);
                if (section->kind == CONFIG_SECTION_POOL)
                        free_section(draft, section);
        }
        for (size_t i = 0; i < n_specs && r == 0; i++)
                r = add_pool(draft, specs[i], i, ret_error);
        return r;
}

const char *config_section_text(const struct config_section *section, enum config_key_id key) {
        return section->values[key].text ? section->values[key].text : config_keys[key].default_text;
}

int config_section_fail(const struct config_section *section, enum config_key_id key, char ret_error[CONFIG_TEXT_BYTES],
                        const char *fmt, ...) {
        const struct config_value *value = &section->values[key];
        char reason[CONFIG_TEXT_BYTES];
        va_list ap;

        va_start(ap, fmt);
        (void) vsnprintf(reason, sizeof(reason), fmt, ap);
        va_end(ap);
        return config_fail(ret_error, value->text ? &value->origin : &section->origin,
                           section->title[0] ? section->title : NULL, config_keys[key].name, config_section_text(section, key),
                           "%s", reason);
}
