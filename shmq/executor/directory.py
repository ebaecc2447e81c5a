"""
The directory of an Executor: what is in it is run as code, so it must be the user's own, and nobody else's to write.

    jobs/
      executor.json       version, and how long outcomes are kept; written last: with it, the directory is whole
      tasks, tasks-high, tasks-low, kept, results, deaths, cancels, dead      queues
      page                stamps that say whether there is news
      workers/            a file for each worker that lives
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import shmq
from shmq import errors
from shmq.executor import names
from shmq.executor.page import Page

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = 1
WEEK = 7 * 86400.0
_RESULTS_BYTES = 64 << 20
"""Of results that no submitter waits for, so many bytes are kept."""
_WINDOW = 1024
"""Tasks that may be with workers at a time; each look for what comes back goes over so many words."""
_DEATHS_AGE, _LETTERS_AGE = 30 * 86400.0, 90 * 86400.0
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class Directory:
    """One Executor's directory, open. Its queues open when they are first asked for."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        create: bool = True,
        keep: float | None = None,
        durability: Any = None,
        lease: float | None = None,
    ) -> None:
        """
        Open it; make it if there is none.

        Raises:
            Unsafe: somebody else owns it, or could write into it, or has; nothing was read.
            BadFormat: it is something else, or of a newer version; nothing was changed.
            NotFound: there is none, and it was not to be made.
            Mismatch: it was made with another *keep*, *durability* or *lease*.
            ValueError: it is the name of a volatile queue.
        """
        if str(os.fspath(path)).startswith("shm:"):
            raise ValueError(f"path={path!r}: the path of a directory is wanted; there are no volatile Executors")
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self._queues: dict[str, shmq.Queue[Any]] = {}
        self._lock = threading.RLock()
        self._durability = durability
        self._lease = lease
        made = self._make_path(create=create)
        try:
            self._fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except NotADirectoryError:
            raise self._no_directory() from None
        try:
            self._check()
            if not os.path.exists(os.path.join(self.path, names.DESCRIPTION)):
                self._check_empty()
            with self.exclusively():
                self.keep = self._described(create=create or made, keep=keep)
            self.page = Page(fd := self._file(names.PAGE))
            os.close(fd)
        except BaseException:
            self.close()
            raise

    # ---- whose it is
    def _no_directory(self) -> errors.ShmqError:
        what = f"cannot open the executor's directory {self.path}: it is "
        if os.path.islink(self.path):
            return errors.Unsafe(f"{what}a link, which somebody may turn to another one; name what it leads to")
        return errors.BadFormat(f"{what}not a directory")

    def _make_path(self, *, create: bool) -> bool:
        self._check_parents()
        try:
            os.lstat(self.path)
        except FileNotFoundError:
            if not create:
                raise errors.NotFound(f"there is no executor's directory {self.path}") from None
            try:
                os.mkdir(self.path, 0o700)
            except FileExistsError:  # somebody else, meanwhile: it is looked at as any other
                return False
            except FileNotFoundError:
                raise errors.NotFound(
                    f"cannot make the executor's directory {self.path}: the directory above it does not exist"
                ) from None
            return True
        return False

    def _check_parents(self) -> None:
        """Whoever could rename a directory on the way could put another one in its place."""
        above = os.path.dirname(os.path.realpath(os.path.dirname(self.path) or "/") + "/x")
        while True:
            with contextlib.suppress(FileNotFoundError):  # said when it is made
                found = os.stat(above)
                if found.st_uid not in (0, os.geteuid()):
                    self._refuse(f"{above}, above it, belongs to user {found.st_uid}")
                if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
                    self._refuse(f"{above}, above it, may be written by others (mode {found.st_mode & 0o7777:o})")
            if above == "/":
                return
            above = os.path.dirname(above)

    def _check(self) -> None:
        self._check_one(os.fstat(self._fd), self.path)
        self._check_all(self._fd, self.path)
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(names.WORKERS, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._fd)
            try:
                self._check_all(fd, self.workers)
            finally:
                os.close(fd)

    def _check_all(self, fd: int, path: str) -> None:
        """What lies in a directory; what is in the queues' own, they look at themselves."""
        for name in os.listdir(fd):
            with contextlib.suppress(FileNotFoundError):  # a worker has left
                self._check_one(os.stat(name, dir_fd=fd, follow_symlinks=False), f"{path}/{name}")

    def _check_one(self, found: os.stat_result, what: str) -> None:
        if stat.S_ISLNK(found.st_mode):
            self._refuse(f"{what} is a link")
        if found.st_uid != os.geteuid():
            self._refuse(f"{what} belongs to user {found.st_uid}, and this is user {os.geteuid()}")
        if found.st_mode & 0o077:
            how = "700" if stat.S_ISDIR(found.st_mode) else "600"
            self._refuse(
                f"{what} is open to others (mode {found.st_mode & 0o7777:o}); if nobody else has written there: "
                f"chmod {how} {what}"
            )

    def _refuse(self, why: str) -> NoReturn:
        raise errors.Unsafe(f"cannot open the executor's directory {self.path}, whose tasks are run: {why}")

    # ---- what it is
    def _described(self, *, create: bool, keep: float | None) -> float:
        try:
            with open(os.path.join(self.path, names.DESCRIPTION), encoding="utf-8") as file:
                stored = json.load(file)
            version, kept, lease = stored["version"], float(stored["keep"]), stored["lease"]
        except FileNotFoundError:
            return self._make(create=create, keep=WEEK if keep is None else keep)
        except (ValueError, KeyError, TypeError) as problem:
            raise errors.BadFormat(f"{self.path}/{names.DESCRIPTION} is damaged: {problem}") from problem
        if version > VERSION:
            raise errors.BadFormat(
                f"{self.path} is an executor's directory of version {version}; this library knows {VERSION}"
            )
        if keep is not None and keep != kept:
            raise errors.Mismatch(f"cannot open {self.path} with keep={keep!r}: it was made with keep={kept!r}")
        if self._lease is not None and self._lease != lease:
            raise errors.Mismatch(
                f"cannot open {self.path} with lease={self._lease!r}: it was made with lease={lease!r}"
            )
        return kept

    def _check_empty(self) -> None:
        """Nothing is made in a directory that is something else; what somebody left who was killed in here is ours."""
        known = {names.WORKERS, names.PAGE, *names.QUEUES}
        strange = sorted(set(os.listdir(self._fd)) - known - {f"{names.DESCRIPTION}.new"})
        if strange:
            raise errors.BadFormat(
                f"{self.path} is not an executor's directory, nor empty ({strange[0]!r} is there); nothing was changed"
            )

    def _make(self, *, create: bool, keep: float) -> float:
        if not create:
            raise errors.NotFound(f"{self.path} is not an executor's directory: it has no {names.DESCRIPTION}")
        if not keep > 0:
            raise ValueError(f"keep={keep!r}: seconds for which outcomes are kept, more than 0")
        self.keep = keep
        for name in names.QUEUES:
            self.queue(name)
        for name in (names.RESULTS, names.KEPT, names.DEATHS, names.CANCELS):
            if not self.queue(name).next_index:  # so each has room for something, however full the disk is later
                self.queue(name).put(b"")
        for name in names.TASKS.values():
            self._make_tasks(self.queue(name))
        with contextlib.suppress(FileExistsError):
            os.mkdir(names.WORKERS, 0o700, dir_fd=self._fd)
        new = f"{names.DESCRIPTION}.new"
        fd = self._file(new, os.O_TRUNC)
        with open(fd, "w", encoding="utf-8") as file:
            json.dump({"version": VERSION, "keep": keep, "lease": self._lease}, file)
            file.flush()
            os.fsync(fd)
        os.rename(new, names.DESCRIPTION, src_dir_fd=self._fd, dst_dir_fd=self._fd)
        os.fsync(self._fd)
        return keep

    def _make_tasks(self, queue: shmq.Queue[Any]) -> None:
        """A queue with its group, and with a chunk: to look into one without takes a listing of its directory."""
        with queue.consumer(names.GROUP, group=True, ack="explicit", lease=self._lease, window=_WINDOW) as group:
            if not queue.next_index:
                queue.put(b"")
            with contextlib.suppress(errors.Empty):
                while True:
                    group.get(timeout=0).ack()

    # ---- what is in it
    def _file(self, name: str, flags: int = 0) -> int:
        try:
            return os.open(name, _FLAGS | flags, 0o600, dir_fd=self._fd)
        except FileNotFoundError:
            raise errors.NotFound(
                f"cannot use the executor's directory {self.path}: it was removed while it was open; what was not done "
                "in it is gone"
            ) from None

    def queue(self, name: str) -> shmq.Queue[Any]:
        """One of its queues, by its name."""
        with self._lock:
            found = self._queues.get(name)
            if found is None:
                more = {} if self._durability is None else {"durability": self._durability}
                found = shmq.open(os.path.join(self.path, name), retention=self._retention(name), **more)
                self._queues[name] = found
            return found

    def _retention(self, name: str) -> shmq.Retention:
        if name == names.KEPT:
            return shmq.Retention.age(self.keep)
        if name == names.RESULTS:
            return shmq.Retention.bytes(_RESULTS_BYTES)
        if name == names.DEATHS:
            return shmq.Retention.age(_DEATHS_AGE)
        if name == names.DEAD:
            return shmq.Retention.age(_LETTERS_AGE)
        return shmq.Retention.forever() if name == names.CANCELS else shmq.Retention.acked()

    @property
    def workers(self) -> str:
        """Where the files of the workers are."""
        return os.path.join(self.path, names.WORKERS)

    @contextlib.contextmanager
    def exclusively(self) -> Iterator[None]:
        """Nobody else is in such a block, in any process. The kernel lets go of it when its holder dies."""
        with open(self._file(names.PAGE), "rb", buffering=0) as file:  # which, dropped by whatever is raised, is closed
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def close(self) -> None:
        """Close its queues."""
        with self._lock:
            queues, self._queues = self._queues, {}
            for each in queues.values():
                each.close()
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
