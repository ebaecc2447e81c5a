"""
sej: a segmented journal of numbered messages, read by many from their own offsets.

A sej directory holds `jnl/<16 hex digits>.jnl` (segments, named by the offset of their first message) and
`ofs/<reader>.ofs` (eight bytes: the next offset that reader wants). Everything is big-endian; a message carries its
length at its end too. A *shard root* holds directories named `[prefix.]<bit>.<index>`, a *hub root* directories
named `<client>.<directory>`. The format's page is docs/formats/sej.md.

The reader is not the real program's Scanner: a message with an empty key has an empty key (the Scanner repeats the
key before it), an empty segment in the middle is passed (the Scanner spins), and a break in one segment does not
hide the segments after it (the Scanner stops for good). `as_program=True` repeats the key and stops at the break.
"""

from __future__ import annotations

import heapq
import os
import re
import struct
import time
import zlib
from bisect import bisect_right
from contextlib import closing
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Corrupt, NotFound, ShmqError, TooLarge, Unsafe
from shmq.formats import _files, _follow
from shmq.formats.model import Entry, Place, Problem, Repair, State, make_entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

NAME = "sej"
KEEPS = frozenset({"payload", "index", "time_ns", "key", "type"})
"""What a message can hold. Times are kept to the nanosecond; no key and an empty key are the same."""

SEGMENT_BYTES = 1 << 30
"""The real writer's default: a segment is closed once it is at least this long."""

ZERO_TIME = -(1 << 63)
"""The `time_ns` of a message whose writer gave none (the zero time of the real program)."""

MAX_KEY = 127
MAX_SHARD_BIT = 10

_HEAD = struct.Struct(">QqBb")
_I32 = struct.Struct(">i")
_U64 = struct.Struct(">Q")
_SMALLEST = 26
_LONGEST_HEAD = 18 + MAX_KEY + 8
_SEGMENT = re.compile(r"(?P<first>[0-9a-fA-F]+)\.jnl\Z")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+\Z")
_PREFIX = re.compile(r"[A-Za-z0-9_-]*\Z")
_MOST_PROBLEMS = 1000
_MOST_MERGED = 256
"""Directories read side by side; more than these are read one after another, to stay within open files."""
_FLUSH_BYTES = 1 << 16


# ---------------------------------------------------------------------------------------------- verbs


def directories(path: str | os.PathLike[str], queue: str | None = None) -> list[str]:
    """
    Return the sej directories at *path*, relative to it: "" for *path* itself, and its children that are one.

    *queue* narrows it to one child by its name, or to all of one prefix or client: those named `<queue>.*`.
    """
    root = _files.directory(path)
    found = [""] if (root / "jnl").is_dir() else []
    found += [name for name in _files.subdirectories(root) if (root / name / "jnl").is_dir()]
    if queue:
        found = [name for name in found if name == queue or name.startswith(f"{queue}.")]
    if not found:
        what = f"no sej directory {queue!r}" if queue else "no sej directory"
        msg = f"{what} in {root}: there is no jnl folder"
        raise NotFound(msg)
    return found


def read(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    consumer: str | None = None,
    start: int | None = None,
    follow: bool = False,
    as_program: bool = False,
    timeout: float | None = None,
    strict: bool = False,
    max_payload: int = _files.MAX_PAYLOAD,
) -> Iterator[Entry]:
    """
    Deliver the messages of the sej directory *path* by offset, or of all directories of a root, merged by time.

    In a root each directory keeps its own order, and each entry's extra["dir"] names its directory. *start* is the
    first offset wanted; *consumer* begins at that reader's offset instead (`dir/reader` in a root; a reader that
    never committed begins at the first message).

    A message that is broken, or not the one expected, ends its segment; the next segment goes on. A torn message
    at the very end is as the end. Where something is missing, `state` says it, and *strict* raises Corrupt there.
    *follow* waits for more, and for new segments and shards, at most *timeout* seconds for each message; it raises
    Corrupt when the file it reads became shorter than what was read, or when a broken message ends the newest file.
    A payload above *max_payload* bytes raises TooLarge.
    """
    tail = _tail(
        path,
        queue,
        consumer,
        start,
        growing=follow,
        as_program=as_program,
        strict=strict,
        max_payload=max_payload,
    )
    return _follow.follow(tail, timeout) if follow else _follow.once(tail)


