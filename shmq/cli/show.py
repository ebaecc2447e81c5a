"""What several verbs share: how messages, tables and errors look, and how a word becomes a payload."""

from __future__ import annotations

import argparse
import base64
import dataclasses
import datetime
import json
import sys
from typing import TYPE_CHECKING, Any

import shmq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

FORMATS = ("raw", "json", "hex", "repr")


class Problem(Exception):
    """What this command itself has to object to; the text is all that is shown."""


def one_line(problem: BaseException) -> str:
    """An exception as one line of text."""
    if isinstance(problem, OSError) and not isinstance(problem, shmq.ShmqError) and problem.strerror:
        return f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror
    return " ".join(str(problem).split()) or type(problem).__name__


def counted(number: int, what: str) -> str:
    """1 consumer, 2 consumers."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def facts(thing: object) -> None:
    """Print facts as JSON, for programs."""
    print(json.dumps(thing, indent=2, default=_plain))


def known(stats: Any) -> dict[str, Any]:
    """A dataclass as facts, without what it knows nothing of."""
    return {name: value for name, value in dataclasses.asdict(stats).items() if value is not None}


def table(rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """Print rows in columns: the first *left* of them flush left, the others flush right."""
    text = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for row in text:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _plain(value: object) -> object:
    """What JSON has no word for: bytes as text if they are text, else as base64; times as ISO 8601."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode()}
    return str(value)


# ---------------------------------------------------------------- options
def retention(word: str) -> shmq.Retention:
    """A word like "acked" or "age=3600" as what it means; for argparse."""
    kind, _, limit = word.partition("=")
    try:
        if kind in {"acked", "forever"} and not limit:
            return shmq.Retention(kind)
        if kind in {"age", "bytes"} and limit:
            return shmq.Retention.age(float(limit)) if kind == "age" else shmq.Retention.bytes(int(limit))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    raise argparse.ArgumentTypeError(f"{word!r} is not acked, forever, age=SECONDS or bytes=N")


def options(queue: shmq.Queue) -> dict[str, object]:
    """What a queue was made with, as `create` takes it."""
    shown: dict[str, object] = queue.options.to_json()
    kept = queue.options.retention
    shown["retention"] = f"{kept.kind}={kept.limit}" if kept.limit else kept.kind
    shown["mode"] = f"{queue.options.mode:#o}"
    return shown


# ---------------------------------------------------------------- messages
def add_format(verb: argparse.ArgumentParser) -> None:
    """The arguments that say how messages are printed."""
    verb.add_argument(
        "--format",
        choices=FORMATS,
        help="raw: the payload's bytes and a newline (the default for bytes and text); json: one object a line with "
        "index, time, key, type, headers and payload (the default for other codecs); hex; repr",
    )
    verb.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")


def printer(queue: shmq.Queue, style: str | None) -> Callable[[shmq.Message], None]:
    """A function that prints one message in that style."""
    chosen = style or ("raw" if queue.options.codec in {"bytes", "text"} else "json")
    return {"raw": _raw, "json": _json, "hex": _hex, "repr": _repr}[chosen]


def _raw(message: shmq.Message) -> None:
    sys.stdout.buffer.write(bytes(message.view) + b"\n")


def _json(message: shmq.Message) -> None:
    line = {
        "index": message.index,
        "time": message.time,
        "key": message.key,
        "type": message.type,
        "headers": message.headers,
        "payload": message.payload,
    }
    shown = {name: value for name, value in line.items() if value or name in {"index", "payload"}}
    text = json.dumps(shown, default=_plain)
    sys.stdout.buffer.write(text.encode() + b"\n")


def as_line(fields: dict[str, Any]) -> bytes:
    """Fields as one line of JSON."""
    return json.dumps(fields, default=_plain).encode() + b"\n"


def _hex(message: shmq.Message) -> None:
    sys.stdout.buffer.write(f"{message.index}  {message.view.hex(' ')}\n".encode())


def _repr(message: shmq.Message) -> None:
    sys.stdout.buffer.write(f"{message.index}  {message.payload!r}\n".encode("utf-8", "backslashreplace"))


def payload_of(queue: shmq.Queue, word: bytes) -> Any:
    """
    What to put for a word or line that somebody typed, in a queue of this codec.

    Raises:
        Problem: the codec cannot hold it.
    """
    codec = queue.options.codec
    if codec == "bytes":
        return word
    if codec == "pickle":
        raise Problem(f"{queue.path} holds pickles; they are put by Python programs only")
    try:
        text = word.decode()
        return text if codec == "text" else json.loads(text)
    except UnicodeDecodeError:
        raise Problem(f"{word!r} is not UTF-8, and {queue.path} has codec {codec!r}") from None
    except json.JSONDecodeError:
        raise Problem(
            f"{text!r} is not JSON, and {queue.path} has codec {codec!r}; for text, type '\"hello\"'"
        ) from None


# ---------------------------------------------------------------- opening
def open_queue(path: str, *, read_only: bool = False, trusted: bool = True) -> shmq.Queue:
    """The queue at *path*, which must exist. Verbs that decode payloads pass what the user said about trust."""
    try:
        return shmq.open(path, create=False, read_only=read_only, trusted=trusted)
    except shmq.Untrusted:
        raise Problem(
            f"{path} holds pickles, which run code when read; add --trusted if you trust whoever may write it"
        ) from None


def add_trusted(verb: argparse.ArgumentParser) -> None:
    """The argument without which pickles are not read."""
    verb.add_argument("--trusted", action="store_true", help="read pickles too, which run code when they are read")


def open_consumer(queue: shmq.Queue, name: str, ack: str | None = None) -> shmq.Consumer:
    """The consumer of that name; one that exists is opened with the ack mode it has, unless another is asked for."""
    known = queue.consumers().get(name)
    mode = ack or (known.ack if known else "auto")
    try:
        return queue.consumer(name, ack=mode)
    except ValueError as problem:
        raise Problem(str(problem)) from None
