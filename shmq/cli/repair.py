"""
Write a clean copy of a damaged queue, ours or foreign, beside it. The original is not touched.

Examples:
    shmq repair orders
    shmq repair /var/spool/kestrel --queue orders
    shmq repair orders.sej --to clean.sej

With --in-place the clean files take the place of the damaged ones, which move into a hidden folder beside them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq import formats
from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    transfer.add_source(verb)
    place = verb.add_mutually_exclusive_group()
    place.add_argument("--to", metavar="PATH", help="where the copy goes; beside the original by default")
    place.add_argument("--in-place", action="store_true", help="put the clean files in the place of the damaged ones")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Repair it, and say where the copy is."""
    if arguments.format in (None, "shmq") and formats.detect(arguments.source) == "shmq":
        return _ours(arguments)
    name = transfer.format_of(arguments.source, arguments.format)
    done = formats.repair(arguments.source, arguments.queue, name, to=arguments.to, in_place=arguments.in_place)
    if arguments.json:
        show.facts(done._asdict() | {"problems": [problem._asdict() for problem in done.problems]})
        return 0
    for file, position, reason in done.problems:
        print(f"{file} at {position}: {reason}")
    print(
        f"{done.path}: {done.messages:,} messages, clean"
        + (f"; the damaged files are in {done.kept}" * bool(done.kept))
    )
    return 0


def _ours(arguments: argparse.Namespace) -> int:
    done = shmq.repair(arguments.source, arguments.to, in_place=arguments.in_place)
    if arguments.json:
        problems = [problem._asdict() for problem in done.problems]
        facts = {"path": done.path, "messages": done.messages, "lost": done.lost, "kept": done.kept}
        show.facts({**facts, "problems": problems})
        return 0
    for file, position, reason in done.problems:
        print(f"{file} at {position}: {reason}")
    print(
        f"{done.path}: {done.messages:,} messages, clean; {done.lost:,} lost"
        + (f"; the damaged queue is {done.kept}" * bool(done.kept))
    )
    return 0