def lists(path: str | os.PathLike[str], queue: str | None = None, *, strict: bool = False) -> Iterator[list[Entry]]:
    """Deliver what `read` delivers, in lists of what was read at once."""
    return _follow.in_lists(_tail(path, queue, None, None, strict=strict))


def _tail(
    path: str | os.PathLike[str],
    queue: str | None,
    consumer: str | None,
    start: int | None,
    *,
    growing: bool = False,
    as_program: bool = False,
    strict: bool = False,
    max_payload: int = _files.MAX_PAYLOAD,
) -> _Root:
    root = _files.directory(path)
    labels = directories(root, queue)
    if consumer is not None:
        label, reader = _split_consumer(consumer, labels)
        start = _offset_of(root / label, reader)
        labels = [label]
    return _Root(
        root,
        queue,
        labels,
        start or 0,
        growing=growing,
        as_program=as_program,
        strict=strict,
        max_payload=max_payload,
        fixed=consumer is not None,
    )


def state(path: str | os.PathLike[str], queue: str | None = None, *, as_program: bool = False) -> State:
    """
    Walk everything and return what the files say.

    A consumer's head is its committed offset, which is the *next* one it wants, or None if it never committed. In a
    root, consumers are named `dir/reader`, and `first` and `last` are those over all directories.
    """
    root = _files.directory(path)
    labels = directories(root, queue)
    problems: list[Problem] = []
    consumers: dict[str, Place] = {}
    files: list[str] = []
    count, first, last = 0, None, None
    for label in labels:
        with closing(_Journal(root, label, 0, as_program=as_program)) as journal:
            for found in journal.lists():
                count += len(found)
                first = min(found[0].index or 0, (found[0].index or 0) if first is None else first)
                last = max(found[-1].index or 0, last or 0)
            problems += journal.problems
            files += journal.files
        for reader, offset_or_none, problem in _offsets(root / label, label):
            consumers[_join(label, reader)] = (offset_or_none, ())
            files.append(_join(label, f"ofs/{reader}.ofs"))
            if problem is not None:
                problems.append(problem)
    return State(NAME, queue, consumers, {}, problems, count, first, last, files)


def consumers(path: str | os.PathLike[str], queue: str | None = None) -> dict[str, Place]:
    """Return {reader: (next offset or None, ())}; in a root {dir/reader: ...}."""
    root = _files.directory(path)
    found: dict[str, Place] = {}
    for label in directories(root, queue):
        for reader, offset, problem in _offsets(root / label, label):
            if problem is not None:
                msg = f"cannot read {root}/{problem.file}: {problem.reason}"
                raise Corrupt(msg)
            found[_join(label, reader)] = (offset, ())
    return found


