"""
What was put with dedup: once for each (producer, sequence), whoever is killed wherever.

The record itself says who put it and which one of its it is, so at no moment is a message in the queue and its id is
not. Everything else is a cache that is made again by walking the records:

    in a process     {producer: its last put}, and how far the walk has come; the puts before the last ones only
                     when somebody repeats one of them
    dedup.shmq       both for whole chunks, so that nobody walks from the beginning; what retires a chunk notes first
                     what is in it, and what is noted is on the disk before the note

What is remembered is bounded: of each producer its puts from WINDOW below its last sequence on, PUTS of all of them,
and the last put of each of the last PRODUCERS producers.

Puts and adoptions of one producer take turns, by an OFD lock on a byte of control.shmq. So whoever holds it knows of
every open claim that it is none of these: it belongs to another producer, to a put without dedup, or to somebody who
was killed. It may become a record of another producer, and is looked at again.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import struct
import time

from shmq import _native, errors, later, locks
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import forgotten, ledger, records, staging
from shmq.storage.admin import ADMIN_TIMEOUT
from shmq.storage.paths import CONTROL, DEDUP, DEDUP_NEW, LEDGER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

NOTE_CHUNKS = 4
"""How many whole chunks a walk has passed when it is noted how far it came."""
WINDOW = 1 << 16
"""How far below the last sequence of its producer a put is remembered."""
PUTS = 1 << 20
"""How many puts with dedup are remembered, whoever made them."""
PRODUCERS = records.PRODUCERS
"""Of how many producers at least the last put is."""
_FIELD = struct.Struct("<16sQ")
_PUT = struct.Struct("<16sQQQ")
_BYTES = 40
"""Of the bits of a producer's identity, how many say which byte its turns are locked by."""
_STOPPED_NS = 5_000_000_000
"""Whoever waits for so long looks whether it waits for a process that is stopped."""
_NAP_FIRST, _NAP_MAX = 0.00005, 0.005
_making = locks.Lock()
"""Whoever makes what threads take turns with."""

Batches = dict[bytes, records.Adopted]


@functools.lru_cache(maxsize=1024)
def identity(producer: bytes) -> bytes:
    """What a record says instead of a producer's name."""
    later.ready("hashlib")
    import hashlib  # noqa: PLC0415  # only who uses it pays for it

    return hashlib.blake2b(producer, digest_size=16).digest()


def field(producer: bytes, sequence: int) -> _native.Fixed:
    """What a record has: struct field_dedup of layout.h."""
    return _native.RECORD_DEDUP, _FIELD.pack(identity(producer), sequence)


def is_used(home: Directory) -> bool:
    """Whether anything was ever put with dedup here."""
    return home.has_dedup()


# ---------------------------------------------------------------- what is remembered
class Memory:
    """
    What was put with dedup, as far as it is remembered.

    Attributes:
        last: the last put of each producer, by identity.
        puts: all of them, by identity and sequence.
        forwarded: what was forwarded, by the source's incarnation and a sequence that says so.
    """

    def __init__(self) -> None:
        """Nothing."""
        self.last: Batches = {}
        self.puts: dict[tuple[bytes, int], records.Adopted] = {}
        self.forwarded: dict[tuple[bytes, int], records.Adopted] = {}
        self._room = 2 * WINDOW

    def kept(self) -> list[tuple[tuple[bytes, int], records.Adopted]]:
        """The puts that are remembered, in the order of the queue."""
        floors = {who: batch.sequence - WINDOW for who, batch in self.last.items()}
        above = [item for item in self.puts.items() if item[0][1] > floors.get(item[0][0], -1)]
        return sorted(above, key=_by_index)[-PUTS:]

    def enter(self, who: bytes, batch: records.Adopted) -> None:
        """It was put, or forwarded."""
        if batch.sequence & _native.DEDUP_FORWARDED:
            self.forwarded.setdefault((who, batch.sequence), batch)
            return
        _enter(self.last, who, batch)
        self.puts[who, batch.sequence] = batch
        if len(self.puts) > min(2 * PUTS, self._room):
            self.puts = dict(self.kept())
            self._room = 2 * max(len(self.puts), WINDOW)
        if len(self.last) > 2 * PRODUCERS:
            self.last = newest(self.last)

    def forget(self, floors: forgotten.Floors) -> None:
        """Forget what was forwarded and never comes again, as its sources have said."""
        for who, sequence in list(self.forwarded) if floors else ():
            floor = floors.get(who)
            if floor is not None and (floor.is_silent() or floor.is_done(sequence & ~_native.DEDUP_FORWARDED)):
                del self.forwarded[who, sequence]

    def before(self, end: int) -> Memory:
        """What of it lies before that index."""
        kept = Memory()
        for (who, _), batch in (*self.puts.items(), *self.forwarded.items()):
            if batch.first + batch.indexes <= end:
                kept.enter(who, batch)
        for who, batch in self.last.items():
            if batch.first + batch.indexes <= end:
                kept.enter(who, batch)
        return kept

    def __eq__(self, other: object) -> bool:
        """The same puts."""
        mine = self.last, self.puts, self.forwarded
        return isinstance(other, Memory) and mine == (other.last, other.puts, other.forwarded)

    __hash__ = None  # type: ignore[assignment]  # it changes


