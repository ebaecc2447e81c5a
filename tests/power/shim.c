/* shim.c - between a process and its C library (LD_PRELOAD): tells of system calls that change files, and fails the k-th.
 *
 * Telling: `shim_listen(f)` has f(kind, fd, when) called before (when 0) and after (1) every call that makes something
 * durable or changes a name, a size or bytes. Calls that f makes itself are not told. Around msync, shim_pages() says which.
 *
 * Failing: between shim_arm() and shim_disarm(), this thread's calls are counted from 1 and their kinds noted; calls
 * `first` to `last` are not made and answer `error`. SHIM_SHORT instead of an error writes half of what was asked.
 * SHIM_AFTER | error makes the call first, and then says that it failed: what fsync and close do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHIM_SHORT 4096
#define SHIM_AFTER 8192
#define NOTED_MAX 65536

enum kind {
    OPEN, MAKE, TMPFILE, MKDIR, LINK, RENAME, UNLINK, RMDIR, FALLOCATE, TRUNCATE, WRITE, READ, FSYNC, FDATASYNC, MAP,
    LOCK, STAT, CHMOD, MSYNC, KINDS
};

static void (*listener)(int kind, int fd, int when);
static __thread bool inside, armed;
static __thread uint32_t counted, first_failing, last_failing;
static __thread int failing_error;
static uint8_t noted[NOTED_MAX];
static __thread uintptr_t pages[2];

void shim_listen(void (*f)(int, int, int)) { listener = f; }
void shim_arm(uint32_t first, uint32_t last, int error)
{
    counted = 0;
    first_failing = first;
    last_failing = last;
    failing_error = error;
    armed = true;
}
uint32_t shim_disarm(void)
{
    armed = false;
    return counted;
}
void shim_pages(uint64_t *begin, uint64_t *end)
{
    *begin = pages[0];
    *end = pages[1];
}
int shim_kind(uint32_t call) { return call >= 1 && call <= NOTED_MAX ? noted[call - 1] : -1; }

static void tell(int kind, int fd, int when)
{
    if (listener != NULL && !inside) {
        const int error = errno;
        inside = true;
        listener(kind, fd, when);
        inside = false;
        errno = error;
    }
}

/* What to answer instead of making the call; 0 is to make it. */
static int refusal(int kind)
{
    if (!armed || inside) {
        return 0;
    }
    const uint32_t number = ++counted;
    if (number <= NOTED_MAX) {
        noted[number - 1] = (uint8_t)kind;
    }
    return number >= first_failing && number <= last_failing ? failing_error : 0;
}

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        _exit(86);
    }
    return found;
}

#define REAL(name) static __typeof__(&name) real; if (real == NULL) { *(void **)&real = next(#name); }

/* A call that answers -1 and errno. */
#define CALL(type, kind, fd, failed, call) \
    do { \
        const int refused = refusal(kind); \
        if (refused != 0 && (refused & SHIM_AFTER) == 0) { \
            errno = refused; \
            return failed; \
        } \
        tell(kind, fd, 0); \
        type answer = call; \
        tell(kind, fd, 1); \
        if (refused != 0) { \
            errno = refused & ~SHIM_AFTER; \
            return failed; \
        } \
        return answer; \
    } while (0)

/* A call that changes nothing, so nobody is told. */
#define QUIET(kind, failed, call) \
    do { \
        const int refused = refusal(kind); \
        if (refused != 0) { \
            errno = refused & ~SHIM_AFTER; \
            return failed; \
        } \
        return call; \
    } while (0)

#define MODE(flags, last) \
    mode_t mode = 0; \
    if (((flags) & (O_CREAT | __O_TMPFILE)) != 0) { \
        va_list rest; \
        va_start(rest, last); \
        mode = va_arg(rest, mode_t); \
        va_end(rest); \
    }

static int kind_of_open(int flags)
{
    return (flags & __O_TMPFILE) == __O_TMPFILE ? TMPFILE : (flags & O_CREAT) != 0 ? MAKE : OPEN;
}
#define OPENING(call) \
    do { \
        if (kind_of_open(flags) == OPEN) { \
            QUIET(OPEN, -1, call); \
        } \
        CALL(int, kind_of_open(flags), -1, -1, call); \
    } while (0)

int open(const char *path, int flags, ...) { MODE(flags, flags) REAL(open) OPENING(real(path, flags, mode)); }
int open64(const char *path, int flags, ...) { MODE(flags, flags) REAL(open64) OPENING(real(path, flags, mode)); }
int openat(int dir, const char *path, int flags, ...)
{
    MODE(flags, flags) REAL(openat) OPENING(real(dir, path, flags, mode));
}
int openat64(int dir, const char *path, int flags, ...)
{
    MODE(flags, flags) REAL(openat64) OPENING(real(dir, path, flags, mode));
}

