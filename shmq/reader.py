"""A reader: from any index or time, forward or backward, without a checkpoint. It never changes what consumers see."""

from __future__ import annotations

import contextlib
import datetime
from typing import TYPE_CHECKING, Self

from shmq import _native, errors
from shmq.access import Access, nanoseconds
from shmq.message import Message
from shmq.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.queue import Queue
    from shmq.storage.pins import Pin


class Reader:
    """Made by `Queue.reader`; iterates over messages."""

    def __init__(
        self,
        queue: Queue,
        start: int | datetime.datetime,
        stop: int | datetime.datetime | None,
        *,
        reverse: bool,
        follow: bool,
        skip_corrupt: bool = False,
        pin: bool | str = False,
    ) -> None:
        """See `Queue.reader`."""
        if reverse and follow:
            raise ValueError("a reader that follows has no end to begin from: reverse or follow, not both")
        self._queue = queue
        self._decode = queue._codec.decode  # noqa: SLF001
        self._follow = follow
        self._stop: int | None = None
        self._stop_time: int | None = None
        self._backward: Iterator[Message] | None = None
        self._home, self._membership = queue._lend()  # noqa: SLF001
        self._open = True
        self._walk: Walk | None = None
        self._pin: Pin | None = None
        if pin:
            from shmq.storage.pins import Pin  # noqa: PLC0415  # only who uses it pays for it

            try:
                self._pin = Pin(self._home, None if pin is True else pin)
            except BaseException:
                self.close()
                raise
        self._pinned: object = None
        access = self._access = Access(self._home, self._membership, self._decode)
        timed = isinstance(start, datetime.datetime)
        first = access.at(start, before_claims=True) if timed else queue._from_end(start)  # type: ignore[arg-type]  # noqa: SLF001
        if isinstance(stop, datetime.datetime):
            # A message of that time may still come, behind what there is now.
            self._stop_time = nanoseconds(stop)
        elif stop is not None:
            self._stop = queue._from_end(stop)  # noqa: SLF001
        if reverse:
            if self._stop_time is not None:
                self._stop = access.at(self._stop_time)
            end = access.next_index() if self._stop is None else self._stop
            self._backward = access.backward(first, end, skip_corrupt=skip_corrupt)
        else:
            self._walk = Walk(self._home, self._membership)
            self._walk.skip_corrupt = skip_corrupt
            self._walk.seek(first)
        if self._pin is not None:
            self._pin.move(first)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes were passed over because what was there is damaged."""
        return self._access.skipped if self._walk is None else self._walk.skipped

    def __iter__(self) -> Iterator[Message]:
        """Itself."""
        return self

    def __next__(self) -> Message:
        """
        The next message.

        Raises:
            StopIteration: the stop or, without follow, the end is reached.
            Corrupt: the next message is damaged.
            Closed: the reader or its queue was closed; one that follows just ends.
        """
        if self._queue.closed:
            self.close()
        if not self._open:
            if self._follow:
                raise StopIteration
            raise errors.Closed(f"cannot read on in {self._home.path}: it was closed; open it again")
        if self._backward is not None:
            return next(self._backward)
        assert self._walk is not None  # noqa: S101  # it is the one or the other
        if self._stop is not None and self._walk.index() >= self._stop:
            raise StopIteration
        place = self._walk.look()
        if place < 0:
            if not self._follow:
                raise StopIteration
            place = self._wait()
        reader, chunk = self._walk.reader, self._walk.chunk
        index = int(reader.index)
        self._move_pin(index, chunk)
        if self._stop is not None and index >= self._stop:
            raise StopIteration
        message = Message(chunk, index, int(reader.record), place, self._decode)  # type: ignore[arg-type]
        if self._stop_time is not None and message.time_ns >= self._stop_time:
            self._stop = index
            raise StopIteration
        return message

    def _move_pin(self, index: int, chunk: object) -> None:
        """Only whole chunks go, so it moves with them."""
        if self._pin is not None and self._pinned is not chunk:
            self._pin.move(index)
            self._pinned = chunk

    def _bounds(self) -> tuple[int | None, int | None]:
        """The index and the time before which to stop."""
        return self._stop, self._stop_time

    def _walk_on(self) -> Walk:
        """For who reads by other means: where it stands."""
        if self._queue.closed:
            self.close()
        if not self._open:
            raise errors.Closed(f"cannot read on in {self._home.path}: it was closed; open it again")
        assert self._walk is not None  # noqa: S101  # who reads backward does not come here
        return self._walk

    def _wait(self) -> int:
        assert self._walk is not None  # noqa: S101  # who reads backward does not wait
        try:
            return self._walk.wait(_native.FOREVER, self._ended)
        except (errors.ShutDown, errors.Closed):
            raise StopIteration from None

    def _ended(self) -> Exception | None:
        if self._queue.closed:
            return errors.Closed("the queue was closed")
        if self._membership.control.is_shut_down():
            return errors.ShutDown("the queue was shut down")
        return None

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Read no more. Closing twice is fine; so is forgetting to."""
        if self._open:
            self._open = False
            if self._pin is not None:
                self._pin.close()
            self._membership.leave()
            self._home.close()

    def __del__(self) -> None:
        """Close."""
        with contextlib.suppress(AttributeError):  # never finished opening
            self.close()
