"""
Try on this machine and disk what shmq promises: kill and stop its processes, and account for every message.

Examples:
    shmq chaos
    shmq chaos /data --seconds 300 --durability sync --report chaos.md
    shmq chaos --seed 4711

It works in a new directory in DIRECTORY, which goes when it ends, and shows multiprocessing.Queue beside. The seed
repeats who is killed or stopped when, though not where in its work.

Exit status 0: every promise was kept; 1: one was not (the first line says which, and the directory stays), or it could
not be tried; 2: it was asked for wrongly.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show, stopping

if TYPE_CHECKING:
    import argparse

    from shmq.cli.experiment.report import Shown

_ROOM, _ROOM_A_SECOND = 384 << 20, 4 << 20
"""Bytes that it needs: what is put, and the chunk files in advance."""
_ITEMS, _ITEMS_A_SECOND = 100_000, 5_000


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument(
        "directory", type=show.place, metavar="DIRECTORY", nargs="?", default=".", help="on which disk (here)"
    )
    verb.add_argument("--seconds", type=show.whole(1), default=30, metavar="N", help="for each of the two queues (30)")
    verb.add_argument(
        "--workers", type=show.whole(1), default=2, metavar="N", help="producers, and as many consumers in a group (2)"
    )
    verb.add_argument("--durability", type=show.durability, metavar="MODE", help="process (default), sync, interval=S")
    verb.add_argument("--seed", type=show.whole(0), metavar="N", help="repeat that schedule")
    verb.add_argument("--report", type=show.place, metavar="FILE", help="write the page there, too")
    verb.add_argument("--keep", action="store_true", help="keep the directory in any case")
    verb.add_argument("--json", action="store_true", help="the figures as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Try it, and say what came of it."""
    from shmq.cli.experiment import report  # noqa: PLC0415  # other verbs need no multiprocessing

    if not os.path.isdir(arguments.directory):
        raise show.Misuse(f"{arguments.directory} is not a directory")
    if arguments.report and not os.path.isdir(os.path.dirname(arguments.report) or "."):
        raise show.Misuse(f"--report {arguments.report}: there is no such directory")
    _check_room(arguments)
    kept: str | None = tempfile.mkdtemp(prefix="shmq-chaos-", dir=arguments.directory)
    assert kept is not None  # noqa: S101
    keep = arguments.keep
    try:
        with stopping.at_once() as ended:
            shown = _try(arguments, kept, ended)
        keep = keep or bool(shown.wrong)
    finally:
        if not keep:
            shutil.rmtree(kept, ignore_errors=True)
    page = report.lines(shown, kept)
    if arguments.report:
        with open(arguments.report, "w", encoding="utf-8") as file:
            file.write(report.as_markdown(page))
    if arguments.json:
        show.facts(shown.facts() | {"directory": kept if keep else None})
    else:
        print("\n".join(page))
        if arguments.keep:
            print(f"Kept in {kept}.")
    return 1 if shown.wrong else 0


def _check_room(arguments: argparse.Namespace) -> None:
    needed = _ROOM + arguments.seconds * arguments.workers * _ROOM_A_SECOND
    if (free := shutil.disk_usage(arguments.directory).free) < needed:
        raise show.Problem(
            f"{arguments.directory} has {free >> 20:,} MiB free, and this needs {needed >> 20:,} MiB; nothing was tried"
        )


def _try(arguments: argparse.Namespace, directory: str, ended: stopping.Ended) -> Shown:
    from shmq.cli.experiment import crowd, disk, report  # noqa: PLC0415

    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    durability = arguments.durability or shmq.Durability.PROCESS
    seconds, workers = arguments.seconds, arguments.workers
    options = shmq.Options(durability=durability, retention="forever")
    items = min(_ITEMS, seconds * _ITEMS_A_SECOND)
    places = [os.path.join(directory, name) for name in ("killed", "killed-theirs", "ours", "theirs", "full")]
    for place in places:
        os.mkdir(place)
    _tell(f"shmq chaos: seed {seed}, in {directory}")
    _tell(f"a producer puts {items:,} messages and is killed")
    left = (crowd.kill_after_puts(places[0], items, theirs=False), crowd.kill_after_puts(places[1], items, theirs=True))
    ended.check()
    _tell("a disk becomes full")
    full = disk.try_it(places[4])
    ended.check()
    _tell(f"shmq: processes are killed and stopped for {seconds} s")
    ours = crowd.trouble_ours(places[2], options, workers, seconds, seed, ended.check)
    _tell(f"multiprocessing.Queue: the same for {seconds} s")
    theirs = crowd.trouble_theirs(places[3], workers, seconds, seed, ended.check)
    return report.Shown(
        seed=seed,
        words=_words(arguments, seed),
        place=os.path.abspath(arguments.directory),
        durability=f"durability {durability.kind}",
        items=items,
        left=left,
        ours=ours,
        theirs=theirs,
        full=full,
    )


def _words(arguments: argparse.Namespace, seed: int) -> str:
    words = ["shmq", "chaos", *([arguments.directory] if arguments.directory != "." else [])]
    words += ["--seconds", str(arguments.seconds), "--workers", str(arguments.workers), "--seed", str(seed)]
    if arguments.durability is not None:
        kind, seconds = arguments.durability.kind, arguments.durability.seconds
        words += ["--durability", f"{kind}={seconds:g}" if seconds else kind]
    return shlex.join(words)


def _tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)
