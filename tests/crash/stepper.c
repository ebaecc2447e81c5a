/* stepper.c - walk a process from instruction to instruction, and say whenever the shared bytes have changed.
 *
 *   stepper [--entries FILE [--everything]] ROOT COMMAND...
 *
 * ROOT is a directory; everything below it (names, kinds, modes, sizes, bytes) is the shared state. A SIGKILL between
 * two instructions leaves exactly what is there between them, so that the states found here are all the states in
 * which a killed process can leave the directory; two kill points with equal bytes are one state. What the kernel does
 * within one system call counts as one step; to keep that honest, bytes of a file that has a name already and that
 * change inside a system call are reported as torn (a kill could stop such a write half-way).
 *
 * COMMAND marks its own way: raise(SIGSTOP) begins the walk; then syscall(SYS_getppid, MARK, 'r', n) says that n
 * operations have returned, and syscall(SYS_getppid, MARK, 'e', 0) ends it (the process is killed there).
 *
 * Without --entries every instruction is stepped. With it (for Python), FILE names a shared object and the offsets of
 * the functions through which it is called: what these calls execute, in whatever library, is stepped instruction by
 * instruction; between them the process runs and is stopped at both sides of every system call. The argument: the
 * interpreter stores into shared bytes only through the core or through a system call; the one exception is what a user
 * writes into a reserved buffer, which nobody reads before its commit. --everything checks that argument: it steps
 * everything as without --entries, and reports each change that came from elsewhere as outside.
 *
 * Speaks in lines on stdout: "state STEP WHERE" (waits for one byte on stdin, so that the other side may copy ROOT),
 * "returned N", "torn STEP PATH", "outside STEP WHERE", "end STEPS INSTRUCTIONS CALLS", "error ...". */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define MARK 0x73686d71u /* "shmq" */

_Noreturn static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("error ");
    vprintf(format, arguments);
    printf(" (%s)\n", strerror(errno));
    va_end(arguments);
    fflush(stdout);
    exit(2);
}

/* ------------------------------------------------------------------ the shared state */
struct file {
    char path[512];
    mode_t mode;
    ino_t inode;
    off_t size;
    const uint8_t *map; /* of the file as it is */
    uint8_t *shadow;    /* as it was when last looked at */
};
struct tree {
    struct file *files;
    size_t count, room;
};
static struct tree tree;
static const char *root;

static void forget(struct file *file)
{
    if (file->map != NULL) {
        munmap((void *)(uintptr_t)file->map, (size_t)file->size);
        free(file->shadow);
    }
}

static void list(struct tree *found, const char *path)
{
    struct stat info;
    if (lstat(path, &info) != 0) {
        return;
    }
    if (found->count == found->room) {
        found->room = found->room * 2 + 16;
        found->files = realloc(found->files, found->room * sizeof *found->files);
        if (found->files == NULL) {
            fail("out of memory");
        }
    }
    struct file *file = &found->files[found->count++];
    *file = (struct file){.mode = info.st_mode, .inode = info.st_ino};
    file->size = S_ISREG(info.st_mode) ? info.st_size : 0;
    snprintf(file->path, sizeof file->path, "%s", path);
    if (!S_ISDIR(info.st_mode)) {
        return;
    }
    DIR *directory = opendir(path);
    if (directory == NULL) {
        return;
    }
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            char below[1024];
            snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
            list(found, below);
        }
    }
    closedir(directory);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct file *)a)->path, ((const struct file *)b)->path);
}

static struct file *find(const char *path)
{
    for (size_t i = 0; i < tree.count; i++) {
        if (strcmp(tree.files[i].path, path) == 0) {
            return &tree.files[i];
        }
    }
    return NULL;
}

/* Look at names, modes and sizes again; map what is new. True when any of them changed. */
static bool rescan(void)
{
    struct tree now = {0};
    bool changed = false;
    list(&now, root);
    qsort(now.files, now.count, sizeof *now.files, by_path);
    for (size_t i = 0; i < now.count; i++) {
        struct file *file = &now.files[i];
        struct file *old = find(file->path);
        if (old != NULL && old->inode == file->inode && old->size == file->size && old->mode == file->mode) {
            file->map = old->map;
            file->shadow = old->shadow;
            old->map = NULL;
            old->path[0] = 0;
            continue;
        }
        changed = true;
        if (file->size > 0) {
            const int fd = open(file->path, O_RDONLY | O_CLOEXEC);
            file->map = mmap(NULL, (size_t)file->size, PROT_READ, MAP_SHARED, fd, 0);
            file->shadow = malloc((size_t)file->size);
            if (fd < 0 || file->map == MAP_FAILED || file->shadow == NULL) {
                fail("cannot map %s", file->path);
            }
            close(fd);
            memcpy(file->shadow, file->map, (size_t)file->size);
        }
    }
    for (size_t i = 0; i < tree.count; i++) {
        changed |= tree.files[i].path[0] != 0;
        forget(&tree.files[i]);
    }
    free(tree.files);
    tree = now;
    return changed;
}

