"""
An archive as a Delta table, in days and shards.

How far each shard is archived is the table's own mark for its queue, which the commit that adds the messages sets: so
each of them is in the table once, whoever is killed at whatever moment. Which queue a name meant is a mark, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Any, Self

import shmq
from shmq.spark import delta
from shmq.spark.archive import merging, parquet
from shmq.spark.archive.forms import MANIFEST, Snapshot, Times, another_queue
from shmq.spark.archive.messages import META, Layout, Span, prefix_of

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

_LOCK = ".shmq-lock"
_WINDOW_BYTES = 16 << 20
"""About so many bytes of files are read at once, to be put in order."""
_swept: set[tuple[str, str]] = set()
"""What this process has swept, which removes at once what it does not finish itself."""


class Lake:
    """A Delta table of messages. A context manager; any number of processes may write to it."""

    def __init__(self, path: str) -> None:
        """Nothing is made yet; see `delta.library`."""
        delta.library()
        self.path = path if delta.is_remote(path) else os.path.abspath(path.removeprefix("file://"))
        self._table: delta.Table | None = None

    def __enter__(self) -> Self:
        """
        Read it.

        Raises:
            BadFormat: there are files, and no table; nothing was changed.
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

    def columns(self) -> list[str] | None:
        """The names of its columns, but for the day, which is made of the time; None while it is not there."""
        table = self._known()
        if table is None:
            return None
        names = [each["name"] for each in table.schema()["fields"]]
        day = f"{prefix_of(names)}date"
        return [each for each in names if each != day]

    def end_of(self, topic: str, shard: int, queue_id: str) -> int | None:
        """See `forms.Store`."""
        table = self._known()
        return None if table is None else _end_of(table, topic, shard, queue_id)

    def sweep(self, queue_id: str) -> None:
        """See `forms.Store`."""
        table = self._known()
        if table is not None and (self.path, queue_id) not in _swept:
            table.sweep(queue_id)
            _swept.add((self.path, queue_id))

    def write(self, tables: Iterable[pa.Table], span: Span, how: Layout) -> int:
        """
        A file for each day, and one commit of all of them.

        Raises:
            OSError: the disk is full, for one; nothing of it is in the table.
            Raced: others commit to it all the time.
        """
        table = self._known() or delta.Table.create(
            self.path, _with_day(how.schema(), how.prefix), _partition(how.prefix)
        )
        self._table = table
        written: list[tuple[str, datetime.date]] = []
        marks = {_by_queue(span.queue_id): span.stop, _by_name(span.topic, span.shard): span.stop}
        try:
            rows = _write_days(table, tables, span, how.prefix, written)
            actions = [delta.action(table, path, _values(how.prefix, day, span.shard)) for path, day in written]
            if rows and not table.once(_by_queue(span.queue_id), span.stop, actions, marks):
                raise shmq.Busy(f"{span.topic}/{span.shard} came into {self.path} meanwhile, by another process")
        except BaseException:
            with contextlib.suppress(Exception):  # where it cannot be read, nothing is removed
                table.again()
                if not table.has(_by_queue(span.queue_id), span.stop):
                    table.drop(path for path, _ in written)
            raise
        return rows

    def compact(self, nbytes: int) -> int:
        """Put small files of a day together; remove those that went a week ago. One process at a time does it."""
        table = self._known()
        if table is None:
            return 0
        with self._alone() as alone:
            try:
                gone = sum(self._merge(table, run) for run in _runs(table, nbytes)) if alone else 0
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

    def _merge(self, table: delta.Table, run: list[delta.Part]) -> int:
        """One file instead of some; none where somebody else has changed the table meanwhile."""
        partition = run[0].partition
        folder = "/".join(f"{name}={value}" for name, value in partition.items())
        with table.writing(folder, "merged") as (sink, path), parquet.Writer(sink) as writer:
            for each in run:
                for group in parquet.groups([table.source(each)]):
                    writer.add(group)
        try:
            table.commit([delta.action(table, path, partition, same_rows=True)], remove=run, same_rows=True)
        except delta.Raced:
            table.drop([path])
            table.again()
            return 0
        except BaseException:
            with contextlib.suppress(Exception):  # where it cannot be read, nothing is removed
                table.again()
                if not any(each.path.endswith(path.rpartition("/")[2]) for each in table.parts()):
                    table.drop([path])
            raise
        return len(run) - 1

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

    def shards(self) -> list[tuple[str, int, str]]:
        """Of which shards there is something; and the table's id, which stands for all of its queues."""
        table = self._known()
        if table is None:
            return []
        prefix = prefix_of(self.columns() or [])
        found: set[tuple[str, int]] = set()
        for each in table.parts():
            number = int(each.partition[f"{prefix}partition"])
            found |= {(topic, number) for topic in _topics(table, each, prefix)}
        return [(topic, number, table.id) for topic, number in sorted(found)]

    def rows(self, topic: str, shard: int, behind: int, times: Times) -> Iterator[pa.Table]:
        """See `forms.Store`."""
        import pyarrow.dataset as ds  # noqa: PLC0415

        table = self._known()
        if table is None:
            return
        prefix = prefix_of(self.columns() or [])
        dataset = table.dataset()
        offset, mine = ds.field(f"{prefix}offset"), ds.field(f"{prefix}partition") == shard
        mine &= (ds.field(f"{prefix}topic") == topic) & (offset > behind)
        stamp = ds.field(f"{prefix}timestamp_ns")
        mine = mine if times.since is None else mine & (stamp >= times.since)
        mine = mine if times.until is None else mine & (stamp < times.until)
        names = [f"{prefix}{name}" for name in META]
        for first, stop in _windows(table.parts(), prefix, shard, behind):
            found = dataset.to_table(columns=names, filter=mine & (offset >= first) & (offset < stop))
            if found.num_rows:
                yield found.sort_by(f"{prefix}offset")

    def snapshot(self) -> Snapshot:
        """See `forms.Store`."""
        table = self._known()
        if table is None:
            return Snapshot(self.path, [], lambda _: [], lambda *_: None)
        table.check_plain()
        columns = self.columns() or []
        parts, prefix = table.parts(), prefix_of(columns)
        kept = delta.Table(self.path, table.version)

        def names(times: Times) -> list[str]:
            return [kept.uri(each) for each in parts if _may_hold(each, prefix, times)]

        def end(topic: str, shard: int, queue_id: str) -> int | None:
            return _end_of(kept, topic, shard, queue_id)

        return Snapshot(self.path, columns, names, end, kept.schema_json())


