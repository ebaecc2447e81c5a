"""
Retired chunk files, used again: touching fresh pages costs many times what zeroing used ones does.

Every mapping of a chunk holds a read lock on its file until its last view is gone, so a write lock proves that nobody
looks at it any more, not even a process that was declared dead. A retired-* file is zeroed by whoever makes a chunk of
it, who may have it mapped still: whole, or with a grain only where a word may be looked for. A kill in between leaves
one that is zeroed again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct

from shmq import _native, errors
from shmq._native import layout
from shmq.hints import TYPE_CHECKING, NamedTuple
from shmq.storage import blocks, files

if TYPE_CHECKING:
    import mmap
    from collections.abc import Iterable, Mapping
    from typing import Self

    Key = tuple[int, int, bool]
    """A mapping's file, by device and inode, and whether it may be written through it."""

KEEP = 2
"""Files to keep, of whatever size; more are unlinked, unless all together are small."""
KEEP_BYTES = 64 << 20
"""What small is, where there is more than that."""
WORTH_KEEPING = 4 << 20
"""A smaller file is not worth a name of its own; a spare of this size serves even where a larger chunk would be due."""
_RETIRED = "retired-"
_SLOTS = tuple(f"{_RETIRED}{slot:x}" for slot in range(16))
"""Their names: few and fixed, so that whoever wants one does not list a folder of thousands of chunks."""
_ZEROS = bytes(256 << 10)
_FLOCK = struct.Struct("hhqqi4x")


def _lock(fd: int, kind: int) -> bool:
    """An open-file lock on byte 0; False when somebody else's forbids it."""
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, 0, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def lock_as_mapper(fd: int) -> bool:
    """Take the lock that every mapping holds; False when the file is being zeroed for somebody else."""
    return _lock(fd, fcntl.F_RDLCK)


def hold_as_mapper(fd: int, name: str, directory: int) -> None:
    """
    The same for whoever has opened it by that *name*, before it is mapped.

    Raises:
        FileNotFoundError: it was retired meanwhile.
    """
    if not lock_as_mapper(fd) or os.stat(name, dir_fd=directory).st_ino != os.fstat(fd).st_ino:
        raise FileNotFoundError(name)


def lock_alone(fd: int) -> bool:
    """Take a lock that nobody else may hold meanwhile; False when somebody does."""
    return _lock(fd, fcntl.F_WRLCK)


def is_locked(fd: int) -> bool:
    """Whether another opening of the file holds either lock. Takes none."""
    found = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    return bool(_FLOCK.unpack(found)[0] != fcntl.F_UNLCK)


def unlock(fd: int) -> None:
    """Give the lock back; for whoever knows that its mapping has no more views."""
    _lock(fd, fcntl.F_UNLCK)


class Fresh(NamedTuple):
    """What a file is to become: a chunk with that spacing of its index, and that grain or 0."""

    index_spacing: int
    grain: int


class Spare:
    """A file that nobody else maps or will use. A context manager: closes, whatever it has become."""

    def __init__(self, directory: int, name: str, fd: _native.Fd, info: os.stat_result) -> None:
        """Locked already."""
        self._directory = directory
        self._name = name
        self.fd = fd
        self.size = info.st_size
        self.key: Key = (info.st_dev, info.st_ino, True)
        self.map: mmap.mmap | None = None
        """Its mapping, if this process kept one."""

    def unlink(self) -> None:
        """Have it give its space back at once, also where a mapping of it waits for its next life (see warm)."""
        with contextlib.suppress(FileNotFoundError):  # somebody made a chunk of it before we had the lock
            os.unlink(self._name, dir_fd=self._directory)
            os.ftruncate(self.fd, 0)

    def become(self, name: str) -> bool:
        """Take its place under *name*; False when somebody was faster, and it stays what it was."""
        lock_as_mapper(self.fd)  # in one step: from then on it may be opened, and nobody else may zero it
        return _native.rename_new(self._directory, self._name, name)

    def __enter__(self) -> Self:
        """Return this object, which the `with` block closes."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the descriptor and its lock."""
        self.fd.close()


class _Retired(NamedTuple):
    """A retired file, not opened yet."""

    name: str
    size: int
    moved_ns: int
    """When it was retired: what was used last is what the cache still has."""
    key: Key


def _retired(directory: int) -> list[_Retired]:
    """Every retired file under the names that there are now, the one that was used last first."""
    found = [
        _Retired(_SLOTS[slot], size, moved_ns, (device, inode, True))
        for slot, size, moved_ns, device, inode in _native.numbered(directory, _RETIRED, len(_SLOTS))
    ]
    return sorted(found, key=lambda each: -each.moved_ns)


def _retired_as(directory: int, names: Iterable[str]) -> list[_Retired]:
    """Those under *names*."""
    found = []
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            found.append(_Retired(name, info.st_size, info.st_ctime_ns, (info.st_dev, info.st_ino, True)))
    return found


