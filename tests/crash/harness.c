/* harness.c - one process at one queue, through the public C API only, doing what a script says.
 *
 *   harness DIRECTORY SCRIPT
 *
 * The process that stepper.c walks where an operation's shared effects are all in the core. Opening is done here by
 * hand (the files were made by the real library); everything from "---" on is walked. One operation a line, as in
 * operations.py, which says what each must leave behind; payloads are the same bytes there. Operations count from the
 * number in the script's first line. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shmq.h"

#define MARK 0x73686d71u
#define NAMES_MAX 8
#define NUMBERS_MAX 16

_Noreturn static void fail(const char *what, int64_t code)
{
    fprintf(stderr, "harness: %s: %lld %s\n", what, (long long)code, shmq_error());
    exit(3);
}

static void *map(const char *path, int *fd, size_t *bytes, bool writable)
{
    struct stat info;
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, &info) != 0) {
        fail(path, *fd);
    }
    *bytes = (size_t)info.st_size;
    void *memory = mmap(NULL, *bytes, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, *fd, 0);
    if (memory == MAP_FAILED) {
        fail(path, -1);
    }
    return memory;
}

/* ------------------------------------------------------------------ the queue, opened by hand */
static char home[512];
static uint8_t queue_id[16];
static void *control;
static shmq_member *member;
static shmq_chunk *tail;    /* the last chunk, to write */
static char *tail_memory;
static shmq_chunk *view;    /* the same, as consumers map it: read-only, with a window for padding the dead */
static uint64_t sequence;

static void open_queue(void)
{
    char path[1024];
    int fd;
    int test_fd;
    size_t bytes;
    uint32_t length;
    snprintf(path, sizeof path, "%s/queue.shmq", home);
    if (shmq_queue_check(map(path, &fd, &bytes, false), queue_id, &length) != SHMQ_OK) {
        fail(path, -1);
    }
    close(fd);
    snprintf(path, sizeof path, "%s/control.shmq", home);
    control = map(path, &fd, &bytes, true);
    test_fd = open(path, O_RDONLY | O_CLOEXEC);
    member = shmq_member_new(control);
    if (member == NULL || shmq_member_open(member, fd, test_fd) != SHMQ_OK) {
        fail("shmq_member_open", -1);
    }
    close(fd);
    close(test_fd);
}

static void open_chunk(void)
{
    char last[256] = "";
    char path[1024];
    snprintf(path, sizeof path, "%s/chunks", home);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, last) > 0) {
            snprintf(last, sizeof last, "%s", entry->d_name);
        }
    }
    closedir(directory);
    snprintf(path, sizeof path, "%s/chunks/%s", home, last);
    const uint64_t base = strtoull(last, NULL, 16);
    sequence = strtoull(last + 17, NULL, 16);
    int fd;
    int code;
    size_t bytes;
    void *memory = map(path, &fd, &bytes, true);
    tail_memory = memory;
    tail = shmq_chunk_new(memory, bytes, false, true, true, base, sequence, queue_id, member, &code);
    memory = map(path, &fd, &bytes, false);
    view = shmq_chunk_new(memory, bytes, true, false, true, base, sequence, queue_id, member, &code);
    if (tail == NULL || view == NULL) {
        fail(path, code);
    }
}

static void join(void)
{
    uint64_t since;
    uint32_t generation;
    const int slot = shmq_member_lock(member, &since, &generation);
    if (slot < 0) {
        fail("shmq_member_lock", slot);
    }
    if (generation != 0 && since != UINT64_MAX && since <= sequence) {
        const int64_t buried = shmq_bury(tail, (uint32_t)slot << 11 | generation);
        if (buried < 0) {
            fail("shmq_bury", buried);
        }
    }
    shmq_member_join(member, (uint32_t)getpid(), 1, 1, 1, sequence);
}

/* ------------------------------------------------------------------ consumers */
struct consumer {
    char name[64];
    void *checkpoint;
    shmq_reader reader;
};
static struct consumer consumers[NAMES_MAX];

static struct consumer *consumer(const char *name)
{
    struct consumer *it = consumers;
    while (it->name[0] != 0) {
        if (strcmp(it->name, name) == 0) {
            return it;
        }
        if (++it == consumers + NAMES_MAX) {
            fail("too many consumers", 0);
        }
    }
    char path[1024];
    int fd;
    size_t bytes;
    snprintf(path, sizeof path, "%s/consumers/%s.checkpoint", home, name);
    snprintf(it->name, sizeof it->name, "%s", name);
    it->checkpoint = map(path, &fd, &bytes, true);
    it->reader.checkpoint = it->checkpoint;
    const int code = shmq_reader_seek(view, &it->reader, shmq_checkpoint_head(it->checkpoint));
    if (code != SHMQ_OK) {
        fail("shmq_reader_seek", code);
    }
    return it;
}

/* ------------------------------------------------------------------ operations */
static char arena[1 << 22]; /* payloads, filled before the walk: making them is not what is walked */
static char *arena_end = arena;

/* Message `message` of operation `number`: the same bytes as in operations.py. */
static void fill(char *to, uint64_t number, uint64_t message, uint64_t length)
{
    for (uint64_t i = 0; i < length; i++) {
        to[i] = (char)(uint8_t)(number * 37 + message * 11 + i * 7 + 1);
    }
}

static void expect(int64_t code, const char *what)
{
    if (code < 0) {
        fail(what, code);
    }
}

