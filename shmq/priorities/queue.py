"""The levels of one directory, open; and the ways to them: `open` and `delete`."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, overload

import shmq
from shmq.priorities import place
from shmq.priorities.consumer import Consumer, T

if TYPE_CHECKING:
    import datetime
    import os
    from collections.abc import Iterable, Sequence
    from types import TracebackType


@overload
def open(  # noqa: A001
    path: str | os.PathLike[str],
    levels: int | None = ...,
    *,
    create: bool = ...,
    options: None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    codec: shmq.codec.Codec[T],
    **keywords: Any,
) -> Priorities[T]: ...
@overload
def open(  # noqa: A001
    path: str | os.PathLike[str],
    levels: int | None = ...,
    *,
    create: bool = ...,
    options: shmq.Options | None = ...,
    trusted: bool = ...,
    unsafe_filesystem: bool = ...,
    **keywords: Any,
) -> Priorities[Any]: ...
def open(  # noqa: A001  # shmq.priorities.open, as shmq.open
    path: str | os.PathLike[str],
    levels: int | None = None,
    *,
    create: bool = True,
    options: shmq.Options | None = None,
    trusted: bool = False,
    unsafe_filesystem: bool = False,
    **keywords: Any,
) -> Priorities[Any]:
    """
    Open the queues with priorities in the directory *path*; make them if there are none.

    Args:
        path: the directory. The one above it must exist.
        levels: how many, 2 to 8; 3 when they are made. For those that exist it is not needed; given, it must agree.
        create, options, trusted, unsafe_filesystem, keywords: of each level, as `shmq.open` takes them. Bounds are
            those of a level: what is urgent finds room when the others are full.

    Raises:
        NotFound: there are none, and they were not to be made; or the directory above is missing.
        Mismatch: there is another number of levels; or an option contradicts them.
        BadFormat, Unsafe: something else is there; or it is somebody else's.
        Otherwise as `shmq.open`. What was made by then stays, and is found by the next call.
    """
    directory = place.checked(path)
    if levels is not None:
        place.check_levels(levels)
    if options is not None or keywords:
        keywords = {**keywords, "options": options}
        _check_options(options, {name: value for name, value in keywords.items() if name != "options"})
    count = place.find(directory, levels, create=create)
    with contextlib.ExitStack() as opened:
        queues = [
            opened.enter_context(
                shmq.open(
                    place.level_of(directory, level),
                    trusted=trusted,
                    unsafe_filesystem=unsafe_filesystem,
                    **keywords,
                )
            )
            for level in range(count)
        ]
        if create:
            for queue in queues:
                _begin(queue)
        opened.pop_all()
    return Priorities(directory, queues)


def _check_options(options: shmq.Options | None, keywords: dict[str, Any]) -> None:
    """Refuse what is no option before anything is made."""
    if options is not None and keywords:
        raise TypeError(f"options= and {', '.join(keywords)} were both given: give options one way or the other")
    if options is None:
        shmq.Options(**keywords)


def _begin(queue: shmq.Queue[Any]) -> None:
    """Have it begin its first chunk: to look into a queue that has none costs fifty times what it costs with one."""
    if queue.next_index == 0 and not queue.finished:
        queue.producer().close()


def delete(path: str | os.PathLike[str]) -> None:
    """
    Delete what is at *path*, all levels with everything in them, and the dead letters that lie there.

    Interrupted, it can be called again, and finishes the work.

    Raises:
        NotFound: there is nothing.
        Busy: a level is open, here or in another process; nothing was deleted, unless it was opened meanwhile.
        Unsafe: something else lies there; nothing was deleted.
    """
    directory = place.checked(path)
    try:
        levels = place.find(directory, None, create=False)
    except shmq.NotFound:
        raise shmq.NotFound(f"cannot delete {directory}: there are no priorities") from None
    queues = place.queues_in(directory, levels)
    for each in queues:
        with contextlib.suppress(shmq.NotFound), shmq.open(each, create=False, trusted=True) as queue:
            if queue.stats().participants > 1:
                raise shmq.Busy(f"cannot delete {directory}: {each} is open in another process; nothing was deleted")
    for each in queues:
        with contextlib.suppress(shmq.NotFound):  # half deleted by somebody who was killed
            shmq.delete(each)
    place.remove(directory)


class Priorities(Generic[T]):
    """
    Queues with priorities, open. Made by `priorities.open`; a context manager; pickles to its place.

    Attributes:
        path: the directory.
        queues: the queue of each level, the most urgent first, for all that is not here.
    """

    def __init__(self, path: str, queues: Sequence[shmq.Queue[T]]) -> None:
        """See `priorities.open`."""
        self.path = path
        self.queues = tuple(queues)

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return len(self.queues)

    # ---- putting
    def put(self, payload: T | shmq.codec.AsBytes, *, priority: int = 0, **named: Any) -> tuple[int, int]:
        """
        Append *payload* at the level *priority*, and return that and its index there.

        Args:
            payload: as in `shmq.Queue.put`.
            priority: from 0, the most urgent, to `levels - 1`.
            named: key, type, time_ns, ttl, delay, headers, dedup, timeout, as there. Each level has its own memory of
                what was put with dedup: repeat a put with the same priority.

        Raises:
            ValueError: there is no such level; nothing was put.
            Otherwise as `shmq.Queue.put`.
        """
        return priority, self._level(priority).put(payload, **named)

    def put_many(
        self, payloads: Iterable[T | shmq.codec.AsBytes], *, priority: int = 0, **named: Any
    ) -> tuple[int, range]:
        """Append all *payloads* as one batch at the level *priority*, as `shmq.Queue.put_many`; otherwise as `put`."""
        return priority, self._level(priority).put_many(payloads, **named)

    def _level(self, priority: int) -> shmq.Queue[T]:
        if priority.__class__ is not int:
            raise TypeError(f"priority={priority!r}: an int is wanted, not {type(priority).__name__}")
        if not 0 <= priority < len(self.queues):
            raise ValueError(
                f"priority={priority}: {self.path} has levels from 0, the most urgent, to {len(self.queues) - 1}; "
                "nothing was put"
            )
        return self.queues[priority]

    # ---- getting
    def consumer(
        self,
        name: str,
        *,
        group: bool = True,
        ack: Literal["auto", "explicit"] | None = None,
        lease: float | None = None,
        max_attempts: int | None = None,
        dead_letter: str | None = None,
        expire_to: str | None = None,
        ordered_by: str | None = None,
        window: int | None = None,
        start: str | float | datetime.datetime = "earliest",
        skip_corrupt: bool = False,
    ) -> Consumer[T]:
        """
        Open the consumer *name* at all levels; make it where there is none. Any number of processes share it.

        Args:
            name: as in `shmq.Queue.consumer`, as all that follows.
            group: False: one handle holds the name, at all levels.
            ack, lease, max_attempts, window, skip_corrupt: of each level. The window is each level's own.
            dead_letter, expire_to: beside the levels, in the same directory, unless absolute: one name for all levels;
                by default each level has its own dead letters, LEVEL.NAME.dead.
            ordered_by: "key": within each level.
            start: "earliest", "latest" or a time; indexes are each level's own.

        Raises:
            Busy: with group=False, somebody holds the name.
            Mismatch, NotFound, BadFormat, Corrupt: as `shmq.Queue.consumer`.
        """
        if isinstance(start, int):
            raise TypeError(f"start={start!r}: each level has its own indexes; give a word or a time")
        options: dict[str, Any] = {
            "ack": ack,
            "lease": lease,
            "max_attempts": max_attempts,
            "dead_letter": dead_letter,
            "expire_to": expire_to,
            "ordered_by": ordered_by,
            "window": window,
            "start": start,
            "skip_corrupt": skip_corrupt,
        }
        given = {option: value for option, value in options.items() if value is not None}
        queues: Sequence[Any] = self.queues  # which of its overloads it is depends on what was given
        with contextlib.ExitStack() as opened:
            levels = [
                opened.enter_context(contextlib.closing(queue.consumer(name, group=group, **given))) for queue in queues
            ]
            made = Consumer(self.path, name, self.queues, levels)
            opened.pop_all()
        return made

    def consumers(self) -> dict[str, list[shmq.ConsumerStats | None]]:
        """Every name, and what it is at on each level; None where a level has no such name."""
        each = [queue.consumers() for queue in self.queues]
        return {name: [found.get(name) for found in each] for name in sorted(set().union(*each))}

    def drop_consumer(self, name: str) -> None:
        """
        Remove that name at all levels, as `shmq.Queue.drop_consumer`. Repeated, it finishes what was interrupted.

        Raises:
            NotFound: no level has it.
            Busy: somebody has it open.
        """
        missing = 0
        for queue in self.queues:
            try:
                queue.drop_consumer(name)
            except shmq.NotFound:
                missing += 1
        if missing == len(self.queues):
            raise shmq.NotFound(f"cannot drop consumer {name!r} of {self.path}: no level has it")

    # ---- looking
    def stats(self) -> list[shmq.Stats]:
        """Figures of each level, as `shmq.Queue.stats`."""
        return [queue.stats() for queue in self.queues]

    def __len__(self) -> int:
        """How many messages there are at all levels, for all consumers."""
        return sum(map(len, self.queues))

    def __bool__(self) -> bool:
        """True, also when there are no messages."""
        return True

    # ---- the disk
    def sync(self) -> None:
        """Return when everything put before is on the disk, at all levels."""
        for queue in self.queues:
            queue.sync()

    # ---- ending
    def shutdown(self, immediate: bool = False) -> None:  # as queue.Queue has it
        """
        Refuse puts from now on, at all levels, as `shmq.Queue.shutdown`; gets drain what is left, then raise ShutDown.

        Killed in the middle, some levels are shut down and others are not; gets go on, and a second call finishes it.
        """
        for queue in self.queues:
            queue.shutdown(immediate)

    def finish(self) -> None:
        """End all levels for good, as `shmq.Queue.finish`. Killed in the middle, a second call finishes it."""
        for queue in self.queues:
            queue.finish()

    @property
    def finished(self) -> bool:
        """Whether all levels have ended for good."""
        return all(queue.finished for queue in self.queues)

    @property
    def closed(self) -> bool:
        """Whether this handle was closed."""
        return all(queue.closed for queue in self.queues)

    def close(self) -> None:
        """Close this handle. Consumers of it stay usable until they are closed. Closing twice is fine."""
        with contextlib.ExitStack() as all_of_them:
            for queue in self.queues:
                all_of_them.callback(queue.close)

    def __enter__(self) -> Self:
        """Return this object, which the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """It pickles to its place: each level's queue does."""
        return Priorities, (self.path, self.queues)

    def __repr__(self) -> str:
        """Path and levels, for people."""
        return f"<shmq.Priorities {self.path} ({self.levels} levels{', closed' if self.closed else ''})>"
