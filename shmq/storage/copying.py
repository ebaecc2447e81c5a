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
import errno
import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING, Self

from shmq import _native, errors
from shmq.storage import dedup, files, pins, recover, ring, staging, verify
from shmq.storage.directory import CHUNKS, CONSUMERS, CONTROL, DEDUP, LEDGER, QUEUE, admin_lock, chunk_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shmq.storage.chain import Chain
    from shmq.storage.directory import Directory

_FICLONE = 0x40049409
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
    A clean copy of a damaged queue.

    Attributes:
        path: where it is.
        messages: that are whole, and in it.
        lost: indexes that have no message any more; they are padding now.
        problems: what was wrong.
        kept: where the damaged queue is, when the clean one took its place; else empty.
    """

    path: str
    messages: int
    lost: int
    problems: tuple[verify.Problem, ...]
    kept: str = ""


# ---------------------------------------------------------------- a new directory
class _Target:
    """A directory that nobody knows yet. A context manager: removed, unless it was finished."""

    def __init__(self, home: Directory, to: str, queue_id: bytes) -> None:
        self.path = os.path.abspath(to)
        self.queue_id = queue_id
        self._home = home
        self._making = f"{self.path}.making-{os.urandom(4).hex()}"
        self._mode = home.options.mode & 0o600
        if os.path.lexists(self.path):
            raise errors.Unsafe(f"cannot write to {self.path}: something is there; nothing was changed")
        try:
            os.mkdir(self._making, 0o700)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot write to {self.path}: the directory above it does not exist") from None
        self._fds: list[int] = []
        try:
            self.fd = self._keep(files.open_directory(self._making))
            for name in (CHUNKS, CONSUMERS):
                files.make_directory(f"{self._making}/{name}", self.fd)
            self.chunks = self._keep(files.open_directory(f"{self._making}/{CHUNKS}", above=self.fd))
            self.consumers = self._keep(files.open_directory(f"{self._making}/{CONSUMERS}", above=self.fd))
        except BaseException:
            self.__exit__()
            raise

    def _keep(self, fd: int) -> int:
        self._fds.append(fd)
        return fd

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._fds:
            os.close(self._fds.pop())
        shutil.rmtree(self._making, ignore_errors=True)

    @contextlib.contextmanager
    def file(self, directory: int, name: str, size: int) -> Iterator[int]:
        """A new file of *size* zeros, to be filled; synced and named at the end."""
        fd = files.new_file(directory, size, self._mode, self._making)
        try:
            yield fd
            os.fsync(fd)
            files.link_file(fd, directory, name, self._making)
        finally:
            os.close(fd)

    def write(self, directory: int, name: str, content: bytes) -> None:
        """A new file with that content."""
        with self.file(directory, name, len(content)) as fd:
            written = 0
            while written < len(content):
                written += os.pwrite(fd, content[written:], written)

    def chunk(self, fd: int, size: int, base: int, sequence: int) -> _native.Bare:
        """A chunk of it that is being made, to be put in order."""
        return _native.Bare(
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
        control = os.stat(CONTROL, dir_fd=self.fd)
        journal = self._home.journal._replace(
            sequence=2,
            boot_id=_NOWHERE,
            ceiling=ceiling,
            first_live=first_live,
            first_index=first_index,
            device=control.st_dev,
            inode=control.st_ino,
            flags=0,
        )
        import json  # noqa: PLC0415

        stored = json.dumps(self._home.options.to_json(), separators=(",", ":")).encode()
        content = _native.format_queue(self.queue_id, time.time_ns(), stored) + _native.format_journal(journal)
        self.write(self.fd, QUEUE, content.ljust(_native.QUEUE_BYTES, b"\0"))
        for fd in self._fds:
            os.fsync(fd)
        above = os.open(os.path.dirname(self.path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not _native.rename_new(above, os.path.basename(self._making), os.path.basename(self.path)):
                raise errors.Unsafe(f"cannot write to {self.path}: somebody has put something there meanwhile")
            os.fsync(above)
        finally:
            os.close(above)


def _transfer(source: int, target: int, count: int, *, whole: bool) -> None:
    """Copy the first *count* bytes of a file; all of it at once, without any copying, where the file system can."""
    if whole:
        with contextlib.suppress(OSError):
            fcntl.ioctl(target, _FICLONE, source)
            return
    done = 0
    while done < count:
        try:
            moved = os.copy_file_range(source, target, count - done, done, done)
        except OSError as problem:
            if problem.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
            moved = os.pwrite(target, os.pread(source, min(count - done, 1 << 20), done), done)
        if not moved:
            raise errors.Corrupt("a chunk was cut short while it was copied")
        done += moved


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
    with _Target(home, to, os.urandom(16) if new_id else home.queue_id) as target:
        first, end, messages, ceiling = _copy_chunks(home, chain, target)
        _copy_consumers(home, target)
        with contextlib.suppress(FileNotFoundError):
            _copy_ledger(home, target, end)
        target.finish(first[0], first[1], max(ceiling, end))
        return Copied(target.path, messages, first[1], end)


def _copy_chunks(home: Directory, chain: Chain, target: _Target) -> tuple[tuple[int, int], int, int, int]:
    """(sequence and index of the first, the index behind the last message, messages, ceiling)."""
    first = chain.first()
    if first is None:
        start = chain.first_index()
        return (home.journal.first_live, start), start, 0, 0
    chunk: _native.Chunk | None = chain.open(*first)
    messages = ceiling = end = 0
    while chunk is not None:
        survey = chunk.survey()
        if survey.code == _native.CORRUPT:
            raise errors.Corrupt(f"cannot copy {home.path}: {chunk.path}: {survey.reason}; nothing was written")
        sealed = survey.code == _native.ROLL
        _copy_chunk(chunk, target, survey, sealed=sealed)
        messages += survey.messages
        end = chunk.base + survey.stopped_ordinal
        ceiling = chunk.base + chunk.size // _native.RECORD_BYTES_MIN
        # Where somebody is about to commit, the copy ends: nothing behind it is in it.
        chunk = chain.after(chunk) if sealed else None
    return first, end, messages, ceiling


def _copy_chunk(chunk: _native.Chunk, target: _Target, survey: _native.Survey, *, sealed: bool) -> None:
    with target.file(target.chunks, chunk_name(chunk.base, chunk.sequence), chunk.size) as fd:
        upto = chunk.size if sealed else survey.stopped
        source = chunk.descriptor()
        if source is None:
            os.pwrite(fd, chunk.map[:upto], 0)
        else:
            _transfer(source, fd, upto, whole=sealed)
        _give_id(fd, target.queue_id, _QUEUE_ID_AT, _HEADER_CRC)
        with target.chunk(fd, chunk.size, chunk.base, chunk.sequence) as made:
            made.set_in_order(survey.gap_position or survey.stopped, survey.stopped_ordinal)


def _copy_consumers(home: Directory, target: _Target) -> None:
    for name in home.consumer_names():
        file = f"{name}.checkpoint"
        with contextlib.suppress(FileNotFoundError, errors.Corrupt, errors.BadFormat):  # dropped meanwhile, or damaged
            content = home.read(home.consumers, file, _native.CHECKPOINT_BYTES)
            if recover.checkpoint_is_whole(content, home.queue_id, name):
                if home.checkpoint(name).group:
                    _copy_group(home, target, name)
                with target.file(target.consumers, file, len(content)) as fd:
                    os.pwrite(fd, content, 0)
                    _give_id(fd, target.queue_id, _CHECKPOINT_ID_AT, _CHECKPOINT_CRC)
                if pins.holds(home, name):
                    target.write(target.consumers, f"{name}.hold", pins.HOLD)


def _copy_group(home: Directory, target: _Target, name: str) -> None:
    """What it was made with, and an empty ring of that size: the first opening sets it by the checkpoint's snapshot."""
    stored = home.read(home.consumers, f"{name}.group", ring.OPTIONS_MAX)
    target.write(target.consumers, f"{name}.group", stored[:8] + target.queue_id + stored[24:])
    with contextlib.closing(ring.map_ring(home, name, writable=False)) as memory:
        window, buckets, blocks = _native.ring_extent(memory)
        if not blocks or _native.ring_bytes(window, buckets, blocks) > len(memory):
            raise errors.Corrupt(f"cannot copy group {name!r} of {home.path}: its ring is damaged")
    with target.file(target.consumers, f"{name}.ring", _native.ring_bytes(window, buckets, blocks)) as fd:
        size = os.fstat(fd).st_size
        with contextlib.closing(_native.map_file(fd, size, writable=True)) as made:
            _native.format_ring(made, target.queue_id, _NOWHERE, window, buckets, blocks)


