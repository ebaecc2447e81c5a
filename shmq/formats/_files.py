"""
Files as the formats need them: read through a window, listed without surprises, written beside their place.

Reading goes through `pread` and not through `mmap`, for two reasons. A file that its own program cuts while it is
mapped kills the reader with SIGBUS; and mapped pages count as the reader's memory, so that a long journal would
look like (and be accounted as) a leak. A window of 64 KiB costs nothing measurable and stays flat.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from shmq.errors import BadFormat, DiskFull, NotFound, ShmqError, Unsafe

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import TracebackType
    from typing import Self

WINDOW = 1 << 16
"""Bytes read at a time. Larger records get a window of their own size, once that size has been checked."""

SMALL_WINDOW = 1 << 12
"""The window after one that was of no use: a journal of large records must not be read twice."""

LIST = 1024
"""Entries in a list, about so many at most where a window may hold a hundred thousand empty ones."""

MAX_PAYLOAD = 1 << 30
"""The default for `max_payload`: larger payloads are refused by name and not loaded."""

WRITE_BUFFER = 1 << 20


class _Answer(OSError):
    """What the world has answered, in the words of one of our errors."""

    def __init__(self, message: str, answer: OSError) -> None:
        """Keep what an OSError tells besides its text."""
        super().__init__(message)
        self.errno, self.strerror, self.filename = answer.errno, answer.strerror, answer.filename

    def __str__(self) -> str:
        """The whole text; an OSError would make one of its number and its path."""
        return str(self.args[0])


class NotWritable(_Answer, Unsafe):
    """The file system, or whose the files are, does not let us write there."""


class NoRoom(_Answer, DiskFull):
    """The disk, or what we may have of it, is full."""


class NoFile(_Answer, BadFormat):
    """Something else stands where a file or a directory of the queue would be."""


_ANSWERS: dict[int, tuple[type[_Answer], str]] = {
    **dict.fromkeys((errno.EROFS, errno.EACCES, errno.EPERM), (NotWritable, "what was there before is untouched")),
    **dict.fromkeys(
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG), (NoRoom, "what is there is whole, and nothing is there in part")
    ),
    **dict.fromkeys((errno.EISDIR, errno.ENOTDIR, errno.ELOOP), (NoFile, "what was there before is untouched")),
}


@contextmanager
def writing(what: str) -> Iterator[None]:
    """
    Have what the world answers to writing told as one of ours; *what* says what was tried, and on what.

    Raises:
        Unsafe: it is read-only, or not ours to write.
        DiskFull: there is no room.
        BadFormat: something else stands in the place of a file.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, ShmqError) or error.errno not in _ANSWERS:
            raise
        kind, still = _ANSWERS[error.errno]
        where = "" if error.filename is None else f" ({os.fsdecode(error.filename)})"
        msg = f"cannot {what}: {error.strerror}{where}; {still}"
        raise kind(msg, error) from error


class Source:
    """One regular file, open for reading. Opening never blocks, also when a pipe or a device stands in its place."""

    __slots__ = ("fd", "name")

    def __init__(self, path: Path, name: str | None = None) -> None:
        """Open *path*; *name* is how problems call it."""
        self.name = path.name if name is None else name
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        except FileNotFoundError as error:
            msg = f"cannot open {path}: there is no such file"
            raise NotFound(msg) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            msg = f"cannot open {path}: its links lead round in a circle"
            raise BadFormat(msg) from error
        if not stat.S_ISREG(os.fstat(self.fd).st_mode):
            self.close()
            msg = f"cannot read {path}: it is not a regular file"
            raise BadFormat(msg)

    def read(self, position: int, nbytes: int) -> bytes:
        """Up to *nbytes* from *position*; fewer only at the end of the file."""
        return os.pread(self.fd, nbytes, position)

    def size(self) -> int:
        """The length of the file now."""
        return os.fstat(self.fd).st_size

    def next_data(self, position: int) -> int:
        """Return the first position from *position* on that is not in a hole of the file; its size if there is none."""
        try:
            return os.lseek(self.fd, position, os.SEEK_DATA)
        except OSError as error:
            # ENXIO: nothing but a hole is left. Anything else: this file system does not know its holes.
            return self.size() if error.errno == errno.ENXIO else position

    def identity(self) -> tuple[int, int]:
        """What stays the same when the file is renamed."""
        found = os.fstat(self.fd)
        return found.st_dev, found.st_ino

    def is_at(self, path: Path) -> bool:
        """Say whether *path* still leads to this file."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return False
        return (found.st_dev, found.st_ino) == self.identity()

    def close(self) -> None:
        """Close the file; again is harmless."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def directory(path: str | os.PathLike[str]) -> Path:
    """Return *path* as a Path, or say that it is no directory."""
    folder = Path(path)
    if not folder.exists():
        msg = f"cannot read {folder}: there is no such directory"
        raise NotFound(msg)
    if not folder.is_dir():
        msg = f"cannot read {folder}: it is not a directory"
        raise BadFormat(msg)
    return folder


