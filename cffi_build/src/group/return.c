/* return.c - what came back: given back, held beyond its lease, or held by somebody who died.
 *
 * What came back lies behind the walkers: whoever puts it back bumps `returns` afterwards, and whoever finds another number
 * there than it has seen looks through the window. A dead member's messages are found through `tenants`, which it entered
 * before it claimed anything, and that word goes last: who dies on the way leaves all of it to the next. */
#include "error.h"
#include "group/ended.h"
#include "group/gate.h"
#include "group/head.h"
#include "group/order.h"
#include "group/side.h"
#include "os/owner.h"

#define REAP_EVERY_NS INT64_C(2000000)

/* ------------------------------------------------------------------ what the dead held */
/* Put back one message of the window, if that is its owner: whether it was. One that was parked for that owner is settled here, whoever
 * parked it, so that side_reap finds it as the owner's: killed before that, nobody else would ever look for it. What it
 * forwards comes back by its death alone. */
static bool reap_word(shmq_ring *ring, uint64_t index, owner_t owner, bool dead)
{
    for (;;) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state == RING_PARKED) {
            side_passes(ring, index, word);
            return false;
        }
        if (ring_owner(word) != owner
            || (state != RING_CLAIMED && state != RING_MOVING && (state != RING_FORWARDING || !dead))) {
            return false;
        }
        const uint32_t next = state == RING_MOVING ? RING_MOVING : RING_RETRY;
        if (cas_release(ring_word(ring, index), word,
                        ring_stamp(ring, index) | ring_low(0, ring_count(word), next))) {
            add_relaxed(&ring->page->redelivered, 1);
            return true;
        }
    }
}

static owner_t tenant_owner(uint32_t slot, uint64_t tenant)
{
    return owner_make(slot, (uint32_t)tenant & (OWNER_GENERATIONS - 1));
}
/* Dead, because somebody else has sat down in that seat since; or by what the kernel says. */
static bool tenant_dead(const shmq_ring *ring, uint32_t slot, uint64_t tenant)
{
    return tenant >= OWNER_GENERATIONS || !owner_alive(ring->member, tenant_owner(slot, tenant));
}

/* What a dead tenant held goes to the others. False when the side table has grown meanwhile: map it anew, and again. */
static bool reap(shmq_ring *ring, uint32_t slot, uint64_t tenant)
{
    const owner_t owner = tenant_owner(slot, tenant);
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        reap_word(ring, index, owner, true);
    }
    side_reap(ring, owner);
    keyed_reap(ring);
    ring_advance(ring); /* the owner may have died between finishing a word and moving the head */
    ring_returned(ring);
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return false;
    }
    /* Last: if this process dies before, the next one does all of it again. */
    cas_release(&ring->page->tenants[slot], tenant, 0);
    return true;
}

static void reap_the_dead(shmq_ring *ring)
{
    for (uint32_t slot = 0; slot < ring->slots; slot++) {
        const uint64_t tenant = load_acquire(&ring->page->tenants[slot]);
        if (tenant != 0 && tenant_dead(ring, slot, tenant)) {
            reap(ring, slot, tenant);
        }
    }
}

int shmq_ring_join(shmq_ring *ring)
{
    const uint32_t slot = owner_slot(ring->member->owner);
    const uint64_t mine = owner_generation(ring->member->owner);
    uint64_t tenant = load_acquire(&ring->page->tenants[slot]);
    while (tenant != mine) {
        if (tenant != 0 && !reap(ring, slot, tenant)) { /* the slot's last tenant: dead by definition */
            return SHMQ_GROW;
        }
        shmq_ring_rest(ring, false); /* what the slot's last tenant said */
        if (tenant == 0 && cas_release(&ring->page->tenants[slot], 0, mine)) {
            break;
        }
        tenant = load_acquire(&ring->page->tenants[slot]);
    }
    reap_the_dead(ring);
    return SHMQ_OK;
}