def _by_index(item: tuple[Any, records.Adopted]) -> int:
    return item[1].first


def newest(batches: Batches) -> Batches:
    """The last PRODUCERS of them, by where they are."""
    return dict(sorted(batches.items(), key=_by_index)[-PRODUCERS:]) if len(batches) > PRODUCERS else batches


class Note:
    """
    What was put in the chunks before one. Read as it is stored: nothing is unpacked for whoever asks for one producer.

    Attributes:
        sequence: of the first chunk that is not noted.
    """

    def __init__(self, sequence: int, last: bytes, puts: bytes) -> None:
        """
        Of what is stored.

        Raises:
            ValueError: that is no note.
        """
        if sequence < 0 or len(last) % _PUT.size or len(puts) % _PUT.size:
            raise ValueError("it is not a note")
        self.sequence = sequence
        self._last, self._puts = last, puts

    def last(self, who: bytes) -> records.Adopted | None:
        """The last put of that identity."""
        low, high, size = 0, len(self._last) // _PUT.size, _PUT.size
        while low < high:
            middle = (low + high) // 2
            if self._last[middle * size : middle * size + 16] < who:
                low = middle + 1
            else:
                high = middle
        if low * size < len(self._last) and self._last[low * size : low * size + 16] == who:
            return records.Adopted(*_PUT.unpack_from(self._last, low * size)[1:])
        return None

    def memory(self) -> Memory:
        """All of it."""
        found = Memory()
        for who, *batch in _PUT.iter_unpack(self._puts):
            of = found.forwarded if batch[0] & _native.DEDUP_FORWARDED else found.puts
            of[who, batch[0]] = records.Adopted(*batch)
        found.last = {who: records.Adopted(*batch) for who, *batch in _PUT.iter_unpack(self._last)}
        return found

    def forwarded(self, source: bytes) -> dict[int, tuple[int, int]]:
        """What was forwarded from there: by the index it had there, the first index here and how many."""
        return {
            sequence & ~_native.DEDUP_FORWARDED: (first, count)
            for who, sequence, first, count in _PUT.iter_unpack(self._puts)
            if who == source and sequence & _native.DEDUP_FORWARDED
        }


def read_note(home: Directory) -> Note | None:
    """
    What is noted; None when there is no note.

    Raises:
        Corrupt: it is damaged.
    """
    try:
        stored = records.read_record(home, home.fd, DEDUP, home.path)
    except FileNotFoundError:
        return None
    sequence, last, puts = stored
    if len(last) % _PUT.size == len(puts) % _PUT.size == 0:
        return Note(sequence, last, puts)
    raise errors.Corrupt(f"cannot read {home.path}/{DEDUP}: it is not a note of what was put; nothing was changed")


def content(sequence: int, memory: Memory) -> list[Any]:
    """What a note of that has."""
    last = sorted(newest(memory.last).items())
    puts = memory.kept() + sorted(memory.forwarded.items(), key=_by_index)
    return [
        sequence,
        b"".join(_PUT.pack(who, *batch) for who, batch in last),
        b"".join(_PUT.pack(who, *batch) for (who, _), batch in puts),
    ]


def write_note(home: Directory, sequence: int, memory: Memory) -> None:
    """Replace the note, synced. Under the administrative lock only."""
    records.replace_record(home, DEDUP, DEDUP_NEW, content(sequence, memory), "dedup")


