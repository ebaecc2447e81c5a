/* sync.c - the group commit: whoever syncs answers all who wait.
 *
 *   put commits its record                      the leader
 *     durable > mine?  done                       walks from the last resolved place over what is resolved,
 *     nobody leads?    CAS, lead                    padding the dead, to the first FREE or living claim
 *     else sleep on the bell,                     says how far it will get (sync_group)
 *       with those this sync answers              fdatasync
 *       or with those the next one will           durable = that far; bell + 1
 *                                                 leadership back; wakes one who leads next, then all it answered
 *
 * What a leader syncs was resolved before its msync began, so nothing below `durable` can reach the disk without
 * its payload. Which sleeper belongs to which half is only a guess that saves wake-ups: one that is woken and needs no
 * leader any more passes the wake on. A dead leader is found by the lock on its seat, and taken over.
 *
 * A leader may be stopped, or wait for a disk that takes long: who has waited for one and the same sync for a second leads
 * instead. Nobody tells the overtaken one, who goes on some time. So whatever a leader says of the disk is true by
 * itself, and stays so: it only says it later than others. What is no such statement lies behind LOCK_PAPERS. */
#include <errno.h>
#include <inttypes.h>

#include "atomic.h"
#include "chunk/settle.h"
#include "chunk/walk.h"
#include "error.h"
#include "os/os.h"
#include "os/owner.h"

#define LEADER_LOOK_NS INT64_C(8000000) /* how often who waits for a leader asks whether it lives */
#define LEADER_PATIENCE_NS INT64_C(1000000000) /* how long it waits for one and the same sync */
/* A claim whose owner only lost its processor is committed in no time: give way, then look again, before the queue's
 * bell is asked to ring for it. Who has something to sync already does not wait for more. */
#define CLAIM_YIELDS 2
#define CLAIM_LOOKS 20
#define CLAIM_LOOK_NS INT64_C(1000000)

/* ---- how far everything is settled */
static struct walk walk_from_resolved(const shmq_chunk *chunk)
{
    /* Acquire: what its writer saw resolved was written before. Pairs with the release in resolved_raise. */
    const uint64_t hint = load_acquire(&((struct chunk_header *)chunk->memory)->resolved_hint);
    const uint64_t position = hint_position(hint);
    if (position < chunk->first_position || position + SEAL_BYTES > chunk->capacity) {
        return walk_from_start(chunk);
    }
    return (struct walk){position, hint_ordinal(hint)};
}

static void resolved_raise(const shmq_chunk *chunk, const struct walk *walk)
{
    uint64_t *const hint = &((struct chunk_header *)chunk->memory)->resolved_hint;
    const uint64_t mine = hint_make(walk->position, walk->ordinal);
    uint64_t seen = load_relaxed(hint);
    while (seen < mine && !cas_release(hint, seen, mine)) { /* pairs with the acquire in walk_from_resolved */
        seen = load_relaxed(hint);
    }
}

int shmq_resolved(shmq_chunk *chunk, uint64_t *position, uint64_t *next_index, uint32_t *owner)
{
    struct walk walk = walk_from_resolved(chunk);
    const uint64_t start = walk.position;
    uint32_t yields = CLAIM_YIELDS;
    int code;
    for (;;) {
        const word_t word = walk_look(chunk, &walk);
        if (word == 0) {
            code = nothing_there(chunk, &walk);
            if (code == SHMQ_OK) {
                continue;
            }
            if (code == SHMQ_CORRUPT) {
                return code;
            }
            break;
        }
        if (word_seals(word)) {
            code = SHMQ_ROLL;
            break;
        }
        if (word_state(word) == WORD_CLAIMED) {
            if (yields > 0 && walk.position == start) {
                yields--;
                os->yield();
                continue;
            }
            *owner = word_owner(word);
            code = settle(chunk, walk.position, word);
            if (code != SHMQ_OK) {
                break;
            }
            continue; /* padded, or committed meanwhile */
        }
        code = walk_past(chunk, &walk, word);
        if (code != SHMQ_OK) {
            return code;
        }
    }
    if (chunk->writable) {
        resolved_raise(chunk, &walk);
    }
    *position = walk.position;
    *next_index = chunk->base + walk.ordinal;
    return code;
}

/* ---- who leads */
/* doubted: ask whether the leader lives. That is a system call which searches a list of all seats' locks, so who only
 * comes by believes it, and asks once it has waited. */
