"""
Print messages by index. Changes nothing for any consumer.

Examples:
    shmq cat orders                     all of them
    shmq cat orders 17 -1               two of them; negative counts from the end
    shmq cat orders --from 1000 --to 1010 --format json
    shmq cat orders --key-prefix eu/ --type 1 --type 2
"""

from __future__ import annotations

import argparse

from shmq.cli import show


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("indexes", metavar="INDEX", nargs="*", type=_index, help="which; all if none is given")
    verb.add_argument("--from", type=int, dest="start", metavar="INDEX", help="the first of a range")
    verb.add_argument("--to", type=int, dest="stop", metavar="INDEX", help="the index before which to end")
    show.add_filter(verb)
    show.add_format(verb)
    show.add_trusted(verb)


def _index(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        hint = "; for a range, --from and --to" if ":" in word or ".." in word else ""
        raise argparse.ArgumentTypeError(f"{word!r} is not an index{hint}") from None


def run(arguments: argparse.Namespace) -> int:
    """Print them; return the exit status."""
    if arguments.indexes and (arguments.start is not None or arguments.stop is not None):
        raise show.Misuse("give indexes, or --from and --to, not both")
    filtered = show.wanted(arguments)
    if arguments.indexes and filtered is not None:
        raise show.Misuse("give indexes, or --key-prefix and --type, not both")
    with show.open_queue(arguments.path, read_only=True, trusted=arguments.trusted) as queue:
        print_message = show.printer(queue, arguments.format)
        if arguments.indexes:
            for index in arguments.indexes:
                print_message(queue[index])
        else:
            for message in queue.reader(start=arguments.start or 0, stop=arguments.stop, filter=filtered):
                print_message(message)
    return 0
