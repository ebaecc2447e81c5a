"""
Move a consumer, or a whole group: back to see messages again, forward to skip some.

Examples:
    shmq seek orders billing 1000
    shmq seek orders billing earliest
    shmq seek orders billing 2026-01-31T08:00
    shmq seek orders billing --from 'yesterday 14:00'
    shmq seek orders workers '10 minutes ago' --dry-run

Nobody may have it open meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show, whence

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("name", metavar="NAME", help="the consumer; it must exist, and nobody may hold it")
    verb.add_argument("place", metavar="PLACE", nargs="?", help=f"where to: {whence.WORDS}")
    verb.add_argument("--from", dest="start", metavar="PLACE", help="the same, as the other verbs have it")
    verb.add_argument("--dry-run", action="store_true", help="only say where it is, and where it would be")
    verb.add_argument("--json", action="store_true", help="say where it was and is as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Move the consumer; print where it was and is."""
    if (arguments.place is None) == (arguments.start is None):
        raise show.Misuse("where to? Give PLACE, or --from PLACE")
    option, word = ("--from", arguments.start) if arguments.place is None else ("PLACE", arguments.place)
    place = whence.place_of(option, word)
    with show.open_queue(arguments.path, read_only=arguments.dry_run) as queue:
        known = queue.consumers().get(arguments.name)
        if known is None:
            raise show.Problem(f"{queue.path} has no consumer {arguments.name!r}")
        if arguments.dry_run:
            before, head = known.head, whence.index_at(queue, option, word)
            lag = max(queue.next_index - head, 0)
        else:
            held = queue.consumer(arguments.name, group=True) if known.shared else queue.consumer(arguments.name)
            with held as consumer:
                before = consumer.head
                consumer.seek(place)
                head, lag = consumer.head, consumer.lag
        if arguments.json:
            show.facts({"consumer": arguments.name, "before": before, "head": head, "lag": lag})
        else:
            would = " would go" if arguments.dry_run else ""
            print(f"{arguments.name}{would}: {before} -> {head} (lag {lag:,})")
    return 0
