"""
Bring a foreign queue in: Kestrel, libkestrel, sej, QewQew or Chronicle Queue.

Examples:
    shmq import /var/spool/kestrel orders --queue orders
    shmq import events.sej events --resume

All of it appears at once, or nothing: a broken import leaves nothing behind, and one that is repeated doubles nothing.
With --resume it appears in parts, and goes on behind the last part when it is run again, also with what the source has
gained meanwhile. With --again all that the source holds now is imported, whatever was imported from it before. The
messages get shmq's own indexes; what the source knew besides goes to the header `source`. Its consumers come along,
each at its place.
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
    verb.add_argument("target", type=show.place, metavar="QUEUE", help="the shmq queue; made if there is none")
    times = verb.add_mutually_exclusive_group()
    times.add_argument("--resume", action="store_true", help="in parts, behind what was imported before")
    times.add_argument("--again", action="store_true", help="all of it, also what was imported before")
    verb.add_argument("--part", type=int, default=1_000_000, metavar="N", help="messages in a part")
    verb.add_argument("--no-consumers", action="store_true", help="leave the source's consumers out")
    verb.add_argument("--ack", choices=("auto", "explicit"), default="auto", help="how the consumers acknowledge")
    verb.add_argument("--lossy", action="store_true", help="leave out what is damaged or has no place in shmq")
    verb.add_argument("--json", action="store_true", help="say what was imported as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Import, and say what."""
    if arguments.part < 1:
        raise show.Misuse(f"--part {arguments.part}: at least 1")
    name = foreign.format_of(arguments.source, arguments.format)
    if arguments.lossy:
        foreign.say_damage(arguments.source, name, arguments.queue)
    with foreign.at_work() as progress:
        done = shmq.formats.import_queue(
            arguments.source,
            arguments.target,
            name,
            arguments.queue,
            resume=arguments.resume,
            part=arguments.part,
            again=arguments.again,
            consumers=not arguments.no_consumers,
            ack=arguments.ack,
            lossy=arguments.lossy,
            tell=foreign.tell,
            progress=progress,
        )
    if arguments.json:
        facts = {"count": done.messages, "first": done.first, "last": done.last, "consumers": done.consumers}
        show.facts({"format": done.format, **facts})
    else:
        indexes = f", {show.span(done.first, done.last)}" if done.messages else ""
        consumers = f" and {show.counted(len(done.consumers), 'consumer')}" if done.consumers else ""
        print(f"imported {show.counted(done.messages, 'message')}{consumers}{indexes}")
    return 0