def verify(path: str | os.PathLike[str], queue: str | None = None) -> list[Problem]:
    """Return every problem: those of `state`, unfinished commits, and readers that stand outside of the journal."""
    root = _files.directory(path)
    found = state(root, queue)
    problems = list(found.problems)
    for label in directories(root, queue):
        problems += _verify_readers(root, label)
    return problems


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    segment_bytes: int = SEGMENT_BYTES,
    first: int | None = None,
    shard_bit: int | None = None,
    prefix: str = "",
    shard_hash: Callable[[Entry], int] | None = None,
    client: str | None = None,
    by_dir: bool = False,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as sej and return how many.

    By default *path* becomes one sej directory; with *queue*, that child of it. Offsets are the entries' own where
    they have them, and must follow one another (the format counts, it does not leave gaps); *first* numbers them
    anew from there. A segment is closed once it holds at least *segment_bytes*, as the real writer does it.

    With *shard_bit* (0 .. 10) *path* becomes a shard root: `[prefix.]<bit>.<index>`, the index being the low bits
    of *shard_hash*(entry) (default: CRC-32 of the key, since the format leaves the hash to the caller). With
    *client* directories are named as the hub names them, `<client>.<directory>`. With *by_dir* each entry goes to
    the directory that its extra["dir"] names, which is how a root that was read is written back. Each directory
    has its own offsets; shards count theirs from *first* or 0.

    *consumers* is {reader: (next offset or None, ())}, in a root {"dir/reader": ...}.

    Raises:
        TooLarge: a key over 127 bytes, a type outside 0 .. 255, a message over 2^31-1 bytes, a time outside i64.
        Unsafe: the target exists, offsets have gaps, or an entry has an expiry or attempts (or a consumer has
            offsets confirmed out of order), which sej cannot hold, and *lossy* is not set. Nothing is left behind.
    """
    route = _route(queue, shard_bit, prefix, shard_hash, client, by_dir=by_dir)
    many = shard_bit is not None or by_dir
    target = Path(path)
    if not many and os.path.lexists(target / route(Entry(b"")) / "jnl"):
        msg = f"cannot write sej to {target / route(Entry(b''))}: a journal is there; nothing was changed"
        raise Unsafe(msg)
    with _files.Stage(target, mode) as stage:
        writer = _Writer(stage, segment_bytes, first, own_offsets=shard_bit is None, lossy=lossy)
        if not many:
            writer.journal(route(Entry(b"")), first)
        for entry in entries:
            writer.append(route(entry), entry)
        for name, place in (consumers or {}).items():
            _write_offset(stage, writer, name, place, route, many=many, lossy=lossy)
        writer.close()
        stage.publish(last=["jnl"] if (stage.root / "jnl").is_dir() else [])
    return writer.count


def repair(
    path: str | os.PathLike[str],
    queue: str | None = None,
    *,
    to: str | os.PathLike[str] | None = None,
    in_place: bool = False,
) -> Repair:
    """
    Write what is whole as clean directories beside the original (or to *to*), which is not touched.

    A message that is lost leaves no hole: the format has none, and the real Scanner stops at one. What comes after
    it is numbered anew, and the readers' offsets move with it, so that each goes on at the same message. With
    *in_place* the clean `jnl` and `ofs` take the place of the damaged ones, which move into a hidden folder.
    """
    root = _files.directory(path)
    labels = directories(root, queue)
    problems = verify(root, queue)
    target = Path(to) if to is not None else _files.beside(root)
    if os.path.lexists(target):
        msg = f"cannot write the repaired copy to {target}: it is already there; nothing was changed"
        raise Unsafe(msg)
    total = 0
    target.mkdir()
    for label in labels:
        total += _repair_one(root, label, target)
    if not in_place:
        return Repair(target, total, problems, None)
    kept: Path | None = None
    for label in labels:
        names = [name for name in ("jnl", "ofs") if (root / label / name).is_dir()]
        kept = _files.set_aside(root / label, names, "sej")
        for name in _files.subdirectories(target / label):
            if name in ("jnl", "ofs"):
                (target / label / name).rename(root / label / name)
        if label:
            (target / label).rmdir()
    target.rmdir()
    return Repair(root, total, problems, kept)


def shard_directory(prefix: str, bit: int, index: int) -> str:
    """Return a shard's directory: `[prefix.]<bit in hex>.<index in three hex digits>`; bit 0 has no suffix."""
    if not _PREFIX.match(prefix) or not 0 <= bit <= MAX_SHARD_BIT or not 0 <= index < 1 << bit:
        msg = f"no shard {index} of 2^{bit} with the prefix {prefix!r}: bits are 0 .. 10, prefixes [a-zA-Z0-9_-]*"
        raise BadFormat(msg)
    if bit == 0:
        return prefix
    return f"{prefix}.{bit:x}.{index:03x}" if prefix else f"{bit:x}.{index:03x}"


def message(offset: int, entry: Entry) -> bytes:
    """Return the bytes of one message. Raises TooLarge for what does not fit its field."""
    payload, _, time_ns, _, key, kind, _, _ = entry
    key = key or b""
    size = _SMALLEST + len(key) + len(payload)
    if len(key) > MAX_KEY or size >= 1 << 31:
        msg = f"cannot write offset {offset} to sej: a key of {len(key)} bytes in a message of {size}"
        raise TooLarge(msg + f"; the limits are {MAX_KEY} and 2^31-1")
    try:
        head = _HEAD.pack(offset, ZERO_TIME if time_ns is None else time_ns, kind or 0, len(key))
    except struct.error as error:
        msg = f"cannot write offset {offset} to sej: {error}"
        raise TooLarge(msg) from error
    return b"%b%b%b%b%b" % (head, key, _I32.pack(len(payload)), payload, _I32.pack(size))


