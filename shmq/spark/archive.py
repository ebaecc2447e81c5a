"""
Messages into Parquet, before a queue may forget them; and back.

    archive/
        manifest.json                       which files count, and up to where each shard is in them
        <topic>-<shard>-<first>-<stop>.parquet

The manifest is the truth. It is there before anything else, and knows what is to be a file before that is written, so
that what a killed run left is removed, and nothing else ever is: what it does not name is somebody else's. A file is on
the disk before the manifest counts it, and the manifest is on the disk before the consumer name `archive` moves on,
which is what lets the queue retire chunks. So each message is in the queue, or in the archive, at every moment.

No Spark is needed for this: one processor does millions of rows a second.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import json
import os
import re
import time
from typing import IO, TYPE_CHECKING, Any, Self

import shmq
from shmq.spark import places

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

CONSUMER = "archive"
MANIFEST = "manifest.json"
_LOCK = "lock"
_UNFINISHED = ".unfinished"
_MANIFEST_UNFINISHED = MANIFEST + _UNFINISHED
_FILE = re.compile(r".+-\d{3}-\d{16}-\d{16}\.parquet")
VERSION = 1
FILE_BYTES = 256 << 20
_BATCH_ROWS = 100_000
_GROUP_ROWS, _GROUP_BYTES = 1_000_000, 64 << 20


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


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What is in an archive."""

    files: tuple[File, ...] = ()
    replaced: tuple[str, ...] = ()
    """
    Files of ours to go with the next run: those that compaction put together (who reads them now may finish), and what
    is being written, until it counts.
    """

    def of(self, topic: str, shard: int) -> list[File]:
        """A shard's files, in order."""
        return sorted((f for f in self.files if (f.topic, f.shard) == (topic, shard)), key=lambda f: f.first)

    def end(self, topic: str, shard: int) -> int | None:
        """The index behind what is archived of a shard."""
        return max((f.stop for f in self.of(topic, shard)), default=None)


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
        os.makedirs(self.path, exist_ok=True)
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
            if stored["v"] != VERSION:
                raise shmq.BadFormat(f"{self.path}/{MANIFEST} is of version {stored['v']!r}, and this is {VERSION}")
            return Manifest(tuple(File(**each) for each in stored["files"]), tuple(stored["replaced"]))
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
            "replaced": list(manifest.replaced),
        }
        with _unfinished(f"{self.path}/{_MANIFEST_UNFINISHED}") as file:
            file.write(json.dumps(content, indent=1).encode())
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, f"{self.path}/{MANIFEST}")
        self.sync()

    def sync(self) -> None:
        """The names in it are on the disk."""
        fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

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
        if any(map(_FILE.fullmatch, there)):
            raise shmq.BadFormat(
                f"{self.path} holds archived messages, and its {MANIFEST} is gone; nothing was changed. Bring it back "
                "from a copy of the folder; or archive to an empty folder, which goes on where this one ends, and read "
                "these files by themselves (spark.read.parquet)"
            )
        if there:
            raise shmq.BadFormat(
                f"{self.path} is no archive: it has no {MANIFEST}, and there is {min(there)} in it; nothing was "
                "changed. Archive to a folder that is empty, or not there yet"
            )

    def _tidy(self) -> None:
        """Make the first manifest; remove what a killed run left, and what compaction replaced before."""
        manifest = self.manifest()
        kept = {each.name for each in manifest.files}
        for name in manifest.replaced:
            if name not in kept:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(f"{self.path}/{name}")
        if manifest.replaced or not os.path.exists(f"{self.path}/{MANIFEST}"):
            self.replace(dataclasses.replace(manifest, replaced=()))

    # ---- files
    def write(
        self,
        tables: Iterator[pa.Table],
        *,
        topic: str,
        shard: int,
        queue_id: str,
        first: int,
        stop: int,
        instead_of: Sequence[File] = (),
    ) -> File | None:
        """
        One file of what *tables* has, on the disk and in the manifest when this returns; None if that is nothing.

        Args:
            tables: messages from *first* to before *stop*.
            topic, shard, queue_id: of that queue.
            first, stop: where it begins and ends; padding included.
            instead_of: files that it replaces.

        Raises:
            OSError: the disk is full, for one; nothing is left.
            BadFormat: somebody else's file of that name lies there.
        """
        name = f"{topic}-{shard:03d}-{first:016d}-{stop:016d}.parquet"
        self._announce(name, name + _UNFINISHED)
        with _unfinished(f"{self.path}/{name}{_UNFINISHED}") as sink:
            rows = _write_parquet(tables, sink)
            if not rows:
                return None
            sink.flush()
            os.fsync(sink.fileno())
            digest, nbytes = _digest(sink.name)
            os.replace(sink.name, f"{self.path}/{name}")
        self.sync()
        whole = File(name, topic, shard, queue_id, first, stop, rows, nbytes, digest)
        manifest = self.manifest()
        gone = {each.name for each in instead_of}
        kept = [each for each in manifest.files if each.name not in gone]
        replaced = {*manifest.replaced, *gone} - {name, name + _UNFINISHED}
        self.replace(Manifest((*kept, whole), tuple(sorted(replaced))))
        return whole

    def _announce(self, *names: str) -> None:
        """From now on these are ours, to be removed unless they come to count."""
        manifest = self.manifest()
        for name in names:
            if name not in manifest.replaced and os.path.lexists(f"{self.path}/{name}"):
                raise shmq.BadFormat(
                    f"cannot write {self.path}/{name}: a file of that name lies there, and this archive did not write "
                    "it; nothing was changed. Move it away"
                )
        self.replace(dataclasses.replace(manifest, replaced=tuple({*manifest.replaced, *names})))

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


