"""What an experiment has shown, on one page."""

from __future__ import annotations

import dataclasses
import os
import platform
import textwrap
from typing import TYPE_CHECKING, Any

import shmq

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.cli.experiment.crowd import Figures
    from shmq.cli.experiment.disk import Full

_SHOWN = 10
_THEIRS = "multiprocessing.Queue"


@dataclasses.dataclass
class Shown:
    """All that was found."""

    seed: int
    words: str
    """What repeats it."""
    place: str
    durability: str
    items: int
    left: tuple[int, int]
    """Of the items that a killed producer had put: how many were left, ours and theirs."""
    ours: Figures
    theirs: Figures
    full: Full

    @property
    def wrong(self) -> list[str]:
        """Everything that shmq promised and did not keep."""
        found = list(self.ours.verdict.wrong)
        if self.left[0] != self.items:
            found.insert(0, f"of {self.items} messages of a killed producer, {self.left[0]} were left")
        if self.full.wrong:
            found.append(
                f"on a full disk, of {self.full.put} messages {self.full.kept} were kept, and {self.full.again} puts "
                f"worked when there was room again. {self.full.why}".rstrip()
            )
        return found

    def facts(self) -> dict[str, Any]:
        """For programs."""
        found = dataclasses.asdict(self)
        found["kept_its_promises"] = not self.wrong
        return found


def lines(shown: Shown, kept_at: str | None) -> list[str]:
    """The page; *kept_at* is the directory, where it was kept."""
    text = [*_headline(shown, kept_at), ""]
    text += [
        f"A producer put {shown.items:,} messages, every put returned, then kill -9:",
        *_columns(
            [
                ("", "shmq", _THEIRS),
                ("left", *shown.left),
                ("lost", *(shown.items - left for left in shown.left)),
            ]
        ),
        "",
        f"Producers and consumers for {shown.ours.seconds:g} s each, killed and replaced, stopped and let go on:",
        *_columns(_rows(shown)),
        "",
        *_full(shown.full),
        "",
        *_small_print(shown),
    ]
    return text


def _headline(shown: Shown, kept_at: str | None) -> list[str]:
    if not shown.wrong:
        verdict = shown.ours.verdict
        return [
            f"shmq kept its promises: nothing lost, nothing doubled, nothing out of order: {verdict.returned:,} puts",
            f"returned, while {shown.ours.kills:,} processes were killed and {shown.ours.stops:,} stopped.",
        ]
    more = len(shown.wrong) - _SHOWN
    lost = shown.ours.verdict.lost + shown.items - shown.left[0]
    what = f"LOST {lost:,} MESSAGE{'S' * (lost != 1)}" if lost else "BROKE A PROMISE"
    return [
        f"SHMQ {what}: {shown.wrong[0]}",
        *(f"    {sentence}" for sentence in shown.wrong[1:_SHOWN]),
        *([f"    and {more:,} more"] if more > 0 else []),
        f"The queue and what each process noted are kept in {kept_at}; please report it. {shown.words} tries it again.",
    ]


def _rows(shown: Shown) -> list[tuple[object, ...]]:
    both = (shown.ours, shown.theirs)
    return [
        ("", "shmq", _THEIRS),
        ("processes killed", *(each.kills for each in both)),
        ("processes stopped for a while", *(each.stops for each in both)),
        ("processes that ended with an error", *(each.errors for each in both)),
        ("puts that returned", *(each.verdict.returned for each in both)),
        ("  of them lost, or stuck for good", *(each.verdict.lost for each in both)),
        ("in the queue twice, or handed out wrongly", *(each.verdict.doubled for each in both)),
        ("out of a producer's order", *(each.verdict.disordered for each in both)),
        ("half batches, and bytes that nobody put", *(each.verdict.broken for each in both)),
        ("again, after its holder was killed (at least once)", shown.ours.verdict.again, "-"),
        ("in a killed consumer's hand (at most once)", shown.ours.verdict.in_hand, "-"),
        ("hangs", *(_hang(each) for each in both)),
    ]


def _hang(figures: Figures) -> str:
    if not figures.hung:
        return "no"
    if figures.left and figures.last_progress > figures.seconds:
        return f"{figures.left} at the end"
    return f"from {figures.last_progress:.1f} s on"


def _columns(rows: Sequence[Sequence[object]]) -> list[str]:
    text = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    return [
        "    "
        + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in text
    ]


def _full(full: Full) -> list[str]:
    if not full.tried:
        return [f"A full disk was not tried: {full.why}."]
    return [
        f"On a disk of 4 MiB {full.put:,} puts returned, and the next one said:",
        *textwrap.wrap(f"DiskFull: {full.said}", 100, initial_indent="    ", subsequent_indent="    "),
        f"All {full.kept:,} were there, and when they were taken, puts worked again.",
    ]


def _small_print(shown: Shown) -> list[str]:
    return [
        "Not tried: power cuts; nothing here makes the kernel forget what it has not written (docs/durability.md).",
        f"In {shown.place}, {shown.durability}; shmq {shmq.__version__}, Python {platform.python_version()},",
        f"Linux {platform.release()}, {os.cpu_count()} processors.",
        f"Again, with the same schedule: {shown.words}",
    ]


def as_markdown(text: Sequence[str]) -> str:
    """The same page as a file for people who read it in a browser."""
    return "\n".join(["# What `shmq chaos` found", "", "```text", *text, "```", ""])