/* The first file whose bytes changed since the last look, or NULL; all of them are up to date afterwards. */
static const char *bytes_changed(void)
{
    const char *changed = NULL;
    for (size_t i = 0; i < tree.count; i++) {
        struct file *file = &tree.files[i];
        if (file->map != NULL && memcmp(file->map, file->shadow, (size_t)file->size) != 0) {
            memcpy(file->shadow, file->map, (size_t)file->size);
            changed = changed == NULL ? file->path : changed;
        }
    }
    return changed;
}

/* ------------------------------------------------------------------ the process */
static pid_t child;
static uint64_t steps, instructions, calls;

static uint64_t peek(uint64_t address)
{
    errno = 0;
    const long word = ptrace(PTRACE_PEEKDATA, child, (void *)(uintptr_t)address, NULL);
    if (errno != 0) {
        fail("cannot read the process at %#" PRIx64, address);
    }
    return (uint64_t)word;
}
static uint64_t user(size_t offset)
{
    return (uint64_t)ptrace(PTRACE_PEEKUSER, child, (void *)(uintptr_t)offset, NULL);
}
static uint64_t rip(void) { return user(offsetof(struct user_regs_struct, rip)); }

/* Resume, and wait for the next stop: its signal. Signals on their way to the process are passed on. */
static int resume(enum __ptrace_request request)
{
    long deliver = 0;
    for (;;) {
        int status;
        if (ptrace(request, child, NULL, (void *)deliver) != 0 || waitpid(child, &status, __WALL) != child) {
            fail("cannot trace on");
        }
        if (!WIFSTOPPED(status)) {
            errno = 0;
            fail("the process ended before its mark, with wait status %#x", (unsigned)status);
        }
        if (status >> 16 != 0) {
            errno = 0;
            fail("the process started another one: ptrace event %d", status >> 16);
        }
        const int signal = WSTOPSIG(status);
        if (signal == SIGTRAP || signal == (SIGTRAP | 0x80) || signal == SIGSTOP) {
            return signal;
        }
        if (signal == SIGSEGV || signal == SIGBUS || signal == SIGABRT || signal == SIGILL) {
            errno = 0;
            fail("the process met signal %d at %#" PRIx64 " after step %" PRIu64, signal, rip(), steps);
        }
        deliver = signal;
    }
}

static bool is_syscall(uint64_t at)
{
    static struct { uint64_t at; bool yes; } known[1 << 14]; /* code does not change */
    const size_t slot = (size_t)((at * UINT64_C(0x9e3779b97f4a7c15)) >> 50);
    if (known[slot].at != at) {
        known[slot].at = at;
        known[slot].yes = (peek(at) & 0xffff) == 0x050f;
    }
    return known[slot].yes;
}

/* ------------------------------------------------------------------ what the other side hears */
static char core_name[512];
static uint64_t core_base;

static void say_state(const char *what, uint64_t at)
{
    if (core_base != 0 && at >= core_base && at < core_base + (UINT64_C(1) << 24)) {
        printf("state %" PRIu64 " %s core+%#" PRIx64 "\n", steps, what, at - core_base);
    } else {
        printf("state %" PRIu64 " %s %#" PRIx64 "\n", steps, what, at);
    }
    fflush(stdout);
    char go;
    if (read(STDIN_FILENO, &go, 1) != 1) {
        exit(0); /* nobody listens any more */
    }
}

/* A system call is about to be made: is it a mark? */
static void heed_mark(uint64_t number, uint64_t first, uint64_t second, uint64_t third)
{
    if (number != SYS_getppid || first != MARK) {
        return;
    }
    if (second == 'r') {
        printf("returned %" PRIu64 "\n", third);
    } else if (second == 'e') {
        printf("end %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", steps, instructions, calls);
        fflush(stdout);
        kill(child, SIGKILL);
        exit(0);
    }
}

/* A system call has been made: look at everything. */
static void after_call(uint64_t at)
{
    calls++;
    const char *torn = bytes_changed(); /* before rescan: new files are no change of old ones */
    if (torn != NULL) {
        printf("torn %" PRIu64 " %s\n", steps, torn);
    }
    if (rescan() || torn != NULL) {
        say_state("syscall", at);
    }
}

/* Execute one instruction; `expected` says whether it may change shared bytes. */
static void step(bool expected)
{
    const uint64_t at = rip();
    const bool call = is_syscall(at);
    if (call) {
        heed_mark(user(offsetof(struct user_regs_struct, rax)), user(offsetof(struct user_regs_struct, rdi)),
                  user(offsetof(struct user_regs_struct, rsi)), user(offsetof(struct user_regs_struct, rdx)));
    }
    steps++;
    instructions++;
    if (resume(PTRACE_SINGLESTEP) != SIGTRAP) {
        fail("an unexpected stop at %#" PRIx64, at);
    }
    if (call) {
        after_call(at);
    } else if (bytes_changed() != NULL) {
        if (!expected) {
            printf("outside %" PRIu64 " %#" PRIx64 "\n", steps, at);
        }
        say_state("instruction", at);
    }
}

/* ------------------------------------------------------------------ calls into the core */
static struct { uint64_t at; uint64_t word; } entries[256];
static size_t entry_count;

