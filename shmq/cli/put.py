"""
Put one message, or many: every line of standard input, or JSON lines, CSV, files.

Examples:
    shmq put orders hello --key eu
    shmq put orders "call back" --delay 1h --ttl 2d --header by=me
    tail -F access.log | shmq put log
    find . -name '*.pdf' -print0 | shmq put -0 papers
    shmq cat orders --json | shmq put copy --json-lines
    shmq put orders --csv --key-column customer < orders.csv
    shmq put images --file photo.jpg --file other.jpg
    shmq put orders --dedup nightly:1 < orders.txt
    shmq put /var/spool/kestrel hello --foreign kestrel --queue orders

Lines that are there together are put as one batch: all of them appear at once (with --delay or --dedup, each by
itself). A line is in the queue when it was counted, also if this command is killed next. At a line that the queue
cannot hold it ends: those before it are in.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import in_place, incoming, show
from shmq.cli.progress import Progress, of_stdin

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


_NOTHING = incoming.Entry(None)[1:]


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
        type=show.header,
        default=[],
        metavar="NAME=VALUE",
        help="may be given several times",
    )
    verb.add_argument("--ttl", type=show.seconds, metavar="TIME", help="after which no consumer gets it (the queue's)")
    verb.add_argument("--delay", type=show.seconds, metavar="TIME", help="before which no consumer gets it (0)")
    verb.add_argument(
        "--dedup",
        type=_dedup,
        metavar="NAME:N",
        help="put it once, whoever repeats this: who it is from, and the number of their message; of lines the first's",
    )
    verb.add_argument("--timeout", type=show.seconds, metavar="TIME", help="how long to wait for room (for ever)")
    verb.add_argument("--json", action="store_true", help="say the indexes as JSON")
    incoming.add(verb)
    in_place.add(verb)


def _dedup(word: str) -> tuple[str, int]:
    name, _, number = word.rpartition(":")
    if not name or not number.isdecimal():
        raise argparse.ArgumentTypeError(f"{word!r} is not NAME:N, as nightly:1 is")
    return name, int(number)


def run(arguments: argparse.Namespace) -> int:
    """Put, and say under which index."""
    if arguments.payload is not None and incoming.given(arguments):
        raise show.Misuse("give a PAYLOAD, or where to read them from, not both")
    if arguments.key_column is not None and not arguments.csv:
        raise show.Misuse("--key-column is for --csv")
    return _Put(arguments).run() if arguments.foreign is None else in_place.put(arguments)


def _refused(problem: Exception) -> _Refused:
    if isinstance(problem, UnicodeEncodeError):
        part = problem.object[problem.start : problem.end]
        return _Refused(f"{part!r} is no whole character, and the text in a message is UTF-8; nothing was put")
    return _Refused(str(problem))


class _Put:
    """One run: what was put so far."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._given = arguments
        self._key = None if arguments.key is None else os.fsencode(arguments.key)
        self._headers = dict(arguments.header)
        self._alone = arguments.delay is not None or arguments.dedup is not None
        """Whether each is put by itself."""
        self._share = of_stdin()
        self._count = 0
        self._first: int | None = None
        self._last: int | None = None

    def run(self) -> int:
        """Put all there is; whatever happens, say what is in."""
        one = self._given.payload is not None
        with show.open_queue(self._given.path) as queue, Progress() as progress:
            try:
                for batch in incoming.batches(queue, self._given):
                    for indexes in self._in_pieces(queue, batch):
                        self._first = indexes[0] if self._first is None else self._first
                        self._last, self._count = indexes[-1], self._count + len(indexes)
                        progress.at("put", self._count, None if one else self._share)
            except (_Refused, incoming.Refused) as problem:
                rest = "" if one else "; what was before it is in, it and what follows is not"
                raise show.Problem(f"{self._where()}{problem}{rest}") from None
            finally:
                progress.end()
                self._tell(one=one)
        return 0

    def _where(self) -> str:
        given = self._given
        if given.payload is not None:
            return ""
        if given.file:
            return f"{given.file[self._count]}: "
        return f"{'row' if given.csv else 'text' if given.null else 'line'} {self._count + 1:,}: "

    def _tell(self, *, one: bool) -> None:
        if self._given.json:
            show.facts({"count": self._count, "first": self._first, "last": self._last})
        elif one and self._first is not None:
            print(self._first)
        elif self._first is not None:
            print(f"put {show.counted(self._count, 'message')}, {show.span(self._first, self._last)}")
        elif not one:
            print("put 0 messages")
        sys.stdout.flush()  # before any error is said

    def _in_pieces(self, queue: shmq.Queue, batch: list[incoming.Entry]) -> Iterator[Sequence[int]]:
        """Put these, in as few batches as there is room for: up to the first that the queue cannot hold alone."""
        from shmq.cli import logged  # noqa: PLC0415  # `shmq help put` needs none of it

        if self._alone:
            for entry in batch:
                with logged.but_what_ends("; nothing was put"):
                    index = self._put_one(queue, entry)
                yield [index]
            return
        try:
            with logged.but_what_ends("; nothing was put"):  # smaller ones are, or the last of them says so
                indexes = self._put(queue, batch)
        except (shmq.TooMany, shmq.TooLarge, shmq.Full, _Refused):  # and nothing of it was put
            if len(batch) == 1:
                raise
            half = len(batch) // 2
            yield from self._in_pieces(queue, batch[:half])
            yield from self._in_pieces(queue, batch[half:])
        else:
            yield indexes

    def _fields(self, entry: incoming.Entry) -> dict[str, Any]:
        return {
            "key": self._key if entry.key is None else entry.key,
            "type": self._given.type if entry.type is None else entry.type,
            "headers": {**(entry.headers or {}), **self._headers} or None,
            "time_ns": entry.time_ns,
        }

    def _put_one(self, queue: shmq.Queue, entry: incoming.Entry) -> int:
        given = self._given
        once = None if given.dedup is None else (given.dedup[0], given.dedup[1] + self._count)
        more = {"ttl": given.ttl, "delay": given.delay, "dedup": once, "timeout": given.timeout}
        try:
            return queue.put(entry.payload, **self._fields(entry), **more)
        except (ValueError, TypeError, OverflowError) as problem:
            raise _refused(problem) from None

    def _put(self, queue: shmq.Queue, batch: list[incoming.Entry]) -> Sequence[int]:
        given, size = self._given, len(batch)
        if all(entry[1:] == _NOTHING for entry in batch):  # as lines are, of which there are many
            keys = None if self._key is None else [self._key] * size
            types = [given.type] * size if given.type else None
            headers = [self._headers] * size if self._headers else None
            columns: dict[str, Any] = {"keys": keys, "types": types, "headers": headers}
        else:
            fields = [self._fields(entry) for entry in batch]
            columns = {f"{name}s": [each[name] for each in fields] for name in ("key", "type")}
            columns["headers"] = [each["headers"] for each in fields]
            if any(each["time_ns"] is not None for each in fields):  # then all have one
                now = time.time_ns()
                columns["times_ns"] = [now if each["time_ns"] is None else each["time_ns"] for each in fields]
        try:
            payloads = [entry.payload for entry in batch]
            return queue.put_many(payloads, **columns, ttl=given.ttl, timeout=given.timeout)
        except (ValueError, TypeError, OverflowError) as problem:
            raise _refused(problem) from None
