"""
A directory that is to be a queue, when all of it is there: what a copy and a repair write to.

It is built beside its place and gets its name when it is whole. It names no boot, so its first opening for writing
recovers it and goes on in a new epoch: no (epoch, index) is given twice.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time

from shmq import _native, errors, user_group
from shmq.hints import TYPE_CHECKING
from shmq.storage import eras, files, small_json, verify
from shmq.storage.paths import CHUNKS, CONSUMERS, CONTROL, QUEUE, chunk_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from shmq.storage.directory import Directory

NOWHERE = bytes(16)
"""The boot of a queue that was never open."""


class Target:
    """A directory that nobody knows yet. A context manager: removed, unless it was finished."""

    def __init__(self, home: Directory, to: str, queue_id: bytes) -> None:
        self.path = os.path.abspath(to)
        self.queue_id = queue_id
        self._home = home
        self._finished = home.read_journal().flags & _native.JOURNAL_FINISHED
        self._dropped = verify.dropped(home)  # before the first chunk is copied: what is put later is none of it
        self.gone: list[str] = []
        self.part = 0
        """Flags that the journal keeps of the original, in whose place it is to be; a copy is a queue of its own."""
        self._making = f"{self.path}{files.MAKING}{os.urandom(4).hex()}"
        shared = home.options.group
        self._group = shared if shared is not None and user_group.has_us(shared) else None  # else it is a copy of ours
        if os.path.lexists(self.path):
            raise errors.Unsafe(f"cannot write to {self.path}: something is there; nothing was changed")
        try:
            files.new_directory(self._making, group=self._group)
        except FileNotFoundError:
            raise errors.NotFound(f"cannot write to {self.path}: the directory above it does not exist") from None
        self._fds: list[_native.Fd] = []
        try:
            self.fd = self._keep(files.open_directory(self._making, group=self._group))
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
        """Return this object."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was not finished."""
        while self._fds:
            self._fds.pop().close()
        shutil.rmtree(self._making, ignore_errors=True)

    @contextlib.contextmanager
    def file(self, directory: int, name: str, size: int) -> Iterator[int]:
        """A new file of *size* zeros, to be filled; synced and named at the end."""
        fd = files.new_file(directory, size, self._making)
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
            boot_id=NOWHERE,
            ceiling=ceiling,
            first_live=first_live,
            first_index=first_index,
            device=control.st_dev,
            inode=control.st_ino,
            flags=finished | self.part | (_native.JOURNAL_LOSES if self._home.loses else 0),
            dropped=self._dropped,
            changed=eras.with_part(self._home.journal.changed, None),
        )
        stored = small_json.dumps(self._home.options.to_json())
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


def give_id(fd: int, queue_id: bytes, at: int, crc: tuple[int, int, int]) -> None:
    """Have what is *at* that place name this queue, with the checksum that goes with it."""
    if os.pread(fd, 16, at) != queue_id:
        os.pwrite(fd, queue_id, at)
        _mend_crc(fd, *crc)