static void read_entries(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];
    if (file == NULL || fgets(core_name, sizeof core_name, file) == NULL) {
        fail("cannot read %s", path);
    }
    core_name[strcspn(core_name, "\n")] = 0;
    while (entry_count < sizeof entries / sizeof *entries && fgets(line, sizeof line, file) != NULL) {
        entries[entry_count++].at = strtoull(line, NULL, 16);
    }
    fclose(file);
}

static void find_core(void)
{
    char line[1024], path[64];
    snprintf(path, sizeof path, "/proc/%d/maps", child);
    FILE *maps = fopen(path, "r");
    while (maps != NULL && core_base == 0 && fgets(line, sizeof line, maps) != NULL) {
        if (strstr(line, core_name) != NULL) {
            core_base = strtoull(line, NULL, 16);
        }
    }
    if (core_base == 0) {
        fail("the process has not loaded %s", core_name);
    }
    fclose(maps);
    for (size_t i = 0; i < entry_count; i++) {
        entries[i].at += core_base;
        entries[i].word = peek(entries[i].at);
    }
}

static void set_traps(bool on)
{
    for (size_t i = 0; i < entry_count; i++) {
        const uint64_t word = on ? (entries[i].word & ~UINT64_C(0xff)) | 0xcc : entries[i].word;
        if (ptrace(PTRACE_POKETEXT, child, (void *)(uintptr_t)entries[i].at, (void *)(uintptr_t)word) != 0) {
            fail("cannot set a trap");
        }
    }
}

static bool is_entry(uint64_t at)
{
    for (size_t i = 0; i < entry_count; i++) {
        if (entries[i].at == at) {
            return true;
        }
    }
    return false;
}

/* The process stands at the first instruction of a call into the core: step until it has returned. */
static void step_call(void)
{
    const uint64_t top = user(offsetof(struct user_regs_struct, rsp));
    const uint64_t back = peek(top);
    do {
        step(true);
    } while (rip() != back || user(offsetof(struct user_regs_struct, rsp)) <= top);
}

static void walk_core_calls(void)
{
    bool inside = false;
    set_traps(true);
    for (;;) {
        const int signal = resume(PTRACE_SYSCALL);
        const uint64_t at = rip();
        if (signal == (SIGTRAP | 0x80)) {
            steps++;
            inside = !inside;
            if (!inside) {
                after_call(at);
                continue;
            }
            if (bytes_changed() != NULL) {
                say_state("before a syscall", at);
            }
            heed_mark(user(offsetof(struct user_regs_struct, orig_rax)), user(offsetof(struct user_regs_struct, rdi)),
                      user(offsetof(struct user_regs_struct, rsi)), user(offsetof(struct user_regs_struct, rdx)));
        } else if (signal == SIGTRAP && is_entry(at - 1)) {
            set_traps(false);
            if (ptrace(PTRACE_POKEUSER, child, (void *)offsetof(struct user_regs_struct, rip),
                       (void *)(uintptr_t)(at - 1)) != 0) {
                fail("cannot go back over a trap");
            }
            step_call();
            set_traps(true);
        } else {
            fail("an unexpected stop at %#" PRIx64, at);
        }
    }
}

static void walk_everything(void)
{
    for (;;) {
        if (entry_count == 0) {
            step(true);
        } else if (is_entry(rip())) {
            step_call();
        } else {
            step(false);
        }
    }
}

int main(int argc, char **argv)
{
    bool everything = false;
    int next = 1;
    if (next + 1 < argc && strcmp(argv[next], "--entries") == 0) {
        read_entries(argv[next + 1]);
        next += 2;
    }
    if (next < argc && strcmp(argv[next], "--everything") == 0) {
        everything = true;
        next++;
    }
    if (next + 1 >= argc) {
        fail("usage: stepper [--entries FILE [--everything]] ROOT COMMAND...");
    }
    root = argv[next++];
    /* One processor for both: they never run at the same time, and the switch is cheaper. */
    cpu_set_t here;
    CPU_ZERO(&here);
    const int cpu = sched_getcpu();
    CPU_SET((size_t)(cpu < 0 ? 0 : cpu), &here);
    sched_setaffinity(0, sizeof here, &here);
    child = fork();
    if (child == 0) {
        personality(ADDR_NO_RANDOMIZE); /* the same step is the same instruction in every run */
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) {
            _exit(77);
        }
        execv(argv[next], argv + next);
        _exit(127);
    }
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        fail("cannot start %s", argv[next]);
    }
    if (!WIFSTOPPED(status)) {
        fail(WIFEXITED(status) && WEXITSTATUS(status) == 77 ? "ptrace is not permitted here" : "cannot start %s",
             argv[next]);
    }
    const long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK
                         | PTRACE_O_TRACEVFORK;
    if (ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)options) != 0) {
        fail("ptrace is not permitted here");
    }
    if (resume(PTRACE_CONT) != SIGSTOP) {
        fail("the process did not mark its beginning");
    }
    if (entry_count != 0) {
        find_core();
    }
    rescan();
    say_state("begin", rip());
    if (entry_count != 0 && !everything) {
        walk_core_calls();
    } else {
        walk_everything();
    }
}
