"""
Write a queue as a foreign format: Kestrel, libkestrel, sej, QewQew or Chronicle Queue.

Examples:
    shmq export orders --to sej orders.sej
    shmq export orders --to libkestrel /var/spool/queues --queue orders
    shmq export orders --to sej /var/spool/shards --shard-bit 3 --prefix orders --segment-bytes 67108864
    shmq export orders --to chronicle orders.cq --roll-cycle HOURLY --lossy

All or nothing, beside running producers: what is there at the beginning is written. The consumers go along, each at its
place. What the format cannot hold is said before anything is written, and refused unless --lossy is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="QUEUE", help="the shmq queue")
    foreign.add_target(verb)
    verb.add_argument("--queue", metavar="NAME", help="the name of the queue in it; its own by default")
    verb.add_argument("--lossy", action="store_true", help="leave out what the format cannot hold")
    verb.add_argument("--json", action="store_true", help="say what was written as JSON")
    foreign.add_sizes(verb)
    foreign.add_directories(verb)
    foreign.add_cycles(verb)


def run(arguments: argparse.Namespace) -> int:
    """Export, and say what."""
    show.refuse_volatile(arguments.target, "a path where the foreign queue is to lie")
    options = foreign.options_of(arguments, arguments.to)
    with foreign.at_work() as progress, show.open_queue(arguments.path, read_only=True) as queue:
        total = len(queue)
        done = shmq.formats.export_queue(
            queue,
            arguments.target,
            arguments.to,
            arguments.queue,
            lossy=arguments.lossy,
            tell=foreign.tell,
            progress=lambda doing, count: progress(doing, count, lambda: count / total if total else None),
            **options,
        )
    if arguments.json:
        facts = {"count": done.messages, "format": done.format, "queue": done.queue}
        show.facts({**facts, "lost": done.lost, "path": done.path})
    else:
        consumers = show.counted(len(done.consumers), "consumer")
        print(f"exported {show.counted(done.messages, 'message')} and {consumers} to {done.path}")
    return 0