def _write_parquet(tables: Iterator[pa.Table], sink: IO[bytes]) -> int:
    """All of them, if there is anything: how many rows."""
    import pyarrow.parquet as pq  # noqa: PLC0415  # heavy, and only for who archives

    rows = 0
    with contextlib.ExitStack() as stack:
        writer: Any = None
        for table in _gathered(tables):
            if writer is None:
                writer = stack.enter_context(
                    pq.ParquetWriter(
                        sink,
                        table.schema,
                        compression="zstd",
                        compression_level=1,
                        use_dictionary=["key", "topic", "partition"],
                        column_encoding={"offset": "DELTA_BINARY_PACKED"},
                        store_schema=False,
                    )
                )
            writer.write_table(table, row_group_size=table.num_rows)
            rows += table.num_rows
    return rows


def verify(path: str) -> list[str]:
    """What is wrong with an archive's files: missing, or not as they were written."""
    there = Archive(path)
    problems = []
    for each in there.manifest().files:
        try:
            digest, _ = _digest(f"{there.path}/{each.name}")
        except FileNotFoundError:
            problems.append(f"{each.name} is missing")
            continue
        if digest != each.sha256:
            problems.append(f"{each.name} is not what was written: its SHA-256 is {digest}")
    return problems


def _gathered(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows in tables that are worth a row group each."""
    import pyarrow as pa  # noqa: PLC0415

    some: list[Any] = []
    rows = nbytes = 0
    for table in tables:
        some.append(table)
        rows, nbytes = rows + table.num_rows, nbytes + table.nbytes
        if rows >= _GROUP_ROWS or nbytes >= _GROUP_BYTES:
            yield pa.concat_tables(some)
            some, rows, nbytes = [], 0, 0
    if some:
        yield pa.concat_tables(some)


def _digest(path: str) -> tuple[str, int]:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest(), os.fstat(file.fileno()).st_size


# ---------------------------------------------------------------- out of the queue
def hold(queue: str) -> None:
    """Have *queue* keep everything from now on until it is archived, whatever its retention says."""
    for shard in places.shards_of(queue):
        with (
            shmq.open(shard.path, create=False, trusted=True) as opened,
            contextlib.suppress(shmq.Busy),  # somebody archives now, and so holds it
        ):
            opened.consumer(CONSUMER, ack="explicit", hold=True).close()


def archive(
    queue: str,
    to: str,
    *,
    older_than: float | None = None,
    behind: str | None = None,
    file_bytes: int = FILE_BYTES,
    progress: Callable[[int], None] | None = None,
) -> int:
    """
    Bring what is new in *queue* into the archive *to*; return how many messages.

    Args:
        queue: a queue's directory, or one with its shards.
        older_than: only what was put so many seconds ago, or longer.
        behind: only what the consumer of that name has finished.
        file_bytes: about how many bytes of messages go into one file.
        progress: told how many messages are done.

    Raises:
        Busy: another process archives to the same place, or holds the name `archive`.
        BadFormat: there are files at *to*, and no archive, or one that has lost its manifest; nothing was changed.
        Gone: messages went that were not archived yet. Retention waits for the name `archive`; so somebody dropped or
            moved it, or purged, or the queue is bounded with full="drop_oldest".
    """
    done = 0
    with Archive(to) as there:
        for shard in places.shards_of(queue):
            with shmq.open(shard.path, create=False, trusted=True) as opened:
                for count in _shard(there, shard, opened, older_than, behind, file_bytes):
                    done += count
                    if progress is not None:
                        progress(done)
    return done


def _shard(
    there: Archive, shard: places.Shard, queue: shmq.Queue, older_than: float | None, behind: str | None, nbytes: int
) -> Iterator[int]:
    before = there.manifest().of(shard.topic, shard.number)
    if any(each.queue_id != queue.id for each in before):
        raise shmq.Mismatch(
            f"{there.path} holds messages of another queue that lay at {shard.path} before; nothing was archived. "
            "Archive to another place"
        )
    start = before[-1].stop if before else None
    begin = queue.first_index if start is None else start
    with queue.consumer(CONSUMER, ack="explicit", start=begin, hold=True) as consumer:
        if start is None:
            start = consumer.head
        if consumer.head < start:
            consumer.seek(start)  # killed between the manifest and this
        if start < queue.first_index and before:
            raise shmq.Gone(
                f"messages {start} to {queue.first_index - 1} of {shard.path} were retired before they came into "
                f"{there.path}; nothing was archived. The name {CONSUMER!r}, which makes retention wait, was dropped "
                "or moved, the queue was purged, or it is bounded with full='drop_oldest'",
                queue.first_index,
            )
        stop = _until(queue, older_than, behind)
        while start < stop:
            upto = _file_end(queue, start, stop, nbytes)
            file = there.write(
                _tables(queue, shard, start, upto),
                topic=shard.topic,
                shard=shard.number,
                queue_id=queue.id,
                first=start,
                stop=upto,
            )
            if file is not None:
                consumer.seek(upto)
                yield file.rows
            start = upto


def _until(queue: shmq.Queue, older_than: float | None, behind: str | None) -> int:
    stop = queue.committed_index
    if older_than is not None:
        stop = min(stop, queue.at_ns(time.time_ns() - int(older_than * 1e9)))
    if behind is not None:
        known = queue.consumers().get(behind)
        stop = min(stop, 0 if known is None else known.head)
    return stop


def _file_end(queue: shmq.Queue, start: int, stop: int, nbytes: int) -> int:
    """Where a file that begins at *start* ends."""
    size, end = 0, start
    for extent in queue.extents(start, stop):
        if size and size + extent.nbytes > nbytes:
            return end
        size, end = size + extent.nbytes, extent.stop
    return stop


def _tables(queue: shmq.Queue, shard: places.Shard, start: int, stop: int) -> Iterator[pa.Table]:
    """The messages as Spark and everybody else will read them."""
    import pyarrow as pa  # noqa: PLC0415

    from shmq.spark import columns  # noqa: PLC0415

    wanted = frozenset({"value", "key", "time", "kind", "headers"})
    for batch in columns.read(queue, start, stop, wanted, _BATCH_ROWS):
        yield pa.table(
            {
                "offset": batch.index,
                "timestamp": batch.time.cast(pa.timestamp("us", "UTC"), safe=False),
                "timestamp_ns": batch.time.view(pa.int64()),
                "partition": pa.repeat(pa.scalar(shard.number, pa.int32()), batch.rows),
                "topic": pa.repeat(pa.scalar(shard.topic, pa.string()), batch.rows),
                "type": batch.kind,
                "key": batch.key,
                "value": batch.value,
                "headers": batch.headers,
            }
        )


# ---------------------------------------------------------------- fewer, larger files
def compact(to: str, *, file_bytes: int = FILE_BYTES) -> int:
    """
    Put neighbouring small files together, up to about *file_bytes* each; return how many files went.

    Readers are not disturbed: the old files stay until the next run.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415

    gone = 0
    with Archive(to) as there:
        for run in _small_runs(there.manifest(), file_bytes):
            first, last = run[0], run[-1]

            def tables(files: list[File] = run) -> Iterator[Any]:
                for each in files:
                    with pq.ParquetFile(f"{there.path}/{each.name}") as opened:
                        for group in range(opened.num_row_groups):
                            yield opened.read_row_group(group)

            there.write(
                tables(),
                topic=first.topic,
                shard=first.shard,
                queue_id=first.queue_id,
                first=first.first,
                stop=last.stop,
                instead_of=run,
            )
            gone += len(run) - 1
    return gone


def _small_runs(manifest: Manifest, nbytes: int) -> list[list[File]]:
    """Runs of neighbours that fit into one file together."""
    runs = []
    for topic, shard in sorted({(each.topic, each.shard) for each in manifest.files}):
        run: list[File] = []
        for each in manifest.of(topic, shard):
            if run and (sum(f.nbytes for f in run) + each.nbytes > nbytes or run[-1].stop != each.first):
                runs.append(run)
                run = []
            run.append(each)
        runs.append(run)
    return [run for run in runs if len(run) > 1]


# ---------------------------------------------------------------- back into a queue
def replay(
    source: str,
    queue: str,
    *,
    since: int | None = None,
    until: int | None = None,
    shard: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> int:
    """
    Put what is archived into *queue* again, in order, with its keys, times, types and headers; return how many.

    Where a message was is in its header `source`: {"topic", "partition", "index"}. A replay that was killed goes on
    where it was when it is called again: what is in the queue already is not put twice.

    Args:
        source: the archive.
        queue: a queue's directory; made if it is not there.
        since, until: only messages of this time in ns or later, and before that one.
        shard: only of this shard.
        progress: told how many messages are done.
    """
    there = Archive(source)
    done = 0
    with shmq.open(queue) as opened:
        for each in sorted(there.manifest().files, key=lambda file: (file.topic, file.shard, file.first)):
            if shard is None or each.shard == shard:
                for count in _replay_file(there, each, opened, since, until):
                    done += count
                    if progress is not None:
                        progress(done)
    return done


def _replay_file(there: Archive, file: File, queue: shmq.Queue, since: int | None, until: int | None) -> Iterator[int]:
    import pyarrow.compute as pc  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    who = f"replay {file.queue_id} {file.topic}/{file.shard} {since}-{until}"
    with pq.ParquetFile(f"{there.path}/{file.name}") as opened:
        for group in range(opened.num_row_groups):
            table = opened.read_row_group(group)
            sequence = table["offset"][-1].as_py()  # ascends over all files of a shard
            before = queue.adopted(who)
            if before is not None:  # compaction may have put what is there, and what is not, into one group
                table = table.filter(pc.greater(table["offset"], before[0]))
            if since is not None:
                table = table.filter(pc.greater_equal(table["timestamp_ns"], since))
            if until is not None:
                table = table.filter(pc.less(table["timestamp_ns"], until))
            if not table.num_rows:
                continue
            with queue.stage() as staged:
                for batch in table.to_batches(max_chunksize=4096):
                    _put(staged, batch)
                queue.adopt(staged, dedup=(who, sequence))
            yield table.num_rows


def _put(staged: shmq.Staged, batch: pa.RecordBatch) -> None:
    headers = [
        {
            **{each["key"]: each["value"] for each in kept or ()},
            "source": {"topic": topic, "partition": partition, "index": index},
        }
        for kept, topic, partition, index in zip(
            batch["headers"].to_pylist(),
            batch["topic"].to_pylist(),
            batch["partition"].to_pylist(),
            batch["offset"].to_pylist(),
            strict=True,
        )
    ]
    values = batch["value"].to_pylist()
    at = 0
    while at < len(values):  # a claim must fit into a chunk
        stop, nbytes = at, 0
        while stop < len(values) and (stop == at or nbytes < 8 << 20):
            nbytes += len(values[stop])
            stop += 1
        staged.put_many(
            values[at:stop],
            keys=batch["key"].to_pylist()[at:stop],
            types=batch["type"].to_pylist()[at:stop],
            times_ns=batch["timestamp_ns"].to_pylist()[at:stop],
            headers=headers[at:stop],
        )
        at = stop


# ---------------------------------------------------------------- both at once, as a table
def history(spark: Any, archive_path: str | Sequence[str], queue: str | None = None, **options: Any) -> Any:
    """
    Everything there ever was, as one DataFrame: the archive, natively, and behind it the live queue.

    Args:
        spark: the session.
        archive_path: the archive; or several, of hosts that each archive their own shards to storage that all can see.
        queue: a queue's directory, or one with its shards; None for what is archived alone.
        options: further options of the source, for the live part.

    Raises:
        Gone: messages between the archive and the live queue are in neither.
        NotFound: there is nothing in the archive, and no queue was named.
    """
    archives = [Archive(path) for path in ([archive_path] if isinstance(archive_path, str) else archive_path)]
    manifests = [(there, there.manifest()) for there in archives]
    if queue is None:
        names = [path for there, manifest in manifests for path in there.paths(list(manifest.files))]
        if not names:
            raise shmq.NotFound(f"nothing is archived in {', '.join(each.path for each in archives)}")
        return spark.read.parquet(*names)
    shards = places.shards_of(queue)
    starting: dict[str, dict[str, int]] = {}
    for shard in shards:
        end = max((manifest.end(shard.topic, shard.number) or -2 for _, manifest in manifests), default=-2)
        starting.setdefault(shard.topic, {})[str(shard.number)] = end
    live = spark.read.format("shmq").option("startingOffsets", json.dumps(starting)).options(**options).load(queue)
    topics = {shard.topic for shard in shards}
    names = [
        path
        for there, manifest in manifests
        for path in there.paths([each for each in manifest.files if each.topic in topics])
    ]
    if not names:
        return live
    from pyspark.sql import functions as f  # noqa: PLC0415

    old = spark.read.parquet(*names)
    wanted = [f.lit(0).cast("int").alias(c) if c == "timestampType" else f.col(c) for c in live.columns]
    return old.select(*wanted).unionByName(live)
