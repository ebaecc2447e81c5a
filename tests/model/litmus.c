/* litmus.c - known programs with known outcomes: they test memory.c, not shmq.
 *
 * Each names the set of what must come out in some execution and may in any. A model that is too strong misses an
 * outcome, one that is too weak has one too many; both would make the scenarios worth less than they look. The
 * answers are those of C11 with C++20's fences, but for load_buffering, whose weak outcome this model leaves out. */
#include <string.h>

#include "../../cffi_build/src/atomic.h"
#include "stage.h"

static uint64_t *x(void) { return &the_words()[0]; }
static uint64_t *y(void) { return &the_words()[2]; }
static uint64_t *learnt(uint32_t i) { return &actor_self()->notes[i]; }
static uint64_t note(uint32_t thread, uint32_t i) { return stage.actors[thread].notes[i]; }

static void setup(void) { memset(&stage, 0, sizeof stage); }

/* What threads a and b learnt first, as a number of two bits. */
static uint32_t first_notes(uint32_t a, uint32_t b) { return (uint32_t)(note(a, 0) << 1 | note(b, 0)); }
static uint32_t two_notes(void) { return first_notes(0, 1); }
static uint32_t notes_of_second(void) { return (uint32_t)(note(1, 0) << 1 | note(1, 1)); }
static uint32_t notes_of_third(void) { return (uint32_t)(note(2, 0) << 1 | note(2, 1)); }
static uint32_t notes_of_readers(void)
{
    return (uint32_t)(note(2, 0) << 3 | note(2, 1) << 2 | note(3, 0) << 1 | note(3, 1));
}
static uint32_t final_x_and_y(void) { return (uint32_t)((*x() - 1) << 1 | (*y() - 1)); } /* each 1 or 2 */
static uint32_t final_x(void) { return (uint32_t)*x(); }

/* ------------------------------------------------------------------ store buffering: why waiting needs fences */
static void sb_x(void) { store_relaxed(x(), 1); *learnt(0) = load_relaxed(y()); }
static void sb_y(void) { store_relaxed(y(), 1); *learnt(0) = load_relaxed(x()); }
static void sb_fence_x(void) { store_relaxed(x(), 1); fence_seq_cst(); *learnt(0) = load_relaxed(y()); }
static void sb_fence_y(void) { store_relaxed(y(), 1); fence_seq_cst(); *learnt(0) = load_relaxed(x()); }
static void sb_strong_x(void) { store_release(x(), 1); *learnt(0) = load_acquire(y()); }
static void sb_strong_y(void) { store_release(y(), 1); *learnt(0) = load_acquire(x()); }

/* ------------------------------------------------------------------ message passing: why commits release */
static void mp_send(void) { store_relaxed(x(), 1); store_relaxed(y(), 1); }
static void mp_send_release(void) { store_relaxed(x(), 1); store_release(y(), 1); }
static void mp_send_fence(void) { store_relaxed(x(), 1); fence_seq_cst(); store_relaxed(y(), 1); }
static void mp_read(void) { *learnt(0) = load_relaxed(y()); *learnt(1) = load_relaxed(x()); }
static void mp_read_acquire(void) { *learnt(0) = load_acquire(y()); *learnt(1) = load_relaxed(x()); }
static void mp_read_fence(void) { *learnt(0) = load_relaxed(y()); fence_seq_cst(); *learnt(1) = load_relaxed(x()); }
static void mp_pass_on(void) { add_relaxed(y(), 1); } /* a read-modify-write carries on what it read */
static void mp_read_two(void) { *learnt(0) = load_acquire(y()) == 2; *learnt(1) = load_relaxed(x()); }
static void mp_overwrite(void) { store_relaxed(y(), 2); } /* a plain store does not */
static void wrc_middle(void) { *learnt(0) = load_acquire(x()); store_release(y(), *learnt(0)); }
static void wrc_send(void) { store_relaxed(x(), 1); }
static void wrc_send_release(void) { store_release(x(), 1); }

/* ------------------------------------------------------------------ one word has one order */
static void corr_write(void) { store_relaxed(x(), 1); }
static void corr_read(void) { *learnt(0) = load_relaxed(x()); *learnt(1) = load_relaxed(x()); }
static void add_one(void) { add_relaxed(x(), 1); }

/* ------------------------------------------------------------------ 2+2W: stores land between earlier ones */
static void ww_x(void) { store_relaxed(x(), 1); store_relaxed(y(), 2); }
static void ww_y(void) { store_relaxed(y(), 1); store_relaxed(x(), 2); }
static void ww_fence_x(void) { store_relaxed(x(), 1); fence_seq_cst(); store_relaxed(y(), 2); }
static void ww_fence_y(void) { store_relaxed(y(), 1); fence_seq_cst(); store_relaxed(x(), 2); }

