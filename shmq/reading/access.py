"""
Random access: from an index, or a time, to a message.

Which chunk it is, is known from the chunks' names; where it lies there, the core looks up in the chunk's index. Chunks
stay mapped in a cache of the whole process.
"""

from __future__ import annotations

import bisect
import sys

from shmq import _native, errors, given
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.message import Message, of_record
from shmq.storage.chain import Chain

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterator
    from typing import Any, TypeGuard

    from shmq.seat import Seat
    from shmq.storage.directory import Directory

_TIME_MAX = INDEX_MAX = (1 << 63) - 1
_PLACE = '"earliest", "latest", an index, a datetime or a float of seconds since 1970'
_TRIES = 5
"""How often to look at the names again when chunks are retired or made under our hands."""


class Extent(NamedTuple):
    """A run of indexes that lie together in one chunk, for readers in parallel."""

    first: int
    stop: int
    """The index behind the last one."""
    nbytes: int
    """What they take in the chunk, headers and padding included: near enough to share out work."""


_find, _new_record = _native.find, _native.new_record


def is_datetime(given: object) -> TypeGuard[datetime.datetime]:
    """Whether it is one. Who has one has imported what it is of, which not every program needs."""
    known = sys.modules.get("datetime")
    return known is not None and isinstance(given, known.datetime)


def nanoseconds(time: datetime.datetime | float) -> int:
    """
    A time in ns since 1970. A datetime without a zone is local, as everywhere in Python; a float is in seconds.

    Raises:
        TypeError: it is neither; of an int nobody knows whether seconds or nanoseconds are meant.
        ValueError: it is not a number.
    """
    if is_datetime(time):
        known = sys.modules["datetime"]
        since: datetime.timedelta = time.astimezone(known.UTC) - known.datetime(1970, 1, 1, tzinfo=known.UTC)
        return (since.days * 86400 + since.seconds) * 1_000_000_000 + since.microseconds * 1000
    if isinstance(time, float):
        if time != time:  # noqa: PLR0124  # only NaN is not itself
            raise ValueError(f"time={time!r} is not a time")
        return int(min(max(time * 1e9, -_TIME_MAX - 1), _TIME_MAX))
    raise TypeError(
        f"time={time!r}: a datetime, or a float of seconds since 1970, is wanted, not {type(time).__name__}; "
        "for whole seconds write float(time), for nanoseconds use at_ns()"
    )


def nanoseconds_of_int(time_ns: int) -> int:
    """The same ns since 1970, clipped to what a message can carry."""
    wanted = "an int of nanoseconds since 1970 (at() takes datetimes and floats of seconds)"
    return min(max(given.whole("time_ns", time_ns, wanted=wanted), -_TIME_MAX - 1), _TIME_MAX)


def _place_of(chunk: _native.Chunk, index: int, record: Any) -> int:
    """Where that message is, or why not. Damage can have a chunk begin behind what is looked for in it."""
    return _find(chunk.handle, index - chunk.base, record) if index >= chunk.base else int(_native.EMPTY)


