"""
Writing a queue a second time: a copy of a living one, and a clean copy of a damaged one.

Both build a new directory beside its place and give it its name when it is whole. Chunk files are cloned where the file
system can (reflink), else copied by the kernel; never linked, since a retired chunk is zeroed where it lies. A copy
names no boot, so its first opening for writing recovers it and goes on in a new epoch: no (epoch, index) is given
twice.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import shutil
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from shmq import _native, errors, later
from shmq.storage import boots, dedup, directory, files, headers, ledger, new_chunks, pins, reach, records, ring, verify
from shmq.storage.paths import ASIDE, CHUNKS, CONSUMERS, CONTROL, DEDUP, LEDGER, QUEUE, chunk_name, parse_chunk_name
from shmq.storage.recover import apply, consumers, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

_TRIES = 20
"""How often a copy begins anew that cannot hold back what is retired before it comes to it."""
_NOWHERE = bytes(16)
"""The boot of a queue that was never open."""
_QUEUE_ID_AT, _HEADER_CRC = 40, (12, 16, 128)
_CHECKPOINT_ID_AT, _CHECKPOINT_CRC = 16, (60, 0, 128)


@dataclasses.dataclass(frozen=True)
class Copied:
    """
    A copy that was made.

    Attributes:
        path: where.
        messages: in it.
        first_index, next_index: the indexes that it holds; it is exact up to next_index.
    """

    path: str
    messages: int
    first_index: int
    next_index: int


@dataclasses.dataclass(frozen=True)
class Repaired:
    """
    A clean copy of a damaged queue. True when nothing was lost.

    Attributes:
        path: where it is.
        messages: that are whole, and in it.
        lost: indexes that have no message any more; they are padding now, or lie before the first or behind the last
            one that is there.
        problems: what was wrong.
        kept: where the damaged queue is, when the clean one took its place; else empty. Of one that was whole there is
            no other, and it was left as it is.
        gone: files beside the chunks that could not be saved: a consumer whose checkpoint is gone begins anew; without
            the ledger or the memory of dedup, a batch that was adopted or put once can be so again.
        at_least: whether more may be lost than is counted: a chunk was missing or could not be read where the queue
            began or ended, and nothing tells for certain how many messages were in it.
        complete: whether nothing was lost.
    """

    path: str
    messages: int
    lost: int
    problems: tuple[verify.Problem, ...]
    kept: str = ""
    gone: tuple[str, ...] = ()
    at_least: bool = False

    @property
    def complete(self) -> bool:
        """Whether nothing was lost."""
        return not (self.lost or self.gone or self.at_least)

    def __bool__(self) -> bool:
        """Whether nothing was lost."""
        return self.complete


# ---------------------------------------------------------------- a new directory
class _Target:
    """A directory that nobody knows yet. A context manager: removed, unless it was finished."""

    def __init__(self, home: Directory, to: str, queue_id: bytes) -> None:
        self.path = os.path.abspath(to)
        self.queue_id = queue_id
        self._home = home
        self._finished = home.read_journal().flags & _native.JOURNAL_FINISHED
        self._dropped = verify.dropped(home)  # before the first chunk is copied: what is put later is none of it
        self.gone: list[str] = []
        self._making = f"{self.path}.making-{os.urandom(4).hex()}"
        self._mode = home.options.mode & 0o600
        if os.path.lexists(self.path):
            raise errors.Unsafe(f"cannot write to {self.path}: something is there; nothing was changed")
        try:
            files.new_directory(self._making)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot write to {self.path}: the directory above it does not exist") from None
        self._fds: list[_native.Fd] = []
        try:
            self.fd = self._keep(files.open_directory(self._making))
            for name in (CHUNKS, CONSUMERS):
                files.make_directory(f"{self._making}/{name}", self.fd)
            self.chunks = self._keep(files.open_directory(f"{self._making}/{CHUNKS}", above=self.fd))
            self.consumers = self._keep(files.open_directory(f"{self._making}/{CONSUMERS}", above=self.fd))
        except BaseException:
            self.__exit__()
            raise

    def _keep(self, fd: _native.Fd) -> _native.Fd:
        self._fds.append(fd)
        return fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._fds:
            self._fds.pop().close()
        shutil.rmtree(self._making, ignore_errors=True)

    @contextlib.contextmanager
    def file(self, directory: int, name: str, size: int) -> Iterator[int]:
        """A new file of *size* zeros, to be filled; synced and named at the end."""
        fd = files.new_file(directory, size, self._mode, self._making)
        with fd:
            yield fd
            os.fsync(fd)
            files.link_file(fd, directory, name, self._making)

    def forget_chunks(self) -> None:
        """Begin anew with the chunks."""
        for name in files.names_in(self.chunks):
            os.unlink(name, dir_fd=self.chunks)

    def write(self, directory: int, name: str, content: bytes) -> None:
        """A new file with that content."""
        with self.file(directory, name, len(content)) as fd:
            written = 0
            while written < len(content):
                written += os.pwrite(fd, content[written:], written)

    def chunk(self, fd: int, size: int, base: int, sequence: int) -> _native.DetachedChunk:
        """A chunk of it that is being made, to be put in order."""
        return _native.DetachedChunk(
            fd,
            size,
            base=base,
            sequence=sequence,
            queue_id=self.queue_id,
            path=f"{self.path}/{CHUNKS}/{chunk_name(base, sequence)}",
            checksum=self._home.options.checksum,
            writable=True,
        )

    def finish(self, first_live: int, first_index: int, ceiling: int) -> None:
        """Write what makes it a queue, and give it its name."""
        self.write(self.fd, CONTROL, _native.format_control(self.queue_id))
        finished = self._finished & self._home.read_journal().flags  # before and after: all of it was there, and is
        control = os.stat(CONTROL, dir_fd=self.fd)
        journal = self._home.journal._replace(
            sequence=2,
            boot_id=_NOWHERE,
            ceiling=ceiling,
            first_live=first_live,
            first_index=first_index,
            device=control.st_dev,
            inode=control.st_ino,
            flags=finished,
            dropped=self._dropped,
        )
        later.ready("json")
        import json  # noqa: PLC0415

        stored = json.dumps(self._home.options.to_json(), separators=(",", ":")).encode()
        content = _native.format_queue(self.queue_id, time.time_ns(), stored) + _native.format_journal(journal)
        self.write(self.fd, QUEUE, content.ljust(_native.QUEUE_BYTES, b"\0"))
        for fd in self._fds:
            os.fsync(fd)
        with files.open_plainly(os.path.dirname(self.path)) as above:
            if not _native.rename_new(above, os.path.basename(self._making), os.path.basename(self.path)):
                raise errors.Unsafe(f"cannot write to {self.path}: somebody has put something there meanwhile")
            os.fsync(above)


def _mend_crc(fd: int, crc_at: int, start: int, stop: int) -> None:
    """The checksum of bytes that were changed; its own field is outside of them, or counts as zero."""
    content = bytearray(os.pread(fd, stop, 0))
    if start <= crc_at < stop:
        content[crc_at : crc_at + 4] = bytes(4)
    os.pwrite(fd, _native.crc32c(bytes(content[start:stop])).to_bytes(4, "little"), crc_at)


def _give_id(fd: int, queue_id: bytes, at: int, crc: tuple[int, int, int]) -> None:
    if os.pread(fd, 16, at) != queue_id:
        os.pwrite(fd, queue_id, at)
        _mend_crc(fd, *crc)


# ---------------------------------------------------------------- a copy of a living queue
def copy(home: Directory, chain: Chain, to: str, *, new_id: bool) -> Copied:
    """
    Copy the queue to the new directory *to*, exactly up to one index, while others go on.

    Raises:
        Corrupt: a message is damaged; nothing was written. `repair` writes what is whole.
        Unsafe: there is something at *to*.
        DiskFull: there is no room.
    """
    with _held_back(home) as pin, _Target(home, to, os.urandom(16) if new_id else home.queue_id) as target:
        _copy_consumers(home, target)  # first: so none is ahead of what is copied
        first, end, messages, ceiling = _copy_what_is_there(home, chain, target, pin)
        for copy_one in (_copy_ledger, _copy_dedup):
            copy_one(home, target, end)
        target.finish(first[0], first[1], max(ceiling, end))
        return Copied(target.path, messages, first[1], end)


@contextlib.contextmanager
def _held_back(home: Directory) -> Iterator[pins.Pin | None]:
    """Keep what is about to be copied from being retired; who may write nothing cannot."""
    if home.read_only or home.unclean():
        yield None
        return
    pin = pins.Pin(home, None)
    try:
        pin.take()
        yield pin
    finally:
        pin.close()


def _copy_what_is_there(
    home: Directory, chain: Chain, target: _Target, pin: pins.Pin | None
) -> tuple[tuple[int, int], int, int, int]:
    """As `_copy_chunks`; again from the first one that is left, when nothing held back what was retired meanwhile."""
    for _ in range(_TRIES):
        try:
            return _copy_chunks(home, chain, target, pin)
        except (errors.Gone, FileNotFoundError):
            target.forget_chunks()
    raise errors.Gone(
        f"cannot copy {home.path}: {_TRIES} times what was to be copied next was retired meanwhile; nothing was "
        "written. Opened for writing, a queue holds back what is being copied"
    )


def _copy_chunks(
    home: Directory, chain: Chain, target: _Target, pin: pins.Pin | None
) -> tuple[tuple[int, int], int, int, int]:
    """(sequence and index of the first, the index behind the last message, messages, ceiling)."""
    first = chain.first()
    if first is None:
        start = chain.first_index()
        return (home.journal.first_live, start), start, 0, 0
    upto = chain.next_index()  # as it is now: others may put faster than this copies
    chunk: _native.Chunk | None = chain.open(*first)
    messages = ceiling = end = 0
    while chunk is not None:
        if pin is not None:
            pin.move(chunk.base)  # what was copied may go
        with contextlib.suppress(errors.Corrupt):  # the survey says so
            chunk.resolved()  # what the dead had claimed is padding, and ends no copy
        survey = chunk.survey()
        if survey.code == _native.CORRUPT:
            raise errors.Corrupt(f"cannot copy {home.path}: {chunk.path}: {survey.reason}; nothing was written")
        sealed = survey.code == _native.ROLL
        _copy_chunk(chunk, target, survey, sealed=sealed)
        messages += survey.messages
        end = chunk.base + survey.stopped_ordinal
        ceiling = chunk.base + chunk.size // _native.RECORD_BYTES_MIN
        # Where somebody is about to commit, the copy ends: nothing behind it is in it. Of a set that is adopted all is.
        chunk = chain.after(chunk) if sealed and (end < upto or chunk.adoption()) else None
    return first, end, messages, ceiling


def _copy_chunk(chunk: _native.Chunk, target: _Target, survey: _native.Survey, *, sealed: bool) -> None:
    with target.file(target.chunks, chunk_name(chunk.base, chunk.sequence), chunk.size) as fd:
        upto = chunk.size if sealed else survey.stopped
        source = chunk.descriptor()
        if source is None:
            os.pwrite(fd, chunk.map[:upto], 0)
        else:
            files.transfer(source, fd, upto, whole=sealed)
        _give_id(fd, target.queue_id, _QUEUE_ID_AT, _HEADER_CRC)
        with target.chunk(fd, chunk.size, chunk.base, chunk.sequence) as made:
            made.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)


def _copy_consumers(home: Directory, target: _Target) -> None:
    for name in home.consumer_names():
        with contextlib.suppress(FileNotFoundError):  # dropped meanwhile
            damaged = _copy_name(home, target, name)
            if damaged and name in home.consumer_names():
                target.gone.append(f"{CONSUMERS}/{damaged}")


def _copy_name(home: Directory, target: _Target, name: str) -> str:
    """All that belongs to that name; or nothing, and the file that is damaged."""
    file = f"{name}.checkpoint"
    content = home.read(home.consumers, file, _native.CHECKPOINT_BYTES)
    if not consumers.checkpoint_is_whole(content, home.queue_id, name):
        return file
    try:
        if home.checkpoint(name).group:
            file = f"{name}.group"
            ring.options(home, name)
            file = f"{name}.ring"
            _copy_group(home, target, name, ring.extent(home, name))
        with target.file(target.consumers, f"{name}.checkpoint", len(content)) as fd:
            os.pwrite(fd, content, 0)
            _give_id(fd, target.queue_id, _CHECKPOINT_ID_AT, _CHECKPOINT_CRC)
            if not home.unclean():
                _take_snapshot(home, target, name, fd)
    except (errors.Corrupt, errors.BadFormat):
        return file
    hold = pins.hold_file(home, name)
    if hold is not None:
        target.write(target.consumers, f"{name}.hold", hold)
    return ""


def _take_snapshot(home: Directory, target: _Target, name: str, fd: int) -> None:
    """Have the copied checkpoint say where the name stands in this boot, for the recovery of the copy goes by that."""
    where = f"{target.path}/{CONSUMERS}/{name}.checkpoint"
    copied = _native.Checkpoint(fd, _native.CHECKPOINT_BYTES, target.queue_id, name, where)
    before = copied.newest_snapshot()
    if not copied.group:
        sequence = 1 if before is None else before.sequence + 1
        content = _native.format_snapshot(_native.Snapshot(sequence, home.journal.epoch, copied.head))
        os.pwrite(fd, content, _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES * (1 - sequence % 2))
        return
    code = _native.GROW
    while code == _native.GROW:  # another part of the side table was made meanwhile
        memory = ring.map_ring(home, name, writable=False)
        path = f"{home.path}/{CONSUMERS}/{name}.ring"
        if _native.Ring.boot_id(memory, home.queue_id, path) != boots.boot_id():
            return  # nobody was in it since the last boot: the snapshot that is there is the truth
        code = _native.Ring(memory, home.queue_id, copied, None, path).snapshot(home.journal.epoch)
    newest = copied.newest_snapshot()
    assert newest is not None  # noqa: S101  # it was taken
    copied.head = newest.head  # in order by key it begins with what is put aside, which is no move


def _copy_group(home: Directory, target: _Target, name: str, extent: tuple[int, int, int, int]) -> None:
    """What it was made with, and an empty ring of that size: the first opening sets it by the checkpoint's snapshot."""
    stored = home.read(home.consumers, f"{name}.group", ring.OPTIONS_MAX)
    target.write(target.consumers, f"{name}.group", stored[:8] + target.queue_id + stored[24:])
    with target.file(target.consumers, f"{name}.ring", _native.ring_bytes(*extent)) as fd:
        size = os.fstat(fd).st_size
        with contextlib.closing(_native.map_file(fd, size, writable=True)) as made:
            _native.format_ring(made, target.queue_id, _NOWHERE, extent)


