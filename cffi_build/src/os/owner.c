/* owner.c - participant slots and their generations: who holds a claim, and is it alive.
 *
 * A pid is a rumour: it is reused, and names somebody else in another container. A slot is one byte of the control
 * file, held by an OFD lock for as long as its process lives: the kernel tells the truth about death. The slot's
 * generation, which is part of every claim, grows with each tenant; a claim of an older generation is dead by
 * definition, since taking the slot took the lock. Locks are never waited for and never cleared by hand. */
#include "os/owner.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "atomic.h"
#include "error.h"
#include "os/os.h"

/* ---- descriptors with locks, closed in every forked child: a child that kept one would keep its parent alive
 *
 * A lock belongs to the open file, and whoever is forked between its opening and its registration shares it without
 * knowing. So the file is opened anew for its lock, by us, behind the gate that every fork waits for; the descriptor
 * that we were given carries no lock, and may be in any number of children. */
#define REGISTRY_SIZE 8192
static uint64_t registry[REGISTRY_SIZE]; /* fd + 1; 0 = free */

static uint32_t forks = 1; /* a child's entries are its own: a lock from before the fork must not reach for them */

static void close_inherited(void)
{
    forks++;
    for (uint32_t entry = 0; entry < REGISTRY_SIZE; entry++) {
        const int fd = (int)registry[entry] - 1;
        if (fd >= 0) {
            registry[entry] = 0;
            os->close(fd); /* never unlock: the lock is the parent's */
        }
    }
}

static bool take_entry(uint32_t entry, int fd) { return cas_relaxed(&registry[entry], 0, (uint64_t)fd + 1); }

/* Behind the gate: another opening of fd's file, in *entry; 0 or what the kernel answered, -EMFILE for a full registry. */
static int open_registered(int fd, uint32_t *entry)
{
    const int answer = os->at_fork_child(close_inherited);
    if (answer != 0) {
        return answer;
    }
    const int again = os->open_again(fd);
    if (again < 0) {
        return again;
    }
    for (*entry = 0; *entry < REGISTRY_SIZE; (*entry)++) {
        if (take_entry(*entry, again)) {
            return 0;
        }
    }
    os->close(again);
    return -EMFILE;
}

int shmq_lock_open(shmq_lock *lock, int fd)
{
    os->fork_gate(1);
    const int answer = open_registered(fd, &lock->entry);
    if (answer == 0) {
        lock->forks = forks;
    }
    os->fork_gate(0);
    return answer == 0 ? SHMQ_OK : error_system(answer, "cannot open a file again for its lock");
}

static bool is_mine(const shmq_lock *lock) { return lock->forks == forks; } /* not in a forked child */
static int lock_fd(const shmq_lock *lock)
{
    return is_mine(lock) && lock->kept == NULL ? (int)registry[lock->entry] - 1 : -1;
}

/* A mapping keeps the open file. Until no child can have that, the descriptor is registered, and the gate is shut: there is
 * no instant at which a fork would take the lock along. */
int shmq_lock_keep(shmq_lock *lock)
{
    os->fork_gate(1);
    const int fd = lock_fd(lock);
    const int answer = fd < 0 ? -EBADF : os->keep_open(fd, &lock->kept);
    if (answer == 0) {
        registry[lock->entry] = 0;
        os->close(fd);
    }
    os->fork_gate(0);
    return answer == 0 ? SHMQ_OK : error_system(answer, "cannot map the file of a lock");
}

static int lock_answer(int answer, uint64_t byte)
{
    if (answer == -EAGAIN) {
        return 0;
    }
    return answer < 0 ? error_system(answer, "cannot lock byte %llu", (unsigned long long)byte) : 1;
}
int shmq_lock_try(shmq_lock *lock, uint64_t byte) { return lock_answer(os->lock_byte(lock_fd(lock), byte), byte); }
int shmq_lock_share(shmq_lock *lock, uint64_t byte) { return lock_answer(os->share_byte(lock_fd(lock), byte), byte); }

int shmq_lock_give_back(shmq_lock *lock, uint64_t byte)
{
    const int fd = lock_fd(lock);
    return fd < 0 ? SHMQ_OK : lock_answer(os->unlock_byte(fd, byte), byte);
}

int shmq_lock_fd(const shmq_lock *lock) { return lock_fd(lock); }

