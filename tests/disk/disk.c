/* disk.c - a disk that remembers every write and every flush, in their order: one file, served by FUSE.
 *
 *     disk BASE LOG PLACE [OVERLAY]
 *
 * BASE is what is on it at first, and is never written; OVERLAY, records as in LOG, is put on top of it. The file PLACE
 * becomes the disk; a loop device makes a block device of it, whose flushes arrive here as FSYNC. Each WRITE and each
 * FLUSH is a record in LOG. What a power cut leaves of them is decided afterwards, by whoever reads the log (images.py).
 *
 * A flush covers what had been answered when it was read, and nothing else: whatever is waiting is read before anything
 * is answered, so that of a write and a flush that are under way at once none is before the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { WRITE = 0, FLUSH = 1, MOST_LATE = 64 };
enum { MAX_WRITE = 1 << 20, BUFFER = MAX_WRITE + 4096, LOG_HEADER = 4096 };

static const uint64_t LOG_BYTES = 4ull << 30;   /* sparse: what is not written takes nothing */

struct record {
    uint64_t offset;   /* of a FLUSH: how many records it covers */
    uint32_t length;
    uint32_t kind;
};

/* The log begins with how many records there are; whoever is told that something is durable notes that number. */
struct log_header {
    _Atomic uint64_t count;
    _Atomic uint64_t bytes;   /* of all records */
};

static struct {
    int fuse;
    char *image;
    uint64_t size;
    struct log_header *log;
    uint64_t answered;   /* records that had been answered when the last request was read */
    struct {
        uint64_t unique;
        uint32_t written;   /* 0: a flush */
    } late[MOST_LATE];
    int late_count;
} disk;

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static char *map(const char *path, int flags, int prot, int kind, uint64_t *size)
{
    struct stat info;
    const int fd = open(path, flags, 0600);
    if (fd < 0 || fstat(fd, &info) < 0) {
        fail(path);
    }
    if (*size && ftruncate(fd, (off_t)*size) < 0) {
        fail(path);
    }
    *size = *size ? *size : (uint64_t)info.st_size;
    char *memory = *size ? mmap(NULL, *size, prot, kind | MAP_NORESERVE, fd, 0) : NULL;
    if (memory == MAP_FAILED) {
        fail(path);
    }
    close(fd);
    return memory;
}

static void note(uint32_t kind, uint64_t offset, const void *data, uint32_t length)
{
    const uint64_t bytes = atomic_load_explicit(&disk.log->bytes, memory_order_relaxed);
    if (LOG_HEADER + bytes + sizeof(struct record) + length > LOG_BYTES) {
        fprintf(stderr, "disk: the log is full\n");
        exit(1);
    }
    char *at = (char *)disk.log + LOG_HEADER + bytes;
    const struct record record = {offset, length, kind};
    memcpy(at, &record, sizeof record);
    memcpy(at + sizeof record, data, length);
    atomic_store_explicit(&disk.log->bytes, bytes + sizeof record + length, memory_order_relaxed);
    atomic_fetch_add_explicit(&disk.log->count, 1, memory_order_release);   /* the workload reads it before it promises */
}

static void lay_over(const char *path)
{
    uint64_t size = 0, at = 0;
    const char *records = map(path, O_RDONLY, PROT_READ, MAP_PRIVATE, &size);
    while (at < size) {
        struct record record;
        memcpy(&record, records + at, sizeof record);
        at += sizeof record;
        memcpy(disk.image + record.offset, records + at, record.length);
        at += record.length;
    }
    if (size) {
        munmap((void *)records, size);
    }
}

static void answer(uint64_t unique, int error, const void *data, size_t size)
{
    struct fuse_out_header head = {(uint32_t)(sizeof head + size), -error, unique};
    const struct iovec parts[] = {{&head, sizeof head}, {(void *)data, size}};
    if (writev(disk.fuse, parts, size ? 2 : 1) < 0 && errno != ENOENT && errno != ENODEV) {   /* ENOENT: interrupted */
        fail("disk: an answer");
    }
}

static void answer_late(void)
{
    /* First, so that a flush which comes of an answer finds that write covered. */
    disk.answered = atomic_load_explicit(&disk.log->count, memory_order_relaxed);
    for (int each = 0; each < disk.late_count; each++) {
        const struct fuse_write_out out = {disk.late[each].written, 0};
        answer(disk.late[each].unique, 0, &out, disk.late[each].written ? sizeof out : 0);
    }
    disk.late_count = 0;
}

