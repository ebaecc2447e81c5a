"""
Delta tables without Java: their files are written here or by Spark, and the package deltalake keeps their log.

A commit adds files and takes files away, with marks (an application, and how far it is), all of it or nothing. It is
refused where somebody else has committed since the table was read: deltalake by itself would try again behind the
other's commit without a look at the marks, so that what two have written would be there twice.

deltalake syncs nothing. On a local disk a file is synced before a commit names it, and the log after each commit; and
a last commit that a power cut has left in pieces, which nobody was told of, is set aside.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import fcntl
import json
import logging
import math
import os
import random
import re
import time
import urllib.parse
import uuid
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.spark import disk, setup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

LOG = "_delta_log"
_UNFINISHED = ".unfinished"
_MENDING = f"{LOG}/.shmq-mending"
_COMMIT = re.compile(r"\d{20}(\.json|\.checkpoint.*\.parquet)")
_KEEP_HOURS = 7 * 24
_ATTEMPTS = 30
_LONGEST_WAIT = 0.5
_TORN_AFTER = 10.0
"""Seconds. What is younger may be a commit of another host, whose bytes are on their way to a disk that both see."""
_LONGEST = 32
"""Of text and bytes that are longer there are no statistics in the log."""


class Raced(shmq.ShmqError):
    """Somebody else has committed to the table since it was read; nothing was committed."""


class Part(NamedTuple):
    """One file of a table."""

    path: str
    """Within the table."""
    nbytes: int
    rows: int
    partition: dict[str, Any]
    low: dict[str, Any]
    high: dict[str, Any]
    """The smallest and largest value of those columns of which that is known."""


def library() -> Any:
    """
    The package deltalake.

    Raises:
        Missing: it is not installed.
    """
    try:
        import deltalake  # noqa: PLC0415  # an extra of its own
    except ImportError:
        raise setup.Missing("a Delta table needs the package deltalake: pip install 'shmq[delta]'") from None
    return deltalake


def is_remote(path: str) -> bool:
    """Whether that is no directory of this machine, but in an object store."""
    return "://" in path and not path.startswith("file://")


def is_table(path: str) -> bool:
    """Whether there is a Delta table."""
    if is_remote(path):
        return bool(library().DeltaTable.is_deltatable(path))
    return bool(_commits(path))


def _commits(path: str) -> list[str]:
    """The files of a local table's log, of which there is none yet where one was killed that made it."""
    there = os.listdir(f"{path}/{LOG}") if os.path.isdir(f"{path}/{LOG}") else []
    return [each for each in there if _COMMIT.fullmatch(each)]


