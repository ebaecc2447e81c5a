"""
A queue's home in a directory: its files, made once and opened by all.

    queue.shmq       what the queue is: id, options, epoch          linked last: with it, the queue exists
    control.shmq     who is here: slots, bell, counters
    admin.lock       for rare, exclusive actions (an OFD lock on its first byte)
    deleted.shmq     what queue.shmq becomes when the queue is being deleted: with that rename it is gone
    chunks/          <base index, 16 hex>-<sequence, 8 hex>.chunk
    consumers/       <name>.checkpoint
    staging/         chunks built aside (staging.py); there once something was staged
    ledger.shmq      which batches were adopted
    dedup.shmq       which were put, in the chunks before the one it names
    aside/           what recovery found behind a cut; nobody reads it any more
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from typing import TYPE_CHECKING, Protocol

from shmq import _native, errors, given, later, locks
from shmq.options import BOUND_MAX, CHUNK_MIN, FIRST_CHUNK, SMALLEST_CHUNK, Options
from shmq.storage import blocks, boots, files, shm, spares, sync, volatile, warm

if TYPE_CHECKING:
    import mmap
    from collections.abc import Callable

    from shmq.storage.view import View

QUEUE, CONTROL, ADMIN, CHUNKS, CONSUMERS = "queue.shmq", "control.shmq", "admin.lock", "chunks", "consumers"
DELETED = "deleted.shmq"
STAGING, LEDGER, LEDGER_NEW, ASIDE = "staging", "ledger.shmq", "ledger.new", "aside"
DEDUP, DEDUP_NEW = "dedup.shmq", "dedup.new"
_OURS = {QUEUE, CONTROL, ADMIN, CHUNKS, CONSUMERS, DELETED, STAGING, LEDGER, LEDGER_NEW, DEDUP, DEDUP_NEW, ASIDE}
_CHUNK_NAME = re.compile(r"([0-9a-f]{16})-([0-9a-f]{8})\.chunk")
_CONSUMER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,63}")
ADMIN_TIMEOUT = 30.0
_ADMIN_POLL = 0.05
CEILING_AHEAD = 1 << 16
"""How many indexes the ceiling is raised above what is needed, so that small chunks do not sync it each time."""
_GROWTH = 4
"""A chunk has at most so many times the bytes that are in use in the one before it."""
_REGIONS = 8
"""A chunk has room for so many regions like the one it is made for, so that large messages do not roll each time."""
_SPARE_MAX = 16 << 20
"""A spare of up to this size serves even where a smaller chunk would be due."""


_GRAIN = 4096
_GRAINED = range(64 << 10, 256 << 20)
"""Messages of such sizes get chunks with a grain; of the smallest of them it takes a sixteenth."""


def grain_for(region: int, messages: int, size: int) -> int:
    """
    The grain of a chunk that is made for a region of *region* bytes, after one of *size* bytes with so many *messages*.

    A small message takes a whole grain, so there is one only where few are small.
    """
    return _GRAIN if region in _GRAINED and size >= messages * _GRAINED.start else 0


def _smallest(size: int) -> int:
    """The smallest chunk that has so many bytes."""
    return max(-(-size // _native.PAGE_BYTES) * _native.PAGE_BYTES, CHUNK_MIN)


def chunk_name(base: int, sequence: int) -> str:
    """The file name of a chunk."""
    return f"{base:016x}-{sequence:08x}.chunk"


def parse_chunk_name(name: str) -> tuple[int, int] | None:
    """(sequence, base) of a chunk by its file's name; None when it is no chunk's."""
    match = _CHUNK_NAME.fullmatch(name)
    return (int(match[2], 16), int(match[1], 16)) if match else None


_told: set[str] = set()


def _tell_once(text: str) -> None:
    """Say it in the log of this process, the first time."""
    if text not in _told:
        later.ready("logging")
        import logging  # noqa: PLC0415  # rare

        _told.add(text)
        logging.getLogger("shmq").warning("%s", text)


def check_consumer_name(name: str) -> str:
    """
    The name itself, if it is one.

    Raises:
        TypeError, ValueError: it is not 1 to 64 of A-Z a-z 0-9 _ . - or begins with a dot.
    """
    if not _CONSUMER_NAME.fullmatch(given.text("name", name, "a str, the name of a consumer,")):
        raise ValueError(f"{name!r} is no consumer name: 1 to 64 of A-Z a-z 0-9 _ . - and no dot in front")
    return name


def _stored_options(stored: bytes, where: str) -> Options:
    """The options of a queue, from the bytes that passed their checksum; somebody may have meant them ill."""
    try:
        later.ready("json")
        import json  # noqa: PLC0415  # only who opens a queue pays for it

        return Options.from_json(json.loads(stored))
    except errors.BadFormat as problem:
        raise errors.BadFormat(f"cannot read {where}: {problem}; it was not touched") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise errors.Corrupt(f"cannot read {where}: its options are no options ({problem})") from None


class Closable(Protocol):
    """What goes with an opening."""

    def close(self) -> None:
        """Let go of what it has."""


class Directory:
    """An open queue directory."""

    def __init__(self, path: str, *, read_only: bool, trust_owner: bool = False) -> None:
        """
        Open the directory of a queue that exists.

        Raises:
            NotFound, BadFormat, Unsafe, Corrupt: it does not, or not safely.
        """
        self.path = os.path.abspath(path)
        self.read_only = read_only
        self.volatile = shm.is_inside(self.path)
        self.at_end: Callable[[], None] | None = None
        """Called when the last user has closed."""
        self.turn: Closable | None = None
        """How this opening takes turns in putting with dedup (shmq/storage/dedup.py), once it has."""
        self.found_finished = -1
        """How often the queue had been finished in this boot when it was opened here; -1: it was not finished then."""
        self._trust_owner = trust_owner
        self._fds: list[_native.Fd] = []
        self._users: set[object] = set()
        self._lock = locks.Lock()
        self.view: View | None = None
        """What is whole in it, for whoever may only read a queue that nobody has recovered yet."""
        try:
            self.fd = self._keep(files.open_directory(self.path, trust_owner=trust_owner))
            self._read_queue_file()
            self.chunks = self._keep(self._below(CHUNKS))
            self.consumers = self._keep(self._below(CONSUMERS))
        except BaseException:
            self.close()
            raise

    def _keep(self, fd: _native.Fd) -> _native.Fd:
        self._fds.append(fd)
        return fd

    def below(self, name: str) -> _native.Fd:
        """A descriptor of a folder of this queue."""
        return files.open_directory(f"{self.path}/{name}", trust_owner=self._trust_owner, above=self.fd)

    def below_path(self, path: str) -> _native.Fd:
        """A descriptor of a folder in a folder of this queue."""
        above = path.partition("/")[0]
        with self.below(above) as fd:
            try:
                return files.open_directory(f"{self.path}/{path}", trust_owner=self._trust_owner, above=fd)
            except errors.NotFound:
                raise FileNotFoundError(path) from None

    def _below(self, name: str) -> _native.Fd:
        try:
            return self.below(name)
        except errors.NotFound:
            raise errors.Corrupt(f"cannot open {self.path}: its folder {name} is missing") from None

    def _read_queue_file(self) -> None:
        where = f"{self.path}/{QUEUE}"
        try:
            content = self.read(self.fd, QUEUE, _native.QUEUE_BYTES)
        except FileNotFoundError:
            raise errors.NotFound(
                f"cannot open {self.path}: the directory is there, but it is not a queue (no {QUEUE})"
            ) from None
        if len(content) < _native.PAGE_BYTES:
            raise errors.BadFormat(f"cannot read {where}: it has only {len(content)} bytes; it was not touched")
        self.queue_id, stored = _native.check_queue(content[: _native.PAGE_BYTES], where)
        if len(content) != _native.QUEUE_BYTES:
            size = os.stat(QUEUE, dir_fd=self.fd, follow_symlinks=False).st_size
            raise errors.Corrupt(f"cannot read {where}: it has {size} bytes instead of {_native.QUEUE_BYTES}")
        self.options = _stored_options(stored, where)
        self.journal = self._newest_journal(content)
        self._covered = 0
        self._settled = 1  # sequence of a journal slot that is on the disk: the first was synced before it had a name
        self.look_at_boot()

    def look_at_boot(self) -> None:
        """Tell whether the queue was last open in this boot, and whether its directory is a copy of another one."""
        self.same_boot = self.journal.boot_id == boots.boot_id()
        self.copied = False
        if self.journal.inode:
            try:
                info = os.stat(CONTROL, dir_fd=self.fd, follow_symlinks=False)
                self.copied = (info.st_dev, info.st_ino) != (self.journal.device, self.journal.inode)
            except FileNotFoundError:
                self.copied = False  # in this boot, somebody who has it open may still use the one that is gone
        self.note_bounds(self.journal)

    def note_bounds(self, journal: _native.Journal) -> None:
        """The options say what bounds are now, not what they were."""
        bounds = (journal.max_messages or None, journal.max_bytes or None)
        if max(journal.max_messages, journal.max_bytes) > BOUND_MAX:
            raise errors.Corrupt(f"cannot read {self.path}/{QUEUE}: no queue has bounds of {bounds}")
        if bounds != (self.options.max_messages, self.options.max_bytes):
            self.options = self.options.with_bounds(*bounds)

    def unclean(self) -> bool:
        """Whether what processes agreed on in memory is gone, so that only what is on the disk counts."""
        return not self.same_boot or self.copied

    def _journals(self, content: bytes) -> list[_native.Journal]:
        """The valid slots of the journal, the newest first."""
        pages = (content[at * _native.PAGE_BYTES :][: _native.PAGE_BYTES] for at in (1, 2))
        slots = [slot for slot in map(_native.check_journal, pages) if slot]
        if not slots:
            raise errors.Corrupt(f"cannot read {self.path}/{QUEUE}: neither of its two journal slots is valid")
        return sorted(slots, key=lambda slot: -slot.sequence)

    def _newest_journal(self, content: bytes) -> _native.Journal:
        return self._journals(content)[0]

    def warn_of_sigbus(self, kind: str) -> None:
        """Warn of a file system, of type *kind*, on which a full disk is no exception."""
        try:
            fd, _ = self.open(self.fd, CONTROL, writable=False)
        except FileNotFoundError:
            return  # whoever joins says so
        with fd:
            reason = blocks.may_run_out(kind, fd)
        if reason:
            later.ready("warnings")
            import warnings  # noqa: PLC0415  # rare

            warnings.warn(
                f"on a full disk a process that opens or uses {self.path} may be killed by SIGBUS: {reason}",
                RuntimeWarning,
                stacklevel=2,
            )

    def refuse_moved(self, tried: str) -> None:
        """
        For what is done to the directory as a whole, which goes by its path.

        Raises:
            NotFound: the path does not lead here any more.
        """
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self.fd)):
                return
        raise errors.NotFound(f"cannot {tried} {self.path}: it was moved or removed meanwhile; nothing was changed")

    def retain(self, user: object) -> None:
        """One user more, who closes it."""
        with self._lock:
            self._users.add(user)

    def close(self, user: object = None) -> None:
        """
        Without that user; when there is none (any more), the descriptors are closed. What is mapped stays mapped. A
        second time it does nothing, but what a first one left when it was interrupted.
        """
        with self._lock:
            self._users.discard(user)
            if self._users:
                return
            for fd in self._fds:
                fd.close()
            if self.turn is not None:
                self.turn.close()
            if self.at_end is not None:
                self.at_end()

    # ---- files
    def open(self, directory: int, name: str, *, writable: bool) -> tuple[_native.Fd, int]:
        """
        A checked descriptor of a file of this queue, and its size.

        Raises:
            FileNotFoundError: there is none; for the caller to interpret.
            NotFound: the queue's whole directory was removed.
            Unsafe: it is not safe to open.
        """
        where = self._place_of(directory)
        try:
            return files.open_file(directory, name, where, writable=writable, trust_owner=self._trust_owner)
        except FileNotFoundError:
            files.refuse_removed(self.fd, self.path)
            raise

    def _place_of(self, directory: int) -> str:
        """The path of one of this queue's folders, for errors."""
        if directory == self.fd:
            return self.path
        if directory in self._fds:
            return f"{self.path}/{CHUNKS if directory == self._fds[1] else CONSUMERS}"
        here, there = (os.readlink(f"/proc/self/fd/{fd}") for fd in (self.fd, directory))
        return f"{self.path}/{there.removeprefix(here).strip('/')}"

    def read(self, directory: int, name: str, limit: int) -> bytes:
        """The content of a small file of this queue, up to one byte more than *limit*."""
        fd, size = self.open(directory, name, writable=False)
        with fd:
            return os.pread(fd, min(size, limit + 1), 0)

    def chunk_names(self) -> list[tuple[int, int]]:
        """(sequence, base) of every chunk file, in order."""
        return sorted(chunk for name in files.names_in(self.chunks) if (chunk := parse_chunk_name(name)))

    def chunk_size(self, sequence: int, before: int, region: int = 0, filled: int | None = None) -> int:
        """
        The normal size of chunk *sequence* with so many *before* it: small queues are small, and stay so if consumers
        keep up. A chunk that an adoption sealed with little in it has no large one behind it either: *filled* bytes of
        the one before are in use, when that is known.

        It has room for some regions of *region* bytes.
        """
        first = volatile.FIRST_CHUNK if self.volatile else FIRST_CHUNK
        some = max(region * _REGIONS, min(2 * region * _REGIONS, _SPARE_MAX))  # a roll costs as much as some MiB
        grown = first << min(2 * before, 30)
        if not self.volatile:  # a queue of a few messages takes next to nothing
            grown = min(grown, SMALLEST_CHUNK << min(2 * sequence, 30))
        if filled is not None:
            grown = min(grown, max(_GROWTH * filled & -_native.PAGE_BYTES, SMALLEST_CHUNK if filled else CHUNK_MIN))
        grown = max(grown, some & -_native.PAGE_BYTES)
        if self.volatile:
            room = os.fstatvfs(self.chunks)
            share = room.f_bavail * room.f_frsize // volatile.SHARE & -_native.PAGE_BYTES
            grown = min(grown, max(share, CHUNK_MIN))
        return min(grown, self.options.chunk_bytes)

    def worth_keeping(self) -> int:
        """The size from which on a chunk file is kept to serve again."""
        return min(volatile.FIRST_CHUNK, spares.WORTH_KEEPING) if self.volatile else spares.WORTH_KEEPING

    def room_for_spares(self) -> int:
        """What used files may have together that are kept to serve again: shared memory is others', too."""
        if not self.volatile:
            return spares.KEEP_BYTES
        room = os.fstatvfs(self.chunks)
        return min(spares.KEEP_BYTES, room.f_blocks * room.f_frsize // volatile.SHARE)

    def make_chunk(
        self,
        base: int,
        sequence: int,
        region: int = 0,
        before: int | None = None,
        grain: int = 0,
        make_room: Callable[[], object] | None = None,
        filled: int | None = None,
    ) -> bool:
        """
        Make the chunk *base*-*sequence*, large enough for a region of *region* bytes; False when it is there already.

        *before*: how many live chunks are before it; all of those sequences by default. *grain*: as grain_for says.
        *make_room*: what gives chunks back that nobody needs; called where the disk has no room. *filled*: how many
        bytes of the chunk before are in use.

        Raises:
            DiskFull: there is no room, not even for the smallest that would do; nothing was made.
        """
        needed = _native.Chunk.bytes_for(region, self.options.index_spacing, grain)
        before = sequence if before is None else before
        region = region if before < sequence else 0  # consumers retire: large messages settle in a few files
        normal = self.chunk_size(sequence, before, region, filled)
        wanted = min(normal, max(self.worth_keeping(), region * _REGIONS))
        made = self._of_spare(base, sequence, grain, max(needed, wanted), max(normal, _SPARE_MAX))
        if made is not None:
            return made
        size = max(normal, needed)
        with contextlib.suppress(errors.DiskFull):
            return self._of_new_file(base, sequence, grain, size, size, needed)
        if make_room is not None:
            make_room()
        made = self._of_spare(base, sequence, grain, needed, _native.CHUNK_BYTES_MAX)
        if made is not None:
            return made
        spares.drop(self.chunks)
        return self._of_new_file(base, sequence, grain, size, needed, needed)

    def _of_spare(self, base: int, sequence: int, grain: int, at_least: int, at_most: int) -> bool | None:
        """As `make_chunk`, of a used file of such a size; None when there is none."""
        fresh = spares.Fresh(self.options.index_spacing, grain)
        spare = spares.take(self.chunks, at_least, at_most, warm.look, fresh)
        if spare is None:
            return None
        with spare:
            self.format_chunk(spare.fd, spare.size, base, sequence, grain=grain, mapped=spare.map)
            return spare.become(chunk_name(base, sequence))

    def _of_new_file(self, base: int, sequence: int, grain: int, size: int, least: int, needed: int) -> bool:
        """As `make_chunk`, of a new file."""
        fd, size = self.new_chunk_file(self.chunks, size, least, f"{self.path}/{CHUNKS}", needed)
        with fd:
            self.format_chunk(fd, size, base, sequence, grain=grain)
            return files.link_file(fd, self.chunks, chunk_name(base, sequence), f"{self.path}/{CHUNKS}")

    def new_chunk_file(
        self, folder: int, size: int, least: int, path: str, needed: int | None = None
    ) -> tuple[_native.Fd, int]:
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
                fd = files.new_file(folder, size, self.options.mode & 0o600, path)
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

    def format_chunk(
        self, fd: int, size: int, base: int, sequence: int, *, grain: int = 0, mapped: mmap.mmap | None = None
    ) -> None:
        """Write the beginning of a new chunk, through *mapped* if its file is mapped already."""
        kept = mapped if mapped is not None and len(mapped) == size else None
        with (
            contextlib.closing(_native.map_file(fd, size, writable=True))
            if kept is None
            else contextlib.nullcontext(kept)
        ) as memory:
            _native.Chunk.format(
                memory,
                self.queue_id,
                int.from_bytes(os.urandom(8), "little") >> 1 | 1,
                self.journal.epoch,
                base,
                sequence,
                self.options.index_spacing,
                grain,
                time.time_ns(),
            )

    def write_journal(self, journal: _native.Journal) -> None:
        """
        Replace the older of the two journal slots, synced. Under the administrative lock only.

        Raises:
            OSError: the disk refused. One of the two slots still says what it said.
        """
        journal = journal._replace(sequence=self.journal.sequence + 1)
        fd, _ = self.open(self.fd, QUEUE, writable=True)
        try:
            if self.journal.sequence != self._settled:
                sync.data(fd, "journal")  # who wrote it may have been killed before that
            page = _native.PAGE_BYTES * (2 - journal.sequence % 2)
            sync.write(fd, _native.format_journal(journal), page, "journal")
            sync.data(fd, "journal")
        except OSError as problem:
            raise files.explained(problem, self.path, QUEUE) from None
        finally:
            fd.close()
        self.journal = journal
        self._settled = journal.sequence
        self._covered = max(self._covered, journal.ceiling)

    def cover(self, base: int, size: int) -> None:
        """
        Have it on the disk that indexes up to the last one that a chunk can give may have been given, before the first.

        Recovery after a power cut goes on above the ceiling, and above what any chunk that has a name can give; so
        where nobody may write the journal now, the names are synced instead.

        Raises:
            OSError, DiskFull: the disk refused.
        """
        top = base + size // _native.RECORD_BYTES_MIN
        if self._covered >= top:
            return
        newest, *older = self._journals(self.read(self.fd, QUEUE, _native.QUEUE_BYTES))
        # The slot of the creation was synced before it had a name, and a slot is written once the other one is synced.
        known = newest.ceiling if newest.sequence == 1 else max((slot.ceiling for slot in older), default=0)
        self._covered = max(self._covered, known)
        if self._covered >= top:
            return
        try:
            with self.admin(timeout=0):
                self.raise_ceiling(top)
        except errors.Busy:
            sync.directory(self.chunks, "chunks")

    def raise_ceiling(self, top: int) -> None:
        """Have the ceiling at *top* or above it, on the disk. Under the administrative lock only."""
        if self._covered < top:
            journal = self.read_journal()
            self.write_journal(journal._replace(ceiling=max(journal.ceiling, top + CEILING_AHEAD)))

    def read_journal(self) -> _native.Journal:
        """The newest valid journal slot, as it is now."""
        self.journal = self._newest_journal(self.read(self.fd, QUEUE, _native.QUEUE_BYTES))
        return self.journal

    def drop_chunk(self, base: int, sequence: int) -> None:
        """Unlink a chunk that does not belong to the log."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(chunk_name(base, sequence), dir_fd=self.chunks)

    def consumer_names(self) -> list[str]:
        """The names that have a checkpoint here."""
        ends = ".checkpoint"
        names = (name.removesuffix(ends) for name in files.names_in(self.consumers) if name.endswith(ends))
        return sorted(name for name in names if _CONSUMER_NAME.fullmatch(name))  # whatever else lies there is no name

    def checkpoint(self, name: str, *, writable: bool = False) -> _native.Checkpoint:
        """The checkpoint of that consumer name, to look at."""
        file = f"{name}.checkpoint"
        fd, size = self.open(self.consumers, file, writable=writable)
        with fd:
            path = f"{self.path}/{CONSUMERS}/{file}"
            return _native.Checkpoint(fd, size, self.queue_id, name, path, writable=writable)

    def readable_checkpoint(self, name: str) -> _native.Checkpoint | None:
        """
        The checkpoint of that name, for whoever asks what all names have finished; None when it is damaged.

        Such a one stops nobody but whoever opens that name: it holds back all that was not dropped for everybody, and
        the log says so, once a process.
        """
        try:
            return self.checkpoint(name)
        except (errors.Corrupt, errors.BadFormat, errors.Unsafe) as problem:
            _tell_once(f"{self.path}: consumer {name!r} holds back everything, since {problem}")
            return None

    def damaged_names(self) -> dict[str, str]:
        """Names whose checkpoint cannot be read, and why."""
        found = {}
        for name in self.consumer_names():
            with contextlib.suppress(FileNotFoundError):
                try:
                    self.checkpoint(name)
                except (errors.Corrupt, errors.BadFormat, errors.Unsafe) as problem:
                    found[name] = str(problem)
        return found

    def disk_bytes(self) -> int:
        """Bytes on disk, as the file system counts them."""
        total = 0
        for directory in self._fds:
            for name in files.names_in(directory):
                with contextlib.suppress(FileNotFoundError):
                    info = os.stat(name, dir_fd=directory, follow_symlinks=False)
                    total += info.st_blocks * 512 if stat.S_ISREG(info.st_mode) else 0
        return total

    def admin(self, timeout: float = ADMIN_TIMEOUT) -> contextlib.AbstractContextManager[object]:
        """
        Hold the administrative lock from now on; the `with` block lets go of it.

        Raises:
            Busy: somebody else has held it all that time.
            NotFound: the directory was removed.
        """
        return admin_lock(self.fd, self.path, timeout)


def admin_lock(directory: int, path: str, timeout: float = ADMIN_TIMEOUT) -> contextlib.AbstractContextManager[object]:
    """
    Hold the administrative lock of the queue in that directory: creating, naming, retiring. Never on the data path.

    Its file is found below the descriptor, so those who have the queue open share one lock wherever it was moved to,
    and whatever lies at *path* by now.

    What is returned holds the lock, and is an object of C: its `with` block is entered and left without a line of
    Python, and when nobody has it any more the lock is free. So whatever the handler of a signal raises, and wherever,
    lets go.
    """
    until = time.monotonic() + timeout
    while True:
        files.refuse_removed(directory, path)
        held = _try_admin(directory, path)
        if held is not None:
            return held
        left = until - time.monotonic()
        if left <= 0:
            raise errors.Busy(f"cannot administer {path}: {ADMIN} has been held by somebody for {timeout} s")
        time.sleep(min(left, _ADMIN_POLL))


def _try_admin(directory: int, path: str) -> contextlib.AbstractContextManager[object] | None:
    """The lock, or None when somebody else has it. A new opening: its file may have been deleted meanwhile."""
    with _open_admin(directory, path) as fd:
        mine = os.fstat(fd)
        lock = _native.Lock(fd)
    try:
        with contextlib.suppress(FileNotFoundError):
            if lock.take() and os.path.samestat(os.stat(ADMIN, dir_fd=directory, follow_symlinks=False), mine):
                return lock.held()
        lock.free()
    except BaseException:  # at once: a traceback that somebody keeps would keep the lock
        lock.free()
        raise
    return None


def _open_admin(directory: int, path: str) -> _native.Fd:
    try:
        with contextlib.suppress(FileNotFoundError):
            return files.open_file(directory, ADMIN, path, writable=True, trust_owner=True)[0]
        with contextlib.suppress(FileExistsError):
            os.mknod(ADMIN, stat.S_IFREG | 0o600, dir_fd=directory)
            os.chmod(ADMIN, 0o600, dir_fd=directory)  # not left to the umask
        return files.open_file(directory, ADMIN, path, writable=True, trust_owner=True)[0]
    except OSError as problem:
        files.refuse_removed(directory, path)
        raise files.explained(problem, path, ADMIN) from None


def create(path: str, options: Options) -> None:
    """
    Make a queue at *path*, unless there is one. Several processes may do this at once; one of them makes it.

    Raises:
        NotFound: the directory above is missing.
        BadFormat: the path is taken by something else.
        DiskFull, Unsafe: as they say.
    """
    try:
        files.make_directory(path)
    except FileNotFoundError:
        raise errors.NotFound(f"cannot create {path}: the directory above it does not exist") from None
    except NotADirectoryError:
        raise errors.NotFound(f"cannot create {path}: something above it is a file") from None
    directory = files.open_directory(path)
    with directory:
        refuse_strangers(directory, path)
        with admin_lock(directory, path):
            if QUEUE not in files.names_in(directory):
                if os.fstat(directory).st_mode & 0o077:  # it was there, and empty: from now on it is a queue's
                    os.fchmod(directory, 0o700)
                _make_queue(directory, path, options)


def refuse_strangers(directory: int, path: str) -> None:
    """
    Refuse to make a queue beside files of somebody else.

    Raises:
        BadFormat: there are some.
    """
    strange = sorted(set(files.names_in(directory)) - _OURS)
    if strange:
        raise errors.BadFormat(
            f"cannot create a queue in {path}: there are other files in it ({', '.join(strange[:3])}"
            f"{', ...' if len(strange) > 3 else ''}); they were not touched. Use an empty or a new directory"
        )


def _refuse_content(directory: int, name: str, path: str) -> None:
    """A creation that was killed leaves empty folders only: whatever lies in one is somebody's."""
    fd = files.open_directory(f"{path}/{name}", above=directory)
    with fd:
        content = files.names_in(fd)
    if content:
        raise errors.Corrupt(
            f"cannot create a queue in {path}: there is no {QUEUE}, but {len(content)} files lie in {name}/. "
            f"If this was a queue, put its {QUEUE} back; nothing was touched"
        )


def _make_queue(directory: int, path: str, options: Options) -> None:
    """Everything but the queue file is made first; with its link the queue exists."""
    if DELETED in files.names_in(directory):
        _remove_content(directory, path)  # whoever was deleting a queue here was killed
    for name in (CHUNKS, CONSUMERS):
        files.make_directory(f"{path}/{name}", directory)
        _refuse_content(directory, name, path)
    with contextlib.suppress(FileNotFoundError):  # of a creation that was killed; nobody has seen it
        os.unlink(CONTROL, dir_fd=directory)
    queue_id = os.urandom(16)
    mode = options.mode & 0o600
    files.make_file(directory, CONTROL, _native.format_control(queue_id), mode, path, "control")
    control = os.stat(CONTROL, dir_fd=directory, follow_symlinks=False)
    journal = _native.Journal(
        sequence=1,
        epoch=1,
        ceiling=CEILING_AHEAD,
        first_live=0,
        first_index=0,
        max_messages=options.max_messages or 0,
        max_bytes=options.max_bytes or 0,
        dropped=0,
        device=control.st_dev,
        inode=control.st_ino,
        flags=0,
        boot_id=boots.boot_id(),
    )
    later.ready("json")
    import json  # noqa: PLC0415

    stored = json.dumps(options.to_json(), separators=(",", ":")).encode()
    content = _native.format_queue(queue_id, time.time_ns(), stored) + _native.format_journal(journal)
    sync.directory(directory, "home")  # with the queue's own name, everything that belongs to it is there
    files.make_file(directory, QUEUE, content.ljust(_native.QUEUE_BYTES, b"\0"), mode, path, "queue")
    # In every mode: a chunk whose name is kept when the queue's own is lost would be in the way of making it again.
    sync.directory(directory, "home")
    with files.open_plainly(os.path.dirname(path)) as above:
        sync.directory(above, "above")


def delete(directory: Directory) -> None:
    """
    Remove everything of this queue. With the first step it does not exist any more.

    Killed or interrupted behind it, what is left is nobody's: whoever deletes again, or creates a queue here, finishes
    the work first.
    """
    directory.refuse_moved("delete")
    strange = sorted(set(files.names_in(directory.fd)) - _OURS)
    if strange:
        raise errors.Unsafe(
            f"cannot delete {directory.path}: {strange[0]!r} lies in it"
            f"{f', and {len(strange) - 1} more,' if strange[1:] else ''} and is not of the queue; nothing was deleted"
        )
    os.rename(QUEUE, DELETED, src_dir_fd=directory.fd, dst_dir_fd=directory.fd)
    _remove(directory.fd, directory.path)


def finish_deletion(path: str) -> bool:
    """Whether there was something left of a queue that was deleted at *path*: it is gone now."""
    try:
        directory = files.open_directory(path)
    except errors.ShmqError:
        return False
    with directory:
        if not _is_remnant(directory):
            return False
        with admin_lock(directory, path):
            if not _is_remnant(directory):
                return False  # somebody makes one here
            _remove(directory, path)
            return True


def _is_remnant(directory: int) -> bool:
    names = set(files.names_in(directory))
    return QUEUE not in names and (DELETED in names or names == {ADMIN})


def _remove(directory: int, path: str) -> None:
    """Everything, under the administrative lock. Before the lock's own file goes, the mark does."""
    _remove_content(directory, path, CHUNKS, CONSUMERS)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(ADMIN, dir_fd=directory)
    os.rmdir(path)


def _remove_content(directory: int, path: str, *folders: str) -> None:
    """Of a queue that was deleted, and those folders with it: the mark that says so goes last."""
    for folder in (CHUNKS, CONSUMERS):
        with contextlib.suppress(errors.NotFound):
            fd = files.open_directory(f"{path}/{folder}", above=directory)
            with fd:
                for name in files.names_in(fd):
                    os.unlink(name, dir_fd=fd)
    for folder in (STAGING, ASIDE):
        files.remove_all(directory, path, folder)
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            os.rmdir(folder, dir_fd=directory)
    for name in (CONTROL, LEDGER, LEDGER_NEW, DEDUP, DEDUP_NEW, DELETED):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
