"""A foreign queue, as somebody has named it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.formats import verbs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.formats.model import Entry, Place, State

_LOGS = {"sej", "libkestrel"}


class Source(NamedTuple):
    """Where it is, in which format, and which of those that are there."""

    path: str
    format: str
    queue: str | None

    @classmethod
    def at(cls, path: str | os.PathLike[str], given: str | None, queue: str | None, verb: str) -> Source:
        """
        What is at *path*.

        Raises:
            NotFound: nothing is at *path*.
            BadFormat: it is in none of the formats.
        """
        return cls(os.fspath(path), verbs.format_of(path, given, verb), queue)

    @property
    def is_log(self) -> bool:
        """Whether its messages have numbers, which only ascend."""
        return self.format in _LOGS

    def lists(self, *, strict: bool) -> Iterator[list[Entry]]:
        """Its messages, in lists of what was read at once."""
        return verbs.lists(self.path, self.format, self.queue, strict=strict)

    def read(self, *, strict: bool) -> Iterator[Entry]:
        """Its messages, one by one."""
        options: dict[str, Any] = {"strict": True} if strict else {}
        return verbs.read(self.path, self.format, self.queue, **options)

    def state(self) -> State:
        """What a walk through it finds."""
        return verbs.state(self.path, self.queue, self.format)

    def consumers(self) -> dict[str, Place]:
        """Where its consumers say they stand."""
        return verbs.consumers(self.path, self.queue, self.format)

    def named(self) -> tuple[Path, str | None]:
        """
        Its place and its name there, the same however it was given: by the folder, by the folder and the name, by one
        of the queue's files. The name is "" where several are there, and none was given.
        """
        place, queue = Path(self.path).resolve(), self.queue
        if self.format in {"kestrel", "libkestrel"} and place.is_file():
            place, queue = place.parent, queue or place.name.partition(".")[0]
        elif queue is None and place.is_dir() and self.format != "sej":
            there = [each for each in verbs.queues(place, self.format) if self.format != "kestrel" or "+" not in each]
            queue = there[0] if len(there) == 1 else ""  # reading says what is wrong
        if self.format == "qewqew" and place.is_dir():
            place, queue = place / (queue or ""), None
        return place, queue

    def identity(self) -> str:
        """Who it is, so that what was imported from it is not imported again: its place, its inode and its name."""
        place, queue = self.named()
        info = place.stat()
        about = f"import {self.format} {place} {queue or ''} {info.st_dev}:{info.st_ino}"
        return "import " + hashlib.sha256(about.encode()).hexdigest()
