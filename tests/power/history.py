"""
What a process did to a directory, step by step: words stored, names given, and what was synced when.

A `Recorder` looks at the whole tree before and after every call that the shim tells of, and notes the differences; so
stores through mappings are seen at the resolution of system calls and of `look`, which workloads call between
operations. A `State` is what the disk may hold at one moment: what is durable, and what is pending on top of it.
"""

from __future__ import annotations

import dataclasses
import os
import stat
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .shim import Pages

    Words = NDArray[np.uint64]

ROOT = 0
"""The number of the directory above the queue, which is durable from the beginning."""
STATE_SHIFT, COUNT_SHIFT, SPAN_MASK = 61, 48, 0x7FFFFFF
CLAIMED, DONE = 1, 2
CHUNK_MAGIC = int.from_bytes(b"shmqchnk", "little")
MESSAGES_BEGIN = 515
"""The word where the first message of a small chunk begins, behind its header and its index of index blocks."""


@dataclasses.dataclass(frozen=True)
class Stored:
    """
    Words of a file that changed; `values[i]` is now at word `places[i]`.

    *taken* says that it is a chunk, and that something changed where its messages lie.
    """

    file: int
    places: NDArray[np.intp]
    values: Words
    taken: bool = False


@dataclasses.dataclass(frozen=True)
class Sized:
    """A file has this size from now on."""

    file: int
    size: int


@dataclasses.dataclass(frozen=True)
class Named:
    """Names that changed at once: (directory, name) -> file or directory; None when it went."""

    changes: dict[tuple[int, str], int | None]


@dataclasses.dataclass(frozen=True)
class Synced:
    """
    What the first `upto` events did to this file, or to the names in this directory, is durable from now on.

    With `words`, of a file: only what they did to those; its size may still be lost.
    """

    file: int
    upto: int
    words: tuple[int, int] | None = None


@dataclasses.dataclass(frozen=True)
class Said:
    """Something the workload says about itself."""

    what: Any


Event = Stored | Sized | Named | Synced | Said


@dataclasses.dataclass
class History:
    """Events in their order; which numbers are directories; the modes of all."""

    events: list[Event] = dataclasses.field(default_factory=list)
    folders: set[int] = dataclasses.field(default_factory=set)
    modes: dict[int, int] = dataclasses.field(default_factory=dict)
    begin: int = 0
    """The events before this one are what was there, and durable, before anybody did anything."""


def words_of(content: bytes) -> Words:
    """The 8-byte words of a file, the last one filled with zeros."""
    return np.frombuffer(content + bytes(-len(content) % 8), dtype=np.uint64)


FAULTS = ("no data sync", "no directory sync", "mark before data", "no snapshot sync", "no letters sync")


