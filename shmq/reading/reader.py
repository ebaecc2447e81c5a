"""A reader: from any index or time, forward or backward, without a checkpoint. It never changes what consumers see."""

from __future__ import annotations

import errno

from shmq import _native, ending, errors, given, later, locks
from shmq.alarm import Armed, Awaited
from shmq.deadlines import deadline_of
from shmq.hints import TYPE_CHECKING, T
from shmq.loan import Loan
from shmq.message import Message, of_record
from shmq.reading.access import Access, is_datetime, nanoseconds
from shmq.reading.walk import Walk
from shmq.session import Handle
from shmq.storage import files

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator
    from typing import NoReturn

    from shmq.filter import Filter
    from shmq.session import Session
    from shmq.storage.pins import Pin


_PAUSE_NS = 2_000_000
_STOP = "an index, or a time (a datetime, or a float of seconds since 1970)"


class Reader(_native.Eye[T], Awaited, Handle):
    """Made by `Queue.reader`; iterates over messages."""

    def __init__(
        self,
        session: Session,
        start: str | float | datetime.datetime,
        stop: float | datetime.datetime | None,
        *,
        reverse: bool,
        follow: bool,
        skip_corrupt: bool = False,
        pin: bool | str = False,
        wanted: Filter | None = None,
    ) -> None:
        """See `Queue.reader`."""
        if reverse and follow:
            raise ValueError("a reader that follows has no end to begin from: reverse or follow, not both")
        self._session = session
        self._decode = session.codec.decode
        self._follow = follow
        self._wants = None if wanted is None else wanted.compiled()
        self._stop: int | None = None
        self._stop_time: int | None = None
        self._backward: Iterator[Message] | None = None
        self._open = True
        self._walk: Walk | None = None
        self._pin: Pin | None = None
        self._pinned: object = None
        self._lock = locks.Lock()
        self._loan = Loan()
        try:
            self._borrow()
            self._begin(start, stop, pin, reverse=reverse, skip_corrupt=skip_corrupt)
        except BaseException:
            self.close()
            raise

    def _begin(
        self,
        start: str | float | datetime.datetime,
        stop: float | datetime.datetime | None,
        pin: bool | str,
        *,
        reverse: bool,
        skip_corrupt: bool,
    ) -> None:
        if pin is not False:
            later.ready("shmq.storage.pins")
            from shmq.storage.pins import Pin  # noqa: PLC0415  # only who uses it pays for it

            self._pin = Pin(self._home, None if pin is True else pin)
            self._pin.take()
        access = self._access = Access(self._home, self._membership, self._decode)
        first = self._session.from_end(access.index_of(start, "start"))
        if isinstance(stop, float) or is_datetime(stop):
            # A message of that time may still come, behind what there is now.
            self._stop_time = nanoseconds(stop)
        elif stop is not None:
            self._stop = self._session.from_end(given.whole("stop", stop, wanted=_STOP))
        if reverse:
            if self._stop_time is not None:
                self._stop = access.at(self._stop_time)
            end = access.next_index() if self._stop is None else self._stop
            self._backward = access.backward(first, end, skip_corrupt=skip_corrupt, wants=self._wants)
        else:
            self._walk = Walk(self._home, self._membership, wants=self._wants)
            self._walk.upto = self._stop
            self._walk.skip_corrupt = skip_corrupt
            if self._stop_time is None:  # who stops by time looks at each message's
                self._code_with(self._decode)
                self._look_for(self._session, self._stop, self._follow)
                self._walk.lead(self)
            self._walk.seek(first)
        if self._pin is not None:
            self._pin.move(first)

    @property
    def skipped(self) -> int:
        """With skip_corrupt: how many indexes were passed over because what was there is damaged."""
        return self._access.skipped if self._walk is None else self._walk.skipped

    def get(self, timeout: float | None = None) -> Message[T]:
        """
        The next message of a reader that follows, which `next` would wait for as long as it takes.

        Args:
            timeout: seconds to wait; None for as long as it takes, 0 not to wait.

        Raises:
            Empty: there was none in time.
            ShutDown: there will be none: the stop is reached, or the queue is over.
            Corrupt: the next message is damaged.
            Closed: the reader or its queue was closed.
            ValueError: this reader does not follow, and never waits.
        """
        deadline_ns = deadline_of(timeout)
        if not self._follow:
            raise ValueError(f"get() is for a reader that follows; read on in {self._home.path} with next()")
        try:
            return self._next_message(deadline_ns)
        except errors.Empty:
            self._is_empty()
            raise
        except StopIteration:
            self._check_usable()
            raise errors.ShutDown(
                f"nothing more to read in {self._home.path}: the stop is reached, or the queue is over"
            ) from None

    def _next_message(self, deadline_ns: int = _native.FOREVER) -> Message:
        """
        What `next` does where the built-in does not.

        Raises:
            StopIteration: the stop or, without follow, the end is reached.
            Corrupt: the next message is damaged.
            Closed: the reader or its queue was closed; one that follows just ends.
        """
        self._end_if_closed()
        if self._backward is not None:
            with self._lock:  # a generator is in one thread at a time
                return next(self._backward)
        assert self._walk is not None  # noqa: S101  # it is the one or the other
        mark = self._walk.mark()
        try:
            with self._lock:  # the built-ins of other threads read on meanwhile, but stand in the same chunk
                if self._stop is not None and self._walk.index() >= self._stop:
                    raise StopIteration
                mark = self._walk.mark()
                return self._next(self._walk, deadline_ns)
        except (StopIteration, errors.ShmqError):
            raise
        except BaseException as problem:  # of a signal's handler: what was read and not returned is read again
            self._walk.back_to(mark)
            if isinstance(problem, OSError) and problem.errno in (errno.EBADF, errno.ENOENT):
                self._end_if_closed()  # by another thread, while this one went on to the next chunk
            raise

    def _end_if_closed(self) -> None:
        if self._session.closed:
            self.close()
        if not self._open:
            if self._follow:
                raise StopIteration
            raise errors.Closed(f"cannot read on in {self._home.path}: it was closed; open it again")

    def _next(self, walk: Walk, deadline_ns: int) -> Message:
        place = self._look(deadline_ns)
        chunk, index = walk.chunk, int(walk.which.index)
        self._move_pin(index, chunk)
        if self._stop is not None and index >= self._stop:
            raise StopIteration
        message = of_record(chunk, index, int(walk.which.record), place, self._decode)  # type: ignore[arg-type]
        if self._stop_time is not None and message.time_ns >= self._stop_time:
            self._stop = index
            raise StopIteration
        return message

    def _look(self, deadline_ns: int = _native.FOREVER) -> int:
        """The place of what comes next, after waiting for it if this follows."""
        assert self._walk is not None  # noqa: S101  # who reads backward does not come here
        if self._follow and self._membership.control.is_shut_down_at_once():
            raise StopIteration
        place = self._walk.look()
        if place >= 0:
            return place
        if not self._follow:
            raise StopIteration
        return self._wait(deadline_ns)

    def _move_pin(self, index: int, chunk: object) -> None:
        """Only whole chunks go, so it moves with them."""
        if self._pin is not None and self._pinned is not chunk:
            try:
                self._pin.move(index)
            except OSError:
                if self._open:
                    raise
                raise errors.Closed(f"{self._home.path}: this reader was closed, by another thread") from None
            self._pinned = chunk

    def _bounds(self) -> tuple[int | None, int | None]:
        """The index and the time before which to stop."""
        return self._stop, self._stop_time

    def _walk_on(self) -> Walk:
        """For who reads by other means: where it stands."""
        if self._session.closed:
            self.close()
        if not self._open:
            raise errors.Closed(f"cannot read on in {self._home.path}: it was closed; open it again")
        assert self._walk is not None  # noqa: S101  # who reads backward does not come here
        return self._walk

    def _wait(self, deadline_ns: int) -> int:
        assert self._walk is not None  # noqa: S101  # who reads backward does not wait
        try:
            return self._walk.wait(deadline_ns, self._ended)
        except (errors.ShutDown, errors.Closed):
            raise StopIteration from None

    def _ended(self) -> Exception | None:
        if self._session.closed or not self._open:
            return errors.Closed("the reader or its queue was closed")
        if self._walk is not None and self._wants is not None:
            self._move_pin(self._walk.index(), self._walk.chunk)  # what was passed needs nobody any more
            if self._stop is not None and self._walk.index() >= self._stop:
                return errors.ShutDown("the stop is reached")
        try:  # nothing tells whoever reads only that somebody deletes the queue
            files.refuse_removed(self._home.fd, self._home.path)
        except errors.NotFound as problem:
            return problem
        control = self._membership.control
        if ending.over(self._home, control):
            return errors.ShutDown(f"the queue {ending.words(self._home, control)}")
        return None

    # ---- waiting without a sleep
    def _has_something(self) -> bool:
        if self._walk is None or self._ended() is not None:
            return True
        with self._lock:
            reached = self._stop is not None and self._walk.index() >= self._stop
            return reached or self._walk.glance() not in (_native.EMPTY, _native.WAITING)

    def _due_ns(self) -> int | None:
        """Whoever may write nothing cannot say that it sleeps, and looks again by itself."""
        return _native.boottime_ns() + _PAUSE_NS if self._home.read_only else None

    def _waited(self) -> None:
        pass

    def _check_usable(self) -> None:
        if self._session.closed or not self._open:
            raise errors.Closed(f"cannot read on in {self._home.path}: it was closed; open it again")

    def _begin_to_wait(self, call: Callable[[], object]) -> Armed:
        if not self._home.read_only:
            return super()._begin_to_wait(call)
        self._check_usable()
        return Armed(self._membership.member, None, 0, call)

    def _may_sleep(self) -> tuple[bool, int | None]:
        return super()._may_sleep() if not self._home.read_only else (True, self._due_ns())

    def close(self) -> None:
        """Read no more. Closing twice is fine; so is forgetting to."""
        self._open = False
        self._close_ready()
        self._look_for(None, None, False)
        if not self._loan.is_over():
            if self._follow and not self._home.read_only:  # such a one looks again by itself
                self._membership.control.wake()  # another thread may be waiting in here
            if self._pin is not None:
                self._pin.close()
            self._loan.give_back()

    def __reduce__(self) -> NoReturn:
        """It does not pickle: its queue does."""
        raise given.no_pickle(self, f"a reader of {self._session.place}", "reader()")

    def __repr__(self) -> str:
        """Queue and place, for people."""
        at = "backward" if self._walk is None else f"at {self._walk.index()}"
        return f"<shmq.Reader of {self._session.place} ({at if self._open else 'closed'})>"

    def __del__(self) -> None:
        """Close."""
        self._end_quietly(self.close)
