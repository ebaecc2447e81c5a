"""
The directory of one run. What is in it is given to functions, so it is the user's own, and nobody else's to write.

    flow/
      flow.json             what it was begun with; linked before the first queue is made
      run.lock              held by whoever runs it
      0.parse, 1.enrich     the queues that items wait in, one for each stage
      0.parse.dead          what a stage has given up
      0.tries, hands/       how often items were tried; what each worker does just now
      out                   what comes out of the last stage, where there is no sink
      summary.json          what it came to; written last: with it, the run is over
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import stat
import threading
import time
from typing import TYPE_CHECKING, Any

import shmq
from shmq.flow import tries
from shmq.flow.plan import WINDOW, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = 1
_TOLD, _LOCK, _SUMMARY = "flow.json", "run.lock", "summary.json"
OUT = "out"
GROUP = "stage"
_LEAVE_WITHIN = 20.0
"""Seconds that workers of a run that was killed are given to leave."""
_running: set[str] = set()
_running_lock = threading.Lock()


class Place:
    """The directory of one run, and how its queues are opened. It pickles: workers have it, too."""

    def __init__(
        self, path: str | os.PathLike[str], codec: Any, durability: shmq.Durability = shmq.Durability.PROCESS
    ) -> None:
        """Nothing is made yet."""
        if str(os.fspath(path)).startswith("shm:"):
            raise ValueError(f"path={path!r}: the path of a directory is wanted; there are no volatile flows")
        self.path = os.path.abspath(os.path.expanduser(os.fspath(path)))
        self.codec = codec
        self.durability = durability

    # ---- whose it is
    def make(self) -> None:
        """
        Make the directory, if it is missing.

        Raises:
            Unsafe: it is somebody else's, or others may read or write it, or take it away.
            NotFound: the directory above it is missing.
        """
        above = os.path.dirname(self.path)
        try:
            found = os.stat(above)
        except FileNotFoundError:
            raise shmq.NotFound(f"cannot make the flow {self.path}: the directory above it does not exist") from None
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            raise shmq.Unsafe(f"cannot run the flow {self.path}: everybody may write into {above}, and replace it")
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path, 0o700)
        found = os.lstat(self.path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
            raise shmq.Unsafe(
                f"cannot run the flow {self.path}: it must be a directory of your own with mode 0700, for what is in "
                "it is unpickled; nothing was read"
            )

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """
        As the only one that runs it.

        Raises:
            Busy: somebody else does.
        """
        with _running_lock:
            if self.path in _running:
                raise shmq.Busy(f"the flow {self.path} is being run, by this process")
            _running.add(self.path)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(os.path.join(self.path, _LOCK), flags, 0o600)
            try:
                try:
                    fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # no child has it, so it ends with this process
                except (BlockingIOError, PermissionError):
                    raise shmq.Busy(f"the flow {self.path} is being run, by another process") from None
                yield
            finally:
                os.close(fd)
        finally:
            with _running_lock:
                _running.discard(self.path)

    # ---- what is known of it
    def begin(self, stages: Sequence[Stage]) -> None:
        """
        Note what it consists of, or hold that against what is noted.

        Raises:
            Mismatch: it was begun with other stages, say; fresh=True begins anew.
            BadFormat: something else is there, or what a newer shmq has made.
        """
        codec = self.codec if isinstance(self.codec, str) else getattr(self.codec, "name", repr(self.codec))
        mine = {
            "version": VERSION,
            "codec": codec,
            "durability": repr(self.durability),
            "stages": [{"name": each.name, "ordered": each.ordered, "batches": bool(each.batch)} for each in stages],
        }
        told = self._read(_TOLD)
        if told is None:
            self.check_is_flow()
            self._write(_TOLD, {**mine, "id": os.urandom(8).hex()})
            return
        if told.get("version") != VERSION:
            raise shmq.BadFormat(f"cannot run the flow {self.path}: it is of version {told.get('version')!r}")
        told = {"durability": repr(shmq.Durability.PROCESS), **told}  # before one could choose
        for name in ("codec", "durability", "stages"):
            if told.get(name) != mine[name]:
                raise shmq.Mismatch(
                    f"cannot go on with the flow {self.path} with {name} {mine[name]}: it was begun with "
                    f"{told.get(name)}; take another directory, or begin anew with run(source, fresh=True)"
                )

    def check_is_flow(self) -> None:
        """
        Refuse a directory in which something else is.

        Raises:
            BadFormat: so it is.
        """
        strange = [name for name in os.listdir(self.path) if name != _LOCK and not name.startswith(".")]
        if strange and _TOLD not in strange:
            raise shmq.BadFormat(
                f"cannot run a flow in {self.path}: there is something else, {min(strange)!r} among it"
            )

    def summary(self) -> dict[str, Any] | None:
        """What it came to; None as long as it is not over."""
        return self._read(_SUMMARY)

    def end(self, summary: dict[str, Any]) -> None:
        """Note that it is over."""
        self._write(_SUMMARY, summary)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                found = json.loads(file.read())
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise shmq.BadFormat(f"cannot run the flow {self.path}: its {name} cannot be read")
        return found

    def _write(self, name: str, content: dict[str, Any]) -> None:
        """Whole or not at all."""
        other = os.path.join(self.path, f".{name}.new")
        fd = os.open(other, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            data = json.dumps(content).encode()
            if os.write(fd, data) != len(data):
                raise shmq.DiskFull(f"cannot write {other}: the disk is full")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(other, os.path.join(self.path, name))
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def source_name(self) -> str:
        """The name by which a queue is read that is the source of this run."""
        told = self._read(_TOLD) or {}
        return f"flow-{told.get('id')}"

    def clear(self, source: shmq.Queue[Any] | None) -> None:
        """
        Take away what a run has left, and the run's own files last.

        Raises:
            Busy: workers of a run that was killed are still at it.
        """
        if source is not None:
            with contextlib.suppress(shmq.NotFound):
                source.drop_consumer(self.source_name())
        until = time.monotonic() + _LEAVE_WITHIN
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, _SUMMARY))  # first: what is half deleted is not over
        shutil.rmtree(os.path.join(self.path, tries.HANDS), ignore_errors=True)
        for name in sorted(os.listdir(self.path)):
            place = os.path.join(self.path, name)
            if os.path.isdir(place):
                _delete(place, until)
            elif name not in {_TOLD, _LOCK}:
                os.unlink(place)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, _TOLD))

    def remove(self) -> None:
        """Take away the directory, which was cleared."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, _LOCK))
        os.rmdir(self.path)

    # ---- its queues
    def queue(self, number: int, stage: Stage, *, create: bool = False) -> shmq.Queue[Any]:
        """The queue that items wait in for that stage."""
        name = f"{number}.{stage.name}"
        if not create:
            return self._open(name, create=False)
        queue = self._open(name, create=True)
        if queue.options.max_messages != stage.bound:
            queue.configure(max_messages=stage.bound)
        return queue

    def out(self, *, create: bool = False) -> shmq.Queue[Any]:
        """The queue that the outputs of the last stage go into."""
        return self._open(OUT, create=create)

    def _open(self, name: str, *, create: bool) -> shmq.Queue[Any]:
        return shmq.open(
            os.path.join(self.path, name),
            create=create,
            codec=self.codec,
            durability=self.durability,
            trusted=True,  # the directory is our own, and checked
        )

    def consumer(self, number: int, stage: Stage, queue: shmq.Queue[Any]) -> shmq.GroupConsumer[Any]:
        """A worker's way to take for that stage."""
        return queue.consumer(
            GROUP,
            group=True,
            ack="explicit",
            dead_letter=f"{number}.{stage.name}.dead",
            window=WINDOW,
        )

    def letters(self, number: int, stage: Stage) -> int:
        """How many items the stage has given up."""
        try:
            with shmq.open(
                os.path.join(self.path, f"{number}.{stage.name}.dead"), create=False, read_only=True, trusted=True
            ) as dead:
                return len(dead)
        except shmq.NotFound:
            return 0


def _delete(place: str, until: float) -> None:
    """A queue, once nobody has it open."""
    while True:
        try:
            shmq.delete(place)
        except shmq.Busy:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
        except shmq.NotFound:
            break
        else:
            break
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(place)
