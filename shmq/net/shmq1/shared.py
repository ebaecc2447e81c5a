"""A queue as all of its clients share it, in the loop."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any, Protocol

import shmq
from shmq.net import names
from shmq.net.shmq1.slots import Slots

if TYPE_CHECKING:
    from shmq.net.opened import Opened
    from shmq.net.service import Service


class Holder(Protocol):
    """A client, as others are told of it."""

    def called(self) -> str:
        """Return who it is, for another client."""


class OpenQueue:
    """
    One queue, for all that use it in the loop.

    Attributes:
        opened: the same, as the service holds it.
        plain, awaited: the queue, and the same for the tasks of the loop.
        name: what the clients call it.
        warm: whether something was put here already, after which a put costs microseconds.
        busy: the sessions that are connected, or may come back.
        holders: which client has a consumer of that name; the last one, of a group.
        warming: held by the one client that puts first, so that they do not look at all there is side by side.
    """

    def __init__(self, service: Service, opened: Opened, plain: shmq.Queue[Any]) -> None:
        """In the loop. It is closed with *opened*."""
        self.opened = opened
        opened.closing.append(self._close)
        self.plain = plain
        self.awaited = shmq.aio.Queue(plain)
        self.name = os.path.relpath(plain.path, service.root)  # however a client has written it
        self.root = service.root
        self.warm = False
        self.warming = asyncio.Lock()
        self.busy: set[bytes] = set()
        self.holders: dict[str, Holder] = {}
        self._slots: Slots | None = None
        self._lock = threading.Lock()

    def slots(self) -> Slots:
        """Return the table of those that put; opened when it is first needed. May block."""
        with self._lock:
            if self._slots is None:
                self._slots = Slots(self.root, self.name, self.plain.id, self.plain.adopted)
            return self._slots

    def _close(self) -> None:
        with self._lock:
            slots, self._slots = self._slots, None
        if slots is not None:
            slots.close()

    def not_there(self) -> names.NoQueue:
        """Why nothing is put any more."""
        return names.NoQueue(f"the queue {self.name!r} is not there any more, or is another one now; nothing was put")

    def said(self, text: str) -> str:
        """Return *text* without where things lie on this machine."""
        return text.replace(self.plain.path, self.name).replace(f"{self.root}/", "")
