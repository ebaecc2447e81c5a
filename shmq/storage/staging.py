"""
Chunks built aside, and joining them to the chain: all of them or none, beside running producers.

    staging/<10 hex>/     one set of staged chunks; its name is the id that a SEAL will carry
        lock              held by whoever builds the set
        <8 hex>.chunk     its chunks, in order, all sealed; each but the last with the set's id
        handed            its builder has gone, and another process may adopt it: what is in it, for whom, since when
        manifest          who staged what; with it, the set is whole
        placed            zeros, until somebody writes down where it belongs in the chain: the set is committed then
    ledger.shmq           producer -> the last sequence adopted, its first index and how many

The one commit point is the SEAL that names the set. Whoever meets it afterwards finishes the work, and may be killed at
any step of it: the SEAL is synced, `placed` is filled in, the chunks move to their names in order. None of that needs a
block of the disk: `placed` was made, as large as it gets, before the SEAL. The ledger is written under the
administrative lock before a set goes; a set that has no place yet and that no SEAL names is an orphan.

Sets that were handed over are adopted together, by one more set: it has no chunks, but a manifest that names theirs
in order. Before it is written their SEALs, which nobody has seen yet, are given its id. They go before it goes. One
that was handed over and that nobody adopts stays for HANDED_DAYS.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
import time

from shmq import _native, errors
from shmq._native import layout
from shmq.closable import Closable
from shmq.hints import TYPE_CHECKING
from shmq.options import SMALLEST_CHUNK
from shmq.storage import boots, files, new_chunks, spares, sync
from shmq.storage.paths import CHUNKS, STAGING, chunk_name
from shmq.storage.records import HEAD_BYTES, Handed, Manifest, read_record, with_head, write_record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

    from shmq.storage.directory import Directory

_FILE_NAME = re.compile(r"(?:[0-9a-f]{10}/)?[0-9a-f]{8}\.chunk")
_SET_NAME = re.compile(r"[0-9a-f]{10}")
_LOCK, _HANDED, _MANIFEST, _PLACED = "lock", "handed", "manifest", "placed"
_PLACE = struct.Struct(">BBQBQB")  # an array of two numbers, as wide as they get, and of what is written last
_ARRAY_OF_THREE, _NUMBER, _TRUE = 0x93, 0xCF, 0xC3  # msgpack
_ID = struct.Struct("<Q")
_LOOKS = 100
"""How often to look at a place that fails its checksum, a millisecond apart, before it is damage."""


def _are_chunks(listed: Manifest | Handed) -> bool:
    """Whether its lists speak of the same chunks, by names that such have."""
    lengths = {len(each) for each in (listed.files, listed.chunk_ids, listed.counts, listed.sizes)}
    return len(lengths) == 1 and all(map(_FILE_NAME.fullmatch, listed.files))


class Set(Closable):
    """One folder below staging/, open. A context manager."""

    def __init__(self, home: Directory, adoption: int) -> None:
        """Not open yet: see `open` and `begin`."""
        self.home = home
        self.adoption = adoption
        self.name = f"{adoption:010x}"
        self.path = f"{home.path}/{STAGING}/{self.name}"
        self._fd: _native.Fd | None = None
        self._lock: _native.Lock | None = None

    @property
    def fd(self) -> _native.Fd:
        """A descriptor of the folder."""
        assert self._fd is not None  # noqa: S101  # it was opened
        return self._fd

    def open(self) -> Self:
        """
        Open what is there.

        Raises:
            FileNotFoundError: there is nothing.
        """
        with _folder(self.home) as folder:
            try:
                self._fd = files.open_directory(self.path, above=folder, trust_owner=self.home.read_only)
            except errors.NotFound:
                raise FileNotFoundError(self.name) from None
        return self

    def begin(self) -> bool:
        """Make it, empty and locked; False when it was not to be, and another one may be."""
        files.make_directory(f"{self.home.path}/{STAGING}", self.home.fd)
        if not self.adoption:
            return False
        with contextlib.suppress(FileExistsError, FileNotFoundError):  # somebody's; or swept before we held it
            with _folder(self.home) as folder:
                files.new_directory(self.path, folder)
            self.open()
            self.hold()
            return True
        self.close()
        return False

    def close(self) -> None:
        """Let go of the folder, and of its lock. What is in it stays."""
        if self._fd is not None:
            self._fd.close()
        if self._lock is not None:
            self._lock.free()

    def forget(self) -> None:
        """Take away what `begin` has made and `add`, however far that came; a second time it does nothing."""
        if self._fd is None:
            with contextlib.suppress(OSError), _folder(self.home) as folder:
                os.rmdir(self.name, dir_fd=folder)  # if it is there, it is empty
        elif self._fd.fileno() >= 0:
            self.remove()

    @contextlib.contextmanager
    def _unless_gone(self) -> Iterator[None]:
        """Making a file in a folder that was removed meanwhile: FileNotFoundError."""
        try:
            yield
        except (OSError, errors.NotFound):
            with _folder(self.home) as folder:
                os.stat(self.name, dir_fd=folder, follow_symlinks=False)
            raise

    def hold(self) -> None:
        """
        Make the lock file, locked before anybody sees it.

        Raises:
            FileNotFoundError: the set was swept before that.
        """
        with self._unless_gone():
            fd = files.new_file(self.fd, 1, self.path)
        with fd:
            self._lock = _native.Lock(fd)  # which no forked child has: one that outlives us does not build on
            self._lock.take()
            with self._unless_gone():
                files.link_file(fd, self.fd, _LOCK, self.path)

    def is_held(self) -> bool:
        """Whether somebody is still building it. Before its lock is there, its folder is empty."""
        if _PLACED in (there := files.names_in(self.fd)) and _LOCK not in there:
            return False  # what was left of it when somebody who removed it was killed
        try:
            fd, _ = files.open_file(self.fd, _LOCK, self.path, writable=True)
        except FileNotFoundError:
            with contextlib.suppress(OSError), _folder(self.home) as folder:
                os.rmdir(self.name, dir_fd=folder)
            return True
        with fd:
            return not spares.lock_alone(fd)

    def add(self, number: int, region: int) -> tuple[_native.Fd, int, str]:
        """
        Make the chunk of that number, with room for *region* bytes: its descriptor, size and name.

        Raises:
            DiskFull: there is no room.
        """
        home = self.home
        needed = _native.Chunk.bytes_for(region, home.options.index_spacing)
        normal = new_chunks.chunk_size(
            home, number, number, filled=(SMALLEST_CHUNK << min(2 * number, 30)) // 4
        )  # those before it are full
        fd, size = new_chunks.new_chunk_file(self.fd, max(normal, needed), needed, self.path)
        name = f"{number:08x}.chunk"
        new_chunks.format_chunk(home, fd, size, _native.STAGED, _native.STAGED)
        with contextlib.suppress(FileNotFoundError):  # made before, and interrupted before anybody used it
            os.unlink(name, dir_fd=self.fd)
        files.link_file(fd, self.fd, name, self.path)
        return fd, size, name

    def commit_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, synced, and its folders with it."""
        write_record(self.fd, _MANIFEST, list(manifest), self.path, "manifest")
        with _folder(self.home) as folder:
            sync.directory(folder, "staging")
        sync.directory(self.home.fd, "home")

    def manifest_missing(self) -> bool:
        """Whether there is none, so that no SEAL can name this set."""
        return _MANIFEST not in files.names_in(self.fd)

    def drop_manifest(self) -> None:
        """It is not to be adopted after all."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(_MANIFEST, dir_fd=self.fd)

    def manifest(self) -> Manifest:
        """
        The manifest.

        Raises:
            FileNotFoundError: there is none, yet or any more.
            Corrupt: it is damaged.
        """
        manifest = Manifest(*read_record(self.home, self.fd, _MANIFEST, self.path))
        if _are_chunks(manifest) and all(map(_SET_NAME.fullmatch, manifest.parts)):
            return manifest
        raise errors.Corrupt(f"cannot read {self.path}/{_MANIFEST}: it is not a manifest")

    def hand_over(
        self, owner: bytes, files: list[str], chunk_ids: list[int], counts: list[int], sizes: list[int]
    ) -> None:
        """Leave it to whoever adopts it, synced. It is still held."""
        clock = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        handed = Handed(owner, files, chunk_ids, counts, sizes, boots.boot_id(), clock, time.time_ns())
        write_record(self.fd, _HANDED, list(handed), self.path, "handed")
        with _folder(self.home) as folder:
            sync.directory(folder, "staging")
        sync.directory(self.home.fd, "home")

    def handed(self) -> Handed | None:
        """
        What was handed over; None when it was not.

        Raises:
            Corrupt: it is damaged.
        """
        try:
            fields = read_record(self.home, self.fd, _HANDED, self.path)
        except FileNotFoundError:
            return None
        handed = Handed(*fields)
        if handed.files and _are_chunks(handed):
            return handed
        raise errors.Corrupt(f"cannot read {self.path}/{_HANDED}: it says nothing that was handed over")

    def within(self, file: str) -> str:
        """Where a file of its manifest is, from the queue's directory."""
        return path_of(self.adoption, file)

    def placed(self) -> tuple[int, int] | None:
        """
        (sequence, base) of its first chunk; None when nobody has come so far.

        Raises:
            Corrupt: it is damaged.
        """
        tries = _LOOKS
        while True:
            try:
                sequence, base, _ = read_record(self.home, self.fd, _PLACED, self.path)
            except FileNotFoundError:
                return None
            except errors.Corrupt:
                if self._is_blank():
                    return None
                tries -= 1
                if not tries:
                    raise
                time.sleep(0.001)  # somebody is just filling it in
                continue
            return sequence, base

    def _is_blank(self) -> bool:
        """Whether nobody has filled it in from end to end; who was killed on the way has left zeros at one of them."""
        with contextlib.suppress(FileNotFoundError):
            fd, size = self.home.open(self.fd, _PLACED, writable=False)
            with fd:
                there = os.pread(fd, HEAD_BYTES + _PLACE.size, 0)
                return size == HEAD_BYTES + _PLACE.size == len(there) and not (there[0] and there[-1])
        return True

    def make_room(self) -> None:
        """
        Make `placed`, blank: behind the SEAL there may be no room for it.

        Raises:
            DiskFull: there is none now.
        """
        if _PLACED in files.names_in(self.fd):
            return  # by a try that found no room for something else
        blank = bytes(HEAD_BYTES + _PLACE.size)
        fd = files.new_file(self.fd, len(blank), self.path)
        with fd:
            sync.write(fd, blank, 0, "placed")
            sync.data(fd, "placed")
            files.link_file(fd, self.fd, _PLACED, self.path)

    def place(self, sequence: int, base: int) -> None:
        """
        Write down where the set belongs. Everybody comes to the same answer.

        Raises:
            Corrupt: somebody came to another one.
            FileNotFoundError: the set was finished and removed meanwhile.
        """
        with self._unless_gone():
            self.make_room()  # if it has none: it is being removed, or was made by a version that made none
        record = _PLACE.pack(_ARRAY_OF_THREE, _NUMBER, sequence, _NUMBER, base, _TRUE)
        blank = self.placed() is None
        fd, _ = self.home.open(self.fd, _PLACED, writable=True)
        with fd:
            if blank:  # several may write this at once, and the same
                sync.write(fd, with_head(record), 0, "placed")
            sync.data(fd, "placed")
        there = self.placed()
        if there is None:
            raise FileNotFoundError(self.name)
        if there != (sequence, base):
            raise errors.Corrupt(f"{self.path} was placed at {there}, and a SEAL wants it at {sequence, base}")

    def remove(self) -> None:
        """
        Remove the folder. `handed` goes first: without it the rest is an orphan. `lock` and `placed` go last: what is
        left by a kill in between is told from a new set, and is not in the ledger's way.
        """
        order = {_HANDED: -1, _MANIFEST: 0, _LOCK: 2, _PLACED: 3}  # without a lock, `placed` says that it is over
        for _ in range(10):
            with contextlib.suppress(FileNotFoundError):
                for name in sorted(files.names_in(self.fd), key=lambda name: order.get(name, 1)):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=self.fd)
            try:
                with _folder(self.home) as folder:
                    os.rmdir(self.name, dir_fd=folder)
            except FileNotFoundError:
                return  # somebody else finished the same set
            except OSError as problem:
                if problem.errno != errno.ENOTEMPTY:
                    raise
                continue  # somebody who finishes the same set has just put a file there: once more
            return


