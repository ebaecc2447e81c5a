"""
Move a consumer: back to see messages again, forward to skip some.

Examples:
    shmq seek orders billing 1000
    shmq seek orders billing earliest
    shmq seek orders billing 2026-01-31T08:00
"""

from __future__ import annotations

import argparse
import datetime
import re

from shmq.cli import show


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("name", metavar="NAME", help="the consumer; it must exist, and nobody may hold it")
    verb.add_argument(
        "place",
        metavar="PLACE",
        type=_place,
        help='where to: an index, "earliest", "latest", or the first message of a time or later (ISO 8601, local '
        "unless it names a zone; or seconds since 1970 with a point)",
    )
    verb.add_argument("--json", action="store_true", help="say where it was and is as JSON")


def _place(word: str) -> int | float | str | datetime.datetime:
    if word in ("earliest", "latest"):
        return word
    try:
        return int(word)
    except ValueError:
        pass
    if re.fullmatch(r"[0-9]+\.[0-9]+", word):
        return float(word)
    try:
        return datetime.datetime.fromisoformat(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{word!r} is not an index, a time like 2026-01-31T08:00 or 1769846400.0, "earliest" or "latest"'
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """Move the consumer; print where it was and is."""
    with show.open_queue(arguments.path) as queue:
        if arguments.name not in queue.consumers():
            raise show.Problem(f"{queue.path} has no consumer {arguments.name!r}")
        with show.open_consumer(queue, arguments.name) as consumer:
            before = consumer.head
            consumer.seek(arguments.place)
            if arguments.json:
                show.facts({"consumer": arguments.name, "before": before, "head": consumer.head, "lag": consumer.lag})
            else:
                print(f"{arguments.name}: {before} -> {consumer.head} (lag {consumer.lag:,})")
    return 0