void shmq_lock_close(shmq_lock *lock)
{
    const int fd = lock_fd(lock);
    if (is_mine(lock) && lock->kept != NULL) { /* a child has nothing there, or something else by now */
        os->let_go(lock->kept);
    } else if (fd >= 0) { /* -1 in a forked child, which has closed it already */
        os->unlock_all(fd); /* not left to the close: who made a child past the gate, by a bare clone, shares the file */
        registry[lock->entry] = 0;
        os->close(fd);
    }
    lock->forks = 0;
    lock->kept = NULL;
}

/* ---- members */
shmq_member *shmq_member_new(void *control)
{
    shmq_member *member = calloc(1, sizeof *member);
    if (member != NULL) {
        member->control = control;
        member->seats = OWNER_SLOTS;
        member->left = UINT64_MAX;
        member->guard = os->guard_new();
    }
    if (member == NULL || member->guard == NULL) {
        free(member);
        error_system(-ENOMEM, "asked for memory");
        return NULL;
    }
    return member;
}

int shmq_member_open(shmq_member *member, int lock_fd, int test_fd)
{
    const int locked = shmq_lock_open(&member->lock, lock_fd);
    return locked != SHMQ_OK || test_fd < 0 ? locked : shmq_lock_open(&member->test, test_fd);
}

int shmq_member_by_path(shmq_member *member, int directory, const char *path)
{
    const int test_fd = lock_fd(&member->test);
    const int answer = os->identify(test_fd < 0 ? lock_fd(&member->lock) : test_fd, member->file);
    if (answer < 0) {
        return error_system(answer, "cannot tell which file %s is", path);
    }
    const size_t size = strlen(path) + 1;
    char *const copy = malloc(size);
    if (copy == NULL) {
        return error_system(-ENOMEM, "asked for memory");
    }
    member->path = memcpy(copy, path, size);
    member->directory = directory;
    shmq_lock_close(&member->test);
    return SHMQ_OK;
}

void shmq_member_seats(shmq_member *member, uint32_t seats) { member->seats = seats < OWNER_SLOTS ? seats : OWNER_SLOTS; }

int shmq_member_keep(shmq_member *member) { return shmq_lock_keep(&member->lock); }

/* As os->byte_is_locked: also -errno, of a file that is not there any more or cannot be opened just now. */
static int seat_is_locked(const shmq_member *member, uint32_t slot)
{
    if (member->path == NULL) {
        return os->byte_is_locked(lock_fd(&member->test), LOCK_BASE + slot);
    }
    const int fd = os->open_same(member->directory, member->path, member->file, false);
    if (fd < 0) {
        return fd;
    }
    const int answer = os->byte_is_locked(fd, LOCK_BASE + slot);
    os->close(fd);
    return answer;
}

shmq_lock *papers_lock(shmq_member *member)
{
    if (member->lock.kept == NULL) {
        return &member->lock;
    }
    const int fd = os->open_same(member->directory, member->path, member->file, true);
    if (fd < 0) {
        error_system(fd, "cannot open %s again for a lock", member->path);
        return NULL;
    }
    const int code = shmq_lock_open(&member->papers_lock, fd);
    os->close(fd);
    return code == SHMQ_OK ? &member->papers_lock : NULL;
}

static uint32_t next_generation(const struct participant *seat)
{
    const uint32_t generation = (load_relaxed(&seat->generation) + 1) & (OWNER_GENERATIONS - 1);
    return generation == 0 ? 1 : generation;
}

int shmq_member_lock(shmq_member *member, uint64_t *since, uint32_t *generation)
{
    for (uint32_t slot = 0; slot < member->seats; slot++) {
        const int held = shmq_lock_try(&member->lock, LOCK_BASE + slot);
        if (held < 0) {
            return held;
        }
        if (held) {
            struct participant *seat = &member->control->participants[slot];
            member->slot = slot;
            member->generation = next_generation(seat);
            *since = load_relaxed(&seat->since);
            *generation = load_relaxed(&seat->generation) & (OWNER_GENERATIONS - 1);
            if ((load_relaxed(&seat->padding) & UINT32_MAX) != 0) { /* killed between padding and counting it */
                add_release(&member->control->pads_doubted, 1);
            }
            store_relaxed(&seat->padding, (uint64_t)member->generation << 32);
            /* At once: as long as the seat is locked under the last tenant's generation, the last tenant looks alive,
             * and whoever waits for it would wait for us, however long we take to bury it. */
            store_relaxed(&seat->generation, member->generation);
            shmq_wake_always(member->control);
            return (int)slot;
        }
    }
    return error_set(SHMQ_TOO_MANY, "all %u participant slots are taken", member->seats);
}