def forwarded_field(incarnation: bytes, index: int) -> _native.Fixed:
    """What the first record has that comes of the message at *index* of that source."""
    return _native.RECORD_DEDUP, _FIELD.pack(incarnation, _native.DEDUP_FORWARDED | index)


def begin(home: Directory) -> None:
    """
    Have a note before the first put with dedup: from then on nothing retires unnoted.

    Without the administrative lock, so that nobody who is stopped while holding it is waited for: of several, one links
    the note. Who retires looks for it when it knows which chunks go; a put behind this line claims in none of them.
    """
    if not is_used(home):
        records.make_record(home, DEDUP, content(0, Memory()), "dedup")


def note(home: Directory, chain: Chain, before: int) -> bool:
    """
    Note what is in the chunks before that sequence; False when one of them has an open claim.

    Under the administrative lock only. What is noted is synced first: a power cut takes nothing that is noted.
    """
    known = read_note(home)
    if known is None or known.sequence >= before:
        return True
    memory, scan = known.memory(), _native.DedupScan(_native.DEDUP_ALL)
    for number, base in chain.names():
        if known.sequence <= number < before:
            chunk = chain.open(number, base)
            if chunk.resolved().code != _native.ROLL:
                return False
            for who, batch in walk(chunk, scan, [0, 0], []):
                memory.enter(who, records.Adopted(*batch))
    memory.forget(forgotten.floors(home))
    staging.sync_up_to(home, before - 1)
    write_note(home, before, memory)
    return True


class Claim(NamedTuple):
    """One that was open when a walk came by."""

    chunk: _native.Chunk
    position: int
    ordinal: int
    end: int


def walk(
    chunk: _native.Chunk, scan: _native.DedupScan, place: list[int], opened: list[Claim], until: int = 0
) -> Iterator[tuple[bytes, tuple[int, int, int]]]:
    """What was put in the chunk from that place on, which moves along; claims that are open are added to *opened*."""
    code, base = _native.OK, chunk.base
    while code == _native.OK:
        code, *moved = chunk.scan_dedup(scan, place[0], place[1], until)
        for who, sequence, position, first, end, count, _ in scan.rows():
            if end:
                opened.append(Claim(chunk, position, first, end))
            else:
                yield who, (sequence, base + first, count)
        place[:] = moved
        if until and place[0] >= until:
            return


def _enter(batches: Batches, who: bytes, batch: records.Adopted) -> None:
    before = batches.get(who)
    if before is None or before.sequence < batch.sequence:
        batches[who] = batch


# ---------------------------------------------------------------- taking turns
def turn_byte(producer: bytes) -> int:
    """Of control.shmq: who puts as that producer has a lock on it."""
    return _native.LOCK_DEDUP + (int.from_bytes(identity(producer)[:8], "little") >> (64 - _BYTES))


class _Turn:
    """What one opening of the queue takes turns with, opened once."""

    def __init__(self, home: Directory) -> None:
        # Of the opening, so one thread's is every thread's.
        self._lock = _native.Lock(home.open(home.fd, CONTROL, writable=True)[0])
        self._threads = locks.Lock()
        self.pid = os.getpid()

    @classmethod
    def of(cls, home: Directory) -> _Turn:
        """That of *home*, in this process. Threads that come first at the same time get the same one."""
        known = home.turn
        if not isinstance(known, _Turn) or known.pid != os.getpid():
            with _making:
                known = home.turn
                if not isinstance(known, _Turn) or known.pid != os.getpid():
                    known = home.turn = cls(home)
        return known

    def close(self) -> None:
        """Nobody takes turns here any more."""
        self._lock.free()

    @contextlib.contextmanager
    def taken(self, producer: bytes) -> Iterator[bool]:
        """Try: whether it is ours."""
        byte = turn_byte(producer)
        with self._threads:
            try:
                yield self._lock.take(byte)
            finally:  # also of one that was not ours: what a signal's handler raises may hide which it was
                self._lock.give_back(byte)