class Table:
    """One Delta table, as it was when it was last read."""

    def __init__(self, path: str, version: int | None = None) -> None:
        """
        Read it, as it is or was.

        Raises:
            Missing: the package deltalake is not installed.
            Corrupt: it cannot be read.
        """
        self.path = path if is_remote(path) else os.path.abspath(path.removeprefix("file://"))
        self._delta = library()
        try:
            self._table = self._delta.DeltaTable(self.path, version=version)
        except Exception as problem:
            raise shmq.Corrupt(f"cannot read the Delta table {self.path}: {problem}") from problem

    @classmethod
    def create(cls, path: str, schema: Any, partition_by: Sequence[str]) -> Table:
        """That table; made of that Arrow schema if it is not there."""
        delta = library()
        if not is_table(path):
            if not is_remote(path):
                disk.make_folder(os.path.abspath(path))
            with contextlib.suppress(delta.exceptions.CommitFailedError):  # another one makes it
                delta.DeltaTable.create(
                    path, delta.Schema.from_arrow(schema), mode="ignore", partition_by=list(partition_by)
                )
            table = cls(path)
            table.sync_log()
            return table
        return cls(path)

    # ---- what is in it
    @property
    def id(self) -> str:
        """The table's own id."""
        return str(self._table.metadata().id)

    @property
    def version(self) -> int:
        """How many commits it has, but one."""
        return int(self._table.version())

    def again(self) -> None:
        """Read what was committed since."""
        self._table.update_incremental()

    def mark(self, app: str) -> int | None:
        """How far that application is."""
        found = self._table.transaction_version(app)
        return None if found is None else int(found)

    def has(self, app: str, version: int) -> bool:
        """Whether that application is so far."""
        done = self.mark(app)
        return done is not None and done >= version

    def schema(self) -> dict[str, Any]:
        """Its columns, as Spark has them; in Delta they are the same."""
        found: dict[str, Any] = json.loads(self.schema_json())
        return found

    def schema_json(self) -> str:
        """Likewise, as JSON."""
        return str(self._table.schema().to_json())

    def partition_by(self) -> list[str]:
        """The columns that are in its folders' names, and not in its files."""
        return list(self._table.metadata().partition_columns)

    def dataset(self) -> Any:
        """For pyarrow."""
        return self._table.to_pyarrow_dataset()

    def parts(self) -> list[Part]:
        """Its files."""
        import pyarrow as pa  # noqa: PLC0415

        found = []
        for row in pa.table(self._table.get_add_actions(flatten=True)).to_pylist():
            facts: dict[str, dict[str, Any]] = {"partition": {}, "min": {}, "max": {}}
            for name, value in row.items():
                what, dot, column = name.partition(".")
                if dot and what in facts and value is not None:
                    facts[what][column] = value
            found.append(
                Part(urllib.parse.unquote(row["path"]), row["size_bytes"], row["num_records"] or 0, *facts.values())
            )
        return found

    def uri(self, part: Part) -> str:
        """Where that file is."""
        return f"{self.path}/{part.path}"

    def source(self, part: Part) -> Any:
        """That file, for pyarrow."""
        return self._files().open_input_file(part.path) if is_remote(self.path) else self.uri(part)

    def check_plain(self) -> None:
        """
        Refuse to have its Parquet files read as they lie, where that would not be what is in it.

        Raises:
            Mismatch: its rows are more, or fewer, than what is in its files.
        """
        features = set(self._table.protocol().reader_features or ())
        wrong = features & {"deletionVectors", "columnMapping"}
        if wrong:
            raise shmq.Mismatch(
                f"cannot read {self.path} without Delta's own reader: it has {', '.join(sorted(wrong))}, which "
                "somebody has switched on. Switch it off and REORG the table, or read it with delta-spark"
            )

    # ---- files
    @contextlib.contextmanager
    def writing(self, folder: str, name: str) -> Iterator[tuple[Any, str]]:
        """
        A file to be written: what takes its bytes, and its path within the table.

        It has its name, and is on the disk, when this is left; by an error, it is gone.
        """
        path = f"{folder}/{name}-{uuid.uuid4().hex[:12]}.parquet"
        if is_remote(self.path):
            with self._files().open_output_stream(path) as stream:
                yield stream, path
            return
        where, _, last = f"{self.path}/{path}".rpartition("/")
        disk.make_folder(where)
        hidden = f"{where}/.{last}{_UNFINISHED}"
        try:
            with open(hidden, "wb") as file:
                yield file, path
                file.flush()
                os.fsync(file.fileno())
            os.replace(hidden, f"{where}/{last}")
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(hidden)
            raise
        disk.sync_folder(where)

    def sweep(self, prefix: str, under: str = "") -> None:
        """Remove what killed ones left unfinished in that folder, of files that are called like that."""
        if is_remote(self.path):
            return
        for folder, folders, names in os.walk(f"{self.path}/{under}"):
            folders[:] = [each for each in folders if each != LOG]
            for name in names:
                if name.startswith(f".{prefix}") and name.endswith(_UNFINISHED):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(f"{folder}/{name}")

    def drop(self, paths: Iterable[str]) -> None:
        """Remove files that no commit has named."""
        for each in paths:
            with contextlib.suppress(OSError):
                self._files().delete_file(each) if is_remote(self.path) else os.unlink(f"{self.path}/{each}")

    def size(self, path: str) -> int | None:
        """How large a file is; None if it is not there."""
        if is_remote(self.path):
            found = self._files().get_file_info(path)
            return int(found.size) if found.is_file else None
        try:
            return os.stat(f"{self.path}/{path}").st_size
        except FileNotFoundError:
            return None

    def _files(self) -> Any:
        from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415
        from pyarrow import fs  # noqa: PLC0415

        return fs.PyFileSystem(DeltaStorageHandler.from_table(self._table._table))  # noqa: SLF001  # its own way

    # ---- commits
    def commit(
        self,
        add: Iterable[Any],
        remove: Iterable[Part] = (),
        marks: Mapping[str, int] | None = None,
        *,
        same_rows: bool = False,
    ) -> None:
        """
        All of it, or nothing; on the disk when this returns.

        Args:
            add: what `action` made.
            remove: files of it.
            marks: how far which application is now.
            same_rows: files alone change, and nothing that is in the table.

        Raises:
            OSError: it is not on the disk; whether it counts is not known.
            Raced: somebody else has committed since the table was read.
        """
        mine = self.version + 1  # it is tried once
        transaction = self._delta.transaction
        now = int(time.time() * 1000)
        actions = [
            *add,
            *(
                transaction.RemoveAction(
                    each.path, not same_rows, now, each.nbytes, _as_partition_values(each.partition)
                )
                for each in remove
            ),
        ]
        said = self._delta.CommitProperties(
            max_commit_retries=0,
            app_transactions=[self._delta.Transaction(app, version) for app, version in (marks or {}).items()],
        )
        try:
            self._table.create_write_transaction(
                actions,
                mode="append",
                schema=self._table.schema(),
                partition_by=self._table.metadata().partition_columns,
                commit_properties=said,
            )
        except self._delta.exceptions.CommitFailedError as problem:
            raise Raced(f"{self.path}: somebody else has committed ({problem})") from problem
        self.again()
        self.sync_log(mine)

    def once(
        self,
        app: str,
        version: int,
        add: Sequence[Any],
        marks: Mapping[str, int],
        check: Callable[[], None] = lambda: None,
    ) -> bool:
        """
        Commit, unless that application is so far already: False then.

        Args:
            check: raises where what is in the table now is in the way; asked each time that somebody else was first.

        Raises:
            Raced: others commit all the time.
        """
        for attempt in range(_ATTEMPTS):
            if self.has(app, version):
                return False
            check()
            try:
                self.commit(add, marks=marks)
            except Raced:
                time.sleep(random.uniform(0, min(0.01 * 2**attempt, _LONGEST_WAIT)))  # noqa: S311  # not in step
                self.again()
            else:
                return True
        raise self._raced()

    def append(self, rows: Any, app: str, version: int) -> bool:
        """
        Write an Arrow table as files of deltalake's own, unless that application is so far already: False then.

        Raises:
            Raced: others commit all the time.
        """
        mark = self._delta.CommitProperties(
            max_commit_retries=0, app_transactions=[self._delta.Transaction(app, version)]
        )
        for _ in range(_ATTEMPTS):
            if self.has(app, version):
                return False
            with contextlib.suppress(self._delta.exceptions.CommitFailedError):
                self._delta.write_deltalake(self._table, rows, mode="append", commit_properties=mark)
                return True
            self.again()
        raise self._raced()

    def _raced(self) -> Raced:
        return Raced(
            f"cannot commit to {self.path}: others did so {_ATTEMPTS} times meanwhile; nothing was committed. Try again"
        )

    def vacuum(self) -> int:
        """Remove files that went a week ago; how many."""
        gone = self._table.vacuum(retention_hours=_KEEP_HOURS, dry_run=True, enforce_retention_duration=False)
        if gone:
            self._table.vacuum(retention_hours=_KEEP_HOURS, dry_run=False, enforce_retention_duration=False)
        return len(gone)

    def sync_log(self, since: int | None = None) -> None:
        """
        What was committed is on the disk: the last of it, or all from version *since* on, also what others committed.

        Raises:
            FileNotFoundError: it was set aside, as in pieces, before it was there; see `mend`.
        """
        if is_remote(self.path):
            return
        for version in range(self.version if since is None else since, self.version + 1):
            disk.sync_file(f"{self.path}/{LOG}/{version:020d}.json")
        disk.sync_folder(f"{self.path}/{LOG}")
        disk.sync_folder(self.path)


