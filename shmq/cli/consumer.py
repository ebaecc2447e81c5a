"""
List the consumers of a queue, or remove one: what it alone held back is freed.

Examples:
    shmq consumer ls orders
    shmq consumer rm orders billing
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("what", choices=("ls", "rm"), help="what to do")
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("name", metavar="NAME", nargs="?", help="rm: which one")
    verb.add_argument("--json", action="store_true", help="ls: as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Do it; exit 1 if there is none of that name, or somebody holds it."""
    if arguments.what == "rm":
        if arguments.name is None:
            raise show.Problem("shmq consumer rm: which one? shmq consumer ls lists them")
        with show.open_queue(arguments.path) as queue:
            queue.drop_consumer(arguments.name)
        print(f"consumer {arguments.name} was removed")
        return 0
    with show.open_queue(arguments.path, read_only=True) as queue:
        consumers = queue.consumers()
    if arguments.json:
        show.facts({name: show.known(stats) for name, stats in consumers.items()})
        return 0
    rows: list[tuple[str, ...]] = [("CONSUMER", "KIND", "ACK", "HEAD", "LAG", "PENDING", "PARKED", "REDELIVERED")]
    for name, stats in consumers.items():
        group = stats.group
        more = ("alone", "", "", "") if group is None else ("group", group.pending, group.parked, group.redelivered)
        rows.append((name, more[0], stats.ack, str(stats.head), str(stats.lag), *map(str, more[1:])))
    show.table(rows, left=3)
    return 0
