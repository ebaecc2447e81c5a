/* owner.c - participant slots and their generations: who holds a claim, and is he alive.
 *
 * A pid is a rumour: it is reused, and names somebody else in another container. A slot is one byte of the control
 * file, held by an OFD lock for as long as its process lives: the kernel tells the truth about death. The slot's
 * generation, which is part of every claim, grows with each tenant; a claim of an older generation is dead by
 * definition, since taking the slot took the lock. Locks are never waited for and never cleared by hand. */
#include "owner.h"

#include <errno.h>
#include <stdlib.h>

#include "atomic.h"
#include "error.h"
#include "os.h"

/* ---- descriptors with locks, closed in every forked child: a child that kept one would keep its parent alive */
#define REGISTRY_SIZE 8192
static uint64_t registry[REGISTRY_SIZE]; /* fd + 1; 0 = free */

struct shmq_lock {
    uint32_t entry;
    uint32_t forks; /* as it was when the lock was made */
};
static uint32_t forks; /* a child's entries are its own: a lock from before the fork must not reach for them */

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

shmq_lock *shmq_lock_new(int fd)
{
    static uint64_t prepared;
    if (cas_relaxed(&prepared, 0, 1) && os->at_fork_child(close_inherited) != 0) {
        prepared = 0;
        os->close(fd);
        error_set(SHMQ_SYSTEM, "cannot prepare for fork");
        return NULL;
    }
    shmq_lock *lock = malloc(sizeof *lock);
    for (uint32_t entry = 0; lock != NULL && entry < REGISTRY_SIZE; entry++) {
        if (take_entry(entry, fd)) {
            *lock = (shmq_lock){entry, forks};
            return lock;
        }
    }
    free(lock);
    os->close(fd);
    error_set(SHMQ_TOO_MANY, "this process holds %d locked descriptors already", REGISTRY_SIZE);
    return NULL;
}

static int lock_fd(const shmq_lock *lock) { return lock->forks == forks ? (int)registry[lock->entry] - 1 : -1; }

static int lock_answer(int answer, uint64_t byte)
{
    if (answer == -EAGAIN) {
        return 0;
    }
    return answer < 0 ? error_set(SHMQ_SYSTEM, "cannot lock byte %llu: errno %d", (unsigned long long)byte, -answer)
                      : 1;
}
int shmq_lock_try(shmq_lock *lock, uint64_t byte) { return lock_answer(os->lock_byte(lock_fd(lock), byte), byte); }
int shmq_lock_share(shmq_lock *lock, uint64_t byte) { return lock_answer(os->share_byte(lock_fd(lock), byte), byte); }

void shmq_lock_free(shmq_lock *lock)
{
    if (lock == NULL) {
        return;
    }
    const int fd = lock_fd(lock);
    if (fd >= 0) { /* -1 in a forked child, which has closed it already */
        registry[lock->entry] = 0;
        os->close(fd);
    }
    free(lock);
}

/* ---- members */
shmq_member *shmq_member_new(void *control, int lock_fd, int test_fd)
{
    shmq_member *member = calloc(1, sizeof *member);
    if (member == NULL) {
        os->close(lock_fd);
        os->close(test_fd);
        error_set(SHMQ_SYSTEM, "out of memory");
        return NULL;
    }
    member->control = control;
    member->lock = shmq_lock_new(lock_fd);
    member->test = shmq_lock_new(test_fd);
    member->guard = os->guard_new();
    if (member->lock == NULL || member->test == NULL || member->guard == NULL) {
        shmq_member_free(member);
        return NULL;
    }
    return member;
}

static uint32_t next_generation(const struct participant *seat)
{
    const uint32_t generation = (load_relaxed(&seat->generation) + 1) & (OWNER_GENERATIONS - 1);
    return generation == 0 ? 1 : generation;
}

int shmq_member_lock(shmq_member *member, uint64_t *since, uint32_t *generation)
{
    for (uint32_t slot = 0; slot < OWNER_SLOTS; slot++) {
        const int held = shmq_lock_try(member->lock, LOCK_BASE + slot);
        if (held < 0) {
            return held;
        }
        if (held) {
            struct participant *seat = &member->control->participants[slot];
            member->slot = slot;
            member->generation = next_generation(seat);
            *since = load_relaxed(&seat->since);
            *generation = load_relaxed(&seat->generation) & (OWNER_GENERATIONS - 1);
            /* At once: as long as the seat is locked under the last tenant's generation, the last tenant looks alive,
             * and whoever waits for him would wait for us, however long we take to bury him. */
            store_relaxed(&seat->generation, member->generation);
            shmq_wake_always(member->control);
            return (int)slot;
        }
    }
    return error_set(SHMQ_TOO_MANY, "all %u participant slots are taken", OWNER_SLOTS);
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
    store_relaxed(&seat->since, since);
    member->owner = owner_make(member->slot, generation);
    add_relaxed(&member->control->members, 1);
    shmq_wake_always(member->control); /* sleepers' watchers must watch this process too */
    return SHMQ_OK;
}

void shmq_member_since(shmq_member *member, uint64_t since)
{
    store_relaxed(&member->control->participants[member->slot].since, since);
}

uint32_t shmq_member_owner(const shmq_member *member) { return member->owner; }
int shmq_member_forked(const shmq_member *member) { return member_forked(member); }

bool owner_alive(shmq_member *member, owner_t owner)
{
    if (owner == member->owner) {
        return true; /* a test through any descriptor of mine could not tell */
    }
    const uint32_t slot = owner_slot(owner);
    const uint32_t generation = load_relaxed(&member->control->participants[slot].generation);
    if (generation != owner_generation(owner)) {
        return false;
    }
    /* A failed test is not a proof of death. */
    return os->byte_is_locked(lock_fd(member->test), LOCK_BASE + slot) != 0;
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
    return os->byte_is_locked(lock_fd(member->test), LOCK_BASE + slot) != 0;
}

int shmq_owner_alive(shmq_member *member, uint32_t owner) { return owner_alive(member, owner); }

void shmq_member_leave(shmq_member *member)
{
    if (member->lock == NULL) {
        return;
    }
    if (member->owner != 0 && !member_forked(member)) {
        shmq_member_since(member, UINT64_MAX); /* nothing to bury */
    }
    shmq_lock_free(member->lock);
    member->lock = NULL;
}

void shmq_member_free(shmq_member *member)
{
    if (member == NULL) {
        return;
    }
    shmq_member_leave(member);
    if (member->guard != NULL) {
        os->guard_free(member->guard);
    }
    shmq_lock_free(member->test);
    free(member);
}
