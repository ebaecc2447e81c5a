"""Builds the explorer from the core's own C files, and reads what it prints."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.support import alone

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORE = ROOT / "cffi_build"
CORE_FILES = [
    "chunk/bounds.c",
    "chunk/chunk_file.c",
    "chunk/filter.c",
    "chunk/find.c",
    "chunk/find_time.c",
    "chunk/index.c",
    "chunk/measure.c",
    "chunk/note.c",
    "chunk/proof.c",
    "chunk/put.c",
    "chunk/record.c",
    "chunk/reindex.c",
    "chunk/seal.c",
    "chunk/settle.c",
    "chunk/take.c",
    "chunk/timed.c",
    "chunk/walk.c",
    "chunk/write.c",
    "crc.c",
    "durable/control.c",
    "durable/sync.c",
    "error.c",
    "group/claim.c",
    "group/drop.c",
    "group/edge.c",
    "group/ended.c",
    "group/figures.c",
    "group/finish.c",
    "group/gate.c",
    "group/head.c",
    "group/order.c",
    "group/return.c",
    "group/ring_file.c",
    "group/side_hold.c",
    "group/side_look.c",
    "group/side_table.c",
    "group/side_take.c",
    "group/snapshot.c",
    "group/window.c",
    "os/any.c",
    "os/owner.c",
    "os/wait.c",
]
MODEL_FILES = [
    "memory.c",
    "search.c",
    "kernel.c",
    "stage.c",
    "scenarios.c",
    "group_scenarios.c",
    "keyed_scenarios.c",
    "space_scenarios.c",
    "pads_scenarios.c",
    "sync_scenarios.c",
    "litmus.c",
    "main.c",
]
FLAGS = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-DSHMQ_MODEL", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]

# Weakenings that nothing can show, each with the reason why it is harmless: file, words of its line, way.
HARMLESS = [
    # Who clears the mark rings in any case, and rings after clearing: a mark that two clear is answered twice, and one
    # that came in between is answered by the bell it has not seen yet. The exchange only saves the second call.
    ("wait.c", "exchange_relaxed(sleepers", "split"),
    # A favour to the processor, in a word of one process: without it pages are mapped one by one.
    ("put.c", "store_relaxed(&chunk->populated", "skip"),
    # What a recovery writes, alone under its lock: tests/crash kills it at every instruction.
    ("seal.c", "word_seal(0)); /* behind the gap", "skip"),
    ("seal.c", "gap.word); /* all of it before it", "skip"),
    ("seal.c", "gap.word); /* all of it before it", "step"),
    # Between the count and the mark, and between the mark and the count: without that order a processor that carries
    # out the second first lets a count of somebody else's fall between. Load buffering, which this memory does not do
    # (README.md).
    ("owner.c", ".padding, UINT64_MAX); /* the count before it", "step"),
    ("owner.c", "*mark = load_acquire(&seat->padding)", "step"),
    # Which descriptors carry locks, a table of one process: two of its threads at once are tests/unit's business.
    ("owner.c", "cas_relaxed(&registry[entry]", "split"),
    ("owner.c", "cas_relaxed(&registry[entry]", "blind"),
]

EXPLORED = [
    "any.c",
    "bounds.c",
    "chunk_file.c",
    "claim.c",
    "control.c",
    "drop.c",
    "edge.c",
    "ended.c",
    "figures.c",
    "find_time.c",
    "finish.c",
    "gate.c",
    "gate.h",
    "head.c",
    "index.c",
    "note.c",
    "order.c",
    "owner.c",
    "proof.c",
    "put.c",
    "reindex.c",
    "return.c",
    "ring_file.c",
    "seal.c",
    "settle.c",
    "side_hold.c",
    "side_look.c",
    "side_table.c",
    "side_table.h",
    "side_take.c",
    "snapshot.c",
    "sync.c",
    "take.c",
    "timed.c",
    "wait.c",
    "walk.c",
    "walk.h",
    "window.c",
    "window.h",
]
"""Whose sites are weakened, one by one."""

UNEXPLORED = {"bounds.h", "note.h"}
"""
What these headers inline is run by all schedules, and weakened with none of its own. Not compiled in at all: gather.c,
scatter.c, papers.c and recover.c.
"""

ANY = ("step", "split", "blind", "skip")

# More of the harmless: of groups and of the index. File, words of the line, ways, and why nobody can be hurt.
FIGURES = "a figure for people, which decides nothing"
LONGER = "a lease whose cell is not seen, or is another's, begins when it is looked at: it may only last longer"
MAPPED = "side_blocks grows under the administrative lock, and whoever sees too few is told GROW, or finds no entry"
ITSELF = "an entry is a hint: what it names must prove itself, so that what is late, missing or wrong costs a walk"
ALONE = "at a new boot, under the administrative lock, before any member: nobody else looks"
SAME = "whoever comes at the same time writes the same, or the word is of its own seat, which nobody else has"
PRIVATE = (
    "it names private memory, which the model does not see; without it the interpreter goes over to the next chunk"
)
HARMLESS_TOO = [
    (
        "owner.c",
        "cas_relaxed(&member->asking",
        ("split", "blind"),
        "a descriptor of this process: of two threads that open it at once, one leaves its own open",
    ),
    (
        "owner.c",
        "store_relaxed(&member->asked_ns",
        ("skip",),
        "of this process; without it the kernel is asked each time",
    ),
    (
        "window.c",
        "cas_relaxed(&ring->attempts[ring_slot(ring, index)], cell, cell | ATTEMPTS_FORWARDED)",
        ("split", "blind"),
        "who has lost the message may take back the count of one attempt; the bit is in whatever it writes",
    ),
    (
        "ring_file.c",
        "cas_relaxed(&ring->page->unsure_to, seen, end)",
        ("split", "blind"),
        "who joins at the same time writes an end, too, and what is forwarded in this boot has its own bit",
    ),
    ("ended.c", "load_acquire(&ring->page->side_blocks)", ("step",), MAPPED),
    ("ended.c", "*head = load_acquire(&ring->checkpoint->head)", ("step",), FIGURES),
    ("sync.c", "cas_release(&control->durable, seen, index)", ("step",), "the value alone is told to whoever asks"),
    ("sync.c", "store_relaxed(&control->durable_at, chunk << 32 | position)", ("skip",), "the next sync begins lower"),
    ("sync.c", "store_relaxed(&member->led_", ("skip",), "private memory, which the model does not see"),
    ("sync.c", "store_relaxed(&control->sync_group, (uint32_t)index)", ("skip",), "a guess that saves wake-ups"),
    ("sync.c", "store_relaxed(&checkpoint->snapshot_synced, sequence)", ("skip",), "a snapshot is synced once more"),
    (
        "sync.c",
        "load_acquire(&((const struct control *)control)->",
        ("step",),
        "the value alone is told to whoever asks",
    ),
    (
        "sync.c",
        "store_release(&control->sync_failed, failed)",
        ("step",),
        "the value alone decides",
    ),
    ("sync.c", "    add_release(&control->sync_bell, 1);", ANY, "whoever failed gives up leading, and rings"),
    (
        "sync.c",
        "wait_for_leader(control, want, load_acquire(&control->sync_bell)",
        ("step",),
        "it looks again by the clock",
    ),
    ("sync.c", "store_release(&keeper->following", ("step", "skip"), PRIVATE),
    ("sync.c", "load_acquire(&keeper->following)", ("step",), PRIVATE),
    ("sync.c", "store_relaxed(&control->durable", ("skip",), ALONE),
    ("return.c", "page->redelivered, 1)", ("split",), FIGURES),
    ("side_hold.c", "page->redelivered, 1)", ("split", "skip"), FIGURES),
    ("side_take.c", "page->redelivered, 1)", ("split", "skip"), FIGURES),
    ("claim.c", "page->expired, 1)", ("split",), FIGURES),
    ("claim.c", "page->edges, 1)", ("split", "skip"), FIGURES),
    ("claim.c", "checkpoint->handed, ring->cursor", ("skip",), FIGURES),
    ("side_table.c", "page->side_hint, block", ("skip",), "where to begin to look for a free entry"),
    ("head.c", "exchange_relaxed(&ring->page->edge", ("split",), "a mark that two clear wakes twice"),
    ("window.c", "store_release(cell, lease_units", ("step",), LONGER),
    ("window.c", "lease = load_acquire(cell)", ("step",), LONGER),
    ("window.c", "cas_release(cell, lease, lease_units", ANY, LONGER),
    ("edge.c", "(uint64_t)entry)->lease, load_relaxed", ("skip",), LONGER),
    ("ring_file.c", "load_acquire(&((struct ring *)memory)->side_blocks)", ("step",), MAPPED),
    ("ring_file.c", "store_release(&ring->page->side_blocks", ANY, MAPPED),
    ("drop.c", "load_acquire(&ring->page->side_blocks)", ("step",), MAPPED),
    ("drop.c", "page->retired,", ("split", "skip"), FIGURES),
    ("window.c", "checkpoint->dropped, count)", ("split",), FIGURES),
    ("ring_file.c", "load_acquire(&page->side_blocks)", ("step",), MAPPED),
    ("figures.c", "load_acquire(&ring->page->side_blocks) > ring->blocks", ("step",), MAPPED),
    ("return.c", "load_acquire(&ring->page->side_blocks) > ring->blocks", ("step",), MAPPED),
    ("snapshot.c", "load_acquire(&ring->page->side_blocks) > ring->blocks", ("step",), MAPPED),
    (
        "figures.c",
        "store_relaxed(&ring->checkpoint->floor",
        ("skip",),
        "retention keeps more, until the next one says so",
    ),
    ("snapshot.c", "store_relaxed(&live->", ("skip",), ALONE),
    ("snapshot.c", "store_relaxed(&page->term, term)", ("skip",), ALONE),
    ("snapshot.c", "store_relaxed(ring_word(&ring, index)", ("skip",), ALONE),
    ("return.c", "tenants[slot], 0, mine)", ANY, SAME),
    ("order.c", "store_relaxed(&of->block", ("skip",), "where to begin to look for the lowest in the side table"),
    (
        "index.c",
        "&block->number, (uint32_t)number",
        ANY,
        "a block without its number counts as the one that points to it",
    ),
    ("index.c", "store_release(&block->kind, META_INDEX)", ANY, "likewise"),
    ("index.c", "load_acquire(slot_at(", ANY, ITSELF),
    ("index.c", "load_acquire(&at->place)", ANY, ITSELF),
    ("index.c", "time_max_ns, (uint64_t)time_max", ANY, ITSELF),
    ("index.c", "store_release(&at->place, place)", ANY, ITSELF),
    ("proof.c", "chunk->index_proven[j]", ANY, ITSELF),
    ("note.c", "&chunk->index_next", ANY, "when this handle comes to write an entry again"),
    ("reindex.c", "store_relaxed(at, value)", ANY, ITSELF),
    (
        "index.c",
        "cas_release(slot_at(chunk, number)",
        ANY,
        "the block that nothing points to is skipped, as every block",
    ),
]

# Of groups, line by line: the site as shown.json names it, the ways, and why nobody can be hurt, or what orders it
# as well.
PASSES = (
    "whoever takes this step has written nothing but a lease (LONGER) that anybody must see behind it, and a"
    " read-modify-write passes on what the steps before it have released"
)
DECIDES = (
    "what is read here only says what to try: the CAS on the word or on the entry's state decides, its version says of"
    " which message, and whoever tries has seen that state, or the ring word that names the entry, by an acquire"
)
ASKED = (
    "who asks is told what was so a moment before, as whoever asks a moment earlier; who waits for it to change looks"
    " again behind a fence, or is woken"
)
HEAD = "an older head costs a look at words that are finished and say so themselves; each CAS on a word decides"
KERNEL = "what a dead tenant did is known through the kernel's lock on its seat, not through this word"
AGAIN = (
    "done by whoever holds the lock on that seat, before it enters the ring: beside it others only clear the word, and"
    " a seat that is marked dead once more is reaped once more, and has nothing"
)
LAPS = (
    "the head stands two windows below these words while they are rewritten: nobody claims there, and of two who"
    " rewrite them both write the same"
)
RAISED = "who raises the head over what was retired or never was has finished nothing there that anybody could look for"
RAISES = (
    "a bound is raised by a CAS from the word that was read before the entries, and whoever changes an entry changes"
    " that word behind it; who reads a raised bound only looks later"
)
BEHIND = "who asks has read the head, or the PARKED word, by an acquire, and what lies in the table was written before"
AGAIN_READ = "whether anything has changed at all; search_table reads it again, by an acquire, before it looks"
COMMITS = "lowest_lower is a release behind it, and so is the CAS that makes the ring word name the entry"
DUE = (
    "an entry that was handed out was due, and the walk had passed what it waits for, or its taker was idle: what is"
    " left there holds nobody back for longer than a walk"
)
SEALED = "the SEAL behind it is written by a release, and whoever rings for the end does so behind a fence of its own"
ARGUED = [
    (
        "side_hold.c",
        "cas: if (!cas_release(&side->state, *word, next)) { #2",
        ("step",),
        "what its holder wrote before is seen through what ends FORWARDING, a release of its own, or through its death",
    ),
    (
        "side_hold.c",
        "cas: if (side == NULL || !cas_release(&side->state, *word, next)) { #2",
        ("step", "split", "blind"),
        "what is FORWARDING only its holder ends, or its death, and who is dead does nothing more",
    ),
    (
        "side_table.c",
        "load: const uint64_t state = load_acquire(&side->state); #2",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: const uint64_t state = load_acquire(&side->state);",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: const uint64_t state = load_acquire(&side->state); #2",
        ("step",),
        ASKED,
    ),
    (
        "control.c",
        "fence: fence_seq_cst(); /* before the end is sealed: who puts behind it sees the SEAL, and then this */",
        ("step",),
        SEALED,
    ),
    (
        "head.c",
        "cas: if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {",
        ("step",),
        PASSES,
    ),
    (
        "drop.c",
        "load: const uint64_t head = load_acquire(&ring->checkpoint->head);",
        ("step",),
        HEAD,
    ),
    (
        "drop.c",
        "load: head = load_acquire(&ring->checkpoint->head);",
        ("step",),
        HEAD,
    ),
    (
        "head.c",
        "load: || index < load_acquire(&ring->checkpoint->head)",
        ("step",),
        HEAD,
    ),
    (
        "drop.c",
        (
            "load: } while (load_acquire(&ring->checkpoint->head) != head && load_acquire(&ring->c"
            "heckpoint->head) < target);"
        ),
        ("step",),
        HEAD,
    ),
    (
        "head.c",
        (
            "cas: && !cas_release(ring_word(ring, index + i), word, ring_stamp(ring, index + i - r"
            "ing->window) | RING_DONE)) {"
        ),
        ANY,
        LAPS,
    ),
    (
        "return.c",
        "cas: cas_release(&ring->page->tenants[slot], tenant, 0);",
        ("step",),
        KERNEL,
    ),
    (
        "claim.c",
        "cas: cas_release(ring_word(ring, index), now, ring_stamp(ring, index) | RING_DONE);",
        ("step",),
        PASSES,
    ),
    (
        "claim.c",
        "cas: cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE);",
        ("step",),
        PASSES,
    ),
    (
        "window.c",
        "cas: if (!cas_release(ring_word(ring, index), word, claimed)) {",
        ("step",),
        PASSES,
    ),
    (
        "return.c",
        "cas: if (cas_release(ring_word(ring, index), word,",
        ("step",),
        PASSES,
    ),
    (
        "claim.c",
        "cas: if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) {",
        ("step",),
        PASSES,
    ),
    (
        "claim.c",
        "cas: if (cas_release(ring_word(ring, index), word, ring_stamp(ring, index) | RING_DONE)) { #2",
        ("step",),
        PASSES,
    ),
    (
        "head.c",
        "cas: while (head < index && !cas_release(&ring->checkpoint->head, head, index)) {",
        ("step",),
        RAISED,
    ),
    (
        "ring_file.c",
        "cas: while (tenant != 0 && !cas_release(&page->tenants[slot], tenant, tenant | RING_TENANT_DEAD)) {",
        ANY,
        AGAIN,
    ),
    (
        "return.c",
        "cas: } else if (cas_release(ring_word(ring, index), word,",
        ("step",),
        PASSES,
    ),
    (
        "finish.c",
        "load: *state = load_acquire(&side->state);",
        ("step",),
        DECIDES,
    ),
    (
        "return.c",
        "load: const uint64_t tenant = load_acquire(&ring->page->tenants[slot]);",
        ("step",),
        KERNEL,
    ),
    (
        "finish.c",
        (
            "load: return side_is_of(*state, taken->word) && load_acquire(&side->index) == taken->"
            "index + 1 ? entry : SHMQ_EMPTY;"
        ),
        ("step",),
        DECIDES,
    ),
    (
        "return.c",
        "load: tenant = load_acquire(&ring->page->tenants[slot]);",
        ("step",),
        KERNEL,
    ),
    (
        "return.c",
        "load: uint64_t tenant = load_acquire(&ring->page->tenants[slot]);",
        ("step",),
        KERNEL,
    ),
    (
        "snapshot.c",
        "store: store_relaxed(ring_word(&ring, index), ring_stamp(&ring, index) | RING_DONE);",
        ("skip",),
        ALONE,
    ),
    (
        "side_table.c",
        "cas: && cas_release(&side->state, state,",
        ("step",),
        PASSES,
    ),
    (
        "side_table.c",
        (
            "cas: cas_release(&block->due, seen, due << SIDE_DUE_SHIFT | ((seen + 1) & ((UINT64_C("
            "1) << SIDE_DUE_SHIFT) - 1)));"
        ),
        ("step",),
        RAISES,
    ),
    (
        "side_hold.c",
        "cas: if (!cas_release(&side->state, *word, next)) {",
        ("step",),
        PASSES,
    ),
    (
        "side_take.c",
        "cas: if (!cas_release(&side->state, state, claimed)) {",
        ("step",),
        PASSES,
    ),
    (
        "side_hold.c",
        "cas: if (!nobody_has(state) || !cas_release(&side->state, state, ending)) {",
        ("step",),
        PASSES,
    ),
    (
        "side_hold.c",
        "cas: if (cas_release(&side->state, state, becomes(state, 0, SIDE_LIVE))) {",
        ("step",),
        PASSES,
    ),
    (
        "side_take.c",
        "cas: if (cas_release(&side->state, state, becomes(state, 0, SIDE_LIVE))) {",
        ("step",),
        PASSES,
    ),
    (
        "side_hold.c",
        "cas: if (side == NULL || !cas_release(&side->state, *word, next)) {",
        ("step",),
        PASSES,
    ),
    (
        "side_hold.c",
        "cas: return cas_release(&side->state, state, becomes(state, 0, SIDE_MOVING));",
        ("step",),
        PASSES,
    ),
    (
        "side_look.c",
        "load: const uint32_t state = state_of(load_acquire(&side->state)); #2",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: const uint64_t index = load_acquire(&side->index) - 1; #3",
        ("step",),
        RAISES,
    ),
    (
        "side_hold.c",
        "load: const uint64_t index = load_acquire(&side->index);",
        ("step",),
        DECIDES,
    ),
    (
        "side_take.c",
        "load: const uint64_t index = load_acquire(&side->index);",
        ("step",),
        DECIDES,
    ),
    (
        "side_hold.c",
        "load: const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1;",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1; #2",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: const uint64_t seen = load_acquire(&block->lowest); /* pairs with the release in lowest_lower */",
        ("step",),
        BEHIND,
    ),
    (
        "side_hold.c",
        "load: const uint64_t state = load_acquire(&side_at(ring, entry)->state);",
        ("step",),
        DECIDES,
    ),
    (
        "side_hold.c",
        "load: const uint64_t state = load_acquire(&side_at(ring, entry)->state); #2",
        ("step",),
        DECIDES,
    ),
    (
        "side_take.c",
        "load: const uint64_t version = load_acquire(&ring->page->side_version);",
        ("step",),
        AGAIN_READ,
    ),
    (
        "side_take.c",
        (
            "load: if (!ring_is_dropped(ring, load_acquire(&side_at(ring, entry)->index) - 1) || !"
            "side_drop_entry(ring, entry, state)) {"
        ),
        ("step",),
        DECIDES,
    ),
    (
        "side_hold.c",
        (
            "load: if (*entry % ENTRIES_PER_BLOCK != 1 || load_acquire(&block_at(ring, number)->lo"
            "west) >> SIDE_DUE_SHIFT < index) {"
        ),
        ("step",),
        BEHIND,
    ),
    (
        "side_hold.c",
        "load: if (load_acquire(&side_at(ring, entry)->index) - 1 < target) {",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: if (load_acquire(&side_at(ring, entry)->index) == index + 1) {",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: if (load_acquire(at) == state) { /* else it went on meanwhile, and the ring may be a lap further */",
        ("step",),
        ASKED,
    ),
    (
        "side_hold.c",
        "load: if (side == NULL || load_acquire(&side->state) != word) {",
        ("step",),
        DECIDES,
    ),
    (
        "side_table.c",
        "load: if (state_of(load_acquire(&side->state)) == SIDE_LIVE) {",
        ("step",),
        ASKED,
    ),
    (
        "side_table.c",
        "load: if (state_of(load_acquire(&side->state)) == SIDE_PREPARED && load_acquire(&side->index) == index + 1) {",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: return state != SIDE_FREE && state != SIDE_ENDING && load_acquire(&side->index) == index + 1;",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: seen->index = load_acquire(&side->index) - 1;",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: seen->word = load_acquire(&side->state);",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: seen->word = load_acquire(&side->state); #2",
        ("step",),
        DECIDES,
    ),
    (
        "side_look.c",
        "load: const uint64_t index = load_acquire(&side_at(ring, entry)->index) - 1; #3",
        ("step",),
        ASKED,
    ),
    (
        "side_look.c",
        "load: } while (load_acquire(&side->state) != seen->word);",
        ("step",),
        DECIDES,
    ),
    (
        "side_hold.c",
        "store: store_relaxed(&side->behind, 0);",
        ("skip",),
        DUE,
    ),
    (
        "side_hold.c",
        "store: store_relaxed(&side->due_ns, 0);",
        ("skip",),
        DUE,
    ),
    (
        "side_table.c",
        "store: store_release(&side->index, index + 1);",
        ("step",),
        COMMITS,
    ),
]

# What no schedule shows that is small enough to be exhausted; the campaign runs the code.
UNSHOWN = [
    (
        "snapshot.c",
        "load: made->buckets[at] = (uint16_t)keyed_bounded(ring, load_acquire(&side_at(ring, entries[at])->bucket));",
        ("step",),
        "one who finishes a message and parks another in its entry, beside a snapshot by key: no schedule is so small",
    ),
    (
        "side_table.c",
        "store: store_release(&side->bucket, bucket);",
        ("step",),
        "the other half of the pair above",
    ),
    (
        "edge.c",
        "cas: if (!cas_release(ring_word(ring, index), word, parked)) { #2",
        ("step",),
        "the step of shmq_ring_park, where a schedule shows it; here it needs a second lap beside a death",
    ),
    (
        "side_look.c",
        ("load: const uint64_t seen = load_acquire(&block->lowest); /* pairs with the release in lowest_lower */ #2"),
        ("step",),
        "a schedule of two buckets showed it while entries were found otherwise; none does now",
    ),
    (
        "edge.c",
        "cas: while ((old == 0 || old > wanted) && !cas_relaxed(&ring->page->edge, old, wanted)) {",
        ("split", "blind"),
        "three members at the edge of a window: ring_edge_counts_who_finish runs it, and is too large to be exhausted",
    ),
]

EXHAUSTED, FAULT, CUT_SHORT = 0, 1, 3
LINE = re.compile(
    r"(?P<name>\w+) +(?P<outcome>exhausted|sampled|FAULT|cut short) +(?P<executions>\d+) executions +(?P<states>\d+)"
    r" states +(?P<covered>\S+) covered +(?P<seconds>\S+) s"
)


@dataclass(frozen=True)
class Result:
    """What one scenario came to."""

    name: str
    outcome: str
    executions: int
    states: int
    covered: float
    seconds: float


@dataclass(frozen=True)
class Run:
    """What one call of the explorer came to: its exit code, its results, and its words for an assertion."""

    code: int
    results: list[Result]
    text: str


SMALLER = {
    "layout.h": [
        (r"(#define INDEX_ENTRIES) \d+u", r"\1 4u"),
        (r"(#define SIDE_ENTRIES) \d+u", r"\1 2u"),
        (r"(#define SIDE_BLOCK_BYTES) \d+u", r"\1 ((SIDE_ENTRIES + 1) * sizeof(struct ring_side))"),
    ],
    "owner.c": [(r"slot < member->seats; slot\+\+", "slot < 3u; slot++")],
    "order.c": [(r"(words = ring->bucket_count / 64);", r"\1 + 1;")],
    "sync.c": [(r"(#define LEADER_PATIENCE_NS) .*\)(?= /)", r"\1 LEADER_LOOK_NS")],
    "drop.c": [(r"(#define FAR_WINDOWS) \d+u", r"\1 1u")],
    "edge.c": [(r"(#define STRAGGLERS) \d+u", r"\1 1u"), (r"(#define HELD_AT_ONCE) \d+u", r"\1 1u")],
}
"""Sizes with which a table can be explored whole: all that differs from the core's own text. Lines stay lines."""


