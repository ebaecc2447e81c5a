"""
Show the last messages, and with -f those that come. Changes nothing for any consumer.

Examples:
    shmq tail orders
    shmq tail orders -n 0 -f --json
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shmq.cli import show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("-n", "--count", type=show.whole(0), default=10, metavar="N", help="begin with the last N (10)")
    verb.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C or shutdown")
    show.add_format(verb)
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    with show.open_queue(arguments.path, read_only=True, trusted=arguments.trusted) as queue:
        start = max(queue.next_index - arguments.count, 0)
        print_message = show.printer(queue, arguments.format)
        for message in queue.reader(start=start, follow=arguments.follow):
            print_message(message)
            if arguments.follow:
                sys.stdout.flush()
    return 0
