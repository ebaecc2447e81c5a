"""
Copy a queue while others use it, exact up to one index. SRC is not changed.

Examples:
    shmq copy orders backup/orders             # a backup: what is put there later gets indexes above all of SRC's
    shmq copy orders experiment --new-id       # a queue of its own
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show
from shmq.cli.progress import Progress

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("source", type=show.place, metavar="SRC", help="the queue")
    verb.add_argument("target", type=show.place, metavar="DST", help="a directory that does not exist yet")
    verb.add_argument("--new-id", action="store_true", help="make it a queue of its own")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Copy the queue; print how much."""
    show.refuse_volatile(arguments.target, "a directory to be made")
    with show.open_queue(arguments.source, read_only=True) as queue, Progress() as progress:
        done = queue.copy(arguments.target, new_id=arguments.new_id, progress=progress.at_share)
    if arguments.json:
        show.facts(show.fields(done))
        return 0
    print(f"{done.path}: {show.counted(done.messages, 'message')}, up to index {done.next_index:,}")
    return 0
