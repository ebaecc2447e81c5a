"""`write`: entries become the segments and offset files that the real writer would have left."""

from __future__ import annotations

import itertools
import os
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, TooLarge, Unsafe
from shmq.formats import _files
from shmq.formats.model import Entry, Place
from shmq.formats.sej.messages import SEGMENT_BYTES, U64, message
from shmq.formats.sej.names import checked_name, joined, segment_name, shard_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_FLUSH_BYTES = 1 << 16


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
    passed: Mapping[str, int] | None = None,
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as sej and return how many.

    By default *path* becomes one sej directory; with *queue*, that child of it. Offsets are the entries' own where
    they have them, and must follow one another (the format counts, it does not leave gaps); *first* numbers them
    anew from there. An entry without a time has none there either, which is ZERO_TIME. A segment is closed once it
    holds at least *segment_bytes*, as the real writer does it.

    With *shard_bit* (0 .. 10) *path* becomes a shard root: `[prefix.]<bit>.<index>`, the index being the low bits
    of *shard_hash*(entry) (default: CRC-32 of the key, since the format leaves the hash to the caller). With
    *client* directories are named as the hub names them, `<client>.<directory>`. With *by_dir* each entry goes to
    the directory that its extra["dir"] names, which is how a root that was read is written back. Each directory
    has its own offsets; shards count theirs from *first* or 0.

    *consumers* is {reader: (next offset or None, ())}, in a root {"dir/reader": ...}. *passed* is {reader: count} of
    readers whose offsets are to be found: how many of all *entries* they have passed. In a root such a reader stands in
    every directory, or, as "dir/reader", in that one.

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
        writer = Writer(stage, segment_bytes, first, own_offsets=shard_bit is None, lossy=lossy)
        if not many:
            writer.journal(route(Entry(b"")), first)
        found = _Passed(passed or {})
        for entry in entries:
            found.look(writer)
            writer.append(route(entry), entry)
        for name, place in itertools.chain((consumers or {}).items(), found.places(writer, many=many)):
            _write_offset(stage, writer, name, place, route, many=many, lossy=lossy)
        writer.close()
        stage.publish(last=["jnl"] if (stage.root / "jnl").is_dir() else [])
    return writer.count


class _Passed:
    """Readers on their way to their offsets: each has passed so many of the entries, of whatever directories."""

    def __init__(self, passed: Mapping[str, int]) -> None:
        self._ahead = sorted(passed.items(), key=lambda item: item[1])
        self._found: dict[str, dict[str, int]] = {}

    def look(self, writer: Writer) -> None:
        """Find those who have passed all that was written so far."""
        while self._ahead and self._ahead[0][1] <= writer.count:
            self._found[self._ahead.pop(0)[0]] = writer.next_offsets()

    def places(self, writer: Writer, *, many: bool) -> Iterator[tuple[str, Place]]:
        """Return their places, in each directory, once all is written."""
        firsts, lasts = writer.first_offsets(), writer.next_offsets()
        for name in [*self._found, *(name for name, _ in self._ahead)]:
            offsets = self._found.get(name, lasts)
            only, _, reader = name.rpartition("/")
            for label in lasts:
                if not only or label == only:
                    called = joined(label, reader) if many else reader
                    yield called, (offsets.get(label, firsts[label]), ())


class Out:
    """One sej directory that is being written."""

    __slots__ = ("first", "held", "length", "name", "next")

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self.length = 0
        self.held = bytearray()
        self.name = ""


class Writer:
    """Appends messages to directories, rolling segments as the real writer does."""

    def __init__(
        self, stage: _files.Stage, segment_bytes: int, first: int | None, *, own_offsets: bool, lossy: bool
    ) -> None:
        self._stage = stage
        self._segment_bytes = segment_bytes
        self._first = first
        self._own_offsets = own_offsets and first is None
        self._lossy = lossy
        self._journals: dict[str, Out] = {}
        self.count = 0

    def journal(self, label: str, first: int | None) -> Out:
        """Return the directory *label*, beginning at offset *first* if it is new."""
        out = self._journals.get(label)
        if out is None:
            out = self._journals[label] = Out(first or 0)
        return out

    def first_offsets(self) -> dict[str, int]:
        """Return the first offset of each directory."""
        return {label: out.first for label, out in self._journals.items()}

    def next_offsets(self) -> dict[str, int]:
        """Return the offset that is next in each directory."""
        return {label: out.next for label, out in self._journals.items()}

    def has(self, label: str) -> bool:
        """Say whether something was written to the directory *label*."""
        return label in self._journals

    def append(self, label: str, entry: Entry) -> None:
        """Append one entry to the directory *label*."""
        out = self._journals.get(label) or self.journal(label, self._first)
        _, index, _, expires_ns, _, _, attempts, _ = entry
        if (expires_ns is not None or attempts) and not self._lossy:
            msg = f"cannot write offset {out.next} to sej: it has an expiry or attempts, which sej cannot hold"
            raise Unsafe(msg)
        if index is not None and index != out.next and self._own_offsets:
            self._begin_or_refuse(out, index)
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

    def _begin_or_refuse(self, out: Out, index: int) -> None:
        """Take the first entry's own offset as the beginning; later ones must follow without a gap."""
        if out.name or index < 0:
            msg = f"cannot write offset {index} where {out.next} is next: sej has no gaps; number anew with first=0"
            raise Unsafe(msg)
        out.first = out.next = index

    def _start_segment(self, label: str, out: Out) -> None:
        if out.next >= 1 << 64:
            msg = f"cannot write offset {out.next}: sej's offsets end at 2^64-1"
            raise TooLarge(msg)
        out.name = joined(label, f"jnl/{segment_name(out.next)}")
        out.length = 0
        self._stage.append(out.name, b"")

    def _flush(self, out: Out) -> None:
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
    before = "" if client is None else f"{checked_name(client)}."
    if by_dir:
        return lambda entry: before + checked_name((entry.extra or {}).get("dir", "") or queue or "")
    if shard_bit is None:
        if client is not None and queue is None:
            msg = "cannot write a hub directory without a name: give queue=, by_dir=True or shard_bit="
            raise BadFormat(msg)
        name = before + checked_name(queue or "")
        return lambda _entry: name
    names = [before + shard_directory(prefix, shard_bit, index) for index in range(1 << shard_bit)]
    mask = len(names) - 1
    chosen = shard_hash or _crc_of_key
    return lambda entry: names[chosen(entry) & mask]


def _crc_of_key(entry: Entry) -> int:
    return zlib.crc32(entry.key or b"") & 0xFFFF


def _write_offset(
    stage: _files.Stage,
    writer: Writer,
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
    writer.journal(checked_name(label), None)
    file = joined(label, f"ofs/{reader}.ofs")
    stage.append(file, b"" if offset is None else U64.pack(offset))
    stage.sync(file)