def regular_files(folder: Path) -> list[str]:
    """Return the names of the regular files in *folder*, sorted; links to regular files count."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if is_file(entry))


def is_file(entry: os.DirEntry[str]) -> bool:
    """Say whether *entry* is a regular file or leads to one; links that lead round in a circle do not."""
    try:
        return entry.is_file()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def subdirectories(folder: Path) -> list[str]:
    """Return the names of the directories in *folder*, sorted; hidden ones are left out."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if not entry.name.startswith(".") and _is_directory(entry))


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return False


def only_queue(folder: Path, found: Iterable[str], kind: str) -> str:
    """Return the one queue that *folder* holds, or say which ones to choose from."""
    names = sorted(set(found))
    if len(names) == 1:
        return names[0]
    if not names:
        msg = f"no {kind} queue in {folder}{unreadable(folder)}"
        raise NotFound(msg)
    msg = f"{folder} holds {len(names)} {kind} queues ({', '.join(names[:8])}): say which one (queue=, or --queue)"
    raise BadFormat(msg)


def unreadable(folder: Path) -> str:
    """Say which files of *folder* we may not read, if there are some: what is meant may be one of them."""
    names = [name for name in regular_files(folder) if not os.access(folder / name, os.R_OK, effective_ids=True)]
    return f"; files that are there may not be read by us ({', '.join(names[:4])})" if names else ""