# ---------------------------------------------------------------------------------------------- reading


class _Journal:
    """One sej directory, read segment by segment from a place that it remembers."""

    def __init__(
        self,
        root: Path,
        label: str,
        start: int,
        *,
        growing: bool = False,
        as_program: bool = False,
        strict: bool = False,
        max_payload: int = _files.MAX_PAYLOAD,
        labelled: bool = False,
    ) -> None:
        self._root = root
        self._label = label
        self._folder = root / label / "jnl"
        self._start = start
        self._growing = growing
        self._as_program = as_program
        self._strict = strict
        self._max_payload = max_payload
        self._labelled = labelled
        self._source: _files.Source | None = None
        self._listed: list[tuple[int, str]] = []
        self._first = -1
        self._position = 0
        self._next: int | None = None
        self._broken = False
        self._over = False
        self._key = b""
        self._extra: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.files: list[str] = []

    def available(self) -> Iterator[Entry]:
        """Deliver what is whole from here on, through all segments that are there."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists of what was read at once; offsets ascend."""
        while not self._over:
            if self._source is not None:
                yield from self._messages(self._source)
            following = self._following()
            if following is None:
                self._at_the_end()
                return
            if self._source is not None:
                # It may have grown between our last look and the listing that showed its successor.
                yield from self._messages(self._source)
                self._leave(self._source, following[0])
                if self._over:
                    return
            self._open(*following)

    def _following(self) -> tuple[int, str] | None:
        """Return the next segment: the first one, or the one that holds the start, or the one after the current."""
        if self._source is None and self._first < 0:
            found = self._listed = _segments(self._folder)
            before = [segment for segment in found if segment[0] <= self._start]
            return before[-1] if before else (found[0] if found else None)
        for listed in (self._listed, None):
            # Segments only come at the end: the folder is listed again when the old list has no more.
            if listed is None:
                self._listed = _segments(self._folder)
            at = bisect_right(self._listed, self._first, key=itemgetter(0))
            if at < len(self._listed):
                return self._listed[at]
        return None

    def _open(self, first: int, name: str) -> None:
        if self._source is not None:
            self._source.close()
        self._source = _files.Source(self._folder / name, _join(self._label, f"jnl/{name}"))
        self.files.append(self._source.name)
        self._extra = {"segment": name, "dir": self._label} if self._labelled else {"segment": name}
        self._first, self._position, self._broken = first, 0, False
        if self._next is not None and first > self._next:
            self._report(0, f"begins at offset {first}, but {self._next} is next: what is between is missing")
            self._over = self._as_program
        elif self._next is not None and first < self._next:
            self._report(0, f"begins at offset {first}, but {self._next} is next: what came before is not repeated")
            self._start = max(self._start, self._next)
        self._next = first

    def _messages(self, source: _files.Source) -> Iterator[list[Entry]]:
        """Deliver the whole messages of the open segment, from the position on."""
        window = _files.WINDOW
        head, i32, make, extra = _HEAD.unpack_from, _I32.unpack_from, make_entry, self._extra
        expected = self._first if self._next is None else self._next
        start, program, before = self._start, self._as_program, self._key
        while not self._broken:
            if source.size() < self._position:
                self._shrunk(source)
            data = source.read(self._position, window)
            end = len(data) - _LONGEST_HEAD
            at = 0
            found: list[Entry] = []
            add = found.append
            while at <= end:
                offset, when, kind, key = head(data, at)
                middle = at + 18 + key
                value = i32(data, middle)[0]
                stop = middle + 8 + value
                if key < 0 or value < 0 or stop > end or offset != expected or i32(data, stop - 4)[0] != stop - at:
                    break
                expected += 1
                text = data[at + 18 : middle] if key else before
                if program:
                    before = text  # The real Scanner reuses one message and keeps its key when the new one is empty.
                at = stop
                if offset >= start:
                    add(make((data[middle + 4 : stop - 4], offset, when, None, text, kind, None, extra)))
            self._position += at
            self._next = expected
            self._key = before
            if found:
                yield found
            window = _files.WINDOW if at else _files.SMALL_WINDOW
            entry = self._one(source, expected)
            if entry is None:
                return
            expected += 1
            self._next = expected
            before = self._key
            if expected > start:
                yield [entry]

    def _one(self, source: _files.Source, expected: int) -> Entry | None:  # noqa: C901, PLR0911  one way out per kind of damage
        """Take one message with care: the last ones of a window, large ones, broken ones. None at the end."""
        begin = self._position
        data = source.read(begin, 18 + MAX_KEY + 4)
        if len(data) < 18:
            return None
        offset, when, kind, key = _HEAD.unpack_from(data, 0)
        if key < 0:
            self._break(f"a key size of {key} bytes")
            return None
        if offset != expected and not self._as_program:
            self._break(f"offset {offset} where {expected} is next")
            return None
        if self._as_program and key:
            self._key = data[18 : 18 + key].ljust(key, b"\0")  # also of a message that does not become whole
        if len(data) < 18 + key + 4:
            return None
        value = _I32.unpack_from(data, 18 + key)[0]
        if value < 0:
            self._break(f"a value size of {value} bytes")
            return None
        size = _SMALLEST + key + value
        if begin + size > source.size():
            return None
        if value > self._max_payload:
            msg = f"{source.name} at {begin}: a value of {value} bytes, and max_payload is {self._max_payload}"
            raise TooLarge(msg)
        body = source.read(begin + 18, size - 18)
        if len(body) < size - 18:
            return None
        total = _I32.unpack_from(body, len(body) - 4)[0]
        if total != size:
            self._break(f"a size field of {total} behind a message of {size} bytes")
            return None
        if offset != expected:
            self._break(f"offset {offset} where {expected} is next")
            return None
        self._position += size
        text = body[:key]
        if self._as_program:
            self._key = text = text or self._key
        return Entry(body[key + 4 : -4], offset, when, None, text, kind, None, self._extra)

    def _break(self, reason: str) -> None:
        self._broken = True
        self._report(self._position, f"{reason}; the rest of this segment cannot be read")
        newest = _segments(self._folder)[-1:]
        if self._growing and newest and newest[0][0] == self._first:
            self._refuse(self._position, reason)
        self._over = self._as_program

    def _leave(self, source: _files.Source, following: int) -> None:
        """
        Judge a segment that has a successor, which begins at offset *following*: it must be whole, and not empty.

        At its end the real Scanner looks for the segment that holds the offset it wants. With a few bytes left over
        that is the next one, if all messages came; otherwise the same one, again and again.
        """
        size = source.size()
        if size == 0:
            self._report(0, "an empty segment that is not the last (the real program would read it for ever)")
            self._over = self._as_program
        elif not self._broken and self._position < size:
            self._report(self._position, f"ends inside a message: {size - self._position} bytes are left over")
            self._over = self._as_program and self._next != following

    def _at_the_end(self) -> None:
        source = self._source
        if source is None or self._growing or self._broken:
            return
        left = source.size() - self._position
        if left:
            self._report(self._position, f"ends inside a message: {left} bytes are left over")

    def _shrunk(self, source: _files.Source) -> None:
        self._refuse(source.size(), f"became shorter than the {self._position} bytes that were read")

    def _report(self, position: int, reason: str) -> None:
        if self._source is None:
            return
        problem = Problem(self._source.name, position, reason)
        if problem in self.problems:
            return
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(problem)
        if self._strict:
            self._refuse(position, reason)

    def _refuse(self, position: int, reason: str) -> None:
        name = self._source.name if self._source is not None else self._label
        msg = f"{self._root / name} at {position}: {reason}; every message delivered so far is whole"
        raise Corrupt(msg)

    def close(self) -> None:
        """Close the open segment."""
        if self._source is not None:
            self._source.close()