def action(table: Table, path: str, partition: Mapping[str, Any], *, same_rows: bool = False) -> Any:
    """What a commit says of a file that was written: its size, and each column's smallest and largest value."""
    import pyarrow.parquet as pq  # noqa: PLC0415

    if is_remote(table.path):
        found = pq.read_metadata(path, filesystem=table._files())  # noqa: SLF001
    else:
        found = pq.read_metadata(f"{table.path}/{path}")
    return library().transaction.AddAction(
        path,
        table.size(path),
        _as_partition_values(partition),
        int(time.time() * 1000),
        not same_rows,
        json.dumps(_statistics(found)),
    )


def _statistics(found: Any) -> dict[str, Any]:
    """What a Parquet file knows of its columns, in the words of Delta's log."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    unknown = set()
    for group in range(found.num_row_groups):
        for number in range(found.num_columns):
            column = found.row_group(group).column(number)
            name, known = column.path_in_schema, column.statistics
            if "." in name or known is None or not known.has_null_count:
                unknown.add(name)
                continue
            nulls[name] = nulls.get(name, 0) + known.null_count
            if known.null_count == column.num_values + known.null_count and not known.has_min_max:
                continue  # nothing but nulls
            if not known.has_min_max or not (_is_plain(known.min) and _is_plain(known.max)):
                unknown.add(name)
                continue
            low[name] = min(low.get(name, known.min), known.min)
            high[name] = max(high.get(name, known.max), known.max)
    return {
        "numRecords": found.num_rows,
        "minValues": {name: _word(value) for name, value in low.items() if name not in unknown},
        "maxValues": {name: _word(value) for name, value in high.items() if name not in unknown},
        "nullCount": {name: count for name, count in nulls.items() if "." not in name},
    }


def _is_plain(value: Any) -> bool:
    """Whether Delta's log has statistics of such a value."""
    if isinstance(value, str):
        return len(value) <= _LONGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, int | datetime.date | datetime.datetime | decimal.Decimal) and not isinstance(value, bool)


