/* os_linux.c - the only file that makes a system call. What each is for stands in os.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * NS_PER_S + now.tv_nsec;
}
static int64_t clock_wall_ns(void) { return clock_ns(CLOCK_REALTIME); }
static int64_t clock_monotonic_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
static int64_t clock_boottime_ns(void) { return clock_ns(CLOCK_BOOTTIME); }

static int futex_wait_bits(uint32_t *word, uint32_t seen, int64_t deadline_ns, uint32_t bits)
{
    /* WAIT_BITSET takes an absolute time, so a wait that is interrupted and resumed ends when it should. */
    const struct timespec deadline = {.tv_sec = deadline_ns / NS_PER_S, .tv_nsec = deadline_ns % NS_PER_S};
    const long answer = syscall(SYS_futex, word, FUTEX_WAIT_BITSET, seen, &deadline, NULL, bits);
    return answer == 0 || errno == EAGAIN ? 0 : -errno;
}

/* Whoever wakes may be stopped on its way to the call, or before it has looked whether anybody sleeps. So nobody sleeps
 * longer than this without a look of its own at what it waits for. */
#define LOOK_NS INT64_C(500000000)
static bool looks_first(int64_t deadline_ns, int64_t *look_ns)
{
    *look_ns = clock_monotonic_ns() + LOOK_NS;
    return deadline_ns < 0 || deadline_ns > *look_ns;
}

static int futex_wait(uint32_t *word, uint32_t seen, int64_t deadline_ns)
{
    int64_t look_ns;
    const bool looks = looks_first(deadline_ns, &look_ns);
    const int answer = futex_wait_bits(word, seen, looks ? look_ns : deadline_ns, FUTEX_BITSET_MATCH_ANY);
    return looks && answer == -ETIMEDOUT ? 0 : answer;
}

static int futex_wake_bits(uint32_t *word, int most, uint32_t bits)
{
    return syscall(SYS_futex, word, FUTEX_WAKE_BITSET, most, NULL, NULL, bits) < 0 ? -errno : 0;
}

/* Linux 5.16; its header may be older than the kernel. */
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
struct waiter {
    uint64_t seen;
    uint64_t word;
    uint32_t flags;
    uint32_t reserved;
};
#define WAITER_U32 2u

static int futex_wait_any(uint32_t *const *words, const uint32_t *seen, uint32_t count, int64_t deadline_ns)
{
    struct waiter waiters[FUTEXES_MAX];
    for (uint32_t i = 0; i < count; i++) {
        waiters[i] = (struct waiter){.seen = seen[i], .word = (uintptr_t)words[i], .flags = WAITER_U32};
    }
    int64_t look_ns;
    const bool looks = looks_first(deadline_ns, &look_ns);
    const int64_t end_ns = looks ? look_ns : deadline_ns;
    const struct timespec end = {.tv_sec = end_ns / NS_PER_S, .tv_nsec = end_ns % NS_PER_S};
    const long answer = syscall(SYS_futex_waitv, waiters, count, 0, &end, CLOCK_MONOTONIC);
    return answer >= 0 || errno == EAGAIN || (looks && errno == ETIMEDOUT) ? 0 : -errno;
}

static int futex_wake_all(uint32_t *word)
{
    return syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0) < 0 ? -errno : 0;
}

/* Locks of the open file (OFD), not of the process: closing another descriptor of the same file keeps them, and the
 * kernel drops them when the last copy of this descriptor is gone, however its owner died. */
static int ofd(int fd, int command, short type, uint64_t byte, struct flock *lock)
{
    *lock = (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)byte, .l_len = 1};
    int answer;
    do {
        answer = fcntl(fd, command, lock);
    } while (answer < 0 && errno == EINTR);
    return answer < 0 ? -errno : 0;
}
static int lock_byte(int fd, uint64_t byte)
{
    struct flock lock;
    const int answer = ofd(fd, F_OFD_SETLK, F_WRLCK, byte, &lock);
    return answer == -EACCES ? -EAGAIN : answer;
}
static int share_byte(int fd, uint64_t byte)
{
    struct flock lock;
    const int answer = ofd(fd, F_OFD_SETLK, F_RDLCK, byte, &lock);
    return answer == -EACCES ? -EAGAIN : answer;
}
static int unlock_byte(int fd, uint64_t byte)
{
    struct flock lock;
    return ofd(fd, F_OFD_SETLK, F_UNLCK, byte, &lock);
}
static int unlock_all(int fd)
{
    struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}
static int open_again(int fd)
{
    char path[sizeof "/proc/self/fd/" + 3 * sizeof fd];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int flags = fcntl(fd, F_GETFL);
    const int again = flags < 0 ? -1 : open(path, (flags & O_ACCMODE) | O_CLOEXEC);
    return again < 0 ? -errno : again;
}
static int byte_is_locked(int fd, uint64_t byte)
{
    /* Ask as a reader would: a waiting reader must not make a dead owner look alive. */
    struct flock lock;
    const int answer = ofd(fd, F_OFD_GETLK, F_RDLCK, byte, &lock);
    return answer < 0 ? answer : lock.l_type != F_UNLCK;
}