static bool takes_long(shmq_member *member, uint64_t leader)
{
    /* Threads share these. Who mixes up theirs is early or late, which hurts nobody. */
    const uint64_t led_by = leader << 32 | load_relaxed(&member->control->sync_bell);
    const uint64_t now_ns = (uint64_t)os->clock_monotonic_ns();
    if (load_relaxed(&member->led_by) != led_by) {
        store_relaxed(&member->led_since, now_ns);
        store_relaxed(&member->led_by, led_by);
        return false;
    }
    return now_ns - load_relaxed(&member->led_since) >= LEADER_PATIENCE_NS;
}

static bool lead(shmq_member *member, bool doubted)
{
    struct control *const control = member->control;
    const uint64_t leader = load_relaxed(&control->sync_leader);
    if (leader != 0 && (!doubted || (owner_alive(member, (owner_t)leader) && !takes_long(member, leader)))) {
        return false;
    }
    /* Acquire: all that the last leader did comes before what this one does, also that its sync failed. Pairs with the
     * release in shmq_sync_release. */
    return cas_acquire(&control->sync_leader, leader, member->owner);
}

/* The halves of those who sleep: the ones that the running sync answers, and the ones that the next will. */
static uint32_t half(uint32_t bell) { return 1u << (bell & 1); }

static void pass_on(struct control *control)
{
    os->futex_wake_bits(&control->sync_bell, 1, half(load_relaxed(&control->sync_bell)));
}

/* Who waits for acknowledgements sleeps on a bit of its own, and is woken to lead before the others: it syncs what was
 * put, too. */
#define ACKERS 4u
static uint32_t leads_next(struct control *control, uint32_t others)
{
    return load_relaxed(&control->sync_acks) != 0 ? ACKERS : others;
}

void shmq_sync_publish(shmq_member *member, uint64_t index, uint64_t chunk, uint64_t position)
{
    struct control *const control = member->control;
    /* True of its chunk whenever it is read, so whoever is overtaken may store it late: the next sync begins lower. */
    store_relaxed(&control->durable_at, chunk << 32 | position);
    uint64_t seen = load_relaxed(&control->durable_chunk);
    while (seen < chunk + 1 && !cas_relaxed(&control->durable_chunk, seen, chunk + 1)) {
        seen = load_relaxed(&control->durable_chunk);
    }
    seen = load_relaxed(&control->durable);
    while (seen < index && !cas_release(&control->durable, seen, index)) { /* pairs with the acquire in shmq_durable */
        seen = load_relaxed(&control->durable);
    }
}

void shmq_sync_release(shmq_member *member)
{
    struct control *const control = member->control;
    cas_release(&control->sync_leader, member->owner, 0); /* not if it was overtaken; it wakes all the same */
    /* The next leader is among those whom this sync did not answer: woken first, so that the disk is not idle while
     * the others are woken. */
    const uint32_t ended = (uint32_t)add_release(&control->sync_bell, 1);
    fence_seq_cst(); /* pairs with the fence in shmq_acks_ask: it sees our bell, or we see its mark */
    os->futex_wake_bits(&control->sync_bell, 1, leads_next(control, half(ended + 1)));
    os->futex_wake_bits(&control->sync_bell, INT32_MAX, half(ended));
}

void shmq_sync_failed(void *memory, uint32_t failed)
{
    struct control *const control = memory;
    store_release(&control->sync_failed, failed);
    add_release(&control->sync_bell, 1);
    os->futex_wake_all(&control->sync_bell);
    shmq_wake_always(control);
}
uint32_t shmq_sync_has_failed(const void *control) { return load_acquire(&((const struct control *)control)->sync_failed); }

uint64_t shmq_durable(const void *control) { return load_acquire(&((const struct control *)control)->durable); }
uint64_t shmq_durable_chunk(const void *control)
{
    const uint64_t next = load_relaxed(&((const struct control *)control)->durable_chunk);
    return next == 0 ? 0 : next - 1;
}
uint64_t shmq_durable_at(const void *control, uint64_t chunk)
{
    const uint64_t at = load_relaxed(&((const struct control *)control)->durable_at);
    return at >> 32 == (uint32_t)chunk ? at & UINT32_MAX : 0;
}
void shmq_durable_reset(void *memory, uint64_t index, uint64_t chunk)
{
    struct control *const control = memory;
    store_relaxed(&control->durable_at, chunk << 32);
    store_relaxed(&control->durable_chunk, chunk + 1);
    store_relaxed(&control->durable, index);
}

