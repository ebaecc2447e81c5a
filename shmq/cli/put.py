"""
Put one message, or every line of standard input.

Examples:
    shmq put orders hello --key eu
    tail -F access.log | shmq put log

Lines that are there together are put as one batch: all of them appear at once. A line is in the queue when it was
counted, also if this command is killed next.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    import shmq

_READ_BYTES = 1 << 20
_BATCH = 4096


def add(verb: argparse.ArgumentParser) -> None:
    """Its arguments."""
    verb.add_argument("path", metavar="PATH", help="the queue")
    verb.add_argument("payload", metavar="PAYLOAD", nargs="?", help="text, or JSON for codecs json and msgpack")
    verb.add_argument("--key", help="what the message belongs to")
    verb.add_argument("--type", type=int, default=0, metavar="N", help="0 to 65535, your own")
    verb.add_argument("--header", action="append", default=[], metavar="NAME=VALUE", help="may be given several times")
    verb.add_argument("--json", action="store_true", help="say the indexes as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Put, and say under which index."""
    headers = dict(_header(word) for word in arguments.header) or None
    key = None if arguments.key is None else os.fsencode(arguments.key)
    with show.open_queue(arguments.path) as queue:
        if arguments.payload is not None:
            batches: Iterator[list[Any]] = iter([[show.payload_of(queue, os.fsencode(arguments.payload))]])
        else:
            batches = _batches(queue)
        first, last, count = None, None, 0
        try:
            for batch in batches:
                indexes = _put(queue, batch, key, arguments.type, headers)
                first = indexes[0] if first is None else first
                last, count = indexes[-1], count + len(indexes)
        finally:  # whatever happens, say what is in
            if arguments.json:
                show.facts({"count": count, "first": first, "last": last})
            elif arguments.payload is not None and first is not None:
                print(first)
            elif first is not None:
                print(f"put {count:,} message{'s' * (count != 1)}, index {first} to {last}")
            elif arguments.payload is None:
                print("put 0 messages")
    return 0


def _put(queue: shmq.Queue, batch: list[Any], key: bytes | None, kind: int, headers: dict[str, str] | None) -> range:
    size = len(batch)
    try:
        return queue.put_many(
            batch,
            keys=None if key is None else [key] * size,
            types=[kind] * size if kind else None,
            headers=[headers] * size if headers else None,
        )
    except ValueError as problem:
        raise show.Problem(str(problem)) from None


def _header(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise show.Problem(f"{word!r} is no header: NAME=VALUE")
    return name, value


def _batches(queue: shmq.Queue) -> Iterator[list[Any]]:
    """The lines of standard input as they come, those that come together as one batch."""
    rest = b""
    while block := os.read(sys.stdin.fileno(), _READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for at in range(0, len(lines), _BATCH):
            yield [show.payload_of(queue, line) for line in lines[at : at + _BATCH]]
    if rest:
        yield [show.payload_of(queue, rest)]