@contextlib.contextmanager
def alone(home: Directory, control: _native.Control, producer: bytes, deadline_ns: int, tried: str) -> Iterator[None]:
    """
    Be the only one in all processes and threads who puts or adopts with dedup as that producer.

    Raises:
        Busy: somebody was at it all that time; or is stopped, which may be for ever.
    """
    nap, turn, began = _NAP_FIRST, _Turn.of(home), 0
    while True:
        with turn.taken(producer) as ours:
            if ours:
                yield
                return
        now = _native.monotonic_ns()
        began = began or now
        late = 0 <= deadline_ns <= now
        if late or now - began >= _STOPPED_NS:
            stopped = _stopped(control)
            if late or stopped:
                who = f"; of those who have the queue open, process {', '.join(map(str, stopped))} is stopped"
                raise errors.Busy(
                    f"cannot {tried} {home.path} as {producer!r}: somebody else was at it as the same producer all the "
                    f"time{who if stopped else ''}; nothing was put"
                )
            began = now
        time.sleep(nap)
        nap = min(nap * 2, _NAP_MAX)


def _stopped(control: _native.Control) -> list[int]:
    """Those who have the queue open, as far as can be seen from here, and do not run."""
    space = os.stat("/proc/self/ns/pid").st_ino
    found = []
    for _, _, pid, namespace, began in control.participants():
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open(f"/proc/{pid}/stat", "rb") as file:
                state = file.read().rpartition(b") ")[2].split()
            if namespace == space and state[0] in (b"T", b"t") and int(state[19]) == began:
                found.append(pid)
    return found


def admin_deadline() -> int:
    """When an administrative action gives up."""
    return _native.monotonic_ns() + int(ADMIN_TIMEOUT * 1e9)


# ---------------------------------------------------------------- what was put
class Known:
    """The last batch of every producer, put or adopted, as far as one process has looked. For one thread at a time."""

    def __init__(self, home: Directory, chain: Chain) -> None:
        """Nothing is known yet."""
        self._home = home
        self._chain = chain
        self._scan = _native.DedupScan(_native.DEDUP_NEWEST)
        self._forget()

    def _forget(self) -> None:
        self._chunk: _native.Chunk | None = None
        self._place = [0, 0]
        self._open: list[Claim] = []
        self._noted = 0
        self._note: Note | None = None
        self._put: dict[bytes, tuple[int, int, int]] = {}  # plain: there may be a hundred thousand to enter at once
        self._all: Memory | None = None
        self._adopted: Batches = {}
        self._ledger_seen: Any = None

    def find(self, producer: bytes, sequence: int, tried: str) -> range | None:
        """
        Where that batch was put or adopted; None when it was not. Who is about to put holds the lock meanwhile.

        Raises:
            Mismatch: a later one was, and this one not, or so long ago that it was forgotten.
            Corrupt: a note or a chunk is damaged.
        """
        last = self.last(producer)
        if last is not None and last.sequence > sequence:
            earlier = self._earlier(identity(producer), sequence)
            last = last if earlier is None else earlier
        return known(last, producer, sequence, tried)

    def last(self, producer: bytes) -> records.Adopted | None:
        """
        The last batch of that producer.

        Raises:
            Corrupt: a note or a chunk is damaged.
        """
        self._look_at_ledger()
        while True:
            try:
                self._walk_on()
                break
            except (errors.Gone, FileNotFoundError):  # retired meanwhile, and noted before that
                self._forget()
                self._look_at_ledger()
        who = identity(producer)
        noted = None if self._note is None else self._note.last(who)
        found = [batch for batch in (noted, self._put.get(who), self._adopted.get(who)) if batch is not None]
        return records.Adopted(*max(found, key=operator.itemgetter(0))) if found else None

    def _earlier(self, who: bytes, sequence: int) -> records.Adopted | None:
        """A batch before the last one of that producer. From the first such question on, all of them are kept."""
        adopted = self._adopted.get(who)
        if adopted is not None and adopted.sequence == sequence:
            return adopted
        while self._all is None:
            self._forget()
            self._scan = _native.DedupScan(_native.DEDUP_PUT)
            self._look_at_ledger()
            try:
                self._begin()
                self._all = Memory() if self._note is None else self._note.memory()
                self._walk_on()
            except (errors.Gone, FileNotFoundError):
                self._all = None
        return self._all.puts.get((who, sequence))

    def stands(self) -> tuple[int, int, int] | None:
        """Up to where all was looked at: the chunk, and the place in it; None where claims are left to be looked at."""
        return None if self._chunk is None else (self._chunk.sequence, self._place[0], self._place[1])

    def worth_noting(self) -> int:
        """Before which chunk to note now; 0 when it is not worth it."""
        if self._chunk is None or self._chunk.sequence < self._noted + NOTE_CHUNKS:
            return 0
        return self._chunk.sequence

    def noted(self, before: int) -> None:
        """Remember that what lies before *before* was noted."""
        self._noted = before

    def _look_at_ledger(self) -> None:
        try:
            info = os.stat(LEDGER, dir_fd=self._home.fd, follow_symlinks=False)
        except FileNotFoundError:
            return
        seen = (info.st_ino, info.st_mtime_ns, info.st_size)
        if seen != self._ledger_seen:
            for producer, batch in ledger.ledger(self._home).items():
                _enter(self._adopted, identity(producer), batch)
            self._ledger_seen = seen

    def _walk_on(self) -> None:
        if self._chunk is None:
            self._begin()
        opened, self._open = self._open, []
        for claim in opened:
            self._enter_all(claim.chunk, [claim.position, claim.ordinal], claim.end)
        while self._chunk is not None:
            code = self._enter_all(self._chunk, self._place)
            following = self._chain.after(self._chunk) if code == _native.ROLL else None
            if following is None:
                return
            self._pass(self._chunk)
            self._chunk, self._place = following, [0, 0]

    def _enter_all(self, chunk: _native.Chunk, place: list[int], until: int = 0) -> int:
        """Enter what was put there: how the walk ended."""
        put, every = self._put, self._all
        for who, batch in walk(chunk, self._scan, place, self._open, until):
            before = put.get(who)
            if before is None or before[0] < batch[0]:
                put[who] = batch
            if every is not None:
                every.enter(who, records.Adopted(*batch))
        if len(put) > 2 * PRODUCERS:
            self._put = dict(sorted(put.items(), key=lambda item: item[1][1])[-PRODUCERS:])
        return int(self._scan.code[0])

    def _begin(self) -> None:
        self._note = read_note(self._home)
        self._noted = 0 if self._note is None else self._note.sequence
        live = [name for name in self._chain.names() if name[0] >= self._noted]
        if live:
            self._noted = max(self._noted, live[0][0])
            self._chunk, self._place = self._chain.open(*live[0]), [0, 0]

    def _pass(self, chunk: _native.Chunk) -> None:
        """What was adopted behind that chunk is in the ledger, or will be: then its manifest says the same."""
        adoption = chunk.adoption()
        if not adoption:
            return
        try:
            with staging.open_set(self._home, f"{adoption:010x}") as found:
                manifest = found.manifest()
                if manifest.producer and chunk.chunk_id() not in manifest.chunk_ids:
                    base = chunk.sealed() or 0
                    batch = records.Adopted(manifest.sequence, base, sum(manifest.counts))
                    _enter(self._adopted, identity(manifest.producer), batch)
        except FileNotFoundError:
            self._ledger_seen = None
            self._look_at_ledger()


