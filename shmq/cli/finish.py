"""
End a queue's stream: consumers drain it, now or later, and then end. A put into it opens it again.

Example:
    shmq finish orders

Everything that was put is on the disk when this ends. Programs that have the queue open get ShutDown from a put;
whoever opens it later and puts opens it for writing again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Finish it, and say where it ends."""
    with show.open_queue(arguments.path) as queue:
        queue.finish()
        if arguments.json:
            show.facts({"path": queue.path, "next_index": queue.next_index})
        else:
            print(f"{queue.path} is finished: it ends at index {queue.next_index}")
    return 0
