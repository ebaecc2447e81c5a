"""
A group's files beside its checkpoint: NAME.ring, the mapped window, and NAME.group, what the group was made with.

They are made under the administrative lock, the checkpoint last: with it the group exists. A ring of another boot is
cleared and set by the checkpoint's snapshots before the first member enters.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import struct

from shmq import _native, errors
from shmq.hints import TYPE_CHECKING
from shmq.storage import boots, files, small_json, sources, sync
from shmq.storage.paths import CONSUMERS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from shmq.storage.directory import Directory

_GROUP = struct.Struct("<Q16sII")  # layout.h, struct group_file
_GROUP_MAGIC = int.from_bytes(b"shmqgrup", "little")
OPTIONS_MAX = 1 << 16
ENDINGS = (".ring", ".group", sources.ENDING)


def make(home: Directory, name: str, options: dict[str, Any], window: int) -> None:
    """Make both files of a new group; what a killed creation has left is made anew."""
    where = f"{home.path}/{CONSUMERS}"
    remove(home, name)
    stored = small_json.dumps(options, sort_keys=True)
    header = _GROUP.pack(_GROUP_MAGIC, home.queue_id, len(stored), _native.crc32c(stored))
    files.make_file(home.consumers, f"{name}.group", header + stored, where, synced_as="group")
    buckets = _native.RING_BUCKETS if options.get("ordered_by") else 0
    extent = window, buckets, _cells(options), _native.SIDE_BLOCKS
    if home.small:
        extent = window, buckets, _cells(options) | _native.RING_SMALL, 0
    size = _native.ring_bytes(*extent)
    fd = files.new_file(home.consumers, size, where)
    with fd:
        with contextlib.closing(_native.map_file(fd, size, writable=True)) as memory:
            _native.format_ring(memory, home.queue_id, boots.boot_id(), extent)
        sync.data(fd, "ring")
        files.link_file(fd, home.consumers, f"{name}.ring", where)
    sync.directory(home.consumers, "consumers")


def _cells(options: dict[str, Any]) -> int:
    """What a group that was made with these needs for each message of its window, besides the word."""
    again = options.get("ack") == "explicit" or options.get("expire_to")
    return (_native.RING_LEASES if options.get("lease") else 0) | (_native.RING_ATTEMPTS if again else 0)


def remove(home: Directory, name: str) -> None:
    """Unlink what there is of them."""
    for ending in ENDINGS:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{name}{ending}", dir_fd=home.consumers)


def options(home: Directory, name: str) -> dict[str, Any]:
    """
    What the group was made with.

    Raises:
        Corrupt: the file says nothing that can be believed.
    """
    where = f"{home.path}/{CONSUMERS}/{name}.group"
    try:
        content = home.read(home.consumers, f"{name}.group", OPTIONS_MAX)
    except FileNotFoundError:
        raise errors.Corrupt(f"cannot open {where}: it is missing; drop_consumer({name!r}) removes the rest") from None
    reason = "it is too short"
    if len(content) >= _GROUP.size:
        magic, queue_id, length, crc = _GROUP.unpack_from(content)
        stored = content[_GROUP.size :]
        reason = "it fails its checksum"
        if magic == _GROUP_MAGIC and length == len(stored) and crc == _native.crc32c(stored):
            reason = "it belongs to another queue"
            if queue_id == home.queue_id:
                with contextlib.suppress(ValueError, RecursionError):
                    found = small_json.loads(stored)
                    if isinstance(found, dict):
                        return found
                reason = "its options are not options"
    raise errors.Corrupt(f"cannot open {where}: {reason}; drop_consumer({name!r}) removes it")


def map_ring(home: Directory, name: str, *, writable: bool) -> mmap.mmap:
    """
    Map the ring as large as it is now.

    Raises:
        Corrupt: it is missing, or has no sensible size.
    """
    where = f"{home.path}/{CONSUMERS}/{name}.ring"
    try:
        fd, size = home.open(home.consumers, f"{name}.ring", writable=writable)
    except FileNotFoundError:
        raise errors.Corrupt(f"cannot open {where}: it is missing; drop_consumer({name!r}) removes the rest") from None
    with fd:
        if size < _native.PAGE_BYTES:
            raise errors.Corrupt(f"cannot open {where}: it has only {size} bytes; drop_consumer({name!r}) removes it")
        return _native.map_file(fd, size, writable=writable)


def extent(home: Directory, name: str) -> tuple[int, int, int, int]:
    """
    The window, the buckets, the cells and the side blocks of a ring that can be used.

    Raises:
        Corrupt, BadFormat: it cannot.
    """
    with contextlib.closing(map_ring(home, name, writable=False)) as memory:
        _native.Ring.boot_id(memory, home.queue_id, f"{home.path}/{CONSUMERS}/{name}.ring")
        return _native.ring_extent(memory)


def look(home: Directory, name: str, checkpoint: _native.Checkpoint) -> _native.Ring:
    """
    The ring, to be looked at; nothing is changed.

    Of another boot the newest snapshot is believed, as by the first member that will enter.
    """
    where = f"{home.path}/{CONSUMERS}/{name}.ring"
    memory = map_ring(home, name, writable=False)
    if _native.Ring.boot_id(memory, home.queue_id, where) == boots.boot_id():
        return _native.Ring(memory, home.queue_id, checkpoint, None, where)
    # Rebuilt aside, where nobody sees it: what a snapshot says is known in one place.
    size = _native.ring_bytes(*_native.ring_extent(memory))  # as its header says, however far the file was grown
    aside = mmap.mmap(-1, size)
    aside[:] = memory[:size]
    room_for_snapshots(home, name)
    checkpoint = checkpoint.aside()
    _native.Ring.rebuild(aside, checkpoint, boots.boot_id(), where)
    return _native.Ring(aside, home.queue_id, checkpoint, None, where)


def fresh(home: Directory, name: str, memory: mmap.mmap, checkpoint: _native.Checkpoint) -> None:
    """Have the ring speak of this boot. The first call of each boot clears it; recovery may call it before."""
    where = f"{home.path}/{CONSUMERS}/{name}.ring"
    boot = boots.boot_id()
    if _native.Ring.boot_id(memory, home.queue_id, where) == boot:
        return
    with home.admin():
        room_for_snapshots(home, name)
        _rebuild(home, memory, checkpoint, where)


def room_for_snapshots(home: Directory, name: str) -> None:
    """
    Have the checkpoint as large as it says: that of a small queue begins with the room that all names need.

    Raises:
        DiskFull: there is no more.
    """
    if home.small:
        fd, size = home.open(home.consumers, f"{name}.checkpoint", writable=True)
        with fd:
            try:
                os.posix_fallocate(fd, 0, size)
            except OSError as problem:
                raise files.disk_full(f"{home.path}/{CONSUMERS}", size, problem) from None


def _rebuild(home: Directory, memory: mmap.mmap, checkpoint: _native.Checkpoint, where: str) -> None:
    """Unless it speaks of this boot. Under the administrative lock."""
    boot = boots.boot_id()
    if _native.Ring.boot_id(memory, home.queue_id, where) != boot:
        _native.Ring.rebuild(memory, checkpoint, boot, where)


def bury(home: Directory, slot: int) -> None:
    """
    Note in every ring that whoever sat in that seat before is dead. By who has just taken it.

    Its generation alone would not tell for ever: after some 2,000 tenants it comes again, and what the dead one held in
    a group where nobody looked in the meantime would be taken for the living one's.
    """
    for file in home.ring_files():
        with contextlib.suppress(FileNotFoundError, errors.Unsafe):  # dropped meanwhile, or none of ours
            fd, size = home.open(home.consumers, file, writable=True)
            with fd:
                tenant = os.pread(fd, 8, _native.RING_TENANTS + 8 * slot)
                if any(tenant) and size >= _native.PAGE_BYTES:
                    size = min(size, _native.RING_HEADER_BYTES)
                    with contextlib.closing(_native.map_file(fd, size, writable=True)) as memory:
                        _native.Ring.bury(memory, home.queue_id, slot)


def restart(home: Directory, name: str, index: int, have_on_disk: Callable[[], bool]) -> None:
    """
    Have the group begin at *index*, as if nobody had had anything from there on. By whoever holds its name
    alone, under the administrative lock. *have_on_disk* has what it has forwarded by now on the disk, if it can.

    Killed in between, it begins there, or stands where it stood. Members enter by `fresh` afterwards.
    """
    where = f"{home.path}/{CONSUMERS}/{name}.ring"
    room_for_snapshots(home, name)
    checkpoint = home.checkpoint(name, writable=True)
    memory = map_ring(home, name, writable=True)
    _rebuild(home, memory, checkpoint, where)
    fd, _ = home.open(home.consumers, f"{name}.checkpoint", writable=True)
    try:
        epoch = home.journal.epoch
        content = _native.Ring(memory, home.queue_id, checkpoint, None, where).fix(epoch)
        if content is not None and have_on_disk():
            checkpoint.write_fixed(content)
        sync.data(fd, "snapshot")
        newest = checkpoint.newest_snapshot()
        renewed = sources.renew(home, name, 1 if newest is None else newest.sequence + 1)
        _native.Ring.forget(memory)  # from here on the snapshots decide
        begin_at(fd, os.pread(fd, _native.CHECKPOINT_BYTES, 0), epoch, index)
    finally:
        fd.close()
        sources.settle_alone(home, name, checkpoint)
        _rebuild(home, memory, checkpoint, where)
    if renewed:  # what comes again is put again, and nothing of it was
        _native.Ring(memory, home.queue_id, checkpoint, None, where).unsure(0, known=True)


def begin_at(fd: int, page: bytes, epoch: int, index: int) -> None:
    """Have the checkpoint with the content *page* say, on the disk, that what is before *index* is finished."""
    newest = _native.newest_snapshot(page)
    sequence = 1 if newest is None else newest.sequence + 1
    at = _native.SNAPSHOT_BASE + _native.SNAPSHOT_BYTES * (1 - sequence % 2)  # not where the newest one is
    sync.write(fd, _native.format_snapshot(_native.Snapshot(sequence, epoch, index)), at, "snapshot")
    sync.data(fd, "snapshot")


def copy(home: Directory, old: str, new: str) -> None:
    """Both files under another name, which nobody has. By whoever holds the old one alone."""
    where = f"{home.path}/{CONSUMERS}"
    remove(home, new)
    for ending in ENDINGS:
        try:
            source, size = home.open(home.consumers, f"{old}{ending}", writable=False)
        except FileNotFoundError:
            if ending == sources.ENDING:  # it has never forwarded
                continue
            raise
        with source:
            if ending == ".ring":  # as its header says, however far the file was grown
                size = min(size, _native.ring_bytes(*_native.ring_extent(os.pread(source, _native.PAGE_BYTES, 0))))
            fd = files.new_file(home.consumers, size, where)
            with fd:
                for at in range(0, size, 1 << 20):
                    sync.write(fd, os.pread(source, 1 << 20, at), at, ending[1:])
                sync.data(fd, ending[1:])
                files.link_file(fd, home.consumers, f"{new}{ending}", where)
    sync.directory(home.consumers, "consumers")


def grow(home: Directory, name: str, ring: _native.Ring) -> mmap.mmap:
    """
    The ring mapped with all its side blocks; twice as many, if they are mapped already.

    Raises:
        DiskFull: there is no room for more.
    """
    with home.admin():
        blocks = ring.side_blocks()
        if blocks == ring.blocks:
            more = max(2 * blocks, 1)
            if more > _native.SIDE_BLOCKS_MAX:
                raise errors.TooMany(
                    f"cannot park more messages of group {name!r} of {home.path}: its side table is as large as can be"
                )
            size = _native.ring_bytes(ring.figures().window, ring.buckets, ring.cells, more)
            fd, _ = home.open(home.consumers, f"{name}.ring", writable=True)
            with fd:
                try:
                    os.posix_fallocate(fd, 0, size)
                    sync.data(fd, "ring")  # its size, before its header speaks of it
                except OSError as problem:
                    raise files.disk_full(f"{home.path}/{CONSUMERS}", size, problem) from None
            ring.extend(more)
        memory = map_ring(home, name, writable=True)
        ring.remap(memory)
    return memory