int shmq_ring_leave(shmq_ring *ring)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return SHMQ_GROW;
    }
    const owner_t owner = ring->member->owner;
    const uint64_t head = head_of(ring);
    const uint64_t passed = ring_passed(ring); /* nothing behind it was handed out, so its pages need not be there */
    bool came_back = false;
    for (uint64_t index = head; index < passed && index < head + ring->window; index++) {
        came_back = reap_word(ring, index, owner, false) || came_back;
    }
    came_back = side_leave(ring, owner) || came_back;
    if (came_back) {
        keyed_reap(ring);
        ring_returned(ring);
    }
    return SHMQ_OK;
}

/* ------------------------------------------------------------------ leases */
/* Take back what is held beyond its lease; when to look again is noted. */
static void end_leases(shmq_ring *ring, int64_t now_ns)
{
    const uint64_t head = head_of(ring);
    int64_t next = now_ns + ring->lease_ns;
    bool came_back = false;
    for (uint64_t index = head; index < head + ring->window; index++) {
        const uint64_t word = ring_look(ring, index);
        int64_t ends = INT64_MAX;
        if (ring_state(ring, index, word) != RING_CLAIMED) {
            continue;
        }
        if (!lease_ended(ring, &ring->leases[ring_slot(ring, index)], word, now_ns, &ends)) {
            next = ends < next ? ends : next;
        } else if (cas_release(ring_word(ring, index), word,
                               ring_stamp(ring, index) | ring_low(0, ring_count(word), RING_RETRY))) {
            add_relaxed(&ring->page->redelivered, 1);
            keyed_ready(ring, keyed_at(ring, index));
            came_back = true;
        }
    }
    ring->leases_ns = next;
    if (came_back) {
        ring_returned(ring);
    }
}

/* ------------------------------------------------------------------ taken again */
/* What came back in the window, and lies before `end`. */
static int64_t retake_ring(shmq_ring *ring, uint64_t end, uint32_t limit, shmq_taken *taken)
{
    const uint64_t returns = load_acquire(&ring->page->returns); /* pairs with the release in ring_returned */
    if (returns != ring->returns_seen) {
        ring->returns_seen = returns;
        ring->retry_next = 0;
    }
    if (ring->retry_next == UINT64_MAX) {
        return 0;
    }
    const uint64_t head = head_of(ring);
    uint64_t index = ring->retry_next > head ? ring->retry_next : head;
    int64_t count = 0;
    uint64_t dropped = 0;
    for (; index < head + ring->window && index < end && count < limit; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if (state != RING_RETRY && (state != RING_MOVING || ring_owner(word) != 0)) {
            continue;
        }
        if (ring_is_dropped(ring, index)) {
            dropped += ring_drop(ring, index);
            continue;
        }
        if (keyed_at(ring, index) != 0) {
            continue; /* keyed_take has it, when nothing before it is left */
        }
        const uint32_t kind = state == RING_RETRY ? SHMQ_TAKEN_MESSAGE : SHMQ_TAKEN_MOVING;
        count += ring_claim(ring, index, word, kind, false, &taken[count]);
    }
    ring->retry_next = index < head + ring->window ? index : UINT64_MAX;
    if (dropped != 0) {
        ring_settled(ring, dropped);
        ring_finished(ring);
    }
    return count;
}

/* What came back in the window and what lies in the side table, the lowest first. */
static int64_t retake_in_order(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken)
{
    int64_t count = 0;
    uint64_t offered = side_offered(ring);
    if (offered == UINT64_MAX) {
        side_take(ring, idle, limit, taken);
        offered = side_offered(ring);
    }
    for (;;) {
        count += retake_ring(ring, offered, limit - (uint32_t)count, &taken[count]);
        if (count == limit || offered == UINT64_MAX) {
            return count;
        }
        count += side_take_offered(ring, &taken[count]);
        offered = side_offered(ring);
    }
}