class _Root:
    """One or many sej directories as one tail; many are merged by time, each keeping its own order."""

    tick = 1.0

    def __init__(
        self,
        root: Path,
        queue: str | None,
        labels: list[str],
        start: int,
        *,
        growing: bool,
        as_program: bool,
        strict: bool,
        max_payload: int,
        fixed: bool,
    ) -> None:
        self._root = root
        self._queue = queue
        self._fixed = fixed or labels == [""]
        self._labelled = labels != [""]
        self._start = start
        self._options = {"growing": growing, "as_program": as_program, "strict": strict}
        self._max_payload = max_payload
        self._journals: dict[str, _Journal] = {}
        self._add(labels)

    def _add(self, labels: list[str]) -> None:
        for label in labels:
            if label not in self._journals:
                self._journals[label] = _Journal(
                    self._root,
                    label,
                    self._start,
                    labelled=self._labelled,
                    max_payload=self._max_payload,
                    **self._options,
                )

    def directories(self) -> list[Path]:
        """Return what to watch: each directory's journal, and the root, where new shards appear."""
        if not self._fixed:
            self._add(directories(self._root, self._queue))
        found = [self._root / label / "jnl" for label in self._journals]
        return found if self._fixed else [self._root, *found]

    def available(self) -> Iterator[Entry]:
        """Deliver what is there in all directories."""
        for found in self.lists():
            yield from found

    def lists(self) -> Iterator[list[Entry]]:
        """As `available`, in lists."""
        journals = list(self._journals.values())
        if len(journals) == 1:
            yield from journals[0].lists()
        elif len(journals) <= _MOST_MERGED:
            merged = heapq.merge(*(journal.available() for journal in journals), key=attrgetter("time_ns"))
            # What is followed does not wait until a list is full.
            yield from _gathered(merged, 1 if self._options["growing"] else _files.LIST)
        else:
            for journal in journals:
                yield from journal.lists()
                if not self._options["growing"]:
                    journal.close()

    def close(self) -> None:
        """Close every open segment."""
        for journal in self._journals.values():
            journal.close()