/* Everything before durable_at is on the disk already. What is written behind a sync's back lies in the header, which
 * this leaves out, and in index blocks: hints both. Not to sync them saves each put a fault and each sync a page. */
static int sync_from_durable(const shmq_chunk *chunk, uint64_t position)
{
    const uint64_t at = shmq_durable_at(chunk->member->control, chunk->sequence);
    const uint64_t begin = at <= position ? at : 0; /* not behind the end, whatever stands there */
    return os->sync_mapped(chunk->memory + begin, position + sizeof(word_t) - begin);
}

/* ---- one group commit of what lies in one chunk: OK, WAITING at a living claim, SYNC_FAILED or an error */
static int sync_chunk(shmq_chunk *chunk)
{
    struct control *const control = chunk->member->control;
    uint64_t position;
    uint64_t index;
    uint32_t owner = 0;
    const int code = shmq_resolved(chunk, &position, &index, &owner);
    if (code != SHMQ_EMPTY && code != SHMQ_ROLL && code != SHMQ_WAITING) {
        return code;
    }
    if (index > load_relaxed(&control->durable)) {
        store_relaxed(&control->sync_group, (uint32_t)index);
        const int answer = sync_from_durable(chunk, position);
        if (answer < 0) {
            error_set(SHMQ_SYNC_FAILED, "msync said errno %d", -answer);
            shmq_sync_failed(control, 1);
            return SHMQ_SYNC_FAILED;
        }
        shmq_sync_publish(chunk->member, index, chunk->sequence, position);
        return SHMQ_OK;
    }
    return code == SHMQ_WAITING ? code : SHMQ_OK;
}

/* *next: the running sync does not answer `want`, so that the wake of whoever leads next may come here. */
static int wait_for_leader(struct control *control, uint64_t want, uint32_t bell, int64_t deadline_ns, int64_t pause_ns,
                           bool *next)
{
    const uint32_t reach = load_relaxed(&control->sync_group);
    *next = (int32_t)((uint32_t)want - reach) > 0;
    const int64_t look_ns = os->clock_monotonic_ns() + pause_ns;
    const bool last = deadline_ns >= 0 && deadline_ns <= look_ns;
    const int answer = os->futex_wait_bits(&control->sync_bell, bell, last ? deadline_ns : look_ns,
                                           half(*next ? bell + 1 : bell));
    switch (answer) {
    case 0: return SHMQ_OK;
    case -ETIMEDOUT: return last ? SHMQ_TIMEOUT : SHMQ_OK;
    case -EINTR: return SHMQ_SIGNAL;
    default: return error_system(answer, "cannot wait for a sync");
    }
}

int shmq_sync_wait(shmq_member *member, shmq_chunk *chunk, uint64_t want, int64_t deadline_ns, uint32_t *leading)
{
    if (member_forked(member)) {
        return error_forked();
    }
    struct control *const control = member->control;
    int code = SHMQ_OK;
    bool next = false;
    bool doubted = deadline_ns >= 0; /* there may be no time to wait and ask */
    uint32_t looks = CLAIM_LOOKS;
    for (;;) {
        /* Acquire: if nothing below is true yet, a leader that ends behind this line moves the bell. */
        const uint32_t bell = load_acquire(&control->sync_bell);
        if (shmq_durable(control) >= want) {
            code = SHMQ_OK;
            break;
        }
        if (shmq_sync_has_failed(control)) {
            code = error_set(SHMQ_SYNC_FAILED, "an earlier sync of this queue failed");
            break;
        }
        if (code != SHMQ_OK) {
            break; /* the deadline, a signal, a claim */
        }
        if (lead(member, doubted)) {
            *leading = 1;
            if (shmq_sync_has_failed(control)) {
                continue; /* since it was looked: a sync that answers now would say nothing about what that one lost */
            }
            if (chunk == NULL || load_relaxed(&control->durable_chunk) != chunk->sequence + 1) {
                return SHMQ_LEAD; /* older chunks first, or a chunk whose name may not be on the disk */
            }
            code = sync_chunk(chunk);
            shmq_sync_release(member);
            *leading = 0;
            next = false;
            if (code == SHMQ_SYNC_FAILED) {
                return code;
            }
            if (code == SHMQ_WAITING && looks > 0) {
                looks--;
                code = wait_for_leader(control, want, load_acquire(&control->sync_bell), deadline_ns, CLAIM_LOOK_NS,
                                       &next);
            }
            continue;
        }
        code = wait_for_leader(control, want, bell, deadline_ns, LEADER_LOOK_NS, &next);
        doubted = true;
    }
    if (next && load_relaxed(&control->sync_leader) == 0) {
        pass_on(control); /* who leads next, if it is needed, is somebody else; whoever woke us had done its part by then */
    }
    return code;
}

