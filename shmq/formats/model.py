"""
What every foreign format is turned into: entries, the state of a queue, and the problems found in its files.

The words are used one way only: an *index* counts messages, a *position* counts bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, overload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

MS = 1_000_000
"""Nanoseconds in a millisecond: Kestrel and libkestrel count milliseconds, entries count nanoseconds."""

NO_TIME = -(1 << 63)
"""The time of a message whose writer gave none, as sej has it: no moment of 1677, and None in every other format."""

SECOND = 1_000_000_000


class Entry(NamedTuple):
    """
    One message of a foreign queue. A field is None where the format has no place for it.

    A named tuple and not a dataclass: it is as frozen and as slotted, and making one costs a sixth of the time.
    """

    payload: bytes
    """The bytes that were put."""
    index: int | None = None  # type: ignore[assignment]  # it hides tuple.index, which nobody needs here
    """The message's own number: libkestrel's item id, sej's offset."""
    time_ns: int | None = None
    """When it was put, in nanoseconds since 1970 (signed)."""
    expires_ns: int | None = None
    """When it expires, in nanoseconds since 1970; None when it never does."""
    key: bytes | None = None
    type: int | None = None
    attempts: int | None = None
    """How often a reader gave it back: libkestrel's error count."""
    extra: Mapping[str, Any] | None = None
    """Where it came from, in the format's own words: `segment`, `dir`, `chunk`, `xid`."""


make_entry: Callable[[tuple[Any, ...]], Entry] = partial(tuple.__new__, Entry)
"""`Entry` from a tuple of all eight fields, at half the price of calling the class: for the inner loops only."""


class Run(Sequence[Entry]):
    """Messages of which nothing is known but their bytes, and their numbers, which follow each other."""

    __slots__ = ("extra", "first", "payloads")

    def __init__(self, payloads: list[bytes], first: int, extra: Mapping[str, Any]) -> None:
        """*first* is the number of the first one; *extra* is that of them all."""
        self.payloads, self.first, self.extra = payloads, first, extra

    @property
    def indexes(self) -> range:
        """Their numbers."""
        return range(self.first, self.first + len(self.payloads))

    def entries(self) -> list[Entry]:
        """Return them one by one."""
        extra = self.extra
        return [
            make_entry((payload, index, None, None, None, None, None, extra))
            for index, payload in enumerate(self.payloads, self.first)
        ]

    def is_followed_by(self, other: Run) -> bool:
        """Whether *other* is of the same origin, and goes on where this one ends."""
        return other.extra is self.extra and other.first == self.indexes.stop

    def __len__(self) -> int:
        """How many they are."""
        return len(self.payloads)

    @overload
    def __getitem__(self, at: int) -> Entry: ...
    @overload
    def __getitem__(self, at: slice) -> Run: ...
    def __getitem__(self, at: int | slice) -> Entry | Run:
        """Return one of them; or some that follow each other, a run again."""
        if isinstance(at, slice):
            begin, *_ = at.indices(len(self.payloads))
            return Run(self.payloads[at], self.first + begin, self.extra)
        return Entry(self.payloads[at], self.first + (at if at >= 0 else len(self) + at), extra=self.extra)

    def __iter__(self) -> Iterator[Entry]:
        """All of them, one by one."""
        return iter(self.entries())


class Problem(NamedTuple):
    """One place where a file breaks its format's rules, or where its data will not be delivered."""

    file: str
    """The file, relative to the path that was asked about."""
    position: int
    """The first byte of what is wrong."""
    reason: str


Place = tuple[int | None, tuple[int, ...]]
"""Where one consumer stands: (head, done). What head counts is the format's own; see each module's `state`."""


@dataclass(frozen=True, slots=True)
class State:
    """What a queue's files say about the queue, besides the messages themselves."""

    format: str
    queue: str | None = None
    consumers: dict[str, Place] = field(default_factory=dict)
    """{name: (head, done)}; done holds, in ascending order, what was confirmed out of order."""
    open: dict[int, Entry] = field(default_factory=dict)
    """Open transactions by their id, ascending: handed out, neither confirmed nor put back."""
    problems: list[Problem] = field(default_factory=list)
    messages: int = 0
    """How many entries `read` delivers."""
    first: int | None = None
    """The smallest index delivered, where the format has one."""
    last: int | None = None
    files: list[str] = field(default_factory=list)
    """The files that hold the queue, in the order they are read, relative to the path that was asked about."""


class Repair(NamedTuple):
    """What `repair` did."""

    path: Path
    """The repaired queue: a new directory (or header file) beside the original, or the original's own path."""
    messages: int
    """How many messages it holds."""
    problems: list[Problem]
    """What was wrong before."""
    kept: Path | None
    """With `in_place`: the folder that the damaged files were moved to. Nothing is ever deleted."""