def smaller(text: str, changes: list[tuple[str, str]]) -> str:
    """That file with those sizes."""
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count > 0, f"the core has changed: {old}"
    return text


def _compile(program: Path, compiler: str) -> None:
    with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
        made, core = Path(scratch) / "explorer", Path(scratch) / "src"
        shutil.copytree(CORE / "src", core)
        for name, changes in SMALLER.items():
            file = core / path_of(name).relative_to(CORE / "src")
            file.write_text(smaller(file.read_text(), changes))
        includes = [f"-I{HERE}", f"-I{core}", f"-I{CORE / 'include'}"]
        files = [core / name for name in CORE_FILES] + [HERE / name for name in MODEL_FILES]
        subprocess.run([compiler, *FLAGS, *includes, "-o", made, *files], check=True)
        made.replace(program)


@functools.cache
def build() -> Path:
    """The explorer's path; compiled only when one of its sources has changed."""
    sources = [CORE / "src" / name for name in CORE_FILES] + [HERE / name for name in MODEL_FILES]
    headers = [*HERE.glob("*.h"), *(CORE / "src").rglob("*.h"), *(CORE / "include").glob("*.h")]
    compiler = os.environ.get("CC", "gcc")
    digest = hashlib.sha256(" ".join([compiler, *FLAGS]).encode())
    for path in sorted([*sources, *headers]):
        digest.update(path.read_bytes())
    program = ROOT / ".cache" / "model" / f"explorer-{digest.hexdigest()[:16]}"
    with contextlib.nullcontext() if program.exists() else alone(program):
        if not program.exists():
            _compile(program, compiler)
    return program


