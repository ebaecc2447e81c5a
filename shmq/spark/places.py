"""
Which queues and shards a query means, and opening them once per process.

A *shard* is a queue of its own: what Kafka calls a partition. A directory that holds shards has a map of them
(`shmq.shards`), or they are what is there in folders called `[prefix.]<bit>.<index>`; a queue that is not sharded is
its own shard 0. Python workers are used again by Spark, so what one opened stays open for the next task.
"""

from __future__ import annotations

import os
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import shmq
from shmq.spark import hosts, names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from shmq.spark.options import SinkOptions, SourceOptions

_MARK = "queue.shmq"
_KEPT = 64


class Shard(NamedTuple):
    """One queue on the disk, by the names that Spark knows it under."""

    topic: str
    number: int
    path: str
    before: tuple[tuple[int, str], ...] = ()
    """In a root that has grown, the shards in which its keys lay before: number and path, the last one first."""
    grows: bool = False
    """Whether it is of a map: then it may be finished by a growth, and must not be opened again."""
    is_open: bool = True
    """Whether rows may be put there."""

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.topic}/{self.number}"


def is_queue(path: str) -> bool:
    """Whether there is a queue in that directory."""
    return os.path.exists(f"{path}/{_MARK}")


def shards_of(path: str, topic: str | None = None) -> list[Shard]:
    """
    The shards of one queue, in order.

    Raises:
        NotFound: there is none.
        Mismatch: what is there are shards of several queues (of other prefixes, or numbers of bits), so that one number
            would mean several of them.
    """
    if hosts.is_remote(path):
        return _shards(hosts.queue_of(path, hosts.below(path)))
    path = os.path.abspath(path)
    topic = topic or os.path.basename(path)
    if is_queue(path):
        return [Shard(topic, 0, path)]
    mapped = shmq.shards.read(path)
    if mapped is not None:
        return [_of_map(topic, mapped, shard) for shard in mapped.live() if shard.state != "opening"]
    found: list[Shard] = []
    kinds: set[str] = set()
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else []:
        shard = names.SHARD.fullmatch(name)
        if shard and is_queue(f"{path}/{name}"):
            kinds.add(shard[1])
            found.append(Shard(topic, int(shard[2], 16), f"{path}/{name}"))
    if len(kinds) > 1:
        raise shmq.Mismatch(
            f"cannot read {path}: there are shards of {len(kinds)} queues in it "
            f"({', '.join(f'{kind}.*' for kind in sorted(kinds))}), and one number would mean several; give each "
            "queue's shards a directory of their own"
        )
    if not found:
        raise shmq.NotFound(f"cannot read {path}: there is no queue there, and no shards of one")
    return sorted(found, key=lambda each: each.number)


def _of_map(topic: str, mapped: shmq.shards.Map, shard: shmq.shards.Shard) -> Shard:
    before = []
    parent = mapped.parent(shard)
    while parent is not None:
        before.append((parent.number, parent.path))
        parent = mapped.parent(parent)
    return Shard(topic, shard.number, shard.path, tuple(before), grows=True, is_open=shard.state == "open")


def to_put(path: str, topic: str | None = None) -> list[Shard]:
    """
    The shards of one queue that rows are put into, in order; otherwise as `shards_of`.

    Raises:
        As there.
    """
    return [shard for shard in shards_of(path, topic) if shard.is_open]


def check_open(shard: Shard, queue: shmq.Queue, doing: str) -> None:
    """
    Refuse a shard that a growth has finished: a put would open it again, behind its children.

    Raises:
        Mismatch: so it has.
    """
    if shard.grows and queue.finished:
        raise shmq.Mismatch(
            f"cannot {doing} {shard.label}: {os.path.dirname(shard.path)} has grown, or was finished, since this was "
            "planned; nothing was put there. Repeat it, and it goes to the shards that are open now"
        )


def _is_topic(path: str) -> bool:
    try:
        return bool(shards_of(path))
    except shmq.NotFound:
        return False


