"""
List the queues below a directory, or the consumers of a queue. Without a directory: below this one, and the volatile.

Examples:
    shmq ls
    shmq ls orders --json
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_MARK = "queue.shmq"
"""The file that makes a directory a queue; see docs/format.md."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", nargs="?", help="a directory (here), or a queue")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print one or the other."""
    path = arguments.path or "."
    if not path.startswith("shm:"):
        if not os.path.isdir(path):
            raise show.Problem(f"{path} is not a directory")
        os.path.abspath(path)  # which says so, where the current directory was removed
        with os.scandir(path):  # which says so, where we may not look
            pass
        if not os.path.exists(f"{path}/{_MARK}"):
            return _print_queues(path, as_json=arguments.json, volatile=arguments.path is None)
    _print_consumers(path, as_json=arguments.json)
    return 0


def _print_consumers(path: str, *, as_json: bool) -> None:
    with show.open_queue(path, read_only=True) as queue:
        stats = queue.stats()
        consumers = stats.consumers
    if as_json:
        show.facts({name: show.known(stats) for name, stats in consumers.items()})
    elif consumers:
        show.consumers(consumers)
        if stats.held_by is not None and stats.held_by.much:
            print(show.held_by(stats.held_by))
    else:
        print(f"{path} has no consumers yet")


def _print_queues(top: str, *, as_json: bool, volatile: bool) -> int:
    found = list(_queues(top))
    if volatile:
        shmq.gc()  # what nobody has open any more is no queue
        found += [_figures(name, name) for name in shmq.volatile_queues()]
    if as_json:
        show.facts(found)
    elif found:
        columns = ["path", "messages", "next_index", "disk_bytes", "consumers"]
        heads = ["QUEUE", "MESSAGES", "NEXT", "BYTES", "CONSUMERS"]
        if any(each.get("role") for each in found):
            columns, heads = [*columns, "role"], [*heads, "ROLE"]
        rows = [tuple(each.get(name, "-") for name in columns) for each in found]
        show.table([heads, *rows])
        sys.stdout.flush()
        for each in found:
            if "problem" in each:
                print(f"shmq: {each['problem']}", file=sys.stderr)
    else:
        print(f"no queues below {top}")
    return int(any("problem" in each for each in found))


def _queues(top: str) -> Iterator[dict[str, Any]]:
    """Every queue below *top*; links are not followed."""
    for path, folders, names in os.walk(top):
        folders.sort()
        if shmq.shards.read(path) is not None:
            folders[:] = [name for name in folders if name != "members"]  # where groups meet, and nobody's messages lie
        if _MARK not in names:
            continue
        folders.clear()
        yield _figures(path, os.path.relpath(path, top))


def _figures(path: str, shown: str) -> dict[str, Any]:
    """Of one queue, or what keeps it from being opened."""
    try:
        with contextlib.closing(show.open_queue(path, read_only=True)) as queue:
            stats = queue.stats()
            return {
                "path": shown,
                "messages": len(queue),
                "next_index": stats.next_index,
                "disk_bytes": stats.disk_bytes,
                "consumers": len(stats.consumers),
                "role": stats.role,
            }
    except (shmq.ShmqError, OSError) as problem:
        return {"path": shown, "problem": show.one_line(problem)}