def run(*arguments: str) -> Run:
    """Call the explorer."""
    done = subprocess.run([build(), *arguments], capture_output=True, text=True, check=False)
    text = done.stdout + done.stderr
    results = [
        Result(
            match["name"],
            match["outcome"],
            int(match["executions"]),
            int(match["states"]),
            float(match["covered"]),
            float(match["seconds"]),
        )
        for match in LINE.finditer(done.stdout)
    ]
    return Run(done.returncode, results, text)


def named(kind: str) -> list[str]:
    """Names of the PLAY, LARGE or TEST entries of the tables, read from the source so that nothing need be built."""
    files = [name for name in MODEL_FILES if name == "litmus.c" or name.endswith("scenarios.c")]
    source = "".join((HERE / name).read_text() for name in files)
    return re.findall(rf"^    {kind}\(\"(\w+)\"", source, re.MULTILINE)


@functools.cache
def sites() -> list[tuple[str, str, tuple[str, ...]]]:
    """Each atomic call site of the core: name, order, and what can be done to it. One name for all on one line."""
    lines = (line.split() for line in subprocess.check_output([build(), "--sites"], text=True).splitlines())
    return sorted({(site, order, tuple(ways)) for site, order, *ways in lines})


def harmless(site: str, way: str) -> bool:
    """Is this weakening one that nothing can show, or nothing shows yet?"""
    file, line, _ = site.split(":")
    if file in UNEXPLORED:
        return True
    text = lines_of(file)[int(line) - 1]
    if any(file == known and key_of(site) == key and way in how for known, key, how, _ in ARGUED + UNSHOWN):
        return True
    return any(file == known and words in text and way == how for known, words, how in HARMLESS) or any(
        file == known and words in text and way in how for known, words, how, _ in HARMLESS_TOO
    )


