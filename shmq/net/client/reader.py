"""A reader of a queue at a server: batches of messages from an index on, asked for one after the other."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Self

from shmq import errors
from shmq.net.client.calls import Call
from shmq.net.client.messages import RemoteMessage, several
from shmq.net.client.waiting import FOREVER, deadline, left

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from shmq.net.client.link import Link
    from shmq.net.client.messages import Decode

COUNT = 1000
_LONG = 20.0
"""Seconds that one request waits at the end of the queue."""


class Place:
    """How far a reader is: the next request, and what its answer means."""

    def __init__(
        self, start: Any, stop: Any, options: dict[str, Any], decode: Decode, *, follow: bool, link: Link
    ) -> None:
        """At the beginning."""
        self._link = link
        self._queue_id = link.told["id"]
        if follow and options.get("reverse"):
            raise ValueError("a reader that follows has no end to begin from: reverse or follow, not both")
        self._start = start
        self._stop = stop
        self._options = options
        self._decode = decode
        self._backward = bool(options.get("reverse"))
        self.follow = follow
        self.here: deque[RemoteMessage] = deque()
        self.is_over = False
        self.skipped = 0

    def call(self, wait: float | None) -> Call:
        """Return what to ask next; *wait*: seconds for more to come, at the end."""
        return Call("read", (self._start, self._stop, COUNT, wait if self.follow else None, self._options))

    def begin(self, answer: list[Any]) -> None:
        """Take in the first answer, by which it is known where that is; nothing was waited for."""
        self.take(answer)
        self.is_over = self.is_over and not self.follow

    def take(self, answer: list[Any]) -> None:
        """
        Take in what was answered.

        Raises:
            NotFound: another queue has the name now, and its indexes say other things.
        """
        if self._link.told["id"] != self._queue_id:
            raise errors.NotFound(
                f"cannot read on in {self._link.address}: another queue is there now; open a new reader"
            )
        columns, place, stop, self.is_over, skipped = answer
        if self._backward and columns[-2]:
            self._stop = place  # before which to end, from where it is read backward
        elif not self._backward:
            self._start, self._stop = place, stop
        self.skipped += skipped
        self.here.extend(several(columns, self._decode))


class RemoteReader:
    """Made by `RemoteQueue.reader`; iterates over messages, and changes nothing for anybody. One thread's."""

    def __init__(self, ask: Callable[[Call], Any], place: Place, address: object) -> None:
        """*ask* returns what the server answers."""
        self._ask = ask
        place.begin(ask(place.call(None)))
        self._place = place
        self._address = address
        self._open = True

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes were passed over because what was there is damaged."""
        return self._place.skipped

    def get(self, timeout: float | None = None) -> RemoteMessage:
        """
        The next message of a reader that follows, as `shmq.Reader.get`.

        Raises:
            Empty: there was none in time.
            ShutDown: there will be none: the stop is reached, or the queue is over.
            ValueError: this reader does not follow.
            Closed, Corrupt: as there.
        """
        until = deadline(timeout)
        if not self._place.follow:
            raise ValueError(f"get() is for a reader that follows; read on in {self._address} with next()")
        while not self._place.here:
            if not self._open:
                raise errors.Closed(f"this reader of {self._address} was closed")
            if self._place.is_over:
                raise errors.ShutDown(f"nothing more to read in {self._address}: the stop is reached, or it is over")
            rest = left(until)
            self._place.take(self._ask(self._place.call(_LONG if rest is None else min(rest, _LONG))))
            if not self._place.here and not self._place.is_over and until != FOREVER and left(until) == 0:
                raise errors.Empty(f"nothing to read in {self._address} in time")
        return self._place.here.popleft()

    def __iter__(self) -> Self:
        """Return this object."""
        return self

    def __next__(self) -> RemoteMessage:
        """The next message; ends at the stop, at the end, or with `follow` when the queue is over."""
        while not self._place.here:
            if not self._open:
                if self._place.follow:
                    raise StopIteration
                raise errors.Closed(f"cannot read on in {self._address}: it was closed; open it again")
            if self._place.is_over:
                raise StopIteration
            self._place.take(self._ask(self._place.call(_LONG)))
        return self._place.here.popleft()

    def close(self) -> None:
        """Read no more. Closing twice is fine."""
        self._open = False
        self._place.here.clear()

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()
