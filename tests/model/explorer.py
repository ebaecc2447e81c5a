"""Builds the explorer from the core's own C files, and reads what it prints."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORE = ROOT / "cffi_build"
CORE_FILES = [
    "any.c",
    "bounds.c",
    "chunk.c",
    "index.c",
    "control.c",
    "crc.c",
    "error.c",
    "keyed.c",
    "owner.c",
    "ring.c",
    "side.c",
    "sync.c",
    "timed.c",
    "wait.c",
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
    ("chunk.c", "store_relaxed(&chunk->populated", "skip"),
    # What a recovery writes, alone under its lock: tests/crash kills it at every instruction.
    ("chunk.c", "word_seal(0)); /* behind the gap", "skip"),
    ("chunk.c", "gap.word); /* all of it before it", "skip"),
    ("chunk.c", "gap.word); /* all of it before it", "step"),
    # Which descriptors carry locks, a table of one process: two of its threads at once are tests/unit's business.
    ("owner.c", "cas_relaxed(&registry[entry]", "split"),
    ("owner.c", "cas_relaxed(&registry[entry]", "blind"),
    ("owner.c", "cas_relaxed(&prepared", "split"),
    ("owner.c", "cas_relaxed(&prepared", "blind"),
]

UNEXPLORED = {"chunk.h", "index.h", "bounds.h"}
"""
What these headers inline is run by all schedules, and weakened with none of its own. Not compiled in at all: gather.c,
scatter.c and recover.c.
"""

ANY = ("step", "split", "blind", "skip")

# More of the harmless: of groups and of the index. File, words of the line, ways, and why nobody can be hurt.
FIGURES = "a figure for people, which decides nothing"
LONGER = "a lease whose cell is not seen, or is another's, begins when it is looked at: it may only last longer"
MAPPED = "side_blocks grows under the administrative lock, and whoever sees too few is told GROW, or finds no entry"
ITSELF = "an entry is a hint: what it names must prove itself, so that what is late, missing or wrong costs a walk"
ALONE = "at a new boot, under the administrative lock, before any member: nobody else looks"
SAME = "whoever comes at the same time writes the same, or the word is of his own seat, which nobody else has"
LEADS = "who leads is alone, and what he did comes before what the next one does by the CAS on the leader's word"
HARMLESS_TOO = [
    ("sync.c", "exchange_acquire(&member->control->sync_acks, 0)", ("step", "split"), LEADS),
    ("sync.c", "cas_release(&checkpoint->acks_synced, seen, asked)", ("split", "blind"), LEADS),
    ("sync.c", "(uint32_t)add_release(&control->sync_bell, 1)", ("split",), LEADS),
    ("sync.c", "cas_release(&control->durable, seen, index)", ("step", "split", "blind"), LEADS),
    ("sync.c", "cas_relaxed(&control->durable_chunk, seen, chunk + 1)", ("split", "blind"), LEADS),
    ("sync.c", "store_release(&control->durable_at, position)", ("step",), LEADS),
    ("sync.c", "store_release(&control->durable_at, position)", ("skip",), "the next sync begins lower"),
    ("sync.c", "store_relaxed(&control->sync_group, (uint32_t)index)", ("skip",), "a guess that saves wake-ups"),
    ("sync.c", "store_relaxed(&checkpoint->snapshot_synced, sequence)", ("skip",), "a snapshot is synced once more"),
    (
        "sync.c",
        "load_acquire(&((const struct control *)control)->",
        ("step",),
        "the value alone is told to whoever asks",
    ),
    ("sync.c", "store_release(&control->sync_failed, failed)", ("step",), LEADS),
    ("sync.c", "    add_release(&control->sync_bell, 1);", ANY, "whoever failed gives up leading, and rings"),
    (
        "sync.c",
        "wait_for_leader(control, want, load_acquire(&control->sync_bell)",
        ("step",),
        "it looks again by the clock",
    ),
    ("sync.c", "store_relaxed(&control->sync_leader, 0)", ("skip",), ALONE),
    ("sync.c", "store_relaxed(&control->sync_failed, 0)", ("skip",), ALONE),
    ("sync.c", "store_relaxed(&control->durable", ("skip",), ALONE),
    ("ring.c", "page->redelivered, 1)", ("split",), FIGURES),
    ("side.c", "page->redelivered, 1)", ("split", "skip"), FIGURES),
    ("ring.c", "page->expired, 1)", ("split",), FIGURES),
    ("ring.c", "page->edges, 1)", ("split", "skip"), FIGURES),
    ("ring.c", "checkpoint->handed, ring->cursor", ("skip",), FIGURES),
    ("side.c", "page->side_hint, block", ("skip",), "where to begin to look for a free entry"),
    ("ring.c", "exchange_relaxed(&ring->page->edge", ("split",), "a mark that two clear wakes twice"),
    ("ring.c", "store_release(cell, lease_units", ("step",), LONGER),
    ("ring.c", "lease = load_acquire(cell)", ("step",), LONGER),
    ("ring.c", "cas_release(cell, lease, lease_units", ANY, LONGER),
    ("ring.c", "(uint64_t)entry)->lease, load_relaxed", ("skip",), LONGER),
    ("ring.c", "load_acquire(&((struct ring *)memory)->side_blocks)", ("step",), MAPPED),
    ("ring.c", "store_release(&ring->page->side_blocks", ANY, MAPPED),
    ("ring.c", "load_acquire(&page->side_blocks)", ("step",), MAPPED),
    ("ring.c", "load_acquire(&ring->page->side_blocks) > ring->blocks", ("step",), MAPPED),
    ("ring.c", "store_relaxed(&ring->checkpoint->floor", ("skip",), "retention keeps more, until the next one says so"),
    ("ring.c", "store_relaxed(&live->", ("skip",), ALONE),
    ("ring.c", "store_relaxed(ring_word(&ring, index)", ("skip",), ALONE),
    ("ring.c", "tenants[slot], 0, mine)", ANY, SAME),
    ("keyed.c", "store_relaxed(&of->block", ("skip",), "where to begin to look for the lowest in the side table"),
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
    ("index.c", "chunk->index_proven[j]", ANY, ITSELF),
    ("index.c", "&chunk->index_next", ANY, "when this handle comes to write an entry again"),
    ("index.c", "store_relaxed(at, value)", ANY, ITSELF),
    (
        "index.c",
        "cas_release(slot_at(chunk, number)",
        ANY,
        "the block that nothing points to is skipped, as every block",
    ),
]

# What no small schedule shows, and nobody has proven harmless. The large ones run it, and tests/history in processes.
SHARES = "an order that another of the same word or of the entry behind it gives as well in all that is tried"
PARTNER = "needs a second death, or a third member, in the same schedule"
UNSHOWN = [
    (
        "sync.c",
        "cas_release(&control->sync_leader, member->owner, 0)",
        ("split", "blind"),
        "a living leader taken for dead",
    ),
    ("ring.c", "cas_release(&ring->checkpoint->head, head, next)", ("step",), SHARES),
    ("ring.c", "cas_release(&ring->checkpoint->head, head, index)", ANY, PARTNER),
    ("ring.c", "add_release(&ring->page->returns, 1)", ("split",), PARTNER),
    ("ring.c", "word, claimed))", ("step",), SHARES),
    ("ring.c", "| RING_DONE)) {", ("step",), SHARES),
    ("ring.c", "| RING_DONE);", ANY, "padding in two laps at once"),
    ("ring.c", "word, parked))", ANY, PARTNER),
    ("ring.c", "page->edge, 1)", ("skip",), "a new epoch behind a chunk, at the edge of the window"),
    ("ring.c", "if (cas_release(ring_word(ring, index), word,\n", ("step",), SHARES),
    ("ring.c", "cas_release(&ring->page->tenants[slot], generation, 0)", ANY, PARTNER),
    ("ring.c", "load_acquire(&ring->page->tenants[slot])", ("step",), PARTNER),
    ("ring.c", "*state = load_acquire(&side->state)", ("step",), SHARES),
    ("ring.c", "load_acquire(&side->index) == taken->index + 1", ("step",), SHARES),
    ("ring.h", "load_acquire(ring_word(ring, index))", ("step",), SHARES),
    ("side.c", "store_relaxed(&side->due_ns", ("skip",), "an entry that had another time before"),
    ("side.c", "store_relaxed(&side->behind", ("skip",), "likewise"),
    ("side.c", "store_release(&side->index, index + 1)", ("step",), SHARES),
    ("side.c", "load_acquire(&side->state)", ("step",), SHARES),
    ("side.c", "load_acquire(&side->index)", ("step",), SHARES),
    ("side.c", "load_acquire(&side_at(ring, entry)->", ("step",), SHARES),
    ("side.c", "cas_release(&side->state, state, then)", ANY, PARTNER),
    ("side.c", "becomes(state, 0, SIDE_LIVE)))", ("step",), SHARES),
    ("side.c", "becomes(state, 0, SIDE_MOVING))", ANY, PARTNER),
    ("side.c", "cas_release(&side->state, state, claimed)", ("step",), SHARES),
    ("side.c", "cas_release(&side->state, word, ending)", ("step",), SHARES),
    (
        "side.c",
        "cas_release(&side->state, *word, next)",
        ANY,
        "extending or moving what was taken away meanwhile, parked",
    ),
    ("side.c", "becomes(word, 0, SIDE_LIVE))", ("step",), SHARES),
    ("side.c", "&& cas_release(&side->state, state,\n", ("step",), SHARES),
    ("side.c", "version | SIDE_FREE)", ANY, PARTNER),
    ("side.c", "store_release(&side->index, 0)", ("step",), SHARES),
    ("side.c", "cas_release(&block->due, seen", ("step",), SHARES),
    ("side.c", "cas_release(&block->due, old, lowered)", ANY, PARTNER),
    ("side.c", "page->side_version, 1)", ("split",), PARTNER),
    ("side.c", "load_acquire(at)", ("step",), "a snapshot beside members: no schedule takes one"),
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
    "keyed.c": [(r"(words = ring->bucket_count / 64);", r"\1 + 1;")],
    "ring.c": [(r"(#define STRAGGLERS) \d+u", r"\1 1u")],
}
"""Sizes with which a table can be explored whole: all that differs from the core's own text. Lines stay lines."""