def _lock_retired(directory: int, retired: _Retired) -> Spare | None:
    """It, held alone; None when somebody else holds it, or it is another file by now, or none of ours."""
    with contextlib.suppress(FileNotFoundError, errors.Unsafe):  # a link that a user of its group put there
        fd, _ = files.open_file(directory, retired.name, retired.name, writable=True)
        if _lock(fd, fcntl.F_WRLCK):
            info = os.fstat(fd)
            if os.stat(retired.name, dir_fd=directory).st_ino == info.st_ino:
                return Spare(directory, retired.name, fd, info)
        fd.close()
    return None


def name_of(inode: int) -> str:
    """The name that a retired file has, unless another one had it first."""
    return _SLOTS[inode % len(_SLOTS)]


def take(
    directory: int,
    at_least: int,
    normal: int,
    mapped: Mapping[Key, mmap.mmap],
    fresh: Fresh,
    *,
    may_be_shared: bool = True,
) -> Spare | None:
    """
    A file of a fitting size, locked and with all the zeros it needs; None when there is none, or the disk refused them.

    *mapped*: what is mapped here for writing, and nobody uses. *may_be_shared*: whether another file may have blocks of
    one, as a reflink does.

    First what is mapped here, then what was used last.
    """
    best = _best(directory, at_least, max(at_least, normal), mapped)
    if best is None:
        return None
    best.map = mapped.get(best.key)
    try:
        if may_be_shared and blocks.shared(best.fd):  # zeroing it would need space that nobody promised
            with contextlib.suppress(FileNotFoundError):
                os.unlink(best._name, dir_fd=directory)  # noqa: SLF001  # ours
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        _zero(best, fresh)
    except OSError:
        best.fd.close()
        return None
    return best


def _best(directory: int, at_least: int, at_most: int, mapped: Mapping[Key, mmap.mmap]) -> Spare | None:
    fitting = [each for each in _retired(directory) if at_least <= each.size <= at_most]
    locked = (_lock_retired(directory, each) for each in sorted(fitting, key=lambda each: each.key not in mapped))
    return next((each for each in locked if each is not None), None)


def retire(directory: int, name: str) -> None:
    """
    Take a chunk's name away. Its mappings stay whole; its file may serve again when they are gone.

    Where as many wait as there are names for, it goes.
    """
    with contextlib.suppress(FileNotFoundError):
        if not _native.rename_numbered(directory, name, _RETIRED, len(_SLOTS)):
            os.unlink(name, dir_fd=directory)


def drop(directory: int) -> None:
    """Unlink what serves nobody at the moment, because room is wanted; whatever name an earlier version gave it."""
    for retired in _retired_as(directory, [name for name in files.names_in(directory) if name.startswith(_RETIRED)]):
        _unlink(directory, retired)


def _unlink(directory: int, retired: _Retired) -> None:
    spare = _lock_retired(directory, retired)
    if spare is not None:
        with spare:
            spare.unlink()


def reclaim(directory: int, worth: int, room: int) -> None:
    """
    Keep what was retired for whoever makes a chunk, up to KEEP files; unlink the rest. Under the administrative lock.

    *worth*: the size from which on a file is worth keeping. *room*: for more than KEEP, what all may have together.
    """
    have, kept = 0, 0
    for retired in _retired(directory):
        if retired.size >= worth and (have < KEEP or kept + retired.size <= room):
            have, kept = have + 1, kept + retired.size
        else:
            _unlink(directory, retired)


def _zero(file: Spare, fresh: Fresh) -> None:
    """
    Through the mapping, if there is one; else by writing, for mapping it anew would cost more than zeroing it.

    From its beginning on, so that a kill leaves none that says how far it was used.
    """
    if file.map is not None and len(file.map) == file.size:
        used = _native.Chunk.used(file.map, fresh.grain)
        _native.Chunk.clear(file.map, used, fresh.index_spacing, fresh.grain)
        return
    end, at = _used(file, fresh), 0
    while at < end:
        at += os.pwrite(file.fd, memoryview(_ZEROS)[: end - at], at)


def _used(file: Spare, fresh: Fresh) -> int:
    """As `Chunk.used`, of a file that is not mapped here."""
    if int.from_bytes(os.pread(file.fd, 4, layout.chunk_header.grain), "little") not in (0, fresh.grain):
        return file.size
    position = int.from_bytes(os.pread(file.fd, 8, layout.chunk_header.hint), "little")
    position = position >> layout.HINT_ORDINAL_BITS << 3
    word = int.from_bytes(os.pread(file.fd, 8, position), "little")
    return min(position + 8, file.size) if word >> layout.WORD_STATE_SHIFT == layout.WORD_SEAL else file.size
