"""A server: methods by name, and the threads that serve them. Any number of servers share one path."""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec, Self, TypeVar, overload

import shmq
from shmq.rpc.beside import Beside
from shmq.rpc.border import Packing
from shmq.rpc.methods import Methods
from shmq.rpc.places import GROUP, Place
from shmq.rpc.serving import Serving
from shmq.rpc.state import State

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")
_ATTEMPTS = 5


class Server:
    """
    Serves methods to the clients of a path, beside any number of other servers, which share the requests.

        server = shmq.rpc.Server("calc/")

        @server.method
        def add(a: int, b: int) -> int:
            return a + b

        server.serve()

    Args:
        path: a directory, made if absent, whose parent exists; or "shm:NAME", in shared memory, gone with its last
            user.
        threads: how many calls of plain functions run at a time. Coroutines and generators run beside them.
        trusted: unpickle what clients send, and pickle what msgspec does not know. Whoever may write into the directory
            can then run anything here.
        max_attempts: how often an at-least-once request is begun before it is a dead letter: it may kill its servers.
        wait: how it waits for requests, as `shmq.Queue.consumer`: "hybrid", "spin" or "sleep".
        options: of the queue of requests, where it is made: durability="sync" keeps them through a power cut.

    Attributes:
        path: where it serves.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        threads: int = 1,
        trusted: bool = False,
        max_attempts: int = _ATTEMPTS,
        wait: str = "hybrid",
        **options: Any,
    ) -> None:
        """Open it; nothing is served before `serve`."""
        for name, value in (("threads", threads), ("max_attempts", max_attempts)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}={value!r}: a whole number from 1 on is wanted")
        self._place = place = Place.of(path)
        self.path = place.path
        self._threads = threads
        self._wait = wait
        packing = Packing(trusted=bool(trusted))
        self._methods = Methods(place, packing)
        self._state = State(self._methods, packing, max_attempts)
        self._requests = place.requests(create=True, options=options)
        self._serving = threading.Lock()
        self._inboxes: list[shmq.GroupConsumer[bytes]] = []
        self._ended = threading.Event()
        self._closed = False

    # ---- methods
    @overload
    def method(self, function: Callable[_Given, _Found], /) -> Callable[_Given, _Found]: ...
    @overload
    def method(self, *, name: str | None = None) -> Callable[[Callable[_Given, _Found]], Callable[_Given, _Found]]: ...
    def method(self, function: Any = None, *, name: str | None = None) -> Any:
        """
        Serve *function*, a plain one, a coroutine or a generator, by its own name, or as *name*. A decorator.

        What its annotations say of its arguments is checked before it runs. Dots make namespaces: "orders.add" is
        `client.orders.add(...)`.

        Raises:
            TypeError: it is no function, or an annotation cannot be resolved.
            ValueError: the name is taken, or is none.
        """
        if function is None:
            return functools.partial(self._serve_as, name)
        return self._serve_as(name, function)

    def _serve_as(self, name: str | None, function: Any) -> Any:
        self._methods.add(getattr(function, "__name__", None) if name is None else name, function)
        return function

    # ---- serving
    def serve(self) -> None:
        """
        Serve until `shutdown`, or until the queue of requests is shut down. Ctrl-C ends it by KeyboardInterrupt.

        Raises:
            Busy: it serves already, in another thread.
            Closed: it was closed, or shut down.
        """
        if not self._serving.acquire(blocking=False):
            raise shmq.Busy(f"{self!r} serves already")
        try:
            if self._closed or self._state.stopping:
                raise shmq.Closed(f"{self!r} was shut down; make another one")
            self._serve()
        finally:
            self._serving.release()
            self._ended.set()

    def _serve(self) -> None:
        helpers: list[threading.Thread] = []
        beside = Beside(self._state)
        interrupted = True
        try:
            self._state.cancels.begin(self._place)
            self._inboxes = [self._join() for _ in range(self._threads)]
            for inbox in self._inboxes[1:]:
                helper = threading.Thread(target=self._run, args=(inbox, beside), name="shmq-rpc", daemon=True)
                helper.start()
                helpers.append(helper)
            self._run(self._inboxes[0], beside)
            interrupted = False
        finally:
            self._state.stopping = True
            for helper in helpers:
                helper.join()
            beside.end(interrupt=interrupted)
            self._state.cancels.end()
            self._state.replies.close()
            for inbox in self._inboxes:
                inbox.close()

    def _join(self) -> shmq.GroupConsumer[bytes]:
        return self._requests.consumer(GROUP, group=True, ack="explicit", skip_corrupt=True, wait=self._wait)  # type: ignore[call-overload, no-any-return]

    def _run(self, inbox: shmq.GroupConsumer[bytes], beside: Beside) -> None:
        try:
            Serving(self._state, beside, inbox).run()
        finally:
            self._state.stopping = True  # one thread's end is the others'

    def shutdown(self, *, wait: bool = False) -> None:
        """
        Serve no more: what runs is finished, what waits is left to other servers. From any thread, a method, or the
        handler of a signal; `serve` returns within a fifth of a second.

        Args:
            wait: return when `serve` has returned; not in a method.
        """
        self._state.stopping = True
        if wait:
            self._ended.wait()

    def close(self) -> None:
        """Shut down, and let go of the queues, when nobody serves. Closing twice is fine."""
        self.shutdown()
        if self._serving.acquire(blocking=False):
            self._closed = True
            self._requests.close()
            self._serving.release()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its methods do not."""
        raise TypeError(f"{self!r} does not pickle: make a Server of the same path in the other process")

    def __repr__(self) -> str:
        """Its path and methods."""
        return f"<shmq.rpc.Server {self.path} (serves {self._methods})>"