int64_t shmq_ring_retake(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken, int64_t *next_ns)
{
    if (member_forked(ring->member)) {
        return error_forked();
    }
    if (load_acquire(&ring->page->side_blocks) > ring->blocks) {
        return SHMQ_GROW; /* map it anew first */
    }
    if (load_relaxed(&ring->member->control->shut_down) == SHUT_DOWN_AT_ONCE) {
        *next_ns = INT64_MAX;
        return 0;
    }
    const int64_t now_ns = ring_now();
    if (idle || now_ns - ring->reaped_ns >= REAP_EVERY_NS) {
        reap_the_dead(ring);
        ring->reaped_ns = now_ns;
    }
    if (ring->lease_ns != 0 && now_ns >= ring->leases_ns) {
        end_leases(ring, now_ns);
    }
    int64_t count = ring->in_order ? retake_in_order(ring, idle, limit, taken) : retake_ring(ring, UINT64_MAX, limit, taken);
    if (count == 0 && !ring->in_order) {
        count = side_take(ring, idle, limit, taken);
    }
    if (count == 0 && ring->bucket_count != 0) {
        count = keyed_take(ring, idle, limit, taken);
        keyed_wake(ring);
    }
    *next_ns = ring->side_due_ns;
    if (ring->lease_ns != 0 && ring->leases_ns < *next_ns) {
        *next_ns = ring->leases_ns;
    }
    if (ring->park_ns != 0 && ring->park_ns < *next_ns) {
        *next_ns = ring->park_ns;
    }
    ring->holds += ring->finish || count < 0 ? 0 : (uint64_t)count;
    return count;
}

bool shmq_ring_quiet(const shmq_ring *ring, int64_t now_ns)
{
    for (uint32_t at = 0; at < ring->bucket_count / 64; at++) {
        if (load_relaxed(&ring->ready[at]) != 0) {
            return false;
        }
    }
    /* Nothing is read behind these: whoever sees another number looks anew, and whoever does not yet is not too late. */
    return load_relaxed(&ring->page->returns) == ring->returns_seen && ring->retry_next == UINT64_MAX
           && load_relaxed(&ring->page->side_blocks) <= ring->blocks && side_quiet(ring, now_ns)
           && now_ns - ring->reaped_ns < REAP_EVERY_NS && (ring->lease_ns == 0 || now_ns < ring->leases_ns)
           && load_relaxed(&ring->member->control->shut_down) != SHUT_DOWN_AT_ONCE;
}

bool shmq_ring_forked(const shmq_ring *ring) { return member_forked(ring->member); }

/* ------------------------------------------------------------------ looked at only */
int64_t shmq_ring_glance_back(shmq_ring *ring, uint32_t most, int64_t *next_ns)
{
    int64_t found = 0;
    ring->most = most;
    const int64_t code = shmq_ring_retake(ring, true, 0, NULL, next_ns); /* what the dead had, and leases that ended */
    if (code < 0) {
        return code;
    }
    const uint64_t head = head_of(ring);
    for (uint64_t index = head; index < head + ring->window; index++) {
        const uint64_t word = ring_look(ring, index);
        const uint32_t state = ring_state(ring, index, word);
        if ((state == RING_RETRY || (state == RING_MOVING && ring_owner(word) == 0)) && keyed_at(ring, index) == 0
            && !ring_is_dropped(ring, index)) {
            found = ring_worth(ring, ring_attempts(ring, index), state == RING_MOVING);
            if (found == 1) {
                return found;
            }
        }
    }
    const int64_t by_key = ring->bucket_count == 0 ? 0 : keyed_glance(ring);
    keyed_wake(ring);
    const int64_t parked = by_key == 1 || by_key < 0 ? by_key : side_any_due(ring);
    return parked == 1 || parked < 0 ? parked : found | by_key | parked;
}

int64_t shmq_ring_peek(const shmq_ring *ring, uint64_t start)
{
    const uint64_t head = head_of(ring);
    for (uint64_t index = start > head ? start : head; index < head + ring->window; index++) {
        const uint32_t state = ring_state(ring, index, ring_look(ring, index));
        const uint64_t bucket = keyed_at(ring, index); /* 0 also where no walker has met it */
        if ((state == RING_PENDING || state == RING_RETRY) && !ring_is_dropped(ring, index)
            && (bucket == 0 || keyed_idle(ring, bucket))) {
            return (int64_t)index;
        }
    }
    return SHMQ_EMPTY;
}
