"""
Bring messages into a Delta table, or plain Parquet, before their queue may forget them.

Examples:
    shmq archive orders /data/lake/orders --every 30s
    shmq archive orders s3://lake/orders --schema "user BIGINT, amount DOUBLE"
    shmq archive orders /shared/lake/orders --host host-a
    shmq archive orders /data/archive/orders --form parquet

Each message is in the table exactly once, whoever is killed. With a schema its payload is decoded, once, into columns.
With --host the table is for several hosts, each of which archives its own queues into it.
SIGTERM finishes the file that is being written. A Delta table needs: pip install 'shmq[delta]'
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
import time
from typing import Any

import shmq
from shmq.cli import show, stopping
from shmq.cli.progress import Progress

_FORMS = ("delta", "parquet")
_VALUES = ("json", "msgpack", "struct")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30}


class _Stopped(Exception):
    """Told to stop, between two files."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("queue", type=show.place, metavar="QUEUE", help="a queue, or a directory with its shards")
    verb.add_argument("table", type=show.place, metavar="TABLE", help="where to; made if it is not there")
    verb.add_argument("--form", choices=_FORMS, help="what a new one is (delta)")
    verb.add_argument("--host", metavar="NAME", help="this one, of several for whose queues a table is (its own name)")
    verb.add_argument("--schema", metavar="DDL", help="fields of the payloads, which become columns")
    verb.add_argument("--value", choices=_VALUES, help="what payloads are then (as the queue's codec says)")
    verb.add_argument("--dtype", help="of --value struct: price:<f8, size:<i4")
    verb.add_argument("--every", type=_seconds, metavar="TIME", help="again and again, like 30s or 5m (once)")
    verb.add_argument("--after", type=_seconds, metavar="TIME", help="only what was put so long ago, like 6h")
    verb.add_argument(
        "--compact-to", type=_bytes, metavar="SIZE", default="256MB", help="how large files become, at most (256MB)"
    )
    verb.add_argument("--json", action="store_true", help="a line of JSON each time")


def _seconds(word: str) -> float:
    try:
        return float(shmq.spark.seconds(word))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a time like 30s, 5m or 6h") from None


def _bytes(word: str) -> int:
    found = re.fullmatch(r"([1-9]\d*)([KMG]?)i?B?", word)
    if found is None:
        raise argparse.ArgumentTypeError(f"{word!r} is not a size like 256MB")
    return int(found[1]) << _UNITS[found[2]]


def run(arguments: argparse.Namespace) -> int:
    """Archive, once or again and again, and say how much."""
    stop, cycles = threading.Event(), 0
    try:
        with stopping.asked(stop.set):
            while True:
                began = time.monotonic()
                _once(arguments, stop)
                cycles += 1
                if arguments.every is None or stop.wait(max(arguments.every - (time.monotonic() - began), 0)):
                    return 0
    except (shmq.spark.Missing, shmq.spark.BadOption) as problem:
        raise show.Problem(str(problem)) from None
    except shmq.NotFound as problem:
        safe = f"; it was there before, and what was archived of it is safe in {arguments.table}" if cycles else ""
        raise show.Problem(f"{problem}{safe}") from None


def _once(arguments: argparse.Namespace, stop: threading.Event) -> None:
    progress = Progress()
    done = 0

    def at(count: int) -> None:
        nonlocal done
        done = count
        progress.at("archived", count)
        if stop.is_set():
            raise _Stopped

    given = {"schema": arguments.schema, "value": arguments.value, "dtype": arguments.dtype}
    form = arguments.form or shmq.spark.archive_form(arguments.table) or "delta"
    merged = 0
    try:
        shmq.spark.archive_queue(
            arguments.queue,
            arguments.table,
            form=form,
            host=arguments.host,
            older_than=arguments.after,
            progress=at,
            **given,
        )
        progress.end()
        merged = _put_together(arguments)
    except _Stopped:
        pass
    except BrokenPipeError:
        raise
    except OSError as problem:
        raise show.Problem(
            f"cannot archive {arguments.queue} to {arguments.table}: {show.one_line(problem)}; what is archived is "
            "safe, and the queue keeps the rest. Run it again when that is mended"
        ) from None
    finally:
        progress.end()
    _tell(arguments, done, merged)


def _put_together(arguments: argparse.Namespace) -> int:
    """Work beside: where it cannot be done, nothing is lost but a little speed of whoever reads."""
    try:
        return int(shmq.spark.compact(arguments.table, file_bytes=arguments.compact_to, host=arguments.host))
    except (OSError, shmq.Busy) as problem:
        print(f"shmq: {shmq.spark.not_together(arguments.table, problem)}", file=sys.stderr, flush=True)
        return 0


def _tell(arguments: argparse.Namespace, rows: int, merged: int) -> None:
    facts: dict[str, Any] = {"archive": arguments.table, "rows": rows, "files_merged": merged}
    if arguments.json:
        print(json.dumps(facts), flush=True)
    elif rows or merged or arguments.every is None:
        more = f"; put {merged + 1:,} files together" if merged else ""
        print(f"{show.counted(rows, 'message')} into {arguments.table}{more}", flush=True)
