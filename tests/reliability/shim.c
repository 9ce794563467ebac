/* A disk that is full from some write on, and a clock that is set back, for one process and its children.

   Loaded with LD_PRELOAD. Nothing changes until shim_disk or shim_clock is called. What is below the prefix
   counts: writes, new files and folders, changes of length, and fsync. Renames are left alone, since a full disk
   does not refuse them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static char prefix[PATH_MAX];
static long left = -1, count = 0, back_at = -1;
static time_t offset = 0;

void shim_disk(const char *below, long writes) {
    snprintf(prefix, sizeof prefix, "%s", below);
    left = writes;
    count = 0;
}
void shim_clock(const char *below, long writes, long seconds) { /* seconds are added after so many writes */
    snprintf(prefix, sizeof prefix, "%s", below);
    left = LONG_MAX;
    count = 0;
    back_at = writes;
    offset = seconds;
}
long shim_count(void) { return count; }

static int full(const char *path) {
    if (!prefix[0] || strncmp(path, prefix, strlen(prefix)) != 0) return 0;
    count++;
    if (count <= left) return 0;
    errno = ENOSPC;
    return 1;
}
static int full_fd(int fd) {
    char name[64], path[PATH_MAX];
    if (!prefix[0]) return 0;
    int before = errno;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, path, sizeof path - 1);
    errno = before;
    if (n < 0) return 0;
    path[n] = 0;
    return full(path);
}
static int full_new(const char *path) {
    struct stat about;
    int before = errno;
    if (!prefix[0] || stat(path, &about) == 0) return 0;
    errno = before;
    return full(path);
}
#define REAL(kind, name, ...)                                       \
    static kind (*real)(__VA_ARGS__) = NULL;                        \
    if (!real) real = (kind (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *from, size_t size) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return full_fd(fd) ? -1 : real(fd, from, size);
}
ssize_t writev(int fd, const struct iovec *from, int parts) {
    REAL(ssize_t, "writev", int, const struct iovec *, int);
    return full_fd(fd) ? -1 : real(fd, from, parts);
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at) {
    REAL(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return full_fd(fd) ? -1 : real(fd, from, size, at);
}
int ftruncate64(int fd, off64_t size) {
    REAL(int, "ftruncate64", int, off64_t);
    return full_fd(fd) ? -1 : real(fd, size);
}
int fsync(int fd) {
    REAL(int, "fsync", int);
    return full_fd(fd) ? -1 : real(fd);
}
int mkdir(const char *path, mode_t mode) {
    REAL(int, "mkdir", const char *, mode_t);
    return full_new(path) ? -1 : real(path, mode);
}
static mode_t mode_of(int flags, va_list more) { return flags & O_CREAT ? va_arg(more, mode_t) : 0; }
#define OPEN(name)                                                  \
    int name(const char *path, int flags, ...) {                    \
        REAL(int, #name, const char *, int, ...);                   \
        va_list more;                                               \
        va_start(more, flags);                                      \
        mode_t mode = mode_of(flags, more);                         \
        va_end(more);                                               \
        return flags & O_CREAT && full_new(path) ? -1 : real(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

static time_t shift(void) { return back_at >= 0 && count >= back_at ? offset : 0; }
int clock_gettime(clockid_t which, struct timespec *now) {
    REAL(int, "clock_gettime", clockid_t, struct timespec *);
    int code = real(which, now);
    if (which == CLOCK_REALTIME) now->tv_sec += shift();
    return code;
}
time_t time(time_t *into) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (into) *into = now.tv_sec;
    return now.tv_sec;
}