@contextlib.contextmanager
def _folder(home: Directory) -> Iterator[int]:
    """
    A descriptor of staging/.

    Raises:
        FileNotFoundError: nobody has staged anything yet.
    """
    try:
        fd = home.below(STAGING)
    except errors.NotFound:
        raise FileNotFoundError(STAGING) from None
    with fd:
        yield fd


def path_of(adoption: int, file: str) -> str:
    """Where a file of that set's manifest is, from the queue's directory."""
    return f"{STAGING}/{file}" if "/" in file else f"{STAGING}/{adoption:010x}/{file}"


def check_file(name: str) -> str:
    """
    The name itself, if it is that of a staged chunk.

    Raises:
        Corrupt: a manifest names something else.
    """
    if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
        raise errors.Corrupt(f"a manifest names {name!r}, and no staged chunk is called so")
    return name


def open_set(home: Directory, name: str) -> Set:
    """
    The set of that name.

    Raises:
        FileNotFoundError: there is none.
    """
    return Set(home, int(name, 16)).open()


def new_set(home: Directory) -> Set:
    """A set that is not there yet, and that nobody else makes."""
    return Set(home, int.from_bytes(os.urandom(layout.ADOPTION_BITS // 8), "little"))


def _place_in(manifest: Manifest, chunk: _native.Chunk) -> int:
    """Which chunk of the set follows *chunk*."""
    mine = chunk.chunk_id()
    return manifest.chunk_ids.index(mine) + 1 if mine in manifest.chunk_ids else 0


def finish(home: Directory, control: _native.Control, chunk: _native.Chunk, adoption: int, base: int) -> bool:
    """
    Give the set that the SEAL of *chunk* names its place in the chain; False when there is none (any more).

    *base* is the index behind *chunk*. Several processes may do this at once, and each may be killed.

    Raises:
        Corrupt: its manifest is damaged, or its place is taken.
    """
    with contextlib.suppress(FileNotFoundError), open_set(home, f"{adoption:010x}") as found:
        manifest = found.manifest()
        at = _place_in(manifest, chunk)
        first, first_base = chunk.sequence + 1 - at, base - sum(manifest.counts[:at])
        if found.placed() is None:
            sync_up_to(home, chunk.sequence)  # a recovery must not cut before the SEAL what is said to be adopted
        found.place(first, first_base)  # and who finds it there has it on the disk before a chunk moves
        for number in range(at, len(manifest.files)):
            its_base = first_base + sum(manifest.counts[:number])
            move(found, manifest.files[number], chunk_name(its_base, first + number))
            control.enter(first + number, its_base)
        sync.directory(home.chunks, "chunks")
        return True
    return False  # it went: somebody has finished it


def sync_up_to(home: Directory, last: int) -> None:
    """Every chunk up to that sequence. What is on the disk already costs next to nothing."""
    for sequence, base in home.chunk_names():
        if sequence <= last:
            with contextlib.suppress(FileNotFoundError):  # retired
                fd, _ = home.open(home.chunks, chunk_name(base, sequence), writable=False)
                with fd:
                    sync.data(fd, "chunk")


def move(found: Set, file: str, name: str) -> None:
    """Move a staged file to its name among the chunks, unless somebody has."""
    source = found.within(file)
    problem = "its place is taken"
    try:
        if _native.rename_new(found.home.fd, source, f"{CHUNKS}/{name}"):
            return
    except errors.DiskFull:
        raise
    except OSError as refused:
        if refused.errno in (errno.ENOSPC, errno.EDQUOT):
            raise files.disk_full(f"{found.home.path}/{CHUNKS}", 0, refused) from None
        problem = str(refused)
    try:
        os.stat(source, dir_fd=found.home.fd, follow_symlinks=False)
    except FileNotFoundError:
        return  # it was there, and may be retired by now
    raise errors.Corrupt(f"cannot move {found.home.path}/{source} to {found.home.path}/{CHUNKS}/{name}: {problem}")


def base_of(home: Directory, chunk_id: int) -> int | None:
    """The first index of the chunk with that id, in the queue or in a set that is adopted; None when it has gone."""
    for sequence, base in reversed(home.chunk_names()):
        with contextlib.suppress(FileNotFoundError):  # retired
            fd, _ = home.open(home.chunks, chunk_name(base, sequence), writable=False)
            with fd:
                if (
                    _ID.unpack(os.pread(fd, _ID.size, layout.chunk_header.chunk_id).ljust(_ID.size, b"\0"))[0]
                    == chunk_id
                ):
                    return base
    for name in names(home):
        with contextlib.suppress(FileNotFoundError), open_set(home, name) as found:
            placed = found.placed()
            manifest = found.manifest()
            if placed is not None and chunk_id in manifest.chunk_ids:
                return placed[1] + sum(manifest.counts[: manifest.chunk_ids.index(chunk_id)])
    return None


def following(home: Directory, chunk: _native.Chunk, adoption: int) -> tuple[Set, str] | None:
    """For who may write nothing: the set, and the file in it that follows *chunk*; None when it has moved."""
    try:
        found = open_set(home, f"{adoption:010x}")
    except FileNotFoundError:
        return None
    try:
        manifest = found.manifest()
        part, _, file = manifest.files[_place_in(manifest, chunk)].rpartition("/")
        if part:
            found.close()
            found = open_set(home, part)
    except FileNotFoundError:
        found.close()
        return None
    except BaseException:
        found.close()
        raise
    return found, file


def names(home: Directory) -> list[str]:
    """The sets there are."""
    try:
        with _folder(home) as folder:
            return [name for name in files.names_in(folder) if _SET_NAME.fullmatch(name)]
    except FileNotFoundError:
        return []
