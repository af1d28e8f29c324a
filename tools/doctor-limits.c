/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Limits of processes and of the kernel, its version and its parameters. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"
#include "parse.h"

#define MIN_FDS 4096     /* chosen: an extent is two descriptors; some 1,500 of them are enough for most */
#define MIN_WATCHES 8192 /* chosen: an extent is a watch as well */
#define MIN_INSTANCES 4  /* chosen: the daemon needs one, others of its uid some */
#define MIN_MAPS 65530   /* kernel default; an extent of 1 GiB and more is a mapping of the daemon's */
#define FLOOR_MAJOR 5    /* MADV_POPULATE_WRITE came with Linux 5.14 */
#define FLOOR_MINOR 14

/* "1024                 524288               files": soft and hard; UINT64_MAX is "unlimited". */
static bool read_limit(const struct doctor *doctor, const char *name, uint64_t ret_limits[2]) {
        char path[64], rest[128];
        (void) snprintf(path, sizeof(path), "/proc/%s/limits", "self");
        if (doctor->daemon_pid)
                (void) snprintf(path, sizeof(path), "/proc/%d/limits", (int) doctor->daemon_pid);
        if (!doctor_find_line(doctor, path, name, rest, sizeof(rest)))
                return false;
        char words[2][32];
        if (sscanf(rest, "%31s %31s", words[0], words[1]) != 2)
                return false;
        for (int idx = 0; idx < 2; idx++)
                if (strcmp(words[idx], "unlimited") == 0)
                        ret_limits[idx] = UINT64_MAX;
                else if (parse_u64(words[idx], &ret_limits[idx]) < 0)
                        return false;
        return true;
}

#define MORE_FILES                                                                                                             \
        "LimitNOFILE=65536 in the daemon's unit, or ulimit -n 65536 where it is started by hand; or larger extents "           \
        "(ExtentSize=): fewer of them are needed then"

static void check_process_limits(struct doctor *doctor) {
        const char *whose = doctor->daemon_pid ? "the daemon" : "this shell";
        uint64_t limits[2];
        char size[FORMAT_SIZE_BYTES];
        if (doctor->capped_at_extents) {
                doctor_add(doctor, DOCTOR_PROBLEM, "nofile",
                           "the daemon's pools lack memory, and stop at %" PRIu64 " extent%s: it may open no more files for them",
                           doctor->capped_at_extents, plural_s(doctor->capped_at_extents));
                doctor_advise(doctor, MORE_FILES);
        }
        if (read_limit(doctor, "Max open files", limits)) {
                bool is_low = limits[1] < MIN_FDS;
                doctor_add(doctor, is_low ? DOCTOR_PROBLEM : DOCTOR_OK, "nofile",
                           "%s may open up to %" PRIu64 " descriptors, two for each extent", whose, limits[1]);
                if (is_low)
                        doctor_advise(doctor, MORE_FILES);
        }
        if (read_limit(doctor, "Max locked memory", limits)) {
                bool is_low = limits[1] != UINT64_MAX;
                doctor_add(doctor, is_low ? DOCTOR_NOTE : DOCTOR_OK, "memlock", "%s may lock and pin %s", whose,
                           is_low ? format_size(limits[1], size) : "any amount");
                if (is_low)
                        doctor_advise(doctor, "the daemon needs none; clients that hand their memory to devices (VFIO, RDMA, "
                                              "io_uring) need as much: "
                                              "LimitMEMLOCK=infinity in their unit, or ulimit -l");
        }
}

static void check_sysctl(struct doctor *doctor, const char *check, const char *sysctl, uint64_t at_least, const char *what) {
        char path[128];
        uint64_t value;
        (void) snprintf(path, sizeof(path), "/proc/sys/%s", sysctl);
        for (char *at = path; (at = strchr(at, '.'));)
                *at = '/';
        if (!doctor_read_u64(doctor, &value, "%s", path))
                return;
        doctor_add(doctor, value < at_least ? DOCTOR_PROBLEM : DOCTOR_OK, check, "%s is %" PRIu64 ": %s", sysctl, value, what);
        if (value < at_least)
                doctor_advise(doctor, "sysctl %s=%" PRIu64 " (and in /etc/sysctl.d, for every boot)", sysctl, at_least);
}

void doctor_check_limits(struct doctor *doctor) {
        check_process_limits(doctor);
        check_sysctl(doctor, "inotify", "fs.inotify.max_user_watches", MIN_WATCHES, "the daemon watches each extent");
        check_sysctl(doctor, "inotify", "fs.inotify.max_user_instances", MIN_INSTANCES, "the daemon needs one");
        check_sysctl(doctor, "maps", "vm.max_map_count", MIN_MAPS, "each mapped extent counts");
}

/* 1, 0, or -1: neither the command line nor the kernel's configuration says. */
static int init_on_alloc(const struct doctor *doctor, const char *release) {
        char line[4096], path[512], *rest = line;
        if (doctor_read_line(doctor, line, sizeof(line), "/proc/cmdline"))
                for (char *word; (word = strsep(&rest, " "));)
                        if (strncmp(word, "init_on_alloc=", 14) == 0)
                                return word[14] == '1' || word[14] == 'y' || word[14] == 'Y' || strcmp(word + 14, "on") == 0;
        (void) snprintf(path, sizeof(path), "/boot/config-%s", release);
        if (doctor_find_line(doctor, path, "CONFIG_INIT_ON_ALLOC_DEFAULT_ON=y", line, sizeof(line)))
                return 1;
        return doctor_find_line(doctor, path, "# CONFIG_INIT_ON_ALLOC_DEFAULT_ON is not set", line, sizeof(line)) ? 0 : -1;
}

void doctor_check_kernel(struct doctor *doctor) {
        char release[256];
        int major = 0, minor = 0;
        if (!doctor_read_line(doctor, release, sizeof(release), "/proc/sys/kernel/osrelease") ||
            sscanf(release, "%d.%d", &major, &minor) != 2)
                return;
        bool is_old = major < FLOOR_MAJOR || (major == FLOOR_MAJOR && minor < FLOOR_MINOR);
        doctor_add(doctor, is_old ? DOCTOR_PROBLEM : DOCTOR_OK, "kernel", "Linux %s", release);
        if (is_old)
                doctor_advise(doctor, "hugezero needs Linux %d.%d: older kernels cannot populate a page without risking SIGBUS",
                              FLOOR_MAJOR, FLOOR_MINOR);
        int on = init_on_alloc(doctor, release);
        if (on == 1) {
                doctor_add(doctor, DOCTOR_NOTE, "init_on_alloc",
                           "the kernel clears pages when they are reserved, and again when they are used");
                doctor_advise(doctor, "init_on_alloc=0 on the kernel command line halves the cost of growing nr_hugepages and "
                                      "of surplus pages; it "
                                      "is a hardening of all memory, so decide for the whole host");
        } else
                doctor_add(doctor, DOCTOR_OK, "init_on_alloc", "%s",
                           on == 0 ? "off: pages are cleared once" : "not on the kernel command line");
}
