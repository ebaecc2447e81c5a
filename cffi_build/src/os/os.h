/* os.h - the few things the core asks of the kernel, as a table of functions.
 *
 * Only os_linux.c fills it with system calls; the suites that fail the k-th call or explore interleavings put their
 * own table in its place. Every function returns 0 or more when it worked and -errno when not. */
#ifndef SHMQ_OS_H
#define SHMQ_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the kernel says of a file. */
struct os_file {
    uint64_t device;
    uint64_t inode;
    uint64_t bytes;
    uint64_t links;
    int64_t changed_ns; /* when its name, rights or content last changed */
    uint32_t mode;
    uint32_t owner;
    bool regular;
};

struct os_calls {
    int64_t (*clock_wall_ns)(void);
    int64_t (*clock_monotonic_ns)(void);
    int64_t (*clock_boottime_ns)(void); /* goes on while the machine sleeps */
    /* Sleep while *word == seen, until the monotonic deadline (negative = none): 0, -ETIMEDOUT or -EINTR. Answers 0 after
     * half a second at the latest, as if woken: who is stopped wakes nobody, so who sleeps looks again by itself. */
    int (*futex_wait)(uint32_t *word, uint32_t seen, int64_t deadline_ns);
    int (*futex_wake_all)(uint32_t *word);
    /* Until the deadline, without that look, for sleepers that share a word: a wake is for those whose bits meet the
     * waker's, up to `most` of them. */
    int (*futex_wait_bits)(uint32_t *word, uint32_t seen, int64_t deadline_ns, uint32_t bits);
    int (*futex_wake_bits)(uint32_t *word, int most, uint32_t bits);
    /* Have these bytes of a file's shared mapping, and what is needed to find them, on the disk: 0 or what it answered. */
    int (*sync_mapped)(uint8_t *begin, size_t bytes);
    int (*sync_directory)(int fd); /* the names in it */
    /* Have the kernel begin to write what is dirty in a file, and wait for nothing: a favour, not a promise. */
    int (*start_writing)(int fd);
    /* Sleep as futex_wait does on up to FUTEXES_MAX words: until one of them has moved; -ENOSYS where there is none. */
    int (*futex_wait_any)(uint32_t *const *words, const uint32_t *seen, uint32_t count, int64_t deadline_ns);
    /* OFD write lock on one byte of fd: 0 or -EAGAIN when somebody else holds it. */
    int (*lock_byte)(int fd, uint64_t byte);
    /* The same as a read lock, which any number may hold together. */
    int (*share_byte)(int fd, uint64_t byte);
    int (*unlock_byte)(int fd, uint64_t byte);
    int (*unlock_all)(int fd);
    /* A second opening of the file that fd has open, with the same access: a descriptor that shares nothing with fd. */
    int (*open_again)(int fd);
    /* Is a write lock held on this byte, by any open file other than fd's own? 1 or 0. */
    int (*byte_is_locked)(int fd, uint64_t byte);
    /* A mapping that keeps the open file of fd, and with it its locks, when fd is closed; no forked child has it. */
    int (*keep_open)(int fd, void **kept);
    void (*let_go)(void *kept);
    /* Which file fd has open, whatever its name. */
    int (*identify)(int fd, uint64_t file[2]);
    /* That file by its path, which begins at the open directory if it is not absolute; -ESTALE: another one is there. */
    int (*open_same)(int directory, const char *path, const uint64_t file[2], bool writable);
    /* Of a file by its descriptor, or by its path where that is not NULL: which of DISK_... its file system is, where the
     * kernel says so by itself; 0 for any other. */
    int (*disk_type)(int fd, const char *path);
    /* Whether a file lies in memory by what its file system says, which some repeat from another machine. */
    bool (*in_memory)(int fd);
    /* Call `each` with every name in that directory, as long as it wants more: 0 or -errno, and perhaps some of them. The
     * directory is opened anew for it: a descriptor has one place in it for all its users. */
    int (*list)(int directory, bool (*each)(void *context, const char *name), void *context);
    /* Let somebody else use this processor, if anybody wants to. */
    void (*yield)(void);
    /* A whole file, in *at: shared, or private so that what is stored there never reaches the file. 0 or -errno. */
    int (*map_file)(int fd, size_t bytes, bool writable, bool private, uint8_t **at);
    void (*unmap_file)(uint8_t *at, size_t bytes);
    /* A short writable window on these bytes of a shared mapping that is otherwise to be read, of a file that was opened
     * for writing: where the first byte is there, or NULL. */
    uint8_t *(*map_window)(const uint8_t *begin, size_t bytes);
    void (*unmap_window)(uint8_t *window, size_t bytes);
    /* The pages around these bytes of a shared mapping, mapped a second time: where the first byte is there, or NULL. */
    uint8_t *(*map_again)(uint8_t *begin, size_t bytes);
    /* From here on what is stored through that second mapping changes no file; it shows what it showed. 0 or -errno. */
    int (*make_private)(uint8_t *again, size_t bytes);
    void (*unmap_again)(uint8_t *again, size_t bytes);
    /* Have these pages of a shared mapping ready for writing; a favour, not a promise. Both ends on page bounds. */
    void (*populate)(void *pages, size_t bytes);
    /* Rename within a directory; -EEXIST when the new name is taken, which rename(2) would overwrite. */
    int (*rename_new)(int directory, const char *from, const char *to);
    int (*close)(int fd);
    /* What has that name in a directory, itself and not what a link leads to; what fd has open. */
    int (*look_at)(int directory, const char *name, struct os_file *found);
    int (*look_into)(int fd, struct os_file *found);
    /* A byte that reads 1 in this process and 0 in every forked child, at no cost to either. */
    const uint8_t *(*guard_new)(void);
    void (*guard_free)(const uint8_t *guard);
    /* Have child() called in every forked child of this process. No fork begins while the gate is shut (1), until it is
     * opened (0); who shuts it waits for whoever has, and for a fork. */
    int (*at_fork_child)(void (*child)(void));
    void (*fork_gate)(int shut);
};

#define FUTEXES_MAX 128u
#define DISK_EXT 1
#define DISK_XFS 2

extern const struct os_calls *os;

#endif