SHOWN = HERE / "shown.json"
"""
Which scenario shows which weakening, in which of its executions: written by `python -m tests.model.campaign --shown`.
A hint, which only saves time: what it does not know, or no longer tells right, is searched for.
"""
BOUNDS = (300, 3_000, 30_000, 300_000)
"""So many executions of each scenario are looked through, in turn: most faults lie near the beginning of some."""


def path_of(file: str) -> Path:
    """Where that file of the core is: a site says its name, and no two have the same."""
    (path,) = (CORE / "src").rglob(file)
    return path


@functools.cache
def lines_of(file: str) -> list[str]:
    """The lines of that file of the core."""
    return path_of(file).read_text().splitlines(keepends=True)


def key_of(site: str) -> str:
    """The site as shown.json names it, wherever its line moves: the operation, the text, and which of the same text."""
    file, line, operation = site.split(":")
    lines = [text.strip() for text in lines_of(file)]
    text = lines[int(line) - 1]
    again = lines[: int(line) - 1].count(text)
    return f"{operation}: {text}" + (f" #{again + 1}" if again else "")


@functools.cache
def shown() -> dict[str, dict[str, dict[str, tuple[str, int]]]]:
    """What shown.json says: file, site, way; the scenario and the execution."""
    found: dict[str, dict[str, dict[str, tuple[str, int]]]] = json.loads(SHOWN.read_text())
    return found


