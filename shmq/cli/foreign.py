"""
What the verbs for foreign queues share: the arguments that name one, and how what `shmq.formats` does is said.

No verb of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING

from shmq import formats
from shmq.cli import show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

FORMATS = formats.HERE

_FEW_PROBLEMS = 20
"""So many are said; `verify` says all."""
_OPTIONS = {
    "lossy": "--lossy",
    "resume": "--resume",
    "again": "--again",
    "alone": "--no-consumers",
    "repair": "shmq repair",
}
"""What the options of the Python calls are called here."""


def add_source(verb: argparse.ArgumentParser) -> None:
    """The arguments that name a foreign queue."""
    verb.add_argument(
        "source", type=show.place, metavar="SRC", help="the foreign queue: a directory, or QewQew's header file"
    )
    verb.add_argument("--format", choices=FORMATS, help="its format; found out if it is not given")
    verb.add_argument("--queue", metavar="NAME", help="which queue, where a folder holds several")


def add_target(verb: argparse.ArgumentParser) -> None:
    """The arguments that name a foreign queue to be made."""
    verb.add_argument("--to", choices=FORMATS, required=True, metavar="FORMAT", help="kestrel, libkestrel, ...")
    verb.add_argument(
        "target", type=show.place, metavar="DST", help="what to make: a directory, or QewQew's header file"
    )


def format_of(path: str, given: str | None) -> str:
    """
    The format of what is at *path*.

    Raises:
        Problem: it is none of ours, or a shmq queue, which has verbs of its own.
    """
    found = given or formats.detect(path)
    if found == "shmq":
        raise show.Problem(f"{path} is a shmq queue; this verb is for foreign formats: {', '.join(FORMATS)}")
    if found not in FORMATS:
        there = "is in none of the formats" if os.path.exists(path) else "is not there; the formats are"
        raise show.Problem(f"{path} {there} {', '.join(FORMATS)}")
    return found


@contextlib.contextmanager
def at_work() -> Iterator[Callable[[str, int], None]]:
    """
    What is given how far a transfer is, while one is made: a line says it, and a refusal names the options of a shell.

    The garbage collector rests meanwhile: what passes through is freed as it goes, and there is much of it.

    Raises:
        Problem: it was refused.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with Progress() as progress:
            yield progress.at
    except formats.Refused as problem:
        raise show.Problem(problem.told(_OPTIONS)) from problem
    finally:
        if enabled:
            gc.enable()


def tell(sentence: str) -> None:
    """Say on stderr what a transfer loses."""
    print(f"shmq: {sentence}", file=sys.stderr)


def say_damage(path: str, name: str, queue: str | None) -> None:
    """Say on stderr what of a source cannot be read, where it was allowed to be left out."""
    problems = formats.state(path, queue, name).problems
    for file, position, reason in problems[:_FEW_PROBLEMS]:
        tell(f"damaged: {file} at {position}: {reason}")
    if len(problems) > _FEW_PROBLEMS:
        tell(f"damaged: {len(problems) - _FEW_PROBLEMS:,} more; shmq verify names them")
