"""
Finish everything in a queue for every consumer, and give its disk space back.

Examples:
    shmq purge orders
    shmq purge orders --yes

Whole chunk files go. What is in the last one is handed to no consumer any more, and can be read by index until it goes.
It asks first; a script says --yes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import asking, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    asking.add(verb)
    verb.add_argument("--json", action="store_true", help="say what went as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Purge, and say what that gave, and what is still there to be read."""
    with show.open_queue(arguments.path) as queue:
        messages = show.counted(len(queue), "message")
        asking.be_sure(arguments, f"finish the {messages} of {arguments.path} for every consumer, and free their space")
        before = queue.stats()
        end = queue.purge()
        after = queue.stats()
    freed = before.disk_bytes - after.disk_bytes
    if arguments.json:
        show.facts({"next_index": end, "first_index": after.first_index, "freed_bytes": freed})
    else:
        print(f"everything before index {end} is finished for every consumer; {freed:,} bytes were freed")
        if after.first_index < end:
            theirs = "its" if after.first_index == end - 1 else "their"
            print(f"{show.span(after.first_index, end - 1)} can still be read (cat) until {theirs} chunk file goes")
    return 0