int shmq_sync_put(shmq_chunk *chunk, uint64_t want)
{
    uint32_t leading = 0;
    const int code = shmq_sync_wait(chunk->member, chunk, want, -1, &leading);
    if (leading != 0) {
        shmq_sync_release(chunk->member);
    }
    return code;
}

static bool slept_through(uint32_t *nudge, int64_t deadline_ns)
{
    while (load_relaxed(nudge) == 0) {
        if (os->futex_wait(nudge, 0, deadline_ns) == -ETIMEDOUT) {
            return true;
        }
    }
    return false;
}

void shmq_sync_rolled(shmq_keeper *keeper, shmq_chunk *chunk)
{
    store_release(&keeper->following, (uint64_t)(uintptr_t)chunk); /* pairs with the acquire in behind */
}

/* The chunk behind this one, whose successor begins at `base`; NULL if it was not this process that rolled to it. */
static shmq_chunk *behind(const shmq_keeper *keeper, const shmq_chunk *chunk, uint64_t base)
{
    shmq_chunk *const next = (shmq_chunk *)(uintptr_t)load_acquire(&keeper->following);
    return next != NULL && next->sequence == chunk->sequence + 1 && next->base == base ? next : NULL;
}

/* As leader: the rest of a sealed chunk, all of the next one, then the name. In this order, as docs/format.md has it. */
static int sync_both(shmq_chunk *chunk, shmq_chunk *next, int directory)
{
    struct control *const control = chunk->member->control;
    uint64_t position;
    uint64_t index;
    uint32_t owner;
    if (shmq_sync_has_failed(control) || load_relaxed(&control->durable_chunk) != chunk->sequence + 1
        || shmq_resolved(chunk, &position, &index, &owner) != SHMQ_ROLL) {
        return SHMQ_LEAD;
    }
    int answer = sync_from_durable(chunk, position);
    const int code = shmq_resolved(next, &position, &index, &owner);
    if (code != SHMQ_EMPTY && code != SHMQ_ROLL && code != SHMQ_WAITING) {
        return code;
    }
    /* The first sync of a chunk is a whole one: of its header, and of the zeros that a used one was filled with. */
    answer = answer < 0 ? answer : os->sync_mapped(next->memory, next->capacity);
    answer = answer < 0 ? answer : os->sync_directory(directory);
    if (answer < 0) {
        shmq_sync_failed(control, 1);
        return error_set(SHMQ_SYNC_FAILED, "a sync said errno %d", -answer);
    }
    shmq_sync_publish(chunk->member, index, next->sequence, position);
    return SHMQ_OK;
}

static int sync_over(shmq_chunk *chunk, shmq_chunk *next, int directory)
{
    if (!lead(chunk->member, true)) {
        return SHMQ_LEAD;
    }
    const int code = sync_both(chunk, next, directory);
    shmq_sync_release(chunk->member);
    return code;
}

int shmq_sync_mapped(void *begin, size_t bytes) { return os->sync_mapped(begin, bytes); }

int shmq_sync_keep(shmq_chunk *chunk, int64_t interval_ns, int64_t mark_due_ns, shmq_keeper *keeper)
{
    struct control *const control = chunk->member->control;
    for (;;) {
        if (!slept_through(&keeper->nudge, os->clock_monotonic_ns() + interval_ns)) {
            return SHMQ_OK;
        }
        uint64_t position;
        uint64_t index;
        uint32_t owner;
        const int found = shmq_resolved(chunk, &position, &index, &owner);
        if (found == SHMQ_EMPTY && index <= shmq_durable(control)) {
            return SHMQ_OK;
        }
        if (os->clock_monotonic_ns() >= mark_due_ns) {
            return SHMQ_LEAD;
        }
        if (found == SHMQ_ROLL) {
            shmq_chunk *const next = behind(keeper, chunk, index);
            if (next == NULL || sync_over(chunk, next, keeper->directory) != SHMQ_OK) {
                return SHMQ_LEAD;
            }
            chunk = next;
            continue;
        }
        if (found == SHMQ_WAITING && index <= shmq_durable(control)) {
            continue; /* a claim of one who lives, and all before it is on the disk */
        }
        if ((found != SHMQ_EMPTY && found != SHMQ_WAITING) || shmq_sync_put(chunk, index) != SHMQ_OK) {
            return SHMQ_LEAD;
        }
    }
}