static void reserve(uint64_t number, uint64_t room, int64_t length) /* length < 0: abort */
{
    const shmq_fields fields = {.key = "key", .key_length = 3, .type = 7, .time_ns = 1};
    uint64_t claimed;
    uint64_t record;
    uint64_t payload;
    expect(shmq_reserve(tail, &fields, room, &claimed, &record, &payload), "shmq_reserve");
    if (length < 0) {
        expect(shmq_abort(tail, record, claimed), "shmq_abort");
        return;
    }
    fill(tail_memory + payload, number, 0, (uint64_t)length);
    expect(shmq_commit(tail, record, claimed, (uint64_t)length), "shmq_commit");
}

static void take(struct consumer *it)
{
    const int64_t code = shmq_next(view, &it->reader, 0);
    if (code < 0 && code != SHMQ_EMPTY) {
        fail("shmq_next", code);
    }
}

static void take_many(struct consumer *it, uint32_t limit)
{
    static uint64_t places[1024];
    const int64_t code = shmq_next_many(view, &it->reader, limit, places, NULL);
    if (code < 0 && code != SHMQ_EMPTY) {
        fail("shmq_next_many", code);
    }
}

struct operation;
typedef void (*verb)(const struct operation *operation);
struct operation {
    verb perform; /* NULL: the walk begins */
    uint64_t number;
    char name[64];
    uint32_t numbers[NUMBERS_MAX];
    uint32_t count;
    const char *payloads; /* what a put puts: as many messages as there are numbers, end to end */
};

static void do_put(const struct operation *it) { expect(shmq_put(tail, it->payloads, it->numbers[0]), "shmq_put"); }
static void do_overflow(const struct operation *it)
{
    const int64_t code = shmq_put(tail, it->payloads, it->numbers[0]);
    if (code != SHMQ_ROLL) {
        fail("the message fitted", code);
    }
}
static void do_put_many(const struct operation *it)
{
    expect(shmq_put_many(tail, it->count, it->payloads, it->numbers, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL),
           "shmq_put_many");
}
static void do_reserve(const struct operation *it) { reserve(it->number, it->numbers[0], it->numbers[1]); }
static void do_abort(const struct operation *it) { reserve(it->number, it->numbers[0], -1); }
static void do_seal(const struct operation *it) { (void)it; expect(shmq_seal(tail), "shmq_seal"); }
static void do_take(const struct operation *it)
{
    if (it->count == 0) {
        take(consumer(it->name));
    } else {
        take_many(consumer(it->name), it->numbers[0]);
    }
}
static void do_consumer(const struct operation *it) { consumer(it->name); }
static void do_join(const struct operation *it) { (void)it; join(); }
static void do_leave(const struct operation *it) { (void)it; shmq_member_free(member); }

static verb verb_of(const char *name)
{
    static const struct { const char *name; verb perform; } verbs[] = {
        {"put", do_put}, {"overflow", do_overflow}, {"put_many", do_put_many}, {"reserve", do_reserve},
        {"abort", do_abort}, {"seal", do_seal}, {"take", do_take}, {"take_many", do_take},
        {"consumer", do_consumer}, {"join", do_join}, {"leave", do_leave},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        if (strcmp(verbs[i].name, name) == 0) {
            return verbs[i].perform;
        }
    }
    fail(name, 0);
}

/* Before the walk begins, so that what is walked is nothing but the operations. */
static size_t parse(const char *path, struct operation *operations, size_t room)
{
    char line[512];
    size_t found = 0;
    FILE *script = fopen(path, "r");
    if (script == NULL || fgets(line, sizeof line, script) == NULL) {
        fail(path, -1);
    }
    uint64_t number = strtoull(line, NULL, 10);
    while (found < room && fgets(line, sizeof line, script) != NULL) {
        struct operation *it = &operations[found++];
        const char *word = strtok(line, " \n");
        if (strcmp(word, "---") == 0) {
            continue;
        }
        it->perform = verb_of(word);
        it->number = number++;
        while (it->count < NUMBERS_MAX && (word = strtok(NULL, " \n")) != NULL) {
            if ((*word < '0' || *word > '9') && it->name[0] == 0) {
                snprintf(it->name, sizeof it->name, "%s", word);
            } else {
                it->numbers[it->count++] = (uint32_t)strtoul(word, NULL, 10);
            }
        }
        it->payloads = arena_end;
        for (uint32_t i = 0; i < it->count; i++) {
            if (it->numbers[i] > (size_t)(arena + sizeof arena - arena_end)) {
                fail("the script's payloads are too large", 0);
            }
            fill(arena_end, it->number, i, it->numbers[i]);
            arena_end += it->numbers[i];
        }
    }
    fclose(script);
    return found;
}

int main(int argc, char **argv)
{
    static struct operation operations[1024];
    if (argc != 3) {
        fail("usage: harness DIRECTORY SCRIPT", 0);
    }
    const size_t count = parse(argv[2], operations, sizeof operations / sizeof *operations);
    snprintf(home, sizeof home, "%s", argv[1]);
    open_queue();
    open_chunk();
    bool walked = false;
    long returned = 0;
    for (size_t i = 0; i < count; i++) {
        if (operations[i].perform == NULL) {
            walked = true;
            raise(SIGSTOP);
            continue;
        }
        operations[i].perform(&operations[i]);
        if (walked) {
            syscall(SYS_getppid, MARK, 'r', ++returned);
        }
    }
    syscall(SYS_getppid, MARK, 'e', 0);
    return 0;
}
