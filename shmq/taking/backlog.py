"""
How much a consumer name has not finished, exactly: what was put and not finished, without padding and gaps.

Indexes are counted by subtraction, and what has no message is taken off: padding, which stands in the words of the
chunks, and what a recovery left out between two of them. While the control page counts no padding, no chunk is read;
otherwise each chunk is walked once per process, and the result kept.
"""

from __future__ import annotations

import bisect
import contextlib
import time

from shmq import _native, errors, locks
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import space
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.reading.access import Access
    from shmq.seat import Seat
    from shmq.session import Session
    from shmq.storage.directory import Directory


class Backlog(NamedTuple):
    """
    What a name has before it.

    Attributes:
        lag: messages that are not finished.
        floor: the index of the first of them; the next put's when there is none.
    """

    lag: int
    floor: int


class _Part:
    """What has no message in one chunk, as far as it was walked over."""

    __slots__ = ("ordinal", "position", "runs", "sealed")

    def __init__(
        self, position: int = 0, ordinal: int = 0, sealed: bool = False, runs: list[tuple[int, int]] | None = None
    ) -> None:
        """*runs*: (first, behind the last), ascending."""
        self.position = position
        self.ordinal = ordinal
        self.sealed = sealed
        self.runs = [] if runs is None else runs


class Missing:
    """Which indexes of a queue have no message, as one process knows it. Safe to share between threads."""

    def __init__(self, membership: Seat) -> None:
        """Nothing was looked at yet."""
        self._control = membership.control
        self._member = membership.member
        self._parts: dict[int, _Part] = {}
        self._lock = locks.Lock()

    def between(self, home: Directory, first: int, end: int) -> list[tuple[int, int]]:
        """Runs of such indexes from *first* to before *end*: (first, behind the last), ascending."""
        chain = Chain(home, self._member)
        if first < end and not home.read_only:
            settle(chain)
        if first >= end or (home.view is None and not (self._control.counters()[0] or self._member.padding_doubted())):
            return []
        with self._lock:
            return list(self._between(chain, first, end))

    def _between(self, chain: Chain, first: int, end: int) -> Iterator[tuple[int, int]]:
        live = chain.listed()
        behind = [base for _, base in live[1:]] + [end]
        self._parts = {sequence: part for sequence, part in self._parts.items() if live and sequence >= live[0][0]}
        for (sequence, base), following in zip(live, behind, strict=True):
            if following <= first or base >= end:
                continue
            part = self._look(chain, sequence, base)
            runs = part.runs
            for start, stop in runs[max(bisect.bisect_right(runs, (first, end)) - 1, 0) :]:
                if stop > first and start < end:
                    yield max(start, first), min(stop, end)
            gap = max(base + part.ordinal, first)
            if part.sealed and gap < min(following, end):
                yield gap, min(following, end)  # a recovery went on behind it

    def _look(self, chain: Chain, sequence: int, base: int) -> _Part:
        part = self._parts.setdefault(sequence, _Part())
        if part.sealed:
            return part
        with contextlib.suppress(errors.ShmqError, FileNotFoundError):  # damaged, or retired: it is said elsewhere
            found = chain.open(sequence, base)
            code, part.position, part.ordinal, part.runs = _walk(found, part.position, part.ordinal, part.runs)
            part.sealed = code == _native.ROLL
            *_, ordinal, runs = _walk(found, part.position, part.ordinal, part.runs, claims=True)
            return part if part.sealed else _Part(0, ordinal, False, runs)
        return part


def of_name(
    home: Directory,
    membership: Seat,
    checkpoint: _native.Checkpoint,
    end: int,
    wants: _native.Matcher | None = None,
) -> Backlog:
    """Of a name without a ring, before *end*: what it was handed, it has finished. With *wants*, of what matches."""
    floor = checkpoint.floor(membership.control.bounds().dropped)
    first = min(max(floor, _first(home, membership)), end)
    missing = _missing_of(membership).between(home, first, end)
    if wants is not None:
        return Backlog(_matching(home, membership, wants, first, end), _behind(first, missing))
    return Backlog(end - first - _count(missing), _behind(first, missing))


