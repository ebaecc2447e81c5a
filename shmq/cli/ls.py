"""
List the queues below a directory, or the consumers of a queue.

Examples:
    shmq ls
    shmq ls orders --json
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_MARK = "queue.shmq"
"""The file that makes a directory a queue; see docs/format.md."""


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", nargs="?", default=".", help="a directory (here), or a queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print one or the other."""
    if not os.path.isdir(arguments.path):
        raise show.Problem(f"{arguments.path} is no directory")
    if os.path.exists(f"{arguments.path}/{_MARK}"):
        _print_consumers(arguments.path, as_json=arguments.json)
        return 0
    return _print_queues(arguments.path, as_json=arguments.json)


def _print_consumers(path: str, *, as_json: bool) -> None:
    with show.open_queue(path, read_only=True) as queue:
        consumers = queue.consumers()
    if as_json:
        show.facts({name: show.known(stats) for name, stats in consumers.items()})
    elif consumers:
        rows = [(name, stats.ack, stats.head, stats.lag) for name, stats in consumers.items()]
        show.table([("CONSUMER", "ACK", "HEAD", "LAG"), *rows], left=2)
    else:
        print(f"{path} has no consumers yet")


def _print_queues(top: str, *, as_json: bool) -> int:
    found = list(_queues(top))
    if as_json:
        show.facts(found)
    elif found:
        rows = [
            (each["path"], each["messages"], each["next_index"], each["disk_bytes"], each["consumers"])
            if "problem" not in each
            else (each["path"], each["problem"], "", "", "")
            for each in found
        ]
        show.table([("QUEUE", "MESSAGES", "NEXT", "BYTES", "CONSUMERS"), *rows])
    else:
        print(f"no queues below {top}")
    return int(any("problem" in each for each in found))


def _queues(top: str) -> Iterator[dict[str, Any]]:
    """Every queue below *top*; links are not followed."""
    for path, folders, names in os.walk(top):
        folders.sort()
        if _MARK not in names:
            continue
        folders.clear()
        shown = os.path.relpath(path, top)
        try:
            with contextlib.closing(show.open_queue(path, read_only=True)) as queue:
                stats = queue.stats()
                yield {
                    "path": shown,
                    "messages": len(queue),
                    "next_index": stats.next_index,
                    "disk_bytes": stats.disk_bytes,
                    "consumers": len(stats.consumers),
                }
        except (shmq.ShmqError, OSError) as problem:
            yield {"path": shown, "problem": show.one_line(problem)}
