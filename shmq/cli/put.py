"""
Put one message, or every line of standard input.

Examples:
    shmq put orders hello --key eu
    shmq put orders "call back" --delay 3600
    tail -F access.log | shmq put log
    shmq put /var/spool/kestrel hello --foreign kestrel --queue orders

Lines that are there together are put as one batch: all of them appear at once (with --delay, each by itself). A line
is in the queue when it was counted, also if this command is killed next. At a line that the queue cannot hold it ends:
those before it are in.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.cli import in_place, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import shmq

_READ_BYTES = 1 << 20
_BATCH = 4096


class _Refused(Exception):
    """The queue's codec cannot hold it, or an option is wrong; nothing of the batch was put."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    verb.add_argument("path", type=show.place, metavar="PATH", help="the queue")
    verb.add_argument("payload", metavar="PAYLOAD", nargs="?", help="text, or JSON for codecs json and msgpack")
    verb.add_argument("--key", help="what the message belongs to")
    verb.add_argument("--type", type=int, default=0, metavar="N", help="0 to 65535, your own")
    verb.add_argument(
        "--header",
        action="append",
        type=_header,
        default=[],
        metavar="NAME=VALUE",
        help="may be given several times",
    )
    verb.add_argument(
        "--ttl", type=show.seconds, metavar="SECONDS", help="after which no consumer gets it (the queue's)"
    )
    verb.add_argument("--delay", type=show.seconds, metavar="SECONDS", help="before which no consumer gets it (0)")
    verb.add_argument("--json", action="store_true", help="say the indexes as JSON")
    in_place.add(verb)


def run(arguments: argparse.Namespace) -> int:
    """Put, and say under which index."""
    return _ours(arguments) if arguments.foreign is None else in_place.put(arguments)


def _ours(arguments: argparse.Namespace) -> int:
    given = {
        "key": None if arguments.key is None else os.fsencode(arguments.key),
        "type": arguments.type,
        "headers": dict(arguments.header) or None,
        "ttl": arguments.ttl,
        "delay": arguments.delay,
    }
    with show.open_queue(arguments.path) as queue:
        if arguments.payload is not None:
            batches: Iterator[list[Any]] = iter([[show.payload_of(queue, os.fsencode(arguments.payload))]])
        else:
            batches = _batches(queue)
        if arguments.delay is not None:
            batches = ([payload] for batch in batches for payload in batch)
        first, last, count = None, None, 0
        try:
            for batch in batches:
                for indexes in _in_pieces(queue, batch, given):
                    first = indexes[0] if first is None else first
                    last, count = indexes[-1], count + len(indexes)
        except _Refused as problem:
            where = "" if arguments.payload is not None else f"line {count + 1:,}: "
            rest = "; what was before it is in, it and what follows is not" if where else ""
            raise show.Problem(f"{where}{problem}{rest}") from None
        finally:  # whatever happens, say what is in
            if arguments.json:
                show.facts({"count": count, "first": first, "last": last})
            elif arguments.payload is not None and first is not None:
                print(first)
            elif first is not None:
                print(f"put {count:,} message{'s' * (count != 1)}, index {first} to {last}")
            elif arguments.payload is None:
                print("put 0 messages")
            sys.stdout.flush()  # before any error is said
    return 0


def _in_pieces(queue: shmq.Queue, batch: list[Any], given: dict[str, Any]) -> Iterator[Sequence[int]]:
    """Put these, in as few batches as there is room for: up to the first that the queue cannot hold alone."""
    try:
        indexes = _put(queue, batch, given)
    except (errors.TooMany, errors.TooLarge, errors.Full, _Refused):  # and nothing of it was put
        if len(batch) == 1:
            raise
        half = len(batch) // 2
        yield from _in_pieces(queue, batch[:half], given)
        yield from _in_pieces(queue, batch[half:], given)
    else:
        yield indexes


def _put(queue: shmq.Queue, batch: list[Any], given: dict[str, Any]) -> Sequence[int]:
    size = len(batch)
    key, kind, headers = given["key"], given["type"], given["headers"]
    try:
        if given["delay"] is not None:  # then there is one
            return [queue.put(batch[0], **given)]
        return queue.put_many(
            batch,
            keys=None if key is None else [key] * size,
            types=[kind] * size if kind else None,
            headers=[headers] * size if headers else None,
            ttl=given["ttl"],
        )
    except (ValueError, TypeError, OverflowError) as problem:
        raise _Refused(str(problem)) from None


def _header(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not a header: NAME=VALUE")
    return name, value


def _batches(queue: shmq.Queue) -> Iterator[list[Any]]:
    """The lines of standard input as they come, those that come together as one batch."""
    if "stdin" in show.CLOSED:
        raise show.Problem("there is nothing to put: no payload was given, and standard input is closed")
    rest, before = b"", 0
    while block := os.read(sys.stdin.fileno(), _READ_BYTES):
        *lines, rest = (rest + block).split(b"\n")
        for at in range(0, len(lines), _BATCH):
            yield from _payloads(queue, lines[at : at + _BATCH], before + at)
        before += len(lines)
    if rest:
        yield from _payloads(queue, [rest], before)


def _payloads(queue: shmq.Queue, lines: list[bytes], before: int) -> Iterator[list[Any]]:
    """
    These lines as one batch, or those before the first that is refused.

    So what is in does not depend on where a batch happened to end.
    """
    batch: list[Any] = []
    for number, line in enumerate(lines, before + 1):
        try:
            batch.append(show.payload_of(queue, line))
        except show.Problem as problem:
            if batch:
                yield batch
            raise show.Problem(
                f"line {number:,}: {problem}; what was before it is in, it and what follows is not"
            ) from None
    yield batch