# ---------------------------------------------------------------- marks
def _by_queue(queue_id: str) -> str:
    return f"shmq queue {queue_id}"


def _by_name(topic: str, shard: int) -> str:
    return f"shmq shard {topic}/{shard}"


def _end_of(table: delta.Table, topic: str, shard: int, queue_id: str) -> int | None:
    found = table.mark(_by_queue(queue_id))
    if found is None and table.mark(_by_name(topic, shard)) is not None:
        raise another_queue(table.path, topic, shard)
    return found


# ---------------------------------------------------------------- days
def _partition(prefix: str) -> list[str]:
    return [f"{prefix}date", f"{prefix}partition"]


def _values(prefix: str, day: datetime.date, shard: int) -> dict[str, Any]:
    return dict(zip(_partition(prefix), (day, shard), strict=True))


def _with_day(schema: pa.Schema, prefix: str) -> pa.Schema:
    import pyarrow as pa  # noqa: PLC0415

    return schema.append(pa.field(f"{prefix}date", pa.date32()))


def _write_days(
    table: delta.Table, tables: Iterable[pa.Table], span: Span, prefix: str, written: list[tuple[str, datetime.date]]
) -> int:
    """A file for each day, which is named in *written* as soon as it is begun: how many rows."""
    import pyarrow.compute as pc  # noqa: PLC0415

    writers: dict[datetime.date, parquet.Writer] = {}
    with contextlib.ExitStack() as stack:
        for each in tables:
            days = pc.cast(each[f"{prefix}timestamp"], "date32")
            rest = each.drop_columns([f"{prefix}partition"])
            for day in pc.unique(days).to_pylist():
                if day not in writers:
                    folder = "/".join(f"{name}={value}" for name, value in _values(prefix, day, span.shard).items())
                    sink, path = stack.enter_context(table.writing(folder, f"{span.queue_id}-{span.first:016d}"))
                    written.append((path, day))
                    writers[day] = stack.enter_context(parquet.Writer(sink))
                writers[day].add(rest.filter(pc.equal(days, day)))
    return sum(each.rows for each in writers.values())


# ---------------------------------------------------------------- files
def _runs(table: delta.Table, nbytes: int) -> list[list[delta.Part]]:
    """Files that are worth one, of the same day and shard."""
    folders: dict[tuple[Any, ...], list[delta.Part]] = {}
    for each in table.parts():
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
