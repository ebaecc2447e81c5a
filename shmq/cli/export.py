"""
Write a queue as a foreign format: Kestrel, libkestrel, sej or QewQew.

Examples:
    shmq export orders --to sej orders.sej
    shmq export orders --to libkestrel /var/spool/queues --queue orders

All or nothing, beside running producers: what is there at the beginning is written. The consumers go along, each at its
place. What the format cannot hold is said before anything is written, and refused unless --lossy is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show, transfer

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="QUEUE", help="the shmq queue")
    verb.add_argument(
        "--to", choices=transfer.FORMATS, required=True, metavar="FORMAT", help="kestrel, libkestrel, ..."
    )
    verb.add_argument(
        "target", type=show.place, metavar="DST", help="what to make: a directory, or QewQew's header file"
    )
    verb.add_argument("--queue", metavar="NAME", help="the name of the queue in it; its own by default")
    verb.add_argument("--lossy", action="store_true", help="leave out what the format cannot hold")
    verb.add_argument("--json", action="store_true", help="say what was written as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Export, and say what."""
    with transfer.no_cycles(), show.open_queue(arguments.path, read_only=True) as queue:
        found = transfer.survey(queue, transfer.Progress("looked at"))
        lost = transfer.losses_of(found, arguments.to)
        transfer.refuse_losses(lost, lossy=arguments.lossy)
        name = transfer.queue_name(arguments.queue, arguments.to, arguments.path)
        count = transfer.write(arguments.target, arguments.to, name, found, queue, lossy=arguments.lossy)
    if arguments.json:
        show.facts({"count": count, "format": arguments.to, "queue": name, "lost": lost, "path": arguments.target})
    else:
        consumers = show.counted(transfer.consumers_kept(found, arguments.to), "consumer")
        print(f"exported {show.counted(count, 'message')} and {consumers} to {arguments.target}")
    return 0