class Access:
    """One handle's way to any message. Safe to share between threads."""

    def __init__(self, home: Directory, membership: Seat, decode: Callable[[Any], Any] | None) -> None:
        """Nothing is mapped yet."""
        self._home = home
        self._membership = membership
        self._decode = decode
        self._chain = Chain(home, membership.member)
        self._mapped = membership.mapped
        self._names: tuple[list[int], list[int]] = ([], [])  # bases, sequences: replaced whole
        self._time_max: dict[int, int] = {}  # of sealed chunks, by sequence
        self._undecided = 0  # all chunks of smaller sequences are sealed, and all of them is decided
        self.shelf = self._mapped.shelf
        """Where the built-in for q[i] looks."""
        self.skipped = 0
        """Indexes that `backward` passed over because what was there is damaged."""

    def forked(self) -> bool:
        """Whether this is a child's copy of it."""
        return self._membership.member.forked()

    # ---- chunks
    def _refresh(self) -> tuple[list[int], list[int]]:
        live = self._chain.names()
        first = live[0][0] if live else self._membership.control.first_live()
        self._mapped.forget_below(first)
        self._time_max = {known: time for known, time in self._time_max.items() if known >= first}
        self._names = [base for _, base in live], [sequence for sequence, _ in live]
        return self._names

    def _known(self) -> tuple[list[int], list[int]]:
        """
        The same from what is known, by a look at both of its ends: it costs nothing that grows with what is there.

        What is missing in the middle is found missing by whoever goes there, and looks again by `_refresh`.
        """
        bases, sequences = self._names
        first = self._membership.control.first_live()
        if self._home.view is not None or not sequences or not sequences[0] <= first <= sequences[-1]:
            return self._refresh()
        found = self._behind(sequences[-1], bases[-1])
        if found is None:
            return self._refresh()
        if found or first != sequences[0]:
            self._mapped.forget_below(first)
            gone = first - sequences[0]
            for retired in sequences[:gone]:
                self._time_max.pop(retired, None)
            bases = [*bases[gone:], *(base for _, base in found)]
            sequences = [*sequences[gone:], *(sequence for sequence, _ in found)]
            self._names = bases, sequences
        return self._names

    def _behind(self, sequence: int, base: int) -> list[tuple[int, int]] | None:
        """What follows a chunk, each by the name that the one before it tells; None if one is missing, or for much."""
        self._chain.refuse_removed()
        found: list[tuple[int, int]] = []
        for _ in range(_TRIES):
            try:
                end = self._chunk(sequence, base).sealed()
            except FileNotFoundError:
                return None
            if end is None or not self._chain.is_there(sequence + 1, end):
                return found if self._chain.newest() <= sequence else None
            sequence, base = sequence + 1, end
            found.append((sequence, base))
        return None

    def _chunk(self, sequence: int, base: int) -> _native.Chunk:
        chunk = self._mapped.get(sequence)
        if chunk is None:
            # Writable where we may write: what is missing in its index is put back on the way.
            chunk = self._chain.open(sequence, base, writable=not self._home.read_only)
            self._mapped.keep(chunk)
        else:
            self._mapped.use(chunk)
        return chunk

    def first_index(self) -> int:
        """The first index still there."""
        bases, _ = self._known() if self._names[1] else self._names
        return bases[0] if bases else self._chain.first_index()

    def next_index(self) -> int:
        """The index behind the last claimed one."""
        bases, sequences = self._names
        for _ in range(_TRIES):
            if sequences:
                try:
                    chunk = self._chunk(sequences[-1], bases[-1])
                except FileNotFoundError:
                    bases, sequences = self._refresh()
                    continue
                following = chunk.sealed()
                if following is None:
                    return chunk.next_index()
                last = sequences[-1]
                bases, sequences = self._known()
                if sequences and sequences[-1] == last:
                    # Who may only read does not move what was adopted to its place: the chain knows where it is.
                    return self._chain.next_index() if chunk.adoption() else following
            else:
                bases, sequences = self._refresh()
                if not sequences:
                    break
        return self._chain.next_index()

    # ---- by index
    def message(self, index: int) -> Message:
        """
        The message at *index*, which is not negative.

        Raises:
            IndexError: there is none; it says why.
            Corrupt: it is damaged.
            Forked: this is a forked child.
        """
        bases, sequences = self._names
        at = bisect.bisect_right(bases, index) - 1 if index <= INDEX_MAX else -1
        if at >= 0:
            chunk = self._mapped.get(sequences[at])
            if chunk is not None:
                record = _new_record()
                place = _place_of(chunk, index, record)
                if place >= 0:
                    self._show(chunk, bases, at)
                    return of_record(chunk, index, record[0], place, self._decode)
        return self._message(index)

    def _show(self, chunk: _native.Chunk, bases: list[int], at: int) -> None:
        """Have the built-in find what comes next from there."""
        self._mapped.show(chunk, bases[at + 1] if at + 1 < len(bases) else None)

    def _message(self, index: int) -> Message:
        """The same, from the names on."""
        code = 0
        for _ in range(_TRIES):
            bases, sequences = self._refresh()
            at = bisect.bisect_right(bases, index) - 1
            if at < 0 or index > INDEX_MAX:
                raise self._missing(index, code)
            try:
                chunk = self._chunk(sequences[at], bases[at])
            except FileNotFoundError:
                continue  # retired in this moment
            record = _new_record()
            code = _place_of(chunk, index, record)
            if code >= 0:
                self._show(chunk, bases, at)
                return of_record(chunk, index, record[0], code, self._decode)
            if code == _native.RETIRED:
                self._mapped.forget_below(chunk.sequence + 1)
                continue
            if code == _native.ROLL and at == len(bases) - 1 and self._chain.names()[-1][0] != sequences[at]:
                continue  # a chunk was made in this moment
            if code == _native.ROLL and chunk.adoption():
                return self._adopted(index, chunk)
            raise self._missing(index, code, chunk)
        raise self._missing(index, code)

    def _adopted(self, index: int, chunk: _native.Chunk) -> Message:
        """The message at *index* in what was adopted behind *chunk* and is not in its place yet."""
        following = self._chain.after(chunk)
        while following is not None:
            record = _new_record()
            code = _place_of(following, index, record)
            if code >= 0:
                return of_record(following, index, record[0], code, self._decode)
            if code != _native.ROLL:
                raise self._missing(index, code, following)
            following = self._chain.after(following)
        raise self._missing(index, _native.EMPTY)

    def _missing(self, index: int, code: int, chunk: _native.Chunk | None = None) -> Exception:
        """Why there is no such message."""
        path, first = self._home.path, self._chain.first_index()
        if chunk is not None and code == _native.WAITING:
            return IndexError(f"message {index} of {path} is claimed and not committed yet")
        if code == _native.PADDED:
            return IndexError(f"there is no message {index} in {path}: its producer died or gave it up (padding)")
        if index < first:
            return IndexError(f"message {index} of {path} was retired: the first index still there is {first}")
        if code not in (0, _native.EMPTY, _native.ROLL, _native.RETIRED):
            return _native.error(code, f"cannot read message {index} of {path}")
        end = self.next_index()
        if index < end and code == _native.ROLL:
            return IndexError(f"there is no message {index} in {path}: a recovery went on behind it in a new epoch")
        there = f"its indexes go from {first} to {end - 1}" if end > first else f"it is empty; its next index is {end}"
        return IndexError(f"{path} has no message {index}: {there}")

    def forward(self, start: int, stop: int) -> Iterator[Message]:
        """All messages from *start* to before *stop*; what is padding, or not committed yet, is left out."""
        index = start
        tries = 0
        self.next_index()  # knows all chunks there are now
        while index < stop:
            bases, sequences = self._names
            at = bisect.bisect_right(bases, index) - 1
            if at < 0:
                if not bases or bases[0] >= stop:
                    return
                at, index = 0, bases[0]
            end = min(stop, bases[at + 1]) if at + 1 < len(bases) else stop
            upto = min(end, index + 256)
            found = self._group(sequences[at], bases[at], index, upto)
            if found is None:
                tries += 1
                if tries > _TRIES:
                    return
                self._refresh()
                continue
            yield from found
            index = upto if found or index < self._claimed(sequences[at]) else end  # over a gap in one step

    def backward(
        self, start: int, stop: int, *, skip_corrupt: bool = False, wants: _native.Matcher | None = None
    ) -> Iterator[Message]:
        """
        The same from the last to the first: group after group is read forward, and delivered backward. With *wants*,
        what matches.
        """
        group = min(max(self._home.options.index_spacing, 16), 256)
        index = min(stop, self.next_index())
        tries = 0
        while index > start:
            bases, sequences = self._names
            at = bisect.bisect_right(bases, index - 1) - 1
            if at < 0:
                return
            base = bases[at]
            begin = max(start, base + (index - 1 - base) // group * group)
            try:
                found = self._group(sequences[at], base, begin, index, wants)
            except errors.Corrupt:
                for message in self._singly(begin, index, skip_corrupt=skip_corrupt):
                    if wants is None or wants.wants(message):
                        yield message
                found = []
            if found is None:
                tries += 1
                if tries > _TRIES:
                    return
                self._refresh()
                continue
            yield from reversed(found)
            index = begin if found else max(start, min(begin, self._claimed(sequences[at])))

    def _group(
        self, sequence: int, base: int, start: int, stop: int, wants: _native.Matcher | None = None
    ) -> list[Message] | None:
        """The messages of one chunk between two indexes, 256 apart at most; None when the chunk was retired."""
        if sequence < self._membership.control.first_live():
            return None
        try:
            chunk = self._chunk(sequence, base)
        except FileNotFoundError:
            return None
        found = _native.messages(chunk, start - base, stop - base)
        return [
            of_record(chunk, index, record, place, self._decode)
            for index, record, place in found
            if wants is None or wants.wants_record(chunk, record)
        ]

    def _claimed(self, sequence: int) -> int:
        """The index behind the last claimed one in a chunk that is mapped; beyond it, recovery may have left a gap."""
        chunk = self._mapped.get(sequence)
        return (1 << 64) - 1 if chunk is None else chunk.next_index()

    def _singly(self, start: int, stop: int, *, skip_corrupt: bool) -> Iterator[Message]:
        """Backward, up to the damaged one, which raises, or is counted."""
        for index in range(stop - 1, start - 1, -1):
            try:
                yield self.message(index)
            except IndexError:
                continue
            except errors.Corrupt:
                if not skip_corrupt:
                    raise
                self.skipped += 1

    def sliced(self, wanted: slice) -> list[Message]:
        """The messages there are of a slice; ends are clipped, as of a list."""
        indexes = range(*wanted.indices(self.next_index()))
        if not indexes:
            return []
        low, high = min(indexes[0], indexes[-1]), max(indexes[0], indexes[-1])
        if abs(indexes.step) < 64:
            each = self.forward(low, high + 1) if indexes.step > 0 else self.backward(low, high + 1)
            return [message for message in each if message.index in indexes]
        found = []
        for index in indexes:
            try:
                found.append(self.message(index))
            except IndexError:
                continue
        return found

    # ---- how far, and how much
    def committed(self) -> int:
        """The index before which everything is decided: nothing below it can appear, change or go on being claimed."""
        for attempt in range(_TRIES):
            bases, sequences = self._refresh() if attempt else self._known()
            found = self._committed(bases, sequences)
            if found is not None:
                return found
        raise errors.Busy(f"cannot look for the end of {self._home.path}: chunks are retired too fast")

    def _committed(self, bases: list[int], sequences: list[int]) -> int | None:
        """None when chunks were retired meanwhile."""
        end = 0
        begin = bisect.bisect_left(sequences, self._undecided)
        for base, sequence in zip(bases[begin:], sequences[begin:], strict=True):
            if sequence in self._time_max and sequence != sequences[-1]:
                self._undecided = sequence + 1
                continue  # sealed, and all of it decided
            try:
                chunk = self._chunk(sequence, base)
            except FileNotFoundError:
                return None
            found = _native.first_at(chunk, _TIME_MAX)
            if found.code == _native.RETIRED:
                return None
            if found.open is not None:
                return base + found.open
            if found.code == 0:  # a message of the last time there is hides what comes behind it
                return self._decided(chunk)
            end = base + found.ordinal
            if found.code == _native.ROLL:
                self._time_max[sequence] = found.time_max
                end = chunk.sealed() or end  # what was put behind it since is for the next one who asks
        return end

    def _decided(self, chunk: _native.Chunk) -> int:
        """The same within and behind one chunk, message by message."""
        reader = _native.reader(chunk, chunk.base, None)
        while _native.look(chunk, reader, 0) >= 0:
            pass
        return chunk.base + int(reader.ordinal)

    def extents(self, start: int, stop: int) -> list[Extent]:
        """What there is between two indexes, by chunk. What was retired meanwhile is left out."""
        names = self._known()
        for _ in range(_TRIES):
            try:
                return self._extents(*names, start, stop)
            except FileNotFoundError:
                names = self._refresh()
        raise errors.Busy(f"cannot look for what lies where in {self._home.path}: chunks are retired too fast")

    def _extents(self, bases: list[int], sequences: list[int], start: int, stop: int) -> list[Extent]:
        found = []
        for at in range(max(bisect.bisect_right(bases, start) - 1, 0), len(bases)):
            base = bases[at]
            end = min(bases[at + 1], stop) if at + 1 < len(bases) else stop
            first = max(base, start)
            if base >= stop:
                break
            if first < end:
                used = self._used(self._chunk(sequences[at], base), end)
                found.append(Extent(first, end, used * (end - first) // max(end - base, 1)))
        return found

    def _used(self, chunk: _native.Chunk, stop: int) -> int:
        """How many bytes of a chunk the messages below *stop* take."""
        for index in range(stop - 1, max(stop - 64, chunk.base) - 1, -1):  # the last ones may be padding
            record = _new_record()
            place = _place_of(chunk, index, record)
            if place >= 0:
                return (place >> _native.LENGTH_BITS) + (place & _native.LENGTH_MASK)
        return chunk.size

    # ---- by time
    def index_of(self, place: str | float | datetime.datetime, what: str) -> int:
        """
        The index that is meant by *place*: an index, "earliest", "latest", or the first message of a time or later.

        An index is handed back as it is, also one that is negative or beyond the end.

        Args:
            place: see above; a float is a time in seconds since 1970, a datetime without a zone is local time.
            what: what the caller calls it, for the error.

        Raises:
            TypeError, ValueError: it is none of these.
        """
        if isinstance(place, float) or is_datetime(place):
            return self.at(nanoseconds(place), before_claims=True)
        if place == "latest":
            return self.next_index()
        if place == "earliest":
            return self.first_index()
        if isinstance(place, str):
            raise ValueError(f"{what}={place!r}: {_PLACE}")  # noqa: TRY004  # a word may be right
        return given.whole(what, place, wanted=_PLACE)

    def at(self, wanted: int, *, before_claims: bool = False) -> int:
        """
        The index of the first message whose time is *wanted* or later; the next index when there is none.

        Args:
            wanted: ns since 1970.
            before_claims: rather the first claim before it that is not committed yet, which may turn out to be it.
        """
        for attempt in range(_TRIES):
            bases, sequences = self._refresh() if attempt or not self._names[0] else self._names
            found = self._at(wanted, bases, sequences, before_claims=before_claims) if bases else self._at_first()
            if found is not None:
                return found
        raise errors.Busy(f"cannot look up a time in {self._home.path}: chunks are made and retired too fast")

    def _at_first(self) -> int | None:
        """Where the first message will be; None when there is a chunk by now."""
        first = self._chain.next_index()
        return None if self._chain.names() else first

    def _at(self, wanted: int, bases: list[int], sequences: list[int], *, before_claims: bool) -> int | None:
        """None when chunks were made or retired meanwhile."""
        claim, end, code = None, 0, 0
        for base, sequence in zip(bases, sequences, strict=True):
            known = self._time_max.get(sequence)
            if known is not None and known < wanted and sequence != sequences[-1]:
                continue
            try:
                chunk = self._chunk(sequence, base)
            except FileNotFoundError:
                return None
            found = _native.first_at(chunk, wanted)
            code, end = found.code, base + found.ordinal
            if code == _native.RETIRED:
                return None
            if found.open is not None and claim is None:
                claim = base + found.open
            if code == 0:
                break
            if code == _native.ROLL:
                self._time_max[sequence] = found.time_max
        if code == _native.ROLL:
            if self._chain.names()[-1][0] != sequences[-1]:
                return None
            end = chunk.sealed() or end  # a recovery left indexes out behind it
        return claim if before_claims and claim is not None else end
