"""`write`: entries become the journals that a release of the real program would have left."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, Unsafe
from shmq.formats import _files
from shmq.formats.kestrel.names import QUEUE, names_of
from shmq.formats.kestrel.records import (
    ADD,
    ADD_XID,
    ADDX,
    ADDX_HEAD,
    REMOVE_TENTATIVE,
    REMOVE_TENTATIVE_XID,
    SAVE_XID,
    record,
)
from shmq.formats.model import MS, Entry, Place

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping


def write(
    path: str | os.PathLike[str],
    entries: Iterable[Entry],
    queue: str | None = None,
    consumers: Mapping[str, Place] | None = None,
    *,
    layout: str = "current",
    rotate_bytes: int = 16 << 20,
    name_ms: int | None = None,
    dialect: str = "2",
    lossy: bool = False,
    mode: int = 0o600,
) -> int:
    """
    Write *entries* as the Kestrel queue *queue* into the folder *path*, and return how many.

    *layout* is "current" (one file `Q`, as a rewrite leaves it), "rotated" (`Q.<ms>`, ... and `Q`; a file is
    rotated once it is longer than *rotate_bytes*) or "pack" (`Q.<ms>.pack`, which the program takes in place of
    everything older). Numbers begin at *name_ms* (default: now).

    Entries with an extra["xid"] become open transactions; they must come first, as `read` delivers them. *dialect*
    is the release to write for: "2" (ADDX, REMOVE_TENTATIVE_XID), "1" (ADD_XID, REMOVE_TENTATIVE, SAVE_XID) or
    "starling" (ADD: no add time, expiry in seconds). *consumers* is {child: (n, numbers)}: the fan-out child gets
    every entry but the first n and those of the given numbers, both counting from 0. The child "" is the queue itself.

    Raises:
        TooLarge: an item of 2 GiB, a transaction id outside i32, a time outside its field.
        Unsafe: the queue is already there, or an entry has a key, a type or attempts (with "starling" also a time),
            which Kestrel cannot hold, and *lossy* is not set. Nothing is left behind.
    """
    if queue is None or not QUEUE.match(queue):
        msg = f"cannot write a Kestrel queue named {queue!r}: a name has no '.', '/' and '~'"
        raise BadFormat(msg)
    if layout not in ("current", "rotated", "pack") or dialect not in ("1", "2", "starling"):
        msg = f"cannot write Kestrel as layout {layout!r} in dialect {dialect!r}"
        raise BadFormat(msg)
    folder = Path(path)
    children = dict(consumers or {})
    own = children.pop("", (0, ()))
    names = [queue, *(f"{queue}+{child}" for child in children)]
    for name in names:
        if not QUEUE.match(name):
            msg = f"cannot write a fan-out child as {name!r}: a name has no '.', '/' and '~'"
            raise BadFormat(msg)
        if folder.is_dir() and names_of(folder, name):
            msg = f"cannot write {name} into {folder}: files of that queue are there; nothing was changed"
            raise Unsafe(msg)
    number = time.time_ns() // MS if name_ms is None else name_ms
    with _files.Stage(folder, mode) as stage:
        places = [(head or 0, frozenset(done)) for head, done in (own, *children.values())]
        form = Form(layout, rotate_bytes, number, dialect, lossy)
        writers = [Writer(stage, name, form) for name in names]
        count = put_all(entries, writers, places)
        for writer in writers:
            writer.close()
        stage.publish(last=[name for name in names if (stage.root / name).exists()])
    return count


@dataclass(frozen=True, slots=True)
class Form:
    """How to write: what the caller asked for."""

    layout: str
    rotate_bytes: int
    number: int
    dialect: str
    lossy: bool


def put_all(entries: Iterable[Entry], writers: list[Writer], places: list[tuple[int, frozenset[int]]]) -> int:
    """Put the entries into each writer, the queue's and its children's, behind its place; return how many."""
    parent, *children = writers
    (head, done), *others = places
    put = parent.put
    count = 0
    for entry in entries:
        if count >= head and count not in done:
            put(entry)
        for child, (theirs, finished) in zip(children, others, strict=True):
            if count >= theirs and count not in finished:
                child.put(entry, plain=True)
        count += 1
    return count


class Writer:
    """One queue's journal: open transactions first, then the items, rotated if wanted."""

    def __init__(self, stage: _files.Stage, queue: str, form: Form) -> None:
        self._stage = stage
        self._queue = queue
        self._form = form
        self._number = form.number
        self._now = time.time_ns()
        self._opened: dict[int, Entry] | None = {}
        self._length = 0
        self._simple = False
        """Whether nothing but items is to come, into one file of the newer releases."""
        endings = {"pack": f".{form.number}.pack", "rotated": f".{form.number}", "current": ""}
        self._name = queue + endings[form.layout]
        self._file: BinaryIO = stage.create(self._name)

    def put(self, entry: Entry, *, plain: bool = False) -> None:
        """Add one item; with an xid it is an open transaction, unless *plain* (in a fan-out child)."""
        payload, _, time_ns, expires_ns, key, kind, attempts, extra = entry
        if self._simple and time_ns is not None and extra is None and not (key or kind or attempts):
            # As below, for whoever writes millions of them.
            try:
                expires = 0 if expires_ns is None else expires_ns // MS or 1
                head = ADDX_HEAD.pack(ADDX, 16 + len(payload), time_ns // MS, expires)
            except struct.error:
                record(ADDX, entry=entry)  # which says what is wrong
                raise
            self._file.write(head + payload)
            return
        self._refuse_losses(entry)
        if entry.time_ns is None:
            entry = entry._replace(time_ns=self._now)
        xid = None if plain else (entry.extra or {}).get("xid")
        if xid is not None:
            if self._opened is None:
                msg = f"cannot write transaction {xid} of {self._queue}: open transactions come before all other items"
                raise BadFormat(msg)
            self._opened[xid] = entry
            return
        if self._opened is not None:
            self._write_opened()
            self._simple = self._form.layout != "rotated" and self._form.dialect != "starling"
        if self._form.layout == "rotated" and self._length > self._form.rotate_bytes:
            self._rotate()
        self._write(record(ADD if self._form.dialect == "starling" else ADDX, entry=entry))

    def _refuse_losses(self, entry: Entry) -> None:
        if self._form.lossy:
            return
        if (
            entry.key
            or entry.type
            or entry.attempts
            or (self._form.dialect == "starling" and entry.time_ns is not None)
        ):
            msg = f"cannot write to {self._queue}: an entry has a key, a type, attempts or a time, which would be lost"
            raise Unsafe(msg)

    def _write_opened(self) -> None:
        """Write the open transactions as the releases do: newest first, each added and taken at once."""
        opened, self._opened = self._opened or {}, None
        for xid in sorted(opened, reverse=True):
            if self._form.dialect == "2":
                self._write(record(ADDX, entry=opened[xid]) + record(REMOVE_TENTATIVE_XID, xid=xid))
            elif self._form.dialect == "1":
                self._write(record(ADD_XID, xid=xid, entry=opened[xid]) + record(REMOVE_TENTATIVE))
            elif not self._form.lossy:
                msg = f"cannot write transaction {xid} of {self._queue}: Starling has no transactions"
                raise Unsafe(msg)
            else:
                self._write(record(ADD, entry=opened[xid]))
        if self._form.dialect == "1":
            self._write(record(SAVE_XID, xid=max(opened, default=0)))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._length += len(data)

    def _rotate(self) -> None:
        self._stage.finish(self._name)
        self._number += 1
        self._name = f"{self._queue}.{self._number}"
        self._file = self._stage.create(self._name)
        self._length = 0

    def close(self) -> None:
        """Finish; of rotated files the last one becomes the current one."""
        if self._opened:
            self._write_opened()
        self._stage.finish(self._name)
        if self._form.layout == "rotated":
            (self._stage.root / self._name).rename(self._stage.root / self._queue)