def _the_queue(root: str) -> list[Shard]:
    """
    The shards of the queue *root*.

    Raises:
        NotFound: it is none; perhaps there are several in it.
    """
    try:
        return shards_of(root)
    except shmq.NotFound:
        there = (
            [name for name in sorted(os.listdir(root)) if _is_topic(f"{root}/{name}")] if os.path.isdir(root) else []
        )
        if not there:
            raise
    raise shmq.NotFound(
        f"cannot read {root} with Spark: it is not a queue but a directory with {', '.join(there)}: say which, as "
        f'.option("subscribe", "{",".join(there)}"), or read {root}/{there[0]}'
    )


def know(options: SourceOptions | SinkOptions) -> None:
    """From now on this process can ask the hosts of a query."""
    access = hosts.Access(options.token_file, options.roots_file)
    for each in filter(None, (options.queue, getattr(options, "intents", None))):
        hosts.know(each, access)


def root_of(options: SourceOptions) -> str:
    """Where all of it is, for a checkpoint."""
    return options.queue if hosts.is_remote(options.queue) else os.path.abspath(options.queue)


def _shards(found: Iterable[hosts.Found]) -> list[Shard]:
    return sorted(Shard(each.topic, each.number, each.path) for each in found)


def _find_on_hosts(options: SourceOptions) -> list[Shard]:
    """
    As `find`. A queue is named by its name below the address, for all hosts that have it, or by its host, too.

    Raises:
        NotFound: as there.
    """
    know(options)
    there = hosts.below(options.queue)
    if options.assign:
        wanted = {(name, number) for name, numbers in options.assign.items() for number in numbers}
        found = [each for each in there if {(each.short, each.number), (each.topic, each.number)} & wanted]
        missing = wanted - {(name, each.number) for each in found for name in (each.short, each.topic)}
    elif options.subscribe:
        found = [each for each in there if {each.short, each.topic} & set(options.subscribe)]
        missing = {(name, 0) for name in set(options.subscribe) - {n for e in found for n in (e.short, e.topic)}}
    elif options.pattern:
        found, missing = [each for each in there if re.fullmatch(options.pattern, each.short)], set()
    else:
        return [each for at in options.queue.split(",") for each in shards_of(at.strip())]
    if missing or not found:
        wanted_names = ", ".join(sorted(f"{name}/{number}" for name, number in missing)) or options.pattern
        raise shmq.NotFound(f"cannot read {options.queue}: there is no {wanted_names}")
    return _shards(found)


def find(options: SourceOptions) -> list[Shard]:
    """
    Every shard that the options name, by topic and number.

    Raises:
        NotFound: a queue that was named is not there, or nothing matches.
    """
    if hosts.is_remote(options.queue):
        return _find_on_hosts(options)
    root = os.path.abspath(options.queue)
    if options.assign:
        named = [shard for topic in options.assign for shard in shards_of(f"{root}/{topic}", topic)]
        found = [shard for shard in named if shard.number in options.assign[shard.topic]]
        missing = {(t, n) for t, ns in options.assign.items() for n in ns} - {(s.topic, s.number) for s in found}
        if missing:
            raise shmq.NotFound(f"cannot read {root}: it has no shard {sorted(missing)}")
    elif options.subscribe:
        found = [shard for topic in options.subscribe for shard in shards_of(f"{root}/{topic}", topic)]
    elif options.pattern:
        if not os.path.isdir(root):
            raise shmq.NotFound(f"cannot read {root}: there is no such directory")
        topics = [name for name in sorted(os.listdir(root)) if re.fullmatch(options.pattern, name)]
        found = [shard for topic in topics if _is_topic(f"{root}/{topic}") for shard in shards_of(f"{root}/{topic}")]
    else:
        found = _the_queue(root)
    if not found:
        raise shmq.NotFound(f"cannot read {root}: no queue in it is called like {options.pattern}")
    return sorted(found)


# ---------------------------------------------------------------- opening
_open: dict[tuple[int, str, bool], tuple[shmq.Queue, tuple[int, int]]] = {}
"""By process, path and kind: the handle, and which file its mark was."""
_lock = threading.Lock()


