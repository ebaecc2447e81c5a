"""Appenders and tailers of one connection, by the numbers that it calls them by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from shmq.net import uri
from shmq.net.refusals import ILLEGAL, Refused

if TYPE_CHECKING:
    from shmq.net.limits import Limits
    from shmq.net.log import Tail
    from shmq.net.opened import Opened
    from shmq.net.uri import Uri
    from shmq.net.writing import Writer

_FIRST = 1234
"""The number of the first one, so that the conversations in Chronicle's RFC run as they are printed."""


@dataclass(slots=True)
class Appender:
    """What submits go to."""

    uri: Uri
    opened: Opened
    writer: Writer
    sync: bool = False
    """Whether each message is on the disk before it is answered."""
    last: int = -1
    """The index of its last message."""


@dataclass(slots=True)
class Tailer:
    """A place in a queue."""

    uri: Uri
    opened: Opened
    tail: Tail
    raw: bool
    """Whether payloads are delivered as the bytes that they are."""
    used: float
    """When it was asked last, in the loop's time."""


class Channels:
    """Those of one connection."""

    def __init__(self, limits: Limits) -> None:
        """None yet."""
        self._limits = limits
        self._by_cid: dict[int, Appender | Tailer] = {}
        self._appenders: dict[tuple[str, bool], int] = {}
        self._tailers: dict[str, int] = {}
        """Those of a URI without a number."""
        self._next = _FIRST

    def appender(self, name: str, *, sync: bool = False) -> tuple[int, Appender] | None:
        """Return the one appender of the queue *name* (equal services have equal numbers), if there is one."""
        cid = self._appenders.get((name, sync))
        found = None if cid is None else self._by_cid[cid]
        return (cid, found) if cid is not None and isinstance(found, Appender) else None

    def tailer(self, name: str) -> Tailer | None:
        """Return the tailer that requests for the queue *name* without a number go to."""
        found = self._by_cid.get(self._tailers.get(name, -1))
        return found if isinstance(found, Tailer) else None

    def add(self, channel: Appender | Tailer, *, unnumbered: bool = False) -> int:
        """
        Return the number of a new channel.

        Raises:
            Refused: the connection has as many as it may have.
        """
        if len(self._by_cid) >= self._limits.channels:
            raise Refused(ILLEGAL, f"this connection has {self._limits.channels} appenders and tailers, and no more")
        cid, self._next = self._next, self._next + 1
        self._by_cid[cid] = channel
        if isinstance(channel, Appender):
            self._appenders[channel.uri.name, channel.sync] = cid
        elif unnumbered:
            self._tailers[channel.uri.name] = cid
        return cid

    def find(self, cid: int) -> Appender | Tailer:
        """
        Return the channel of that number.

        Raises:
            Refused: there is none, or none any more.
        """
        found = self._by_cid.get(cid)
        if found is None:
            raise Refused(ILLEGAL, f"unknown cid {cid}")
        return found

    def forget_idle(self, now: float) -> list[Tailer]:
        """Return the tailers that nobody has asked for long; they are forgotten."""
        old = {
            cid: each
            for cid, each in self._by_cid.items()
            if isinstance(each, Tailer) and now - each.used > self._limits.tailer
        }
        for cid in old:
            del self._by_cid[cid]
        return list(old.values())

    def forget(self, channel: Appender | Tailer) -> bool:
        """Whether it was one of these: it is forgotten."""
        cid = next((cid for cid, each in self._by_cid.items() if each is channel), None)
        if cid is None:
            return False
        del self._by_cid[cid]
        self._appenders = {key: each for key, each in self._appenders.items() if each != cid}
        self._tailers = {key: each for key, each in self._tailers.items() if each != cid}
        return True

    def clear(self) -> list[Appender | Tailer]:
        """Return all of them; nothing is left."""
        found = list(self._by_cid.values())
        self._by_cid.clear()
        self._appenders.clear()
        self._tailers.clear()
        return found


def agrees(channel: Appender | Tailer, asked: Uri) -> bool:
    """Say whether *channel* is what that URI names."""
    view = uri.APPENDER if isinstance(channel, Appender) else uri.TAILER
    return asked.name == channel.uri.name and asked.view == view
