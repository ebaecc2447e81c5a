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
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    with show.open_queue(arguments.path, read_only=True) as queue:
        found = queue.stats()
        stats = dataclasses.asdict(found)
        consumers = stats.pop("consumers")
        stats["held_by"] = found.held_by and found.held_by._asdict()
        options = show.options(queue)
        messages = len(queue)
    if arguments.json:
        show.facts({"path": queue.path, "messages": messages, **stats, "options": options, "consumers": consumers})
        return 0
    print(queue.path)
    damaged = stats.pop("damaged")
    stats.pop("aside")
    stats.pop("held_by")
    show.table([("messages", messages), *((name.replace("_", " "), value) for name, value in stats.items())])
    print("made with " + ", ".join(f"{name}={value}" for name, value in options.items()))
    if consumers:
        print()
        show.consumers(found.consumers)
    if found.held_by is not None:
        print(f"\n{show.held_by(found.held_by)}")
    for problem in damaged.values():
        print(f"\n{problem}; nothing it may need is retired")
    if found.aside:
        print()
        show.aside(queue.path, found.aside)
    return 0
