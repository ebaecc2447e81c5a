"""
Carry a queue's messages to NATS, Redis, Kafka or a POSIX message queue, or theirs into a queue.

Examples:
    shmq bridge orders nats://host:4222/STREAM
    shmq bridge redis://host:6379/stream orders
    shmq bridge orders kafka://host:9092/TOPIC --trail 3600
    shmq bridge mq:/door orders
    shmq bridge orders valkey://host:6379/stream?db=1 --once

It runs until Ctrl-C or SIGTERM, and can be killed at any time: it asks the other side where it is, and goes on there.
From NATS, Redis and Kafka each message comes once. `pip install 'shmq[nats]'`, [redis], [kafka] or [mq] is needed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show, stopping

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("source", metavar="FROM", type=show.place, help="a queue, or a URL like those below")
    verb.add_argument("target", metavar="TO", type=show.place, help="the other one of the two")
    verb.add_argument(
        "--trail",
        type=show.seconds,
        metavar="SECONDS",
        help="on the way out: for how long the queue keeps what has arrived, in case the server loses it (600)",
    )
    verb.add_argument("--once", action="store_true", help="carry what is there, and end")
    verb.add_argument("--json", action="store_true", help="the result as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Carry until somebody ends it, and say how much it was."""
    outward, inward = shmq.bridge.is_url(arguments.target), shmq.bridge.is_url(arguments.source)
    if outward == inward:
        raise show.Misuse(
            f"a bridge leads from a queue to a URL or back, and {'both' if outward else 'neither'} of "
            f"{arguments.source} and {arguments.target} is a URL of redis:, nats:, kafka: or mq:"
        )
    if inward and arguments.trail is not None:
        raise show.Misuse("--trail is for the way out of a queue")
    stop = threading.Event()
    with show.open_queue(arguments.source if outward else arguments.target) as queue, stopping.asked(stop.set):
        try:
            if outward:
                trail = {} if arguments.trail is None else {"trail": arguments.trail}
                count = shmq.bridge.send(queue, arguments.target, once=arguments.once, stop=stop, **trail)
            else:
                count = shmq.bridge.receive(arguments.source, queue, once=arguments.once, stop=stop)
        except ImportError as problem:
            raise show.Problem(str(problem)) from None
    if arguments.json:
        show.facts({"messages": count})
    else:
        print(f"carried {show.counted(count, 'message')}")
    return 0