def _copy_ledger(home: Directory, target: _Target, end: int) -> None:
    batches = {
        producer: list(batch) for producer, batch in staging.ledger(home).items() if batch.first + batch.indexes <= end
    }
    if batches:
        target.write(target.fd, LEDGER, staging.pack(batches))
    note = dedup.read_note(home)
    if note is not None:  # what is in the chunks is looked for anew
        there = {who: list(batch) for who, batch in note[1].items() if batch.first + batch.indexes <= end}
        target.write(target.fd, DEDUP, staging.pack([0, there]))


# ---------------------------------------------------------------- a clean copy of a damaged one
def repair(home: Directory, to: str | None, *, in_place: bool) -> Repaired:
    """
    Write everything that is whole, under the indexes that it had, into a new directory; what is not becomes padding.

    Raises:
        Unsafe: there is something at *to*.
        Busy: in_place, and somebody has the queue open.
    """
    found = verify.verify(home)
    if in_place:
        with admin_lock(home.path):
            if recover.somebody_is_there(home):
                raise errors.Busy(f"cannot repair {home.path} in place: somebody has it open; nothing was changed")
            clean = f"{home.path}.clean-{os.urandom(4).hex()}"
            messages, lost = _write_clean(home, clean)
            kept = _free_name(f"{home.path}.damaged")
            os.rename(home.path, kept)
            os.rename(clean, home.path)
        return Repaired(home.path, messages, lost, found.problems, kept)
    target = os.path.abspath(to if to is not None else f"{home.path}.repaired")
    messages, lost = _write_clean(home, target)
    return Repaired(target, messages, lost, found.problems)