def _gathered(entries: Iterable[Entry], many: int) -> Iterator[list[Entry]]:
    """Deliver entries in lists of *many*; what came before an error is delivered before it."""
    found: list[Entry] = []
    try:
        for entry in entries:
            found.append(entry)
            if len(found) >= many:
                yield found
                found = []
    except ShmqError:
        if found:
            yield found
        raise
    if found:
        yield found


def _segments(folder: Path) -> list[tuple[int, str]]:
    """Return (first offset, name) of every segment, ascending; other names are no segments."""
    if not folder.is_dir():
        return []
    found: dict[int, str] = {}
    for name in _files.regular_files(folder):
        match = _SEGMENT.match(name)
        if match is None:
            continue
        first = int(match["first"], 16)
        if first < 1 << 64:
            found.setdefault(first, name)  # Of two spellings of one number, the canonical one sorts first.
    return sorted(found.items())


# ---------------------------------------------------------------------------------------------- offsets


def _offsets(folder: Path, label: str) -> Iterator[tuple[str, int | None, Problem | None]]:
    """Return (reader, next offset, problem) of every offset file; no offset where nothing was ever committed."""
    if not (folder / "ofs").is_dir():
        return
    for name in _files.regular_files(folder / "ofs"):
        if not name.endswith(".ofs"):
            continue
        reader = name.removesuffix(".ofs")
        with _files.Source(folder / "ofs" / name) as source:
            data = source.read(0, 9)
        if len(data) == 8:
            yield reader, _U64.unpack(data)[0], None
        elif not data:
            yield reader, None, None
        else:
            reason = f"{source.name}: {len(data)} bytes where 8 hold an offset; this reader's place is lost"
            yield reader, None, Problem(_join(label, f"ofs/{name}"), 0, reason)


def _offset_of(folder: Path, reader: str) -> int | None:
    known = {name: (offset, problem) for name, offset, problem in _offsets(folder, "")}
    if reader not in known:
        msg = f"no reader {reader!r} in {folder}; there are {sorted(known)}"
        raise NotFound(msg)
    offset, problem = known[reader]
    if problem is not None:
        msg = f"{folder / problem.file}: {problem.reason}; the journal itself can be read from any offset"
        raise Corrupt(msg)
    return offset


