"""
Show the figures of a queue. Changes nothing.

Example:
    shmq stat orders --json
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print them."""
    with show.open_queue(arguments.path, read_only=True) as queue:
        stats = dataclasses.asdict(queue.stats())
        consumers = stats.pop("consumers")
        options = show.options(queue)
        messages = len(queue)
    if arguments.json:
        show.facts({"path": queue.path, "messages": messages, **stats, "options": options, "consumers": consumers})
        return 0
    print(queue.path)
    show.table([("messages", messages), *((name.replace("_", " "), value) for name, value in stats.items())])
    print("made with " + ", ".join(f"{name}={value}" for name, value in options.items()))
    if consumers:
        print()
        rows = [(name, each["ack"], each["head"], each["lag"]) for name, each in consumers.items()]
        show.table([("CONSUMER", "ACK", "HEAD", "LAG"), *rows], left=2)
    return 0
