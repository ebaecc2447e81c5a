"""
What only Chronicle's queues need: their messages lie in cycles, and where each lies goes along and comes back.

An import keeps a message's cycle, sequence and file in the header `source`. An export puts it there again, if it can;
a message that was in no such queue goes into the cycle of its time.
"""

from __future__ import annotations

import itertools
import struct
import time
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shmq.foreign import EncodedHeaders
from shmq.formats import chronicle
from shmq.formats.chronicle import cycles
from shmq.formats.chronicle.folder import Folder
from shmq.formats.chronicle.store import Store
from shmq.formats.chronicle.write import rolling
from shmq.formats.model import MS, NO_TIME, Run
from shmq.formats.transfer.messages import SOURCE

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import shmq
    from shmq.formats.chronicle import Settings
    from shmq.formats.model import Entry
    from shmq.formats.transfer.messages import Headers
    from shmq.formats.transfer.source import Source
    from shmq.formats.transfer.survey import Survey


class Place(NamedTuple):
    """Where a message lay in a Chronicle queue."""

    way: tuple[str, int]
    """How that was cut into cycles: the name of the roll cycle, and the epoch."""
    cycle: int
    sequence: int
    start_ms: int
    """When its cycle begins."""


def headers(path: str | os.PathLike[str], queue: str | None) -> Headers:
    """Return what makes the headers of a batch of messages of the Chronicle queue at *path*."""
    settings = chronicle.settings(path, queue)

    def made(indexes: Sequence[int], extras: Sequence[Mapping[str, Any]]) -> EncodedHeaders:
        if extras[0] is extras[-1]:  # a batch is in the order of the files
            return _of_one_file(settings, indexes, extras[0])
        found = EncodedHeaders()
        for _, run in itertools.groupby(zip(indexes, extras, strict=True), lambda pair: id(pair[1])):
            pairs = list(run)
            found += _of_one_file(settings, [index for index, _ in pairs], pairs[0][1])
        return found

    return made


def _of_one_file(settings: Settings, indexes: Iterable[int], extra: Mapping[str, Any]) -> EncodedHeaders:
    """
    Return {"source": {"index": …, "cycle": …, "sequence": …, "file": …}} for each message of one file, as MessagePack.

    Only two numbers differ, so the bytes around them are made once: that is a third of the time of making the maps.
    """
    cycle, number = extra["cycle"], 1 << 63  # whose bytes are in no cycle and in no name of a file
    fields = {"index": number, "cycle": cycle, "sequence": number, "file": extra["file"]}
    if settings.epoch:
        fields["epoch"] = settings.epoch
    begin, between, end = msgspec.msgpack.encode({SOURCE: fields}).split(number.to_bytes(8, "big"))
    pack = struct.Struct(f">{len(begin)}sQ{len(between)}sQ{len(end)}s").pack
    first = settings.roll_cycle.index(cycle, 0)
    return EncodedHeaders([pack(begin, index, between, index - first, end) for index in indexes])


def options_of(queue: shmq.Queue, options: dict[str, Any]) -> dict[str, Any]:
    """Return *options*, with the roll cycle and the epoch of where its first messages come from if none is chosen."""
    if "roll_cycle" in options:
        return options
    for columns in queue.read_columns(queue.first_index, queue.next_index, ("headers",)):
        found = (kept_place(each.get(SOURCE)) for each in columns["headers"])
        place = next((place for place in found if place is not None), None)
        return options if place is None else _like(*place.way, options)
    return options


def options_like(path: str | os.PathLike[str], queue: str | None, options: dict[str, Any]) -> dict[str, Any]:
    """As `options_of`, for a conversion from the Chronicle queue at *path*; its source id and its index come along."""
    folder = Folder(path, queue)
    if folder.table is not None and folder.table.source_id > 0:
        options = {"source_id": folder.table.source_id, **options}
    if "roll_cycle" in options or folder.roll.name not in cycles.CYCLES:
        return options
    return _like(folder.roll.name, folder.epoch, {**_index_of(folder), **options})


