"""
Print messages by index, by time, by key, by what is in them. Changes nothing for any consumer.

Examples:
    shmq cat orders                     # all of them
    shmq cat orders 17 -1               # two of them; negative counts from the end
    shmq cat orders --from 1000 --to 1010 --json
    shmq cat orders --from 'yesterday 14:00' --to 'yesterday 15:00' -n 20
    shmq cat orders --key-prefix eu/ --type 1 --type 2
    shmq cat orders --grep 'refund|chargeback' --count
"""

from __future__ import annotations

import argparse
import itertools

from shmq.cli import selection, show


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("indexes", metavar="INDEX", nargs="*", type=_index, help="which; all if none is given")
    verb.add_argument("-n", "--limit", type=show.whole(0), metavar="N", help="the first N of them")
    verb.add_argument("--count", action="store_true", help="say how many there are, instead of printing them")
    selection.add(verb)
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
    if arguments.indexes:
        _refuse_others(arguments)
    with show.open_queue(arguments.path, read_only=True, trusted=arguments.trusted) as queue:
        if arguments.indexes:
            print_message = show.printer(queue, arguments.format)
            for index in arguments.indexes:
                print_message(queue[index])
            return 0
        found = itertools.islice(selection.Selection(queue, arguments).messages(), arguments.limit)
        if arguments.count:
            count = sum(1 for _ in found)
            show.facts({"count": count}) if arguments.format == "json" else print(count)
            return 0
        print_message = show.printer(queue, arguments.format)
        for message in found:
            print_message(message)
    return 0


def _refuse_others(arguments: argparse.Namespace) -> None:
    """Refuse what chooses messages otherwise than by index."""
    if arguments.start is not None or arguments.stop is not None:
        raise show.Misuse("give indexes, or --from and --to, not both")
    others = (arguments.key_prefix, arguments.types, arguments.with_headers, arguments.key, arguments.grep)
    if any(each is not None for each in others) or arguments.count or arguments.limit is not None:
        raise show.Misuse("give indexes, or what to look for (--key, --type, --grep, -n, ...), not both")