def open_queue(path: str, *, read_only: bool = False) -> shmq.Queue:
    """
    The queue at *path*, open in this process; the last 64 stay open.

    A writable handle is wanted where the end is looked for: it pads what dead producers claimed. Where the directory
    may not be written it is read-only all the same.
    """
    if hosts.is_remote(path):
        return hosts.open_queue(path)  # type: ignore[no-any-return]  # it has the verbs that are used here
    key = (os.getpid(), path, read_only)
    with _lock:
        queue, known = _open.pop(key, (None, None))
        there = _mark_of(path)
        if queue is not None and (queue.closed or there != known):  # deleted, and perhaps made again
            queue.close()
            queue = None
        if queue is None:
            queue = _opened(path, read_only=read_only)
        _open[key] = queue, there  # now the last one
        while len(_open) > _KEPT:
            _open.pop(next(iter(_open)))[0].close()
        return queue


class Origin(NamedTuple):
    """
    Where work was planned. A task runs on any host that has an executor, and only files say which queue is there.

    Plain data: it travels to executors.
    """

    host: str

    @classmethod
    def here(cls) -> Origin:
        """This host."""
        return cls(socket.gethostname())

    def open(self, doing: str, path: str, queue_id: str, how: Callable[[str], shmq.Queue]) -> shmq.Queue:
        """
        The queue that was meant.

        Args:
            doing: what is tried, for people: "read orders/0".
            path: where it was when the work was planned.
            queue_id: its id.
            how: what opens it.

        Raises:
            NotFound: there is none at that path here.
            Mismatch: it is another one.
        """
        try:
            queue = how(path)
        except shmq.NotFound:
            raise shmq.NotFound(
                f"{self._cannot(doing)} there is no queue at {path} here. {self._because(path)}"
            ) from None
        if queue.id != queue_id:
            queue.close()
            raise shmq.Mismatch(
                f"{self._cannot(doing)} the queue at {path} here is {queue.id}, and {queue_id} is meant. "
                f"{self._because(path)}"
            )
        return queue

    def _cannot(self, doing: str) -> str:
        return f"cannot {doing} on host {socket.gethostname()}:"

    def _because(self, path: str) -> str:
        if self.host == socket.gethostname() or hosts.is_remote(path):
            return "It was deleted, and perhaps made again, since Spark planned this. Start the query again"
        return (
            f"It was planned on host {self.host}, and Spark runs tasks on any host that has an executor: each of them "
            f"needs that very directory. Else run the query on {self.host} alone, with the master local[*], or archive "
            "each host's shards to storage that all can see (docs/spark/clusters.md)"
        )


def close_all() -> None:
    """Close what this process has open, so that nobody who wants to delete a queue waits for it."""
    with _lock:
        for queue, _ in _open.values():
            queue.close()
        _open.clear()


def open_to_read(path: str) -> shmq.Queue:
    """The queue at *path*, read-only, as `open_queue`; one of another host from this one's disk, if it is here."""
    queue: Any = open_queue(path, read_only=True)
    if not hosts.is_remote(path):
        return queue  # type: ignore[no-any-return]
    local = queue.here()
    if local is not None:
        with local:
            at = local.path
        local = open_queue(at, read_only=True)
    return local if local is not None and local.id == queue.id else queue  # type: ignore[no-any-return]


def open_to_write(path: str) -> shmq.Queue:
    """The queue at *path*, for whoever closes it again."""
    if hosts.is_remote(path):
        return hosts.open_queue(path)  # type: ignore[no-any-return]
    return shmq.open(path, create=False, trusted=True)  # payloads come as bytes, and nothing here unpickles them


def _opened(path: str, *, read_only: bool) -> shmq.Queue:
    # trusted: payloads are handed on as bytes, and nothing here unpickles them.
    if not read_only and os.access(path, os.W_OK):
        return open_to_write(path)
    return shmq.open(path, create=False, read_only=True, trusted=True)


def _mark_of(path: str) -> tuple[int, int]:
    try:
        mark = os.stat(f"{path}/{_MARK}")
    except FileNotFoundError:
        return (0, 0)
    return mark.st_dev, mark.st_ino
