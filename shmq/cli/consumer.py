"""
List, remove or rename the consumers of a queue.

`prune` is for names that Spark's queries without a group have left, by hundreds perhaps. Nothing is lost with them but
the sight of a lag: one whose query goes on is back with its next batch. Those of older versions hold the queue until
then.

Examples:
    shmq consumer ls orders
    shmq consumer rm orders billing
    shmq consumer rename orders billing invoices
    shmq consumer prune orders
    shmq consumer prune orders --yes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmq import Busy, NotFound, spark
from shmq.cli import show

if TYPE_CHECKING:
    import argparse

    from shmq import Queue


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    what = verb.add_subparsers(dest="what", metavar="ls|rm|rename|prune", required=True)
    listing = what.add_parser("ls", help="every name, how far it is and how far behind")
    listing.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    listing.add_argument("--json", action="store_true", help="as JSON")
    removal = what.add_parser("rm", help="forget names; what they alone held back goes")
    removal.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    removal.add_argument("names", metavar="NAME", nargs="+", help="the consumers; nobody may hold them")
    prune = what.add_parser("prune", help="say which names Spark's queries without a group have left")
    prune.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    prune.add_argument("--yes", action="store_true", help="and remove them")
    rename = what.add_parser("rename", help="give a name another name; it goes on where it stood")
    rename.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    rename.add_argument("old", metavar="OLD", help="the consumer; nobody may hold it")
    rename.add_argument("new", metavar="NEW", help="what it is called from now on")


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return the exit status."""
    looks = arguments.what == "ls" or (arguments.what == "prune" and not arguments.yes)
    with show.open_queue(arguments.path, read_only=looks) as queue:
        if arguments.what == "prune":
            _prune(queue, remove=arguments.yes)
        elif arguments.what == "rm":
            for name in arguments.names:
                queue.drop_consumer(name)
        elif arguments.what == "rename":
            queue.rename_consumer(arguments.old, arguments.new)
        elif arguments.json:
            show.facts({name: show.known(each) for name, each in queue.consumers().items()})
        else:
            for name, each in queue.consumers().items():
                print(show.consumer(name, each))
    return 0


def _prune(queue: Queue, *, remove: bool) -> None:
    count = 0
    for name, each in queue.consumers().items():
        if each.hold == "nothing" or (spark.is_automatic_group(name) and not each.shared):
            if remove:
                try:
                    queue.drop_consumer(name)
                except (Busy, NotFound) as problem:
                    print(f"left: {problem}")
                    continue
            count += 1
            print(f"{'removed' if remove else 'would remove'} {show.consumer(name, each)}")
    rest = "" if remove or not count else "; nothing was removed yet: --yes does it"
    print(f"{count} name{'' if count == 1 else 's'}{rest}")