def smaller(text: str, changes: list[tuple[str, str]]) -> str:
    """That file with those sizes."""
    for old, new in changes:
        text, count = re.subn(old, new, text)
        assert count == 1, f"the core has changed: {old}"
    return text


def build() -> Path:
    """The explorer's path; compiled only when one of its sources has changed."""
    sources = [CORE / "src" / name for name in CORE_FILES] + [HERE / name for name in MODEL_FILES]
    headers = [*HERE.glob("*.h"), *(CORE / "src").glob("*.h"), *(CORE / "include").glob("*.h")]
    compiler = os.environ.get("CC", "gcc")
    digest = hashlib.sha256(" ".join([compiler, *FLAGS]).encode())
    for path in sorted([*sources, *headers]):
        digest.update(path.read_bytes())
    program = ROOT / ".cache" / "model" / f"explorer-{digest.hexdigest()[:16]}"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            made, core = Path(scratch) / "explorer", Path(scratch) / "src"
            shutil.copytree(CORE / "src", core)
            for name, changes in SMALLER.items():
                (core / name).write_text(smaller((core / name).read_text(), changes))
            includes = [f"-I{HERE}", f"-I{core}", f"-I{CORE / 'include'}"]
            files = [core / name for name in CORE_FILES] + [HERE / name for name in MODEL_FILES]
            subprocess.run([compiler, *FLAGS, *includes, "-o", made, *files], check=True)
            made.replace(program)  # two test processes may build at once: either result is whole
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