int shmq_member_join(shmq_member *member, uint32_t pid, uint64_t pid_namespace, uint64_t start_time, uint64_t boot_tag,
                     uint64_t since)
{
    struct participant *seat = &member->control->participants[member->slot];
    uint32_t generation = member->generation;
    if (generation == 0) { /* not through shmq_member_lock */
        generation = next_generation(seat);
        store_relaxed(&seat->generation, generation);
    }
    store_relaxed(&seat->pid, pid);
    store_relaxed(&seat->pid_namespace, pid_namespace);
    store_relaxed(&seat->start_time, start_time);
    store_relaxed(&seat->boot_tag, boot_tag);
    shmq_member_since(member, since);
    member->owner = owner_make(member->slot, generation);
    member->counted = member->slot < COUNTED_SEATS ? &member->control->counted[member->slot] : NULL;
    add_relaxed(&member->control->members, 1);
    shmq_wake_always(member->control); /* sleepers' watchers must watch this process too */
    return SHMQ_OK;
}

void shmq_member_since(shmq_member *member, uint64_t since)
{
    store_relaxed(&member->control->participants[member->slot].since, since < member->left ? since : member->left);
}

void shmq_member_left(shmq_member *member, uint64_t since) { member->left = since; }

/* ------------------------------------------------------------------ how much is padding
 * The words say it, and `padded` is their sum. Between the two there is a step, so whoever changes them says before that it
 * is about to, and afterwards that it is not: who dies in between has left its mark. Then, once, somebody counts. */
void pads_begin(const shmq_member *member)
{
    add_relaxed(&member->control->participants[member->slot].padding, 1); /* the CAS behind it is a release */
}
void pads_end(const shmq_member *member)
{
    add_release(&member->control->participants[member->slot].padding, UINT64_MAX); /* the count before it */
}
void shmq_pads_begin(shmq_member *member) { pads_begin(member); fence_seq_cst(); }
void shmq_pads_end(shmq_member *member) { pads_end(member); }
void shmq_pads_doubt(void *control) { add_release(&((struct control *)control)->pads_doubted, 1); }

/* Release, both: what they count was changed before. Pairs with the fence in shmq_pads_count, which counts behind it. */
void shmq_add_padding(void *control, uint64_t count) { add_release(&((struct control *)control)->padded, count); }
void shmq_remove_padding(void *control, uint64_t count)
{
    uint64_t *const padded = &((struct control *)control)->padded;
    uint64_t seen = load_relaxed(padded);
    /* Never below 0: who padded may have been killed before it counted. */
    while (!cas_release(padded, seen, seen - (count < seen ? count : seen))) {
        seen = load_relaxed(padded);
    }
}

static bool is_between(const struct participant *seat, uint64_t *mark)
{
    *mark = load_acquire(&seat->padding); /* pairs with the release in pads_end */
    return (*mark & UINT32_MAX) != 0;
}
static bool mark_of_dead(shmq_member *member, uint32_t slot, uint64_t mark)
{
    return !owner_alive(member, owner_make(slot, (uint32_t)(mark >> 32) & (OWNER_GENERATIONS - 1)));
}

uint32_t shmq_pads_doubted(shmq_member *member)
{
    if (load_acquire(&member->control->pads_doubted) != 0) {
        return 1;
    }
    for (uint32_t slot = 0; slot < member->seats; slot++) {
        uint64_t mark;
        if (is_between(&member->control->participants[slot], &mark) && mark_of_dead(member, slot, mark)) {
            return 1;
        }
    }
    return 0;
}

int shmq_pads_count(shmq_member *member, uint64_t *doubted, uint64_t *padded)
{
    struct control *const control = member->control;
    int code = SHMQ_OK;
    for (uint32_t slot = 0; slot < member->seats; slot++) {
        struct participant *const seat = &control->participants[slot];
        uint64_t mark;
        if (!is_between(seat, &mark)) {
            continue;
        }
        if (!mark_of_dead(member, slot, mark)) {
            code = SHMQ_WAITING;
            continue;
        }
        shmq_pads_doubt(control); /* first: killed behind it, somebody counts once more */
        cas_relaxed(&seat->padding, mark, mark & ~(uint64_t)UINT32_MAX);
    }
    *doubted = load_relaxed(&control->pads_doubted);
    *padded = load_relaxed(&control->padded);
    fence_seq_cst(); /* the words are looked at after this; pairs with the releases of all who change the two */
    return code;
}

