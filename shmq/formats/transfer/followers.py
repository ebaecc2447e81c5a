"""The consumers of a foreign queue on their way: each wants a message of it, whose place is found as they pass."""

from __future__ import annotations

import bisect
import collections
import hashlib
import re
from typing import TYPE_CHECKING

from shmq.errors import Corrupt
from shmq.formats.transfer.refusals import Clash

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shmq.formats.model import Entry
    from shmq.formats.transfer.source import Source

REACH = 65_536
"""How far ahead of a group's head messages can be finished."""
_SHORT = 32
NAMELESS = "default"
"""What libkestrel's nameless reader is called here, and whoever shares a Kestrel queue."""


def mark_of(index: int | None, payload: bytes) -> tuple[int | None, bytes]:
    """What tells a message of a source from others: its number there, and what it holds, or a digest of that."""
    return index, payload if len(payload) <= _SHORT else hashlib.sha256(payload).digest()


class Follower:
    """One consumer of the source: finds the place of the first message it still wants."""

    def __init__(
        self,
        name: str,
        called: str,
        wanted: int,
        label: str | None = None,
        *,
        done: tuple[int, ...] = (),
        shares: bool = False,
    ) -> None:
        """
        *wanted* is its next index in the source's own counting; *label* its directory in a sej root.

        What it has finished behind that is *done*, in that counting, too. *shares*: it is whoever shares a Kestrel
        queue, and comes along as a group if the queue begins with open transactions.
        """
        self.name = name
        self.called = called
        self.at: int | None = None
        """How many of the source's messages come before what it wants, once that is known."""
        self.mark: tuple[int | None, bytes] | None = None
        """What tells that message from others, as `mark_of` does."""
        self.finished: list[int] = []
        """The numbers, counting from 0, of those that it has finished behind that, as far as it was looked."""
        self.group = shares or bool(done)
        """Whether it becomes a group: its messages were handed to several, who finish them in any order."""
        self.comes = not shares
        """Whether it comes along; of whoever shares a Kestrel queue that is known once its first message was seen."""
        self._wanted = wanted
        self._label = label
        self._done = frozenset(index for index in done if index >= wanted)

    def look(self, batch: Sequence[Entry], before: int) -> None:
        """Look for its place in a batch, before which *before* messages were read."""
        if not before and not self.comes:
            self.comes = "xid" in (batch[0].extra or {})
        if self._done:
            self.finished += [before + at for at, entry in enumerate(batch) if entry[1] in self._done]
        if self.at is not None:
            return
        self._find(batch, before)
        if self.at is not None:
            entry = batch[self.at - before]
            self.mark = mark_of(entry.index, entry.payload)

    def _find(self, batch: Sequence[Entry], before: int) -> None:
        if self._label is not None:
            for number, entry in enumerate(batch):
                if (entry.index or 0) >= self._wanted and (entry.extra or {}).get("dir") == self._label:
                    self.at = before + number
                    return
        elif batch[0].index is None:
            if self._wanted < before + len(batch):
                self.at = max(self._wanted, before)
        elif (batch[-1].index or 0) >= self._wanted:
            self.at = before + bisect.bisect_left([entry.index or 0 for entry in batch], self._wanted)


def followers(source: Source, twins: str, *, by_dir: bool = False) -> tuple[list[Follower], list[str]]:
    """
    The consumers of a foreign queue, and what of them would be lost; *by_dir*: its directories stay what they are.

    Raises:
        Refused: several would have one name; *twins* is what helps.
    """
    if source.format == "qewqew":
        return [], []
    found, losses = [], []
    if source.format == "kestrel":
        # What was handed out and never confirmed is there again for whoever of its many readers comes first.
        found.append(Follower("", NAMELESS, 0, shares=True))
    try:
        places = source.consumers()
    except Corrupt as problem:
        losses.append(f"where a consumer stands, so that it begins at the first message ({problem})")
        places = source.state().consumers
    for consumer, (head, done) in places.items():
        losses += _losses(source, consumer, head, done, by_dir=by_dir)
        if head is not None or source.format != "kestrel":
            found.append(_follower(source, consumer, head, done))
    if len(found) > 1 and NAMELESS in [each.called for each in found[1:]]:
        found = [each for each in found if each.comes]  # a fan-out child has that name
    twice = [called for called, times in collections.Counter(each.called for each in found).items() if times > 1]
    if twice:
        raise Clash(f"several consumers of {source.path} would be called {twice[0]!r}", twins)
    return found, losses


def _follower(source: Source, consumer: str, head: int | None, done: tuple[int, ...]) -> Follower:
    called = re.sub(r"[^A-Za-z0-9_.-]", ".", consumer)[-64:].lstrip(".") or NAMELESS
    wanted = 0 if head is None else head + (source.format == "libkestrel")
    return Follower(consumer, called, wanted, _directory(source, consumer), done=done)


def _directory(source: Source, consumer: str) -> str | None:
    """Which directory of a sej root a consumer reads, if it does not read all there are."""
    return consumer.rpartition("/")[0] or None if source.format == "sej" else None


def _losses(source: Source, consumer: str, head: int | None, done: tuple[int, ...], *, by_dir: bool) -> list[str]:
    losses = []
    far = [index for index in done if index - (head or 0) > REACH]
    if far:
        losses.append(
            f"consumer {consumer!r} has confirmed {len(far)} message{'s' * (len(far) != 1)} more than {REACH:,} ahead "
            "of where it stands; they come again"
        )
    if head is None and source.format == "kestrel":
        losses.append(
            f"fan-out child {consumer!r} holds other items than its parent and is left out "
            f"(import {source.named()[1]}+{consumer} as a queue of its own)"
        )
    if _directory(source, consumer) is not None and not by_dir:
        losses.append(f"consumer {consumer!r} will see the messages of the other directories too")
    return losses
