"""
An archive as a Delta table, in days and shards; of several hosts, in hosts first.

How far each shard is archived is the table's own mark for its queue, which the commit that adds the messages sets: so
each of them is in the table once, whoever is killed at whatever moment. Which queue a name meant is a mark, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import shmq
from shmq.spark import delta
from shmq.spark.archive import merging, owners, parquet
from shmq.spark.archive.forms import MANIFEST, Snapshot, Stored, Times
from shmq.spark.archive.messages import META, Layout, Span, prefix_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import pyarrow as pa

_LOCK = ".shmq-lock"
_WINDOW_BYTES = 16 << 20
"""About so many bytes of files are read at once, to be put in order."""
_ATTEMPTS = 10
_swept: set[tuple[str, str]] = set()
"""What this process has swept, which removes at once what it does not finish itself."""


class Lake:
    """A Delta table of messages. A context manager; any number of processes may write to it."""

    def __init__(self, path: str, host: str | None = None) -> None:
        """Nothing is made yet; see `delta.library`. *host* is whose messages are written, of several hosts."""
        delta.library()
        self._host = host
        self.path = path if delta.is_remote(path) else os.path.abspath(path.removeprefix("file://"))
        self._table: delta.Table | None = None

    def __enter__(self) -> Self:
        """
        Read it.

        Raises:
            BadFormat: there are files, and no table; nothing was changed.
            Mismatch: see `owners.own`.
        """
        delta.mend(self.path)
        self.check()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""
        self._table = None

    def _check_empty(self) -> None:
        is_there = not delta.is_remote(self.path) and os.path.isdir(self.path)
        there = set(os.listdir(self.path)) - {delta.LOG} if is_there else set()
        if there:
            what = "an archive of plain Parquet" if MANIFEST in there else "no Delta table"
            raise shmq.BadFormat(
                f"{self.path} is {what}, and there is {min(there)} in it; nothing was changed. Archive to a folder "
                "that is empty, or not there yet"
            )

    def _known(self) -> delta.Table | None:
        """The table as it is now, if it is there."""
        if self._table is not None:
            self._table.again()
        elif delta.is_table(self.path):
            self._table = delta.Table(self.path)
        return self._table

    # ---- what every form of an archive has
    def check(self) -> None:
        """See `forms.Store`."""
        if not delta.is_table(self.path):
            self._check_empty()
        elif self._host is not None:
            with contextlib.suppress(shmq.Corrupt):  # whoever writes to it mends it first
                self._own(delta.Table(self.path))

    def columns(self) -> list[str] | None:
        """The names of its columns, but for the day, made of the time, and the host; None while it is not there."""
        table = self._known()
        if table is None:
            return None
        names = [each["name"] for each in table.schema()["fields"]]
        made = {f"{prefix_of(names)}date", owners.column(table)}
        return [each for each in names if each not in made]

    def end_of(self, topic: str, shard: int, queue_id: str) -> int | None:
        """See `forms.Store`."""
        table = self._known()
        return None if table is None else owners.end_of(table, self._own(table), topic, shard, queue_id)

    def _own(self, table: delta.Table) -> str | None:
        """For whom it is written; None where it was not made for several hosts."""
        return owners.own(table, self._host)

    def sweep(self, queue_id: str) -> None:
        """See `forms.Store`."""
        table = self._known()
        if table is not None and (self.path, queue_id) not in _swept:
            host = self._own(table)
            table.sweep(queue_id, "" if host is None else f"{owners.column(table)}={host}")
            _swept.add((self.path, queue_id))

    def write(self, tables: Iterable[pa.Table], span: Span, how: Layout) -> int:
        """
        A file for each day, and one commit of all of them.

        Raises:
            Busy: another process has archived some of it meanwhile; nothing of it is there twice.
            Mismatch: another host has made the table meanwhile, of another kind; or see `owners.end_of`.
            OSError: the disk is full, for one; nothing of it is in the table.
            Raced: others commit to it all the time.
        """
        table = self._known() or self._made(how)
        host = self._own(table)
        folders = _Folders(how.prefix, host)
        mark = owners.by_queue(span.queue_id, host)

        def check() -> None:
            if (owners.end_of(table, host, span.topic, span.shard, span.queue_id) or 0) > span.first:
                raise self._was_busy(span)

        written: list[tuple[str, datetime.date]] = []
        try:
            rows = _write_days(table, tables, span, folders, written)
            actions = [delta.action(table, path, folders.values(day, span.shard)) for path, day in written]
            if rows and not table.once(mark, span.stop, actions, owners.marks(host, span), check):
                raise self._was_busy(span)
        except BaseException:
            with contextlib.suppress(Exception):  # where it cannot be read, nothing is removed
                table.again()
                if not table.has(mark, span.stop):
                    table.drop(path for path, _ in written)
            raise
        return rows

    def _made(self, how: Layout) -> delta.Table:
        """The table, which was not there; and if another process makes it, it has what is to be in it."""
        schema = _with_days(how.schema(), how.prefix, self._host)
        self._table = delta.Table.create(self.path, schema, _Folders(how.prefix, self._host).columns())
        names = [each["name"] for each in self._table.schema()["fields"]]
        if owners.own(self._table, self._host) != self._host or set(names) != set(schema.names):
            raise shmq.Mismatch(
                f"{self.path} was made by another process in this moment, of other columns; nothing was archived. Run "
                "it again, which tells what they are"
            )
        return self._table

    def _was_busy(self, span: Span) -> shmq.Busy:
        return shmq.Busy(f"{span.topic}/{span.shard} came into {self.path} meanwhile, by another process")

    def compact(self, nbytes: int) -> int:
        """Put small files of a day together; remove those that went a week ago. One process at a time does it."""
        table = self._known()
        if table is None:
            return 0
        with self._alone() as alone:
            try:
                gone = sum(self._merge(table, run) for run in self._runs(table, nbytes)) if alone else 0
                if gone:
                    table.vacuum()
            except delta.library().exceptions.DeltaError as problem:
                raise OSError(f"deltalake says {problem}") from problem
        return gone

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Whether nobody else on this machine does it; in an object store the commit decides."""
        if delta.is_remote(self.path):
            yield True
            return
        fd = os.open(f"{self.path}/{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield True
        except BlockingIOError:
            yield False
        finally:
            os.close(fd)

    def _runs(self, table: delta.Table, nbytes: int) -> list[list[delta.Part]]:
        """Files that are worth one; of this host alone, since who does it beside others is in their way."""
        host = self._own(table)
        return _runs(owners.parts(table, host), nbytes)

    def _merge(self, table: delta.Table, run: list[delta.Part]) -> int:
        """One file instead of some; none where somebody else has changed them meanwhile."""
        partition = {name: run[0].partition[name] for name in table.partition_by()}  # Spark wants them in this order
        with table.writing(_folder(partition), "merged") as (sink, path), parquet.Writer(sink) as writer:
            for each in run:
                for group in parquet.groups([table.source(each)]):
                    writer.add(group)
        try:
            for _ in range(_ATTEMPTS):
                if not {each.path for each in run} <= {each.path for each in table.parts()}:
                    break
                try:
                    table.commit([delta.action(table, path, partition, same_rows=True)], remove=run, same_rows=True)
                except delta.Raced:
                    table.again()
                else:
                    return len(run) - 1
            table.drop([path])
        except BaseException:
            with contextlib.suppress(Exception):  # where it cannot be read, nothing is removed
                table.again()
                if not any(each.path.endswith(path.rpartition("/")[2]) for each in table.parts()):
                    table.drop([path])
            raise
        return 0

    def verify(self) -> list[str]:
        """What is wrong with its files: missing, or not as large as they were."""
        table = self._known()
        problems = []
        for each in table.parts() if table is not None else []:
            nbytes = table.size(each.path) if table is not None else None
            if nbytes is None:
                problems.append(f"{each.path} is missing")
            elif nbytes != each.nbytes:
                problems.append(f"{each.path} is not what was written: it has {nbytes} bytes, and not {each.nbytes}")
        return problems

    def shards(self) -> list[Stored]:
        """Of which shards there is something; the table's id stands for all of its queues, or those of a host."""
        table = self._known()
        if table is None:
            return []
        prefix = prefix_of(self.columns() or [])
        found = []
        for host in [None] if owners.column(table) is None else owners.names(table):
            whose = table.id if host is None else f"{table.id} {host}"
            shards = {
                (topic, int(each.partition[f"{prefix}partition"]))
                for each in owners.parts(table, host)
                for topic in _topics(table, each, prefix)
            }
            found += [Stored(topic, number, whose, host) for topic, number in sorted(shards)]
        return found

    def rows(self, topic: str, shard: int, behind: int, times: Times, host: str | None = None) -> Iterator[pa.Table]:
        """See `forms.Store`."""
        import pyarrow.dataset as ds  # noqa: PLC0415

        table = self._known()
        if table is None:
            return
        prefix = prefix_of(self.columns() or [])
        dataset = table.dataset()
        offset, mine = ds.field(f"{prefix}offset"), ds.field(f"{prefix}partition") == shard
        mine &= (ds.field(f"{prefix}topic") == topic) & (offset > behind)
        mine = mine if host is None else mine & (ds.field(f"{prefix}host") == host)
        stamp = ds.field(f"{prefix}timestamp_ns")
        mine = mine if times.since is None else mine & (stamp >= times.since)
        mine = mine if times.until is None else mine & (stamp < times.until)
        names = [f"{prefix}{name}" for name in META]
        for first, stop in _windows(owners.parts(table, host), prefix, shard, behind):
            found = dataset.to_table(columns=names, filter=mine & (offset >= first) & (offset < stop))
            if found.num_rows:
                yield found.sort_by(f"{prefix}offset")

    def snapshot(self) -> Snapshot:
        """See `forms.Store`."""
        table = self._known()
        if table is None:
            return Snapshot(self.path, [], lambda *_: [], lambda *_: None)
        table.check_plain()
        columns = self.columns() or []
        parts, prefix = table.parts(), prefix_of(columns)
        kept = delta.Table(self.path, table.version)
        column = owners.column(kept)

        def names(times: Times, hosts: Collection[str] | None) -> list[str]:
            of = parts if hosts is None or column is None else [p for p in parts if p.partition.get(column) in hosts]
            return [kept.uri(each) for each in of if _may_hold(each, prefix, times)]

        def host_of(queue_id: str) -> str | None:
            return owners.host_of(kept, queue_id)

        def end(topic: str, shard: int, queue_id: str) -> int | None:
            if column is not None:  # what another host's queue of that name has is no matter
                return kept.mark(owners.by_queue(queue_id))
            return owners.end_of(kept, None, topic, shard, queue_id)

        hosts = None if column is None else tuple(owners.names(kept))
        columns = columns if column is None else [*columns, column]
        return Snapshot(self.path, columns, names, end, kept.schema_json(), hosts, host_of)


# ---------------------------------------------------------------- folders
class _Folders(NamedTuple):
    """What files lie in, which is also what a table is partitioned by."""

    prefix: str
    host: str | None

    def columns(self) -> list[str]:
        """In this order."""
        return [f"{self.prefix}{name}" for name in (*(["host"] if self.host else []), "date", "partition")]

    def values(self, day: datetime.date, shard: int) -> dict[str, Any]:
        """Of a day and a shard."""
        return dict(zip(self.columns(), (*([self.host] if self.host else []), day, shard), strict=True))


def _folder(values: Mapping[str, Any]) -> str:
    return "/".join(f"{name}={value}" for name, value in values.items())


def _with_days(schema: pa.Schema, prefix: str, host: str | None) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    dated = schema.append(pa.field(f"{prefix}date", pa.date32()))
    return dated if host is None else dated.append(pa.field(f"{prefix}host", pa.string()))


def _write_days(
    table: delta.Table,
    tables: Iterable[pa.Table],
    span: Span,
    folders: _Folders,
    written: list[tuple[str, datetime.date]],
) -> int:
    """A file for each day, which is named in *written* as soon as it is begun: how many rows."""
    import pyarrow.compute as pc  # noqa: PLC0415

    prefix = folders.prefix
    writers: dict[datetime.date, parquet.Writer] = {}
    with contextlib.ExitStack() as stack:
        for each in tables:
            days = pc.cast(each[f"{prefix}timestamp"], "date32")
            rest = each.drop_columns([f"{prefix}partition"])
            for day in pc.unique(days).to_pylist():
                if day not in writers:
                    folder = _folder(folders.values(day, span.shard))
                    sink, path = stack.enter_context(table.writing(folder, f"{span.queue_id}-{span.first:016d}"))
                    written.append((path, day))
                    writers[day] = stack.enter_context(parquet.Writer(sink))
                writers[day].add(rest.filter(pc.equal(days, day)))
    return sum(each.rows for each in writers.values())


# ---------------------------------------------------------------- files
def _runs(parts_of_all: list[delta.Part], nbytes: int) -> list[list[delta.Part]]:
    """Files that are worth one, of the same day and shard."""
    folders: dict[tuple[Any, ...], list[delta.Part]] = {}
    for each in parts_of_all:
        if any(name.endswith("offset") for name in each.low):  # else somebody else's
            folders.setdefault(tuple(sorted(each.partition.items())), []).append(each)
    found = []
    for parts in folders.values():
        parts.sort(key=_order)
        breaks = {at for at in range(1, len(parts)) if _order(parts[at - 1])[0] != _order(parts[at])[0]}
        runs = merging.runs([each.nbytes for each in parts], breaks, nbytes)
        found += [parts[first:stop] for first, stop in runs]
    return found


def _order(part: delta.Part) -> tuple[str, int]:
    prefix = prefix_of(list(part.low))
    return str(part.low.get(f"{prefix}topic")), int(part.low[f"{prefix}offset"])


def _topics(table: delta.Table, part: delta.Part, prefix: str) -> set[str]:
    name = f"{prefix}topic"
    low, high = part.low.get(name), part.high.get(name)
    if low is not None and low == high:
        return {str(low)}
    import pyarrow.parquet as pq  # noqa: PLC0415

    return set(pq.read_table(table.source(part), columns=[name])[name].unique().to_pylist())


def _windows(parts: list[delta.Part], prefix: str, shard: int, behind: int) -> Iterator[tuple[int, int]]:
    """Ranges of offsets that together are all there is, with about the same number of bytes each."""
    name = f"{prefix}offset"
    mine = sorted(
        (int(each.low[name]), int(each.high[name]) + 1, each.nbytes)
        for each in parts
        if int(each.partition[f"{prefix}partition"]) == shard and name in each.low and each.high[name] > behind
    )
    while mine:
        first, stop, nbytes = mine.pop(0)
        while mine and (mine[0][0] < stop or nbytes + mine[0][2] <= _WINDOW_BYTES):
            each = mine.pop(0)
            stop, nbytes = max(stop, each[1]), nbytes + each[2]
        pieces = nbytes // _WINDOW_BYTES + 1
        step = -(-(stop - first) // pieces)
        yield from ((at, min(at + step, stop)) for at in range(first, stop, step))


def _may_hold(part: delta.Part, prefix: str, times: Times) -> bool:
    name = f"{prefix}timestamp_ns"
    return name not in part.low or name not in part.high or times.meet(part.low[name], part.high[name])