def _verify_readers(root: Path, label: str) -> Iterator[Problem]:
    segments = _segments(root / label / "jnl")
    with closing(_Journal(root, label, segments[-1][0] if segments else 0)) as journal:
        count = sum(map(len, journal.lists()))
    first = segments[0][0] if segments else 0
    after = segments[-1][0] + count if segments else 0
    for reader, offset, _ in _offsets(root / label, label):
        name = _join(label, f"ofs/{reader}.ofs")
        if offset is not None and offset < first:
            yield Problem(name, 0, f"wants offset {offset}, and the oldest left is {first}: it will start there")
        elif offset is not None and offset > after:
            yield Problem(name, 0, f"wants offset {offset}, and the next to be written is {after}")
    if (root / label / "ofs").is_dir():
        for name in _files.regular_files(root / label / "ofs"):
            if name.endswith(".ofs.tmp"):
                yield Problem(_join(label, f"ofs/{name}"), 0, "a commit that was never finished; it does not count")


def _split_consumer(consumer: str, labels: list[str]) -> tuple[str, str]:
    label, _, reader = consumer.rpartition("/")
    if not label and labels != [""] and len(labels) == 1:
        label = labels[0]
    if label not in labels:
        msg = f"no reader {consumer!r}: the directories are {labels[:8]}, name a reader as dir/reader"
        raise NotFound(msg)
    return label, reader


def _join(label: str, name: str) -> str:
    return f"{label}/{name}" if label else name


# ---------------------------------------------------------------------------------------------- writing


class _Out:
    """One sej directory that is being written."""

    __slots__ = ("first", "held", "length", "name", "next")

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self.length = 0
        self.held = bytearray()
        self.name = ""


class _Writer:
    """Appends messages to directories, rolling segments as the real writer does."""

    def __init__(
        self, stage: _files.Stage, segment_bytes: int, first: int | None, *, own_offsets: bool, lossy: bool
    ) -> None:
        self._stage = stage
        self._segment_bytes = segment_bytes
        self._first = first
        self._own_offsets = own_offsets and first is None
        self._lossy = lossy
        self._now = time.time_ns()
        self._journals: dict[str, _Out] = {}
        self.count = 0

    def journal(self, label: str, first: int | None) -> _Out:
        """Return the directory *label*, beginning at offset *first* if it is new."""
        out = self._journals.get(label)
        if out is None:
            out = self._journals[label] = _Out(first or 0)
        return out

    def has(self, label: str) -> bool:
        """Say whether something was written to the directory *label*."""
        return label in self._journals

    def append(self, label: str, entry: Entry) -> None:
        """Append one entry to the directory *label*."""
        out = self._journals.get(label) or self.journal(label, self._first)
        _, index, time_ns, expires_ns, _, _, attempts, _ = entry
        if (expires_ns is not None or attempts) and not self._lossy:
            msg = f"cannot write offset {out.next} to sej: it has an expiry or attempts, which sej cannot hold"
            raise Unsafe(msg)
        if index is not None and index != out.next and self._own_offsets:
            self._begin_or_refuse(out, index)
        if time_ns is None:
            entry = entry._replace(time_ns=self._now)
        data = message(out.next, entry)
        if not out.name:
            self._start_segment(label, out)
        out.held += data
        out.length += len(data)
        out.next += 1
        self.count += 1
        if out.length >= self._segment_bytes:
            self._flush(out)
            self._stage.sync(out.name)
            self._start_segment(label, out)
        elif len(out.held) >= _FLUSH_BYTES:
            self._flush(out)

    def _begin_or_refuse(self, out: _Out, index: int) -> None:
        """Take the first entry's own offset as the beginning; later ones must follow without a gap."""
        if out.name or index < 0:
            msg = f"cannot write offset {index} where {out.next} is next: sej has no gaps; number anew with first=0"
            raise Unsafe(msg)
        out.first = out.next = index

    def _start_segment(self, label: str, out: _Out) -> None:
        if out.next >= 1 << 64:
            msg = f"cannot write offset {out.next}: sej's offsets end at 2^64-1"
            raise TooLarge(msg)
        out.name = _join(label, f"jnl/{out.next:016x}.jnl")
        out.length = 0
        self._stage.append(out.name, b"")

    def _flush(self, out: _Out) -> None:
        self._stage.append(out.name, out.held)
        out.held.clear()

    def close(self) -> None:
        """Flush and sync everything; a directory without a message gets its one empty segment."""
        for label, out in self._journals.items():
            if not out.name:
                self._start_segment(label, out)
            self._flush(out)
            self._stage.sync(out.name)


