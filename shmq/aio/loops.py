"""
The event loops: what this package needs of asyncio (and of uvloop, whose documented calls are the same) and trio.

Nothing here knows of queues. A loop that is neither is told to use `fileno` or `alarm`.
"""

from __future__ import annotations

import abc
import asyncio
import collections
import contextlib
import functools
import sys
import time
import weakref
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")
_Given = ParamSpec("_Given")


class Flag(abc.ABC):
    """Set in its loop, and waited for there by one task at a time."""

    is_set = False

    def set(self) -> None:
        """Have whoever waits go on."""
        self.is_set = True
        self._wake()

    def clear(self) -> None:
        """Have the next wait be one."""
        self.is_set = False

    @abc.abstractmethod
    def _wake(self) -> None:
        """Have the task that waits go on."""

    @abc.abstractmethod
    async def _wait(self, seconds: float | None) -> None:
        """Until `_wake`, or so many seconds have passed."""

    async def wait(self, until: float | None) -> None:
        """Wait until it is set, or until that moment of the monotonic clock."""
        if not self.is_set:
            await self._wait(None if until is None else max(until - time.monotonic(), 0.0))


class Loop(abc.ABC):
    """One running loop. There is one of these for each, as long as a handle has it."""

    def __init__(self) -> None:
        """Nothing is to be told to it."""
        self._rung: collections.deque[Callable[[], None]] = collections.deque()
        self._is_told = False

    def tell(self, call: Callable[[], None]) -> None:
        """Have that called in the loop, soon; from any thread. One message to the loop is under way at a time."""
        self._rung.append(call)
        if not self._is_told:
            self._is_told = True
            with contextlib.suppress(RuntimeError):  # the loop is over, and with it who waited
                self._post()

    def _deliver(self) -> None:
        self._is_told = False  # first: what is rung from now on needs another message
        try:
            while self._rung:
                self._rung.popleft()()
        finally:
            if self._rung and not self._is_told:  # one of them raised
                self._is_told = True
                self._post()

    @abc.abstractmethod
    def _post(self) -> None:
        """Have `_deliver` called in the loop."""

    @abc.abstractmethod
    def is_here(self) -> bool:
        """Whether it is what runs."""

    @abc.abstractmethod
    def flag(self) -> Flag:
        """A flag in it."""

    @abc.abstractmethod
    async def give_way(self, *, must: bool) -> None:
        """Let others run, if that *must* be, or is the custom before each call; a cancelled task ends here."""

    @abc.abstractmethod
    async def call(self, call: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        """What *call* answers in another thread. It goes on when the task is cancelled."""

    @abc.abstractmethod
    async def open(self, call: Callable[[], _Result], close: Callable[[_Result], object]) -> _Result:
        """
        What *call* opens in another thread. A task that is cancelled ends when that has, and it is closed again.

        So what can be open once, a consumer's name, is free for whoever was told.
        """

    async def end(self, call: Callable[[], None]) -> None:
        """Likewise, of what a task that was cancelled does at its end."""
        await self.call(call)


class _AsyncioFlag(Flag):
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._future: asyncio.Future[None] | None = None

    def _wake(self) -> None:
        future = self._future
        if future is not None and not future.done():
            future.set_result(None)

    async def _wait(self, seconds: float | None) -> None:
        self._future = self._loop.create_future()
        timer = None if seconds is None else self._loop.call_later(seconds, self._wake)
        try:
            await self._future
        finally:
            self._future = None
            if timer is not None:
                timer.cancel()


class _Asyncio(Loop):
    def __init__(self, native: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._native = native

    def _post(self) -> None:
        self._native.call_soon_threadsafe(self._deliver)

    def is_here(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._native
        except RuntimeError:
            return False

    def flag(self) -> Flag:
        return _AsyncioFlag(self._native)

    async def give_way(self, *, must: bool) -> None:
        if must:
            await asyncio.sleep(0)

    async def call(self, call: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        work = functools.partial(call, *given, **named)
        return await asyncio.shield(self._native.run_in_executor(None, work))

    async def open(self, call: Callable[[], _Result], close: Callable[[_Result], object]) -> _Result:
        opening = self._native.run_in_executor(None, call)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            while not opening.done():  # cancelled once more meanwhile: that is told, too, when it is over
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait({opening})
            if not opening.cancelled() and opening.exception() is None:
                close(opening.result())
            raise


class _TrioFlag(Flag):
    def __init__(self, trio: Any) -> None:
        self._trio = trio
        self._event: Any = None

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()

    async def _wait(self, seconds: float | None) -> None:
        self._event = self._trio.Event()
        try:
            with self._trio.move_on_after(float("inf") if seconds is None else seconds):
                await self._event.wait()
        finally:
            self._event = None


class _Trio(Loop):
    def __init__(self, trio: Any, token: Any) -> None:
        super().__init__()
        self._trio = trio
        self._token = token

    def _post(self) -> None:
        self._token.run_sync_soon(self._deliver)

    def is_here(self) -> bool:
        try:
            return self._trio.lowlevel.current_trio_token() is self._token
        except RuntimeError:
            return False

    def flag(self) -> Flag:
        return _TrioFlag(self._trio)

    async def give_way(self, *, must: bool) -> None:  # noqa: ARG002  # the custom of trio: before each call, and not after
        await self._trio.lowlevel.checkpoint()

    async def call(self, call: Callable[_Given, _Result], /, *given: _Given.args, **named: _Given.kwargs) -> _Result:
        work = functools.partial(call, *given, **named)
        return await self._trio.to_thread.run_sync(work, abandon_on_cancel=True)  # type: ignore[no-any-return]

    async def open(self, call: Callable[[], _Result], close: Callable[[_Result], object]) -> _Result:
        await self._trio.lowlevel.checkpoint_if_cancelled()
        made: _Result = await self._trio.to_thread.run_sync(call)  # which ends before the task does
        try:
            await self._trio.lowlevel.checkpoint_if_cancelled()
        except BaseException:
            close(made)
            raise
        return made

    async def end(self, call: Callable[[], None]) -> None:
        with self._trio.CancelScope(shield=True):
            await self.call(call)


_known: weakref.WeakValueDictionary[int, Loop] = weakref.WeakValueDictionary()
"""By the id of the loop, which each of these keeps."""


def current() -> Loop:
    """
    The loop that runs here.

    Raises:
        RuntimeError: none does, or one of another kind.
    """
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        token = trio.lowlevel.current_trio_token()
        return _known.get(id(token)) or _known.setdefault(id(token), _Trio(trio, token))
    try:
        native = asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "shmq.aio is for coroutines of asyncio, uvloop or trio, and no such loop runs here; for other loops there "
            "are fileno() and alarm() of a consumer"
        ) from None
    return _known.get(id(native)) or _known.setdefault(id(native), _Asyncio(native))