def _index_of(folder: Folder) -> dict[str, int]:
    """How the index of its last file is cut, where that is not as its roll cycle cuts it."""
    for name in reversed([each for each in folder.names() if each.endswith(".cq4")]):
        store = Store(folder.path, name, 0, folder.roll)
        header = store.ready()
        store.close()
        if header is not None and header.indexable:
            count, spacing = header.index_count, header.index_spacing
            is_own = (count, spacing) == (folder.roll.index_count, folder.roll.index_spacing)
            return {} if is_own else {"index_count": count, "index_spacing": spacing}
    return {}


class Messages:
    """Those of a Chronicle queue, in lists; users' meta-data between them have no index, and are counted instead."""

    def __init__(self, source: Source, *, strict: bool) -> None:
        """Nothing is read yet."""
        self._runs = chronicle.runs(source.path, source.queue, strict=strict)
        self.meta = 0

    def __iter__(self) -> Iterator[Sequence[Entry]]:
        """The lists."""
        for found in self._runs:
            if isinstance(found, Run):
                yield found
            elif messages := [entry for entry in found if entry.index is not None]:
                self.meta += len(found) - len(messages)
                yield messages
            else:
                self.meta += len(found)

    def losses(self) -> list[str]:
        """What of the part that was read has no place elsewhere."""
        return [f"{self.meta:,} document{'s' * (self.meta > 1)} of users' meta-data"] if self.meta else []


def meta_losses(source: Source, *, strict: bool) -> list[str]:
    """What of users' meta-data is lost when a Chronicle queue is converted."""
    messages = Messages(source, strict=strict)
    for _ in messages:
        pass
    return messages.losses()


def _like(roll_cycle: str, epoch: int, options: dict[str, Any]) -> dict[str, Any]:
    """Return *options* with these, but for an epoch where a time of day is chosen."""
    return {"roll_cycle": roll_cycle, **({} if "roll_time" in options else {"epoch": epoch}), **options}


@cache
def _known(file: str, cycle: int, epoch: int) -> tuple[tuple[str, int], int] | None:
    """Return (the roll cycle and the epoch, when *cycle* begins), None if the file has no name of that cycle."""
    roll = cycles.guess([file])
    if roll is None or roll.cycle_of(file, epoch) != cycle:
        return None
    return (roll.name, epoch), roll.start_ms(cycle, epoch)


def kept_place(source: Any) -> Place | None:
    """Return where the header `source` says that a message lay in a Chronicle queue, None if it says no such thing."""
    if not isinstance(source, dict) or "cycle" not in source:
        return None
    file, cycle, sequence, epoch = (source.get(name) for name in ("file", "cycle", "sequence", "epoch"))
    if not (type(cycle) is int and type(sequence) is int and isinstance(file, str)):
        return None
    known = _known(file, cycle, epoch if type(epoch) is int else 0)
    return None if known is None else Place(known[0], cycle, sequence, known[1])