static void later(uint64_t unique, uint32_t written)
{
    disk.late[disk.late_count].unique = unique;
    disk.late[disk.late_count++].written = written;
    if (disk.late_count == MOST_LATE) {
        answer_late();
    }
}

static struct fuse_attr attributes(void)
{
    return (struct fuse_attr){
        .ino = FUSE_ROOT_ID, .size = disk.size, .blocks = disk.size / 512, .mode = S_IFREG | 0600, .nlink = 1, .blksize = 4096,
    };
}

static void begin(uint64_t unique, const struct fuse_init_in *in)
{
    const uint32_t wanted = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ASYNC_DIO | FUSE_MAX_PAGES;
    const struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION, .minor = in->minor < FUSE_KERNEL_MINOR_VERSION ? in->minor : FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = in->max_readahead, .flags = in->flags & wanted, .max_background = 64, .congestion_threshold = 48,
        .max_write = MAX_WRITE, .time_gran = 1, .max_pages = MAX_WRITE / 4096,
    };
    answer(unique, 0, &out, sizeof out);
}

static void serve(const struct fuse_in_header *head, const void *body)
{
    switch (head->opcode) {
    case FUSE_INIT:
        begin(head->unique, body);
        return;
    case FUSE_GETATTR: {
        const struct fuse_attr_out out = {.attr_valid = 3600, .attr = attributes()};
        answer(head->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_OPEN: {
        const struct fuse_open_out out = {.open_flags = FOPEN_DIRECT_IO | FOPEN_PARALLEL_DIRECT_WRITES};
        answer(head->unique, 0, &out, sizeof out);
        return;
    }
    case FUSE_READ: {
        const struct fuse_read_in *in = body;
        const uint64_t left = in->offset < disk.size ? disk.size - in->offset : 0;
        answer(head->unique, 0, disk.image + in->offset, in->size < left ? in->size : left);
        return;
    }
    case FUSE_WRITE: {
        const struct fuse_write_in *in = body;
        if (in->offset > disk.size || in->size > disk.size - in->offset) {
            answer(head->unique, ENOSPC, NULL, 0);
            return;
        }
        memcpy(disk.image + in->offset, in + 1, in->size);
        note(WRITE, in->offset, in + 1, in->size);
        later(head->unique, in->size);
        return;
    }
    case FUSE_FSYNC:
        note(FLUSH, disk.answered, NULL, 0);
        later(head->unique, 0);
        return;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        return;
    case FUSE_RELEASE:
    case FUSE_DESTROY:
        answer(head->unique, 0, NULL, 0);
        return;
    default:   /* also FALLOCATE: the loop device then writes zeros itself */
        answer(head->unique, ENOSYS, NULL, 0);
    }
}

int main(int count, char **words)
{
    static _Alignas(8) char buffer[BUFFER];
    if (count < 4) {
        fprintf(stderr, "disk BASE LOG PLACE [OVERLAY]\n");
        return 2;
    }
    uint64_t log_bytes = LOG_BYTES;
    disk.image = map(words[1], O_RDONLY, PROT_READ | PROT_WRITE, MAP_PRIVATE, &disk.size);
    disk.log = (struct log_header *)map(words[2], O_RDWR | O_CREAT, PROT_READ | PROT_WRITE, MAP_SHARED, &log_bytes);
    if (count > 4) {
        lay_over(words[4]);
    }
    disk.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (disk.fuse < 0) {
        fail("/dev/fuse");
    }
    char options[128];
    snprintf(options, sizeof options, "fd=%d,rootmode=100600,user_id=0,group_id=0", disk.fuse);
    if (mount("disk", words[3], "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
        fail("mounting the disk");
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct pollfd waiting = {disk.fuse, POLLIN, 0};
        if (disk.late_count && poll(&waiting, 1, 0) == 0) {
            answer_late();
        }
        const ssize_t got = read(disk.fuse, buffer, sizeof buffer);
        if (got < 0 && errno == ENODEV) {
            return 0;   /* unmounted */
        }
        if (got < 0 && errno != EINTR && errno != ENOENT && errno != EAGAIN) {
            fail("disk: a request");
        }
        if (got >= (ssize_t)sizeof(struct fuse_in_header)) {
            serve((const struct fuse_in_header *)buffer, buffer + sizeof(struct fuse_in_header));
        }
    }
}