def _free_name(path: str) -> str:
    name, number = path, 0
    while os.path.lexists(name):
        number += 1
        name = f"{path}-{number}"
    return name


def _write_clean(home: Directory, to: str) -> tuple[int, int]:
    """(messages that are in it, indexes that have none any more)."""
    with _Target(home, to, home.queue_id) as target:
        there = _one_each(home)
        messages = lost = 0
        top = home.journal.ceiling
        sequence = there[0][0] if there else home.journal.first_live
        first_index = there[0][1] if there else home.journal.first_index
        for at, (number, base) in enumerate(there):
            following = there[at + 1] if at + 1 < len(there) else None
            next_base = None if following is None else following[1]
            while sequence < number:  # missing: an empty one takes its place
                _write_empty(home, target, base, sequence, base)
                sequence += 1
            kept, gone = _write_chunk(home, target, base, number, next_base)
            messages, lost = messages + kept, lost + gone
            sequence = number + 1
            top = max(top, base)
        _copy_consumers(home, target)
        with contextlib.suppress(FileNotFoundError, errors.Corrupt):
            _copy_ledger(home, target, _native.STAGED)
        target.finish(there[0][0] if there else sequence, first_index, top)
        return messages, lost


def _one_each(home: Directory) -> list[tuple[int, int]]:
    """The chunks of the log, one of each sequence, with bases that ascend; not from hopelessly far apart."""
    chosen: list[tuple[int, int]] = []
    for sequence, base in home.chunk_names():
        if sequence < home.journal.first_live or base > recover.INDEX_MAX:
            continue
        if chosen and (base < chosen[-1][1] or sequence == chosen[-1][0] or sequence > chosen[-1][0] + 1000):
            continue
        chosen.append((sequence, base))
    return chosen


def _write_empty(home: Directory, target: _Target, base: int, sequence: int, next_base: int) -> None:
    size = 4 * _native.PAGE_BYTES
    with target.file(target.chunks, chunk_name(base, sequence), size) as fd:
        home.format_chunk(fd, size, base, sequence)
        with target.chunk(fd, size, base, sequence) as made:
            made.cut(made.first_position(), next_base)


def _write_chunk(home: Directory, target: _Target, base: int, sequence: int, next_base: int | None) -> tuple[int, int]:
    """(messages, indexes lost) of one chunk."""
    name = chunk_name(base, sequence)
    try:
        source, size = home.open(home.chunks, name, writable=False)
    except (OSError, errors.ShmqError):
        source, size = -1, 0
    try:
        with target.file(target.chunks, name, max(size, 4 * _native.PAGE_BYTES)) as fd:
            if source >= 0 and size <= _native.CHUNK_BYTES_MAX:
                with contextlib.suppress(errors.Corrupt, errors.BadFormat):
                    _transfer(source, fd, size, whole=True)
                    with target.chunk(fd, size, base, sequence) as made:
                        return _clean(made, base, next_base)
            os.truncate(fd, 0)
            os.posix_fallocate(fd, 0, 4 * _native.PAGE_BYTES)
            home.format_chunk(fd, 4 * _native.PAGE_BYTES, base, sequence)
            with target.chunk(fd, 4 * _native.PAGE_BYTES, base, sequence) as made:
                made.cut(made.first_position(), base if next_base is None else next_base)
            return 0, 0 if next_base is None else next_base - base
    finally:
        if source >= 0:
            os.close(source)


def _clean(made: _native.Bare, base: int, next_base: int | None) -> tuple[int, int]:
    """Turn what is damaged in a chunk into padding, and end it where its successor begins."""
    messages = lost = 0
    position, ordinal = made.first_position(), 0
    room = _native.STAGED if next_base is None else next_base - base
    while True:
        survey = made.survey(position=position, ordinal=ordinal, trusted=made.size)
        messages += survey.messages
        position, ordinal = survey.stopped, survey.stopped_ordinal
        if survey.code == _native.WAITING:
            made.pad_claim(position)
        elif survey.code == _native.CORRUPT:
            behind = made.resync(position, ordinal)
            if behind is None or behind[1] > room or not made.pad_over(position, behind[0], behind[1] - ordinal):
                break
            lost += behind[1] - ordinal
            position, ordinal = behind
        else:
            break
    if ordinal > room:
        raise errors.Corrupt("it has more messages than its successor leaves room for")
    if next_base is None:
        if survey.code != _native.ROLL:
            made.zero_from(position)
    elif survey.code != _native.ROLL or (survey.gap_index or base + ordinal) != next_base:
        lost += room - ordinal
        position = min(survey.gap_position or position, made.size - _native.TAIL_RESERVE)
        made.cut(position, next_base)
    made.set_in_order(survey.gap_position or position, ordinal)
    return messages, lost
