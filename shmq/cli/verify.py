"""
Check a queue, ours or foreign, or all shards of a directory, and print every problem: file, position, reason.

Changes nothing.

Examples:
    shmq verify orders
    shmq verify /var/spool/kestrel --queue orders --json

Exit status 1 when there is a problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, roots, show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    foreign.add_source(verb, ours=True)
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check the queue; exit status 1 when there is a problem."""
    shards = roots.map_of(arguments)
    if shards is not None:
        return roots.verify(shards, as_json=arguments.json)
    if arguments.format in (None, "shmq") and shmq.formats.detect(arguments.source) == "shmq":
        return _ours(arguments)
    name = foreign.format_of(arguments.source, arguments.format)
    problems = shmq.formats.verify(arguments.source, arguments.queue, name)
    if arguments.json:
        show.facts({"format": name, "problems": [problem._asdict() for problem in problems]})
    else:
        for file, position, reason in problems:
            print(f"{file} at {position}: {reason}")
        print(f"{arguments.source}: {name}, {show.counted(len(problems), 'problem')}")
    return 1 if problems else 0


def _ours(arguments: argparse.Namespace) -> int:
    with Progress() as progress:
        found = shmq.verify(arguments.source, progress=progress.at_share)
    numbers = ("messages", "bytes", "chunks", "padded", "open_claims", "lost", "at_least")
    facts = {name: getattr(found, name) for name in numbers}
    if arguments.json:
        problems = [problem._asdict() for problem in found.problems]
        show.facts({"format": "shmq", **facts, "problems": problems, "more": found.more, "aside": found.aside})
    else:
        for file, position, reason in found.problems:
            print(f"{file} at {position}: {reason}")
        count = len(found.problems) + found.more
        print(
            f"{arguments.source}: shmq, {show.counted(found.messages, 'message')} whole in "
            f"{show.counted(found.chunks, 'chunk')}, "
            f"{show.counted(count, 'problem')}"
        )
        show.aside(arguments.source, found.aside)
    return 0 if found else 1
