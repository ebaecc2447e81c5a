"""What all clients of a server share: its queues as the loop uses them, and who is there or may come back."""

from __future__ import annotations

import asyncio
import os
import weakref
from typing import TYPE_CHECKING, Any

import shmq
from shmq.net.shmq1.slots import Slots

if TYPE_CHECKING:
    from shmq.net.service import Service
    from shmq.net.shmq1.client import Client

_known: weakref.WeakKeyDictionary[Service, Hub] = weakref.WeakKeyDictionary()


class OpenQueue:
    """
    One queue, for all that use it in the loop.

    Attributes:
        plain, awaited: the queue, and the same for the tasks of the loop.
        name: what the clients call it.
        warm: whether something was put here already, after which a put costs microseconds.
        warming: held by the one client that puts first, so that they do not look at all there is side by side.
    """

    def __init__(self, service: Service, plain: shmq.Queue[Any]) -> None:
        """In the loop."""
        self.plain = plain
        self.awaited = shmq.aio.Queue(plain)
        self.name = os.path.relpath(plain.path, service.root)  # however a client has written it
        self.root = service.root
        self.warm = False
        self.warming = asyncio.Lock()
        self.clients: dict[bytes, Client] = {}
        self._slots: Slots | None = None

    def slots(self) -> Slots:
        """Return the table of those that put; opened when it is first needed. May block."""
        if self._slots is None:
            self._slots = Slots(self.root, self.name, self.plain.adopted)
        return self._slots

    def said(self, text: str) -> str:
        """Return *text* without where things lie on this machine."""
        return text.replace(self.plain.path, self.name).replace(f"{self.root}/", "")


class Hub:
    """The open queues of a service, in its loop."""

    def __init__(self) -> None:
        """None yet."""
        self.queues: dict[str, OpenQueue] = {}
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, service: Service) -> Hub:
        """Return that service's."""
        return _known.setdefault(service, cls())

    async def open(self, service: Service, name: str, *, make: bool) -> OpenQueue:
        """Return the queue of that name, open; with *make*, made if there is none. Raises what `Service.queue` does."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_with(service))
        if make:
            await service.run(service.log, name, make=True)
        plain = await service.run(service.queue, name)
        found = self.queues.get(plain.path)
        if found is None or found.plain is not plain:
            found = self.queues[plain.path] = OpenQueue(service, plain)
        return found

    async def _end_with(self, service: Service) -> None:
        """When the server ends, nobody waits any longer; what is not answered by then is asked of the next one."""
        end = asyncio.Event()
        service.waiting.add(end)
        try:
            await end.wait()
        finally:
            service.waiting.discard(end)
        for queue in list(self.queues.values()):
            for client in list(queue.clients.values()):
                await client.end(for_good=False)
