"""
Fence a follower whose source is to be replaced, where puts wait for followers: it takes nothing more of that, durably.

Examples:
    shmq fence copies/orders                        # at the one to be promoted: prints its receipt
    shmq fence copies/orders --give-to RECEIPT      # at another one: prints what `shmq promote --fenced` takes
    shmq fence copies/orders --lift                 # the source is alive after all, and nobody is promoted

The receipt is a line that can be pasted. It says how far the follower is; with --give-to it is given to the one that
is to be promoted, for good. Whoever has more than that one refuses, and says so: then that one is to be promoted.
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
    ways = verb.add_mutually_exclusive_group()
    ways.add_argument("--give-to", metavar="RECEIPT", help="of the follower that is to be promoted")
    ways.add_argument("--lift", action="store_true", help="it follows again; while its receipt was given to nobody")
    verb.add_argument("--json", action="store_true", help="as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Fence it, and print its receipt."""
    line = shmq.replica.fence(arguments.path, give_to=arguments.give_to, lift=arguments.lift)
    if arguments.json:
        show.facts({"path": arguments.path, "fenced": not arguments.lift, "receipt": line or None})
    else:
        print(line or f"{arguments.path} follows again")
    return 0