static int keep_open(int fd, void **kept)
{
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *const page = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return -errno;
    }
    if (madvise(page, bytes, MADV_DONTFORK) != 0) {
        const int answer = -errno;
        munmap(page, bytes);
        return answer;
    }
    *kept = page;
    return 0;
}
static void let_go(void *kept) { munmap(kept, (size_t)sysconf(_SC_PAGESIZE)); }
static int identify(int fd, uint64_t file[2])
{
    struct stat info;
    if (fstat(fd, &info) != 0) {
        return -errno;
    }
    file[0] = info.st_dev;
    file[1] = info.st_ino;
    return 0;
}
static int open_same(int directory, const char *path, const uint64_t file[2], bool writable)
{
    const int fd = openat(directory, path, (writable ? O_RDWR : O_RDONLY) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    uint64_t found[2];
    int answer = identify(fd, found);
    if (answer == 0 && (found[0] != file[0] || found[1] != file[1])) {
        answer = -ESTALE;
    }
    if (answer != 0) {
        close(fd);
        return answer;
    }
    return fd;
}

/* The number of a file system is its own word, and some repeat what another machine said: but those, and all that have
 * others below them, are on no block device. */
static int disk_type(int fd, const char *path)
{
    struct stat info;
    struct statfs system;
    if ((path == NULL ? fstat(fd, &info) : stat(path, &info)) != 0 || major(info.st_dev) == 0
        || (path == NULL ? fstatfs(fd, &system) : statfs(path, &system)) != 0) {
        return 0;
    }
    return system.f_type == EXT4_SUPER_MAGIC ? DISK_EXT : system.f_type == XFS_SUPER_MAGIC ? DISK_XFS : 0;
}

static bool in_memory(int fd)
{
    struct statfs system;
    return fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

/* What the kernel answers, and no header of the C library says. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t bytes;
    uint8_t type;
    char name[];
};
static int list(int directory, bool (*each)(void *context, const char *name), void *context)
{
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    _Alignas(struct entry) char buffer[16384];
    long bytes;
    bool more = true;
    while (more && (bytes = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
        for (long at = 0; more && at < bytes;) {
            const struct entry *const entry = (const void *)(buffer + at);
            more = each(context, entry->name);
            at += entry->bytes;
        }
    }
    const int answer = bytes < 0 ? -errno : 0;
    close(fd);
    return answer;
}

static void yield(void) { sched_yield(); }

static size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static int map_file(int fd, size_t bytes, bool writable, bool private, uint8_t **at)
{
    const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
    void *const memory = mmap(NULL, bytes, protection, private ? MAP_PRIVATE : MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        return -errno;
    }
    *at = memory;
    return 0;
}
static void unmap_file(uint8_t *at, size_t bytes) { munmap(at, bytes); }

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older kernels refuse it, and the stores fault page by page as ever */
#endif
static void populate(void *pages, size_t bytes) { madvise(pages, bytes, MADV_POPULATE_WRITE); }

static size_t before_page(const uint8_t *begin) { return (uintptr_t)begin % page_size(); }
static size_t pages_of(const uint8_t *begin, size_t bytes)
{
    const size_t page = page_size();
    return (before_page(begin) + bytes + page - 1) / page * page;
}
static uint8_t *mapped_twice(uint8_t *begin, size_t bytes)
{
    /* An old size of 0 leaves the old mapping where it is. */
    uint8_t *const pages = mremap(begin - before_page(begin), 0, pages_of(begin, bytes), MREMAP_MAYMOVE);
    return pages == MAP_FAILED ? NULL : pages;
}
static uint8_t *map_again(uint8_t *begin, size_t bytes)
{
    uint8_t *const pages = mapped_twice(begin, bytes);
    if (pages == NULL) {
        return NULL;
    }
    populate(pages, pages_of(begin, bytes)); /* it is about to be filled: one call instead of a fault for each page */
    return pages + before_page(begin);
}
static int make_private(uint8_t *again, size_t bytes)
{
    uint8_t *const pages = again - before_page(again);
    const size_t size = pages_of(again, bytes);
    uint8_t *const copy = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (copy == MAP_FAILED) {
        return -errno;
    }
    memcpy(copy + before_page(again), again, bytes);
    if (mremap(copy, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, pages) == MAP_FAILED) {
        const int answer = -errno;
        munmap(copy, size);
        return answer;
    }
    return 0;
}
static void unmap_again(uint8_t *again, size_t bytes) { munmap(again - before_page(again), pages_of(again, bytes)); }
static uint8_t *map_window(const uint8_t *begin, size_t bytes)
{
    uint8_t *const pages = mapped_twice((uint8_t *)(uintptr_t)begin, bytes);
    if (pages != NULL && mprotect(pages, pages_of(begin, bytes), PROT_READ | PROT_WRITE) != 0) {
        munmap(pages, pages_of(begin, bytes));
        return NULL;
    }
    return pages == NULL ? NULL : pages + before_page(begin);
}

static int rename_new(int directory, const char *from, const char *to)
{
    return renameat2(directory, from, directory, to, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

/* msync is the call that syncs a part: for its pages it does what fdatasync does for all, metadata included. */
static int sync_mapped(uint8_t *begin, size_t bytes)
{
    const size_t before = (uintptr_t)begin % page_size();
    int answer;
    do {
        answer = msync(begin - before, before + bytes, MS_SYNC);
    } while (answer < 0 && errno == EINTR);
    return answer < 0 ? -errno : 0;
}

static int sync_directory(int fd) { return fsync(fd) < 0 ? -errno : 0; }
static int start_writing(int fd) { return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE) < 0 ? -errno : 0; }

static int told(int answer, const struct stat *info, struct os_file *found)
{
    if (answer < 0) {
        return -errno;
    }
    *found = (struct os_file){
        .device = info->st_dev,
        .inode = info->st_ino,
        .bytes = (uint64_t)info->st_size,
        .links = info->st_nlink,
        .changed_ns = (int64_t)info->st_ctim.tv_sec * NS_PER_S + info->st_ctim.tv_nsec,
        .mode = info->st_mode,
        .owner = info->st_uid,
        .regular = S_ISREG(info->st_mode),
    };
    return 0;
}
static int look_at(int directory, const char *name, struct os_file *found)
{
    struct stat info;
    return told(fstatat(directory, name, &info, AT_SYMLINK_NOFOLLOW), &info, found);
}
static int look_into(int fd, struct os_file *found)
{
    struct stat info;
    return told(fstat(fd, &info), &info, found);
}

static int close_fd(int fd) { return close(fd) < 0 ? -errno : 0; }

static const uint8_t *guard_new(void)
{
    uint8_t *page = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        return NULL;
    }
    if (madvise(page, page_size(), MADV_WIPEONFORK) != 0) {
        munmap(page, page_size());
        return NULL;
    }
    *page = 1;
    return page;
}
static void guard_free(const uint8_t *page) { munmap((void *)(uintptr_t)page, page_size()); }

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static void (*in_child)(void);
static int prepared;
static void before_fork(void) { pthread_mutex_lock(&gate); }
static void after_in_parent(void) { pthread_mutex_unlock(&gate); }
static void after_in_child(void)
{
    if (in_child != NULL) {
        in_child();
    }
    pthread_mutex_unlock(&gate); /* the thread that forked shut it, and that is this one */
}
/* When this is loaded, under the interpreter's lock: a fork that is under way already does not run what is new. */
__attribute__((constructor)) static void prepare_forks(void)
{
    prepared = -pthread_atfork(before_fork, after_in_parent, after_in_child);
}
static int at_fork_child(void (*child)(void))
{
    in_child = child;
    return prepared;
}
static void fork_gate(int shut)
{
    if (shut) {
        pthread_mutex_lock(&gate);
    } else {
        pthread_mutex_unlock(&gate);
    }
}

static const struct os_calls linux_calls = {
    .clock_wall_ns = clock_wall_ns,
    .clock_monotonic_ns = clock_monotonic_ns,
    .clock_boottime_ns = clock_boottime_ns,
    .futex_wait = futex_wait,
    .futex_wake_all = futex_wake_all,
    .futex_wait_bits = futex_wait_bits,
    .futex_wake_bits = futex_wake_bits,
    .sync_mapped = sync_mapped,
    .sync_directory = sync_directory,
    .start_writing = start_writing,
    .futex_wait_any = futex_wait_any,
    .lock_byte = lock_byte,
    .share_byte = share_byte,
    .unlock_byte = unlock_byte,
    .unlock_all = unlock_all,
    .open_again = open_again,
    .byte_is_locked = byte_is_locked,
    .keep_open = keep_open,
    .let_go = let_go,
    .identify = identify,
    .open_same = open_same,
    .disk_type = disk_type,
    .in_memory = in_memory,
    .yield = yield,
    .map_file = map_file,
    .unmap_file = unmap_file,
    .map_window = map_window,
    .unmap_window = unmap_again,
    .map_again = map_again,
    .make_private = make_private,
    .unmap_again = unmap_again,
    .populate = populate,
    .rename_new = rename_new,
    .close = close_fd,
    .look_at = look_at,
    .look_into = look_into,
    .list = list,
    .guard_new = guard_new,
    .guard_free = guard_free,
    .at_fork_child = at_fork_child,
    .fork_gate = fork_gate,
};
const struct os_calls *os = &linux_calls;
