"""
Turn one foreign queue into another, of any of the five formats.

Examples:
    shmq convert /var/spool/kestrel orders.sej --to sej --queue orders
    shmq convert orders.sej /var/spool/queues --to libkestrel --name orders
    shmq convert /var/spool/shards again --to sej --by-dir

The source is read once to see what would be lost, and once to write. For shmq queues, import and export do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    foreign.add_source(verb)
    foreign.add_target(verb)
    verb.add_argument("--name", metavar="NAME", help="the name of the queue in DST; its own by default")
    verb.add_argument("--lossy", action="store_true", help="leave out what is damaged, or what the format cannot hold")
    verb.add_argument("--json", action="store_true", help="say what was written as JSON")
    foreign.add_sizes(verb)
    foreign.add_directories(verb)
    foreign.add_cycles(verb)


def run(arguments: argparse.Namespace) -> int:
    """Convert, and say what."""
    name = foreign.format_of(arguments.source, arguments.format)
    if arguments.lossy:
        foreign.say_damage(arguments.source, name, arguments.queue)
    options = foreign.options_of(arguments, arguments.to)
    with foreign.at_work() as progress:
        done = shmq.formats.convert_queue(
            arguments.source,
            arguments.target,
            arguments.to,
            name,
            arguments.queue,
            arguments.name,
            lossy=arguments.lossy,
            tell=foreign.tell,
            progress=progress,
            **options,
        )
    if arguments.json:
        facts = {"count": done.messages, "from": name, "to": done.format}
        show.facts({**facts, "lost": done.lost, "path": done.path})
    else:
        consumers = show.counted(len(done.consumers), "consumer")
        print(f"converted {show.counted(done.messages, 'message')} and {consumers} to {done.path}")
    return 0
