"""
Make a queue of its own of one that follows another: it is put into and consumed from then.

Example:
    shmq promote /mnt/other/orders
    shmq promote copies/orders --fenced shmq-receipt-1-EeVK...

Of a queue whose puts wait for n of F followers, F - n + 1 are fenced before, this one counted: `shmq fence` says how.

Whoever replicates to it is ended first. The queue that it followed is fenced when it next meets this one; until then it
cannot know, and what is put there is not here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the follower")
    verb.add_argument(
        "--clock-ok", action="store_true", help="though its clock and that of its source were more than 1 s apart"
    )
    verb.add_argument(
        "--fenced", metavar="RECEIPT", nargs="+", default=[], help="what `shmq fence` printed at the other followers"
    )
    verb.add_argument("--force", action="store_true", help="with fewer receipts: what only others have is lost")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Promote it, and say where it goes on."""
    done = shmq.replica.promote(
        arguments.path, clock_ok=arguments.clock_ok, fenced=arguments.fenced, force=arguments.force
    )
    if arguments.json:
        show.facts(show.fields(done))
        return 0
    print(
        f"{arguments.path} is a queue of its own, in epoch {done.to_epoch}: it has what came before index "
        f"{done.end:,}, and goes on at {done.next_index:,}"
    )
    return 0
