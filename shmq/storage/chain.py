"""
Which chunk comes next, and which one holds an index.

The successor of a sealed chunk is <base + count>-<sequence + 1>: everyone who finds it sealed agrees on that name, so
everyone may make it, and who comes second uses the first one's. Sequences have no holes, so a chunk that is missing or
doubled is told from one that is empty.
"""

from __future__ import annotations

import collections
import contextlib
import itertools
import os
import struct

from shmq import _native, errors, later
from shmq._native.layout import chunk_header
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import files, new_chunks, spares, warm
from shmq.storage.new_chunks import grain_for
from shmq.storage.paths import CHUNKS, chunk_name, parse_chunk_name
from shmq.where import says_where

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmq.storage.directory import Directory
    from shmq.storage.view import View

_BORN = struct.Struct("<QQ")
_FEW = 64
"""Of so many chunks, whoever opens a queue looks for each; of more, for the first and the last."""
_TRIES = 1000
"""How often to look for the live end while others fill, finish and retire whole chunks between two of our steps."""


class _Renewed(NamedTuple):
    """A used file that has become the next chunk."""

    fd: _native.Fd
    key: spares.Key
    size: int


def break_in(live: list[tuple[int, int]]) -> str:
    """What is wrong with these (sequence, base) as a chain; nothing, if they are one."""
    for (sequence, base), (after, next_base) in itertools.pairwise(live):
        if after == sequence + 1 and next_base >= base:
            continue
        here, there = chunk_name(base, sequence), chunk_name(next_base, after)
        if after == sequence:
            return f"there are two chunks of sequence {sequence}, {here} and {there}"
        return f"chunk {sequence + 1} is missing between {here} and {there}"
    return ""