def _copy_ledger(home: Directory, target: _Target, end: int) -> None:
    batches = {
        producer: list(batch) for producer, batch in ledger.ledger(home).items() if batch.first + batch.indexes <= end
    }
    if batches:
        target.write(target.fd, LEDGER, records.pack(batches))


def _copy_dedup(home: Directory, target: _Target, end: int) -> None:
    note = dedup.read_note(home)
    if note is not None:  # what is in the chunks is looked for anew
        target.write(target.fd, DEDUP, records.pack(dedup.content(0, note.memory().before(end))))


# ---------------------------------------------------------------- a clean copy of a damaged one
class _Source(NamedTuple):
    """A chunk file to be saved from, in whatever folder."""

    sequence: int
    base: int
    folder: int
    name: str


def salvage(home: Directory, to: str | None, epoch: int) -> Repaired:
    """
    Write what the recovery of that epoch has set aside into a queue of its own, under the indexes that it had.

    Raises:
        NotFound: that recovery has set no chunk aside.
        Unsafe: there is something at *to*.
    """
    target = os.path.abspath(to if to is not None else f"{home.path}.aside-{epoch}")
    with contextlib.ExitStack() as opened:
        sources = []
        with contextlib.suppress(errors.NotFound):
            folder = opened.enter_context(home.below(ASIDE))
            for name in files.names_in(folder):
                chunk = parse_chunk_name(name.removeprefix(f"{epoch:08x}-"))
                if chunk is not None and name.startswith(f"{epoch:08x}-"):
                    sources.append(_Source(*chunk, folder, name))
        if not sources:
            raise errors.NotFound(f"no recovery of epoch {epoch} has set a chunk of {home.path} aside")
        with _Target(home, target, home.queue_id) as made:
            written = _write_sources(home, made, _one_each(sources), reach.NOWHERE)
            assert written is not None  # noqa: S101  # what is set aside is not retired
        return Repaired(target, written.messages, written.lost, (), at_least=written.at_least)