def _route(
    queue: str | None,
    shard_bit: int | None,
    prefix: str,
    shard_hash: Callable[[Entry], int] | None,
    client: str | None,
    *,
    by_dir: bool,
) -> Callable[[Entry], str]:
    """Return what tells an entry's directory."""
    before = "" if client is None else f"{_checked(client)}."
    if by_dir:
        return lambda entry: before + _checked((entry.extra or {}).get("dir", "") or queue or "")
    if shard_bit is None:
        if client is not None and queue is None:
            msg = "cannot write a hub directory without a name: give queue=, by_dir=True or shard_bit="
            raise BadFormat(msg)
        name = before + _checked(queue or "")
        return lambda _entry: name
    names = [before + shard_directory(prefix, shard_bit, index) for index in range(1 << shard_bit)]
    mask = len(names) - 1
    chosen = shard_hash or _crc_of_key
    return lambda entry: names[chosen(entry) & mask]


def _checked(name: str) -> str:
    """Refuse directory names that lead elsewhere; the real program's own check lets `../x` pass."""
    if name and (not _PLAIN.match(name) or name.startswith(".")):
        msg = f"cannot write a sej directory named {name!r}: letters, digits, '_', '-' and inner dots make a name"
        raise BadFormat(msg)
    return name


def _crc_of_key(entry: Entry) -> int:
    return zlib.crc32(entry.key or b"") & 0xFFFF


def _write_offset(
    stage: _files.Stage,
    writer: _Writer,
    name: str,
    place: Place,
    route: Callable[[Entry], str],
    *,
    many: bool,
    lossy: bool,
) -> None:
    label, _, reader = name.rpartition("/")
    if not many:
        label = route(Entry(b""))
    if not reader or "\0" in reader or (many and not label and not writer.has("")):
        msg = f"cannot write the reader {name!r}: a reader needs a name" + (" and a directory, as dir/reader" * many)
        raise BadFormat(msg)
    offset, done = place
    if done and not lossy:
        msg = f"cannot write the reader {name!r}: it has {len(done)} messages confirmed out of order; sej has no place"
        raise Unsafe(msg)
    if offset is not None and not 0 <= offset < 1 << 64:
        msg = f"cannot write the reader {name!r} at offset {offset}: offsets are 0 .. 2^64-1"
        raise TooLarge(msg)
    writer.journal(_checked(label), None)
    file = _join(label, f"ofs/{reader}.ofs")
    stage.append(file, b"" if offset is None else _U64.pack(offset))
    stage.sync(file)


def _repair_one(root: Path, label: str, target: Path) -> int:
    """Write one clean directory, numbering anew behind every hole and moving the readers along."""
    places = {reader: offset for reader, offset, _ in _offsets(root / label, label)}
    before = {reader: 0 for reader, offset in places.items() if offset is not None}
    segments = _segments(root / label / "jnl")
    first = segments[0][0] if segments else 0
    with closing(_Journal(root, label, 0)) as journal:

        def counted() -> Iterator[Entry]:
            for entry in journal.available():
                for reader in before:
                    # Each reader goes on at the same message: count what it has already passed.
                    if (entry.index or 0) < (places[reader] or 0):
                        before[reader] += 1
                yield entry._replace(index=None)

        class _Moved(dict[str, Place]):
            """The readers' new places, known only when the last entry has been counted."""

            def items(self) -> Iterable[tuple[str, Place]]:  # type: ignore[override]
                return [(reader, (first + before[reader] if reader in before else None, ())) for reader in places]

        return write(
            target / label if label else target, counted(), None, _Moved(dict.fromkeys(places, (0, ()))), first=first
        )


def detect(folder: Path, names: list[str]) -> bool:
    """Say whether *folder* is a sej directory or a root of some."""
    del names
    if (folder / "jnl").is_dir():
        return not _files.regular_files(folder / "jnl") or bool(_segments(folder / "jnl"))
    return any(_segments(folder / name / "jnl") for name in _files.subdirectories(folder))
