"""
Have the programs that use a queue end: puts are refused, consumers drain it and end. It lasts until all have left.

Examples:
    shmq shutdown orders
    shmq shutdown orders --immediate

For an end that outlives them see `shmq finish`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("--immediate", action="store_true", help="do not drain it: what is left stays in the queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Shut it down; exit 1 if nobody has it open."""
    with show.open_queue(arguments.path) as queue:
        others = queue.stats().participants - 1
        if not others:
            raise show.Problem(
                f"nobody has {queue.path} open, and a shutdown lasts until all have left; for an end that outlives "
                "them: shmq finish"
            )
        queue.shutdown(immediate=arguments.immediate)
        if arguments.json:
            show.facts({"path": queue.path, "processes": others})
        else:
            print(f"{queue.path} is shut down, for {others} process{'es' * (others != 1)} that had it open")
    return 0
