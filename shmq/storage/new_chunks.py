"""Chunk files: how large the next one is to be, of what it is made, and the beginning that is written to it."""

from __future__ import annotations

import contextlib
import errno
import os
import time

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.options import CHUNK_MIN, FIRST_CHUNK, SMALLEST_CHUNK
from shmq.storage import blocks, files, spares, turns, volatile, warm
from shmq.storage.paths import CHUNKS, chunk_name

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from shmq.storage.directory import Directory

_PATIENCE = 4
"""So many chunks must stand there before the next one is larger: till then, one may come back at any moment."""
_BUSY = 4 << 20
"""What a chunk has where chunks fill quickly: rolls are rare, and three such files stay in a processor's cache."""
QUICK = 2 << 20
"""Quickly: so many bytes in a millisecond."""
_WORTH_WAITING = 1 << 20
"""To make a smaller file costs less than to look whether a used one comes back."""
_GROWTH = 4
"""A chunk has at most so many times the bytes that are in use in the one before it."""
_REGIONS, _SOME = 16, 8 << 20
"""A chunk has room for so many regions like the one it is made for, or as many as so many bytes hold, so that large
messages do not roll each time; and for one of any size, whose pages take longer than the roll."""
_SPARE_MAX = 16 << 20
"""A spare of up to this size serves even where a smaller chunk would be due."""

_GRAINS = {4096: range(64 << 10, 256 << 20), 1024: range(16 << 10, 64 << 10), 256: range(4 << 10, 16 << 10)}
"""Messages of such sizes get chunks with that grain; of the smallest of them it takes a sixteenth."""


def grain_for(region: int, messages: int, size: int) -> int:
    """
    The grain of a chunk that is made for a region of *region* bytes, after one of *size* bytes with so many *messages*.

    A small message takes a whole grain, so there is one only where few are small.
    """
    return next((grain for grain, its in _GRAINS.items() if region in its and size >= messages * its.start), 0)


def is_quick(created_ns: int, filled: int) -> bool:
    """Whether a chunk that was made then, and has so many bytes in use, filled quickly."""
    return (time.time_ns() - created_ns) * QUICK < filled * 1_000_000


