"""
Move a consumer to an index: back to see messages again, forward to skip some.

Examples:
    shmq seek orders billing 1000
    shmq seek orders billing earliest
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse

    import shmq


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("name", metavar="NAME", help="the consumer; it must exist, and nobody may hold it")
    verb.add_argument("index", metavar="INDEX", help='where to: an index, "earliest" or "latest"')
    verb.add_argument("--json", action="store_true", help="say where it was and is as JSON")


def _open(queue: shmq.Queue, name: str) -> shmq.Consumer | shmq.GroupConsumer:
    """By nobody else, whatever it is."""
    known = queue.consumers()[name]
    return show.open_consumer(queue, name) if known.group is None else queue.consumer(name, group=True, ack=known.ack)


def run(arguments: argparse.Namespace) -> int:
    """Move it, and say from where."""
    with show.open_queue(arguments.path) as queue:
        if arguments.name not in queue.consumers():
            raise show.Problem(f"{queue.path} has no consumer {arguments.name!r}")
        places = {"earliest": queue.first_index, "latest": queue.next_index}
        try:
            index = places[arguments.index] if arguments.index in places else int(arguments.index)
        except ValueError:
            raise show.Problem(f'{arguments.index!r} is no index, nor "earliest" or "latest"') from None
        with _open(queue, arguments.name) as consumer:
            before = consumer.head
            consumer.seek(index)
            if arguments.json:
                show.facts({"consumer": arguments.name, "before": before, "head": consumer.head, "lag": consumer.lag})
            else:
                print(f"{arguments.name}: {before} -> {consumer.head} (lag {consumer.lag:,})")
    return 0
