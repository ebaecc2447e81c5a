"""A stream: where each batch of it begins and ends, as Spark asks, and how the queues hear of what is done."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, SupportsTriggerAvailableNow

import shmq
from shmq.spark import mirror, offsets, places
from shmq.spark.ends import Ends, Range, check_start, ends, starts, tasks_of
from shmq.spark.options import LATEST, SourceOptions
from shmq.spark.rows import Pieces, Rows
from shmq.spark.schema import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from shmq.spark.offsets import Key


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One `spark.readStream`, on the driver for as long as the query runs; copies of it read on the executors."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        """Nothing is opened yet."""
        self.options = options
        shards = places.find(options)
        self.rows = Rows(options, schema, kind_of(options, schema, shards))
        self._pinned: dict[Key, Ends] | None = None
        self._last_batch = time.monotonic()
        self._latest: offsets.Offsets | None = None
        self._initial: dict[str, Any] | None = None

    # ---- offsets
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  # Spark's names from here on
        """Where a new query begins. Spark asks more than once before it writes one answer down: they are the same."""
        if self._initial is None:
            self._initial = self._begin()
        return self._initial

    def _begin(self) -> dict[str, Any]:
        shards = places.find(self.options)
        group = offsets.new_group() if self.options.group is None else self.options.group
        self._hold(group, shards)  # before the ends are looked for, so that nothing is retired in between
        there = ends(shards, self.options)
        begun = starts(self.options, shards, there, LATEST)
        return self._offsets(group, {key: offsets.Place(there[key].queue_id, at) for key, at in begun.items()})

    def _hold(self, group: str, shards: list[places.Shard]) -> None:
        """Nothing of them is retired from now on before Spark has read it, if the user gave the name for that."""
        if group and not offsets.is_automatic(group):
            for shard in shards:
                mirror.hold(shard.path, group)

    def _offsets(self, group: str, where: dict[Key, offsets.Place]) -> dict[str, Any]:
        return offsets.Offsets(group, places.root_of(self.options), where).to_json()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """What one batch takes, unless the trigger says otherwise."""
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes is not None:
            return ReadMaxBytes(self.options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What is there now is all there will be; shards that come later are for the next run."""
        self._pinned = ends(places.find(self.options), self.options)

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch."""
        begun = offsets.Offsets.from_json(start)
        if self.options.pause and os.path.exists(self.options.pause):
            return start
        shards = places.find(self.options)
        group = begun.group if self.options.group is None else self.options.group  # it may be said later, too
        known = {place.queue_id for place in begun.places.values()} if group == begun.group else set()
        for shard in shards:
            self._check_before(shard, begun)
        self._hold(group, [shard for shard in shards if places.open_queue(shard.path).id not in known])
        shards = [shard for shard in shards if self._may_begin(shard, begun)]
        there = self._pinned or ends(shards, self.options)
        there = {key: now for key, now in there.items() if key in {(shard.topic, shard.number) for shard in shards}}
        paths = {(shard.topic, shard.number): shard.path for shard in shards}
        where = {key: self._start_of(paths.get(key), now, begun.places.get(key)) for key, now in there.items()}
        end = {key: max(now.end, where[key]) for key, now in there.items()}
        self._latest = offsets.Offsets(
            group, begun.root, {key: offsets.Place(there[key].queue_id, at) for key, at in end.items()}
        )
        end = where if self._should_wait(where, end) else self._limited(shards, where, end, limit)
        kept = {key: place for key, place in begun.places.items() if key not in end}  # a shard that is gone
        placed = {key: offsets.Place(there[key].queue_id, at) for key, at in end.items()}
        if any(end[key] > where[key] for key in end):
            self._last_batch = time.monotonic()
        return self._offsets(group, kept | placed)

    def _may_begin(self, shard: places.Shard, begun: offsets.Offsets) -> bool:
        """Whether the query has passed the shards in which its keys lay before a growth: each key keeps its order."""
        for number, path in shard.before:
            place = begun.places.get((shard.topic, number))
            queue = places.open_queue(path)
            if place is not None and place.queue_id != queue.id:
                continue
            if queue.first_index < queue.committed_index and (place is None or place.next < queue.committed_index):
                return False
        return True

    def _check_before(self, shard: places.Shard, begun: offsets.Offsets) -> None:
        """Before a batch is planned, for Spark writes its end down before it asks for what is in it."""
        place = begun.places.get((shard.topic, shard.number))
        if place is None:
            return
        queue = places.open_queue(shard.path)
        if queue.id != place.queue_id:
            self._check_same(shard, queue.first_index)
        elif place.next > queue.committed_index:
            now = ends([shard])[shard.topic, shard.number]
            check_start(self.options, shard, place.next, now)

    def _check_same(self, shard: places.Shard, first: int) -> None:
        """It is not; which ends the query, unless what is lost is no matter."""
        if self.options.fail_on_loss:
            raise shmq.Gone(
                f"{shard.path} is another queue than the one that was read before: it was deleted and made again. "
                "Nothing was read. Begin a new checkpoint, or say failOnDataLoss=false to read the new one from "
                "its beginning",
                first,
            )

    def _start_of(self, path: str | None, now: Ends, place: offsets.Place | None) -> int:
        """
        How far a shard was read; one that is new begins with its first message, also one in an old one's place.

        What lies behind the end, in a queue that was cut, was read up to the end: what is put from now on comes.
        """
        if place is None or place.queue_id != now.queue_id:
            return now.first
        if place.next > now.end and path is not None:
            return min(place.next, places.open_queue(path).committed_index)
        return place.next

    def _should_wait(self, start: Mapping[Key, int], end: Mapping[Key, int]) -> bool:
        """Whether there is too little for a batch yet."""
        if self.options.min_rows is None or self._pinned is not None:
            return False
        rows = sum(end[key] - start[key] for key in end)
        return rows < self.options.min_rows and time.monotonic() - self._last_batch < self.options.max_delay

    def _limited(
        self, shards: list[places.Shard], start: dict[Key, int], end: dict[Key, int], limit: Any
    ) -> dict[Key, int]:
        rows = getattr(limit, "max_rows", None)
        nbytes = getattr(limit, "max_bytes", None) or self.options.max_bytes
        if nbytes is not None:
            sizes = {}
            for shard in shards:
                key = (shard.topic, shard.number)
                if key in end and start[key] < end[key]:
                    extents = places.open_queue(shard.path).extents(start[key], end[key])
                    sizes[key] = sum(extent.nbytes for extent in extents)
            fit = offsets.within_bytes(start, end, sizes, nbytes)
            rows = fit if rows is None else min(rows, fit)
        return offsets.limited(start, end, rows)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends without any limit, for the query's progress."""
        return None if self._latest is None else self._latest.to_json()

    # ---- one batch
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """What lies between two offsets, cut into tasks."""
        begun, done = offsets.Offsets.from_json(start), offsets.Offsets.from_json(end)
        shards = [shard for shard in places.find(self.options) if (shard.topic, shard.number) in done.places]
        self._check_there(begun, done, shards)
        there = ends(shards)
        wanted = Range({}, {})
        for shard in shards:
            key = (shard.topic, shard.number)
            now = there[key]
            at = self._checked_start(shard, now, begun, done)
            wanted.start[key] = at
            wanted.end[key] = min(done.places[key].next, now.end)
            if done.places[key].next > now.end:
                check_start(self.options, shard, done.places[key].next, now)
        tasks = tasks_of(self.options, shards, wanted)
        if begun.group and start != self._initial:
            self._mirror(begun)  # a restart looks after its name, too; nothing is done yet of a query that begins
        return [Pieces(task) for task in tasks]

    def _check_there(self, begun: offsets.Offsets, done: offsets.Offsets, shards: list[places.Shard]) -> None:
        """A shard with something to read must still be there."""
        there = {(shard.topic, shard.number) for shard in shards}
        for key, place in done.places.items():
            before = begun.places.get(key)
            if key not in there and (before is None or before.next < place.next) and self.options.fail_on_loss:
                raise shmq.NotFound(
                    f"shard {key[0]}/{key[1]} below {self.options.queue} is gone, and was to be read up to "
                    f"{place.next}. failOnDataLoss=false goes on without it"
                )

    def _checked_start(self, shard: places.Shard, now: Ends, begun: offsets.Offsets, done: offsets.Offsets) -> int:
        key = (shard.topic, shard.number)
        place = begun.places.get(key)
        target = done.places[key]
        if target.queue_id != now.queue_id:
            self._check_same(shard, now.first)
            return now.end  # nothing: what the batch was to have is gone, and the next one begins the queue there is
        if place is not None and place.queue_id != now.queue_id:
            self._check_same(shard, now.first)
            if target.next > now.end:
                raise shmq.Gone(
                    f"{shard.path} is to be read up to {target.next}, as the checkpoint has it, and ends at {now.end}: "
                    "what is put there next would be taken for read. Nothing was read. Begin a new checkpoint",
                    now.first,
                )
            return now.first
        start = now.first if place is None else place.next
        if place is not None and start < target.next:
            check_start(self.options, shard, start, now)
        return min(max(start, now.first), now.end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """On an executor."""
        return self.rows.read(partition.pieces)

    def __getstate__(self) -> dict[str, Any]:
        """What an executor needs."""
        return {**self.__dict__, "_pinned": None, "_latest": None}

    # ---- progress
    def commit(self, end: dict[str, Any]) -> None:
        """Spark has finished with everything before *end*: the queue may know."""
        done = offsets.Offsets.from_json(end)
        if done.group:
            self._mirror(done)

    def _mirror(self, done: offsets.Offsets) -> None:
        # The mirror is for retention and for eyes; a query does not end because of it.
        with contextlib.suppress(shmq.ShmqError, OSError):
            mirror.follow(done, places.find(self.options))
