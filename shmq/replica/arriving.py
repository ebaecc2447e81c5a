"""
Chunks that arrive. What is checked here is what whoever put it has computed: each message's checksum covers its chunk's
epoch and id, its place, its ordinal and its bytes.

A sealed chunk is written to a nameless file, and gets its name when all of it was checked. One that still grows has its
name from the beginning, and readers beside it: what comes is checked in memory of our own, and then written in place.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING, NamedTuple

from shmq import _native, errors
from shmq._native import layout
from shmq.closable import Closable
from shmq.storage import files, spares, sync
from shmq.storage.paths import CHUNKS, chunk_name
from shmq.storage.stretches import opened

if TYPE_CHECKING:
    from shmq.replica.pieces import Begin, Data, Region
    from shmq.storage.directory import Directory

_WORD = 8
_HINT = layout.chunk_header.hint


class Checked(NamedTuple):
    """What a region was found to be."""

    ordinal: int
    """Of what comes behind it."""
    hint: tuple[int, int]
    """The end of its last claim: position and ordinal."""
    sealed: bool
    adoption: int
    behind: int
    """The base of the chunk behind it, where it is sealed."""


def check(chunk: _native.DetachedChunk, region: Region) -> Checked:
    """
    Look at what has come from one end to the other.

    Raises:
        Corrupt: it is not whole.
    """
    survey = chunk.survey(position=region.position, ordinal=region.ordinal, trusted=chunk.size)
    sealed = survey.code == _native.ROLL
    end = survey.stopped + layout.SEAL_BYTES * sealed
    if survey.code not in (_native.EMPTY, _native.ROLL) or end != region.end:
        raise errors.Corrupt(
            f"cannot go on with {chunk.path}: what came for {region.position} to {region.end} is not whole "
            f"({survey.reason or f'it ends at {end}'}); it was not written"
        )
    hint = (survey.gap_position or survey.stopped, survey.stopped_ordinal)
    behind = survey.gap_index or chunk.base + survey.stopped_ordinal
    return Checked(survey.stopped_ordinal, hint, sealed, survey.adoption, behind)


def end_of(home: Directory, sequence: int, base: int) -> tuple[int, int, bool]:
    """
    Where a chunk of a follower ends, (position, ordinal): behind the last region that was written whole; and whether
    that is its SEAL.

    Raises:
        Corrupt: something in it is damaged.
    """
    with opened(home, CHUNKS, chunk_name(base, sequence), sequence, base) as chunk:
        survey = chunk.survey(trusted=chunk.size)
        if survey.code == _native.ROLL:
            return survey.stopped + layout.SEAL_BYTES, survey.stopped_ordinal, True
        if survey.code != _native.EMPTY and not _was_being_written(chunk, survey):
            reason = survey.reason or "it has a claim, and nobody claims here"
            raise errors.Corrupt(f"cannot go on with {chunk.path}: {reason}; nothing was changed")
        return survey.position, survey.ordinal, False


def _was_being_written(chunk: _native.DetachedChunk, survey: _native.Survey) -> bool:
    """
    Whether it ends there though something is behind: all but the first word of a region. Where the hint is farther, it
    does not, and that word was lost.
    """
    at = survey.stopped
    return not any(chunk.content(at, at + _WORD)) and chunk.hint()[0] <= at == survey.position


def new_file(home: Directory, folder: int, begin: Begin) -> _native.Fd:
    """
    A nameless file with the beginning of that chunk.

    Raises:
        DiskFull: there is no room.
        Corrupt: no chunk begins like that.
    """
    least = _native.Chunk.bytes_for(0, begin.spacing, begin.grain) if begin.spacing else _native.CHUNK_BYTES_MAX
    if not least <= begin.size <= _native.CHUNK_BYTES_MAX or begin.size % _native.PAGE_BYTES:
        raise errors.Corrupt(
            f"cannot make chunk {begin.sequence} of {home.path}: it is said to have {begin.size} bytes"
        )
    fd = files.new_file(folder, begin.size, f"{home.path}/{CHUNKS}")
    memory = _native.map_file(fd, begin.size, writable=True)
    try:
        _native.Chunk.format(
            memory,
            home.queue_id,
            begin.chunk_id,
            begin.epoch,
            begin.born_base,
            begin.born_sequence,
            begin.spacing,
            begin.grain,
            begin.created_ns,
        )
    finally:
        memory.close()
    return fd


def _refuse_outside(path: str, data: Data, first: int, size: int) -> None:
    if not first <= data.position <= data.position + len(data.content) <= size:
        raise errors.Corrupt(f"cannot go on with {path}: bytes came for {data.position}, which are none of its own")


class Whole(Closable):
    """A chunk that comes as a whole. Seen by nobody before it has a name."""

    def __init__(self, home: Directory, folder: int, begin: Begin) -> None:
        """Make its file; raises as `new_file`."""
        self.begin = begin
        self._home = home
        self._folder = folder
        self._fd = new_file(home, folder, begin)

    @property
    def path(self) -> str:
        """For errors."""
        return f"{self._home.path}/{CHUNKS}, chunk {self.begin.sequence}"

    def take(self, data: Data) -> None:
        """Some bytes of it."""
        _refuse_outside(self.path, data, layout.PAGE_BYTES, self.begin.size)
        sync.write(self._fd, data.content, data.position, "chunk")

    def finish(self, region: Region) -> Checked:
        """
        All of it has come: check it, and have it on the disk.

        Raises:
            Corrupt: it is not whole; it goes.
        """
        with _native.DetachedChunk(
            self._fd,
            self.begin.size,
            base=self.begin.base,
            sequence=self.begin.sequence,
            queue_id=self._home.queue_id,
            path=self.path,
            checksum=self._home.options.checksum,
            writable=True,
        ) as chunk:
            found = check(chunk, region)
            chunk.set_in_order(*found.hint)
        sync.data(self._fd, "chunk")
        return found

    def sync(self) -> None:
        """Have what has come of it on the disk."""
        sync.data(self._fd, "chunk")

    def name(self, name: str) -> None:
        """Give it its name, for all to see."""
        files.link_file(self._fd, self._folder, name, self.path)

    def close(self) -> None:
        """Without a name, it goes."""
        self._fd.close()


class Growing(Closable):
    """
    The last chunk, where it lies, to be written on while others read it.

    Whoever walks it loads a region's first word, by acquire, and goes no further where that is FREE. So all else of a
    region is stored first; then comes a fence (`wait_begin` has a full one), and then that word, by one aligned store
    of 64 bits: it pairs with that load. The hint follows behind another fence, the one in the wake, since a walker
    that finds a FREE word before the hint takes it for damage.
    """

    def __init__(self, home: Directory, member: _native.Member, sequence: int, base: int) -> None:
        """
        Open it, and cut it where it is whole: what lies behind came when somebody was killed.

        Raises:
            Corrupt: something in it is damaged.
        """
        self.sequence, self.base = sequence, base
        self.path = f"{home.path}/{CHUNKS}/{chunk_name(base, sequence)}"
        self._home, self._member = home, member
        self.position, self.ordinal, self.sealed = end_of(home, sequence, base)
        self._fd, size = home.open(home.chunks, chunk_name(base, sequence), writable=True)
        spares.hold_as_mapper(self._fd, chunk_name(base, sequence), home.chunks)
        with self._detached(size, None) as chunk:
            chunk.zero_from(self.position)
            if not self.sealed:
                chunk.set_in_order(self.position, self.ordinal)
            self._first = chunk.first_position()
        self._map = _native.map_file(self._fd, size, writable=True)
        self._words = memoryview(self._map).cast("Q")
        self._mirror = mmap.mmap(-1, size)
        self._mirror[: self._first] = self._map[: self._first]
        self._checker = self._detached(size, self._mirror)
        self.is_dirty = True
        self._was_refused = False

    def _detached(self, size: int, memory: mmap.mmap | None) -> _native.DetachedChunk:
        return _native.DetachedChunk(
            self._fd,
            size,
            base=self.base,
            sequence=self.sequence,
            queue_id=self._home.queue_id,
            path=self.path,
            checksum=self._home.options.checksum,
            writable=True,
            memory=memory,
        )

    def take(self, data: Data) -> None:
        """Some bytes of a region, which nobody sees."""
        _refuse_outside(self.path, data, self.position, len(self._mirror))
        self._mirror[data.position : data.position + len(data.content)] = data.content

    def publish(self, region: Region) -> Checked:
        """
        Have a region seen that has come.

        Raises:
            Corrupt: it is not whole, or does not belong behind what is there; nothing was written.
        """
        begin, end = region.position, region.end
        if self.sealed or (begin, region.ordinal) != (self.position, self.ordinal) or end <= begin:
            raise errors.Corrupt(f"cannot go on with {self.path}: what came does not belong at {self.position}")
        found = check(self._checker, region)
        self._map[begin + _WORD : end] = self._mirror[begin + _WORD : end]
        self._member.wait_begin()  # a full fence: whoever sees the word sees all of that
        self._words[begin // _WORD] = int.from_bytes(self._mirror[begin : begin + _WORD], "little")
        self._member.ring()
        position, ordinal = found.hint
        self._words[_HINT // _WORD] = position // 8 << 36 | ordinal
        self.position, self.ordinal, self.sealed = end, found.ordinal, found.sealed
        self.is_dirty = True
        return found

    def sync(self) -> None:
        """
        Have it on the disk.

        Raises:
            OSError: the disk refused. It can be asked again.
        """
        if not self.is_dirty:
            return
        if self._was_refused:
            self._map[:] = self._map[:]  # what the kernel believes to be clean is written once more
        try:
            sync.data(self._fd, "chunk")
        except OSError:
            self._was_refused = True
            raise
        self.is_dirty = self._was_refused = False

    def finish(self) -> None:
        """It is sealed: have its index whole."""
        with self._detached(len(self._mirror), None) as chunk:
            survey = chunk.survey()
            chunk.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)

    def close(self) -> None:
        """Let go of it."""
        self._words.release()
        self._map.close()
        self._checker.close()
        self._fd.close()
