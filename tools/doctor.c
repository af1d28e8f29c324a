/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Findings, and files under a root. */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "doctor.h"
#include "kernelfs.h"
#include "parse.h"

#define PATH_BYTES 4096 /* kernel limit */

void doctor_add(struct doctor *doctor, enum doctor_level level, const char *check, const char *format, ...) {
        struct doctor_finding *findings = reallocarray(doctor->findings, doctor->n_findings + 1, sizeof(*findings));
        if (!findings) {
                doctor->is_out_of_memory = true;
                return;
        }
        doctor->findings = findings;
        struct doctor_finding *finding = &findings[doctor->n_findings++];
        *finding = (struct doctor_finding){.level = level, .check = check};
        va_list arguments;
        va_start(arguments, format);
        (void) vsnprintf(finding->text, sizeof(finding->text), format, arguments);
        va_end(arguments);
}

void doctor_advise(struct doctor *doctor, const char *format, ...) {
        if (!doctor->n_findings)
                return;
        struct doctor_finding *finding = &doctor->findings[doctor->n_findings - 1];
        va_list arguments;
        va_start(arguments, format);
        (void) vsnprintf(finding->advice, sizeof(finding->advice), format, arguments);
        va_end(arguments);
}

void doctor_done(struct doctor *doctor) {
        free(doctor->findings);
        doctor->findings = NULL;
        doctor->n_findings = 0;
}

__attribute__((format(printf, 2, 0))) static FILE *open_file(const struct doctor *doctor, const char *path_format,
                                                             va_list arguments) {
        char path[PATH_BYTES];
        int n = snprintf(path, sizeof(path), "%s", doctor->root);
        if (n < 0 || (size_t) n >= sizeof(path))
                return NULL;
        int more = vsnprintf(path + n, sizeof(path) - (size_t) n, path_format, arguments);
        if (more < 0 || (size_t) more >= sizeof(path) - (size_t) n)
                return NULL;
        return fopen(path, "re");
}

static bool read_line(FILE *file, char *line, size_t n_bytes) {
        if (!file || !fgets(line, (int) n_bytes, file))
                return false;
        line[strcspn(line, "\n")] = '\0';
        return true;
}

bool doctor_read_line(const struct doctor *doctor, char *line, size_t n_bytes, const char *path_format, ...) {
        va_list arguments;
        va_start(arguments, path_format);
        _cleanup_fclose_ FILE *file = open_file(doctor, path_format, arguments);
        va_end(arguments);
        return read_line(file, line, n_bytes);
}

bool doctor_read_u64(const struct doctor *doctor, uint64_t *ret_value, const char *path_format, ...) {
        char line[64];
        va_list arguments;
        va_start(arguments, path_format);
        _cleanup_fclose_ FILE *file = open_file(doctor, path_format, arguments);
        va_end(arguments);
        return read_line(file, line, sizeof(line)) && parse_u64(line, ret_value) >= 0;
}

__attribute__((format(printf, 2, 3))) static FILE *open_formatted(const struct doctor *doctor, const char *path_format, ...) {
        va_list arguments;
        va_start(arguments, path_format);
        FILE *file = open_file(doctor, path_format, arguments);
        va_end(arguments);
        return file;
}

bool doctor_find_line(const struct doctor *doctor, const char *path, const char *prefix, char *rest, size_t n_bytes) {
        _cleanup_fclose_ FILE *file = open_formatted(doctor, "%s", path);
        char line[PATH_BYTES];
        size_t n_prefix = strlen(prefix);
        while (read_line(file, line, sizeof(line)))
                if (strncmp(line, prefix, n_prefix) == 0) {
                        (void) snprintf(rest, n_bytes, "%s", line + n_prefix);
                        return true;
                }
        return false;
}

bool doctor_has(const struct doctor *doctor, const char *mount) {
        char path[PATH_BYTES];
        if (!*doctor->root)
                return !(strcmp(mount, "/proc") == 0 ? kernelfs_proc_fault() : kernelfs_sys_fault());
        (void) snprintf(path, sizeof(path), "%s%s", doctor->root, mount);
        return access(path, R_OK | X_OK) == 0;
}

void doctor_check_mounts(struct doctor *doctor) {
        if (!doctor_has(doctor, "/proc")) {
                doctor_add(doctor, DOCTOR_PROBLEM, "mounts",
                           "/proc is not mounted or cannot be read: limits, control groups and the kernel are not looked at");
                doctor_advise(doctor, "mount -t proc proc /proc; the daemon needs it too");
        }
        if (!doctor_has(doctor, "/sys")) {
                doctor_add(doctor, DOCTOR_PROBLEM, "mounts",
                           "/sys is not mounted or cannot be read: pages, nodes and control groups are not looked at");
                doctor_advise(doctor, "mount -t sysfs sysfs /sys; the daemon needs it too, read-only is enough");
        }
}

static int compare_sizes(const void *left, const void *right) {
        uint64_t a = *(const uint64_t *) left, b = *(const uint64_t *) right;
        return a == b ? 0 : a < b ? -1 : 1;
}

size_t doctor_page_sizes(const struct doctor *doctor, uint64_t ret_bytes[DOCTOR_MAX_SIZES]) {
        char path[PATH_BYTES];
        size_t n = 0;
        (void) snprintf(path, sizeof(path), "%s/sys/kernel/mm/hugepages", doctor->root);
        DIR *dir = opendir(path);
        if (!dir)
                return 0;
        for (struct dirent *entry; n < DOCTOR_MAX_SIZES && (entry = readdir(dir));) {
                unsigned long kib;
                if (sscanf(entry->d_name, "hugepages-%lukB", &kib) == 1 && kib > 0)
                        ret_bytes[n++] = (uint64_t) kib * 1024;
        }
        (void) closedir(dir);
        qsort(ret_bytes, n, sizeof(*ret_bytes), compare_sizes);
        return n;
}
