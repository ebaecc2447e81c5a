"""
One connection: bytes become frames, frames go to the session that is spoken, and nothing is read from a peer that has
too much under way, does not read its replies, or sends too fast. What is no frame, and silence, end it with a `bye`.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import importlib
import importlib.util
from typing import TYPE_CHECKING, Protocol, cast

from shmq.net import hello, rfc, wires
from shmq.net.frames import BadFrame, Frame, Frames
from shmq.net.peer import Peer

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.net.peer import Rights
    from shmq.net.service import Service
    from shmq.net.session import Session

_SECOND = 1.0
_IN_ONE_GO = 64
"""Frames of one peer that are taken before others have their turn."""
_LINGER = 5.0
"""Seconds for a peer to take what it is still sent at the end."""

_SESSIONS: dict[str, Callable[[Service, Peer, Callable[[bytes], None]], Session]] = dict.fromkeys(
    wires.BY_NAME, rfc.Session
)
if importlib.util.find_spec("shmq.net.shmq1"):
    _SESSIONS = {"Shmq1": importlib.import_module("shmq.net.shmq1").Session, **_SESSIONS}


class Host(Protocol):
    """What has connections."""

    service: Service

    def admit(self, connection: Connection, transport: asyncio.Transport) -> tuple[str, Rights | None]:
        """
        Return who is at the other end, and what it may do; None: what its token says.

        Raises:
            PermissionError: nobody who may connect, or there are too many; the text is for the peer.
        """

    def rights(self, token: str) -> Rights | None:
        """Return what a token allows."""

    def gone(self, connection: Connection) -> None:
        """A connection has ended."""


class Connection(asyncio.Protocol):
    """See the head of this file. Used in the loop."""

    def __init__(self, host: Host) -> None:
        """Not connected yet."""
        self._host = host
        self._service = host.service
        self._limits = host.service.limits
        self._loop = asyncio.get_running_loop()
        self._frames = Frames(self._limits.frame)
        self._waiting: collections.deque[Frame] = collections.deque()
        self._session: Session | None = None
        self._greets = True
        """Whether a greeting may still come."""
        self._like = b""
        """A body of the peer's, whose wire it is told in why it is left."""
        self._reads = True
        self._is_told = False
        self._ends = False
        """Whether the peer sends no more."""
        self._began = self._last = self._loop.time()
        self._half_since: float | None = None
        self._full_since: float | None = None
        self._closing_since: float | None = None
        self._window, self._taken = self._began, 0
        self._ending: asyncio.Task[None] | None = None
        self._quiet, self._lost = asyncio.Event(), asyncio.Event()
        """Nothing is under way; the transport is gone."""

    # ---- what the loop tells
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=self._limits.unsent)
        self.peer = Peer("", None, self._changed)
        try:
            name, rights = self._host.admit(self, self._transport)
        except PermissionError as refused:
            self.leave(str(refused))
            return
        self.peer.name, self.peer.rights = name, rights
        if rights is None:
            self._frames.limit = hello.MOST

    def data_received(self, data: bytes) -> None:
        """Cut them into frames."""
        if self._closing_since is not None:
            return
        self._last = self._loop.time()
        try:
            found = self._frames.feed(data)
        except BadFrame as bad:
            self.leave(str(bad))
            return
        if not self._frames.half:
            self._half_since = None
        elif found or self._half_since is None:
            self._half_since = self._last
        self._waiting.extend(found)
        self._pump()

    def eof_received(self) -> bool:
        """Answer what was asked; then it is over."""
        self._ends = True
        self._changed()
        return self._transport.get_extra_info("sslcontext") is None  # TLS has no half that stays open

    def pause_writing(self) -> None:
        """The peer leaves its replies unread: nothing more is read of it, or made for it."""
        self.peer.room.clear()
        self._full_since = self._loop.time()
        self._read(on=False)

    def resume_writing(self) -> None:
        """It reads again."""
        self._full_since = None
        self.peer.room.set()
        self._pump()

    def connection_lost(self, problem: Exception | None) -> None:  # noqa: ARG002  # it is over, whyever
        """Let go of everything."""
        self._closing_since = self._closing_since or self._loop.time()
        self._waiting.clear()
        self.peer.room.set()
        self._host.gone(self)
        if self._session is not None:
            self._ending = self._loop.create_task(self._session.closed())
        self._lost.set()

    # ---- frames
    def _changed(self) -> None:
        """Something was answered: look soon whether more can be taken."""
        if not self._is_told:
            self._is_told = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_told = False
        if not self.peer.requests:
            self._quiet.set()
        for _ in range(_IN_ONE_GO):
            if not self._waiting or self._is_blocked():
                break
            self._take(self._waiting.popleft())
        else:
            self._changed()
        if self._closing_since is not None:
            return
        if self._ends and not self._waiting and not self.peer.requests:
            self._close()
            return
        self._read(on=not self._waiting and self.peer.room.is_set())

    def _is_blocked(self) -> bool:
        peer, limits = self.peer, self._limits
        if self._closing_since is not None or not peer.room.is_set():
            return True
        if peer.requests >= limits.requests or peer.memory >= limits.memory:
            return True
        now = self._loop.time()
        if now - self._window >= _SECOND:
            self._window, self._taken = now, 0
        self._taken += 1
        if self._taken == limits.rate + 1:  # the first that has to wait
            self._loop.call_at(self._window + _SECOND, self._changed)
        return self._taken > limits.rate

    def _read(self, *, on: bool) -> None:
        if on == self._reads or self._transport.is_closing():
            return
        self._reads = on
        if on:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def _take(self, frame: Frame) -> None:
        if not frame.meta or frame.body:
            self._like = frame.body
        if self._greets and not frame.meta and (asked := hello.greeting(frame)):
            self._greet(frame, asked)
            return
        if self._greets and frame.meta and not frame.body:
            return  # for the session itself, as anything is before other meta-data
        if self.peer.rights is None:
            self.leave("a token is wanted, in the first document: header: { token: … }")
            return
        if frame.meta:
            self._greets = False
        if self._session is None:
            self._session = rfc.Session(self._service, self.peer, self._send)
        self._session.received(frame)

    def _greet(self, frame: Frame, asked: hello.Greeting) -> None:
        """Choose what is spoken from now on."""
        if self.peer.rights is None:
            self.peer.rights = None if asked.token is None else self._host.rights(asked.token)
            if self.peer.rights is None:
                self.leave("a token is wanted, and none that is known was shown")
                return
            self._frames.limit = self._limits.frame
        chosen, told = hello.answer(frame, asked, _SESSIONS)
        if self._session is None:
            self._session = _SESSIONS[chosen](self._service, self.peer, self._send)
            self._greets = isinstance(self._session, rfc.Session)
        self._send(told)

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    # ---- the end
    @property
    def is_open(self) -> bool:
        """Whether it has neither ended nor been left."""
        return self._closing_since is None

    @property
    def silent_since(self) -> float | None:
        """When it began, as long as nothing came of it that was taken; then None."""
        return self._began if self._session is None else None

    def leave(self, why: str) -> None:
        """Say why, and close; again does nothing."""
        if self._closing_since is None:
            self._send(hello.bye(why, self._like))
            self._close()

    def _close(self) -> None:
        self._closing_since = self._loop.time()
        self._transport.close()

    def tick(self, now: float) -> None:
        """Look at the clock: about once a second."""
        limits = self._limits
        if self._closing_since is not None:
            if now - self._closing_since > _LINGER:
                self._transport.abort()
        elif self._full_since is not None:
            if now - self._full_since > limits.half:
                self._transport.abort()  # a bye would wait behind what it does not read
                self._closing_since = now
        elif self._session is None and now - self._began > limits.hello:
            self.leave("nothing came in time")
        elif self._half_since is not None and self._reads and now - self._half_since > limits.half:
            self.leave("the rest of a frame did not come in time")
        elif now - max(self._last, self._began) > limits.idle and not self.peer.requests:
            self.leave("nothing came for a long time")

    async def finish(self, seconds: float) -> None:
        """Have what is under way answered, if that takes no longer than it may, and close; return when all is over."""
        self._read(on=False)
        self._waiting.clear()
        if self.peer.requests:
            self._quiet.clear()
            await _within(seconds, self._quiet)
        self.leave("the server ends")
        await _within(_LINGER, self._lost)
        self._transport.abort()
        await self._lost.wait()
        if self._ending is not None:
            await asyncio.gather(self._ending, return_exceptions=True)


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Wait for *event*, and no longer than so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