def _matching(
    home: Directory,
    membership: Seat,
    wants: _native.Matcher,
    first: int,
    end: int,
    ring: _native.Ring | None = None,
    head: int = 0,
) -> int:
    """How many messages from *first* to before *end* match, by looking at each; with *ring*, that are not finished."""
    chain = Chain(home, membership.member)
    live = chain.listed()
    total = 0
    for (sequence, base), following in zip(live, [*(base for _, base in live[1:]), end], strict=False):
        if following > first and base < end:
            with contextlib.suppress(errors.ShmqError, FileNotFoundError):  # damaged, or retired: it is said elsewhere
                total += wants.count(chain.open(sequence, base), first, end, ring, head)
    return total


def of_group(
    home: Directory, membership: Seat, ring: _native.Ring, end: int, wants: _native.Matcher | None = None
) -> Backlog:
    """Of a group, before *end*: what waits, is parked or handed out counts, what was finished out of order does not."""
    first = min(_first(home, membership), end)
    lag, head, floor = ring.unfinished(first, end)
    missing = _missing_of(membership).between(home, max(head, first), end)
    if wants is not None:  # what is parked matches
        lag -= ring.open_in(head, first, end)
        lag += _matching(home, membership, wants, max(head, first), end, ring, head)
        return Backlog(max(lag, 0), floor if floor < head else _behind(floor, missing))
    lag -= sum(ring.open_in(head, *run) for run in missing)
    return Backlog(max(lag, 0), floor if floor < head else _behind(floor, missing))


def oldest(access: Access, backlog: Backlog, end: int) -> float | None:
    """The age in seconds of the first message that is not finished; None when there is none."""
    if backlog.lag:
        with contextlib.suppress(errors.ShmqError):  # damaged: its reader is told
            for message in access.forward(backlog.floor, min(backlog.floor + 1024, end)):
                return max(time.time_ns() - message.time_ns, 0) / 1e9
    return None


def _missing_of(membership: Seat) -> Missing:
    """What this process knows of them. Two threads that come at once may look twice."""
    known = membership.missing
    if not isinstance(known, Missing):
        known = membership.missing = Missing(membership)
    return known


def _first(home: Directory, membership: Seat) -> int:
    """The first index that is still there; what came before it nobody can finish any more."""
    live = Chain(home, membership.member).listed()
    return live[0][1] if live else home.journal.first_index


def _walk(
    chunk: _native.Chunk, position: int, ordinal: int, runs: list[tuple[int, int]], *, claims: bool = False
) -> tuple[int, int, int, list[tuple[int, int]]]:
    """On from there, up to the end, or without *claims* up to one: code, position, ordinal, and the runs with more."""
    runs, code = list(runs), 0
    while code == 0:
        code, position, ordinal, first, count = chunk.missing(position, ordinal, claims=claims)
        if count:
            runs.append((chunk.base + first, chunk.base + first + count))
    return code, position, ordinal, runs


def messages(session: Session) -> int:
    """How many messages there are in the queue, without what is padded."""
    chain = session.chain()
    if not session.home.read_only:
        settle(chain)  # what a dead producer had claimed is padding, as soon as somebody looks
    return max(session.next_index - session.first_index - space.padded(session.home, chain), 0)


def settle(chain: Chain) -> None:
    """
    What the dead had claimed at the end is no message: have it padded, and counted so, also behind living claims.

    From the last chunk back to one that is full, and settled.
    """
    for sequence, base in reversed(chain.listed()):
        code = _native.ROLL
        with contextlib.suppress(errors.ShmqError, FileNotFoundError):  # damaged, or retired: it is said elsewhere
            chunk = chain.open(sequence, base, writable=True)
            settled = chunk.resolved()  # notes how far that is: the next one goes on from there
            code = settled.code
            if code == _native.WAITING:
                _walk(chunk, settled.position, settled.next_index - base, [], claims=True)
        if code == _native.ROLL:
            return


def _count(runs: list[tuple[int, int]]) -> int:
    return sum(stop - start for start, stop in runs)


def _behind(first: int, runs: list[tuple[int, int]]) -> int:
    """The first index from *first* on that has a message, or will have one."""
    for start, stop in runs:
        if start > first:
            break
        first = max(first, stop)
    return first
