"""A queue's home: its directory, open, with the options and the journal of queue.shmq, and what lies in its folders."""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from shmq import _native, errors, later, locks, log, user_group
from shmq.hints import TYPE_CHECKING
from shmq.options import BOUND_MAX, Options
from shmq.storage import blocks, boots, files, shm, small_json, sync
from shmq.storage.admin import ADMIN_TIMEOUT, admin_lock
from shmq.storage.paths import (
    CHUNKS,
    CONSUMERS,
    CONTROL,
    DEDUP,
    QUEUE,
    STAGING,
    chunk_name,
    is_consumer_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any, Protocol, TypeVar

    from shmq.storage.view import View
    from shmq.storage.volatile import Hold

    _T = TypeVar("_T")

    class Closable(Protocol):
        """What goes with an opening."""

        def close(self) -> None:
            """Let go of what it has."""


CEILING_AHEAD = 1 << 16
"""How many indexes the ceiling is raised above what is needed, so that small chunks do not sync it each time."""


_told: set[str] = set()


def _tell_once(text: str) -> None:
    """Say it in the log of this process, the first time."""
    if text not in _told:
        _told.add(text)
        log.say(log.WARNING, "%s", text)


def _stored_options(stored: bytes, where: str) -> Options:
    """The options of a queue, from the bytes that passed their checksum; somebody may have meant them ill."""
    made = Options.stored_as(stored)
    if made is not None:
        return made
    with _explained(where):
        return Options.from_json(small_json.loads(stored))


@contextlib.contextmanager
def _explained(where: str) -> Iterator[None]:
    try:
        yield
    except errors.BadFormat as problem:
        raise errors.BadFormat(f"cannot read {where}: {problem}; it was not touched") from None
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as problem:
        raise errors.Corrupt(f"cannot read {where}: its options are not options ({problem})") from None


class _AtHand:
    __slots__ = ("_home",)

    def __init__(self, home: Directory) -> None:
        self._home = home

    def __enter__(self) -> None:
        self._home.keep_at_hand(1)

    def __exit__(self, *_: object) -> None:
        self._home.keep_at_hand(-1)


class Directory:
    """An open queue directory."""

    def __init__(
        self,
        path: str,
        *,
        read_only: bool,
        trust_owner: bool = False,
        group: int | None = None,
        stays_at_hand: bool = False,
    ) -> None:
        """
        Open the directory of a queue that exists; also one that another user of *group* has made for that group.

        *stays_at_hand*: until the caller's `keep_at_hand(-1)`, as with `at_hand`.

        Raises:
            NotFound, BadFormat, Unsafe, Corrupt: it does not, or not safely.
            PermissionError: it is shared by a group that this process is not in.
        """
        self.path = os.path.abspath(path)
        self.read_only = read_only
        self.volatile = shm.is_inside(self.path)
        self.small = shm.is_anonymous(self.path)
        """Whether its files take as little as can be: what may never be needed gets its room when it is."""
        self.at_end: Callable[[], None] | None = None
        """Called when the last user has closed."""
        self.hold: Hold | None = None
        """Of a volatile queue: what says that it is used."""
        self.turn: Closable | None = None
        """How this opening takes turns in putting with dedup (shmq/storage/dedup.py), once it has."""
        self.found_finished = -1
        """How often the queue had been finished in this boot when it was opened here; -1: it was not finished then."""
        self._trust_owner = trust_owner
        self.keeps_descriptor = not self.volatile
        """Whether the directory itself stays open, wherever it is moved to. A volatile queue's stays where it is."""
        self._fd: _native.Fd | None = None
        self._at_hand: dict[str, _native.Fd] = {}
        self._hands = 0
        self._files: dict[str, tuple[int, int]] = {}
        """Which one each folder is: device and inode, by its name; the directory itself as \"\"."""
        self.names_known: tuple[Any, object] = (None, None)
        """What storage/space.py keeps of the names here from one retirement to the next, and whose it is."""
        self.kind = "unknown"
        """The type of its file system, where somebody has looked."""
        self._users: set[object] = set()
        self._lock = locks.Lock()
        self.view: View | None = None
        """What is whole in it, for whoever may only read a queue that nobody has recovered yet."""
        try:
            with self.at_hand():
                fd = self._know("", files.open_directory(self.path, trust_owner=trust_owner, group=group))
                if self.keeps_descriptor:
                    self._fd = fd
                self._read_queue_file()
                for folder in (CHUNKS, CONSUMERS):
                    self._know(folder, self._below(folder))
                if stays_at_hand:
                    self.keep_at_hand(1)
        except BaseException:
            self.close()
            raise

    # ---- folders
    def _know(self, folder: str, fd: _native.Fd) -> _native.Fd:
        info = os.fstat(fd)
        self._files[folder] = info.st_dev, info.st_ino
        self._at_hand[folder] = fd
        return fd

    def at_hand(self) -> _AtHand:
        """To the end of its `with` block each folder stays open that is opened, for work that asks for it again."""
        return _AtHand(self)

    def keep_at_hand(self, more: int) -> None:
        """One more who wants that (1), or one fewer (-1)."""
        with self._lock:
            self._hands += more
            if not self._hands:
                self._at_hand.clear()  # whoever still uses one closes it by letting go of it

    @property
    def fd(self) -> _native.Fd:
        """
        A descriptor of the directory.

        Raises:
            NotFound: it was removed.
        """
        return self._fd or self._opened("", self.path)

    @property
    def chunks(self) -> _native.Fd:
        """A descriptor of the folder of chunks, which is open as long as somebody has it; raises as `fd`."""
        return self._opened(CHUNKS, CHUNKS)

    @property
    def consumers(self) -> _native.Fd:
        """A descriptor of the folder of consumers; likewise."""
        return self._opened(CONSUMERS, CONSUMERS)

    def _opened(self, folder: str, path: str) -> _native.Fd:
        """That folder, opened by its path; it is the one that it was when the queue was opened."""
        fd = self._at_hand.get(folder)
        if fd is not None:
            return fd
        above = self.fd if folder else None
        try:
            fd = _native.Fd.of(os.open, path, files.DIRECTORY_FLAGS, dir_fd=above)
            info = os.fstat(fd)
        except OSError as problem:
            if problem.errno not in files.NO_DIRECTORY:
                problem.filename = f"{self.path}/{folder}"
                raise
            raise files.removed(f"{self.path}/{folder}") from None
        if (info.st_dev, info.st_ino) != self._files[folder]:
            raise files.removed(f"{self.path}/{folder}")
        with self._lock:
            if self._hands:
                self._at_hand[folder] = fd
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
            fd, size = self.open(self.fd, QUEUE, writable=False)
        except FileNotFoundError:
            raise errors.NotFound(
                f"cannot open {self.path}: the directory is there, but it is not a queue (no {QUEUE})"
            ) from None
        self._at_hand[QUEUE] = fd  # for `follow_from`
        content = os.pread(fd, min(size, _native.QUEUE_BYTES + 1), 0)
        if len(content) < _native.PAGE_BYTES:
            raise errors.BadFormat(f"cannot read {where}: it has only {len(content)} bytes; it was not touched")
        self.queue_id, stored = _native.check_queue(content[: _native.PAGE_BYTES], where)
        if len(content) != _native.QUEUE_BYTES:
            size = os.stat(QUEUE, dir_fd=self.fd, follow_symlinks=False).st_size
            raise errors.Corrupt(f"cannot read {where}: it has {size} bytes instead of {_native.QUEUE_BYTES}")
        self.options = self.made_with = self._as_shared(_stored_options(stored, where))
        made = self.made_with
        self._noted: tuple[bytes, int, int] = (b"", made.max_messages or 0, made.max_bytes or 0)
        self._noted_in = 0
        self._followed = -1
        self._covered = 0
        self._journals_read = content[_native.PAGE_BYTES : 3 * _native.PAGE_BYTES]
        self.journal = self._newest_journal(content)
        self._settled = 1  # sequence of a journal slot that is on the disk: the first was synced before it had a name
        self.look_at_boot()

    def _as_shared(self, stored: Options) -> Options:
        """
        The options, shared as the directory is: a copy may be somebody's alone.

        Raises:
            Unsafe: the directory is shared, and the queue was not made to be.
        """
        group = files.group_of(self.fd)
        if group is not None and stored.group is None:
            raise errors.Unsafe(
                f"cannot open {self.path}: {user_group.told(group)} shares its directory, and it was made for one user "
                "alone: chmod 0700 it, or copy its messages into a queue that was made with group="
            )
        return stored if group == stored.group else stored.shared_by(group)

    def look_at_boot(self) -> None:
        """Tell whether the queue was last open in this boot, and whether its directory is a copy of another one."""
        self.boot_id = boots.boot_id()
        self.same_boot = self.journal.boot_id == self.boot_id
        self.copied = False
        if self.journal.inode:
            try:
                info = os.stat(CONTROL, dir_fd=self.fd, follow_symlinks=False)
                self.copied = (info.st_dev, info.st_ino) != (self.journal.device, self.journal.inode)
            except FileNotFoundError:
                self.copied = False  # in this boot, somebody who has it open may still use the one that is gone
        self.note(self.journal)

    def note(self, journal: _native.Journal) -> None:
        """The options say what they are now, not what the queue was made with."""
        now = (journal.changed, journal.max_messages, journal.max_bytes)
        self.loses = bool(journal.flags & _native.JOURNAL_LOSES) or self.made_with.retention.loses
        if now == self._noted or journal.sequence < self._noted_in:
            return
        bounds = (journal.max_messages or None, journal.max_bytes or None)
        if max(journal.max_messages, journal.max_bytes) > BOUND_MAX:
            raise errors.Corrupt(f"cannot read {self.path}/{QUEUE}: no queue has bounds of {bounds}")
        with _explained(f"{self.path}/{QUEUE}"):
            stored = small_json.loads(journal.changed) if journal.changed else {}
            self.options = self.made_with.with_changes(stored, *bounds)
        self._noted, self._noted_in = now, journal.sequence

    def follow_from(self, control: _native.Control) -> _native.Bounds:
        """
        While it is opened: have `follow` read nothing until somebody moves that word, if what was read holds still; the
        bounds, as they are now.

        Whoever changes options writes the journal first: so the word is looked at before that is.
        """
        bounds, fd = control.bounds(), self._at_hand.get(QUEUE)
        if fd is not None and os.pread(fd, 2 * _native.PAGE_BYTES, _native.PAGE_BYTES) == self._journals_read:
            self._followed = bounds.moved
        return bounds

    def follow(self, control: _native.Control) -> Options:
        """The options as they are now, for whoever puts or retires: whoever changes them moves a word of *control*."""
        moved = control.bounds().moved
        if moved != self._followed:
            self.look_at_options()
            self._followed = moved
        return self.options

    def look_at_options(self) -> None:
        """Have the options as they are now, from the disk."""
        self.note(self._newest_journal(self.read(self.fd, QUEUE, _native.QUEUE_BYTES)))

    def unclean(self) -> bool:
        """Whether what processes agreed on in memory is gone, so that only what is on the disk counts."""
        return not self.same_boot or self.copied

    def _journals(self, content: bytes) -> list[_native.Journal]:
        """The valid slots of the journal, the newest first."""
        pages = (content[at * _native.PAGE_BYTES :][: _native.PAGE_BYTES] for at in (1, 2))
        slots = [slot for slot in map(_native.check_journal, pages) if slot]
        if not slots:
            raise errors.Corrupt(f"cannot read {self.path}/{QUEUE}: neither of its two journal slots is valid")
        slots.sort(key=lambda slot: -slot.sequence)
        newest, *older = slots
        # The slot of the creation was synced before it had a name, and a slot is written once the other one is synced.
        known = newest.ceiling if newest.sequence == 1 else max((slot.ceiling for slot in older), default=0)
        self._covered = max(self._covered, known)
        return slots

    def _newest_journal(self, content: bytes) -> _native.Journal:
        return self._journals(content)[0]

    def warn_of_sigbus(self, kind: str) -> None:
        """Warn of a file system, of type *kind*, on which a full disk is no exception."""
        self.kind = kind
        if kind in blocks.NEVER_SHARED:
            return
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
            if self._fd is not None:
                self._fd.close()
            self._at_hand.clear()
            self.names_known = None, None
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
        plain = files.open_plain(directory, name, writable=writable)
        if plain is not None:
            return plain
        where = self._place_of(directory)
        try:
            return files.open_file(directory, name, where, writable=writable, trust_owner=self._trust_owner)
        except FileNotFoundError:
            files.refuse_removed(self.fd, self.path)
            raise

    def _place_of(self, directory: int) -> str:
        """The path of one of this queue's folders, for errors."""
        for folder, fd in self._at_hand.copy().items():  # other threads open and leave some
            if fd is directory:
                return f"{self.path}/{folder}" if folder else self.path
        info = os.fstat(directory)
        for folder, known in self._files.items():
            if known == (info.st_dev, info.st_ino):
                return f"{self.path}/{folder}" if folder else self.path
        here, there = (os.readlink(f"/proc/self/fd/{fd}") for fd in (self.fd, directory))
        return f"{self.path}/{there.removeprefix(here).strip('/')}"

    def read(self, directory: int, name: str, limit: int) -> bytes:
        """The content of a small file of this queue, up to one byte more than *limit*."""
        fd, size = self.open(directory, name, writable=False)
        with fd:
            return os.pread(fd, min(size, limit + 1), 0)

    def read_at(self, directory: int, name: str, size: int, position: int) -> bytes:
        """So many bytes of a file of this queue, from there on."""
        fd, _ = self.open(directory, name, writable=False)
        with fd:
            return os.pread(fd, size, position)

    def chunk_names(self) -> list[tuple[int, int]]:
        """(sequence, base) of every chunk file, in order."""
        return sorted(self._listed(self.chunks, _native.chunks_in))

    def ring_files(self) -> list[str]:
        """The names of all rings, of groups and of those who acknowledge alone."""
        return self._listed(self.consumers, lambda fd: _native.ended_in(fd, ".ring"))

    @staticmethod
    def _listed(directory: _native.Fd, names: Callable[[_native.Fd], list[_T]]) -> list[_T]:
        """As `files.names_in`, with the names looked at on the way; nothing else here reads a directory so."""
        sys.audit("os.listdir", directory)
        try:
            return names(directory)
        except OSError as problem:
            problem.filename = os.readlink(f"/proc/self/fd/{directory}")
            raise

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
        self._journals(self.read(self.fd, QUEUE, _native.QUEUE_BYTES))
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
        self.note(self.journal)
        return self.journal

    def has_staged(self) -> bool:
        """Whether anything was ever staged here."""
        return files.is_there(self.fd, STAGING)

    def has_dedup(self) -> bool:
        """Whether anything was ever put with dedup here."""
        return files.is_there(self.fd, DEDUP)

    def drop_chunk(self, base: int, sequence: int) -> None:
        """Unlink a chunk that does not belong to the log."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(chunk_name(base, sequence), dir_fd=self.chunks)

    def has_consumer(self, name: str) -> bool:
        """Whether there is that name: for each there is a checkpoint."""
        return files.is_there(self.consumers, f"{name}.checkpoint")

    def consumer_names(self, there: Iterable[str] | None = None) -> list[str]:
        """The names that have a checkpoint here; *there*: what is in the folder, for whoever has listed it."""
        ends = ".checkpoint"
        there = files.names_in(self.consumers) if there is None else there
        names = (name.removesuffix(ends) for name in there if name.endswith(ends))
        return sorted(name for name in names if is_consumer_name(name))  # whatever else lies there is no name

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
        for directory in (self.fd, self.chunks, self.consumers):
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