def _smallest(size: int) -> int:
    """The smallest chunk that has so many bytes."""
    return max(-(-size // _native.PAGE_BYTES) * _native.PAGE_BYTES, CHUNK_MIN)


def _room_for(region: int) -> int:
    """What a chunk has that is made for a region of so many bytes; 0 for none."""
    one = region + region // 32 + CHUNK_MIN if region else 0  # with its index
    return -(-max(one, min(region * _REGIONS, _SOME)) // _native.PAGE_BYTES) * _native.PAGE_BYTES


def chunk_size(
    home: Directory, sequence: int, before: int, region: int = 0, filled: int | None = None, *, busy: bool = False
) -> int:
    """
    The normal size of chunk *sequence* with so many *before* it: small queues are small, and stay so if consumers
    keep up. A chunk that an adoption sealed with little in it has no large one behind it either: *filled* bytes of
    the one before are in use, when that is known.

    It has room for some regions of *region* bytes. *busy*: the one before filled quickly.
    """
    first = volatile.FIRST_CHUNK if home.volatile else FIRST_CHUNK
    grown = first << 2 * min(-(-before // _PATIENCE), 15)
    if busy:
        grown = max(grown, _BUSY)
    if home.small or not home.volatile:  # a queue of a few messages takes next to nothing
        grown = min(grown, (CHUNK_MIN if home.small else SMALLEST_CHUNK) << min(2 * sequence, 30))
    if filled is not None:
        grown = min(grown, max(_GROWTH * filled & -_native.PAGE_BYTES, SMALLEST_CHUNK if filled else CHUNK_MIN))
    grown = max(grown, _room_for(region))
    if home.volatile:
        room = os.fstatvfs(home.chunks)
        share = room.f_bavail * room.f_frsize // volatile.SHARE & -_native.PAGE_BYTES
        grown = min(grown, max(share, CHUNK_MIN))
    return min(grown, home.options.chunk_bytes)


def worth_keeping(home: Directory) -> int:
    """The size from which on a chunk file is kept to serve again."""
    return min(volatile.FIRST_CHUNK, spares.WORTH_KEEPING) if home.volatile else spares.WORTH_KEEPING


def room_for_spares(home: Directory) -> int:
    """What used files may have together that are kept to serve again: shared memory is others', too."""
    if not home.volatile:
        return spares.KEEP_BYTES
    room = os.fstatvfs(home.chunks)
    return min(spares.KEEP_BYTES, room.f_blocks * room.f_frsize // volatile.SHARE)


def make_chunk(
    home: Directory,
    base: int,
    sequence: int,
    region: int = 0,
    before: int | None = None,
    grain: int = 0,
    make_room: Callable[[], object] | None = None,
    filled: int | None = None,
    *,
    busy: bool = False,
    await_used: Callable[[int], bool] | None = None,
    renew: Callable[[int, int], bool] | None = None,
    alone: bool = False,
    deadline_ns: int = _native.FOREVER,
) -> bool:
    """
    Make the chunk *base*-*sequence*, large enough for a region of *region* bytes; False when it is there already.

    *before*: how many live chunks are before it; all of those sequences by default. *grain*: as grain_for says.
    *make_room*: what gives chunks back that nobody needs; called where the disk has no room. *filled*: how many
    bytes of the chunk before are in use. *busy*: it filled quickly. *await_used*: whether a used file came back, for
    who would make a new one of so many bytes otherwise. *renew*: has a used file of a size between two, which is mapped
    here, become that chunk, if there is one. *alone*: the one before was made here, too, so as a rule nobody else makes
    this one: a used file that is mapped is taken without waiting for a turn. *deadline_ns*: nor is it waited for then.

    Raises:
        DiskFull: there is no room, not even for the smallest that would do; nothing was made.
    """
    needed = _native.Chunk.bytes_for(region, home.options.index_spacing, grain)
    before = sequence if before is None else before
    region = region if before < sequence else 0  # consumers retire: large messages settle in a few files
    normal = chunk_size(home, sequence, before, region, filled, busy=busy)
    wanted = min(normal, max(_BUSY if busy else worth_keeping(home), _room_for(region)))
    usable = max(needed, wanted), max(normal, _SPARE_MAX)
    if alone and renew is not None and renew(*usable):
        return True
    with turns.opened(home.chunks) as turn:
        mine = turns.is_mine(turn, chunk_name(base, sequence), deadline_ns)
        made = _of_used_file(home, base, sequence, grain, usable, await_used, renew) if mine else False
        if made is not None:
            return made
        size = max(normal, needed)
        with contextlib.suppress(errors.DiskFull):
            return _of_new_file(home, base, sequence, grain, size, size, needed)
        if make_room is not None:
            make_room()
        made = _of_spare(home, base, sequence, grain, needed, _native.CHUNK_BYTES_MAX)
        if made is not None:
            return made
        spares.drop(home.chunks)
        return _of_new_file(home, base, sequence, grain, size, needed, needed)


def _of_used_file(
    home: Directory,
    base: int,
    sequence: int,
    grain: int,
    usable: tuple[int, int],
    await_used: Callable[[int], bool] | None,
    renew: Callable[[int, int], bool] | None,
) -> bool | None:
    """As `make_chunk`, of a used file of a size between two; None when there is none."""
    if renew is not None and renew(*usable):
        return True
    made = _of_spare(home, base, sequence, grain, *usable)
    if made is None and await_used is not None and usable[0] >= _WORTH_WAITING and await_used(usable[0]):
        if renew is not None and renew(*usable):
            return True
        made = _of_spare(home, base, sequence, grain, *usable)
    return made


def _of_spare(home: Directory, base: int, sequence: int, grain: int, at_least: int, at_most: int) -> bool | None:
    """As `make_chunk`, of a used file of such a size; None when there is none."""
    fresh = spares.Fresh(home.options.index_spacing, grain)
    shares = home.kind not in blocks.NEVER_SHARED
    spare = spares.take(home.chunks, at_least, at_most, warm.idle(home.queue_id), fresh, may_be_shared=shares)
    if spare is None:
        return None
    with spare:
        format_chunk(home, spare.fd, spare.size, base, sequence, grain=grain, mapped=spare.map)
        return spare.become(chunk_name(base, sequence))


def _of_new_file(home: Directory, base: int, sequence: int, grain: int, size: int, least: int, needed: int) -> bool:
    """As `make_chunk`, of a new file."""
    fd, size = new_chunk_file(home.chunks, size, least, f"{home.path}/{CHUNKS}", needed)
    with fd:
        format_chunk(home, fd, size, base, sequence, grain=grain)
        return files.link_file(fd, home.chunks, chunk_name(base, sequence), f"{home.path}/{CHUNKS}")


def new_chunk_file(folder: int, size: int, least: int, path: str, needed: int | None = None) -> tuple[_native.Fd, int]:
    """
    A new file for a chunk of *size* bytes, or of as few as *least* where the disk has no room for so many: it, and
    its size.

    Where it has more than is *needed*, so much more is left on the disk: the last chunk is given back only behind
    another one, also when all names have finished it.

    Raises:
        DiskFull: there is no room for *least* bytes.
    """
    needed = _smallest(least if needed is None else needed)
    least = _smallest(least)
    while True:
        try:
            fd = files.new_file(folder, size, path)
        except errors.DiskFull:
            if size <= least:
                raise
        else:
            if size <= needed or files.has_free(folder, needed):
                return fd, size
            fd.close()
            if size <= least:
                raise files.disk_full(path, needed, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        size = max(size // 4 & -_native.PAGE_BYTES, least)


def _new_id() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 1 | 1


def renewed(
    home: Directory, key: tuple[int, int, bool], memory: mmap.mmap, base: int, sequence: int, grain: int
) -> _native.Fd | None:
    """
    A descriptor of the chunk *base*-*sequence*, which carries the lock of a mapping: the used file *key* has become it.

    None when it could not. *memory*: where this process has it mapped for writing, and nobody looks at it.
    """
    if home.kind not in blocks.NEVER_SHARED:
        return None  # what must be asked of such a file first is asked in storage/spares.py
    folder, name = home.chunks, spares.name_of(key[1])
    if not files.is_there(folder, name):
        return None  # as with those that are not retired yet: cheaper than to find it missing
    return _native.Chunk.renewed(
        memory,
        name,
        chunk_name(base, sequence),
        home.queue_id,
        directory=folder.fileno(),
        device=key[0],
        inode=key[1],
        owner=os.geteuid(),
        chunk_id=_new_id(),
        epoch=home.journal.epoch,
        base=base,
        sequence=sequence,
        index_spacing=home.options.index_spacing,
        grain=grain,
        created_ns=time.time_ns(),
    )


def format_chunk(
    home: Directory, fd: int, size: int, base: int, sequence: int, *, grain: int = 0, mapped: mmap.mmap | None = None
) -> None:
    """Write the beginning of a new chunk, through *mapped* if its file is mapped already."""
    kept = mapped if mapped is not None and len(mapped) == size else None
    with (
        contextlib.closing(_native.map_file(fd, size, writable=True)) if kept is None else contextlib.nullcontext(kept)
    ) as memory:
        _native.Chunk.format(
            memory,
            home.queue_id,
            _new_id(),
            home.journal.epoch,
            base,
            sequence,
            home.options.index_spacing,
            grain,
            time.time_ns(),
        )