class Numbers:
    """The indexes of messages on their way into a new queue, in its order."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """*options* are those of `chronicle.write`."""
        chosen = options.get("roll_cycle", cycles.DEFAULT), options.get("epoch", 0), options.get("roll_time")
        self._roll, self._epoch = rolling(*chosen)
        self._way = self._roll.name, self._epoch
        self._now = time.time_ns()
        self._cycle = -1
        self._sequence = 0
        self.kept = 0
        """How many had a cycle and a sequence, and no time worth telling."""
        self.moved = 0
        """How many of them could not have these again."""

    def next(self, time_ns: int | None, place: Place | None) -> int:
        """Return the index of the next message, from where it lay before, or from its time, or from now."""
        self.kept += place is not None
        if place is not None and place.way == self._way:
            cycle, wanted = place.cycle, place.sequence
        else:
            if place is not None:
                time_ns = place.start_ms * MS
            elif time_ns is None or time_ns == NO_TIME:
                time_ns = self._now
            cycle, wanted = self._roll.cycle_at(time_ns // MS, self._epoch), -1
        if cycle > self._cycle:
            self._cycle, self._sequence = cycle, 0
        if wanted >= 0 and (cycle, wanted) != (self._cycle, self._sequence):
            self.moved += 1
        index = self._roll.index(self._cycle, self._sequence)
        self._sequence += 1
        return index

    def of_batch(self, times: Iterable[int | None], sources: Iterable[Any]) -> list[int]:
        """As `next`, of messages with these times and headers `source`."""
        following = self.next
        return [following(time_ns, kept_place(source)) for time_ns, source in zip(times, sources)]  # noqa: B905

    @property
    def following(self) -> int:
        """The index that comes next in the cycle that is being filled."""
        return self._roll.index(max(self._cycle, 0), self._sequence)


class Layout(NamedTuple):
    """Where the messages of a queue will lie in a Chronicle queue, as far as somebody must know it before."""

    options: dict[str, Any]
    """Those of `chronicle.write`."""
    kept: int
    moved: int
    """As `Numbers` counts them."""
    indexes: dict[int, int]
    """{how many messages come before it: index} of those that consumers stand at."""

    def numbers(self) -> Numbers:
        """Return what gives out the same indexes again."""
        return Numbers(self.options)

    def losses(self, found: Survey) -> list[str]:
        """What a Chronicle queue would lose of the queue that was surveyed."""
        found.has["time"] -= min(self.kept, found.has["time"])
        found.has["place"] = self.moved
        return found.losses("chronicle")

    def places(self, found: Survey) -> dict[str, tuple[int, tuple[int, ...]]] | None:
        """Where its consumers stand in a Chronicle queue; 0 is the beginning."""
        return {self._called(name): (self.indexes[at], ()) for name, at in found.places.items()} or None

    def _called(self, name: str) -> str:
        """Return what a consumer was called there: a name here has no colon."""
        return name.replace(".", ":", 1) if self.kept and name.startswith("replicated.") else name


def lay_out(
    batches: Iterable[Iterable[tuple[int | None, Place | None, bytes]]], found: Survey, options: dict[str, Any]
) -> Layout:
    """Give an index to each of the messages: their times, places and payloads; and keep those of the consumers."""
    numbers = Numbers(options)
    wanted = set(found.places.values()) - {0}
    indexes = {0: 0}
    count = found.has["emptiness"] = 0
    for batch in batches:
        for time_ns, place, payload in batch:
            if count == found.messages:
                break
            if not payload:
                found.has["emptiness"] += 1
            index = numbers.next(time_ns, place)
            if count in wanted:
                indexes[count] = index
            count += 1
    indexes.update(dict.fromkeys(wanted - indexes.keys(), numbers.following))
    return Layout(options, numbers.kept, numbers.moved, indexes)


def of_queue(queue: shmq.Queue, found: Survey, options: dict[str, Any]) -> Layout:
    """Lay out the messages of a shmq queue."""
    columns = ["time_ns", "payload", "headers"] if found.has["cycle"] else ["time_ns", "payload"]
    none = itertools.repeat(None)
    batches = (
        zip(each["time_ns"], map(_of_headers, each["headers"]) if found.has["cycle"] else none, each["payload"])  # noqa: B905
        for each in queue.read_columns(found.first, found.stop, columns)
    )
    return lay_out(batches, found, options_of(queue, options))


def _of_headers(headers: dict[str, Any]) -> Place | None:
    return kept_place(headers.get(SOURCE))


def of_source(source: Source, found: Survey, options: dict[str, Any], *, strict: bool) -> Layout:
    """Lay out the messages of a foreign queue."""
    place = place_of(source)
    batches = (
        ((entry.time_ns, place(entry), entry.payload) for entry in batch) for batch in source.lists(strict=strict)
    )
    own = source.format == "chronicle"
    return lay_out(batches, found, options_like(source.path, source.queue, options) if own else options)


def place_of(source: Source) -> Callable[[Entry], Place | None]:
    """Return what tells the place of a foreign message: of one in a Chronicle queue."""
    if source.format != "chronicle":
        return lambda _: None
    settings = chronicle.settings(source.path, source.queue)
    roll, epoch = settings.roll_cycle, settings.epoch

    def place(entry: Entry) -> Place:
        cycle, sequence = roll.split(entry.index or 0)
        return Place((roll.name, epoch), cycle, sequence, roll.start_ms(cycle, epoch))

    return place
