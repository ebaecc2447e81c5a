"""A foreign queue, as somebody has named it."""

from __future__ import annotations

import hashlib
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shmq.errors import NotFound
from shmq.formats import verbs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import ModuleType

    from shmq.formats.model import Entry, Place, State
    from shmq.formats.transfer.messages import Headers

_LOGS = {"sej", "libkestrel", "chronicle"}


def cycled() -> ModuleType:
    """What only Chronicle's queues need; it is imported when the first of them is met."""
    return importlib.import_module("shmq.formats.transfer.cycled")


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

    def messages(self, *, strict: bool) -> tuple[Iterable[Sequence[Entry]], Callable[[], list[str]]]:
        """As `lists`, and what says which documents among those that were read are no messages."""
        if self.format != "chronicle":
            return self.lists(strict=strict), list
        found = cycled().Messages(self, strict=strict)
        return found, found.losses

    def lists(self, *, strict: bool) -> Iterator[list[Entry]]:
        """Its messages, in lists of what was read at once."""
        return verbs.lists(self.path, self.format, self.queue, strict=strict)

    def read(self, *, strict: bool) -> Iterator[Entry]:
        """Its messages, one by one."""
        options: dict[str, Any] = {"strict": True} if strict else {}
        return verbs.read(self.path, self.format, self.queue, **options)

    def headers(self) -> Headers | None:
        """What makes the headers of its messages, if that takes more than what each of them says of itself."""
        return cast("Headers", cycled().headers(self.path, self.queue)) if self.format == "chronicle" else None

    def goes_on(self, number: int, following: int) -> bool:
        """Whether no message can be missing between these two numbers."""
        # Each file of a Chronicle queue counts from zero.
        return following == number + 1 or (self.format == "chronicle" and not following & 0xFFFFFFFF)

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
        if self.format in {"qewqew", "chronicle"} and place.is_dir():
            place, queue = place / (queue or ""), None
        return place, queue

    def identity(self) -> str:
        """Who it is, so that what was imported from it is not imported again: its place, its inode and its name."""
        place, queue = self.named()
        try:
            info = place.stat()
            inode = f"{info.st_dev}:{info.st_ino}"
        except FileNotFoundError as error:
            if self.format != "qewqew":
                msg = f"cannot import {place}: nothing is there any more"
                raise NotFound(msg) from error
            inode = "empty"  # The program deletes all files of a queue that it closes empty.
        about = f"import {self.format} {place} {queue or ''} {inode}"
        return "import " + hashlib.sha256(about.encode()).hexdigest()
