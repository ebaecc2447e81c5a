"""
The files of an archive, and the manifest that says which of them count.

    archive/
        manifest.json                       which files count, and up to where each shard is in them
        <topic>-<shard>-<first>-<stop>.parquet

The manifest is the truth. It is there before anything else, and knows what is to be a file before that is written, so
that what a killed run left is removed, and nothing else ever is: what it does not name is somebody else's. A file is on
the disk before the manifest counts it. What is in the files is nothing of its business.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import time
from typing import IO, TYPE_CHECKING, Self

import shmq
from shmq.spark import disk
from shmq.spark.archive import merging, parquet
from shmq.spark.archive.forms import ARCHIVED, MANIFEST, Snapshot, Stored, Times, another_queue
from shmq.spark.archive.messages import RAW, Layout, Span

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    import pyarrow as pa

_LOCK = "lock"
_UNFINISHED = ".unfinished"
_MANIFEST_UNFINISHED = MANIFEST + _UNFINISHED
VERSION = 2
_VERSIONS = {1, VERSION}
GRACE_NS = 24 * 3600 * 10**9
"""For so long a file stays that others have replaced: a query that was planned with it may run."""


@dataclasses.dataclass(frozen=True)
class File:
    """One Parquet file: the messages of a shard from *first* to before *stop*."""

    name: str
    topic: str
    shard: int
    queue_id: str
    first: int
    stop: int
    rows: int
    nbytes: int
    sha256: str
    earliest_ns: int | None = None
    latest_ns: int | None = None
    """The times of its first and last message by time; None where that was not written down."""

    def may_hold(self, times: Times) -> bool:
        """Whether there may be a message of these times in it."""
        return self.earliest_ns is None or self.latest_ns is None or times.meet(self.earliest_ns, self.latest_ns)


@dataclasses.dataclass(frozen=True)
class Leaving:
    """A file that does not count: one that was replaced *since_ns* (ns since 1970), or, with 0, is being written."""

    name: str
    since_ns: int = 0

    def is_due(self, now_ns: int) -> bool:
        """Whether nobody is to miss it any more."""
        return now_ns - self.since_ns >= GRACE_NS


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is in an archive."""

    files: tuple[File, ...] = ()
    leaving: tuple[Leaving, ...] = ()
    """Files of ours that do not count, and are to go."""

    def of(self, topic: str, shard: int) -> list[File]:
        """A shard's files, in order."""
        return sorted((f for f in self.files if (f.topic, f.shard) == (topic, shard)), key=lambda f: f.first)

    def places(self) -> list[tuple[str, int]]:
        """Of which shards there is something."""
        return sorted({(each.topic, each.shard) for each in self.files})

    def end_of(self, path: str, topic: str, shard: int, queue_id: str) -> int | None:
        """See `Archive.end_of`."""
        files = self.of(topic, shard)
        if any(each.queue_id != queue_id for each in files):
            raise another_queue(path, topic, shard)
        return max((each.stop for each in files), default=None)


