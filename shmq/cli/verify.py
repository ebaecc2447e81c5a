"""
Check a foreign queue and print every problem: file, position, reason. Changes nothing.

Example:
    shmq verify /var/spool/kestrel --queue orders --json

Exit status 1 when there is a problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import formats
from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    transfer.add_source(verb)
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Check it."""
    name = transfer.format_of(arguments.source, arguments.format)
    problems = formats.verify(arguments.source, arguments.queue, name)
    if arguments.json:
        show.facts({"format": name, "problems": [problem._asdict() for problem in problems]})
    else:
        for file, position, reason in problems:
            print(f"{file} at {position}: {reason}")
        print(f"{arguments.source}: {name}, {len(problems)} problem{'s' * (len(problems) != 1)}")
    return 1 if problems else 0