class Recorder:
    """Watches the tree at *root*."""

    def __init__(self, root: str, fault: str = "") -> None:
        """
        What is there already is taken for durable.

        *fault* makes of the library one that is broken: what it syncs is not, or only as far as it was one sync before.
        """
        self.root = root
        self._fault = fault
        self._late: dict[int, int] = {}
        self.history = History()
        self._numbers: dict[int, int] = {}  # inode -> number
        self._names: dict[tuple[int, str], int] = {}
        self._content: dict[int, Words] = {}
        self._sizes: dict[int, int] = {}
        self._lock = threading.RLock()
        self._before = threading.local()
        self._number(os.stat(root))
        self.look()
        for file in [*self._content, *self.history.folders]:
            self.history.events.append(Synced(file, len(self.history.events)))
        self.history.begin = len(self.history.events)

    def _number(self, info: os.stat_result) -> int:
        number = self._numbers.setdefault(info.st_ino, len(self._numbers))
        if number not in self.history.modes:
            self.history.modes[number] = stat.S_IMODE(info.st_mode)
            if stat.S_ISDIR(info.st_mode):
                self.history.folders.add(number)
            else:
                self._content[number] = words_of(b"")
                self._sizes[number] = 0
        return number

    def say(self, what: Any) -> None:
        """Note what the workload says, behind everything it has done so far."""
        with self._lock:
            self.look()
            self.history.events.append(Said(what))

    def heard(self, kind: str, fd: int, over: bool, pages: Pages | None = None) -> None:
        """From the shim, in whatever thread makes the call: around each one that changes something."""
        with self._lock:
            self.look()
            if pages is not None:
                if not over:
                    self._before.upto = len(self.history.events)
                elif pages.inode in self._numbers:
                    # A disk writes whole pages, but what stands behind the end of the call nobody may count on.
                    words = pages.begin // 8, -(-pages.end // 8)
                    self._synced(self._numbers[pages.inode], self._before.upto, "/chunks/", words)
            if kind in ("fsync", "fdatasync"):
                if not over:
                    self._look_at(fd)  # it may have no name yet
                    self._before.upto = len(self.history.events)  # what others store meanwhile is not covered
                    return
                self._synced(self._number(os.fstat(fd)), self._before.upto, os.readlink(f"/proc/self/fd/{fd}"))

    def _synced(self, number: int, upto: int, path: str, words: tuple[int, int] | None = None) -> None:
        data = "/chunks/" in path and number not in self.history.folders
        forgotten = {
            "no data sync": data,
            "no directory sync": number in self.history.folders,
            "no snapshot sync": "/consumers/" in path,
            "no letters sync": data and ".dead/" in path,
        }
        if forgotten.get(self._fault):
            return
        if self._fault == "mark before data" and data:
            upto, self._late[number] = self._late.get(number, 0), upto
        self.history.events.append(Synced(number, upto, words))

    def look(self) -> None:
        """Note every difference to the last look: contents first, then names."""
        names: dict[tuple[int, str], int] = {}
        self._walk(self.root, ROOT, names)
        changes: dict[tuple[int, str], int | None] = {
            at: number for at, number in names.items() if self._names.get(at) != number
        }
        changes.update(dict.fromkeys(at for at in self._names if at not in names))
        if changes:
            self.history.events.append(Named(changes))
            self._names = names

    def _walk(self, path: str, folder: int, names: dict[tuple[int, str], int]) -> None:
        for entry in os.scandir(path):
            info = entry.stat(follow_symlinks=False)
            number = names[folder, entry.name] = self._number(info)
            if number in self.history.folders:
                self._walk(entry.path, number, names)
            else:
                fd = os.open(entry.path, os.O_RDONLY)
                try:
                    self._look_at(fd)
                finally:
                    os.close(fd)

    def _look_at(self, fd: int) -> None:
        info = os.fstat(fd)
        if stat.S_ISDIR(info.st_mode):
            return
        number = self._number(info)
        if self._sizes[number] != info.st_size:
            self._sizes[number] = info.st_size
            self.history.events.append(Sized(number, info.st_size))
        # Through an opening of its own: this one may be write-only.
        own = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY)
        try:
            now = words_of(os.pread(own, info.st_size, 0))
        finally:
            os.close(own)
        before = self._content[number]
        if len(before) < len(now):
            before = np.concatenate([before, np.zeros(len(now) - len(before), np.uint64)])
        elif len(before) > len(now):
            before = before[: len(now)]
        places = np.flatnonzero(before != now)
        if len(places):
            self._note_claims(number, places, before, now)
            taken = len(now) > MESSAGES_BEGIN and now[2] == CHUNK_MAGIC and bool((places >= MESSAGES_BEGIN).any())
            self.history.events.append(Stored(number, places, now[places], taken))
        self._content[number] = now

    def _note_claims(self, file: int, places: NDArray[np.intp], before: Words, now: Words) -> None:
        """
        A word that went from FREE to DONE in one step of ours was CLAIMED in between, and may have been written so.

        Whatever merely looks like such a word is payload, which a disk may tear in any way.
        """
        values = now[places]
        spans = values & np.uint64(SPAN_MASK)
        states = values >> np.uint64(STATE_SHIFT)
        fits = (spans >= 5) & (places + spans.astype(np.intp) <= len(now))
        done = (before[places] == 0) & (states == DONE) & fits
        if done.any():
            claimed = values[done] & ~np.uint64(7 << STATE_SHIFT) | np.uint64(CLAIMED << STATE_SHIFT)
            self.history.events.append(Stored(file, places[done], claimed))