def repair(home: Directory, to: str | None, *, in_place: bool) -> Repaired:
    """
    Write everything that is whole, under the indexes that it had, into a new directory; what is not becomes padding.

    Raises:
        Unsafe: there is something at *to*.
        Busy: in_place, and somebody has the queue open.
    """
    found = verify.verify(home)
    if in_place and found:
        return Repaired(home.path, found.messages, 0, ())
    if in_place:
        with home.admin():
            if apply.somebody_is_there(home):
                raise errors.Busy(f"cannot repair {home.path} in place: somebody has it open; nothing was changed")
            clean = f"{home.path}.clean-{os.urandom(4).hex()}"
            saved = _write_clean(home, clean)
            _check_clean(clean, saved)
            home.refuse_moved("repair")
            kept = _free_name(f"{home.path}.damaged")
            os.rename(home.path, kept)
            os.rename(clean, home.path)
        return saved.repaired(home.path, found.problems, kept)
    target = os.path.abspath(to if to is not None else f"{home.path}.repaired")
    with _held_back(home):
        saved = _write_clean(home, target)
    _check_clean(target, saved)
    return saved.repaired(target, found.problems)


def _check_clean(path: str, saved: _Saved) -> None:
    """
    Look at what was made as its first opening will.

    Raises:
        Corrupt: that would not keep everything.
    """
    with contextlib.closing(directory.Directory(path, read_only=True)) as made:
        whole = plan.make_plan(made)
    kept = sum(piece.survey.messages for piece in whole.pieces)
    if kept != saved.messages:
        raise errors.Corrupt(
            f"{path} was written with {saved.messages} messages, and opening it would keep {kept} ({whole.reason}); it "
            "was left there, and the damaged queue as it was"
        )


