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
    "timed.c",
    "wait.c",
]
MODEL_FILES = ["memory.c", "search.c", "kernel.c", "stage.c", "scenarios.c", "litmus.c", "main.c"]
FLAGS = ["-std=c11", "-O2", "-D_GNU_SOURCE", "-DSHMQ_MODEL", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"]

# Weakenings that nothing can show, each with the reason why it is harmless: file, words of its line, way.
HARMLESS = [
    # Who clears the mark rings in any case, and rings after clearing: a mark that two clear is answered twice, and one
    # that came in between is answered by the bell it has not seen yet. The exchange only saves the second call.
    ("wait.c", "exchange_relaxed(sleepers", "split"),
    # A favour to the processor, in a word of one process: without it pages are mapped one by one.
    ("chunk.c", "store_relaxed(&chunk->populated", "skip"),
    ("chunk.c", "store_relaxed(&chunk->claimed", "skip"),
    ("chunk.c", "store_relaxed(&chunk->asked", "skip"),
    # Which descriptors carry locks, a table of one process: two of its threads at once are tests/unit's business.
    ("owner.c", "cas_relaxed(&registry[entry]", "split"),
    ("owner.c", "cas_relaxed(&registry[entry]", "blind"),
    ("owner.c", "cas_relaxed(&prepared", "split"),
    ("owner.c", "cas_relaxed(&prepared", "blind"),
]

UNEXPLORED = {
    "bounds.c",
    "bounds.h",
    "index.c",
    "index.h",
    "chunk.h",
    "keyed.c",
    "ring.c",
    "ring.h",
    "side.c",
    "timed.c",
}
"""
Compiled in and run, but without schedules of their own yet: bounds, which tests/unit/test_bounds.py tries with eight
processes; and the index. Its entries are hints. What an entry names must prove itself, by a walk or by its own ordinal
and checksum, so a wrong or late one costs a walk; tests/unit/test_index.py damages them in every way that it knows.
Their memory orders are argued for, not caught in the breach yet. Not compiled in at all: any.c, gather.c, sync.c and
recover.c.

And the group's ring, which has schedules (group_...), but not yet one that catches each weakening; side table, keys and
messages with times have none. tests/property and tests/history run all of it in real processes.
"""

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
            made = Path(scratch) / "explorer"
            includes = [f"-I{HERE}", f"-I{CORE / 'src'}", f"-I{CORE / 'include'}"]
            subprocess.run([compiler, *FLAGS, *includes, "-o", made, *sources], check=True)
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
    source = (HERE / ("litmus.c" if kind == "TEST" else "scenarios.c")).read_text()
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
    text = (CORE / "src" / file).read_text().splitlines()[int(line) - 1]
    return any(file == known and words in text and way == how for known, words, how in HARMLESS)


def caught_by(site: str, way: str) -> tuple[str, int] | None:
    """The scenario that shows the weakened site, and in which execution; None when none does."""
    # A brief look at every scenario first: most faults lie near the beginning of some.
    for bound in (["--executions", "8000"], []):
        found = run("--small", "--until-fault", *bound, "--weaken", f"{site}={way}")
        if found.code == FAULT:
            return found.results[-1].name, found.results[-1].executions
    return None


def have_compiler() -> bool:
    """Without a compiler there is no core to explore."""
    return shutil.which(os.environ.get("CC", "gcc")) is not None