def known(last: records.Adopted | None, producer: bytes, sequence: int, tried: str) -> range | None:
    """
    What that batch was put or adopted as; None when it was not.

    Raises:
        Mismatch: a later one was.
    """
    if last is None or last.sequence < sequence:
        return None
    if last.sequence > sequence:
        raise errors.Mismatch(
            f"cannot {tried}: it is batch {sequence} of {producer!r}, and batch {last.sequence} was put or adopted "
            "before it; sequences ascend. Either it never was, or so long ago that it is forgotten: remembered are the "
            f"puts of a producer from {WINDOW} below its last sequence on, the last {PUTS} of all, and the last "
            "adoption of each producer; nothing was changed"
        )
    return range(last.first, last.first + last.indexes)


def rewind(home: Directory, end: int, *, last: int) -> None:
    """
    After a power cut: forget what is not there any more. By whoever recovers the queue.

    *end*: the index behind what is kept; *last*: the last chunk that is.
    """
    with contextlib.suppress(FileNotFoundError):
        os.unlink(DEDUP_NEW, dir_fd=home.fd)
    try:
        found = read_note(home)
    except errors.Corrupt:
        return  # whoever puts next is told
    if found is None:
        return
    memory = found.memory()
    kept = memory.before(end)
    if kept != memory or found.sequence > last:
        write_note(home, 0, kept)  # what is left is looked for in all there is


def last_of(home: Directory, chain: Chain, producer: bytes) -> records.Adopted | None:
    """The last batch of that producer, adopted or put."""
    if is_used(home):
        return Known(home, chain).last(producer)
    return ledger.batches_of(home).get(producer)