/* ------------------------------------------------------------------ independent reads of independent writes */
static void iriw_x(void) { store_release(x(), 1); }
static void iriw_y(void) { store_release(y(), 1); }
static void iriw_xy(void) { *learnt(0) = load_acquire(x()); *learnt(1) = load_acquire(y()); }
static void iriw_yx(void) { *learnt(0) = load_acquire(y()); *learnt(1) = load_acquire(x()); }
static void iriw_fence_xy(void) { *learnt(0) = load_acquire(x()); fence_seq_cst(); *learnt(1) = load_acquire(y()); }
static void iriw_fence_yx(void) { *learnt(0) = load_acquire(y()); fence_seq_cst(); *learnt(1) = load_acquire(x()); }

/* ------------------------------------------------------------------ load buffering */
static void lb_x(void) { *learnt(0) = load_relaxed(x()); store_relaxed(y(), 1); }
static void lb_y(void) { *learnt(0) = load_relaxed(y()); store_relaxed(x(), 1); }

#define ALL4 0xfu
#define BUT(outcome) (ALL4 & ~(1u << (outcome)))
#define TEST(name_, rule_, outcome_, outcomes_, ...)                                                                  \
    {.name = name_, .rule = rule_, .setup = setup, .threads = {__VA_ARGS__}, .outcome = outcome_, .outcomes = outcomes_}
#define T(body_) {.name = #body_, .body = body_}

const struct scenario litmus[] = {
    TEST("store_buffering", "both may miss the other's store", two_notes, ALL4, T(sb_x), T(sb_y)),
    TEST("store_buffering_release", "release and acquire do not help", two_notes, ALL4, T(sb_strong_x), T(sb_strong_y)),
    TEST("store_buffering_fences", "two fences do", two_notes, BUT(0), T(sb_fence_x), T(sb_fence_y)),
    TEST("store_buffering_one_fence", "one fence does not", two_notes, ALL4, T(sb_fence_x), T(sb_y)),
    TEST("message_passing", "relaxed: the flag without the data", notes_of_second, ALL4, T(mp_send), T(mp_read)),
    TEST("message_passing_release", "a release without an acquire is worth nothing", notes_of_second, ALL4,
         T(mp_send_release), T(mp_read)),
    TEST("message_passing_acquire", "nor the other way round", notes_of_second, ALL4, T(mp_send), T(mp_read_acquire)),
    TEST("message_passing_pair", "the pair orders", notes_of_second, BUT(2), T(mp_send_release), T(mp_read_acquire)),
    TEST("message_passing_fences", "so do fences with relaxed words", notes_of_second, BUT(2), T(mp_send_fence),
         T(mp_read_fence)),
    TEST("release_sequence", "a read-modify-write passes on what it read", notes_of_third, BUT(2), T(mp_send_release),
         T(mp_pass_on), T(mp_read_two)),
    TEST("release_overwritten", "a plain store in between does not", notes_of_third, ALL4, T(mp_send_release),
         T(mp_overwrite), T(mp_read_two)),
    TEST("write_read_causality", "what is passed on twice is still ordered", notes_of_third, BUT(2),
         T(wrc_send_release), T(wrc_middle), T(mp_read_acquire)),
    TEST("write_read_causality_relaxed", "coherence alone orders the second reader as well", notes_of_third, BUT(2),
         T(wrc_send), T(wrc_middle), T(mp_read_acquire)),
    TEST("coherence", "one word never goes back", notes_of_second, BUT(2), T(corr_write), T(corr_read)),
    TEST("atomicity", "no addition is lost", final_x, 1u << 3, T(add_one), T(add_one), T(add_one)),
    TEST("two_plus_two_writes", "both first stores may be last", final_x_and_y, ALL4, T(ww_x), T(ww_y)),
    TEST("two_plus_two_writes_fences", "not with fences", final_x_and_y, BUT(0), T(ww_fence_x), T(ww_fence_y)),
    TEST("independent_reads", "two readers may disagree about two writers", notes_of_readers, 0xffffu, T(iriw_x),
         T(iriw_y), T(iriw_xy), T(iriw_yx)),
    TEST("independent_reads_fences", "not with fences", notes_of_readers, 0xffffu & ~(1u << 10), T(iriw_x), T(iriw_y),
         T(iriw_fence_xy), T(iriw_fence_yx)),
    TEST("load_buffering", "C11 allows both to read the other's store; this model does not: see memory.c", two_notes,
         BUT(3), T(lb_x), T(lb_y)),
};
const size_t litmus_count = sizeof litmus / sizeof litmus[0];
