"""
Put messages again: of a queue into another queue or a function, or what a pipeline has archived into a queue.

Examples:
    shmq replay orders orders-again --from 2026-01-31T08:00 --speed 10
    shmq replay orders jobs:handle --from 1000 --to 2000
    shmq replay orders jobs:handle --step --key-prefix eu/
    shmq replay /data/archive/events /data/q/events-again
    shmq replay archive q --since 2013-06-01 --until 2013-07-01
    shmq replay /shared/lake/orders q --host host-a

Keys, times, types and headers are kept. Killed, a replay into a queue goes on when it is called again with the same
--from (of an archive: --since and --until) and filter, and puts nothing twice; another --from is another replay, which
puts what both have again. A function `module:function` is looked for from the current directory on; where it raises,
the replay ends. The source is only read. Of an archive, where a message was is in its header `source`.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import os

import shmq
from shmq.cli import again, handlers, show, whence
from shmq.cli.progress import Progress

_SINCE = "only messages of this time or later (ISO 8601, local time when it names no zone)"


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("source", type=show.place, metavar="SOURCE", help="a queue, or an archive's directory")
    verb.add_argument(
        "target", type=show.place, metavar="TARGET", help="a queue, made if it is not there; or module:function"
    )
    of_queue = verb.add_argument_group("of a queue")
    of_queue.add_argument("--from", dest="start", metavar="PLACE", help=f"begin there: {whence.WORDS}")
    of_queue.add_argument("--to", dest="stop", metavar="PLACE", help="end before that one (the end as it is now)")
    of_queue.add_argument(
        "--speed", type=_speed, metavar="N", help='1 as it was then, 10 ten times as fast, "max" without a pause (max)'
    )
    of_queue.add_argument("--step", action="store_true", help="show each message, and wait for Enter")
    of_queue.add_argument("--continue", dest="go_on", action="store_true", help="count what the function fails at")
    show.add_filter(verb)
    show.add_trusted(verb)
    of_queue.add_argument("--format", choices=show.FORMATS, help="how --step shows a message")
    of_archive = verb.add_argument_group("of an archive")
    of_archive.add_argument("--since", type=_time, metavar="TIME", help=_SINCE)
    of_archive.add_argument("--until", type=_time, metavar="TIME", help="only messages before this time")
    of_archive.add_argument("--shard", type=int, metavar="N", help="only of this shard")
    of_archive.add_argument("--host", metavar="NAME", help="only of this host, of those that archived into the table")
    verb.add_argument("--json", action="store_true", help="the result as JSON")


def _speed(word: str) -> float | None:
    if word == "max":
        return None
    try:
        speed = float(word)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f'{word!r} is not a speed: a number above 0, or "max"')
    return speed


def _time(word: str) -> datetime.datetime:
    try:
        return datetime.datetime.fromisoformat(word)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{word!r} is not a time like 2013-06-01 or 2013-06-01T12:30:00+02:00"
        ) from None


def run(arguments: argparse.Namespace) -> int:
    """Replay, and say how much."""
    of_queue = {"--from": arguments.start, "--to": arguments.stop, "--speed": arguments.speed}
    of_queue |= {"--step": arguments.step or None, "--continue": arguments.go_on or None}
    of_queue |= {
        "--with-header": arguments.with_headers,
        "--key-prefix": arguments.key_prefix,
        "--type": arguments.types,
        "--format": arguments.format,
    }
    of_archive = {"--since": arguments.since, "--until": arguments.until, "--shard": arguments.shard}
    of_archive |= {"--host": arguments.host}
    if _is_queue(arguments.source):
        _refuse(of_archive, f"{arguments.source} is a queue, and this is for archives")
        if not handlers.is_handler(arguments.target):
            _refuse({"--continue": arguments.go_on or None}, f"{arguments.target} is a queue, and no function")
        return again.Replay(arguments).run()
    _refuse(of_queue, f"{arguments.source} is not a queue, and this is for queues")
    if handlers.is_handler(arguments.target):
        raise show.Misuse(f"{arguments.source} is not a queue, and only a queue is replayed into a function")
    return _of_archive(arguments)


def _is_queue(path: str) -> bool:
    return path.startswith("shm:") or os.path.exists(os.path.join(path, "queue.shmq"))


def _refuse(options: dict[str, object], why: str) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise show.Misuse(f"{', '.join(given)}: {why}")


def _of_archive(arguments: argparse.Namespace) -> int:
    show.refuse_root(arguments.source)
    if not os.path.isdir(arguments.source):
        raise show.Problem(f"{arguments.source} is neither a queue nor an archive: there is no such directory")
    problems = shmq.spark.verify_archive(arguments.source)
    if problems:
        raise show.Problem(f"{arguments.source} is damaged, and nothing was put: {'; '.join(problems)}")
    show.refuse_to_make(arguments.target)
    limits = {"since": arguments.since, "until": arguments.until, "shard": arguments.shard, "host": arguments.host}
    with Progress() as progress:
        tell = functools.partial(progress.at, "replayed")
        rows = shmq.spark.replay(arguments.source, arguments.target, progress=tell, **limits)
    if arguments.json:
        show.facts({"messages": rows, "queue": arguments.target})
    else:
        print(f"put {show.counted(rows, 'message')} into {arguments.target}")
    return 0
