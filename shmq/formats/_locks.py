"""
Who else is at a queue: who holds its lock file, without touching it; holding it, as its program does; and of formats
that have no lock, who has its files open.

Looking goes through /proc/locks, because trying a lock to see whether it is free would refuse it, for that moment, to
the program whose it is. It shows the processes of this PID namespace only: nobody is found, and somebody may be there.
Taking a lock is certain. Who has a file open or mapped is known of processes in sight, whose /proc we may read.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

from shmq.errors import Busy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_MODE = 0o644


def holders(path: Path) -> list[int]:
    """Return the process ids of those who hold a lock of either kind on the file *path*, as far as we can see them."""
    try:
        wanted = path.stat()
        table = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return []
    found = set()
    for line in table.splitlines():
        # 1: FLOCK  ADVISORY  WRITE 1234 08:01:5678 0 EOF; one who waits has "->" in the second place.
        fields = line.split()
        if fields[1] != "->" and fields[5].rpartition(":")[2] == str(wanted.st_ino):
            found.add(int(fields[4]))
    return sorted(pid for pid in found if pid > 0 and _has_open(pid, wanted))


def unused(files: Iterable[Path], what: str, tell: Callable[[str], object] | None) -> None:
    """
    Go on only if nobody in sight has one of *files* open or mapped to write; *tell* hears what cannot be known even so.

    Who only reads is no writer: another follower or import of ours, which keeps what it has open.

    Raises:
        Busy: somebody has.
    """
    wanted = {(found.st_dev, found.st_ino): path for path in files for found in [path.stat()]}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        for identity in _writable_by(pid):
            if identity in wanted:
                msg = f"cannot {what}: process {pid} has {wanted[identity]} open; nothing was changed"
                raise Busy(msg)
    if tell is not None:
        tell(f"to {what}: this format has no lock, and nobody can know who is at it; of those in sight, nobody")


def _writable_by(pid: int) -> Iterator[tuple[int, int]]:
    """Return what a process can write to, as far as we may look, by what stays the same when it is renamed."""
    root = f"/proc/{pid}"
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"{root}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"{root}/fd/{fd}")
                if _is_writable(Path(f"{root}/fdinfo/{fd}")):
                    yield found.st_dev, found.st_ino
    mapped = set()
    with contextlib.suppress(OSError), open(f"{root}/maps", "rb") as maps:
        for line in maps:
            # 7f..-7f.. rw-s 00000000 08:01 5678    /path
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[4] != b"0" and fields[1].startswith(b"rw-s"):
                mapped.add(fields[5].rstrip(b"\n"))
    for path in mapped:
        with contextlib.suppress(OSError, ValueError):
            found = os.stat(os.fsencode(f"{root}/root") + path)
            yield found.st_dev, found.st_ino


def _is_writable(about: Path) -> bool:
    flags = next(line for line in about.read_text(encoding="ascii").splitlines() if line.startswith("flags:"))
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    """Say whether a process has that file open, which a lock table of device numbers does not say for certain."""
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = os.stat(f"/proc/{pid}/fd/{fd}")
                if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
                    return True
    except PermissionError:
        return True  # Somebody else's process: its number is what there is.
    except OSError:
        return False
    return False


@contextlib.contextmanager
def held(paths: Iterable[Path], what: str) -> Iterator[list[Path]]:
    """
    Hold the lock files *paths* by flock; return those that were made for it. *what* is what that is for.

    They are left behind, as by a process that was killed: whoever removes one takes it from under somebody who has just
    opened it. What their programs remove while we wait for nothing is made again.

    Raises:
        Busy: somebody holds one of them.
    """
    with contextlib.ExitStack() as stack:
        made = []
        for path in paths:
            if not path.exists():
                made.append(path)
            stack.callback(_give_back, _take(path, what), os.getpid())
        yield made


def lock_file(path: Path, mode: int) -> io.FileIO:
    """Open a lock's file, made if it is not there; what a signal's handler breaks off is closed with its object."""
    while True:
        try:
            return io.FileIO(path, "r+")
        except FileNotFoundError:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode))


def _take(path: Path, what: str) -> io.FileIO:
    # A file, and made without a step of ours between opening and having it: whoever is interrupted anywhere lets go of
    # the lock with the last that knows of it. A descriptor would be kept until the process ends.
    while True:
        file = lock_file(path, _MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                    return file
        except BaseException as error:
            file.close()
            if not isinstance(error, OSError) or error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise Busy(f"cannot {what}: {_who(path)} {path}; nothing was changed") from error
        file.close()  # Its holder has removed it since we opened it, as the real program does.


def _give_back(file: io.FileIO, pid: int) -> None:
    if pid == os.getpid():
        # A child that was forked meanwhile has it open, too, and the lock is that of all who have.
        fcntl.flock(file, fcntl.LOCK_UN)
    file.close()


def _who(path: Path) -> str:
    pids = holders(path)
    if not pids:
        return "somebody holds"
    return f"process{'es' * (len(pids) > 1)} {', '.join(map(str, pids))} hold{'s' * (len(pids) == 1)}"
