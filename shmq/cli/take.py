"""
Take the next messages as a consumer: every name sees every message, from where it stopped.

Examples:
    shmq take orders billing
    shmq take orders billing -n 100 --timeout 0 --json

A message is acknowledged: with ack mode "auto" when it is handed out, with "explicit" when it was printed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import shmq
from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("name", metavar="NAME", help="the consumer; made if there is none")
    verb.add_argument("-n", "--count", type=int, default=1, metavar="N", help="how many (1)")
    verb.add_argument("--timeout", type=float, metavar="SECONDS", help="how long to wait for each (for ever)")
    verb.add_argument("--ack", choices=("auto", "explicit"), help="for a new name (auto); others keep theirs")
    show.add_format(verb)
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Print them; exit 1 if there were fewer in time."""
    with (
        show.open_queue(arguments.path, trusted=arguments.trusted) as queue,
        show.open_consumer(queue, arguments.name, arguments.ack) as consumer,
    ):
        print_message = show.printer(queue, arguments.format)
        for _ in range(arguments.count):
            try:
                message = consumer.get(timeout=arguments.timeout)
            except ValueError as problem:
                raise show.Problem(str(problem)) from None
            except shmq.Empty:
                sys.stdout.flush()
                raise
            print_message(message)
            sys.stdout.flush()
            message.ack()
    return 0