@says_where("_home.path", "names", "is_there", "open", "after", "tail", "roll")
class Chain:
    """The chunks of one queue, as one member sees them."""

    def __init__(self, home: Directory, member: _native.Member) -> None:
        """Nothing is opened yet."""
        self._home = home
        self.member = self._member = member
        self.make_room: Callable[[], object] | None = None
        """What gives chunks back that nobody needs, for whoever may call it where the disk is full."""
        self.brought_back: list[tuple[int, int]] = []
        """(sequence, base) of what the last listing had that is of no chain any more: under names that were retired."""
        self.looked_through: _native.Chunk | None = None
        """A chunk that is mapped to be written, for `tail`, if it is the last one still."""
        self.remembered: tuple[int, int] | None = None
        """(sequence, base) of a chunk where somebody stood: `named` asks for it before it lists thousands of names."""
        self._made_last = -1  # the sequence of the last chunk, if it was made here
        self.await_used: Callable[[int], bool] | None = None
        """Whether a used file has come back, for whoever would make a new one of so many bytes otherwise."""

    def names(self) -> list[tuple[int, int]]:
        """
        (sequence, base) of the live chunks, in order, after checking that they are a chain.

        Raises:
            Corrupt: one is missing, or there are two of one sequence.
        """
        if self._home.view is not None:
            return self._home.view.names()
        while True:
            first_live, newest = self._member.control.first_live(), self.newest()
            listed = self._home.chunk_names()
            self.brought_back = [name for name in listed if name[0] < first_live]
            live, problem = self._filled(listed, first_live, newest)
            if self._member.control.first_live() == first_live:  # else some were retired, and may be missing in it
                break
        if problem:
            files.refuse_removed(self._home.fd, self._home.path)
            raise errors.Corrupt(f"cannot read {self._home.path}: {problem}; nothing was changed")
        return live

    def _filled(self, listed: list[tuple[int, int]], first_live: int, newest: int) -> tuple[list[tuple[int, int]], str]:
        """
        The chain, and what is wrong with it.

        A listing is no snapshot: it may have a chunk and not the one that was linked just before it. So a chunk that is
        not listed is looked for by its name, which the chunk before it tells, or the journal.
        """
        if not listed and newest < 0:
            return [], ""
        if listed and listed[0][0] == first_live and newest <= listed[-1][0] and not break_in(listed):
            return listed, ""  # as nearly always
        live: list[tuple[int, int]] = []
        rest = collections.deque(name for name in listed if name[0] >= first_live)
        if not rest or rest[0][0] != first_live:
            journal = self._home.read_journal()
            if journal.first_live != first_live or not self.is_there(first_live, journal.first_index):
                return [], f"chunk {first_live} is missing, where the queue begins"
            rest.appendleft((first_live, journal.first_index))
        while rest:
            live.append(rest.popleft())
            wanted = live[-1][0] + 1
            if wanted <= (rest[-1][0] if rest else newest) and not (rest and rest[0][0] <= wanted):
                base = self._end_of(*live[-1])
                if base is None or not self.is_there(wanted, base):
                    break
                rest.appendleft((wanted, base))
        problem = break_in([*live, *rest])
        if not problem and newest > live[-1][0]:
            problem = f"chunk {newest} is missing, where the queue ends"
        return live, problem

    def check(self) -> None:
        """
        Refuse a chain whose first or last chunk is missing; of a short one, any. What is missing in the middle of a
        long one is found by whoever comes there: to open a queue takes no longer when there is more in it.

        Raises:
            Corrupt: one is missing.
        """
        if 0 <= self.newest() - self._member.control.first_live() < _FEW:
            self.names()
            return
        first, last = self.first(), self.last()
        if first is None or last is None or last[0] - first[0] < _FEW:
            self.names()

    def refuse_removed(self) -> None:
        """
        For who goes on with what is mapped.

        Raises:
            NotFound: the queue was removed.
        """
        files.refuse_removed(self._home.fd, self._home.path)

    def is_there(self, sequence: int, base: int) -> bool:
        """Whether there is a chunk of that name."""
        return files.is_there(self._home.chunks, chunk_name(base, sequence))

    def _end_of(self, sequence: int, base: int) -> int | None:
        """Where the chunk behind that one begins; None when it is not sealed, or has just been retired."""
        with contextlib.suppress(FileNotFoundError):
            return self.open(sequence, base).sealed()
        return None

    def listed(self) -> list[tuple[int, int]]:
        """(sequence, base) of the live chunks that are there, in order, whether they are a chain or not."""
        if self._home.view is not None:
            return self._home.view.names()
        first_live = self._member.control.first_live()
        return [name for name in self._home.chunk_names() if name[0] >= first_live]

    def newest(self) -> int:
        """The sequence of a chunk that must be there; -1 when none must. The control page knows only its boot."""
        return self._member.control.newest() if self._home.same_boot else -1

    def open(
        self,
        sequence: int,
        base: int,
        *,
        writable: bool = False,
        syncing: bool = False,
        staged: tuple[int, str] | None = None,
    ) -> _native.Chunk:
        """
        Map one chunk. Reading maps it read-only; a claim whose owner died is padded through a momentary window.

        *syncing*: keep a descriptor, to sync it by. *staged*: folder and file of one that is adopted and still aside.

        Raises:
            FileNotFoundError: there is no such file (yet, or any more).
            Corrupt, BadFormat, Unsafe: it cannot be used.
        """
        if self._home.view is not None:
            return self._open_in_view(self._home.view, sequence, base)
        folder, name = staged or (self._home.chunks, chunk_name(base, sequence))
        fd, size = self._home.open(folder, name, writable=not self._home.read_only)
        return self._map(
            fd, size, sequence, base, folder, name, writable=writable, syncing=syncing, live=staged is None
        )

    def _map(
        self,
        fd: _native.Fd,
        size: int,
        sequence: int,
        base: int,
        folder: int,
        name: str,
        *,
        writable: bool,
        syncing: bool,
        live: bool = True,
    ) -> _native.Chunk:
        """As `open`, what *fd* has open, which is closed, unless the chunk keeps it."""
        may_write = not self._home.read_only
        try:
            info = os.fstat(fd)
            # Nobody may ever write to what was mapped through an opening to read, so it serves no other one.
            key = (info.st_dev, info.st_ino if may_write else -info.st_ino, writable)
            memory = warm.take(key, fd)
            if memory is not None and len(memory) != size:
                memory = None
            if (memory is None and not spares.lock_as_mapper(fd)) or (
                os.stat(name, dir_fd=folder).st_ino != info.st_ino
            ):
                raise FileNotFoundError(name)  # retired between the two calls
            if live and sequence < self._member.control.first_live():
                raise FileNotFoundError(name)  # a slow roller has made an empty one of that name
            if not _native.PAGE_BYTES <= size <= _native.CHUNK_BYTES_MAX:
                raise errors.Corrupt(
                    f"cannot open {self._home.path}/{CHUNKS}/{name}: it has {size} bytes, and no chunk has so "
                    f"{'few' if size < _native.PAGE_BYTES else 'many'}; nothing was changed"
                )
            mapped = memory or _native.map_held(fd, size, writable=writable)
            chunk = self._chunk(fd, sequence, base, name, mapped, writable=writable, used=memory is not None)
            if memory is None:
                warm.keep(key, chunk.map, self._home.queue_id)
            if syncing and may_write:
                chunk.keep(fd)
                return chunk
        except BaseException:
            fd.close()
            raise
        fd.close()
        return chunk

    def _chunk(
        self, fd: int, sequence: int, base: int, name: str, memory: _native.FileMap, *, writable: bool, used: bool
    ) -> _native.Chunk:
        """A live chunk that is mapped there."""
        return _native.Chunk(
            fd,
            len(memory),
            base=base,
            sequence=sequence,
            queue_id=self._home.queue_id,
            member=self._member,
            path=f"{self._home.path}/{CHUNKS}/{name}",
            writable=writable,
            padding=not (self._home.read_only or writable),
            checksum=self._home.options.checksum,
            memory=memory,
            used=used,
        )

    def _go_on_in(self, renewed: _Renewed, sequence: int, base: int) -> _native.Chunk:
        """
        The chunk that a used file has become here, which is mapped, and locked since before it had this name.

        So whatever has happened to the name since, nobody has cleared the file; `_enter` sees whether it was retired.
        """
        fd, key, size = renewed
        syncing = self._home.options.durability.waits
        name = chunk_name(base, sequence)
        try:
            memory = warm.take(key, fd, locked=True)
            if memory is None:  # another thread came to the chunk before us
                return self._map(fd, size, sequence, base, self._home.chunks, name, writable=True, syncing=syncing)
            chunk = self._chunk(fd, sequence, base, name, memory, writable=True, used=True)
            if syncing:
                chunk.keep(fd)
                return chunk
        except BaseException:
            fd.close()
            raise
        fd.close()
        return chunk

    def map_staged(self, fd: int, size: int, path: str, number: int) -> _native.Chunk:
        """A chunk of a set that nobody builds any more, writable, its indexes from 0 on. *fd* stays the caller's."""
        chunk = _native.Chunk(
            fd,
            size,
            base=0,
            sequence=number,
            queue_id=self._home.queue_id,
            member=self._member,
            path=path,
            writable=True,
            padding=False,
            checksum=self._home.options.checksum,
        )
        chunk.seals_as(0)  # its number is no sequence of the chain
        return chunk

    def _open_in_view(self, view: View, sequence: int, base: int) -> _native.Chunk:
        """A chunk of an unclean queue, as it would be after its recovery; the file stays as it is."""
        piece = view.pieces.get(sequence)
        if piece is None or piece.base != base:
            raise FileNotFoundError(chunk_name(base, sequence))
        above = (
            contextlib.nullcontext(self._home.chunks) if piece.folder == CHUNKS else self._home.below_path(piece.folder)
        )
        with above as folder:
            fd, size = self._home.open(folder, piece.file, writable=False)
            spares.hold_as_mapper(fd, piece.file, folder)
            return _native.Chunk(
                fd,
                size,
                base=base,
                sequence=sequence,
                queue_id=self._home.queue_id,
                member=self._member,
                path=f"{self._home.path}/{piece.path}",
                writable=False,
                padding=False,
                checksum=self._home.options.checksum,
                ends=view.ends(sequence),
            )

    def first(self) -> tuple[int, int] | None:
        """(sequence, base) of the first live chunk, where the journal says it is; None before the first put."""
        if self._home.view is None:
            first_live, journal = self._member.control.first_live(), self._home.journal
            if journal.first_live != first_live:
                journal = self._home.read_journal()
            if journal.first_live == first_live and self.is_there(first_live, journal.first_index):
                return first_live, journal.first_index
        live = self.names()
        return live[0] if live else None

    def oldest(self, goes: Callable[[tuple[int, int]], bool]) -> list[tuple[int, int]]:
        """
        (sequence, base) of the first chunks: each one that may go, for *goes* says so of its successor, and the one
        behind the last of them.

        Of many, each is found by the name that the one before it tells, so thousands of others make it no longer. Under
        the administrative lock.
        """
        if 0 <= self.newest() - self._member.control.first_live() < _FEW:
            live = self.names()
            return live[: 1 + sum(1 for _ in itertools.takewhile(goes, live[1:]))]
        self.brought_back = []
        first = self.first()
        found = [] if first is None else [first]
        while found:
            base = self._end_of(*found[-1])
            following = found[-1][0] + 1, base or 0
            if base is None or not self.is_there(*following) or not goes(following):
                break  # or nobody has made it yet, or it is still aside: then this one is the last
            found.append(following)
        return found

    def last(self) -> tuple[int, int] | None:
        """
        (sequence, base) of the last chunk, where the control page says it is; None before the first put.

        It may be one that was the last a moment ago, which leads there.
        """
        sequence = -1 if self._home.view is not None else self.newest()
        if sequence >= self._member.control.first_live():
            base = self._member.control.newest_base()
            if self.is_there(sequence, base):
                return sequence, base
        return self._last_listed()

    def is_passed(self, index: int) -> bool:
        """Whether *index* is one that was given, or the next, as far as the name of the last chunk tells."""
        last = self.last()
        return last is not None and index <= last[1]

    def since(self, sequence: int) -> list[tuple[int, int]]:
        """(sequence, base) of the live chunks from that one on to the last that was entered to put, or behind it."""
        last = self.last()
        if last is not None and 0 <= last[0] - sequence < _FEW:
            found = [last] if last[0] == sequence else self._named(range(sequence, last[0] + 1))
            if len(found) == last[0] - sequence + 1 and not break_in(found):
                return found
        return [name for name in self.names() if name[0] >= sequence]

    def named(self, sequence: int) -> list[tuple[int, int]]:
        """(sequence, base) of the live chunk of that sequence, if there is one."""
        if self._home.view is not None or sequence < self._member.control.first_live():
            return [name for name in self.names() if name[0] == sequence]
        if self.remembered is not None and self.remembered[0] == sequence and self.is_there(*self.remembered):
            return [self.remembered]
        return self._named(range(sequence, sequence + 1))

    def _named(self, sequences: range) -> list[tuple[int, int]]:
        """(sequence, base) of those that are listed: of many names, only these few are taken apart."""
        ends = {chunk_name(0, sequence)[16:] for sequence in sequences}
        names = (name for name in files.names_in(self._home.chunks) if name[16:] in ends)
        return sorted(found for name in names if (found := parse_chunk_name(name)))

    def first_index(self) -> int:
        """The first index still there; before the first put, the one that it will get."""
        first = self.first()
        return self._home.journal.first_index if first is None else first[1]

    def next_index(self) -> int:
        """The index behind the last claimed one."""
        return self._to_the_end(finish=False)

    def end_of_last(self) -> int | None:
        """The index behind the last claimed one, by the last chunk alone; None where it is sealed, or there is none."""
        chunk = self._open_last(self.last)
        return None if chunk is None or chunk.sealed() is not None else chunk.next_index()

    def finish(self) -> None:
        """
        Have the set that is adopted at the end, if there is one, moved to its place.

        Raises:
            DiskFull: there is no room for that; who reads goes on without.
        """
        self._to_the_end(finish=True)

    def last_adoption(self) -> int:
        """The id of the set that the SEAL of the last chunk with a name leads to, finished or not; 0 for none."""
        chunk = self._open_last(self._last_listed)
        return 0 if chunk is None else chunk.adoption()

    def _to_the_end(self, *, finish: bool) -> int:
        while True:
            chunk, end = self._open_last(self.last), self._home.journal.first_index
            with contextlib.suppress(errors.Gone):  # retired since the listing: look again
                while chunk is not None:
                    end = chunk.next_index()
                    chunk = self.after(chunk, finish=finish)
                return end

    def _last_listed(self) -> tuple[int, int] | None:
        live = self.names()
        return live[-1] if live else None

    def _open_last(self, last: Callable[[], tuple[int, int] | None]) -> _native.Chunk | None:
        """The last chunk, for reading; None before the first put."""
        while True:
            name = last()
            if name is None:
                return None
            try:
                return self.open(*name)
            except FileNotFoundError:  # retired since the look; if it is only missing, the next listing says so
                if name[0] >= self._member.control.first_live():
                    self.names()
                    raise

    def locate(self, index: int) -> tuple[int, int] | None:
        """(sequence, base) of the chunk that holds *index*, or would: the last one that begins at or before it."""
        first = self.first()
        if first is None or index < first[1]:
            return first
        if index == first[1]:
            with self._home.at_hand():
                return self._behind_empty(*first)
        last = self.last()
        if last is not None and last[1] <= index:
            return last
        live = self.names()
        at = sum(base <= index for _, base in live)
        return live[max(at - 1, 0)] if live else None

    def _behind_empty(self, sequence: int, base: int) -> tuple[int, int]:
        """
        (sequence, base) of the first one from there on that is not empty, or the last: what follows an empty one begins
        where that does.

        Not by a name alone, which somebody may have changed: what follows was made under it; or, where it was staged
        first, the SEAL of the empty one says so.
        """
        while (
            self._home.view is None
            and self.is_there(sequence + 1, base)
            and (self._was_made_as(sequence + 1, base) or self._end_of(sequence, base) == base)
        ):
            sequence += 1
        return sequence, base

    def _was_made_as(self, sequence: int, base: int) -> bool:
        """Whether that chunk was made under that name: not staged first, nor renamed."""
        with contextlib.suppress(FileNotFoundError):
            name = chunk_name(base, sequence)
            return self._home.read_at(self._home.chunks, name, _BORN.size, chunk_header.born_base) == _BORN.pack(
                base, sequence
            )
        return False

    def after(self, chunk: _native.Chunk, *, finish: bool = False) -> _native.Chunk | None:
        """
        The chunk behind a sealed one, for reading; None when nobody has made it yet.

        *finish*: what is adopted must move to its place; else it is read where it is, when there is no room for that.

        Raises:
            Corrupt: it is missing although later ones are there, or begins elsewhere.
            Gone: it was retired.
            DiskFull: see *finish*.
        """
        base = chunk.sealed()
        if base is None:
            return None
        return self._open_next(chunk, base, writable=False, finish=finish)

    def _open_next(
        self, chunk: _native.Chunk, base: int, *, writable: bool, finish: bool = False
    ) -> _native.Chunk | None:
        problem = ""
        adoption = chunk.adoption()
        if writable and not adoption and self._home.same_boot and self.newest() <= chunk.sequence:
            return None  # nobody is known to have made it: whoever makes it finds out
        for _ in range(3):  # it may be linked between our looking for it and our looking for later ones
            try:
                return self._open_tail(chunk.sequence + 1, base) if writable else self.open(chunk.sequence + 1, base)
            except FileNotFoundError:
                if adoption and self._home.view is None:
                    aside = self._finish_adoption(chunk, adoption, base, must=writable or finish)
                    if aside is not None:
                        return aside
                    problem = f"it is followed by adoption {adoption:010x}, and there is no such set in staging"
                    continue
                problem = self._missing(chunk.sequence + 1, base)
            if not problem:
                return None
        if chunk.sequence + 1 < self._member.control.first_live():
            raise self._gone(f"cannot go on after {chunk.path}: what followed it was retired")
        raise errors.Corrupt(f"cannot go on after {chunk.path}: {problem}; nothing was changed")

    def _finish_adoption(self, chunk: _native.Chunk, adoption: int, base: int, *, must: bool) -> _native.Chunk | None:
        """
        Have what was staged linked behind *chunk*; who may not do that gets the chunk that follows, where it is.

        So does who finds no room for it, unless it *must* be linked.
        """
        later.ready("shmq.storage.staging")
        from shmq.storage import staging  # noqa: PLC0415  # only who meets what was adopted pays for it

        if not self._home.read_only:
            try:
                staging.finish(self._home, self._member.control, chunk, adoption, base)
            except errors.DiskFull:
                if must:
                    raise
            else:
                return None
        found = staging.following(self._home, chunk, adoption)
        if found is None:
            return None
        with found[0] as aside:
            try:
                return self.open(chunk.sequence + 1, base, staged=(aside.fd, found[1]))
            except FileNotFoundError:
                return None  # moved to its place meanwhile

    def _missing(self, sequence: int, base: int) -> str:
        """Why there should be such a chunk; nothing, if nobody has made it yet."""
        if self._home.view is not None:
            return ""
        newest = self.newest()
        if self._home.same_boot and newest < sequence:
            return ""
        later = [name for name in self._home.chunk_names() if name[0] >= sequence]
        if not later and newest < sequence:
            return ""
        wanted = chunk_name(base, sequence)
        if not later:
            return f"{wanted} is missing, and has been there"
        return f"{wanted} is missing, and {chunk_name(later[0][1], later[0][0])} is there"

    def tail(self) -> _native.Chunk:
        """
        The chunk that takes the next put, writable; made if the queue has none.

        Raises:
            DiskFull: there is no room to make it.
        """
        with self._home.at_hand():
            return self._tail()

    def _tail(self) -> _native.Chunk:
        known, self.looked_through = self.looked_through, None
        self.check()
        for _ in range(_TRIES):
            last = self.last()
            if last is None:
                first = self._home.read_journal().first_index
                new_chunks.make_chunk(
                    self._home, first, self._member.control.first_live(), make_room=self.make_room, deadline_ns=0
                )  # the first ones are small: not worth a wait
                last = self.names()[-1]
            with contextlib.suppress(errors.Gone, FileNotFoundError):  # filled, finished and retired since we looked
                if known is not None and (known.sequence, known.base) == last:
                    return self._enter(known)
                return self._enter(self._open_tail(*last))
        raise self._gone(f"cannot put into {self._home.path}: its last chunk went {_TRIES} times while it was opened")

    def roll(
        self, chunk: _native.Chunk, region: int = 0, *, to_seal: bool = False, deadline_ns: int = _native.FOREVER
    ) -> _native.Chunk:
        """
        The chunk behind a sealed one, writable; made if it is not there, with room for *region* bytes.

        *to_seal*: nothing is to be put there but a SEAL. *deadline_ns*: when the put that rolls must be done.

        Raises:
            DiskFull: there is no room to make it. The chain ends with a sealed chunk, which is legal.
        """
        base = chunk.sealed()
        if base is None:
            return chunk
        with self._home.at_hand():
            return self._rolled(chunk, base, region, to_seal=to_seal, deadline_ns=deadline_ns)

    def _rolled(
        self, chunk: _native.Chunk, base: int, region: int, *, to_seal: bool, deadline_ns: int
    ) -> _native.Chunk:
        sequence = chunk.sequence + 1
        following = self._open_next(chunk, base, writable=True)
        if following is not None:
            return self._enter(following)
        grain = grain_for(region, base - chunk.base, chunk.size)
        before = max(sequence - self._member.control.first_live(), 0)  # it may be damaged, or have risen
        filled = 0 if to_seal else chunk.filled()[1]
        filled = chunk.size if 2 * filled >= chunk.size else filled  # what was sealed for the next message was full
        renewed: list[_Renewed] = []

        def renew(at_least: int, at_most: int) -> bool:
            for key, memory in warm.idle(self._home.queue_id).items():
                if at_least <= len(memory) <= at_most:
                    fd = new_chunks.renewed(self._home, key, memory, base, sequence, grain)
                    if fd is not None:
                        renewed.append(_Renewed(fd, key, len(memory)))
                        return True
            return False

        made = new_chunks.make_chunk(
            self._home,
            base,
            sequence,
            region,
            before,
            grain,
            self.make_room,
            filled,
            busy=new_chunks.is_quick(chunk.created_ns(), filled),
            await_used=self.await_used,
            renew=renew,
            alone=chunk.sequence == self._made_last,
            deadline_ns=deadline_ns,
        )
        self._made_last = sequence if made else -1
        try:
            return self._enter(
                self._go_on_in(renewed[0], sequence, base) if renewed else self._open_tail(sequence, base)
            )
        except (errors.Gone, FileNotFoundError):  # filled by others, finished and retired, before or after it was made
            if made:
                self._home.drop_chunk(base, sequence)
            raise self._gone(f"cannot go on after {chunk.path}: what followed it was retired meanwhile") from None

    def _gone(self, what: str) -> errors.Gone:
        first = self.first_index()
        return errors.Gone(f"{what}; the first index still there is {first}", first)

    def _open_tail(self, sequence: int, base: int) -> _native.Chunk:
        return self.open(sequence, base, writable=True, syncing=self._home.options.durability.waits)

    def _enter(self, chunk: _native.Chunk) -> _native.Chunk:
        # Whoever opened or linked a chunk looks again before the first claim there: a slow roller could have brought a
        # retired name back to life.
        if chunk.sequence < self._member.control.first_live():
            raise self._gone(f"cannot put into {chunk.path}: it was retired meanwhile")
        if chunk.sealed() is None:
            self._home.cover(chunk.base, chunk.size)
        self._member.control.enter(chunk.sequence, chunk.base)
        return chunk
