"""`metadata.cq4t` while programs use it: numbers that are changed in place, and keys that are added."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from shmq.errors import BadFormat, Corrupt
from shmq.formats.chronicle import cycles, fresh, words
from shmq.formats.chronicle.mapped import Mapped, no_room
from shmq.formats.chronicle.table import HIGHEST_CYCLE, LOWEST_CYCLE, MOD_COUNT, TABLE, UNLOCKED, parse_table, with_more

if TYPE_CHECKING:
    from pathlib import Path

_KEYS_LOCK = ((1 << 63) - 2, 1)
"""The byte that Java locks while it adds a key."""


class LiveTable:
    """The table of one queue, mapped."""

    def __init__(self, folder: Path, timeout: float, what: str = "append to") -> None:
        """
        Map the table of the queue in *folder*; one that is being made is waited for, *timeout* seconds at most.

        *what* is how errors call what it is opened for.

        Raises:
            NotFound: there is none.
            Corrupt: it cannot be read.
        """
        self.file = Mapped(folder / TABLE)
        try:
            self._await_header(timeout, what)
            self._parsed = parse_table(self.file.read(0, self.file.size))
            if self._parsed.roll is None:
                why = self._parsed.problems[0].reason if self._parsed.problems else "it does not say how it rolls"
                msg = f"cannot {what} {folder}: {TABLE}: {why}"
                raise Corrupt(msg)
            self.roll = self._parsed.roll
        except BaseException:
            self.file.close()
            raise

    def _await_header(self, timeout: float, what: str) -> None:
        deadline = time.monotonic() + timeout
        while not words.is_meta(self.file.load32(0)):
            if time.monotonic() > deadline:
                msg = f"cannot {what} {self.file.path.parent}: the header of {TABLE} is not ready in {timeout:g} s"
                raise Corrupt(msg)
            time.sleep(0.005)
            self.file.remap()

    def _read_more(self) -> None:
        """Take note of the keys that were added since we looked: none is ever moved or taken away."""
        if self.file.load32(self._parsed.end):
            self._parsed = with_more(self._parsed, self.file.read(0, self.file.size))

    # ------------------------------------------------------------ keys
    def at(self, key: str) -> int | None:
        """Return where the number of *key* is, None if it has none."""
        found = self._parsed.find(key)
        if found is None:
            self._read_more()
            found = self._parsed.find(key)
        if found is None:
            return None
        self.file.reserve(found.address, found.address + 8)
        return found.address

    def acquire(self, key: str, default: int = UNLOCKED) -> int:
        """
        Return where the number of *key* is; if it has none it gets one, with *default*.

        Raises:
            BadFormat: the table is full.
            DiskFull: the disk is.
        """
        found = self.at(key)
        if found is not None:
            return found
        # Before the key's lock and not under it: growing locks all of the file, that byte too.
        self.file.grow(fresh.TABLE_BYTES)
        with self.file.locked(*_KEYS_LOCK):
            self._read_more()
            if self._parsed.find(key) is None:
                self._add(key, default)
        found = self.at(key)
        if found is None:
            msg = f"{self.file.path}: the key {key!r} was added and is not found; the table is damaged"
            raise Corrupt(msg)
        return found

    def _add(self, key: str, default: int) -> None:
        end = self._parsed.end
        data = fresh.table_entry(end, key, default)
        if end + len(data) > fresh.TABLE_BLOCK:
            msg = f"cannot add {key!r} to {self.file.path}: it is full with {len(self._parsed.entries)} keys"
            raise BadFormat(msg)
        self.file.reserve(end, end + len(data) + 8)
        found = self.file.load32(end)
        if found and not self.file.cas32(end, found, 0):  # whoever was at it died over it: we have the lock
            found = self.file.load32(end)
        self.file.write(end + 4, data[4:] + bytes(8))
        if not self.file.cas32(end, 0, words.WORD.unpack_from(data)[0]):
            msg = f"{self.file.path} at {end}: somebody else wrote a key here though its lock is held"
            raise Corrupt(msg)

    # ------------------------------------------------------------ the listing
    def highest(self) -> int | None:
        """Return the highest cycle that has a file, as the listing says."""
        at = self.at(HIGHEST_CYCLE)
        found = fresh.NO_HIGHEST if at is None else self.file.load64(at)
        return found if 0 <= found <= cycles.MAX_CYCLE else None

    def list(self, lowest: int, highest: int, changes: int) -> None:
        """Have the listing reach from *lowest* to *highest*, and tell so many changes."""
        self.file.raise64(self.acquire(HIGHEST_CYCLE, fresh.NO_HIGHEST), highest)
        at = self.acquire(LOWEST_CYCLE, fresh.NO_LOWEST)
        if self.file.load64(at) == UNLOCKED:
            self.file.cas64(at, UNLOCKED, fresh.NO_LOWEST)
        self.file.lower64(at, lowest)
        self.file.add64(self.acquire(MOD_COUNT, 0), changes)

    def close(self) -> None:
        """Let go of the table."""
        self.file.close()


def make_table(folder: Path, head: bytes, mode: int) -> None:
    """Make the table of a new queue, whole at once; if somebody else was faster, theirs counts."""
    data = fresh.table(head, fresh.table_values(None, None, 1))
    publish_new(folder / TABLE, data, fresh.TABLE_BYTES, mode)


def publish_new(path: Path, data: bytes, size: int, mode: int) -> bool:
    """Have a file with *data* and *size* bytes at *path*, whole at once; False if something is there already."""
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fd = -1
    made: str | None = None
    try:
        try:
            fd = os.open(".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, mode, dir_fd=directory)
        except OSError:  # this file system has no files without a name: one whose name no program reads
            made = f".{path.name}.making-{os.getpid()}-{time.monotonic_ns():x}"
            fd = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=directory)
        _fill(path, fd, data, size)
        try:
            # With a directory's descriptor it is linkat(), which follows /proc's link to the file; link() does not.
            source = f"/proc/self/fd/{fd}" if made is None else made
            os.link(source, path.name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=made is None)
        except FileExistsError:
            return False
        return True
    finally:
        if made is not None and fd >= 0:
            os.unlink(made, dir_fd=directory)
        if fd >= 0:
            os.close(fd)
        os.close(directory)


def _fill(path: Path, fd: int, data: bytes, size: int) -> None:
    try:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, data[done:], done)
        os.ftruncate(fd, size)
    except OSError as error:
        raise no_room(path, error, f"{size} bytes long") from error