int shmq_pads_counted(shmq_member *member, uint64_t doubted, uint64_t padded, uint64_t total)
{
    struct control *const control = member->control;
    uint64_t mark;
    fence_seq_cst();
    for (uint32_t slot = 0; slot < member->seats; slot++) {
        if (is_between(&control->participants[slot], &mark)) {
            return SHMQ_WAITING;
        }
    }
    if (!cas_relaxed(&control->padded, padded, total)) { /* the fence above makes it a release, as those that change it */
        return SHMQ_WAITING;
    }
    /* Not when somebody has died meanwhile. Release: what there is before it; pairs with the acquire in shmq_pads_doubted. */
    cas_release(&control->pads_doubted, doubted, 0);
    return SHMQ_OK;
}

uint32_t shmq_member_owner(const shmq_member *member) { return member->owner; }
int shmq_member_forked(const shmq_member *member) { return member_forked(member); }

bool owner_alive(shmq_member *member, owner_t owner)
{
    if (owner == member->owner) {
        return true; /* a test through any descriptor of mine could not tell */
    }
    const uint32_t slot = owner_slot(owner);
    if (slot >= member->seats) {
        return false; /* it comes from a shared word, and nobody can be that one */
    }
    const uint32_t generation = load_relaxed(&member->control->participants[slot].generation);
    if (generation != owner_generation(owner)) {
        return false;
    }
    /* A failed test is not a proof of death. */
    return seat_is_locked(member, slot) != 0;
}

uint32_t shmq_participant_at(const void *control, uint32_t slot, shmq_participant *participant)
{
    if (slot >= OWNER_SLOTS) {
        return 0;
    }
    const struct participant *const seat = &((const struct control *)control)->participants[slot];
    *participant = (shmq_participant){
        .generation = load_relaxed(&seat->generation),
        .pid = load_relaxed(&seat->pid),
        .pid_namespace = load_relaxed(&seat->pid_namespace),
        .start_time = load_relaxed(&seat->start_time),
        .boot_tag = load_relaxed(&seat->boot_tag),
    };
    return participant->generation;
}

int shmq_slot_locked(shmq_member *member, uint32_t slot)
{
    return slot < member->seats && seat_is_locked(member, slot) != 0;
}

/* Whoever forwards asks before each claim, so this one opening stays: it holds no lock, and a child may have it. Threads may
 * be here at once. */
static int asking_fd(shmq_member *member)
{
    uint64_t asking = load_relaxed(&member->asking);
    if (asking == 0 && member->path != NULL) {
        const int fd = os->open_same(member->directory, member->path, member->file, false);
        asking = fd < 0 ? 0 : (uint64_t)fd + 1;
        if (fd >= 0 && !cas_relaxed(&member->asking, 0, asking)) {
            os->close(fd);
            asking = load_relaxed(&member->asking);
        }
    }
    return (int)asking - 1;
}

/* An answer is good for a moment, much shorter than it takes others to find a seat free and to take what it holds. */
#define SEATED_NS INT64_C(1000000)
int shmq_member_seated(shmq_member *member)
{
    const uint32_t slot = owner_slot(member->owner);
    const int64_t now = os->clock_monotonic_ns();
    if (now - load_relaxed(&member->asked_ns) < SEATED_NS) {
        return true;
    }
    const int fd = asking_fd(member);
    /* Somebody may have closed it blindly, and it is nothing now, or another file: then the question is asked anew. */
    const bool seated = (fd >= 0 && os->byte_is_locked(fd, LOCK_BASE + slot) == 1) || shmq_slot_locked(member, slot);
    store_relaxed(&member->asked_ns, seated ? now : 0);
    return seated;
}

int shmq_owner_alive(shmq_member *member, uint32_t owner) { return owner_alive(member, owner); }

static void ask_no_more(shmq_member *member)
{
    const int fd = (int)member->asking - 1;
    uint64_t file[2];
    if (fd >= 0 && os->identify(fd, file) >= 0 && file[0] == member->file[0] && file[1] == member->file[1]) {
        os->close(fd);
    }
    member->asking = 0;
}

void shmq_member_leave(shmq_member *member)
{
    ask_no_more(member);
    if (member->lock.forks == 0) {
        return;
    }
    if (member->owner != 0 && !member_forked(member)) {
        shmq_member_since(member, UINT64_MAX); /* nothing of ours to bury */
    }
    shmq_lock_close(&member->lock);
}

void shmq_member_free(shmq_member *member)
{
    if (member == NULL) {
        return;
    }
    shmq_member_leave(member);
    os->guard_free(member->guard);
    shmq_lock_close(&member->test);
    free(member->path);
    free(member);
}
