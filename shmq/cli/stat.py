"""
Show the figures of a queue, or of each shard of a directory. Changes nothing.

Examples:
    shmq stat orders --json
    shmq stat events
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue, or the directory of shards")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    shards = None if arguments.path.startswith("shm:") else shmq.shards.read(arguments.path)
    if shards is not None:
        return _print_shards(shards, as_json=arguments.json)
    with show.open_queue(arguments.path, read_only=True) as queue:
        found = queue.stats()
        stats = show.fields(found)
        consumers = stats.pop("consumers")
        stats["held_by"] = found.held_by and found.held_by._asdict()
        options = show.options(queue)
        messages = len(queue)
    if arguments.json:
        show.facts({"path": queue.path, "messages": messages, **stats, "options": options, "consumers": consumers})
        return 0
    print(queue.path)
    damaged = stats.pop("damaged")
    counts = stats.pop("counts") or {}
    stats.pop("aside")
    stats.pop("held_by")
    show.table([("messages", messages), *((name.replace("_", " "), value) for name, value in stats.items())])
    done = {name.replace("_", " "): value for name, value in counts.items() if value and not name.startswith("latency")}
    if done:
        print("since the boot: " + ", ".join(f"{name} {value}" for name, value in done.items()))
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


def _print_shards(shards: shmq.shards.Map, *, as_json: bool) -> int:
    """One line for each shard, and how far each name is in all of them."""
    found: list[dict[str, Any]] = []
    lags: dict[str, int] = dict.fromkeys(sorted(shards.consumers), 0)
    for shard in shards.live():
        with show.open_queue(shard.path, read_only=True) as queue:
            stats = queue.stats()
            facts = {"messages": len(queue), "next_index": stats.next_index, "disk_bytes": stats.disk_bytes}
            found.append({"shard": shard.number, "state": shard.state, "path": shard.path, **facts})
        for name in lags:
            lags[name] += stats.consumers[name].lag if name in stats.consumers else 0
    if as_json:
        show.facts({"path": shards.path, "shards": found, "consumers": lags})
        return 0
    print(shards.path)
    columns = ("shard", "state", "messages", "next_index", "disk_bytes")
    show.table(
        [("SHARD", "STATE", "MESSAGES", "NEXT", "BYTES"), *(tuple(each[name] for name in columns) for each in found)]
    )
    if lags:
        print()
        show.table([("CONSUMER", "LAG"), *lags.items()])
    return 0