def _free_name(path: str) -> str:
    name, number = path, 0
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


@dataclasses.dataclass
class _Saved:
    """What is in a clean copy, and what is not."""

    messages: int = 0
    lost: int = 0
    at_least: bool = False
    gone: tuple[str, ...] = ()

    def repaired(self, path: str, problems: tuple[verify.Problem, ...], kept: str = "") -> Repaired:
        return Repaired(path, self.messages, self.lost, problems, kept, self.gone, self.at_least)


def _write_clean(home: Directory, to: str) -> _Saved:
    with _Target(home, to, home.queue_id) as target:
        _copy_consumers(home, target)
        for name, copy_one in ((LEDGER, _copy_ledger), (DEDUP, _copy_dedup)):
            try:
                copy_one(home, target, _native.STAGED)
            except (OSError, errors.ShmqError, TypeError, AttributeError):  # as `verify` names it
                target.gone.append(name)
        for _ in range(_TRIES):
            known = reach.reach(home)
            first, live = verify.live(home)
            there = _one_each([_Source(*name, home.chunks, chunk_name(name[1], name[0])) for name in live])
            saved = _write_sources(home, target, there, known, first)
            if saved is not None:
                saved.gone = tuple(target.gone)
                return saved
            target.forget_chunks()
    raise errors.Gone(
        f"cannot repair {home.path}: {_TRIES} times all that was there was retired before it was written; nothing was "
        "changed. Opened for writing, a queue holds back what is being written"
    )


