/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The sample file, written from the table of keys. */
#include "config-table.h"

#include <string.h>

#define SAMPLE_COLUMNS 100 /* chosen */

/* A remark, broken at blanks. */
static void write_remark(FILE *stream, const char *text) {
        while (*text) {
                size_t n = strlen(text);

                if (n > SAMPLE_COLUMNS - 2) {
                        n = SAMPLE_COLUMNS - 2;
                        while (text[n] != ' ')
                                n--;
                }
                (void) fprintf(stream, "# %.*s\n", (int) n, text);
                text += n + (text[n] == ' ');
        }
}

static void write_keys(FILE *stream, enum config_section_kind section) {
        char form[CONFIG_FORM_BYTES];

        for (const struct config_key *key = config_keys; key < config_keys + _CONFIG_KEY_MAX; key++) {
                if (key->section != section)
                        continue;
                (void) fputc('\n', stream);
                write_remark(stream, key->help);
                (void) fprintf(stream, "# Value: %s\n#%s=%s\n", config_key_form(key, form), key->name, key->default_text);
        }
}

void config_write_sample(FILE *stream) {
        (void) fputs("# Configuration of hugezerod, see hugezerod.conf(5). The lines that begin with #Key= show the defaults.\n"
                     "# Files in hugezerod.conf.d/ beside this one are read after it and override it.\n"
                     "\n[Daemon]\n",
                     stream);
        write_keys(stream, CONFIG_SECTION_DAEMON);
        (void) fputs("\n# One section for each pool. Without any there is one pool named default, with the values shown here.\n"
                     "#[Pool default]\n",
                     stream);
        write_keys(stream, CONFIG_SECTION_POOL);
        (void) fputs("\n# What each user may have. A section like [Quota user:alice] sets other limits for one user, one\n"
                     "# like [Quota group:staff] for each member of a group; what they leave out is as in [Quota default].\n"
                     "[Quota default]\n",
                     stream);
        write_keys(stream, CONFIG_SECTION_QUOTA);
}
