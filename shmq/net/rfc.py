"""
The services of Chronicle's RFC over one connection: createAppender, submit, createTailer, hasNext, lastWrittenIndex.

A frame of meta-data says whom the calls behind it are for (csp or cid) and what their replies are to be known by (tid);
a frame of data is a call. Calls for one channel are done in order, and answered in order.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from shmq.net import refusals, wires
from shmq.net.frames import framed
from shmq.net.lines import Lines
from shmq.net.refusals import ILLEGAL, Refused
from shmq.net.routes import SYSTEM, Route, route_of
from shmq.net.verbs import Verbs

if TYPE_CHECKING:
    import collections
    from collections.abc import Callable

    from shmq.net.channels import Appender
    from shmq.net.frames import Frame
    from shmq.net.peer import Peer
    from shmq.net.service import Service
    from shmq.net.wires import Wire

_HERE_MOST = 1 << 12
"""Bytes of a call that is read in the loop, and of a reply that is written there."""
_TOGETHER = 1000
"""Submits of one channel that are under way before the first is answered."""
_IN_ONE_GO = 32
"""Calls of one channel that are read before others have their turn."""
_NO_TID = -1
_SYSTEM_TID = 0


class Job(NamedTuple):
    """A call that has come."""

    route: Route
    body: bytes
    more: bool
    wire: Wire


UnderWay = tuple[Job, "Appender", "asyncio.Future[int]"]
"""A submit, what it is for, and what becomes of it."""


class Session:
    """See `session.Session`."""

    def __init__(self, service: Service, peer: Peer, send: Callable[[bytes], None]) -> None:
        """As there."""
        self._service = service
        self._peer = peer
        self._send = send
        self._route = SYSTEM
        self._verbs = Verbs(service, peer)
        self._lines: Lines[Job] = Lines(self._work)

    def received(self, frame: Frame) -> None:
        """As there."""
        wire = wires.of(frame.body)
        if frame.meta:
            self._route = route_of(frame.body, wire) if frame.body else SYSTEM
            return
        self._peer.begin(len(frame.body))
        self._lines.add(self._verbs.line_of(self._route), Job(self._route, frame.body, frame.more, wire))

    async def closed(self) -> None:
        """As there."""
        await self._lines.close()
        await self._verbs.close()

    # ---- one line of calls
    async def _work(self, jobs: collections.deque[Job]) -> None:
        """Answer the calls of a line; submits that stand together are appended together."""
        under_way: list[UnderWay] = []
        while jobs:
            job, name = jobs.popleft(), ""
            try:
                name, value = await self._read(job)
                if name == "submit":
                    appender = await self._verbs.appender(job.route)
                    under_way.append((job, appender, appender.writer.put(value, len(job.body))))
                    if len(under_way) % _IN_ONE_GO == 0:
                        await asyncio.sleep(0)
                    if len(under_way) < _TOGETHER:
                        continue
                await self._settle(under_way)
                if name != "submit":
                    reply = await self._verbs.call(job.route, name, value)
                    await self._answer(job, reply, system=job.route.system)
            except Exception as problem:  # noqa: BLE001  # whatever it is, the peer is told, and goes on
                await self._settle(under_way)
                await self._refuse(job, problem, one_way=name == "submit")
        await self._settle(under_way)

    async def _read(self, job: Job) -> tuple[str, Any]:
        """Return the call that stands in a document."""
        await self._peer.room.wait()
        if job.route.problem:
            raise Refused(ILLEGAL, job.route.problem)
        if len(job.body) > _HERE_MOST:
            document = await self._service.run(job.wire.read, job.body)
        else:
            document = job.wire.read(job.body)
        if not isinstance(document, dict) or len(document) != 1:
            raise Refused(ILLEGAL, "a data document is one call: its name, a colon, and what it is called with")
        ((name, value),) = document.items()
        return str(name), value

    async def _settle(self, under_way: list[UnderWay]) -> None:
        """Answer the submits, in their order."""
        if not under_way:
            return
        done, under_way[:] = under_way[:], []
        await asyncio.wait([future for _, _, future in done])
        syncing = next((appender for _, appender, _ in done if appender.sync), None)
        late = None if syncing is None else await self._synced(syncing)
        for job, appender, future in done:
            problem = future.exception() or (late if appender.sync else None)
            if problem is None:
                appender.last = future.result()
                await self._answer(job, {"index": appender.last}, one_way=True)
            else:
                await self._refuse(job, problem, one_way=True)

    @staticmethod
    async def _synced(appender: Appender) -> Exception | None:
        """Return when what was appended is on the disk, or why that is not known."""
        try:
            await appender.writer.sync()
        except Exception as problem:  # noqa: BLE001  # the peer is told, in words for it
            return problem
        return None

    # ---- replies
    async def _answer(
        self, job: Job, reply: dict[str, Any] | None, *, one_way: bool = False, system: bool = False
    ) -> None:
        """Send a reply; None is no reply. A submit without a tid is *one_way* and gets none."""
        tid = _SYSTEM_TID if system else job.route.tid
        if reply is None or (tid is None and one_way):
            self._peer.end(len(job.body))
            return
        if tid is None:
            raise Refused(ILLEGAL, "a call other than submit has a tid in the meta-data before it")
        body = await self._written(job.wire, reply)
        self._send(framed(job.wire.write({"tid": tid}), meta=True) + framed(body, more=job.more))
        self._peer.end(len(job.body))

    async def _written(self, wire: Wire, reply: dict[str, Any]) -> bytes:
        large = _size_of(reply) > _HERE_MOST
        body: bytes = await self._service.run(wire.write, reply) if large else wire.write(reply)
        if len(body) > self._service.limits.frame:
            limit = self._service.limits.frame
            raise Refused(ILLEGAL, f"the message is larger than a frame of {limit} bytes; it can only be read locally")
        return body

    async def _refuse(self, job: Job, problem: BaseException, *, one_way: bool = False) -> None:
        if not isinstance(problem, Exception):
            problem = RuntimeError(str(problem))
        refusal = refusals.of(problem, job.route.uri.name if job.route.uri else self._verbs.name_of(job.route))
        tid = _SYSTEM_TID if job.route.system else job.route.tid
        if tid is not None or not one_way:
            meta = job.wire.write({"tid": _NO_TID if tid is None else tid})
            self._send(framed(meta, meta=True) + framed(job.wire.write(refusal.document()), more=job.more))
        self._peer.end(len(job.body))


def _size_of(reply: dict[str, Any]) -> int:
    """Return about how many bytes a reply has."""
    found = reply.get("reply")
    if not isinstance(found, list):
        return 0
    return sum(len(each) if isinstance(each, (bytes, str)) else 100 for each in found)