def _write_sources(
    home: Directory, target: _Target, there: list[_Source], known: reach.Reach, first: int | None = None
) -> _Saved | None:
    """
    Write every chunk, the first of which should be *first*. What is retired before it was read is no loss, and what
    was written before that goes, too; None when that is all.
    """
    saved = _Saved()
    top = max(home.journal.ceiling, known.end)
    begin: _Source | None = None
    sequence = home.journal.first_live
    end = home.journal.first_index
    if there and first is not None and there[0].sequence > first:
        missing = verify.before(home, first, there[0].base)
        saved.lost, saved.at_least = missing or 0, missing is None
    for source, following in itertools.zip_longest(there, there[1:]):
        if begin is None:
            begin, sequence = source, source.sequence
        while sequence < source.sequence:  # missing: an empty one takes its place
            _write_empty(home, target, source.base, sequence, source.base)
            sequence += 1
        written = _write_chunk(home, target, source, None if following is None else following.base, known)
        if first is not None and (written.lost or following is None) and source.sequence < verify.first_live(home):
            target.forget_chunks()
            saved, begin = _Saved(), None
            continue
        saved.messages += written.messages
        saved.lost += written.lost
        saved.at_least |= written.at_least
        sequence = source.sequence + 1
        end = written.end
        top = max(top, end, source.base + written.room)
    if there and begin is None:
        return None
    if first is not None:
        problem, lost = reach.behind(home, known, sequence - 1, end)
        if problem:
            saved.lost += lost
            saved.at_least = True
            top = max(top, end + max(lost, reach.ordinals_max(home)))
    target.finish(
        sequence if begin is None else begin.sequence, home.journal.first_index if begin is None else begin.base, top
    )
    return saved