int shmq_sync_refuses(const shmq_chunk *chunk) { return shmq_sync_has_failed(chunk->member->control) != 0; }

uint32_t shmq_bell(const void *control) { return load_acquire(&((const struct control *)control)->bell); }

/* ---- acknowledgements: a counter in each checkpoint of those that asked, and one of those that are on the disk
 *
 *   ack: the word, or the head               the leader (shmq/storage/acks.py)
 *     asked + 1                                what was asked, read before its snapshot is made
 *     synced >= mine?  done                    snapshot, fdatasync
 *     nobody leads?    CAS, lead               synced = what was asked then; leadership back, bell + 1, wakes all
 *     else sleep on the bell */
uint64_t shmq_acks_ask(shmq_member *member, void *memory)
{
    struct checkpoint *const checkpoint = memory;
    /* Release: what was acknowledged before it. Pairs with the acquire in shmq_acks_asked. */
    const uint64_t mine = add_release(&checkpoint->acks_asked, 1) + 1;
    /* Release, and in one step with what it replaces: whoever clears this mark with others' sees what we asked for. Pairs
     * with the acquire in shmq_acks_begin. */
    exchange_release(&member->control->sync_acks, 1);
    fence_seq_cst(); /* pairs with the fence in shmq_sync_release */
    return mine;
}
uint64_t shmq_acks_asked(const void *memory) { return load_acquire(&((const struct checkpoint *)memory)->acks_asked); }
uint64_t shmq_acks_synced(const void *memory)
{
    return load_acquire(&((const struct checkpoint *)memory)->acks_synced);
}
uint64_t shmq_snapshot_synced(const void *memory)
{
    return load_relaxed(&((const struct checkpoint *)memory)->snapshot_synced);
}

void shmq_acks_publish(void *memory, uint64_t asked, uint64_t sequence)
{
    struct checkpoint *const checkpoint = memory;
    store_relaxed(&checkpoint->snapshot_synced, sequence);
    uint64_t seen = load_relaxed(&checkpoint->acks_synced);
    while (seen < asked && !cas_release(&checkpoint->acks_synced, seen, asked)) { /* pairs with shmq_acks_synced */
        seen = load_relaxed(&checkpoint->acks_synced);
    }
}

int shmq_acks_wait(shmq_member *member, const void *memory, uint64_t want, uint32_t *leading)
{
    if (member_forked(member)) {
        return error_forked();
    }
    struct control *const control = member->control;
    for (bool doubted = false;; doubted = true) {
        /* Acquire: as in shmq_sync_wait. */
        const uint32_t bell = load_acquire(&control->sync_bell);
        if (shmq_acks_synced(memory) >= want) {
            return SHMQ_OK;
        }
        if (shmq_sync_has_failed(control)) {
            return error_set(SHMQ_SYNC_FAILED, "an earlier sync of this queue failed");
        }
        if (lead(member, doubted)) {
            *leading = 1;
            return SHMQ_LEAD;
        }
        const int64_t look_ns = os->clock_monotonic_ns() + LEADER_LOOK_NS;
        if (os->futex_wait_bits(&control->sync_bell, bell, look_ns, ACKERS) == -EINTR) {
            return SHMQ_SIGNAL;
        }
    }
}

uint32_t shmq_acks_begin(shmq_member *member)
{
    return (uint32_t)exchange_acquire(&member->control->sync_acks, 0);
}
void shmq_acks_answer(shmq_member *member) { os->futex_wake_bits(&member->control->sync_bell, INT32_MAX, ACKERS); }

int shmq_sync_try(shmq_member *member, uint32_t *leading)
{
    *leading = !member_forked(member) && lead(member, true);
    return (int)*leading;
}

void shmq_sync_stop(shmq_member *member, uint32_t *leading)
{
    if (*leading != 0) {
        shmq_sync_release(member);
        *leading = 0;
        shmq_acks_answer(member);
    }
}
int shmq_start_writing(int fd) { return os->start_writing(fd); }
