"""
Take the next messages as a consumer: every name sees every message, from where it stopped.

Examples:
    shmq take orders billing
    shmq take orders billing -n 100 --timeout 0 --json
    shmq take orders workers --group --ack explicit --max-attempts 5 --lease 30s
    shmq take orders audit --start 'yesterday 14:00' -n 10
    shmq take /var/spool/kestrel --foreign kestrel --queue orders

What is asked for of a new name, from --group to --type, stays with it; later it need not be said again.

A message is acknowledged: with ack mode "auto" when it is handed out, with "explicit" when it was printed.

Exit status 0 when anything was taken: 1 to N messages; a line on stderr says so if it was fewer than N. 1 when nothing
was.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import shmq
from shmq.cli import in_place, name_options, show

if TYPE_CHECKING:
    import argparse


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument(
        "name", metavar="NAME", nargs="?", help="the consumer; made if there is none (of Kestrel: a fan-out child)"
    )
    verb.add_argument("-n", "--count", type=show.whole(1), default=1, metavar="N", help="up to how many (1)")
    verb.add_argument("--timeout", type=show.seconds, metavar="TIME", help="how long to wait for each (for ever)")
    name_options.add(verb)
    show.add_format(verb)
    show.add_trusted(verb)
    in_place.add(verb)


def run(arguments: argparse.Namespace) -> int:
    """Print them; exit 1 if there was none in time."""
    if arguments.foreign is not None:
        return in_place.take(arguments)
    if arguments.name is None:
        raise show.Misuse("which consumer takes them? NAME is missing")
    with (
        show.open_queue(arguments.path, trusted=arguments.trusted) as queue,
        name_options.open_name(queue, arguments) as consumer,
    ):
        print_message = show.printer(queue, arguments.format)
        for taken in range(arguments.count):
            try:
                message = consumer.get(timeout=arguments.timeout)
            except (shmq.Empty, shmq.ShutDown) as problem:
                sys.stdout.flush()
                if not taken:
                    raise
                print(f"shmq: took {taken} of {arguments.count}: {show.one_line(problem)}", file=sys.stderr)
                break
            except shmq.ShmqError as problem:
                sys.stdout.flush()
                raise show.Problem(f"took {taken} of {arguments.count}: {show.one_line(problem)}") from None
            print_message(message)
            sys.stdout.flush()
            message.ack()
    return 0
