"""
Put what a pipeline has archived into a queue again, in order, each message once.

Examples:
    shmq replay /data/archive/events /data/q/events-again
    shmq replay archive q --since 2013-06-01 --until 2013-07-01
    shmq replay /shared/lake/orders q --host host-a

Keys, times, types and headers are kept; where a message was is in its header `source`. Killed, it goes on when it is
called again with the same --since and --until. Other times are another replay: what both have is put twice.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os

from shmq import spark
from shmq.cli import show
from shmq.cli.progress import Progress

_SINCE = "only messages of this time or later (ISO 8601, local time when it names no zone)"


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("archive", type=show.place, metavar="ARCHIVE", help="the archive's directory")
    verb.add_argument("queue", type=show.place, metavar="QUEUE", help="the queue; made if it is not there")
    verb.add_argument("--since", type=_time, metavar="TIME", help=_SINCE)
    verb.add_argument("--until", type=_time, metavar="TIME", help="only messages before this time")
    verb.add_argument("--shard", type=int, metavar="N", help="only of this shard")
    verb.add_argument("--host", metavar="NAME", help="only of this host, of those that archived into the table")
    verb.add_argument("--json", action="store_true", help="the result as JSON")


def _time(word: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(word)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is no time like 2013-06-01 or 2013-06-01T12:30:00+02:00") from None


def run(arguments: argparse.Namespace) -> int:
    """Replay, and say how much."""
    if not os.path.isdir(arguments.archive):
        raise show.Problem(f"{arguments.archive} is no archive: there is no such directory")
    problems = spark.verify_archive(arguments.archive)
    if problems:
        raise show.Problem(f"{arguments.archive} is damaged, and nothing was put: {'; '.join(problems)}")
    limits = {"since": arguments.since, "until": arguments.until, "shard": arguments.shard, "host": arguments.host}
    with Progress() as progress:
        tell = functools.partial(progress.at, "replayed")
        rows = spark.replay(arguments.archive, arguments.queue, progress=tell, **limits)
    if arguments.json:
        show.facts({"messages": rows, "queue": arguments.queue})
    else:
        print(f"put {rows:,} messages into {arguments.queue}")
    return 0
