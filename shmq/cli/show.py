"""What several verbs share: how messages, tables and errors look, and how a word becomes a payload."""

from __future__ import annotations

import argparse
import binascii
import contextlib
import datetime
import importlib
import json
import os
import re
import stat
import sys
from typing import TYPE_CHECKING, Any

import shmq
from shmq.cli import quantities

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


FULL = ("block", "raise", "drop_oldest")
"""What a put does at a bound."""
FORMATS = ("raw", "json", "hex", "repr")
_SHARED = 0o2770
"""What a directory has that a group of users shares."""
_REMOTE = ("csp:", "csp+unix:", "acsp:", "acsp+unix:")
"""How the place of a queue at a server begins."""


_STEERING = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and those that turn what follows to the left."""
CLOSED: set[str] = set()
"""Which of stdin, stdout and stderr were closed when the command began."""


class Problem(Exception):
    """What this command itself has to object to; the text is all that is shown. Exit status 1."""


class Misuse(Problem):
    """It was asked for wrongly, and nothing was done. Exit status 2."""


def one_line(problem: BaseException) -> str:
    """An exception as one line of text."""
    if isinstance(problem, OSError) and not isinstance(problem, shmq.ShmqError) and problem.strerror:
        return plain(f"{problem.filename}: {problem.strerror}" if problem.filename else problem.strerror)
    return plain(" ".join(str(problem).split())) or type(problem).__name__


def plain(text: str) -> str:
    """A text without what steers a terminal: the name of a file may have anything in it."""
    return _STEERING.sub(lambda found: repr(found[0])[1:-1], text)


def counted(number: int, what: str) -> str:
    """1 consumer, 2 consumers."""
    return f"{number:,} {what}{'s' * (number != 1)}"


def quoted(path: str) -> str:
    """A path as a shell takes it."""
    import shlex  # noqa: PLC0415  # the help of a verb needs none of it

    return shlex.quote(path)


def span(first: int | None, last: int | None) -> str:
    """Index 3; index 3 to 5."""
    return f"index {first}" if first == last else f"index {first} to {last}"


def facts(thing: object) -> None:
    """Print facts as JSON, for programs."""
    print(_dumped(thing, indent=2))


def ready(sentence: str, found: dict[str, Any], *, as_json: bool) -> None:
    """Say what a verb that goes on does from now on: to whoever looks, or to the program that has begun it."""
    if as_json:
        print(json.dumps(found, default=_plain), flush=True)
    else:
        print(f"shmq: {sentence}", file=sys.stderr, flush=True)


def fields(thing: Any) -> dict[str, Any]:
    """A dataclass as facts."""
    import dataclasses  # noqa: PLC0415  # the help of a verb needs none of it

    return dataclasses.asdict(thing)


def known(stats: Any) -> dict[str, Any]:
    """A dataclass as facts, without what it knows nothing of."""
    return {name: value for name, value in fields(stats).items() if value is not None}


def table(rows: Iterable[Sequence[object]], *, left: int = 1) -> None:
    """Print rows in columns: the first *left* of them flush left, the others flush right. Colours are for terminals."""
    text = [[_cell(cell) for cell in row] for row in rows]
    if sys.stdout.isatty() and _in_colour(text, left):
        return
    widths = [max(map(len, column)) for column in zip(*text, strict=True)]
    for row in text:
        cells = [
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


_STYLES = {"ok": "green", "NO": "bold red", "ERROR": "bold red", "WARNING": "yellow"}
"""Of cells that say how something is."""


def _in_colour(text: list[list[str]], left: int) -> bool:
    """Print these rows as `rich` does; False where that is not installed."""
    try:
        rich = importlib.import_module("rich.console"), importlib.import_module("rich.table")
        words = importlib.import_module("rich.text")
    except ImportError:
        return False
    has_head = all(cell.isupper() for cell in text[0])
    grid = rich[1].Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=has_head, header_style="bold")
    for at, head in enumerate(text[0]):
        grid.add_column(
            head, justify="left" if at < left else "right", style="cyan" if at == 0 else None, overflow="fold"
        )
    for row in text[has_head:]:
        grid.add_row(*(words.Text(cell, _STYLES.get(cell, "")) for cell in row))
    rich[0].Console(highlight=False, soft_wrap=False).print(grid)
    return True


def _cell(cell: object) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return f"{cell:,}" if isinstance(cell, int) else "-" if cell is None else plain(str(cell))


def age(seconds: float | None) -> str:
    """How old something is, in the unit that suits; "-" for nothing."""
    if seconds is None:
        return "-"
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:,.0f} {unit}"
    return f"{seconds / 86400:,.0f} d"


def consumers(found: Mapping[str, Any]) -> None:
    """Print a table of consumer names and what each has before it."""
    rows = [
        (name, each.ack, each.head, _lag(each), each.pending, *_aside(each), age(each.oldest))
        for name, each in found.items()
    ]
    table([("CONSUMER", "ACK", "HEAD", "LAG", "PENDING", "PARKED", "WAITING", "OLDEST"), *rows], left=2)
    for name, each in found.items():
        if said := subscription(each):
            print(f"{name}: {said}")
    for problem in (each.problem for each in found.values() if each.problem is not None):
        print(f"\n{problem}")


def consumer(name: str, stats: Any) -> str:
    """The same of one, as a line."""
    parked, waiting = _aside(stats)
    behind = f"{_lag(stats)} behind"
    if stats.lag:
        behind += f": {stats.pending:,} pending, {parked:,} parked, {waiting:,} waiting, the oldest {age(stats.oldest)}"
    missed = f", {stats.dropped:,} dropped" if stats.dropped else ""
    problem = "" if stats.problem is None else f"; {stats.problem}"
    holds = {True: ", holds everything", "nothing": ", holds nothing"}.get(stats.hold, "")
    also = f", {said}" if (said := subscription(stats)) else ""
    return f"{name}: at {stats.head}, {behind}{missed} ({stats.ack}{holds}{also}){problem}"


def _lag(stats: Any) -> str:
    """Of a name with a filter nobody has counted what matches."""
    return f"{'at most ' if stats.filter is not None and stats.lag else ''}{stats.lag:,}"


def subscription(stats: Any) -> str:
    """What a name wants, and when it goes by itself; "" when there is nothing to say."""
    said = []
    if stats.filter is not None:
        said.append(f"wants {stats.filter!r}")
    if stats.ephemeral:
        said.append("goes with its holder")
    if stats.expires is not None:
        said.append(f"goes when nobody had it for {age(stats.expires)}")
    return ", ".join(said)


def held_by(held: Any) -> str:
    """What one name alone holds back, as a sentence."""
    messages = counted(held.messages, "message")
    return f"{held.name} alone holds back {messages}, in {held.bytes / (1 << 20):,.1f} MiB of chunks"


def _aside(stats: Any) -> tuple[int, int]:
    return (0, 0) if stats.group is None else (stats.group.parked, stats.group.waiting)


def _dumped(thing: object, indent: int | None = None) -> str:
    try:
        return json.dumps(thing, indent=indent, default=_plain)
    except TypeError:  # msgpack's maps may have keys that are no texts
        return json.dumps(_with_names(thing), indent=indent, default=_plain)


def _with_names(thing: object) -> object:
    """The same, with keys that JSON takes: bytes that are text as that, all others as Python writes them."""
    if isinstance(thing, dict):
        return {_name(key): _with_names(value) for key, value in thing.items()}
    return [_with_names(each) for each in thing] if isinstance(thing, (list, tuple)) else thing


def _name(key: object) -> object:
    if key is None or isinstance(key, (str, int, float)):  # also True and False
        return key
    known = _plain(key)
    return known if isinstance(known, str) else repr(key)


def _plain(value: object) -> object:
    """What JSON has no word for: bytes as text if they are text, else as base64; times as ISO 8601."""
    if isinstance(value, datetime.datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"base64": binascii.b2a_base64(value, newline=False).decode()}
    return str(value)


# ---------------------------------------------------------------- options
def place(word: str) -> str:
    """A path as it was typed, with the home directory in the place of "~"; for argparse."""
    if not word:
        raise argparse.ArgumentTypeError("'' is not a path")
    if word.startswith(_REMOTE):
        raise argparse.ArgumentTypeError(
            f"{word} is a queue at a server, and this verb is for those of this machine; run it where the queue is, "
            "or use shmq.open in a program"
        )
    return os.path.expanduser(word)


def whole(least: int) -> Callable[[str], int]:
    """A whole number that is not below *least*; for argparse."""

    def number(word: str) -> int:
        try:
            found = int(word)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{word!r} is not a whole number") from None
        if found < least:
            raise argparse.ArgumentTypeError(f"{found}: {least} or more")
        return found

    return number


seconds = quantities.seconds


def durability(word: str) -> shmq.Durability:
    """A word like "sync" or "interval=0.1" as what it means; for argparse."""
    kind, equals, time = word.partition("=")
    try:
        if kind in {"process", "sync"} and not equals:
            return shmq.Durability(kind)
        if kind == "interval" and time:
            return shmq.Durability.interval(_amount(quantities.seconds, time))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    raise argparse.ArgumentTypeError(f"{word!r} is not process, sync or interval=SECONDS")


def durability_or_count(word: str) -> shmq.Durability | int:
    """The same, or of a word like "replicated=1" how many followers are waited for; for argparse."""
    counted = re.fullmatch(r"replicated[=:]([0-9]+)", word)
    if counted:
        return int(counted[1])
    try:
        return durability(word)
    except argparse.ArgumentTypeError as problem:
        more = ", nor replicated=N" if "SECONDS" in str(problem) else ""
        raise argparse.ArgumentTypeError(f"{problem}{more}") from None


def retention(word: str) -> shmq.Retention:
    """A word like "acked" or "age=3600" as what it means; for argparse."""
    kind, _, limit = word.partition("=")
    try:
        if kind in {"acked", "forever"} and not limit:
            return shmq.Retention(kind)
        if kind in {"age", "bytes"} and limit:
            if kind == "age":
                return shmq.Retention.age(_amount(quantities.seconds, limit))
            return shmq.Retention.bytes(_amount(quantities.size, limit))
    except ValueError as problem:
        raise argparse.ArgumentTypeError(str(problem)) from None
    raise argparse.ArgumentTypeError(f"{word!r} is not acked, forever, age=SECONDS or bytes=N")


def _amount(kind: Callable[[str], Any], word: str) -> Any:
    """A number with a unit; without one, what the library says about the number."""
    return float(word) if re.fullmatch(r"-?[0-9.]+", word) and kind is quantities.seconds else kind(word)


def options(queue: shmq.Queue) -> dict[str, object]:
    """What a queue was made with, as `create` takes it."""
    shown: dict[str, object] = queue.options.to_json()
    kept = queue.options.retention
    shown["retention"] = f"{kept.kind}={kept.limit}" if kept.limit else kept.kind
    promised = queue.options.durability
    number = promised.seconds or promised.n
    shown["durability"] = f"{promised.kind}={number}" if number else promised.kind
    if promised.followers:
        shown["followers"] = list(promised.followers)
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
    verb.add_argument(
        "-0", "--null", action="store_const", const="null", dest="format", help="raw, each with a NUL behind it"
    )


def printer(queue: shmq.Queue, style: str | None) -> Callable[[shmq.Message], None]:
    """
    A function that prints one message in that style.

    Raises:
        Problem: nobody would see it: stdout is closed.
    """
    if "stdout" in CLOSED:
        raise Problem("cannot print messages: standard output is closed")
    chosen = style or ("raw" if queue.options.codec in {"bytes", "text"} else "json")
    return {"raw": _raw, "null": _null, "json": _json, "hex": _hex, "repr": _repr}[chosen]


def _raw(message: shmq.Message) -> None:
    sys.stdout.buffer.write(bytes(message.view) + b"\n")


def _null(message: shmq.Message) -> None:
    sys.stdout.buffer.write(bytes(message.view) + b"\0")


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
    sys.stdout.buffer.write(as_line(shown))


def as_line(fields: dict[str, Any]) -> bytes:
    """Fields as one line of JSON."""
    return _dumped(fields).encode() + b"\n"


def _hex(message: shmq.Message) -> None:
    sys.stdout.buffer.write(f"{message.index}  {message.view.hex(' ')}\n".encode())


def _repr(message: shmq.Message) -> None:
    sys.stdout.buffer.write(f"{message.index}  {message.payload!r}\n".encode("utf-8", "backslashreplace"))


def payload_reader(queue: shmq.Queue) -> Callable[[bytes], Any]:
    """
    What makes a payload of a word or line that somebody typed, for a queue of this codec.

    It raises Problem where the codec cannot hold the word.

    Raises:
        Problem: nothing that is typed can be put there.
    """
    codec, path = queue.options.codec, queue.path  # once: they are looked up in the queue
    if codec == "bytes":
        return lambda word: word
    if codec == "pickle":
        raise Problem(f"{path} holds pickles; they are put by Python programs only")
    if codec not in {"text", "json", "msgpack"}:
        raise Problem(f"{path} has codec {codec!r}, which is not shmq's own; Python programs put there, that have it")

    def read(word: bytes) -> Any:
        try:
            text = word.decode()
            return text if codec == "text" else json.loads(text)
        except UnicodeDecodeError:
            raise Problem(f"{word!r} is not UTF-8, and {path} has codec {codec!r}") from None
        except json.JSONDecodeError:
            raise Problem(f"{text!r} is not JSON, and {path} has codec {codec!r}; for text, type '\"hello\"'") from None

    return read


def aside(path: str, found: Mapping[int, Sequence[str]]) -> None:
    """Print what recoveries have set aside, and how it can be had."""
    for epoch, names in found.items():
        chunks = sum(name.endswith(".chunk") for name in names)
        others = [name for name in names if not name.endswith(".chunk")]
        what = ", ".join([*([counted(chunks, "chunk file")] if chunks else []), *others])
        get = f"; `shmq repair {quoted(path)} --aside {epoch}` makes a queue of it" if chunks else ""
        print(f"{path}/aside: what the recovery of epoch {epoch} has set aside: {what}{get}")


# ---------------------------------------------------------------- opening
def open_queue(path: str, *, read_only: bool = False, trusted: bool = True) -> shmq.Queue:
    """The queue at *path*, which must exist. Verbs that decode payloads pass what the user said about trust."""
    try:
        # Opening runs nothing, and of a codec that is not here it has the bytes.
        shared = None if read_only else _sharing(path)
        queue = shmq.open(path, create=False, read_only=read_only, trusted=True, options=shared)
    except shmq.NotFound as problem:
        if os.path.lexists(path):
            raise
        letters = path.rstrip("/").endswith((".dead", "/dead"))
        how = "the first dead letter makes it" if letters else f"`shmq create {quoted(path)}` makes a queue there"
        raise shmq.NotFound(f"{problem}; {how}") from None
    if queue.options.codec == "pickle" and not trusted:
        queue.close()
        raise Problem(
            f"{path} holds pickles, which run code when read; add --trusted if you trust whoever may write it"
        )
    return queue


def refuse_root(path: str) -> None:
    """
    Say what a directory of shards or of levels is, where something else is wanted, too.

    Raises:
        NotFound: it is one.
    """
    if any(os.path.lexists(os.path.join(path, name)) for name in ("shards.shmq", "levels.json")):
        open_queue(path, read_only=True).close()


def refuse_to_make(path: str) -> None:
    """
    Refuse to make a volatile queue and fill it: it ends with its last user.

    Raises:
        Problem: it would be one, and is not there.
    """
    if path.startswith("shm:") and path not in shmq.volatile_queues():
        raise Problem(
            f"{path} is not there, and a volatile queue ends with its last user, which this command would be: all that "
            f"it puts would be gone. `shmq create {path}` keeps one until Ctrl-C"
        )


def refuse_volatile(path: str, what: str) -> None:
    """
    Refuse the name of a volatile queue where a path is wanted, which would be made or looked for under that name.

    Raises:
        Misuse: it is one; *what* says what is wanted.
    """
    if path.startswith("shm:"):
        raise Misuse(
            f"{path} is the name of a volatile queue, and {what} is wanted; for a path of that name write ./{path}"
        )


def _sharing(path: str) -> shmq.Options | None:
    """With the group that shares the directory there, which whoever types its path means."""
    with contextlib.suppress(OSError, ValueError):
        info = os.lstat(path)
        if stat.S_IMODE(info.st_mode) == _SHARED:
            return shmq.Options(group=info.st_gid)
    return None


def group(word: str) -> str | int:
    """A group of users, by name or number; for argparse."""
    return int(word) if word.isdecimal() else word


def octal(word: str) -> int:
    """Permission bits; for argparse."""
    try:
        return int(word, 8)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{word!r} is not a mode in octal, such as 660") from None


def add_trusted(verb: argparse.ArgumentParser) -> None:
    """The argument without which pickles are not read."""
    verb.add_argument("--trusted", action="store_true", help="read pickles too, which run code when they are read")


def add_filter(verb: argparse.ArgumentParser) -> None:
    """The arguments of a filter."""
    verb.add_argument("--key-prefix", type=os.fsencode, metavar="KEY", help="only messages whose key begins so")
    verb.add_argument(
        "--type",
        type=whole(0),
        action="append",
        dest="types",
        metavar="N",
        help="only of this type; may be given again",
    )
    verb.add_argument(
        "--with-header",
        type=header,
        action="append",
        dest="with_headers",
        metavar="NAME=VALUE",
        help="only with this header, a text; may be given again",
    )


def header(word: str) -> tuple[str, str]:
    """A header as it is typed; for argparse."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{word!r} is not a header: NAME=VALUE")
    return name, value


def wanted(arguments: argparse.Namespace) -> shmq.Filter | None:
    """The filter that was asked for, if one was."""
    prefix = arguments.key_prefix or getattr(arguments, "key", None) or b""
    if not prefix and arguments.types is None and not arguments.with_headers:
        return None
    try:
        return shmq.Filter(key_prefix=prefix, types=arguments.types, headers=dict(arguments.with_headers or []))
    except ValueError as problem:
        raise Misuse(str(problem)) from None
