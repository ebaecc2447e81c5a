"""Who is there, or may come back: the clients of a service, and the queues that they share."""

from __future__ import annotations

import asyncio
import functools
import weakref
from typing import TYPE_CHECKING

from shmq import errors
from shmq.net.shmq1.client import Client
from shmq.net.shmq1.shared import OpenQueue

if TYPE_CHECKING:
    from shmq.net.opened import Opened
    from shmq.net.service import Service

_SESSIONS = 8
"""So many times the connections that a server has: a session outlives its connection by the grace."""
_known: weakref.WeakKeyDictionary[Service, Hub] = weakref.WeakKeyDictionary()


class Hub:
    """
    What a service has for our own clients, in its loop.

    Attributes:
        clients: by the path of their queue and their session.
    """

    def __init__(self) -> None:
        """None yet."""
        self.clients: dict[tuple[str, bytes], Client] = {}
        self._queues: dict[Opened, OpenQueue] = {}
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, service: Service) -> Hub:
        """Return that service's."""
        return _known.setdefault(service, cls())

    async def open(self, service: Service, name: str, *, make: bool) -> OpenQueue:
        """Return the queue of that name, held; with *make*, made if there is none. Raises what `Service.hold` does."""
        if self._watch is None:
            self._watch = asyncio.create_task(self._end_with(service))
        opened = await service.held(name, make=make, ours=True)
        found = self._queues.get(opened)
        if found is None:
            assert opened.queue is not None  # noqa: S101  # it is one of ours
            found = self._queues[opened] = OpenQueue(service, opened, opened.queue)
            opened.closing.append(functools.partial(self._queues.pop, opened))
        return found

    async def _end_with(self, service: Service) -> None:
        """When the server ends, nobody waits any longer; what is not answered by then is asked of the next one."""
        end = asyncio.Event()
        service.waiting.add(end)
        try:
            await end.wait()
        finally:
            service.waiting.discard(end)
        for client in list(self.clients.values()):
            await client.end(for_good=False)

    def client(self, service: Service, queue: OpenQueue, session: bytes, name: str | None) -> tuple[Client, bool]:
        """
        Return the client of that session, and whether it was there before.

        It holds *queue* from now on, until its end; the caller does not any more.

        Raises:
            TooMany: there are as many as there may be.
        """
        key = (queue.plain.path, session)
        known = self.clients.get(key)
        if known is not None and known.queue is queue:
            service.let_go(queue.opened)
            return known, True
        if known is not None:
            known.leave()
        elif len(self.clients) >= _SESSIONS * service.limits.peers:
            service.let_go(queue.opened)
            raise errors.TooMany("the server has as many clients as it may have, with those that may come back")
        queue.busy.add(session)

        def gone() -> None:
            queue.busy.discard(session)
            if self.clients.get(key) is made:
                del self.clients[key]

        made = self.clients[key] = Client(service, queue, session, name, gone)
        return made, False