def _one_each(there: list[_Source]) -> list[_Source]:
    """One of each sequence, with bases that ascend; not from hopelessly far apart."""
    chosen: list[_Source] = []
    for source in sorted(there):
        if source.base > plan.INDEX_MAX:
            continue
        before = chosen[-1] if chosen else None
        if before and (
            source.base < before.base or source.sequence == before.sequence or source.sequence > before.sequence + 1000
        ):
            continue
        chosen.append(source)
    return chosen


def _write_empty(home: Directory, target: _Target, base: int, sequence: int, next_base: int) -> None:
    size = 4 * _native.PAGE_BYTES
    with target.file(target.chunks, chunk_name(base, sequence), size) as fd:
        new_chunks.format_chunk(home, fd, size, base, sequence)
        with target.chunk(fd, size, base, sequence) as made:
            made.cut(made.first_position(), next_base)


class _Written(NamedTuple):
    """Of one chunk: as `_Saved`; the index behind all that was put there, and how many ordinals it can have had."""

    messages: int
    lost: int
    end: int
    room: int = 0
    at_least: bool = False


def _write_chunk(
    home: Directory, target: _Target, saved: _Source, next_base: int | None, known: reach.Reach
) -> _Written:
    """One chunk, as far as it can be saved."""
    sequence, base = saved.sequence, saved.base
    name = chunk_name(base, sequence)
    with contextlib.ExitStack() as opened:
        source, size = None, 0
        with contextlib.suppress(OSError, errors.ShmqError):
            source, size = home.open(saved.folder, saved.name, writable=False)
            opened.enter_context(source)
        with target.file(target.chunks, name, max(size, 4 * _native.PAGE_BYTES)) as fd:
            if source is not None and size <= _native.CHUNK_BYTES_MAX:
                with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                    files.transfer(source, fd, size, whole=True)
                    made, is_cut = _made_of(home, target, fd, size, base, sequence)
                    with made:
                        is_last = next_base is None and saved.name == name
                        upto = reach.known_end(home, made, sequence, known) if is_last else 0
                        return _clean(made, base, next_base, upto)._replace(at_least=is_cut and next_base is None)
            os.truncate(fd, 0)
            os.posix_fallocate(fd, 0, 4 * _native.PAGE_BYTES)
            new_chunks.format_chunk(home, fd, 4 * _native.PAGE_BYTES, base, sequence)
            with target.chunk(fd, 4 * _native.PAGE_BYTES, base, sequence) as made:
                made.cut(made.first_position(), base if next_base is None else next_base)
    if next_base is not None:
        return _Written(0, next_base - base, next_base)
    lost = reach.known_in_damaged(home, saved.folder, saved.name, sequence, base, known)
    return _Written(0, lost, base + lost, reach.ordinals_max(home, size), at_least=True)


