"""
Show the last messages, and with -f those that come. Changes nothing for any consumer.

Examples:
    shmq tail orders
    shmq tail orders -n 0 -f --json
    shmq tail orders -f --key-prefix eu/
"""

from __future__ import annotations

import itertools
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
    show.add_filter(verb)
    show.add_format(verb)
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    with show.open_queue(arguments.path, read_only=True, trusted=arguments.trusted) as queue:
        filtered = show.wanted(arguments)
        start = max(queue.next_index - arguments.count, 0)
        if filtered is not None:  # so many that match
            start = queue.next_index
            for message in itertools.islice(queue.reader(0, start, reverse=True, filter=filtered), arguments.count):
                start = message.index
        print_message = show.printer(queue, arguments.format)
        for message in queue.reader(start=start, follow=arguments.follow, filter=filtered):
            print_message(message)
            if arguments.follow:
                sys.stdout.flush()
    return 0
