"""
Show the last messages, and with -f those that come. Changes nothing for any consumer.

Examples:
    shmq tail orders
    shmq tail orders -n 0 -f --json
    shmq tail orders -f --key-prefix eu/
    shmq tail orders -f --from '10 minutes ago' --grep error
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from shmq.cli import selection, show

if TYPE_CHECKING:
    import argparse

_LAST = 10


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument(
        "-n", "--count", type=show.whole(0), metavar="N", help=f"begin with the last N ({_LAST}, or all with --from)"
    )
    verb.add_argument("-f", "--follow", action="store_true", help="go on with what comes, until Ctrl-C or shutdown")
    selection.add(verb)
    show.add_format(verb)
    show.add_trusted(verb)


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    if arguments.follow and arguments.stop is not None:
        raise show.Misuse("--to ends where --follow goes on: give one of them")
    with show.open_queue(arguments.path, read_only=True, trusted=arguments.trusted) as queue:
        chosen = selection.Selection(queue, arguments)
        count = _LAST if arguments.count is None and chosen.start is None else arguments.count
        start = chosen.start if count is None else chosen.last(count)
        print_message = show.printer(queue, arguments.format)
        for message in chosen.messages(start=start, follow=arguments.follow):
            print_message(message)
            if arguments.follow:
                sys.stdout.flush()
    return 0
