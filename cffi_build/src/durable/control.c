/* control.c - single words of the control page and of checkpoints that Python reads and moves.
 *
 * None of them decides about data: the head of an exclusive consumer has one writer, who holds its lock. */
#include "atomic.h"
#include "crc.h"
#include "layout.h"
#include "shmq.h"

#define LIVE(memory) ((struct checkpoint *)(memory))
#define LIVE_CONST(memory) ((const struct checkpoint *)(memory))
uint64_t shmq_checkpoint_head(const void *memory) { return load_relaxed(&LIVE_CONST(memory)->head); }
void shmq_checkpoint_set_head(void *memory, uint64_t index) { store_relaxed(&LIVE(memory)->head, index); }
void shmq_checkpoint_raise_head(void *memory, uint64_t index)
{
    uint64_t *const at = &LIVE(memory)->head;
    uint64_t seen = load_relaxed(at);
    while (seen < index && !cas_relaxed(at, seen, index)) {
        seen = load_relaxed(at); /* another thread takes */
    }
}
uint64_t shmq_checkpoint_handed(const void *memory) { return load_relaxed(&LIVE_CONST(memory)->handed); }
void shmq_checkpoint_set_handed(void *memory, uint64_t index) { store_relaxed(&LIVE(memory)->handed, index); }
uint64_t shmq_checkpoint_holder(const void *memory) { return load_relaxed(&LIVE_CONST(memory)->holder); }
void shmq_checkpoint_set_holder(void *memory, uint64_t owner) { store_relaxed(&LIVE(memory)->holder, owner); }
uint64_t shmq_checkpoint_floor(const void *memory) { return load_relaxed(&LIVE_CONST(memory)->floor); }

static uint64_t cursor_check(uint64_t sequence, uint64_t place, uint64_t index)
{
    const uint64_t words[3] = {sequence, place, index};
    return UINT64_C(1) << 32 | crc32c(0, words, sizeof words);
}

void shmq_cursor_save(void *memory, uint64_t sequence, uint64_t position, uint64_t ordinal, uint64_t index)
{
    /* Killed between two of these stores, the check disagrees and the cursor is walked for instead. */
    struct checkpoint *page = memory;
    const uint64_t place = hint_make(position, ordinal);
    store_relaxed(&page->cursor_sequence, sequence);
    store_relaxed(&page->cursor_place, place);
    store_relaxed(&page->cursor_index, index);
    store_relaxed(&page->cursor_check, cursor_check(sequence, place, index));
}

int shmq_cursor_load(const void *memory, uint64_t *sequence, uint64_t *position, uint64_t *ordinal, uint64_t *index)
{
    const struct checkpoint *page = memory;
    const uint64_t place = load_relaxed(&page->cursor_place);
    *sequence = load_relaxed(&page->cursor_sequence);
    *index = load_relaxed(&page->cursor_index);
    *position = hint_position(place);
    *ordinal = hint_ordinal(place);
    return load_relaxed(&page->cursor_check) == cursor_check(*sequence, place, *index);
}

uint64_t shmq_first_live(const void *control) { return load_relaxed(&((const struct control *)control)->first_live); }

/* Both only rise. Names are made and taken away by system calls, and those are ordered for everybody; release: the SEAL
 * before the chunk that is the newest now. Pairs with the acquire in nothing_there. */
static void raise_to(uint64_t *at, uint64_t value)
{
    uint64_t seen = load_relaxed(at);
    while (seen < value && !cas_release(at, seen, value)) {
        seen = load_relaxed(at);
    }
}
void shmq_raise_first_live(void *control, uint64_t sequence)
{
    raise_to(&((struct control *)control)->first_live, sequence);
}
uint64_t shmq_newest(const void *control) { return load_relaxed(&((const struct control *)control)->newest); }
uint64_t shmq_newest_base(const void *control) { return load_relaxed(&((const struct control *)control)->newest_base); }
void shmq_newest_raise(void *control, uint64_t newest, uint64_t base)
{
    struct control *const page = control;
    raise_to(&page->newest_base, base); /* both rise together: who is beside another ends up with the pair of one chunk */
    raise_to(&page->newest, newest);
}
uint32_t shmq_members(const void *control) { return load_relaxed(&((const struct control *)control)->members); }
void shmq_shut_down(void *control, uint32_t how) { store_relaxed(&((struct control *)control)->shut_down, how); }
uint32_t shmq_is_shut_down(const void *control) { return load_relaxed(&((const struct control *)control)->shut_down); }
/* Only under the administrative lock. */
void shmq_set_finished(void *control, uint32_t finished)
{
    store_relaxed(&((struct control *)control)->finished, finished);
    fence_seq_cst(); /* before the end is sealed: who puts behind it sees the SEAL, and then this */
}
uint32_t shmq_finished(const void *control) { return load_relaxed(&((const struct control *)control)->finished); }

void shmq_counters(const void *control, uint64_t *padded, uint64_t *fenced)
{
    const struct control *page = control;
    *padded = load_relaxed(&page->padded);
    *fenced = load_relaxed(&page->fenced);
}
