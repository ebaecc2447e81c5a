"""
List, drop or rename the consumers of a queue.

Examples:
    shmq consumer ls orders
    shmq consumer rm orders billing
    shmq consumer rename orders billing invoices
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    what = verb.add_subparsers(dest="what", metavar="ls|rm|rename", required=True)
    listing = what.add_parser("ls", help="every name, how far it is and how far behind")
    listing.add_argument("path", metavar="PATH", help="the queue")
    listing.add_argument("--json", action="store_true", help="as JSON")
    removal = what.add_parser("rm", help="forget names; what they alone held back goes")
    removal.add_argument("path", metavar="PATH", help="the queue")
    removal.add_argument("names", metavar="NAME", nargs="+", help="the consumers; nobody may hold them")
    rename = what.add_parser("rename", help="give a name another name; it goes on where it stood")
    rename.add_argument("path", metavar="PATH", help="the queue")
    rename.add_argument("old", metavar="OLD", help="the consumer; nobody may hold it")
    rename.add_argument("new", metavar="NEW", help="what it is called from now on")


def run(arguments: argparse.Namespace) -> int:
    """Do it."""
    with show.open_queue(arguments.path) as queue:
        if arguments.what == "rm":
            for name in arguments.names:
                queue.drop_consumer(name)
        elif arguments.what == "rename":
            queue.rename_consumer(arguments.old, arguments.new)
        elif arguments.json:
            show.facts({name: show.known(each) for name, each in queue.consumers().items()})
        else:
            for name, each in queue.consumers().items():
                missed = f", {each.dropped:,} dropped" if each.dropped else ""
                print(f"{name}: at {each.head}, {each.lag:,} behind{missed} ({each.ack})")
    return 0