def _word(value: Any) -> Any:
    if isinstance(value, datetime.datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.date):
        return value.isoformat()
    return float(value) if isinstance(value, decimal.Decimal) else value


def _as_partition_values(partition: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: None if value is None else str(value) for name, value in partition.items()}


# ---------------------------------------------------------------- the log's files
def mend(path: str) -> None:
    """
    Set the last commit of a local table aside where a power cut has left it in pieces.

    Who commits is told when it is on the disk, so nobody was told of this one: what it named is put there again. One
    that is young may become whole yet, and is waited for: another host may have it in its memory.
    """
    names = [] if is_remote(path) else [each for each in _commits(path) if each.endswith(".json")]
    if not names:
        return
    if _is_whole(f"{path}/{LOG}/{max(names)}"):
        return
    with open(f"{path}/{_MENDING}", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # or two would set aside what is in pieces, and what came in its place
        last = f"{path}/{LOG}/{max(each for each in _commits(path) if each.endswith('.json'))}"
        until = time.monotonic() + _TORN_AFTER
        while not _is_whole(last):
            if time.time() - os.stat(last).st_mtime >= _TORN_AFTER or time.monotonic() >= until:
                _set_aside(last)
                return
            time.sleep(0.1)


def _set_aside(commit: str) -> None:
    os.replace(commit, f"{commit}.torn")
    disk.sync_folder(os.path.dirname(commit))
    logging.getLogger(__name__).warning("%s was in pieces, as a power cut leaves it, and was set aside", commit)


def _is_whole(path: str) -> bool:
    """Whether all of a commit is in its file; or it is not there any more, since another one has set it aside."""
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return True
    try:
        for line in content.splitlines():
            json.loads(line)
    except ValueError:
        return False
    return bool(content)
