"""
What the verbs for foreign queues share: the arguments that name one, and how what `shmq.formats` does is said.

No verb of its own.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

FORMATS = ("kestrel", "libkestrel", "sej", "qewqew", "chronicle")
"""Those of `shmq.formats`, which `--help` need not import."""

_FEW_PROBLEMS = 20
"""So many are said; `verify` says all."""
_OPTIONS = {
    "lossy": "--lossy",
    "resume": "--resume",
    "again": "--again",
    "alone": "--no-consumers",
    "repair": "shmq repair",
    "part": "--part",
    "blocks": "--block-bytes",
}
"""What the options of the Python calls are called here."""


def add_source(verb: argparse.ArgumentParser, *, ours: bool = False) -> None:
    """The arguments that name a foreign queue, or with *ours* one of ours as well."""
    which = "the queue, ours or foreign" if ours else "the foreign queue"
    verb.add_argument("source", type=show.place, metavar="SRC", help=f"{which}: a directory, or QewQew's header file")
    verb.add_argument("--format", choices=FORMATS, help="its format; found out if it is not given")
    verb.add_argument("--queue", metavar="NAME", help="which queue, where a folder holds several")


def add_target(verb: argparse.ArgumentParser) -> None:
    """The arguments that name a foreign queue to be made."""
    verb.add_argument("--to", choices=FORMATS, required=True, metavar="FORMAT", help="kestrel, libkestrel, ...")
    verb.add_argument(
        "target", type=show.place, metavar="DST", help="what to make: a directory, or QewQew's header file"
    )


_OF_FORMAT = {
    "segment_bytes": "sej",
    "journal_bytes": "libkestrel",
    "chunk_bytes": "qewqew",
    "block_bytes": "chronicle",
    "shard_bit": "sej",
    "prefix": "sej",
    "client": "sej",
    "by_dir": "sej",
    "roll_cycle": "chronicle",
    "epoch": "chronicle",
    "roll_time": "chronicle",
    "index_count": "chronicle",
    "index_spacing": "chronicle",
    "source_id": "chronicle",
}
"""Options of one format only."""


def add_sizes(verb: argparse.ArgumentParser) -> None:
    """How large the files are that a format's own program was told to make: no file says it."""
    sizes = verb.add_argument_group("sizes, of the program that will open it")
    for name, default, what in (
        ("segment", "1 GiB", "a sej segment is closed once it is so long"),
        ("journal", "16 MiB", "libkestrel's journalSize"),
        ("chunk", "1 MiB", "QewQew's chunk size"),
        ("block", "64 MiB", "Chronicle's blockSize, of which a message may fill a quarter"),
    ):
        sizes.add_argument(f"--{name}-bytes", type=show.whole(1), metavar="N", help=f"{what}; {default} by default")


def add_directories(verb: argparse.ArgumentParser) -> None:
    """Where the messages go in a root of sej directories."""
    root = verb.add_argument_group("sej, several directories")
    root.add_argument("--by-dir", action="store_true", default=None, help="each to the directory that it came from")
    root.add_argument(
        "--shard-bit", type=show.whole(0), metavar="N", help="2^N shards, by the CRC-32 of the key; N is 0 to 10"
    )
    root.add_argument("--prefix", metavar="NAME", help="what the names of shards begin with")
    root.add_argument("--client", metavar="ID", help="as a hub's directories of that client")


def add_cycles(verb: argparse.ArgumentParser) -> None:
    """How a Chronicle queue is cut into files and indices."""
    cut = verb.add_argument_group("Chronicle Queue, how it is cut")
    cut.add_argument("--roll-cycle", metavar="NAME", help="that of its source by default, or FAST_DAILY")
    cut.add_argument("--epoch", type=int, metavar="MS", help="when cycles begin to count, in ms since 1970")
    cut.add_argument("--roll-time", metavar="HH:MM", help="the time of day, in UTC, at which days begin")
    cut.add_argument("--index-count", type=show.whole(1), metavar="N", help="slots in a page of the index")
    cut.add_argument("--index-spacing", type=show.whole(1), metavar="N", help="messages from one slot to the next")
    cut.add_argument("--source-id", type=show.whole(0), metavar="N", help="what it calls itself in histories")


def options_of(arguments: argparse.Namespace, name: str) -> dict[str, Any]:
    """
    What was given of these, for a queue of that format.

    Raises:
        Misuse: it is another format's.
    """
    given = {option: getattr(arguments, option, None) for option in _OF_FORMAT}
    options = {option: value for option, value in given.items() if value is not None}
    for option in options:
        if _OF_FORMAT[option] != name:
            raise show.Misuse(f"--{option.replace('_', '-')} is for {_OF_FORMAT[option]}, and this is {name}")
    return options


def format_of(path: str, given: str | None) -> str:
    """
    The format of what is at *path*.

    Raises:
        Problem: it is none of ours, or a shmq queue, which has verbs of its own.
    """
    found = given or shmq.formats.detect(path)
    if found == "shmq":
        raise show.Problem(
            f"{path} is a shmq queue; this verb is for foreign formats: {', '.join(FORMATS)}. For "
            "ours there are cat, stat, copy, verify and replay"
        )
    if found not in FORMATS:
        there = "is in none of the formats" if os.path.exists(path) else "is not there; the formats are"
        raise show.Problem(f"{path} {there} {', '.join(FORMATS)}")
    return found


@contextlib.contextmanager
def at_work() -> Iterator[Callable[..., None]]:
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
    except shmq.formats.Refused as problem:
        raise show.Problem(problem.told(_OPTIONS)) from problem
    finally:
        if enabled:
            gc.enable()


def tell(sentence: str) -> None:
    """Say on stderr what a transfer loses."""
    print(f"shmq: {sentence}", file=sys.stderr)


def say_damage(path: str, name: str, queue: str | None) -> None:
    """Say on stderr what of a source cannot be read, where it was allowed to be left out."""
    problems = shmq.formats.state(path, queue, name).problems
    for file, position, reason in problems[:_FEW_PROBLEMS]:
        tell(f"damaged: {file} at {position}: {reason}")
    if len(problems) > _FEW_PROBLEMS:
        tell(f"damaged: {len(problems) - _FEW_PROBLEMS:,} more; shmq verify names them")