def sites() -> list[tuple[str, str, list[str]]]:
    """Each atomic call site of the core: name, order, and what can be done to it."""
    lines = (line.split() for line in subprocess.check_output([build(), "--sites"], text=True).splitlines())
    return [(site, order, ways) for site, order, *ways in lines]


def harmless(site: str, way: str) -> bool:
    """Is this weakening one that nothing can show, or nothing shows yet?"""
    file, line, _ = site.split(":")
    if file in UNEXPLORED:
        return True
    text = (CORE / "src" / file).read_text().splitlines(keepends=True)[int(line) - 1]
    return any(file == known and words in text and way == how for known, words, how in HARMLESS) or any(
        file == known and words in text and way in how for known, words, how, _ in HARMLESS_TOO + UNSHOWN
    )


FAMILIES = {
    "ring.c": ("ring_", "side_", "group_", "keyed_"),
    "ring.h": ("ring_", "side_", "group_", "keyed_"),
    "side.c": ("side_", "ring_", "keyed_"),
    "timed.c": ("ring_",),
    "bounds.c": ("bound_",),
    "index.c": ("index_",),
    "sync.c": ("sync_",),
    "any.c": ("any_",),
    "keyed.c": ("keyed_",),
}
"""Where to look first."""

SHOWN_BY = [
    ("keyed.c", "load_acquire(&ring->keys[", ANY, "keyed_parked_while_looked_at"),
    ("keyed.c", "cas_release(key, old,", ("step",), "keyed_parked_while_looked_at"),
    ("keyed.c", "cas_release(key, old,", ("split", "blind"), "keyed_laps_do_not_mix"),
    ("keyed.c", "cas_release(bound, old, value)", ("step",), "keyed_met_while_looked_at"),
    ("keyed.c", "cas_release(bound, old, value)", ("split", "blind"), "keyed_two_meet"),
    ("keyed.c", "cas_release(&bucket->gate, gate, next)", ("step",), "keyed_met_while_looked_at"),
    ("keyed.c", "GATE_BUSY | GATE_PARKED)) {", ("step",), "keyed_parked_while_looked_at"),
    ("keyed.c", "GATE_BUSY | GATE_PARKED)) {", ("split", "blind"), "keyed_straggler_is_parked"),
    ("keyed.c", "cas_release(bits, old, old | bit)", ("step",), "keyed_sleeper_is_woken"),
    ("keyed.c", "cas_release(bits, old, old | bit)", ("split", "blind"), "keyed_bits_of_two"),
    ("keyed.c", "cas_relaxed(bits, old, old & ~bit)", ANY, "keyed_bit_beside_another"),
    ("keyed.c", "fence_seq_cst(); /* pairs with the release in keyed_ready", ANY, "keyed_sleeper_is_woken"),
    ("keyed.c", "cas_release(&of->gate, gate,", ("step",), "keyed_work_is_seen"),
    ("keyed.c", "cas_release(&of->gate, gate,", ("split", "blind"), "keyed_met_while_looked_at"),
    ("keyed.c", "load_acquire(&of->", ANY, "keyed_met_while_looked_at"),
    ("keyed.c", "const uint64_t head = load_acquire(", ANY, "keyed_nack_keeps_its_place"),
    ("ring.c", "taken->word, ring_stamp(ring, taken->index) | low)", ("step",), "ring_laps_do_not_mix"),
    ("ring.c", "if (cas_release(ring_word(ring, index), word,", ANY, "group_ack_races_redelivery"),
    ("ring.c", "cas_release(&ring->checkpoint->head, head, next)", ANY, "ring_laps_do_not_mix"),
    ("side.c", "becomes(word, 0, SIDE_LIVE))", ANY, "side_parked_nack_races_redelivery"),
    ("side.c", "&ring->page->side_version", ANY, "side_parked_is_found"),
    ("side.c", "cas_release(&block->due, seen,", ANY, "side_parked_is_found"),
    ("side.c", "load_acquire(&block->due)", ANY, "side_parked_is_found"),
    ("side.c", "load_acquire(&block->lowest)", ANY, "keyed_parked_while_its_block_is_read"),
    ("side.c", "cas_relaxed(&block->lowest, seen,", ANY, "keyed_parked_while_its_block_is_read"),
    ("side.c", "while (!cas_release(&block->lowest", ("step",), "keyed_parked_while_its_block_is_read"),
    ("side.c", "while (!cas_release(&block->lowest", ("split", "blind"), "keyed_two_park"),
]
"""Which schedules show the rarer ones: file, words of the line, ways, name. A hint, which only saves time."""


def caught_by(site: str, way: str) -> tuple[str, int] | None:
    """The scenario that shows the weakened site, and in which execution; None when none does."""
    # A brief look at every scenario first: most faults lie near the beginning of some.
    file, line, _ = site.split(":")
    text = (CORE / "src" / file).read_text().splitlines()[int(line) - 1]
    likely = [name for known, words, ways, name in SHOWN_BY if known == file and words in text and way in ways]
    family = FAMILIES.get(file, ())
    for bound in (
        *(["--scenario", name] for name in likely),
        *(["--family", name, "--executions", "1000"] for name in family),
        *(["--family", name, "--executions", "100000"] for name in family),
        ["--executions", "8000"],
        [],
    ):
        found = run("--small", "--until-fault", *bound, "--weaken", f"{site}={way}")
        if found.code == FAULT:
            return found.results[-1].name, found.results[-1].executions
    return None


def have_compiler() -> bool:
    """Without a compiler there is no core to explore."""
    return shutil.which(os.environ.get("CC", "gcc")) is not None