def write_shown(rows: list[tuple[str, str, tuple[str, int]]]) -> None:
    """Write shown.json: of each site, for each way, who shows it. Sorted, a site to a line."""
    files: dict[str, dict[str, dict[str, tuple[str, int]]]] = {}
    for site, way, by in rows:
        files.setdefault(site.split(":")[0], {}).setdefault(key_of(site), {})[way] = by
    tables = [
        f"{json.dumps(file)}: {{\n"
        + ",\n".join(f"{json.dumps(key)}: {json.dumps(ways, sort_keys=True)}" for key, ways in sorted(table.items()))
        + "\n}"
        for file, table in sorted(files.items())
    ]
    SHOWN.write_text("{\n" + ",\n".join(tables) + "\n}\n")


def caught_at_once(site: str, way: str) -> tuple[str, int] | None:
    """The scenario that the table names, and its execution, if it still shows the weakened site."""
    name, executions = shown().get(site.split(":", maxsplit=1)[0], {}).get(key_of(site), {}).get(way, ("", 0))
    if not name:
        return None
    bound = str(2 * executions + 1000)
    found = run("--scenario", name, "--executions", bound, "--weaken", f"{site}={way}")
    return (name, found.results[-1].executions) if found.code == FAULT else None


@functools.cache
def reached(executions: int) -> dict[str, list[str]]:
    """Of each site, the scenarios that run it in so many executions; the small ones first."""
    found: dict[str, list[str]] = {}
    for size in ("--small", "--large"):
        scenario = ""
        for line in run(size, "--reached", "--executions", str(executions)).text.splitlines():
            if line.startswith("    reached "):
                found.setdefault(line.split()[1], []).append(scenario)
            elif not line.startswith(" "):
                scenario = line.split()[0]
    return found


def caught_by(site: str, way: str, bounds: tuple[int, ...] = BOUNDS) -> tuple[str, int] | None:
    """The scenario that shows the weakened site, and in which execution; None when none does so soon."""
    found = caught_at_once(site, way)
    if found is not None:
        return found
    for bound in bounds:
        for name in reached(BOUNDS[-1]).get(site, ()):
            looked = run("--scenario", name, "--executions", str(bound), "--weaken", f"{site}={way}")
            if looked.code == FAULT:
                return name, looked.results[-1].executions
    return None


def have_compiler() -> bool:
    """Without a compiler there is no core to explore."""
    return shutil.which(os.environ.get("CC", "gcc")) is not None