int mkdir(const char *path, mode_t mode) { REAL(mkdir) CALL(int, MKDIR, -1, -1, real(path, mode)); }
int mkdirat(int dir, const char *path, mode_t mode) { REAL(mkdirat) CALL(int, MKDIR, -1, -1, real(dir, path, mode)); }
int rmdir(const char *path) { REAL(rmdir) CALL(int, RMDIR, -1, -1, real(path)); }
int link(const char *from, const char *to) { REAL(link) CALL(int, LINK, -1, -1, real(from, to)); }
int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    REAL(linkat) CALL(int, LINK, -1, -1, real(from_dir, from, to_dir, to, flags));
}
int rename(const char *from, const char *to) { REAL(rename) CALL(int, RENAME, -1, -1, real(from, to)); }
int renameat(int from_dir, const char *from, int to_dir, const char *to)
{
    REAL(renameat) CALL(int, RENAME, -1, -1, real(from_dir, from, to_dir, to));
}
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    REAL(renameat2) CALL(int, RENAME, -1, -1, real(from_dir, from, to_dir, to, flags));
}
int unlink(const char *path) { REAL(unlink) CALL(int, UNLINK, -1, -1, real(path)); }
int unlinkat(int dir, const char *path, int flags)
{
    REAL(unlinkat) CALL(int, (flags & AT_REMOVEDIR) != 0 ? RMDIR : UNLINK, -1, -1, real(dir, path, flags));
}

int ftruncate(int fd, off_t size) { REAL(ftruncate) CALL(int, TRUNCATE, fd, -1, real(fd, size)); }
int ftruncate64(int fd, off64_t size) { REAL(ftruncate64) CALL(int, TRUNCATE, fd, -1, real(fd, size)); }
/* These two answer the error itself. */
#define ALLOCATING(call) \
    do { \
        const int refused = refusal(FALLOCATE); \
        if (refused != 0) { \
            return refused & ~SHIM_AFTER; \
        } \
        tell(FALLOCATE, fd, 0); \
        const int answer = call; \
        tell(FALLOCATE, fd, 1); \
        return answer; \
    } while (0)
int posix_fallocate(int fd, off_t at, off_t size) { REAL(posix_fallocate) ALLOCATING(real(fd, at, size)); }
int posix_fallocate64(int fd, off64_t at, off64_t size) { REAL(posix_fallocate64) ALLOCATING(real(fd, at, size)); }

#define WRITING(position, call_half, call) \
    do { \
        const int refused = refusal(WRITE); \
        if (refused == SHIM_SHORT && size > 1) { \
            tell(WRITE, fd, 0); \
            const ssize_t half = call_half; \
            tell(WRITE, fd, 1); \
            return half; \
        } \
        if (refused != 0 && refused != SHIM_SHORT) { \
            errno = refused & ~SHIM_AFTER; \
            return -1; \
        } \
        tell(WRITE, fd, 0); \
        const ssize_t answer = call; \
        tell(WRITE, fd, 1); \
        return answer; \
    } while (0)
ssize_t pwrite(int fd, const void *from, size_t size, off_t at)
{
    REAL(pwrite) WRITING(at, real(fd, from, size / 2, at), real(fd, from, size, at));
}
ssize_t pwrite64(int fd, const void *from, size_t size, off64_t at)
{
    REAL(pwrite64) WRITING(at, real(fd, from, size / 2, at), real(fd, from, size, at));
}
ssize_t write(int fd, const void *from, size_t size)
{
    REAL(write) WRITING(0, real(fd, from, size / 2), real(fd, from, size));
}
ssize_t pread(int fd, void *to, size_t size, off_t at) { REAL(pread) QUIET(READ, -1, real(fd, to, size, at)); }
ssize_t pread64(int fd, void *to, size_t size, off64_t at) { REAL(pread64) QUIET(READ, -1, real(fd, to, size, at)); }

int fsync(int fd) { REAL(fsync) CALL(int, FSYNC, fd, -1, real(fd)); }
int fdatasync(int fd) { REAL(fdatasync) CALL(int, FDATASYNC, fd, -1, real(fd)); }

int msync(void *at, size_t size, int flags)
{
    REAL(msync)
    pages[0] = (uintptr_t)at;
    pages[1] = (uintptr_t)at + size;
    CALL(int, MSYNC, -1, -1, real(at, size, flags));
}

/* Memory without a file is the allocator's business. */
#define MAPPING(call) \
    do { \
        if ((flags & MAP_ANONYMOUS) != 0) { \
            return call; \
        } \
        QUIET(MAP, MAP_FAILED, call); \
    } while (0)
void *mmap(void *at, size_t size, int protection, int flags, int fd, off_t from)
{
    REAL(mmap) MAPPING(real(at, size, protection, flags, fd, from));
}
void *mmap64(void *at, size_t size, int protection, int flags, int fd, off64_t from)
{
    REAL(mmap64) MAPPING(real(at, size, protection, flags, fd, from));
}

/* Only what takes or tests locks; the rest of fcntl cannot fail for want of anything. */
#define LOCKING(call) \
    do { \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (command != F_OFD_SETLK && command != F_OFD_GETLK && command != F_OFD_SETLKW) { \
            return call; \
        } \
        QUIET(LOCK, -1, call); \
    } while (0)
int fcntl(int fd, int command, ...) { REAL(fcntl) LOCKING(real(fd, command, argument)); }
int fcntl64(int fd, int command, ...) { REAL(fcntl64) LOCKING(real(fd, command, argument)); }

int fstat64(int fd, struct stat64 *info) { REAL(fstat64) QUIET(STAT, -1, real(fd, info)); }
int fstatat64(int dir, const char *path, struct stat64 *info, int flags)
{
    REAL(fstatat64) QUIET(STAT, -1, real(dir, path, info, flags));
}
int fchmod(int fd, mode_t mode) { REAL(fchmod) QUIET(CHMOD, -1, real(fd, mode)); }