class Stage:
    """
    New files, written in a hidden directory beside or in their place and moved in when all are whole.

    They are one folder deeper than that directory: sej's own watcher takes any folder with a `jnl` in it for a journal,
    also one whose name begins with a dot.

    Nothing is visible before `publish`; what goes wrong before it leaves nothing behind; nothing that already
    exists is ever replaced. `publish` is a handful of renames: a crash among them can leave the first ones done,
    which is why each format names last the file that makes the others count.
    """

    def __init__(self, target: Path, mode: int = 0o600) -> None:
        """Prepare to fill the directory *target*, which need not exist; new files get *mode*."""
        self.target = target
        self._mode = mode
        if os.path.lexists(target) and not target.is_dir():
            msg = f"cannot write into {target}: it is not a directory; nothing was changed"
            raise BadFormat(msg)
        if not target.is_dir() and not target.absolute().parent.is_dir():
            msg = f"cannot write {target}: there is no directory {target.absolute().parent}"
            raise NotFound(msg)
        self._hidden = hidden_beside(target, "writing")
        self.root = self._hidden / "new"
        self.root.mkdir()
        self._files: dict[str, BinaryIO] = {}
        self._published = False

    def create(self, name: str) -> BinaryIO:
        """Create the file *name* (relative to the target) for writing; directories on the way come into being."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, self._mode)
        self._files[name] = file = os.fdopen(fd, "wb", buffering=WRITE_BUFFER)
        return file

    def append(self, name: str, data: bytes | bytearray) -> None:
        """Add *data* to the file *name*, which is open only meanwhile: for writers of more files than may be open."""
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, self._mode)
        with os.fdopen(fd, "ab", buffering=0) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]

    def sync(self, name: str) -> None:
        """Force to the disk what `append` has added to *name*."""
        with _open_to_sync(self.root / name) as file:
            os.fsync(file.fileno())

    def finish(self, name: str) -> None:
        """Flush *name* to the disk and close it, as soon as it is whole: writers of many segments stay small."""
        file = self._files[name]
        file.flush()
        os.fsync(file.fileno())
        file.close()
        del self._files[name]

    def publish(self, last: Iterable[str] = ()) -> None:
        """Move everything into the target; the top-level names in *last* go last, in that order."""
        for name in list(self._files):
            self.finish(name)
        for path in self.root.rglob("*"):
            if path.is_dir():
                sync_directory(path)
        final = list(last)
        names = [name for name in sorted(path.name for path in self.root.iterdir()) if name not in final] + final
        made = not self.target.exists()
        if made:
            self.target.mkdir()
        self._refuse_to_replace(names)
        moved: list[str] = []
        try:
            for name in names:
                _move(self.root / name, self.target / name)
                moved.append(name)
        except OSError:
            for name in moved:
                _move(self.target / name, self.root / name)
            if made:
                self.target.rmdir()
            raise
        self._published = True
        sync_directory(self.target)
        if made:
            sync_directory(self.target.absolute().parent)

    def _refuse_to_replace(self, names: list[str]) -> None:
        for name in names:
            if os.path.lexists(self.target / name):
                msg = f"cannot write {self.target / name}: it is already there; nothing was changed"
                raise Unsafe(msg)

    def close(self) -> None:
        """Drop whatever was not published."""
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._files.clear()
        try:
            shutil.rmtree(self._hidden, ignore_errors=True)
        except BaseException:  # a signal's handler, in the middle of it: once more, so that nothing is left
            shutil.rmtree(self._hidden, ignore_errors=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()
        if isinstance(error, OSError) and error.errno is not None and error.filename is None and not self._published:
            # A write that fails, of a disk that is full, does not say of which file.
            msg = f"{error.strerror}; nothing was written"
            raise OSError(error.errno, msg, str(self.target)) from error


def hidden_beside(path: Path, what: str) -> Path:
    """
    Make a hidden directory from which a rename leads to *path*, and say where: beside it, if need be in it.

    Beside a directory that is there only if that is the same mount, and a place where we may write.
    """
    path = path.resolve()
    place = path.parent
    if path.is_dir() and not (_mount(place) == _mount(path) and os.access(place, os.W_OK | os.X_OK)):
        place = path
    return Path(tempfile.mkdtemp(prefix=f".{path.name}.{what}-", dir=place))


def _mount(path: Path) -> str:
    """Say which mount *path* is in: a rename cannot leave it, also where the device is the same."""
    fd = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        about = Path(f"/proc/self/fdinfo/{fd}").read_text(encoding="ascii")
        return next(line for line in about.splitlines() if line.startswith("mnt_id:"))
    finally:
        os.close(fd)


def set_aside(folder: Path, names: Iterable[str], label: str) -> Path:
    """Move *names* out of *folder* into a new directory inside it, and return that directory."""
    kept = Path(tempfile.mkdtemp(prefix=f".{label}.damaged-", dir=folder))
    for name in names:
        (folder / name).rename(kept / name)
    return kept


def beside(path: Path) -> Path:
    """Return a free name beside *path* for its repaired copy."""
    for number in range(1, 1_000_000):
        candidate = path.with_name(f"{path.name}.repaired" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(candidate):
            return candidate
    msg = f"no free name beside {path} for its repaired copy"
    raise Unsafe(msg)


def _move(source: Path, target: Path) -> None:
    """Rename, but never over something that is already there."""
    if source.is_dir():
        if target.exists():
            raise FileExistsError(str(target))
        source.rename(target)
        return
    # link() fails when the name exists, rename() would replace it.
    os.link(source, target)
    source.unlink()


def _open_to_sync(path: Path) -> BinaryIO:
    return path.open("rb", buffering=0)


def replace(path: Path, data: bytes, unfinished: str) -> None:
    """Put a small file in the place of *path*, on the disk and all at once; it is called *unfinished* before."""
    new = path.with_name(unfinished)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Force the names in a directory to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