def _made_of(
    home: Directory, target: _Target, fd: int, size: int, base: int, sequence: int
) -> tuple[_native.DetachedChunk, bool]:
    """
    The chunk that was copied there, with another header if its own is damaged; and whether its file was cut short.

    Raises:
        Corrupt, BadFormat: nothing proves what its header was.
    """
    try:
        return target.chunk(fd, size, base, sequence), False
    except (errors.Corrupt, errors.BadFormat) as problem:
        for header in headers.candidates(home, os.pread(fd, headers.BYTES, 0), base, sequence):
            whole = headers.capacity(header)
            if _native.PAGE_BYTES <= whole <= _native.CHUNK_BYTES_MAX:
                os.truncate(fd, min(size, whole))
                try:
                    os.posix_fallocate(fd, 0, whole)
                except OSError as full:
                    raise files.disk_full(f"{target.path}/{CHUNKS}", whole, full) from None
                os.pwrite(fd, header, 0)
                with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                    return target.chunk(fd, whole, base, sequence), size < whole
        raise problem from None


def _pad(made: _native.DetachedChunk, position: int, ordinal: int, wanted: int) -> tuple[int, int]:
    """
    Position and ordinal behind padding for what is lost at the end: a batch that is not whole ends with it. Where it
    has no room for that, behind one word of padding that says no more than that.
    """
    if wanted <= ordinal:
        return position, ordinal
    for reached in (wanted, ordinal):
        end = made.pad_behind(position, reached - ordinal)
        if end is not None:
            return end, reached
    return position, ordinal


def _pad_damage(made: _native.DetachedChunk, survey: _native.Survey, room: int) -> _native.Damage | None:
    """Make padding of what is damaged where that survey stopped; None where nothing whole that may be is behind it."""
    damage = made.resync(survey)
    if damage is None or damage.end_ordinal > room:
        return None
    padded = made.pad_over(damage.position, damage.end, damage.end_ordinal - damage.ordinal)
    return damage if padded else None


def _end_of(survey: _native.Survey, room: int) -> tuple[int, int, bool]:
    """Where what is whole ends, and whether it is sealed there; before padding that the successor has no room for."""
    if survey.stopped_ordinal > room >= survey.ordinal:
        return survey.position, survey.ordinal, False
    if survey.stopped_ordinal > room:
        raise errors.Corrupt("it has more messages than its successor leaves room for")
    return survey.stopped, survey.stopped_ordinal, survey.code == _native.ROLL


def _clean(made: _native.DetachedChunk, base: int, next_base: int | None, known: int) -> _Written:
    """
    Turn what is damaged in a chunk into padding, and end it where its successor begins; the last one behind what is
    whole, though *known* ordinals were given in it.
    """
    messages = lost = 0
    position, ordinal = made.first_position(), 0
    room = _native.STAGED if next_base is None else next_base - base
    while True:
        survey = made.survey(position=position, ordinal=ordinal, singly=True, trusted=made.size)
        messages += survey.messages
        position, ordinal = survey.stopped, survey.stopped_ordinal
        if survey.code == _native.WAITING:
            made.pad_claim(position)
        elif survey.code == _native.CORRUPT:
            damage = _pad_damage(made, survey, room)
            if damage is None:
                break
            lost += damage.end_ordinal - damage.ordinal
            position, ordinal = damage.end, damage.end_ordinal
        else:
            break
    position, ordinal, sealed = _end_of(survey, room)
    wanted = max(known, ordinal + survey.missing) if next_base is None else room
    if next_base is None:
        if not sealed:
            lost += wanted - ordinal
            position, ordinal = _pad(made, position, ordinal, wanted)
            made.zero_from(position)
    elif not sealed or (survey.gap_index or base + ordinal) != next_base:
        lost += room - ordinal
        if not sealed:
            position, ordinal = _pad(made, position, ordinal, wanted)
        position = min(survey.gap_position or position, made.size - _native.TAIL_RESERVE)
        made.cut(position, next_base)
    made.set_in_order(survey.gap_position or position, ordinal)
    end = next_base if next_base is not None else (survey.gap_index if sealed else 0) or base + ordinal
    return _Written(messages, lost, end)
