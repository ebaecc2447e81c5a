"""
`put` and `take` on a foreign queue that its own program does not have open, with `--foreign`. No verb of its own.

An item is removed when it was printed.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import shmq
from shmq.cli import foreign, show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

_READ_BYTES = 1 << 20
_OF_OURS = (
    *("dedup", "null", "json_lines", "csv", "file", "key", "type", "header", "delay", "timeout"),
    *("start", "lease", "max_attempts", "dead_letter", "expire_to", "ordered_by", "window", "expires", "hold"),
    *("ephemeral", "group", "ack", "key_prefix", "types", "with_headers", "trusted"),
)
"""Options that mean something for our own queues only."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument(
        "--foreign",
        choices=("kestrel", "qewqew"),
        help="PATH is a queue of that format, which its program has not open meanwhile",
    )
    verb.add_argument("--queue", metavar="NAME", help="with --foreign: which queue, where a folder holds several")


def put(arguments: argparse.Namespace) -> int:
    """Put the payload, or the lines of standard input, and say how many."""
    _refuse(arguments)
    batches: Iterable[list[bytes]] = [[os.fsencode(arguments.payload)]] if arguments.payload is not None else _lines()
    count = 0
    try:
        if arguments.foreign == "kestrel":
            with shmq.formats.open_queue(arguments.path, "kestrel", arguments.queue, tell=foreign.tell) as journal:
                for batch in batches:
                    expires = None if arguments.ttl is None else time.time_ns() + int(arguments.ttl * 1e9)
                    journal.put_many(shmq.formats.Entry(payload, expires_ns=expires) for payload in batch)
                    count += len(batch)
        else:
            with shmq.formats.open_queue(arguments.path, "qewqew", arguments.queue) as elements:
                for batch in batches:
                    elements.put_many(batch)
                    count += len(batch)
    finally:  # whatever happens, say what is in
        if arguments.json:
            show.facts({"count": count})
        else:
            print(f"put {show.counted(count, 'message')}")
        sys.stdout.flush()
    return 0


def take(arguments: argparse.Namespace) -> int:
    """Print and remove up to so many; exit 1 if there was none."""
    _refuse(arguments)
    if "stdout" in show.CLOSED:
        raise show.Problem("cannot print messages: standard output is closed")
    if arguments.foreign == "qewqew" and arguments.name is not None:
        raise show.Problem(f"a QewQew has one nameless reader, and no {arguments.name!r}")
    options = {"consumer": arguments.name, "tell": foreign.tell} if arguments.foreign == "kestrel" else {}
    opened = shmq.formats.open_queue(arguments.path, arguments.foreign, arguments.queue, **options)
    count = 0
    with opened as queue:
        while count < arguments.count and (found := queue.peek()) is not None:
            entry = shmq.formats.Entry(found) if isinstance(found, bytes) else found
            _print(entry, arguments.format or "raw")
            queue.take()
            count += 1
    if count < arguments.count:
        print(f"shmq: took {count} of {arguments.count}: there are no more", file=sys.stderr)
    return 0 if count else 1


def _print(entry: shmq.formats.Entry, style: str) -> None:
    if style == "json":
        line = show.as_line({field: value for field, value in entry._asdict().items() if value is not None})
    elif style == "raw":
        line = entry.payload + b"\n"
    else:
        line = (entry.payload.hex() if style == "hex" else repr(entry.payload)).encode() + b"\n"
    sys.stdout.buffer.write(line)
    sys.stdout.flush()


def _refuse(arguments: argparse.Namespace) -> None:
    """Refuse what a foreign queue has no place for."""
    given = [name for name in _OF_OURS if getattr(arguments, name, None)]
    if arguments.foreign == "qewqew" and getattr(arguments, "ttl", None) is not None:
        given.append("ttl")
    if given:
        raise show.Problem(
            f"{arguments.foreign} has no place for --{given[0].removesuffix('s').replace('_', '-')}; nothing was done"
        )
    if not os.path.exists(arguments.path) and arguments.foreign == "kestrel":
        raise shmq.NotFound(f"there is no directory {arguments.path}")


def _lines() -> Iterator[list[bytes]]:
    """The lines of standard input as they come."""
    if "stdin" in show.CLOSED:
        raise show.Problem("there is nothing to put: no payload was given, and standard input is closed")
    rest = b""
    while block := os.read(sys.stdin.fileno(), _READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        yield lines
    if rest:
        yield [rest]
