"""
Find the first message that makes a function fail, and the few before it that it takes; write them as a test.

Examples:
    shmq bisect orders jobs:handle
    shmq bisect orders jobs:handle --from 2026-01-31T08:00 --timeout 5
    shmq bisect orders jobs:handle --check jobs:adds_up --case tests/test_adds_up.py

Each run is a fresh process, which is given the messages in order; what the function does outside of it (a database, a
file) it does again in each run. It fails where it raises, ends its process, dies of a signal, or takes longer than
--timeout for one message. The queue is only read.

Exit status 0: found, and the case is written; 1: nothing failed, or it could not be done; 2: it was asked for wrongly.
For `git bisect run`, use `shmq replay`, which ends with 1 where the function raises.
"""

from __future__ import annotations

import argparse

from shmq.cli import handlers, show
from shmq.cli.progress import Progress


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("queue", type=show.place, metavar="QUEUE", help="the queue")
    verb.add_argument("handler", type=_function, metavar="MODULE:FUNCTION", help="it is called with each message")
    where = 'an index, a time (ISO 8601, local; or seconds since 1970 with a point), "earliest" or "latest"'
    verb.add_argument("--from", dest="start", metavar="PLACE", default="earliest", help=f"begin there: {where}")
    verb.add_argument(
        "--to", dest="stop", metavar="PLACE", default="latest", help="end before that one (the end as it is now)"
    )
    verb.add_argument(
        "--check",
        type=_function,
        metavar="MODULE:FUNCTION",
        help="call it without arguments after the last message of a run: it fails where it raises or returns False",
    )
    verb.add_argument("--timeout", type=_some_seconds, default=60.0, metavar="SECONDS", help="for one message (60)")
    verb.add_argument(
        "--shorten", type=show.seconds, default=60.0, metavar="SECONDS", help="to leave out messages for so long (60)"
    )
    verb.add_argument("--again", type=show.whole(0), default=3, metavar="N", help="run the case so often again (3)")
    verb.add_argument(
        "--case", metavar="FILE.py", help="write the test there, its messages beside it (test_FUNCTION_INDEX.py, here)"
    )
    show.add_filter(verb)
    show.add_trusted(verb)
    verb.add_argument("--json", action="store_true", help="what was found as JSON")


def _function(word: str) -> str:
    if not handlers.is_handler(word):
        raise argparse.ArgumentTypeError(f"{word!r} is not a function; it is written module:function")
    return word


def _some_seconds(word: str) -> float:
    if (found := show.seconds(word)) == 0:
        raise argparse.ArgumentTypeError("0: it takes some time")
    return found


def run(arguments: argparse.Namespace) -> int:
    """Search, write the case, and say what was found."""
    from shmq.cli.bisection import case, report  # noqa: PLC0415  # other verbs start no processes

    if arguments.case:
        case.refuse_existing(arguments.case)
    with show.open_queue(arguments.queue, read_only=True, trusted=arguments.trusted) as queue, Progress() as progress:
        return report.Bisection(arguments, queue, progress).run()
