"""One connection that speaks our own protocol: who is there, and on to what it had before it came."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from shmq import errors
from shmq.net import names, packing, rights
from shmq.net.frames import framed
from shmq.net.shmq1.hub import Hub

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.frames import Frame
    from shmq.net.peer import Peer
    from shmq.net.service import Service
    from shmq.net.shmq1.client import Client

_SESSION_BYTES = 16


class Session:
    """In the loop."""

    def __init__(self, service: Service, peer: Peer, send: Callable[[bytes], None]) -> None:
        """It waits for a hello."""
        self._service = service
        self._peer = peer
        self._send = send
        self._client: Client | None = None
        self._queue = ""
        self._greeting: asyncio.Task[None] | None = None
        self._sizes: dict[int, int] = {}
        """Of requests that are not answered yet: how many bytes each has."""

    # ---- what a client needs
    def say(self, message: list[Any]) -> None:
        """Send that."""
        size = self._sizes.pop(message[1], None)
        self._send(framed(packing.encode(message)))
        if size is not None:
            self._peer.end(size)
        if message[0] == "over":
            self._forget()

    def _forget(self) -> None:
        """Nothing that was asked is answered here any more."""
        for size in self._sizes.values():
            self._peer.end(size)
        self._sizes.clear()

    def may(self, verb: str, queue: str | None = None) -> bool:
        """Whether the peer may do that with its queue, or with another one."""
        return self._peer.may(verb, self._queue if queue is None else queue)

    @property
    def peer(self) -> str:
        """Who is there: a process of this machine, or an address."""
        return self._peer.name

    async def room(self) -> None:
        """Return when the peer reads."""
        await self._peer.room.wait()

    # ---- what the connection calls
    def received(self, frame: Frame) -> None:
        """Take one frame, without blocking."""
        tid = 0
        try:
            verb, tid, *rest = packing.decode(frame.body)
            if tid and tid not in self._sizes:
                self._sizes[tid] = len(frame.body)
                self._peer.begin(len(frame.body))
            if verb == "hello":
                self._greet(tid, rest)
            elif verb == "bye":
                self._greeting = asyncio.create_task(self._part(tid))
            elif self._client is None:
                raise packing.BadRequest(f"{verb[:40]!r} before hello")
            elif self._client.ended:
                self._client.refuse(verb, tid)
                self.say(["over", 0])
            else:
                self._client.asked(verb, tid, rest)
        except Exception as problem:  # noqa: BLE001  # the peer's own doing; the connection stays
            self._refuse(tid, problem)

    def _refuse(self, tid: int, problem: Exception) -> None:
        if isinstance(problem, (TypeError, ValueError)) and not isinstance(problem, packing.BadRequest):
            problem = packing.BadRequest("a request that is none: see docs/shmq1.md for what each verb is asked with")
        said = str if self._client is None else self._client.queue.said
        self.say(packing.error(tid, problem, said))

    def _greet(self, tid: int, rest: list[Any]) -> None:
        if self._greeting is not None:
            raise packing.BadRequest("a second hello")
        told = rest[0] if rest and isinstance(rest[0], dict) else {}
        self._greeting = asyncio.create_task(self._hello(tid, told))

    async def _hello(self, tid: int, told: dict[str, Any]) -> None:
        try:
            self.say(["ok", tid, await self._answer(told)])
        except errors.ShmqError as problem:
            self.say(packing.error(tid, problem, self._fit))
        except packing.BadRequest as problem:
            self.say(packing.error(tid, problem))
        except OSError:
            self.say(packing.error(tid, errors.ShmqError(f"the server cannot open {self._queue!r} now")))

    def _fit(self, text: str) -> str:
        """Without a path of this machine."""
        return text.replace(f"{self._service.root}/", "")

    async def _answer(self, told: dict[str, Any]) -> dict[str, Any]:
        session, name, again = _checked(told)
        self._queue = "/".join(names.parts_of(told["queue"]))  # as rights have it
        if not any(map(self.may, rights.ABOUT)):
            raise errors.NotFound(f"there is no queue {self._queue!r}")
        make = self._service.create and self.may(rights.APPEND)
        hub = Hub.of(self._service)
        queue = await hub.open(self._service, self._queue, make=make)
        self._client, was_here = hub.client(self._service, queue, session, name)
        self._client.attach(self)
        options = queue.plain.options
        return {
            "version": packing.VERSION,
            "resumed": again and was_here,
            "id": queue.plain.id,
            "codec": options.codec,
            "durability": options.durability.kind,
            "frame": self._service.limits.frame,
            "grace": packing.GRACE,
            "clock": packing.boottime_ns(),
        }

    async def _part(self, tid: int) -> None:
        if self._client is not None:
            await self._client.end(for_good=True)
        self.say(["ok", tid, None])

    async def closed(self) -> None:
        """The connection is gone; its client may come back."""
        self._forget()
        if self._client is not None:
            self._client.detach(self)
            if self._service.ending:
                await self._client.end(for_good=False)


def _checked(told: dict[str, Any]) -> tuple[bytes, str | None, bool]:
    """
    Session, the client's name, and whether it was here before.

    Raises:
        BadRequest: it is no hello.
        BadFormat: it is one of another version, or asks for what this one has not.
    """
    version, features = told.get("version"), told.get("features") or []
    if version != packing.VERSION:
        raise errors.BadFormat(f"version {version!r} of Shmq1 is unknown here; this server speaks {packing.VERSION}")
    if features:
        raise errors.BadFormat(f"this server does not know what the client asks for: {', '.join(map(str, features))}")
    session, name, queue = told.get("session"), told.get("client"), told.get("queue")
    if not isinstance(session, bytes) or len(session) != _SESSION_BYTES or not isinstance(queue, str):
        raise packing.BadRequest("a hello without session and queue")
    if name is not None and not (isinstance(name, str) and 0 < len(name.encode()) <= 255):
        raise packing.BadRequest("a client's name of 1 to 255 bytes is wanted")
    return session, name, bool(told.get("again"))
