/* A disk that can be cut off and can fail, for a process that is started with this library in LD_PRELOAD.
 *
 * Power cut: CROSSRANK_CUT_ROOT is a folder, CROSSRANK_CUT_SHADOW another one, outside. Whenever fsync or fdatasync of a file below
 * the root succeeds, the content it had when the call began is kept in the shadow as f.<id>; when fsync of a folder succeeds, its
 * entries are kept as d.<id>, one line "<id> <d|f> <name>" each. An id is inode number and time of birth, so that a number used again is
 * another file. What was never synced is not in the shadow: the shadow is the worst that a power cut may leave.
 *
 * Failure: crossrank_fail(n, code) makes the n-th call from now on that changes something below the root fail with this errno;
 * crossrank_left() tells how many calls are left until then (0 or less: it has failed).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static atomic_int left, code;
static atomic_int serial;

void crossrank_fail(int n, int with) { code = with; left = n; }
int crossrank_left(void) { return left; }

static const char *root(void) { return getenv("CROSSRANK_CUT_ROOT"); }
static int below(const char *path) { const char *r = root(); return r && path && strncmp(path, r, strlen(r)) == 0; }

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, PATH_MAX - 1);
    if (n < 0) return 0;
    path[n] = 0;
    return below(path);
}

/* Whether this call has to fail now; only calls below the root count. */
static int fails(int is_below) {
    if (left <= 0 || !is_below) return 0;
    if (atomic_fetch_sub(&left, 1) != 1) return 0;
    errno = code;
    return 1;
}
static int fails_fd(int fd) { char path[PATH_MAX]; return left > 0 && fails(path_of(fd, path)); }

static int id_of(int fd, const char *name, char *id, int *is_folder) {
    struct statx about;
    int flags = name[0] ? AT_SYMLINK_NOFOLLOW : AT_EMPTY_PATH;
    if (syscall(SYS_statx, fd, name, flags, STATX_INO | STATX_BTIME | STATX_TYPE, &about) != 0) return 0;
    *is_folder = S_ISDIR(about.stx_mode);
    sprintf(id, "%llu.%lld.%u", (unsigned long long)about.stx_ino, (long long)about.stx_btime.tv_sec, about.stx_btime.tv_nsec);
    return 1;
}

static void keep_file(const char *path, FILE *out) {
    char block[1 << 16];
    int in = open(path, O_RDONLY | O_CLOEXEC);
    for (ssize_t n; in >= 0 && (n = read(in, block, sizeof block)) > 0;) fwrite(block, 1, (size_t)n, out);
    if (in >= 0) close(in);
}

static void keep_folder(const char *path, FILE *out) {
    DIR *folder = opendir(path);
    char id[128];
    int is_folder;
    for (struct dirent *e; folder && (e = readdir(folder));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && id_of(dirfd(folder), e->d_name, id, &is_folder))
            fprintf(out, "%s %c %s\n", id, is_folder ? 'd' : 'f', e->d_name);
    if (folder) closedir(folder);
}

/* Keeps what is there now under a temporary name; it counts once the sync has succeeded. */
static int keep(int fd, char *temporary, char *final) {
    const char *shadow = getenv("CROSSRANK_CUT_SHADOW");
    char path[PATH_MAX], id[128];
    int is_folder;
    if (!shadow || !path_of(fd, path) || !id_of(fd, "", id, &is_folder)) return 0;
    snprintf(temporary, PATH_MAX, "%s/t.%d.%d", shadow, (int)getpid(), atomic_fetch_add(&serial, 1));
    snprintf(final, PATH_MAX, "%s/%c.%s", shadow, is_folder ? 'd' : 'f', id);
    FILE *out = fopen(temporary, "we");
    if (!out) return 0;
    (is_folder ? keep_folder : keep_file)(path, out);
    return fclose(out) == 0;
}

static int sync_with(int (*real)(int), int fd) {
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    char temporary[PATH_MAX], final[PATH_MAX];
    if (fails_fd(fd)) return -1;
    pthread_mutex_lock(&one); /* two syncs of one file must not be kept in the wrong order */
    int kept = keep(fd, temporary, final), result = real(fd), why = errno;
    if (kept && result == 0) rename(temporary, final);
    pthread_mutex_unlock(&one);
    errno = why;
    return result;
}

int fsync(int fd) { REAL(fsync); return sync_with(real, fd); }
int fdatasync(int fd) { REAL(fdatasync); return sync_with(real, fd); }

ssize_t write(int fd, const void *b, size_t n) { REAL(write); return fails_fd(fd) ? -1 : real(fd, b, n); }
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) { REAL(pwrite); return fails_fd(fd) ? -1 : real(fd, b, n, o); }
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) { REAL(pwrite64); return fails_fd(fd) ? -1 : real(fd, b, n, o); }
ssize_t pwritev(int fd, const struct iovec *v, int c, off_t o) { REAL(pwritev); return fails_fd(fd) ? -1 : real(fd, v, c, o); }
ssize_t pwritev64(int fd, const struct iovec *v, int c, off64_t o) { REAL(pwritev64); return fails_fd(fd) ? -1 : real(fd, v, c, o); }
int ftruncate(int fd, off_t n) { REAL(ftruncate); return fails_fd(fd) ? -1 : real(fd, n); }
int ftruncate64(int fd, off64_t n) { REAL(ftruncate64); return fails_fd(fd) ? -1 : real(fd, n); }
int rename(const char *a, const char *b) { REAL(rename); return fails(below(b)) ? -1 : real(a, b); }
int link(const char *a, const char *b) { REAL(link); return fails(below(b)) ? -1 : real(a, b); }
int unlink(const char *a) { REAL(unlink); return fails(below(a)) ? -1 : real(a); }

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0; \
        va_end(rest); \
        return flags & O_CREAT && fails(below(path)) ? -1 : real(path, flags, mode); \
    }
OPENS(open)
OPENS(open64)
