"""
Where a file's blocks lie, as far as a full disk goes: what is preallocated must stay the file's own.

Everything here is written through mappings. Where such a write needs space that is not there, the kernel has no other
answer than SIGBUS. So files are preallocated, and where a file system copies on write they are made to be written in
place (decision 38). What cannot be helped is told when a queue is opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct

from shmq import _native, later

_ELSEWHERE = {"bcachefs", "nilfs2", "zfs"}
"""What writes a block elsewhere when it is written again, whatever was preallocated."""
_GET_FLAGS, _SET_FLAGS, _FIEMAP = 0x80086601, 0x40086602, 0xC020660B  # linux/fs.h, linux/fiemap.h
_COMPRESSED, _IN_PLACE, _SHARED = 0x4, 0x800000, 0x2000  # FS_COMPR_FL, FS_NOCOW_FL; FIEMAP_EXTENT_SHARED
_FIEMAP_HEAD, _FIEMAP_EXTENT = struct.Struct("=QQIIII"), struct.Struct("=QQQ16xI12x")
_EXTENTS = 64
_BTRFS_KEEPS = (6, 17)
"""The Linux from which on btrfs lets a full disk's preallocated pages be written through a mapping."""
NEVER_SHARED = {"ext2", "ext3", "ext4", "tmpfs"}
"""What neither copies on write, compresses, nor lets two files share a block."""
_SHARED_STORY = "a snapshot or a reflink shares its blocks, so the first write to each of them needs another one"


def disk_type(path: str) -> str:
    """The type of the file system there: ext4 or xfs; "" where it is another one, or nothing is there."""
    return _native.disk_type(-1, path)


def _linux() -> tuple[int, ...]:
    """The first two numbers of its release."""
    later.ready("re")
    import re  # noqa: PLC0415  # of what is on btrfs alone

    return tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))


def _flags_of(fd: int) -> int:
    """The inode's FS_..._FL flags; 0 where there are none."""
    with contextlib.suppress(OSError):
        return int.from_bytes(fcntl.ioctl(fd, _GET_FLAGS, bytes(8))[:4], "little")
    return 0


def write_in_place(fd: int) -> None:
    """
    Have a file system that copies on write (btrfs) not do so in this new file: only there its space stays its own.

    It counts from the first byte on, so it comes before that. Elsewhere it is refused, and not needed.
    """
    if _native.disk_type(fd):
        return
    with contextlib.suppress(OSError):
        flags = _flags_of(fd)
        if flags & _COMPRESSED:  # from its folder; btrfs takes the one only once the other is gone
            flags &= ~_COMPRESSED
            fcntl.ioctl(fd, _SET_FLAGS, flags.to_bytes(8, "little"))
        fcntl.ioctl(fd, _SET_FLAGS, (flags | _IN_PLACE).to_bytes(8, "little"))


def shared(fd: int) -> bool:
    """Whether a reflink or a snapshot shares some of the file: a write there needs space that nobody promised."""
    at = 0
    with contextlib.suppress(OSError):
        while True:
            answer = bytearray(_FIEMAP_HEAD.size + _EXTENTS * _FIEMAP_EXTENT.size)
            _FIEMAP_HEAD.pack_into(answer, 0, at, (1 << 64) - 1 - at, 0, 0, _EXTENTS, 0)
            fcntl.ioctl(fd, _FIEMAP, answer)
            count = _FIEMAP_HEAD.unpack_from(answer)[3]
            extents = list(_FIEMAP_EXTENT.iter_unpack(answer[_FIEMAP_HEAD.size :]))[:count]
            if any(flags & _SHARED for *_, flags in extents):
                return True
            if count < _EXTENTS:
                return False
            at = extents[-1][0] + extents[-1][2]
    return False  # it knows no such thing


def may_run_out(kind: str, fd: int) -> str:
    """
    Why a write through a mapping of a file may need space that was not promised, and kill (SIGBUS) where there is none.

    Args:
        kind: its file system's type.
        fd: the file, of a queue.

    Returns:
        The reason; nothing, if what is preallocated is kept.
    """
    flags = _flags_of(fd)
    if kind in _ELSEWHERE:
        return f"{kind} writes each block elsewhere, whatever was preallocated"
    if flags & _COMPRESSED:
        return "its files are compressed, so what is preallocated may not be enough"
    if kind == "btrfs" and not flags & _IN_PLACE:
        return "its files are copy-on-write, as those are that came here by cp, tar or rsync; `shmq copy` makes others"
    if flags & _IN_PLACE and _linux() < _BTRFS_KEEPS:
        return "btrfs of a Linux before 6.17 looks for free space at each such write"
    return _SHARED_STORY if shared(fd) else ""
