"""
Have a queue followed by another one, with the same indexes, times and keys, until Ctrl-C or SIGTERM.

Examples:
    shmq replicate orders /mnt/other/orders
    shmq replicate --listen unix:/run/orders.sock copies/orders
    shmq replicate orders unix:/run/orders.sock
    shmq replicate --listen tcp:127.0.0.1:7000 --token-file tokens copies/orders
    shmq replicate orders tcp:127.0.0.1:7000 --token-file ~/.orders.token
    shmq replicate orders tcp:hub.example.org:7000 --name till-7.orders --token-file ~/.hub.token
    shmq replicate shards/ tcp:hub.example.org:7000 --name till-7 --token-file ~/.hub.token

The last two are for a hub (`shmq hub`), of which all but loopback addresses are reached by TLS. The follower is for
readers; `shmq promote` makes a queue of its own of it. What it lacks is held back in SRC, also while nothing runs here:
`shmq consumer rm SRC replica.NAME` lets go of it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show, stopping

if TYPE_CHECKING:
    import argparse

_SHARDS = "shards.shmq"
"""The file that makes a directory one of shards; see docs/how-to/shards.md."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("source", type=show.place, nargs="?", metavar="SRC", help="the queue that is followed")
    verb.add_argument("target", metavar="DST", help="the follower's directory, or unix:PATH or tcp:HOST:PORT")
    verb.add_argument("--listen", metavar="ADDRESS", help="follow whoever comes there with a queue; then without SRC")
    verb.add_argument(
        "--name", metavar="NAME", help="what the follower is called (as its directory); at a hub CLIENT.QUEUE"
    )
    verb.add_argument("--keep", type=show.whole(0), metavar="BYTES", help="hold back at most so much for it")
    verb.add_argument("--once", action="store_true", help="end when it has all that is there now")
    verb.add_argument(
        "--reset",
        action="store_true",
        help="what DST has and SRC has not is set aside, and counted; nothing is deleted",
    )
    verb.add_argument("--rejoin", action="store_true", help="the same; DST is fenced, and follows from now on")
    verb.add_argument(
        "--token-file",
        metavar="FILE",
        help="a tcp link takes a token: the file has it; with --listen, a line for each that may come",
    )
    verb.add_argument("--ca", metavar="FILE", help="a tcp link is TLS, and believes this authority alone (PEM)")
    verb.add_argument(
        "--json",
        action="store_true",
        help="with --listen: say so as a line of JSON on standard output, when it is ready",
    )


def run(arguments: argparse.Namespace) -> int:
    """Replicate until somebody ends it."""
    if (arguments.listen is None) == (arguments.source is None):
        raise show.Misuse("SRC and DST, or --listen ADDRESS and DST")
    if (arguments.reset or arguments.rejoin) and arguments.target.startswith(("unix:", "tcp:")):
        raise show.Misuse("--reset and --rejoin are said where the follower is, by whoever listens")
    stop = shmq.replica.Stop()
    with stopping.asked(stop):
        return _replicate(arguments, stop)


def _replicate(arguments: argparse.Namespace, stop: shmq.replica.Stop) -> int:
    if arguments.listen is not None:

        def tell(address: str) -> None:
            told = f"{arguments.target} follows whoever comes to {address}"
            show.ready(told, {"path": arguments.target, "place": address}, as_json=arguments.json)

        shmq.replica.listen(
            arguments.listen,
            arguments.target,
            token_file=arguments.token_file,
            stop=stop,
            on_start=tell,
            reset=arguments.reset,
            rejoin=arguments.rejoin,
        )
        return 0
    token = None if arguments.token_file is None else shmq.replica.token_in(arguments.token_file)
    ways = {"keep": arguments.keep, "once": arguments.once, "token": token, "ca": arguments.ca, "stop": stop}
    if os.path.exists(os.path.join(arguments.source, _SHARDS)):
        if arguments.name is None or arguments.reset or arguments.rejoin:
            raise show.Misuse("shards go to a hub, with --name CLIENT, and without --reset and --rejoin")
        shmq.hub.push(arguments.source, arguments.target, client=arguments.name, **ways)
        return 0
    shmq.replica.replicate(
        arguments.source,
        arguments.target,
        name=arguments.name,
        reset=arguments.reset,
        rejoin=arguments.rejoin,
        **ways,
    )
    return 0
