"""
What `put` puts: a word, files, or standard input as lines, texts between NULs, lines of JSON, or rows of CSV.

Each yields lists of entries that are there together. An entry has what only this message has; what was given for all
of them is the verb's business.
"""

from __future__ import annotations

import csv
import datetime
import functools
import itertools
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.cli import show

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    import shmq

    _Read = Callable[[bytes], Any]

_READ_BYTES = 1 << 20
_BATCH = 4096
_FIELD_MAX = 1 << 30
"""Bytes of a field of CSV: the module's own limit is far below what a message can hold."""
_FIELDS = {"index", "time", "key", "type", "headers", "payload"}
"""Of a line that `cat --json` prints; the index is not kept."""
_NS = 1_000_000_000


class Entry(NamedTuple):
    """One message, before it is put."""

    payload: Any
    key: bytes | None = None
    type: int | None = None
    headers: dict[str, Any] | None = None
    time_ns: int | None = None


class Refused(Exception):
    """One that cannot be put: its place is counted by whoever reads these."""


def add(verb: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    how = verb.add_argument_group("what is read where no PAYLOAD is given (lines of standard input)")
    one = how.add_mutually_exclusive_group()
    one.add_argument("-0", "--null", action="store_true", help="what is between NULs, which may have lines in it")
    one.add_argument(
        "--json-lines", action="store_true", help="objects as `shmq cat --json` prints them: payload, key, type, ..."
    )
    one.add_argument("--csv", action="store_true", help="rows below a header, each as an object of texts")
    one.add_argument(
        "--file", type=show.place, action="append", metavar="FILE", help="all that is in it; may be given again"
    )
    how.add_argument("--key-column", metavar="NAME", help="with --csv: where the key of each row is")


def given(arguments: argparse.Namespace) -> bool:
    """Whether something else than lines was asked for."""
    return bool(arguments.null or arguments.json_lines or arguments.csv or arguments.file)


def batches(queue: shmq.Queue, arguments: argparse.Namespace) -> Iterator[list[Entry]]:
    """
    What there is to put, as it comes.

    Raises:
        Refused: the next one cannot be put; what was yielded before can.
        Problem: there is nothing to read.
    """
    read = show.payload_reader(queue)
    if arguments.payload is not None:
        yield [_entry(read, os.fsencode(arguments.payload))]
    elif arguments.file:
        for path in arguments.file:
            yield [_of_file(read, path)]
    elif "stdin" in show.CLOSED:
        raise show.Problem("there is nothing to put: no payload was given, and standard input is closed")
    elif arguments.csv:
        yield from _rows(read, arguments.key_column)
    else:
        codec, make = queue.options.codec, functools.partial(_entry, read)
        if arguments.json_lines:
            make = functools.partial(_of_json, codec)
        for pieces in _pieces(b"\0" if arguments.null else b"\n"):
            wanted = [piece for piece in pieces if piece.strip()] if arguments.json_lines else pieces
            yield from _up_to_refused(make, wanted)


def _up_to_refused(make: Callable[[Any], Entry], pieces: list[Any]) -> Iterator[list[Entry]]:
    """
    These as one batch, or those before the first that is refused.

    So what is in does not depend on where a batch happened to end.
    """
    batch: list[Entry] = []
    for piece in pieces:
        try:
            batch.append(make(piece))
        except Refused:
            if batch:
                yield batch
            raise
    if batch:
        yield batch


def _pieces(end: bytes) -> Iterator[list[bytes]]:
    """Standard input, cut at *end*; those that come together as one list."""
    rest = b""
    while block := os.read(sys.stdin.fileno(), _READ_BYTES):
        *pieces, rest = (rest + block).split(end)
        for at in range(0, len(pieces), _BATCH):
            yield pieces[at : at + _BATCH]
    if rest:
        yield [rest]


def _rows(read: _Read, key_column: str | None) -> Iterator[list[Entry]]:
    csv.field_size_limit(_FIELD_MAX)  # a queue has its own limits, and says them
    # Spreadsheets begin a file with a mark of the byte order, which belongs to no name.
    rows = csv.DictReader(open(sys.stdin.fileno(), newline="", encoding="utf-8-sig", closefd=False))  # noqa: SIM115
    names = _columns(rows)

    def make(row: dict[str, Any]) -> Entry:
        if None in row or None in row.values():
            raise Refused("it has not as many fields as the header")
        key = None if key_column is None else row[key_column].encode()
        return _entry(read, json.dumps(row, ensure_ascii=False).encode())._replace(key=key)

    if key_column is not None and key_column not in names:
        raise show.Misuse(f"there is no column {key_column!r} in {', '.join(names)}")
    while block := _read_rows(rows):
        yield from _up_to_refused(make, block)


def _columns(rows: csv.DictReader[str]) -> list[str]:
    """
    The names of the columns.

    Raises:
        Refused: nothing that could be them is there.
        Misuse: two have one name, so that an object would have only one of their fields.
    """
    try:
        header = next((row for row in rows.reader if any(map(str.strip, row))), [])  # below empty lines, if there are
    except csv.Error as problem:
        raise Refused(f"the header is not CSV: {problem}") from None
    except UnicodeDecodeError as problem:  # it is read in blocks, so it may stand far behind the header
        raise Refused(f"the header, or what follows it, is not UTF-8: {problem}") from None
    rows.fieldnames = names = list(header)
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice:
        raise show.Misuse(f"two columns are called {twice[0]!r}, and an object has one field of a name; rename one")
    return names


def _read_rows(rows: csv.DictReader[str]) -> list[dict[str, Any]]:
    try:
        return list(itertools.islice(rows, _BATCH))
    except (csv.Error, UnicodeDecodeError) as problem:
        raise Refused(f"this is not CSV in UTF-8: {problem}") from None


def _of_file(read: _Read, path: str) -> Entry:
    if path == "-":
        return _entry(read, sys.stdin.buffer.read())
    with open(path, "rb") as file:
        return _entry(read, file.read())


def _entry(read: _Read, word: bytes) -> Entry:
    try:
        return Entry(read(word))
    except show.Problem as problem:
        raise Refused(str(problem)) from None


def _of_json(codec: str, line: bytes) -> Entry:
    """What `cat --json` has printed."""
    try:
        told = json.loads(line)
    except ValueError as problem:
        raise Refused(f"{_short(line)} is not JSON: {problem}") from None
    if not isinstance(told, dict) or "payload" not in told:
        raise Refused(f"{_short(line)} is not an object with a payload; lines that are payloads need no --json-lines")
    if strange := sorted(set(told) - _FIELDS):
        raise Refused(f"{_short(line)} has {strange[0]!r}; a message has {', '.join(sorted(_FIELDS))}")
    headers = told.get("headers")
    if headers is not None and not isinstance(headers, dict):
        raise Refused("its headers are not an object")
    return Entry(
        payload=_payload(codec, told["payload"]),
        key=_bytes("key", told.get("key")),
        type=told.get("type"),
        headers={name: _meant("headers", value) for name, value in headers.items()} if headers else None,
        time_ns=_time_ns(told.get("time")),
    )


def _payload(codec: str, told: Any) -> Any:
    if codec == "bytes":
        return _bytes("payload", told)
    if codec == "text" and not isinstance(told, str):
        raise Refused("its payload is not text, and the queue has codec 'text'")
    return _meant("payload", told) if codec == "msgpack" else told


def _meant(field: str, told: Any) -> Any:
    """What `show.told` has told so: bytes, wherever they are, and a map that has nothing but a "base64"."""
    if isinstance(told, list):
        return [_meant(field, each) for each in told]
    if not isinstance(told, dict):
        return told
    inside = told.get("base64")
    if set(told) != {"base64"}:
        return {name: _meant(field, each) for name, each in told.items()}
    if isinstance(inside, dict) and set(inside) == {"base64"}:
        return {"base64": _meant(field, inside["base64"])}
    return _decoded(field, inside)


def _bytes(field: str, told: Any) -> bytes | None:
    """Bytes, which are text or {"base64": ...}; of another object its JSON."""
    if told is None and field == "key":
        return None
    if isinstance(told, str):
        return told.encode()
    if isinstance(told, dict) and set(told) == {"base64"}:
        return _decoded(field, told["base64"])
    if field == "payload":
        return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
    raise Refused(f"its {field} is neither text nor base64")


def _decoded(field: str, told: Any) -> bytes:
    try:
        import base64  # noqa: PLC0415  # the help of a verb needs none of it

        return base64.b64decode(told, validate=True)
    except (ValueError, TypeError):
        raise Refused(f"its {field} is not base64") from None


def _time_ns(told: Any) -> int | None:
    """The time of a line; to the microsecond, as `cat` prints it."""
    if told is None:
        return None
    try:
        moment = datetime.datetime.fromisoformat(told).astimezone(datetime.UTC)
    except (ValueError, TypeError, OverflowError):
        raise Refused(f"its time {told!r} is not one like 2026-01-31T08:00:00+00:00") from None
    since = moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (since.days * 86400 + since.seconds) * _NS + since.microseconds * 1000


def _short(line: bytes) -> str:
    return repr(line[:80].decode(errors="replace")) + "..." * (len(line) > 80)
