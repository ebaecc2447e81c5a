"""What the calls of Chronicle's RFC do, each for the service that its meta-data names."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from shmq.formats import chronicle
from shmq.net import names, rights, uri, wires
from shmq.net.channels import Appender, Channels, Tailer, agrees
from shmq.net.refusals import ILLEGAL, NOT_FOUND, Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shmq.net.log import Tail
    from shmq.net.opened import Opened
    from shmq.net.peer import Peer
    from shmq.net.routes import Route
    from shmq.net.service import Service
    from shmq.net.uri import Uri

_LOOK, _LOOK_MOST = 0.01, 0.1
"""Seconds between two looks at a queue of which nobody says when something comes: at first, and at last."""
_INDEX_MOST = (1 << 63) - 1


class Verbs:
    """Those of one connection."""

    def __init__(self, service: Service, peer: Peer) -> None:
        """No channels yet."""
        self._service = service
        self._peer = peer
        self._channels = Channels(service.limits)

    async def close(self) -> None:
        """Let go of what they use."""
        for each in self._channels.clear():
            await self._part(each)

    async def _part(self, channel: Appender | Tailer) -> None:
        """It is forgotten: let go of its queue."""
        try:
            if isinstance(channel, Tailer):
                await self._service.run(channel.tail.close)
        finally:
            self._service.let_go(channel.opened)

    async def _is_there(self, channel: Appender | Tailer) -> bool:
        """Whether its queue is there still; else it is forgotten."""
        if channel.opened.is_there():
            return True
        if self._channels.forget(channel):
            await self._part(channel)
        return False

    def name_of(self, route: Route) -> str:
        """Return the name of the queue that a call is for, as far as that is known."""
        with contextlib.suppress(Refused):
            if route.cid is not None:
                return self._channels.find(route.cid).uri.name
        return ""

    def line_of(self, route: Route) -> object:
        """Return what calls have in common that are done in order: all submits to a queue, or all calls of a tailer."""
        cid = route.cid if route.cid is not None or route.uri is None else route.uri.cid
        if cid is None:
            return route.uri and (route.uri.name, route.uri.view)
        with contextlib.suppress(Refused):
            found = self._channels.find(cid)
            if isinstance(found, Appender):
                return found.uri.name, uri.APPENDER
        return cid

    async def call(self, route: Route, name: str, value: Any) -> dict[str, Any] | None:
        """
        Return the reply to a call, None if there is none to be.

        Raises:
            Refused: it cannot be done, and why; others: see `refusals.of`.
        """
        if route.system:
            return self._system(name, value)
        if name == "hasNext":
            return await self._has_next(await self._tailer(route), _arguments(name, value))
        if name == "lastWrittenIndex":
            return {"reply": await self._last(route)}
        if name in {"createAppender", "createTailer"}:
            asked = route.uri
            if route.cid is not None or asked is None or asked.view != uri.QUEUE:
                raise Refused(ILLEGAL, f"{name} is for a queue: csp: //host/NAME#Queue")
            if name == "createAppender":
                return await self._create_appender(asked, _arguments(name, value))
            return await self._create_tailer(asked, _arguments(name, value))
        raise Refused(ILLEGAL, f"no service has the call {name[:100]!r}")

    # ---- the session itself
    def _system(self, name: str, value: Any) -> dict[str, Any] | None:
        if name == "heartbeat":
            return {"heartbeatReply": value if wires.whole(value) is not None else 0}
        if name == "onClientClosing":
            return {"onClosingReply": ""}
        if name in {"userid", "bye", "heartbeatReply"}:
            return None
        raise Refused(ILLEGAL, f"the call {name[:100]!r} has no meta-data before it, and no session has it")

    # ---- channels
    def _allow(self, call: str, asked: Uri) -> None:
        """A queue that one may do nothing with is not there for one."""
        right, queue = rights.RFC[call], "/".join(names.parts_of(asked.name))
        if self._peer.may(right, queue):
            return
        if any(self._peer.may(each, queue) for each in rights.ABOUT):
            raise Refused(NOT_FOUND, f"{call} needs the right {right!r} to {asked.name[:200]!r}, and you have it not")
        raise Refused(NOT_FOUND, f"there is no queue {asked.name[:200]!r}")

    async def _create_appender(self, asked: Uri, given: Mapping[str, Any]) -> dict[str, Any]:
        cid, _ = await self._open_appender(asked, sync=given.get("sync") is True)
        return {"reply": chronicle.Typed("queue-appender", {"csp": asked.of(uri.APPENDER), "cid": cid})}

    async def _open_appender(self, asked: Uri, *, sync: bool) -> tuple[int, Appender]:
        self._allow("createAppender", asked)
        found = self._channels.appender(asked.name, sync=sync)
        if found is not None and await self._is_there(found[1]):
            return found
        opened = await self._service.held(asked.name, make=self._service.create)
        appender = Appender(asked, opened, self._service.writer(opened), sync)
        found = self._channels.appender(asked.name, sync=sync)
        if found is not None:
            self._service.let_go(opened)
            return found
        return await self._added(appender), appender

    async def _added(self, channel: Appender | Tailer, *, unnumbered: bool = False) -> int:
        """
        Return its number; what it holds is let go of when it cannot have one.

        Raises:
            Refused: the connection has as many as it may have.
        """
        try:
            return self._channels.add(channel, unnumbered=unnumbered)
        except Refused:
            await self._part(channel)
            raise

    async def _create_tailer(self, asked: Uri, given: Mapping[str, Any]) -> dict[str, Any]:
        for each in self._channels.forget_idle(asyncio.get_running_loop().time()):
            await self._part(each)
        tailer = await self._open_tailer(asked, raw=given.get("binary") is True)
        cid = await self._added(tailer)
        first, end = await self._service.run(tailer.opened.log.span)
        named = {"csp": asked.of(uri.TAILER), "cid": cid, "start": first, "end": end}
        return {"reply": chronicle.Typed("queue-tailer", named)}

    async def _open_tailer(self, asked: Uri, *, raw: bool = False) -> Tailer:
        self._allow("createTailer", asked)
        make = self._service.create and self._peer.may(rights.APPEND, "/".join(names.parts_of(asked.name)))
        opened = await self._service.held(asked.name, make=make)
        return Tailer(asked, opened, opened.log.tail(), raw, asyncio.get_running_loop().time())

    async def _numbered(self, route: Route) -> Appender | Tailer | None:
        """
        Return the channel whose number the route has, in whatever way.

        Raises:
            Refused: there is none, or its queue is not there any more, and so it is forgotten.
        """
        cid = route.cid if route.cid is not None or route.uri is None else route.uri.cid
        if cid is None:
            return None
        found = self._channels.find(cid)
        if route.uri is not None and not agrees(found, route.uri):
            raise Refused(ILLEGAL, f"cid {cid} is not what the csp beside it names")
        if not await self._is_there(found):
            name = found.uri.name[:200]
            raise Refused(
                NOT_FOUND, f"there is no queue {name!r} any more, or it is another one; cid {cid} is unknown now"
            )
        return found

    async def appender(self, route: Route) -> Appender:
        """
        Return what the submits behind that meta-data go to.

        Raises:
            Refused: it names no appender; others: see `refusals.of`.
        """
        found = await self._numbered(route)
        if found is None and route.uri is not None and route.uri.view == uri.APPENDER:
            _, found = await self._open_appender(route.uri, sync=False)
        if not isinstance(found, Appender):
            raise Refused(ILLEGAL, "submit is for an appender: csp: //host/NAME#appender, or its cid")
        self._allow("submit", found.uri)
        return found

    async def _tailer(self, route: Route) -> Tailer:
        found = await self._numbered(route)
        if found is None and route.uri is not None and route.uri.view == uri.TAILER:
            found = self._channels.tailer(route.uri.name)
            if found is None or not await self._is_there(found):
                found = await self._open_tailer(route.uri)
                await self._added(found, unnumbered=True)
        if not isinstance(found, Tailer):
            raise Refused(ILLEGAL, "hasNext is for a tailer: csp: //host/NAME#tailer/CID, or its cid")
        self._allow("hasNext", found.uri)
        found.used = asyncio.get_running_loop().time()
        return found

    async def _last(self, route: Route) -> int:
        if route.cid is None and route.uri is not None and route.uri.view == uri.QUEUE:
            self._allow("lastWrittenIndex", route.uri)
            opened = await self._service.held(route.uri.name)
            try:
                return await self._service.run(opened.log.last)
            finally:
                self._service.let_go(opened)
        return (await self.appender(route)).last

    # ---- reading
    async def _has_next(self, tailer: Tailer, given: Mapping[str, Any]) -> dict[str, Any]:
        limits = self._service.limits
        index = _whole(given, "index", None, -_INDEX_MOST - 1, _INDEX_MOST)
        count = _whole(given, "batch", 1, -_INDEX_MOST, _INDEX_MOST) or 1
        timeout = _whole(given, "timeout", 0, -_INDEX_MOST, _INDEX_MOST) or 0
        read = _Read(tailer.tail, index, min(max(count, 1), limits.batch), limits.batch_bytes, raw=tailer.raw)
        begin, values = await self._service.run(read)
        if not values and timeout > 0:
            begin, values = await self._wait(tailer.opened, read, min(timeout / 1000, limits.wait))
        tailer.used = asyncio.get_running_loop().time()
        return {"index": begin, "reply": values}

    async def _wait(self, opened: Opened, read: _Read, seconds: float) -> tuple[int, list[Any]]:
        """Read once there is something, or when the time is up."""
        loop = asyncio.get_running_loop()
        due, pause = loop.time() + seconds, _LOOK
        rung = asyncio.Event()

        def ring() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is over
                loop.call_soon_threadsafe(rung.set)

        self._service.waiting.add(rung)
        opened.leaving.add(rung.set)
        try:
            while True:
                rung.clear()
                if not opened.is_there():
                    raise names.not_found(opened.name)
                begin, values, armed = await self._service.run(read.watched, ring)
                left = due - loop.time()
                if values or left <= 0 or self._service.ending:
                    return begin, values
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(left if armed else min(left, pause)):
                        await rung.wait()
                pause = min(2 * pause, _LOOK_MOST)
        finally:
            self._service.waiting.discard(rung)
            opened.leaving.discard(rung.set)
            await self._service.run(read.tail.disarm)


class _Read:
    """What one request wants to read."""

    def __init__(self, tail: Tail, index: int | None, count: int, nbytes: int, *, raw: bool) -> None:
        self.tail = tail
        self._asked = (index, count, nbytes)
        self._raw = raw

    def __call__(self) -> tuple[int, list[Any]]:
        return self.tail.read(*self._asked, raw=self._raw)

    def watched(self, ring: Any) -> tuple[int, list[Any], bool]:
        """Read; and if there is nothing, have *ring* called when there may be."""
        self.tail.watch(ring)
        begin, values = self()
        return begin, values, not values and self.tail.arm(ring)


def _arguments(name: str, value: Any) -> Mapping[str, Any]:
    """Return what a call was called with: a map, or nothing at all (an empty block of BinaryWire may be a list)."""
    if isinstance(value, dict):
        return {str(key): each for key, each in value.items()}
    if value is None or value in ([], ""):
        return {}
    raise Refused(ILLEGAL, f"{name} is called with a map")


def _whole(given: Mapping[str, Any], key: str, default: int | None, least: int, most: int) -> int | None:
    value = given.get(key)
    if value is None:
        return default
    found = wires.whole(value)
    if found is None or not least <= found <= most:
        raise Refused(ILLEGAL, f"{key} is a whole number of 64 bits")
    return found
