"""
Finish everything in a queue for every consumer, and give its disk space back.

Example:
    shmq purge orders
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("--json", action="store_true", help="say what went as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Purge, and say what that gave."""
    with show.open_queue(arguments.path) as queue:
        before = queue.stats()
        end = queue.purge()
        after = queue.stats()
    freed = before.disk_bytes - after.disk_bytes
    if arguments.json:
        show.facts({"next_index": end, "first_index": after.first_index, "freed_bytes": freed})
    else:
        print(f"everything before index {end} is finished; {freed:,} bytes were freed")
    return 0