class Archive:
    """
    An archive's directory. A context manager: one process at a time writes to it.

    Raises:
        Busy: another process does.
    """

    def __init__(self, path: str) -> None:
        """Nothing is made or opened yet."""
        self.path = os.path.abspath(path)
        self._lock = -1

    def __enter__(self) -> Self:
        """
        Hold it; make the directory if it is not there.

        Raises:
            BadFormat: it is no archive, or its manifest is lost; nothing was changed.
        """
        self.manifest()
        disk.make_folder(self.path)
        fd = os.open(f"{self.path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            raise shmq.Busy(f"cannot write to the archive {self.path}: another process does") from None
        self._lock = fd
        try:
            self._tidy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        os.close(self._lock)
        self._lock = -1

    def manifest(self) -> Manifest:
        """
        What is in it.

        Raises:
            Corrupt: it cannot be read.
            BadFormat: there is none, though there are files.
        """
        try:
            with open(f"{self.path}/{MANIFEST}", encoding="utf-8") as file:
                stored = json.load(file)
            if stored["v"] not in _VERSIONS:
                raise shmq.BadFormat(f"{self.path}/{MANIFEST} is of version {stored['v']!r}, and this is {VERSION}")
            leaving = [{"name": each} for each in stored["replaced"]] if stored["v"] == 1 else stored["leaving"]
            return Manifest(tuple(File(**each) for each in stored["files"]), tuple(Leaving(**each) for each in leaving))
        except FileNotFoundError:
            self._check_empty()
            return Manifest()
        except (ValueError, KeyError, TypeError) as problem:
            raise shmq.Corrupt(f"cannot read {self.path}/{MANIFEST}: {problem}; nothing was changed") from None

    def replace(self, manifest: Manifest) -> None:
        """Put another manifest in its place, on the disk before this returns."""
        content = {
            "v": VERSION,
            "files": [dataclasses.asdict(each) for each in manifest.files],
            "leaving": [dataclasses.asdict(each) for each in manifest.leaving],
        }
        with _unfinished(f"{self.path}/{_MANIFEST_UNFINISHED}") as file:
            file.write(json.dumps(content, indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, f"{self.path}/{MANIFEST}")
        disk.sync_folder(self.path)

    def _check_empty(self) -> None:
        """
        Refuse a folder without a manifest in which there is anything.

        Raises:
            BadFormat: there is.
        """
        there = set(os.listdir(self.path)) if os.path.isdir(self.path) else set()
        if MANIFEST in there:
            return  # made this moment
        there -= {_LOCK, _MANIFEST_UNFINISHED}  # of one that was killed before it had made one
        if any(map(ARCHIVED.fullmatch, there)):
            raise shmq.BadFormat(
                f"{self.path} holds archived messages, and its {MANIFEST} is gone; nothing was changed. Bring it back "
                "from a copy of the folder; or archive to an empty folder, which goes on where this one ends, and read "
                "these files by themselves (spark.read.parquet)"
            )
        if there:
            raise shmq.BadFormat(
                f"{self.path} is not an archive: it has no {MANIFEST}, and there is {min(there)} in it; nothing was "
                "changed. Archive to a folder that is empty, or not there yet"
            )

    def _tidy(self) -> None:
        """Make the first manifest; remove what a killed run left, and what was replaced long ago."""
        manifest = self.manifest()
        kept = {each.name for each in manifest.files}
        now = time.time_ns()
        due = [each for each in manifest.leaving if each.is_due(now)]
        for each in due:
            if each.name not in kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{each.name}")
        if due or not os.path.exists(f"{self.path}/{MANIFEST}"):
            self.replace(
                dataclasses.replace(manifest, leaving=tuple(each for each in manifest.leaving if each not in due))
            )

    # ---- what every form of an archive has
    def check(self) -> None:
        """See `forms.Store`."""
        self.manifest()

    def columns(self) -> list[str] | None:
        """The names of its columns; None while it has none."""
        import pyarrow.parquet as pq  # noqa: PLC0415  # heavy, and only for whoever archives

        files = self.manifest().files
        return list(pq.read_schema(f"{self.path}/{files[-1].name}").names) if files else None

    def end_of(self, topic: str, shard: int, queue_id: str) -> int | None:
        """
        The index behind what is archived of a shard.

        Raises:
            Mismatch: what is archived under that name is of another queue.
        """
        return self.manifest().end_of(self.path, topic, shard, queue_id)

    def sweep(self, queue_id: str) -> None:
        """What killed runs left was removed when it was opened."""

    def write(self, tables: Iterable[pa.Table], span: Span, how: Layout, instead_of: Sequence[File] = ()) -> int:
        """
        One file of what *tables* has, on the disk and in the manifest when this returns: how many rows.

        Args:
            tables: the messages of *span*, as *how* says.
            instead_of: files that it replaces.

        Raises:
            OSError: the disk is full, for one; nothing is left.
            BadFormat: somebody else's file of that name lies there.
        """
        del how  # the tables have it
        name = f"{span.topic}-{span.shard:03d}-{span.first:016d}-{span.stop:016d}.parquet"
        self._announce(name, name + _UNFINISHED)
        with _unfinished(f"{self.path}/{name}{_UNFINISHED}") as sink:
            with parquet.Writer(sink) as writer:
                for table in tables:
                    writer.add(table)
            if not writer.rows:
                return 0
            sink.flush()
            os.fsync(sink.fileno())
            digest, nbytes = _digest(sink.name)
            os.replace(sink.name, f"{self.path}/{name}")
        disk.sync_folder(self.path)
        whole = File(name, *span, writer.rows, nbytes, digest, writer.earliest_ns, writer.latest_ns)
        manifest = self.manifest()
        gone = {each.name for each in instead_of}
        kept = [each for each in manifest.files if each.name not in gone]
        now = time.time_ns()
        leaving = [each for each in manifest.leaving if each.name not in {name, name + _UNFINISHED}]
        leaving += [Leaving(each.name, now) for each in instead_of]
        self.replace(Manifest((*kept, whole), tuple(leaving)))
        return writer.rows

    def compact(self, nbytes: int) -> int:
        """Put neighbouring small files together: how many files went."""
        manifest = self.manifest()
        gone = 0
        for topic, shard in manifest.places():
            files = manifest.of(topic, shard)
            breaks = {at for at in range(1, len(files)) if files[at - 1].stop != files[at].first}
            for first, stop in merging.runs([each.nbytes for each in files], breaks, nbytes):
                run = files[first:stop]
                span = Span(topic, shard, run[0].queue_id, run[0].first, run[-1].stop)
                self.write(parquet.groups(self.paths(run)), span, RAW, instead_of=run)
                gone += len(run) - 1
        return gone

    def verify(self) -> list[str]:
        """What is wrong with its files: missing, or not as they were written."""
        problems = []
        for each in self.manifest().files:
            try:
                digest, _ = _digest(f"{self.path}/{each.name}")
            except FileNotFoundError:
                problems.append(f"{each.name} is missing")
                continue
            if digest != each.sha256:
                problems.append(f"{each.name} is not what was written: its SHA-256 is {digest}")
        return problems

    def shards(self) -> list[Stored]:
        """Of which shards there is something, and of which queue."""
        manifest = self.manifest()
        return [Stored(topic, number, manifest.of(topic, number)[0].queue_id) for topic, number in manifest.places()]

    def rows(self, topic: str, shard: int, behind: int, times: Times, host: str | None = None) -> Iterator[pa.Table]:
        """See `forms.Store`."""
        del host  # all of it is one host's
        files = [each for each in self.manifest().of(topic, shard) if each.stop > behind + 1 and each.may_hold(times)]
        yield from parquet.groups(self.paths(files))

    def snapshot(self) -> Snapshot:
        """What is in it now, for whoever plans with it."""
        manifest = self.manifest()

        def names(times: Times, hosts: Collection[str] | None) -> list[str]:
            del hosts
            return self.paths([each for each in manifest.files if each.may_hold(times)])

        def end(topic: str, shard: int, queue_id: str) -> int | None:
            return manifest.end_of(self.path, topic, shard, queue_id)

        return Snapshot(self.path, self.columns() or [], names, end)

    def _announce(self, *names: str) -> None:
        """From now on these are ours, to be removed unless they come to count."""
        manifest = self.manifest()
        known = {each.name for each in manifest.leaving}
        for name in names:
            if name not in known and os.path.lexists(f"{self.path}/{name}"):
                raise shmq.BadFormat(
                    f"cannot write {self.path}/{name}: a file of that name lies there, and this archive did not write "
                    "it; nothing was changed. Move it away"
                )
        new = tuple(Leaving(name) for name in names if name not in known)
        self.replace(dataclasses.replace(manifest, leaving=(*manifest.leaving, *new)))

    def paths(self, files: list[File]) -> list[str]:
        """Where they lie."""
        return [f"{self.path}/{each.name}" for each in files]


@contextlib.contextmanager
def _unfinished(path: str) -> Iterator[IO[bytes]]:
    """A file to be written, and then given its name; gone afterwards where it was not."""
    try:
        with open(path, "wb") as file:
            yield file
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _digest(path: str) -> tuple[str, int]:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size