# ---------------------------------------------------------------- what the disk may hold
class File:
    """What is durable of one file, and what is pending."""

    def __init__(self) -> None:
        self.words = words_of(b"").copy()
        self.size = 0
        self.sizes: list[tuple[int, int]] = []  # (moment, size), pending
        self.pending: list[tuple[int, NDArray[np.intp], Words]] = []  # (moment, places, values)
        self._flat: tuple[NDArray[np.intp], Words, NDArray[np.intp]] | None = None
        self._durable: bytes | None = None

    def store(self, moment: int, places: NDArray[np.intp], values: Words) -> None:
        """It changed."""
        self.pending.append((moment, places, values))
        self._flat = None

    def sync(self, upto: int) -> None:
        """What was done up to that moment is durable."""
        later = [each for each in self.pending if each[0] > upto]
        later_sizes = [each for each in self.sizes if each[0] > upto]
        if len(later) == len(self.pending) and len(later_sizes) == len(self.sizes):
            return
        self.pending = [each for each in self.pending if each[0] <= upto]
        self._flat = None
        sizes = [size for moment, size in self.sizes if moment <= upto]
        self.size = sizes[-1] if sizes else self.size
        places, values, _ = self.flat()
        room = max(-(-self.size // 8), int(places.max()) + 1 if len(places) else 0)
        words = np.zeros(room, np.uint64)
        words[: len(self.words)] = self.words[:room]
        words[places] = values
        self.words = words[: -(-self.size // 8)]
        self.pending, self.sizes = later, later_sizes
        self._flat = None
        self._durable = None

    def sync_words(self, upto: int, begin: int, end: int) -> None:
        """What was done up to that moment to the words from *begin* to before *end* is durable."""
        rest = []
        for moment, places, values in self.pending:
            within = (places >= begin) & (places < end) if moment <= upto else np.zeros(len(places), bool)
            if within.any():
                self._make_room(int(places[within].max()) + 1)
                self.words[places[within]] = values[within]
                self._durable = None
            if not within.all():
                rest.append((moment, places[~within], values[~within]))
        self.pending = rest
        self._flat = None

    def sync_size(self, upto: int) -> None:
        """The size that it had at that moment is durable: what is needed to find the bytes, all syncs do alike."""
        self.size = [self.size, *(size for moment, size in self.sizes if moment <= upto)][-1]
        self.sizes = [each for each in self.sizes if each[0] > upto]
        self._make_room(-(-self.size // 8))
        self._durable = None

    def _make_room(self, words: int) -> None:
        if words > len(self.words):
            self.words = np.concatenate([self.words, np.zeros(words - len(self.words), np.uint64)])

    def flat(self) -> tuple[NDArray[np.intp], Words, NDArray[np.intp]]:
        """Places, values and moments of everything pending, in order."""
        if self._flat is None:
            moments = [np.full(len(places), moment) for moment, places, _ in self.pending]
            self._flat = (
                np.concatenate([places for _, places, _ in self.pending] or [np.zeros(0, np.intp)]),
                np.concatenate([values for _, _, values in self.pending] or [np.zeros(0, np.uint64)]),
                np.concatenate(moments or [np.zeros(0, np.intp)]),
            )
        return self._flat

    def durable(self) -> bytes:
        """What is durable, as bytes."""
        if self._durable is None:
            self._durable = self.words.tobytes()[: self.size]
        return self._durable

    @property
    def is_pending(self) -> bool:
        """Whether a cut may leave it in more than one way."""
        return bool(self.pending or self.sizes)


class State:
    """What the disk may hold after the first events of a history."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.moment = 0
        self.files: dict[int, File] = {}
        self.names: dict[tuple[int, str], int] = {}
        self.pending_names: list[tuple[int, Named]] = []
        self.said: list[tuple[int, Any]] = []

    def step(self) -> Event:
        """Apply one more event."""
        event = self.history.events[self.moment]
        self.moment += 1
        if isinstance(event, Stored):
            self._file(event.file).store(self.moment, event.places, event.values)
        elif isinstance(event, Sized):
            self._file(event.file).sizes.append((self.moment, event.size))
        elif isinstance(event, Named):
            self.pending_names.append((self.moment, event))
        elif isinstance(event, Synced):
            self._sync(event)
        else:
            self.said.append((self.moment, event.what))
        return event

    def _file(self, number: int) -> File:
        return self.files.setdefault(number, File())

    def _sync(self, event: Synced) -> None:
        number, upto = event.file, event.upto
        if event.words is not None:
            self._file(number).sync_words(upto, *event.words)
            self._file(number).sync_size(upto)
            return
        if number not in self.history.folders:
            self._file(number).sync(upto)
            return
        # A rename is one step on the disk; it is durable once the directory that it moved something into is. What is
        # durable in one directory needs everything before it that led there.
        still = []
        for moment, named in self.pending_names:
            gained = {folder for (folder, _), new in named.changes.items() if new is not None}
            if moment <= upto and number in (gained or {folder for folder, _ in named.changes}):
                apply_names(self.names, named)
            else:
                still.append((moment, named))
        self.pending_names = still


def apply_names(names: dict[tuple[int, str], int], named: Named) -> None:
    """Change *names* as *named* says."""
    for at, number in named.changes.items():
        if number is None:
            names.pop(at, None)
        else:
            names[at] = number
